# SPDX-License-Identifier: Apache-2.0
"""Load the prebuilt BPF object, which libbpf adapts to the running kernel (CO-RE)."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path

from pipelined.errors import UserError
from pipelined.kernel.hooks import REQUIRED, Program
from pipelined.kernel.libbpf import (
    ENOTSUPP,
    FORBIDDEN,
    LIBBPF_ERRNO,
    REFUSED,
    UNSUPPORTED,
    Libbpf,
    failure,
    line_that_matters,
)
from pipelined.malloc import trim

__all__ = ["INSTALL_AGAIN", "LibbpfPrograms"]

#: What to do if the package's own object is missing or damaged.
INSTALL_AGAIN = "install the package again; in a checkout, build it: make setup"
_BUILD = f"leave out --object, or {INSTALL_AGAIN}"


class LibbpfPrograms:
    """The programs of one object, loaded, and attached one by one.

    The object is loaded twice: with the required programs, and with optional ones, which then use
    the maps of the first.
    """

    def __init__(
        self, lib: Libbpf, path: Path, sizes: Mapping[str, int], maps: tuple[str, ...]
    ) -> None:
        """Load `REQUIRED`.

        `sizes` are entries of maps, `maps` the names of those to open. Raises `UserError` when
        a program or a map cannot be had; nothing stays loaded.
        """
        if not path.is_file():
            raise UserError(f"BPF object {path} is missing", _BUILD)
        self._lib = lib
        self._path = path
        self._links: list[int] = []
        self._fds: list[int] = []
        self._objects: list[int] = []
        """The first one owns the maps."""
        self._owner: dict[str, int] = {}
        """Program name -> the object in which it is loaded."""
        self.maps: dict[str, int] = {}
        try:
            with lib.without_messages():
                self._load(REQUIRED, sizes)
        except UserError:
            self._load(REQUIRED, sizes)  # once more, for the reason
        try:
            for name in maps:
                found = self._find("map", self._objects[0], name)
                self.maps[name] = self._kept(lib.bpf_map__fd(found))
        except UserError:
            self.close()
            raise

    def load_optional(
        self, optional: Mapping[str, Program]
    ) -> tuple[dict[str, Program], dict[str, tuple[Program, str]]]:
        """Load those that the kernel accepts. Returns them, and the others with the reasons."""
        left = dict(optional)
        refused: dict[str, tuple[Program, str]] = {}
        while left:
            try:
                self._load(left)
                break
            except _OptionalRefused as error:
                reason = error.reason
                names = [error.program] if error.program in left else list(left)
                trampolines = [n for n, p in left.items() if p.method in ("fentry", "fexit")]
                if error.forbidden and trampolines:
                    # the host forbids this kind of program: all of them would be refused
                    names, reason = trampolines, FORBIDDEN
                for name in names:
                    refused[name] = left.pop(name), reason
            except UserError as error:
                refused |= {name: (program, error.message) for name, program in left.items()}
                left.clear()
        return left, refused

    def _load(
        self, programs: Mapping[str, Program], sizes: Mapping[str, int] | None = None
    ) -> None:
        """Load the object with `programs`: with new maps of `sizes`, or those that are there."""
        lib = self._lib
        lib.messages.clear()
        opened = lib.bpf_object__open_file(os.fsencode(self._path), None)
        if not opened:
            code = ctypes.get_errno()
            if code >= LIBBPF_ERRNO:
                raise UserError(f"{self._path} is not a BPF object", _BUILD)
            reason = line_that_matters(lib.messages)
            raise failure(f"cannot open BPF object {self._path}", code, reason)
        try:
            if sizes is None:
                self._share_maps(opened)
            for name, entries in (sizes or {}).items():
                lib.bpf_map__set_max_entries(self._find("map", opened, name), entries)
            for name in REQUIRED.keys() - programs.keys():
                lib.bpf_program__set_autoload(self._find("program", opened, name), False)
            for name, wanted in programs.items():
                program = self._find("program", opened, name)
                lib.bpf_program__set_autoload(program, True)
                if wanted.method in ("fentry", "fexit"):
                    lib.bpf_program__set_attach_target(program, 0, wanted.hook.encode())
            result = lib.bpf_object__load(opened)
            if result < 0:
                reason = line_that_matters(lib.messages)
                if sizes is None:
                    refused = re.search(r"prog '(\w+)': failed to load", "\n".join(lib.messages))
                    raise _OptionalRefused(
                        refused[1] if refused else "",
                        reason or os.strerror(-result),
                        forbidden=-result == errno.EPERM,
                    )
                raise failure(REFUSED, result, reason)
        except BaseException:
            lib.bpf_object__close(opened)
            raise
        # libbpf no longer needs the kernel's BTF; glibc would keep its 12 MB.
        trim()
        self._objects.append(opened)
        self._owner |= dict.fromkeys(programs, opened)

    def _share_maps(self, opened: int) -> None:
        """Have an object use the maps of the first one."""
        lib = self._lib
        found = lib.bpf_object__next_map(opened, None)
        while found:
            name = lib.bpf_map__name(found)
            owned = lib.bpf_object__find_map_by_name(self._objects[0], name)
            result = lib.bpf_map__reuse_fd(found, lib.bpf_map__fd(owned))
            if result < 0:
                raise failure(f"cannot share the map {name.decode()}", result)
            found = lib.bpf_object__next_map(opened, found)

    def _find(self, kind: str, opened: int, name: str) -> int:
        """The map or program of this name; `UserError` if the object has none."""
        by_name = getattr(self._lib, f"bpf_object__find_{kind}_by_name")
        found: int = by_name(opened, name.encode())
        if not found:
            raise UserError(
                f"{self._path} is not a BPF object of this version of pipelined: it has no {kind}"
                f" {name}",
                _BUILD,
            )
        return found

    def attach(self, name: str, program: Program) -> tuple[int, int]:
        """Attach one that is loaded; descriptors of its link and of itself, or `UserError`."""
        self._lib.messages.clear()
        found = self._find("program", self._owner[name], name)
        if program.method == "kprobe":
            link = self._lib.bpf_program__attach_kprobe(found, False, program.hook.encode())
        else:
            link = self._lib.bpf_program__attach(found)
        if not link:
            code = ctypes.get_errno()
            if code == ENOTSUPP and program.method in ("fentry", "fexit"):
                raise UserError(UNSUPPORTED)
            raise failure(
                f"cannot attach to {program.hook}",
                code,
                line_that_matters(self._lib.messages),
            )
        self._links.append(link)
        return self._lib.bpf_link__fd(link), self._kept(self._lib.bpf_program__fd(found))

    def _kept(self, fd: int) -> int:
        """A descriptor that outlives the object."""
        self._fds.append(os.dup(fd))
        return self._fds[-1]

    def all_attached(self) -> None:
        """Nothing more will be attached: the objects are no longer needed."""
        for opened in reversed(self._objects):
            self._lib.bpf_object__close(opened)
        self._objects.clear()
        trim()

    def close(self) -> None:
        for link in self._links:
            self._lib.bpf_link__destroy(link)
        self._links.clear()
        self.all_attached()
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()


class _OptionalRefused(Exception):
    def __init__(self, program: str, reason: str, *, forbidden: bool) -> None:
        super().__init__(reason)
        self.program = program
        self.reason = reason
        self.forbidden = forbidden
