# SPDX-License-Identifier: Apache-2.0
"""The `readahead` tier against the kernel's own word on which pages were in the page cache.

`reads` asks before each read, by cachestat(2) or mincore(2). Files lie on a file system of the
test's own, in a loop device, are made cold one at a time, and stay whole in memory; where the host
evicts some of them during a test (DAMON, memory pressure), both sides see it, but not at the same
instant: once more.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

import pytest

from pipelined.analysis.comparison import compare_runs
from pipelined.model.sighting import Finished
from pipelined.observer import Observer
from pipelined.runs import Readahead, Stage

from .conftest import PATIENCE, WAITS, Configure, Observed, Watch

pytestmark = pytest.mark.page_cache

PAGE = 4096
MIB = 1 << 20

EMULATED = os.environ.get("PIPELINED_EMULATED") == "1"

#: Whether the kernel preempts programs of tracepoints, as 7.3 was seen to.
PREEMPTS = EMULATED and int(os.uname().release.split(".")[0]) >= 7

#: Of a cold file. Before 6.5 `reads` has to wait 3 ms at each page that is not there.
COLD = (8 if EMULATED else 32) * MIB


@dataclass(frozen=True)
class Disk:
    """An ext4 file system of the test's own, in a loop device."""

    root: Path
    device: str
    journals_data: bool

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


@contextmanager
def disk_with(directory: Path, kind: str, options: str, *make: str) -> Iterator[Disk]:
    """A file system of `kind` in a file in `directory`; `make` are options of its mkfs."""
    image = directory / "image"
    root = directory / "root"
    root.mkdir()
    subprocess.run(["truncate", "-s", "1G", image], check=True)
    subprocess.run([f"mkfs.{kind}", "-q", *make, image], check=True)
    made = subprocess.run(
        ["losetup", "--show", "-f", image], check=True, capture_output=True, text=True
    )
    device = made.stdout.strip()
    try:
        subprocess.run(["mount", "-t", kind, "-o", options, device, root], check=True)
        try:
            yield Disk(root, Path(device).name, "data=journal" in options)
        finally:
            subprocess.run(["umount", root], check=True)
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


@pytest.fixture(
    scope="module", params=["defaults", pytest.param("data=journal", marks=pytest.mark.thorough)]
)
def disk(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Disk]:
    """With large folios where the kernel has them for ext4; with a journal of data without."""
    directory = tmp_path_factory.mktemp("disk")
    options = f"noatime,{request.param}"
    with disk_with(directory, "ext4", options, "-E", "lazy_itable_init=1") as made:
        yield made


@pytest.fixture
def slowed() -> Iterator[Callable[[Disk, int], None]]:
    """Limits the bytes a second that a disk reads, until the test is over.

    By the root group of the blkio controller of cgroup v1, which throttles one device for all.
    """
    throttle = Path("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device")
    if not throttle.exists():
        pytest.skip("no blkio controller of cgroup v1")
    slow: list[str] = []

    def slow_down(disk: Disk, rate: int) -> None:
        number = Path(f"/sys/block/{disk.device}/dev").read_text().strip()
        throttle.write_text(f"{number} {rate}")
        slow.append(number)

    yield slow_down
    for number in slow:
        throttle.write_text(f"{number} 0")


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
    by_mincore: bool = False
    """Which takes a page for missing that is still under I/O."""

    @classmethod
    def of(cls, observed: Observed) -> Truth:
        pattern = r"warm (\d+) ahead (\d+) miss (\d+) wasted (\d+) by (cachestat|mincore)\n"
        found = re.fullmatch(pattern, observed.stdout)
        assert found, observed
        return cls(*map(int, found.groups()[:4]), by_mincore=found[5] == "mincore")


def seen(stage: Stage) -> Truth:
    pages = _of(stage).pages
    return Truth(pages["warm"], pages["hit"] + pages["late"], pages["miss"], pages["wasted"])


#: Warm pages that the kernel reads when it becomes `reads`, if the shell's child was known to be
#: a stage by then.
_IMAGE = 2


def agree(truth: Truth, observed: Truth) -> bool:
    if not 0 <= observed.warm - truth.warm <= _IMAGE or observed.wasted != truth.wasted:
        return False
    if observed.ahead + observed.miss != truth.ahead + truth.miss:
        return False
    return observed.miss == truth.miss or (truth.by_mincore and observed.miss < truth.miss)


def _of(stage: Stage) -> Readahead:
    assert stage.readahead is not None
    return stage.readahead


def _consumed(stage: Stage) -> int:
    """Pages that its reads consumed."""
    found = stage.readahead
    return sum(found.pages.values()) - found.pages["wasted"] if found else 0


def read(
    watch: Watch, path: Path, *steps: str, prepare: Callable[[], None], warmed: bool = False
) -> Readahead:
    """What was observed of `reads`, which agrees with what it found itself.

    Where programs can be preempted one disagreement is tried again, not two (docs/CONCEPTS.md).
    Where `prepare` has `warmed` the whole file, `reads` has to find it so: what is gone by then was
    evicted by the host.
    """
    allowed = PREEMPTS
    for _ in range(3):
        prepare()
        untraced = watch.observer.missed_switches()
        observed = watch.run(f"reads {path} {' '.join(steps)} | cat")
        stage = observed.only("reads|cat").stages[0]
        truth, found = Truth.of(observed), seen(stage)
        if agree(truth, found):
            if warmed and truth.ahead + truth.miss:
                continue
            return _of(stage)
        # both see that the host evicts pages, but not at the same instant
        brought_in = found.ahead + found.miss + found.wasted
        evicted = brought_in > truth.ahead + truth.miss + truth.wasted
        # only after the first untraced switch is it known that the host has such
        first = untraced == 0 < watch.observer.missed_switches()
        if evicted or first or skipped(truth, found):
            continue
        assert allowed, (truth, found)
        print(f"not as reads found: {found}, {truth}: once more")
        allowed = False
    pytest.fail(f"three times in a row pages were evicted: {truth}, {found}")


def in_memory(watch: Watch, script: str) -> None:
    """Run a script once before, for its programs: the host evicts what was not used for a minute.

    What is read of a program to start it counts as read ahead, and what is mapped as wasted.
    """
    watch.run(script)


def skipped(truth: Truth, found: Truth) -> bool:
    """Whether a program did not run once, for a read of one page (docs/CONCEPTS.md)."""
    off = [abs(a - b) for a, b in zip(astuple(truth), astuple(found), strict=True)]
    return EMULATED and max(off) <= 1


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
    "a tenth": [f"seq:65536:{COLD // 655360}"],
    "vector": ["vector:65536"],
    "splice": ["splice:65536"],
    "sendfile": ["sendfile:65536"],
    "willneed": ["willneed:0:1048576", "seq:4096:512"],
    "readahead(2)": ["readahead:2097152:65536", "at:2097152:65536", "at:2162688:4096"],
    "again": ["seq:65536:16", "at:0:65536", "at:0:1048576"],
}


@pytest.mark.parametrize(
    "read_ahead", [128, *(pytest.param(n, marks=pytest.mark.thorough) for n in (0, 8192))]
)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_pages_of_a_cold_file(watch: Watch, disk: Disk, pattern: str, read_ahead: int) -> None:
    disk.read_ahead(read_ahead)
    path = disk.file("cold", COLD)
    found = read(watch, path, *PATTERNS[pattern], prepare=lambda: disk.cool(path))
    ahead = found.pages["hit"] + found.pages["late"]
    assert found.inserted_pages == ahead + found.pages["wasted"]
    again = "again", "scattered", "scattered 16k"  # read some pages more than once
    assert found.warm_share is None or pattern in again or found.cache_state == "cold"


@pytest.mark.thorough
@pytest.mark.parametrize("size", [1, PAGE - 1, PAGE, PAGE + 1, 31 * PAGE, MIB, 100 * MIB])
def test_sizes(watch: Watch, disk: Disk, size: int) -> None:
    disk.read_ahead(128)
    path = disk.file("sized", size)
    found = read(watch, path, "seq:65536", prepare=lambda: disk.cool(path))
    assert 0 <= found.read_pages - (size + PAGE - 1) // PAGE <= _IMAGE


@pytest.mark.thorough
def test_half_a_gigabyte(watch: Watch, disk: Disk) -> None:
    """With a hole for its data: the page cache is the same, and no disk has to hold it."""
    disk.read_ahead(8192)
    path = disk.root / "hole"
    with open(path, "wb") as file:
        file.truncate(512 * MIB)
    found = read(watch, path, "seq:131072", prepare=lambda: disk.cool(path))
    assert 0 <= found.read_pages - 512 * MIB // PAGE <= _IMAGE


WARMED = {
    "whole": (0, 8 * MIB, PAGE, PAGE),
    "first half": (0, 4 * MIB, PAGE, PAGE),
    "second half": (4 * MIB, 8 * MIB, PAGE, PAGE),
    "every second page": (0, 8 * MIB, 2 * PAGE, PAGE),
    "every second 64 KiB": (0, 8 * MIB, 131072, 65536),
}


@pytest.mark.thorough
@pytest.mark.parametrize("pattern", ["seq:4096", "seq:131072", "scattered:4096:500"])
@pytest.mark.parametrize("part", WARMED)
def test_warm_pages(watch: Watch, disk: Disk, part: str, pattern: str) -> None:
    disk.read_ahead(128)
    path = disk.file("warmed", 8 * MIB)

    def prepare() -> None:
        disk.cool(path)
        warm(path, *WARMED[part])

    whole = part == "whole"
    found = read(watch, path, pattern, prepare=prepare, warmed=whole)
    assert found.cache_state == ("warm" if whole else "mixed")
    assert (found.coverage is None) == whole


def test_many_small_files(watch: Watch, disk: Disk) -> None:
    """Readahead has no use for a file of one page: all missed, none brought in ahead."""
    disk.read_ahead(128)
    directory = disk.root / "small"
    directory.mkdir(exist_ok=True)
    for i in range(1000):
        (directory / str(i)).write_bytes(b"x" * PAGE)
    os.sync()
    in_memory(watch, "cat /dev/null | wc -c")
    for path in directory.iterdir():
        disk.cool(path)
    observed = watch.run(f"cd {directory} && cat * | wc -c")
    found = _of(observed.only("cat|wc").stages[0])
    assert observed.stdout == f"{1000 * PAGE}\n"
    assert found.pages["miss"] == 1000
    assert found.pages["hit"] + found.pages["late"] + found.pages["wasted"] == 0
    assert found.coverage == 0


def test_the_second_of_two_readers_finds_it_warm(watch: Watch, disk: Disk) -> None:
    disk.read_ahead(128)
    path = disk.file("shared", 8 * MIB)
    in_memory(watch, "cat /dev/null | wc -c; cat /dev/null | md5sum")
    observed = watch.run(f"cat {path} | wc -c; cat {path} | md5sum")
    first, second = (
        _of(observed.only(pipeline).stages[0]) for pipeline in ("cat|wc", "cat|md5sum")
    )
    assert first.cache_state == "cold" and second.cache_state == "warm"
    assert first.coverage and first.coverage > 0.9


def test_what_a_sort_reads_back_is_no_sign_of_a_warm_cache(watch: Watch, disk: Disk) -> None:
    """It writes temporary files of as many pages as its input has, and merges them."""
    disk.read_ahead(128)
    path = disk.file("unsorted", 16 * MIB)
    found = watch.run(f"cat {path} | sort -S 1M -T {disk.root} | wc -c").only("cat|sort|wc")
    assert found.readahead is not None
    assert found.readahead.pages["warm"] > 16 * MIB // PAGE
    assert found.readahead.not_input_pages >= 16 * MIB // PAGE
    assert found.readahead.cache_state == "cold"


def test_a_file_that_a_stage_wrote_and_another_one_reads_is_no_input(
    watch: Watch, disk: Disk
) -> None:
    """Of the run in which it was written; of the inner one, which began later, it is."""
    disk.read_ahead(128)
    path, copy = disk.file("original", 8 * MIB), disk.root / "copy"
    copy.unlink(missing_ok=True)
    in_memory(watch, "(cat /dev/null; sleep 0; cat /dev/null | md5sum) | cat")
    script = f"(cat {path} > {copy}; sleep 0.1; cat {copy} | md5sum) | cat"
    observed = watch.run(script)
    (outer,) = (run for run in observed.runs if not run.nested)
    inner = observed.only("cat|md5sum")
    assert outer.readahead is not None and inner.readahead is not None
    assert inner.readahead.cache_state == "warm"
    assert outer.readahead.pages["warm"] >= 8 * MIB // PAGE
    assert outer.readahead.cache_state == "cold"
    # what copy_file_range brings in of the copy was not read ahead
    assert outer.readahead.inserted_pages <= 8 * MIB // PAGE
    assert outer.readahead.pages["wasted"] == 0


@pytest.mark.real_time
def test_a_copy_in_the_kernel_stalls_as_a_read_does(
    watch: Watch, disk: Disk, slowed: Callable[[Disk, int], None]
) -> None:
    """cp of coreutils 9 copies by copy_file_range: on a slow disk its pages are late."""
    disk.read_ahead(128)
    path, copy = disk.file("to copy", 8 * MIB), disk.root / "copied"
    copy.unlink(missing_ok=True)
    slowed(disk, 20 * MIB)
    found = _of(watch.run(f"cp '{path}' {copy} | cat").only("cp|cat").stages[0])
    assert sum(found.stall_seconds["late"]) > 0.2
    # the first window of read-ahead at least
    assert found.pages["late"] >= 128 * 1024 // PAGE


def test_programs_and_libraries_are_no_sign_of_a_warm_cache(watch: Watch, disk: Disk) -> None:
    """To start each of many programs the first pages of it and of its libraries are read."""
    disk.read_ahead(128)
    files = [disk.file(f"part{i}", 2 * PAGE) for i in range(100)]
    script = f"for i in $(seq 0 99); do cat {disk.root}/part$i; done"
    found = _of(watch.run(f"({script}) | wc -c").runs[0].stages[0])
    assert found.pages["miss"] + found.pages["hit"] + found.pages["late"] >= 2 * len(files)
    # a virtual machine that shares its host's files has no page of them in its page cache
    assert found.not_input_pages >= min(2 * len(files), found.pages["warm"])
    assert found.cache_state == "cold"


@pytest.mark.parametrize(
    "command",
    [
        "cat {root}/many/* | wc -c",
        "find {root}/many -type f -print0 | xargs -0 -n 100 cat | wc -c",
        "LC_ALL=C grep -h -a -v x {root}/many/* | wc -c",
        "tail -q -n +1 {root}/many/* | wc -c",
    ],
)
def test_files_are_counted_of_which_the_begin_was_read(
    watch: Watch, disk: Disk, command: str
) -> None:
    """Where the host evicts pages meanwhile, a read may have no event of its own."""
    many = disk.root / "many"
    many.mkdir(exist_ok=True)
    for number in range(400):
        (many / str(number)).write_bytes(b"some text\n" * (1 + number * 2))
    run = watch.run(f"export LC_ALL=C; {command.format(root=disk.root)}").runs[0]
    assert run.readahead is not None and run.readahead.files is not None
    # each of up to eight programs may read a file or two of its own when it starts
    assert 392 <= run.readahead.files <= 400 + 16


@pytest.mark.parametrize(
    "command",
    [
        "dd if={one} bs=8k | wc -c",
        "dd if={one} bs=512 skip=1 count=4000 | wc -c",
        "paste {one} {other} | wc -c",
        "for i in 1 2 3 4 5 6 7 8 9; do read -r x; read -r y <&3; done < {other} 3< {one} | cat",
    ],
    ids=["in pieces", "not its begin", "two in turn", "two in turn by lines"],
)
def test_a_file_that_is_read_in_pieces_is_one_file(watch: Watch, disk: Disk, command: str) -> None:
    one, other = disk.root / "one", disk.root / "other"
    for path in (one, other):
        path.write_bytes(b"some text\n" * 400_000)
    run = watch.run(f"export LC_ALL=C; {command.format(one=one, other=other)}").runs[0]
    assert run.readahead is not None and run.readahead.files is not None
    assert run.readahead.files <= 2 + 4


@pytest.mark.parametrize("count", [2, 8])
def test_paste_of_files(watch: Watch, disk: Disk, count: int) -> None:
    disk.read_ahead(128)
    paths = [disk.file(f"pasted{i}", 4 * MIB) for i in range(count)]
    in_memory(watch, "paste /dev/null | md5sum")
    observed = watch.run(f"paste {' '.join(map(str, paths))} | md5sum")
    found = _of(observed.only("paste|md5sum").stages[0])
    # those of libraries are in the cache, or are not; in what paste read they cannot be told apart
    pages = count * 4 * MIB // PAGE
    assert pages - 1 <= found.read_pages - found.pages["warm"] <= pages + 16
    assert found.pages["wasted"] == 0
    # each file begins with one miss, and readahead is right about all the rest
    assert found.coverage is not None and found.coverage > 0.99
    assert found.accuracy == 1


def test_a_program_of_many_images_keeps_its_pages(watch: Watch, disk: Disk) -> None:
    """What a shell's read brought in is consumed by what the shell becomes."""
    disk.read_ahead(128)
    path = disk.file("handed on", 4 * MIB)
    in_memory(watch, "(head -c 10 >&2; exec cat) </dev/null | md5sum")
    observed = watch.run(f"(head -c 10 >&2; exec cat) <'{path}' | md5sum")
    pages = _of(observed.only("cat|md5sum").stages[0]).pages
    assert pages["hit"] + pages["late"] + pages["miss"] + pages["warm"] >= 1023
    observed = watch.run(f"(read -rn 1; exec cat) <'{path}' | md5sum")
    assert _of(observed.only("cat|md5sum").stages[0]).pages["wasted"] == 0


def test_direct_io_is_counted_apart(watch: Watch, disk: Disk) -> None:
    path = disk.file("direct", 4 * MIB)
    in_memory(watch, "dd if=/dev/null status=none | wc -c")
    observed = watch.run(f"dd if={path} bs=64k iflag=direct status=none | wc -c")
    found = _of(observed.only("dd|wc").stages[0])
    assert observed.stdout == f"{4 * MIB}\n"
    read = found.pages["miss"] + found.pages["hit"] + found.pages["late"]
    if disk.journals_data:  # ext4 then reads through the page cache all the same
        assert (found.direct_bytes, read) == (0, 4 * MIB // PAGE)
        return
    if any(h.name == "iomap_dio_complete" and h.attached for h in watch.observer.hooks()):
        assert found.direct_bytes == 4 * MIB
    assert read <= 8
    assert sum(found.stalls["other"]) >= 1


def test_block_devices(watch: Watch, disk: Disk) -> None:
    """A device that is read itself is a file like any other; for a file system it is metadata."""
    disk.read_ahead(128)
    fd = os.open(f"/dev/{disk.device}", os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 64 * MIB, 8 * MIB, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
    observed = watch.run(f"dd if=/dev/{disk.device} bs=64k skip=1024 count=128 status=none | wc -c")
    assert observed.stdout == f"{8 * MIB}\n"
    found = _of(observed.only("dd|wc").stages[0])
    assert 8 * MIB // PAGE <= found.read_pages <= 8 * MIB // PAGE + 16
    assert found.pages["hit"] + found.pages["late"] > 0 and found.pages["miss"] > 0


@pytest.fixture
def overlay(disk: Disk) -> Iterator[Path]:
    """An overlay of two directories of the disk."""
    for name in ("lower", "upper", "work", "merged"):
        (disk.root / name).mkdir(exist_ok=True)
    options = ",".join(f"{name}dir={disk.root}/{name}" for name in ("lower", "upper", "work"))
    merged = disk.root / "merged"
    subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", merged], check=True)
    yield merged
    subprocess.run(["umount", merged], check=True)


def test_overlayfs_is_the_file_system_below(watch: Watch, disk: Disk, overlay: Path) -> None:
    disk.read_ahead(128)
    (disk.root / "lower").mkdir(exist_ok=True)
    path = disk.file("lower/layered", 4 * MIB)
    observed = watch.run(f"cat {overlay}/layered | wc -c")
    assert observed.stdout == f"{4 * MIB}\n"
    found = _of(observed.only("cat|wc").stages[0])
    assert found.cache_state == "cold" and found.coverage and found.coverage > 0.9
    disk.cool(path)


@pytest.mark.real_time
def test_stalls_on_overlayfs_have_their_class(
    watch: Watch, disk: Disk, overlay: Path, slowed: Callable[[Disk, int], None]
) -> None:
    """The descriptor's mapping is the overlay's, that of the pages is the one below."""
    disk.read_ahead(128)
    (disk.root / "lower").mkdir(exist_ok=True)
    path = disk.file("lower/slow", 4 * MIB)
    slowed(disk, 20 * MIB)
    found = _of(watch.run(f"cat {overlay}/slow | wc -c").only("cat|wc").stages[0])
    classed = sum(found.stall_seconds["miss"]) + sum(found.stall_seconds["late"])
    assert classed > 0.9 * found.all_stall_seconds > 0.05
    disk.cool(path)


def test_a_copy_on_overlayfs_reads_one_file_and_writes_the_other(
    watch: Watch, disk: Disk, overlay: Path
) -> None:
    disk.read_ahead(128)
    (disk.root / "lower").mkdir(exist_ok=True)
    path = disk.file("lower/original", 4 * MIB)
    found = _of(watch.run(f"cp {overlay}/original {overlay}/copy | cat").only("cp|cat").stages[0])
    assert found.pages["wasted"] == 0
    assert found.inserted_pages <= 4 * MIB // PAGE
    (overlay / "copy").unlink()
    disk.cool(path)


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_other_file_systems(watch: Watch, tmp_path: Path, kind: str) -> None:
    """Btrfs has metadata in the page cache of an inode of the same file system."""
    with disk_with(tmp_path, kind, "noatime") as disk:
        disk.read_ahead(128)
        path = disk.file("cold", 8 * MIB)
        for steps in (["seq:4096"], ["seq:5000"], ["seq:131072"], ["scattered:4096:200"]):
            read(watch, path, *steps, prepare=lambda: disk.cool(path))


def test_fuse(watch: Watch, disk: Disk) -> None:
    below, above = disk.root / "below", disk.root / "above"
    below.mkdir(exist_ok=True)
    above.mkdir(exist_ok=True)
    source = disk.file("below/file", 8 * MIB)
    subprocess.run(["bindfs", below, above], check=True)
    try:

        def prepare() -> None:
            disk.cool(above / "file")
            disk.cool(source)

        for steps in (["seq:4096"], ["seq:131072"], ["scattered:4096:200"]):
            assert read(watch, above / "file", *steps, prepare=prepare).all_stall_seconds > 0
    finally:
        subprocess.run(["umount", above], check=True)


def test_tmpfs_has_no_disk(watch: Watch, tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", tmp_path / "memory"], check=True)
    try:
        (tmp_path / "memory" / "file").write_bytes(bytes(4 * MIB))
        observed = watch.run("cat memory/file | wc -c")
        found = _of(observed.only("cat|wc").stages[0])
        assert found.read_pages < 64 and found.cache_state is None
        # but the program's own pages may have to be waited for
        assert found.pages["hit"] + found.pages["late"] < 64
    finally:
        subprocess.run(["umount", tmp_path / "memory"], check=True)


MAPPED = (
    "import mmap, sys; f = open(sys.argv[1], 'rb'); "
    "m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)"
)


@pytest.mark.real_time
def test_a_mapped_file_that_is_written_to_a_pipe(
    watch: Watch, disk: Disk, slowed: Callable[[Disk, int], None]
) -> None:
    """The faults come in the middle of write(2)."""
    disk.read_ahead(128)
    path = disk.file("mapped and written", 8 * MIB)
    slowed(disk, 20 * MIB)
    script = f"/usr/bin/python3 -c \"{MAPPED}; sys.stdout.buffer.write(m)\" '{path}'"
    stage = watch.run(f"{script} | wc -c").only("python3|wc").stages[0]
    found = _of(stage)
    # a fault that finds its page maps others around it, and waits for nothing
    assert found.faults["miss"] + found.faults["late"] >= 2
    assert stage.states["disk"] > 0.2
    assert found.all_stall_seconds == pytest.approx(stage.states["disk"], rel=0.1)


def test_madvise_is_no_reading_ahead(watch: Watch, disk: Disk) -> None:
    """What it brings in is used by faults, which no event shows."""
    disk.read_ahead(128)
    path = disk.file("advised", 8 * MIB)
    advised = f"{MAPPED}; m.madvise(mmap.MADV_WILLNEED); sum(m[::4096])"
    script = f"/usr/bin/python3 -c \"{advised}\" '{path}'"
    found = _of(watch.run(f"{script} | cat").only("python3|cat").stages[0])
    # what Python loads is read ahead, too
    assert found.pages["wasted"] < 1000 and found.inserted_pages < 1000


def test_threads_that_share_a_descriptor(watch: Watch, disk: Disk) -> None:
    """What one reads ahead and another consumes is wasted and warm; no page is counted twice."""
    disk.read_ahead(128)
    path = disk.file("shared by threads", 8 * MIB)
    script = (
        "import os,threading as t; f=os.open(sys.argv[1],0); b=1<<16; "
        "r=lambda n:[os.pread(f,b,i*b) for i in range(n,128,2)]; "
        "w=[t.Thread(target=r,args=(n,)) for n in (0,1)]; [x.start() for x in w]; "
        "[x.join() for x in w]"
    )
    observed = watch.run(f"python3 -c 'import sys; {script}' '{path}' | cat")
    found = _of(observed.only("python3|cat").stages[0])
    # and what Python loads
    assert 8 * MIB // PAGE <= found.read_pages <= 8 * MIB // PAGE + 4000
    ahead = found.pages["hit"] + found.pages["late"] + found.pages["wasted"]
    assert found.inserted_pages == ahead


def test_mapped_files(watch: Watch, disk: Disk) -> None:
    """Faults and their stalls, no pages: what a fault maps around it is not known to be used."""
    disk.read_ahead(128)
    path = disk.file("mapped", 8 * MIB)
    # starting a program whose pages the host has taken back waits for disk, and is no fault
    watch.run(f"touches {disk.file('other', PAGE)} | cat")
    observed = watch.run(f"touches {path} | cat")
    found = _of(observed.only("touches|cat").stages[0])
    disk_seconds = observed.only("touches|cat").stages[0].states["disk"]
    assert found.faults["miss"] >= 1
    # one for each 64 KiB that a fault maps, at most one for each page, and the program's own
    assert 8 * MIB // 65536 // 8 <= sum(found.faults.values()) <= 8 * MIB // PAGE + 64
    assert found.pages["miss"] + found.pages["hit"] + found.pages["late"] == 0
    assert found.all_stall_seconds == pytest.approx(disk_seconds, abs=0.002)


@pytest.mark.loses
def test_a_window_that_is_full_loses_pages_and_says_so(
    configure: Configure, disk: Disk, tmp_path: Path
) -> None:
    """Sixteen files read ahead by 8 MiB each are more than a task's pages are remembered of."""
    disk.read_ahead(8192)
    paths = [disk.file(f"wide{i}", 10 * MIB) for i in range(16)]
    with Observer.open(configure(), own_only=True) as observer:
        observed = Watch(observer, tmp_path).run(f"paste {' '.join(map(str, paths))} | md5sum")
        found = _of(observed.only("paste|md5sum").stages[0])
        lost = observer.lost()["readahead"]
    assert lost > 0
    ahead = found.pages["hit"] + found.pages["late"] + found.pages["wasted"]
    assert found.inserted_pages == ahead + lost


@pytest.mark.loses
def test_readers_that_are_too_many_are_counted(
    configure: Configure, disk: Disk, tmp_path: Path
) -> None:
    disk.read_ahead(128)
    paths = [disk.file(f"many{i}", MIB) for i in range(2)]
    with Observer.open(configure(max_readers=1), own_only=True) as observer:
        watch = Watch(observer, tmp_path)
        for path in paths:
            watch.run(f"cat {path} | cat >/dev/null")
        assert observer.lost()["readahead"] == 0
        for path in paths:
            disk.cool(path)
        first, second = (f"reads {path} seq:4096:2" for path in paths)
        # The second begins when the first has read, and that goes on until the second has ended.
        # Before Linux 6.5 `reads` also sleeps for a moment before it reads.
        asleep = "until read -r _ _ state _ < /proc/$!/stat; [ $state = S ]; do sleep 0.1; done"
        script = f"({first} sleep:60000 & {asleep}; sleep 0.5; {second}; kill $!; wait)"
        watch.run(f"{script} | cat >/dev/null")
        assert observer.lost()["readahead"] > 0
        use = {use.name: use for use in observer.maps()}["windows"]
        assert (use.entries, use.capacity) == (0, 1)


def test_a_driver_that_has_read_ahead_keeps_no_place(
    watch: Watch, disk: Disk, entries_left: Callable[[Observer], dict[str, int]]
) -> None:
    """It has left its stage, and with it the run, when it exits."""
    disk.read_ahead(128)
    path = disk.file("driver", MIB)
    driver = (
        "import subprocess, time\n"
        f"child = subprocess.Popen(['sh', '-c', 'sleep 0.3; echo a; {WAITS}; echo b'],"
        " stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        f"file = open('{path}', 'rb', buffering=0)\n"
        "while file.read(4096): pass\n"
        "open('go', 'w').close()\n"
        "child.stdout.read()\n"
        "child.wait()\n"
        "time.sleep(0.5)\n"
    )
    observed = watch.run_command("python3", "-c", driver)
    reader = observed.only("sh|python3").stages[1]
    assert _of(reader).pages["hit"] > 0
    assert entries_left(watch.observer)["windows"] == 0


def test_what_a_run_that_ended_unwatched_had_read_is_its_own_and_not_of_the_next_one(
    configure: Configure, disk: Disk, tmp_path: Path
) -> None:
    """It is over when the next daemon begins, before the hooks of the tier are attached."""
    path = disk.file("unwatched", MIB)
    stored: list[Finished] = []

    @contextmanager
    def watching() -> Iterator[Watch]:
        with Observer.open(
            configure(),
            own_only=True,
            wait=False,
            state=tmp_path / "state",
            on_finished=stored.append,
        ) as observer:
            observer.attach_optional()
            yield Watch(observer, tmp_path)

    with watching() as watch:
        started = watch.start(f"(cat {path}; {WAITS}; true) | cat > out")
        end = time.monotonic() + PATIENCE
        while _consumed(watch.live("bash|cat").stages[0]) < MIB // PAGE:
            assert time.monotonic() < end
            time.sleep(0.1)
    (tmp_path / "go").touch()
    started.finish()
    time.sleep(0.3)
    with watching() as watch:
        watch.observer.settle()
        assert not any(run.live for run in watch.observer.runs())
        (before,) = (run for run, _ in (one.make() for one in stored) if run.pipeline == "bash|cat")
        assert before.ended_unwatched
        assert _consumed(before.stages[0]) >= MIB // PAGE
        for _ in range(4):
            for stage in watch.run("echo a | (cat; true) > short").runs[-1].stages:
                assert _consumed(stage) < MIB // PAGE / 4


@pytest.mark.real_time
@pytest.mark.undisturbed
def test_stalls_are_what_a_lone_reader_does_not_run(
    watch: Watch, disk: Disk, slowed: Callable[[Disk, int], None]
) -> None:
    """On a disk of 20 MiB/s a reader's wall time is its CPU time, its queueing, and its stalls."""
    disk.read_ahead(128)
    path = disk.file("slow", 16 * MIB)
    slowed(disk, 20 * MIB)
    observed = watch.run(f"reads {path} seq:4096 | cat")
    run = observed.only("reads|cat")
    stage = run.stages[0]
    found = _of(stage)
    alive = sum(stage.states.values())
    idle = alive - stage.states["cpu"] - stage.states["runqueue"] - stage.states["pipe_full"]
    assert found.all_stall_seconds > 0.5
    assert found.all_stall_seconds == pytest.approx(idle, rel=0.02)
    assert (
        sum(found.stall_seconds["late"]) + sum(found.stall_seconds["miss"])
        > 0.98 * found.all_stall_seconds
    )
    # cat sleeps on an empty pipe meanwhile
    assert found.overlapped_seconds < 0.05 * found.all_stall_seconds


@pytest.mark.real_time
@pytest.mark.undisturbed
def test_a_cold_cache_on_a_slow_disk_explains_the_difference(
    watch: Watch, disk: Disk, slowed: Callable[[Disk, int], None]
) -> None:
    disk.read_ahead(128)
    path = disk.file("slow", 16 * MIB)
    slowed(disk, 20 * MIB)
    cold, warm = (watch.run(f"cat {path} | wc -l").only("cat|wc") for _ in range(2))
    found = compare_runs(cold, warm)
    (pair,) = found.pairs
    assert pair.outcome == "not-comparable"
    assert pair.cache_seconds is not None and pair.cache_seconds > 0.5
    # the same job that also slept for longer than it waited for the disk
    slept = watch.run(f"(cat {path}; sleep 2) | wc -l").runs[0]
    assert compare_runs(slept, cold).pairs[0].outcome == "undecided"


@pytest.mark.real_time
def test_only_the_pages_that_were_slept_for_are_late(
    watch: Watch, disk: Disk, slowed: Callable[[Disk, int], None]
) -> None:
    """Reads of 5,000 bytes end within a page; the next one begins there, and slept for no other."""
    disk.read_ahead(128)
    path = disk.file("slow", 16 * MIB)
    slowed(disk, 20 * MIB)
    found = _of(watch.run(f"reads {path} seq:5000 | cat").only("reads|cat").stages[0])
    waits = found.stalls["late"].alone + found.stalls["late"].overlapped
    assert waits > 0
    assert waits <= found.pages["late"] <= 3 * waits


@pytest.mark.real_time
@pytest.mark.undisturbed
def test_stalls_that_another_stage_covers(
    watch: Watch, disk: Disk, slowed: Callable[[Disk, int], None]
) -> None:
    disk.read_ahead(128)
    path = disk.file("slow", 16 * MIB)
    slowed(disk, 20 * MIB)
    observed = watch.run_traced(
        f"reads {path} seq:4096 | (burn 400 >&2; cat)", prepare=lambda: disk.cool(path)
    )
    run = observed.runs[0]
    found = _of(run.stages[0])
    assert found.all_stall_seconds > 0.5
    assert found.overlapped_seconds == pytest.approx(run.disk_overlapped_seconds, abs=0.02)
    assert found.overlapped_seconds > 0.3
