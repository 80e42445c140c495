# SPDX-License-Identifier: Apache-2.0
"""`pipelined improve`: try what the findings of a pipeline advise, and keep what is faster.

The pipeline runs once. Each rewrite of its findings is a way to try: all of them run in turn with
the pipeline itself, round by round. The one that wins takes its place, and what its own findings
advise is tried next, with the other ways as far as they still apply. It ends when no way wins.

Who wins, `pipelined compare` decides (analysis/comparison.py). What runs a command is handed in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pipelined.analysis.comparison import MIN_ROUNDS, SAME_WALL, Comparison
from pipelined.analysis.comparison_reasons import Trial
from pipelined.analysis.finding import Finding
from pipelined.analysis.improvement import (
    Improvement,
    Measured,
    Tried,
    Way,
    compared,
    may_be_tried,
    moved,
    together,
    ways,
)
from pipelined.errors import UserError
from pipelined.run.executions import Execute, Execution, NotColdError
from pipelined.run.printed import Printed, difference
from pipelined.run.trials import ShowProgress, no_progress, turns
from pipelined.runs import Run

__all__ = ["Announce", "AnotherStatus", "improve"]

#: So many rounds are measured if fewer do not agree: then one of them may be an exception.
MOST_ROUNDS = 9
#: A way that was not faster in so many rounds is given up: of 9 rounds 8 have to agree.
PATIENCE = 2
#: Ways that are tried in turn at most.
MOST_WAYS = 7

Announce = Callable[[int, int, float], object]
"""Called before ways are tried, with their number, how many executions that takes at most, and
about how many seconds."""
FindingsOf = Callable[[str, Run], Iterable[Finding]]
"""The findings of a run of a text."""
AnotherStatus = Callable[[str, str], str]
"""When a pipeline, the second one, may end with another exit status than the first; else empty."""


def improve(
    original: str,
    *,
    execute: Execute,
    findings_of: FindingsOf,
    budget: float,
    another_status: AnotherStatus | None = None,
    announce: Announce = lambda ways, executions, seconds: None,
    show_progress: ShowProgress = no_progress,
    clock: Callable[[], float] = time.monotonic,
) -> Improvement:
    """Find a faster way to write a pipeline, a text for a shell.

    No new round begins `budget` seconds after the start. Ctrl-C ends the running command, and the
    search: what was found until then is returned. If nothing was, it raises KeyboardInterrupt.
    Raises UserError if the pipeline fails, or does not print the same each time. Without
    `another_status` its exit status does not matter.
    """
    search = _Search(
        original,
        execute,
        findings_of,
        budget,
        another_status,
        announce,
        show_progress,
        clock,
        clock(),
    )
    try:
        ended = search.run()
    except KeyboardInterrupt:
        if search.first is None:
            raise
        ended = "interrupted"
    return search.result(ended)


@dataclass(slots=True)
class _Side:
    """One of the pipelines that run in turn."""

    way: Way
    trials: list[Trial] = field(default_factory=list)
    outcome: str = ""
    """Of `Tried.outcome`, once it is decided."""
    detail: str = ""


class _Search:
    def __init__(
        self,
        original: str,
        execute: Execute,
        findings_of: FindingsOf,
        budget: float,
        another_status: AnotherStatus | None,
        announce: Announce,
        show_progress: ShowProgress,
        clock: Callable[[], float],
        began: float,
    ) -> None:
        self._original = Way(original)
        self._execute = execute
        self._findings_of = findings_of
        self._budget = budget
        self._another_status = another_status
        self._announce = announce
        self._show_progress = show_progress
        self._clock = clock
        self._began = began
        self.first: Execution | None = None
        """The first execution."""
        self._base = self._original
        self._wall = 0.0
        """Of the base, in seconds."""
        self._executions = 0
        self._texts = {original}
        """All that was tried."""
        self._known: dict[str, Way] = {}
        """All ways that findings advised, by what they were first to run."""
        self._tried: list[Tried] = []
        self._unpacked: dict[str, Printed] = {}
        """What a command makes of the original's output."""
        self._reordered: set[str] = set()
        """Texts that printed the lines in another order."""
        self._measured: tuple[Measured, ...] = ()

    def run(self) -> str:
        """Try what there is to try; returns why no more was: one of `ENDINGS`."""
        self.first = first = self._once(self._original, any_order=True)
        if first.outcome.status:
            raise UserError(_failed("the pipeline", first), "nothing is tried")
        self._wall = first.outcome.wall_seconds
        queue = self._advised(first.trial)
        if not queue:
            return "nothing-to-try"
        ended = "nothing-left"
        while queue:
            if self._out_of_time():
                ended = "budget"
                break
            chosen = [way for way in queue if way.cold == queue[0].cold][:MOST_WAYS]
            if self._step_by_step_takes(len(chosen)) > self._left():
                chosen = self._all_at_once(chosen) or chosen
            queue = [way for way in queue if way not in chosen]
            self._texts.update(way.text for way in chosen)
            won = self._race(chosen)
            if won is not None:
                queue = self._advised(won)
            elif self._out_of_time():
                ended = "budget"
                break
            else:
                queue = [*self._all_at_once(self._may_help(chosen)), *queue]
        self._measure_all()
        return ended

    def _advised(self, trial: Trial) -> list[Way]:
        """What is to be tried in place of the base, which has just run."""
        run, base = trial.run, self._base
        found = self._findings_of(base.text, run) if run else ()
        fresh = ways(found, base)
        earlier = [moved(way, base) for way in self._known.values()]
        for way in fresh:
            self._known.setdefault(way.text, way)
        all_ways = [*fresh, *filter(None, earlier)]
        new = {way.text: way for way in reversed(all_ways) if way.text not in self._texts}
        harmless = [way for way in reversed(new.values()) if may_be_tried(way)]
        return [way for way in harmless if not self._kept_back(way)]

    def _kept_back(self, way: Way) -> bool:
        """Whether a way may end with another exit status, and is not tried."""
        judge = self._another_status
        when = judge(self._base.text, way.text) if judge else ""
        before = [tried.finding for tried in self._tried if tried.outcome == "status"]
        if when and way.finding not in before:
            side = _Side(way, outcome="status", detail=f"it changes if {when}")
            self._tried.append(_tried(self._base, side, None))
        return when != ""

    def _step_by_step_takes(self, ways: int) -> float:
        """Seconds, at least, until each of these ways has won in its turn."""
        runs = sum(MIN_ROUNDS * (1 + left) for left in range(1, ways + 1))
        return runs * self._wall

    def _may_help(self, lost: Sequence[Way]) -> list[Way]:
        """Of ways that did not win those that took less in the median."""
        ratios = {tried.command: tried.ratio for tried in self._tried}
        return [way for way in lost if (ratio := ratios[way.text]) and ratio.median < 1]

    def _all_at_once(self, some: Sequence[Way]) -> list[Way]:
        """What these ways are together: alone each may gain too little to be sure, or take too
        long to try."""
        way = together(some, self._base)
        if way is None or way.text in self._texts or not may_be_tried(way):
            return []
        return [] if self._kept_back(way) else [way]

    # -- one race

    def _race(self, chosen: Sequence[Way]) -> Trial | None:
        """Run ways in turn with the base. If one wins, it is the new base: a run of it.

        All of them are to read the same files cold. If these cannot be, all are given up.
        """
        base, sides = _Side(self._base), [_Side(way) for way in chosen]
        cold = chosen[0].cold
        most = len(sides) + MOST_ROUNDS * (1 + len(sides))
        self._announce(len(sides), most, most * self._wall)
        try:
            with self._show_progress(most) as advance:
                for side in sides:
                    advance("the first run of each")
                    self._check(side, cold)
                self._rounds(base, sides, cold, advance)
        except NotColdError as error:
            for side in sides:
                if not side.outcome:
                    side.outcome, side.detail = "failed", error.message
        finally:
            winner = self._judge(base, sides)
        return None if winner is None else _middle(winner)

    def _rounds(
        self,
        base: _Side,
        sides: Sequence[_Side],
        cold: tuple[str, ...],
        advance: Callable[[str], object],
    ) -> None:
        any_order = any(side.way.reordered for side in sides)
        for number in range(MOST_ROUNDS):
            alive = [base, *(side for side in sides if not side.outcome)]
            if len(alive) == 1 or self._out_of_time():
                return
            if number >= MIN_ROUNDS and not any(
                _may_still_win(_pair(base, side)) for side in alive[1:]
            ):
                return
            for index in turns(number, len(alive)):
                side = alive[index]
                advance(f"round {number + 1}, {len(alive)} in turn")
                done = self._once(side.way, cold=cold, any_order=any_order)
                if side is base:
                    self._check_base(done)
                elif not self._check_output(side, done):
                    continue
                side.trials.append(done.trial)
            for side in alive[1:]:
                if not side.outcome and _is_lost(base, side):
                    side.outcome = "not-faster" if _is_no_faster(base, side) else "undecided"

    def _check(self, side: _Side, cold: tuple[str, ...]) -> None:
        """Run a way once, to see what it prints."""
        way, command = side.way, side.way.unpacked
        if not command:
            self._check_output(side, self._once(way, cold=cold, any_order=True))
            return
        if command not in self._unpacked:
            done = self._once(Way(f"{self._original.text} | {command}"))
            self._unpacked[command] = done.outcome.output
        done = self._once(Way(f"{way.text} | {command}"))
        self._check_output(side, done, self._unpacked[command])

    def _check_output(self, side: _Side, done: Execution, expected: Printed | None = None) -> bool:
        """Whether a way did what the original did; if not, it is given up."""
        if done.outcome.status:
            side.outcome, side.detail = "failed", _failed("it", done)
            return False
        if side.way.unpacked and expected is None:
            return True  # packed, it may be another one
        expected, found = expected or self._expected, done.outcome.output
        if found.digest == expected.digest:
            return True
        same_lines = found.has_lines_of(expected)
        if same_lines and side.way.reordered:
            self._reordered.add(side.way.text)
            return True
        where = difference(expected, found, ("the original prints", "it prints"))
        lead = "the same lines in another order: " if same_lines else ""
        side.outcome, side.detail = "output", lead + where
        return False

    def _check_base(self, done: Execution) -> None:
        """Raises UserError if the base no longer does what the original did."""
        if done.outcome.status:
            raise UserError(_failed("the pipeline", done), "it did not the first time")
        base, expected, found = self._base, self._expected, done.outcome.output
        if base.unpacked or found.digest == expected.digest:
            return
        if base.reordered and found.has_lines_of(expected):
            return
        where = difference(expected, found, ("it first printed", "then"))
        raise UserError(
            f"the pipeline does not print the same each time: {where}",
            "nothing can be compared; leave out what changes",
        )

    @property
    def _expected(self) -> Printed:
        assert self.first is not None, "the original has not run"
        return self.first.outcome.output

    def _judge(self, base: _Side, sides: Sequence[_Side]) -> _Side | None:
        """What came of all ways; returns the one that won, if one did."""
        pairs = {id(side): _pair(base, side) for side in sides}
        for side in sides:
            pair = pairs[id(side)]
            if not side.outcome:
                side.outcome = _OUTCOMES[pair.pairs[0].outcome if pair else "undecided"]
            if not side.detail and pair and pair.pairs[0].outcome == "not-comparable":
                side.detail = "the page cache may explain the difference"
        faster = [side for side in sides if side.outcome == "faster"]
        winner = min(faster, key=lambda side: _middle(side).wall_seconds, default=None)
        if winner is not None:
            winner.outcome = "won"
            self._base, self._wall = winner.way, _middle(winner).wall_seconds
            if not any(tried.outcome == "won" for tried in self._tried):
                self._measured = _measured(base, winner)
        order = sorted(sides, key=lambda side: side is not winner)
        self._tried += [_tried(base.way, side, pairs[id(side)]) for side in order]
        return winner

    def _measure_all(self) -> None:
        """Measure the original and what all steps together made of it, in turn, if the files that
        both are to read cold can be made so."""
        if sum(tried.outcome == "won" for tried in self._tried) < 2:
            return
        base, last = _Side(self._original), _Side(self._base)
        any_order = self._base.reordered
        self._measured = ()
        with self._show_progress(2 * MOST_ROUNDS) as advance, suppress(NotColdError):
            for number in range(MOST_ROUNDS):
                if number >= MIN_ROUNDS and not _may_still_win(_pair(base, last)):
                    break
                for index in turns(number, 2):
                    side = (base, last)[index]
                    advance(f"the original and the last one, round {number + 1}")
                    done = self._once(side.way, cold=self._base.cold, any_order=any_order)
                    side.trials.append(done.trial)
            self._measured = _measured(base, last)

    # -- what all have in common

    def _once(self, way: Way, *, cold: tuple[str, ...] = (), any_order: bool = False) -> Execution:
        self._executions += 1
        return self._execute(way.text, cold=cold, any_order=any_order)

    def _out_of_time(self) -> bool:
        """Whether no new round is to begin."""
        return self._left() <= 0

    def _left(self) -> float:
        """Seconds for new rounds: at the end all steps are measured together."""
        later = 0.0
        if self.first is not None and self._base is not self._original:
            later = MIN_ROUNDS * (self.first.outcome.wall_seconds + self._wall)
        return self._budget - (self._clock() - self._began + later)

    def result(self, ended: str) -> Improvement:
        assert self.first is not None, "the original has not run"
        text = self._base.text
        whole = self._measured and self._measured[1].command == text
        return Improvement(
            original=self._original.text,
            command=text,
            outputs="lines" if text in self._reordered else "same",
            prints=self.first.outcome.output.size > 0,
            unpacked=self._base.unpacked,
            ended=ended,
            error_line=self.first.outcome.last_error_line,
            executions=self._executions,
            wall_seconds=self._clock() - self._began,
            tried=tuple(self._tried),
            measured=self._measured if whole else (),
            first_run=self.first.trial.run,
        )


#: What the outcome of a comparison says of the way.
_OUTCOMES: Mapping[str, str] = {
    "faster": "faster",
    "slower": "not-faster",
    "same": "not-faster",
    "undecided": "undecided",
    "not-comparable": "undecided",
}


def _measured(base: _Side, other: _Side) -> tuple[Measured, ...]:
    rounds = min(len(base.trials), len(other.trials))
    return tuple(Measured(side.way.text, tuple(side.trials[:rounds])) for side in (base, other))


def _pair(base: _Side, side: _Side) -> Comparison | None:
    """The two in the rounds in which both were measured; None if there are none."""
    measured = _measured(base, side)
    return compared(measured, "same") if measured[0].trials else None


def _may_still_win(comparison: Comparison | None) -> bool:
    """Whether more rounds may show that the second side is faster."""
    if comparison is None:
        return False
    pair = comparison.pairs[0]
    return pair.outcome == "undecided" and pair.ratio.median < 1 - SAME_WALL


def _is_lost(base: _Side, side: _Side) -> bool:
    """Whether it cannot win any more, in whatever rounds are left."""
    pairs = zip(base.trials, side.trials, strict=False)
    return sum(other.wall_seconds >= one.wall_seconds for one, other in pairs) >= PATIENCE


def _is_no_faster(base: _Side, side: _Side) -> bool:
    comparison = _pair(base, side)
    return comparison is not None and comparison.pairs[0].ratio.median >= 1 - SAME_WALL


def _middle(side: _Side) -> Trial:
    """The trial with the median of the wall times."""
    return sorted(side.trials, key=lambda trial: trial.wall_seconds)[len(side.trials) // 2]


def _tried(base: Way, side: _Side, comparison: Comparison | None) -> Tried:
    pair = comparison.pairs[0] if comparison else None
    way = side.way
    return Tried(
        command=way.text,
        instead_of=base.text,
        finding=way.finding,
        advice=way.advice,
        outcome=side.outcome,
        detail=side.detail,
        rounds=comparison.rounds if comparison else 0,
        ratio=pair.ratio if pair else None,
        seconds=pair.seconds if pair else None,
    )


def _failed(name: str, done: Execution) -> str:
    line = done.outcome.last_error_line
    reason = f": {line}" if line else ""
    return f"{name} failed with exit status {done.outcome.status}{reason}"
