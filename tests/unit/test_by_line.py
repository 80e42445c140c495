# SPDX-License-Identifier: Apache-2.0
"""Which commands treat each line by itself, and which keep something from one line to the next."""

from __future__ import annotations

import pytest

from pipelined.analysis.by_line import only_selects, passes_on_the_begin, takes_each_line
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


def test_what_passes_on_the_begin_of_lines() -> None:
    begin = ("awk '{ print $1 }'", "cut -d ' ' -f 1", "cut -c1-9", "cut -f 1-3 -d ,")
    other = ("awk '{ print $3 }'", "awk '{ print $1, $3 }'", "cut -f 2", "cut -f 1,3", "grep x")
    other += ("cut --complement -f 1", "cut --comp -c1-9")
    assert [text for text in (*begin, *other) if passes_on_the_begin(command(text))] == list(begin)
