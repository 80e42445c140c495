# SPDX-License-Identifier: Apache-2.0
"""A run as a diagram: boxes in columns, joined by pipes, with the texts on them. Pure.

`diagram` is the data; static/picture.js draws it in the browser, and computes nothing but
positions. Words and numbers are formatted by `wording`, as in the terminal's reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelined.analysis.bottleneck import bottleneck, has_several_threads, share
from pipelined.analysis.outcome_words import exits
from pipelined.analysis.sentence import partial_figures
from pipelined.runs import LEVELS, STATES, Run, Stage, total_flow
from pipelined.wording import (
    STATE_WORDS,
    cpu_share,
    data_size,
    duration,
    input_size,
    output_size,
    percent,
    run_input,
)

if TYPE_CHECKING:
    from pipelined.answers.live import BoxJson, DiagramJson, PipeJson, PipeStateJson

__all__ = ["diagram", "figures", "mean_level"]

#: More parallel branches of one command than this are drawn as one box.
_MAX_BRANCHES = 4
#: A pipe counts as full or empty if a stage slept on it for at least this share of the time.
_MIN_ASLEEP = 0.05


@dataclass(frozen=True, slots=True)
class _Box:
    """One stage, or all parallel branches of one command if there are many."""

    stages: tuple[int, ...]
    """Indexes into `Run.stages`."""
    column: int
    """From 0: the largest number of pipes on a way from a first stage to this one."""


def diagram(run: Run, whole: Run | None = None) -> DiagramJson:
    """Boxes and pipes of `run`, ready for `json.dumps`.

    If `run` is only the last part of a run (see `difference`), `whole` is the whole run: the
    bottleneck is determined from it, since a second is too short for that.
    """
    boxes = _boxes(run)
    found = bottleneck(whole or run)
    marked = set(found.stages) if found else set()
    return {
        "seconds": run.watched_seconds,
        "mean_level": mean_level(run.levels),
        "boxes": [_box(run, box, bool(marked & set(box.stages))) for box in boxes],
        "pipes": _pipes(run, boxes),
    }


def figures(run: Run) -> list[str]:
    """The headline of a run after its signature: ``5.6 s wall``, ``0.9 cores used``, ….

    The first one shows whether the run is live.
    """
    out = [duration(run.wall_seconds) + (" so far" if run.live else " wall")]
    out.append(f"{run.cores_used:.1f} cores used")
    if run.overlap is not None:
        out.append(f"overlap {percent(run.overlap)}")
    if run.readahead and run.readahead.cache_state:
        out.append(f"cache {run.readahead.cache_state}")
    if run.input_bytes:
        out.append(f"input {run_input(run.input_bytes, run.input_exact)}")
    return out + partial_figures(run)


def mean_level(levels: Sequence[float]) -> float | None:
    """How many stages were on CPU at once, on average; None if no time passed.

    `levels` are seconds at each of `runs.LEVELS`; the last level counts as 8.
    """
    total = sum(levels)
    if total <= 0:
        return None
    return sum(level * seconds for level, seconds in enumerate(levels[: len(LEVELS)])) / total


def _boxes(run: Run) -> list[_Box]:
    columns = _columns(run)
    boxes = []
    for group in run.by_place().values():
        parts = [tuple(group)] if len(group) > _MAX_BRANCHES else [(index,) for index in group]
        boxes += [_Box(part, max(columns[index] for index in part)) for part in parts]
    return boxes


def _columns(run: Run) -> list[int]:
    """The column of each stage: one after its rightmost writer's. Stages are in data order."""
    if not run.edges:
        positions = sorted({stage.position for stage in run.stages})
        return [positions.index(stage.position) for stage in run.stages]
    columns = [0] * len(run.stages)
    for writer, reader in sorted(run.edges, key=lambda edge: edge[1]):
        if writer < reader:  # the other edges close a cycle
            columns[reader] = max(columns[reader], columns[writer] + 1)
    return columns


def _box(run: Run, box: _Box, is_bottleneck: bool) -> BoxJson:
    stages = [run.stages[index] for index in box.stages]
    wall = run.watched_seconds
    states = {state: sum(stage.states[state] for stage in stages) for state in STATES}
    space = max(wall * len(stages), sum(states.values()))
    shares = {
        state: sum(share(stage, state, wall) for stage in stages) / len(stages) for state in STATES
    }
    longest = max((state for state in STATES if state != "cpu"), key=lambda state: shares[state])
    several = any(has_several_threads(stage, wall) for stage in stages)
    first = stages[0]
    flow = total_flow(stages)
    return {
        "column": box.column,
        "command": first.command,
        "count": len(stages),
        "position": first.position,
        "bottleneck": is_bottleneck,
        "ended": all(stage.end is not None for stage in stages),
        "exit": exits(stages),
        "cpu": _cpu(shares["cpu"], several),
        "wait": f"{STATE_WORDS[longest]} {percent(shares[longest])}"
        if shares[longest] >= 0.005
        else "",
        "states": [
            {
                "state": state,
                "word": STATE_WORDS[state],
                "share_ratio": seconds / space,
                "text": percent(seconds / space)
                + (" of its threads' time" if several and state == "cpu" else ""),
            }
            for state, seconds in states.items()
            if space > 0 and seconds > 0
        ],
        "read": input_size(flow),
        "written": output_size(flow),
    }


def _cpu(value: float, several: bool) -> str:
    """``CPU 97 %``, or ``146 % of one CPU``: a box is narrow."""
    text = cpu_share(value, several)
    return text if text.endswith("CPU") else f"CPU {text}"


def _pipes(run: Run, boxes: Sequence[_Box]) -> list[PipeJson]:
    place = {index: at for at, box in enumerate(boxes) for index in box.stages}
    joints: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for writer, reader in run.edges:
        joint = (place[writer], place[reader])
        if joint[0] != joint[1]:
            joints.setdefault(joint, []).append((writer, reader))
    return [
        {"writer": writer, "reader": reader, **_pipe(run, edges)}
        for (writer, reader), edges in joints.items()
    ]


def _pipe(run: Run, edges: Sequence[tuple[int, int]]) -> PipeStateJson:
    """The state of the pipes between two boxes, by who sleeps on them, and their throughput."""
    full = _mean(_asleep(run, writer, reader, "write") for writer, reader in edges)
    empty = _mean(_asleep(run, reader, writer, "read") for writer, reader in edges)
    speeds = [_speed(run, writer, reader) for writer, reader in edges]
    speed = None if None in speeds else sum(value for value in speeds if value is not None)
    state, part = _pipe_state(run, edges, full, empty, speed)
    if state == "closed":
        speed = None
    return {
        "state": state,
        "share_ratio": part,
        "text": f"{state} {percent(part)}" if state in ("full", "empty") else state,
        "bytes_per_second": speed,
        "speed": "" if speed is None else f"{data_size(speed)}/s",
    }


def _pipe_state(
    run: Run, edges: Sequence[tuple[int, int]], full: float, empty: float, speed: float | None
) -> tuple[str, float]:
    if run.live and all(
        run.stages[writer].end is not None or run.stages[reader].end is not None
        for writer, reader in edges
    ):
        return "closed", 0.0
    if max(full, empty) >= _MIN_ASLEEP:
        return ("full", full) if full >= empty else ("empty", empty)
    return ("flowing" if speed is None or speed > 0 else "idle"), 0.0


def _asleep(run: Run, index: int, peer: int, side: str) -> float:
    """Share of the time that a stage slept on its pipe to `peer`.

    A stage's sleep is known per pipe, but which pipes a peer holds is known only if it slept on
    them: those that no other neighbour holds are taken to be the peer's.
    """
    stage = run.stages[index]
    asleep = share(stage, "pipe_full" if side == "write" else "pipe_empty", run.watched_seconds)
    own = {end.pipe: end.seconds for end in stage.ends if end.side == side}
    total = sum(own.values())
    if total <= 0:
        return asleep
    opposite = "read" if side == "write" else "write"
    shared = own.keys() & _pipes_of(run.stages[peer], opposite)
    if not shared:
        others = (
            b if a == index else a for a, b in run.edges if index in (a, b) and peer not in (a, b)
        )
        shared = own.keys() - set().union(*(_pipes_of(run.stages[o], opposite) for o in others))
    return asleep * sum(own[pipe] for pipe in shared) / total


def _pipes_of(stage: Stage, side: str) -> set[str]:
    return {end.pipe for end in stage.ends if end.side == side}


def _speed(run: Run, writer: int, reader: int) -> float | None:
    """Bytes per second through one pipe; None if they cannot be separated from another pipe's."""
    if run.watched_seconds <= 0:
        return None
    bounds = []
    if sum(edge[0] == writer for edge in run.edges) == 1:
        bounds.append(run.stages[writer].flow.pipe_out)
    if sum(edge[1] == reader for edge in run.edges) == 1:
        bounds.append(run.stages[reader].flow.pipe_in)
    known = [bound for bound in bounds if bound is not None]
    return min(known) / run.watched_seconds if known else None


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)
