# SPDX-License-Identifier: Apache-2.0
"""Runs side by side: which one wins, and by how much.

Pure functions. Two recorded runs (`compare_runs`) or the measured rounds of several commands
(`compare_trials`) become one `Comparison`, which the terminal and the page show. Where the
difference comes from, the rows and the caveats are modules of their own (`comparison_*.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from statistics import median
from typing import Annotated, TypedDict

from pipelined.analysis.comparison_cache import (
    cache_caveats,
    cache_explains,
    caches_differ,
    explained_seconds,
    ratios_of,
)
from pipelined.analysis.comparison_caveats import (
    differ_inside,
    error_caveats,
    output_caveats,
    queue_caveats,
    run_caveats,
    trial_caveats,
)
from pipelined.analysis.comparison_reasons import Reason, Trial, agree, reasons
from pipelined.analysis.comparison_rows import (
    GROUPS,
    Figure,
    Row,
    StageRow,
    figure_of,
    quantity_rows,
    stage_rows,
    times,
)
from pipelined.runs import Run
from pipelined.runs.fields import AsDict, Described, OneOf, Seconds
from pipelined.wording import duration, listing, percent

__all__ = [
    "LABELS",
    "MIN_ROUNDS",
    "OUTPUTS",
    "SAME_WALL",
    "Comparison",
    "ComparisonJson",
    "Pair",
    "Side",
    "compare_runs",
    "compare_trials",
    "comparison_as_dict",
    "longest_run",
]

#: Names of the sides, in the order in which they were given.
LABELS = "ABCDEFGH"
#: How alike the outputs of commands are, the most alike first: the same, the same lines in any
#: order, or anything.
OUTPUTS = ("same", "lines", "any")
#: Wall times that differ by no more than this share are the same.
SAME_WALL = 0.02
#: With fewer rounds no winner is named.
MIN_ROUNDS = 5
#: If the reasons leave more than this share of the difference open, the sentence says so.
MUCH_UNEXPLAINED = 0.4


@dataclass(frozen=True, slots=True)
class Side:
    """One of the things compared."""

    label: str
    """``A``, ``B``, … in the order of the command line."""
    name: str
    """The command as it was given, or the signature of a recorded run."""
    pipeline: str | None
    """Signature of the run that stands for it."""
    run: str | None
    """Id of a recorded run."""
    wall_seconds: Figure
    """Wall time over the rounds."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sides, round by round."""

    first: int
    second: int
    """Indexes into `Comparison.sides`."""
    ratio: Figure
    """Wall time of the second over that of the first."""
    seconds: float
    """Wall time of the second less that of the first; the median over the rounds."""
    outcome: str
    """Of the second side: ``faster``; ``slower``; ``same``; ``undecided`` if the rounds are too few
    or do not agree; ``not-comparable`` if the sides found different states of the page cache, which
    may explain the difference."""
    cache_seconds: float | None
    """What the slower side waited for disk, and used more CPU time in the kernel than the other
    one, the median over the rounds; None if both found the page cache alike, or it is unknown."""
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that is known about two or more things side by side."""

    sides: tuple[Side, ...]
    rounds: int
    verdict: str
    """Which side wins, and by how much; one or two sentences."""
    why: str
    """The reasons as a sentence; empty if there is nothing to explain."""
    caveats: tuple[str, ...]
    """What to know before you trust the figures."""
    outputs: str | None
    """How alike the outputs were: one of `OUTPUTS`; None of recorded runs."""
    winner: int | None
    """Index into `sides`; None if no winner can be named."""
    pairs: tuple[Pair, ...]
    """Each other side paired with the first one."""
    rows: tuple[Row, ...]
    stages: tuple[StageRow, ...]
    """In the order of the data."""


class PairJson(TypedDict):
    """A side compared with the first one, round by round."""

    a: str
    """Label of the first side."""
    b: str
    """Label of the other one."""
    ratio: Annotated[Described, AsDict(Figure)]
    """Wall time of b over that of a."""
    seconds: Seconds
    """Wall time of b less that of a; the median over the rounds."""
    outcome: Annotated[str, OneOf(("faster", "slower", "same", "undecided", "not-comparable"))]
    """Of b: `faster`; `slower`; `same` (within 2 %); `undecided` if the rounds are too few or do
    not agree; `not-comparable` if they found different states of the page cache, which may explain
    the difference."""
    cache_seconds: Seconds | None
    """What the slower one waited for disk, and used more CPU time in the kernel than the other one;
    null if both found the page cache alike, or that is not known."""
    reasons: Annotated[list[Described], AsDict(Reason)]
    """Where the difference comes from, at most three."""


class RowJson(TypedDict):
    """One quantity, side by side."""

    group: Annotated[str, OneOf(tuple(GROUPS))]
    """Kind of quantity."""
    name: str
    """Of the quantity, for people."""
    unit: Annotated[str, OneOf(("seconds", "bytes", "pages", "ratio", "cores", "count"))]
    """Of its values; ratios have none."""
    a: float | None
    """Median of the first side."""
    b: float | None
    """Median of the second side."""
    ratio: float | None
    """Of b over a, round by round: the median; null unless both are known."""
    values: Annotated[list[Described | None], AsDict(Figure)]
    """By side."""
    ratios: Annotated[list[Described | None], AsDict(Figure)]
    """By side: its value over the first side's, round by round; null for the first one, and unless
    both are known."""


class ComparisonJson(TypedDict):
    """Commands, or two recorded runs, side by side."""

    rounds: int
    """How many were measured."""
    sides: Annotated[list[Described], AsDict(Side)]
    """What is compared."""
    winner: str | None
    """Label of a side; null if no winner can be named."""
    verdict: str
    """Which side wins, and by how much."""
    why: str
    """The reasons as a sentence; empty if there is nothing to explain."""
    caveats: list[str]
    """What to know before you trust the figures."""
    outputs: Annotated[str, OneOf(OUTPUTS)] | None
    """What the commands printed: the `same` each time, the same `lines` in any order, or `any`
    output; null for recorded runs."""
    pairs: list[PairJson]
    """Each other side with the first one."""
    rows: list[RowJson]
    """Figures of all sides."""
    stages: Annotated[list[Described], AsDict(StageRow)]
    """In the order of the data."""


def compare_runs(a: Run, b: Run) -> Comparison:
    """Two recorded runs side by side. One run of each names no winner."""
    trials = [[_recorded(run)] for run in (a, b)]
    sides = [_side(index, run.pipeline, trials[index], run.id) for index, run in enumerate((a, b))]
    return _compare(sides, trials, run_caveats(a, b), None)


def compare_trials(
    commands: Sequence[str],
    trials: Sequence[Sequence[Trial]],
    notes: Iterable[str] = (),
    outputs: str = "same",
) -> Comparison:
    """Commands side by side, from the same number of rounds of each.

    `trials[side][round]`; `notes` are caveats about how they were run; `outputs` is how alike what
    they printed was, one of `OUTPUTS`.
    """
    errors = error_caveats(LABELS, trials, same=outputs == "same")
    caveats = [*output_caveats(outputs), *errors, *notes, *trial_caveats(LABELS, trials)]
    if differ_inside(LABELS, trials):
        trials = [[replace(trial, run=None) for trial in of_side] for of_side in trials]
    sides = [_side(index, name, trials[index], None) for index, name in enumerate(commands)]
    return _compare(sides, trials, caveats, outputs)


def longest_run(runs: Iterable[Run]) -> Run | None:
    """The run that stands for several: the one with the longest wall time."""
    return max(runs, key=lambda run: run.wall_seconds, default=None)


def comparison_as_dict(comparison: Comparison) -> ComparisonJson:
    """Ready for `json.dumps`."""
    sides = comparison.sides
    labels = [side.label for side in sides]
    return {
        "rounds": comparison.rounds,
        "sides": [asdict(side) for side in sides],
        "winner": None if comparison.winner is None else labels[comparison.winner],
        "verdict": comparison.verdict,
        "why": comparison.why,
        "caveats": list(comparison.caveats),
        "outputs": comparison.outputs,
        "pairs": [
            {
                "a": labels[pair.first],
                "b": labels[pair.second],
                "ratio": asdict(pair.ratio),
                "seconds": pair.seconds,
                "outcome": pair.outcome,
                "cache_seconds": pair.cache_seconds,
                "reasons": [asdict(reason) for reason in pair.reasons],
            }
            for pair in comparison.pairs
        ],
        "rows": [_row_as_dict(row) for row in comparison.rows],
        "stages": [asdict(row) for row in comparison.stages],
    }


def _row_as_dict(row: Row) -> RowJson:
    a, b, ratio = row.values[0], row.values[1], row.ratios[1]
    return {
        "group": row.group,
        "name": row.name,
        "unit": row.unit,
        "a": a.median if a else None,
        "b": b.median if b else None,
        "ratio": ratio.median if ratio else None,
        "values": [asdict(figure) if figure else None for figure in row.values],
        "ratios": [asdict(figure) if figure else None for figure in row.ratios],
    }


def _recorded(run: Run) -> Trial:
    return Trial(run.wall_seconds, run.cpu_seconds, run)


def _side(index: int, name: str, trials: Sequence[Trial], run: str | None) -> Side:
    seen = [trial.run.pipeline for trial in trials if trial.run]
    pipeline = max(seen, key=seen.count) if seen else None
    wall = figure_of([trial.wall_seconds for trial in trials])
    assert wall is not None, "no trial of a side"
    return Side(LABELS[index], name, pipeline, run, wall)


def _compare(
    sides: Sequence[Side],
    trials: Sequence[Sequence[Trial]],
    caveats: Sequence[str],
    outputs: str | None,
) -> Comparison:
    recorded = all(side.run is not None for side in sides)
    others = range(1, len(sides))
    pairs = tuple(_pair(trials, 0, other) for other in others)
    if len(sides) == 2:
        winner = _winner(pairs[0])
        verdict = _verdict(sides, trials, pairs[0], recorded)
    else:
        winner, verdict = _best(sides, trials)
    return Comparison(
        sides=tuple(sides),
        rounds=len(trials[0]),
        verdict=verdict,
        why=" ".join(filter(None, (_why(sides, pair, len(sides) > 2) for pair in pairs))),
        caveats=(*cache_caveats(LABELS, trials), *queue_caveats(LABELS, trials), *caveats),
        outputs=outputs,
        winner=winner,
        pairs=pairs,
        rows=quantity_rows(trials),
        stages=stage_rows(trials),
    )


# -- who wins


def _pair(trials: Sequence[Sequence[Trial]], first: int, second: int) -> Pair:
    a, b = trials[first], trials[second]
    ratios = ratios_of(a, b)
    ratio = figure_of(ratios) or Figure(1.0, 1.0, 1.0)
    outcome = "not-comparable" if cache_explains(a, b, _judged) else _outcome(ratios)
    seconds = median(y.wall_seconds - x.wall_seconds for x, y in zip(a, b, strict=True))
    # of an even number of rounds the two medians may name different sides as the quicker one
    differs = abs(ratio.median - 1) > SAME_WALL and (seconds > 0) == (ratio.median > 1)
    explained = differs and (outcome != "undecided" or len(ratios) < MIN_ROUNDS)
    made_of = reasons(a, b, seconds) if explained else ()
    slow, quick = (b, a) if seconds > 0 else (a, b)
    cold = explained_seconds(slow, quick) if caches_differ(a, b) else None
    return Pair(first, second, ratio, seconds, outcome, median(cold) if cold else None, made_of)


def _judged(ratios: Sequence[float]) -> tuple[str, int]:
    """The outcome, and which side is quicker in the median, also where the rounds are too few."""
    middle = median(ratios) if ratios else 1.0
    return _outcome(ratios), (middle > 1 + SAME_WALL) - (middle < 1 - SAME_WALL)


def _outcome(ratios: Sequence[float]) -> str:
    """`Pair.outcome`, from the second side's wall times over the first one's."""
    middle = median(ratios) if ratios else 1.0
    if abs(middle - 1) <= SAME_WALL:
        return "same" if _agree_to_be_same(ratios) else "undecided"
    if len(ratios) < MIN_ROUNDS or not agree([ratio - 1 for ratio in ratios]):
        return "undecided"
    return "faster" if middle < 1 else "slower"


def _agree_to_be_same(ratios: Sequence[float]) -> bool:
    return all(abs(ratio - 1) <= SAME_WALL for ratio in ratios)


def _winner(pair: Pair) -> int | None:
    return {"faster": pair.second, "slower": pair.first}.get(pair.outcome)


def _verdict(
    sides: Sequence[Side], trials: Sequence[Sequence[Trial]], pair: Pair, recorded: bool
) -> str:
    rounds = len(trials[0])
    quick, slow = (pair.second, pair.first) if pair.ratio.median < 1 else (pair.first, pair.second)
    ratio = pair.ratio if quick == pair.second else _inverse(pair.ratio)
    spread = ""
    if rounds > 1:
        low, high = times(ratio.low), times(ratio.high)
        even = low == high
        spread = " in each round" if even else f" in the median ({low}–{high} round by round)"
    medians = " against ".join(duration(sides[i].wall_seconds.median) for i in (quick, slow))
    took = f"took {times(ratio.median)} of {sides[slow].label}'s wall time{spread}, {medians}"
    name = sides[quick].label
    if pair.outcome in ("faster", "slower"):
        return f"{name} wins: it {took}."
    if pair.outcome == "not-comparable":
        return f"Not comparable: the page cache may explain the difference. {name} {took}."
    if pair.outcome == "same":
        return f"No difference: {name} {took}; within {percent(SAME_WALL)} nobody wins."
    if recorded:
        return f"{name} {took}. One run of each does not rule out chance."
    if rounds < MIN_ROUNDS:
        cannot = "1 round cannot" if rounds == 1 else f"{rounds} rounds cannot"
        return f"{name} {took}. {cannot} name a winner: it takes {MIN_ROUNDS} (-n {MIN_ROUNDS})."
    return f"No difference that {rounds} rounds could show: {name} {took}."


def _inverse(ratio: Figure) -> Figure:
    """The same comparison the other way round; taken anew, the median of an even number of rounds
    could name the other side as the quicker one."""
    return Figure(1 / ratio.median, 1 / ratio.high, 1 / ratio.low if ratio.low > 0 else inf)


def _best(sides: Sequence[Side], trials: Sequence[Sequence[Trial]]) -> tuple[int | None, str]:
    """The side that beats each other one, if any, and the verdict on three or more sides."""
    order = sorted(range(len(sides)), key=lambda index: sides[index].wall_seconds.median)
    best, *others = order
    outcomes = {other: _pair(trials, best, other).outcome for other in others}

    def listed(indexes: Iterable[int]) -> str:
        shown = [(sides[index].label, sides[index].wall_seconds.median) for index in indexes]
        return ", ".join(f"{label} {duration(wall)}" for label, wall in shown)

    if all(outcome == "slower" for outcome in outcomes.values()):
        return best, f"{sides[best].label} wins: {listed(order)} in the median."
    lead = f"No single winner: {listed(order)} in the median."
    leader, rounds = sides[best].label, len(trials[0])
    for outcome, words in (
        ("same", f"within {percent(SAME_WALL)} of {leader}"),
        ("undecided", f"not distinguishable from {leader} in {rounds} rounds"),
        ("not-comparable", f"not comparable with {leader}: the page cache may explain it"),
    ):
        named = [sides[other].label for other in others if outcomes[other] == outcome]
        if named:
            lead += f" {listing(named)} {'is' if len(named) == 1 else 'are'} {words}."
    return None, lead


def _why(sides: Sequence[Side], pair: Pair, labelled: bool) -> str:
    """A pair's reasons as a sentence; if `labelled`, it begins with the labels of the two."""
    if abs(pair.ratio.median - 1) <= SAME_WALL:
        return ""
    quick, slow = (pair.second, pair.first) if pair.ratio.median < 1 else (pair.first, pair.second)
    who = f"{sides[quick].label} against {sides[slow].label}: " if labelled else ""
    if not pair.reasons:
        decided = pair.outcome in ("faster", "slower")
        return f"{who}no part of the time differs by more than its noise." if decided else ""
    made_of = "; ".join(reason.text for reason in pair.reasons if not reason.against)
    opposed = "".join(f"; in spite of {r.text}" for r in pair.reasons if r.against)
    rest = pair.seconds - sum(reason.seconds for reason in pair.reasons)
    if rest / pair.seconds >= MUCH_UNEXPLAINED:
        left = duration(abs(rest))
        opposed += f"; the other {left} are in parts that are small or vary as much between rounds"
    return f"{who}{made_of}{opposed}."
