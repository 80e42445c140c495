# SPDX-License-Identifier: Apache-2.0
"""What `improve` tries, keeps and drops, with made-up commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from pipelined.analysis.comparison_reasons import Trial
from pipelined.analysis.finding import Finding, Rewrite
from pipelined.analysis.improvement import Improvement, Tried, Way, may_be_tried, moved
from pipelined.errors import UserError
from pipelined.run.executions import Execution, NotColdError
from pipelined.run.improving import MOST_ROUNDS, improve
from pipelined.run.measured_child import Outcome
from pipelined.run.printed import Printing
from pipelined.runs import Run
from unit.invented import make_run, make_stage

ORIGINAL = "cat f | grep a | sort"


@dataclass
class Host:
    """Runs each text in the time, and with the output, that it is to have."""

    takes: Mapping[str, float | Sequence[float]]
    """Seconds; several are those of one execution after the other. Others take 1 s."""
    prints: Mapping[str, str] = field(default_factory=dict)
    fails: frozenset[str] = frozenset()
    never_cold: frozenset[str] = frozenset()
    """Words for files that cannot be dropped from the page cache."""
    never_cold_from: int = 0
    """The execution from which on they cannot."""
    interrupted_at: int | None = None
    """The execution in which Ctrl-C is pressed."""
    ran: list[str] = field(default_factory=list)
    cold: list[tuple[str, ...]] = field(default_factory=list)
    now: float = 0.0

    def __call__(self, text: str, *, cold: Sequence[str], any_order: bool) -> Execution:
        self.ran.append(text)
        self.cold.append(tuple(cold))
        if self.never_cold.intersection(cold) and len(self.ran) >= self.never_cold_from:
            raise NotColdError("cannot cache or evict f: permission denied")
        if len(self.ran) == self.interrupted_at:
            raise KeyboardInterrupt
        seconds = self.takes.get(text, 1.0)
        if not isinstance(seconds, float):
            seconds = seconds[(self.ran.count(text) - 1) % len(seconds)]
        self.now += seconds
        printing = Printing(any_order=any_order)
        printing.add(self.prints.get(text, "1\n2\n").encode())
        status = int(text in self.fails)
        outcome = Outcome(status, seconds, seconds, printing.result(), "no" if status else "")
        run = make_run([make_stage(1, "cat")], seconds)
        return Execution(outcome, Trial(seconds, seconds, run))

    def clock(self) -> float:
        return self.now


def advised(new: str, old: str = ORIGINAL, *, reordered: bool = False, unpacked: str = "",
            cold: tuple[str, ...] = ()) -> Finding:  # fmt: skip
    rewrite = Rewrite(old=old, new=new, reordered=reordered, unpacked=unpacked, cold=cold)
    return Finding(
        id="barrier", severity="advice", sentence="It waits.", advice="Try: another way.",
        rewrite=rewrite, stages=(0,), evidence=(),
    )  # fmt: skip


def improved(
    host: Host, findings: Mapping[str, Iterable[Finding]], budget: float = 1e6
) -> Improvement:
    def findings_of(text: str, run: Run) -> Iterable[Finding]:
        return findings.get(text, ())

    return improve(ORIGINAL, execute=host, findings_of=findings_of, budget=budget, clock=host.clock)


def only(found: Improvement) -> Tried:
    (tried,) = found.tried
    return tried


FASTER = "grep a f | sort"


def test_what_is_faster_in_all_rounds_is_the_command_to_use() -> None:
    found = improved(Host({ORIGINAL: 1.0, FASTER: 0.5}), {ORIGINAL: [advised(FASTER)]})
    assert (found.command, only(found).outcome, found.outputs) == (FASTER, "won", "same")
    comparison = found.comparison
    assert comparison is not None
    assert comparison.winner == 1
    assert comparison.pairs[0].ratio.median == 0.5


def test_the_original_and_the_ways_run_in_turn_after_one_run_of_each() -> None:
    host = Host({ORIGINAL: 1.0, FASTER: 0.5})
    improved(host, {ORIGINAL: [advised(FASTER)]})
    assert host.ran[:6] == [ORIGINAL, FASTER, ORIGINAL, FASTER, FASTER, ORIGINAL]
    assert len(host.ran) == 12


def test_a_loser_is_dropped_after_two_rounds() -> None:
    found = improved(Host({ORIGINAL: 1.0, FASTER: 1.5}), {ORIGINAL: [advised(FASTER)]})
    assert (only(found).outcome, only(found).rounds) == ("not-faster", 2)
    assert (found.command, found.measured, found.ended) == (ORIGINAL, (), "nothing-left")


def test_nine_rounds_decide_where_one_is_an_exception() -> None:
    takes = [0.5, 0.5, 2.0, *[0.5] * 20]
    found = improved(Host({ORIGINAL: 1.0, FASTER: takes}), {ORIGINAL: [advised(FASTER)]})
    assert (only(found).outcome, only(found).rounds) == ("won", MOST_ROUNDS)


def test_what_prints_something_else_is_never_used() -> None:
    host = Host({ORIGINAL: 1.0, FASTER: 0.1}, {FASTER: "1\n3\n"})
    found = improved(host, {ORIGINAL: [advised(FASTER)]})
    assert only(found).outcome == "output"
    assert only(found).detail == "in line 2 the original prints '2', it prints '3'"
    assert (found.command, host.ran) == (ORIGINAL, [ORIGINAL, FASTER])


@pytest.mark.parametrize(("reordered", "outcome"), [(True, "won"), (False, "output")])
def test_another_order_is_accepted_only_where_the_finding_says_so(
    reordered: bool, outcome: str
) -> None:
    host = Host({ORIGINAL: 1.0, FASTER: 0.1}, {FASTER: "2\n1\n"})
    found = improved(host, {ORIGINAL: [advised(FASTER, reordered=reordered)]})
    assert only(found).outcome == outcome
    assert found.outputs == ("lines" if reordered else "same")


def test_what_is_packed_is_compared_unpacked() -> None:
    host = Host({ORIGINAL: 1.0, FASTER: 0.1}, {FASTER: "packed otherwise"})
    found = improved(host, {ORIGINAL: [advised(FASTER, unpacked="zcat")]})
    assert (only(found).outcome, found.unpacked) == ("won", "zcat")
    assert host.ran[1:3] == [f"{ORIGINAL} | zcat", f"{FASTER} | zcat"]


@pytest.mark.parametrize("unpacked", ["", "zcat"])
def test_a_way_whose_file_cannot_be_made_cold_is_given_up_and_the_others_go_on(
    unpacked: str,
) -> None:
    cold = "dd if=f | grep a | sort"
    host = Host({ORIGINAL: 1.0, FASTER: 0.5}, never_cold=frozenset({"f"}))
    found = improved(
        host,
        {ORIGINAL: [advised(cold, cold=("f",), unpacked=unpacked), advised(FASTER)]},
    )
    assert [(tried.command, tried.outcome) for tried in found.tried] == [
        (cold, "failed"),
        (FASTER, "won"),
    ]
    assert found.tried[0].detail == "cannot cache or evict f: permission denied"
    assert (found.command, found.ended) == (FASTER, "nothing-left")


def test_what_fails_is_never_used() -> None:
    host = Host({ORIGINAL: 1.0, FASTER: 0.1}, fails=frozenset({FASTER}))
    tried = only(improved(host, {ORIGINAL: [advised(FASTER)]}))
    assert (tried.outcome, tried.detail) == ("failed", "it failed with exit status 1: no")


def test_files_are_cold_for_both_sides_if_the_finding_is_about_reading_them() -> None:
    host = Host({ORIGINAL: 1.0, FASTER: 0.5})
    improved(host, {ORIGINAL: [advised(FASTER, cold=("f",))]})
    assert host.cold == [(), *[("f",)] * 11]


def test_the_findings_of_what_won_are_tried_on_top_of_it() -> None:
    last = "grep a f | sort -S 1G"
    host = Host({ORIGINAL: 1.0, FASTER: 0.5, last: 0.25})
    found = improved(host, {ORIGINAL: [advised(FASTER)], FASTER: [advised(last, FASTER)]})
    assert [step.command for step in found.steps] == [FASTER, last]
    assert found.steps[1].instead_of == FASTER
    comparison = found.comparison
    assert comparison is not None
    assert [side.name for side in comparison.sides] == [ORIGINAL, last]
    assert comparison.pairs[0].ratio.median == 0.25


def test_the_other_ways_of_the_first_run_are_tried_on_top_of_it() -> None:
    other = "cat f | grep a | LC_ALL=C sort"
    both = "grep a f | LC_ALL=C sort"
    host = Host({ORIGINAL: 1.0, FASTER: 0.5, other: 0.9, both: 0.4})
    found = improved(host, {ORIGINAL: [advised(other), advised(FASTER)]})
    assert found.command == both
    assert [tried.outcome for tried in found.tried] == ["won", "faster", "won"]


def test_ways_that_gain_too_little_alone_are_tried_together() -> None:
    other, both = "cat f | grep a | sort -u", "grep a f | sort -u"
    host = Host({ORIGINAL: 1.0, FASTER: 0.985, other: 0.985, both: 0.97})
    found = improved(host, {ORIGINAL: [advised(FASTER), advised(other)]})
    assert [tried.outcome for tried in found.tried] == ["not-faster", "not-faster", "won"]
    assert (found.command, found.steps[0].finding) == (both, "barrier")


def test_where_the_budget_is_too_short_for_single_steps_all_are_tried_at_once() -> None:
    other, both = "cat f | grep a | sort -u", "grep a f | sort -u"
    host = Host({ORIGINAL: 1.0, FASTER: 0.5, other: 0.9, both: 0.4})
    found = improved(host, {ORIGINAL: [advised(FASTER), advised(other)]}, budget=20.0)
    assert [(tried.command, tried.outcome) for tried in found.tried][:1] == [(both, "won")]
    assert found.command == both


def test_a_sort_is_not_left_out_where_what_made_it_superfluous_is_gone() -> None:
    way = Way("grep a f | sort | uniq", rewrite=Rewrite(
        old="sort f | grep a | sort | uniq", new="grep a f | sort | uniq"
    ))  # fmt: skip
    first = Rewrite(old="zcat f | sort | grep a | sort | uniq", new="zcat f | grep a | sort | uniq")
    assert moved(Way(first.new, rewrite=first), Way("zcat f | grep a | sort | uniq")) is None
    assert moved(way, Way("grep a f | sort | uniq")) is None
    again = moved(Way(first.new, rewrite=first), Way("gzip -dc f | sort | grep a | sort | uniq"))
    assert again is None  # two sorts: which one is not certain


def test_ways_that_are_slower_are_not_tried_together() -> None:
    other = "cat f | grep a | sort -u"
    host = Host({ORIGINAL: 1.0, FASTER: 0.985, other: 1.1})
    found = improved(host, {ORIGINAL: [advised(FASTER), advised(other)]})
    assert len(found.tried) == 2


def test_the_same_text_is_never_tried_twice() -> None:
    host = Host({ORIGINAL: 1.0, FASTER: 0.5})
    again = [advised(FASTER), advised(FASTER)]
    found = improved(host, {ORIGINAL: again, FASTER: [advised(ORIGINAL, FASTER), *again]})
    assert len(found.tried) == 1


def test_with_no_other_way_it_runs_once() -> None:
    host = Host({ORIGINAL: 1.0})
    found = improved(host, {})
    assert (found.ended, found.executions, host.ran) == ("nothing-to-try", 1, [ORIGINAL])


def test_what_would_change_something_is_not_tried() -> None:
    assert improved(Host({ORIGINAL: 1.0}), {ORIGINAL: [advised("cat f | tee g")]}).tried == ()
    assert not may_be_tried(Way("cat f | tee g"))


def test_what_may_end_with_another_exit_status_is_named_once_and_not_tried() -> None:
    swapped, shorter = "grep a f | cat | sort", "cat f | grep a"
    host = Host({ORIGINAL: 1.0, FASTER: 0.5})
    found = improve(
        ORIGINAL,
        execute=host,
        findings_of=lambda text, run: [advised(FASTER), advised(swapped), advised(shorter)],
        another_status=lambda old, new: "" if new == FASTER else "grep finds nothing",
        budget=1e6,
        clock=host.clock,
    )
    assert (found.command, set(host.ran)) == (FASTER, {ORIGINAL, FASTER})
    (kept,) = found.kept_back
    assert (kept.command, kept.instead_of) == (swapped, ORIGINAL)
    assert (kept.outcome, kept.detail) == ("status", "it changes if grep finds nothing")
    assert (kept.rounds, kept.ratio, found.lost) == (0, None, ())


def test_no_round_begins_after_the_budget() -> None:
    host = Host({ORIGINAL: 1.0, FASTER: 0.5})
    found = improved(host, {ORIGINAL: [advised(FASTER)]}, budget=4.0)
    assert (only(found).outcome, only(found).rounds, found.ended) == ("undecided", 2, "budget")


def test_a_budget_leaves_time_to_measure_all_steps_together() -> None:
    last = "grep a f | sort -S 1G"
    host = Host({ORIGINAL: 1.0, FASTER: 0.5, last: 0.25})
    found = improved(
        host, {ORIGINAL: [advised(FASTER)], FASTER: [advised(last, FASTER)]}, budget=16.0
    )
    assert (found.command, found.ended) == (FASTER, "budget")
    assert host.now <= 16.0


def test_ctrl_c_leaves_what_is_known() -> None:
    host = Host({ORIGINAL: 1.0, FASTER: 0.5}, interrupted_at=7)
    found = improved(host, {ORIGINAL: [advised(FASTER)]})
    assert (only(found).outcome, only(found).rounds, found.ended) == (
        "undecided", 2, "interrupted",
    )  # fmt: skip


def test_a_file_that_is_not_cold_in_the_end_leaves_what_is_known() -> None:
    last = "grep a f | sort -S 1G"
    findings = {
        ORIGINAL: [advised(FASTER, cold=("f",))],
        FASTER: [advised(last, FASTER, cold=("f",))],
    }
    takes = {ORIGINAL: 1.0, FASTER: 0.5, last: 0.25}
    found = improved(Host(takes, never_cold=frozenset({"f"}), never_cold_from=25), findings)
    assert (found.command, found.comparison, found.ended) == (last, None, "nothing-left")


def test_ctrl_c_in_the_first_run_leaves_nothing() -> None:
    with pytest.raises(KeyboardInterrupt):
        improved(Host({ORIGINAL: 1.0}, interrupted_at=1), {})


def test_after_ctrl_c_between_steps_no_figure_of_another_command_is_given() -> None:
    last = "grep a f | sort -S 1G"
    findings = {ORIGINAL: [advised(FASTER)], FASTER: [advised(last, FASTER)]}
    host = Host({ORIGINAL: 1.0, FASTER: 0.5, last: 0.25}, interrupted_at=25)
    found = improved(host, findings)
    assert (found.command, found.comparison, found.ended) == (last, None, "interrupted")


def test_a_pipeline_that_fails_is_not_improved() -> None:
    with pytest.raises(UserError, match="the pipeline failed with exit status 1: no"):
        improved(Host({ORIGINAL: 1.0}, fails=frozenset({ORIGINAL})), {})


def test_a_pipeline_that_does_not_print_the_same_each_time_cannot_be_improved() -> None:
    host = Host({ORIGINAL: 1.0, FASTER: 0.5})

    def unsteady(text: str, *, cold: Sequence[str], any_order: bool) -> Execution:
        host.prints = {ORIGINAL: str(len(host.ran))}
        return host(text, cold=cold, any_order=any_order)

    with pytest.raises(UserError, match=r"does not print the same each time: in line 1 it first"):
        improve(
            ORIGINAL,
            execute=unsteady,
            findings_of=lambda text, run: [advised(FASTER, unpacked="cat")],
            budget=1e6,
        )


def test_before_it_tries_it_says_how_often_and_how_long() -> None:
    told: list[tuple[int, int, float]] = []
    host = Host({ORIGINAL: 1.0, FASTER: 0.5})
    announce: Callable[[int, int, float], object] = lambda *what: told.append(what)  # noqa: E731
    improve(
        ORIGINAL, execute=host, findings_of=lambda text, run: [advised(FASTER)], budget=1e6,
        announce=announce, clock=host.clock,
    )  # fmt: skip
    assert told == [(1, 19, 19.0)]


@pytest.mark.parametrize(
    ("old", "new", "base", "expected"),
    [
        ("a | b | c", "a | b2 | c", "x | b | d", "x | b2 | d"),
        (
            "cat f | grep a | sort",
            "grep a < f | sort",
            "cat f | grep a | tail",
            "grep a < f | tail",
        ),
        ("a | b", "a | b2", "b | b", None),
        ("a | b", "a | b2", "a | c", None),
        ("a | b", "a | b | c", "a | b", None),
        ("a | b | c", "a | c", "x | b | y", "x | y"),
    ],
)
def test_a_way_is_moved_to_another_pipeline_that_has_what_it_changes_once(
    old: str, new: str, base: str, expected: str | None
) -> None:
    found = moved(Way(new, rewrite=Rewrite(old=old, new=new)), Way(base))
    assert (found.text if found else None) == expected
