# SPDX-License-Identifier: Apache-2.0
"""The BPF programs and the places in the kernel that they are for."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

__all__ = ["ITERATOR", "REQUIRED", "Hook", "Program", "optional_programs"]

_BTF = Path("/sys/kernel/btf/vmlinux")
_KPROBES = Path("/sys/bus/event_source/devices/kprobe")


@dataclass(frozen=True, slots=True)
class Hook:
    """A place in the kernel where a program is, or could not be, attached."""

    name: str
    tier: str
    method: str
    attached: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """Where a program is attached."""

    hook: str
    tier: str = "sched"
    method: str = "tp_btf"
    functions: tuple[str, ...] = ()
    """Of the kernel: the first that this kernel has is the hook."""
    instead_of: str | None = None
    """Name of the program that this one is for: attached only where the kernel refuses that."""

    def attached(self) -> Hook:
        return Hook(self.hook, self.tier, self.method, True)

    def refused(self, reason: str) -> Hook:
        return Hook(self.hook, self.tier, self.method, False, reason)


ITERATOR = "sweep_tasks"

#: Without these there is nothing to see.
REQUIRED: Mapping[str, Program] = {
    "on_switch": Program("sched_switch"),
    "on_wakeup": Program("sched_wakeup"),
    "on_fork": Program("sched_process_fork"),
    "on_exec": Program("sched_process_exec"),
    "on_exit": Program("sched_process_exit"),
    ITERATOR: Program("iter/task", method="iterator"),
}

_ARCH = "arm64" if platform.machine() == "aarch64" else "x64"


def _function(
    method: str, *names: str, tier: str = "functions", instead_of: str | None = None
) -> Program:
    return Program(names[-1], tier, method, names, instead_of)


_EXEC_FAILURES = {
    "on_execve_exit": _function("fexit", f"__{_ARCH}_sys_execve", tier="sched"),
}
_EXEC_FAILURES_BY_TRACEPOINT = {
    "on_execve_return": Program("sys_exit_execve", method="tracepoint"),
    "on_execveat_return": Program("sys_exit_execveat", method="tracepoint"),
}

#: Anonymous pipes have functions of their own since 6.15, and where that was backported; those
#: of FIFOs with names call them.
_PIPE_WRITE = ("anon_pipe_write", "pipe_write")
_FUNCTIONS = {
    "on_pipe_write": _function("fentry", *_PIPE_WRITE),
    "on_pipe_read": _function("fexit", "anon_pipe_read", "pipe_read"),
    "on_file_read": _function("fentry", "vfs_read"),
    "on_file_read_end": _function("fexit", "vfs_read"),
    "on_splice": _function("fexit", "do_splice"),
    "on_tee": _function("fexit", "do_tee"),
    "on_vmsplice": _function("fexit", f"__{_ARCH}_sys_vmsplice"),
}

#: Of those, what a kprobe can do as well. None at a return: those lose calls that sleep.
_BY_KPROBE = {"on_pipe_write_kprobe": _function("kprobe", *_PIPE_WRITE, instead_of="on_pipe_write")}


def optional_programs(
    *, functions: bool, trace_exec_failures: bool
) -> tuple[dict[str, Program], dict[str, Program]]:
    """Programs to try, in this order, and those of which this kernel has no function.

    `functions` asks for those of that tier. Failed execs are told where the kernel allows
    fexit; `trace_exec_failures` permits the system call tracepoints instead, which cost every
    system call of the host.
    """
    # that of execve comes first: a host that forbids fexit says so at once
    asked = dict(_EXEC_FAILURES_BY_TRACEPOINT if trace_exec_failures else _EXEC_FAILURES)
    if functions:
        asked |= _FUNCTIONS
        # loaded always: arm64 kernels were seen that load a program for fentry, and refuse then
        if _KPROBES.exists():
            asked |= _BY_KPROBE
    return _of_this_kernel(asked)


def _of_this_kernel(
    programs: Mapping[str, Program],
) -> tuple[dict[str, Program], dict[str, Program]]:
    """The programs with the function that this kernel has, and those of which it has none."""
    try:
        names = _BTF.read_bytes()
    except OSError:
        names = b""
    there, missing = {}, {}
    for name, program in programs.items():
        found = [f for f in program.functions if b"\0" + f.encode() + b"\0" in names]
        if found:
            there[name] = replace(program, hook=found[0])
        elif program.functions:
            missing[name] = program
        else:
            there[name] = program
    return there, missing
