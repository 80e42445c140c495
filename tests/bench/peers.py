# SPDX-License-Identifier: Apache-2.0
"""What other tools cost on the same pipelines, in the same rounds: time, their CPU and memory."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from bench.harness import (
    DAEMON,
    OBJECT,
    Failed,
    Table,
    dd,
    note,
    run,
)

__all__ = ["bpftrace", "measure_peers"]

#: What each thread spent on CPU and off it, as offcputime and its like do.
_SWITCHES = """
BEGIN { printf("ready\\n"); }
tracepoint:sched:sched_switch
{
    if (@on[args->prev_pid]) {
        @cpu[args->prev_comm] = sum(nsecs - @on[args->prev_pid]);
        delete(@on[args->prev_pid]);
    }
    @off[args->prev_pid] = nsecs;
    if (@off[args->next_pid]) {
        @slept[args->next_comm] = sum(nsecs - @off[args->next_pid]);
        delete(@off[args->next_pid]);
    }
    @on[args->next_pid] = nsecs;
}
"""
#: Bytes of reads and writes.
_CALLS = """
BEGIN { printf("ready\\n"); }
tracepoint:syscalls:sys_exit_read, tracepoint:syscalls:sys_exit_write
/args->ret > 0/ { @bytes[comm, probe] = sum(args->ret); }
"""

Tool = Callable[[Path], AbstractContextManager[int]]


@contextlib.contextmanager
def in_background(
    arguments: Sequence[str | Path],
    log: Path,
    is_ready: Callable[[int], bool],
    patience: float = 300.0,
) -> Iterator[int]:
    """A tool in a session of its own, whose id this gives, until its session is ended.

    `is_ready` is asked with that id, which is the first process's too. On an emulated processor a
    tool that compiles takes minutes.
    """
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(argument) for argument in arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=log.parent,  # PCP leaves logs where it is
            start_new_session=True,
        )
    try:
        end = time.monotonic() + patience
        while not is_ready(process.pid):
            if process.poll() is not None or time.monotonic() > end:
                said = log.read_text(errors="replace").strip().splitlines()
                raise Failed(f"{arguments[0]} does not start: {said[-1] if said else 'no word'}")
            time.sleep(0.05)
        time.sleep(0.5)
        yield process.pid
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            _end(process, number)


def _end(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to its group, and wait for the whole of it; some leave a file if killed."""
    end = time.monotonic() + 10
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
        while time.monotonic() < end:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(0.05)


@contextlib.contextmanager
def debug_files() -> Iterator[None]:
    """bpftrace 0.17 looks for tracepoints there and nowhere else."""
    place = Path("/sys/kernel/debug")
    if (place / "tracing").is_dir():
        yield
        return
    subprocess.run(["mount", "-t", "debugfs", "none", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


def bpftrace(directory: Path, script: str) -> AbstractContextManager[int]:
    """A script of bpftrace that says "ready"."""
    log = directory / "bpftrace.log"
    return in_background(["bpftrace", "-e", script], log, lambda _: b"ready" in log.read_bytes())


def bcc(name: str) -> Tool:
    """A tool of bcc's, as Debian calls it."""

    def started(directory: Path) -> AbstractContextManager[int]:
        # it says nothing until it ends
        return in_background([f"{name}-bpfcc"], directory / "bcc.log", _holds_programs)

    return started


def _holds_programs(pid: int) -> bool:
    """Whether a process has loaded a BPF program: the next ones follow at once."""
    with contextlib.suppress(OSError):  # it ends, or closes a file meanwhile
        for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
            if "prog_id:" in entry.read_text():
                return True
    return False


def ours(directory: Path) -> AbstractContextManager[int]:
    log = directory / "pipelined.log"
    return in_background(
        [
            *(DAEMON, "serve", "--web.listen-address", "127.0.0.1:0"),
            *("--object", directory / OBJECT.name, "--state-directory", directory / "state"),
        ],
        log,
        lambda _: b"Ctrl-C stops it" in log.read_bytes(),
    )


@contextlib.contextmanager
def pcp(directory: Path) -> Iterator[int]:
    """Its collector, asked for the CPU time of every process once a second."""
    socket = directory / "pmcd.socket"
    log = directory / "pcp.log"
    line = (
        f"/usr/lib/pcp/bin/pmcd -f -U root -i 127.0.0.1 -p 44399 -s {socket} -l {log} &"
        f" while [ ! -S {socket} ]; do sleep 0.1; done; sleep 1;"
        f" exec pmval -h unix:{socket} -t 1 proc.psinfo.utime"
    )
    answers = directory / "pmval.log"
    with in_background(
        ["bash", "-c", line], answers, lambda _: b"semantics" in answers.read_bytes(), 20
    ) as session:
        yield session


@contextlib.contextmanager
def netdata(directory: Path) -> Iterator[int]:
    """As it is installed, with a port of its own: every process once a second."""
    place = directory / "netdata"
    place.mkdir(exist_ok=True)
    folders = "\n".join(f"{name} = {place}" for name in ("cache", "lib", "log"))
    configuration = place / "netdata.conf"
    configuration.write_text(
        f"[global]\nrun as user = root\n[directories]\n{folders}\n"
        "[web]\nbind to = 127.0.0.1:44398\n"
    )
    log = directory / "netdata.log"
    arguments = ["netdata", "-D", "-c", configuration, "-P", place / "pid"]
    began = time.monotonic()
    with in_background(arguments, log, lambda _: time.monotonic() > began + 5) as session:
        yield session


@dataclass(frozen=True)
class Peer:
    name: str
    program: str
    """Without it the peer is left out."""
    background: Tool | None = None
    prefix: tuple[str, ...] = ()
    """Else what the pipeline is run under."""


def peers(directory: Path) -> list[Peer]:
    return [
        Peer("pipelined", str(DAEMON), ours),
        Peer("bpftrace, on sched_switch", "bpftrace", lambda at: bpftrace(at, _SWITCHES)),
        Peer("bpftrace, on read and write", "bpftrace", lambda at: bpftrace(at, _CALLS)),
        *(Peer(f"bcc's {name}", f"{name}-bpfcc", bcc(name)) for name in _BCC),
        Peer("PCP: pmcd, asked once a second", "/usr/lib/pcp/bin/pmcd", pcp),
        Peer("netdata", "netdata", netdata),
        Peer(
            "perf sched record",
            "perf",
            prefix=("perf", "sched", "record", "-o", f"{directory}/perf"),
        ),
        Peer("perf trace -s", "perf", prefix=("perf", "trace", "-s", "-o", f"{directory}/trace")),
        Peer("strace -f -c", "strace", prefix=("strace", "-f", "-c", "-o", f"{directory}/strace")),
    ]


_BCC = ("offcputime", "runqlat", "biolatency", "syscount")


def measure_peers(table: Table, directory: Path, rounds: int, seconds: float) -> None:
    """Three pipelines and a storm of short ones, without and with each tool, in turn."""
    file = directory / "lines"
    with file.open("w") as out:
        subprocess.run(["seq", "400000"], stdout=out, check=True)
    cpu = max(os.sched_getaffinity(0))
    count = max(1, int(400_000 * seconds))
    # on one CPU, as dd is there, for the same reason
    shell = ["taskset", "-c", str(cpu), "bash", "-c"]
    pipelines = {
        "dd, dd 4 KiB": dd(4096, count),
        "sort, uniq": [*shell, f"sed s/..$// {file} | sort | uniq -c | tail -n 1"],
        "cat, tr, wc": [*shell, f"cat {' '.join([str(file)] * 8)} | tr 0-4 5-9 | wc -l"],
        "500 true, true, true": [
            *shell,
            "for ((i = 0; i < 500; i++)); do /bin/true | /bin/true | /bin/true; done",
        ],
    }
    with debug_files():
        for peer in peers(directory):
            _measure(table, directory, peer, pipelines, rounds)


def _measure(
    table: Table, directory: Path, peer: Peer, pipelines: dict[str, list[str]], rounds: int
) -> None:
    if not shutil.which(peer.program):
        note(f"{peer.name}: left out, {peer.program} is not installed")
        return
    without: dict[str, list[float]] = {name: [] for name in pipelines}
    under: dict[str, list[float]] = {name: [] for name in pipelines}
    shares: list[float] = []
    resident = 0.0

    def off() -> None:
        for name, command in pipelines.items():
            without[name].append(run(command))

    def on() -> None:
        nonlocal resident
        with peer.background(directory) if peer.background else contextlib.nullcontext() as session:
            before, began = _session(session)[0], time.monotonic()
            for name, command in pipelines.items():
                under[name].append(run([*peer.prefix, *command]))
            after, held = _session(session)
            shares.append((after - before) / (time.monotonic() - began))
            resident = max(resident, held)

    try:
        for number in range(rounds):
            for step in (off, on) if number % 2 == 0 else (on, off):
                step()
            if max(under[name][0] / without[name][0] for name in pipelines) > 10:
                break  # clear enough
    except (Failed, OSError) as error:
        table.add(f"under {peer.name}", "", f"not here: {error}", None)
        return
    figures = "; ".join(
        f"{name} {statistics.median(under[name]) / statistics.median(without[name]):.2f} x"
        for name in pipelines
    )
    if peer.background:
        figures += f"; itself {statistics.median(shares):.1%} of a CPU, {resident:.0f} MB"
    table.add(f"under {peer.name}", "", figures, None)


def _session(session: int | None) -> tuple[float, float]:
    """CPU time of a session's processes and their ended children (s), and what it holds (MB)."""
    ticks = pages = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks += sum(map(int, fields[11:15]))
                pages += int(fields[21])
    return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 1e6
