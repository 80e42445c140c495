# SPDX-License-Identifier: Apache-2.0
"""What is said of the pairs that `improve` was given."""

from __future__ import annotations

from dataclasses import replace

from advice.improved import (
    HEADING,
    Improved,
    improved_line,
    improved_section,
    why_not,
    why_untried,
)
from advice.judgement import Untried
from advice.pairs import Pair
from document_section import put_section

PAIR = Pair("barrier", "sort f | grep x", "grep x f | sort")
FOUND = Improved(PAIR, "grep x f | sort", 0.5, "the known one")
NOTHING = Improved(PAIR, "", None, "the finding cannot say it as a command")


def test_the_line_at_the_terminal_has_what_was_found_and_what_it_took() -> None:
    assert improved_line(FOUND) == (
        "barrier: the known one, in 0.50 of the time\n    sort f | grep x\n    grep x f | sort"
    )


def test_the_table_says_why_nothing_was_found() -> None:
    rows = improved_section("2 CPUs", [FOUND, NOTHING, Untried(PAIR, "no disk")]).splitlines()[-3:]
    before = "[barrier](#barrier) | `sort f \\| grep x`"
    assert rows == [
        f"| {before} | `grep x f \\| sort` | 0.50 | the known one |",
        f"| {before} |  |  | **the finding cannot say it as a command** |",
        f"| {before} |  |  | not tried: no disk |",
    ]


def test_the_section_takes_the_place_of_its_last_version() -> None:
    text = improved_section("2 CPUs", [FOUND])
    old = f"# Findings\n\n{text}\n## Followed\n"
    new = improved_section("4 CPUs", [NOTHING])
    assert put_section(old, new) == f"# Findings\n\n{new}\n## Followed\n"
    assert text.startswith(f"{HEADING}\n")


def test_why_nothing_was_found_is_what_came_of_all_that_was_tried() -> None:
    tried = [{"outcome": outcome} for outcome in ("not-faster", "output", "not-faster")]
    why = why_not({"tried": tried})
    assert why == "what was tried is not faster; what was tried prints something else"
    assert not replace(FOUND, command="").found


def test_a_pair_that_was_not_tried_has_a_finding_without_a_command_or_none() -> None:
    runs = [{"findings": []}, {"findings": [{"id": "barrier"}]}]
    assert why_untried("barrier", runs) == NOTHING.verdict
    assert "no such finding" in why_untried("ceiling", runs)


def test_kinds_that_were_not_measured_keep_their_rows() -> None:
    other = replace(FOUND, pair=replace(PAIR, id="ceiling", before="gzip f | cat"))
    old = f"## Followed\n\n| [ceiling](#ceiling) | `x` |\n\n{improved_section('', [FOUND, other])}"
    rows = improved_section("2 CPUs", [NOTHING], old).splitlines()[-2:]
    assert [row.split("`")[1] for row in rows] == [
        "gzip f \\| cat",
        PAIR.before.replace("|", "\\|"),
    ]
