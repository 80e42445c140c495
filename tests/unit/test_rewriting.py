# SPDX-License-Identifier: Apache-2.0
"""Other ways to write a pipeline: what they are, and that a shell prints the same for both."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipelined.analysis import many_files, rewriting, xargs
from pipelined.analysis.rewriting import Script, files, matching, rewrite
from pipelined.analysis.shell_text import Command, Pipeline, parse, plain
from unit.invented import START, make_run, make_stage


def pipeline(text: str) -> Pipeline:
    found = parse(text)
    assert found is not None, text
    return found


def changed(change: Callable[[Command], Command | None], index: int = -1) -> Rewriting:
    """A change of one command as one of the pipeline."""

    def rewrite(old: Pipeline) -> Pipeline | None:
        commands = list(old.commands)
        new = change(commands[index])
        if new is None:
            return None
        commands[index] = new
        return Pipeline(tuple(commands))

    return rewrite


Rewriting = Callable[[Pipeline], Pipeline | None]
no_cat = rewriting.in_place_of_cat
more = changed(xargs.more_at_a_time)
more_behind = changed(xargs.more_at_a_time, 1)
first_more = changed(xargs.more_at_a_time, 0)
unflushed = changed(rewriting.flushing_less, 0)


def swapped(old: Pipeline) -> Pipeline | None:
    return rewriting.swapped(old, 0)


def hashed(old: Pipeline) -> Pipeline | None:
    return rewriting.counted_in_hash(old, 0)


def counted(old: Pipeline) -> Pipeline | None:
    return rewriting.counted_by_grep(old, 0)


def joined(old: Pipeline) -> Pipeline | None:
    return rewriting.joined(old, range(len(old.commands)))


def fronted(old: Pipeline) -> Pipeline | None:
    found = rewriting.with_reader_in_front(old, "cat")
    return found[0] if found else None


def blocked(old: Pipeline) -> Pipeline | None:
    found = rewriting.with_reader_in_front(old, "dd bs=32k")
    return found[0] if found else None


def opened(old: Pipeline) -> Pipeline | None:
    return many_files.opened_by_reader(old, 1 if old.commands[0].program == "ls" else 0)


def tailed(old: Pipeline) -> Pipeline | None:
    return many_files.with_tail(old, 1 if old.commands[0].program == "ls" else 0)


#: What is rewritten, how, and what it becomes. A shell prints the same for both.
SAME: list[tuple[Rewriting, str, str]] = [
    (no_cat, "cat 'my file' | wc -l", "wc -l < 'my file'"),
    (no_cat, "cat < f | wc -l", "wc -l < f"),
    (no_cat, "dd if=f bs=1M | wc -l", "wc -l < f"),
    (no_cat, "cat f 'my file' | sed s/a/b/", "sed s/a/b/ f 'my file'"),
    (no_cat, "cat f g | grep -i aa", "grep -h -i aa f g"),
    (no_cat, "cat ? | sort", "sort ?"),
    (no_cat, "cat ./? | awk '{ print $1 }'", "awk '{ print $1 }' ./?"),
    (no_cat, "cat f g | awk -v ORS=, '{ print $1 }'", "awk -v ORS=, '{ print $1 }' f g"),
    (no_cat, "cat f | awk -v RS= '{ print NF }'", "awk -v RS= '{ print NF }' < f"),
    (no_cat, "cat f | dd bs=1M status=none", "dd bs=1M status=none < f"),
    (fronted, "wc -l < f | cat", "cat f | wc -l | cat"),
    (fronted, "gzip < f | gzip -dc", "cat f | gzip | gzip -dc"),
    (no_cat, "cat f | gzip -1n", "gzip -1n < f"),
    (fronted, "md5sum < f | cat", "cat f | md5sum | cat"),
    (hashed, "sort ./? | uniq", "awk '!n[$0]++' ./? | sort"),
    (no_cat, "cat f g | awk '{ print NR, $2 }'", "awk '{ print NR, $2 }' f g"),
    (fronted, "awk '{ print $1 }' f | wc", "cat f | awk '{ print $1 }' | wc"),
    (fronted, "awk -F: '{ print $1 }' f g | wc", "cat f g | awk -F: '{ print $1 }' | wc"),
    (fronted, "grep -c a < f | cat", "cat f | grep -c a | cat"),
    (blocked, "wc -l < f | cat", "dd bs=32k if=f | wc -l | cat"),
    (swapped, "sed s/x/y/ f | grep aa | wc", "grep aa f | sed s/x/y/ | wc"),
    (swapped, "sort f | awk '{ print $1 }' | sort", "awk '{ print $1 }' f | sort | sort"),
    (swapped, "sort < f | cut -c 1 | sort", "cut -c 1 < f | sort | sort"),
    (hashed, "sort f | uniq -c", f"{rewriting.COUNT} f | sort -k2"),
    (hashed, "sort < f | uniq -c | sort -rn", f"{rewriting.COUNT} < f | sort -rn"),
    (hashed, "sort f | uniq | wc -l", "awk '!n[$0]++' f | sort | wc -l"),
    (counted, "grep a f | wc -l", "grep -c a f"),
    (counted, "grep -iv ab < f | wc -l", "grep -c -iv ab < f"),
    (joined, "sed s/a/b/ f | sed -e s/b/c/g -e /cc/d | sed 's,c\\,,d,'", ""),
    (joined, "sed -E 's/(a)/[\\1]/' f | sed -E 's/b+/B/'", ""),
    (joined, "grep aa f | awk '{ print $2 }'", "awk '/aa/ { print $2 }' f"),
    (more_behind, "ls f g | xargs -n1 cat | wc -w", ""),
    (unflushed, "grep --line-buffered a f | cat", "grep a f | cat"),
    (unflushed, "sed -u s/a/b/ f | cat", "sed s/a/b/ f | cat"),
    (unflushed, "stdbuf -oL cut -c 1 f | cat", "cut -c 1 f | cat"),
    (
        unflushed,
        "stdbuf -oL nice env LC_ALL=C cut -c 1 f | cat",
        "nice env LC_ALL=C cut -c 1 f | cat",
    ),
    (opened, "ls | xargs cat | cut -c 1 | sort", "ls | xargs cut -c 1 | sort"),
    (opened, "ls | xargs -d '\\n' cat | grep 'aa2' | wc", ""),
    (opened, "ls -1 | xargs -d '\\n' -n 2 cat | cut -d , -f 1", ""),
    (opened, "find . -type f -exec cat {} + | awk -F, '{ print $1 }'", ""),
    (opened, "find -L f ./g -exec cat {} + | awk '{ print $1 }'", ""),
    (opened, "find . -type f -exec cat {} + | sed s/a/b/", "find . -type f -exec sed s/a/b/ {} +"),
    (opened, "find . -type f -exec cat {} + | grep -o a. | wc", ""),
    (tailed, "cat f 'my file' g | wc", "tail -q -n +1 f 'my file' g | wc"),
    (tailed, "ls | xargs -d '\\n' cat | wc", "ls | xargs -d '\\n' tail -q -n +1 | wc"),
    (tailed, "find . -type f -exec cat {} + | wc", "find . -type f -exec tail -q -n +1 {} + | wc"),
]


@pytest.mark.parametrize(("rewrite", "old", "new"), SAME, ids=[old for _, old, _ in SAME])
def test_a_shell_prints_the_same(rewrite: Rewriting, old: str, new: str, tmp_path: Path) -> None:
    lines = [f"{'ab' * (n % 3)}a,{n % 7} aa{n % 4} x: a\n" for n in range(50)]
    (tmp_path / "f").write_text("".join(lines))
    (tmp_path / "g").write_text("aa b\n")
    (tmp_path / "my file").write_text("aa\n")
    found = rewrite(pipeline(old))
    assert found is not None
    if new:
        assert found.text == new
    printed = [
        subprocess.run(
            ["sh", "-c", f"LC_ALL=C; export LC_ALL; {text}"],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for text in (old, found.text)
    ]
    assert printed[0] == printed[1] != b""


@pytest.mark.parametrize(
    ("rewrite", "old"),
    [
        (no_cat, "cat -n f | wc"),
        (no_cat, "cat f g | wc"),
        (no_cat, "cat f g | grep -c a"),
        (no_cat, "cat f g | grep -in a"),
        (no_cat, "cat f g | grep -m 1 a"),
        (no_cat, "cat f g | grep --count a"),
        (no_cat, "cat f g | grep -z a"),
        (no_cat, "cat *.log | wc"),
        (no_cat, "cat f g | awk '{ print FNR }'"),
        (no_cat, "cat f g | awk '{ print; nextfile }'"),
        (no_cat, "cat f g | awk -f prog"),
        (no_cat, "cat f g | gawk --file=prog"),
        (no_cat, "cat f g | sed -s 1d"),
        (no_cat, "cat f g | sort -m"),
        # the end of a file ends a record, whatever else does
        (no_cat, "cat f g | awk -v RS= '{ print NF }'"),
        (no_cat, "cat f g | awk -vRS=, '{ print NF }'"),
        (no_cat, "cat f g | awk 'BEGIN { RS = \"\" } { print NF }'"),
        (no_cat, "cat f g | sed -z 's/\\n/,/g'"),
        (no_cat, "cat f g | sort -uz"),
        (no_cat, "cat f g | cut -z -c 1"),
        (fronted, "awk -v RS= '{ print NF }' f g | wc"),
        # a wc with several counts pads them by the size of the file that it reads
        (no_cat, "cat f | wc"),
        (no_cat, "cat f | wc -lw"),
        # it would not end
        (no_cat, "cat f | tail -f | grep a"),
        (no_cat, "cat f | tail -n 9 --follow | grep a"),
        # a pipe may have less than a block at a time
        (no_cat, "cat f | dd bs=1M count=9"),
        (no_cat, "cat f | dd bs=1M skip=1"),
        # awk may take what the shell or find finds, dt=1/part, for a variable that is set
        (no_cat, "cat */part | awk '{ print }'"),
        (no_cat, "cat [a-z]*/part | awk '{ print }'"),
        (hashed, "sort */part | uniq -c"),
        (opened, "ls | xargs cat | awk '{ print }'"),
        # sed would change all files in place if one of them is called -i
        (opened, "ls | xargs -d '\\n' cat | sed s/a/b/ | sort"),
        (opened, "find dt=1 -exec cat {} + | awk '{ print }'"),
        (opened, "find d* -exec cat {} + | awk '{ print }'"),
        (opened, "find -files0-from f -exec cat {} + | awk '{ print }'"),
        (no_cat, "cat f g | sort - h"),
        (no_cat, "nice cat f | wc"),
        (no_cat, "dd if=f count=3 | wc"),
        (no_cat, "cat | wc"),
        (no_cat, "cat a=b c | awk '{ print }'"),
        (hashed, "sort a=b | uniq -c"),
        (swapped, "sort a=b | awk '{ print }'"),
        (fronted, "grep aa f g | wc"),
        (fronted, "grep -r aa d | wc"),
        (fronted, "tar c f | wc"),
        (fronted, "awk '{ print FILENAME }' f g | wc"),
        (fronted, "awk '{ print FILENAME }' f | wc"),
        (fronted, "awk -f prog f | wc"),
        (fronted, "grep -H a f | wc"),
        (fronted, "grep -l a f | wc"),
        (fronted, "md5sum f | wc"),
        (fronted, "sha256sum f | wc"),
        (fronted, "wc -l f | cat"),
        (fronted, "wc < f | cat"),
        (fronted, "gzip -c f | wc"),
        (fronted, "gzip -d f.gz | wc"),
        (fronted, "gzip --decompress f.gz | wc"),
        (fronted, "sort -m f g | wc"),
        # a key of old
        (fronted, "sort +1 f | wc"),
        (swapped, "sort +1 < f | grep a"),
        (fronted, "awk '{ print v }' v=1 f | wc"),
        (fronted, "sed -i s/a/b/ f | wc"),
        (blocked, "awk '{ print $1 }' f g | wc"),
        (swapped, "sed s/a/b/ f g | grep c"),
        (swapped, "sed s/a/b/ f | grep c - g"),
        (swapped, "sed s/a/b/ f | python3 x.py"),
        (hashed, "sort -s -k1,1 f | uniq -c"),
        (hashed, "sort f | uniq -d"),
        (counted, "grep -o a f | wc -l"),
        (counted, "grep a f g | wc -l"),
        (counted, "grep a f | wc -c"),
        (counted, "grep a *.log | wc -l"),
        (counted, "grep -A 2 a f | wc -l"),
        (joined, "sed 3d f | sed s/a/b/"),
        (joined, "sed s/a/b/ f | sed '$!N'"),
        (joined, "sed -n s/a/b/p f | sed s/b/c/"),
        (joined, "sed s/a/b/w f | sed s/b/c/"),
        (joined, "sed s//b/ f | sed s/b/c/"),
        (joined, "sed -E s/a/b/ f | sed s/b/c/"),
        (joined, "grep 'a.b' f | awk '{ print }'"),
        (joined, "grep -v ab f | awk '{ print }'"),
        (joined, "grep ab dt=1/part | awk '{ print }'"),
        (joined, "grep ab f | awk '{ n++ } END { print n }'"),
        (more, "ls | xargs -I{} sh -c 'echo {} x'"),
        (more, "ls | xargs -n 5 echo"),
        (first_more, "find . -exec echo {} x \\; | cat"),
        (first_more, "find . -name a | cat"),
        (unflushed, "grep a f | cat"),
        (opened, "ls | xargs cat | grep a"),
        (opened, "ls | xargs cat | grep -c a | cat"),
        (opened, "ls | xargs cat | awk '{ n++ } END { print n }'"),
        (opened, "ls | xargs cat | wc -l"),
        (opened, "ls | xargs cat | sed 3d"),
        (opened, "ls | xargs cat | cut -c 1 - g"),
        (opened, "ls | xargs cat | LC_ALL=C cut -c 1"),
        (opened, "ls | xargs cat"),
        (opened, "ls | xargs cat -n | cut -c 1"),
        (opened, "ls | xargs -I{} cat {} | cut -c 1"),
        (opened, "ls | xargs -P 4 cat | cut -c 1"),
        (opened, "ls | xargs -rI f cat | cut -c 1"),
        (opened, "ls | xargs --max-args=3 cat | cut -c 1"),
        (opened, "find . -exec cat {} + | awk '{} { print }'"),
        (opened, "find . -exec cat {} ';' | cut -c 1"),
        (opened, "find . -print -exec cat {} + | cut -c 1"),
        (tailed, "cat -n f g | wc"),
        (tailed, "cat f | wc -l"),
        (tailed, "cat f g | cut -c 1"),
        (tailed, "cat | wc"),
        (tailed, "ls | xargs -P 4 cat | wc"),
        (tailed, "grep a f | wc"),
    ],
)
def test_what_would_be_another_result_is_not_offered(rewrite: Rewriting, old: str) -> None:
    assert rewrite(pipeline(old)) is None


def test_processes_get_many_arguments_at_a_time() -> None:
    for way, old, new in (
        (more, "ls | xargs -n 1 gzip -9", "ls | xargs -n 1000 gzip -9"),
        (more, "ls | xargs -I{} gzip -9 {}", r"ls | xargs -r -d '\n' gzip -9"),
        (first_more, r"find . -exec md5sum {} \; | sort", "find . -exec md5sum {} + | sort"),
        (first_more, "find . -exec md5sum {} ';' | sort", "find . -exec md5sum {} + | sort"),
    ):
        found = way(pipeline(old))
        assert found is not None and found.text == new


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("cat a b", ["a", "b"]),
        ("cat -n", []),
        ("awk '{ x }' a", ["a"]),
        ("awk -f p a", ["a"]),
        ("mawk -F : -v x=1 '{ x }' a b", ["a", "b"]),
        ("grep -e x a", ["a"]),
        ("grep -A2 x a", ["a"]),
        ("grep -A 2 x a", ["a"]),
        ("grep --regexp=x a", ["a"]),
        ("grep --color x a", None),
        ("grep -rn x a", None),
        ("sed -n -e p -e q a", ["a"]),
        ("sort -k 2 -t: -S1M -nr a", ["a"]),
        ("sort -- -a", ["-a"]),
        ("sort +1 a", None),
        ("tail +5 a", None),
        ("cut -d ' ' -f 1", []),
        ("head -n 3 a", ["a"]),
        ("python3 a", None),
    ],
)
def test_the_files_of_a_command(text: str, names: list[str] | None) -> None:
    found = files(pipeline(text).commands[0])
    assert (None if found is None else [word.value for word in found]) == names


# -- the pipeline of a run


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("cat f | LC_ALL=C /usr/bin/sort | uniq -c", ("cat", "sort", "uniq")),
        ("zcat f | egrep x", ("zcat", "egrep")),
        ("zcat f | egrep x", ("gzip", "grep")),
        ("a-very-long-program-name f | wc", ("a-very-long-pro", "wc")),
    ],
)
def test_a_pipeline_whose_commands_are_the_stages_is_that_of_the_run(
    text: str, commands: tuple[str, ...]
) -> None:
    run = make_run([make_stage(n, name) for n, name in enumerate(commands, 1)], 1.0)
    assert matching(Script(text), run) is not None
    assert matching(Script(f"{text} | cat"), run) is None
    assert matching(Script(text), replace(run, edges=())) is None
    assert matching(Script(text), replace(run, series=replace(run.series, nested=True))) is None
    assert matching(None, run) is None


def test_a_program_of_busybox_is_not_rewritten_as_the_one_whose_name_it_has() -> None:
    # it is known by that name, but takes other options
    run = make_run([make_stage(1, "sort"), make_stage(2, "uniq")], 1.0)
    assert matching(Script("sort f | uniq"), run) is not None
    assert matching(Script("busybox sort f | busybox uniq"), run) is None


def test_a_part_that_the_shell_runs_itself_is_not_certain() -> None:
    run = make_run([make_stage(1, "bash"), make_stage(2, "cat")], 1.0)
    assert matching(Script("bash x | cat"), run) is None


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("cat f | sort", True),
        ("sort < f | uniq", True),
        ("find . | sort", True),
        ("tar c d | gzip", True),
        ("tar cf - d | gzip", True),
        ("sort | uniq", False),
        ("cat - f | sort", False),
        ("grep x | sort", False),
    ],
)
def test_a_pipeline_that_may_need_our_input_is_not_run_without_it(text: str, alone: bool) -> None:
    old = pipeline(text)
    for script in (Script(text), Script(text, own_input=True)):
        assert bool(rewrite(script, old, old).command) == alone


def test_an_unknown_command_has_an_input_of_its_own_if_ours_is_a_terminal() -> None:
    old = pipeline("stat -f / | sort")
    assert rewrite(Script(old.text), old, old).command == ""
    assert rewrite(Script(old.text, own_input=True), old, old).command


@pytest.mark.parametrize("text", ["cat f | tee g", "find . -delete | wc", "sort -o f f | cat"])
def test_what_changes_something_is_not_run_again(text: str) -> None:
    old = pipeline(text)
    assert rewrite(Script(text, own_input=True), old, old).command == ""


def test_the_command_can_be_pasted() -> None:
    text = "grep 'it'\\''s' \"my file\" | sort"
    old = pipeline(text)
    words = shlex.split(rewrite(Script(text), old, old, cold=[plain("f")]).command)
    assert words == ["pipelined", "compare", "--cold", "f", text, text]


def test_outputs_are_compared_by_lines_if_their_order_may_change() -> None:
    old = pipeline("sort f | uniq")
    words = shlex.split(rewrite(Script(old.text), old, old, reordered=True).command)
    assert words[2:] == ["--match", "lines", old.text, old.text]


def test_compressed_outputs_are_compared_by_what_is_in_them() -> None:
    old = pipeline("tar c f | gzip")
    words = shlex.split(rewrite(Script(old.text), old, old, unpacked="gzip -dc").command)
    assert words[2:] == ["tar c f | gzip | gzip -dc"] * 2


def test_what_is_written_with_single_quotes_is_put_into_double_ones_if_that_is_the_same() -> None:
    for text, quoted in (
        ("grep 'a b' f | sort", "\"grep 'a b' f | sort\""),
        ("grep 'a$' f | sort", "'grep '\"'\"'a$'\"'\"' f | sort'"),
    ):
        old = pipeline(text)
        assert rewrite(Script(text), old, old).command == f"pipelined compare {quoted} {quoted}"


def test_files_that_a_shell_has_to_find_are_not_named_to_be_cold() -> None:
    old = pipeline("cat *.log | sort")
    assert rewrite(Script(old.text), old, old, cold=files(old.commands[0]) or ()).command == ""


def test_the_command_lines_of_all_stages_are_a_script() -> None:
    stages = [
        make_stage(1, "grep", arguments="grep 'a b' f", start=START),
        make_stage(2, "wc", arguments="wc -l"),
    ]
    run = make_run(stages, 1.0)
    assert Script.of_arguments(run) == Script("grep 'a b' f | wc -l")
    for last in (None, "wc -l x y …"):  # not known, or not to its end
        stages[1] = make_stage(2, "wc", arguments=last)
        assert Script.of_arguments(make_run(stages, 1.0)) is None


@pytest.mark.parametrize("line", ["LD_PRELOAD=/tmp/e.so cat f", "A+= cat f", "A='b c' cat f"])
def test_the_name_that_a_program_was_started_by_is_no_assignment(line: str) -> None:
    stages = [make_stage(n, "x", arguments=text) for n, text in enumerate((line, "wc -l"), 1)]
    script = Script.of_arguments(make_run(stages, 1.0))
    assert script is not None
    first = pipeline(script.text).commands[0]
    words = shlex.split(line)
    assert first.assignments == ()
    assert [word.value for word in first.words] == words
    asked = f'set -- {first.text}; echo "$1"'
    echoed = subprocess.run(["bash", "-c", asked], check=True, capture_output=True, text=True)
    assert echoed.stdout == f"{words[0]}\n"


def test_a_run_inside_a_command_has_the_text_of_its_stages() -> None:
    known = [make_stage(1, "grep", arguments="grep a f"), make_stage(2, "wc", arguments="wc -l")]
    run = make_run(known, 1.0)
    inside = replace(run, series=replace(run.series, nested=True))
    whole = Script("for f in *; do grep a $f | wc -l; done")
    for each in (run, inside):
        found = Script.of_run(each, whole)
        assert found == Script("grep a f | wc -l") and matching(found, each) is not None
        assert Script.of_run(each, None) == found


def test_what_is_installed_holds_inside_a_command_and_its_locale_may_not() -> None:
    known = [make_stage(1, "grep", arguments="grep a f"), make_stage(2, "wc", arguments="wc -l")]
    whole = Script("./job.sh", locale="de_DE", awk="mawk", missing=frozenset({"pigz"}))
    found = Script.of_run(make_run(known, 1.0), whole)
    assert found == Script("grep a f | wc -l", awk="mawk", missing=frozenset({"pigz"}))


def test_a_run_that_is_the_command_has_its_text_and_what_else_is_known_of_it() -> None:
    known = [make_stage(1, "grep", arguments="grep a f"), make_stage(2, "wc", arguments="wc -l")]
    whole = Script("grep a f | wc -l > out", locale="C")
    assert Script.of_run(make_run(known, 1.0), whole) is whole
    other = Script("f | g")
    assert Script.of_run(make_run([make_stage(1, "x"), make_stage(2, "y")], 1.0), other) is other


@pytest.mark.parametrize(
    ("command", "new"),
    [
        ("sort -S 1M -k 2 f", "sort -S 64M -k 2 f"),
        ("sort -S1M f", "sort -S 64M f"),
        ("sort --buffer-size=1M -n f", "sort -S 64M -n f"),
        ("sort -nS f", "sort -S 64M -nS f"),
    ],
)
def test_a_sort_is_given_another_buffer(command: str, new: str) -> None:
    assert rewriting.with_buffer(pipeline(command).commands[0], "64M").text == new


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cut -f 2 | sed s/a/b/ | sed s/b/c/ | wc", "cut -f 2 | sed -e s/a/b/ -e s/b/c/ | wc"),
        (
            "cut -f 2 | sed -E s/a/b/ | sed -r s/b/c/ | wc",
            "cut -f 2 | sed -E -e s/a/b/ -e s/b/c/ | wc",
        ),
        ("cat f | grep aa | awk '{ n }' | wc", "cat f | awk '/aa/ { n }' | wc"),
    ],
)
def test_commands_in_the_middle_are_joined(old: str, new: str) -> None:
    found = rewriting.joined(pipeline(old), (1, 2))
    assert found is not None and found.text == new


@pytest.mark.parametrize(
    "old",
    [
        "sed s/a/b/ | sed s/b/c/ g",
        "sed s/a/b/ | nice sed s/b/c/",
        "sed s/a/b/ | X=1 sed s/b/c/",
        "sed s/a/b/ | sed",
        "sed s/a/b/ | sed -e s/b/c/ -n",
        "grep aa f g | awk '{ n }'",
        "grep aa *.log | awk '{ n }'",
        "grep aa | awk '{ n }' f",
        "grep aa bb | awk",
        "grep -i aa | awk '{ n }'",
        "grep aa | awk '{ n } { m }'",
        "grep aa | awk '{ print NR, $1 }'",
        "grep aa f | awk '{ print FNR }'",
        "grep aa f | awk '{ print FILENAME }'",
        "grep aa f | awk '{ getline; print }'",
        "grep aa f | awk '{ print; nextfile }'",
        "grep aa f | gawk '{ print RT }'",
        "grep aa f | awk -v RS= '{ print }'",
        "grep aa f | gawk -v IGNORECASE=1 '{ print }'",
        "grep aa f | awk -F '{x}'",
    ],
)
def test_what_one_command_would_do_otherwise_is_not_joined(old: str) -> None:
    assert joined(pipeline(old)) is None


def test_commands_in_the_middle_are_counted_and_turned() -> None:
    found = rewriting.counted_by_grep(pipeline("cut -f 2 | grep a | wc -l"), 1)
    assert found is not None and found.text == "cut -f 2 | grep -c a"
    assert rewriting.counted_by_grep(pipeline("grep a | wc -l f"), 0) is None
    assert rewriting.counted_by_grep(pipeline("grep a | wc"), 0) is None
    turned = rewriting.swapped(pipeline("cut -f 2 | sed s/a/b/ | grep c | wc"), 1)
    assert turned is not None and turned.text == "cut -f 2 | grep c | sed s/a/b/ | wc"
    assert rewriting.swapped(pipeline("cut -f 2 | sed s/a/b/ f | grep c | wc"), 1) is None
    assert rewriting.swapped(pipeline("sed s/a/b/ *.log | grep c"), 0) is None


@pytest.mark.parametrize(
    ("command", "new"),
    [
        (r"find . -exec md5sum {} \; -exec md5sum {} \;", None),
        (r"find . -exec md5sum {} {} \;", None),
        (r"find . -execdir wc {} \;", None),
        # with +, -exec is always true, and is executed behind what follows it
        (r"find . -exec md5sum {} \; -print", None),
        (r"find . -type f -exec grep -q a {} \; -print0", None),
        (r"find . ! -exec grep -q a {} \; -print", None),
        (r"find . -exec grep -q a {} \; -o -print", None),
        (r"find . -exec grep -q a {} \; -quit", None),
        (r"find . \( -exec grep -q a {} \; \) -print", None),
        (r"find . -print -exec md5sum {} \;", None),
        (r"find . -delete -exec md5sum {} \;", None),
        (r"find . -ls -exec md5sum {} \;", None),
        (r"find . -ok md5sum {} \; -exec md5sum {} \;", None),
        (
            r"find . -name a -prune -o -exec md5sum {} \;",
            "find . -name a -prune -o -exec md5sum {} +",
        ),
        ("xargs -I{} {}", None),
        ("xargs -I{} gzip {} {}", None),
        ("xargs -I{} gzip a{} {}", None),
        ("xargs -I{} gzip {} -9", None),
        ("xargs -I % gzip %", None),
        ("xargs -n 2 gzip", None),
        ("xargs -I{} gzip {}", r"xargs -r -d '\n' gzip"),
        ("xargs -n1 gzip", "xargs -n 1000 gzip"),
        ("xargs -0 -n 1 gzip -9", "xargs -0 -n 1000 gzip -9"),
        ("xargs -0n1 gzip", None),
        ("xargs -r -n1 -d , gzip -n 1", "xargs -r -n 1000 -d , gzip -n 1"),
        ("xargs gzip -n1", None),
        ("xargs --max-args=1 gzip", None),
        ("xargs -n 1 -n 5 gzip", None),
        ("xargs -L1 -n1 gzip", None),
        ("xargs -P 0 -n 1 gzip", None),
        ("parallel -n1 gzip", None),
        # options behind -n 1 stay in front of the command
        ("xargs -n1 -0 md5sum -b", "xargs -n 1000 -0 md5sum -b"),
        ("xargs -n1 -0 grep a", "xargs -n 1000 -0 grep -h a"),
        ("xargs -n1 -0 wc -l", None),
        ("xargs -n 1 -P 4 grep a", None),
        ("xargs -I{} -P4 wc -l {}", None),
        ("xargs -I{} -P4 gzip {}", None),
        ("xargs -I{} -n1 gzip {}", None),
        ("xargs -I{} --max-procs=4 gzip {}", None),
        # as grep by another path; what a wrapper runs is not looked at
        (r"find . -exec /bin/grep a {} \;", "find . -exec /bin/grep -h a {} +"),
        ("xargs -n1 /usr/bin/wc", None),
        ("xargs -n1 nice grep a", None),
        ("xargs -n1 env A=b wc", None),
        ("xargs -n 1 grep -c a", "xargs -n 1000 grep -h -c a"),
        ("xargs -I{} grep a {}", r"xargs -r -d '\n' grep -h a"),
        (r"find . -exec grep a {} \;", "find . -exec grep -h a {} +"),
        # of files that it is given it names none, if it is one
        ("xargs -n 1 grep -cr a", None),
        (r"find . -type f -exec grep -rn ERROR {} \;", None),
        (r"find . -exec grep -d recurse a {} \;", None),
        # between matches of two files it prints a line
        (r"find . -exec grep -A1 a {} \;", None),
        ("xargs -n 1 grep -n3 a", None),
        ("xargs -n 1 grep --context=2 a", None),
        ("xargs -n 1 zgrep -c a", "xargs -n 1000 zgrep -h -c a"),
        ("xargs -n 1 md5sum grep", "xargs -n 1000 md5sum grep"),
        ("xargs -n 1 head -n 1", "xargs -n 1000 head -n 1 -q"),
        ("xargs -I{} tail -c 9 {}", r"xargs -r -d '\n' tail -c 9 -q"),
        ("xargs -n 1 basename", "xargs -n 1000 basename -a"),
        (r"find . -exec cat {} \;", "find . -exec cat {} +"),
        (r"find . -exec sed s/a/b/ {} \;", "find . -exec sed s/a/b/ {} +"),
        # it would change all files in place if one of them is called -i
        ("xargs -n 1 sed s/a/b/", None),
        ("xargs -I{} sed s/a/b/ {}", None),
        ("xargs -n 1 awk '/a/'", "xargs -n 1000 awk '/a/'"),
        # what takes its files as one, or adds them up
        (r"find . -exec wc -l {} \;", None),
        ("xargs -n 1 wc -l", None),
        ("xargs -n 1 od -c", None),
        # they name files only if there are several, or make one list of them
        ("xargs -n 1 rg a", None),
        ("xargs -n 1 xzgrep a", None),
        (r"find . -exec ldd {} \;", None),
        # they end at the first one that is broken
        (r"find . -name '*.json' -exec jq -r .id {} \;", None),
        ("xargs -n 1 bzcat", None),
        ("xargs -n 1 bzip2 -dc", None),
        ("xargs -n 1 bzip2 -9", "xargs -n 1000 bzip2 -9"),
        # a line, or a header, for all of them; or a format that takes several
        ("xargs -n 1 git log -1 --format=%cs --", None),
        ("xargs -n 1 printf '%s %s\\n' GET", None),
        (r"find . -exec printf . {} \;", None),
        ("xargs -n 1 ps -fp", None),
        ("xargs -n 1 lsof -p", None),
        ("xargs -n 1 dd", None),
        ("xargs -n 1 find", None),
        (r"find . -exec gzip -l {} \;", None),
        (r"find . -exec xz --list {} \;", None),
        (r"find . -exec zstd -lq {} \;", None),
        (r"find . -exec gzip -dc {} \;", "find . -exec gzip -dc {} +"),
        (r"find . -exec xz -9 {} \;", "find . -exec xz -9 {} +"),
        (r"find . -maxdepth 1 -type d -exec du -s {} \;", None),
        ("xargs -n 1 base64", None),
        ("xargs -n 1 df", None),
        ("xargs -n 1 seq", None),
        ("xargs -n 1 curl -so x", None),
        ("xargs -n 1 echo", None),
        ("xargs -n 1", None),
        ("xargs -P 4 -n 1", None),
        (r"find . -exec tar tzf {} \;", None),
        ("xargs -n 1 file", None),
        ("xargs -n 1 ls -l", None),
        ("xargs -n 1 paste", None),
        ("xargs -n 1 xxd", None),
        ("xargs -I{} cp a {}", None),
        ("xargs -I{} sort -u {}", None),
        ("xargs -n 1 sed 1d", None),
        ("xargs -n 1 awk 'NR == 1'", None),
        ("xargs -n 1 cat -n", None),
        ("xargs -n 1 head -3", None),
        ("xargs -n 1 tail -v -n 1", None),
        ("xargs -n 1 basename -s .gz", None),
        ("xargs -n 1 sh -c 'gzip $0'", None),
        # what nobody knows may take one file only
        ("xargs -n 1 ./load.sh", None),
        ("xargs -n 1 python3 load.py", None),
        ("xargs -I{} ./load.py {}", None),
        (r"find d -type f -exec ps2pdf {} \;", None),
    ],
)
def test_when_more_arguments_at_a_time_are_the_same(command: str, new: str | None) -> None:
    found = xargs.more_at_a_time(pipeline(command).commands[0])
    assert (found.text if found else None) == new


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("tar | gzip", False),
        ("tar x f | gzip", False),
        ("dd bs=1M | sort", False),
        ("dd bs=1M if=f | sort", True),
        ("cat f - | sort", False),
        ("x | sort", False),
    ],
)
def test_what_reads_its_standard_input_needs_it(text: str, alone: bool) -> None:
    assert Script(text).standalone is alone


@pytest.mark.parametrize(
    "old",
    [
        "wc f",
        "cat -n < f | wc",
        "X=1 cat f | wc",
        "dd if=f of=g | wc",
        "dd bs=1M | wc",
        "cat < f g | wc",
        "cat f g | python3 x.py",
        "cat f g | awk '{ print }' h",
    ],
)
def test_a_reader_that_cannot_be_left_out(old: str) -> None:
    assert no_cat(pipeline(old)) is None


def test_a_reader_is_put_before_a_command_that_opens_one_file_or_takes_several_as_one() -> None:
    for old, new, names in (
        ("sort f | wc", "cat f | sort | wc", ["f"]),
        ("sort f g | wc", "cat f g | sort | wc", ["f", "g"]),
        ("sort *.log | wc", "cat *.log | sort | wc", ["*.log"]),
    ):
        found = rewriting.with_reader_in_front(pipeline(old), "cat")
        assert found is not None
        assert (found[0].text, [word.value for word in found[1]]) == (new, names)
    for old in ("sort - f | wc", "sort | wc", "wc *.log | cat"):
        assert fronted(pipeline(old)) is None
    assert blocked(pipeline("sort *.log | wc")) is None


def test_a_cat_with_an_option_among_its_files_stays() -> None:
    assert no_cat(pipeline("cat f -n | wc")) is None


def test_commands_in_front_of_joined_ones_stay() -> None:
    found = rewriting.joined(pipeline("cat f | cut -f 1 | sed s/a/b/ | sed s/b/c/"), (2, 3))
    assert found is not None
    assert found.text == "cat f | cut -f 1 | sed -e s/a/b/ -e s/b/c/"


@pytest.mark.parametrize(
    ("command", "started", "new"),
    [
        ("xargs -n1 -P4 gzip", 4000, "xargs -n 250 -P4 gzip"),
        ("xargs -P 4 -n 1 gzip", 1600, "xargs -P 4 -n 100 gzip"),
        ("xargs -P4 -n1 gzip", 100_000, "xargs -P4 -n 1000 gzip"),
        ("xargs -P4 -n1 gzip", 20, "xargs -P4 -n 2 gzip"),
        ("xargs -P1 -n1 gzip", 4000, "xargs -P1 -n 1000 gzip"),
    ],
)
def test_several_processes_at_a_time_all_keep_work(command: str, started: int, new: str) -> None:
    found = xargs.more_at_a_time(pipeline(command).commands[0], started)
    assert found is not None and found.text == new


@pytest.mark.parametrize(
    "command",
    [
        "xargs -P4 -n1 cut -f 1",
        "xargs -P4 -n1 cat",
        # a busybox writes many sums in pieces
        "xargs -P4 -n1 md5sum",
        "xargs -P4 -n1 md5sum -z",
        "xargs -P4 -n1 gzip -c",
        "xargs -P4 -n1 gzip --to-stdout",
        "xargs -P4 -n1 xz -l",
        "xargs -P4 -n1 mytool",
    ],
)
def test_what_several_processes_print_must_not_be_mixed(command: str) -> None:
    assert xargs.more_at_a_time(pipeline(command).commands[0], 4000) is None


@pytest.mark.parametrize(
    ("command", "new"),
    [
        ("parallel gzip -9", r"xargs -r -d '\n' -P 3 -n 1 gzip -9"),
        ("parallel -j 8 gzip {}", r"xargs -r -d '\n' -P 8 -n 1 gzip"),
        ("nice parallel -j8 gzip", r"nice xargs -r -d '\n' -P 8 -n 1 gzip"),
        ("parallel --jobs 8 md5sum < f", r"xargs -r -d '\n' -P 8 -n 1 md5sum < f"),
        # parallel keeps apart what its processes print
        ("parallel --jobs 8 wc -l < f", None),
        ("parallel gzip -c", None),
        ("parallel cat", None),
        ("parallel -k gzip", None),
        ("parallel -j 50% gzip", None),
        ("parallel -j 0 gzip", None),
        ("parallel --pipe grep a", None),
        ("parallel gzip {.}", None),
        ("parallel 'gzip {}; rm {}'", None),
        ("parallel gzip ::: a b", None),
        ("parallel echo", None),
        ("parallel X=1 gzip", None),
        ("parallel", None),
        ("xargs gzip", None),
    ],
)
def test_when_xargs_does_what_parallel_does(command: str, new: str | None) -> None:
    found = xargs.in_place_of_parallel(pipeline(command).commands[0], 3)
    assert (found.text if found else None) == new


def test_there_is_no_command_with_a_program_that_is_not_installed() -> None:
    old, new = pipeline("cat f | gzip"), pipeline("cat f | pigz")
    assert rewrite(Script(old.text), old, new).command
    missing = rewrite(Script(old.text, missing=frozenset({"pigz"})), old, new)
    assert (missing.new, missing.command) == (new.text, "")
