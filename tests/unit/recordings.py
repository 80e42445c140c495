# SPDX-License-Identifier: Apache-2.0
"""The bytes of real maps, recorded by tests/unit/recorded/record.py, and what plays them back."""

from __future__ import annotations

import json
import os
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import sizeof
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelined.config import Config
from pipelined.kernel import layout
from pipelined.kernel.sweep import Sweep
from unit.btf import Btf

DIRECTORY = Path(__file__).parent / "recorded"
LAYOUT = DIRECTORY / "layout.json"

#: The maps that are recorded from their begin to the last record in use.
ARRAYS = {
    "stages": sizeof(layout.Stage),
    "functions": sizeof(layout.Functions),
    "readahead": sizeof(layout.ReadaheadCounters),
    "children": sizeof(layout.Children),
    "lost": 8 * len(layout.LOST_KINDS),
    "control": sizeof(layout.Control),
}

#: The structures of the object that these bytes are made of.
STRUCTURES = ("stage", "functions", "readahead", "children", "pipe", "pipe_key", "control")

MAX_STAGES = 64


def layout_now() -> dict[str, Any]:
    """The layout of the built object, as JSON has it."""
    btf = Btf()
    return {name: {k: [*v] for k, v in btf.fields(name).items()} for name in STRUCTURES}


@dataclass
class Moment:
    """The maps after one run of the sweep's program."""

    now_ns: int
    """CLOCK_MONOTONIC, before the program ran."""
    arrays: dict[str, bytes]
    pipes: dict[bytes, bytes]


@dataclass
class Recording:
    """What was recorded of one command."""

    command: str
    facts: dict[str, float]
    """What was seen of the command without BPF; record.py says how."""
    moments: list[Moment] = field(default_factory=list)

    def save(self, name: str) -> None:
        described = {
            "command": self.command,
            "facts": self.facts,
            "moments": [
                {
                    "now_ns": moment.now_ns,
                    "arrays": {name: _pack(raw) for name, raw in moment.arrays.items()},
                    "pipes": {key.hex(): _pack(raw) for key, raw in moment.pipes.items()},
                }
                for moment in self.moments
            ],
        }
        (DIRECTORY / f"{name}.json").write_text(json.dumps(described, indent=1) + "\n")


def recording(name: str) -> Recording:
    """The recording of this name."""
    described = json.loads((DIRECTORY / f"{name}.json").read_text())
    moments = [
        Moment(
            moment["now_ns"],
            {name: _unpack(packed) for name, packed in moment["arrays"].items()},
            {bytes.fromhex(key): _unpack(packed) for key, packed in moment["pipes"].items()},
        )
        for moment in described["moments"]
    ]
    return Recording(described["command"], described["facts"], moments)


def names() -> list[str]:
    """Of all recordings."""
    return sorted(path.stem for path in DIRECTORY.glob("*.json") if path != LAYOUT)


def _pack(raw: bytes) -> str:
    return b64encode(zlib.compress(raw, 9)).decode()


def _unpack(packed: str) -> bytes:
    return zlib.decompress(b64decode(packed))


class RecordedMaps:
    """Stands in for `loader.Loaded`: each run of the sweep's program plays the next moment."""

    loader = "recorded"

    def __init__(
        self,
        moments: Iterable[Moment] = (),
        *,
        max_stages: int = MAX_STAGES,
        functions: bool = False,
        readahead: bool = True,
    ) -> None:
        self.has_functions = functions
        self.has_readahead = readahead
        self.free_stages: list[int] = []
        self.elements: dict[str, dict[bytes, bytes]] = {
            name: {}
            for name in (
                *("pipes", "commands", "units", "variables", "variable_chains"),
                *("instances", "entered_instances"),
            )
        }
        self.max_entries = {
            **{"commands": 256, "units": 256, "variables": 32, "variable_chains": 256},
            **{"instances": 1024, "entered_instances": 1024},
        }
        self.closed = False
        self._moments = list(moments)
        self.maps = {name: os.memfd_create(name) for name in (*ARRAYS, "wakeups")}
        for name, fd in self.maps.items():
            os.ftruncate(fd, (ARRAYS.get(name, 0) * (max_stages + 1) // 4096 + 2) * 4096)

    def iterate(self) -> bytes:
        """The last moment stays, as if nothing happened any more. No thread is written out."""
        if not self._moments:
            return b""
        moment = self._moments.pop(0)
        for name, raw in moment.arrays.items():
            # the daemon's own fields of the control page are not the recorded ones
            if name != "control":
                os.pwrite(self.maps[name], raw, 0)
        self.elements["pipes"] = dict(moment.pipes)
        used = len(moment.arrays["stages"]) // ARRAYS["stages"]
        self.free_stages = [index for index in self.free_stages if index >= used]
        return b""

    def array(self, name: str, index: int) -> bytes:
        """Record `index` of an array as it is now."""
        return os.pread(self.maps[name], ARRAYS[name], index * ARRAYS[name])

    def control(self) -> layout.Control:
        return layout.Control.from_buffer_copy(self.array("control", 0))

    def put(self, name: str, key: bytes | None, value: bytes) -> bool:
        if key is None:
            index = int.from_bytes(value, "little")
            if index in self.free_stages:
                return False
            self.free_stages.append(index)
            return True
        if len(self.elements[name]) >= self.max_entries[name]:
            return False
        self.elements[name][key] = value
        return True

    def get(self, name: str, key: bytes, size: int) -> bytes | None:
        value = self.elements[name].get(key)
        assert value is None or len(value) == size
        return value

    def delete(self, name: str, key: bytes) -> None:
        self.elements[name].pop(key, None)

    def missed_events(self, ends: tuple[str, ...] = ("",)) -> dict[str, int]:
        return {"sched_switch": 0}

    def close(self) -> None:
        self.closed = True
        for fd in self.maps.values():
            os.close(fd)


@contextmanager
def swept(maps: Any, **given: Any) -> Iterator[Sweep]:
    """A sweep over these maps."""
    config = Config()
    options: Mapping[str, Any] = {
        "max_stages": MAX_STAGES,
        "max_pipes": MAX_STAGES,
        "interpreters": config.interpreters,
        "wrappers": config.wrappers,
        "shells": config.shells,
        "alone": config.alone,
        "alone_units": config.alone_units,
        "schedulers": config.schedulers,
        "job_variables": config.job_variables,
        "instance_variables": config.kept_variables,
        "max_readers": config.max_readers,
    }
    sweep = Sweep(maps, **{**options, **given})
    try:
        yield sweep
    finally:
        sweep.close()
