# SPDX-License-Identifier: Apache-2.0
"""A run of about a second, over time: in pieces fine enough to see the phases of sort."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest

from pipelined.run.profile import profile
from pipelined.runs import Run, Timeline

pytestmark = pytest.mark.usefixtures("bpf")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, Timeline]]:
    file: Path = tmp_path_factory.mktemp("lanes") / "text"
    file.write_text("".join(f"{n * 7919 % 300_007} {n}\n" for n in range(1_000_000)) * 4)
    found = profile(["sh", "-c", f"cat {file} | LC_ALL=C sort -S 512M | uniq > /dev/null"])
    (run,) = found.runs
    yield run, found.timelines[run.id]


def cpu(timeline: Timeline, index: int) -> list[float]:
    return [point.stages[index].states.get("cpu", 0.0) for point in timeline]


def test_it_has_many_pieces(seen: tuple[Run, Timeline]) -> None:
    run, timeline = seen
    # The first is 0.1 s long: until then a run is not shown. A sweep may come late where other
    # work has the CPUs.
    assert len(timeline) >= min(20, (run.wall_seconds - 0.1) / 0.04)


def test_its_pieces_add_up_to_the_run(seen: tuple[Run, Timeline]) -> None:
    run, timeline = seen
    for index, stage in enumerate(run.stages):
        assert sum(cpu(timeline, index)) == pytest.approx(stage.cpu_seconds, abs=0.002)
    assert timeline[-1].end - timeline[0].start == pytest.approx(run.wall_seconds, abs=0.002)


def test_it_shows_that_sort_first_reads_and_then_writes(seen: tuple[Run, Timeline]) -> None:
    run, timeline = seen
    _, sort, uniq = run.stages
    # What a program reads when it starts is less than a tenth. By their order, not by when they
    # are: a sweep may come late where other work has the CPUs.
    most_read = _first_with(0.9 * sort.read_bytes, [p.stages[1].read_bytes for p in timeline])
    some_written = _first_with(0.1 * uniq.read_bytes, [p.stages[2].read_bytes for p in timeline])
    assert most_read < some_written


def _first_with(amount: float, counts: list[int]) -> int:
    """The index of the first point by which `counts` add up to `amount`."""
    return next(n for n, total in enumerate(accumulate(counts)) if total >= amount)
