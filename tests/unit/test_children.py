# SPDX-License-Identifier: Apache-2.0
"""What ran inside a stage: decoded, added up, and said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from pipelined.analysis.children_words import busiest, inside
from pipelined.analysis.sentence import sentence
from pipelined.kernel import layout
from pipelined.kernel.decoding import decode_stage
from pipelined.records.stage import ChildRecord
from pipelined.runs import Child, Run, Stage, children_by_command
from pipelined.terminal.run_report import lines
from unit.invented import START, make_run, make_stage


def decoded(places: Mapping[int, tuple[bytes, int, int, int]]) -> tuple[ChildRecord, ...]:
    """Of what is in these places: name, longest life, how many, their CPU time."""
    children = layout.Children()
    for at, (name, longest_ns, count, cpu_ns) in places.items():
        words = (name.ljust(16, b"\0")[:8], name.ljust(16, b"\0")[8:])
        children.named[at].name[:] = [int.from_bytes(word, "little") for word in words]
        children.named[at].longest_ns = longest_ns
        children.named[at].count = count
        children.named[at].cpu_ns = cpu_ns
    return decode_stage((bytes(layout.Stage()), b"", b"", bytes(children)), 1).children


def test_a_stage_that_started_nothing_has_no_children() -> None:
    assert decoded({}) == ()


def test_children_are_decoded_by_their_names() -> None:
    found = decoded({0: (b"gzip", 70, 12, 900), 1: (b"a-name-of-15-ch", 9, 1, 5)})
    assert found == (ChildRecord("gzip", 12, 900, 70), ChildRecord("a-name-of-15-ch", 1, 5, 9))


def test_a_name_that_was_cut_at_a_blank_ends_before_it() -> None:
    (child,) = decoded({0: (b"airflow worker ", 7, 1, 5)})
    assert child.command == "airflow worker"


def test_two_places_of_one_name_are_added_up() -> None:
    assert decoded({0: (b"sh", 70, 2, 9), 3: (b"sh", 80, 1, 4)}) == (ChildRecord("sh", 3, 13, 80),)


def test_what_found_no_place_comes_last_without_a_name() -> None:
    found = decoded({layout.CHILD_NAMES: (b"", 7, 3, 5), 0: (b"sh", 1, 0, 2)})
    assert found == (ChildRecord("sh", 0, 2, 1), ChildRecord(None, 3, 5, 7))


MANY = [Child(f"c{n}", n, float(n), n / 10) for n in range(1, 13)]


def test_the_eight_commands_with_the_most_cpu_time_are_named() -> None:
    *named, rest = children_by_command(MANY, 156.0)
    assert [child.command for child in named] == [f"c{n}" for n in range(12, 4, -1)]
    assert rest.command is None


@pytest.mark.parametrize("children", [MANY, [*MANY, Child(None, 5, 2.5, 9.0)], MANY[:3]])
def test_what_is_shown_adds_up_to_all(children: list[Child]) -> None:
    shown = children_by_command(children, 156.0)
    assert sum(child.exited for child in shown) == sum(child.exited for child in children)
    assert sum(child.cpu_seconds for child in shown) == sum(child.cpu_seconds for child in children)
    assert max(child.longest_seconds for child in shown) == max(
        child.longest_seconds for child in children
    )


def test_shares_are_of_the_cpu_time_of_the_stage() -> None:
    (gzip,) = children_by_command([Child("gzip", 12, 3.0, 0.5)], 4.0)
    assert gzip.cpu_share == 0.75


def test_without_cpu_time_there_is_no_share() -> None:
    (gzip,) = children_by_command([Child("gzip", 12, 0.0, 0.5)], 0.0)
    assert gzip.cpu_share is None


def loop(*children: Child, **given: float) -> Stage:
    stage = make_stage(2, "bash", cpu=2.0, child=7.0, **given)
    cpu = sum(child.cpu_seconds for child in children)
    return replace(
        stage, children=children_by_command(children, 2.0), children_cpu_seconds=cpu, forks=600
    )


SED, DATE = Child("sed", 300, 0.9, 0.02), Child("date", 300, 0.6, 0.01)


def with_loop(stage: Stage) -> Run:
    return make_run([make_stage(1, "cat", cpu=0.1, pipe_full=9.8), stage], 10.0)


def test_the_verdict_names_the_children_that_had_the_cpu_time() -> None:
    assert "; its children sed (300) and date (300) had 45 % and 30 % of its CPU time; cat" in (
        sentence(with_loop(loop(SED, DATE)))
    )


def test_the_verdict_names_no_child_that_had_little_of_it() -> None:
    assert "children sed" not in sentence(with_loop(loop(replace(SED, cpu_seconds=0.4))))


def test_parallel_stages_have_their_children_named_together() -> None:
    assert busiest([loop(SED), loop(SED)]) == (
        "their children sed (600) had 45 % of their CPU time"
    )


def test_the_report_says_what_ran_inside_and_what_the_stage_did_itself() -> None:
    ended = replace(loop(SED, DATE), end=START + 10)
    assert inside([ended]) == (
        "sed ×300 0.90 s (45 %, longest 20 ms), date ×300 0.60 s (30 %, longest 10 ms); "
        "itself 0.50 s"
    )


def test_what_still_runs_is_said_of_a_live_stage() -> None:
    live = replace(loop(SED), exited_children=300, forks=302)
    assert (inside([live]) or "").endswith("; itself and 2 that still run 1.1 s")


def test_the_report_has_a_line_for_it() -> None:
    report = lines(with_loop(loop(SED)), 0, 100)
    assert any(line.plain.startswith("  ran     bash: sed ×300") for line in report)


def test_a_stage_without_children_has_no_such_line() -> None:
    report = lines(with_loop(loop()), 0, 100)
    assert not any(line.plain.startswith("  ran ") for line in report)
