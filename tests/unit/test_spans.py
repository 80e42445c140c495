# SPDX-License-Identifier: Apache-2.0
"""Where a run stands in its trace: what it is below, and ids that are made of the run's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from pipelined.model.identities import Identities
from pipelined.model.sums import EndedRun
from pipelined.model.tracker import Model
from pipelined.records.stage import EXIT_SEEN, Group
from pipelined.runs import ParentSpan, Run, span_id_of, stage_span_id, trace_id_of
from pipelined.runs.codec import read, written
from unit.test_tracker import group, inside, model

TRACE, OTHER_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736", "0af7651916cd43dd8448eb211c80319c"
SPAN, OTHER_SPAN = "00f067aa0ba902b7", "b7ad6b7169203331"
JOB = f"00-{TRACE}-{SPAN}-01"


def with_parent(found: Group, parent: str) -> Group:
    """The same, with this `TRACEPARENT` in the environment of its stages."""
    traced = [replace(stage, variables={"TRACEPARENT": parent}) for stage in found.stages]
    return replace(found, stages=tuple(traced))


def seen(*groups: Group) -> Sequence[Run]:
    """The runs of one sweep, outer ones first."""
    watched = model(identities=Identities("web-3", "b007", "c0ffee00", lambda _: None))
    watched.update(groups, 102.0)
    return sorted(watched.runs(), key=lambda run: (run.start, run.id))


def span_of(run: Run, position: int) -> str:
    stage = run.stages[position]
    return stage_span_id(run.id, stage.pid, stage.start)


def test_a_run_without_a_trace_begins_one() -> None:
    (run,) = seen(group())
    assert (run.parent_span, run.trace_id, run.sampled) == (None, trace_id_of(run.id), True)


def test_a_run_of_a_job_with_a_trace_is_below_the_job_s_span() -> None:
    (run,) = seen(with_parent(group(), JOB))
    assert run.parent_span == ParentSpan(TRACE, SPAN, True)
    assert run.trace_id == TRACE


def test_a_trace_that_is_not_recorded_is_respected() -> None:
    (run,) = seen(with_parent(group(), f"00-{TRACE}-{SPAN}-00"))
    assert not run.sampled


def test_a_nested_run_is_below_the_stage_around_it() -> None:
    outer, inner = seen(inside(2), group())
    assert inner.parent_span == ParentSpan(outer.trace_id, span_of(outer, 1), True)


def test_so_it_is_if_both_have_the_job_s_trace() -> None:
    outer, inner = seen(with_parent(inside(2), JOB), with_parent(group(), JOB))
    assert inner.parent_span == ParentSpan(TRACE, span_of(outer, 1), True)


def test_and_if_it_has_lost_the_job_s_trace() -> None:
    outer, inner = seen(inside(2), with_parent(group(), f"00-{TRACE}-{SPAN}-00"))
    assert inner.parent_span == ParentSpan(TRACE, span_of(outer, 1), False)


def test_a_nested_run_is_below_a_span_that_was_begun_in_between() -> None:
    own = f"00-{TRACE}-{OTHER_SPAN}-01"
    _, inner = seen(with_parent(inside(2), own), with_parent(group(), JOB))
    assert inner.parent_span == ParentSpan(TRACE, OTHER_SPAN, True)


def test_and_may_be_in_another_trace() -> None:
    _, inner = seen(with_parent(inside(2), f"00-{OTHER_TRACE}-{SPAN}-01"), group())
    assert inner.trace_id == OTHER_TRACE


def test_a_run_in_a_nested_run_is_in_the_trace_of_the_outermost() -> None:
    deepest = inside(12, first=21, names=("cut", "tr"))
    runs = {run.pipeline: run for run in seen(deepest, inside(2), with_parent(group(), JOB))}
    assert runs["cut|tr"].parent_span == ParentSpan(TRACE, span_of(runs["seq|sort"], 1), True)


def test_two_stages_with_one_process_id_have_two_spans() -> None:
    assert stage_span_id("1-2-3", 4711, 1.0) != stage_span_id("1-2-3", 4711, 2.0)


def test_ids_are_always_the_same_and_of_the_length_that_w3c_gives_them() -> None:
    run = "1763809200123-4711-5f3c9a01"
    assert trace_id_of(run) == "fdb6892ef46695fd6e2793e75ccbb6a6"
    assert (span_id_of(run), stage_span_id(run, 4711, 1763809200.123)) == (
        "7ee45142a7fd6465",
        "daddb49c5767929b",
    )


def test_it_is_the_same_after_a_way_through_json() -> None:
    for run in seen(with_parent(inside(2), JOB), group()):
        again = read(Run, json.loads(json.dumps(written(run))))
        assert (again.parent_span, again.trace_id) == (run.parent_span, run.trace_id)


# -- what a store of traces has


def exporting() -> Model:
    who = Identities("web-3", "b007", "c0ffee00", lambda _: None)
    return model(identities=who, exported=True)


def with_status(found: Group, status: int) -> Group:
    """The same, of which the last stage has ended with this wait status."""
    *first, last = found.stages
    ended = [replace(stage, exit_status=EXIT_SEEN) for stage in first]
    return replace(found, stages=(*ended, replace(last, exit_status=EXIT_SEEN | status)))


def test_only_where_runs_are_exported_a_store_has_a_trace() -> None:
    (run,) = seen(group())
    assert run.stored_trace_id is None
    watched = exporting()
    watched.update([group()], 102.0)
    assert watched.runs()[0].stored_trace_id == watched.runs()[0].trace_id


def test_a_store_has_no_trace_that_is_not_recorded() -> None:
    watched = exporting()
    watched.update([with_parent(group(end=105.0), f"00-{TRACE}-{SPAN}-00")], 107.0)
    (totals,) = watched.totals().values()
    assert (watched.runs()[0].stored_trace_id, totals.traced) == (None, None)


def test_totals_have_the_last_run_with_its_trace() -> None:
    watched = exporting()
    watched.update([group(end=105.0)], 107.0)
    (totals,) = watched.totals().values()
    (run,) = watched.runs()
    assert totals.traced == EndedRun(run.id, run.trace_id, run.wall_seconds, run.end or 0.0)
    assert totals.failed_traced == {}


def test_totals_have_the_last_run_that_failed_by_the_reason() -> None:
    watched = exporting()
    watched.update([with_status(group(end=105.0), 3 << 8)], 107.0)
    (totals,) = watched.totals().values()
    assert totals.failed_traced == {"exit": totals.traced}


def test_the_trace_of_a_nested_run_in_totals_is_that_of_the_run_around_it() -> None:
    watched = exporting()
    watched.update([with_parent(inside(2, end=105.0), JOB), with_parent(group(), JOB)], 107.0)
    nested = next(t for series, t in watched.totals().items() if series.nested)
    assert nested.traced is not None
    assert nested.traced.trace_id == TRACE


def test_totals_have_no_run_unless_runs_are_exported() -> None:
    watched = model(identities=Identities("web-3", "b007", "c0ffee00", lambda _: None))
    watched.update([group(end=105.0)], 107.0)
    (totals,) = watched.totals().values()
    assert (totals.traced, totals.failed_traced) == (None, {})
