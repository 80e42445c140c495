# SPDX-License-Identifier: Apache-2.0
"""Load the prebuilt BPF object through the system's libbpf.so.1 and attach its programs.

A loader yields map file descriptors and the iterator link; the sweep needs nothing
else, so another loader is one more module with a `load` of this shape. libbpf's own
messages go to the log at debug level; a failure is raised as one `UserError` with the
line that matters.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from .errors import UserError

__all__ = ["Hook", "Loaded", "default_object", "load", "probe_hooks"]

log = logging.getLogger(__name__)

_LIBBPF_DEBUG = 2
_LIBBPF_PRINT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)

_BTF = Path("/sys/kernel/btf/vmlinux")


@dataclass(frozen=True, slots=True)
class _Program:
    """Where a program of the object is attached."""

    hook: str
    tier: str = "sched"
    method: str = "tp_btf"
    functions: tuple[str, ...] = ()
    """Of the kernel: the first that this kernel has is the hook."""


_HOOKS = {
    "on_switch": _Program("sched_switch"),
    "on_wakeup": _Program("sched_wakeup"),
    "on_fork": _Program("sched_process_fork"),
    "on_exec": _Program("sched_process_exec"),
    "on_exit": _Program("sched_process_exit"),
    "sweep_tasks": _Program("iter/task", method="iterator"),
}
_EXEC_FAILURES = {
    "on_execve_exit": _Program("sys_execve", method="fexit"),
}
_EXEC_FAILURES_BY_TRACEPOINT = {
    "on_execve_return": _Program("sys_exit_execve", method="tracepoint"),
    "on_execveat_return": _Program("sys_exit_execveat", method="tracepoint"),
}
_ITERATOR = "sweep_tasks"


_ARCH = "arm64" if platform.machine() == "aarch64" else "x64"


def _function(method: str, *names: str) -> _Program:
    return _Program(names[-1], "functions", method, names)


#: Anonymous pipes have functions of their own since 6.15, and where that was backported; those
#: of FIFOs with names call them.
_FUNCTIONS = {
    "on_pipe_write": _function("fentry", "anon_pipe_write", "pipe_write"),
    "on_pipe_read": _function("fexit", "anon_pipe_read", "pipe_read"),
    "on_file_read": _function("fentry", "vfs_read"),
    "on_file_read_end": _function("fexit", "vfs_read"),
    "on_splice": _function("fexit", "do_splice"),
    "on_tee": _function("fexit", "do_tee"),
    "on_vmsplice": _function("fexit", f"__{_ARCH}_sys_vmsplice"),
}


#: Of those, what a kprobe can do as well. None at a return: those lose calls that sleep.
_FUNCTIONS_BY_KPROBE = {
    "on_pipe_write_kprobe": replace(_FUNCTIONS["on_pipe_write"], method="kprobe"),
}
_KPROBES = Path("/sys/bus/event_source/devices/kprobe")


@dataclass(frozen=True, slots=True)
class Hook:
    """A place in the kernel where a program is, or could not be, attached."""

    name: str
    tier: str
    method: str
    attached: bool
    reason: str = ""


def default_object() -> Path:
    """The object that was built with the package."""
    return Path(__file__).parent / "bpf" / "pipelined.bpf.o"


class _Libbpf:
    """The dozen libbpf functions that are used, with their argument types."""

    def __init__(self) -> None:
        try:
            lib = ctypes.CDLL("libbpf.so.1", use_errno=True)
            libc = ctypes.CDLL(None)
        except OSError as error:
            raise UserError(
                f"libbpf.so.1 cannot be loaded ({error})", "install it: apt-get install libbpf1"
            ) from None
        pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
        self._libc_vsnprintf = libc.vsnprintf
        self._libc_vsnprintf.argtypes = [text, ctypes.c_size_t, text, pointer]
        self._libc_vsnprintf.restype = number
        self.malloc_trim = libc.malloc_trim
        self.malloc_trim.argtypes = [ctypes.c_size_t]
        for name, result, arguments in (
            ("bpf_object__open_file", pointer, [text, pointer]),
            ("bpf_object__load", number, [pointer]),
            ("bpf_object__close", None, [pointer]),
            ("bpf_object__find_map_by_name", pointer, [pointer, text]),
            ("bpf_object__find_program_by_name", pointer, [pointer, text]),
            ("bpf_map__fd", number, [pointer]),
            ("bpf_map__set_max_entries", number, [pointer, ctypes.c_uint32]),
            ("bpf_program__set_autoload", number, [pointer, ctypes.c_bool]),
            ("bpf_program__set_attach_target", number, [pointer, number, text]),
            ("bpf_program__attach", pointer, [pointer]),
            ("bpf_program__attach_kprobe", pointer, [pointer, ctypes.c_bool, text]),
            ("bpf_link__destroy", number, [pointer]),
            ("bpf_link__fd", number, [pointer]),
            ("bpf_iter_create", number, [number]),
            ("bpf_map_update_elem", number, [number, pointer, pointer, ctypes.c_uint64]),
            ("bpf_map_lookup_elem", number, [number, pointer, pointer]),
            ("bpf_map_delete_elem", number, [number, pointer]),
            ("bpf_map_get_next_key", number, [number, pointer, pointer]),
            ("libbpf_set_print", pointer, [_LIBBPF_PRINT]),
        ):
            function = getattr(lib, name)
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)
        self.messages: list[str] = []
        self._print = _LIBBPF_PRINT(self._on_message)
        self.libbpf_set_print(self._print)

    # set from the table above
    bpf_object__open_file: ctypes._NamedFuncPointer
    bpf_object__load: ctypes._NamedFuncPointer
    bpf_object__close: ctypes._NamedFuncPointer
    bpf_object__find_map_by_name: ctypes._NamedFuncPointer
    bpf_object__find_program_by_name: ctypes._NamedFuncPointer
    bpf_map__fd: ctypes._NamedFuncPointer
    bpf_map__set_max_entries: ctypes._NamedFuncPointer
    bpf_program__set_autoload: ctypes._NamedFuncPointer
    bpf_program__set_attach_target: ctypes._NamedFuncPointer
    bpf_program__attach: ctypes._NamedFuncPointer
    bpf_program__attach_kprobe: ctypes._NamedFuncPointer
    bpf_link__destroy: ctypes._NamedFuncPointer
    bpf_link__fd: ctypes._NamedFuncPointer
    bpf_iter_create: ctypes._NamedFuncPointer
    bpf_map_update_elem: ctypes._NamedFuncPointer
    bpf_map_lookup_elem: ctypes._NamedFuncPointer
    bpf_map_delete_elem: ctypes._NamedFuncPointer
    bpf_map_get_next_key: ctypes._NamedFuncPointer
    libbpf_set_print: ctypes._NamedFuncPointer

    def _on_message(self, level: int, form: bytes, arguments: int) -> int:
        if level == _LIBBPF_DEBUG and not log.isEnabledFor(logging.DEBUG):
            return 0  # 2,000 lines a load
        # A va_list parameter is a pointer on x86-64 and on arm64 alike.
        buffer = ctypes.create_string_buffer(65536)
        self._libc_vsnprintf(buffer, len(buffer), form, arguments)
        message = buffer.value.decode(errors="replace").rstrip()
        self.messages.append(message)
        log.debug("%s", message)
        return 0


@dataclass(slots=True)
class Loaded:
    """Programs and maps in the kernel; `close` takes all of them out again."""

    maps: Mapping[str, int]
    """Map name -> file descriptor."""
    _lib: _Libbpf
    _object: int
    _programs: Mapping[str, _Program] = field(default_factory=dict)
    _refused: Mapping[str, tuple[_Program, str]] = field(default_factory=dict)
    """Optional programs that are not loaded, and why."""
    _links: list[int] = field(default_factory=list)
    _iterator_link: int = -1

    def attach(self) -> tuple[Hook, ...]:
        """Attach the programs, once the maps hold what these need; `UserError` if refused."""
        hooks = []
        refused = dict(self._refused)
        for name, program in self._programs.items():
            self._lib.messages.clear()
            found = self._lib.bpf_object__find_program_by_name(self._object, name.encode())
            if program.method == "kprobe":
                link = self._lib.bpf_program__attach_kprobe(found, False, program.hook.encode())
            else:
                link = self._lib.bpf_program__attach(found)
            if not link:
                failure = _failure(
                    self._lib, f"cannot attach to {program.hook}", ctypes.get_errno()
                )
                if name in _HOOKS:
                    raise failure
                refused[name] = program, failure.message
                continue
            self._links.append(link)
            if name == _ITERATOR:
                self._iterator_link = self._lib.bpf_link__fd(link)
            hooks.append(Hook(program.hook, program.tier, program.method, True))
        hooks += [
            Hook(program.hook, program.tier, program.method, False, reason)
            for program, reason in refused.values()
        ]
        return tuple(hooks)

    @property
    def has_functions(self) -> bool:
        """Whether any program of the `functions` tier is loaded, and fills its map."""
        return any(program.tier == "functions" for program in self._programs.values())

    def iterate(self) -> None:
        """Run the sweep's program over every task; returns when it has seen the last one."""
        fd = self._lib.bpf_iter_create(self._iterator_link)
        if fd < 0:
            raise OSError(ctypes.get_errno(), "bpf_iter_create")
        try:
            while True:
                try:
                    if not os.read(fd, 4096):
                        return
                except OSError as error:  # a million tasks seen: carry on from there
                    if error.errno != errno.EAGAIN:
                        raise
        finally:
            os.close(fd)

    def put(self, name: str, key: bytes | None, value: bytes) -> bool:
        """Update one element; key None pushes to a queue. False when the kernel refuses."""
        result: int = self._lib.bpf_map_update_elem(self.maps[name], key, value, 0)
        return result == 0

    def get(self, name: str, key: bytes, size: int) -> bytes | None:
        """One element's value, or None."""
        value = ctypes.create_string_buffer(size)
        found: int = self._lib.bpf_map_lookup_elem(self.maps[name], key, value)
        return value.raw if found == 0 else None

    def delete(self, name: str, key: bytes) -> None:
        """Delete one element; not an error when it is gone."""
        self._lib.bpf_map_delete_elem(self.maps[name], key)

    def close(self) -> None:
        """Detach and unload everything."""
        for link in self._links:
            self._lib.bpf_link__destroy(link)
        self._links.clear()
        if self._object:
            self._lib.bpf_object__close(self._object)
            self._object = 0

    def __enter__(self) -> Loaded:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def load(
    path: Path,
    sizes: Mapping[str, int],
    *,
    trace_exec_failures: bool = False,
    functions: bool = True,
) -> Loaded:
    """Load the object at `path` with maps of `sizes` entries; `attach` starts it.

    Programs at functions are optional: those that the kernel lets in are loaded, of the others
    `attach` says why not. `functions` asks for those of that tier. Failed execs are told where
    the kernel allows fexit; `trace_exec_failures` permits the system call tracepoints instead,
    which cost every system call of the host. Raises `UserError` when another program or a map
    cannot be had; nothing stays attached.
    """
    if not path.is_file():
        raise UserError(f"BPF object {path} is missing", "build it: make setup")
    lib = _Libbpf()
    optional = dict(_EXEC_FAILURES_BY_TRACEPOINT if trace_exec_failures else _EXEC_FAILURES)
    refused: dict[str, tuple[_Program, str]] = {}
    if functions:
        there, missing = _of_this_kernel(_FUNCTIONS)
        optional |= there
        refused |= {name: (program, "no such function") for name, program in missing.items()}
    while True:
        try:
            loaded = _load(lib, path, sizes, optional)
        except _OptionalRefused as error:
            reason = error.reason
            names = [error.program] if error.program in optional else list(optional)
            trampolines = [n for n, p in optional.items() if p.method in ("fentry", "fexit")]
            if error.forbidden and trampolines:
                # one that the host forbids is the first of all that it forbids
                names = trampolines
                reason = "the kernel forbids fentry and fexit programs (EPERM)"
            refused |= {name: (optional.pop(name), reason) for name in names}
            if "on_pipe_write" in names and _KPROBES.exists():
                optional |= _of_this_kernel(_FUNCTIONS_BY_KPROBE)[0]
        else:
            loaded._refused = refused
            return loaded


def _of_this_kernel(
    programs: Mapping[str, _Program],
) -> tuple[dict[str, _Program], dict[str, _Program]]:
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
        else:
            missing[name] = program
    return there, missing


class _OptionalRefused(Exception):
    def __init__(self, program: str, reason: str, *, forbidden: bool) -> None:
        super().__init__(reason)
        self.program = program
        self.reason = reason
        self.forbidden = forbidden


def _load(
    lib: _Libbpf, path: Path, sizes: Mapping[str, int], optional: Mapping[str, _Program]
) -> Loaded:
    lib.messages.clear()
    opened = lib.bpf_object__open_file(os.fsencode(path), None)
    if not opened:
        raise _failure(lib, f"cannot open BPF object {path}", ctypes.get_errno())
    loaded = Loaded(maps={}, _lib=lib, _object=opened)
    try:
        for name, entries in sizes.items():
            if name == "functions" and not any(p.tier == name for p in optional.values()):
                continue
            found = lib.bpf_object__find_map_by_name(opened, name.encode())
            lib.bpf_map__set_max_entries(found, entries)
        for name, wanted in optional.items():
            program = lib.bpf_object__find_program_by_name(opened, name.encode())
            lib.bpf_program__set_autoload(program, True)
            if wanted.method in ("fentry", "fexit") and wanted.functions:
                lib.bpf_program__set_attach_target(program, 0, wanted.hook.encode())
        result = lib.bpf_object__load(opened)
        if result < 0:
            if optional:
                refused = re.search(r"prog '(\w+)': failed to load", "\n".join(lib.messages))
                raise _OptionalRefused(
                    refused[1] if refused else "",
                    _line_that_matters(lib) or os.strerror(-result),
                    forbidden=-result == errno.EPERM,
                )
            raise _failure(lib, "the kernel refuses the BPF programs", -result)
        # libbpf is done with the kernel's BTF; glibc would keep the 12 MB that it took.
        lib.malloc_trim(0)
        loaded._programs = {**_HOOKS, **optional}
        loaded.maps = {
            name: lib.bpf_map__fd(lib.bpf_object__find_map_by_name(opened, name.encode()))
            for name in (*sizes, "commands", "lost", "control", "wakeups")
        }
    except BaseException:
        loaded.close()
        raise
    return loaded


def _line_that_matters(lib: _Libbpf) -> str:
    """The verifier's verdict, or libbpf's first complaint, without its prefixes."""
    text = "\n".join(lib.messages)
    log_end = re.search(r"^processed \d+ insns", text, re.M)
    if log_end:
        before = text[: log_end.start()].rstrip().splitlines()
        verdicts = [
            line
            for line in before
            if not re.match(r"\d+: |;|mark_precise|verification time|stack depth|from ", line)
        ]
        program = re.search(r"prog '(\w+)'", text)
        if verdicts:
            return f"program {program.group(1) if program else '?'}: {verdicts[-1].strip()}"
    for message in lib.messages:
        if message.startswith("libbpf: ") and ("fail" in message or "rror" in message):
            return message.removeprefix("libbpf: ").splitlines()[0]
    return ""


def _failure(lib: _Libbpf, what: str, code: int) -> UserError:
    code = abs(code)
    reason = _line_that_matters(lib) or os.strerror(code)
    hints = {
        errno.EPERM: "run as root, or with CAP_BPF and CAP_PERFMON; `pipelined doctor` says more",
        errno.EACCES: "run as root, or with CAP_BPF and CAP_PERFMON; `pipelined doctor` says more",
        errno.ENOMEM: "lower --max-stages and --max-pipes, or allow more memory",
        errno.E2BIG: "lower --max-stages and --max-pipes",
    }
    return UserError(
        f"{what}: {reason} ({os.strerror(code)})",
        hints.get(code, "see `pipelined doctor` and the log with --log.level=debug"),
    )


def probe_hooks() -> list[Hook]:
    """Load and attach everything once, with small maps, and take it out again.

    Raises `UserError` when the daemon could not start.
    """
    sizes = dict.fromkeys(("stages", "functions", "free_stages", "pipes"), 64)
    with load(default_object(), sizes) as loaded:
        return list(loaded.attach())
