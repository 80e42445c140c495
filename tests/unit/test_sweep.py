# SPDX-License-Identifier: Apache-2.0
"""What a sweep makes of maps: of recorded ones (see test_records.py), and of some made up here.

`RecordedMaps` stands in for the loaded programs, so that neither root nor BPF is needed.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
import struct
from collections.abc import Sequence
from ctypes import sizeof
from typing import Any

import pytest

import pipelined.kernel.sweep
from pipelined.config import Config
from pipelined.errors import UserError
from pipelined.kernel import layout
from pipelined.kernel.names import command_key
from pipelined.kernel.sweep import MapUse
from pipelined.model.tracker import Lookups, Model
from pipelined.model.watched import Watched
from pipelined.records.stage import JOB_COMMAND, JOB_VARIABLE, PIPE_KEY, STAGE_ENDS, Group, Job
from pipelined.runs import Endpoint, Run
from pipelined.starter import STARTER_NAME
from unit.recordings import MAX_STAGES, Moment, RecordedMaps, Recording, recording, swept

#: CPU time, by the kernel's ticks, that is not that of the stages: bash itself.
BASH_SECONDS = 0.03


def groups_of(recorded: Recording) -> list[list[Group]]:
    """What each sweep of a recording found."""
    with swept(RecordedMaps(recorded.moments)) as sweep:
        return [sweep.take() for _ in recorded.moments]


def runs_of(recorded: Recording) -> list[list[Run]]:
    """The runs after each sweep of a recording, oldest start first."""
    model = Model(Watched(0.0), Lookups(lambda _: "-"), recent_runs=10)
    found = []
    with swept(RecordedMaps(recorded.moments)) as sweep:
        for moment in recorded.moments:
            model.update(sweep.take(), 1e-9 * moment.now_ns, settle=True)
            found.append(sorted(model.runs(), key=lambda run: run.start))
    return found


def last_runs(name: str) -> tuple[list[Run], dict[str, float]]:
    """The runs at the end of a recording, and what was seen without BPF."""
    recorded = recording(name)
    return runs_of(recorded)[-1], recorded.facts


# -- recorded maps


def test_stages_have_their_names_order_and_edges() -> None:
    (run,), _ = last_runs("chain")
    assert run.pipeline == "cat|awk|sort|uniq"
    assert [(stage.position, stage.command) for stage in run.stages] == [
        (1, "cat"),
        (2, "awk"),
        (3, "sort"),
        (4, "uniq"),
    ]
    assert run.edges == ((0, 1), (1, 2), (2, 3))


def test_bytes_are_those_of_the_file() -> None:
    (run,), facts = last_runs("chain")
    cat, awk, sort, uniq = run.stages
    assert cat.written_bytes == facts["lines_bytes"]
    # beside what comes through the pipe, a program reads its libraries
    libraries = 64 * 1024
    assert 0 <= cat.read_bytes - facts["lines_bytes"] < libraries
    assert 0 <= awk.read_bytes - cat.written_bytes < libraries
    assert 0 <= sort.read_bytes - awk.written_bytes < libraries
    assert 0 <= uniq.read_bytes - sort.written_bytes < libraries


def test_seconds_add_up_at_every_sweep() -> None:
    for (run,) in runs_of(recording("chain")):
        assert sum(run.levels) == pytest.approx(run.wall_seconds)
        for stage in run.stages:
            # a task that runs goes on while others are credited
            assert stage.lifetime_seconds <= run.wall_seconds + (0.02 if run.live else 0.002)
            if stage.end is not None:
                assert stage.lifetime_seconds == pytest.approx(stage.end - stage.start, abs=0.002)


def test_wall_and_cpu_seconds_are_those_that_the_system_gives() -> None:
    (run,), facts = last_runs("chain")
    assert 0.9 * facts["wall_seconds"] < run.wall_seconds < facts["wall_seconds"]
    assert run.cpu_seconds <= facts["cpu_seconds"] + 0.01
    assert run.cpu_seconds >= facts["cpu_seconds"] - BASH_SECONDS


def test_a_live_run_is_live_until_all_have_ended_and_only_grows() -> None:
    runs = [run for (run,) in runs_of(recording("chain"))]
    assert [run.live for run in runs] == [True, True, False]
    assert len({run.id for run in runs}) == 1
    walls = [run.wall_seconds for run in runs]
    written = [[stage.written_bytes for stage in run.stages] for run in runs]
    assert walls == sorted(walls)
    assert [list(column) for column in zip(*written, strict=True)] == [
        sorted(column) for column in zip(*written, strict=True)
    ]


def test_a_pipeline_that_lived_between_two_sweeps_is_whole() -> None:
    (run,), facts = last_runs("short")
    assert (run.pipeline, run.live) == ("bash|sort|head", False)
    assert [stage.written_bytes for stage in run.stages] == [4, 4, 2]
    assert 0 < run.wall_seconds < facts["wall_seconds"]


def test_a_pipeline_inside_a_stage_is_a_run_of_its_own() -> None:
    (outer, inner), facts = last_runs("nested")
    assert (outer.pipeline, inner.pipeline) == ("cat|cat|wc", "sort|tail")
    assert inner.parent == outer.id and outer.parent is None
    assert inner.series.nested and not outer.series.nested
    assert inner.stages[0].written_bytes == facts["lines_bytes"]
    # the enclosing stage counts what is done inside it
    assert outer.stages[1].cpu_seconds >= inner.cpu_seconds - 0.001


def test_pages_of_a_cold_file_come_from_disk() -> None:
    (run,), facts = last_runs("cold_file")
    readahead = run.stages[0].readahead
    assert readahead is not None
    from_disk = sum(readahead.pages[name] for name in ("hit", "late", "miss"))
    assert from_disk >= facts["cold_bytes"] // 4096
    assert readahead.inserted_pages > 0
    assert readahead.all_stall_seconds <= run.stages[0].states["disk"] + 0.001
    other = run.stages[1].readahead
    assert other is not None and other.inserted_pages == 0


def test_stages_are_joined_by_a_fifo_too() -> None:
    (run,), facts = last_runs("fifo")
    assert run.pipeline == "cat|wc" and run.edges == ((0, 1),)
    assert run.stages[0].written_bytes == facts["lines_bytes"]


def test_who_reads_the_end_of_a_pipeline_is_its_endpoint() -> None:
    for (run,) in runs_of(recording("substitution")):
        assert run.pipeline == "sort|wc"
        assert run.endpoints == (Endpoint("bash", "read"),)


def test_a_stage_with_more_pipes_than_it_remembers_keeps_its_edges() -> None:
    (run,), facts = last_runs("many_pipes")
    assert run.pipeline == "tee|wc"
    assert len(run.stages[0].ends) == STAGE_ENDS
    assert run.edges == tuple((0, reader) for reader in range(1, 11))
    assert run.stages[0].written_bytes == 11 * facts["lines_bytes"]


def test_what_found_no_record_is_counted() -> None:
    recorded = recording("too_many")
    with swept(RecordedMaps(recorded.moments), max_stages=2) as sweep:
        groups = sweep.take()
        assert sum(len(group.stages) for group in groups) == 2
        lost = sweep.lost()
        assert lost["stages"] > 0
        assert all(count == 0 for kind, count in lost.items() if kind != "stages")
        assert MapUse("stages", 2, 2) in sweep.maps()


# -- what is read again


def test_what_has_not_changed_comes_back_as_the_same_objects() -> None:
    with swept(RecordedMaps(recording("fifo").moments)) as sweep:
        first, second = sweep.take(), sweep.take()
    assert [group.stages for group in first] == [group.stages for group in second]
    assert all(a is b for a, b in zip(stages_of(first), stages_of(second), strict=True))
    (closed,) = (group for group in first if group.closed)
    assert any(group is closed for group in second)


def test_what_has_changed_is_decoded_again() -> None:
    first, second, *_ = groups_of(recording("chain"))
    assert not any(
        a is b for a in stages_of(first) for b in stages_of(second) if a.command == "awk"
    )


def stages_of(groups: Sequence[Group]) -> list[Any]:
    return [stage for group in groups for stage in group.stages]


# -- records given back


def test_a_freed_record_is_blank_with_the_next_generation_and_free_again() -> None:
    maps = RecordedMaps(recording("fifo").moments)
    with swept(maps) as sweep:
        stages = stages_of(sweep.take())
        assert not {stage.index for stage in stages} & set(maps.free_stages)
        sweep.free(stages)
        assert sweep.take() == []
        for stage in stages:
            blank = layout.Stage(generation=stage.generation + 1)
            assert maps.array("stages", stage.index) == bytes(blank)
            assert not any(maps.array("readahead", stage.index))
        assert sorted(maps.free_stages) == list(range(1, MAX_STAGES + 1))
        assert sweep.maps()[0] == MapUse("stages", 0, MAX_STAGES)


def test_no_reference_finds_a_freed_record_before_it_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a kernel that does not wait for its programs, the next sweep gives it back."""
    monkeypatch.setattr(pipelined.kernel.sweep, "barrier", lambda: False)
    maps = RecordedMaps([moment(stage_of(1, 11))])
    with swept(maps) as sweep:
        sweep.free(stages_of(sweep.take()))
        kept = layout.Stage.from_buffer_copy(maps.array("stages", 1))
        assert (kept.start_ns, kept.generation) == (1, 1)
        assert 1 not in maps.free_stages and sweep.maps()[0].entries == 1
        assert sweep.take() == []
        assert 1 in maps.free_stages and sweep.maps()[0].entries == 0


@pytest.mark.parametrize("how", ["it ended inside it", "a program merges it meanwhile"])
def test_a_record_is_not_given_back_while_a_stage_in_use_names_it(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    second = stage_of(2, 12)
    if how == "it ended inside it":
        second.word = 1 << layout.WORD_OUTER_SHIFT
    maps = RecordedMaps([moment(stage_of(1, 11), second)])

    def merge() -> bool:
        second.pipeline.alias = 1
        os.pwrite(maps.maps["stages"], bytes(second), 2 * sizeof(layout.Stage))
        return True

    with swept(maps) as sweep:
        if how == "a program merges it meanwhile":
            monkeypatch.setattr(pipelined.kernel.sweep, "barrier", merge)
        sweep.free([stage for stage in stages_of(sweep.take()) if stage.index == 1])
        for _ in range(2):
            (last,) = stages_of(sweep.take())
            assert last.index == 2 and 1 not in maps.free_stages
        monkeypatch.undo()
        sweep.free([last])
        assert {1, 2} <= set(maps.free_stages)


def test_the_pipes_of_freed_stages_are_forgotten() -> None:
    maps = RecordedMaps(recording("fifo").moments)
    with swept(maps) as sweep:
        stages = stages_of(sweep.take())
        held = {end.key for stage in stages for end in stage.ends}
        assert held <= maps.elements["pipes"].keys()
        sweep.free(stages)
        sweep.take()
        assert not held & maps.elements["pipes"].keys()


def test_a_pipe_that_another_stage_holds_is_kept() -> None:
    maps = RecordedMaps(recording("fifo").moments)
    with swept(maps) as sweep:
        both = [stage for stage in stages_of(sweep.take()) if stage.command in ("cat", "wc")]
        first, second = sorted(both, key=lambda stage: not stage.alias)
        # whichever of them was found last names the other's record, and is named by none
        assert (first.alias, second.alias) == (second.index, 0)
        assert {end.key for end in first.ends} == {end.key for end in second.ends}
        sweep.free([first])
        sweep.take()
        assert first.index in maps.free_stages
        assert first.ends[0].key in maps.elements["pipes"]


@pytest.mark.parametrize("often", [(1 << 14) - 1, (1 << 32) - 1, (1 << 45) - 1])
def test_a_generation_never_comes_again(often: int) -> None:
    """A reference has 46 bits of it."""
    freed = layout.Stage(start_ns=1, generation=often)
    with swept(maps := RecordedMaps([moment(freed)])) as sweep:
        sweep.free(stages_of(sweep.take()))
        sweep.take()
        assert maps.array("stages", 1) == bytes(layout.Stage(generation=often + 1))


def test_a_record_that_is_freed_twice_is_an_error() -> None:
    with swept(RecordedMaps(recording("fifo").moments)) as sweep:
        stage = stages_of(sweep.take())[0]
        sweep.free([stage])
        with pytest.raises(RuntimeError, match=f"record {stage.index} .* freed twice"):
            sweep.free([stage])


# -- finding the records in use


def stage_of(start_ns: int, pid: int) -> layout.Stage:
    """A stage whose root has this id and began at the same moment."""
    return layout.Stage(start_ns=start_ns, root=layout.Process(start_ns, pid))


def moment(*stages: layout.Stage, pipes: dict[bytes, layout.Pipe] | None = None) -> Moment:
    """Maps with these records, from index 1 on."""
    arrays = {"stages": bytes(layout.Stage()) + b"".join(map(bytes, stages))}
    return Moment(0, arrays, {key: bytes(pipe) for key, pipe in (pipes or {}).items()})


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 512, 1024, 1500, 2000])
def test_all_records_in_use_are_found_and_mapped(count: int) -> None:
    """The first sweep maps 512 of them, and looks at 256 at a time."""
    maps = RecordedMaps([moment(*(stage_of(n, n) for n in range(1, count + 1)))], max_stages=2000)
    with swept(maps, max_stages=2000) as sweep:
        found = stages_of(sweep.take())
        assert [(stage.index, stage.root.pid) for stage in found] == [
            (n, n) for n in range(1, count + 1)
        ]


def test_records_behind_freed_ones_are_found() -> None:
    """A freed record keeps its generation: there may be others after it."""
    freed = [layout.Stage(generation=1) for _ in range(600)]
    with swept(
        RecordedMaps([moment(*freed, layout.Stage(start_ns=1))], max_stages=2000), max_stages=2000
    ) as sweep:
        assert [stage.index for stage in stages_of(sweep.take())] == [601]


# -- groups


def test_stages_that_were_merged_share_the_clock_of_the_oldest() -> None:
    first = layout.Stage(start_ns=1)
    first.pipeline.start_ns = 77
    second, third = layout.Stage(start_ns=2), layout.Stage(start_ns=3)
    second.pipeline.alias, third.pipeline.alias = 1, 2
    with swept(RecordedMaps([moment(first, second, third)])) as sweep:
        (group,) = sweep.take()
    assert (group.root, group.clock.start_ns) == (1, 77)
    assert [stage.index for stage in group.stages] == [1, 2, 3]


def test_a_stage_whose_root_is_gone_has_its_own_clock() -> None:
    orphan = layout.Stage(start_ns=2)
    orphan.pipeline.alias = 9
    with swept(RecordedMaps([moment(orphan)])) as sweep:
        assert [group.root for group in sweep.take()] == [1]


@pytest.mark.parametrize(
    ("job", "known"),
    [
        (layout.Job(), None),
        (layout.Job(JOB_COMMAND, b"./go | tee x"), Job(JOB_COMMAND, b"./go | tee x")),
        (layout.Job(JOB_VARIABLE, b"a\0left over"), Job(JOB_VARIABLE, b"a")),
    ],
)
def test_a_stage_has_the_text_of_its_job_up_to_a_zero(job: layout.Job, known: Job | None) -> None:
    with swept(RecordedMaps([moment(layout.Stage(start_ns=3, job=job))])) as sweep:
        (group,) = sweep.take()
    assert group.stages[0].job == known


def pair(*, joined: bool) -> tuple[layout.Stage, layout.Stage]:
    """Two stages of one pipeline; the second writes to pipe 56."""
    first, second = stage_of(1, 11), stage_of(2, 12)
    second.pipeline.alias = 1
    bits = 2 | layout.END_JOINED * joined
    second.ends[0] = layout.PipeEnd(layout.PipeKey(56, 13), bits)
    return first, second


@pytest.mark.parametrize("joined", [False, True])
def test_a_group_is_closed_once_both_ends_of_every_pipe_are_known(joined: bool) -> None:
    with swept(RecordedMaps([moment(*pair(joined=joined))])) as sweep:
        (group,) = sweep.take()
    assert group.closed == joined


KEY = PIPE_KEY.pack(56, 13, 0)


@pytest.mark.parametrize(
    ("process", "side", "endpoints"),
    [
        ((99, 4), layout.SIDE_READ, (Endpoint("bash", "read"),)),
        ((99, 4), layout.SIDE_WRITE, ()),  # the stage's own side
        ((11, 1), layout.SIDE_READ, ()),  # a process of the same pipeline
        ((11, 4), layout.SIDE_READ, (Endpoint("bash", "read"),)),  # which has its id again
        ((0, 0), layout.SIDE_READ, ()),  # nobody has been seen
    ],
)
def test_the_process_at_the_other_end_of_a_pipe_is_an_endpoint(
    process: tuple[int, int], side: int, endpoints: tuple[Endpoint, ...]
) -> None:
    pid, start_ns = process
    pipe = layout.Pipe(
        endpoint=layout.Process(start_ns, pid), endpoint_side=side, endpoint_comm=b"bash"
    )
    with swept(RecordedMaps([moment(*pair(joined=False), pipes={KEY: pipe})])) as sweep:
        (group,) = sweep.take()
    assert group.endpoints == endpoints


@pytest.mark.parametrize(("generation", "found"), [(5, True), (6, False)])
def test_a_stage_of_another_group_is_an_endpoint_if_the_reference_is_to_that_very_stage(
    generation: int, found: bool
) -> None:
    other = layout.Stage(start_ns=3, generation=5, comm=b"ssh")
    pipe = layout.Pipe()
    pipe.stages[layout.SIDE_READ][4] = generation << 18 | 3
    with swept(RecordedMaps([moment(*pair(joined=False), other, pipes={KEY: pipe})])) as sweep:
        group = next(group for group in sweep.take() if group.root == 1)
    assert group.endpoints == ((Endpoint("ssh", "read"),) if found else ())


# -- filling the maps


def test_the_lowest_record_is_handed_out_first() -> None:
    with swept(maps := RecordedMaps()):
        assert maps.free_stages == list(range(MAX_STAGES, 0, -1))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("python", b"python"),
        ("python3.11", b"python"),
        ("perl5.36.0", b"perl"),
        ("mawk", b"mawk"),
        ("python3-config", b"python3-config"),
        ("dbus-run-session", b"dbus-run-sessio"),
        ("größe", "größe".encode()),
    ],
)
def test_a_command_is_known_by_15_bytes_without_a_version(name: str, key: bytes) -> None:
    assert command_key(name) == key.ljust(16, b"\0")


#: Of files with many programs in them, and of what started itself again.
_APPLETS = (b"busybox", b"coreutils", b"toybox", b"exe")


def test_a_command_has_the_flags_of_every_list_that_names_it() -> None:
    lists = {
        "interpreters": ["awk"],
        "wrappers": ["env"],
        "shells": ["sh"],
        "alone": ["awk", "sh"],
        "schedulers": ["cron", "sh"],
    }
    with swept(maps := RecordedMaps(), **lists) as sweep:
        found = {key.rstrip(b"\0"): value for key, value in maps.elements["commands"].items()}
        assert found == {
            b"awk": struct.pack("=I", layout.COMMAND_INTERPRETER | layout.COMMAND_ALONE),
            b"env": struct.pack("=I", layout.COMMAND_WRAPPER),
            b"sh": struct.pack(
                "=I", layout.COMMAND_SHELL | layout.COMMAND_ALONE | layout.COMMAND_SCHEDULER
            ),
            b"cron": struct.pack("=I", layout.COMMAND_SCHEDULER),
            STARTER_NAME.encode(): struct.pack(
                "=I", layout.COMMAND_STARTER | layout.COMMAND_BY_NAME
            ),
            b"pipelined": struct.pack("=I", layout.COMMAND_BY_NAME),
            b"parallel": struct.pack("=I", layout.COMMAND_BY_NAME),
            **dict.fromkeys(_APPLETS, struct.pack("=I", layout.COMMAND_APPLETS)),
        }
        assert MapUse("commands", 7 + len(_APPLETS), 256) in sweep.maps()


def test_versions_of_one_command_take_one_entry() -> None:
    lists = dict.fromkeys(("interpreters", "wrappers", "shells", "alone", "schedulers"), ())
    with swept(maps := RecordedMaps(), **{**lists, "alone": ["python3.11", "python3.12"]}):
        found = {key.rstrip(b"\0") for key in maps.elements["commands"]}
        names = {b"python", b"pipelined", b"parallel", STARTER_NAME.encode()}
        assert found == {*names, *_APPLETS}


def test_units_are_known_by_their_template() -> None:
    with swept(maps := RecordedMaps(), alone_units=["backup@sda.service", "nightly.service"]):
        keys = {key.rstrip(b"\0") for key in maps.elements["units"]}
        assert keys == {b"backup@.service", b"nightly.service"}
        assert {len(key) for key in maps.elements["units"]} == {64}
        assert maps.control().units == 2


def test_variables_are_looked_for_in_the_order_of_their_names() -> None:
    named = {"job_variables": ["ONE", "N" * 31], "instance_variables": ["TWO", "ONE"]}
    with swept(maps := RecordedMaps(), **named):
        found = maps.elements["variables"]
    assert list(found) == [b"\0\0\0\0", b"\1\0\0\0", b"\2\0\0\0"]
    one, other, two = map(layout.Variable.from_buffer_copy, found.values())
    assert (one.name, one.mask, one.length) == (b"ONE=", b"\xff" * 4, 4)
    assert (other.name, other.mask, other.length) == (b"N" * 31 + b"=", b"\xff" * 32, 32)
    assert [(v.job, v.instance) for v in (one, other, two)] == [(1, 2), (2, 0), (0, 1)]


@pytest.mark.parametrize("seed", range(20))
def test_each_variable_is_in_the_chain_of_its_first_bytes(seed: int) -> None:
    """However many names begin alike, and of whatever length: short ones are in every chain."""
    choice = random.Random(seed)
    names = {
        "".join(choice.choices("AB_", k=choice.choice((1, 2, 3, 4, 7, 31)))).replace("_", "C", 1)
        for _ in range(22)
    }
    with swept(maps := RecordedMaps(), job_variables=[], instance_variables=[*names]):
        variables = [
            layout.Variable.from_buffer_copy(value) for value in maps.elements["variables"].values()
        ]
        firsts = maps.elements["variable_chains"]
    for name in names:
        begin = int.from_bytes(f"{name}=value"[:4].encode(), "little")
        chain = begin * layout.CHAIN_FACTOR % 2**32 >> 32 - layout.CHAIN_BITS
        (at,) = struct.unpack("=I", firsts[chain.to_bytes(4, "little")])
        met = []
        while at:
            met.append(variables[at - 1].name.decode())
            at = variables[at - 1].next
        assert f"{name}=" in met
        assert len(met) == len(set(met))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("alone", "too many command names: .*; name at most 256"),
        ("alone_units", "too many units alone: 300; name at most 256"),
    ],
)
def test_more_names_than_a_map_holds_are_an_error(option: str, message: str) -> None:
    many = [f"{'a' * (n // 26)}{chr(97 + n % 26)}.service" for n in range(300)]
    with pytest.raises(UserError, match=message), swept(RecordedMaps(), **{option: many}):
        pass


@pytest.mark.parametrize(
    ("own_only", "all_alone", "watch_pid", "alone"),
    [(False, False, 0, 0), (True, True, 0xFFFFFFFF, 1)],
)
def test_the_control_page_says_whom_to_follow(
    own_only: bool, all_alone: bool, watch_pid: int, alone: int
) -> None:
    maps = RecordedMaps()
    with swept(maps, own_only=own_only, all_alone=all_alone, max_readers=7):
        control = maps.control()
    assert (control.watch_pid, control.alone, control.max_windows) == (watch_pid, alone, 7)


def test_what_began_before_the_programs_were_attached_is_marked() -> None:
    with swept(maps := RecordedMaps()) as sweep:
        assert maps.control().began_ns == 0
        sweep.began()
        assert maps.control().began_ns > 0


def test_the_daemon_is_woken_after_a_sixteenth_of_the_records_has_ended() -> None:
    with swept(maps := RecordedMaps()) as sweep:
        assert maps.control().wake_at == MAX_STAGES // 16
        sweep._control.ended = 100
        sweep.take()
        assert maps.control().wake_at == 100 + MAX_STAGES // 16


def test_a_wakeup_is_answered_by_one_sweep_even_if_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the next one would follow at once, and fail as well."""

    def fails() -> bytes:
        raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))

    with swept(maps := RecordedMaps()) as sweep:
        wake_at, consumer, producer = maps.control().wake_at, 0, mmap.PAGESIZE
        os.pwrite(sweep.fileno(), struct.pack("=Q", 16), producer)
        monkeypatch.setattr(maps, "iterate", fails)
        with pytest.raises(OSError, match="Too many open files"):
            sweep.take()
        assert os.pread(sweep.fileno(), 8, consumer) == struct.pack("=Q", 16)
        assert maps.control().wake_at == wake_at, "not asked again before a sweep succeeds"


def test_counts_of_the_control_page_are_read() -> None:
    with swept(RecordedMaps()) as sweep:
        sweep._control.missed_switches, sweep._control.windows = 5, 3
        sweep.take()
        assert sweep.missed_switches() == 5
        assert MapUse("windows", 3, Config().max_readers) in sweep.maps()


def test_closing_closes_the_programs() -> None:
    with swept(maps := RecordedMaps()):
        pass
    assert maps.closed


# -- tiers


@pytest.mark.parametrize("on", [False, True])
def test_a_tier_is_read_if_its_programs_are_attached(on: bool) -> None:
    maps = RecordedMaps([moment(layout.Stage(start_ns=1))], functions=on, readahead=on)
    with swept(maps) as sweep:
        sweep.began()
        (stage,) = stages_of(sweep.take())
    assert len(stage.functions) == on * sizeof(layout.Functions) // 8
    assert len(stage.readahead) == on * sizeof(layout.ReadaheadCounters) // 8
