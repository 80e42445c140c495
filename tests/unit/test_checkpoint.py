# SPDX-License-Identifier: Apache-2.0
"""What a daemon leaves to the next one is read whatever version wrote it, and refused if damaged.

How live runs go on is tested on real BPF: tests/kernel/test_restart.py.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Mapping
from ctypes import Structure, c_uint32, c_uint64
from pathlib import Path
from typing import Any

import pytest

from pipelined.kernel import checkpoint as module
from pipelined.kernel import layout
from pipelined.kernel.checkpoint import Checkpoint, Restored, UnreadableError, cut_off, restored
from pipelined.kernel.checkpoint_file import FILE_NAME, CheckpointFile
from pipelined.kernel.decoding import RawStage
from pipelined.model.units import read_known
from pipelined.records.stage import Gap
from pipelined.runs import STATES
from pipelined.starter import boot_id

DISK = STATES.index("disk")
PIPE = layout.PipeKey(inode=55, device=13, incarnation=9)


def reference(index: int, generation: int) -> int:
    return generation << layout.GENERATION_SHIFT | index


def stage(
    start: int, *, alias: int = 0, outer: int = 0, generation: int = 0, word: int = 0, **values: int
) -> RawStage:
    record = layout.Stage(start_ns=start, end_ns=values.get("end_ns", 0), generation=generation)
    record.word = word | outer << layout.WORD_OUTER_SHIFT
    record.live = 7
    record.pipeline.alias = alias
    record.pipeline.start_ns = start
    record.pipeline.moment = values.get("moment", 0)
    record.pipeline.members = 9
    record.pipeline.drivers[0] = values.get("driver", 0)
    record.root.pid = start
    record.ends[0].pipe = PIPE
    record.ends[0].side_and_flags = values.get("side", 0)
    record.peer = values.get("peer", 0)
    record.comm = b"cat"
    return bytes(record), b"", b"", bytes(layout.Children())


def task(pid: int, stage: int, **values: Any) -> bytes:
    record = layout.WrittenTask()
    record.thread.pid = pid
    record.thread.start_ns = 1000 + pid
    record.task.stage = stage
    record.task.starter.pid = values.get("starter", 0)
    record.task.instance = values.get("instance", 0)
    return bytes(record)


def taken(stages: Mapping[int, RawStage], **values: Any) -> Checkpoint:
    given: dict[str, Any] = {
        "boot_id": boot_id(),
        "watched_ns": 5000,
        "unix": 1.5e9,
        "gaps": (Gap(10, 20, 1.4e9),),
        "cgroups": {7: ("/a", "a.service"), 8: (None, None)},
        "stages": stages,
        "pipes": {},
        "tasks": b"",
    }
    return Checkpoint(**given | values)


def stages_of(what: Restored) -> list[layout.Stage]:
    return [layout.Stage.from_buffer_copy(raw[0]) for raw in what.stages]


def put_back(checkpoint: Checkpoint) -> list[layout.Stage]:
    return stages_of(restored(checkpoint, max_stages=100))


def outer_of(record: layout.Stage) -> int:
    found: int = record.word >> layout.WORD_OUTER_SHIFT & layout.INDEX_MASK
    return found


# The format


def test_what_is_written_is_read() -> None:
    pipe = bytes(layout.Pipe(self=1))
    given = taken(
        {3: stage(100), 9: (stage(200)[0], b"\1" * 872, b"\2" * 192, b"\3" * 520)},
        pipes={bytes(PIPE): pipe},
        tasks=task(1, 3) + task(2, 9),
        instances={2**64 - 1: {"SLURM_JOB_ID": "4711", "BUILD_URL": "http://ci/ä"}, 5: {}},
    )
    assert Checkpoint.decode(given.encode()) == given


def test_a_checkpoint_of_an_older_version_refers_to_no_variables() -> None:
    written = taken({3: stage(100)}).encode()
    first, _, body = written.partition(b"\n")
    *words, size = first.split()
    header = json.loads(body[: int(size)])
    del header["instances"]
    described = json.dumps(header).encode()
    content = described + body[int(size) :]
    words[3] = b"%08x" % zlib.crc32(content)
    older = b" ".join([*words, b"%d" % len(described)]) + b"\n" + content
    assert Checkpoint.decode(older).instances == {}


def test_a_checkpoint_of_a_version_that_did_not_know_children_has_none() -> None:
    children = layout.Children()
    children.named[0].count = 3
    record = stage(100)[0]
    written = taken({3: (record, b"", b"", bytes(children))}).encode()
    older = damaged_header(lambda header: header.pop("children"))(written)
    assert Checkpoint.decode(older).stages[3] == (record, b"", b"", bytes(layout.Children()))


def test_children_of_a_stage_are_restored_with_it() -> None:
    children = layout.Children()
    children.named[layout.CHILD_NAMES].count = 3
    (raw,) = restored(taken({3: (stage(100)[0], b"", b"", bytes(children))}), max_stages=10).stages
    assert raw[3] == bytes(children)


def test_threads_that_have_variables_alone_are_restored_with_what_they_refer_to() -> None:
    tasks = task(1, 0, instance=77) + task(2, 0, instance=78) + task(3, 0) + task(4, 0, instance=77)
    variables = {77: {"SLURM_JOB_ID": "1"}, 78: {"SLURM_JOB_ID": "2"}}
    found = restored(taken({}, tasks=tasks, instances=variables), max_stages=10)
    kept = [layout.SavedTask.from_buffer_copy(value) for value in found.tasks.values()]
    assert [one.instance for one in kept] == [77, 78, 77]
    assert found.instances == variables


def another_version(
    monkeypatch: pytest.MonkeyPatch, name: str, fields: list[tuple[str, Any]]
) -> type[Structure]:
    """A record of another version: it has these fields and no other."""
    other = type("Other", (Structure,), {"_fields_": fields})
    monkeypatch.setattr(module, "_RECORDS", {**module._RECORDS, name: other})
    return other


def test_fields_are_found_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older:
        other = another_version(
            older, "tasks", [("no_more", c_uint64), ("task", layout.SavedTask), ("thread", Thread)]
        )
        record = other(no_more=5)
        record.thread.pid, record.thread.start_ns = 77, 88
        record.task.stage, record.task.exec_ns = 3, 99
        older.setattr(module.layout, "WrittenTask", other)
        written = taken({3: stage(100)}, tasks=bytes(record)).encode()
    (found,) = (layout.WrittenTask.from_buffer_copy(Checkpoint.decode(written).tasks),)
    assert (found.thread.pid, found.thread.start_ns) == (77, 88)
    assert (found.task.stage, found.task.exec_ns, found.task.exec_id) == (3, 99, 0)


class Thread(Structure):
    """The number of a thread had half as many bits."""

    _fields_ = (("pid", c_uint32), ("start_ns", c_uint64))


def test_states_are_found_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    record = layout.Stage.from_buffer_copy(stage(100)[0])
    record.time_ns[0] = 11
    record.time_ns[1] = 22
    with monkeypatch.context() as older:
        names = {**module._ELEMENTS, (layout.Stage, "time_ns"): ("disk", "gone", *"abcdefghij")}
        older.setattr(module, "_ELEMENTS", names)
        module._layout.cache_clear()
        written = taken({3: (bytes(record), b"", b"", bytes(layout.Children()))}).encode()
    module._layout.cache_clear()
    found = layout.Stage.from_buffer_copy(Checkpoint.decode(written).stages[3][0])
    assert list(found.time_ns) == [11 if at == DISK else 0 for at in range(len(STATES))]


def damaged_header(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    """Changes the header, and makes the sum agree."""

    def damage(data: bytes) -> bytes:
        first, rest = data.split(b"\n", 1)
        length = int(first.split()[-1])
        header = json.loads(rest[:length])
        change(header)
        described = json.dumps(header).encode()
        content = described + rest[length:]
        return (
            f"pipelined checkpoint 1 {zlib.crc32(content):08x} {len(described)}\n".encode()
            + content
        )

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"\0" * 100,
        lambda data: data[:40],
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: data.replace(b"checkpoint 1", b"checkpoint 2"),
        lambda data: data.replace(b"cat", b"dog"),
        damaged_header(lambda header: header.pop("unix")),
        damaged_header(lambda header: header.update(stages=[0])),
        damaged_header(lambda header: header.update(stages=["a"])),
        damaged_header(lambda header: header.update(stages=[1 << 40])),
        damaged_header(lambda header: header.update(stages=list(range(1, 500)))),
        damaged_header(lambda header: header.update(tasks=-1)),
        damaged_header(lambda header: header.update(pipes="all")),
        damaged_header(lambda header: header.update(gaps=[[1]])),
        damaged_header(lambda header: header.update(layouts=[])),
        damaged_header(lambda header: header["layouts"]["stages"].__setitem__(0, 10**9)),
        damaged_header(lambda header: header["layouts"]["stages"][1].update(start_ns=[9999, 8])),
        damaged_header(lambda header: header["layouts"]["stages"][1].update(start_ns="here")),
        damaged_header(lambda header: header["layouts"]["stages"][1].update(start_ns=[0, -8])),
        damaged_header(lambda header: header.update(instances=[[1 << 64]])),
        damaged_header(lambda header: header.update(instances=[[-1]])),
        damaged_header(lambda header: header.update(instances=[[1, ["JOB", "\ud800"]]])),
        damaged_header(lambda header: header.update(instances=[[1, ["\ud800", "7"]]])),
        damaged_header(lambda header: header.update(origin="\ud800")),
    ],
)
def test_a_damaged_checkpoint_is_refused(damage: Callable[[bytes], bytes]) -> None:
    data = taken({3: stage(100), 4: stage(200)}, tasks=task(1, 3)).encode()
    with pytest.raises(UnreadableError):
        Checkpoint.decode(damage(data))


@pytest.mark.parametrize("name", list(module._RECORDS))
def test_records_have_the_size_that_the_kernel_side_reads_whatever_the_header_says(
    name: str,
) -> None:
    """A header with the fields of today and a size that is not theirs."""
    size, places = module._layout(module._RECORDS[name])
    fields = {path: list(place) for path, place in places.items()}

    def taken_with(size: int) -> list[bytes]:
        return module._Sections({name: [size, fields]}, memoryview(bytes(size))).take(name, 1)

    assert taken_with(size + 8) == [bytes(size)]
    for smaller in (8, size - 8):
        with pytest.raises(ValueError, match="outside the record"):
            taken_with(smaller)


# What is put back


def test_stages_get_the_first_indexes_and_keep_their_relations() -> None:
    one, two, inner = put_back(
        taken(
            {
                5: stage(100),
                17: stage(110, alias=5, driver=17),
                40: stage(120, outer=17),
            }
        )
    )
    assert [one.pipeline.alias, two.pipeline.alias, inner.pipeline.alias] == [0, 1, 0]
    assert [outer_of(one), outer_of(two), outer_of(inner)] == [0, 0, 2]
    assert two.pipeline.drivers[0] == 2
    assert [record.root.pid for record in (one, two, inner)] == [100, 110, 120]


def test_what_lives_is_held_once_more_than_by_what_is_in_it() -> None:
    outer, inner, over = put_back(
        taken({1: stage(1), 2: stage(2, outer=1), 3: stage(3, outer=1, word=layout.WORD_ENDED)})
    )
    assert [outer.live, inner.live, over.live] == [2, 1, 0]


def test_members_are_what_lives_and_drives_nothing_beside_the_number_of_all_stages() -> None:
    first, *others = put_back(
        taken(
            {
                1: stage(1),
                2: stage(2, alias=1),
                3: stage(3, alias=2, word=layout.WORD_DRIVER),
                4: stage(4, alias=1, word=layout.WORD_ENDED),
                5: stage(5, alias=1, word=layout.WORD_RETIRED, end_ns=6),
            }
        )
    )
    members = [first.pipeline.members, *(other.pipeline.members for other in others)]
    assert members == [5 * layout.ONE_STAGE + 2, 0, 0, 0, 0]


def test_nobody_is_on_cpu_and_what_was_is_credited_up_to_the_checkpoint() -> None:
    on_cpu = 2 << 44
    (record,) = put_back(taken({1: stage(1, word=3, moment=on_cpu | 4000)}))
    assert record.word == 0 and record.pipeline.moment == 5000, "its clock stands"
    assert record.pipeline.time_ns[2][0] == 1000


def test_a_run_that_had_ended_gets_no_time_up_to_the_checkpoint() -> None:
    over = stage(1, word=layout.WORD_ENDED, end_ns=4000, moment=4000)
    (record,) = put_back(taken({1: over}))
    assert not any(map(any, record.pipeline.time_ns))


def test_what_lived_is_marked_until_it_is_met_and_what_had_ended_keeps_its_end() -> None:
    lives, over = put_back(taken({1: stage(1), 2: stage(2, word=layout.WORD_ENDED, end_ns=9)}))
    assert lives.flags == layout.STAGE_RESUMED | layout.STAGE_UNMET and lives.end_ns == 0
    assert over.flags == layout.STAGE_RESUMED and over.end_ns == 9


def test_references_to_stages_are_those_of_the_new_records() -> None:
    pipe = layout.Pipe()
    pipe.stages[0][0], pipe.stages[0][1] = reference(5, 3), reference(5, 2)
    pipe.stages[1][0], pipe.stages[1][1] = reference(8, 1), reference(9, 0)
    what = restored(
        taken(
            {5: stage(100, generation=3), 8: stage(101, generation=1)},
            pipes={bytes(PIPE): bytes(pipe)},
            tasks=task(1, reference(8, 1)) + task(2, reference(8, 0)) + task(3, 0, starter=4),
        ),
        max_stages=10,
    )
    found = layout.Pipe.from_buffer_copy(what.pipes[bytes(PIPE)])
    assert list(found.stages[0][:2]) == [1, 0] and list(found.stages[1][:2]) == [2, 0]
    assert [record.generation for record in stages_of(what)] == [0, 0]
    tasks = {
        layout.Process.from_buffer_copy(key).pid: layout.SavedTask.from_buffer_copy(value).stage
        for key, value in what.tasks.items()
    }
    assert tasks == {1: 2, 3: 0}


def test_what_does_not_fit_is_left_out_by_whole_runs_the_youngest_first() -> None:
    what = restored(
        taken({1: stage(300), 2: stage(301, alias=1), 3: stage(100), 4: stage(101, alias=3)}),
        max_stages=3,
    )
    assert [record.root.pid for record in stages_of(what)] == [100, 101]
    assert what.left_out == 2


def test_relations_that_lead_in_a_circle_are_dropped() -> None:
    found = put_back(
        taken({1: stage(1, alias=2, outer=1), 2: stage(2, alias=1, outer=3), 3: stage(3, outer=2)})
    )
    assert sum(bool(record.pipeline.alias) for record in found) == 1
    assert sum(bool(outer_of(record)) for record in found) == 1


# What is cut off when the host goes down


def test_what_lived_is_over_since_the_checkpoint_and_what_had_ended_keeps_its_end() -> None:
    what = restored(
        taken(
            {
                1: stage(1),
                2: stage(2, outer=1),
                3: stage(3, word=layout.WORD_ENDED, end_ns=9),
                4: stage(4, word=layout.WORD_RETIRED, end_ns=8),
            }
        ),
        max_stages=10,
    )
    found = [stage for group in cut_off(what) for stage in group.stages]
    assert [(stage.end_ns, stage.ended, stage.unmet) for stage in found] == [
        (5000, True, True),
        (5000, True, True),
        (9, True, False),
        (8, True, False),
    ]


def test_who_is_at_the_other_end_of_its_pipes_is_known() -> None:
    read, write = layout.SIDE_READ + 1, layout.SIDE_WRITE + 1
    pipe = layout.Pipe(endpoint_side=layout.SIDE_READ, endpoint_comm=b"cron")
    pipe.endpoint.pid = 77
    what = restored(
        taken(
            {1: stage(1, side=write), 2: stage(2, alias=1, side=read | layout.END_JOINED)},
            pipes={bytes(PIPE): bytes(pipe)},
        ),
        max_stages=10,
    )
    (group,) = cut_off(what)
    assert [(endpoint.command, endpoint.side) for endpoint in group.endpoints] == [("cron", "read")]


# The file


def file_in(directory: Path) -> CheckpointFile:
    found = CheckpointFile.open(directory).usable()
    assert found
    return found


def test_the_file_is_for_its_user_alone(tmp_path: Path) -> None:
    file = file_in(tmp_path)
    file.write(taken({1: stage(1)}))
    file.write(taken({1: stage(1)}))
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path)) == [FILE_NAME, "live.lock"]


def test_a_directory_is_made_when_there_is_something_to_write(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    file = file_in(directory)
    assert file.read(max_stages=10) is None
    file.clear()
    assert not directory.exists()
    file.write(taken({1: stage(1)}))
    assert (directory / FILE_NAME).exists()
    assert CheckpointFile.open(directory).usable() is None


def test_only_one_daemon_has_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = file_in(tmp_path)
    assert CheckpointFile.open(tmp_path).usable() is None
    assert "another daemon has it" in caplog.text
    file.close()
    assert CheckpointFile.open(tmp_path).usable()


def test_the_lock_is_no_link_to_another_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state, other = tmp_path / "state", tmp_path / "other"
    state.mkdir()
    (state / "live.lock").symlink_to(other)
    assert CheckpointFile.open(state).usable() is None
    assert "live runs will not survive a restart" in caplog.text
    assert not other.exists()


def test_root_gives_away_no_file_that_is_also_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory is of the service's user, who can make a hard link in it."""
    state, other = tmp_path / "state", tmp_path / "other"
    state.mkdir()
    other.touch()
    lock = state / "live.lock"
    lock.hardlink_to(other)
    given: list[int] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", lambda file, *_: given.append(os.fstat(file).st_ino))
    of_service = os.stat_result((0o40750, 1, 1, 2, 1234, 1234, 0, 0, 0, 0))
    stat = Path.stat
    monkeypatch.setattr(
        Path, "stat", lambda path, **options: of_service if path == state else stat(path, **options)
    )
    file_in(state).close()
    assert not given
    lock.unlink()
    file_in(state).close()
    assert given == [lock.stat().st_ino]


def test_what_is_read_is_no_link_to_another_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state, other = tmp_path / "state", tmp_path / "other"
    state.mkdir()
    other.write_bytes(taken({1: stage(1)}).encode())
    (state / FILE_NAME).symlink_to(other)
    assert file_in(state).read(max_stages=10) is None
    assert "cannot be read" in caplog.text


def test_a_fifo_in_its_place_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / FILE_NAME)
    assert file_in(tmp_path).read(max_stages=10) is None
    assert "set aside as live.unreadable" in caplog.text


@pytest.mark.parametrize(
    ("stages", "changed"),
    [
        ({1: stage(1, peer=77 << layout.PEER_FAMILY_SHIFT | 443)}, {}),
        ({1: stage(1, side=3)}, {}),
        ({}, {"cgroups": [[7]]}),
        ({}, {"cgroups": [[7, 7, None]]}),
        ({}, {"cgroups": [[7, "/a", ["a.service"]]]}),
        ({}, {"cgroups": [[7, "/a", "a.podman", None]]}),
        ({}, {"cgroups": [[7, "/a", "a.podman", {"pod": None}]]}),
        ({}, {"cgroups": [[7, "/a", "a.podman", {"container": {"id": "5e"}, "pod": None}]]}),
    ],
)
def test_what_the_daemon_could_not_take_over_is_set_aside_with_one_line(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    stages: Mapping[int, RawStage],
    changed: Mapping[str, Any],
) -> None:
    """Its sum agrees: another version wrote it, or somebody else did."""
    damaged = damaged_header(lambda header: header.update(changed))(taken(stages).encode())
    (tmp_path / FILE_NAME).write_bytes(damaged)
    assert file_in(tmp_path).read(max_stages=10, read_cgroup=read_known) is None
    (line,) = caplog.messages
    assert "set aside as live.unreadable" in line and "\n" not in line
    assert (tmp_path / "live.unreadable").read_bytes() == damaged


def test_what_is_known_of_cgroups_is_taken_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = {"container": {"runtime": "podman", "id": "5e" * 32}, "pod": None}
    known = {7: ("/a\udce9", "a.service"), 8: (None, None), 9: ("/b", "b.podman", place)}
    (tmp_path / FILE_NAME).write_bytes(taken({1: stage(1)}, cgroups=known).encode())
    found = file_in(tmp_path).read(max_stages=10, read_cgroup=read_known)
    assert found and found[0].cgroups == known and not caplog.messages


def test_a_checkpoint_of_another_boot_is_read_as_a_whole_whatever_its_clock_and_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = file_in(tmp_path)
    later = time.monotonic_ns() + 10**18
    given = taken({1: stage(1), 2: stage(2)}, boot_id="another", watched_ns=later)
    file.write(given)
    found = file.read(max_stages=1)
    assert found == (given, restored(given, max_stages=2))
    assert found and len(found[1].stages) == 2
    assert not caplog.records and (tmp_path / FILE_NAME).exists()


def test_a_checkpoint_of_a_later_time_of_this_boot_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = file_in(tmp_path)
    file.write(taken({1: stage(1)}, watched_ns=time.monotonic_ns() + 10**18))
    assert file.read(max_stages=10) is None
    assert "it is of a later time" in caplog.text


def test_without_a_file_there_is_nothing_to_say(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert file_in(tmp_path).read(max_stages=10) is None
    assert not caplog.records


def test_a_directory_that_cannot_be_written_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = file_in(tmp_path)
    (tmp_path / "live.new").mkdir()  # root may write anywhere
    for _ in range(3):
        file.write(taken({1: stage(1)}))
    assert [record.levelname for record in caplog.records] == ["ERROR"]
