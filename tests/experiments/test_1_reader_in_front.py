# SPDX-License-Identifier: Apache-2.0
"""`awk file`, `cat file | awk` or `dd bs=… | awk`: which wins when, and why."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pytest

from pipelined.analysis.machine import Host
from pipelined.run.page_cache import evict, fill

from .alternatives import (
    Column,
    Tried,
    ahead,
    alternate,
    column,
    explain,
    finding_ids,
    mostly,
    print_table,
    readahead,
)
from .disk import UNLIMITED, Disk
from .text import text as make_text

if TYPE_CHECKING:
    from kernel.conftest import Watch

pytestmark = pytest.mark.usefixtures("needs_the_tier")

PAGE = 4096
MIB = 1 << 20
SIZE = 32 * MIB
AWK = "mawk '$5 ~ /00$/ { n += length($2) } END { print n }'"


def _pages(name: str) -> Column:
    return column(name, lambda trial: readahead(trial).pages[name])


COLUMNS = (
    column("CPU", lambda trial: trial.run.cpu_seconds),
    column("stalled", lambda trial: readahead(trial).all_stall_seconds),
    column("overlapped", lambda trial: readahead(trial).overlapped_seconds),
    column("stalls", lambda trial: readahead(trial).stall_count),
    column("disk reads", lambda trial: trial.disk_reads[0]),
    *map(_pages, ("warm", "hit", "late", "miss")),
)


@pytest.fixture
def text(disk: Disk) -> Path:
    """32 MiB of lines on the slow disk."""
    path = disk.root / "text"
    path.write_bytes(make_text(SIZE))
    return path


def readers(text: Path) -> dict[str, str]:
    commands = {"awk": f"{AWK} {text}", "cat": f"cat {text} | {AWK}"}
    for block in ("4k", "32k", "64k", "1M"):
        commands[f"dd bs={block}"] = f"dd if={text} bs={block} status=none | {AWK}"
    return commands


def cold(watch: Watch, disk: Disk, text: Path, read_ahead: int, **limit: int) -> Tried:
    disk.read_ahead(read_ahead)
    disk.limit(**limit)
    return alternate(watch, readers(text), prepare=lambda _: evict(text), disks=[disk])


def test_a_reader_in_front_of_a_warm_file_only_copies(
    watch: Watch, disk: Disk, text: Path, host: Host
) -> None:
    tried = alternate(watch, readers(text), prepare=lambda _: fill(text), disks=[disk])
    print_table("1a. Warm", tried, COLUMNS)
    explain(tried, host, ["awk", "cat"])
    for name, trials in tried.items():
        for trial in trials:
            assert readahead(trial).cache_state == "warm"  # the host may take a page at any time
            assert trial.disk_reads[0] < 0.01 * SIZE / PAGE
            copies = sum(stage.read_bytes for stage in trial.run.stages) // SIZE
            assert copies == (1 if name == "awk" else 2)
    assert len({trial.stdout for trials in tried.values() for trial in trials}) == 1


@pytest.mark.parametrize("read_ahead", [128, 8192])
def test_on_a_fast_disk_readahead_leaves_nothing_to_overlap(
    watch: Watch, disk: Disk, text: Path, host: Host, read_ahead: int
) -> None:
    tried = cold(watch, disk, text, read_ahead)
    print_table(f"1b. Cold, fast disk, readahead {read_ahead} KiB", tried, COLUMNS)
    explain(tried, host, ["awk", "cat"])
    for trial in tried["awk"]:
        assert ahead(trial) > 0.9 * SIZE / PAGE
        assert readahead(trial).pages["late"] < 0.1 * SIZE / PAGE


@pytest.mark.parametrize(("rate", "read_ahead"), [(20, 8192), (60, 128), (120, 8192)])
def test_no_reader_makes_a_disk_faster_that_is_bound_by_bandwidth(
    watch: Watch, disk: Disk, text: Path, host: Host, rate: int, read_ahead: int
) -> None:
    tried = cold(watch, disk, text, read_ahead, bytes_per_second=rate * MIB)
    print_table(f"1c. Cold, {rate} MiB/s, readahead {read_ahead} KiB", tried, COLUMNS)
    explain(tried, host, ["awk", "cat"])
    for trials in tried.values():
        for trial in trials:
            assert trial.run.wall_seconds > SIZE / (rate * MIB) - UNLIMITED
    assert all(ahead(trial) > 0.9 * SIZE / PAGE for trial in tried["awk"])
    if rate == 20:  # awk computes a tenth of the time
        assert mostly(tried["awk"], lambda trial: "readahead-late" in finding_ids(trial, host))


def test_without_readahead_only_a_reader_overlaps_disk_and_computing(
    watch: Watch, disk: Disk, text: Path, host: Host
) -> None:
    tried = cold(watch, disk, text, 0, bytes_per_second=120 * MIB)
    print_table("1d. Cold, 120 MiB/s, no readahead", tried, COLUMNS)
    explain(tried, host)
    for trials in tried.values():
        for trial in trials:
            assert ahead(trial) == 0
            assert trial.disk_reads[0] >= SIZE / PAGE
    assert all(readahead(trial).overlapped_seconds == 0 for trial in tried["awk"])
    assert all(readahead(trial).overlapped_seconds > 0 for trial in tried["dd bs=32k"])
    assert mostly(tried["awk"], lambda trial: "disk-not-overlapped" in finding_ids(trial, host))


def test_a_disk_bound_by_operations_is_faster_for_larger_requests(
    watch: Watch, disk: Disk, text: Path, host: Host
) -> None:
    tried = cold(watch, disk, text, 128, reads_per_second=500)
    print_table("1e. Cold, 500 reads/s, readahead 128 KiB", tried, COLUMNS)
    explain(tried, host)
    windows = SIZE / (128 << 10)
    for trial in tried["awk"]:
        assert trial.disk_reads[0] > 0.9 * windows
        assert trial.run.wall_seconds > trial.disk_reads[0] / 500 - UNLIMITED
    # cat gives the advice SEQUENTIAL, which doubles the window
    assert mostly(tried["cat"], lambda trial: trial.disk_reads[0] < 0.6 * windows)
    # a read of 1 MiB is one request, whatever the window
    assert mostly(tried["dd bs=1M"], lambda trial: trial.disk_reads[0] < 0.3 * windows)


def test_a_larger_window_does_that_for_everybody(
    watch: Watch, disk: Disk, text: Path, host: Host
) -> None:
    tried = cold(watch, disk, text, 8192, reads_per_second=500)
    print_table("1f. Cold, 500 reads/s, readahead 8192 KiB", tried, COLUMNS)
    explain(tried, host, ["awk", "cat"])
    for trials in tried.values():
        assert mostly(trials, lambda trial: trial.disk_reads[0] < 0.3 * SIZE / (128 << 10))


ADVISE = (
    "import os, sys; advice, step = map(int, sys.argv[1:3]); size = os.stat(0).st_size; "
    "[os.posix_fadvise(0, at, step, advice) for at in range(0, size, step or size)]; "
    "os.execvp(sys.argv[3], sys.argv[3:])"
)


def test_advice_decides_how_much_is_read_at_once(
    watch: Watch, disk: Disk, text: Path, host: Host
) -> None:
    """A program gives the advice and becomes awk: it holds for the file that stays open."""
    size = 8 * MIB
    with text.open("r+b") as file:
        file.truncate(size)
    advices = {
        "NORMAL": (os.POSIX_FADV_NORMAL, 0),
        "RANDOM": (os.POSIX_FADV_RANDOM, 0),
        "SEQUENTIAL": (os.POSIX_FADV_SEQUENTIAL, 0),
        "WILLNEED": (os.POSIX_FADV_WILLNEED, 0),
        "WILLNEED by 1 MiB": (os.POSIX_FADV_WILLNEED, MIB),
    }
    advised = f"{shlex.quote(sys.executable)} -S -E -c {shlex.quote(ADVISE)}"
    commands = {
        name: f"{advised} {advice} {step} {AWK} < {text}"
        for name, (advice, step) in advices.items()
    }
    disk.read_ahead(128)
    disk.limit(reads_per_second=1000)
    tried = alternate(watch, commands, prepare=lambda _: evict(text), disks=[disk])
    print_table("1g. posix_fadvise, cold, 1,000 reads/s, readahead 128 KiB", tried, COLUMNS)
    explain(tried, host)
    windows = size / (128 << 10)
    # medians, because what the host evicts during a run is read again
    normal, random, sequential, once, steps = (
        median(trial.disk_reads[0] for trial in trials) for trials in tried.values()
    )
    assert 0.9 * windows < normal < 1.5 * windows
    assert random >= 0.99 * size / PAGE
    assert sequential < 0.75 * windows
    # one call brings in no more than the largest transfer of the device
    assert sequential < once < normal
    assert steps < 0.5 * windows
    assert all(ahead(trial) == 0 for trial in tried["RANDOM"])
