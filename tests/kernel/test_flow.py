# SPDX-License-Identifier: Apache-2.0
"""What flows through a pipeline's pipes: against `wc -c` of the same prefix.

Without the `functions` tier no figure lies below the truth, and where no stage reads or writes
files beside its pipes, or splices, it is the truth. With the tier all are.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kernel.conftest import Watch
    from pipelined.runs import Stage

#: What a pipe holds by default: a bound on what was passed on may be higher by it.
CAPACITY = 65536
#: What a program reads at most when it starts: libraries, locales (bytes).
START = 32768


@dataclass(frozen=True)
class Case:
    """A pipeline, and commands that print what flows through each of its pipes."""

    pipeline: str
    script: str
    flows: tuple[tuple[str | None, str | None], ...]
    """For each stage, what it takes from pipes and passes on through them; None: it has none."""
    above: tuple[int, ...] = field(default=())
    """Bytes by which a bound may be too high, by stage; 0 for each if it is empty."""
    late: bool = False
    """A stage uses a pipe before it can be seen to have it: no count need be exact."""


LINES = "seq 150000"
#: sort in a buffer so small that it fills temporary files.
SPILLS = "sort -S 300K -T ."
CASES = [
    Case(
        "seq|tr|uniq|wc",
        f"{LINES} | tr 1 2 | uniq | wc -c",
        (
            (None, LINES),
            (LINES, f"{LINES} | tr 1 2"),
            (f"{LINES} | tr 1 2", f"{LINES} | tr 1 2 | uniq"),
            (f"{LINES} | tr 1 2 | uniq", None),
        ),
    ),
    Case(
        "seq|sort|uniq|wc",
        f"{LINES} | {SPILLS} | uniq | wc -c",
        ((None, LINES), (LINES, LINES), (LINES, LINES), (LINES, None)),
        above=(0, START + CAPACITY, START, 0),
    ),
    Case(
        "dd|dd|dd",
        f"{LINES} > file; dd if=file bs=777 status=none | dd bs=1003 status=none |"
        " dd of=/dev/null bs=64k status=none",
        ((None, LINES), (LINES, LINES), (LINES, None)),
    ),
    Case(
        "seq|tee|(gzip,sort,wc)",
        f"{LINES} | tee >(gzip -1 > a.gz) >(sort -S 64M > b) | wc -c; wait; sleep 0.3",
        (
            (None, LINES),
            (LINES, f"{LINES}; {LINES}; {LINES}"),
            (LINES, None),
            (LINES, None),
            (LINES, None),
        ),
        # tee wrote three times as much as each of them was given
        above=(0, 0, START, START, START),
    ),
    # the shell that becomes gzip is looked at while it still has tee's stdout as its own
    Case(
        "seq|tee|(gzip,wc)",
        f"{LINES} | tee >(sleep 0.1; exec gzip -1 > a.gz) $(sleep 0.05) | wc -c",
        ((None, LINES), (LINES, f"{LINES}; {LINES}"), (LINES, None), (LINES, None)),
        above=(0, 0, START, START),
    ),
    Case(
        "seq|paste|wc",
        f"paste <({LINES}) <({LINES}) | wc -c",
        (
            (None, LINES),
            (None, LINES),
            (f"{LINES}; {LINES}", f"paste <({LINES}) <({LINES})"),
            (f"paste <({LINES}) <({LINES})", None),
        ),
    ),
    Case(
        "sh|bash|wc",
        f"sh -c '{LINES}; {LINES}; true' | (tr 1 2; true) | wc -c",
        (
            (None, f"{LINES}; {LINES}"),
            (f"{LINES}; {LINES}", f"{LINES}; {LINES}"),
            (f"{LINES}; {LINES}", None),
        ),
    ),
    Case(
        "seq|bash|sort",
        "seq 20000 | while read -r x; do echo $x; done | sort -S 64M > out",
        ((None, "seq 20000"), ("seq 20000", "seq 20000"), ("seq 20000", None)),
    ),
    Case(
        "bash|cat",
        "{ echo a; echo b; sleep 0.1; seq 20000; true; } | cat > out",
        ((None, "echo a; echo b; seq 20000"), ("echo a; echo b; seq 20000", None)),
        late=True,
    ),
]


def size(directory: Path, command: str) -> int:
    found = subprocess.run(
        ["bash", "-c", f"{{ {command}; }} | wc -c"], cwd=directory, capture_output=True, check=True
    )
    return int(found.stdout)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.pipeline)
def test_no_figure_is_below_what_flowed(case: Case, watch: Watch) -> None:
    run = watch.run(case.script).only(case.pipeline)
    assert len(run.stages) == len(case.flows)
    for stage, (source, sink), more in zip(
        run.stages, case.flows, case.above or (0,) * len(case.flows), strict=True
    ):
        above = 0 if stage.flow.exact else more
        seen = (stage.flow.pipe_in, stage.flow.pipe_out)
        truth = tuple(command and size(watch.directory, command) for command in (source, sink))
        for found, moved in zip(seen, truth, strict=True):
            assert within(found, moved, above), (stage.command, seen, truth)
        check_the_rest(stage)


def within(seen: int | None, truth: int | str | None, above: int) -> bool:
    if truth is None or seen is None:
        return seen is truth
    assert isinstance(truth, int)
    return truth <= seen <= truth + above


def check_the_rest(stage: Stage) -> None:
    """What did not go through pipes went to files and others, and is never less than nothing."""
    flow = stage.flow
    read, written = flow.inner_read or 0, flow.inner_written or 0
    assert flow.file_read == max(0, stage.read_bytes - (flow.pipe_in or 0) - read)
    assert flow.file_written == max(0, stage.written_bytes - (flow.pipe_out or 0) - written)


def test_what_passes_between_processes_of_a_stage_is_no_exact_figure_of_files(
    watch: Watch, lines: Path
) -> None:
    """With the tier it is counted, and the files are exact."""
    assert watch.run("tar czf packed lines").returncode == 0
    run = watch.run("mkdir out && cat packed | tar xzf - -C out").only("cat|tar")
    cat, tar = (stage.flow for stage in run.stages)
    assert (cat.inner_read, cat.inner_written) == (0, 0)
    assert tar.file_written is not None
    if tar.exact:
        assert tar.file_written == lines.stat().st_size
        assert tar.inner_read is not None and tar.inner_read >= tar.file_written
    else:
        assert (tar.inner_read, tar.inner_written) == (None, None)
        assert tar.file_written >= lines.stat().st_size


@pytest.mark.thorough
def test_the_input_of_a_sort_that_spills_is_its_file(watch: Watch) -> None:
    watch.run(f"{LINES} > given")
    flow = watch.run(f"{SPILLS} given | wc -c").only("sort|wc").stages[0].flow
    given = (watch.directory / "given").stat().st_size
    assert flow.temporary >= 0.9 * given
    assert flow.taken is not None and abs(flow.taken - given) <= START + CAPACITY


@pytest.mark.thorough
def test_the_result_of_a_sort_of_a_pipe_is_what_it_took(watch: Watch) -> None:
    flow = watch.run(f"{LINES} | {SPILLS} > sorted").only("seq|sort").stages[-1].flow
    sorted_bytes = (watch.directory / "sorted").stat().st_size
    assert flow.passed_on is not None
    assert abs(flow.passed_on - sorted_bytes) <= START + CAPACITY


@pytest.mark.thorough
def test_a_reader_that_leaves_early(watch: Watch) -> None:
    run = watch.run("yes | head -c 1000000 | wc -c").only("yes|head|wc")
    writer, head, reader = (stage.flow for stage in run.stages)
    assert reader.pipe_in == head.pipe_out == 1_000_000
    assert head.pipe_in is not None and 1_000_000 <= head.pipe_in <= 1_000_000 + START
    assert writer.pipe_out is not None
    assert head.pipe_in - START <= writer.pipe_out <= head.pipe_in + CAPACITY


@pytest.mark.thorough
def test_a_sort_that_spills_moves_the_rest_to_files(watch: Watch) -> None:
    run = watch.run(f"{LINES} | {SPILLS} | wc -c").only("seq|sort|wc")
    moved = size(watch.directory, LINES)
    flow = run.stages[1].flow
    assert flow.file_written is not None and flow.file_read is not None
    assert flow.file_written >= 0.9 * moved and flow.file_read >= 0.9 * moved


#: Passes its stdin on to its stdout within the kernel.
SPLICER = "python3 -c 'import os\nwhile os.splice(0, 1, 65536): pass'"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "script, pipeline",
    [
        (f"{LINES} > file; moves splice:800000:1:file | {{}}", "moves|wc"),
        (f"{LINES} | {SPLICER} | {{}}", "seq|python3|wc"),
    ],
    ids=["a file", "a pipe"],
)
def test_splice_is_named_and_bounded_by_its_neighbour(
    script: str, pipeline: str, watch: Watch
) -> None:
    # the reader begins late: the writer sleeps in splice
    observed = watch.run(script.format("(sleep 0.2; exec wc -c)"))
    *_, spliced, reader = (stage.flow for stage in observed.only(pipeline).stages)
    moved = int(observed.stdout)
    assert spliced.splices != spliced.exact
    assert spliced.pipe_out is not None and moved <= spliced.pipe_out <= moved + START + CAPACITY
    assert reader.pipe_in is not None and moved <= reader.pipe_in <= moved + START


@pytest.mark.thorough
@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize(
    "case", [case for case in CASES if not case.late], ids=lambda case: case.pipeline
)
def test_with_the_tier_every_figure_is_exact(case: Case, watch: Watch) -> None:
    run = watch.run(case.script).only(case.pipeline)
    assert [stage.command for stage in run.stages if not stage.flow.exact] == []
