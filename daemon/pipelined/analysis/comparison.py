# SPDX-License-Identifier: Apache-2.0
"""Runs side by side: what differs, which one wins, and where the seconds went.

Pure functions. Two recorded runs (`compare_runs`) or the measured rounds of several commands
(`compare_trials`) become one `Comparison`, which the terminal and the page draw from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from statistics import median
from typing import Any

from pipelined.analysis.bottleneck import share
from pipelined.analysis.comparison_reasons import Reason, Trial, agree, reasons
from pipelined.runs import PAGE_CLASSES, STALL_CLASSES, STATES, Run, Stage
from pipelined.wording import STATE_WORDS, data_size, duration, percent

__all__ = [
    "GROUPS",
    "LABELS",
    "Comparison",
    "Figure",
    "Pair",
    "Row",
    "Side",
    "StageFigures",
    "StageRow",
    "amount",
    "compare_runs",
    "compare_trials",
    "comparison_as_dict",
    "longest_run",
    "tells",
    "times",
]

#: What the sides are called, in the order in which they were given.
LABELS = "ABCDEFGH"

#: Groups of rows, in their order, and what they are called.
GROUPS: Mapping[str, str] = {
    "time": "time",
    "waits": "waits, all threads of all stages",
    "disk": "waiting for disk",
    "pages": "pages of 4 KiB",
    "data": "data and calls",
}
#: A time below this share of the longest wall time is not worth a line.
_WORTH = 0.01

#: Ratios above this are all the same.
MOST_TIMES = 1000

#: Wall times nearer to each other than this share are the same.
SAME_WALL = 0.02
#: From so many rounds on a winner is named.
MIN_ROUNDS = 5
#: Warm shares further apart than this belong to different states of the page cache.
SAME_CACHE = 0.05
#: A stage that waits this share of a run for a free CPU is held up by others.
MUCH_QUEUED = 0.25
#: Inputs of one pipeline further apart than this share are different inputs.
SAME_INPUT = 0.02
#: Where the reasons leave more than this share of the difference open, it is said.
MUCH_UNTOLD = 0.4


@dataclass(frozen=True, slots=True)
class Figure:
    """A value over all rounds."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Side:
    """One of the things compared."""

    label: str
    """A letter of `LABELS`."""
    name: str
    """The command as it was given; of a recorded run its signature."""
    pipeline: str | None
    """Signature of the run that stands for it."""
    run: str | None
    """Id of a recorded run."""
    wall_seconds: Figure


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity, side by side."""

    group: str
    """``time``, ``waits``, ``disk``, ``pages`` or ``data``."""
    name: str
    unit: str
    """``seconds``, ``bytes``, ``pages``, ``ratio``, ``cores`` or ``count``."""
    values: tuple[Figure | None, ...]
    """By side; None where it is not known."""
    ratios: tuple[Figure | None, ...]
    """By side: its value over the first side's, round by round; None without both."""


@dataclass(frozen=True, slots=True)
class StageFigures:
    """A place in a pipeline: sums over its parallel branches, medians over the rounds."""

    position: int
    branches: float
    cpu_seconds: float
    user_seconds: float
    system_seconds: float
    state_seconds: Mapping[str, float]
    read_bytes: float
    written_bytes: float
    read_calls: float
    write_calls: float
    forks: float


@dataclass(frozen=True, slots=True)
class StageRow:
    """The stages of one name that stand at corresponding places."""

    command: str
    sides: tuple[StageFigures | None, ...]
    """By side; None where it has no such stage."""


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
    """Of the second side: ``faster``, ``slower``; ``same``; ``undecided`` when the rounds are too
    few or do not agree; ``not-comparable`` when the states of the page cache differ."""
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that is known of two or more things set side by side."""

    sides: tuple[Side, ...]
    rounds: int
    verdict: str
    """Who wins, by how much; one or two sentences."""
    why: str
    """The reasons as a sentence; empty when there is nothing to explain."""
    caveats: tuple[str, ...]
    """What to know before the figures are believed."""
    winner: int | None
    """Index into `sides`; None when none could be named."""
    pairs: tuple[Pair, ...]
    """Each other side with the first one."""
    rows: tuple[Row, ...]
    stages: tuple[StageRow, ...]
    """In the order of the data."""


def compare_runs(a: Run, b: Run) -> Comparison:
    """Two recorded runs side by side. One run of each names no winner."""
    trials = [[_recorded(run)] for run in (a, b)]
    sides = [_side(index, run.pipeline, trials[index], run.id) for index, run in enumerate((a, b))]
    return _compare(sides, trials, _run_caveats(a, b))


def compare_trials(
    commands: Sequence[str], trials: Sequence[Sequence[Trial]], notes: Iterable[str] = ()
) -> Comparison:
    """Commands side by side, from the same number of rounds of each.

    `trials[side][round]`; `notes` are caveats of whoever ran them.
    """
    sides = [_side(index, name, trials[index], None) for index, name in enumerate(commands)]
    return _compare(sides, trials, [*notes, *_trial_caveats(trials)])


def longest_run(runs: Iterable[Run]) -> Run | None:
    """Which run stands for several: the one with the longest wall time."""
    return max(runs, key=lambda run: run.wall_seconds, default=None)


def times(ratio: float) -> str:
    """A ratio as text; a large one says only that one side had next to nothing.

    >>> times(0.638), times(12.34), times(250.0), times(8e6)
    ('0.64', '12.3', '250', 'over 1,000')
    """
    if ratio > MOST_TIMES:
        return f"over {MOST_TIMES:,}"
    return f"{ratio:.{2 if ratio < 9.995 else 1 if ratio < 99.95 else 0}f}"


def comparison_as_dict(comparison: Comparison) -> dict[str, Any]:
    """Ready for `json.dumps`; docs/COMPARE.md describes every key."""
    sides = comparison.sides
    labels = [side.label for side in sides]
    return {
        "rounds": comparison.rounds,
        "sides": [asdict(side) for side in sides],
        "winner": None if comparison.winner is None else labels[comparison.winner],
        "verdict": comparison.verdict,
        "why": comparison.why,
        "caveats": list(comparison.caveats),
        "pairs": [
            {
                "a": labels[pair.first],
                "b": labels[pair.second],
                "ratio": asdict(pair.ratio),
                "seconds": pair.seconds,
                "outcome": pair.outcome,
                "reasons": [asdict(reason) for reason in pair.reasons],
            }
            for pair in comparison.pairs
        ],
        "rows": [_row_as_dict(row) for row in comparison.rows],
        "stages": [asdict(row) for row in comparison.stages],
    }


def _row_as_dict(row: Row) -> dict[str, Any]:
    a, b, ratio = row.values[0], row.values[1], row.ratios[1]
    return {
        "group": row.group,
        "name": row.name,
        "unit": row.unit,
        "a": a and a.median,
        "b": b and b.median,
        "ratio": ratio and ratio.median,
        "values": [figure and asdict(figure) for figure in row.values],
        "ratios": [figure and asdict(figure) for figure in row.ratios],
    }


def amount(value: float, unit: str) -> str:
    """A value of a `Row` as text, with its unit."""
    if unit == "seconds":
        return duration(value)
    if unit == "bytes":
        return data_size(value)
    if unit == "ratio":
        return percent(value)
    return times(value) if unit == "cores" else f"{value:,.0f}"


def tells(row: Row, longest: float) -> bool:
    """Whether a row is worth a line, where the longest wall time is this long (seconds)."""
    if row.name == "wall":
        return True
    known = [figure.median for figure in row.values if figure is not None]
    least = _WORTH * longest if row.unit == "seconds" else 0.0
    return any(value > least for value in known)


def _recorded(run: Run) -> Trial:
    return Trial(run.wall_seconds, run.cpu_seconds, run)


def _side(index: int, name: str, trials: Sequence[Trial], run: str | None) -> Side:
    seen = [trial.run.pipeline for trial in trials if trial.run]
    pipeline = max(seen, key=seen.count) if seen else None
    wall = _figure([trial.wall_seconds for trial in trials])
    assert wall is not None, "no trial of a side"
    return Side(LABELS[index], name, pipeline, run, wall)


def _compare(
    sides: Sequence[Side], trials: Sequence[Sequence[Trial]], caveats: Sequence[str]
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
        caveats=(*_cache_caveats(sides, trials), *_queue_caveats(sides, trials), *caveats),
        winner=winner,
        pairs=pairs,
        rows=tuple(_row(*quantity, trials) for quantity in _QUANTITIES),
        stages=_stage_rows(trials),
    )


# -- who wins


def _pair(trials: Sequence[Sequence[Trial]], first: int, second: int) -> Pair:
    a, b = trials[first], trials[second]
    ratios = [
        y.wall_seconds / x.wall_seconds for x, y in zip(a, b, strict=True) if x.wall_seconds > 0
    ]
    ratio = _figure(ratios) or Figure(1.0, 1.0, 1.0)
    outcome = _outcome(ratios, _warm_shares(a, b))
    differs = abs(ratio.median - 1) > SAME_WALL
    told = differs and (outcome != "undecided" or len(ratios) < MIN_ROUNDS)
    seconds = median(y.wall_seconds - x.wall_seconds for x, y in zip(a, b, strict=True))
    return Pair(first, second, ratio, seconds, outcome, reasons(a, b, seconds) if told else ())


def _outcome(ratios: Sequence[float], warm: tuple[float, float] | None) -> str:
    """Of the second side, from its wall times over the first one's."""
    if warm and abs(warm[0] - warm[1]) > SAME_CACHE:
        return "not-comparable"
    middle = median(ratios) if ratios else 1.0
    if abs(middle - 1) <= SAME_WALL:
        return "same" if len(ratios) < MIN_ROUNDS or _agree_to_be_same(ratios) else "undecided"
    if len(ratios) < MIN_ROUNDS or not agree([ratio - 1 for ratio in ratios]):
        return "undecided"
    return "faster" if middle < 1 else "slower"


def _agree_to_be_same(ratios: Sequence[float]) -> bool:
    return all(abs(ratio - 1) <= SAME_WALL for ratio in ratios)


def _warm_shares(a: Sequence[Trial], b: Sequence[Trial]) -> tuple[float, float] | None:
    """Of the pages that each read, the share that was in the page cache; None: not known."""
    shares = [_known_warm_shares(trials) for trials in (a, b)]
    return (median(shares[0]), median(shares[1])) if all(shares) else None


def _known_warm_shares(trials: Sequence[Trial]) -> list[float]:
    return [warm for trial in trials if (warm := _warm_share(trial)) is not None]


def _warm_share(trial: Trial) -> float | None:
    return trial.run.readahead.warm_share if trial.run and trial.run.readahead else None


def _winner(pair: Pair) -> int | None:
    return {"faster": pair.second, "slower": pair.first}.get(pair.outcome)


def _verdict(
    sides: Sequence[Side], trials: Sequence[Sequence[Trial]], pair: Pair, recorded: bool
) -> str:
    rounds = len(trials[0])
    quick, slow = (pair.second, pair.first) if pair.ratio.median < 1 else (pair.first, pair.second)
    ratio = _pair(trials, slow, quick).ratio
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
        return f"Not comparable, the states of the page cache differ. {name} {took}."
    if pair.outcome == "same":
        return f"No difference: {name} {took}; within {percent(SAME_WALL)} nobody wins."
    if recorded:
        return f"{name} {took}. One run of each does not rule out chance."
    if rounds < MIN_ROUNDS:
        return f"{name} {took}. To name a winner, run at least {MIN_ROUNDS} rounds (-n)."
    return f"No difference that {rounds} rounds could show: {name} {took}."


def _best(sides: Sequence[Side], trials: Sequence[Sequence[Trial]]) -> tuple[int | None, str]:
    """The side that wins against every other one, and the verdict on three or more."""
    order = sorted(range(len(sides)), key=lambda index: sides[index].wall_seconds.median)
    best, *others = order
    outcomes = {other: _pair(trials, best, other).outcome for other in others}

    def listed(indexes: Iterable[int]) -> str:
        shown = [(sides[index].label, sides[index].wall_seconds.median) for index in indexes]
        return ", ".join(f"{label} {duration(wall)}" for label, wall in shown)

    if all(outcome == "slower" for outcome in outcomes.values()):
        return best, f"{sides[best].label} wins: {listed(order)} in the median."
    lead = f"No single winner: {listed(order)} in the median."
    for outcome, words in (
        ("same", f"are within {percent(SAME_WALL)} of it"),
        ("undecided", f"cannot be told from it in {len(trials[0])} rounds"),
        ("not-comparable", "read the page cache in another state"),
    ):
        named = [sides[other].label for other in others if outcomes[other] == outcome]
        if named:
            lead += f" Beside {sides[best].label}: {', '.join(named)} {words}."
    return None, lead


def _why(sides: Sequence[Side], pair: Pair, named: bool) -> str:
    """A pair's reasons as a sentence; `named`: with the names of the two."""
    if abs(pair.ratio.median - 1) <= SAME_WALL:
        return ""
    quick, slow = (pair.second, pair.first) if pair.ratio.median < 1 else (pair.first, pair.second)
    who = f"{sides[quick].label} against {sides[slow].label}: " if named else ""
    if not pair.reasons:
        decided = pair.outcome in ("faster", "slower")
        return f"{who}no part of the time differs by more than its noise." if decided else ""
    made_of = "; ".join(reason.text for reason in pair.reasons if not reason.against)
    opposed = "".join(f"; in spite of {r.text}" for r in pair.reasons if r.against)
    rest = pair.seconds - sum(reason.seconds for reason in pair.reasons)
    if rest / pair.seconds >= MUCH_UNTOLD:
        left = duration(abs(rest))
        opposed += f"; the other {left} are in parts that are small, or vary as much by themselves"
    return f"{who}{made_of}{opposed}."


# -- caveats


def _cache_caveats(sides: Sequence[Side], trials: Sequence[Sequence[Trial]]) -> list[str]:
    said = []
    for index in range(1, len(sides)):
        warm = _warm_shares(trials[0], trials[index])
        if warm and abs(warm[0] - warm[1]) > SAME_CACHE:
            said.append(
                f"not comparable: {sides[0].label} found {percent(warm[0])} of its pages in the "
                f"cache, {sides[index].label} {percent(warm[1])}"
            )
    for side, of_side in zip(sides, trials, strict=True):
        shares = _known_warm_shares(of_side)
        if shares and max(shares) - min(shares) > SAME_CACHE:
            said.append(
                f"the page cache was not the same for each round of {side.label}: "
                f"{percent(min(shares))} to {percent(max(shares))} of its pages were warm"
            )
    return said


def _queue_caveats(sides: Sequence[Side], trials: Sequence[Sequence[Trial]]) -> list[str]:
    held_up = []
    for side, of_side in zip(sides, trials, strict=True):
        shares = [_queued_share(trial.run) for trial in of_side if trial.run]
        if shares and median(shares) >= MUCH_QUEUED:
            held_up.append(f"{percent(median(shares))} of the time in {side.label}")
    if not held_up:
        return []
    return [
        f"a stage waited for a free CPU {', '.join(held_up)}: other work on this host, or more "
        "stages than CPUs, is in the figures"
    ]


def _queued_share(run: Run) -> float:
    """Of the run, the time that the stage which waited most for a free CPU did so."""
    return max((share(stage, "runqueue", run.wall_seconds) for stage in run.stages), default=0.0)


def _run_caveats(a: Run, b: Run) -> list[str]:
    said = []
    if a.pipeline != b.pipeline:
        said.append(f"different pipelines: A is {a.pipeline}, B is {b.pipeline}")
    else:
        read = [sum(s.read_bytes for s in run.stages if s.position == 1) for run in (a, b)]
        if abs(read[0] - read[1]) > SAME_INPUT * max(read):
            said.append(
                f"different inputs: the first stage of B read {times(read[1] / read[0])} times "
                "as many bytes as A's"
                if read[0]
                else "different inputs: the first stage of A read nothing"
            )
    for label, run in zip(LABELS, (a, b), strict=False):
        if run.partial:
            said.append(f"{label} is partial: it ran already when observation began")
        if run.live:
            said.append(f"{label} still runs: its figures are those so far")
    return said


def _trial_caveats(trials: Sequence[Sequence[Trial]]) -> list[str]:
    said = []
    unseen = [
        label
        for label, of_side in zip(LABELS, trials, strict=False)
        if any(trial.run is None for trial in of_side)
    ]
    if unseen:
        said.append(
            f"rounds of {' and '.join(unseen)} had no pipeline: of their time no more is known "
            "than how much was CPU time"
        )
    for label, of_side in zip(LABELS, trials, strict=False):
        most = max(trial.pipelines for trial in of_side)
        if most > 1:
            said.append(
                f"{label} ran {most:,} pipelines: the longest one stands for it, "
                "but wall and CPU time are those of the whole command"
            )
        signatures = {trial.run.pipeline for trial in of_side if trial.run}
        if len(signatures) > 1:
            said.append(f"{label} was not always the same: {', '.join(sorted(signatures))}")
        lost = sum(trial.lost for trial in of_side)
        if lost:
            said.append(f"{lost:,} events of {label} were lost: its figures are too low")
        if any(trial.run and trial.run.live for trial in of_side):
            said.append(f"stages of {label} went on after the command: their figures are cut off")
    return said


# -- side by side


def _of_run(value: Callable[[Run], float | None]) -> Callable[[Trial], float | None]:
    return lambda trial: None if trial.run is None else value(trial.run)


def _summed(value: Callable[[Stage], float]) -> Callable[[Trial], float | None]:
    return _of_run(lambda run: sum(value(stage) for stage in run.stages))


def _in_state(state: str) -> Callable[[Trial], float | None]:
    return _summed(lambda stage: stage.states[state])


def _pages(name: str) -> Callable[[Trial], float | None]:
    return _of_run(lambda run: run.readahead.pages[name] if run.readahead else None)


def _stalled(name: str) -> Callable[[Trial], float | None]:
    return _of_run(lambda run: run.readahead.stalls[name].seconds if run.readahead else None)


def _cores(trial: Trial) -> float | None:
    if trial.wall_seconds <= 0:
        return None
    return trial.cpu_seconds / trial.wall_seconds


#: Group, name, unit, and how to read it off a trial.
_QUANTITIES: tuple[tuple[str, str, str, Callable[[Trial], float | None]], ...] = (
    ("time", "wall", "seconds", lambda trial: trial.wall_seconds),
    ("time", "pipeline", "seconds", _of_run(lambda run: run.wall_seconds)),
    ("time", "CPU", "seconds", lambda trial: trial.cpu_seconds),
    ("time", "user CPU", "seconds", _summed(lambda stage: stage.user_seconds)),
    ("time", "system CPU", "seconds", _summed(lambda stage: stage.system_seconds)),
    ("time", "cores used", "cores", _cores),
    ("time", "overlap", "ratio", _of_run(lambda run: run.overlap)),
    ("time", "level 0", "seconds", _of_run(lambda run: run.levels[0])),
    ("time", "level 1", "seconds", _of_run(lambda run: run.levels[1])),
    ("time", "level 2 and up", "seconds", _of_run(lambda run: sum(run.levels[2:]))),
    *(
        ("waits", STATE_WORDS[state], "seconds", _in_state(state))
        for state in STATES
        if state != "cpu"
    ),
    ("disk", "no stage on CPU", "seconds", _of_run(lambda run: run.disk_alone_seconds)),
    ("disk", "a stage on CPU", "seconds", _of_run(lambda run: run.disk_overlapped_seconds)),
    (
        "disk",
        "stalls",
        "count",
        _of_run(lambda run: run.readahead.stall_count if run.readahead else None),
    ),
    *(("disk", f"stalled: {name}", "seconds", _stalled(name)) for name in STALL_CLASSES),
    *(("pages", name, "pages", _pages(name)) for name in PAGE_CLASSES),
    ("pages", "warm share", "ratio", _warm_share),
    ("data", "read", "bytes", _summed(lambda stage: stage.read_bytes)),
    ("data", "written", "bytes", _summed(lambda stage: stage.written_bytes)),
    ("data", "read calls", "count", _summed(lambda stage: stage.read_calls)),
    ("data", "write calls", "count", _summed(lambda stage: stage.write_calls)),
    ("data", "forks", "count", _summed(lambda stage: stage.forks)),
)


def _row(
    group: str,
    name: str,
    unit: str,
    value: Callable[[Trial], float | None],
    trials: Sequence[Sequence[Trial]],
) -> Row:
    values = [[value(trial) for trial in of_side] for of_side in trials]
    return Row(
        group,
        name,
        unit,
        tuple(_figure(of_side) for of_side in values),
        (None, *(_figure(_divided(values[0], of_side)) for of_side in values[1:])),
    )


def _divided(a: Sequence[float | None], b: Sequence[float | None]) -> list[float | None]:
    return [None if y is None or not x else y / x for x, y in zip(a, b, strict=True)]


def _figure(values: Iterable[float | None]) -> Figure | None:
    known = [value for value in values if value is not None]
    return Figure(median(known), min(known), max(known)) if known else None


def _stage_rows(trials: Sequence[Sequence[Trial]]) -> tuple[StageRow, ...]:
    """The stages of all sides, those of one name and corresponding places in one row."""
    sides = [_places(of_side) for of_side in trials]
    merged: list[tuple[str, list[StageFigures | None]]] = []
    for index, places in enumerate(sides):
        before = [command for command, _ in merged]
        here = [command for command, _ in places]
        rows: list[tuple[str, list[StageFigures | None]]] = []
        for kind, i1, i2, j1, j2 in SequenceMatcher(a=before, b=here, autojunk=False).get_opcodes():
            if kind == "equal":
                pairs = zip(merged[i1:i2], places[j1:j2], strict=True)
                rows += [(command, [*found, figures]) for (command, found), (_, figures) in pairs]
                continue
            rows += [(command, [*found, None]) for command, found in merged[i1:i2]]
            rows += [(command, [*[None] * index, figures]) for command, figures in places[j1:j2]]
        merged = rows
    return tuple(StageRow(command, tuple(found)) for command, found in merged)


def _places(trials: Sequence[Trial]) -> list[tuple[str, StageFigures]]:
    """Command and figures of each place of the pipeline that most rounds had."""
    rounds = [_branches(trial.run) for trial in trials if trial.run is not None]
    shapes = [tuple(found) for found in rounds]
    if not shapes:
        return []
    usual = max(shapes, key=shapes.count)
    alike = [found for found in rounds if tuple(found) == usual]
    return [
        (command, _figures(position, [found[position, command] for found in alike]))
        for position, command in usual
    ]


def _branches(run: Run) -> dict[tuple[int, str], list[Stage]]:
    """The stages by position and command."""
    found: dict[tuple[int, str], list[Stage]] = {}
    for stage in run.stages:
        found.setdefault((stage.position, stage.command), []).append(stage)
    return found


def _figures(position: int, rounds: Sequence[Sequence[Stage]]) -> StageFigures:
    def middle(value: Callable[[Stage], float]) -> float:
        return median(sum(value(stage) for stage in stages) for stages in rounds)

    def in_state(state: str) -> float:
        return middle(lambda stage: stage.states[state])

    return StageFigures(
        position=position,
        branches=median(len(stages) for stages in rounds),
        cpu_seconds=middle(lambda stage: stage.cpu_seconds),
        user_seconds=middle(lambda stage: stage.user_seconds),
        system_seconds=middle(lambda stage: stage.system_seconds),
        state_seconds={state: in_state(state) for state in STATES},
        read_bytes=middle(lambda stage: stage.read_bytes),
        written_bytes=middle(lambda stage: stage.written_bytes),
        read_calls=middle(lambda stage: stage.read_calls),
        write_calls=middle(lambda stage: stage.write_calls),
        forks=middle(lambda stage: stage.forks),
    )
