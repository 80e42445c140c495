# SPDX-License-Identifier: Apache-2.0
"""What is said of the pairs that `improve` was given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from advice.improved import (
    Improved,
    improved_cells,
    improved_line,
    plain,
    why_not,
    why_untried,
)
from advice.judgement import Untried
from advice.pairs import FROM_INPUT, MIXED, OTHER_FILE, OWN_TEXT, PAIRS, SHELL_TEXT, Pair
from advice.table import section, with_improved
from document_section import put_section

PAIR = Pair("barrier", "sort f | grep x", "grep x f | sort")
FOUND = Improved(PAIR, "grep x f | sort", 0.5, "the known one")
NOTHING = Improved(PAIR, "", None, "the finding cannot say it as a command")


def test_the_line_at_the_terminal_has_what_was_found_and_what_it_took() -> None:
    assert improved_line(FOUND) == (
        "barrier: the known one, in 0.50 of the time\n    sort f | grep x\n    grep x f | sort"
    )


DOCUMENT = """# Findings

## Followed

| finding | likely | gained | gained / likely | improve |
| [barrier](#barrier) | 40 % | 30 % (20 to 40) | 0.75 |  |
| [ceiling](#ceiling) | 20 % | 20 % (20 to 20) | 1.00 | 0.70 |

Not in the table:

- cold-run: a note.
"""


def cell(*results: Improved | Untried) -> str:
    return improved_cells(results)["barrier"]


def test_the_table_has_what_each_pair_took() -> None:
    assert cell(FOUND) == cell(FOUND, FOUND) == "0.50"
    assert cell(FOUND, replace(FOUND, took=0.25, verdict="found")) == "0.50; 0.25"
    assert cell(replace(FOUND, verdict="another one; the known one is better")) == (
        "0.50 (another one)"
    )


def test_the_table_says_why_nothing_was_found() -> None:
    assert cell(NOTHING, FOUND) == "the finding cannot say it as a command; 0.50"
    assert cell(Untried(PAIR, "no disk")) == "not tried: no disk"
    assert cell(replace(NOTHING, verdict="refused: nothing was run")) == "refused"
    assert cell(replace(NOTHING, verdict="not faster; other work")) == "not faster, other work"


def test_the_last_column_is_of_improve_and_the_other_rows_stay() -> None:
    once = with_improved(DOCUMENT, "2m", "2 CPUs", improved_cells([FOUND]))
    new = with_improved(once, "2m", "4 CPUs", improved_cells([NOTHING]))
    for text, last in ((once, "0.50"), (new, NOTHING.verdict)):
        (row,) = [line for line in text.splitlines() if line.startswith("| [barrier]")]
        assert row.endswith(f"| 0.75 | {last} |")
        assert "| 1.00 | 0.70 |" in text
        assert text.count("**improve** is what") == 1
    assert "2 CPUs" in once and "2 CPUs" not in new and "4 CPUs" in new
    # what is measured of the advice leaves the column and the sentence
    again = put_section(new, section("8 CPUs", 5, [], [], new))
    assert f"| {NOTHING.verdict} |" in again and "4 CPUs: the share" in again


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
    reasons = {OWN_TEXT, OTHER_FILE, SHELL_TEXT, MIXED, FROM_INPUT}
    assert {pair.unsaid for pair in PAIRS} == {"", *reasons}
    assert all(pair.after for pair in PAIRS if pair.unsaid)
