# SPDX-License-Identifier: Apache-2.0
"""The states of a thread: the one table of what every part of the program says and draws of each.

docs/CONCEPTS.md defines them. What cannot be derived from this table is held to it by tests: the
enum of bpf/pipelined.h, the colours of page.css, the regular expressions of deploy/prometheus and
dashboards, the tables in docs (tests/unit/test_states.py, test_layout.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["STATE_TABLE", "State"]


@dataclass(frozen=True, slots=True)
class State:
    """A state of a thread."""

    name: str
    """As in the API, in metrics and in `enum thread_state`."""
    words: str
    """As people read it."""
    block: str
    """How a bar at the terminal shows it."""
    letter: str
    """How a bar at a terminal without Unicode shows it."""
    style: str
    """Its colour there, as rich names it."""
    phrase: str
    """What a stage in it does, in a sentence; ``{}`` is its share. On a pipe: one that leads out of
    the pipeline, because a wait for another stage is no reason of its own."""
    at_work: bool = False
    """The pipeline only goes on with it: a thread in it holds the others back."""
    busy: bool = False
    """The host works for a stage in it: one that holds the others back is their bottleneck. In
    another state it holds them back without working."""
    idle: bool = False
    """What a thread does that has nothing to do, such as one of a pool."""
    echo: Literal["", "stage", "helper"] = ""
    """It only repeats what another stage does, or a helper of the same stage: a thread or child."""
    from_start: bool = False
    """Its series is exported from the start of a stage, not only once it is above 0."""


#: In the order of the kernel side's `enum thread_state`. Their seconds add up to the lifetimes of
#: a stage's threads. A state is one line.
# fmt: off
STATE_TABLE: tuple[State, ...] = (
    State("cpu", "on CPU", "█", "#", "green", "on CPU {}", at_work=True, busy=True, from_start=True),
    State("runqueue", "no free CPU", "▓", "%", "yellow", "waits for a free CPU {}", at_work=True, busy=True, from_start=True),
    State("pipe_empty", "pipe empty", "░", ".", "blue", "waits {} on a pipe that no other stage feeds", echo="stage", from_start=True),
    State("pipe_full", "pipe full", "▒", "+", "magenta", "waits {} on a pipe that no other stage reads", echo="stage", from_start=True),
    State("disk", "disk", "▚", "D", "red", "waits for disk {}", at_work=True, busy=True, from_start=True),
    State("child", "children", "▄", "c", "cyan", "waits for its own children {}", busy=True, echo="helper"),
    State("lock", "lock", "▌", "l", "bright_yellow", "waits for a lock {}", idle=True, echo="helper"),
    State("poll", "poll", "▖", "p", "bright_black", "waits in poll {}", idle=True),
    State("net", "network", "▞", "n", "bright_cyan", "waits for the network {}", at_work=True),
    State("sleep", "sleep", "·", "z", "bright_black", "asleep {}", idle=True),
    State("stopped", "stopped", "▬", "x", "bright_red", "stopped {}"),
    State("other", "other", "-", "-", "bright_black", "waits outside pipes, disk and network {}"),
)
# fmt: on
