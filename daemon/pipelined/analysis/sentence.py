# SPDX-License-Identifier: Apache-2.0
"""The verdict on a run: one sentence that says which stage holds it back.

Pure functions of a `Run`. The sentence claims only what the run's counters show: shares of time,
not their order. docs/REPORT.md explains it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pipelined.analysis.bottleneck import (
    LARGE,
    NOTABLE,
    OUTSIDE,
    STORM,
    Bottleneck,
    bottleneck,
    has_several_threads,
    is_too_short,
    main_state,
    mean_share,
    pipe_waits,
    share,
)
from pipelined.analysis.children_words import busiest
from pipelined.analysis.outcome_words import outcome_sentence
from pipelined.analysis.pipe_graph import build_graph
from pipelined.runs import Run
from pipelined.states import STATE_TABLE, State
from pipelined.wording import STATE_WORDS, at_port, cpu_share, duration, listing, percent

__all__ = [
    "beginning",
    "bottleneck_label",
    "brief",
    "main_bottleneck",
    "on_cpu",
    "partial_figures",
    "sentence",
    "stage_label",
    "unwatched",
]

#: A sentence names at most this many waiting stages.
NAMED = 3
_TOO_FEW_CPUS = "Too few free CPUs"
_STATES: Mapping[str, State] = {state.name: state for state in STATE_TABLE}
#: What differs from run to run in what `brief` returns.
_VARYING = re.compile(r" <?\d+ %(?: of one CPU)?$|^\d+ × | \(pid \d+, one of \d+\)(?=: )")


def stage_label(run: Run, indexes: Sequence[int]) -> str:
    """The name of one stage, or of several parallel ones of one name, in a sentence.

    ``awk``; ``sed (stage 2)`` where another place has the same name; ``4 × bash`` for parallel
    branches; ``sort (pid 71, one of 2)`` for one of them.
    """
    stage = run.stages[indexes[0]]
    branches = len(run.by_place()[stage.place])
    namesake = any(s.command == stage.command and s.position != stage.position for s in run.stages)
    name = f"{stage.command} (stage {stage.position})" if namesake else stage.command
    if len(indexes) > 1:
        return f"{len(indexes)} × {name}"
    if branches > 1:
        return f"{stage.command} (pid {stage.pid}, one of {branches})"
    return name


def brief(run: Run) -> str:
    """The bottleneck in a few words, for tables: ``awk: CPU 97 %``; ``-`` without one.

    Of several threads: ``sort: CPU 146 % of one CPU``. For a program that runs alone: where its own
    time went.
    """
    found = bottleneck(run)
    if found is not None:
        members, kind, value = found.stages, found.kind, found.share
    elif len(run.stages) == 1 and not is_too_short(run):
        members, (kind, value) = (0,), _alone(run)
    else:
        return "-"
    if kind == "cpu":
        return f"{stage_label(run, members)}: CPU {cpu_share(value, _several(run, members))}"
    return f"{stage_label(run, members)}: {STATE_WORDS.get(kind, 'outside pipe')} {percent(value)}"


def on_cpu(run: Run, members: Sequence[int], value: float, span: str) -> str:
    """How much of the CPUs stages used: their share `value`, and the words that follow it.

    ``on CPU 97 % of the run``; of several threads ``on 97 % of one CPU over the run``, and ``on 1.5
    CPUs over the run``. `span` is empty or ends in the run: `` of the run so far``.
    """
    over = f" over{span[3:]}" if span else ""
    if value > 1.05:
        return f"on {value:.1f} CPUs{over}"
    if _several(run, members):
        return f"on {percent(value)} of one CPU{over}"
    return _phrase("cpu", value, span)


def _several(run: Run, members: Sequence[int]) -> bool:
    return any(has_several_threads(run.stages[index], run.watched_seconds) for index in members)


def bottleneck_label(brief: str) -> str:
    """A run's bottleneck without what differs from run to run: ``sort: CPU`` of ``sort: CPU 97 %``.

    That is the share, the number of parallel stages, and the process id of one of them.
    """
    return _VARYING.sub("", brief)


def main_bottleneck(walls: Mapping[str, float]) -> tuple[str | None, float | None]:
    """What held runs back for most of their time, and its share of all of it.

    `walls` are the wall seconds of the runs by their `bottleneck_label`. None: no bottleneck is
    known.
    """
    known = [label for label in walls if label != "-"]
    if not known:
        return None, None
    most = max(known, key=lambda label: walls[label])
    return most, walls[most] / (sum(walls.values()) or 1.0)


def sentence(run: Run) -> str:
    """The verdict on a run: one sentence, and others before and after it where there is need: of a
    run that has not succeeded, of barriers and of partial runs.

    ``awk is the bottleneck: on CPU 97 % of the run; cat waits for it 61 % (full pipe).``
    """
    text = " ".join(filter(None, (outcome_sentence(run), _sentence(run))))
    if run.unwatched_seconds or run.ended_unwatched:
        text += f" Partial: {unwatched(run)}."
    elif run.partial:
        text += " Partial: figures since observation began, not since the start of the run."
    elif run.partial_tiers:
        text += (
            f" Figures of {' and '.join(run.partial_tiers)} are partial: the run began before their"
            " hooks were attached."
        )
    return text


def beginning(verdict: str) -> str:
    """The first clause of a verdict, for lists, where each share is of the run.

    >>> beginning("awk is the bottleneck: on CPU 97 % of the run so far; cat waits for it 61 %.")
    'awk is the bottleneck: on CPU 97 %'
    """
    first = re.split(r"(?:[;.]|, and)(?: |$)", verdict, maxsplit=1)[0]
    return re.sub(r" (?:of|over) the run(?: so far)?", "", first)


def unwatched(run: Run) -> str:
    """What is not known of a run because no daemon ran; empty if one always did."""
    parts = []
    if run.unwatched_seconds:
        parts.append(
            f"for {duration(run.unwatched_seconds)} no daemon ran, and nothing was counted"
        )
    if run.ended_unwatched:
        parts.append("it ended while no daemon ran, and its end is when it was last seen alive")
    return "; ".join(parts)


def partial_figures(run: Run) -> list[str]:
    """What a headline says of figures that lack a part: ``partial``, ``readahead partial``."""
    if run.unwatched_seconds:
        return [f"partial, {duration(run.unwatched_seconds)} unwatched"]
    if run.partial:
        return ["partial"]
    return [f"{' and '.join(run.partial_tiers)} partial"] if run.partial_tiers else []


def _sentence(run: Run) -> str:
    span = " of the run so far" if run.live else " of the run"
    if not run.stages:
        return "No verdict: no stage was seen."
    if is_too_short(run):
        return "Too short to say which stage is the bottleneck: less than 1 ms on CPU in all."
    if len(run.stages) == 1:
        return _alone_sentence(run, span)
    found = bottleneck(run)
    if found is None:
        return _balanced_sentence(run, span)
    return _bottleneck_sentence(run, found, span)


def _alone(run: Run) -> tuple[str, float]:
    """The state in which the one stage of a run spends most time, and its share."""
    return main_state(run, (0,), [pipe_waits(run, 0, build_graph(run))])


def _alone_sentence(run: Run, span: str) -> str:
    kind, value = _alone(run)
    text = f"{stage_label(run, (0,))} runs alone: {_doing(run, (0,), kind, value, span)}"
    cpu = share(run.stages[0], "cpu", run.watched_seconds)
    if kind != "cpu" and cpu >= NOTABLE:
        text += f", {on_cpu(run, (0,), cpu, '')}"
    return f"{text}."


def _bottleneck_sentence(run: Run, found: Bottleneck, span: str) -> str:
    name = stage_label(run, found.stages)
    several = len(found.stages) > 1
    idle = not _state(found.kind).busy and found.cpu_share < LARGE
    if idle:
        head = f"{name} {'hold' if several else 'holds'} the others back without working: "
    else:
        head = f"{name} {'are' if several else 'is'} the bottleneck: "
    parts = [head + ("each " if several else "")]
    parts[0] += _doing(run, found.stages, found.kind, found.share, span)
    if found.kind != "cpu" and found.cpu_share >= NOTABLE:
        parts[0] += f", {on_cpu(run, found.stages, found.cpu_share, '')}"
    elif found.kind == "cpu":
        queue = mean_share(
            [share(run.stages[m], "runqueue", run.watched_seconds) for m in found.stages]
        )
        if queue >= LARGE:
            parts[0] += f", {_phrase('runqueue', queue, '')}"
    parts[0] += _forks_clause(run, found)
    if found.kind in ("cpu", "child"):
        parts += filter(None, [busiest([run.stages[m] for m in found.stages])])
    parts += _waiting_clauses(run, found)
    if not found.waiters:
        for index, at in found.ended[:NAMED]:
            parts.append(f"{stage_label(run, [index])} had ended after {percent(at)}")
    if found.own_wait >= NOTABLE:
        it = "they wait" if several else "it waits"
        parts.append(f"{it} for the others {percent(found.own_wait)}")
    text = "; ".join(parts) + "."
    if found.barrier:
        text += f" {found.command} has to read all of its input before it writes (a barrier)."
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


def _forks_clause(run: Run, found: Bottleneck) -> str:
    forks = sum(run.stages[m].forks for m in found.stages)
    if forks < STORM and not (found.kind == "child" and forks > 1):
        return ""
    exited = sum(run.stages[m].exited_children for m in found.stages)
    lifetime = sum(run.stages[m].children_lifetime_seconds for m in found.stages)
    each = f", children live {duration(lifetime / exited)}" if exited and lifetime > 0 else ""
    return f" ({forks:,} forks{each})"


def _balanced_sentence(run: Run, span: str) -> str:
    """The sentence for a run in which no stage stands out: what its stages do instead."""
    wall = run.watched_seconds
    graph = build_graph(run)
    waits = [pipe_waits(run, index, graph) for index in range(len(run.stages))]
    asleep = [wait.inside for wait in waits]
    queued = [share(stage, "runqueue", wall) for stage in run.stages]
    most = max(asleep)
    if most >= LARGE:
        alternate = sum(part >= LARGE for part in asleep) > 1
        if alternate and run.overlap is not None and run.overlap < NOTABLE:
            if max(queued) >= LARGE:  # on one CPU any stages take turns
                pipes = f"asleep on pipes: {_top(run, asleep, '')}"
                return f"{_TOO_FEW_CPUS}: {_top(run, queued, span)}; {pipes}."
            named = _top(run, asleep, span)
            return f"No single bottleneck: the stages take turns; asleep on pipes: {named}."
        return f"No single bottleneck stands out; asleep on pipes: {_top(run, asleep, span)}."
    quiet = f"no stage waits on a pipe for more than {percent(most)}{span}"
    slow = [share(stage, "disk", wall) for stage in run.stages]
    for shares, opening in ((slow, "Waits for disk"), (queued, _TOO_FEW_CPUS)):
        if max(shares) >= LARGE:
            return f"{opening}: {_top(run, shares, span)}; {quiet}."
    busy = [share(stage, "cpu", wall) for stage in run.stages]
    if max(busy) < NOTABLE:
        return f"Idle: no stage is on CPU for more than {percent(max(busy))}{span}, and {quiet}."
    return f"Balanced: {quiet}; on CPU: {_top(run, busy, '', of_cpu=True)}."


def _top(run: Run, shares: Sequence[float], span: str, *, of_cpu: bool = False) -> str:
    order = sorted(range(len(shares)), key=lambda index: -shares[index])
    named = [index for index in order if shares[index] >= NOTABLE][:NAMED]
    texts = [
        f"{stage_label(run, [index])} "
        + cpu_share(shares[index], of_cpu and _several(run, [index]))
        for index in named
    ]
    texts[0] += span
    return ", ".join(texts)


def _doing(run: Run, members: Sequence[int], kind: str, value: float, span: str) -> str:
    """What stages do for most of their time, and for how much of it."""
    if kind == "cpu":
        return on_cpu(run, members, value, span)
    peers = at_port(run.stages[member].peer_port for member in members) if kind == "net" else ""
    return _phrase(kind, value, span, peers)


def _phrase(kind: str, value: float, span: str, before: str = "") -> str:
    return _state(kind).phrase.format(before + percent(min(1.0, value)) + span)


def _state(kind: str) -> State:
    return _STATES[OUTSIDE.get(kind, kind)]
