# SPDX-License-Identifier: Apache-2.0
"""Series as a budget: who has an account of its own, and that nothing is lost or taken back."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelined.model.ledger import _SERIES_PER_OTHER, HALF_LIFE, OTHER, Ledger
from pipelined.runs import Series

DAY = 86400.0


@dataclass
class Sums:
    """Seconds by stage, and how many runs are live."""

    seconds: dict[str, float] = field(default_factory=dict)
    active: int = 0

    def fold(self, other: Sums) -> None:
        for seconds in other.seconds.values():
            self.add("other", seconds)

    def counted(self) -> bool:
        return any(self.seconds.values())

    def filled(self) -> int:
        return sum(seconds > 0 for seconds in self.seconds.values())

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


def cost(account: Sums) -> int:
    return 10 + 5 * account.filled()


def ledger(budget: int | None) -> Ledger[Sums]:
    return Ledger(budget, new=Sums, cost=cost)


def pipeline(name: str, nested: bool = False, unit: str = "-") -> Series:
    return Series(pipeline=name, nested=nested, unit=unit)


def run(books: Ledger[Sums], series: Series, seconds: float, now: float, stages: int = 2) -> None:
    account = books.account(series)
    for stage in range(stages):
        account.add(f"stage {stage}", seconds / stages)
    books.ran(series, seconds, now)


def names(books: Ledger[Sums]) -> set[str]:
    return {series.pipeline for series, _ in books.accounts()}


def total(books: Ledger[Sums]) -> float:
    return sum(sum(account.seconds.values()) for _, account in books.accounts())


#: What the account of `OTHER` costs.
OTHERS = 15


def test_while_there_is_room_every_pipeline_has_an_account_from_its_first_run() -> None:
    books = ledger(1000)
    for number in range(50):
        run(books, pipeline(f"a{number}|b"), 0.001, number)
        books.settle(number)
    assert len(names(books)) == 50
    assert OTHER not in names(books)


def test_a_full_budget_folds_the_light_ones_into_other() -> None:
    books = ledger(100)
    for number in range(1000):
        run(books, pipeline(f"a{number}|b"), 0.01, number)
        books.settle(number)
    assert books.used <= 100
    assert OTHER in names(books)
    assert total(books) == pytest.approx(10.0)


def test_a_nightly_job_keeps_its_account_through_a_day_of_one_liners() -> None:
    books, nightly = ledger(200), pipeline("pg_dump|zstd")
    now = 0.0
    for _night in range(5):
        for _second in range(0, 3600, 60):
            run(books, nightly, 60.0, now)
            books.settle(now)
            now += 60
        for number in range(10_000):
            now += (DAY - 3600) / 10_000
            run(books, pipeline(f"one-liner {number}|sh"), 0.5, now)
            books.settle(now)
        account = books.own(nightly)
        assert account
    assert sum(account.seconds.values()) == pytest.approx(5 * 3600.0)


def test_a_heavy_newcomer_takes_the_place_of_idle_light_ones() -> None:
    books = ledger(100)
    for number in range(20):
        run(books, pipeline(f"a{number}|b"), 1.0, 0.0)
    books.settle(0.0)
    heavy = pipeline("sort|uniq")
    for second in range(10):
        run(books, heavy, 1.0, second)
        books.settle(second)
    assert "sort|uniq" in names(books)
    account = books.own(heavy)
    assert account
    assert 0 < sum(account.seconds.values()) < 10, "what it did before is in the other account"
    assert total(books) == pytest.approx(30.0)


def test_equal_ones_do_not_take_the_place_from_each_other() -> None:
    books, seen = ledger(20 + OTHERS), []
    for turn in range(0, 100_000, 1000):  # a retired one could be back after five minutes
        for name in ("a|b", "c|d"):
            run(books, pipeline(name), 1.0, turn)
        books.settle(turn)
        seen.append(names(books) - {OTHER})
    assert all(len(these) == 1 and these == seen[-1] for these in seen[1:])


def test_a_live_pipeline_stays_while_an_idle_one_can_go() -> None:
    books = ledger(60)
    live, idle = pipeline("tail|grep"), pipeline("find|xargs")
    for series, seconds in ((live, 0.1), (idle, 5.0)):
        run(books, series, seconds, 0.0)
    books.account(live).active = 1
    books.settle(0.0)
    for number in range(5):
        run(books, pipeline(f"new{number}|x"), 20.0, 1.0)
        books.settle(1.0)
    assert "tail|grep" in names(books)
    assert "find|xargs" not in names(books)


def test_weight_fades_so_last_years_giant_gives_way() -> None:
    books = ledger(20 + OTHERS)
    run(books, pipeline("old|giant"), 1000.0, 0.0)
    books.settle(0.0)
    later = 12 * HALF_LIFE
    for _ in range(2):
        run(books, pipeline("new|job"), 10.0, later)
        books.settle(later)
    assert names(books) - {OTHER} == {"new|job"}


def test_a_retired_pipeline_comes_back_as_a_new_series_not_as_one_that_fell() -> None:
    books = ledger(20 + OTHERS)
    run(books, pipeline("a|b"), 1.0, 0.0)
    books.settle(0.0)
    for second, name in ((1.0, "c|d"), (2.0, "a|b")):
        for _ in range(2):
            run(books, pipeline(name), 100.0 * second, second)
            books.settle(second)
    assert "a|b" not in names(books), "Prometheus still has the samples from before"
    run(books, pipeline("a|b"), 500.0, 302.0)
    books.settle(302.0)
    assert "a|b" in names(books)


def test_what_is_remembered_of_folded_pipelines_is_bounded() -> None:
    books = ledger(20)
    for number in range(50_000):
        run(books, pipeline(f"a{number}|b"), 0.001, number / 1000)
        if number % 1000 == 0:
            books.settle(number / 1000)
    books.settle(50.0)
    assert books.folded(50.0)[0] <= 20_000


def test_nested_pipelines_are_folded_apart() -> None:
    books = ledger(1)
    for nested in (True, False):
        for number in range(5):
            run(books, pipeline(f"a{number}|b", nested), 1.0, 0.0)
            books.settle(0.0)
    others = {
        series.nested: account for series, account in books.accounts() if series.pipeline == OTHER
    }
    assert {nested: sum(a.seconds.values()) for nested, a in others.items()} == {
        True: pytest.approx(5.0),
        False: pytest.approx(5.0),
    }


def test_a_pipeline_enters_with_what_it_has_just_done() -> None:
    books, heavy = ledger(20 + OTHERS), pipeline("sort|uniq")
    run(books, pipeline("a|b"), 100.0, 0.0)
    books.settle(0.0)
    for second in range(1, 9):
        run(books, heavy, 50.0, second)
        books.settle(second)
        if account := books.own(heavy):
            break
    assert account and sum(account.seconds.values()) == 50.0


def test_what_did_nothing_but_live_has_no_account() -> None:
    books = ledger(100)
    books.account(pipeline("a|b")).active = 1
    books.ran(pipeline("a|b"), 0.0, 0.0)
    books.settle(0.0)
    assert (list(books.accounts()), books.used) == ([], 0)


def test_a_pipeline_is_not_admitted_when_only_the_end_of_its_run_is_counted() -> None:
    """Its time is in the other account: a run without time would be shown."""
    books, late = ledger(40 + OTHERS), pipeline("c|d")
    run(books, pipeline("a|b"), 1.0, 0.0, stages=6)
    run(books, late, 0.5, 0.0)
    books.settle(0.0)
    assert names(books) == {"a|b", OTHER}
    for seconds, expected in ((0.0, {"a|b", OTHER}), (5.0, {"c|d", OTHER})):
        run(books, late, seconds, 1.0)
        books.account(late).add("runs", 1)
        books.settle(1.0)
        assert names(books) == expected


def test_no_account_is_retired_if_that_does_not_make_enough_room() -> None:
    books = ledger(60 + OTHERS)
    for name, seconds in (("a|b", 1.0), ("c|d", 100.0), ("e|f", 100.0)):
        run(books, pipeline(name), seconds, 0.0)
    books.settle(0.0)
    run(books, pipeline("long|one"), 50.0, 0.0, stages=6)  # it would need two places
    books.settle(0.0)
    assert {"a|b", "c|d", "e|f"} == names(books) - {OTHER}


def test_a_newcomer_that_finds_no_room_does_not_keep_lighter_ones_out() -> None:
    books = ledger(50 + OTHERS)
    run(books, pipeline("long|one"), 50.0, 0.0, stages=20)
    run(books, pipeline("a|b"), 1.0, 0.0)
    books.settle(0.0)
    assert names(books) == {"a|b", OTHER}


def test_what_is_folded_stays_in_its_unit() -> None:
    books = ledger(2 * _SERIES_PER_OTHER + 40)
    for number in range(90):
        run(books, pipeline(f"a{number}|b", unit=f"job{number % 3}"), 1.0, 0.0)
        books.settle(0.0)
    assert OTHER in names(books)
    by_unit: dict[str, float] = {}
    for series, account in books.accounts():
        by_unit[series.unit] = by_unit.get(series.unit, 0.0) + sum(account.seconds.values())
    assert by_unit == {f"job{number}": pytest.approx(30.0) for number in range(3)}


def test_units_past_the_bound_are_added_up_under_one_name() -> None:
    books = ledger(2 * _SERIES_PER_OTHER)
    for number in range(1000):
        run(books, pipeline("a|b", unit=f"job{number}"), 1.0, 0.0)
        books.settle(0.0)
        assert books.used <= 2 * _SERIES_PER_OTHER
    units = [series.unit for series, _ in books.accounts() if series.pipeline == OTHER]
    assert len(units) == 3 and units[-1] == OTHER
    assert total(books) == pytest.approx(1000.0)


def test_what_is_folded_is_remembered_by_its_weight() -> None:
    books = ledger(OTHERS)
    assert books.folded(0.0) == (0, 0.0)
    for name, seconds in (("a|b", 8.0), ("c|d", 2.0), ("e|f", 4.0)):
        run(books, pipeline(name), seconds, 0.0)
        books.settle(0.0)
    assert books.folded(0.0) == (3, 8.0)
    assert books.folded(HALF_LIFE) == (3, 4.0)
    assert books.folded(-HALF_LIFE) == (3, 8.0), "a clock that was earlier makes nothing heavier"


def test_of_many_folded_pipelines_the_heaviest_thousand_are_remembered() -> None:
    books = ledger(OTHERS)
    for number in range(2001):
        run(books, pipeline(f"a{number}|b"), 1.0 + number, 0.0)
    books.settle(0.0)
    assert books.folded(0.0) == (1000, 2001.0)
    books = ledger(OTHERS)
    for number in range(2000):
        run(books, pipeline(f"a{number}|b"), 1.0, 0.0)
    books.settle(0.0)
    assert books.folded(0.0) == (2000, 1.0)


@pytest.mark.parametrize(("seconds", "admitted"), [(2.0, False), (2.01, True)])
def test_a_newcomer_has_to_weigh_more_than_twice_as_much(seconds: float, admitted: bool) -> None:
    books = ledger(20 + OTHERS)
    run(books, pipeline("a|b"), 1.0, 0.0)
    books.settle(0.0)
    for _ in range(2):  # the account of the others is made by the first
        run(books, pipeline("c|d"), seconds / 2, 0.0)
        books.settle(0.0)
    assert ("c|d" in names(books)) is admitted


def test_a_pipeline_that_is_live_gives_way_to_none() -> None:
    books = ledger(20 + OTHERS)
    run(books, pipeline("a|b"), 1.0, 0.0)
    books.account(pipeline("a|b")).active = 1
    books.settle(0.0)
    run(books, pipeline("c|d"), 900.0, 0.0)
    books.settle(0.0)
    assert names(books) == {"a|b", OTHER}
    books.begin()
    run(books, pipeline("c|d"), 1.0, 0.0)
    books.settle(0.0)
    assert names(books) == {"c|d", OTHER}


def test_no_more_accounts_are_retired_than_make_room() -> None:
    books = ledger(60 + OTHERS)
    for name, seconds in (("a|b", 1.0), ("c|d", 2.0), ("e|f", 3.0)):
        run(books, pipeline(name), seconds, 0.0)
    books.settle(0.0)
    for _ in range(2):
        run(books, pipeline("g|h"), 50.0, 0.0)
        books.settle(0.0)
    assert names(books) == {"c|d", "e|f", "g|h", OTHER}


def test_a_pipeline_that_lost_its_account_keeps_its_weight() -> None:
    books = ledger(20 + OTHERS)
    run(books, pipeline("a|b"), 8.0, 0.0)
    books.settle(0.0)
    for _ in range(2):
        run(books, pipeline("c|d"), 100.0, 0.0)
        books.settle(0.0)
    assert names(books) == {"c|d", OTHER}
    assert books.folded(0.0) == (1, 8.0)


def test_after_four_newcomers_without_room_no_lighter_one_is_tried() -> None:
    def admitted(long_ones: int) -> bool:
        books = ledger(30 + OTHERS)
        for number in range(long_ones):
            run(books, pipeline(f"long{number}|one"), 50.0, 0.0, stages=20)
        run(books, pipeline("a|b"), 1.0, 0.0)
        books.settle(0.0)
        return "a|b" in names(books)

    assert admitted(3)
    assert not admitted(4)


def test_of_two_that_ran_alike_the_later_one_weighs_more() -> None:
    books = ledger(20 + OTHERS)
    run(books, pipeline("a|b"), 4.0, 0.0)
    run(books, pipeline("c|d"), 4.0, HALF_LIFE)
    books.settle(HALF_LIFE)
    assert names(books) - {OTHER} == {"c|d"}


def test_accounts_fill_the_budget_to_the_last_series() -> None:
    books = ledger(40)
    for name in ("a|b", "c|d"):
        run(books, pipeline(name), 1.0, 0.0)
    books.settle(0.0)
    assert (names(books), books.used) == ({"a|b", "c|d"}, 40)


def test_without_a_budget_nobody_is_folded() -> None:
    books = ledger(None)
    for number in range(1000):
        run(books, pipeline(f"a{number}|b"), 0.001, number)
        books.settle(number)
    assert len(names(books)) == 1000


steps = st.lists(
    st.tuples(
        st.integers(0, 12),  # which pipeline
        st.sampled_from([0, 1, 5, 100, 7200]),  # whole seconds: their sums are exact
        st.integers(1, 4),  # stages
        st.booleans(),  # nested
        st.integers(0, 5),  # unit
        st.booleans(),  # a sweep ends after it
        st.sampled_from([0, 1, 3600, 90_000]),  # seconds until the next step
    ),
    max_size=60,
)


@given(steps=steps, budget=st.integers(4 * OTHERS, 1000))
@settings(max_examples=300, deadline=None)
def test_any_sequence_of_runs_adds_up_and_no_counter_falls(
    steps: list[tuple[int, int, int, bool, int, bool, int]], budget: int
) -> None:
    books = ledger(budget)
    now, ran = 0.0, 0
    of_units: dict[tuple[str, bool], float] = {}
    before: dict[tuple[Series, str], float] = {}
    for which, seconds, stages, nested, unit, sweep, pause in steps:
        series = pipeline(f"p{which}", nested, f"job{unit}")
        run(books, series, seconds * stages, now, stages)
        ran += seconds * stages
        of_units[series.unit, nested] = of_units.get((series.unit, nested), 0) + seconds * stages
        now += pause
        if not sweep:
            continue
        books.settle(now)
        accounts = dict(books.accounts())
        assert books.used == sum(map(cost, accounts.values())) <= budget
        assert all(any(account.seconds.values()) for account in accounts.values())
        assert total(books) == ran
        others = [series for series in accounts if series.pipeline == OTHER]
        incomplete = any(series.unit == OTHER for series in others)
        for (unit_name, inside), expected in of_units.items():
            if not incomplete or Series(pipeline=OTHER, nested=inside, unit=unit_name) in others:
                assert expected == sum(
                    sum(account.seconds.values())
                    for series, account in accounts.items()
                    if (series.unit, series.nested) == (unit_name, inside)
                )
        after = {
            (series, stage): value
            for series, account in accounts.items()
            for stage, value in account.seconds.items()
        }
        assert all(after[key] >= value for key, value in before.items() if key in after)
        of_other = {key: value for key, value in before.items() if key[0].pipeline == OTHER}
        assert all(after[key] >= value for key, value in of_other.items()), "taken back from other"
        before = after
