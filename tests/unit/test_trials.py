# SPDX-License-Identifier: Apache-2.0
"""Commands run in turn, with a made-up observer: order, outputs, failures, signals, the prompt."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from pipelined import cli
from pipelined.analysis.comparison import OUTPUTS
from pipelined.commands import standard_error
from pipelined.commands.compare import RUN_WORD
from pipelined.commands.compare import compare as command
from pipelined.errors import UserError
from pipelined.history.history import History
from pipelined.run import measured_child, profile
from pipelined.run.child import Ended, StoppedError, start
from pipelined.run.profile import NewRuns, Profile
from pipelined.run.trials import Plan, run_trials
from pipelined.runs import Exit, Outcome, Run, Series
from pipelined.runs.codec import written
from unit.invented import START, make_finished, make_run, make_stage
from unit.observed import HOST, FakeObserver


def finished(name: str, wall: float = 1.0) -> Run:
    return make_run([make_stage(1, "awk", cpu=wall)], wall, id=name, end=START + wall)


def compare(*commands: str, **plan: Any) -> Any:
    observer: Any = FakeObserver()
    return run_trials(Plan(commands, **plan), open_observer=lambda: observer)


def failure_of(*commands: str, **plan: Any) -> str:
    with pytest.raises(UserError) as error:
        compare(*commands, **plan)
    return str(error.value)


# -- how they run


def test_they_run_in_turns_and_the_order_turns(tmp_path: Path) -> None:
    log = tmp_path / "log"
    compare(f"echo A >> {log}", f"echo B >> {log}", rounds=3, warm_up=1)
    assert log.read_text().split() == ["A", "B", "B", "A", "A", "B", "B", "A"]


def test_the_warm_up_is_not_measured(tmp_path: Path) -> None:
    assert compare("true", "true", rounds=2, warm_up=3).rounds == 2


def test_one_observer_sees_them_all() -> None:
    observer: Any = FakeObserver()
    run_trials(Plan(("true", "true")), open_observer=lambda: observer)
    assert observer.calls.count("start") == observer.calls.count("close") == 1


def test_each_command_is_a_string_for_a_shell() -> None:
    found = compare("echo $0 > /dev/null", "[ $0 = sh ]", rounds=1, shell="sh")
    assert [side.name for side in found.sides] == ["echo $0 > /dev/null", "[ $0 = sh ]"]


def test_they_have_no_input() -> None:
    compare("cat", "true", rounds=1)


def test_what_they_print_is_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    compare("echo out; echo err >&2", "echo out", rounds=1)
    assert capfd.readouterr() == ("", "")


def test_much_output_does_not_hold_them_back() -> None:
    compare("head -c 30000000 /dev/zero", "head -c 30000000 /dev/zero | cat", rounds=1)


def test_progress_is_reported_before_each_execution() -> None:
    steps: list[str] = []

    @contextlib.contextmanager
    def show(total: int) -> Iterator[Callable[[str], object]]:
        steps.append(str(total))
        yield steps.append

    observer: Any = FakeObserver()
    plan = Plan(("true", "true"), rounds=1)
    run_trials(plan, open_observer=lambda: observer, show_progress=show)
    assert steps == ["4", "A in the warm-up", "B in the warm-up", "B in round 1", "A in round 1"]


def test_files_are_made_warm_before_each_execution(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(1_000_000))
    assert compare("echo", "echo", rounds=1, warm=(file,)).caveats[:-1] == ()


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no tmpfs here")
def test_a_file_that_cannot_be_made_cold_is_reported() -> None:
    file = Path(f"/dev/shm/pipelined-trials-{os.getpid()}")
    try:
        file.write_bytes(bytes(10_000))
        caveats = compare("true", "true", rounds=1, warm_up=0, cold=(file,)).caveats
    finally:
        file.unlink()
    assert caveats[0].startswith(f"not cold: the host kept 100 % of {file} in the page cache")


def test_a_file_cannot_be_cold_and_warm(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = failure_of("true", "true", cold=(tmp_path,), warm=(tmp_path / "file",))
    assert message.startswith(f"{tmp_path}/file is to be cold and warm")


# -- what is seen


def test_only_what_is_new_is_collected() -> None:
    observer: Any = FakeObserver()
    new_runs = NewRuns(observer)
    observer.seen, observer.lost_stages = [finished("1")], 2
    first = new_runs.collect()
    observer.seen, observer.lost_stages = [finished("1"), finished("2")], 5
    second = new_runs.collect()
    assert [[run.id for run in runs] for runs, _ in (first, second)] == [["1"], ["2"]]
    assert [lost for _, lost in (first, second)] == [
        {"stages": 2, "runs": 0},
        {"stages": 3, "runs": 0},
    ]


def test_runs_that_are_no_longer_kept_are_lost_unless_they_were_collected() -> None:
    observer: Any = FakeObserver()
    new_runs = NewRuns(observer)
    live = make_run([make_stage(1, "gzip", cpu=1.0)], 1.0, id="live")
    observer.seen, observer.ended_before = [finished("8"), live], 7
    first, lost = new_runs.collect()
    assert (len(first), lost["runs"]) == (2, 7)
    # the same ones have gone on, and one that was not collected
    observer.seen, observer.ended_before = [finished("live"), finished("9")], 9
    second, lost = new_runs.collect()
    assert ([run.id for run in second], lost["runs"]) == (["9"], 1)


def test_stages_that_went_on_hold_the_next_command_back_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(profile, "GRACE", 0.05)
    observer: Any = FakeObserver()
    new_runs = NewRuns(observer)
    observer.seen = [make_run([make_stage(1, "gzip", cpu=1.0)], 1.0, id="live")]
    new_runs.collect()
    settled = observer.calls.count("settle")
    new_runs.collect()
    assert observer.calls.count("settle") == settled + 1


def test_pipelines_inside_another_one_are_not_counted() -> None:
    observer: Any = FakeObserver()
    inner = replace(
        finished("2", 0.5), series=Series(pipeline="seq|wc", nested=True, unit="-"), parent="1"
    )
    observer.seen = [finished("1"), inner]
    plan = Plan(("true", "true"), rounds=1, warm_up=0)
    found = run_trials(plan, open_observer=lambda: observer)
    assert found.sides[0].pipeline == "awk"
    assert not any("pipelines" in caveat for caveat in found.caveats)


def test_a_pipeline_in_a_command_that_does_not_succeed_is_a_caveat() -> None:
    """The shell passes on the status of the last stage only."""
    observer: Any = FakeObserver()
    killed = make_stage(1, "perl", cpu=0.1, exit=Exit(signal="SIGKILL"), outcome="failed")
    failed = make_run([killed], 0.5, id="2", end=START + 0.5, outcome=Outcome("failed", (0,)))
    observer.seen = [finished("1"), failed]
    plan = Plan(("true", "true"), rounds=1, warm_up=0)
    found = run_trials(plan, open_observer=lambda: observer)
    assert any("failed (perl: SIGKILL); it may have done" in one for one in found.caveats)


def test_the_parts_of_the_report_count_the_runs_that_did_not_succeed() -> None:
    def ended(number: int, result: str) -> Run:
        return replace(finished(str(number)), outcome=Outcome(result, (0,)))

    results = ("failed", "succeeded", "failed", "interrupted")
    runs = tuple(ended(number, result) for number, result in enumerate(results))
    file = io.StringIO()
    command = Ended(0, START, 1.0, 0.5)
    profile.write_json(Profile(("awk",), command, runs, {"stages": 0}), file)
    (part,) = json.loads(file.getvalue())["parts"]
    assert (part["runs"], part["failed_runs"], part["interrupted_runs"]) == (4, 2, 1)


def test_cpu_time_of_runs_counts_although_nobody_waited_for_their_processes() -> None:
    outer = finished("1", 0.7)
    inner = replace(finished("2", 0.6), parent="1")
    assert profile.command_cpu_seconds(0.2, [outer, inner]) == pytest.approx(0.7)
    assert profile.command_cpu_seconds(2.0, [outer, inner]) == pytest.approx(2.0)


def test_the_report_as_json_has_verdict_and_findings() -> None:
    file = io.StringIO()
    ended = Ended(3, START, 1.0, 0.5)
    profile.write_json(Profile(("awk",), ended, (finished("1"),), {"stages": 0}), file)
    report = json.loads(file.getvalue())
    (described,) = report["runs"]
    times = [report[f"{name}_seconds"] for name in ("wall", "cpu", "covered")]
    assert (report["exit_status"], times) == (3, [1.0, 0.5, 1.0])
    (part,) = report["parts"]
    assert (part["pipeline"], part["runs"], part["longest_run"]) == ("awk", 1, "1")
    assert described["id"] == "1"
    assert described["verdict"] == "awk runs alone: on CPU 100 % of the run."
    assert isinstance(described["findings"], list)


# -- what ends a comparison


def test_a_command_that_fails_is_reported_with_its_last_line_of_stderr() -> None:
    message = failure_of("true", "echo first >&2; echo no such host >&2; exit 3")
    assert message.startswith("B failed in the warm-up with exit status 3: no such host; ")


def test_a_command_that_is_killed_fails() -> None:
    assert failure_of("kill -KILL $$", "true").startswith(
        "A failed in the warm-up with exit status 137; "
    )


def test_a_failure_in_a_later_round_is_reported(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    message = failure_of("true", f"[ ! -e {mark} ] && touch {mark}")
    assert message.startswith("B failed in round 1 with exit status 1; ")


def test_a_shell_that_does_not_exist_is_reported() -> None:
    assert failure_of("true", "true", shell="no-such-shell").startswith(
        "cannot run no-such-shell: not found"
    )


def test_outputs_that_differ_are_reported() -> None:
    assert failure_of("echo a", "echo ab").startswith(
        "the outputs differ: in line 1 A prints 'a', B prints 'ab' (A 2 bytes, B 3); nothing is "
        "compared; if that is right, accept it with --match any"
    )


def test_outputs_that_differ_are_reported_with_what_was_printed_on_stderr() -> None:
    """The shell passes on the status of the last stage only."""
    message = failure_of("echo a", "echo first >&2; no-such-command | cat")
    assert (
        "B prints nothing more (A 2 bytes, B 0); B exited with 0, and printed on stderr: "
        in message
    )
    assert "no-such-command: command not found; nothing is compared; " in message


def test_what_is_shown_of_stderr_has_a_bound_and_no_control_codes() -> None:
    message = failure_of("true", r"printf '\e[31m%0300d\n' 1 >&2; exit 1")
    assert f" 1: ?[31m{'0' * 194}…; nothing is compared" in message


def test_what_a_side_prints_on_stderr_is_noted_if_its_output_is_accepted() -> None:
    found = compare("echo a", "no-such-command | cat", rounds=2, match="any")
    assert any("B exited with 0, but printed on stderr in 2 of 2" in one for one in found.caveats)


def test_outputs_of_one_size_may_differ() -> None:
    assert failure_of("echo a", "echo b").startswith(
        "the outputs differ: in line 1 A prints 'a', B prints 'b' (A 2 bytes, B 2); "
    )


def test_an_output_that_changes_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "log"
    message = failure_of(f"echo >> {log}; cat {log}", "echo", warm_up=0)
    assert message.startswith(
        "A does not print the same each time: in line 2 it first prints nothing more, then ''; "
    )


def test_the_first_output_that_differs_ends_the_comparison(tmp_path: Path) -> None:
    log = tmp_path / "log"
    failure_of(f"echo A >> {log}; echo 1", f"echo B >> {log}; echo 2", f"echo C >> {log}; echo 1")
    assert log.read_text().split() == ["A", "B"]


LINES = "seq 3 | tac", "seq 3"


def test_lines_in_another_order_are_reported() -> None:
    assert failure_of(*LINES).startswith(
        "A and B print the same lines in another order: in line 1 A prints '3', B prints '1'; "
        "nothing is compared; if that is right, accept it with --match lines"
    )


def test_without_a_warm_up_it_is_not_known_whether_only_the_order_differs() -> None:
    or_lines = "--match any, or with --match lines if only their order differs"
    assert failure_of(*LINES, warm_up=0).endswith(or_lines)
    assert failure_of("seq 3", "seq 4", warm_up=0).endswith("--match any")
    assert failure_of("seq 3", "seq 2 4", warm_up=1).endswith("--match any")


def test_what_prints_nothing_is_not_compared_and_that_is_said(tmp_path: Path) -> None:
    def noted(*commands: str) -> bool:
        note = "nothing was printed: whether they do the same work was not compared"
        return note in compare(*commands, rounds=1, warm_up=0).caveats

    assert noted(f"seq 3 > {tmp_path}/a", f"seq 4 > {tmp_path}/b")
    assert not noted("seq 3", "seq 3 | cat")


def test_a_command_whose_lines_change_places_is_named(tmp_path: Path) -> None:
    turns = f"if [ -e {tmp_path}/again ]; then seq 3; else seq 3 | tac; touch {tmp_path}/again; fi"
    assert failure_of(turns, "seq 3 | tac", warm_up=2).startswith(
        "A prints the same lines in another order each time: in line 1 it first prints '3', then"
    )


def test_lines_in_any_order_can_be_accepted() -> None:
    assert compare(*LINES, rounds=2, match="lines").outputs == "lines"
    assert compare("seq 3", "seq 3", rounds=2, match="lines").outputs == "same"
    assert "accept it with --match any" in failure_of("seq 3", "seq 4", match="lines")


def test_any_output_can_be_accepted() -> None:
    assert compare(*LINES, rounds=1, warm_up=0, match="any").outputs == "any"
    assert compare("true", "true", "echo", rounds=1, match="any").outputs == "any"
    assert compare("true", "true", rounds=1, match="any").outputs == "same"


def test_the_ways_to_match_are_those_that_are_known() -> None:
    (option,) = (option for option in command.params if option.name == "match")
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == OUTPUTS


def test_a_process_that_may_still_print_is_reported_and_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    message = failure_of("true", f"sleep 600 & echo $! > {pid}", warm_up=0)
    assert message.startswith("B left a process behind that may still print; ")
    assert not is_running(int(pid.read_text()))


def is_running(pid: int, patience: float = 10) -> bool:
    """Whether a process is still there and no zombie, after it has had time to go."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        if state in "ZX":
            return False
        time.sleep(0.01)
    return True


COMPARE = textwrap.dedent(
    """
    import contextlib, signal, sys
    from types import SimpleNamespace
    from pipelined import cli
    from pipelined.run import trials

    @contextlib.contextmanager
    def observer():
        nothing = lambda: None
        yield SimpleNamespace(start=nothing, settle=nothing, runs=list, lost=dict)

    trials.open_private = observer
    sys.exit(cli._guarded(["compare", *sys.argv[1:]]))
    """
)


@pytest.mark.parametrize("heeds", [True, False])
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_the_command_and_all_that_it_started(
    number: signal.Signals, status: int, heeds: bool, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    trap = "" if heeds else "trap '' INT TERM HUP; "
    command = f"{trap}sleep 600 | cat & echo $! $$ > {pids}.new; mv {pids}.new {pids}; wait"
    with subprocess.Popen(
        [sys.executable, "-c", COMPARE, command, "true"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        while not pids.exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(30) == status
    assert not any(is_running(int(pid)) for pid in pids.read_text().split())


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_is_ignored_ends_nothing(number: signal.Signals, tmp_path: Path) -> None:
    """Under nohup the terminal may go; in a script's background job Ctrl-C is the script's."""
    begun = tmp_path / "begun"
    command = f"echo >> {begun}; sleep 0.2"
    before = signal.signal(number, signal.SIG_IGN)
    try:
        process = subprocess.Popen([sys.executable, "-c", COMPARE, command, "sleep 0.2"])
    finally:
        signal.signal(number, before)
    while not begun.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait(60) == 0


TRIALS = textwrap.dedent(
    """
    import contextlib, os, signal, sys
    from pathlib import Path
    from types import SimpleNamespace
    from pipelined.errors import UserError
    from pipelined.run.trials import Plan, run_trials

    def not_permitted(*_):
        raise PermissionError(1, "Operation not permitted")

    @contextlib.contextmanager
    def observer():
        nothing = lambda: None
        yield SimpleNamespace(start=nothing, settle=nothing, runs=list, lost=dict, ended=int)

    begun, ended = map(Path, sys.argv[3:])
    seen = []
    {setup}
    try:
        run_trials(Plan(sys.argv[1:3], rounds=1, warm_up=0), open_observer=observer)
    except UserError as error:
        print(error)
        sys.exit(getattr(error, "exit_status", 1))
    finally:
        print(*seen)
    """
)


def trials_in_process(setup: str, tmp_path: Path, *commands: str) -> list[str]:
    """The words of a process that runs `setup` and then the commands: they may use $1 and $2."""
    files = [str(tmp_path / name) for name in ("begun", "ended")]
    named = [text.replace("$1", files[0]).replace("$2", files[1]) for text in commands]
    return [sys.executable, "-c", TRIALS.format(setup=setup), *named, *files]


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, StoppedError)]
)
def test_after_a_signal_between_two_commands_the_next_one_is_not_started(
    number: signal.Signals,
    raised: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupted(FakeObserver):
        def settle(self, starter: object = None) -> None:
            signal.raise_signal(number)

    started: list[str] = []

    def note(arguments: Sequence[str], *given: Any, **spawning: Any) -> int:
        started.append(arguments[-1])
        return start(arguments, *given, **spawning)

    monkeypatch.setattr(measured_child, "start", note)
    observer: Any = Interrupted()
    with pytest.raises(raised):
        run_trials(Plan(("true", "false")), open_observer=lambda: observer)
    assert started == ["true"]


def test_a_command_that_may_not_be_sent_a_signal_is_waited_for(tmp_path: Path) -> None:
    """sudo runs it as another user."""
    words = trials_in_process(
        "os.killpg = not_permitted", tmp_path, "kill -TERM $PPID; sleep 0.3; touch $2", "true"
    )
    ended = subprocess.run(words, check=False, timeout=60, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (143, "")
    assert (tmp_path / "ended").exists()


def test_ctrl_z_stops_between_two_commands(tmp_path: Path) -> None:
    """What stops only us, and not the command, would count as its time."""
    note = "signal.signal(signal.SIGTSTP, lambda *_: seen.append((begun.exists(), ended.exists())))"
    first = "kill -TSTP $PPID; sleep 0.3; touch $1"
    words = trials_in_process(note, tmp_path, first, "touch $2")
    ended = subprocess.run(words, check=True, timeout=60, capture_output=True, text=True)
    assert ended.stdout == "(True, False)\n"


@pytest.mark.parametrize(
    "asks", ["read x < /dev/tty", "stty -echo < /dev/tty", "cat /dev/tty | wc"]
)
def test_a_command_that_asks_at_the_terminal_ends_the_comparison(asks: str, tmp_path: Path) -> None:
    words = trials_in_process("pass", tmp_path, f"echo $$ > $1; {asks}; touch $2", "true")
    child, terminal = pty.fork()
    if child == 0:
        os.execv(words[0], words)
    shown = b""
    try:
        while select.select([terminal], [], [], 20)[0] and (piece := _read(terminal)):
            shown += piece
    finally:
        if not shown:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(terminal)
    assert b"A asks at the terminal" in shown
    assert os.waitstatus_to_exitcode(status) == 1
    assert not is_running(int((tmp_path / "begun").read_text()))
    assert not (tmp_path / "ended").exists()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1000)
    except OSError:  # nobody has it open any more
        return b""


# -- at the prompt


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs `pipelined compare` with the given words and returns its exit status."""
    monkeypatch.setattr(standard_error, "log_to_stderr", lambda level: None)
    monkeypatch.setattr(profile, "open_private", lambda **_: FakeObserver())
    return lambda *words: cli._guarded(["compare", *words])


@pytest.fixture
def report(tmp_path: Path) -> Callable[[str, float], str]:
    """Writes what `run --json -o FILE` would, of a run that took `wall` seconds."""

    def write(name: str, wall: float) -> str:
        file = tmp_path / name
        file.write_text(json.dumps({"runs": [written(finished("17-1", wall))], "lost": {}}))
        return str(file)

    return write


def test_the_report_goes_to_stdout(
    program: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert program("-n", "3", "sleep 0.01", "true") == 0
    out, err = capfd.readouterr()
    assert out.startswith("A  sleep 0.01\nB  true\n")
    assert err == ""


def test_json_has_every_side(
    program: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert program("--json", "-n", "1", "--warm-up", "0", "true", "true", "true") == 0
    described = json.loads(capfd.readouterr().out)
    assert [side["label"] for side in described["sides"]] == ["A", "B", "C"]


def test_the_report_can_go_to_a_file(program: Callable[..., int], tmp_path: Path) -> None:
    assert program("-n", "1", "-o", str(tmp_path / "report"), "true", "true") == 0
    assert (tmp_path / "report").read_text().startswith("A  true\n")


def test_a_failure_is_one_line_and_exit_code_1(
    program: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert program("echo a", "echo b") == 1
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 1


def test_two_recorded_runs_are_read_from_files(
    program: Callable[..., int],
    report: Callable[[str, float], str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert program(report("a.json", 2.0), report("b.json", 1.0)) == 0
    assert "B took 0.50 of A's wall time" in capfd.readouterr().out


def test_one_described_run_is_read_too(
    program: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(written(finished("17-1"))))
    assert program(str(file), str(file)) == 0
    assert "No difference" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "no such file or directory"),
        ("{", "it describes no run"),
        ("[]", "it describes no run"),
        ('{"runs": 1}', "it describes no run"),
        ('{"id": 1}', "it describes no run"),
        ('{"runs": []}', "it has no run"),
        ("\x00", "it describes no run"),
    ],
)
def test_a_file_without_a_run_is_named(
    content: str | None,
    reason: str,
    program: Callable[..., int],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "x.json"
    if content is not None:
        file.write_text(content)
    assert program(str(file), str(file)) == 1
    assert f"cannot read a run from {file}: {reason}; " in capfd.readouterr().err


@pytest.mark.parametrize("word", ["1763809200123-4711", "1763809200123-", "17638", "last"])
def test_a_run_is_known_by_its_looks(
    word: str, program: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert program("--state-directory", str(tmp_path / "none"), word, word) == 1
    assert "history" in capfd.readouterr().err


@pytest.mark.parametrize("word", ["./job.sh", "last | cat", "cat x.json", "17x"])
def test_anything_else_is_a_command(
    word: str, program: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert program("last", word) == 2
    assert "compare runs with runs" in capfd.readouterr().err


def test_behind_two_dashes_everything_is_a_command(
    program: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert program("--", "17", "18") == 1
    assert "A failed in the warm-up with exit status 127" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("true",), "compare takes two to 8 commands"),
        (("true",) * 9, "compare takes two to 8 commands"),
        (("1", "2", "3"), "compare takes two runs"),
        (("a|b|c",), "pipelined runs --pipeline 'a|b|c' lists them"),
        (("a|';id;'",), """pipelined runs --pipeline 'a|'"'"';id;'"'"'' lists them"""),
        (("-n", "3", "1", "2"), "--rounds is only for commands, not for recorded runs"),
        (("--cold", "f", "1", "2"), "--cold is only for commands, not for recorded runs"),
        (("--warm-up", "1", "1", "2"), "--warm-up is only for commands, not for recorded runs"),
        (("--match", "any", "1", "2"), "--match is only for commands, not for recorded runs"),
        (("--match", "none", "true", "true"), "'none' is not one of 'same', 'lines', 'any'"),
        (
            ("--state-directory", "d", "true", "true"),
            "--state-directory is only for recorded runs, not for commands",
        ),
        (("-n", "0", "true", "true"), "0 is not in the range"),
    ],
)
def test_wrong_words_are_wrong_usage(
    words: tuple[str, ...],
    complaint: str,
    program: Callable[..., int],
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert program(*words) == 2
    assert complaint in capfd.readouterr().err


@pytest.fixture
def night(tmp_path: Path) -> Callable[..., str]:
    """Stores a run of `wall` seconds that began in a night, and returns its id."""

    def store(night: int, wall: float, *, pipeline: str = "awk|sort", **given: Any) -> str:
        start = START + 86_400 * night
        unit = given.pop("unit", "nightly.job")
        series = Series(pipeline=pipeline, nested="parent" in given, unit=unit)
        stages = [make_stage(1, "awk", cpu=wall)]
        values: dict[str, Any] = {"start": start, "end": start + wall, "series": series} | given
        run = make_run(stages, wall, id=f"{int(values['start'])}-{night}", **values)
        history = History(tmp_path, host=HOST, max_age=1e12)
        history.sink.put(make_finished(run))
        history.sink.start()
        history.sink.close(60)
        return run.id

    return store


def test_one_run_is_compared_with_the_one_of_the_same_pipeline_before_it(
    program: Callable[..., int],
    night: Callable[..., str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    night(1, 16.0)
    night(2, 8.0)
    night(3, 1.0, pipeline="awk|uniq")
    night(3, 1.1, unit="other.job")
    night(3, 1.2, parent="1-2")
    night(3, 1.3, partial=True)
    night(3, 1.4, outcome=Outcome("failed", (0,)))
    last = night(4, 4.0)
    night(5, 2.0)
    assert program("--state-directory", str(tmp_path), last) == 0
    assert "B took 0.50 of A's wall time" in capfd.readouterr().out


def test_a_nested_run_is_compared_with_one_inside_another_run(
    program: Callable[..., int],
    night: Callable[..., str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    night(1, 8.0, parent="monday")
    night(2, 1.0, parent="tuesday")
    night(2, 4.0, parent="tuesday", start=START + 86_400 * 2 + 60, end=START + 86_400 * 2 + 64)
    which = str(int(START) + 86_400 * 2 + 60)
    assert program("--state-directory", str(tmp_path), which) == 0
    assert "B took 0.50 of A's wall time" in capfd.readouterr().out


def test_the_first_run_of_a_pipeline_has_none_before_it(
    program: Callable[..., int],
    night: Callable[..., str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    first = night(1, 8.0)
    night(2, 8.0)
    assert program("--state-directory", str(tmp_path), first) == 1
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"no run of awk|sort in unit nightly.job before {first} can be compared" in err
    assert "pipelined runs --pipeline 'awk|sort'" in err


def test_a_name_stays_in_the_quotes_of_a_command_to_paste(
    program: Callable[..., int],
    night: Callable[..., str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    first = night(1, 8.0, pipeline="awk|';id;'")
    assert program("--state-directory", str(tmp_path), first) == 1
    hint = capfd.readouterr().err.partition("pipelined runs --pipeline ")[2]
    assert shlex.split(hint)[0] == "awk|';id;'"


@pytest.mark.parametrize(
    ("word", "is_run"),
    [
        ("last", True),
        ("1763809200123", True),
        ("1763809200123-4711", True),
        ("1763809200123-4711-82f2", True),
        ("1763809200123-4711-82f299a7", True),
        ("before.json", True),
        ("sort", False),
        ("sort log", False),
        ("1763809200123-4711-82f299a7-1", False),
        ("7z-x", False),
    ],
)
def test_ids_of_runs_and_their_beginnings_are_no_commands(word: str, is_run: bool) -> None:
    assert (RUN_WORD.fullmatch(word) is not None) == is_run
