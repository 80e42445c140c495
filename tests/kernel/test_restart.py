# SPDX-License-Identifier: Apache-2.0
"""Live runs outlive the daemon: they are the same before and after a stop, a crash, an upgrade."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kernel import conftest
from kernel.conftest import WAITS
from pipelined.config import Config
from pipelined.kernel.checkpoint_file import FILE_NAME
from pipelined.model.sighting import Finished
from pipelined.observer import Observer
from pipelined.runs import Run

if TYPE_CHECKING:
    from kernel.conftest import Configure, Started, Watch

pytestmark = pytest.mark.oldest_kernel

PROGRAM = Path(sys.executable).parent / "pipelined"
#: Seconds after which a test that waits has failed; a busy host, or an emulated one, is slow.
PATIENCE = 120

wait_for = partial(conftest.wait_for, seconds=PATIENCE)

#: Reads lines, but few of them: what feeds it mostly sleeps.
SLOWLY = "while read -r line; do echo $line; sleep 0.02; done"

#: Seven kinds of live runs: script, and the runs of it, with their units if these are their own.
KINDS: dict[str, tuple[str, dict[str, str | None]]] = {
    "wrapper": (f"timeout 900 yes | ({SLOWLY}) | gzip > /dev/null", {"yes|bash|gzip": None}),
    "cron": (
        f"mkfifo gate; exec cron 1 'yes | bash -c \"{SLOWLY}\" | cat > out; true'",
        {"yes|bash|cat": "yes.cron"},
    ),
    "variable": (
        f"export PIPELINED_JOB=survivor; yes | ({SLOWLY}) | tail -n 1; true",
        {"yes|bash|tail": "survivor.job"},
    ),
    "container": (
        f"echo $$ > $CGROUP/cgroup.procs; yes | ({SLOWLY}) | wc -l; true",
        {"yes|bash|wc": "4a2a9c81b0d4.docker"},
    ),
    "nested": (
        "printf '#!/bin/bash\\nyes | (%s) | sort; true\\n' '" + SLOWLY + "' > job.sh;"
        " chmod +x job.sh; ./job.sh | tee log; true",
        {"job.sh|tee": None, "yes|job.sh|sort": None},
    ),
    "fifo": (
        f"mkfifo fifo; (bash -c 'exec yes > fifo' & wait) & ({SLOWLY}) < fifo > out; true",
        {"yes|bash": None},
    ),
    "driver": (
        "python3 -c 'import subprocess, time\n"
        'for line in subprocess.Popen(["yes"], stdout=subprocess.PIPE).stdout: time.sleep(0.02)\''
        "; true",
        {"yes|python3": None},
    ),
}
RUNS = sum(len(runs) for _, runs in KINDS.values())

#: What their environments say of the job's instance.
INSTANCE = {"SLURM_JOB_ID": "4711", "TRACEPARENT": f"00-{'4b' * 16}-{'a0' * 8}-01"}


class Serve:
    """`pipelined serve`, as a user has it."""

    def __init__(self, loader: str, state: Path) -> None:
        where = ["--web.listen-address", "127.0.0.1:0", "--state-directory", str(state)]
        self.log = (state / "log").open("ab")
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--loader", loader, *where],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log,
        )
        assert self.process.stdout
        said, end = b"", time.monotonic() + PATIENCE
        while b"Ctrl-C stops it." not in said:
            assert select.select([self.process.stdout], [], [], end - time.monotonic())[0]
            part = os.read(self.process.stdout.fileno(), 4096)
            assert part, (state / "log").read_text()
            said += part
        self.url = said.decode().split("page", 1)[1].split()[0]

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as answer:
            text: str = answer.read().decode()
            return text

    def runs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.get("api/v1/pipelines?limit=1000"))["runs"]
        return found

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait(PATIENCE)
        self.close()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()
        self.log.close()


def name_of(pid: str) -> str:
    """The kernel's name of a process; nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def has(pid: int, mark: str) -> bool:
    """Whether a process has this in its environment."""
    try:
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


@pytest.fixture
def kinds(watch: Watch, make_cgroup: Callable[[str], Path]) -> Iterator[str]:
    """All kinds of runs, started; yields what is in the environment of their processes."""
    mark = f"RESTART={os.getpid()}.{time.monotonic_ns()}"
    cgroup = make_cgroup(f"docker-{'4a2a9c81b0d4'.ljust(64, 'e')}.scope")
    started: list[Started] = []
    for kind, (script, _) in KINDS.items():
        directory = watch.directory / kind
        directory.mkdir()
        environment = {"CGROUP": str(cgroup), "RESTART": mark.partition("=")[2], **INSTANCE}
        started.append(watch.start(f"cd {directory}; {script}", environment=environment))
    try:
        yield mark
    finally:
        for one in started:
            one.kill()
        for one in started:
            one.finish()


def of_kinds(serve: Serve, mark: str) -> dict[str, dict[str, Any]]:
    """The live runs of a daemon that are of our kinds, by signature."""
    return {
        run["pipeline"]: run
        for run in serve.runs()
        if run["live"] and any(has(stage["pid"], mark) for stage in run["stages"])
    }


def all_of_them(serve: Serve, mark: str) -> dict[str, dict[str, Any]]:
    expected = {name for _, runs in KINDS.values() for name in runs}

    def look() -> dict[str, dict[str, Any]] | None:
        found = of_kinds(serve, mark)
        return found if found.keys() == expected else None

    try:
        found: dict[str, dict[str, Any]] = wait_for(look, "all kinds")
    except AssertionError:
        raise AssertionError(sorted(of_kinds(serve, mark))) from None
    return found


def samples(serve: Serve, name: str, run: dict[str, Any]) -> float:
    labels = f'pipeline="{run["pipeline"]}",nested="{str(run["nested"]).lower()}"'
    beginning = f'{name}{{{labels},unit="{run["unit"]}"'
    lines = [line for line in serve.get("metrics").splitlines() if line.startswith(beginning)]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


@pytest.fixture
def serve(configure: Configure, tmp_path: Path) -> Iterator[Callable[[], Serve]]:
    """Starts daemons one after the other, all with the same state."""
    state = tmp_path / "state"
    state.mkdir()
    started: list[Serve] = []

    def start() -> Serve:
        started.append(Serve(configure().loader, state))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_every_kind_of_live_run_is_the_same_after_a_restart(
    serve: Callable[[], Serve],
    number: signal.Signals,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    saved = tmp_path / "state" / FILE_NAME
    daemon = serve()
    mark = request.getfixturevalue("kinds")
    before = all_of_them(daemon, mark)
    for _, units in KINDS.values():
        for name, unit in units.items():
            assert before[name]["unit"] == unit or unit is None
    if number == signal.SIGKILL:
        seen = time.time()
        wait_for(lambda: saved.exists() and saved.stat().st_mtime > seen + 1, "a checkpoint")
    daemon.end(number)
    daemon = serve()
    after = of_kinds(daemon, mark)
    assert after.keys() == before.keys()
    for name, run in before.items():
        now = after[name]
        assert run["identity"]["variables"] == {"SLURM_JOB_ID": "4711"}, name
        assert run["identity"]["trace"]["trace_id"] == "4b" * 16, name
        for key in ("id", "unit", "nested", "parent", "start_timestamp_seconds", "identity"):
            assert now[key] == run[key], (name, key)
        assert now["partial"] and now["unwatched_seconds"] > 0, name
        assert now["wall_seconds"] == pytest.approx(
            sum(now["level_seconds"].values()) + now["unwatched_seconds"]
        )
        assert now["wall_seconds"] >= run["wall_seconds"], name
        assert now["cpu_seconds"] >= run["cpu_seconds"], name
        assert [stage["pid"] for stage in now["stages"]] == [s["pid"] for s in run["stages"]]
        for stage, earlier in zip(now["stages"], run["stages"], strict=True):
            for key in ("read_bytes", "written_bytes", "read_calls", "forks", "execs"):
                assert stage[key] >= earlier[key], (name, stage["command"], key)
        # what was counted before is not counted again
        watched_anew = samples(daemon, "pipelined_run_seconds_total", now)
        later = of_kinds(daemon, mark)[name]
        assert watched_anew < later["wall_seconds"] - run["wall_seconds"], name
        assert samples(daemon, "pipelined_runs_active", now) == 1
    for pid in {stage["pid"] for run in after.values() for stage in run["stages"]}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for(
        lambda: all(samples(daemon, "pipelined_runs_total", run) == 1 for run in after.values()),
        "the runs' ends",
    )
    daemon.end(signal.SIGTERM)
    with contextlib.closing(sqlite3.connect(tmp_path / "state" / "history.db")) as history:
        stored = [row[0] for row in history.execute("SELECT id FROM runs")]
    assert [stored.count(run["id"]) for run in after.values()] == [1] * RUNS


# What happens while nobody watches


class Lives:
    """Observers one after the other, with the same state, of what this process starts."""

    def __init__(self, configure: Configure, watch: Watch, own_only: bool = True) -> None:
        self.state = watch.directory / "state"
        self._configure = configure
        self._watch = watch
        self._own_only = own_only
        self._open: list[Observer] = []
        self.finished: list[Finished] = []

    def begin(self, **options: Any) -> Watch:
        """The next one."""
        observer = Observer.open(
            self._configure(**options),
            own_only=self._own_only,
            wait=False,
            on_finished=self.finished.append,
            state=self.state,
        )
        self._open.append(observer)
        observer.attach_optional()
        return type(self._watch)(observer, self._watch.directory)

    def end(self) -> None:
        """Stop it."""
        self._open[-1].close()

    def close(self) -> None:
        for observer in self._open:
            observer.close()


@pytest.fixture
def lives(configure: Configure, watch: Watch) -> Iterator[Lives]:
    made = Lives(configure, watch)
    yield made
    made.close()


@pytest.fixture
def lives_of_all(configure: Configure, watch: Watch) -> Iterator[Lives]:
    """Daemons of the whole host, which find processes that were forked while nobody watched."""
    made = Lives(configure, watch, own_only=False)
    yield made
    made.close()


@pytest.fixture
def start(watch: Watch) -> Iterator[Callable[[str], Started]]:
    """Starts scripts; what they leave is killed at the end."""
    started: list[Started] = []

    def begin(script: str) -> Started:
        started.append(watch.start(script))
        return started[-1]

    yield begin
    for one in started:
        one.kill()
        with contextlib.suppress(ChildProcessError):  # its test has waited for it
            one.finish()


def only(watch: Watch, name: str) -> Run:
    """The one run, live or ended, of which a stage has this name."""
    watch.observer.settle()
    found = [run for run in watch.observer.runs() if name in run.pipeline.split("|")]
    assert len(found) == 1, [run.pipeline for run in watch.observer.runs()]
    return found[0]


def wait_for_end(pid: int) -> None:
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), f"the end of {pid}")


@pytest.mark.thorough
def test_time_unwatched_is_no_time_at_level_0(
    lives: Lives, start: Callable[[str], Started]
) -> None:
    watch = lives.begin()
    start("burn 60000 | cat > out; true")
    before = watch.live("burn|cat")
    stopping = time.time()
    lives.end()
    time.sleep(1)
    watch = lives.begin()
    begun = time.time()
    time.sleep(0.3)

    def burning() -> Run | None:
        found = watch.live("burn|cat")
        assert found.cores_used < 1.3
        return found if found.cores_used > 0.7 else None

    # one who computes without a pause is credited at its next switch if the last was not traced
    after: Run = wait_for(burning, "the burner's CPU time")
    assert 1 <= after.unwatched_seconds < after.wall_seconds - before.wall_seconds
    assert sum(after.levels) == pytest.approx(after.watched_seconds)
    timeline = watch.observer.timeline(after.id)
    assert timeline
    assert sum(point.unwatched for point in timeline) == pytest.approx(after.unwatched_seconds)
    assert timeline[0].start == pytest.approx(after.start)
    for point in timeline:
        assert sum(point.levels) == pytest.approx(point.seconds, abs=1e-6)
    (gap,) = (point for point in timeline if point.unwatched)
    assert gap is not timeline[0], "the gap is a point of its own"
    assert stopping - 0.01 <= gap.start and gap.end <= begun + 0.01


@pytest.mark.thorough
@pytest.mark.parametrize("variables", [Config().instance_variables, ("SLURM_JOB_ID", "NEW")])
def test_what_is_forked_after_a_restart_is_of_the_instance_that_was_read_before(
    lives: Lives, start: Callable[[str], Started], variables: tuple[str, ...]
) -> None:
    """Also if the list of variables is another one: what it no longer names is dropped.

    Ids stay what they were even if the host has got another name.
    """
    watch = lives.begin()
    start(
        "export SLURM_JOB_ID=4711 BUILD_TAG=x; exec bash -c '"
        f"f() {{ {SLOWLY}; }}; yes | cat > /dev/null & {WAITS}; burn 60000 | f; true'"
    )
    live = watch.live("yes|cat")
    both = {"SLURM_JOB_ID": "4711", "BUILD_TAG": "x"}
    assert live.identity and live.identity.variables == both
    lives.end()
    watch = lives.begin(instance_variables=variables, host_name="renamed")
    (watch.directory / "go").touch()
    later = watch.live("burn|bash")
    kept = {name: value for name, value in both.items() if name in variables}
    assert later.identity and later.identity.variables == kept
    assert later.identity.host == "renamed"
    assert watch.live("yes|cat").id == live.id
    assert watch.observer.lost()["instances"] == 0


@pytest.mark.thorough
def test_each_time_that_nobody_watched_counts(
    lives: Lives, start: Callable[[str], Started]
) -> None:
    watch = lives.begin()
    start("burn 60000 | cat > out; true")
    first = watch.live("burn|cat")
    unwatched = []
    for _ in range(3):
        lives.end()
        watch = lives.begin()
        run = watch.live("burn|cat")
        assert (run.id, run.start) == (first.id, first.start)
        unwatched.append(run.unwatched_seconds)
    assert 0 < unwatched[0] < unwatched[1] < unwatched[2]


def test_a_run_that_ends_unwatched_ends_when_it_was_last_seen(
    lives: Lives, start: Callable[[str], Started]
) -> None:
    watch = lives.begin()
    start(f"({WAITS}; true) | tee out; true")
    before = watch.live("bash|tee")
    stopping = time.time()
    lives.end()
    stopped = time.time()
    (watch.directory / "go").touch()
    wait_for_end(before.stages[1].pid)
    time.sleep(0.2)
    watch = lives.begin()
    after = only(watch, "tee")
    assert after.id == before.id and not after.live and after.ended_unwatched
    assert after.end and stopping - 0.01 <= after.end <= stopped + 0.01
    assert after.unwatched_seconds == 0
    assert watch.counted() == {("bash|tee", False): 1}
    lives.end()
    watch = lives.begin()
    assert watch.counted() == {}


@pytest.mark.thorough
def test_a_stage_that_had_ended_before_is_there_as_it_was(
    lives: Lives, start: Callable[[str], Started]
) -> None:
    watch = lives.begin()
    start("seq 100000 | sort > out & seq 1000 | (cat > copy; sleep 900; true); true")
    seq, _ = watch.live("seq|bash").stages
    wait_for(lambda: watch.live("seq|bash").stages[0].end, "the end of seq")
    seq, bash = watch.live("seq|bash").stages
    lives.end()
    watch = lives.begin()
    after = watch.live("seq|bash")
    assert (after.stages[0].end, after.stages[0].states) == (seq.end, seq.states)
    assert after.stages[0].written_bytes == seq.written_bytes
    assert after.stages[1].end is None and after.stages[1].start == bash.start


def test_one_stage_that_ends_unwatched_leaves_the_others(
    lives: Lives, start: Callable[[str], Started]
) -> None:
    watch = lives.begin()
    start("sleep 900 | cat | (trap '' PIPE; cat > out; sleep 900; true); true")
    before = watch.live("sleep|cat|bash")
    lives.end()
    os.kill(before.stages[0].pid, signal.SIGKILL)
    wait_for_end(before.stages[1].pid)
    watch = lives.begin()
    after = watch.live("sleep|cat|bash")
    assert after.id == before.id
    assert [stage.end is None for stage in after.stages] == [False, False, True]


def test_a_process_that_execs_unwatched_takes_its_new_name(
    lives: Lives, start: Callable[[str], Started]
) -> None:
    watch = lives.begin()
    start(f"({WAITS}; exec tail -n 1) < <(sleep 900) | cat > out; true")
    before = watch.live("bash|cat")
    lives.end()
    (watch.directory / "go").touch()
    pid = before.stages[0].pid
    wait_for(lambda: Path(f"/proc/{pid}/comm").read_text() == "tail\n", "the exec")
    watch = lives.begin()
    after = watch.live("tail|cat")
    assert (after.id, after.stages[0].pid) == (before.id, pid)


def test_a_subshell_of_busybox_keeps_the_name_of_its_program(
    lives: Lives, start: Callable[[str], Started]
) -> None:
    watch = lives.begin()
    start(f"busybox sh -c '({WAITS}; true) | cat > out; true'")
    before = watch.live("sh|cat")
    lives.end()
    watch = lives.begin()
    time.sleep(0.3)
    assert only(watch, "sh").id == before.id
    (watch.directory / "go").touch()
    assert only(watch, "sh").pipeline == "sh|cat"


def test_what_lives_when_the_host_goes_down_is_finished_after_the_boot(
    lives: Lives, start: Callable[[str], Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = lives.begin()
    start(f"yes | ({SLOWLY}) | gzip > out; true")
    before = watch.live("yes|bash|gzip")
    lives.end()
    for module in ("observer", "kernel.sweep", "kernel.checkpoint_file"):
        monkeypatch.setattr(f"pipelined.{module}.boot_id", lambda: "that of another boot")
    watch = lives.begin()
    watch.observer.settle()
    (cut_off,) = (run.make()[0] for run in lives.finished)
    assert (cut_off.id, cut_off.start, cut_off.result) == (before.id, before.start, "unknown")
    assert cut_off.cpu_seconds >= before.cpu_seconds > 0
    assert cut_off.id not in [run.id for run in watch.observer.runs()]
    lives.end()
    lives.begin().observer.settle()
    assert len(lives.finished) == 1


@pytest.mark.thorough
def test_what_is_forked_unwatched_belongs_to_the_stage_of_its_parent(
    lives_of_all: Lives, start: Callable[[str], Started]
) -> None:
    watch = lives_of_all.begin()
    (watch.directory / "forks.sh").write_text(f"#!/bin/bash\n{WAITS}\nburn 60000\ntrue\n")
    (watch.directory / "forks.sh").chmod(0o755)
    start("./forks.sh | cat > out; true")
    before = watch.live("forks.sh|cat")
    lives_of_all.end()
    (watch.directory / "go").touch()
    pid = before.stages[0].pid
    children = Path(f"/proc/{pid}/task/{pid}/children")
    wait_for(
        lambda: any(name_of(child) == "burn" for child in children.read_text().split()),
        "the fork",
    )
    watch = lives_of_all.begin()
    first = only(watch, "forks.sh")
    assert first.id == before.id and first.pipeline == "forks.sh|cat"
    enough = first.stages[0].cpu_seconds + 0.2
    # one who computes without a pause is credited at its next switch if the last was not traced
    wait_for(lambda: only(watch, "forks.sh").stages[0].cpu_seconds > enough, "its child's CPU time")


@pytest.mark.thorough
def test_another_process_with_the_same_id_is_not_the_one_of_before(
    lives: Lives, start: Callable[[str], Started]
) -> None:
    watch = lives.begin()
    start("sleep 900 | (trap '' PIPE; cat > out; sleep 900; true); true")
    before = watch.live("sleep|bash")
    pid = before.stages[0].pid
    lives.end()
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pid)
    last = Path("/proc/sys/kernel/ns_last_pid")
    kept = last.read_text()
    others: list[subprocess.Popen[bytes]] = []
    end = time.monotonic() + PATIENCE
    try:
        while not Path(f"/proc/{pid}").exists():  # somebody else's process will do
            assert time.monotonic() < end, "no other process got that id"
            last.write_text(str(pid - 1))
            others.append(subprocess.Popen(["sleep", "60"]))
        last.write_text(kept)
        watch = lives.begin()
        after = watch.live("sleep|bash")
        assert after.id == before.id
        assert after.stages[0].end is not None
    finally:
        for other in others:
            other.kill()
            other.wait()


# The file


@pytest.mark.thorough
def test_without_a_file_live_runs_begin_anew(
    lives_of_all: Lives, start: Callable[[str], Started]
) -> None:
    watch = lives_of_all.begin()
    start("burn 60000 | tee out.anew > out; true")
    before = watch.live("burn|tee")
    lives_of_all.end()
    (lives_of_all.state / FILE_NAME).unlink()
    after = lives_of_all.begin().live("burn|tee")
    assert after.start > before.start and after.partial and after.unwatched_seconds == 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: data[: len(data) // 2], "it is damaged"),
        (lambda data: data.replace(b"burn", b"turn"), "it is damaged"),
        (lambda data: b"", "it is no checkpoint"),
        (lambda data: data.replace(b"checkpoint 1 ", b"checkpoint 7 ", 1), "its format is 7"),
    ],
)
def test_a_file_that_cannot_be_used_is_set_aside(
    lives: Lives,
    start: Callable[[str], Started],
    damage: Callable[[bytes], bytes],
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch = lives.begin()
    start("burn 60000 | cat > out; true")
    watch.live("burn|cat")
    lives.end()
    file = lives.state / FILE_NAME
    file.write_bytes(damage(file.read_bytes()))
    watch = lives.begin()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert words in caplog.text and "Traceback" not in caplog.text
    assert watch.observer.ready() is None
    assert file.with_suffix(".unreadable").exists() and not file.exists()


@pytest.mark.thorough
def test_what_does_not_fit_is_left_out_by_whole_runs(
    lives: Lives, start: Callable[[str], Started], caplog: pytest.LogCaptureFixture
) -> None:
    watch = lives.begin()
    start("burn 60000 | cat > out; true")
    first = watch.live("burn|cat")
    start("sleep 900 | sort | uniq > other; true")
    watch.live("sleep|sort|uniq")
    lives.end()
    watch = lives.begin(max_stages=4)
    assert watch.live("burn|cat").id == first.id
    assert "3 stages of live runs begin anew" in caplog.text


@pytest.mark.thorough
def test_when_nothing_lives_there_is_no_file(lives: Lives, start: Callable[[str], Started]) -> None:
    watch = lives.begin()
    started = start("burn 60000 | cat > out; true")
    watch.live("burn|cat")
    lives.end()
    assert (lives.state / FILE_NAME).exists()
    started.kill()
    started.finish()
    lives.begin()
    lives.end()
    assert not (lives.state / FILE_NAME).exists()
