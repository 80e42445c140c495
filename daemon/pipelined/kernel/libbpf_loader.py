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
from pipelined.kernel.libbpf import FORBIDDEN, LIBBPF_ERRNO, Libbpf, failure, line_that_matters
from pipelined.malloc import trim

__all__ = ["LibbpfPrograms"]


_BUILD = "build it: make setup"


class LibbpfPrograms:
    """The programs of one object, loaded, and attached one by one."""

    def __init__(
        self,
        lib: Libbpf,
        path: Path,
        sizes: Mapping[str, int],
        maps: tuple[str, ...],
        optional: Mapping[str, Program],
    ) -> None:
        """Load `REQUIRED`, and those of `optional` that the kernel accepts.

        `sizes` are entries of maps, `maps` the names of those to open. Raises `UserError` when
        a required program or a map cannot be had; nothing stays loaded.
        """
        if not path.is_file():
            raise UserError(f"BPF object {path} is missing", _BUILD)
        self._lib = lib
        self._path = path
        self._object = 0
        self._links: list[int] = []
        self.refused: dict[str, tuple[Program, str]] = {}
        self.programs: dict[str, Program] = {}
        left = dict(optional)
        while not self._object:
            try:
                self._load(sizes, left)
            except _OptionalRefused as error:
                reason = error.reason
                names = [error.program] if error.program in left else list(left)
                trampolines = [n for n, p in left.items() if p.method in ("fentry", "fexit")]
                if error.forbidden and trampolines:
                    # the host forbids this kind of program: all of them would be refused
                    names, reason = trampolines, FORBIDDEN
                for name in names:
                    program = left.pop(name)
                    self.refused[name] = program, reason
        self.programs = {**REQUIRED, **left}
        self.maps = {name: lib.bpf_map__fd(self._find("map", self._object, name)) for name in maps}

    def _load(self, sizes: Mapping[str, int], optional: Mapping[str, Program]) -> None:
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
            for name, entries in sizes.items():
                lib.bpf_map__set_max_entries(self._find("map", opened, name), entries)
            for name, wanted in optional.items():
                program = self._find("program", opened, name)
                lib.bpf_program__set_autoload(program, True)
                if wanted.method in ("fentry", "fexit"):
                    lib.bpf_program__set_attach_target(program, 0, wanted.hook.encode())
            result = lib.bpf_object__load(opened)
            if result < 0:
                reason = line_that_matters(lib.messages)
                if optional:
                    refused = re.search(r"prog '(\w+)': failed to load", "\n".join(lib.messages))
                    raise _OptionalRefused(
                        refused[1] if refused else "",
                        reason or os.strerror(-result),
                        forbidden=-result == errno.EPERM,
                    )
                raise failure("the kernel refuses the BPF programs", result, reason)
        except BaseException:
            lib.bpf_object__close(opened)
            raise
        # libbpf no longer needs the kernel's BTF; glibc would keep its 12 MB.
        trim()
        self._object = opened

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
        """Attach one of `programs`; descriptors of its link and of itself, or `UserError`."""
        self._lib.messages.clear()
        found = self._find("program", self._object, name)
        if program.method == "kprobe":
            link = self._lib.bpf_program__attach_kprobe(found, False, program.hook.encode())
        else:
            link = self._lib.bpf_program__attach(found)
        if not link:
            raise failure(
                f"cannot attach to {program.hook}",
                ctypes.get_errno(),
                line_that_matters(self._lib.messages),
            )
        self._links.append(link)
        return self._lib.bpf_link__fd(link), self._lib.bpf_program__fd(found)

    def all_attached(self) -> None:
        """Nothing more will be attached; the object is kept, as it owns the maps."""

    def close(self) -> None:
        for link in self._links:
            self._lib.bpf_link__destroy(link)
        self._links.clear()
        if self._object:
            self._lib.bpf_object__close(self._object)
            self._object = 0


class _OptionalRefused(Exception):
    def __init__(self, program: str, reason: str, *, forbidden: bool) -> None:
        super().__init__(reason)
        self.program = program
        self.reason = reason
        self.forbidden = forbidden
