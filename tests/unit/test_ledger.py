# SPDX-License-Identifier: Apache-2.0
"""Series as a budget: who has an account of its own, and that nothing is lost or taken back."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelined.model.ledger import HALF_LIFE, OTHER, Ledger
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

    def filled(self) -> int:
        return sum(seconds > 0 for seconds in self.seconds.values())

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


def ledger(budget: int | None) -> Ledger[Sums]:
    return Ledger(budget, new=Sums, cost=lambda account: 10 + 5 * len(account.seconds))


def pipeline(name: str, nested: bool = False) -> Series:
    return Series(name, nested, "-")


def run(books: Ledger[Sums], series: Series, seconds: float, now: float, stages: int = 2) -> None:
    account, own = books.account(series)
    for stage in range(stages):
        account.add(f"stage {stage}" if own else "other", seconds / stages)
    books.ran(series, seconds, now)


def names(books: Ledger[Sums]) -> set[str]:
    return {series.pipeline for series, _ in books.accounts()}


def total(books: Ledger[Sums]) -> float:
    return sum(sum(account.seconds.values()) for _, account in books.accounts())


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
        account, own = books.account(nightly)
        assert own
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
    account, _ = books.account(heavy)
    assert 0 < sum(account.seconds.values()) < 10, "what it did before is in the other account"
    assert total(books) == pytest.approx(30.0)


def test_equal_ones_do_not_take_the_place_from_each_other() -> None:
    books, seen = ledger(20), []
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
    books.account(live)[0].active = 1
    books.settle(0.0)
    for number in range(5):
        run(books, pipeline(f"new{number}|x"), 20.0, 1.0)
        books.settle(1.0)
    assert "tail|grep" in names(books)
    assert "find|xargs" not in names(books)


def test_weight_fades_so_last_years_giant_gives_way() -> None:
    books = ledger(20)
    run(books, pipeline("old|giant"), 1000.0, 0.0)
    books.settle(0.0)
    later = 12 * HALF_LIFE
    for _ in range(2):
        run(books, pipeline("new|job"), 10.0, later)
        books.settle(later)
    assert names(books) - {OTHER} == {"new|job"}


def test_a_retired_pipeline_comes_back_as_a_new_series_not_as_one_that_fell() -> None:
    books = ledger(20)
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


def test_without_a_budget_nobody_is_folded() -> None:
    books = ledger(None)
    for number in range(1000):
        run(books, pipeline(f"a{number}|b"), 0.001, number)
        books.settle(number)
    assert len(names(books)) == 1000


steps = st.lists(
    st.tuples(
        st.integers(0, 12),  # which pipeline
        st.sampled_from([1, 5, 100, 7200]),  # whole seconds: their sums are exact
        st.integers(1, 4),  # stages
        st.booleans(),  # nested
        st.booleans(),  # a sweep ends after it
        st.sampled_from([0, 1, 3600, 90_000]),  # seconds until the next step
    ),
    max_size=60,
)


@given(steps=steps, budget=st.integers(0, 200))
@settings(max_examples=300, deadline=None)
def test_any_sequence_of_runs_adds_up_and_no_counter_falls(
    steps: list[tuple[int, int, int, bool, bool, int]], budget: int
) -> None:
    books = ledger(budget)
    now, ran = 0.0, 0
    before: dict[tuple[Series, str], float] = {}
    for which, seconds, stages, nested, sweep, pause in steps:
        run(books, pipeline(f"p{which}", nested), seconds * stages, now, stages)
        ran += seconds * stages
        now += pause
        if not sweep:
            continue
        books.settle(now)
        assert books.used <= budget
        assert total(books) == ran
        after = {
            (series, stage): value
            for series, account in books.accounts()
            for stage, value in account.seconds.items()
        }
        assert all(after[key] >= value for key, value in before.items() if key in after)
        others = {key: value for key, value in before.items() if key[0].pipeline == OTHER}
        assert all(after[key] >= value for key, value in others.items()), "taken back from other"
        before = after
