# SPDX-License-Identifier: Apache-2.0
"""Findings about stages that a pipeline does not need, wherever they stand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipelined.analysis.finding import Finding
from pipelined.analysis.findings import findings
from pipelined.analysis.machine import Costs
from pipelined.analysis.rewriting import Script
from pipelined.runs import Edge, Run, Stage
from unit.test_findings import HOST, make_stage, run_of, silly

SILLY = (
    "gzip -dc f | gzip -1 | gzip -dc | sort | grep a | sort | cut -c 1-9 | cat | sort | uniq | wc"
)
FOUND = ("round-trip", "sorted-twice", "filter-first", "sort-unique", "idle-copier")


#: On which a wake-up takes 5 us.
HERE = replace(HOST, costs=Costs(**dict.fromkeys(Costs.__slots__, 5e-6)))


def of_kind(run: Run, text: str = SILLY) -> list[Finding]:
    found = findings(run, HERE, Script(text) if text else None)
    return [finding for finding in found if finding.id in FOUND]


def ids(run: Run, text: str = SILLY) -> list[str]:
    return [finding.id for finding in of_kind(run, text)]


def with_stage(run: Run, index: int, stage: Stage) -> Run:
    return replace(run, stages=(*run.stages[:index], stage, *run.stages[index + 1 :]))


def test_all_that_is_not_needed_is_found_wherever_it_stands() -> None:
    found = of_kind(silly())
    assert sorted({finding.id for finding in found}) == sorted(FOUND)
    assert [finding.stages for finding in found if finding.id == "sorted-twice"] == [(3, 5), (5, 8)]


def test_each_has_the_pipeline_without_it() -> None:
    new = {finding.id: finding.rewrite.new for finding in of_kind(silly()) if finding.rewrite}
    assert new["round-trip"] == SILLY.replace(" | gzip -1 | gzip -dc", "")
    assert new["filter-first"] == SILLY.replace("sort | grep a", "grep a | sort")
    assert new["sort-unique"] == SILLY.replace("sort | uniq", "sort -u")
    assert new["idle-copier"] == SILLY.replace(" | cat", "")


def test_only_a_filter_that_is_moved_may_change_the_order_of_lines() -> None:
    reordered = {f.id for f in of_kind(silly()) if f.rewrite and f.rewrite.reordered}
    assert reordered == {"filter-first"}


def test_what_is_likely_is_no_more_than_the_bound_and_says_how() -> None:
    for finding in of_kind(silly()):
        assert finding.likely_seconds is not None and finding.gain_seconds is not None
        assert 0 < finding.likely_seconds <= finding.gain_seconds, finding.id
        assert finding.likely_reason


def test_a_busy_host_that_stretches_the_run_hides_nothing() -> None:
    """All that computes waits nine times as long for a CPU; the run takes ten times as long."""
    run = silly()
    for index, stage in enumerate(run.stages):
        states = {name: 10 * seconds for name, seconds in stage.states.items()}
        states |= {"cpu": stage.states["cpu"], "runqueue": 9 * stage.states["cpu"]}
        run = with_stage(run, index, replace(stage, states=states))
    run = replace(run, wall_seconds=10 * run.wall_seconds)
    assert sorted(set(ids(run))) == sorted(FOUND)


def copied(pieces: int, cpu: float) -> Run:
    """dd | cat | dd, in which the first writes so many pieces, and the last computes so long."""
    stages = [
        make_stage(1, "dd", (4000, 4000), (pieces, pieces), cpu=3.0),
        make_stage(2, "cat", (4000, 4000), cpu=2.0),
        make_stage(3, "dd", (4000, 4000), (pieces, pieces), cpu=cpu),
    ]
    return run_of(stages, 4.0)


def test_a_reader_that_each_small_piece_would_wake_keeps_the_copier_that_collects_them() -> None:
    assert "idle-copier" in ids(copied(60_000, cpu=0.5), "")
    assert "idle-copier" not in ids(copied(900_000, cpu=0.5), "")


def test_a_reader_that_is_slower_than_its_writer_is_not_woken_by_small_pieces() -> None:
    assert "idle-copier" in ids(copied(900_000, cpu=3.0), "")


def test_a_copier_that_has_a_cpu_of_its_own_costs_nothing() -> None:
    """The others need theirs, and one is free for it."""
    run, host = copied(60_000, cpu=3.0), replace(HERE, cores=4)
    stages = (replace(run.stages[0], states={**run.stages[0].states, "cpu": 4.0}), *run.stages[1:])
    found = findings(replace(run, stages=stages), host)
    assert "idle-copier" not in [finding.id for finding in found]


def test_who_waited_for_the_cpus_of_what_goes_counts_in_the_bound() -> None:
    def bound(queued: float) -> float | None:
        run = silly()
        busy = {**run.stages[0].states, "runqueue": queued}
        (found,) = [
            f
            for f in of_kind(with_stage(run, 0, replace(run.stages[0], states=busy)))
            if f.id == "idle-copier"
        ]
        return found.gain_seconds

    assert bound(0.0) == pytest.approx(1.2)
    assert bound(0.2) == pytest.approx(1.4)
    assert bound(5.0) == pytest.approx(2.4)


def test_without_the_text_a_round_trip_shows_by_its_bytes() -> None:
    (found,) = [f for f in of_kind(silly(), "") if f.id == "round-trip"]
    assert found.severity == "advice" and found.rewrite is None
    other = with_stage(silly(), 2, make_stage(3, "gzip", (30, 90), cpu=1.0))
    assert "round-trip" not in ids(other, "")


def test_without_the_text_a_sort_is_superfluous_on_conditions() -> None:
    (found,) = [f for f in of_kind(silly(), "") if f.id == "sorted-twice"]
    assert (found.stages, found.severity, found.rewrite) == ((3, 5), "advice", None)
    assert found.advice == (
        "Try: without sort (stage 4), if it has neither -u nor -m, what is between them treats "
        "each line by itself, and the later one has none of -s, -u, -m and -R."
    )


def test_without_the_text_a_sort_that_drops_lines_is_no_superfluous_one() -> None:
    for written, found in ((99.1, 1), (98.9, 0)):
        run = with_stage(silly(), 3, make_stage(4, "sort", (100, written), cpu=3.0))
        assert ids(run, "").count("sorted-twice") == found
    dropping = with_stage(silly(), 3, make_stage(4, "sort", (100, 10), cpu=3.0))
    assert "sorted-twice" in ids(dropping), "its text shows that it does not"


def test_without_the_text_a_filter_is_not_put_before_a_barrier_that_dropped_lines() -> None:
    stages = [
        make_stage(1, "shuf", (900, 10), cpu=8.0),
        make_stage(2, "grep", (10, 1), cpu=0.2, pipe_empty=9.0),
    ]
    assert not [found for found in findings(run_of(stages), HOST) if "put grep" in found.advice]
    stages[0] = make_stage(1, "shuf", (10, 10), cpu=8.0)
    assert [found for found in findings(run_of(stages), HOST) if "shuf has no -n" in found.advice]


@pytest.mark.parametrize(
    ("sort", "uniq", "advised"),
    [
        ("sort", "uniq", True),
        ("sort -S 10M", "uniq", True),
        ("sort", None, True),  # not known
        ("sort", "uniq -c", False),
        ("sort -k 2,2", "uniq", False),
    ],
)
def test_what_a_stage_was_started_with_decides_where_the_text_is_no_plain_pipeline(
    sort: str | None, uniq: str | None, advised: bool
) -> None:
    run = silly()
    run = with_stage(run, 8, replace(run.stages[8], arguments=sort))
    run = with_stage(run, 9, replace(run.stages[9], arguments=uniq))
    text = f"paste <(cut -f 1 f) <(cut -f 2 f) | {SILLY}"
    assert ("sort-unique" in ids(run, text)) == advised
    # as in SILLY, if that is certain
    assert "sort-unique" in ids(run)


@pytest.mark.parametrize(
    ("id", "old", "new"),
    [
        ("round-trip", "gzip -dc | sort", "gzip -dc g | sort"),
        ("sorted-twice", "cut -c 1-9 | cat | sort", "cut -c 1-9 | cat | sort -z"),
        ("sort-unique", "sort | uniq", "sort | uniq -d"),
        ("idle-copier", "cat | sort", "cat -n | sort"),
        ("filter-first", "grep a", "grep -n a"),
    ],
)
def test_what_may_be_needed_is_not_found(id: str, old: str, new: str) -> None:
    assert id in ids(silly())
    text = SILLY.replace(old, new)
    found = [finding for finding in of_kind(silly(), text) if finding.id == id]
    assert len(found) < len([finding for finding in of_kind(silly()) if finding.id == id])


@pytest.mark.parametrize(
    ("id", "at"),
    [("round-trip", (1, 2)), ("sorted-twice", (5,)), ("idle-copier", (7,)), ("sort-unique", (9,))],
)
def test_what_hardly_computes_is_not_worth_a_change(id: str, at: tuple[int, ...]) -> None:
    run = silly()
    for index in at:
        idle = dict.fromkeys(run.stages[index].states, 0.0)
        run = with_stage(run, index, replace(run.stages[index], states=idle))
    assert ids(run).count(id) == ids(silly()).count(id) - 1


def test_a_filter_that_passes_on_most_lines_stays_behind_the_sort() -> None:
    run = with_stage(silly(), 4, make_stage(5, "grep", (100, 60), cpu=0.2))
    assert "filter-first" not in ids(run)
    run = with_stage(silly(), 4, make_stage(5, "grep", (100, 0.001), cpu=0.2))
    assert "filter-first" not in ids(run)


def test_the_barrier_at_the_bottleneck_has_its_own_finding() -> None:
    stages = [
        make_stage(1, "sort", (100, 100), cpu=8.0, pipe_full=1.0),
        make_stage(2, "grep", (100, 20), cpu=0.2, pipe_empty=9.0),
    ]
    run = run_of(stages, overlapping=0.0)
    found = [finding.id for finding in findings(run, HOST, Script("sort f | grep a"))]
    assert "barrier" in found and "filter-first" not in found


def test_a_reader_of_two_pipes_is_no_way_back() -> None:
    run = silly()
    both = replace(run, edges=(*run.edges, Edge(0, 2)))
    assert "round-trip" in ids(run, "") and "round-trip" not in ids(both, "")


def counted(
    text: str = "", *, given: float = 100, written: float = 100, **states: float
) -> list[Finding]:
    """Of a sort whose lines wc counts, behind a grep."""
    stages = [
        make_stage(1, "grep", (200, given), cpu=0.5),
        make_stage(2, "sort", (given, written), **{"cpu": 6.0} | states),
        make_stage(3, "wc", (written, 0), cpu=0.2),
    ]
    found = findings(run_of(stages, overlapping=0.0), HOST, Script(text) if text else None)
    return [finding for finding in found if finding.id == "sorted-count"]


def test_lines_that_are_only_counted_need_no_order() -> None:
    (found,) = counted("grep a f | sort -k2 | wc -l")
    assert found.rewrite is not None and found.rewrite.new == "grep a f | wc -l"
    assert not found.rewrite.reordered
    assert (found.severity, found.stages) == ("warning", (1, 2))
    assert found.advice == "Try: without sort."
    assert found.likely_seconds == pytest.approx(6.0)
    assert found.gain_seconds == pytest.approx(6.0)


def test_without_its_text_a_sort_before_a_count_is_superfluous_on_conditions() -> None:
    (found,) = counted()
    assert (found.severity, found.rewrite) == ("advice", None)
    assert "if it has no -u" in found.advice and "ends in a newline" in found.advice
    assert counted(written=98.9) == [] != counted(written=99.1)
    assert counted(written=105)  # a bound: without the functions tier its other writes are in it
    assert counted(given=1, written=1) == []


def test_where_the_text_is_known_the_bytes_of_a_sort_do_not_matter() -> None:
    assert counted("grep a f | sort | wc -l", written=90)
    assert counted("grep a f | sort -u | wc -l") == []


def test_a_newline_that_only_sort_adds_is_a_condition() -> None:
    stages = [make_stage(1, "sort", (100, 100), cpu=6.0), make_stage(2, "wc", (100, 0), cpu=0.2)]
    for text, tried in (("sort f | wc -l", "without sort"), ("sort f g | wc -l", "cat in place")):
        (found,) = findings(run_of(stages), HOST, Script(text))
        assert (found.id, found.severity) == ("sorted-count", "advice")
        assert found.advice.startswith(f"Try: {tried}")
        assert "ends in a newline" in found.advice
        assert found.rewrite is not None


def test_what_stands_between_a_sort_and_a_count_treats_each_line_by_itself() -> None:
    stages = [
        make_stage(1, "sort", (100, 100), cpu=6.0),
        make_stage(2, "cut", (100, 50), cpu=0.2),
        make_stage(3, "wc", (50, 0), cpu=0.2),
    ]

    def advice(command: str = "cut") -> list[str]:
        run = run_of([stages[0], replace(stages[1], command=command), stages[2]])
        return [found.advice for found in findings(run, HOST) if found.id == "sorted-count"]

    (found,) = advice()
    assert "what is between them treats each line by itself" in found
    assert advice("head") == advice("uniq") == advice("tee") == []


def test_with_a_sort_its_waits_for_its_temporary_files_go() -> None:
    (found,) = counted("grep a f | sort | wc -l", cpu=4.0, disk=3.0)
    assert found.likely_seconds == pytest.approx(7.0)
    stages = [make_stage(1, "sort", (100, 100), cpu=4.0, disk=3.0), make_stage(2, "wc", (100, 0))]
    (found,) = findings(run_of(stages, overlapping=0.0), HOST, Script("sort f | wc -l"))
    assert found.likely_seconds == pytest.approx(4.0)  # it may be its input that it waits for


def test_a_sort_that_is_not_needed_has_no_other_advice() -> None:
    run = run_of(
        [
            make_stage(1, "sort", (100, 100), cpu=8.0, pipe_full=1.0),
            make_stage(2, "grep", (100, 20), cpu=0.2, pipe_empty=9.0),
            make_stage(3, "wc", (20, 0), cpu=0.1, pipe_empty=9.0),
        ],
        overlapping=0.0,
    )
    script = Script("sort f | grep a | wc -l", locale="en_US.UTF-8")
    assert [finding.id for finding in findings(run, HOST, script)] == ["sorted-count"]
