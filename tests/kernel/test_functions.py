# SPDX-License-Identifier: Apache-2.0
"""The `functions` tier against a program that moves bytes in known portions.

Kernels that let no program at their functions run the last test only. Where the tier is
expected (PIPELINED_REQUIRE_FUNCTIONS=1, the virtual machines) its absence is a failure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipelined.kernel import hooks
from pipelined.observer import Observer
from pipelined.runs import FILL_EDGES, SIZE_EDGES, Functions, Histogram, Stage

if TYPE_CHECKING:
    from kernel.conftest import Configure, Watch


tier = pytest.mark.usefixtures("functions")


def stage_functions(stage: Stage) -> Functions:
    assert stage.functions is not None
    return stage.functions


def of(sizes: Collection[int]) -> Histogram:
    """The histogram that these sizes must give: a size on an edge belongs below it."""
    counts = [0] * (len(SIZE_EDGES) + 1)
    for size in sizes:
        counts[bisect_left(SIZE_EDGES, size)] += 1
    return Histogram.of(SIZE_EDGES, counts, sum(sizes))


AT_THE_EDGES = sorted({2**n + by for n in range(22) for by in (-1, 0, 1)} - {0})


@tier
def test_writes_lie_in_the_bucket_of_their_size(watch: Watch) -> None:
    steps = " ".join(f"write:{size}" for size in AT_THE_EDGES)
    run = watch.run(f"moves {steps} | moves drain:65536").only("moves|moves")
    assert stage_functions(run.stages[0]).pipe_writes == of(AT_THE_EDGES)
    assert stage_functions(run.stages[1]).pipe_writes.count == 0


@tier
def test_reads_lie_in_the_bucket_of_what_they_returned(watch: Watch) -> None:
    sizes = [size for size in AT_THE_EDGES if size <= 8193]
    total = sum(sizes)
    steps = " ".join(f"read:{size}" for size in sizes)
    # one write: all is there when the first read begins; reads of the rest return it whole
    script = f"moves write:65536 | moves until:65536 {steps} drain:1000000"
    run = watch.run(script).only("moves|moves")
    assert stage_functions(run.stages[1]).pipe_reads == of([*sizes, 65536 - total])
    assert stage_functions(run.stages[0]).pipe_reads.count == 0


@tier
def test_the_pipe_is_as_full_as_the_writer_found_it(watch: Watch) -> None:
    script = "moves write:4096:16 empty:0 write:1:3 | moves until:65536 drain:65536"
    writer = stage_functions(watch.run(script).only("moves|moves").stages[0])
    found = [page / 16 for page in range(16)]
    counts = [0] * len(FILL_EDGES)
    for fill in found:
        counts[bisect_left(FILL_EDGES, fill)] += 1
    # the three single bytes: the first finds it empty, and the reader may have been as quick again
    filled = {bucket.le: bucket.count for bucket in writer.pipe_fill.buckets}
    seen = [filled.pop(edge, 0) for edge in FILL_EDGES]
    assert not filled
    after = [seen[0] - counts[0], seen[1] - counts[1]]
    assert sum(after) == 3 and after[0] >= 1
    assert seen[2:] == counts[2:]
    assert writer.pipe_fill.sum == pytest.approx(sum(found) + after[1] / 16)
    assert writer.pipe_capacity_bytes == 65536


@tier
@pytest.mark.parametrize("size", [4096, 65536, 1 << 20])
def test_the_capacity_is_the_pipes(watch: Watch, size: int) -> None:
    run = watch.run(f"moves pipe:{size} write:10:1 | moves drain:65536").only("moves|moves")
    assert stage_functions(run.stages[0]).pipe_capacity_bytes == size
    assert stage_functions(run.stages[1]).pipe_capacity_bytes is None


@pytest.fixture
def megabyte(tmp_path: Path) -> Path:
    path = tmp_path / "megabyte"
    path.write_bytes(bytes(1_000_000))
    return path


@tier
def test_reads_of_a_file_are_counted_and_timed(watch: Watch, megabyte: Path) -> None:
    sizes = [*[1000] * 5, *[4096] * 3, *[65536] * 15]
    steps = f"file:1000:5:{megabyte} file:4096:3:{megabyte} file:65536:15:{megabyte}"
    run = watch.run(f"moves {steps} | moves drain:65536").only("moves|moves")
    reader = stage_functions(run.stages[0])
    assert reader.file_reads == of(sizes)
    assert reader.file_read_seconds.count == len(sizes)
    assert 0 < reader.file_read_seconds.sum <= run.stages[0].lifetime_seconds
    assert stage_functions(run.stages[1]).file_reads.count == 0


@pytest.fixture
def start(watch: Watch) -> int:
    """What the kernel reads of a program to start it, and accounts to the process."""
    run = watch.run("moves | moves").only("moves|moves")
    assert run.stages[0].read_bytes == run.stages[1].read_bytes
    return run.stages[0].read_bytes


@tier
def test_what_splice_moves_is_counted_once(watch: Watch, megabyte: Path, start: int) -> None:
    script = f"moves pipe:1048576 splice:1000000:1:{megabyte} | moves drain:65536"
    run = watch.run(script).only("moves|moves")
    writer, reader = run.stages
    assert (writer.read_bytes, writer.written_bytes) == (1_000_000 + start, 1_000_000)
    assert reader.read_bytes == 1_000_000 + start
    # the stage's pipe, not the one of its own that splice goes through
    assert stage_functions(writer).pipe_capacity_bytes == 1 << 20


@tier
def test_sendfile_is_in_the_kernels_own_accounting(
    watch: Watch, megabyte: Path, start: int
) -> None:
    code = "import os\nn = 1\nwhile n: n = os.sendfile(1, 0, None, 65536)"
    script = f"python3 -c '{code}' < {megabyte} | moves drain:65536"
    run = watch.run(script).only("python3|moves")
    assert run.stages[0].written_bytes == 1_000_000
    assert run.stages[1].read_bytes == 1_000_000 + start


@tier
def test_what_tee_copies_is_written_but_not_read(watch: Watch, start: int) -> None:
    script = "moves write:5000 | moves until:5000 tee:5000 drain:65536 | moves drain:65536"
    run = watch.run(script).only("moves|moves|moves")
    middle = run.stages[1]
    assert (middle.read_bytes, middle.written_bytes) == (5000 + start, 5000)
    assert run.stages[2].read_bytes == 5000 + start


@tier
def test_what_vmsplice_gives_is_written(watch: Watch, start: int) -> None:
    run = watch.run("moves vmsplice:12288 | moves drain:65536").only("moves|moves")
    assert run.stages[0].written_bytes == 12288
    assert run.stages[1].read_bytes == 12288 + start


@tier
def test_a_fifo_with_a_name_is_counted_once(watch: Watch) -> None:
    script = "mkfifo f; moves drain:65536 < f & moves write:100:7 > f; wait"
    run = watch.run(script).only("moves|moves")
    assert stage_functions(run.stages[0]).pipe_writes == of([100] * 7)
    assert stage_functions(run.stages[1]).pipe_reads.sum == 700


@tier
def test_a_stage_around_others_has_what_they_did(watch: Watch) -> None:
    script = "{ moves write:10:3; moves write:100:2; } | moves drain:65536"
    run = watch.run(script).only("bash|moves")
    assert stage_functions(run.stages[0]).pipe_writes == of([10, 10, 10, 100, 100])


@tier
def test_without_fentry_a_kprobe_tells_of_writes(
    watch: Watch, configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "_FUNCTIONS", {})
    with Observer.open(configure(), own_only=True) as second:
        assert [h.method for h in second.hooks() if h.tier == "functions"] == ["kprobe"]
        steps = " ".join(f"write:{size}" for size in AT_THE_EDGES)
        run = type(watch)(second, tmp_path).run(f"moves {steps} | moves drain:65536")
        writer = stage_functions(run.only("moves|moves").stages[0])
    assert writer.pipe_writes == of(AT_THE_EDGES)
    assert writer.pipe_fill.count == len(AT_THE_EDGES)
    assert writer.pipe_capacity_bytes == 65536
    assert writer.file_reads.count == 0


def test_the_tier_is_whole_or_its_figures_are_absent(watch: Watch, observer: Observer) -> None:
    run = watch.run("seq 10 | cat").only("seq|cat")
    loaded = any(hook.attached for hook in observer.hooks() if hook.tier == "functions")
    assert all((stage.functions is not None) == loaded for stage in run.stages)
