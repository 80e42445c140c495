# SPDX-License-Identifier: Apache-2.0
"""One `sed`, or several in a row; stages that are not equal; `sort` before or after `awk`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipelined.analysis.bottleneck import bottleneck
from pipelined.analysis.machine import Host
from pipelined.wording import data_size, percent

from .alternatives import (
    Column,
    Trial,
    Tried,
    alternate,
    column,
    explain,
    finding_ids,
    mostly,
    print_table,
)
from .text import text

if TYPE_CHECKING:
    from kernel.conftest import Watch

SIZE = 2 << 20
#: Does the same work each time that it is applied; an even number of times changes nothing.
SWAP = r"s/\([a-z]*\) \([a-z]*\) of/\2 \1 of/"
#: What a program reads while it starts: its libraries and settings.
START = 300_000


def _busiest(trial: Trial) -> float:
    return max(stage.cpu_seconds for stage in trial.run.stages)


def _is_bottleneck(position: int, trial: Trial) -> bool:
    found = bottleneck(trial.run)
    return found is not None and found.position == position


def _run_queue(trial: Trial) -> float:
    return sum(stage.states["runqueue"] for stage in trial.run.stages)


COLUMNS = (
    column("CPU", lambda trial: trial.run.cpu_seconds),
    column("busiest stage", _busiest),
    Column("cores used", lambda trial: f"{trial.run.cores_used:.2f}"),
    Column("overlap", lambda trial: percent(trial.run.overlap or 0)),
    column("run queue", _run_queue),
    column("pipe empty", lambda trial: sum(s.states["pipe_empty"] for s in trial.run.stages)),
    column("pipe full", lambda trial: sum(s.states["pipe_full"] for s in trial.run.stages)),
    Column("read", lambda trial: data_size(sum(s.read_bytes for s in trial.run.stages))),
)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """2 MiB of text in the page cache."""
    path = tmp_path / "lines"
    path.write_bytes(text(SIZE))
    return path


def seds(shares: str, path: Path) -> str:
    """A pipeline whose stages do these shares of the work, such as ``7|1``."""
    stages = ["sed" + f" -e '{SWAP}'" * int(share) for share in shares.split("|")]
    return " | ".join([f"{stages[0]} {path}", *stages[1:]]) + " > out; cksum < out"


def same_output(tried: Tried) -> bool:
    return len({trial.stdout for trials in tried.values() for trial in trials}) == 1


def test_a_row_of_equal_stages_is_as_fast_as_there_are_cores(
    watch: Watch, lines: Path, host: Host
) -> None:
    commands = {row: seds(row, lines) for row in ("8", "4|4", "2|2|2|2", "1|1|1|1|1|1|1|1")}
    commands["4|4, one CPU"] = f"taskset -cp 0 $$ > taskset; {commands['4|4']}"
    tried = alternate(watch, commands)
    print_table("4a. Eight expressions in one sed, or in 2, 4, 8 of them", tried, COLUMNS)
    explain(tried, host)
    assert same_output(tried)
    for row, trials in tried.items():
        stages = row.count("|") + 1
        for trial in trials:
            run = trial.run
            assert len(run.stages) == stages
            for stage in run.stages:  # each one copies all of it
                assert (stage.written_bytes, stage.read_bytes // SIZE) == (SIZE, 1)
            # at no instant more stages than cores; a switch takes a moment
            cores = 1 if "one CPU" in row else host.cores
            assert sum(run.levels[cores + 1 :]) <= 0.05 * run.wall_seconds


def test_of_unequal_stages_the_busiest_is_the_bound(watch: Watch, lines: Path, host: Host) -> None:
    commands = {row: seds(row, lines) for row in ("4|4", "7|1", "1|7")}
    commands["8|tr"] = seds("8", lines).replace(" > out", " | tr a-z a-z > out")
    tried = alternate(watch, commands)
    print_table("4b. The same work, divided unequally", tried, COLUMNS)
    explain(tried, host)
    assert same_output(tried)
    for name, position in (("7|1", 1), ("1|7", 2), ("8|tr", 1)):
        assert mostly(tried[name], partial(_is_bottleneck, position))
        assert all(trial.run.wall_seconds >= _busiest(trial) for trial in tried[name])


def test_what_shrinks_the_data_belongs_before_sort(
    watch: Watch, tmp_path: Path, host: Host
) -> None:
    path = tmp_path / "many"
    path.write_bytes(text(24 << 20))
    size = path.stat().st_size
    order = "sort -k6,6n -k1,1n"
    tried = alternate(
        watch,
        {
            "cat|sort|awk": f"cat {path} | {order} | mawk '$6 == 7' > out; cksum < out",
            "sort|awk": f"{order} {path} | mawk '$6 == 7' > out; cksum < out",
            "awk|sort": f"mawk '$6 == 7' {path} | {order} > out; cksum < out",
        },
    )
    print_table("4c. sort all and keep 1 %, or keep 1 % and sort that", tried, COLUMNS)
    explain(tried, host)
    assert same_output(tried)
    piped, *others = tried.values()
    assert mostly(piped, lambda trial: "barrier" in finding_ids(trial, host))
    for after, before in zip(*others, strict=True):
        sort, awk = after.run.stages
        assert min(sort.read_bytes, sort.written_bytes, awk.read_bytes) >= size
        awk, sort = before.run.stages
        assert sort.read_bytes < 0.05 * size + START
        assert sort.written_bytes == awk.written_bytes < 0.05 * size
