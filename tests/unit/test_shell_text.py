# SPDX-License-Identifier: Apache-2.0
"""Pipelines as text: what is taken apart, as a shell would, and what is left alone."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable

import pytest

from pipelined.analysis.shell_text import Command, parse


def values_of(text: str) -> list[list[str]]:
    found = parse(text)
    assert found is not None, text
    return [[word.value for word in command.words] for command in found.commands]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("cat f | wc -l", [["cat", "f"], ["wc", "-l"]]),
        ("cat f|wc", [["cat", "f"], ["wc"]]),
        ("grep 'a | b' f | sed \"s|x|y|\"", [["grep", "a | b", "f"], ["sed", "s|x|y|"]]),
        (r"cat my\ f | cut -d\| -f1", [["cat", "my f"], ["cut", "-d|", "-f1"]]),
        (r'awk "{ print \$1 }" f | uniq', [["awk", "{ print $1 }", "f"], ["uniq"]]),
        (r'grep "a\d\"$" f | wc', [["grep", r"a\d" + '"$', "f"], ["wc"]]),
        ("grep 'grün$' größe | wc", [["grep", "grün$", "größe"], ["wc"]]),
        ("a'b'\"c\"d | e", [["abcd"], ["e"]]),
        ("echo a#b '' | wc", [["echo", "a#b", ""], ["wc"]]),
        (r"find . -exec wc {} \; | sort", [["find", ".", "-exec", "wc", "{}", ";"], ["sort"]]),
    ],
)
def test_a_pipeline_is_taken_apart_as_a_shell_does(text: str, values: list[list[str]]) -> None:
    assert values_of(text) == values


@pytest.mark.parametrize(
    "text",
    [
        "",
        "|",
        "a |",
        "| a",
        "a || b",
        "a |& b",
        "a && b | c",
        "a & b | c",
        "a; b | c",
        "a\nb | c",
        "a | b # c",
        "cat $f | wc",
        'cat "$f" | wc',
        "cat ${f} | wc",
        "cat $(ls) | wc",
        'cat "$(ls)" | wc',
        "cat `ls` | wc",
        'cat "`ls`" | wc',
        "cat $'a' | wc",
        'cat $"a" | wc',
        "diff <(a) <(b) | wc",
        "(a | b)",
        "{ a; } | b",
        "if a | b",
        "while read | b",
        "a | while read -r x",
        "! a | b",
        "time a | b",
        "[ -f a ] | b",
        "a 2> /dev/null | b",
        "a 2>&1 | b",
        "a | b >> out",
        "a | b < in",
        "a > out | b",
        "a < in < other | b",
        "a << X | b",
        "a <<< X | b",
        "x=1 | b",
        "*.sh | b",
        "a 'b | c",
        'a "b | c',
        "a \\",
        "a 'b\nc' | d",
        "a 'b\x1b[m' | d",
        "env -i a | b",
        "nice | b",
    ],
)
def test_what_is_not_certain_is_left_alone(text: str) -> None:
    assert parse(text) is None


def test_what_is_not_changed_is_kept_verbatim() -> None:
    text = "LC_ALL=C  sort   -k 2 <'my f'  |uniq  -c"
    assert parse("LC_ALL=C  sort   -k 2 < 'my f'  |uniq  -c").text == (  # type: ignore[union-attr]
        "LC_ALL=C  sort   -k 2 < 'my f' | uniq  -c"
    )
    assert parse(text).text == "LC_ALL=C  sort   -k 2 <'my f' | uniq  -c"  # type: ignore[union-attr]


def test_the_file_that_the_result_goes_to_is_left_out() -> None:
    found = parse("a | b > 'my out'")
    assert found is not None and found.text == "a | b"


def test_words_that_the_shell_expands_are_known() -> None:
    found = parse("cat *.log ~/f {a,b} '*' {} a?c [ab] | wc")
    assert found is not None
    literal = {word.text: word.literal for word in found.commands[0].arguments}
    assert [text for text, is_so in literal.items() if is_so] == ["'*'", "{}"]


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("/usr/bin/sort f", "sort"),
        ("LC_ALL=C sort f", "sort"),
        ("env LC_ALL=C sort f", "sort"),
        ("nice -n 5 sort f", "sort"),
        ("nice -5 stdbuf -oL sort f", "sort"),
        ("stdbuf -o L -eL sort f", "sort"),
    ],
)
def test_the_program_is_found_behind_what_starts_it(text: str, program: str) -> None:
    found = parse(text)
    assert found is not None
    assert found.commands[0].program == program
    assert [word.value for word in found.commands[0].arguments] == ["f"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("sort f", "LC_ALL=C sort f"),
        ("LC_ALL=de_DE sort f", "LC_ALL=C sort f"),
        ("A=b LC_ALL=de_DE sort f", "A=b LC_ALL=C sort f"),
        ("env LC_ALL=de_DE sort f", "LC_ALL=C env sort f"),
    ],
)
def test_a_variable_is_set_in_place_of_another_value(before: str, after: str) -> None:
    found = parse(before)
    assert found
    assert found.commands[0].with_variable("LC_ALL=C").text == after


def test_variables_are_those_of_the_command() -> None:
    found = parse("LC_ALL=C env LANG='de DE' sort")
    assert found is not None
    (command,) = found.commands
    assert [command.variable(name) for name in ("LC_ALL", "LANG", "LC_COLLATE")] == [
        "C",
        "de DE",
        None,
    ]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_agrees_about_every_word_that_is_said_to_be_literal() -> None:
    """Random texts; bash prints the words that it makes of those which are accepted."""
    random.seed(7)
    accepted = []
    for _ in range(20_000):
        text = "p " + "".join(random.choices("ab '\"\\$#=-+!^%@{},.~*?", k=random.randint(1, 9)))
        found = parse(text)
        if found and all(word.literal for word in found.commands[0].words):
            accepted.append((text, [word.value for word in found.commands[0].words]))
    assert len(accepted) > 1000
    script = "p() { printf '%s\\0' p \"$@\"; printf '\\1'; }\n" + "\n".join(t for t, _ in accepted)
    printed = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout
    words = [found.split("\0")[:-1] for found in printed.decode().split("\1")[:-1]]
    assert words == [values for _, values in accepted]


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ("A=b nice -n 5 xz -k f", lambda c: c.with_program("xz -T0"), "A=b nice -n 5 xz -T0 -k f"),
        ("nice xz < f", lambda c: c.with_arguments(*c.arguments), "nice xz < f"),
        ("nice xz f", lambda c: c.with_arguments(), "nice xz"),
        ("sort < f", lambda c: c.with_source(None), "sort"),
        ("A=b=c sort", lambda c: c.with_variable("A=d=e"), "A=d=e sort"),
        ("AB=c sort", lambda c: c.with_variable("A=d"), "AB=c A=d sort"),
    ],
)
def test_a_command_is_changed_in_one_place(
    before: str, change: Callable[[Command], Command], after: str
) -> None:
    found = parse(before)
    assert found is not None
    changed = change(found.commands[0])
    assert changed.text == after
    again = parse(after)
    assert again is not None and again.commands[0].program == changed.program


def test_the_last_value_of_a_variable_counts_whatever_it_contains() -> None:
    found = parse("A=1=2 env A=3=4 sort A=5")
    assert found is not None
    assert found.commands[0].variable("A") == "3=4"


@pytest.mark.parametrize(
    ("text", "certain"),
    [
        ("a < f | b", True),
        ("a | b < f", False),
        ("a > f | b", False),
        ("a < f < g | b", False),
        ("a <", False),
        ("a | b > f", True),
        ("a | b > f > g", False),
        ("a 2> f", False),
        ("A=$x a", False),
        ("A=*.log a", False),
        ("A=b", False),
        ("*.sh a", False),
        ("nice *.sh a", False),
        ("if a", False),
        ("nice -n 5", False),
        ("nice --adjustment=5 a", False),
        ("env - a", False),
    ],
)
def test_where_a_redirection_or_an_assignment_may_stand(text: str, certain: bool) -> None:
    assert (parse(text) is not None) is certain


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("sort", 0),
        ("nice sort -n", 1),
        ("nice -n 5 sort", 3),
        ("nice -5 sort", 2),
        ("env A=b C=d sort", 3),
        ("stdbuf -o L nice -n 5 sort", 6),
        ("stdbuf -oL -eL sort", 3),
    ],
)
def test_where_the_program_stands(text: str, start: int) -> None:
    found = parse(text)
    assert found is not None and found.commands[0].start == start


def test_a_backslash_takes_one_mark() -> None:
    assert values_of("a b\\|c\\ d | e") == [["a", "b|c d"], ["e"]]
