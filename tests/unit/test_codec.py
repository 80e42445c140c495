# SPDX-License-Identifier: Apache-2.0
"""A run is written as JSON and comes back as it was, also from what older versions wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelined.analysis.findings import findings
from pipelined.analysis.machine import Host
from pipelined.analysis.sentence import sentence
from pipelined.answers.described import describe_run
from pipelined.runs import (
    FILL_EDGES,
    LEVELS,
    PAGE_CLASSES,
    SIZE_EDGES,
    STALL_CLASSES,
    STATES,
    TIME_EDGES,
    Child,
    Edge,
    Endpoint,
    Flow,
    Functions,
    Histogram,
    OtherPipeline,
    PipeEnd,
    Point,
    Readahead,
    Run,
    Series,
    Stage,
    StagePoint,
    Stalls,
    StallSeconds,
    Surroundings,
    fields,
)
from pipelined.runs.codec import read, shape, written
from pipelined.runs.fields import Key, Keys
from unit.invented import START, make_readahead, make_run, make_stage

#: A busy machine takes its time to make up a run.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50)

seconds = st.floats(0, 1e9)
moments = st.floats(0, 4e9)
counts = st.integers(0, 2**63 - 1)
# What the kernel gives: any bytes of a name, undecodable ones as surrogates.
names = st.text(st.characters(), max_size=15) | st.binary(max_size=15).map(
    lambda raw: raw.decode("utf-8", "surrogateescape")
)
sides = st.sampled_from(["read", "write"])


def histograms(edges: tuple[float, ...], buckets: int) -> st.SearchStrategy[Histogram]:
    found = st.lists(counts, min_size=buckets, max_size=buckets)
    return st.builds(Histogram.of, st.just(edges), found, seconds)


sizes = histograms(SIZE_EDGES, len(SIZE_EDGES) + 1)
functions = st.builds(
    Functions,
    pipe_writes=sizes,
    pipe_reads=sizes,
    file_reads=sizes,
    file_read_seconds=histograms(TIME_EDGES, len(TIME_EDGES) + 1),
    pipe_fill=histograms(FILL_EDGES, len(FILL_EDGES)),
    pipe_capacity_bytes=st.none() | counts,
)
classes = st.fixed_dictionaries(dict.fromkeys(STALL_CLASSES, counts))
readahead = st.builds(
    Readahead,
    pages=st.fixed_dictionaries(dict.fromkeys(PAGE_CLASSES, counts)),
    inserted_pages=counts,
    direct_bytes=counts,
    faults=classes,
    stalls=st.fixed_dictionaries(dict.fromkeys(STALL_CLASSES, st.builds(Stalls, counts, counts))),
    stall_seconds=st.fixed_dictionaries(
        dict.fromkeys(STALL_CLASSES, st.builds(StallSeconds, seconds, seconds))
    ),
    not_input_pages=counts,
    files=st.none() | counts,
)
stages = st.builds(
    Stage,
    position=st.integers(1, 99),
    command=names,
    pid=st.integers(1, 2**22),
    start=moments,
    end=st.none() | moments,
    states=st.fixed_dictionaries(dict.fromkeys(STATES, seconds)),
    user_seconds=seconds,
    system_seconds=seconds,
    read_bytes=counts,
    written_bytes=counts,
    read_calls=counts,
    write_calls=counts,
    sleeps_empty=counts,
    sleeps_full=counts,
    forks=counts,
    execs=counts,
    exec_failures=st.none() | counts,
    exited_children=counts,
    children_cpu_seconds=seconds,
    children_lifetime_seconds=seconds,
    ends=st.lists(st.builds(PipeEnd, names, sides, counts, seconds), max_size=3).map(tuple),
    children=st.lists(
        st.builds(Child, st.none() | names, counts, seconds, seconds, st.none() | seconds),
        max_size=3,
    ).map(tuple),
    arguments=st.none() | names,
    functions=st.none() | functions,
    readahead=st.none() | readahead,
)
others = st.lists(st.builds(OtherPipeline, names, seconds), max_size=2).map(tuple)
surroundings = st.builds(Surroundings, st.none() | seconds, st.none() | seconds, others)
runs = st.builds(
    Run,
    id=names,
    series=st.builds(Series, pipeline=names, nested=st.booleans(), unit=names),
    start=moments,
    end=st.none() | moments,
    wall_seconds=seconds,
    partial=st.booleans(),
    levels=st.tuples(*[seconds] * len(LEVELS)),
    disk_overlapped_seconds=seconds,
    disk_alone_seconds=seconds,
    stages=st.lists(stages, max_size=4).map(tuple),
    endpoints=st.lists(st.builds(Endpoint, names, sides), max_size=2).map(tuple),
    parent=st.none() | names,
    parent_pipeline=st.none() | names,
    edges=st.lists(st.builds(Edge, st.integers(0, 9), st.integers(0, 9)), max_size=4).map(tuple),
    partial_tiers=st.lists(names, max_size=2).map(tuple),
    surroundings=st.none() | surroundings,
)


def through_json(described: dict[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(described))
    return read


ANSWERED = json.loads(Path(__file__).with_name("answered.json").read_text())


def test_a_run_is_answered_as_it_was_by_the_version_before_the_classes_were_its_description() -> (
    None
):
    run = read(Run, ANSWERED["run"])
    # of a state that is newer than the file there was no time; how it ended was not stored, nor
    # what ran inside
    stages = [
        {
            **stage,
            "state_seconds": {**dict.fromkeys(STATES, 0.0), **stage["state_seconds"]},
            "exit": None,
            "outcome": None,
            "children": [],
            "peer_port": None,
            "peer_family": None,
            "inner_pipe_bytes": {"read": 0, "written": 0},
            "file_bytes": {**stage["file_bytes"], "temporary": 0},
            "readahead": stage["readahead"] and {**stage["readahead"], "files_read": None},
            "own_cpu_seconds": max(
                0.0, stage["state_seconds"]["cpu"] - stage["exited_children_cpu_seconds"]
            ),
        }
        for stage in ANSWERED["run"]["stages"]
    ]
    since = {"outcome": None, "identity": None, "parent_span": None, "trace_id": run.trace_id}
    since |= {"exported": False, "input_bytes": 0, "input_exact": True}
    assert written(run, secrets=True) == {**ANSWERED["run"], "stages": stages, **since}, (
        "a new key: add to `since`, or to `stages`, what a run that was stored without it has"
    )
    assert run.stages[0].functions is not None
    timeline = [read(Point, point) for point in ANSWERED["timeline"]]
    assert [written(point) for point in timeline] == ANSWERED["timeline"]


def test_a_run_of_the_oldest_version_is_read() -> None:
    """It knew neither tiers, nor pipes from files, nor what was around the run."""
    oldest = dict(ANSWERED["run"])
    for key in ("parent_pipeline", "partial_tiers", "surroundings", "ended_unwatched"):
        del oldest[key]
    del oldest["unwatched_seconds"]
    later = ("functions", "readahead", "pipe_bytes", "file_bytes", "splices")
    oldest["stages"] = [
        {key: value for key, value in stage.items() if key not in later}
        for stage in oldest["stages"]
    ]
    run = read(Run, oldest)
    stage, stored = run.stages[0], oldest["stages"][0]
    assert stage.flow == Flow(stored["read_bytes"], stored["written_bytes"], None, None, False)
    assert (stage.functions, stage.readahead, run.surroundings) == (None, None, None)
    assert (run.partial_tiers, run.parent_pipeline, run.unwatched_seconds) == ((), None, 0.0)


def test_a_run_that_was_stored_before_a_state_was_known_was_never_in_it(slow_awk: Run) -> None:
    described = written(slow_awk)
    for stage in described["stages"]:
        assert stage["state_seconds"].pop("poll") == 0.0
    assert written(read(Run, described)) == written(slow_awk)


def test_a_run_that_was_stored_before_surroundings_were_known_has_none() -> None:
    described = written(make_run([make_stage(1, "sort")], 1.0))
    del described["surroundings"]
    assert read(Run, described).surroundings is None


def test_a_run_that_was_stored_before_its_own_files_were_known_read_none() -> None:
    described = written(make_run([make_stage(1, "sort", readahead=make_readahead())], 1.0))
    del described["stages"][0]["readahead"]["not_input_pages"]
    (stage,) = read(Run, described).stages
    assert stage.readahead is not None and stage.readahead.not_input_pages == 0


@patient
@given(runs)
def test_a_run_comes_back_from_json_as_it_was(run: Run) -> None:
    assert read(Run, through_json(written(run, secrets=True))) == run


@patient
@given(runs)
def test_without_arguments_only_they_are_missing(run: Run) -> None:
    bare = replace(run, stages=tuple(replace(stage, arguments=None) for stage in run.stages))
    assert read(Run, through_json(written(run))) == bare


@patient
@given(runs)
def test_keys_of_a_later_version_are_passed_over(run: Run) -> None:
    described = written(run, secrets=True)
    described["colour_of_the_moon"] = "grey"
    for stage in described["stages"]:
        stage["colour_of_the_moon"] = "grey"
    assert read(Run, described) == run


@pytest.mark.parametrize("described", [{}, {"level_seconds": None, "disk_wait_seconds": 1}])
def test_what_is_no_run_is_refused(described: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        read(Run, described)


@pytest.fixture
def slow_awk() -> Run:
    """A run of which there is something to say."""
    stages = [
        make_stage(1, "cat", cpu=0.5, pipe_full=9.0),
        make_stage(2, "awk", cpu=9.8, pipe_empty=0.2, arguments="awk 'secret'"),
    ]
    return make_run(stages, 10.0, end=START + 10)


HOST = Host(cores=4, l2_bytes=None)


def test_a_described_run_says_what_to_make_of_it(slow_awk: Run) -> None:
    described = through_json(describe_run(slow_awk, HOST))
    (found,) = findings(slow_awk, HOST)
    assert described["verdict"] == sentence(slow_awk)
    (shown,) = described["findings"]
    assert (shown["id"], shown["severity"], shown["stages"]) == ("ceiling", "note", [1])
    assert (shown["sentence"], shown["advice"]) == (found.sentence, found.advice)
    assert (shown["gain_seconds"], shown["gain_reason"]) == (found.gain_seconds, found.gain_reason)
    assert shown["evidence"][0] == {"name": "on CPU", "value": 9.8, "unit": "seconds"}
    assert shown["documentation"] == "docs/FINDINGS.md#ceiling"


def test_with_its_time_line_a_finding_has_when_it_shows(slow_awk: Run) -> None:
    (shown,) = describe_run(slow_awk, HOST)["findings"]
    assert shown["times"] == []
    levels = (0.0, 2.5, *[0.0] * (len(LEVELS) - 2))
    timeline = tuple(
        Point(
            START + 2.5 * number,
            START + 2.5 * (number + 1),
            levels,
            (StagePoint({"pipe_full": 2.5}, 0, 0), StagePoint({state: 2.5}, 0, 0)),
        )
        for number, state in enumerate(["pipe_empty", "cpu", "cpu", "cpu"])
    )
    (shown,) = through_json(describe_run(slow_awk, HOST, timeline=timeline))["findings"]
    assert shown["times"] == [
        {
            "stage": 1,
            "start_timestamp_seconds": START + 2.5,
            "end_timestamp_seconds": START + 10,
        }
    ]


def test_a_described_run_comes_back_as_the_run(slow_awk: Run) -> None:
    assert read(Run, through_json(describe_run(slow_awk, HOST, True))) == slow_awk
    assert "secret" not in json.dumps(describe_run(slow_awk, HOST))


def test_a_command_to_try_is_shown_only_where_command_lines_are() -> None:
    stages = [
        make_stage(1, "grep", cpu=9.0, system_seconds=1.0, arguments="grep hunter2 f"),
        make_stage(2, "wc", cpu=2.0, read_bytes=1 << 24, arguments="wc -l"),
    ]
    run = make_run(stages, 10.0)
    assert "hunter2" not in json.dumps(describe_run(run, HOST))
    found = {one["id"]: one for one in describe_run(run, HOST, show_arguments=True)["findings"]}
    assert found["grep-count"]["command"] == (
        "pipelined compare 'grep hunter2 f | wc -l' 'grep -c hunter2 f'"
    )


@patient
@given(runs)
def test_every_run_can_be_described(run: Run) -> None:
    assert describe_run(run, HOST)["verdict"]


@dataclass(frozen=True)
class _Numbered:
    shown: str
    number: Annotated[int | None, fields.Unwritten()] = None
    secret: Annotated[int | None, fields.Secret()] = None


def test_a_shape_differs_if_a_key_or_what_is_below_it_does() -> None:
    def described(**hints: Any) -> Any:
        return shape(NamedTuple("Described", list(hints.items())))  # type: ignore[misc]

    same = described(at=float, of=tuple[int, ...])
    assert described(at=float, of=tuple[int, ...]) == same
    others = [
        described(at=float),
        described(at=float | None, of=tuple[int, ...]),
        described(until=float, of=tuple[int, ...]),
        described(at=float, of=tuple[float, ...]),
        described(at=float, of=tuple[StagePoint, ...]),
        described(at=Annotated[float, Key("since")], of=tuple[int, ...]),
        described(at=float, of=Annotated[tuple[int, ...], Keys(("a", "b"))]),
        described(at=float, of=Annotated[tuple[int, ...], Keys(("a", "c"))]),
    ]
    shapes = [repr(each) for each in (same, *others)]
    assert len(set(shapes)) == len(shapes)


def test_what_is_no_key_is_neither_written_nor_read_back() -> None:
    assert written(_Numbered("a", 1, 2), secrets=True) == {"shown": "a", "secret": 2}
    assert read(_Numbered, {"shown": "a", "number": 1, "secret": 2}) == _Numbered("a", None, 2)
