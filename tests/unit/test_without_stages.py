# SPDX-License-Identifier: Apache-2.0
"""Pipelines with fewer stages: what they are, and that the programs print the same for both."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelined.analysis.shell_text import Pipeline, parse
from pipelined.analysis.without_stages import (
    with_sort_unique,
    without_copier,
    without_counted_sort,
    without_round_trip,
    without_sort,
)

Rewriting = Callable[[Pipeline], Pipeline | None]


def pipeline(text: str) -> Pipeline:
    found = parse(text)
    assert found is not None, text
    return found


def changed(text: str, rewrite: Callable[[Pipeline, int], Pipeline | None]) -> str | None:
    """The text after the first stage at which it can be rewritten; None if there is none."""
    old = pipeline(text)
    found = (rewrite(old, index) for index in range(len(old.commands)))
    return next((new.text for new in found if new), None)


def unsorted(old: Pipeline, index: int) -> Pipeline | None:
    found = without_sort(old, index)
    return found[0] if found else None


def uncounted(old: Pipeline, index: int) -> Pipeline | None:
    found = without_counted_sort(old, index)
    return found.new if found else None


@pytest.mark.parametrize(
    ("rewrite", "old", "new"),
    [
        (without_round_trip, "gzip -dc f | gzip -1 | gzip -dc | wc", "gzip -dc f | wc"),
        (without_round_trip, "cat f | nice gzip | zcat | wc", "cat f | wc"),
        (without_round_trip, "xz -0 -T0 < f | xzcat | wc -l", "wc -l < f"),
        (without_round_trip, "cat f | pigz -p4 | gunzip", "cat f"),
        (without_round_trip, "cat f | zstd -3 | zstd -d | wc", "cat f | wc"),
        (unsorted, "sort f | grep a | sort -n", "grep a < f | sort -n"),
        (unsorted, "sort < f | sort -k2,2 -t , | wc", "sort -k2,2 -t , < f | wc"),
        (unsorted, "cat f | sort -rn | cut -c 1-3 | sort -u", "cat f | cut -c 1-3 | sort -u"),
        (unsorted, "cat f | sort | tr a b | sort -S 50M", "cat f | tr a b | sort -S 50M"),
        (unsorted, "sort f | cut -c 1-3 | sort -rnk2", "cut -c 1-3 < f | sort -rnk2"),
        (unsorted, "sort -snt , -k1 < f | sort -bt , -k 2", "sort -bt , -k 2 < f"),
        (without_round_trip, "gzip < f | zcat | gzip -n", "gzip -n < f"),
        (without_round_trip, "cat f | gzip | zcat | gzip", "cat f | gzip"),
        (unsorted, "sort 'my f' | awk '{ print $2 }' | sort", "awk '{ print $2 }' < 'my f' | sort"),
        (uncounted, "sort f | wc -l", "wc -l < f"),
        (uncounted, "sort < f | wc --lines", "wc --lines < f"),
        (uncounted, "zcat f | LC_ALL=C sort -t , -k 2,2n -S 50M | wc", "zcat f | wc"),
        (uncounted, "cat f | sort -m | wc -lc | tr -d ' '", "cat f | wc -lc | tr -d ' '"),
        (uncounted, "sort f | cut -c 1-3 | wc", "cut -c 1-3 < f | wc"),
        (uncounted, "sort f g | wc", "cat f g | wc"),
        (uncounted, "nice sort -rn *.log | grep a | wc -l", "cat *.log | grep a | wc -l"),
        (uncounted, "sort f | grep -c a", "grep -c a < f"),
        (
            uncounted,
            "zcat f | sort | cut -c 1-3 | grep -hivc a",
            "zcat f | cut -c 1-3 | grep -hivc a",
        ),
        (uncounted, "sort f g | egrep -w --count a", "cat f g | egrep -w --count a"),
        (with_sort_unique, "sort f | uniq | wc -l", "sort -u f | wc -l"),
        (with_sort_unique, "LC_ALL=C sort -r < f | uniq", "LC_ALL=C sort -u -r < f"),
        (with_sort_unique, "sort -S 10M f g | uniq | wc", "sort -u -S 10M f g | wc"),
        (without_copier, "grep a f | cat | wc", "grep a f | wc"),
        (without_copier, "cat f | cat - | wc", "cat f | wc"),
    ],
)
def test_stages_that_are_not_needed_go(
    rewrite: Callable[[Pipeline, int], Pipeline | None], old: str, new: str
) -> None:
    assert changed(old, rewrite) == new


@pytest.mark.parametrize(
    ("rewrite", "old"),
    [
        (without_round_trip, "cat f | gzip | xzcat"),
        (without_round_trip, "cat f | gzip | wc"),
        (without_round_trip, "cat f | gzip | tee g | zcat"),
        (without_round_trip, "gzip -dc f | gzip -9 | wc"),
        (without_round_trip, "gzip -c f | zcat | wc"),
        (without_round_trip, "cat f | gzip | zcat g"),
        (without_round_trip, "cat f | gzip | gzip -l"),
        (without_round_trip, "cat f | gzip | gzip -t"),
        (without_round_trip, "cat f | xz --format=raw | xz -d"),
        (without_round_trip, "gzip | zcat"),
        # gzip stores the time of a file
        (without_round_trip, "gzip < f | zcat | gzip"),
        (without_round_trip, "xz < f | unxz | wc"),
        (unsorted, "sort f | sort -snk2"),
        (unsorted, "sort f | sort -ruk2"),
        (unsorted, "sort f | sort -uk2"),
        (unsorted, "sort f | sort -ok2"),
        (unsorted, "sort f | uniq | sort -n"),
        (unsorted, "sort f | awk '!n[$0]++' | sort"),
        (unsorted, "sort f | head | sort -n"),
        (unsorted, "sort f | grep -n a | sort"),
        (unsorted, "sort f | sed 2d | sort"),
        (unsorted, "sort f | tr -d '\\n' | sort"),
        (unsorted, "sort -u f | grep a | sort"),
        (unsorted, "sort -m f g | grep a | sort"),
        (unsorted, "sort -z f | grep a | sort"),
        (unsorted, "sort -o g f | sort"),
        (unsorted, "sort f g | grep a | sort"),
        (unsorted, "sort *.log | grep a | sort"),
        (unsorted, "sort f | grep a | sort -s -k2"),
        (unsorted, "sort f | grep a | sort -u -k2"),
        (unsorted, "sort f | grep a | sort -nu"),
        (unsorted, "sort f | grep a | sort -m"),
        (unsorted, "sort f | grep a | sort -R"),
        (unsorted, "sort f | grep a | sort - g"),
        (unsorted, "sort f | grep a g | sort"),
        (unsorted, "sort +1 | sort"),
        (uncounted, "sort -u f | wc -l"),
        (uncounted, "sort -nu f | wc -l"),
        (uncounted, "sort --unique f | wc -l"),
        (uncounted, "sort -c f | wc -l"),
        (uncounted, "sort -C f | wc -l"),
        (uncounted, "sort --check=quiet f | wc -l"),
        (uncounted, "sort -o g f | wc -l"),
        (uncounted, "sort -og f | wc -l"),
        (uncounted, "sort --output=g f | wc -l"),
        (uncounted, "sort -z f | wc -w"),
        (uncounted, "sort --zero-terminated f | wc -l"),
        (uncounted, "sort --files0-from=f | wc -l"),
        (uncounted, "sort --debug f | wc -l"),
        (uncounted, "sort --help | wc -l"),
        (uncounted, "sort +1 | wc -l"),
        (uncounted, "sort +1 -2 f | wc -l"),
        (uncounted, "sort - f | wc -l"),
        (uncounted, "cat f | sort - g | wc -l"),
        (uncounted, "sort f | wc"),  # wider from a pipe
        (uncounted, "sort f | wc -lw"),
        (uncounted, "sort f | wc -l g"),
        (uncounted, "sort f | wc -l -"),
        (uncounted, "sort f | wc --files0-from=-"),
        (uncounted, "sort f | wc --total=only"),
        (uncounted, "sort f | uniq | wc -l"),
        (uncounted, "sort f | head | wc -l"),
        (uncounted, "sort f | tee g | wc -l"),
        (uncounted, "sort f | awk '!n[$0]++' | wc -l"),
        (uncounted, "sort f | grep a g | wc -l"),
        (uncounted, "sort f | cut -zf 1 | wc -l"),
        (uncounted, "sort f | tr '\\n' ' ' | wc -w"),
        (uncounted, "shuf f | wc -l"),
        (uncounted, "sort f | grep -c a g"),
        (uncounted, "sort f | grep -e -c"),  # that is what it looks for
        (uncounted, "sort f | grep -c -m 3 a"),
        (uncounted, "sort f | grep -zc a"),
        (uncounted, "sort f | grep -cq a"),
        (uncounted, "sort -u f | grep -c a"),
        (with_sort_unique, "sort -n f | uniq"),
        (with_sort_unique, "sort -k2 f | uniq"),
        (with_sort_unique, "sort -f f | uniq"),
        (with_sort_unique, "sort -m f g | uniq"),
        (with_sort_unique, "sort f | uniq -c"),
        (with_sort_unique, "sort f | uniq - g"),
        (with_sort_unique, "sort -o g f | uniq"),
        (without_copier, "cat f | wc"),
        (without_copier, "grep a f | cat"),
        (without_copier, "grep a f | cat -n | wc"),
        (without_copier, "grep a f | cat g | wc"),
        (without_copier, "grep a f | cat - - | wc"),
        (without_copier, "grep a f | cat - g | wc"),
    ],
)
def test_stages_that_may_be_needed_stay(
    rewrite: Callable[[Pipeline, int], Pipeline | None], old: str
) -> None:
    assert changed(old, rewrite) is None


@pytest.mark.parametrize(
    ("old", "ended"),
    [
        ("grep a f | sort | wc -l", True),
        ("awk '{ print $2 }' f | sort | wc -l", True),
        ("sort -u f | sort -n | wc -l", True),
        ("uniq f | sort | wc -l", True),
        ("sort f | sed s/a/b/ | cut -c 1 | wc -l", True),
        ("sort f | wc -l", False),
        ("zcat f | sort | wc -l", False),
        ("sed s/a/b/ f | sort | wc -l", False),
        ("grep -z a f | sort | wc -l", False),
        ("sort -z f | sort -n | wc -l", False),
        ("awk '{ printf $1 }' f | sort | wc -l", False),
        ("awk -v ORS=, '{ print $1 }' f | sort | wc -l", False),
        ("grep a f | tr a b | sort | wc -l", False),
        ("sort f g | cut -c 1 | wc -l", False),
        ("sort f | tr a b | grep -c a", True),
        ("sort f g | grep -c a", False),
    ],
)
def test_a_newline_at_the_end_is_certain_where_a_program_writes_it(old: str, ended: bool) -> None:
    commands = pipeline(old).commands
    last = max(at for at, command in enumerate(commands) if command.program == "sort")
    found = without_counted_sort(pipeline(old), last)
    assert found is not None and found.ended is ended


_BETWEEN = st.sampled_from(
    [
        "grep a",
        "grep -vi b",
        "cut -c 1-2",
        "cut -d ' ' -f 2",
        "sed s/a/B/g",
        "sed /b/d",
        "tr ab ba",
        "awk '{ print $2, $1 }'",
        "cat",
    ]
)
_FIRST = st.sampled_from(["sort", "sort -n", "sort -r", "sort -k2", "sort -s -k2,2"])
_LATER = st.sampled_from(
    ["sort", "sort -u", "sort -rn", "sort -k2,2 -k1n", "sort -f", "sort -h", "sort -t b -k 2"]
)
_PACKED = st.sampled_from(["gzip | zcat", "gzip -9 | gzip -d -c", "bzip2 | bzcat", "xz | unxz"])
_MIDDLE = st.one_of(
    st.tuples(_FIRST, _BETWEEN, _LATER).map(" | ".join),
    st.tuples(_BETWEEN, _FIRST, _LATER, st.just("uniq")).map(" | ".join),
    st.tuples(_PACKED, _BETWEEN).map(" | ".join),
    st.sampled_from(["sort | uniq", "sort -r | uniq | wc -l"]),
)
_LINES = st.lists(st.text("abAB 019é", max_size=6), max_size=12)


@settings(max_examples=60, deadline=None)
@given(_MIDDLE, _LINES, st.booleans(), st.sampled_from(["C", "C.UTF-8"]))
def test_both_print_the_same_for_any_lines(
    middle: str, lines: list[str], ended: bool, locale: str
) -> None:
    text = f"cat < f | {middle}"
    ways = {
        new
        for rewrite in (without_round_trip, unsorted, with_sort_unique, without_copier)
        if (new := changed(text, rewrite))
    }
    with TemporaryDirectory() as folder:
        data = "\n".join(lines) + ("\n" if lines and ended else "")
        (Path(folder) / "f").write_text(data)
        printed = {way: _printed(way, folder, locale) for way in (text, *ways)}
    assert len(set(printed.values())) == 1, printed


_COUNTED = st.sampled_from(
    ["sort", "sort -rn", "sort -m", "sort -s -k2,2", "sort -f -S 1M", "sort -t b -k 2", "sort -R"]
)
_COUNTER = st.sampled_from(
    [
        *("wc", "wc -l", "wc -c", "wc -m", "wc -w", "wc -L", "wc -lLwmc"),
        *("grep -c a", "grep -vc b", "grep -x --count 'a*'"),
    ]
)
_WRITER = st.sampled_from(
    ["", "cat < f | ", "cut -c 1-3 f | ", "grep -v b f | ", "sed s/a/b/ f | "]
)


@settings(max_examples=40, deadline=None)
@given(_WRITER, _COUNTED, st.one_of(st.just(""), _BETWEEN), _COUNTER, _LINES, st.booleans())
def test_both_count_the_same_if_the_input_ends_in_a_newline_or_that_is_certain(
    writer: str, sort: str, between: str, counter: str, lines: list[str], ended: bool
) -> None:
    text = f"{writer}{sort}{'' if writer else ' f'} | {between}{' | ' if between else ''}{counter}"
    found = without_counted_sort(pipeline(text), 1 if writer else 0)
    if found is None:
        assert counter in ("wc", "wc -lLwmc") and not writer and not between
        return
    if not found.ended and lines:
        ended = True
    with TemporaryDirectory() as folder:
        data = "\n".join(lines) + ("\n" if lines and ended else "")
        (Path(folder) / "f").write_text(data)
        printed = [_printed(way, folder, "C.UTF-8") for way in (text, found.new.text)]
    assert printed[0] == printed[1] != b"", (text, found.new.text)


def test_several_files_are_counted_as_one() -> None:
    found = without_counted_sort(pipeline("sort f g | wc"), 0)
    assert found is not None and found.joins
    with TemporaryDirectory() as folder:
        for name, data in (("f", "b\na\n"), ("g", "c d\n")):
            (Path(folder) / name).write_text(data)
        assert _printed("sort f g | wc", folder, "C") == _printed(found.new.text, folder, "C")


def _printed(text: str, folder: str, locale: str) -> bytes:
    return subprocess.run(
        ["sh", "-c", text],
        cwd=folder,
        env={"LC_ALL": locale, "PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=False,
    ).stdout
