# SPDX-License-Identifier: Apache-2.0
"""What flows through pipes, from the accounting of their writers and readers."""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import sizeof
from os import sysconf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelined.kernel import layout
from pipelined.model.flow import flows
from pipelined.records.process import Process
from pipelined.records.stage import COUNTERS, PIPE_KEY, STAGE_ENDS, EndRecord, StageRecord
from pipelined.records.tiers import (
    NO_READAHEAD,
    PIPE_IN,
    PIPE_OUT,
    PIPE_READS,
    PIPE_WRITES,
    READAHEAD,
    places,
)
from pipelined.runs import STATES, Flow
from pipelined.wording import input_size, output_size

MB = 1_000_000
CAPACITY = 65536
PAGE = sysconf("SC_PAGE_SIZE")
WORDS = sizeof(layout.Functions) // 8


def make(
    *sides: str,
    read: int = 0,
    written: int = 0,
    joined: bool = True,
    sleeps: int = 0,
    counted: tuple[int, int] | None = None,
    **given: object,
) -> StageRecord:
    """A stage with a pipe at each of these sides; `counted`: by the `functions` tier."""
    counters = dict.fromkeys(COUNTERS, 0) | {"read_bytes": read, "written_bytes": written}
    functions = [0] * WORDS if counted else []
    if counted:
        functions[PIPE_IN], functions[PIPE_OUT] = counted
    values: dict[str, object] = {
        "index": 1,
        "outer": 0,
        "alias": 0,
        "counted": [0] * len(STATES) + [*counters.values()],
        "start_ns": 1,
        "end_ns": 0,
        "cgroup": 1,
        "live": 1,
        "generation": 0,
        "root": Process(1, 1),
        "parent": Process(1, 0),
        "partial": False,
        "alone": False,
        "command": "x",
        "ends": tuple(
            EndRecord(PIPE_KEY.pack(at + 1, 13, 0), side, joined, True, sleeps, 0)
            for at, side in enumerate(sides)
        ),
        "functions": tuple(functions),
    }
    return StageRecord(**values | given)  # type: ignore[arg-type]


def chain(*records: StageRecord, counted: bool = False) -> tuple[Flow, ...]:
    edges = [(at, at + 1) for at in range(len(records) - 1)]
    return flows(records, edges, [counted] * len(records))


def through(found: Iterable[Flow]) -> list[tuple[int | None, int | None]]:
    return [(flow.pipe_in, flow.pipe_out) for flow in found]


def test_a_sort_that_spills_passes_on_what_its_reader_reads() -> None:
    found = chain(
        make("write", read=7000, written=58 * MB),
        make("read", "write", read=116 * MB, written=116 * MB),
        make("read", read=58 * MB + 7000, written=9),
    )
    assert through(found) == [
        (None, 58 * MB),
        (58 * MB, 58 * MB + 7000 + CAPACITY),
        (58 * MB + 7000, None),
    ]
    assert [flow.file_read for flow in found] == [7000, 58 * MB, 0]
    assert found[1].file_written == 58 * MB - 7000 - CAPACITY
    assert not any(flow.exact or flow.splices for flow in found)


def test_what_stays_in_the_pipe_was_passed_on() -> None:
    writer, reader = chain(make("write", written=120_000), make("read", read=60_000))
    assert (writer.pipe_out, writer.file_written) == (120_000, 0)
    assert reader.pipe_in == 60_000


def test_a_stage_that_splices_bounds_nothing_and_its_neighbours_do() -> None:
    found = chain(
        make("write", read=12_500, splices=True),
        make("read", "write", read=300 * MB, written=5 * MB),
        make("read", read=0, splices=True),
    )
    assert through(found) == [(None, 300 * MB + CAPACITY), (300 * MB, 5 * MB), (5 * MB, None)]
    assert [flow.splices for flow in found] == [True, False, True]
    assert (found[0].file_read, found[0].file_written) == (None, None)


def test_between_two_that_splice_nothing_is_known() -> None:
    found = chain(make("write", splices=True), make("read", read=5, splices=True))
    assert through(found) == [(None, None), (None, None)]


def test_a_contradiction_says_splice() -> None:
    silent = make("write", read=12_500)
    slept = make("write", read=12_500, sleeps=1)
    reader = make("read", read=MB)
    assert [flow.splices for flow in chain(silent, reader)] == [False, False]
    assert [flow.splices for flow in chain(slept, reader)] == [True, False]
    sleepy = make("read", read=MB, sleeps=2)
    found = chain(silent, sleepy)
    assert found[0].splices and through(found) == [(None, MB + CAPACITY), (MB, None)]


def test_a_reader_of_files_beside_a_silent_writer_reads_files() -> None:
    # true | sort FILE: sort sleeps once, for the end of the pipe
    found = chain(make("write"), make("read", read=MB, sleeps=1))
    assert through(found) == [(None, 0), (0, None)]
    assert found[1].file_read == MB


def test_a_fan_out_is_bounded_by_each_reader() -> None:
    tee = make("read", "write", "write", read=MB, written=2 * MB)
    found = flows(
        [make("write", written=MB), tee, make("read", read=MB), make("read", read=MB)],
        [(0, 1), (1, 2), (1, 3)],
        [False] * 4,
    )
    assert through(found) == [(None, MB), (MB, 2 * MB), (MB, None), (MB, None)]


@pytest.mark.parametrize(("writers", "bound"), [(127, 127 * MB), (128, 900 * MB)])
def test_a_reader_of_many_may_have_read_from_more_than_are_in_its_run(
    writers: int, bound: int
) -> None:
    made = [make("write", written=MB) for _ in range(writers)]
    reader = make("read", read=900 * MB, written=900 * MB, command="sort", partial=True)
    edges = [(at, writers) for at in range(writers)]
    *_, found = flows([*made, reader], edges, [True] * (writers + 1))
    assert (found.pipe_in, found.file_read) == (bound, 900 * MB - bound)


def test_an_unknown_neighbour_bounds_nothing() -> None:
    (found,) = chain(make("read", "write", read=70, written=50, joined=False))
    assert through([found]) == [(70, 50)]
    borrowing = make(read=70, written=50, borrows=frozenset({"write"}))
    assert through(chain(borrowing)) == [(None, 50)]
    assert chain(borrowing)[0].file_read == 70


def test_what_was_counted_is_exact_unless_it_began_late() -> None:
    def one(**given: object) -> Flow:
        record = make("read", "write", read=116, written=116, counted=(58, 57), **given)  # type: ignore[arg-type]
        return chain(record, counted=True)[0]

    assert one() == Flow(58, 57, 58, 59, exact=True)
    assert not one(late=True).exact and not one(partial=True).exact
    assert chain(make("read", read=116, counted=(58, 57), joined=False))[0].pipe_in == 116
    many = make(*["read"] * STAGE_ENDS, read=116, counted=(58, 57))
    assert not chain(many, counted=True)[0].exact


def test_a_pipe_that_was_not_used_is_reported_only_if_its_other_end_is_known() -> None:
    assert through(chain(make("read", "write"))) == [(0, 0)]
    assert through(chain(make("read", "write", joined=False))) == [(None, None)]


def test_a_counter_below_zero_flows_as_nothing() -> None:
    found = chain(make("write", written=-5, read=-7), make("read", read=-5))
    assert through(found) == [(None, 0), (0, None)]
    assert [flow.file_read for flow in found] == [0, 0]


def test_a_reader_got_something_from_64_kib_and_two_sleeps_on() -> None:
    def splices(read: int, sleeps: int) -> bool:
        return chain(make("write"), make("read", read=read, sleeps=sleeps))[0].splices

    assert splices(65536, 2)
    assert not splices(65535, 2)
    assert not splices(65536, 1)


def test_one_of_two_pipes_with_an_unknown_end_makes_the_side_unknown() -> None:
    ends = make("read", "read", read=70).ends
    ends[0].joined = False
    found = chain(make("write", written=50), make(read=70, ends=ends))
    assert through(found)[1] == (70, None)


def test_eight_ends_may_be_more() -> None:
    seven = make(*["read"] * (STAGE_ENDS - 1), read=116, counted=(58, 57))
    assert chain(seven, counted=True)[0].exact


amounts = st.integers(0, 10**9)


@given(st.data(), st.integers(2, 5))
def test_no_bound_is_below_the_truth(data: st.DataObject, count: int) -> None:
    """Stages that pass bytes on and read and write files beside; what is left stays in a pipe."""
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    edges = data.draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    files = data.draw(st.lists(st.tuples(amounts, amounts), min_size=count, max_size=count))
    read, written = [list(column) for column in zip(*files, strict=True)]
    taken, passed = [0] * count, [0] * count
    for writer, reader in edges:
        sent = data.draw(amounts)
        left = data.draw(st.integers(0, min(sent, CAPACITY)))
        passed[writer] += sent
        taken[reader] += sent - left
    records = [
        make(
            *["read"] * sum(edge[1] == at for edge in edges),
            *["write"] * sum(edge[0] == at for edge in edges),
            read=read[at] + taken[at],
            written=written[at] + passed[at],
        )
        for at in range(count)
    ]
    for at, flow in enumerate(flows(records, edges, [False] * count)):
        assert (flow.pipe_in or 0) >= taken[at] and (flow.pipe_out or 0) >= passed[at]
        assert flow.file_read is not None and 0 <= flow.file_read <= read[at]
        assert flow.file_written is not None and 0 <= flow.file_written <= written[at]
        if not (read[at] or written[at]):
            assert (flow.pipe_in or 0, flow.pipe_out or 0) == (taken[at], passed[at])


def test_flows_add_up() -> None:
    a, b = Flow(1, None, 2, None, exact=True), Flow(3, 4, None, None, exact=False, splices=True)
    assert a + b == Flow(4, 4, 2, None, exact=False, splices=True)
    assert (a.taken, a.passed_on, b.taken) == (1, None, 3)
    assert Flow(None, None, 7, 8, exact=False).taken == 7


def test_what_passed_between_its_own_processes_is_not_known_without_the_tier() -> None:
    """`tar xzf`: gzip feeds tar, and tar's child feeds gzip."""
    (_, tar) = chain(
        make("write", read=65 * MB, written=65 * MB),
        make("read", read=245 * MB, written=293 * MB, encloses=True),
    )
    assert (tar.inner_read, tar.inner_written) == (None, None)
    assert (input_size(tar), output_size(tar)) == ("≤ 65.0 MB", "files ≤ 293 MB")


def test_what_passed_between_its_own_processes_is_counted_with_the_tier() -> None:
    tar = make("read", read=245 * MB, written=293 * MB, encloses=True, counted=(65 * MB, 0))
    functions = list(tar.functions)
    functions[PIPE_READS], functions[PIPE_WRITES] = 245 * MB, 179 * MB
    tar.functions = tuple(functions)
    _, flow = chain(make("write", written=65 * MB, counted=(0, 65 * MB)), tar, counted=True)
    assert (flow.inner_read, flow.inner_written) == (180 * MB, 179 * MB)
    assert (flow.file_read, flow.file_written) == (0, 114 * MB)
    assert output_size(flow) == "files 114 MB"


def test_a_stage_whose_processes_pass_nothing_to_each_other_has_exact_files() -> None:
    (_, tar) = chain(make("write", written=65 * MB), make("read", read=65 * MB, written=9 * MB))
    assert (tar.inner_written, output_size(tar)) == (0, "files 9.0 MB")


def test_the_input_of_a_sort_from_a_file_is_without_its_temporary_files() -> None:
    sort, _ = chain(
        make("write", command="sort", read=401 * MB, written=401 * MB),
        make("read", read=134 * MB),
    )
    assert sort.temporary == pytest.approx(267 * MB, abs=65536)
    assert sort.taken == pytest.approx(134 * MB, abs=65536)
    assert input_size(sort) == "files ≤ 134 MB"


def from_file_to_file(read: int, written: int, **given: object) -> Flow:
    return flows([make(command="sort", read=read, written=written, **given)], [], [False])[0]  # type: ignore[arg-type]


def of_pages(cached: int, own: int) -> tuple[int, ...]:
    """What the `readahead` tier has of a stage that read so much, so much of what it wrote."""
    row = list(NO_READAHEAD)
    row[places(READAHEAD)["pages"].start] = cached // PAGE
    row[places(READAHEAD)["not_input"].start] = own // PAGE
    return tuple(row)


def test_a_sort_from_file_to_file_may_have_temporary_files_among_them() -> None:
    sort = from_file_to_file(401 * MB, 401 * MB)
    assert sort.temporary is None
    assert (input_size(sort), output_size(sort)) == ("files ≤ 401 MB", "files ≤ 401 MB")


def test_its_temporary_files_are_those_that_the_run_had_written() -> None:
    sort = from_file_to_file(401 * MB, 401 * MB, readahead=of_pages(403 * MB, 268 * MB))
    assert (input_size(sort), output_size(sort)) == ("files ≤ 135 MB", "files ≤ 135 MB")


def test_pages_that_were_read_in_part_make_them_no_more_than_they_are() -> None:
    """1 MB in temporary files, of which 5,000 bytes more are in pages; 9,000 came from no page."""
    pages = of_pages(4 * MB + 5000 - 9000, MB + 5000)
    sort = from_file_to_file(4 * MB, 4 * MB, readahead=pages)
    assert sort.temporary is not None
    assert MB - 65536 < sort.temporary <= MB


def test_a_few_pages_are_bounds_without_a_size() -> None:
    sort = from_file_to_file(4 * MB, 4 * MB, readahead=of_pages(4 * MB, 100_000))
    assert sort.temporary is None or sort.temporary < 100_000
    assert output_size(sort).startswith("files ≤ ")


def test_pages_that_nobody_read_show_no_temporary_files() -> None:
    """Read ahead, and never used: what was read came from elsewhere, such as a tmpfs."""
    row = list(of_pages(135 * MB, 0))
    row[places(READAHEAD)["pages"].stop - 1] = 270 * MB // PAGE
    assert from_file_to_file(401 * MB, 401 * MB, readahead=tuple(row)).temporary is None


def test_it_has_none_if_it_read_nothing_that_the_run_had_written() -> None:
    sort = from_file_to_file(134 * MB, 134 * MB, readahead=of_pages(135 * MB, 20_000))
    assert (input_size(sort), output_size(sort)) == ("files 134 MB", "files 134 MB")


def test_pages_show_no_temporary_files_if_most_reads_had_none() -> None:
    """Those of a tmpfs, or from before the tier was on."""
    assert from_file_to_file(401 * MB, 401 * MB, readahead=of_pages(135 * MB, 0)).temporary is None


def test_all_that_a_sort_of_a_pipe_reads_from_files_is_temporary() -> None:
    _, sort = chain(
        make("write", written=134 * MB),
        make("read", command="sort", read=401 * MB, written=401 * MB),
    )
    assert sort.temporary == 267 * MB
    assert (sort.passed_on, output_size(sort)) == (134 * MB, "files ≤ 134 MB")


def test_unless_most_of_that_was_not_written_by_the_run() -> None:
    """`cat a | sort - b > c` reads b, too."""
    _, sort = chain(
        make("write", written=134 * MB),
        make(
            "read",
            command="sort",
            read=401 * MB,
            written=401 * MB,
            readahead=of_pages(267 * MB, 200 * MB),
        ),
    )
    assert 200 * MB - 65536 < sort.temporary <= 200 * MB
    assert output_size(sort) == "files ≤ 201 MB"


def test_what_a_sort_reads_to_start_is_in_no_temporary_file() -> None:
    assert from_file_to_file(9000, 3 * MB).temporary == 0


def test_another_program_that_writes_beside_its_pipe_has_no_temporary_files() -> None:
    tee, _ = chain(
        make("write", command="tee", read=9 * MB, written=18 * MB), make("read", read=9 * MB)
    )
    assert tee.temporary == 0


def test_parallel_stages_know_what_is_inside_only_if_each_does() -> None:
    known, unknown = Flow(None, None, 1, 1, False), Flow(None, None, 1, 1, False, False, None, None)
    assert (known + unknown).inner_read is None
    assert (known + known).inner_read == 0
