# SPDX-License-Identifier: Apache-2.0
"""The block size of read(2), from 512 bytes to 4 MiB, for data in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipelined.analysis.machine import Host
from pipelined.run.page_cache import fill
from pipelined.wording import mean_size

from .alternatives import (
    Column,
    Trial,
    Tried,
    alternate,
    column,
    explain,
    finding_ids,
    print_table,
)

if TYPE_CHECKING:
    from kernel.conftest import Watch

SIZE = 1 << 30
BLOCKS = [512 << n for n in range(14)]

#: Reads of dd's own libraries and settings.
START = 64


def blocks(trial: Trial) -> int:
    return trial.run.stages[0].write_calls


COLUMNS = (
    column("read calls", lambda trial: trial.run.stages[0].read_calls),
    column("user", lambda trial: trial.run.stages[0].user_seconds),
    column("system", lambda trial: trial.run.stages[0].system_seconds),
    Column("CPU s/GB", lambda trial: f"{1e9 * trial.run.cpu_seconds / SIZE:.3f}"),
    Column("CPU µs/block", lambda trial: f"{1e6 * trial.run.cpu_seconds / blocks(trial):.2f}"),
)


def dd(watch: Watch, source: Path | str) -> Tried:
    """dd's trials by block size, each of `SIZE` bytes."""
    return alternate(
        watch,
        {
            mean_size(block, 1): (
                f"dd if={source} of=/dev/null bs={block} count={SIZE // block} status=none"
            )
            for block in BLOCKS
        },
    )


def least_cpu(trials: Sequence[Trial]) -> float:
    """CPU seconds of the trial that the machine disturbed least."""
    return min(trial.run.cpu_seconds for trial in trials)


def check(tried: Tried, host: Host) -> None:
    for block, trials in zip(BLOCKS, tried.values(), strict=True):
        for trial in trials:
            (stage,) = trial.run.stages
            assert stage.write_calls == SIZE // block
            assert 0 <= stage.read_calls - stage.write_calls <= START
    assert all("small-calls" in finding_ids(trial, host) for trial in tried["512 B"])
    assert all("small-calls" not in finding_ids(trial, host) for trial in tried["64 KiB"])
    # a call costs several times as much as the bytes of a small block
    costs = [least_cpu(trials) for trials in tried.values()]
    assert costs[0] > 2 * costs[BLOCKS.index(64 << 10)]


def test_small_blocks_of_a_cached_file_pay_for_calls(
    watch: Watch, tmp_path: Path, host: Host
) -> None:
    path = tmp_path / "cached"
    with path.open("wb") as file:
        file.truncate(SIZE)
    fill(path)
    tried = dd(watch, path)
    print_table("3a. dd of a cached file of 1 GiB to /dev/null", tried, COLUMNS)
    explain({name: tried[name] for name in ("512 B", "64 KiB", "4 MiB")}, host)
    check(tried, host)


def test_large_blocks_pay_for_the_cache(watch: Watch, host: Host) -> None:
    """From /dev/zero, where the block is the only memory that is touched."""
    tried = dd(watch, "/dev/zero")
    print_table("3b. dd of 1 GiB from /dev/zero to /dev/null", tried, COLUMNS)
    explain({name: tried[name] for name in ("64 KiB", "512 KiB", "4 MiB")}, host)
    check(tried, host)
