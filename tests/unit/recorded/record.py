# SPDX-License-Identifier: Apache-2.0
"""Record the kernel side's maps while real pipelines run. Needs root; takes about 10 seconds.

    sudo make recordings

Beside the maps, what can be seen of each command without BPF is recorded: its wall time, the CPU
time of its processes according to wait4(2), and the sizes of the files that it reads. A tier that
this kernel does not allow leaves its array empty.
"""

from __future__ import annotations

import json
import mmap
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from ctypes import sizeof
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelined.kernel import layout
from pipelined.kernel.loader import Loaded, load
from pipelined.kernel.sweep import Sweep
from pipelined.records.stage import Group
from unit.recordings import ARRAYS, LAYOUT, MAX_STAGES, Moment, Recording, layout_now, swept

#: Bytes of the file `lines`, and of `cold`, which is in the page cache in no part.
LINES = 200_000
COLD_BYTES = 4 << 20


@dataclass(frozen=True)
class Scenario:
    """A command, run by bash in a directory that has `lines` and `cold`."""

    command: str
    live: tuple[str, ...] = ()
    """The maps are recorded at the end and, if this is not empty, as soon as a pipeline of these
    commands is there, and once more in between."""
    max_stages: int = MAX_STAGES


SCENARIOS = {
    "chain": Scenario(
        "cat lines | awk '{ print $1 % 1000 }' | sort --parallel=1 -S 64M | uniq -c > out",
        live=("awk", "cat", "sort", "uniq"),
    ),
    "short": Scenario("printf 'b\\na\\n' | sort | head -n 1 > out"),
    "nested": Scenario("cat lines | (sort --parallel=1 -S 64M | tail -n 1; cat) | wc -l > out"),
    "cold_file": Scenario("cat cold | wc -c > out"),
    "fifo": Scenario("mkfifo f; cat lines > f & wc -l < f > out; wait"),
    "substitution": Scenario("x=$(sort lines | wc -l); test $x -gt 0", live=("sort", "wc")),
    "many_pipes": Scenario(
        "tee" + " >(wc -l > /dev/null)" * 10 + " < lines > /dev/null; sleep 0.1",
        live=("tee", *["wc"] * 10),
    ),
    "started": Scenario("printf 'pipelined run' > /proc/$$/comm; (cat lines | wc -l > out); true"),
    "too_many": Scenario("cat lines | head -n 10 | tail -n 5 | wc -l > out", max_stages=2),
}


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        for scenario_name, scenario in SCENARIOS.items():
            made = None
            while made is None:
                made = record(scenario, Path(name))
            made.save(scenario_name)
            print(scenario_name, made.facts)
    described = {"kernel": platform.release().partition("-")[0], "structures": layout_now()}
    LAYOUT.write_text(json.dumps(described, indent=1) + "\n")


def record(scenario: Scenario, directory: Path) -> Recording | None:
    """What was recorded; None if the pipeline was over before it was seen: try again."""
    facts = _prepare(directory)
    stages = scenario.max_stages
    sizes = dict.fromkeys(("stages", "functions", "readahead", "children"), stages + 1)
    maps = sizes | {"free_stages": stages, "pipes": MAX_STAGES}
    with (
        closing(load(maps, loader="libbpf")) as loaded,
        swept(loaded, max_stages=stages, own_only=True) as reader,
    ):
        loaded.attach()
        loaded.attach_optional()
        reader.began()
        reader.take()  # from now on what this process forks is followed
        began = time.monotonic()
        process = subprocess.Popen(
            ["bash", "-c", scenario.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=directory,
            start_new_session=True,
        )
        moments = []
        if scenario.live:
            while not any(_commands(group) == scenario.live for group in reader.take()):
                if time.monotonic() > began + 2:
                    process.wait()
                    return None
            moments.append(_moment(loaded, reader))
            time.sleep(0.03)
            moments.append(_moment(loaded, reader))
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, scenario
        facts["wall_seconds"] = time.monotonic() - began
        facts["cpu_seconds"] = usage.ru_utime + usage.ru_stime
        while not all(_is_over(group) for group in reader.take()):
            time.sleep(0.01)
        moments.append(_moment(loaded, reader))
    return Recording(scenario.command, facts, moments)


def _prepare(directory: Path) -> dict[str, float]:
    for path in directory.iterdir():
        path.unlink()
    lines, cold = directory / "lines", directory / "cold"
    lines.write_text("".join(f"{n * 7919 % LINES} some words\n" for n in range(LINES)))
    cold.write_bytes(os.urandom(COLD_BYTES))
    with cold.open() as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return {"lines": LINES, "lines_bytes": lines.stat().st_size, "cold_bytes": COLD_BYTES}


def _commands(group: Group) -> tuple[str, ...]:
    return tuple(sorted(stage.command for stage in group.stages))


def _is_over(group: Group) -> bool:
    return all(stage.end_ns and not stage.live for stage in group.stages)


def _moment(loaded: Loaded, reader: Sweep) -> Moment:
    now = time.monotonic_ns()
    groups: Sequence[Group] = reader.take()
    stages = [stage for group in groups for stage in group.stages]
    count = max(stage.index for stage in stages) + 1
    records = {
        "stages": count,
        "functions": count if loaded.has_functions else 0,
        "readahead": count if loaded.has_readahead else 0,
        "children": count,
        "lost": 1,
        "control": 1,
    }
    arrays = {
        name: _bytes(loaded.maps[name], ARRAYS[name] * number) if number else b""
        for name, number in records.items()
    }
    pipes: dict[bytes, Any] = {
        end.key: loaded.get("pipes", end.key, sizeof(layout.Pipe))
        for stage in stages
        for end in stage.ends
    }
    return Moment(now, arrays, {key: value for key, value in pipes.items() if value})


def _bytes(fd: int, size: int) -> bytes:
    pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    with mmap.mmap(fd, pages, prot=mmap.PROT_READ) as mapped:
        return mapped[:size]


if __name__ == "__main__":
    main()
