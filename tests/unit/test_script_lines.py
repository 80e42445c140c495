# SPDX-License-Identifier: Apache-2.0
"""Which lines of a script its runs are of, and in which locale a line begins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipelined.analysis.rewriting import Script
from pipelined.analysis.script_lines import ScriptFile
from pipelined.analysis.script_locale import locale_of
from unit.test_script_text import given, run


def test_alike_runs_are_of_each_line_whose_words_they_have() -> None:
    text = "sort f | uniq\nsort g | uniq\nsort $h | uniq\nsort f | wc\nsort f | uniq\n"
    found = ScriptFile(Script(text))
    of_f = given(run("a", 1.0, "sort", "uniq"), "sort f", "uniq")
    of_g = given(run("b", 1.0, "sort", "uniq"), "sort g", "uniq")
    assert found.lines_of([of_f]) == (1, 5)
    assert found.lines_of([of_g, of_f]) == (1, 2, 5)
    assert found.lines_of([run("c", 1.0, "sort", "uniq")]) == (1, 2, 5)  # no words are known
    assert found.lines_of([run("d", 1.0, "sort", "tail")]) == ()


def test_of_runs_of_which_some_are_of_no_line_none_is_named() -> None:
    """The line with the variable is no certain pipeline, and has most of the time."""
    found = ScriptFile(Script("sort a | uniq\nfor f in *; do\n\tsort $f | uniq -c\ndone\n"))
    of_a = given(run("a", 1.0, "sort", "uniq"), "sort a", "uniq")
    of_loop = given(run("b", 9.0, "sort", "uniq"), "sort b", "uniq -c")
    assert found.lines_of([of_a]) == (1,)
    assert found.lines_of([of_a, of_loop]) == found.lines_of([of_loop]) == ()


def test_a_quote_that_was_never_closed_ends_what_is_known() -> None:
    open_quote = "echo \"it's\n" + "a 'b' c\n" * 50
    found = ScriptFile(Script(f"sort f | uniq\n{open_quote}sort f | uniq\n"))
    assert found.lines_of([run("a", 1.0, "sort", "uniq")]) == (1,)


OURS = "de_DE.UTF-8"


@pytest.mark.parametrize(
    ("script", "locale"),
    [
        ("export LC_ALL=C\nsort f", "C"),
        ("#!/bin/sh -e\n# fast: LC_ALL\nexport LC_ALL=POSIX  # bytes\n\nsort f", "C"),
        ("sort f\nexport LC_ALL=C", None),  # set behind it
        ("export LC_ALL=C; sort f", None),
        ("if x; then\n  export LC_ALL=C\nfi\nsort f", None),
        ("export LC_ALL=C\nexport LC_ALL=C\nsort f", None),
        ("export LC_ALL=C.UTF-8\nsort f", None),
        ("set -e; export LANG=C LC_COLLATE=C\nsort f", None),
        ("LC_ALL=C\nexport LC_ALL\nsort f", None),
        ("export LC_ALL=C\nunset LC_ALL\nsort f", None),
        ("declare -x LC_COLLATE=C\nsort f", None),
        ("LANG=C; sort f", None),
        (". ./settings\nsort f", None),
        ("if x; then source settings; fi\nsort f", None),
        ('eval "$settings"\nsort f', None),
        ("export $(cat settings)\nsort f", None),
        ("#!/bin/bash -l\nsort f", None),
        ("set -eu\numask 022\ncd /data\nDATA=/srv\n\nexport LC_ALL=C\nsort f", "C"),
        ("cat > job.sh <<EOF\nexport LC_ALL=C\nEOF\nsort f", None),
        ("ssh host '\nexport LC_ALL=C\n'\nsort f", None),
        ("(\nexport LC_ALL=C\nsort a\n)\nsort f", None),
        ("if [ x ]; then\nexport LC_ALL=C\nfi\nsort f", None),
        ("bytes() {\nexport LC_ALL=C\n}\nsort f", None),
        ("exit\nexport LC_ALL=C\nsort f", None),
        ("case $1 in\nprod) . /etc/prod.env ;;\nesac\nsort f", None),
        ("if . ./env; then sort g; fi\nsort f", None),
        ("! . ./env\nsort f", None),
        ("command . ./env\nsort f", None),
        ("#!/bin/bash --login\nsort f", None),
        ("totals() {\n\tsort f\n}\nLC_ALL=C totals\nsort f", None),
        ("LC_ALL=C TMPDIR=/data\nsort f", None),
        ("LC_ALL=C export TMPDIR=/data\nsort f", None),
        ("LC_ALL=C sort f | uniq", OURS),
        ("zcat f | LC_ALL=C LANG=C sort\nsort f", OURS),
        ("# LC_ALL is not set\nsort f", OURS),
        ("#!/bin/bash -e\nexport LANGUAGES=2 PATH\n./x\nsort f", OURS),
    ],
)
def test_the_locale_of_a_line_is_known_only_if_that_is_certain(
    script: str, locale: str | None
) -> None:
    last = script.count("\n") + 1
    assert locale_of(script, last, OURS) == locale
    assert locale_of(script, last, None) == (locale if locale == "C" else None)


@pytest.mark.parametrize(
    ("text", "locale", "characters"),
    [
        ("sort f | uniq\nsort g | uniq\n", OURS, "C.UTF-8"),
        ("export LC_ALL=C\nsort f | uniq\n", "C", "C"),
        ("sort f | uniq\nexport LC_ALL=C\nsort f | uniq\n", None, None),  # which is not certain
        ("sort $1 | wc\n", None, None),  # it is no line of it
    ],
)
def test_a_run_has_the_locale_of_its_line(
    text: str, locale: str | None, characters: str | None
) -> None:
    file = ScriptFile(Script(text, locale=OURS, characters="C.UTF-8"))
    one = given(run("a", 1.0, "sort", "uniq"), "sort f", "uniq")
    known = Script.of_arguments(one)
    assert known
    found = file.with_locale(known, one)
    assert (found.text, found.locale, found.characters) == (known.text, locale, characters)
    inside = replace(one, series=replace(one.series, nested=True))  # of another script, maybe
    assert file.with_locale(known, inside) == known
