# SPDX-License-Identifier: Apache-2.0
"""Runs in the virtual machine, below its first process: what the program does on this kernel.

Each claim prints a line; the last line is the result. Standard library only: the machine has
nothing else. Time is warped there: what is waited for has a wide deadline, and no claim is about
speed. The kernel's command line says what to expect (kernels.py writes it).
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from claims import try_all

URL = "http://127.0.0.1:9905"
DATA = Path("/data/lines")
COPY = Path("/data/again")
BTF = Path("/sys/kernel/btf/vmlinux")
STATE = ("--state-directory", "/data/state")
#: Seconds to wait for anything.
PATIENCE = 900
#: Runs that the daemon is to count.
RUNS = 5
#: In which an emulated processor's hundredth is enough to store one of them, in seconds.
HISTORY_SECONDS = 5
#: What an emulated processor may need between two events that end the same thing, in seconds.
GAP = 0.02
#: Processes of the loop that shows what a preemptible kernel passes over, and blocks of the pipe.
LOOPS, BLOCKS = 300, 20_000
#: What doctor may take of a terminal.
LINES, COLUMNS = 50, 100

_MS_BIND = 4096
LIBC = ctypes.CDLL(None, use_errno=True)


def option(name: str) -> str:
    """What the kernel's command line says of this."""
    found = re.search(rf"\bpipelined\.{name}=(\S*)", Path("/proc/cmdline").read_text())
    return unquote(found[1]) if found else ""


def pipelined(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["pipelined", *words], capture_output=True, text=True, timeout=PATIENCE)


def wait_until(look: Callable[[], Any], what: str) -> Any:
    began = time.monotonic()
    while time.monotonic() < began + PATIENCE:
        if found := look():
            print(f"guest: {what}: there after {time.monotonic() - began:.0f} s", flush=True)
            return found
        time.sleep(3)  # each look costs the emulated processors a good part of that
    raise AssertionError(f"waited {PATIENCE} s in vain for {what}")


def fetch(path: str) -> str:
    try:
        with urllib.request.urlopen(URL + path, timeout=PATIENCE) as answer:
            text: str = answer.read().decode()
            return text
    except OSError:
        return ""


def bind(source: Path, target: Path) -> None:
    if LIBC.mount(str(source).encode(), str(target).encode(), None, _MS_BIND, None):
        raise OSError(ctypes.get_errno(), f"mount --bind {source} {target}")


def hide(what: str) -> None:
    """Make this kernel look like one that has not got it, to whoever reads its BTF."""
    if what:
        names = BTF.read_bytes()
        for name in what.split(","):
            shown = f"\0btf_trace_{name}\0".encode()
            assert shown in names, f"this kernel has no tracepoint {name} to hide"
            names = names.replace(shown, b"\0btf_hides_" + shown[len("\0btf_trace_") :])
        changed = Path("/run/vmlinux")
        changed.write_bytes(names)
        bind(changed, BTF)


def doctor(status: int) -> str:
    """What doctor says, on one screen; its whole text goes to the console."""
    answer = pipelined("doctor")
    print(answer.stdout.rstrip(), flush=True)
    assert answer.returncode == status, answer.stdout + answer.stderr
    lines = sum(max(1, -(-len(line) // COLUMNS)) for line in answer.stdout.splitlines())
    print(f"guest: doctor: {lines} lines of {COLUMNS}, exit code {status}", flush=True)
    assert lines <= LINES, lines
    return answer.stdout


#: eBPF instructions and helpers that the programs need, as code that the verifier is given.
_CALL = 0x85
_ZERO = ((0xB7, 0, 0, 0, 0),)  # r0 = 0
_STACK = ((0xB7, 1, 0, 0, 1), (0x7B, 10, 1, -8, 0), *_ZERO)  # r1 = 1; [r10 - 8] = r1
NEEDS = {
    "atomic operations that return a value": (*_STACK, (0xDB, 10, 1, -8, 0x01)),
    "compare and swap": (*_STACK, (0xDB, 10, 1, -8, 0xF1)),
    "bpf_get_current_task_btf": ((_CALL, 0, 0, 0, 158),),
    "bpf_task_pt_regs": ((_CALL, 0, 0, 0, 175),),
    "bpf_task_storage_get in tracing programs": ((_CALL, 0, 0, 0, 156),),
}
_SYS_BPF = {"x86_64": 321, "aarch64": 280}
_PROG_LOAD, _RAW_TRACEPOINT = 5, 17
_PROG_GET_NEXT_ID, _PROG_GET_FD_BY_ID, _OBJ_GET_INFO_BY_FD = 11, 13, 15
#: Of struct bpf_prog_info: its size here, and where name and run_cnt are; recursion_misses follows.
_INFO_SIZE, _NAME, _RUN_COUNT = 216, 64, 200


def bpf(command: int, attributes: bytes) -> tuple[int, bytes]:
    """The system call: what it returns, and the attributes as it leaves them."""
    given = ctypes.create_string_buffer(attributes, 128)
    returned = LIBC.syscall(_SYS_BPF[os.uname().machine], command, given, len(given))
    return int(returned), given.raw


def refused_by_the_verifier(code: tuple[tuple[int, ...], ...]) -> str:
    """What it says of a program of this code; nothing if it knows all of it."""
    program = b"".join(
        struct.pack("=BBhi", opcode, target | source << 4, offset, value)
        for opcode, target, source, offset, value in (*code, *_ZERO, (0x95, 0, 0, 0, 0))
    )
    instructions = ctypes.create_string_buffer(program, len(program))
    licence, log = ctypes.create_string_buffer(b"GPL"), ctypes.create_string_buffer(65536)
    attributes = struct.pack(
        "=IIQQIIQ",
        *(_RAW_TRACEPOINT, len(program) // 8),
        *(ctypes.addressof(instructions), ctypes.addressof(licence)),
        *(1, len(log), ctypes.addressof(log)),
    )
    descriptor, _ = bpf(_PROG_LOAD, attributes)
    if descriptor >= 0:
        os.close(descriptor)
        return ""
    said = log.value.decode().splitlines()
    # an argument of the wrong type: the helper itself is known
    return "" if re.search(r"^R1 type=", "\n".join(said), re.M) else "; ".join(said[-4:-1])


def what_the_kernel_knows() -> dict[str, str]:
    """What the verifier says of each thing that the programs need."""
    found = {name: refused_by_the_verifier(code) for name, code in NEEDS.items()}
    for name, said in found.items():
        print(f"guest: {name}: {'no: ' + said if said else 'yes'}", flush=True)
    return found


# Where it works


def the_verifier_knows_all_that_the_programs_need() -> None:
    assert not any(what_the_kernel_knows().values())


def doctor_says_on_one_screen_that_it_works_and_which_hooks_are_off() -> None:
    said = doctor(0)
    off = set(re.findall(r"^hook (\S+) +off ", said, re.M))
    assert off == set(filter(None, option("off").split(","))), off
    assert said.splitlines()[-1].startswith("pipelined works here"), said.splitlines()[-1]


def nothing_is_lost(counts: Mapping[str, float]) -> None:
    """By kind. On an rt kernel a program may be stopped while it has this CPU's task storage."""
    lost = {kind: count for kind, count in counts.items() if count}
    if option("preempts") == "rt" and (tasks := lost.pop("tasks", 0)):
        print(f"guest: {tasks:.0f} tasks found no record when they began", flush=True)
    assert not lost, lost


def report_of(command: str, *options: str) -> dict[str, Any]:
    """The run of this command that took longest, and that was outside all others."""
    answer = pipelined("run", *options, "--json", "-o", "/run/report", command)
    assert answer.returncode == 0, answer.stderr
    report: dict[str, Any] = json.loads(Path("/run/report").read_text())
    nothing_is_lost(report["lost"])
    run: dict[str, Any] = report["runs"][0]
    assert run["outcome"]["result"] == "succeeded", run["outcome"]
    return run


def a_run_has_a_report_that_adds_up() -> None:
    size = DATA.stat().st_size
    run = report_of(f"cat {DATA} | tr a-z A-Z | sort | tail -n 1 > /run/last")
    assert run["pipeline"] == "cat|tr|sort|tail", run["pipeline"]
    levels = sum(run["level_seconds"].values())
    assert abs(levels - run["wall_seconds"]) <= 0.005 * levels + GAP, (levels, run["wall_seconds"])
    for stage in run["stages"]:
        states = sum(stage["state_seconds"].values())
        assert abs(states - stage["lifetime_seconds"]) <= 0.005 * states + GAP, stage
        assert stage["state_seconds"]["cpu"] > 0, stage
    flows = [stage["pipe_bytes"] for stage in run["stages"][:3]]
    exact = [flow["exact"] for flow in flows]
    if "pipe_write" in option("off"):
        assert not any(exact), flows
    elif not option("preempts"):
        assert all(exact), flows
    for flow in flows:
        assert size <= flow["out"] <= size + (0 if flow["exact"] else 65536), flow
    waits = {s["command"]: s["state_seconds"] for s in run["stages"]}
    assert waits["sort"]["pipe_empty"] > 0 and waits["tail"]["pipe_empty"] > 0, waits


@contextmanager
def a_daemon() -> Iterator[None]:
    """One that has tried all of its hooks; what it logged goes to the console."""
    with Path("/run/daemon.log").open("w+") as log:
        command = ["pipelined", "serve", *STATE]
        daemon = subprocess.Popen(command, stderr=log, stdout=log)
        try:
            wait_until(lambda: fetch("/readyz") or daemon.poll() is not None, "the daemon")
            # the tiers follow, and a run that began before them is partial
            wait_until(
                lambda: json.loads(fetch("/readyz") or "{}").get("pending_hooks") == [],
                "the optional hooks",
            )
            yield
        finally:
            daemon.terminate()
            status = daemon.wait(PATIENCE)
            log.seek(0)
            text = log.read()
            print("".join(f"guest: log {line}\n" for line in text.splitlines()), end="", flush=True)
    assert status == 0, status
    assert "Traceback" not in text


def pages_of_a_cold_file_come_from_disk_and_those_of_a_warm_one_do_not() -> None:
    if not option("readahead"):
        return
    pages = -(-COPY.stat().st_size // 4096)
    command = f"cat {COPY} | wc -c > /run/count"
    cold, warm = (report_of(command, "--url", URL)["stages"][0] for _ in range(2))
    if option("readahead") == "off":
        assert cold["readahead"] is None and warm["readahead"] is None, cold
        return
    counted, again = cold["readahead"]["pages"], warm["readahead"]["pages"]
    # the dynamic linker reads a page of each library
    from_disk = counted["hit"] + counted["late"] + counted["miss"]
    assert pages <= from_disk <= pages + 8 and counted["warm"] <= 8, (counted, pages)
    assert pages <= again["warm"] <= pages + 8, (again, pages)
    assert not warm["readahead"]["inserted_pages"], warm["readahead"]


def runs_are_counted_and_stored() -> None:
    for _ in range(RUNS):
        subprocess.run("seq 5000 | sort -n | tail -n 1 > /dev/null", shell=True, check=True)
        # of runs that end together the history keeps the longest, as many as that lets it
        time.sleep(HISTORY_SECONDS)
    sample = rf'^pipelined_runs_total\{{.*pipeline="seq\|sort\|tail".*\}} {RUNS}\.0$'
    wait_until(lambda: re.search(sample, fetch("/metrics"), re.M), "the runs")
    counts = re.findall(r'^pipelined_lost_total\{what="(\w+)"\} (\S+)$', fetch("/metrics"), re.M)
    assert counts
    nothing_is_lost({kind: float(count) for kind, count in counts})
    # what an emulated processor of a busy host is too slow to store is dropped, and counted
    wait_until(lambda: len(stored()) + dropped() >= RUNS, "the history")
    found = stored()
    print(f"guest: {len(found)} of {RUNS} runs are in the history", flush=True)
    assert found, "all were dropped"
    assert all(line["outcome"] == "succeeded" for line in found), found
    shown = pipelined("show", *STATE, found[0]["id"])
    assert shown.returncode == 0 and shown.stdout.startswith("seq|sort|tail"), shown


def stored() -> list[dict[str, Any]]:
    """The runs of the history that were run for it."""
    answer = pipelined("runs", *STATE, "--json")
    assert answer.returncode == 0, answer.stderr
    return [run for run in json.loads(answer.stdout)["runs"] if run["pipeline"] == "seq|sort|tail"]


def dropped() -> int:
    found = re.findall(r"^pipelined_sink_dropped_runs_total\{.*\} (\S+)$", fetch("/metrics"), re.M)
    return round(sum(map(float, found)))


def missed(metrics: str) -> int:
    """Events that programs were passed over for, as the daemon exports the kernel's count."""
    found = re.findall(r"^pipelined_missed_events_total\{.*\} (\S+)$", metrics, re.M)
    return round(sum(map(float, found)))


def programs() -> dict[str, tuple[int, int]]:
    """Of each BPF program, by its name: how often it ran, and how often it was passed over."""
    found = {}
    at = 0
    while True:
        failed, answer = bpf(_PROG_GET_NEXT_ID, struct.pack("=I", at))
        if failed:
            return found
        (at,) = struct.unpack_from("=I", answer, 4)
        descriptor, _ = bpf(_PROG_GET_FD_BY_ID, struct.pack("=I", at))
        if descriptor < 0:
            continue  # it went meanwhile
        info = ctypes.create_string_buffer(_INFO_SIZE)
        where = struct.pack("=IIQ", descriptor, len(info), ctypes.addressof(info))
        failed, _ = bpf(_OBJ_GET_INFO_BY_FD, where)
        os.close(descriptor)
        assert not failed, os.strerror(ctypes.get_errno())
        name = info.raw[_NAME : _NAME + 16].split(b"\0")[0].decode()
        found[name] = struct.unpack_from("=QQ", info, _RUN_COUNT)


#: What may make a kernel pass over events: short processes, a busy pipe, several of them that share
#: the CPUs, and a job of all kinds.
LOADS = {
    "forks": f"i=0; while [ $i -lt {LOOPS // 2} ]; do /usr/bin/true | /usr/bin/true;"
    " i=$((i + 1)); done | cat",
    "pipe": f"dd if=/dev/zero bs=4k count={BLOCKS} | dd of=/dev/null bs=4k",
    "pipes": f"dd if=/dev/zero bs=4k count={BLOCKS} | dd bs=4k | dd bs=4k | dd of=/dev/null bs=4k",
    "mixed": "busybox find /usr/lib/pipelined -name '*.py' | busybox xargs -n 10 cat"
    " | tr A-Z a-z | sort | uniq -c | sort -rn > /run/words",
}


def what_the_kernel_passes_over_is_exported() -> None:
    """And prints which share that is under each load, and what is recorded all the same."""
    Path("/proc/sys/kernel/bpf_stats_enabled").write_text("1")
    for load, command in LOADS.items():
        before = programs()
        run = report_of(command, "--url", URL)
        print(f"guest: {load}: passed over {shares(before, programs())}", flush=True)
        print(f"guest: {load}: {recorded(load, run['stages'])}", flush=True)
    least = sum(passed for _, passed in programs().values())
    exported = missed(fetch("/metrics"))
    most = sum(passed for _, passed in programs().values())
    assert least <= exported <= most, (least, exported, most)


def shares(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> str:
    """For which part of the events since `before` programs were passed over: all, and each."""
    none = (0, 0)
    found = {"all": none}
    for name, (ran, passed) in sorted(after.items()):
        then = before.get(name, none)
        found[name] = passed - then[1], ran - then[0] + passed - then[1]
    found["all"] = tuple(map(sum, zip(*found.values(), strict=True)))
    return ", ".join(
        f"{name} {passed} of {events} ({passed / events:.3%})"
        for name, (passed, events) in found.items()
        if passed or name == "all"
    )


def recorded(load: str, stages: list[dict[str, Any]]) -> str:
    """What the report of a load has, whatever was passed over; what it calls exact has to be."""
    if load == "forks":
        return f"recorded {stages[0]['forks']} forks, {stages[0]['execs']} execs of {LOOPS} each"
    flows = [stage["pipe_bytes"] for stage in stages]
    if load in ("pipe", "pipes"):
        moved = {BLOCKS * 4096, None}
        assert all({flow["in"], flow["out"]} <= moved for flow in flows if flow["exact"]), flows
    return f"bytes are exact of {sum(flow['exact'] for flow in flows)} of {len(flows)} stages"


def the_daemon_does_its_work_and_ends() -> None:
    with a_daemon():
        assert not try_all(BY_DAEMON, "guest")


# Where it does not


def the_verifier_refuses_what_is_expected() -> None:
    lacking = [name for name, said in what_the_kernel_knows().items() if said]
    assert bool(lacking) == bool(option("verifier")), lacking


def doctor_says_in_the_last_line_of_one_screen_why_it_does_not_work() -> None:
    last = doctor(1).splitlines()[-1]
    assert option("refuses") in last, last


def serve_and_run_say_it_in_one_line() -> None:
    for words in (("serve", *STATE), ("run", "true | true")):
        answer = pipelined(*words)
        said = [line for line in answer.stderr.splitlines() if "level=info" not in line]
        print("".join(f"guest: {words[0]} said {line}\n" for line in said), end="", flush=True)
        assert answer.returncode == 1, answer
        assert len(said) == 1, said
        assert option("refuses") in said[0], said


WORKS = (
    the_verifier_knows_all_that_the_programs_need,
    doctor_says_on_one_screen_that_it_works_and_which_hooks_are_off,
    a_run_has_a_report_that_adds_up,
    the_daemon_does_its_work_and_ends,
)
BY_DAEMON = (
    pages_of_a_cold_file_come_from_disk_and_those_of_a_warm_one_do_not,
    runs_are_counted_and_stored,
    what_the_kernel_passes_over_is_exported,
)
REFUSED = (
    the_verifier_refuses_what_is_expected,
    doctor_says_in_the_last_line_of_one_screen_why_it_does_not_work,
    serve_and_run_say_it_in_one_line,
)


def main() -> int:
    hide(option("hide"))
    print(f"guest: Linux {os.uname().release} {os.uname().machine}", flush=True)
    failures = try_all(REFUSED if option("refuses") else WORKS, "guest")
    print(f"guest: result failures={failures}", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main())
