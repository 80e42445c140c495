# SPDX-License-Identifier: Apache-2.0
"""How followed advice is judged, and that every kind of finding has advice that is followed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advice.data import MADE, named_in
from advice.judgement import Followed, Healthy, Spread, Untried, failures
from advice.kinds import DOCUMENT, kinds, with_kinds
from advice.pairs import HEALTHY, PAIRS, WITHOUT_PAIRS, Pair
from advice.table import HEADING, line, section
from pipelined.analysis.findings import RULES

PAIR = Pair("barrier", "sort f | grep x", "grep x f | sort")
GAINS = Followed(
    PAIR,
    "grep x f | sort",
    runs=5,
    found=5,
    likely_seconds=Spread(0.4, 0.3, 0.5),
    likely_share=Spread(0.4, 0.3, 0.5),
    bound_seconds=Spread(0.6, 0.5, 0.7),
    bound_share=Spread(0.6, 0.5, 0.7),
    gain_seconds=0.3,
    gain_share=Spread(0.3, 0.2, 0.4),
    faster=True,
)
NOTHING = replace(
    GAINS,
    likely_share=None,
    gain_seconds=-0.01,
    gain_share=Spread(-0.01, -0.1, 0.1),
    faster=False,
)
HEALTHY_ONE = Healthy("a | b", 0.5, (), False)


def test_a_gain_within_its_bound_is_no_failure() -> None:
    assert failures([GAINS, NOTHING], [HEALTHY_ONE]) == []
    assert (GAINS.of_bound, GAINS.of_likely) == pytest.approx((0.5, 0.75))
    assert (GAINS.verdict, NOTHING.verdict) == ("gains", "gains nothing")


def test_a_bound_may_lie_below_some_rounds_but_not_below_most() -> None:
    assert not replace(GAINS, bound_share=Spread(0.2, 0.1, 0.28)).failure
    most = replace(GAINS, bound_share=Spread(0.2, 0.1, 0.27))
    assert failures([most], []) == ["barrier: gained 1.50 of the bound: sort f | grep x"]


def test_a_bound_below_every_round_is_named_so() -> None:
    low = replace(GAINS, bound_share=Spread(0.1, 0.1, 0.19))
    assert failures([low], []) == [
        "barrier: every round gained more than any bound: sort f | grep x"
    ]


def test_a_finding_without_a_bound_is_judged_by_its_gain() -> None:
    unbound = replace(GAINS, bound_seconds=None, bound_share=None)
    assert (unbound.failure, unbound.of_bound, unbound.verdict) == ("", None, "gains")


def test_a_finding_has_to_be_there_in_most_runs() -> None:
    assert not replace(GAINS, found=3).failure
    assert replace(GAINS, found=2).failure == "found in 2 of 5 runs"


def test_a_finding_that_is_to_write_its_command_has_to_do_so() -> None:
    assert replace(GAINS, after="").failure == "the finding writes no command"


def test_advice_that_changes_what_is_printed_fails() -> None:
    changed = replace(GAINS, gain_share=None, gain_seconds=None, not_compared="outputs differ")
    assert changed.failure == "not compared: outputs differ"


def test_a_kind_fails_that_gains_nothing_in_all_of_its_pairs() -> None:
    assert failures([NOTHING, NOTHING], []) == [
        "barrier: its advice gains nothing in any of its 2 pairs"
    ]


def test_a_healthy_pipeline_fails_with_any_advice_or_if_it_could_have_none() -> None:
    advised = replace(HEALTHY_ONE, advised=("ceiling", "barrier", "ceiling"))
    short = replace(HEALTHY_ONE, too_short=True)
    assert failures([], [advised, short]) == [
        "healthy: advised: barrier in 1, ceiling in 2 of the runs: a | b",
        "healthy: too short to have findings: a | b",
    ]


def test_a_kind_fails_whose_estimate_is_off_by_more_than_a_factor_of_two() -> None:
    little = replace(GAINS, gain_share=Spread(0.19, 0.18, 0.2))
    assert failures([little], []) == ["barrier: what was gained is 0.47 of what was likely"]
    assert failures([little, GAINS], []) == []  # by the median


def test_what_is_no_more_than_chance_is_as_much_as_was_likely() -> None:
    chance = replace(NOTHING, likely_share=Spread(0.02, 0.01, 0.03))
    assert chance.of_likely == 1.0


@pytest.mark.parametrize("id", [rule.id for rule in RULES])
def test_every_kind_has_two_pairs_or_a_reason(id: str) -> None:
    count = sum(pair.id == id for pair in PAIRS)
    expected = "no pair, as it has a reason" if id in WITHOUT_PAIRS else "two pairs, or a reason"
    assert count == 0 if id in WITHOUT_PAIRS else count >= 2, f"{id}: {expected} in advice/pairs.py"


def test_pairs_and_reasons_are_of_kinds_that_exist() -> None:
    known = {rule.id for rule in RULES}
    assert {pair.id for pair in PAIRS} | WITHOUT_PAIRS.keys() <= known


def test_what_is_dropped_from_the_page_cache_is_made_by_the_benchmark() -> None:
    assert {name for pair in PAIRS for name in pair.cold} <= MADE.keys()


def test_there_are_twenty_healthy_pipelines_of_several_stages() -> None:
    assert len(set(HEALTHY)) >= 20
    assert [command for command in HEALTHY if "|" not in command] == []


def test_a_file_is_made_if_a_command_names_it_or_what_it_is_made_from() -> None:
    assert named_in(["zcat part.gz | wc -l", "xargs cat < list"]) == {"part.gz", "list", "tiny"}


def rows_of(text: str) -> list[str]:
    return [row for row in text.splitlines() if row.startswith("| [")]


def test_the_section_has_a_row_per_kind_with_the_figures_of_its_pairs() -> None:
    untried = Untried(PAIR, "no disk")
    (row,) = rows_of(section("2 CPUs", 5, [GAINS, replace(GAINS, found=0), untried], [HEALTHY_ONE]))
    assert row == (
        "| [barrier](#barrier) | 40 %; 40 %; - | 30 % (20 to 40); 30 % (20 to 40), **found in 0 of "
        "5 runs**; not tried: no disk | 0.75; 0.75; - |  |"
    )
    (alike,) = rows_of(section("2 CPUs", 5, [GAINS, GAINS], [HEALTHY_ONE]))
    assert alike == "| [barrier](#barrier) | 40 % | 30 % (20 to 40) | 0.75 |  |"


def test_the_section_says_what_it_lacks_and_which_healthy_pipelines_got_advice() -> None:
    text = section("2 CPUs", 5, [GAINS], [HEALTHY_ONE])
    assert text.startswith(f"{HEADING}\n")
    assert text.count("\n#") == 0
    assert text.endswith("None of them got any advice.\n")
    assert all(f"- {id}: " in text for id in WITHOUT_PAIRS)
    advised = section("2 CPUs", 5, [], [replace(HEALTHY_ONE, advised=("ceiling",)), HEALTHY_ONE])
    assert advised.endswith("**1 of them** got any advice.\n\n    a | b\n")


def test_what_is_not_measured_stays_in_the_document_as_it_was() -> None:
    ceiling = replace(GAINS, pair=replace(PAIR, id="ceiling"))
    first = "# Title\n\n" + section("2 CPUs", 5, [GAINS, GAINS, ceiling], [HEALTHY_ONE])
    again = section("2 CPUs", 5, [replace(GAINS, found=0)], [], first)
    rows = rows_of(again)
    assert ["**found in 0 of 5 runs**" in row for row in rows] == [False, True]
    assert rows[0].startswith("| [ceiling]")
    assert again.endswith("None of them got any advice.\n")
    ill = section("2 CPUs", 5, [GAINS], [replace(HEALTHY_ONE, advised=("ceiling",) * 3)])
    fewer = ill.replace(f"of the {len(HEALTHY)} ordinary", "of the 7 ordinary")
    assert fewer != ill
    for measured in (ill, fewer):
        assert section("2 CPUs", 5, [GAINS], [], measured) == measured


def test_the_table_of_kinds_is_that_of_the_rules_and_of_what_was_measured() -> None:
    document = DOCUMENT.read_text()
    assert with_kinds(document) == document, "PYTHONPATH=tests python -m advice.kinds writes it"


def test_a_kind_has_the_medians_of_its_pairs() -> None:
    document = DOCUMENT.read_text()
    begin = document[: document.index("\n## Followed")]
    measured = section("2 CPUs", 5, [GAINS, GAINS], [HEALTHY_ONE])
    (row,) = [line for line in kinds(f"{begin}\n{measured}").splitlines() if "[barrier]" in line]
    assert row.endswith(" | 30 % |")


def test_a_loss_is_negative() -> None:
    lost = replace(NOTHING, gain_seconds=-0.25)
    assert "gained -0.25 s (-1 %; -10 % to 10 %)" in line(lost)
