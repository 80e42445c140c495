# SPDX-License-Identifier: Apache-2.0
"""What is said of the pairs that `improve` was given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from advice.improved import (
    HEADING,
    Improved,
    improved_line,
    improved_section,
    plain,
    why_not,
    why_untried,
)
from advice.judgement import Untried
from advice.pairs import FROM_INPUT, OTHER_FILE, OWN_TEXT, PAIRS, SHELL_TEXT, Pair
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
    assert rows == [
        "| [barrier](#barrier) 1 | `grep x f \\| sort` | 0.50 | the known one |",
        "| [barrier](#barrier) 2 |  |  | **the finding cannot say it as a command** |",
        "| [barrier](#barrier) 3 |  |  | not tried: no disk |",
    ]


def test_a_command_that_the_table_of_the_advice_has_is_not_repeated() -> None:
    advised = "## Followed\n\n| [barrier](#barrier) 1 | `x` | `grep x f \\| sort` | 1 |\n"
    assert improved_section("2 CPUs", [FOUND], advised).splitlines()[-1] == (
        "| [barrier](#barrier) 1 | as advised | 0.50 |  |"
    )


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
    assert why_not({"tried": tried}, busy=True) == f"{why}; other work used the CPUs meanwhile"
    # of what is printed it decides nothing
    assert "other work" not in why_not({"tried": tried[1:2]}, busy=True)


def test_a_pair_that_was_not_tried_has_a_finding_without_a_command_or_none() -> None:
    runs: list[dict[str, Any]] = [
        {"findings": []},
        {"findings": [{"id": "barrier", "rewrite": None}]},
    ]
    assert why_untried("barrier", runs) == NOTHING.verdict
    for busy, why in ((False, "not be worth it"), (True, "other work used the CPUs")):
        found = why_untried("ceiling", runs, busy=busy)
        assert found.startswith("its run had no such finding") and found.endswith(why)
    runs[1]["findings"][0]["rewrite"] = {"new": "sort f"}
    assert why_untried("barrier", runs).startswith("the runs of improve had no such finding")


def test_the_better_form_is_the_known_one_wherever_its_output_goes_to() -> None:
    assert plain("tar -c d |  pigz > 'd.gz'") == "tar -c d | pigz"
    assert plain("while  read a; do :; done") == "while read a; do :; done"


def test_each_reason_why_a_form_is_not_written_is_of_a_few() -> None:
    assert {pair.unsaid for pair in PAIRS} == {"", OWN_TEXT, OTHER_FILE, SHELL_TEXT, FROM_INPUT}
    assert all(pair.after for pair in PAIRS if pair.unsaid)


def test_kinds_that_were_not_measured_keep_their_rows() -> None:
    other = replace(FOUND, pair=replace(PAIR, id="ceiling"), command="pigz f")
    old = (
        f"## Followed\n\n| [ceiling](#ceiling) 1 | `x` |\n\n{improved_section('', [FOUND, other])}"
    )
    rows = improved_section("2 CPUs", [NOTHING], old).splitlines()[-2:]
    assert rows == [
        "| [ceiling](#ceiling) 1 | `pigz f` | 0.50 | the known one |",
        "| [barrier](#barrier) 1 |  |  | **the finding cannot say it as a command** |",
    ]
