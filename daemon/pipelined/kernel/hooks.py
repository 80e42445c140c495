# SPDX-License-Identifier: Apache-2.0
"""The BPF programs, and the places in the kernel where they are attached."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

__all__ = ["ITERATOR", "REQUIRED", "Hook", "Program", "optional_hooks", "optional_programs"]

_BTF = Path("/sys/kernel/btf/vmlinux")
_KPROBES = Path("/sys/bus/event_source/devices/kprobe")


@dataclass(frozen=True, slots=True)
class Hook:
    """A place in the kernel where a program is, will be, or could not be, attached."""

    name: str
    tier: str
    method: str
    attached: bool
    reason: str = ""
    """Why it could not be attached."""
    pending: bool = False
    """It has not been tried yet."""
    gives: str = ""
    """As of its program."""


@dataclass(frozen=True, slots=True)
class Program:
    """Where a program is attached."""

    hook: str
    tier: str = "sched"
    method: str = "tp_btf"
    functions: tuple[str, ...] = ()
    """Names in the kernel; the first that exists is the hook. If empty, `hook` has to exist."""
    instead_of: str | None = None
    """Name of the program that this one replaces if the kernel refuses that."""
    gives: str = ""
    """The figures that are absent or less exact without it; empty: nothing works without it."""

    def attached(self) -> Hook:
        return self._hook(attached=True)

    def refused(self, reason: str) -> Hook:
        return self._hook(reason=reason)

    def pending(self) -> Hook:
        return self._hook(pending=True)

    def _hook(self, *, attached: bool = False, reason: str = "", pending: bool = False) -> Hook:
        return Hook(self.hook, self.tier, self.method, attached, reason, pending, self.gives)


ITERATOR = "sweep_tasks"

#: Without these nothing can be observed.
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
    method: str,
    *names: str,
    gives: str,
    tier: str = "functions",
    instead_of: str | None = None,
) -> Program:
    return Program(names[-1], tier, method, names, instead_of, gives)


_GIVES_EXECS = "how many execs failed"
_EXEC_FAILURES = {
    "on_execve_exit": _function("fexit", f"__{_ARCH}_sys_execve", tier="sched", gives=_GIVES_EXECS),
}
_EXEC_FAILURES_BY_TRACEPOINT = {
    "on_execve_return": Program("sys_exit_execve", method="tracepoint", gives=_GIVES_EXECS),
    "on_execveat_return": Program(
        "sys_exit_execveat", method="tracepoint", gives=f"{_GIVES_EXECS} in execveat"
    ),
}

#: Who stops a stage: somebody outside its run, or a process of it.
_SIGNALS = {
    "on_signal": Program(
        "signal_generate",
        functions=("signal_generate",),
        gives="who stopped a stage (what its own run stops counts as interrupted from outside)",
    )
}

#: Anonymous pipes have functions of their own since 6.15 and in kernels with that change
#: backported; the functions of named FIFOs call them.
_PIPE_WRITE = ("anon_pipe_write", "pipe_write")
_GIVES_FILE_READS = "sizes and times of reads of files"
_GIVES_SPLICED = "bytes that a stage moves with {} (its neighbours' are shown)"
_FUNCTIONS = {
    "on_pipe_write": _function(
        "fentry", *_PIPE_WRITE, gives="sizes of writes to pipes, how full the pipe was"
    ),
    "on_pipe_write_end": _function(
        "fexit", *_PIPE_WRITE, gives="exact bytes through pipes (what is written is a bound, ≤)"
    ),
    "on_pipe_read": _function(
        "fexit",
        *("anon_pipe_read", "pipe_read"),
        gives="sizes of reads from pipes, exact bytes (what is read is a bound, ≤)",
    ),
    "on_file_read": _function("fentry", "vfs_read", gives=_GIVES_FILE_READS),
    "on_file_read_end": _function("fexit", "vfs_read", gives=_GIVES_FILE_READS),
    "on_splice": _function("fexit", "do_splice", gives=_GIVES_SPLICED.format("splice")),
    "on_tee": _function("fexit", "do_tee", gives=_GIVES_SPLICED.format("tee")),
    "on_vmsplice": _function(
        "fexit", f"__{_ARCH}_sys_vmsplice", gives=_GIVES_SPLICED.format("vmsplice")
    ),
}

#: What a kprobe can do instead. None at a return: kretprobes lose calls that sleep.
_BY_KPROBE = {
    "on_pipe_write_kprobe": _function(
        "kprobe",
        *_PIPE_WRITE,
        gives=_FUNCTIONS["on_pipe_write"].gives,
        instead_of="on_pipe_write",
    )
}


def _filemap(tracepoint: str, gives: str) -> Program:
    return Program(tracepoint, tier="readahead", functions=(tracepoint,), gives=gives)


#: Events of the page cache. get_pages and fault came with 6.12, that of direct I/O with 6.6.
_READAHEAD = {
    "on_page_added": _filemap(
        "mm_filemap_add_to_page_cache",
        "what came from disk and what was read ahead (every page counts as warm)",
    ),
    "on_pages_got": _filemap(
        "mm_filemap_get_pages", "pages read from files, the cache state, stalls by page class"
    ),
    "on_file_fault": _filemap("mm_filemap_fault", "faults on mapped files"),
    "on_reader_exit": _filemap("sched_process_exit", "pages that were read ahead and never used"),
    "on_direct_io": _filemap("iomap_dio_complete", "bytes of direct I/O"),
}

#: For kernels before 6.12: the functions that contain these tracepoints.
_BEFORE_TRACEPOINTS = {
    "on_pages_got": ("on_get_pages", "filemap_get_pages"),
    "on_file_fault": ("on_filemap_fault", "filemap_fault"),
}

#: The kernel side counts pages of this size.
_PAGE_SIZE = 4096


def optional_hooks(
    *, functions: bool, readahead: bool, trace_exec_failures: bool
) -> tuple[Hook, ...]:
    """The hooks that `optional_programs` will try, by the names that current kernels have.

    It does not look at the kernel, which takes 40 ms.
    """
    asked = dict(_EXEC_FAILURES_BY_TRACEPOINT if trace_exec_failures else _EXEC_FAILURES)
    asked |= _SIGNALS
    asked |= _FUNCTIONS if functions else {}
    asked |= _READAHEAD if readahead else {}
    return tuple(program.pending() for program in asked.values())


def optional_programs(
    *, functions: bool, readahead: bool, trace_exec_failures: bool
) -> tuple[dict[str, Program], dict[str, tuple[Program, str]]]:
    """Programs to try, in this order, and those that this kernel has no hook for, with the reason.

    `functions` and `readahead` add the programs of these tiers. Failed execs are counted if the
    kernel allows fexit; `trace_exec_failures` permits the system call tracepoints instead, which
    slow down every system call of the host.
    """
    names = _kernel_names()
    # execve comes first: if the host forbids fexit, this is known at once
    asked = dict(_EXEC_FAILURES_BY_TRACEPOINT if trace_exec_failures else _EXEC_FAILURES)
    asked |= _SIGNALS
    if functions:
        asked |= _FUNCTIONS
        # always loaded: some arm64 kernels load a program for fentry and refuse to attach it
        if _KPROBES.exists():
            asked |= _BY_KPROBE
    if readahead:
        asked |= _readahead(names)
    there: dict[str, Program] = {}
    missing: dict[str, tuple[Program, str]] = {}
    for name, program in asked.items():
        found = [f for f in program.functions if _is_there(f, program.method, names)]
        if program.tier == "readahead" and os.sysconf("SC_PAGE_SIZE") != _PAGE_SIZE:
            missing[name] = program, "the kernel's pages are not of 4 KiB"
        elif found:
            there[name] = replace(program, hook=found[0])
        elif program.functions:
            what = "tracepoint" if program.method == "tp_btf" else "function"
            missing[name] = program, f"no such {what}"
        else:
            there[name] = program
    return there, missing


def _readahead(names: bytes) -> dict[str, Program]:
    """The programs of the tier: at tracepoints, or at functions in kernels without these."""
    programs: dict[str, Program] = {}
    for name, program in _READAHEAD.items():
        if name not in _BEFORE_TRACEPOINTS or _is_there(program.hook, "tp_btf", names):
            programs[name] = program
            continue
        instead, function = _BEFORE_TRACEPOINTS[name]
        programs[instead] = _function("fentry", function, tier="readahead", gives=program.gives)
        if _KPROBES.exists():
            programs[f"{instead}_kprobe"] = _function(
                "kprobe", function, tier="readahead", gives=program.gives, instead_of=instead
            )
    return programs


def _kernel_names() -> bytes:
    """The kernel's BTF, which contains the names of all its functions and tracepoints."""
    try:
        return _BTF.read_bytes()
    except OSError:
        return b""


def _is_there(name: str, method: str, names: bytes) -> bool:
    prefix = "btf_trace_" if method == "tp_btf" else ""
    return f"\0{prefix}{name}\0".encode() in names
