# SPDX-License-Identifier: Apache-2.0
"""The course of a run: points that follow each other without a gap (model/timeline.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pipelined.runs.fields import (
    STATES,
    Bytes,
    ExactLevels,
    ExactSeconds,
    Key,
    SomeStates,
    UnixTime,
)

__all__ = ["Point", "StagePoint", "Timeline", "state_shares"]


@dataclass(frozen=True, slots=True)
class StagePoint:
    """What one stage did in a point of the time line."""

    states: Annotated[SomeStates, Key("state_seconds")]
    """As of a stage, without states of no time."""
    read_bytes: Bytes
    """What it read."""
    written_bytes: Bytes
    """What it wrote."""
    pid: int = 0
    """Process id of the stage's root; 0 if it is not known."""


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the time line. Points follow each other without a gap and add up to the run's
    levels, states and bytes."""

    start: Annotated[UnixTime, Key("start_timestamp_seconds")]
    """From when."""
    end: Annotated[UnixTime, Key("end_timestamp_seconds")]
    """To when."""
    levels: Annotated[ExactLevels, Key("level_seconds")]
    """Time at each level, as in the run."""
    stages: tuple[StagePoint, ...]
    """One for each stage of the run, in that order, also before it started."""
    unwatched: Annotated[ExactSeconds, Key("unwatched_seconds")] = 0.0
    """Time in which no daemon ran."""

    @property
    def seconds(self) -> float:
        """How much of it was watched."""
        return self.end - self.start - self.unwatched


Timeline = tuple[Point, ...]


def state_shares(stage: StagePoint, seconds: float) -> dict[str, float]:
    """Shares of a stage's time in a point of `seconds`, by state (every name of `STATES`).

    They are shares of its threads' time together if that is more. What is left to 1 is the time in
    which the stage did not live.
    """
    whole = max(seconds, sum(stage.states.values()))
    return {state: stage.states.get(state, 0.0) / whole if whole > 0 else 0.0 for state in STATES}
