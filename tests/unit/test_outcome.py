# SPDX-License-Identifier: Apache-2.0
"""How stages end, what a run's outcome is, and what is said of it."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

import pytest

from pipelined.analysis.findings import findings
from pipelined.analysis.machine import Host
from pipelined.analysis.outcome_words import (
    brief_outcome,
    exits,
    marked_outcome,
    outcome_sentence,
)
from pipelined.analysis.sentence import beginning, sentence
from pipelined.model.outcome import exit_of, failure_of, outcome_of, stage_outcomes
from pipelined.records.stage import (
    EXIT_OOM,
    EXIT_SEEN,
    EXIT_STOPPED_INSIDE,
    EXIT_STOPPED_OUTSIDE,
)
from pipelined.runs import Edge, Endpoint, Exit, Outcome, Run, Stage
from unit.invented import START, make_barrier, make_run, make_stage

SUCCESS = Exit(code=0)
INSIDE = EXIT_SEEN | EXIT_STOPPED_INSIDE
BOTH = INSIDE | EXIT_STOPPED_OUTSIDE
PIPE = Exit(signal="SIGPIPE")
HARMLESS = {"grep": {1}}
HOST = Host(cores=2, l2_bytes=1 << 20)


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        (0, None),
        (EXIT_SEEN, Exit(code=0)),
        (EXIT_SEEN | 3 << 8, Exit(code=3)),
        (EXIT_SEEN | 255 << 8, Exit(code=255)),
        (EXIT_SEEN | signal.SIGTERM, Exit(signal="SIGTERM")),
        (EXIT_SEEN | 0x80 | signal.SIGSEGV, Exit(signal="SIGSEGV", core_dumped=True)),
        (EXIT_SEEN | EXIT_OOM | signal.SIGKILL, Exit(signal="SIGKILL", out_of_memory=True)),
        (EXIT_SEEN | signal.SIGRTMIN, Exit(signal="SIGRTMIN")),
        (EXIT_SEEN | (signal.SIGRTMIN + 3), Exit(signal="SIGRTMIN+3")),
        (INSIDE, Exit(code=0)),
        (INSIDE | 3 << 8, Exit(code=3)),
        (INSIDE | 141 << 8, Exit(code=141)),
        (INSIDE | 143 << 8, Exit(code=143, from_inside=True)),
        (INSIDE | signal.SIGINT, Exit(signal="SIGINT", from_inside=True)),
        (INSIDE | signal.SIGKILL, Exit(signal="SIGKILL")),
        (BOTH | 143 << 8, Exit(code=143)),
        (BOTH | signal.SIGTERM, Exit(signal="SIGTERM")),
        (EXIT_SEEN | EXIT_STOPPED_OUTSIDE | signal.SIGTERM, Exit(signal="SIGTERM")),
        (EXIT_STOPPED_INSIDE, None),
    ],
)
def test_an_exit_is_what_wait_says(status: int, ended: Exit | None) -> None:
    assert exit_of(status) == ended


def stages(*ends: Exit | None, command: str = "grep") -> list[Stage]:
    return [
        make_stage(number, command, exit=ended, start=START, end=START + 0.015)
        for number, ended in enumerate(ends, 1)
    ]


@pytest.mark.parametrize(
    ("ends", "outcome"),
    [
        ([SUCCESS, SUCCESS], Outcome("succeeded")),
        ([SUCCESS, Exit(code=1)], Outcome("succeeded")),
        ([SUCCESS, Exit(code=2)], Outcome("failed", (1,))),
        ([Exit(code=2), Exit(signal="SIGKILL")], Outcome("failed", (0, 1))),
        ([Exit(signal="SIGKILL", out_of_memory=True), SUCCESS], Outcome("failed", (0,))),
        ([Exit(signal="SIGTERM"), SUCCESS], Outcome("interrupted", (0,))),
        ([Exit(code=130), Exit(code=143)], Outcome("interrupted", (0, 1))),
        ([Exit(code=130), Exit(signal="SIGSEGV")], Outcome("failed", (1,))),
        ([Exit(signal="SIGTERM", from_inside=True), SUCCESS], Outcome("failed", (0,))),
        ([Exit(signal="SIGHUP"), Exit(code=129, from_inside=True)], Outcome("failed", (1,))),
        ([SUCCESS, None], Outcome("unknown", (1,))),
        ([Exit(signal="SIGINT"), None], Outcome("interrupted", (0,))),
        ([PIPE, SUCCESS], Outcome("succeeded")),
        ([Exit(code=141), SUCCESS], Outcome("succeeded")),
        ([SUCCESS, PIPE], Outcome("failed", (1,))),
    ],
)
def test_the_outcome_is_that_of_the_stage_that_decides(
    ends: list[Exit | None], outcome: Outcome
) -> None:
    assert outcome_of(stages(*ends), [Edge(0, 1)], [], HARMLESS) == outcome


def test_a_stage_that_did_what_it_had_to_do_has_succeeded() -> None:
    ends = (PIPE, Exit(code=1), Exit(signal="SIGHUP"), Exit(code=2), None)
    outcomes = stage_outcomes(stages(*ends), [Edge(0, 1)], [], HARMLESS)
    assert outcomes == ["succeeded", "succeeded", "interrupted", "failed", "unknown"]


def test_a_code_is_harmless_for_its_command_alone() -> None:
    assert outcome_of(stages(Exit(code=1), command="awk"), [], [], HARMLESS).result == "failed"


@pytest.mark.parametrize("code", [129, 130, 137, 143])
@pytest.mark.parametrize("from_inside", [False, True])
def test_a_code_that_says_a_signal_may_be_harmless(code: int, from_inside: bool) -> None:
    ended = stages(Exit(code=code, from_inside=from_inside), command="supervise.sh")
    assert outcome_of(ended, [], [], {"supervise.sh": {code}}).result == "succeeded"
    assert outcome_of(ended, [], [], HARMLESS).result != "succeeded"


@pytest.mark.parametrize(
    ("command", "code", "result"),
    [
        ("git", 129, "failed"),
        ("bash", 129, "interrupted"),
        ("nightly", 129, "interrupted"),
        ("git", 143, "interrupted"),
        ("java", 143, "interrupted"),
        ("java", 130, "interrupted"),
    ],
)
def test_that_git_exits_with_129_is_no_hangup(command: str, code: int, result: str) -> None:
    ended = stages(Exit(code=code), command=command)
    assert outcome_of(ended, [], [], {}).result == result
    run = make_run(ended, 0.015, outcome=Outcome(result, (0,)))
    assert ("as a shell does if SIG" in outcome_sentence(run)) == (result == "interrupted")


def test_a_reader_that_is_no_stage_may_have_had_what_it_wanted() -> None:
    reader = Endpoint("bash", "read")
    assert outcome_of(stages(SUCCESS, PIPE), [Edge(0, 1)], [reader], {}).result == "succeeded"


@pytest.mark.parametrize(
    ("ends", "failure"),
    [
        ([Exit(code=3)], "exit"),
        ([Exit(code=137), Exit(code=1)], "exit"),
        ([Exit(code=3), Exit(signal="SIGSEGV")], "signal"),
        ([Exit(signal="SIGKILL", out_of_memory=True), Exit(signal="SIGKILL")], "out_of_memory"),
    ],
)
def test_a_run_has_failed_for_the_gravest_reason_of_its_stages(
    ends: list[Exit], failure: str
) -> None:
    assert failure_of(stages(*ends)) == failure_of(stages(*reversed(ends))) == failure


def ended(outcome: Outcome | None, *ends: Exit | None, **given: Any) -> Run:
    return make_run(stages(*ends, command="perl"), 0.015, outcome=outcome, **given)


@pytest.mark.parametrize(
    ("run", "said", "brief"),
    [
        (ended(None, SUCCESS), "", ""),
        (ended(Outcome("succeeded"), SUCCESS), "", ""),
        (ended(Outcome("unknown", (0,)), None), "", ""),
        (
            ended(Outcome("failed", (1,)), SUCCESS, Exit(signal="SIGKILL")),
            "Failed: perl was killed by SIGKILL after 15 ms;"
            " what follows is of the run as far as it got, without advice.",
            "perl: SIGKILL",
        ),
        (
            ended(Outcome("failed", (0,)), Exit(code=3)),
            "Failed: perl exited with 3 after 15 ms;"
            " what follows is of the run as far as it got, without advice.",
            "perl: exit 3",
        ),
        (
            ended(Outcome("failed", (0,)), Exit(signal="SIGKILL", out_of_memory=True)),
            "Failed: perl was killed by the kernel after 15 ms, as memory had run out;"
            " what follows is of the run as far as it got, without advice.",
            "perl: out of memory",
        ),
        (
            ended(Outcome("failed", (0,)), Exit(signal="SIGSEGV", core_dumped=True)),
            "Failed: perl was killed by SIGSEGV after 15 ms and dumped core;"
            " what follows is of the run as far as it got, without advice.",
            "perl: SIGSEGV",
        ),
        (
            ended(Outcome("failed", (0,)), Exit(signal="SIGTERM", from_inside=True)),
            "Failed: perl was stopped by a process of the run with SIGTERM after 15 ms;"
            " what follows is of the run as far as it got, without advice.",
            "perl: SIGTERM",
        ),
        (
            ended(Outcome("failed", (0,)), Exit(code=143, from_inside=True)),
            "Failed: perl exited with 143 (as a shell does if SIGTERM killed its command; a process"
            " of the run had sent it) after 15 ms; what follows is of the run as far as it got,"
            " without advice.",
            "perl: exit 143",
        ),
        (
            ended(Outcome("interrupted", (0, 1, 2, 3, 4)), *[Exit(signal="SIGINT")] * 5),
            "Interrupted: perl was killed by SIGINT after 15 ms, perl was killed by SIGINT after"
            " 15 ms, perl was killed by SIGINT after 15 ms and 2 more; what follows is of the"
            " run as far as it got, without advice.",
            "perl: SIGINT",
        ),
    ],
)
def test_what_has_not_succeeded_is_said_first(run: Run, said: str, brief: str) -> None:
    assert outcome_sentence(run) == said
    assert brief_outcome(run) == brief
    assert sentence(run).startswith(said)


@pytest.mark.parametrize(
    ("command", "code", "hinted"),
    [("bash", 1, True), ("sh", 1, True), ("bash", 2, False), ("perl", 1, False)],
)
def test_a_loop_whose_last_test_was_false_is_named(command: str, code: int, hinted: bool) -> None:
    """`while read -r l; do [ "$l" ] && echo; done` exits with 1, and has done its work."""
    run = make_run(stages(Exit(code=code), command=command), 0.015, outcome=Outcome("failed", (0,)))
    assert (
        "whose last test was false; not with `true` before `done`" in outcome_sentence(run)
    ) is hinted


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (124, "exited with 124 (as timeout does when time is up) after 15 ms;"),
        (127, "exited with 127 (as a shell does if a command is not found) after 15 ms;"),
        (137, "exited with 137 (as a shell does if SIGKILL killed its command) after 15 ms;"),
        (128, "exited with 128 after 15 ms;"),
        (160, "exited with 160 after 15 ms;"),
        (200, "exited with 200 after 15 ms;"),
        (255, "exited with 255 after 15 ms;"),
    ],
)
def test_a_code_with_a_meaning_says_it(code: int, words: str) -> None:
    assert words in outcome_sentence(ended(Outcome("failed", (0,)), Exit(code=code)))


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("bash", 127, "Failed: a command was not found: bash exited with 127 after 15 ms; what"),
        ("dash", 126, "Failed: a command could not be run: dash exited with 126 after 15 ms; what"),
        ("bash", 3, "Failed: bash exited with 3 after 15 ms; what"),
        ("perl", 127, "Failed: perl exited with 127 (as a shell does if"),
    ],
)
def test_a_command_that_a_shell_did_not_run_is_said_first(
    command: str, code: int, said: str
) -> None:
    run = make_run(stages(Exit(code=code), command=command), 0.015, outcome=Outcome("failed", (0,)))
    assert sentence(run).startswith(said)


def test_of_several_failures_a_command_that_was_not_found_comes_first() -> None:
    killed = stages(Exit(signal="SIGKILL"), command="perl")
    shell = replace(stages(Exit(code=127), command="bash")[0], position=2)
    run = make_run([*killed, shell], 0.015, outcome=Outcome("failed", (0, 1)))
    assert outcome_sentence(run).startswith(
        "Failed: a command was not found: bash exited with 127 after 15 ms and perl was killed by"
    )
    of_live = [replace(stage, outcome="failed") for stage in run.stages]
    assert outcome_sentence(make_run(of_live, 0.015)).startswith("A command was not found: bash ")


def live(*outcomes: str | None) -> Run:
    """A run whose stages have ended so, those with an outcome by SIGKILL."""
    of = stages(*(Exit(signal="SIGKILL") if outcome else None for outcome in outcomes))
    with_outcomes = [replace(s, outcome=o) for s, o in zip(of, outcomes, strict=True)]
    return make_run(with_outcomes, 0.015)


def test_of_a_live_run_the_stages_that_have_failed_already_are_said_first() -> None:
    said = "grep was killed by SIGKILL after 15 ms; the run goes on."
    assert outcome_sentence(live(None, "failed")) == said
    assert sentence(live(None, "failed")).startswith(f"{said} ")
    assert beginning(sentence(live(None, "failed"))) == "grep was killed by SIGKILL after 15 ms"
    assert outcome_sentence(live(None, "succeeded")) == ""
    assert brief_outcome(live(None, "failed")) == ""


def test_stages_that_did_not_succeed_are_counted_by_how_they_ended() -> None:
    killed = live("failed", "interrupted", "succeeded").stages
    assert exits(killed) == "2 × SIGKILL"
    assert exits(killed[:1]) == "SIGKILL"
    other = replace(killed[0], exit=Exit(code=3))
    assert exits((other, killed[1])) == "exit 3, SIGKILL"
    assert exits(killed[2:]) == exits(live(None, None).stages) == ""


def test_a_mark_names_the_result_and_the_first_stage() -> None:
    failed = ended(Outcome("failed", (1,)), SUCCESS, Exit(signal="SIGKILL"))
    assert marked_outcome(failed) == "failed (perl: SIGKILL)"
    assert marked_outcome(ended(Outcome("succeeded"), SUCCESS)) == ""


def test_when_a_stage_ended_is_not_said_if_a_child_may_have_outlived_it() -> None:
    run = ended(Outcome("failed", (0,)), Exit(code=3))
    forked = replace(run, stages=(replace(run.stages[0], forks=1),))
    assert outcome_sentence(forked).startswith("Failed: perl exited with 3; what follows")


def test_when_a_stage_ended_is_not_said_if_the_clock_was_set_meanwhile() -> None:
    run = ended(Outcome("failed", (0,)), Exit(code=3), end=START + 3600.015)
    assert outcome_sentence(run).startswith("Failed: perl exited with 3; what follows")


def test_a_run_that_failed_gets_no_advice() -> None:
    run = make_barrier(1, 1, 20.0)
    assert findings(run, HOST)
    failed = replace(run, outcome=Outcome("failed", (0,)))
    assert findings(failed, HOST) == ()
    assert findings(replace(run, outcome=Outcome("unknown", (0,))), HOST) == findings(run, HOST)
