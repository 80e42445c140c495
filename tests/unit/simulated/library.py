# SPDX-License-Identifier: Apache-2.0
"""The programs of bpf/ as a shared library, and its maps as `pipelined.kernel.sweep` takes them."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_int, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BPF = HERE.parents[2] / "bpf"

TASKS, CPUS, FILES, PIPES = 64, 2, 512, 128
"""How many kernel.c has."""

_ARRAY, _PERCPU_ARRAY, _HASH, _STACK, _TASK_STORAGE, _RINGBUF = range(6)
_SHARED = ("stages", "functions", "readahead", "children", "lost", "control", "wakeups")

AtInterrupt = ctypes.CFUNCTYPE(None)


class _Map(ctypes.Structure):
    name: bytes
    kind: int
    key_size: int
    value_size: int
    entries: int
    count: int
    memory: int | None
    _fields_ = (
        ("name", c_char_p),
        *((name, c_uint32) for name in ("kind", "key_size", "value_size", "entries", "count")),
        ("memory", c_void_p),
    )


class _Maps(ctypes.Structure):
    """An element of the array of maps: the linker aligns them."""

    _fields_ = (("map", _Map), ("padding", ctypes.c_char * (64 - ctypes.sizeof(_Map))))


def build(directory: Path) -> ctypes.CDLL:
    """Compile the programs for this machine; a moment."""
    library = directory / "programs.so"
    command = (
        "cc -std=gnu11 -O1 -shared -fPIC -fvisibility=hidden -D__TARGET_ARCH_x86 -Wall -Werror"
    )
    command += " -Wno-unknown-pragmas -Wno-unused-function -Wno-parentheses"
    built = subprocess.run(
        [*command.split(), "-I", BPF, HERE / "kernel.c", "-o", library],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    programs = ctypes.CDLL(str(library))
    for name in ("now", "fork_task"):
        getattr(programs, name).restype = c_uint64
    programs.pass_time.argtypes = [c_uint64]
    programs.count_call.argtypes = [c_uint32, c_uint32, c_uint64]
    programs.make_pipe.argtypes = [c_uint32, c_uint64, c_uint32, c_uint32]
    programs.observe.argtypes = [AtInterrupt]
    programs.sweep_all.argtypes = [POINTER(c_void_p)]
    programs.sweep_all.restype = c_uint32
    programs.update_element.argtypes = [c_void_p, c_char_p, c_char_p]
    programs.look_up_element.argtypes = [c_void_p, c_char_p]
    programs.look_up_element.restype = c_void_p
    programs.delete_element.argtypes = [c_void_p, c_char_p]
    programs.set_descriptor.argtypes = [c_uint32, c_uint32, c_int]
    programs.exec_begins.argtypes = [c_uint32, c_char_p, c_char_p]
    return programs


class SimulatedMaps:
    """Stands in for `loader.Loaded`: maps that are empty."""

    loader = "simulated"
    has_functions = has_readahead = False

    def __init__(
        self,
        programs: ctypes.CDLL,
        sizes: dict[str, int],
        interrupt: Callable[[], None],
        *,
        boots: bool = True,
    ) -> None:
        """On a host that `boots` now, or has been watched by an earlier daemon."""
        self.maps: dict[str, int] = {}
        self._programs = programs
        self._interrupt = AtInterrupt(interrupt)
        self._memory: list[Any] = []
        self._by_name: dict[str, _Map] = {}
        first = POINTER(_Maps)()
        for i in range(programs.maps_of_programs(byref(first))):
            each = first[i].map
            each.count = 0
            each.entries = sizes.get(each.name.decode(), each.entries)
            each.memory = self._allocate(each)
            self._by_name[each.name.decode()] = each
        programs.observe(self._interrupt)
        if boots:
            programs.boot()

    def _allocate(self, each: _Map) -> int:
        size = (each.key_size + each.value_size + 7) * (each.entries + 1)
        if each.kind == _PERCPU_ARRAY:
            size *= CPUS + 1
        if each.kind == _TASK_STORAGE:
            size = 8 * TASKS
        name = each.name.decode()
        if name in _SHARED:
            fd = self.maps[name] = os.memfd_create(name)
            os.ftruncate(fd, (size // mmap.PAGESIZE + 2) * mmap.PAGESIZE)
            memory: Any = mmap.mmap(fd, 0)
        else:
            memory = mmap.mmap(-1, size)
        self._memory.append(memory)
        # the address alone: a buffer that ctypes holds could never be closed
        return ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def count(self, name: str) -> int:
        """Elements of a hash or of a stack."""
        return self._by_name[name].count

    def iterate(self) -> bytes:
        at = c_void_p()
        size = self._programs.sweep_all(byref(at))
        return ctypes.string_at(at, size)

    def put(self, name: str, key: bytes | None, value: bytes) -> bool:
        found: int = self._programs.update_element(byref(self._by_name[name]), key, value)
        return found == 0

    def get(self, name: str, key: bytes, size: int) -> bytes | None:
        found = self._programs.look_up_element(byref(self._by_name[name]), key)
        return ctypes.string_at(found, size) if found else None

    def delete(self, name: str, key: bytes) -> None:
        self._programs.delete_element(byref(self._by_name[name]), key)

    def missed_events(self, ends: tuple[str, ...] = ("",)) -> dict[str, int]:
        return {}

    def close(self) -> None:
        for fd in self.maps.values():
            os.close(fd)
        for memory in self._memory:
            memory.close()
