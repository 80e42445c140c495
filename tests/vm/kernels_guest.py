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
from collections.abc import Callable
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
#: Processes of the loop that shows what a preemptible kernel passes over.
LOOPS = 300

_MS_BIND = 4096


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
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(str(source).encode(), str(target).encode(), None, _MS_BIND, None):
        raise OSError(ctypes.get_errno(), f"mount --bind {source} {target}")


def hide(what: str) -> None:
    """Make this kernel look like one that has not got it, to whoever reads its BTF."""
    if what == "btf":
        empty = Path("/run/empty")
        empty.mkdir()
        bind(empty, BTF.parent)
    elif what:
        names = BTF.read_bytes()
        for name in what.split(","):
            shown = f"\0btf_trace_{name}\0".encode()
            assert shown in names, f"this kernel has no tracepoint {name} to hide"
            names = names.replace(shown, b"\0btf_hides_" + shown[len("\0btf_trace_") :])
        changed = Path("/run/vmlinux")
        changed.write_bytes(names)
        bind(changed, BTF)


def hooks_off() -> dict[str, str]:
    """Hooks that doctor reports as off, with the reasons; its whole text goes to the console."""
    answer = pipelined("doctor")
    print(answer.stdout.rstrip(), flush=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return dict(re.findall(r"^hook (\S+) +off +(.*)$", answer.stdout, re.M))


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


def refused_by_the_verifier(code: tuple[tuple[int, ...], ...]) -> str:
    """What it says of a program of this code; nothing if it knows all of it."""
    program = b"".join(
        struct.pack("=BBhi", opcode, target | source << 4, offset, value)
        for opcode, target, source, offset, value in (*code, *_ZERO, (0x95, 0, 0, 0, 0))
    )
    instructions = ctypes.create_string_buffer(program, len(program))
    licence, log = ctypes.create_string_buffer(b"GPL"), ctypes.create_string_buffer(65536)
    attributes = ctypes.create_string_buffer(
        struct.pack(
            "=IIQQIIQ",
            *(_RAW_TRACEPOINT, len(program) // 8),
            *(ctypes.addressof(instructions), ctypes.addressof(licence)),
            *(1, len(log), ctypes.addressof(log)),
        ),
        128,
    )
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(_SYS_BPF[os.uname().machine], _PROG_LOAD, attributes, 128)
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


def doctor_says_that_it_works_and_which_hooks_are_off() -> None:
    off = set(hooks_off())
    assert off == set(filter(None, option("off").split(","))), off


def report_of(command: str) -> dict[str, Any]:
    answer = pipelined("run", "--json", "-o", "/run/report", command)
    assert answer.returncode == 0, answer.stderr
    report: dict[str, Any] = json.loads(Path("/run/report").read_text())
    assert not any(report["lost"].values()), report["lost"]
    (run,) = report["runs"]
    return dict(run)


def a_run_has_a_report_that_adds_up() -> None:
    size = DATA.stat().st_size
    run = report_of(f"cat {DATA} | tr a-z A-Z | sort | tail -n 1 > /run/last")
    assert run["pipeline"] == "cat|tr|sort|tail", run["pipeline"]
    assert run["outcome"]["result"] == "succeeded", run["outcome"]
    levels = sum(run["level_seconds"].values())
    assert abs(levels - run["wall_seconds"]) <= 0.005 * levels + GAP, (levels, run["wall_seconds"])
    for stage in run["stages"]:
        states = sum(stage["state_seconds"].values())
        assert abs(states - stage["lifetime_seconds"]) <= 0.005 * states + GAP, stage
        assert stage["state_seconds"]["cpu"] > 0, stage
    flows = [stage["pipe_bytes"] for stage in run["stages"][:3]]
    exact = "pipe_write" not in option("off")
    assert all(flow["exact"] is exact for flow in flows), flows
    if exact:
        assert [flow["out"] for flow in flows] == [size] * 3, flows
    else:
        assert all(size <= flow["out"] <= size + 65536 for flow in flows), flows
    waits = {s["command"]: s["state_seconds"] for s in run["stages"]}
    assert waits["sort"]["pipe_empty"] > 0 and waits["tail"]["pipe_empty"] > 0, waits


def pages_of_a_cold_file_come_from_disk_and_those_of_a_warm_one_do_not() -> None:
    if not option("readahead"):
        return
    pages = -(-COPY.stat().st_size // 4096)
    cold, warm = (report_of(f"cat {COPY} | wc -c > /run/count")["stages"][0] for _ in range(2))
    if option("readahead") == "off":
        assert cold["readahead"] is None and warm["readahead"] is None, cold
        return
    counted, again = cold["readahead"]["pages"], warm["readahead"]["pages"]
    # the dynamic linker reads a page of each library
    from_disk = counted["hit"] + counted["late"] + counted["miss"]
    assert pages <= from_disk <= pages + 8 and counted["warm"] <= 8, (counted, pages)
    assert pages <= again["warm"] <= pages + 8, (again, pages)
    assert not warm["readahead"]["inserted_pages"], warm["readahead"]


def the_daemon_counts_runs_and_stores_them() -> None:
    with Path("/run/log").open("w+") as log:
        command = ["pipelined", "serve", "--state-directory", "/data/state"]
        daemon = subprocess.Popen(command, stderr=log, stdout=log)
        try:
            wait_until(lambda: fetch("/readyz") or daemon.poll() is not None, "the daemon")
            # the tiers follow, and a run that began before them is partial
            wait_until(lambda: 'pending="true"' not in fetch("/metrics"), "the optional hooks")
            for _ in range(RUNS):
                subprocess.run("seq 5000 | sort -n | tail -n 1 > /dev/null", shell=True, check=True)
                # of runs that end together the history keeps the longest, as many as that lets it
                time.sleep(HISTORY_SECONDS)
            sample = rf'^pipelined_runs_total\{{.*pipeline="seq\|sort\|tail".*\}} {RUNS}\.0$'
            wait_until(lambda: re.search(sample, fetch("/metrics"), re.M), "the runs")
            of_metrics = fetch("/metrics")
            lost = re.findall(r"^pipelined_lost_total\{.*\} (\S+)$", of_metrics, re.M)
            assert lost and not any(map(float, lost)), lost
            stored = wait_until(
                lambda: [line for line in history() if line["pipeline"] == "seq|sort|tail"][
                    RUNS - 1 :
                ],
                "the history",
            )
            assert all(line["outcome"] == "succeeded" for line in stored), stored
            shown = pipelined("show", *STATE, "last")
            assert shown.returncode == 0 and shown.stdout.startswith("seq|sort|tail"), shown
            passed_over(of_metrics)
        finally:
            daemon.terminate()
            status = daemon.wait(PATIENCE)
            log.seek(0)
            text = log.read()
            print("".join(f"guest: log {line}\n" for line in text.splitlines()), end="", flush=True)
    assert status == 0, status
    assert "Traceback" not in text


def history() -> list[dict[str, Any]]:
    answer = pipelined("runs", *STATE, "--json")
    assert answer.returncode == 0, answer.stderr
    runs: list[dict[str, Any]] = json.loads(answer.stdout)["runs"]
    return runs


def missed(metrics: str) -> dict[str, float]:
    found = re.findall(r'^pipelined_missed_events_total\{.*hook="(\w+)".*\} (\S+)$', metrics, re.M)
    return {name: float(count) for name, count in found}


def passed_over(before: str) -> None:
    """Print which share of forks, execs and exits the kernel passed over, by its own count."""
    loop = f"for i in $(seq {LOOPS // 2}); do /usr/bin/true | /usr/bin/true; done"
    subprocess.run(loop, shell=True, check=True)
    after = missed(fetch("/metrics"))
    for hook, count in sorted(after.items()):
        if hook.startswith("sched_process"):
            count -= missed(before).get(hook, 0)
            print(f"guest: passed over {hook} {count:.0f} of some {LOOPS}", flush=True)


# Where it does not


def the_verifier_refuses_what_is_expected() -> None:
    lacking = [name for name, said in what_the_kernel_knows().items() if said]
    assert bool(lacking) == bool(option("verifier")), lacking


def doctor_says_in_its_last_line_why_it_does_not_work() -> None:
    answer = pipelined("doctor")
    print(answer.stdout.rstrip(), flush=True)
    assert answer.returncode == 1, answer
    assert option("refuses") in answer.stdout.splitlines()[-1], answer.stdout.splitlines()[-1]


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
    doctor_says_that_it_works_and_which_hooks_are_off,
    a_run_has_a_report_that_adds_up,
    pages_of_a_cold_file_come_from_disk_and_those_of_a_warm_one_do_not,
    the_daemon_counts_runs_and_stores_them,
)
REFUSED = (
    the_verifier_refuses_what_is_expected,
    doctor_says_in_its_last_line_why_it_does_not_work,
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
