# SPDX-License-Identifier: Apache-2.0
"""Where the difference of two wall times comes from. Pure.

The wall time of a run is, exactly (`_parts`)::

    user CPU + system CPU - CPU time overlapped       time with a stage on CPU
    + disk wait with no stage on CPU
    + time with no stage on CPU and none waiting for disk

and that of a command has its time outside the pipeline on top. So the differences of these
parts add up to the difference of the wall times, and the largest ones are the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

from pipelined.runs import STATES, Run, Stage
from pipelined.runs.fields import Seconds
from pipelined.states import STATE_TABLE
from pipelined.wording import STATE_WORDS, duration

__all__ = ["Reason", "Trial", "agree", "reasons"]

#: A reason makes up at least this share of the difference, and at least this many seconds.
MIN_SHARE = 0.10
MIN_SECONDS = 0.001
MAX_REASONS = 3
#: Rounds agree if chance would make them agree as much in a smaller share of cases than this.
SIGNIFICANT = 0.05
#: A reason names forks and calls that differ by this factor, and by at least this many.
COUNT_FACTOR = 2
MIN_FORKS = 100
MIN_CALLS = 1000


@dataclass(frozen=True, slots=True)
class Trial:
    """One measured execution: of a command, or a recorded run."""

    wall_seconds: Seconds
    """Of the whole command."""
    cpu_seconds: Seconds
    """Of the command and the processes that it waited for."""
    run: Run | None
    """The run that stands for it, the longest of several; None if no pipeline was seen."""
    pipelines: int = 1
    """How many runs were seen."""
    lost: int = 0
    """How many events were lost."""
    outcome: str = ""
    """How the first of its runs ended that did not succeed: ``failed (perl: SIGKILL)``."""
    error_line: str = ""
    """The last line that the command printed on stderr."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A part of the difference of two wall times."""

    part: str
    """``user``, ``system``, ``overlap``, ``disk``, ``idle`` or ``outside``; if no pipeline was
    seen, ``cpu`` or ``waiting``."""
    seconds: float
    """By how much it makes the second side's wall time longer; negative: shorter."""
    text: str
    """About the faster side."""
    against: bool
    """It works against the difference: the faster side is faster in spite of it."""


def agree(differences: Sequence[float]) -> bool:
    """Whether all have one sign, or enough to make chance unlikely (two-sided sign test)."""
    above = sum(value > 0 for value in differences)
    below = sum(value < 0 for value in differences)
    total, fewer = above + below, min(above, below)
    if total == len(differences) and not fewer:
        return True
    chance: float = 2 * sum(comb(total, count) for count in range(fewer + 1)) / 2**total
    return chance < SIGNIFICANT


def _parts(trial: Trial, by_run: bool) -> dict[str, float]:
    """What the wall time of a trial is made of; the seconds add up to it.

    Parts of its run if `by_run`, else only the CPU time of the command and the rest.
    """
    if not by_run or trial.run is None:
        return {"cpu": trial.cpu_seconds, "waiting": trial.wall_seconds - trial.cpu_seconds}
    run = trial.run
    user = sum(stage.user_seconds for stage in run.stages)
    system = sum(stage.system_seconds for stage in run.stages)
    busy = sum(run.levels[1:])
    return {
        "user": user,
        "system": system,
        "overlap": busy - user - system,
        "disk": run.disk_alone_seconds,
        "idle": run.levels[0] - run.disk_alone_seconds,
        "outside": trial.wall_seconds - sum(run.levels),
    }


#: What a reason says about the faster side if it has less of a part, and if it has more.
_PHRASES: Mapping[str, tuple[str, str]] = {
    "cpu": ("{} less CPU time", "{} more CPU time"),
    "user": ("{} less CPU time in programs", "{} more CPU time in programs"),
    "system": ("{} less CPU time in the kernel", "{} more CPU time in the kernel"),
    "overlap": (
        "{} more of the CPU time side by side",
        "{} less of the CPU time side by side",
    ),
    "disk": (
        "{} less waiting for disk while no stage computed",
        "{} more waiting for disk while no stage computed",
    ),
    "idle": (
        "{} less time in which no stage computed or waited for disk",
        "{} more time in which no stage computed or waited for disk",
    ),
    "outside": ("{} less time outside the pipeline", "{} more time outside the pipeline"),
    "waiting": ("{} less waiting", "{} more waiting"),
}

#: The term behind those words, if there is one.
_TERMS = {"user": "user", "system": "system", "overlap": "overlap"}


def reasons(a: Sequence[Trial], b: Sequence[Trial], wall: float) -> tuple[Reason, ...]:
    """The parts that make up a difference of `wall` seconds, largest first, at most `MAX_REASONS`.

    A part counts if it is `MIN_SHARE` of the difference, differs one way in nearly all rounds
    (`agree`), and by more than it deviates from its own median (median absolute deviation).
    """
    by_run = all(trial.run is not None for trial in (*a, *b))
    pairs = list(zip(a, b, strict=True))
    found: dict[str, float] = {}
    for part in _parts(a[0], by_run):
        deltas = [_parts(y, by_run)[part] - _parts(x, by_run)[part] for x, y in pairs]
        seconds = median(deltas)
        deviation = median(abs(delta - seconds) for delta in deltas)
        enough = abs(seconds) >= max(MIN_SHARE * abs(wall), MIN_SECONDS)
        if enough and abs(seconds) > deviation and agree(deltas):
            found[part] = seconds
    order = sorted(found, key=lambda part: -abs(found[part]))
    # What works against the difference may be larger than what makes it.
    made_of = [part for part in order if found[part] * wall > 0]
    opposed = [part for part in order if found[part] * wall < 0][:1] if made_of else []
    result = []
    counts: list[str] = []
    for part in (*made_of[: MAX_REASONS - len(opposed)], *opposed):
        seconds, against = found[part], part in opposed
        text = _PHRASES[part][against].format(duration(abs(seconds)))
        details = [_TERMS.get(part, ""), _detail(part, a, b, seconds)] if by_run else []
        if part in ("user", "system") and not counts:
            counts = _counts(a, b, seconds, against) if by_run else []
            details += counts
        if shown := "; ".join(filter(None, details)):
            text += f" ({shown})"
        result.append(Reason(part, seconds, text, against))
    return tuple(result)


def _detail(part: str, a: Sequence[Trial], b: Sequence[Trial], seconds: float) -> str:
    """The command, and its state, with at least half of a part of the difference; empty if none."""
    values: Callable[[Stage], float]
    word = ""
    if part == "user":
        values = _user
    elif part == "system":
        values = _system
    elif part == "disk":
        values = _in_state("disk")
    elif part == "idle":
        state = _state_behind(a, b, seconds)
        if state is None:
            return ""
        values, word = _in_state(state), f": {STATE_WORDS[state]}"
    else:
        return ""
    deltas = _deltas(a, b, lambda run: _by_command(run, values))
    command = max(deltas, key=lambda name: deltas[name] * seconds, default="")
    return f"mostly {command}{word}" if deltas.get(command, 0.0) / seconds >= 0.5 else ""


def _user(stage: Stage) -> float:
    return stage.user_seconds


def _system(stage: Stage) -> float:
    return stage.system_seconds


def _in_state(state: str) -> Callable[[Stage], float]:
    return lambda stage: stage.states[state]


#: States that only repeat what other stages or threads do: considered last.
_SECOND_HAND = tuple(state.name for state in STATE_TABLE if state.echo)


def _state_behind(a: Sequence[Trial], b: Sequence[Trial], seconds: float) -> str | None:
    """The state that explains a difference in time with no stage on CPU; None if none does."""
    deltas = _deltas(
        a, b, lambda run: {state: sum(s.states[state] for s in run.stages) for state in STATES}
    )
    first_hand = [s for s in STATES if s not in ("cpu", "disk", *_SECOND_HAND)]
    for states in (first_hand, _SECOND_HAND):
        state = max(states, key=lambda name: deltas[name] * seconds)
        if deltas[state] / seconds >= 0.5:
            return state
    return None


def _by_command(run: Run, value: Callable[[Stage], float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for stage in run.stages:
        found[stage.command] = found.get(stage.command, 0.0) + value(stage)
    return found


def _deltas(
    a: Sequence[Trial], b: Sequence[Trial], values: Callable[[Run], Mapping[str, float]]
) -> dict[str, float]:
    """By name: the second side's value less the first one's, the median over the rounds."""
    rounds = [(values(x.run), values(y.run)) for x, y in zip(a, b, strict=True) if x.run and y.run]
    names = {name: None for pair in rounds for found in pair for name in found}
    return {name: median(y.get(name, 0.0) - x.get(name, 0.0) for x, y in rounds) for name in names}


def _counts(a: Sequence[Trial], b: Sequence[Trial], seconds: float, against: bool) -> list[str]:
    """Forks, and calls that read or write, if the side with more CPU time has a multiple of them.

    The faster side's count comes first.
    """
    texts = []
    for word, enough, value in (
        ("forks", MIN_FORKS, _forks),
        ("calls", MIN_CALLS, _calls),
    ):
        counts = [
            median(value(trial.run) for trial in trials if trial.run is not None)
            for trials in (a, b)
        ]
        low, high = counts if seconds > 0 else reversed(counts)
        if high - low >= enough and high >= COUNT_FACTOR * low:
            quick, slow = (high, low) if against else (low, high)
            texts.append(f"{quick:,.0f} {word}, not {slow:,.0f}")
    return texts


def _forks(run: Run) -> int:
    return sum(stage.forks for stage in run.stages)


def _calls(run: Run) -> int:
    return sum(stage.read_calls + stage.write_calls for stage in run.stages)
