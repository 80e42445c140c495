# SPDX-License-Identifier: Apache-2.0
"""Whose run it is and of which start of which job: by what its stages say, and W3C's rules."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pipelined.analysis.identity_words import distinctions
from pipelined.model.containers import Place
from pipelined.model.identities import Identities, origin_mark
from pipelined.model.trace_context import trace_of, trace_state
from pipelined.model.users import Users
from pipelined.runs import Container, Identity, Pod, Trace
from pipelined.runs.codec import read, written
from pipelined.runs.identity import NOT_VARIABLES

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"

# W3C's trace context


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        (PARENT, True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"00-{TRACE}-{SPAN}-fe", False),
        (f"01-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", True),
        (f"fe-{TRACE}-{SPAN}-01-", True),
    ],
)
def test_a_valid_parent_is_read(text: str, sampled: bool) -> None:
    assert trace_of(text) == Trace(TRACE, SPAN, sampled)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN.upper()}-01",
        f"0A-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0A",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}0-{SPAN}-01",
        f"00-{TRACE}-{SPAN[:-1]}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01-",
        f"00-{TRACE}-{SPAN}-011",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"cc-{TRACE}-{SPAN}-011",
        f"cc-{TRACE}-{SPAN}",
        f" {PARENT}",
        f"{PARENT} ",
        f"{PARENT}\n",
        f"00_{TRACE}-{SPAN}-01",
        f"00-{'g' * 32}-{SPAN}-01",
        f"0-{TRACE}-{SPAN}-01",
        f"{TRACE}-{SPAN}-01",
    ],
)
def test_a_parent_that_is_not_valid_is_none(text: str) -> None:
    assert trace_of(text, "a=1") is None


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        ("foo=1 , \tbar=2", "foo=1,bar=2"),
        ("foo=1,,bar=2,", "foo=1,bar=2"),
        ("foo=a b c", "foo=a b c"),
        ("fw529a3039@dt=FfhAAAA", "fw529a3039@dt=FfhAAAA"),
        ("1a-_*/@b=2", "1a-_*/@b=2"),
        (f"{'z' * 256}=1", f"{'z' * 256}=1"),
        (f"{'t' * 241}@{'v' * 14}=1", f"{'t' * 241}@{'v' * 14}=1"),
        (f"foo={'v' * 256}", f"foo={'v' * 256}"),
        ("foo=!\"#$%&'()*+-./:;<>?@[\\]^_`{|}~", "foo=!\"#$%&'()*+-./:;<>?@[\\]^_`{|}~"),
        (",".join(f"k{n}=1" for n in range(32)), ",".join(f"k{n}=1" for n in range(32))),
    ],
)
def test_a_valid_state_is_kept(text: str, kept: str) -> None:
    assert trace_state(text) == kept


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ",",
        "foo",
        "foo=",
        "=1",
        "foo=1,bar",
        "foo=1,foo=2",
        "Foo=1",
        "foo =1",
        "foo= ",
        "foo=a=b",
        "foo=\x07",
        "foo=ä",
        "1foo=1",
        "foo@=1",
        "@foo=1",
        "foo@bar@baz=1",
        "foo@1bar=1",
        f"{'z' * 257}=1",
        f"{'t' * 242}@v=1",
        f"t@{'v' * 15}=1",
        f"foo={'v' * 257}",
        ",".join(f"k{n}=1" for n in range(33)),
    ],
)
def test_a_state_that_is_not_valid_is_dropped_and_the_parent_stays(text: str) -> None:
    assert trace_of(PARENT, text) == Trace(TRACE, SPAN, True, None)


# Of a run


def stage(uid: int | None = 1000, variables: Mapping[str, str] | None = None) -> Any:
    return SimpleNamespace(uid=uid, variables=variables)


def names(uid: int) -> str | None:
    return {0: "root", 1000: "app"}.get(uid)


def identity(*stages: Any, place: Place | None = None) -> Identity:
    return Identities("web-3", "b007", "c0ffee00", names).of(stages, place)


def test_without_anything_else_it_is_host_and_user() -> None:
    assert identity(stage()) == Identity(host="web-3", boot_id="b007", uid=1000, user="app")


def test_a_user_without_a_name_is_known_by_the_number() -> None:
    found = identity(stage(4711))
    assert (found.uid, found.user) == (4711, None)


def test_of_each_thing_the_first_stage_in_data_order_that_has_it_counts() -> None:
    found = identity(
        stage(None),
        stage(0, {"SLURM_JOB_ID": "1", "TRACEPARENT": "wrong"}),
        stage(1000, {"SLURM_JOB_ID": "2", "BUILD_URL": "http://ci/7", "TRACEPARENT": PARENT}),
        stage(1000, {"INVOCATION_ID": "ab" * 16, "TRACESTATE": "foo=1"}),
    )
    assert (found.uid, found.user) == (0, "root")
    assert found.variables == {"SLURM_JOB_ID": "1", "BUILD_URL": "http://ci/7"}
    assert found.invocation_id == "ab" * 16
    # the state of another trace is none of this one's
    assert found.trace == Trace(TRACE, SPAN, True, None)


def test_a_state_belongs_to_the_parent_beside_it() -> None:
    found = identity(stage(1, {"TRACEPARENT": PARENT, "TRACESTATE": "foo=1"}))
    assert found.trace == Trace(TRACE, SPAN, True, "foo=1")
    assert found.variables == {}


def test_an_invocation_that_is_none_of_systemds_is_a_variable_like_others() -> None:
    found = identity(stage(1, {"INVOCATION_ID": "mine"}))
    assert (found.invocation_id, found.variables) == (None, {"INVOCATION_ID": "mine"})


WHOLE = Identity(
    host="web-3",
    boot_id="b007",
    uid=1000,
    user="app",
    container=Container("pod", "3f" * 32, None, "etl:1.4"),
    pod=Pod("etl-0-x7k2p", "batch", "main", "web-3"),
    invocation_id="ab" * 16,
    variables={"SLURM_JOB_ID": "4711", "user": "hidden"},
    trace=Trace(TRACE, SPAN, True, "foo=1"),
)


def test_it_is_the_same_after_a_way_through_json() -> None:
    assert read(Identity, json.loads(json.dumps(written(WHOLE)))) == WHOLE
    bare = Identity(host="h", boot_id="b")
    assert read(Identity, written(bare)) == bare


def test_what_it_is_found_by_are_names_and_texts() -> None:
    assert WHOLE.named == {
        **{"SLURM_JOB_ID": "4711", "uid": "1000", "user": "app", "container": "3f" * 32},
        **{"image": "etl:1.4", "pod": "etl-0-x7k2p", "namespace": "batch"},
        **{"invocation": "ab" * 16, "trace": TRACE},
    }
    assert replace(WHOLE, uid=0, user="root").named["uid"] == "0"


def test_names_that_are_no_variables_are_known() -> None:
    named = replace(
        WHOLE, user="app", container=Container("docker", "3f" * 32, "web", "etl:1.4")
    ).named
    assert named.keys() - {"SLURM_JOB_ID"} == NOT_VARIABLES


# What tells the runs of a list apart

ROOT = {"uid": "0", "user": "root"}
APP = {"uid": "1000", "user": "app"}
WEB = ROOT | {"container": "3f" * 32, "container_name": "web"}


def told(*identities: Mapping[str, str], room: int = 20) -> tuple[str, list[str]]:
    """The heading of these runs, and the cell of each."""
    runs = {str(number): identity for number, identity in enumerate(identities)}
    found = distinctions(runs)
    return found.title, [found.cell(run, room) for run in runs]


@pytest.mark.parametrize("alike", [{}, ROOT, WEB, ROOT | {"SLURM_JOB_ID": "4711"}])
def test_what_all_runs_of_a_list_have_tells_nothing(alike: dict[str, str]) -> None:
    assert told() == ("", [])
    assert told(*[alike] * 60) == ("", [""] * 60)


@pytest.mark.parametrize(
    ("identities", "expected"),
    [
        pytest.param([ROOT, APP], ("user", ["root", "app"]), id="users"),
        pytest.param([ROOT, {"uid": "7"}], ("user", ["root", "uid 7"]), id="no name"),
        pytest.param([ROOT, WEB], ("container", ["", "web"]), id="one in a container"),
        pytest.param(
            [WEB, WEB | {"container": "4a" * 32, "container_name": "db"}],
            ("container", ["web", "db"]),
            id="containers",
        ),
        pytest.param(
            [ROOT, ROOT | {"container": "4a" * 32}],
            ("container", ["", "4a4a4a4a4a4a"]),
            id="a container without a name",
        ),
        pytest.param(
            [WEB | {"pod": "etl-0-x7k2p"}, WEB | {"pod": "etl-0-b9d4c"}],
            ("pod", ["etl-0-x7k2p", "etl-0-b9d4c"]),
            id="pods",
        ),
        pytest.param(
            [ROOT | {"PBS_JOBID": "12.a"}, ROOT | {"PBS_JOBID": "13.a"}, ROOT],
            ("job", ["12.a", "13.a", ""]),
            id="jobs",
        ),
        pytest.param(
            [WEB | {"PBS_JOBID": "12.a"}, WEB, APP],
            ("identity", ["job 12.a", "container web", "user app"]),
            id="the most specific of each run",
        ),
    ],
)
def test_a_list_shows_the_most_specific_thing_in_which_its_runs_differ(
    identities: list[dict[str, str]], expected: tuple[str, list[str]]
) -> None:
    assert told(*identities) == expected


def test_a_run_of_which_nothing_is_known_is_no_other_user() -> None:
    assert told(ROOT, {}, ROOT, {"SLURM_JOB_ID": "4711"})[1] == ["", "", "", "4711"]
    assert told(ROOT, {}) == ("", ["", ""])


@pytest.mark.parametrize(
    ("runs", "cells"),
    [
        (
            [
                {"GITHUB_REPOSITORY": "acme/etl2", "GITHUB_RUN_ID": "19123", "GITHUB_JOB": "b"},
                {},
            ],
            ["19123", ""],
        ),
        (
            [
                {"BUILD_URL": "https://ci/job/etl/42/", "BUILD_TAG": "jenkins-etl-42"},
                {"BUILD_URL": "https://ci/job/etl/43/", "BUILD_TAG": "jenkins-etl-43"},
            ],
            ["jenkins-etl-42", "jenkins-etl-43"],
        ),
        (
            [
                {"LSB_JOBID": "4711", "LSB_JOBINDEX": "1"},
                {"LSB_JOBID": "4711", "LSB_JOBINDEX": "2"},
                {"LSB_JOBID": "4712"},
            ],
            ["4711 1", "4711 2", "4712"],
        ),
        (
            [
                {
                    "SLURM_ARRAY_JOB_ID": "4711",
                    "SLURM_JOB_ID": f"471{n}",
                    "SLURM_ARRAY_TASK_ID": "1",
                }
                for n in range(1, 4)
            ],
            ["4711", "4712", "4713"],
        ),
    ],
)
def test_of_several_variables_the_number_of_the_start_is_shown_and_what_differs_within_it(
    runs: list[dict[str, str]], cells: list[str]
) -> None:
    assert told(*runs, ROOT)[1][: len(runs)] == cells


def test_a_long_value_keeps_its_end_in_the_room_that_there_is() -> None:
    ids = [{"DAG_RUN_ID": f"scheduled__2026-11-{day}T03:00:00"} for day in (24, 25)]
    assert told(*ids)[1] == ["…2026-11-24T03:00:00", "…2026-11-25T03:00:00"]
    assert told(*ids, ROOT, APP, room=15)[1][0] == "job …4T03:00:00"


def test_what_tells_a_run_is_also_a_search_for_it() -> None:
    runs = {"1": ROOT | {"A": "https://x/1", "B": "4711"}, "2": APP, "3": WEB}
    searches = {run: one.search for run, one in distinctions(runs).by_run.items()}
    assert searches == {"1": "B=4711", "2": "uid=1000", "3": "container=web"}


# The origin of runs


def test_no_two_hosts_nor_boots_share_a_mark() -> None:
    marks = {origin_mark(host, boot) for host in ("a", "b", "ab") for boot in ("1", "2")}
    assert len(marks) == 6
    assert {len(mark) for mark in marks} == {8}
    assert origin_mark("web-3", "b007") == origin_mark("web-3", "b007")


# Names of users


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_name_is_asked_for_once_and_a_missing_one_again_after_a_minute() -> None:
    asked, clock = [], Clock()

    def look_up(uid: int) -> str | None:
        asked.append(uid)
        return names(uid)

    users = Users(look_up, clock=clock)
    for clock.now in (0.0, 59.0):
        assert [users.name(1000), users.name(7)] == ["app", None]
    assert asked == [1000, 7]
    clock.now = 61.0
    assert [users.name(1000), users.name(7)] == ["app", None]
    assert asked == [1000, 7, 7]


def test_a_database_that_does_not_answer_is_waited_for_only_a_moment() -> None:
    answers = threading.Event()

    def look_up(uid: int) -> str | None:
        answers.wait(30)
        return "late"

    users = Users(look_up)
    assert [users.name(5), users.name(5)] == [None, None]
    (asking,) = (thread for thread in threading.enumerate() if thread.name == "user")
    answers.set()
    asking.join(30)
    assert users.name(5) == "late"


def test_a_database_that_does_not_answer_is_asked_by_few_threads() -> None:
    answers = threading.Event()

    def look_up(uid: int) -> str | None:
        answers.wait(30)
        return f"user{uid}"

    users = Users(look_up)
    assert {users.name(uid) for uid in range(10)} == {None}
    asking = [thread for thread in threading.enumerate() if thread.name == "user"]
    assert len(asking) <= 4
    answers.set()
    for thread in asking:
        thread.join(30)
    assert users.name(9) == "user9", "it is asked for later"


def test_the_hosts_own_database_is_asked() -> None:
    assert Users().name(0) == "root"
    assert Users().name(2**32 - 2) is None
