# SPDX-License-Identifier: Apache-2.0
"""The live view: what a frame says, how it fits, and how the terminal gets back."""

from __future__ import annotations

import io
import itertools
import os
import pty
import signal
import termios
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import TextIO

import pytest
from rich.console import Console

from pipelined.errors import UserError
from pipelined.runs import Exit, Identity, Outcome, Run, Series, Stage
from pipelined.terminal.keys import single_keys
from pipelined.terminal.top import Snapshot, frame, run_top
from unit import invented
from unit.invented import START, make_stage


def make_run(name: str, wall: float, *stages: Stage, end: float | None = None) -> Run:
    series = Series(
        pipeline="|".join(stage.command for stage in stages), nested=False, unit="cron.service"
    )
    return invented.make_run(stages, wall, id=name, series=series, end=end)


@pytest.fixture
def then() -> Run:
    """After 10 s: cat was busy and awk waited for it."""
    return make_run(
        "1", 10.0, make_stage(1, "cat", cpu=9, disk=1), make_stage(2, "awk", cpu=1, pipe_empty=9)
    )


@pytest.fixture
def now() -> Run:
    """2 s later: awk is busy and cat waits for it."""
    return make_run(
        "1",
        12.0,
        make_stage(1, "cat", cpu=9.2, disk=1, pipe_full=1.8),
        make_stage(2, "awk", cpu=3, pipe_empty=9),
    )


def ended(name: str, command: str, ago: float) -> Run:
    return make_run(
        name,
        3.0,
        make_stage(1, "cat", cpu=0.3, pipe_full=2.7),
        make_stage(2, command, cpu=3),
        end=START + 12 - ago,
    )


def text_of(
    runs: list[Run],
    before: list[Run] | None = None,
    *,
    width: int = 100,
    height: int | None = None,
    problem: str = "",
    ascii_only: bool = False,
) -> str:
    latest = Snapshot(runs, START + 12, problem)
    previous = Snapshot(runs if before is None else before, START + 10)
    shown = frame(latest, previous, "host1", width, height, ascii_only=ascii_only)
    return "\n".join(line.plain for line in shown)


def test_the_header_counts_live_and_finished_runs(now: Run) -> None:
    first = text_of([now, ended("2", "gzip", 5)]).splitlines()[0]
    assert first.startswith("pipelined top   host1   1 live   1 finished lately")


def job(*, end: float | None = None) -> Run:
    return make_run(
        "10", 90.0, make_stage(1, "job.sh", child=90), make_stage(2, "tee", poll=90), end=end
    )


def inside(outer: Run, run: Run) -> Run:
    """The run as one in a stage of `outer`."""
    return replace(
        run,
        series=replace(run.series, nested=True),
        parent=outer.id,
        parent_pipeline=outer.pipeline,
    )


def test_the_header_counts_nested_runs_apart(now: Run) -> None:
    nested = [inside(job(), ended(str(number), "gzip", 5)) for number in range(20, 23)]
    first = text_of([job(), inside(job(), now), *nested]).splitlines()[0]
    assert first.startswith(
        "pipelined top   host1   1 live + 1 nested   0 finished lately + 3 nested   "
    )


def test_a_header_that_does_not_fit_takes_two_lines(now: Run) -> None:
    name, counts, *_ = text_of([job(), inside(job(), now)], width=60).splitlines()
    assert name == "pipelined top   host1"
    assert counts.startswith("1 live + 1 nested   0 finished lately   ")


def killed(run: Run, index: int = 1) -> Run:
    """The run, in which a stage was killed."""
    stages = list(run.stages)
    stages[index] = replace(stages[index], exit=Exit(signal="SIGKILL"), outcome="failed")
    outcome = None if run.live else Outcome("failed", (index,))
    return replace(run, stages=tuple(stages), outcome=outcome)


def test_a_finished_run_that_failed_says_so_before_its_bottleneck(now: Run) -> None:
    runs = [killed(ended("2", "gzip", 4)), ended("3", "xz", 5)]
    failed, well = text_of([now, *runs], width=140).splitlines()[-2:]
    assert "failed (gzip: SIGKILL), gzip: CPU 100 %" in failed
    assert "xz: CPU 100 %" in well
    assert "failed" not in well
    assert "failed (gzip: SIGKILL)" in text_of([now, *runs], width=80).splitlines()[-2]


def test_of_several_finished_runs_it_says_how_many_did_not_succeed(now: Run) -> None:
    runs = [inside(job(), ended(str(number), "gzip", 5)) for number in range(20, 23)]
    runs[2] = killed(replace(runs[2], wall_seconds=1.0, end=START + 5))
    assert "1 of 3 did not succeed, gzip: CPU" in text_of([now, *runs, job()], width=140)
    assert text_of([now, *runs, job()], width=60).rstrip().endswith("1 of 3")


def test_it_says_so_in_a_narrow_terminal(now: Run) -> None:
    lines = text_of([now, killed(ended("2", "gzip", 4)), ended("3", "xz", 5)], width=60)
    heading, failed, well = lines.splitlines()[-3:]
    assert heading.split()[-1] == "failure"
    assert failed.rstrip().endswith("gzip: SIGKILL")
    assert well.rstrip().endswith("5 s ago")
    assert "failure" not in text_of([now, ended("3", "xz", 4)], width=60)
    assert all(len(line) <= 60 for line in lines.splitlines())


def of(run: Run, user: str, **variables: str) -> Run:
    known = Identity(host="h", boot_id="b", uid=sum(map(ord, user)), user=user, variables=variables)
    return replace(run, identity=known)


def test_runs_of_different_users_and_jobs_say_whose_they_are(now: Run) -> None:
    finished = of(ended("2", "gzip", 5), "app")
    text = text_of([of(now, "root", SLURM_JOB_ID="4711"), finished], width=120)
    live, below = text.split("FINISHED")
    assert live.splitlines()[2].split()[:3] == ["LIVE", "unit", "identity"]
    assert " job 4711 " in live.splitlines()[3]
    assert " user app " in below.splitlines()[1]


def test_what_all_runs_have_is_not_repeated(now: Run) -> None:
    assert "root" not in text_of([of(now, "root"), of(ended("2", "gzip", 5), "root")], width=160)


def test_where_there_is_no_room_for_a_column_it_is_behind_the_bars(now: Run) -> None:
    runs = [of(now, "root", BUILD_TAG="jenkins-etl-42"), of(ended("2", "gzip", 5), "root")]
    heading, row, bars = text_of(runs, width=60).splitlines()[2:5]
    assert "job" not in heading + row
    assert bars.rstrip().endswith("job jenkins-etl-42")


def test_a_stage_of_a_live_run_that_has_died_says_how(now: Run, then: Run) -> None:
    row = text_of([killed(now)], [then]).splitlines()[4]
    assert ">awk SIGKILL " in row
    assert "SIGKILL" not in text_of([now], [then])


def test_a_nested_run_stands_under_the_one_that_encloses_it(now: Run) -> None:
    deeper = inside(now, ended("11", "xz", 0))
    deeper = replace(deeper, end=None)
    idle = make_run("9", 12.0, make_stage(1, "tail", poll=12), make_stage(2, "less", poll=12))
    text = text_of([job(), idle, inside(job(), now), deeper])
    names = ["job.sh|tee", "└ cat|awk", "  └ cat|xz"]
    rows = [line for line in text.splitlines() if line.lstrip("└ ").startswith(("job.sh|", "cat|"))]
    assert [row[:16].rstrip() for row in rows] == names
    bars = [len(line) - len(line.lstrip()) for line in text.splitlines() if " tee " in line][:1]
    assert bars == [3]


def test_finished_runs_inside_a_live_one_name_it_and_equal_ones_are_one_line() -> None:
    runs = [inside(job(), ended(f"1-{number}", "gzip", number)) for number in range(40)]
    for ascii_only, mark in ((False, "×"), (True, "x")):
        finished = text_of([job(), *runs], ascii_only=ascii_only).partition("FINISHED")[2]
        (line,) = finished.splitlines()[1:]
        assert line.startswith(f"40 {mark} cat|gzip in job.sh|tee  ")


def test_finished_runs_inside_a_finished_one_stand_under_it() -> None:
    runs = [inside(job(), ended(str(number), "gzip", number)) for number in range(1, 5)]
    finished = text_of([*runs, ended("8", "xz", 0), job(end=START + 11.5)])
    names = [line[:20].rstrip() for line in finished.partition("FINISHED")[2].splitlines()[1:]]
    assert names == ["cat|xz", "job.sh|tee", "└ 4 × cat|gzip"]


def test_a_live_run_shows_cores_of_the_interval_and_of_the_whole_run(then: Run, now: Run) -> None:
    row = next(line for line in text_of([now], [then]).splitlines() if line.startswith("cat|awk"))
    assert row.split()[1:5] == ["12.0", "s", "1.1", "1.0"]


def test_without_an_earlier_fetch_the_interval_is_unknown(now: Run) -> None:
    row = next(line for line in text_of([now], []).splitlines() if line.startswith("cat|awk"))
    assert row.split()[3] == "-"


def test_the_bottleneck_is_that_of_the_interval(then: Run, now: Run) -> None:
    assert "awk: CPU 100 %" in text_of([now], [then])


def test_the_bottleneck_is_marked_where_its_column_does_not_fit(then: Run, now: Run) -> None:
    assert ">awk █" in text_of([now], [then], width=60)


def test_the_run_that_has_run_longest_comes_first_however_idle(then: Run, now: Run) -> None:
    idle = make_run("9", 13.0, make_stage(1, "tail", poll=13), make_stage(2, "less", poll=13))
    text = text_of([now, replace(idle, start=now.start - 1)], [then])
    assert text.index("tail|less") < text.index("cat|awk")


def test_finished_runs_come_latest_first_with_their_age(now: Run) -> None:
    text = text_of([now, ended("2", "gzip", 8), ended("3", "xz", 3)])
    assert text.index("cat|xz") < text.index("cat|gzip")
    assert "3 s ago" in text and "8 s ago" in text


def test_nothing_live_is_reported(now: Run) -> None:
    assert "No pipeline is running." in text_of([])


def test_a_failed_fetch_is_reported_above_the_last_answer(now: Run) -> None:
    text = text_of([now], problem="cannot reach the daemon")
    assert "No answer since" in text and "cannot reach the daemon" in text and "cat|awk" in text


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
@pytest.mark.parametrize("height", [8, 12, 24, 50])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_a_frame_fits_the_terminal(
    then: Run, now: Run, width: int, height: int, ascii_only: bool
) -> None:
    live = [replace(now, id=str(n)) for n in range(30)]
    done = [ended(f"f{n}", "a-rather-long-command", n) for n in range(30)]
    previous = [replace(then, id=str(n)) for n in range(30)]
    text = text_of([*live, *done], previous, width=width, height=height, ascii_only=ascii_only)
    assert len(text.splitlines()) <= height
    assert max(map(len, text.splitlines())) <= width
    assert text.isascii() or not ascii_only


def test_runs_that_do_not_fit_are_counted(now: Run) -> None:
    text = text_of([replace(now, id=str(n)) for n in range(30)], height=20)
    shown = sum(line.startswith("cat|awk") for line in text.splitlines())
    assert f"… {30 - shown} more" in text and shown > 3


def test_many_live_runs_leave_room_for_finished_ones(now: Run) -> None:
    live = [replace(now, id=str(n)) for n in range(30)]
    assert "cat|gzip" in text_of([*live, ended("2", "gzip", 5)], height=24)


def test_parallel_branches_share_a_small_bar() -> None:
    filters = [replace(make_stage(2, "bash", cpu=10), pid=n) for n in range(12)]
    run = make_run("1", 10.0, make_stage(1, "split", pipe_full=10), *filters)
    assert "bash×12 ████████████" in text_of([run], width=100)


def test_names_cannot_send_control_codes(now: Run) -> None:
    evil = replace(now, stages=(replace(now.stages[0], command="x\x1b[2J"), now.stages[1]))
    assert "\x1b" not in text_of([evil], problem="the daemon answers: \x1b[2J")


def test_once_prints_one_frame_without_control_codes(then: Run, now: Run) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100)
    answers = iter([[then], [now]])
    run_top(lambda: next(answers), console, 0.01, once=True, host="host1")
    assert "\x1b" not in file.getvalue() and "awk: CPU 100 %" in file.getvalue()


def test_a_console_that_is_no_terminal_gets_one_frame(now: Run) -> None:
    file = io.StringIO()
    run_top(lambda: [now], Console(file=file, width=100), 0.01)
    assert file.getvalue().count("pipelined top") == 1


def test_a_first_fetch_that_fails_goes_to_the_caller() -> None:
    def fetch() -> list[Run]:
        raise UserError("cannot reach the daemon", "start it: pipelined serve")

    with pytest.raises(UserError):
        run_top(fetch, Console(file=io.StringIO()), 0.01, once=True)


@pytest.fixture
def terminal() -> Iterator[tuple[int, TextIO]]:
    """A pseudo terminal: (our end, the program's end). What is drawn is thrown away."""
    ours, theirs = pty.openpty()

    def drain() -> None:
        while True:
            try:
                if not os.read(ours, 65536):
                    return
            except OSError:
                return

    reader = threading.Thread(target=drain, daemon=True)
    reader.start()
    with open(theirs, "w", encoding="utf-8") as file:
        yield ours, file
    reader.join(5)
    os.close(ours)


def view(file: TextIO, now: Run, leave: Callable[[], object], out: TextIO | None = None) -> int:
    """Shows the run until `leave`, called in each third fetch, ends that; returns the fetches.

    Keys come from `file`; what is drawn goes there too, or to `out`.
    """
    console = Console(file=out or file, force_terminal=True, width=80, height=24)
    fetches = 0

    def fetch() -> list[Run]:
        nonlocal fetches
        fetches += 1
        if fetches % 3 == 0:
            leave()
        return [now]

    run_top(fetch, console, 0.05, keys=file)
    return fetches


def test_q_ends_the_view_and_restores_the_terminal(terminal: tuple[int, TextIO], now: Run) -> None:
    ours, file = terminal
    before = termios.tcgetattr(file.fileno())
    assert view(file, now, partial(os.write, ours, b"q")) > 2
    assert termios.tcgetattr(file.fileno()) == before


#: What F2 sends, alone, with Shift as xterm and as an old one has it, and held down; an arrow.
SEQUENCES = [b"\x1bOQ", b"\x1b[1;2Q", b"\x1bO2Q", b"\x1bOQ" * 400, b"\x1b[A"]


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_what_a_function_key_sends_is_no_character(
    terminal: tuple[int, TextIO], sequence: bytes
) -> None:
    ours, file = terminal
    with single_keys(file) as pressed:
        os.write(ours, sequence)
        assert pressed(60.0) == ""
        os.write(ours, b"x" + sequence + b"Q")
        assert pressed(60.0) == "xQ"


def test_f2_does_not_end_the_view_and_q_after_another_key_does(
    terminal: tuple[int, TextIO], now: Run
) -> None:
    ours, file = terminal
    sent = itertools.chain([b"\x1bOQ", b"\x1b[1;2Q"], itertools.repeat(b"xQ"))
    assert view(file, now, lambda: os.write(ours, next(sent))) >= 9


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_the_view_and_restore_the_terminal(
    terminal: tuple[int, TextIO], now: Run, number: signal.Signals
) -> None:
    _, file = terminal
    before = termios.tcgetattr(file.fileno())
    handler = signal.getsignal(number)
    assert view(file, now, partial(os.kill, os.getpid(), number)) == 3
    assert termios.tcgetattr(file.fileno()) == before
    assert signal.getsignal(number) == handler


def test_ctrl_z_restores_the_terminal_and_the_view_goes_on_afterwards(
    terminal: tuple[int, TextIO], now: Run
) -> None:
    ours, file = terminal
    before = termios.tcgetattr(file.fileno())
    out = io.StringIO()
    stopped: list[bool] = []
    drawn: list[str] = []

    def stop(number: int, stack: FrameType | None) -> None:
        stopped.append(termios.tcgetattr(file.fileno()) == before)
        drawn.append(out.getvalue())

    def leave() -> None:
        if stopped:
            os.write(ours, b"q")
        else:
            signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)

    handler = signal.signal(signal.SIGTSTP, stop)
    try:
        view(file, now, leave, out)
    finally:
        signal.signal(signal.SIGTSTP, handler)
    assert stopped == [True]
    drawn.append(out.getvalue()[len(drawn[0]) :])
    for part in drawn:
        assert part.count("\x1b[?1049h") == part.count("\x1b[?1049l") == 1
        assert part.rindex("\x1b[?25h") > part.rindex("\x1b[?25l")


def test_a_later_fetch_that_fails_is_tried_again(terminal: tuple[int, TextIO], now: Run) -> None:
    ours, file = terminal
    calls = 0

    def fetch() -> list[Run]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise UserError("cannot reach the daemon")
        if calls == 4:
            os.write(ours, b"q")
        return [now]

    run_top(fetch, Console(file=file, force_terminal=True), 0.02, keys=file)
    assert calls >= 4


def test_the_view_is_quick_to_leave(terminal: tuple[int, TextIO], now: Run) -> None:
    ours, file = terminal
    fetched: list[float] = []

    def fetch() -> list[Run]:
        fetched.append(time.monotonic())
        if len(fetched) == 2:  # the first update: it follows soon
            os.write(ours, b"q")
        return [now]

    run_top(fetch, Console(file=file, force_terminal=True), 60.0, keys=file)
    assert time.monotonic() - fetched[1] < 30.0  # and not when the next update comes
