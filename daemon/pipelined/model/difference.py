# SPDX-License-Identifier: Apache-2.0
"""What happened in a run between two sweeps, as a run of its own. Pure.

Views of a moment can therefore use the functions that show a whole run.
"""

from __future__ import annotations

from dataclasses import replace

from pipelined.runs import STATES, Flow, PipeEnd, Run, Stage

__all__ = ["difference"]

#: Seconds: a shorter time between two sweeps shows nothing.
MIN_DELTA = 0.001


def difference(new: Run, old: Run) -> Run | None:
    """What happened in a run between `old` and `new`, as a run of its own.

    None if no time passed. Stages are matched by process, as their positions move when a stage
    joins or leaves the run; a new stage counts in full. The result has differences for what views
    of a moment show: states, bytes, forks, children, sleeps by pipe. All other fields of a stage
    are those of `new`.
    """
    wall = new.wall_seconds - old.wall_seconds
    if new.id != old.id or wall < MIN_DELTA:
        return None
    before = {(stage.pid, stage.start): stage for stage in old.stages}
    return replace(
        new,
        start=new.start + old.wall_seconds,
        wall_seconds=wall,
        unwatched_seconds=new.unwatched_seconds - old.unwatched_seconds,
        levels=tuple(
            max(0.0, now - then) for now, then in zip(new.levels, old.levels, strict=True)
        ),
        disk_overlapped_seconds=max(0.0, new.disk_overlapped_seconds - old.disk_overlapped_seconds),
        disk_alone_seconds=max(0.0, new.disk_alone_seconds - old.disk_alone_seconds),
        stages=tuple(
            _stage_difference(stage, before.get((stage.pid, stage.start))) for stage in new.stages
        ),
    )


def _stage_difference(new: Stage, old: Stage | None) -> Stage:
    if old is None:
        return new
    return replace(
        new,
        states={
            state: max(0.0, new.states.get(state, 0.0) - old.states.get(state, 0.0))
            for state in STATES
        },
        read_bytes=max(0, new.read_bytes - old.read_bytes),
        written_bytes=max(0, new.written_bytes - old.written_bytes),
        flow=_flow_difference(new.flow, old.flow),
        forks=max(0, new.forks - old.forks),
        exited_children=max(0, new.exited_children - old.exited_children),
        children_lifetime_seconds=max(
            0.0, new.children_lifetime_seconds - old.children_lifetime_seconds
        ),
        children_cpu_seconds=max(0.0, new.children_cpu_seconds - old.children_cpu_seconds),
        ends=_ends_difference(new.ends, old.ends),
    )


def _flow_difference(new: Flow, old: Flow) -> Flow:
    def grown(now: int | None, then: int | None) -> int | None:
        return None if now is None else max(0, now - (then or 0))

    return replace(
        new,
        pipe_in=grown(new.pipe_in, old.pipe_in),
        pipe_out=grown(new.pipe_out, old.pipe_out),
        file_read=grown(new.file_read, old.file_read),
        file_written=grown(new.file_written, old.file_written),
        inner_read=grown(new.inner_read, old.inner_read),
        inner_written=grown(new.inner_written, old.inner_written),
        temporary=None
        if new.temporary is None or old.temporary is None
        else max(0, new.temporary - old.temporary),
    )


def _ends_difference(new: tuple[PipeEnd, ...], old: tuple[PipeEnd, ...]) -> tuple[PipeEnd, ...]:
    before = {(end.pipe, end.side): end for end in old}
    return tuple(
        replace(
            end,
            sleeps=max(0, end.sleeps - then.sleeps),
            seconds=max(0.0, end.seconds - then.seconds),
        )
        if (then := before.get((end.pipe, end.side)))
        else end
        for end in new
    )
