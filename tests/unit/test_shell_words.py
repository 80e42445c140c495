# SPDX-License-Identifier: Apache-2.0
"""A text for a shell as words and operators."""

from __future__ import annotations

import pytest

from pipelined.analysis.shell_words import Operator, Word, behind_wrapper, tokens
from pipelined.command_names import WRAPPERS


def words_of(text: str) -> list[Word]:
    return [token for token in tokens(text) if isinstance(token, Word)]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('echo "\\$x" "a\\\nb" "\\d"', ["echo", "$x", "ab", "\\d"]),
        ("a \\\n b\\\nc", ["a", "bc"]),
        ("a \\\nb", ["a", "b"]),
        ("a ''b'' ''", ["a", "b", ""]),
        ("'a b'\"c d\"\\ e", ["a bc d e"]),
    ],
)
def test_quotes_are_taken_off_as_a_shell_does(text: str, values: list[str]) -> None:
    assert [word.value for word in words_of(text)] == values


def test_what_a_shell_replaces_is_marked() -> None:
    text = '$x "${x}" `ls` "`ls`" $\'x\' $"x" \\$x \'$x\' "\\$x" a$ *.c'
    marked = {word.text: word.expanded for word in words_of(text)}
    plain = [text for text, expanded in marked.items() if not expanded]
    assert plain == ["\\$x", "'$x'", '"\\$x"', "a$", "*.c"]


def test_operators_are_where_they_stand() -> None:
    text = "a >>b 2>&1 &&\n(c);"
    found = [token for token in tokens(text) if isinstance(token, Operator)]
    assert [token.text for token in found] == [">>", ">&", "&&\n(", ");"]
    assert all(text.startswith(token.text, token.at) for token in found)


@pytest.mark.parametrize("text", ["a 'b", 'a "b', "a \\", 'a "b\\'])
def test_what_comes_before_an_open_quote_is_read(text: str) -> None:
    reading = tokens(text)
    assert next(reading) == Word("a", "a", True)
    with pytest.raises(ValueError):
        next(reading)


@pytest.mark.parametrize(
    ("command", "behind"),
    [
        ("nice -n 5 x -n", "x -n"),
        ("nice -5 x", "x"),
        ("timeout -k 5 --foreground 10m x", "x"),
        ("sudo -nu root x", "x"),
        ("taskset -c 0 x", "x"),
        ("/usr/bin/env -i x", "x"),
        ("nice -n", ""),
        ("flock", ""),
    ],
)
def test_the_command_behind_a_wrapper_is_found(command: str, behind: str) -> None:
    words = command.split()
    assert words[behind_wrapper(words) :] == behind.split()


def test_a_command_is_rewritten_only_behind_a_wrapper_whose_options_are_known() -> None:
    assert all(w.taking is not None and not w.forks for w in WRAPPERS.values() if w.rewritten)
