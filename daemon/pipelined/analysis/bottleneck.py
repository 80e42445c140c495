# SPDX-License-Identifier: Apache-2.0
"""Who holds a run back, and the one sentence that says so.

Pure functions of a `Run`. All shares are fractions of the run's wall time (1.0 = all of it).
The sentence claims only what the run's counters hold: shares of time, not their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipelined.runs import STALL_CLASSES, Readahead, Run, Stage
from pipelined.wording import STATE_WORDS, duration, listing, percent

__all__ = [
    "BARRIERS",
    "LARGE",
    "STORM",
    "Bottleneck",
    "Graph",
    "Waiter",
    "bottleneck",
    "brief",
    "cache",
    "joined",
    "sentence",
    "share",
    "stage_label",
    "stalls",
]


#: A wait below this share of the run is noise, above it is worth a word.
NOTABLE = 0.10
#: Less than this rounds to nothing: every program that starts waits so long for a page or two.
WORTH_A_WORD = 0.005
#: A share from which a second fact about a stage is told.
LARGE = 0.25
#: Less CPU than this in a run of less than `SHORT_WALL` says nothing (seconds).
SHORT_CPU = 0.001
SHORT_WALL = 0.1
#: From so many forks on, the processes that a stage starts are part of the answer.
STORM = 100
#: How many waiting stages a sentence names.
NAMED = 3

#: Commands that write nothing before they have read everything (``sort -m`` apart).
BARRIERS = frozenset({"shuf", "sort", "sponge", "tac", "tsort"})

_IDLE = frozenset({"net", "poll", "lock", "sleep", "stopped", "other", "outside_in", "outside_out"})
_PHRASES: Mapping[str, str] = {
    "cpu": "on CPU {0}{1}",
    "runqueue": "waits for a free CPU {0}{1}",
    "disk": "waits for disk {0}{1}",
    "child": "waits for its own children {0}{1}",
    "net": "waits for the network {0}{1}",
    "poll": "waits in poll {0}{1}",
    "lock": "waits for a lock {0}{1}",
    "sleep": "asleep {0}{1}",
    "stopped": "stopped {0}{1}",
    "other": "waits outside pipes, disk and network {0}{1}",
    "outside_in": "waits {0}{1} on a pipe that no other stage feeds",
    "outside_out": "waits {0}{1} on a pipe that no other stage reads",
}


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
    """What it does meanwhile: a name of `runs.STATES`, or ``outside_in``/``outside_out`` when
    it waits itself on a pipe that no other stage of this run feeds or reads."""
    share: float
    """Time in `kind` as a share of the run (mean over `stages`); above 1.0 for ``cpu`` on
    several CPUs."""
    cpu_share: float
    own_wait: float
    """How long it waits itself for other stages of this run (share)."""
    waiters: tuple[Waiter, ...]
    """Who waits for it, neighbours first. Empty when the others had simply ended."""
    ended: tuple[tuple[int, float], ...]
    """Upstream stages that ended well before the run: (index, share of the run at their end)."""
    barrier: bool
    """It reads all its input before it writes, and the stages after it waited for that."""


@dataclass(frozen=True, slots=True)
class _Waits:
    """How one stage waits on pipes, as shares of the run."""

    empty: float
    full: float
    outside_in: float
    outside_out: float

    @property
    def inside(self) -> float:
        return min(1.0, self.empty + self.full)


@dataclass(frozen=True, slots=True)
class Graph:
    """Neighbours and everything upstream and downstream, by stage index."""

    before: tuple[frozenset[int], ...]
    after: tuple[frozenset[int], ...]
    upstream: tuple[frozenset[int], ...]
    downstream: tuple[frozenset[int], ...]


def share(stage: Stage, state: str, wall: float) -> float:
    """Seconds of a stage in a state as a share of `wall` seconds.

    ``cpu`` may exceed 1.0: several threads run at once. The others stay within 1.0. A stage
    of several threads is divided by their summed time instead of the wall time, less the time
    in ``child`` and ``lock``: who waits for his own helpers only repeats what the helpers do.
    """
    seconds = stage.states.get(state, 0.0)
    if wall <= 0:
        return 0.0
    if state == "cpu":
        return seconds / wall
    if state in ("child", "lock"):
        return min(1.0, seconds / wall)
    own = stage.lifetime_seconds - stage.states.get("child", 0.0) - stage.states.get("lock", 0.0)
    return min(1.0, seconds / max(wall, own))


def stage_label(run: Run, indexes: Sequence[int]) -> str:
    """How a sentence calls one stage, or several parallel ones of one name.

    ``awk``; ``sed (stage 2)`` where another place has the same name; ``4 × bash`` for parallel
    branches; ``sort (pid 71, one of 2)`` for one of them.
    """
    stage = run.stages[indexes[0]]
    twins = [s for s in run.stages if (s.position, s.command) == (stage.position, stage.command)]
    namesake = any(s.command == stage.command and s.position != stage.position for s in run.stages)
    name = f"{stage.command} (stage {stage.position})" if namesake else stage.command
    if len(indexes) > 1:
        return f"{len(indexes)} × {name}"
    if len(twins) > 1:
        return f"{stage.command} (pid {stage.pid}, one of {len(twins)})"
    return name


def bottleneck(run: Run) -> Bottleneck | None:
    """The stage the others wait for; None if no stage stands out or the run is too short.

    For every stage X, with all waits as shares of the run (`share`):

    * ``held(X)`` = the mean over the stages connected to X of: upstream, time asleep on a
      full pipe plus the time for which it had already ended; downstream, time asleep on an
      empty pipe. It is transitive: in ``a|b|c`` with a slow ``c``, ``a`` counts as well.
    * ``own(X)`` = X's own time asleep on pipes that lead to other stages of this run. Waiting
      on a pipe from or to the outside is not held against it; it becomes the reason.
    * score = ``held(X)`` − ``own(X)``.

    The best score wins, provided that at least one neighbour waits (or had ended) for 10 % of
    the run more than X waits itself. Parallel branches of the winner's name that wait as
    little as it does (within 15 %) share the part. The reason (`kind`) is the state in which X
    spends most time outside the pipes; ``child`` only if it reaches half the run, and neither CPU
    does nor the disk a quarter of it, because the children's own states are in the stage too.

    A reason that fills less than 10 % of the run explains nothing and yields None, and so does
    a run with less than 1 ms of CPU and less than 100 ms of wall time.
    """
    wall = run.wall_seconds
    if len(run.stages) < 2 or _too_short(run):
        return None
    graph = joined(run)
    waits = [_waits(run, index, graph) for index in range(len(run.stages))]
    gone = [_gone(run, stage) for stage in run.stages]

    def held(by: int, other: int) -> float:
        value = 0.0
        if other in graph.upstream[by]:
            value += waits[other].full + gone[other]
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
        for index, stage in enumerate(run.stages)
        if (stage.position, stage.command) == (chosen.position, chosen.command)
        and abs(waits[index].inside - waits[best].inside) <= 0.15
    )
    kind, kind_share = _reason(run, members, waits)
    if kind_share < NOTABLE:
        return None
    waiters = _waiters(run, members, graph, waits)
    ended = tuple(
        (index, 1.0 - gone[index])
        for index in sorted(set().union(*(graph.before[m] for m in members)) - set(members))
        if gone[index] >= LARGE
    )
    return Bottleneck(
        stages=members,
        command=chosen.command,
        position=chosen.position,
        kind=kind,
        share=kind_share,
        cpu_share=_mean([share(run.stages[m], "cpu", wall) for m in members]),
        own_wait=_mean([waits[m].inside for m in members]),
        waiters=waiters,
        ended=ended,
        barrier=_is_barrier(run, members, graph, waits),
    )


def brief(run: Run) -> str:
    """The bottleneck in a few words, for tables: ``awk: CPU 97 %``; ``-`` without one.

    Of a program alone it is where its own time went.
    """
    found = bottleneck(run)
    if found is not None:
        members, kind, value = found.stages, found.kind, found.share
    elif len(run.stages) == 1 and not _too_short(run):
        members, (kind, value) = (0,), _alone(run)
    else:
        return "-"
    word = "CPU" if kind == "cpu" else STATE_WORDS.get(kind, "outside pipe")
    return f"{stage_label(run, members)}: {word} {percent(value)}"


def sentence(run: Run) -> str:
    """The verdict on a run: one sentence, plus one where sort-like or partial runs need it.

    ``awk is the bottleneck: on CPU 97 % of the run; cat waits for it 61 % (full pipe).``
    """
    text = _sentence(run)
    if run.partial:
        text += " Partial: figures since observation began, not since the start of the run."
    return text


def stalls(readahead: Readahead, wall: float) -> str | None:
    """What waiting for disk cost a reader of files; None below `WORTH_A_WORD` of the run.

    ``0.90 s in 112 stalls (late 0.52 s, miss 0.38 s), 16 % of the run; 40 % of it overlapped``
    """
    seconds = readahead.stall_seconds
    if not readahead.stall_count or seconds < max(0.00005, WORTH_A_WORD * wall):
        return None
    parts = {name: readahead.stalls[name].seconds for name in STALL_CLASSES}
    named = sorted(
        (name for name in parts if parts[name] >= 0.005 * seconds), key=lambda n: -parts[n]
    )
    count = f"{readahead.stall_count:,} stall{'' if readahead.stall_count == 1 else 's'}"
    classes = ", ".join(f"{name} {duration(parts[name])}" for name in named)
    text = f"{duration(seconds)} in {count} ({classes})"
    if wall > 0:
        text += f", {percent(min(1.0, seconds / wall))} of the run"
    return f"{text}; {percent(min(1.0, readahead.overlapped_seconds / seconds))} of it overlapped"


def cache(readahead: Readahead) -> str | None:
    """How the pages of a reader's files were come by; None when too few to tell were read.

    ``cold, coverage 100 %, timeliness 98 %, accuracy 97 %``, or ``warm``.
    """
    state = readahead.cache_state
    if state is None:
        return None
    words = [state if state != "mixed" else f"mixed ({percent(readahead.warm_share or 0)} warm)"]
    if state != "warm":
        words += [
            f"{name} {percent(value)}"
            for name, value in (
                ("coverage", readahead.coverage),
                ("timeliness", readahead.timeliness),
                ("accuracy", readahead.accuracy),
            )
            if value is not None
        ]
    return ", ".join(words)


def _sentence(run: Run) -> str:
    span = " of the run so far" if run.live else " of the run"
    if not run.stages:
        return "No verdict: no stage was seen."
    if _too_short(run):
        return "Too short to say who holds whom back: less than 1 ms on CPU in all."
    if len(run.stages) == 1:
        return _alone_sentence(run, span)
    found = bottleneck(run)
    if found is None:
        return _balanced(run, span)
    return _accuse(run, found, span)


def _alone(run: Run) -> tuple[str, float]:
    """The state in which the one stage of a run spends most time, and its share."""
    return _reason(run, (0,), [_waits(run, 0, joined(run))])


def _alone_sentence(run: Run, span: str) -> str:
    kind, value = _alone(run)
    text = f"{stage_label(run, (0,))} runs alone: {_phrase(kind, value, span)}"
    on_cpu = share(run.stages[0], "cpu", run.wall_seconds)
    if kind != "cpu" and on_cpu >= NOTABLE:
        text += f", on CPU {percent(on_cpu)}"
    return f"{text}."


def _accuse(run: Run, found: Bottleneck, span: str) -> str:
    name = stage_label(run, found.stages)
    several = len(found.stages) > 1
    idle = found.kind in _IDLE and found.cpu_share < LARGE
    if idle:
        head = f"{name} {'hold' if several else 'holds'} the others back without working: "
    else:
        head = f"{name} {'are' if several else 'is'} the bottleneck: "
    parts = [head + ("each " if several else "") + _phrase(found.kind, found.share, span)]
    if found.kind != "cpu" and found.cpu_share >= NOTABLE:
        parts[0] += f", on CPU {percent(found.cpu_share)}"
    elif found.kind == "cpu":
        queue = _mean([share(run.stages[m], "runqueue", run.wall_seconds) for m in found.stages])
        if queue >= LARGE:
            parts[0] += f", waits for a free CPU {percent(queue)}"
    parts[0] += _storm(run, found)
    parts += _waiting_clauses(run, found)
    if not found.waiters:
        for index, at in found.ended[:NAMED]:
            parts.append(f"{stage_label(run, [index])} had ended after {percent(at)}")
    if found.own_wait >= NOTABLE:
        it = "they wait" if several else "it waits"
        parts.append(f"{it} for the others {percent(found.own_wait)}")
    text = "; ".join(parts) + "."
    if found.barrier:
        text += f" {found.command} writes nothing before it has read all its input."
    return text


def _waiting_clauses(run: Run, found: Bottleneck) -> list[str]:
    clauses = []
    them = "them" if len(found.stages) > 1 else "it"
    for side in ("full", "empty"):
        waiters = [waiter for waiter in found.waiters if waiter.side == side]
        if not waiters:
            continue
        named = waiters[:NAMED]
        names = listing([stage_label(run, waiter.stages) for waiter in named])
        shares = listing([percent(waiter.share) for waiter in named])
        verb = "waits" if len(named) == 1 and len(named[0].stages) == 1 else "wait"
        more = f", {len(waiters) - NAMED} more" if len(waiters) > NAMED else ""
        clauses.append(f"{names} {verb} for {them} {shares}{more} ({side} pipe)")
    return clauses


def _storm(run: Run, found: Bottleneck) -> str:
    forks = sum(run.stages[m].forks for m in found.stages)
    if forks < STORM and not (found.kind == "child" and forks > 1):
        return ""
    exited = sum(run.stages[m].exited_children for m in found.stages)
    lifetime = sum(run.stages[m].children_lifetime_seconds for m in found.stages)
    each = f", children live {duration(lifetime / exited)}" if exited and lifetime > 0 else ""
    return f" ({forks:,} forks{each})"


def _balanced(run: Run, span: str) -> str:
    """The sentence for a run in which no stage stands out, by what they do instead."""
    wall = run.wall_seconds
    graph = joined(run)
    waits = [_waits(run, index, graph) for index in range(len(run.stages))]
    most = max(wait.inside for wait in waits)
    if most >= LARGE:
        named = _top(run, [wait.inside for wait in waits], span)
        alternate = sum(wait.inside >= LARGE for wait in waits) > 1
        if alternate and run.overlap is not None and run.overlap < NOTABLE:
            return f"No single bottleneck: the stages take turns; asleep on pipes: {named}."
        return f"No single bottleneck stands out; asleep on pipes: {named}."
    quiet = f"no stage waits on a pipe for more than {percent(most)}{span}"
    for state, opening in (("disk", "Waits for disk"), ("runqueue", "Too few free CPUs")):
        shares = [share(stage, state, wall) for stage in run.stages]
        if max(shares) >= LARGE:
            return f"{opening}: {_top(run, shares, span)}; {quiet}."
    busy = [share(stage, "cpu", wall) for stage in run.stages]
    if max(busy) < NOTABLE:
        return f"Idle: no stage is on CPU for more than {percent(max(busy))}{span}, and {quiet}."
    return f"Balanced: {quiet}; on CPU: {_top(run, busy, '')}."


def _top(run: Run, shares: Sequence[float], span: str) -> str:
    order = sorted(range(len(shares)), key=lambda index: -shares[index])
    named = [index for index in order if shares[index] >= NOTABLE][:NAMED] or order[:1]
    texts = [f"{stage_label(run, [index])} {percent(shares[index])}" for index in named]
    texts[0] += span
    return ", ".join(texts)


def _phrase(kind: str, value: float, span: str) -> str:
    if kind == "cpu" and value > 1.05:
        return f"on {value:.1f} CPUs" + (f" over{span[3:]}" if span else "")
    return _PHRASES[kind].format(percent(min(1.0, value)), span)


def _too_short(run: Run) -> bool:
    if run.wall_seconds <= 0:
        return True
    return run.cpu_seconds < SHORT_CPU and run.wall_seconds < SHORT_WALL


def joined(run: Run) -> Graph:
    """Who writes to whom, by `Run.edges`; by position in a run that has none."""
    count = len(run.stages)
    before: list[set[int]] = [set() for _ in range(count)]
    after: list[set[int]] = [set() for _ in range(count)]
    for writer, reader in run.edges or _edges_by_position(run):
        if writer != reader and 0 <= writer < count and 0 <= reader < count:
            after[writer].add(reader)
            before[reader].add(writer)
    return Graph(
        before=tuple(map(frozenset, before)),
        after=tuple(map(frozenset, after)),
        upstream=tuple(_reach(index, before) for index in range(count)),
        downstream=tuple(_reach(index, after) for index in range(count)),
    )


def _edges_by_position(run: Run) -> list[tuple[int, int]]:
    """Each place to the next one, for runs that carry no edges."""
    places = sorted({stage.position for stage in run.stages})
    follower = dict(pairwise(places))
    return [
        (writer, reader)
        for writer, source in enumerate(run.stages)
        for reader, target in enumerate(run.stages)
        if follower.get(source.position) == target.position
    ]


def _reach(start: int, links: Sequence[set[int]]) -> frozenset[int]:
    seen: set[int] = set()
    queue = [start]
    while queue:
        for following in links[queue.pop()] - seen:
            seen.add(following)
            queue.append(following)
    return frozenset(seen - {start})


def _waits(run: Run, index: int, graph: Graph) -> _Waits:
    """Pipe waits of one stage, split into pipes to other stages and pipes to the outside."""
    stage, wall = run.stages[index], run.wall_seconds
    empty, full = share(stage, "pipe_empty", wall), share(stage, "pipe_full", wall)
    inner_in = _inside(run, index, "read") if graph.before[index] else 0.0
    inner_out = _inside(run, index, "write") if graph.after[index] else 0.0
    return _Waits(
        empty=empty * inner_in,
        full=full * inner_out,
        outside_in=empty * (1 - inner_in),
        outside_out=full * (1 - inner_out),
    )


def _inside(run: Run, index: int, side: str) -> float:
    """Share of a stage's sleep on one side that fell on pipes shared with other stages."""
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


def _gone(run: Run, stage: Stage) -> float:
    """Share of the run for which a stage had already ended."""
    if stage.end is None or run.wall_seconds <= 0:
        return 0.0
    if run.end is not None:
        finish = run.end
    elif run.partial:
        return 0.0
    else:
        finish = run.start + run.wall_seconds
    return min(1.0, max(0.0, (finish - stage.end) / run.wall_seconds))


def _reason(run: Run, members: Sequence[int], waits: Sequence[_Waits]) -> tuple[str, float]:
    wall = run.wall_seconds
    names = ("cpu", "disk", "runqueue", "net", "poll", "lock", "sleep", "stopped", "other")
    shares = {name: _mean([share(run.stages[m], name, wall) for m in members]) for name in names}
    shares["outside_in"] = _mean([waits[m].outside_in for m in members])
    shares["outside_out"] = _mean([waits[m].outside_out for m in members])
    kind = max(shares, key=lambda name: shares[name])
    child = _mean([share(run.stages[m], "child", wall) for m in members])
    working = shares["cpu"] >= 0.5 or shares["disk"] >= LARGE
    if not working and child > max(0.5, shares["runqueue"]):
        return "child", child
    return kind, shares[kind]


def _waiters(
    run: Run, members: Sequence[int], graph: Graph, waits: Sequence[_Waits]
) -> tuple[Waiter, ...]:
    """Who waits for `members`: neighbours, then further stages behind a waiting one."""
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
            alike: dict[tuple[int, str], list[int]] = {}
            for index in sorted(layer):
                stage = run.stages[index]
                alike.setdefault((stage.position, stage.command), []).append(index)
            for indexes in alike.values():
                mean = _mean([value[index] for index in indexes])
                found.append(Waiter(tuple(indexes), side, mean))
    return tuple(found)


def _is_barrier(run: Run, members: Sequence[int], graph: Graph, waits: Sequence[_Waits]) -> bool:
    """A command known to read everything first, with readers that waited at least as long.

    How long it read is how long its writers lived. One that reads a file has none: then half
    of the run has to do.
    """
    stage = run.stages[members[0]]
    readers = set().union(*(graph.after[m] for m in members)) - set(members)
    writers = set().union(*(graph.before[m] for m in members)) - set(members)
    if stage.command not in BARRIERS or not readers:
        return False
    reading = max((1.0 - _gone(run, run.stages[writer]) for writer in writers), default=0.0)
    if any(run.stages[writer].end is None for writer in writers):
        reading = 1.0
    return all(waits[r].empty >= max(0.5, 0.9 * reading) for r in readers)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
