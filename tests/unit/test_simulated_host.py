# SPDX-License-Identifier: Apache-2.0
"""Whatever processes a host starts, and whichever ids come again: what is recorded is what was.

The programs of bpf/ run as a shared library on a host that is made up (tests/unit/simulated), under
the daemon's real sweep and model. Hypothesis makes up what the shells of the host run, in which
order their processes are scheduled, and where the daemon sweeps, also in the middle of a program of
the kernel side. The host knows the truth.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from unit.simulated.daemon import FIRST_INTERRUPT, FIRST_MEETING, FIRST_SWEEP, INTERRUPTS, observe
from unit.simulated.library import build
from unit.simulated.programs import (
    Background,
    Builtin,
    Capture,
    Command,
    Conversation,
    Feeder,
    Group,
    Jobs,
    Pipeline,
    Reader,
    Run,
    Tee,
    Wrapped,
)

EXAMPLES = int(os.environ.get("PIPELINED_EXAMPLES", "0"))
"""How many are made up anew each time, instead of the few that are always the same."""

# -- what shells run

Commands = st.SearchStrategy[Command]

times = st.integers(1, 3)
run = st.builds(
    Run,
    st.sampled_from(["cat", "sort", "uniq", "wc"]),
    times,
    st.sampled_from([0.0, 0.0, 0.02, 0.7, 2.5]),
    disk=st.booleans(),
    closes=st.booleans(),
    only_first=st.booleans(),
)
few_runs = st.lists(run, min_size=1, max_size=2).map(tuple)
program = st.one_of(
    run,
    st.builds(Builtin, times),
    st.builds(Wrapped, st.sampled_from(["timeout", "flock"]), run),
)


def some(each: Commands, least: int, most: int) -> st.SearchStrategy[tuple[Command, ...]]:
    return st.lists(each, min_size=least, max_size=most).map(tuple)


def pipelines(part: Commands) -> Commands:
    return st.builds(Pipeline, some(part, 2, 3))


def listed(part: Commands) -> Commands:
    """What may stand in a list of commands."""
    either = st.one_of(pipelines(part), part)
    return st.one_of(
        either,
        st.builds(Background, either, st.booleans()),
        st.builds(Capture, either),
        st.builds(Jobs, run, run, times),
        st.builds(Reader, few_runs),
        st.builds(Feeder, few_runs),
        st.builds(Conversation, run),
    )


def left_behind(part: Commands) -> Commands:
    """A subshell that ends before what it has started: the ids that it had come again below it."""
    later = st.builds(Background, st.builds(Group, some(listed(part), 2, 4)), st.booleans())
    return st.builds(Group, st.tuples(later))


parts = st.one_of(
    program,
    left_behind(program),
    st.builds(Tee, few_runs, times),
    st.builds(Group, some(listed(program), 1, 3)),
)
script = st.builds(Group, some(st.one_of(pipelines(parts), listed(parts)), 1, 3))
scripts = st.lists(st.tuples(st.sampled_from(["bash", "sh"]), script), min_size=1, max_size=2)


@dataclass(frozen=True)
class Scenario:
    scripts: list[tuple[str, Command]]
    """What shells run at the same time, and which shells."""
    schedule: bytes
    """What happens next, one step after the other; then every process runs to its end in turn."""
    starving: bool = False

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        # how Hypothesis itself would print nested commands takes minutes
        printer.text(repr(self))


#: Between the innermost pipeline and the one around it lies a stage that is in no pipeline.
NESTED_LATE = Pipeline(
    (
        Run("cat"),
        Group((Background(Group((Run("cat"), Capture(Pipeline((Run("sort"), Run("wc"))))))),)),
    )
)


def nested(scripts: int) -> Command:
    """So many scripts, each of which asks the next one: two stages further in each time."""
    inner: Command = Group((Run("sort", seconds=0.7), Run("wc")))
    for _ in range(scripts):
        inner = Group((Capture(Pipeline((inner, Run("uniq")))), Run("cat")))
    return Pipeline((inner, Run("wc")))


#: The shell has forked the first stage, which runs to its end; so the next one gets its id.
ONE_ID = bytes([0] * 5 + [145] * 3)

#: A subshell that is a stage, and forks.
FORKING = Pipeline((Group((Pipeline((Run("sort"), Run("cat"))), Run("uniq"))), Run("wc")))


#: wc may exit while the shell that becomes sort still has tee's stdout as its own.
SUBSTITUTED = Pipeline((Run("cat"), Tee((Run("sort"),)), Run("wc", only_first=True)))

#: Until wc is about to exit, and that shell to become sort.
BEFORE_BOTH = bytes([0, 0, 0, 128, 1, 0, 1, 39, 12, 65, 2, 0, 0, 62, 85, 2, 3, 181, 73, 135, 0])


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    starving = draw(st.sampled_from([False, False, False, True]))
    return Scenario(draw(scripts), draw(st.binary(max_size=300)), starving)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build(tmp_path_factory.mktemp("programs"))


@settings(max_examples=EXAMPLES or 200, derandomize=not EXAMPLES)
@example(Scenario([("bash", Group((Pipeline((Run("cat"), Run("wc"))),)))], ONE_ID))
@example(Scenario([("bash", Group((Conversation(Run("cat", closes=True)),)))], b""))
@example(Scenario([("bash", Group((NESTED_LATE,)))], b""))
@example(Scenario([("bash", Group((nested(4),)))], b""))
@given(scenario=scenarios())
def test_what_is_recorded_is_what_was(programs: ctypes.CDLL, scenario: Scenario) -> None:
    observe(programs, scenario.scripts, scenario.schedule, starving=scenario.starving)


def test_a_sweep_may_come_in_the_middle_of_any_program(programs: ctypes.CDLL) -> None:
    for calls in range(INTERRUPTS):
        schedule = bytes(FIRST_INTERRUPT + (calls + at // 7) % INTERRUPTS for at in range(150))
        observe(programs, [("bash", Group((FORKING,)))], schedule)


def test_a_pipe_may_be_left_in_the_middle_of_the_program_that_joins_it(
    programs: ctypes.CDLL,
) -> None:
    """Or of any other program of that moment: sort writes nothing to wc."""
    for meeting in range(FIRST_MEETING, FIRST_INTERRUPT):
        for sweeps in range(7):
            schedule = BEFORE_BOTH + bytes([FIRST_SWEEP] * sweeps + [meeting])
            observe(programs, [("bash", Group((SUBSTITUTED,)))], schedule, meeting=True)
