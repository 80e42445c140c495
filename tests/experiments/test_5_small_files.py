# SPDX-License-Identifier: Apache-2.0
"""20,000 small files in directory order or inode order, cold and warm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pipelined.analysis.machine import Host
from pipelined.run.page_cache import evict, fill

from .alternatives import (
    alternate,
    column,
    explain,
    finding_ids,
    mostly,
    print_table,
    readahead,
)
from .disk import UNLIMITED, Disk, made_disk

if TYPE_CHECKING:
    from kernel.conftest import Watch

pytestmark = pytest.mark.usefixtures("needs_the_tier")

FILES = 20_000
CACHES = ("cold", "drive's cache", "warm")
CONTENT = b"x" * 2999 + b"\n"


@pytest.fixture
def inner(disk: Disk) -> Iterator[Disk]:
    """A disk whose image is a file on `disk`, which reads ahead for it, as drives do."""
    directory = disk.root / "inner"
    directory.mkdir()
    with made_disk(directory, "256M") as made:
        yield made


def test_inode_order_is_disk_order_until_a_cache_hides_it(
    watch: Watch, disk: Disk, inner: Disk, host: Host
) -> None:
    files = inner.root / "files"
    files.mkdir()
    for number in range(FILES):
        (files / f"{number * 7919 % 100003:05}").write_bytes(CONTENT)
    listed = watch.run(
        f"cd {files}; ls -U > {watch.directory}/directory; "
        f"ls -Ui | sort -n | awk '{{ print $2 }}' > {watch.directory}/inode"
    )
    assert listed.returncode == 0
    disk.read_ahead(128)
    disk.limit(reads_per_second=4000)

    def prepare(name: str) -> None:
        _, cache = name.split(", ")
        if cache == "warm":
            return
        inner.remount()
        image = disk.root / "inner" / "image"
        if cache == "cold":
            evict(image)
        else:
            fill(image)

    commands = {
        f"{order}, {cache}": f"cd {files}; xargs cat < {watch.directory}/{order} | wc -c"
        for cache in CACHES
        for order in ("directory", "inode")
    }
    tried = alternate(watch, commands, prepare=prepare, disks=[inner, disk])
    columns = (
        column("CPU", lambda trial: trial.run.cpu_seconds),
        column("stalled", lambda trial: readahead(trial).all_stall_seconds),
        column("stalls", lambda trial: readahead(trial).stall_count),
        column("reads asked for", lambda trial: trial.disk_reads[0]),
        column("reads of the drive", lambda trial: trial.disk_reads[1]),
        column("warm", lambda trial: readahead(trial).pages["warm"]),
        column("miss", lambda trial: readahead(trial).pages["miss"]),
    )
    print_table(f"5. cat of {FILES:,} files of {len(CONTENT):,} bytes", tried, columns)
    for cache in CACHES:
        explain({name: tried[name] for name in tried if name.endswith(cache)}, host)
    assert {trial.stdout for trials in tried.values() for trial in trials} == {
        f"{FILES * len(CONTENT)}\n"
    }
    for trials in zip(*tried.values(), strict=True):
        by_directory, by_inode, *cached, warm_directory, warm_inode = trials
        # the order does not change what is requested
        for trial in (by_directory, by_inode, *cached):
            assert trial.disk_reads[0] >= FILES
            assert readahead(trial).pages["miss"] > 0.95 * FILES
        # but it does change how much of it the drive has read ahead
        assert by_inode.disk_reads[1] < 0.2 * by_directory.disk_reads[1]
        assert by_directory.run.wall_seconds > by_directory.disk_reads[1] / 4000 - UNLIMITED
        # and any cache hides the order; the host may take a page from one at any time
        assert all(trial.disk_reads[1] < 0.05 * FILES for trial in cached)
        for trial in (warm_directory, warm_inode):
            assert max(trial.disk_reads) < 0.05 * FILES
            assert readahead(trial).pages["miss"] < 0.05 * FILES
    # in any order the reader waits, and the finding says so
    for name in ("directory, cold", "inode, cold"):
        assert mostly(tried[name], lambda trial: "readahead-useless" in finding_ids(trial, host))
