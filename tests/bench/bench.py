# SPDX-License-Identifier: Apache-2.0
"""What observation costs, as ratios: with and without the daemon, in turn, in one run.

Needs root. Prints every budget of the scheduler tier with what was measured, and what other
tools cost on the same pipeline. `run.sh` builds the programs and starts this.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import platform
import re
import shlex
import shutil
import signal
import stat
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.harness import (
    BUILD,
    DAEMON,
    OBJECT,
    Daemon,
    Failed,
    Table,
    dd,
    in_turn,
    note,
    output,
    run,
    spread,
    start,
)
from bench.peers import bpftrace, measure_peers

__all__ = ["main"]

STATS = Path("/proc/sys/kernel/bpf_stats_enabled")

PARTS = (
    "cost",
    "start",
    "functions",
    "readahead",
    "switch",
    "exec",
    "verifier",
    "idle",
    "many",
    "storm",
    "peers",
)


@dataclass(frozen=True)
class Workload:
    """`run(count)` gives seconds; `label` is its pipeline in the metrics, if it is one."""

    name: str
    run: Callable[[int], float]
    label: str
    budget: float
    of_empty: bool = False
    """Whether its budget is of what programs cost that do nothing."""


def workloads(cpu: int) -> list[Workload]:
    def pingpong(channel: str) -> Callable[[int], float]:
        program = BUILD / "pingpong"
        return lambda count: float(output([program, channel, str(count), str(cpu)])[0])

    return [
        Workload("dd | dd on one CPU, 64 KiB blocks", partial(_dd_seconds, 65536), "dd|dd", 1.02),
        Workload("dd | dd on one CPU, 4 KiB blocks", partial(_dd_seconds, 4096), "dd|dd", 1.02),
        Workload("dd | dd on one CPU, 512 B blocks", partial(_dd_seconds, 512), "dd|dd", 1.02),
        # a conversation: in no metric, but followed like any other stages
        Workload("one byte to and fro, two pipes", pingpong("pipe"), "", 1.10, True),
        Workload("one byte to and fro, socket pair", pingpong("socket"), "", 1.10, True),
    ]


def sized(workload: Workload, seconds: float, first: int = 1000) -> int:
    """The count that takes about that long; `first` is tried first."""
    count = first
    while True:
        took = workload.run(count)
        if took > seconds / 3:
            return max(1, int(count * seconds / min(took, workload.run(count))))
        count *= 3


def add_ratio(
    table: Table, name: str, budget: float | None, without: Sequence[float], with_: Sequence[float]
) -> None:
    off = statistics.median(without)
    ratio = statistics.median(with_) / off
    pairs = [b / a for a, b in zip(without, with_, strict=True)]
    best = min(with_) / min(without)
    table.add(
        name,
        f"<= {budget:.2f} x" if budget else "",
        f"{ratio:.3f} x (best of each {best:.3f}; off {off:.2f} s, pairs {spread(pairs)})",
        ratio <= budget if budget else None,
    )


def add_ratios(
    table: Table,
    workload: Workload,
    off: Callable[[], float],
    empty: Callable[[], float],
    on: Callable[[], float],
    rounds: int,
) -> None:
    """What observation costs, what empty programs at its hooks do, and the one against the other.

    All three in the same rounds: each is as noisy as the host is.
    """
    plain, beside, watched = in_turn(rounds, off, empty, on)
    name = workload.name
    add_ratio(table, name, None if workload.of_empty else workload.budget, plain, watched)
    add_ratio(table, f"{name}: programs that do nothing", None, plain, beside)
    of_empty = workload.budget if workload.of_empty else None
    add_ratio(table, f"{name}: against these", of_empty, beside, watched)


def readings(path: Path, block: int, count: int, *, member: bool = True) -> list[str]:
    """Reads a whole file `count` times, on one CPU, by a stage of a pipeline or by none."""
    loop = f"for ((i = 0; i < {count}; i++)); do dd if={path} of=/dev/null bs={block}; done 2>&1"
    script = f"({loop}) | cat >/dev/null" if member else f"({loop}) >/dev/null"
    return ["taskset", "-c", str(max(os.sched_getaffinity(0))), "bash", "-c", script]


def measure_readahead(table: Table, directory: Path, rounds: int, seconds: float) -> None:
    """The daemon with the `readahead` tier against the daemon without it, and its programs."""
    path = directory / "file"
    with open(path, "wb") as file:
        for _ in range(256):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())

    def under(option: str, block: int, count: int) -> float:
        with Daemon(directory, f"--readahead={option}"):
            return run(readings(path, block, count))

    def beside(block: int, count: int) -> float:
        with Daemon(directory, "--readahead=off"):
            return beside_empty("readahead", partial(run, readings(path, block, count)))

    for block, budget in ((131072, 1.01), (4096, 1.06), (512, 1.06)):
        work = partial(_reading_seconds, path, block)
        workload = Workload(f"readahead tier: warm dd bs={block}", work, "", budget, True)
        count = sized(workload, seconds, 1)
        add_ratios(
            table,
            workload,
            partial(under, "off", block, count),
            partial(beside, block, count),
            partial(under, "on", block, count),
            rounds,
        )

    def cool() -> None:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)

    with Daemon(directory, "--readahead=on") as daemon:
        for name, cold, member in (
            ("warm, of a member", False, True),
            ("warm, of others", False, False),
            ("cold, of a member", True, True),
        ):
            arguments = readings(path, 4096, 1, member=member)
            costs: dict[str, list[float]] = {}
            for _ in range(rounds):
                if cold:
                    cool()
                spent = program_costs(daemon, partial(run, arguments))
                for key, empty in (
                    ("on_pages_got", "bench_read"),
                    ("on_page_added", "bench_page"),
                ):
                    if key in spent and spent[key].runs > 100:
                        costs.setdefault(key, []).append(spent[key].mean - spent[empty].mean)
            for key, found in costs.items():
                what = f"readahead tier: {key}, dd bs=4096 {name}"
                cost = f"{statistics.median(found):.0f} ns (an empty program's taken off)"
                table.add(what, "", cost, None)


def beside_empty(hooks: str, work: Callable[[], float]) -> float:
    """The least that any programs cost which are attached to the hooks of a tier."""
    with empty_program(hooks):
        return work()


def _reading_seconds(path: Path, block: int, count: int) -> float:
    return run(readings(path, block, count))


def measure_functions(table: Table, directory: Path, rounds: int, seconds: float) -> None:
    """The daemon with the `functions` tier against the daemon without it."""
    try:
        Daemon(directory, "--functions=on").stop()
    except Failed as error:
        note(f"functions tier: not attached here: {str(error).splitlines()[-1]}")
        measure_handlers(table, directory)
        return

    def under(option: str, block: int, count: int) -> float:
        with Daemon(directory, f"--functions={option}"):
            return run(dd(block, count))

    chosen = {"dd | dd on one CPU, 64 KiB blocks": (65536, 1.02)}
    chosen["dd | dd on one CPU, 4 KiB blocks"] = (4096, 1.08)
    for name, (block, budget) in chosen.items():
        workload = Workload(name, partial(_dd_seconds, block), "dd|dd", budget)
        count = sized(workload, seconds)
        without, with_ = in_turn(
            rounds, partial(under, "off", block, count), partial(under, "on", block, count)
        )
        add_ratio(table, f"functions tier: {name}", budget, without, with_)
    if not shutil.which("bpftrace"):
        note("bpftrace: skipped, it is not installed")
        return
    write, read = (
        next(hook for hook in (f"anon_pipe_{call}", f"pipe_{call}") if _has_function(hook))
        for call in ("write", "read")
    )
    work = partial(_dd_seconds, 4096)
    work = partial(work, sized(Workload("", work, "", 0), seconds))

    def traced() -> float:
        with bpftrace(directory, _SIZES_BY_BPFTRACE % (write, read)):
            return work()

    def watched() -> float:
        with Daemon(directory):
            return work()

    name = "dd | dd on one CPU, 4 KiB blocks, sizes by"
    for peer, on in (("bpftrace", traced), ("pipelined, whole", watched)):
        without, with_ = in_turn(rounds, work, on)
        ratio = statistics.median(with_) / statistics.median(without)
        table.add(f"{name} {peer}", "", f"{ratio:.2f} x", None)


#: The same sizes by the same means, as a user would ask bpftrace for them.
_SIZES_BY_BPFTRACE = """
BEGIN { printf("ready\\n"); }
kfunc:%s { @writes[pid, comm] = hist(args->from->count); }
kretfunc:%s /retval > 0/ { @reads[pid, comm] = hist(retval); }
"""


def _has_function(name: str) -> bool:
    return b"\0" + name.encode() + b"\0" in Path("/sys/kernel/btf/vmlinux").read_bytes()


def measure_handlers(table: Table, directory: Path) -> None:
    """The tier's handlers, called in a loop where no program is let in at functions."""
    instructions = _instructions(directory / OBJECT.name)
    results = directory / "handlers"
    arguments = [str(BUILD / "handlers"), str(BUILD / "handlers.bpf.o")]
    with Daemon(directory) as daemon, open(__file__) as file:

        def nanoseconds(script: str) -> dict[str, float]:
            command = shlex.join([*arguments, str(daemon.pid), str(results)])
            code = subprocess.run(
                ["bash", "-c", script.format(command)], stdin=file, start_new_session=True
            ).returncode
            said = dict(line.split() for line in results.read_text().splitlines())
            counted, expected = int(said["counted"]), int(said["expected"])
            # once for each stage around it, if the benchmark itself is run in one
            if code or (not counted or counted % expected if "|" in script else counted):
                raise Failed(f"the handlers counted {counted} calls of {expected}")
            base = float(said["nothing"])
            return {name: float(said[name]) - base for name in _HANDLERS}

        member, other = nanoseconds("{} | cat; exit $PIPESTATUS"), nanoseconds("{}")
    for name, programs in _HANDLERS.items():
        size = " + ".join(str(instructions[program]) for program in programs)
        table.add(
            f"functions tier: handler of {name}, without its trampoline",
            "",
            f"{member[name]:.0f} ns for a member, {other[name]:.0f} ns for others; "
            f"{size} BPF instructions",
            None,
        )


#: What handlers.bpf.c calls, and the programs whose bodies these are.
_HANDLERS = {
    "pipe_write": ("on_pipe_write",),
    "pipe_read": ("on_pipe_read",),
    "file_read": ("on_file_read", "on_file_read_end"),
}


def _instructions(path: Path) -> dict[str, int]:
    """Instructions of each function of a BPF object: as many as there are, not as are run."""
    text = subprocess.check_output(["readelf", "--syms", "--wide", path], text=True)
    sizes = re.findall(r"^ *\d+: [0-9a-f]+ +(\d+) FUNC .* (\w+)$", text, re.M)
    return {name: int(size) // 8 for size, name in sizes}


def _dd_seconds(block: int, count: int) -> float:
    return run(dd(block, count))


def saw(daemon: Daemon, label: str) -> bool:
    """Whether the daemon has finished a run of this pipeline, now or within 1.5 s."""
    if daemon.metric("pipelined_runs_total", f'pipeline="{label}"'):
        return True
    time.sleep(1.5)  # a run is finished once its stages are seen to be gone
    return bool(daemon.metric("pipelined_runs_total", f'pipeline="{label}"'))


def measure_cost(table: Table, directory: Path, rounds: int, seconds: float, cpu: int) -> None:
    def watched(workload: Workload, count: int) -> float:
        with Daemon(directory) as daemon:
            took = workload.run(count)
            if workload.label and not saw(daemon, workload.label):
                note(f"warning: the daemon did not see {workload.label}")
            return took

    for workload in workloads(cpu):
        count = sized(workload, seconds)
        off = partial(workload.run, count)
        on = partial(watched, workload, count)
        add_ratios(table, workload, off, partial(beside_empty, "sched", off), on, rounds)


# --- the start -----------------------------------------------------------------------------


def measure_start(table: Table, directory: Path, rounds: int) -> None:
    """From exec to the first 200 of /readyz, and to the last hook."""
    for loader, count, budget in (("libbpf", 3 * rounds, 0.6), ("bcc", rounds, 4.0)):
        ready, attached = [], []
        for _ in range(count):
            with Daemon(directory, f"--loader={loader}") as daemon:
                ready.append(daemon.ready_seconds)
                attached.append(daemon.attached_seconds)
        value = statistics.median(ready)
        table.add(
            f"start to /readyz 200, {loader}",
            f"<= {budget:g} s",
            f"{value:.2f} s ({count} starts, {spread(ready)})",
            value <= budget,
        )
        table.add(
            f"start to the last hook, {loader}",
            "",
            f"{statistics.median(attached):.2f} s ({spread(attached)})",
            None,
        )
    code = (
        "import sys, time; from pathlib import Path; a = time.monotonic()\n"
        "from pipelined.observer import Observer; from pipelined.config import Config\n"
        "b = time.monotonic(); o = Observer.open(Config(object=Path(sys.argv[1])), wait=False)\n"
        "c = time.monotonic(); o.attach_optional()\n"
        "d = time.monotonic(); o.close(); print(b - a, c - b, d - c, time.monotonic() - d)"
    )
    python = DAEMON.with_name("python")
    times = [
        [float(x) for x in output([python, "-c", code, directory / OBJECT.name])[0].split()]
        for _ in range(rounds)
    ]
    parts = [statistics.median(column) for column in zip(*times, strict=True)]
    table.add(
        "of the start: imports; open (load, attach, first sweep); optional hooks; close",
        "",
        "; ".join(f"{part:.2f} s" for part in parts),
        None,
    )


# --- time of the programs ------------------------------------------------------------------


@dataclass
class ProgramTime:
    """Time (ns) and number of runs."""

    nanoseconds: int = 0
    runs: int = 0

    def since(self, before: ProgramTime) -> ProgramTime:
        return ProgramTime(self.nanoseconds - before.nanoseconds, self.runs - before.runs)

    @property
    def mean(self) -> float:
        return self.nanoseconds / max(1, self.runs)


_BPF_SYSCALL = {"x86_64": 321, "aarch64": 280}
_PROG_GET_FD_BY_ID, _OBJ_GET_INFO_BY_FD = 13, 15


def _bpf(command: int, attributes: bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attributes, 128)
    result: int = libc.syscall(_BPF_SYSCALL[platform.machine()], command, buffer, 128)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _program_info(number: int) -> bytes:
    """struct bpf_prog_info of a program by its id."""
    fd = _bpf(_PROG_GET_FD_BY_ID, number.to_bytes(4, sys.byteorder))
    try:
        info = ctypes.create_string_buffer(232)
        head = fd.to_bytes(4, sys.byteorder) + len(info).to_bytes(4, sys.byteorder)
        _bpf(_OBJ_GET_INFO_BY_FD, head + ctypes.addressof(info).to_bytes(8, sys.byteorder))
    finally:
        os.close(fd)
    return info.raw


def _programs_info(pid: int) -> dict[str, bytes]:
    """struct bpf_prog_info of the programs that a process holds open, by name."""
    found = {}
    for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
        with contextlib.suppress(FileNotFoundError):  # of this very look, when it is our own
            match = re.search(r"^prog_id:\s+(\d+)", entry.read_text(), re.M)
            if match:
                info = _program_info(int(match.group(1)))
                found[info[64:80].split(b"\0", 1)[0].decode()] = info
    return found


def programs_of(pid: int) -> dict[str, ProgramTime]:
    """Time of the programs that a process holds open, by name."""
    return {
        name: ProgramTime(*(int.from_bytes(info[at : at + 8], sys.byteorder) for at in (192, 200)))
        for name, info in _programs_info(pid).items()
    }


@contextlib.contextmanager
def program_timing() -> Iterator[None]:
    """kernel.bpf_stats_enabled, and back to what it was."""
    before = STATS.read_text()
    STATS.write_text("1")
    try:
        yield
    finally:
        STATS.write_text(before)


@contextlib.contextmanager
def empty_program(hooks: str = "timed") -> Iterator[int]:
    """Attach programs that do nothing to hooks (see empty.c); gives the process that holds them.

    Without pipes: an interpreter that reads from its child is a stage, and so would be all that
    it starts.
    """
    with tempfile.NamedTemporaryFile() as file:
        process = start([BUILD / "empty", BUILD / "empty.bpf.o", hooks], stdout=file.fileno())
        try:
            end = time.monotonic() + 10
            while Path(file.name).read_bytes() != b"ready\n":
                if process.poll() is not None or time.monotonic() > end:
                    raise Failed("the empty program cannot be attached")
                time.sleep(0.01)
            yield process.pid
        finally:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class SwitchCost:
    """Nanoseconds a run, net of an empty program's, which is `clock`."""

    switch: float
    wakeup: float
    clock: float
    wakeups_per_switch: float

    @property
    def all(self) -> float:
        return self.switch + self.wakeup * self.wakeups_per_switch

    def __str__(self) -> str:
        return (
            f"{self.all:.0f} ns (switch {self.switch:.0f} + "
            f"{self.wakeups_per_switch:.2f} wake-ups of {self.wakeup:.0f}; "
            f"empty program's {self.clock:.0f} taken off)"
        )


def switch_cost(daemon: Daemon, work: Callable[[], object]) -> SwitchCost:
    spent = program_costs(daemon, work)
    clock = spent["bench_empty"].mean
    names = ("on_switch", "on_wakeup")
    switch, wakeup = (spent[name].mean - clock for name in names)
    return SwitchCost(switch, wakeup, clock, spent[names[1]].runs / max(1, spent[names[0]].runs))


def program_costs(daemon: Daemon, work: Callable[[], object]) -> dict[str, ProgramTime]:
    """What each program of the daemon, and the empty ones, took while `work` ran."""
    with empty_program() as holder, program_timing():
        before = programs_of(daemon.pid) | programs_of(holder)
        work()
        after = programs_of(daemon.pid) | programs_of(holder)
    return {name: after[name].since(before[name]) for name in before.keys() & after.keys()}


def median_cost(daemon: Daemon, work: Callable[[], object], times: int) -> SwitchCost:
    found = sorted((switch_cost(daemon, work) for _ in range(times)), key=lambda cost: cost.all)
    return found[len(found) // 2]


def measure_switches(
    table: Table, directory: Path, seconds: float, times: int, cpu: int
) -> SwitchCost:
    """ns a switch; gives a member's, to compare with when there are many pipelines."""
    chosen = [item for item in workloads(cpu) if "fro" in item.name]
    costs = []
    for workload, limit, who in zip(chosen, (200, 60), ("a member", "any other"), strict=True):
        count = sized(workload, seconds)

        def work(workload: Workload = workload, count: int = count) -> float:
            return workload.run(count)

        with Daemon(directory) as daemon:
            cost = median_cost(daemon, work, times)
        costs.append(cost)
        table.add(
            f"programs' time a switch with its wake-up, {who}",
            f"<= {limit} ns",
            str(cost),
            cost.all <= limit,
        )
    return costs[0]


def measure_execs(table: Table, directory: Path, times: int) -> None:
    """ns of the program at an exec, without and with variables to look for in the environment."""
    off = ["--job-variables=", "--instance-variables="]
    set_by_slurm = {
        "SLURM_JOB_ID": "4711",
        "SLURM_ARRAY_JOB_ID": "4700",
        "SLURM_ARRAY_TASK_ID": "11",
        "TRACEPARENT": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    }
    for flags, what, values in (
        (off, "no variable looked for", {}),
        (off[1:], "3 looked for", {}),
        ([], "those by default", {}),
        ([], "those by default, 4 of them set", set_by_slurm),
    ):
        with Daemon(directory, *flags) as daemon:
            for count in (10, 30, 200):
                environment = {f"VARIABLE_{n}": "a value of usual length" for n in range(count)}
                environment |= values

                def work(environment: dict[str, str] = environment) -> None:
                    for _ in range(times):
                        os.waitpid(os.posix_spawn("/bin/true", ["true"], environment), 0)

                spent = program_costs(daemon, work)
                cost = spent["on_exec"].mean - spent["bench_empty"].mean
                name = f"program's time an exec, {what}, {count} in the environment"
                table.add(name, "", f"{cost:.0f} ns", None)


def measure_verifier(table: Table, directory: Path) -> None:
    """Instructions that the kernel's verifier goes through, by program and loader."""
    for loader in ("libbpf", "bcc"):
        try:
            with Daemon(directory, f"--loader={loader}") as daemon:
                programs = _programs_info(daemon.pid)
        except Failed as error:
            note(f"verifier: {loader} does not load here: {str(error).splitlines()[-1]}")
            continue
        for name, info in sorted(programs.items()):
            verified = int.from_bytes(info[216:220], sys.byteorder)
            table.add(f"verifier, {loader}: {name}", "", f"{verified:,} instructions", None)


# --- the daemon itself ---------------------------------------------------------------------


def measure_idle(table: Table, directory: Path, seconds: float) -> None:
    with Daemon(directory) as daemon:
        time.sleep(1)
        began, before = time.monotonic(), daemon.cpu_seconds()
        time.sleep(seconds)
        share = (daemon.cpu_seconds() - before) / (time.monotonic() - began)
        resident = daemon.resident_mb()
        daemon.get("/metrics")
        scraped, own = daemon.resident_mb(), daemon.resident_mb("RssAnon")
    table.add(
        "daemon, idle: share of a core", "<= 0.3 %", f"{share:.2%} over {seconds:.0f} s",
        share <= 0.003,
    )  # fmt: skip
    table.add(
        "daemon, idle: resident",
        "<= 45 MB",
        f"{resident:.1f} MB ({scraped:.1f} MB after a scrape, {own:.1f} MB anonymous)",
        max(resident, scraped) <= 45,
    )


@contextlib.contextmanager
def many_pipelines(count: int) -> Iterator[None]:
    with tempfile.NamedTemporaryFile() as file:
        process = start([BUILD / "many", str(count)], stdout=file.fileno())
        try:
            end = time.monotonic() + 30
            while Path(file.name).read_bytes() != b"ready\n":
                if process.poll() is not None or time.monotonic() > end:
                    raise Failed(f"{count} pipelines cannot be started")
                time.sleep(0.01)
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def measure_many(
    table: Table, directory: Path, counts: Sequence[int], seconds: float, member: SwitchCost | None,
    cpu: int,
) -> None:  # fmt: skip
    for count in counts:
        with Daemon(directory) as daemon, many_pipelines(count):
            time.sleep(1.5)
            active = daemon.metric("pipelined_runs_active", 'pipeline="sleep|cat|cat"')
            if active != count:
                note(f"warning: {count} pipelines live, the daemon counts {active:.0f}")
            scrapes, sizes = [], []
            for _ in range(7):
                began = time.perf_counter()
                sizes.append(len(daemon.get("/metrics")[1]))
                scrapes.append(time.perf_counter() - began)
                time.sleep(0.05)
            began, before = time.monotonic(), daemon.cpu_seconds()
            daemon.get("/metrics")  # one scrape in the window
            time.sleep(seconds)
            share = (daemon.cpu_seconds() - before) / (time.monotonic() - began)
            growth = ""
            if member:
                pingpong = next(w for w in workloads(cpu) if "two pipes" in w.name)
                rounds = sized(pingpong, 0.3)
                growth = str(median_cost(daemon, lambda: pingpong.run(rounds), 3))  # noqa: B023
        took = statistics.median(scrapes)
        judged = count >= 1000
        table.add(
            f"{count:,} live pipelines: sweep + scrape",
            "<= 100 ms" if judged else "",
            f"{took * 1e3:.0f} ms ({active:.0f} counted, {statistics.median(sizes) / 1e3:.0f} kB)",
            took <= 0.1 if judged else None,
        )
        table.add(
            f"{count:,} live pipelines: share of a core",
            "<= 5 %" if judged else "",
            f"{share:.1%} (one scrape in {seconds:.0f} s)",
            share <= 0.05 if judged else None,
        )
        if growth:
            table.add(f"{count:,} live pipelines: a member's switch", "no growth", growth, None)


def measure_storm(table: Table, directory: Path, seconds: float) -> None:
    workers = str(len(os.sched_getaffinity(0)))
    for mode, label in (("exec", "true|true|true"), ("fork", "storm|storm|storm")):
        command: list[str | Path] = [BUILD / "storm", mode, f"{seconds:g}", workers, "0"]
        off = int(output(command)[0])
        with Daemon(directory) as daemon:
            before = daemon.cpu_seconds()
            text, usage = output(command)
            made = int(text)
            end = time.monotonic() + 5
            while True:
                counted = daemon.metric("pipelined_runs_total", f'pipeline="{label}"')
                if counted >= made or time.monotonic() > end:
                    break
                time.sleep(0.5)
            spent = daemon.cpu_seconds() - before
            lost = daemon.metric("pipelined_lost_total")
            if counted != made:
                every = daemon.metric("pipelined_runs_total")
                active = daemon.metric("pipelined_runs_active")
                note(f"warning: {every:.0f} runs of any signature, {active:.0f} active")
        cost = usage.ru_utime + usage.ru_stime
        table.add(
            f"storm ({mode}): runs counted",
            "all",
            f"{counted:.0f} of {made} in {seconds:g} s ({off} without the daemon), {lost:.0f} lost",
            counted == made and lost == 0,
        )
        table.add(
            f"storm ({mode}): daemon's CPU of that of making them",
            "<= 15 %",
            f"{spent / cost:.1%} ({spent:.2f} s of {cost:.2f} s)",
            spent / cost <= 0.15,
        )


# --- the whole -----------------------------------------------------------------------------


def describe() -> None:
    model = re.findall(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.M)
    cpus = len(os.sched_getaffinity(0))
    print(f"Linux {platform.release()} {platform.machine()}, {cpus} CPUs, {''.join(model[:1])}")
    print(f"load average at the start {os.getloadavg()[0]:.2f}")
    for fd in (0, 1):
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                print("warning: in a pipe the benchmark is a stage itself; write to a file instead")
    others = 0
    for entry in Path("/proc").glob("[0-9]*/fdinfo"):
        with contextlib.suppress(OSError):
            others += "on_switch" in programs_of(int(entry.parent.name))
    if others:
        print(f"warning: {others} other observers are attached; ratios and times suffer")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="about a minute, less exact")
    parser.add_argument("--rounds", type=int, help="on/off rounds (5; quick: 3)")
    parser.add_argument("--object", type=Path, default=OBJECT, help="the BPF object to measure")
    parser.add_argument("--only", help=f"parts, with commas: {','.join(PARTS)}")
    options = parser.parse_args()
    parts = options.only.split(",") if options.only else list(PARTS)
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown part: {', '.join(sorted(unknown))}")
    if os.geteuid():
        print("bench: needs root: sudo make bench", file=sys.stderr)
        return 1
    quick = options.quick
    rounds = options.rounds or (3 if quick else 5)
    seconds = 0.3 if quick else 1.0
    cpu = max(os.sched_getaffinity(0))
    # a stop ends what was started and restores the setting
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    describe()
    table = Table()
    member = None
    with tempfile.TemporaryDirectory(prefix="pipelined-bench-") as name:
        directory = Path(name)
        shutil.copy(options.object, directory / OBJECT.name)
        try:
            if "cost" in parts:
                measure_cost(table, directory, rounds, seconds, cpu)
            if "start" in parts:
                measure_start(table, directory, rounds)
            if "functions" in parts:
                measure_functions(table, directory, rounds, seconds)
            if "readahead" in parts:
                measure_readahead(table, directory, rounds, seconds)
            if "switch" in parts:
                member = measure_switches(table, directory, seconds / 2, 3 if quick else 5, cpu)
            if "exec" in parts:
                measure_execs(table, directory, 1000 if quick else 3000)
            if "verifier" in parts:
                measure_verifier(table, directory)
            if "idle" in parts:
                measure_idle(table, directory, 4 if quick else 10)
            if "many" in parts:
                counts = (1000,) if quick else (300, 1000)
                measure_many(table, directory, counts, 4 if quick else 10, member, cpu)
            if "storm" in parts:
                measure_storm(table, directory, 1.5 if quick else 5)
            if "peers" in parts:
                measure_peers(table, directory, rounds, seconds / 2)
        except Failed as error:
            table.print()
            print(f"bench: {error}", file=sys.stderr)
            return 1
    print(f"load average at the end {os.getloadavg()[0]:.2f}")
    table.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
