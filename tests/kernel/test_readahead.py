# SPDX-License-Identifier: Apache-2.0
"""The `readahead` tier against the kernel's own word on which pages were in the page cache.

`reads` asks mincore(2) before each read. Files lie on a file system of the test's own, in a loop
device, are made cold one at a time, and stay whole in memory; where the host evicts some of them
during a test (DAMON, memory pressure), both sides see it, but not at the same instant: once more.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pipelined.observer import Observer
from pipelined.runs import Readahead, Stage

from .conftest import Observed, Watch

PAGE = 4096
MIB = 1 << 20


@dataclass(frozen=True)
class Disk:
    """An ext4 file system of the test's own, in a loop device."""

    root: Path
    device: str

    def read_ahead(self, kib: int) -> None:
        Path(f"/sys/block/{self.device}/queue/read_ahead_kb").write_text(str(kib))

    def file(self, name: str, size: int) -> Path:
        """A cold file of `size` bytes, which has to be read from disk."""
        path = self.root / name
        if not path.exists() or path.stat().st_size != size:
            with open(path, "wb") as file:
                for start in range(0, size, MIB):
                    file.write(os.urandom(min(MIB, size - start)))
                os.fsync(file.fileno())
        self.cool(path)
        return path

    def cool(self, path: Path) -> None:
        """Make one file cold: write it out and drop its pages."""
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def warm(path: Path, start: int, end: int, step: int = PAGE, size: int = PAGE) -> None:
    """Bring in `size` bytes every `step` bytes from `start` to `end`, and nothing else."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        for at in range(start, end, step):
            os.pread(fd, size, at)
    finally:
        os.close(fd)


@pytest.fixture(scope="module", params=["defaults", "data=journal"])
def disk(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Disk]:
    """With large folios where the kernel has them for ext4, and without: not with a journal of data."""
    directory = tmp_path_factory.mktemp("disk")
    image = directory / "image"
    root = directory / "root"
    root.mkdir()
    subprocess.run(["truncate", "-s", "1G", image], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=1", image], check=True)
    made = subprocess.run(
        ["losetup", "--show", "-f", image], check=True, capture_output=True, text=True
    )
    device = made.stdout.strip()
    try:
        options = f"noatime,{request.param}"
        subprocess.run(["mount", "-t", "ext4", "-o", options, device, root], check=True)
        try:
            yield Disk(root, Path(device).name)
        finally:
            subprocess.run(["umount", root], check=True)
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


@pytest.fixture(autouse=True)
def needs_the_tier(observer: Observer) -> None:
    off = [h for h in observer.hooks() if h.tier == "readahead" and not h.attached]
    assert not off or {h.name for h in off} == {"iomap_dio_complete"}, off


@dataclass(frozen=True)
class Truth:
    warm: int
    ahead: int
    miss: int
    wasted: int

    @classmethod
    def of(cls, observed: Observed) -> Truth:
        found = re.fullmatch(r"warm (\d+) ahead (\d+) miss (\d+) wasted (\d+)\n", observed.stdout)
        assert found, observed
        return cls(*map(int, found.groups()))


def seen(stage: Stage) -> Truth:
    pages = _of(stage).pages
    return Truth(pages["warm"], pages["hit"] + pages["late"], pages["miss"], pages["wasted"])


#: Warm pages that the kernel reads when it becomes `reads`, if the shell's child was known to be
#: a stage by then.
_IMAGE = 2


def agree(truth: Truth, observed: Truth) -> bool:
    return 0 <= observed.warm - truth.warm <= _IMAGE and replace(observed, warm=0) == replace(
        truth, warm=0
    )


def _of(stage: Stage) -> Readahead:
    assert stage.readahead is not None
    return stage.readahead


def read(watch: Watch, path: Path, *steps: str) -> tuple[Truth, Truth, Readahead]:
    """What `reads` found, what was observed of it, and all that was."""
    command = f"reads {path} {' '.join(steps)} | cat"
    observed = watch.run(command)
    stage = observed.only("reads|cat").stages[0]
    return Truth.of(observed), seen(stage), _of(stage)


PATTERNS = {
    "4k": ["seq:4096"],
    "1000 B": ["seq:1000"],
    "5000 B": ["seq:5000"],
    "128k": ["seq:131072"],
    "1M": ["seq:1048576"],
    "random advice": ["random", "seq:4096"],
    "sequential advice": ["sequential", "seq:4096"],
    "scattered": ["scattered:4096:500"],
    "scattered 16k": ["scattered:16384:200"],
    "strided": ["strided:4096:65536"],
    "backward": ["backward:4096"],
    "two streams": ["streams:4096"],
    "two streams 64k": ["streams:65536"],
    "a tenth": ["seq:65536:51"],
    "vector": ["vector:65536"],
    "splice": ["splice:65536"],
    "sendfile": ["sendfile:65536"],
    "willneed": ["willneed:0:1048576", "seq:4096:512"],
    "readahead(2)": ["readahead:4194304:65536", "at:4194304:65536", "at:4259840:4096"],
    "again": ["seq:65536:16", "at:0:65536", "at:0:1048576"],
}


@pytest.mark.parametrize("read_ahead", [128, 0, 8192])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_pages_of_a_cold_file(watch: Watch, disk: Disk, pattern: str, read_ahead: int) -> None:
    disk.read_ahead(read_ahead)
    path = disk.file("cold", 32 * MIB)
    for _ in range(3):
        disk.cool(path)
        truth, observed, all_of_it = read(watch, path, *PATTERNS[pattern])
        if agree(truth, observed):
            break
    assert agree(truth, observed), (truth, observed)
    assert all_of_it.inserted_pages == observed.ahead + observed.wasted


@pytest.mark.parametrize("size", [1, PAGE - 1, PAGE, PAGE + 1, 31 * PAGE, MIB, 100 * MIB])
def test_sizes(watch: Watch, disk: Disk, size: int) -> None:
    disk.read_ahead(128)
    for _ in range(3):
        path = disk.file("sized", size)
        truth, observed, all_of_it = read(watch, path, "seq:65536")
        if agree(truth, observed):
            break
    assert agree(truth, observed), (truth, observed)
    assert 0 <= all_of_it.read_pages - (size + PAGE - 1) // PAGE <= _IMAGE
