# SPDX-License-Identifier: Apache-2.0
"""BPF programs and maps in the kernel, whichever loader loaded them.

The sweep needs nothing but map file descriptors and the iterator. libbpf's own messages go to
the log at debug level; a failure is raised as one `UserError` with the relevant line.
"""

from __future__ import annotations

import errno
import logging
import os
import struct
from collections.abc import Collection, Mapping
from contextlib import closing
from ctypes import byref, c_uint32, create_string_buffer, get_errno
from pathlib import Path
from typing import Protocol, TypedDict

from pipelined.errors import NotPermittedError, UserError
from pipelined.kernel import bcc_loader
from pipelined.kernel.bcc_loader import BccPrograms
from pipelined.kernel.hooks import (
    ITERATOR,
    REQUIRED,
    Hook,
    Program,
    optional_hooks,
    optional_programs,
)
from pipelined.kernel.libbpf import Libbpf
from pipelined.kernel.libbpf_loader import LibbpfPrograms
from pipelined.kernel.obstacles import explained

__all__ = ["Hook", "Loaded", "default_object", "load", "probe_hooks"]

log = logging.getLogger(__name__)

_MAPS = (
    "stages",
    "functions",
    "readahead",
    "children",
    "free_stages",
    "pipes",
    "saved_tasks",
    "commands",
    "units",
    "variables",
    "variable_chains",
    "instances",
    "entered_instances",
    "cgroups",
    "lost",
    "control",
    "wakeups",
)

#: What an iterator of the kernel has room for at a time (bytes).
_WRITTEN = 32768

#: In struct bpf_prog_info; the field exists since 5.12, before that it reads as 0.
RECURSION_MISSES_OFFSET = 208
_PROGRAM_INFO_SIZE = RECURSION_MISSES_OFFSET + 8

#: The tier needs one program of each line; those for faults and direct I/O are optional.
_READAHEAD_NEEDS = (
    ("on_page_added",),
    ("on_pages_got", "on_get_pages", "on_get_pages_kprobe"),
    ("on_reader_exit",),
)


def default_object() -> Path:
    """The object that was built with the package."""
    return Path(__file__).parents[1] / "bpf" / "pipelined.bpf.o"


class _Programs(Protocol):
    """The programs and maps that a loader has loaded: those of `REQUIRED` at first."""

    @property
    def maps(self) -> Mapping[str, int]:
        """Map name -> file descriptor."""

    def load_optional(
        self, optional: Mapping[str, Program]
    ) -> tuple[dict[str, Program], dict[str, tuple[Program, str]]]:
        """Load those that the kernel accepts. Returns them, and the others with the reasons."""

    def attach(self, name: str, program: Program) -> tuple[int, int]:
        """Attach one that is loaded; descriptors of its link and of itself, or `UserError`."""

    def all_attached(self) -> None:
        """Nothing more will be attached."""

    def close(self) -> None:
        """Detach and unload everything."""


class Wanted(TypedDict):
    """Which optional programs are wanted; the parameters of `optional_programs`."""

    functions: bool
    readahead: bool
    trace_exec_failures: bool


class Loaded:
    """Programs and maps in the kernel; `close` removes all of them."""

    def __init__(self, lib: Libbpf, loader: str, programs: _Programs, wanted: Wanted) -> None:
        self._lib = lib
        self.loader = loader
        """libbpf or bcc."""
        self.maps = programs.maps
        """Map name -> file descriptor."""
        self._programs = programs
        self._wanted = wanted
        self._iterator = -1
        self._attached: list[tuple[str, int]] = []
        """Hook and descriptor of each program."""
        self.has_functions = False
        """Whether any program of the `functions` tier is attached."""
        self.has_readahead = False
        """Whether all programs are attached that the `readahead` tier cannot do without."""

    def attach(self) -> tuple[Hook, ...]:
        """Attach the required programs, after the maps are filled; `UserError` if one fails."""
        for name, program in REQUIRED.items():
            link = self._attach(name, program)
            if name == ITERATOR:
                self._iterator = link
        return tuple(program.attached() for program in REQUIRED.values())

    def pending(self) -> tuple[Hook, ...]:
        """What `attach_optional` will try."""
        return optional_hooks(**self._wanted)

    def attach_optional(self) -> tuple[Hook, ...]:
        """Load and attach the optional programs. The hooks that were tried, with the reasons.

        This takes 0.1 to 0.3 s, and may be done in another thread while the sweep is running.
        """
        there, missing = optional_programs(**self._wanted)
        accepted, refused = self._programs.load_optional(there)
        refused = missing | refused
        if reason := _readahead_is_of_no_use(accepted, refused):
            for name in [name for name, p in accepted.items() if p.tier == "readahead"]:
                refused[name] = accepted.pop(name), reason
        attached: dict[str, Program] = {}
        for name, program in accepted.items():
            if program.instead_of in attached:
                continue
            try:
                self._attach(name, program)
            except UserError as error:
                refused[name] = program, error.message
            else:
                attached[name] = program
        for program in attached.values():
            # a kprobe gives what the program gives that it stands in for
            refused.pop(program.instead_of or "", None)
        off = [program.refused(reason) for program, reason in refused.values()]
        self._programs.all_attached()
        self.has_functions = any(program.tier == "functions" for program in attached.values())
        self.has_readahead = all(
            any(name in attached for name in names) for names in _READAHEAD_NEEDS
        )
        return (*(program.attached() for program in attached.values()), *off)

    def tiers(self) -> list[str]:
        """The optional tiers that are on."""
        on = {"functions": self.has_functions, "readahead": self.has_readahead}
        return [tier for tier, is_on in on.items() if is_on]

    def _attach(self, name: str, program: Program) -> int:
        link, itself = self._programs.attach(name, program)
        self._attached.append((program.hook, itself))
        return link

    def iterate(self) -> bytes:
        """Run the sweep's program over every task. Returns after the last one, what it wrote."""
        fd = self._lib.bpf_iter_create(self._iterator)
        if fd < 0:
            raise OSError(get_errno(), "bpf_iter_create")
        written: list[bytes] = []
        try:
            while True:
                try:
                    if not (part := os.read(fd, _WRITTEN)):
                        return b"".join(written)
                    written.append(part)
                except OSError as error:  # after a million tasks: read on
                    if error.errno != errno.EAGAIN:
                        raise
        finally:
            os.close(fd)

    def missed_events(self, ends: tuple[str, ...] = ("",)) -> dict[str, int]:
        """Events for which the kernel did not run a program, by hook, since it was loaded.

        Of hooks whose name ends so. The kernel does not let a program interrupt itself on its CPU.
        On kernels that preempt programs (docs/HOSTS.md), it skips events of other tasks too.
        """
        missed: dict[str, int] = {}
        for hook, program in tuple(self._attached):
            if not hook.endswith(ends):
                continue
            info = create_string_buffer(_PROGRAM_INFO_SIZE)  # zeroed: any content is a request
            size = c_uint32(len(info))
            if self._lib.bpf_obj_get_info_by_fd(program, info, byref(size)):
                raise OSError(get_errno(), "bpf_obj_get_info_by_fd")
            (count,) = struct.unpack_from("=Q", info, RECURSION_MISSES_OFFSET)
            missed[hook] = missed.get(hook, 0) + count
        return missed

    def put(self, name: str, key: bytes | None, value: bytes) -> bool:
        """Update one element; a key of None pushes to a queue. False if the kernel refuses."""
        result: int = self._lib.bpf_map_update_elem(self.maps[name], key, value, 0)
        return result == 0

    def get(self, name: str, key: bytes, size: int) -> bytes | None:
        """The value of one element, or None."""
        value = create_string_buffer(size)
        found: int = self._lib.bpf_map_lookup_elem(self.maps[name], key, value)
        return value.raw if found == 0 else None

    def delete(self, name: str, key: bytes) -> None:
        """Delete one element; one that does not exist is no error."""
        self._lib.bpf_map_delete_elem(self.maps[name], key)

    def close(self) -> None:
        """Detach and unload everything."""
        self._programs.close()


def _readahead_is_of_no_use(
    accepted: Collection[str], refused: Mapping[str, tuple[Program, str]]
) -> str:
    """Why the tier's other programs need not be attached; nothing if all that it needs is there."""
    for names in _READAHEAD_NEEDS:
        without = [refused[name][0] for name in names if name in refused]
        if without and not any(name in accepted for name in names):
            return f"of no use without {without[0].hook}"
    return ""


def load(
    sizes: Mapping[str, int],
    *,
    loader: str = "auto",
    path: Path | None = None,
    trace_exec_failures: bool = False,
    functions: bool = True,
    readahead: bool = True,
) -> Loaded:
    """Load the required programs with maps of `sizes` entries; `attach` starts them.

    `loader`: libbpf loads the object at `path` (by default that of the package), bcc compiles the
    source on this host, auto tries libbpf and then bcc. `functions` and `readahead` add the
    programs of these tiers, which are optional, as are those that count failed execs (see
    `optional_programs`): `attach_optional` returns why one is missing. Raises `UserError` if a
    required program or a map cannot be loaded; nothing stays attached then.
    """
    if loader == "bcc" and path:
        raise UserError(f"--object={path} cannot be used with --loader=bcc", "omit one of them")
    lib = Libbpf()
    wanted = Wanted(
        functions=functions, readahead=readahead, trace_exec_failures=trace_exec_failures
    )
    tiers = {"functions": functions, "readahead": readahead}
    sizes = {name: entries if tiers.get(name, True) else 1 for name, entries in sizes.items()}
    if loader != "bcc":
        try:
            prebuilt = LibbpfPrograms(lib, path or default_object(), sizes, _MAPS)
            return Loaded(lib, "libbpf", prebuilt, wanted)
        except UserError as error:
            if cause := explained(error):
                raise cause from None
            if isinstance(error, NotPermittedError):
                raise
            if loader == "libbpf" or path or not bcc_loader.is_installed():
                raise
            log.warning("libbpf cannot load the BPF programs, trying bcc: %s", error)
            refusal = error
        try:
            return Loaded(lib, "bcc", BccPrograms(sizes, _MAPS), wanted)
        except UserError as error:
            raise UserError(f"{refusal.message}; with bcc: {error.message}", refusal.hint) from None
    try:
        return Loaded(lib, "bcc", BccPrograms(sizes, _MAPS), wanted)
    except UserError as error:
        raise explained(error) or error from None


def probe_hooks(loader: str = "auto") -> list[Hook]:
    """Load and attach everything once, with small maps, and remove it again.

    Raises `UserError` when the daemon could not start.
    """
    arrays = ("stages", "functions", "readahead", "children")
    sizes = dict.fromkeys((*arrays, "free_stages", "pipes", "saved_tasks"), 64)
    with closing(load(sizes, loader=loader)) as loaded:
        return [*loaded.attach(), *loaded.attach_optional()]
