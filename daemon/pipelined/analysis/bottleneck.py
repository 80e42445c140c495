# SPDX-License-Identifier: Apache-2.0
"""Which stage of a run the other stages wait for.

Pure functions of a `Run`. All shares are fractions of the run's wall time that was watched (1.0 =
all of it).
`analysis/sentence.py` puts the answer into words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipelined.analysis.pipe_graph import Graph, build_graph
from pipelined.command_names import BARRIERS
from pipelined.runs import Run, Stage
from pipelined.states import STATE_TABLE

__all__ = [
    "LARGE",
    "NOTABLE",
    "OUTSIDE",
    "STORM",
    "Bottleneck",
    "PipeWaits",
    "Waiter",
    "bottleneck",
    "has_several_threads",
    "is_too_short",
    "main_state",
    "mean_share",
    "pipe_waits",
    "share",
]

#: A wait below this share of the run is noise.
NOTABLE = 0.10
#: From this share of the run on, a second state of a stage is reported too.
LARGE = 0.25
#: A run with less CPU time than this, and less wall time than `SHORT_WALL`, is too short (seconds).
SHORT_CPU = 0.001
SHORT_WALL = 0.1
#: Threads that live longer than this many runs together are several at a time.
SEVERAL = 1.05
#: From this many forks on, the processes that a stage starts are part of the answer.
STORM = 100

#: What a stage does that waits on a pipe which no other stage of the run feeds or reads, and the
#: state that it is in then.
OUTSIDE: Mapping[str, str] = {"outside_in": "pipe_empty", "outside_out": "pipe_full"}
#: States that repeat what a helper of the same stage does.
_HELPED = tuple(state.name for state in STATE_TABLE if state.echo == "helper")
#: States in which a thread works, and those of a thread that has nothing to do, such as one of a
#: pool.
_AT_WORK = tuple(state.name for state in STATE_TABLE if state.at_work)
_IDLE = frozenset(state.name for state in STATE_TABLE if state.idle)
#: States that explain by themselves what a stage does, ``child`` only under conditions. Of several
#: with the same share the first does: a state that repeats nothing.
_REASONS = tuple(
    state.name
    for state in sorted(STATE_TABLE, key=lambda state: state.echo != "")
    if state.echo != "stage" and state.name != "child"
)


@dataclass(frozen=True, slots=True)
class Waiter:
    """Stages that wait for the bottleneck."""

    stages: tuple[int, ...]
    """Indexes into `Run.stages`; several for parallel branches of one name."""
    side: str
    """``full`` (upstream), ``empty`` (downstream)."""
    share: float
    """Of the run's wall time; the mean over `stages`."""


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The stage that the others wait for."""

    stages: tuple[int, ...]
    """Indexes into `Run.stages`; several when parallel branches of one name share the part."""
    command: str
    position: int
    kind: str
    """What it does in the meantime: a name of `runs.STATES`, or ``outside_in``/``outside_out`` when
    it waits itself on a pipe that no other stage of this run feeds or reads."""
    share: float
    """Time in `kind` as a share of the run (mean over `stages`); above 1.0 for ``cpu`` on
    several CPUs."""
    cpu_share: float
    own_wait: float
    """How long it waits for other stages of this run (share)."""
    waiters: tuple[Waiter, ...]
    """The stages that wait for it, neighbours first. Empty if the others had ended instead."""
    ended: tuple[tuple[int, float], ...]
    """Upstream stages that ended well before the run: (index, share of the run at their end)."""
    barrier: bool
    """It reads all its input before it writes, and the stages after it waited for that."""


@dataclass(frozen=True, slots=True)
class PipeWaits:
    """How long one stage sleeps on pipes, as shares of the run."""

    empty: float
    full: float
    outside_in: float
    outside_out: float

    @property
    def inside(self) -> float:
        return min(1.0, self.empty + self.full)


def share(stage: Stage, state: str, wall: float) -> float:
    """Seconds of a stage in a state as a share of `wall` seconds.

    ``cpu`` may exceed 1.0: several threads run at once. The others stay within 1.0. A stage
    of several threads is divided by their summed time instead of the wall time, less the time
    in ``child`` and ``lock``: a thread that waits for its own helpers only repeats their time.
    """
    seconds = stage.states.get(state, 0.0)
    if wall <= 0:
        return 0.0
    if state == "cpu":
        return seconds / wall
    if state in _HELPED:
        return min(1.0, seconds / wall)
    own = stage.lifetime_seconds - sum(stage.states.get(helped, 0.0) for helped in _HELPED)
    return min(1.0, seconds / max(wall, own))


def has_several_threads(stage: Stage, wall: float) -> bool:
    """Whether more than one thread or process of a stage lived at a time, on average over the run.

    Then its CPU seconds are a share of one CPU: they do not say for how much of the run it was on
    one.
    """
    return stage.lifetime_seconds > SEVERAL * wall


def bottleneck(run: Run) -> Bottleneck | None:
    """The stage the others wait for; None if no stage stands out or the run is too short.

    For every stage X, with all waits as shares of the run (`share`):

    * ``held(X)`` = the mean over the stages connected to X of: upstream, time asleep on a
      full pipe plus the time for which it had already ended; downstream, time asleep on an
      empty pipe. It is transitive: in ``a|b|c`` with a slow ``c``, ``a`` counts as well.
    * ``own(X)`` = X's own time asleep on pipes that lead to other stages of this run. Waiting
      on a pipe from or to the outside does not lower its score; it becomes the reason.
    * score = ``held(X)`` − ``own(X)``.

    The best score wins, provided that at least one neighbour waits (or had ended) for 10 % of
    the run more than X waits itself. Parallel branches of the winner that wait as little as
    it does (within 15 %) belong to the bottleneck too.

    The reason (`kind`) is the state in which X spends most time outside the pipes. What an idle
    thread does, ``lock``, ``poll`` and ``sleep``, counts only for what the threads at work leave of
    the run: a pool waits for work most of the time, whatever holds X back. It is ``child``
    only if that reaches half of the run, CPU does not, and the disk does not reach a quarter: the
    children's own states are in the stage too.

    A reason that fills less than 10 % of the run explains nothing and yields None, and so does
    a run with less than 1 ms of CPU and less than 100 ms of wall time.
    """
    wall = run.watched_seconds
    if len(run.stages) < 2 or is_too_short(run):
        return None
    graph = build_graph(run)
    waits = [pipe_waits(run, index, graph) for index in range(len(run.stages))]
    ended_shares = [_ended_share(run, stage) for stage in run.stages]

    def held(by: int, other: int) -> float:
        value = 0.0
        if other in graph.upstream[by]:
            value += waits[other].full + ended_shares[other]
        if other in graph.downstream[by]:
            value += waits[other].empty
        return min(1.0, value)

    best, best_score = -1, float("-inf")
    for index in range(len(run.stages)):
        near = [held(index, other) for other in graph.before[index] | graph.after[index]]
        if not near or max(near) - waits[index].inside < NOTABLE:
            continue
        connected = (graph.upstream[index] | graph.downstream[index]) - {index}
        mean = sum(held(index, other) for other in connected) / len(connected)
        score = mean - waits[index].inside
        if score > best_score:
            best, best_score = index, score
    if best < 0:
        return None

    chosen = run.stages[best]
    members = tuple(
        index
        for index in run.by_place()[chosen.place]
        if abs(waits[index].inside - waits[best].inside) <= 0.15
    )
    kind, kind_share = main_state(run, members, waits)
    if kind_share < NOTABLE:
        return None
    waiters = _waiters(run, members, graph, waits)
    ended = tuple(
        (index, 1.0 - ended_shares[index])
        for index in sorted(set().union(*(graph.before[m] for m in members)) - set(members))
        if ended_shares[index] >= LARGE
    )
    return Bottleneck(
        stages=members,
        command=chosen.command,
        position=chosen.position,
        kind=kind,
        share=kind_share,
        cpu_share=mean_share([share(run.stages[m], "cpu", wall) for m in members]),
        own_wait=mean_share([waits[m].inside for m in members]),
        waiters=waiters,
        ended=ended,
        barrier=_is_barrier(run, members, graph, waits),
    )


def is_too_short(run: Run) -> bool:
    """Whether a run has too little CPU and wall time to say which stage holds it back."""
    if run.watched_seconds <= 0:
        return True
    return run.cpu_seconds < SHORT_CPU and run.watched_seconds < SHORT_WALL


def pipe_waits(run: Run, index: int, graph: Graph) -> PipeWaits:
    """Pipe waits of one stage: on pipes to other stages, and on pipes to the outside."""
    stage, wall = run.stages[index], run.watched_seconds
    empty, full = share(stage, "pipe_empty", wall), share(stage, "pipe_full", wall)
    inner_in = _inside(run, index, "read") if graph.before[index] else 0.0
    inner_out = _inside(run, index, "write") if graph.after[index] else 0.0
    return PipeWaits(
        empty=empty * inner_in,
        full=full * inner_out,
        outside_in=empty * (1 - inner_in),
        outside_out=full * (1 - inner_out),
    )


def _inside(run: Run, index: int, side: str) -> float:
    """Share of a stage's sleep on one side that was on pipes shared with other stages."""
    opposite = "write" if side == "read" else "read"
    peers = {
        end.pipe
        for other, stage in enumerate(run.stages)
        if other != index
        for end in stage.ends
        if end.side == opposite
    }
    ends = [end for end in run.stages[index].ends if end.side == side]
    total = sum(end.seconds for end in ends)
    if total <= 0 or not any(end.pipe in peers for end in ends):
        return 1.0
    return sum(end.seconds for end in ends if end.pipe in peers) / total


def _ended_share(run: Run, stage: Stage) -> float:
    """Share of the run for which a stage had already ended; 0 if the stamps do not show it."""
    if stage.end is None or run.wall_seconds <= 0 or run.clock_was_set:
        return 0.0
    if run.end is not None:
        finish = run.end
    elif run.partial:
        return 0.0
    else:
        finish = run.start + run.wall_seconds
    return min(1.0, max(0.0, (finish - stage.end) / run.wall_seconds))


def main_state(run: Run, members: Sequence[int], waits: Sequence[PipeWaits]) -> tuple[str, float]:
    """The state in which `members` spend most time outside their pipes, and its share.

    A name of `runs.STATES`, ``outside_in`` or ``outside_out``; see `Bottleneck.kind`.
    """
    wall = run.watched_seconds
    shares = {
        name: mean_share([_reason_share(run.stages[m], name, wall) for m in members])
        for name in _REASONS
    }
    shares |= {name: mean_share([getattr(waits[m], name) for m in members]) for name in OUTSIDE}
    kind = max(shares, key=lambda name: shares[name])
    child = mean_share([share(run.stages[m], "child", wall) for m in members])
    working = shares["cpu"] >= 0.5 or shares["disk"] >= LARGE
    if not working and child > max(0.5, shares["runqueue"]):
        return "child", child
    return kind, shares[kind]


def _reason_share(stage: Stage, state: str, wall: float) -> float:
    """`share` of a state that may be the reason; of an idle one, while no thread worked."""
    value = share(stage, state, wall)
    if state not in _IDLE:
        return value
    working = sum(stage.states.get(name, 0.0) for name in _AT_WORK if name != state)
    return min(value, max(0.0, 1.0 - working / wall)) if wall > 0 else value


def _waiters(
    run: Run, members: Sequence[int], graph: Graph, waits: Sequence[PipeWaits]
) -> tuple[Waiter, ...]:
    """The stages that wait for `members`: neighbours, then further ones behind a waiting one."""
    found: list[Waiter] = []
    for side, links, value in (
        ("full", graph.before, [wait.full for wait in waits]),
        ("empty", graph.after, [wait.empty for wait in waits]),
    ):
        seen, layer = set(members), set(members)
        while layer:
            reached = set().union(*(links[index] for index in layer)) - seen
            layer = {index for index in reached if value[index] >= NOTABLE}
            seen |= reached
            for indexes in run.by_place(sorted(layer)).values():
                mean = mean_share([value[index] for index in indexes])
                found.append(Waiter(tuple(indexes), side, mean))
    return tuple(found)


def _is_barrier(run: Run, members: Sequence[int], graph: Graph, waits: Sequence[PipeWaits]) -> bool:
    """Whether `members` read everything before they write, and their readers waited for that.

    They read for as long as their writers lived. If they read a file there are no writers: then
    their readers have to wait for half of the run.
    """
    stage = run.stages[members[0]]
    readers = set().union(*(graph.after[m] for m in members)) - set(members)
    writers = set().union(*(graph.before[m] for m in members)) - set(members)
    if stage.command not in BARRIERS or not readers:
        return False
    reading = max((1.0 - _ended_share(run, run.stages[writer]) for writer in writers), default=0.0)
    if any(run.stages[writer].end is None for writer in writers):
        reading = 1.0
    return all(waits[r].empty >= max(0.5, 0.9 * reading) for r in readers)


def mean_share(values: Sequence[float]) -> float:
    """The mean of some shares; 0 without any."""
    return sum(values) / len(values) if values else 0.0
