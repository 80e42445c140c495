# SPDX-License-Identifier: Apache-2.0
"""Pipelines in a script: which lines are one, which of them ran, and which can run again."""

from __future__ import annotations

import io
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipelined.analysis.comparison_rows import Figure
from pipelined.analysis.improvement import Improvement, ScriptImprovement, Tried
from pipelined.analysis.script_text import (
    Place,
    Replaced,
    by_cost,
    fails_as_any_stage,
    goes_by_status,
    places,
    replaced,
    script_file,
    why_not_replayed,
)
from pipelined.errors import UserError
from pipelined.run.child import Ended, StoppedError
from pipelined.run.improving_script import MOST_PARTS, improve_parts
from pipelined.run.profile import Profile
from pipelined.runs import Run
from pipelined.terminal.improve_report import render, script_lines
from unit.invented import START, make_run, make_stage

SCRIPT = """\
#!/bin/bash
cat f | sort | uniq > counts
\tgrep a f | wc -l  # how many
"""


def run(name: str, wall: float, *commands: str, **values: Any) -> Run:
    stages = [make_stage(n, command, cpu=wall) for n, command in enumerate(commands, 1)]
    edges = tuple((n, n + 1) for n in range(len(commands) - 1))
    return make_run(stages, wall, id=name, edges=edges, end=START + wall, **values)


def profiled(*runs: Run, wall: float = 10.0) -> Profile:
    return Profile(("x",), Ended(0, START, wall, wall), runs, {})


def improvement(place: Place, command: str = "", ended: str = "nothing-left") -> Improvement:
    won = Tried(command, place.text, "barrier", "this.", "won", "", 5, Figure(0.5, 0.5, 0.5), -1.0)
    return Improvement(
        original=place.text, command=command or place.text, outputs="same", prints=True,
        unpacked="", ended=ended, error_line="", executions=1, wall_seconds=1.0,
        tried=(won,) if command else (), measured=(),
    )  # fmt: skip


def improved(
    *runs: Run, script: str = SCRIPT, commands: dict[str, str] | None = None, ended: str = ""
) -> ScriptImprovement:
    return improve_parts(
        "a.sh",
        script,
        profiled(*runs),
        lambda place, seconds: improvement(
            place, (commands or {}).get(place.text, ""), ended or "nothing-left"
        ),
        60.0,
        exists=lambda name: True,
    )


# -- which lines are a pipeline


def test_lines_that_are_one_pipeline_are_found_with_their_output_files() -> None:
    assert [(place.line, place.text, place.target) for place in places(SCRIPT)] == [
        (2, "cat f | sort | uniq", "counts"),
        (3, "grep a f | wc -l", ""),
    ]


@pytest.mark.parametrize("target", ["$out", '"$OUT/counts"', '"${OUT:-/tmp}/$(date +%F)"'])
def test_only_the_output_file_may_have_variables_and_keeps_them(target: str) -> None:
    script = f"cat f | sort | uniq > {target}  # so many\n"
    (place,) = places(script)
    assert (place.text, place.target) == ("cat f | sort | uniq", target)
    found = improved(BOTH[0], script=script, commands={place.text: "sort -u f"})
    assert f"+sort -u f > {target}  # so many\n" in found.diff


@pytest.mark.parametrize(
    "text",
    [
        "sort $f | uniq",
        "sort f | uniq && wc f",
        "x=$(sort f | uniq)",
        "sort f | uniq >> $OUT/counts",
        "sort f | uniq 2> $OUT/errors",
        "sort f | uniq > $OUT/a > $OUT/b",
        "sort f > $OUT/sorted | uniq",
        "if sort f | uniq; then",
        "# sort f | uniq",
        "sort f",
        "x='\nsort f | uniq\n'",
        'echo "\nsort f | uniq\n"',
        "cat <<END\nsort f | uniq\nEND",
        "sed 's/;/\\\n/g' f | sort",
        "tr ';' '\\\n' < f | sort",
        "grep -F 'a|\nb' f | sort",
        "cat <<-'END'\nsort f | uniq\n\tEND",
        "cat <<A <<B\nA\nsort f | uniq\nB",
        "cat <<END\n END\nsort f | uniq\nEND",
    ],
)
def test_other_lines_are_not(text: str) -> None:
    assert places(text + "\n") == []


@pytest.mark.parametrize(
    "here",
    [
        "cat <<END\na | b\nEND\n# don't",
        "cat <<A <<'B'\na\nA\na | b\nB",
        "cat <<-A\n\ta\n\t\tA",
        "cat <<<'a b'",
    ],
)
def test_behind_a_here_document_and_a_comment_with_an_apostrophe_lines_count_again(
    here: str,
) -> None:
    text = f"{here}\nsort f | uniq\n"
    assert [place.line for place in places(text)] == [text.count("\n")]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("sort f | uniq # don't", "sort f | uniq"),
        ('sort f | uniq;# isn\'t "it"', None),
        ("grep '#' f | uniq # '", "grep '#' f | uniq"),
        ('grep "a # b" f | wc', 'grep "a # b" f | wc'),
        ("grep a#b f | wc", "grep a#b f | wc"),
        ("grep \\# f | wc # a\\'b", "grep \\# f | wc"),
    ],
)
def test_a_comment_behind_a_line_is_no_part_of_it(line: str, found: str | None) -> None:
    text = f"{line}\nsort g | uniq\n"
    given = [(place.line, place.text) for place in places(text)]
    assert given == [*([(1, found)] if found else []), (2, "sort g | uniq")]
    if found:
        assert text[places(text)[0].begin : places(text)[0].end] == found


@pytest.mark.parametrize("text", ["sort f | \\\n  uniq -c\n", "sort f |\n  uniq -c\n"])
def test_a_line_that_goes_on_is_one_pipeline(text: str) -> None:
    (place,) = places(text)
    assert (place.text, text[place.begin : place.end]) == ("sort f | uniq -c", text.rstrip("\n"))


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("./a.sh", ("", "./a.sh")),
        ("/x/a.sh b c", ("", "/x/a.sh")),
        ("LC_ALL=C nice './a b.sh' c", ("", "./a b.sh")),
        ("bash a.sh", ("bash", "a.sh")),
        ("nice /bin/sh -ex a.sh install", ("sh", "a.sh")),
        ("bash -c 'a | b'", ("", "")),
        ("sort a.sh", ("", "")),
        ("./a.sh | tee log", ("", "")),
        ("LC_ALL=C /bin/rm a.sh", ("", "")),
    ],
)
def test_a_command_that_runs_a_script_is_known(command: str, found: tuple[str, str]) -> None:
    assert script_file(command) == found


# -- what ran, and what can run by itself


def test_the_costliest_pipeline_is_the_first() -> None:
    runs = [run("1", 1.0, "cat", "sort", "uniq"), run("2", 3.0, "grep", "wc")]
    costly, others = by_cost(places(SCRIPT), runs)
    assert [(seconds, place.line) for seconds, place in costly] == [(3.0, 3), (1.0, 2)]
    assert others == []


def test_what_is_no_line_of_the_script_is_listed_by_its_signature() -> None:
    one = run("1", 1.0, "sort", "wc")
    assert by_cost(places(SCRIPT), [one, run("2", 0.5, "sort", "wc")])[1] == [(1.5, one, 2)]


def given(run: Run, *arguments: str) -> Run:
    """The run, of which the command lines are known."""
    stages = zip(run.stages, arguments, strict=True)
    return replace(run, stages=tuple(replace(stage, arguments=line) for stage, line in stages))


def test_of_alike_lines_each_gets_the_runs_with_its_words() -> None:
    script = "sort a | uniq -c > x\nsort big | uniq -c > y\nfor f in *; do sort $f | uniq; done\n"
    short = given(run("1", 0.1, "sort", "uniq"), "/usr/bin/sort a", "uniq -c")
    long = given(run("2", 9.0, "sort", "uniq"), "sort big", "uniq -c")
    looped = given(run("3", 2.0, "sort", "uniq"), "sort c", "uniq")
    costly, others = by_cost(places(script), [short, long, looped])
    assert [(seconds, place.line) for seconds, place in costly] == [(9.0, 2), (0.1, 1)]
    assert others == [(2.0, looped, 1)]


def test_arguments_that_end_alike_are_others() -> None:
    script = "sort f | uniq > a\nsort -rn f | uniq -c > b\n"
    long = given(run("1", 9.0, "sort", "uniq"), "sort -rn f", "uniq -c")
    costly, _ = by_cost(places(script), [long])
    assert [(seconds, place.line) for seconds, place in costly] == [(9.0, 2)]


def test_of_a_script_that_executes_another_program_the_arguments_come_last() -> None:
    script = "zcat a.gz | sort\nzcat b.gz | sort\n"
    long = given(run("1", 9.0, "gzip", "sort"), "gzip -cd b.gz", "sort")
    costly, _ = by_cost(places(script), [long])
    assert [(seconds, place.line) for seconds, place in costly] == [(9.0, 2)]


def test_lines_that_cannot_be_distinguished_share_their_runs() -> None:
    script = "sort a | uniq\nsort *.b | uniq\n"
    costly, _ = by_cost(places(script), [run("1", 3.0, "sort", "uniq")])
    assert [seconds for seconds, _ in costly] == [1.5, 1.5]


@pytest.mark.parametrize(
    ("script", "goes", "fails"),
    [
        ("#!/bin/bash\nset -euo pipefail\n{}\nls\n", True, True),
        ("#!/bin/bash -e\n{}\nls\n", True, False),
        ("#!/bin/bash\nset -o pipefail; sort f\n{}\nls\n", False, True),
        ("set -o errexit # -o pipefail\n{}\nls\n", True, False),
        ("echo set -e; sort -e pipefail\n{}\nls\n", False, False),
        ("set -u; a -e\n{}\nls\n", False, False),
        ("{}\n[ $? = 0 ] || exit 3\nls\n", True, False),
        ('{}\necho "${{?}}"\nls\n', True, False),
        ("{}\necho ${{PIPESTATUS[0]}}\nls\n", True, False),
        ("trap 'exit 3' ERR\n{}\nls\n", True, False),
        ("{} > out  # the last one\n\n", True, False),
        ("{}\nls\n" + 40 * "#", False, False),
        ("for i in 1 2; do\n  {}\ndone\n", True, False),
        ("f() {{\n  {}\n}}\nf || exit 3\nls\n", True, False),
        ("if a; then\n  {}\nfi\nls\n", False, False),
        # what follows it
        ("if [ -f f ]; then\n  {}\nelse\n  echo none\nfi\n", True, False),
        ("if a; then\n  {}\nelif b; then\n  echo none\nfi\n", True, False),
        ("case $1 in\na)\n  {}\n  ;;\nb) ls;;\nesac\n", True, False),
        ("case $1 in\na)\n  {}\n  ;& b) ls;;\nesac\n", True, False),
        ("for f in a b; do\n  {}\ndone > out\n", True, False),
        ("for f in a b; do\n  {}\ndone 2>&1 >> 'my out' # all\n", True, False),
        ("for f in a b; do\n  {}\ndone > out\nls\n", False, False),
        ("while read f; do\n  {}\ndone < list\n", True, False),
        ('while read f; do\n  {}\ndone < "$LIST"\nls\n', False, False),
        ("while read f; do\n  {}\ndone < <(ls | sort)\nls\n", False, False),
        ("while read f; do\n  {}\ndone <<END\na\nEND\n", True, False),
        ("while a; do\n  {}\ndone || exit 3\nls\n", True, False),
        ("while a; do\n  {}\ndone > out || exit 3\nls\n", True, False),
        ("while a; do\n  {}\ndone &\nwait $!\nls\n", True, False),
        ("if a; then\n  {}\nfi && touch ok\nls\n", True, False),
        ("x=`\n{}\n`\nls\n", True, False),
        ("{}\nexit\n", True, False),
        ("if a; then\n  {}\n  exit # well\nfi\nls\n", True, False),
        ("{}\nexit 0\n", False, False),
        ("{}\nexit $broken\n", False, False),
        ("{}\nexit_well\nls\n", False, False),
        ("f() {{\n  {}\n  return\n}}\nf || exit 3\nls\n", True, False),
        ("f() {{\n  {}\n  return 2\n}}\nls\n", False, False),
        ("if\n  {}\nthen\n  ls\nfi\nls\n", True, False),
        ("while\n  {}\ndo\n  ls\ndone\nls\n", True, False),
        ("{}\ndo-release-upgrade\n", False, False),
        # what is in front of `set`
        ('if [ -n "$S" ]; then set -e; fi\n{}\nls\n', True, False),
        ("if a; then b; else set -e; fi\n{}\nls\n", True, False),
        ("for i in 1; do set -e; done\n{}\nls\n", True, False),
        ("f() {{ set -e; }}\nf\n{}\nls\n", True, False),
        ("case $1 in a) set -e;; esac\n{}\nls\n", True, False),
        ("set -u; set -e\n{}\nls\n", True, False),
        ("set -u \\\n  -o errexit\n{}\nls\n", True, False),
        ("[ $BASH ] && {{ set -o pipefail; }}\n{}\nls\n", False, True),
        ("# we then set -e\n{}\nls\n", False, False),
    ],
)
def test_what_a_script_sets_and_asks_decides_what_a_failure_is(
    script: str, goes: bool, fails: bool
) -> None:
    text = script.format("sort f | grep x")
    (place,) = places(text)
    assert (goes_by_status(text, place), fails_as_any_stage(text)) == (goes, fails)
    assert goes_by_status(text, place, "bash -e a.sh")


RELATIVE = "sort f | uniq\n"
NOT_CERTAIN = "where f is is not certain: the script"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("mytool f | sort\n", "it is not certain that mytool only reads and prints"),
        ("sort | uniq\n", "it reads what the script gets as its standard input, or may do so"),
        ("sort gone | uniq\n", "gone is not there any more"),
        ("cat *.log | sort\n", "which files *.log names is not certain"),
        (f"cd /x\n{RELATIVE}", f"{NOT_CERTAIN} changes to /x; run improve there"),
        (f"cd /x||exit\n{RELATIVE}cd '/x'", f"{NOT_CERTAIN} changes to /x; run improve there"),
        (f"cd /x\n{RELATIVE}cd /y\n", f"{NOT_CERTAIN} changes its directory"),
        (f"cd /here\n{RELATIVE}cd x\n", f"{NOT_CERTAIN} changes its directory"),
        (f"cd /here && cd x\n{RELATIVE}", f"{NOT_CERTAIN} changes its directory"),
        (f"mkdir x && cd x\n{RELATIVE}", f"{NOT_CERTAIN} changes its directory"),
        (f"cd $HOME\n{RELATIVE}", f"{NOT_CERTAIN} changes its directory"),
        (f"if ! cd $D; then exit; fi\n{RELATIVE}", f"{NOT_CERTAIN} changes its directory"),
        (f"{{ command cd $D; }}\n{RELATIVE}", f"{NOT_CERTAIN} changes its directory"),
        (f'cd "/here" || exit 1  # data\n{RELATIVE}', ""),
        ("cd /x\nsort /f | tr a b | uniq -c\n", ""),
        (
            "cd $HOME\nfind . -type f | xargs cat | wc -l\n",
            "the directory for find and xargs is not certain: the script changes its directory",
        ),
        ("cd /here\nfind . -type f | sort\n", ""),
        ("sort f | uniq\n", ""),
    ],
)
def test_only_what_has_its_input_still_is_run_by_itself(script: str, reason: str) -> None:
    (place,) = places(script)
    found = why_not_replayed(script, place, lambda name: name in ("f", "/f"), "/here".__eq__)
    assert found == reason


def test_what_a_script_leaves_as_a_fifo_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("p")
    script = "mkfifo p\nzcat f.gz > p &\nsort p | uniq -c > out\n"
    runs = profiled(run("1", 4.0, "sort", "uniq"))
    found = improve_parts("a.sh", script, runs, lambda place, _: improvement(place), 60.0)
    (other,) = found.not_tried
    assert other.reason == "p is a FIFO, which is not read again and again"


# -- improving them


BOTH = [run("1", 4.0, "cat", "sort", "uniq"), run("2", 3.0, "grep", "wc")]


def test_what_won_is_put_into_the_script() -> None:
    found = improved(*BOTH, commands={"cat f | sort | uniq": "sort -u f"})
    changed = "-cat f | sort | uniq > counts\n+sort -u f > counts\n"
    assert changed in found.diff
    assert [part.line for part in found.pipelines] == [2, 3]


def test_the_difference_is_a_patch_that_applies(tmp_path: Path) -> None:
    one, other = places(SCRIPT)
    patch = replaced(SCRIPT, [Replaced(one, "sort -u f > counts"), Replaced(other, "n")], "a.sh")
    (tmp_path / "a.sh").write_text(SCRIPT)
    subprocess.run(["git", "apply", "-p0", "-"], input=patch, text=True, cwd=tmp_path, check=True)
    expected = "#!/bin/bash\nsort -u f > counts\n\tn  # how many\n"
    assert (tmp_path / "a.sh").read_text() == expected


@pytest.mark.parametrize("odd", ["\f", "\v", "\x1c", "\x85", "\u2028", "\r"])
def test_only_a_newline_ends_a_line_of_the_patch(tmp_path: Path, odd: str) -> None:
    script = f"echo a{odd}b\n{SCRIPT}echo c{odd}d"
    place = places(script)[0]
    patch = replaced(script, [Replaced(place, "sort -u f > counts")], "a.sh")
    (tmp_path / "a.sh").write_bytes(script.encode())
    subprocess.run(["git", "apply", "-p0", "-"], input=patch.encode(), cwd=tmp_path, check=True)
    expected = script[: place.begin] + "sort -u f > counts" + script[place.end :]
    assert (tmp_path / "a.sh").read_bytes() == expected.encode()


def test_a_pipeline_that_is_not_worth_it_is_not_run_again() -> None:
    found = improved(run("1", 4.0, "cat", "sort", "uniq"), run("2", 0.4, "grep", "wc"))
    assert [part.line for part in found.pipelines] == [2]
    assert found.not_tried == ()


def test_only_the_costliest_are_run_again() -> None:
    tools = ("grep a", "tr a b", "cut -f 1", "head", "tail", "rev")[: MOST_PARTS + 1]
    script = "".join(f"{tool} < f | wc\n" for tool in tools)
    runs = [run(str(n), 2.0 - n / 10, tool.split()[0], "wc") for n, tool in enumerate(tools)]
    found = improved(*runs, script=script)
    assert len(found.pipelines) == MOST_PARTS
    assert [other.reason for other in found.not_tried] == [f"{MOST_PARTS} others cost more"]


def test_after_ctrl_c_the_others_are_not_run() -> None:
    found = improved(*BOTH, ended="interrupted")
    assert found.interrupted
    assert [part.line for part in found.pipelines] == [2]
    assert [other.reason for other in found.not_tried] == ["it was interrupted before"]


FAILED = UserError("the pipeline failed with exit status 1", "nothing is tried")


def ended_by(*ends: BaseException | None) -> ScriptImprovement:
    """Of the two pipelines of `SCRIPT`, each ends with its exception, or well."""
    coming = iter(ends)

    def improve(place: Place, _seconds: float) -> Improvement:
        if (end := next(coming)) is not None:
            raise end
        return improvement(place, "better")

    return improve_parts("a.sh", SCRIPT, profiled(*BOTH), improve, 60.0, exists=lambda name: True)


@pytest.mark.parametrize(("ends", "improved_line"), [((FAILED, None), 3), ((None, FAILED), 2)])
def test_a_pipeline_that_cannot_be_improved_is_named_beside_the_others(
    ends: tuple[BaseException | None, ...], improved_line: int
) -> None:
    found = ended_by(*ends)
    assert [part.line for part in found.pipelines] == [improved_line]
    assert "+" in found.diff and not found.interrupted
    (other,) = found.not_tried
    assert other.reason == "the pipeline failed with exit status 1"


def test_ctrl_c_in_the_first_execution_of_a_pipeline_keeps_those_before() -> None:
    found = ended_by(None, KeyboardInterrupt())
    assert found.interrupted and [part.line for part in found.pipelines] == [2]
    assert [other.reason for other in found.not_tried] == ["it was interrupted"]


@pytest.mark.parametrize("end", [KeyboardInterrupt(), StoppedError(15)])
def test_what_stops_it_before_anything_was_found_ends_it(end: BaseException) -> None:
    with pytest.raises(type(end)):
        ended_by(end, None)


def test_each_gets_its_share_of_what_is_left_of_the_budget() -> None:
    now, shares = [0.0], []

    def improve(place: Place, seconds: float) -> Improvement:
        shares.append(seconds)
        now[0] += 10.0
        return improvement(place)

    improve_parts(
        "a.sh", SCRIPT, profiled(*BOTH), improve, 60.0,
        exists=lambda name: True, clock=lambda: now[0],
    )  # fmt: skip
    assert shares == [30.0, 50.0]


# -- the report


def shown(found: ScriptImprovement) -> str:
    return "\n".join(line.plain for line in script_lines(found, 100))


def test_the_report_ends_with_the_changed_script() -> None:
    text = shown(improved(*BOTH, commands={"grep a f | wc -l": "grep -c a f"}))
    assert "line 2, 4.0 s:\ncat f | sort | uniq\n" in text
    assert text.endswith("-\tgrep a f | wc -l  # how many\n+\tgrep -c a f  # how many")


@pytest.mark.parametrize(
    ("encoding", "comment"), [("ascii", "how many"), ("utf-8", "combien\N{NO-BREAK SPACE}?")]
)
def test_the_patch_is_printed_as_it_is_with_its_tabs(encoding: str, comment: str) -> None:
    script = SCRIPT.replace("how many", comment)
    found = improved(*BOTH, script=script, commands={"grep a f | wc -l": "grep -c '\t' f"})
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    render(found, Console(file=file, width=100))
    file.seek(0)
    assert file.read().endswith(found.diff)


def test_a_patch_that_cannot_be_printed_as_it_is_has_a_note() -> None:
    script = SCRIPT.replace("how many", "how\fmany")
    text = shown(improved(*BOTH, script=script, commands={"grep a f | wc -l": "grep -c a f"}))
    note = "A ? may stand for a character that cannot be printed here; --json has it."
    assert f"The script with what won:\n  {note}\n--- a.sh\n" in text
    assert text.endswith("+\tgrep -c a f  # how?many")


def test_what_was_not_tried_has_its_reason() -> None:
    text = shown(improved(run("1", 4.0, "sort", "tail")))
    assert "- sort|tail (4.0 s): no line of the script is certain to be it" in text
    assert "Nothing was tried, so nothing is known." in text
    assert "advise for these is in the report of pipelined run." in text
    assert "keep the script" not in text


def test_a_script_in_which_nothing_won_is_to_be_kept() -> None:
    assert "Nothing is known to be faster: keep the script as it is." in shown(improved(*BOTH))


def test_a_script_without_costly_pipelines_says_so() -> None:
    assert "No pipeline in it takes long enough to be worth it." in shown(improved())
