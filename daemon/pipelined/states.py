# SPDX-License-Identifier: Apache-2.0
"""The states of a thread: the one table of what every part of the program says and draws of each.

docs/CONCEPTS.md defines them. What cannot be derived from this table is held to it by tests: the
enum of bpf/pipelined.h, the colours of page.css, the regular expressions of deploy/prometheus and
dashboards, the tables in docs (tests/unit/test_states.py, test_layout.py).
"""

from __future__ import annotations

from dataclasses import dataclass

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
    """The same in ASCII."""
    style: str
    """Its colour there, as rich names it."""
    at_work: bool = False
    """The pipeline only goes on with it: a thread in it holds the others back."""
    idle: bool = False
    """What a thread does that has nothing to do, such as one of a pool."""
    echo: bool = False
    """It only repeats what another stage or thread does."""
    from_start: bool = False
    """Its series is exported from the start of a stage, not only once it is above 0."""


#: In the order of the kernel side's `enum thread_state`. Their seconds add up to the lifetimes of
#: a stage's threads.
STATE_TABLE: tuple[State, ...] = (
    State("cpu", "on CPU", "█", "#", "green", at_work=True, from_start=True),
    State("runqueue", "no free CPU", "▓", "%", "yellow", at_work=True, from_start=True),
    State("pipe_empty", "pipe empty", "░", ".", "blue", echo=True, from_start=True),
    State("pipe_full", "pipe full", "▒", "+", "magenta", echo=True, from_start=True),
    State("disk", "disk", "▚", "D", "red", at_work=True, from_start=True),
    State("child", "children", "▄", "c", "cyan", echo=True),
    State("lock", "lock", "▌", "l", "bright_yellow", idle=True, echo=True),
    State("poll", "poll", "▖", "p", "bright_black", idle=True),
    State("net", "network", "▞", "n", "bright_cyan", at_work=True),
    State("sleep", "sleep", "·", "z", "bright_black", idle=True),
    State("stopped", "stopped", "▬", "x", "bright_red"),
    State("other", "other", "-", "-", "bright_black"),
)
