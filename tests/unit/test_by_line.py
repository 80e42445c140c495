# SPDX-License-Identifier: Apache-2.0
"""Which commands treat each line by itself, and which keep something from one line to the next."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelined.analysis.by_line import (
    begins_in_order,
    one_line_of_each,
    only_selects,
    takes_each_line,
)
from pipelined.analysis.shell_text import Command, parse


def command(text: str) -> Command:
    found = parse(text)
    assert found is not None
    (only,) = found.commands
    return only


@pytest.mark.parametrize(
    "text",
    [
        "awk '{ print $1 }'",
        "awk '$3 > 1 && /a\\/[b/]/ { print $1, length($2) / 2; next } { print }'",
        "awk -F , -v n=3 '$n != limit { print $NF }' n=2 f",
        "awk 'BEGIN { FS = OFS = \",\" } { print $2, $1 }'",
        "awk 'NF { $1 = \"\"; $(NF - 1)++; --$2; NF -= 1; print }'",
        "awk '{ gsub(/some/, \"any\", $2); print tolower($0); fflush() }'",
        "awk '{ if ($1 > 2) print \"x\"; else print $2 }'",
        "gawk '{ print ($1 > 2), x }'",
        "awk '{ printf \"%s %s\\n\", $1, $2 }'",
        'awk \'{ printf("%s\\n", $1); if (/x/) printf "\\\\\\n" }\'',
        "cut -d ' ' -f 1",
        "grep -iv error",
        "sed -E -e 's/a/b/g' -e /x/d f",
        "tr a-z A-Z",
    ],
)
def test_what_treats_each_line_by_itself(text: str) -> None:
    assert takes_each_line(command(text)) is True


@pytest.mark.parametrize(
    "text",
    [
        "awk '$1!=u||$2-t>1800{ s++; u=$1; t=$2 } { print s, $1 }'",
        "awk '!seen[$0]++'",
        "awk '{ n += $1 } END { print n }'",
        "awk 'NR > 1'",
        "awk 'FNR == 1 { next } { print }'",
        "awk 'p { print } { p = /x/ }'",
        "awk '{ print n++ }'",
        "awk '{ print ++n }'",
        "awk '{ print (n)++ }'",
        "awk '{ print n ++$1 }'",
        "awk '{ n **= 2; print n }'",
        "awk '/a/, /b/'",
        "awk '{ getline; print }'",
        "awk '/x/ { exit } { print }'",
        "awk '{ print > \"f\" }'",
        "awk '{ print | \"sort\" }'",
        "awk '{ sub(/a/, \"b\", x); print x }'",
        "awk '{ if (/x/) OFS = $1; print $1, $2 }'",
        "awk '{ print f($1) }'",
        "awk '{ print rand() }'",
        "awk '{ for (i = NF; i; i--) print $i }'",
        "awk '{ print @ }'",
        "awk '{ printf \"%s,\", $1 }'",
        "awk '{ printf(\"%s\", $1) }'",
        "awk '{ printf $0 }'",
        "awk '{ printf \"\\\\n\" }'",
        "awk '{ printf \"%s\\n\" $2, $1 }'",
        "grep -n x",
        "grep -m 1 x",
        "grep -A1 x",
        "grep -c x",
        "sed 1d",
        "sed -n '$p'",
        "sed 'N;P;D'",
        "tr -d '\\n'",
        "tr -cd a-z",
        "tr -s '[:space:]' ' '",
        "cut -z -f 1",
    ],
)
def test_what_keeps_something_from_one_line_to_the_next(text: str) -> None:
    assert takes_each_line(command(text)) is False


@pytest.mark.parametrize("text", ["awk -f f", "awk -v RS=x '{ print }'", "jq .a", "perl -ne x"])
def test_what_cannot_be_known_from_the_words(text: str) -> None:
    assert takes_each_line(command(text)) is None


def test_what_passes_on_whole_lines() -> None:
    whole = ("grep -v x", "awk '$1 > 2'", "awk '/x/ { print $0 }'", "sed /x/d", "egrep x f")
    changed = (
        "grep -o x",
        "awk '{ print $1 }'",
        "awk '$1 = 2'",
        "sed s/a/b/",
        "cut -f 1",
        "tr a b",
    )
    assert [text for text in (*whole, *changed) if only_selects(command(text))] == list(whole)


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("awk '{ print $1 }'", ("no line begins with a blank",)),
        ("cut -f 1", ()),
        ("cut -s -f1-3", ()),
        ("cut -c1-9", ()),
        ("cut -b -9 -", ()),
        ("cut -d ' ' -f 1", ("no line has a tab",)),
        ("cut -f1 -d' '", ("no line has a tab",)),
        # a-1 comes before a:1, and a-1 behind a
        ("cut -f 1-3 -d ,", None),
        ("cut -d: -f1", None),
        ("awk -F: '{ print $1 }'", None),
        ("awk '{ print $1 }' FS=:", None),
        ("awk '{ print $3 }'", None),
        ("awk '{ print $1, $3 }'", None),
        ("cut -f 2", None),
        ("cut -f 1,3", None),
        ("cut -f 1-2 --output-delimiter=-", None),
        ("cut --complement -f 1", None),
        ("cut --comp -c1-9", None),
        ("cut -f 1 g", None),
        ("grep x", None),
    ],
)
def test_when_the_begin_of_each_line_is_in_the_order_of_the_lines(
    text: str, conditions: tuple[str, ...] | None
) -> None:
    assert begins_in_order(command(text)) == conditions


def test_what_makes_one_line_of_each() -> None:
    one = ("grep x", "cut -f 2", "tr a b", "sed s/a/b/", "awk '$3 > 1'", "awk '{ print $1 }'")
    more = ("grep -o x", r"sed 's/,/\n/'", "awk '{ print $1; print $2 }'")
    assert [text for text in (*one, *more) if one_line_of_each(command(text))] == list(one)


_FIELD = st.sampled_from(["a", "b", "ab", "A", "a-1", "B:2", "é", ""])


@pytest.mark.parametrize(
    "text", ["awk '{ print $1 }'", "cut -f 1-2", "cut -d ' ' -f 1", "cut -c-3"]
)
@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(_FIELD, min_size=1, max_size=3), min_size=1, max_size=8))
def test_lines_that_sort_has_ordered_by_bytes_stay_in_order(
    text: str, fields: list[list[str]]
) -> None:
    mark = "\t" if "-f 1-2" in text else " "
    lines = [mark.join(of_line) for of_line in fields]
    if "awk" in text:
        lines = [line.lstrip() for line in lines]
    data = "".join(f"{line}\n" for line in lines).encode()
    one, other = (
        subprocess.run(
            ["sh", "-c", way], input=data, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
            stdout=subprocess.PIPE, check=True,
        ).stdout
        for way in (f"sort | {text}", f"{text} | sort")
    )  # fmt: skip
    assert one == other
