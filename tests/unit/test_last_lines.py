# SPDX-License-Identifier: Apache-2.0
"""Stages that read on behind the last line that they print: what they become, and the finding."""

from __future__ import annotations

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelined.analysis.finding import Finding
from pipelined.analysis.findings import findings
from pipelined.analysis.last_lines import ended, passes_on_at_once
from pipelined.analysis.rewriting import Script
from pipelined.analysis.shell_text import Pipeline, parse
from unit.test_findings import HOST, make_stage, run_of


def pipeline(text: str) -> Pipeline:
    found = parse(text)
    assert found is not None, text
    return found


@pytest.mark.parametrize(
    ("old", "new", "line", "printed"),
    [
        ("sed -n 5p", "sed -n -e 5p -e 6q", 5, 1),
        ("sed -n '2,5p' f", "sed -n -e 2,5p -e 6q f", 5, 4),
        ("sed --quiet 5,2p", "sed --quiet -e 5,2p -e 6q", 5, 1),
        ("sed '11,$d' f", "sed -n -e 1,10p -e 11q f", 10, 10),
        ("sed '2,$d'", "sed -n -e 1,1p -e 2q", 1, 1),
        ("awk 'NR == 5'", "awk 'NR > 5 { exit } NR == 5'", 5, 1),
        ("awk NR==1 f", "awk 'NR > 1 { exit } NR==1' f", 1, 1),
        ("mawk 'NR<=10{print}'", "mawk 'NR > 10 { exit } NR<=10{print}'", 10, 10),
        ("gawk 'NR < 10'", "gawk 'NR > 9 { exit } NR < 10'", 9, 9),
        (
            "awk -F: -v n=2 'NR == 3 { print $n; }' f",
            "awk -F: -v n=2 'NR > 3 { exit } NR == 3 { print $n; }' f",
            3,
            None,
        ),
    ],
)
def test_a_command_ends_behind_the_last_line_that_it_prints(
    old: str, new: str, line: int, printed: int | None
) -> None:
    for front in ("", "zcat f.gz | "):
        found = ended(pipeline(front + old), 1 if front else 0)
        assert found is not None
        assert (found.new.text, found.line, found.printed) == (front + new, line, printed)


@pytest.mark.parametrize(
    "command",
    [
        "sed 5p",
        "sed 5q",
        "sed -n '$p'",
        "sed -n '1p;$p'",
        "sed -n 0p",
        "sed -n 5,+2p",
        "sed -n /a/p",
        "sed -n '2,/a/p'",
        "sed -n -e 5p",
        "sed -n 5p f g",
        "sed -n 5p *.log",
        "sed -ns 5p f",
        "sed -ni 5p f",
        "sed -n 5p -i",
        "sed -n '11,$d'",
        "sed '1,$d'",
        "sed 11,12d",
        "sed -n",
        'sed -n "${n}p"',
        "awk 'NR >= 5'",
        "awk 'NR % 5 == 1'",
        "awk 'FNR == 1' f g",
        "awk 'NR < 1'",
        "awk 'NR == 5; END { print NR }'",
        "awk 'NR == 5 { print; exit }'",
        "awk 'NR == 5 { getline; print }'",
        "awk 'NR == 5 { NR = 1 }'",
        "awk 'NR == 5 { print \"'",
        "awk 'NR <= 5 { print $2 }'",
        "awk -f NR==5",
        "awk -v 'RS=\\0' NR==5",
        "head -n 5",
        "cut -f 1",
    ],
)
def test_no_other_command_is_ended(command: str) -> None:
    found = parse(command)
    assert found is None or ended(found, 0) is None


_COMMANDS = st.one_of(
    st.integers(1, 6).map("sed -n {}p".format),
    st.tuples(st.integers(1, 6), st.integers(1, 6)).map(
        lambda lines: "sed -n {},{}p".format(*lines)
    ),
    st.integers(2, 6).map("sed '{},$d'".format),
    st.tuples(
        st.sampled_from(["mawk", "gawk"]),
        st.sampled_from(["==", "<", "<="]),
        st.integers(1, 6),
        st.sampled_from(["", " { print }", " { print $0 }"]),
    ).map(lambda parts: "{} 'NR {} {}{}'".format(*parts)),
    st.integers(1, 6).map("mawk 'NR == {} {{ n++; print $2, n }}'".format),
)


@settings(max_examples=60, deadline=None)
@given(
    _COMMANDS,
    st.sampled_from(["cat f g | {}", "{} f", "{} f g | tail -n 2"]),
    st.lists(st.text("ab 1é", max_size=5), max_size=8),
    st.booleans(),
)
def test_both_print_the_same_for_any_lines(
    command: str, around: str, lines: list[str], end: bool
) -> None:
    old = pipeline(around.format(command))
    index = next(at for at, one in enumerate(old.commands) if one.program in command)
    found = ended(old, index)
    if found is None:
        assert "< 1" in command or old.commands[index].text.startswith("sed")
        return
    with TemporaryDirectory() as folder:
        for name in ("f", "g"):
            data = "\n".join(lines) + ("\n" if lines and end else "")
            (Path(folder) / name).write_text(data)
        printed = [
            subprocess.run(["sh", "-c", text], cwd=folder, stdout=subprocess.PIPE, check=False)
            for text in (old.text, found.new.text)
        ]
    assert printed[0].stdout == printed[1].stdout
    assert printed[1].returncode == 0


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat f", True),
        ("zcat f", True),
        ("gzip -dc f", True),
        ("xz --decompress", True),
        ("xzcat f", True),
        ("zstdcat f", True),
        ("gunzip < f", True),
        ("unxz f", False),  # it replaces the file
        ("grep -i a f", True),
        ("awk '{ print $1 }' f", True),
        ("gzip -1", False),
        ("gzip -d f", False),  # it replaces the file
        ("sort f", False),
        ("tee g", False),
        ("dd if=f of=g", False),
        ("awk '{ n++ } END { print n }' f", False),
        ("python3 a.py", False),
    ],
)
def test_what_passes_on_at_once_has_less_to_do_if_its_reader_ends(
    command: str, expected: bool
) -> None:
    assert passes_on_at_once(pipeline(command).commands[0]) is expected


def found_in(
    text: str, *, given: float = 100, written: float = 0.001, front: float = 8.0
) -> list[Finding]:
    """Of a run of three stages: gzip, what is in the middle, and the one that prints few lines."""
    first, second, third = (command.program for command in pipeline(text).commands)
    stages = [
        make_stage(1, "gzip" if first == "zcat" else first, (20, 100), cpu=front),
        make_stage(2, second, (100, given), cpu=0.5),
        make_stage(3, third, (given, written), cpu=0.2),
    ]
    found = findings(run_of(stages, overlapping=0.0), HOST, Script(text) if text else None)
    return [finding for finding in found if finding.id == "reads-on"]


def test_with_a_stage_that_ends_those_before_it_end() -> None:
    (found,) = found_in("zcat f | grep a | sed -n 3p")
    assert found.stages == (0, 1, 2)
    assert found.rewrite is not None and found.rewrite.repeatable
    assert found.rewrite.new == "zcat f | grep a | sed -n -e 3p -e 4q"
    assert not found.rewrite.reordered
    assert found.advice.startswith("Try: sed -n -e 3p -e 4q, which does not read on behind line 3.")
    assert found.likely_seconds == pytest.approx(8.7, rel=0.01)
    assert found.sentence.startswith("sed prints nothing behind line 3, and read 100 MB")


def test_what_sorts_before_it_has_done_its_work_by_then() -> None:
    assert found_in("zcat f | sort | sed -n 3p") == []
    (found,) = found_in("sort f | cat | sed -n 3p", front=0.3)
    assert found.stages == (1, 2)


def test_nothing_that_may_change_something_is_ended() -> None:
    assert found_in("zcat f | tee g | sed -n 3p") == []
    assert found_in("zcat f | ./filter | sed -n 3p") == []


def test_lines_that_are_most_of_the_input_are_needed() -> None:
    assert found_in("zcat f | cat | awk 'NR <= 900'", written=99) == []
    (found,) = found_in("zcat f | cat | awk 'NR <= 900'", written=50)
    assert found.likely_seconds == pytest.approx(8.7 / 2, rel=0.01)
    # of one line it is not known how long those before it are
    assert found_in("zcat f | cat | sed -n 500000p") == []
    assert found_in("zcat f | cat | sed -n 50000p")


def test_a_line_that_there_was_not_is_not_the_last_one() -> None:
    assert found_in("zcat f | cat | sed -n 3p", written=0) == []


def test_little_that_is_read_on_does_not_matter() -> None:
    assert found_in("zcat f | cat | sed -n 3p", given=1) == []
