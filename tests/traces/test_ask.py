# SPDX-License-Identifier: Apache-2.0
"""The recipes of docs/TRACES.md, on spans of real runs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest

from traces.clickhouse import ask
from traces.conftest import HOSTS
from traces.documented import DOCUMENT, of_clickhouse
from traces.fleet import Host, Job, of_host, wait_for_all
from traces.jaeger_server import Jaeger, Span

#: They take two seconds. A busy host stores only the longer ones of its runs.
SORT = "{ seq 200000; sleep 2; } | sort -n | tail -n 1; true"
SORTED = "bash|sort|tail"
FAILS = "sleep 2 | sh -c 'cat; exit 2'; true"
FAILED = "sleep|sh"
STORM = "seq 3000 | xargs -n 1 true | wc -l; true"
STORMED = "seq|xargs|wc"
#: What stands in the document for what a reader would write there.
UNIT, PIPELINE, TUESDAY = "nightly.job", "seq|sort|tail", "2026-11-24"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
#: Nights that the job has run; the last of them in which it was slow, and how many times slower.
NIGHTS, SLOW_NIGHTS, SLOWER = 14, 4, 3.0

Rows = list[dict[str, Any]]
Answers = Callable[[str], Rows]


@pytest.fixture(scope="module")
def night(new_job: Callable[[], Job]) -> Job:
    return new_job()


@pytest.fixture(scope="module")
def spans(hosts: list[Host], jaeger: Jaeger, night: Job) -> list[Span]:
    """A run that succeeds, one that fails, one with a finding, and two, one inside the other."""
    night.run(f"{SORT}; {FAILS}; {STORM}; bash -c '{SORT}' | cat; true")
    for host in hosts:
        wait_for_all(jaeger, host, night.unit, 5)
    return jaeger.spans(**{"pipelined.unit": night.unit})


@pytest.fixture(scope="module")
def answers(spans: list[Span], night: Job) -> Answers:
    """What ClickHouse answers to a question, if the job has run every night for two weeks.

    The second host takes twice as long. What ran in one of the nights was sent twice.
    """
    today = datetime.now(UTC).date()
    nights = [_on(spans, day, today - timedelta(day)) for day in range(NIGHTS)]
    asked = of_clickhouse()
    given = {
        UNIT: night.unit,
        PIPELINE: SORTED,
        TRACE: _runs(of_host(nights[0], HOSTS[0]), SORTED)[0].trace_id,
        TUESDAY: str(today - timedelta(SLOW_NIGHTS - 1)),
    }
    statements = []
    for statement in asked.values():
        for name, value in given.items():
            statement = statement.replace(f"'{name}'", f"'{value}'")
        statements.append(statement)
    sent = [span for each in (*nights, nights[0]) for span in each]
    found = dict(zip(asked, ask(sent, statements), strict=True))
    return lambda question: found[question]


def test_clickhouse_adds_up_what_was_wasted_last_night(answers: Answers, night: Job) -> None:
    rows = answers("which jobs wasted most last night, everywhere?")
    assert sorted((row["unit"], row["pipeline"]) for row in rows) == [
        (night.unit, "bash|cat"),
        (night.unit, SORTED),
        (night.unit, STORMED),
        (night.unit, FAILED),
    ]
    assert {(int(row["runs"]), int(row["hosts"])) for row in rows} == {(2, 2)}
    wasted = [row["not_overlapped_s"] for row in rows]
    assert wasted == sorted(wasted, reverse=True)


def test_clickhouse_lists_the_longest_of_last_night(answers: Answers) -> None:
    rows = answers("which took longest last night, everywhere?")
    assert sorted((row["host"], row["pipeline"]) for row in rows) == sorted(
        (host, pipeline) for host in HOSTS for pipeline in ("bash|cat", SORTED, STORMED, FAILED)
    )
    took = [row["took_s"] for row in rows]
    assert took == sorted(took, reverse=True)


def test_clickhouse_counts_the_findings_of_last_night(answers: Answers, night: Job) -> None:
    rows = answers("what would have helped them?")
    (storm,) = [row for row in rows if row["finding_id"] == "fork-storm"]
    assert (storm["unit"], storm["pipeline"], int(storm["runs"])) == (night.unit, STORMED, 2)
    assert "xargs" in storm["for_example"]


def test_clickhouse_lists_what_failed_last_night(answers: Answers) -> None:
    rows = answers("which failed?")
    assert sorted(row["host"] for row in rows) == sorted(HOSTS)
    assert {(row["pipeline"], row["error"]) for row in rows} == {(FAILED, "exit 2")}


def test_clickhouse_shows_the_pipes_inside_a_job(answers: Answers) -> None:
    rows = answers("show me the pipes inside this job")
    assert [row["command"] for row in rows] == ["bash", "sort", "tail"]
    assert {row["pipeline"] for row in rows} == {SORTED}
    assert float(rows[1]["cpu_s"]) > 0
    assert int(rows[0]["out_bytes"]) > 1_000_000


def test_clickhouse_finds_what_is_slower_since_tuesday(answers: Answers, night: Job) -> None:
    rows = answers("is it slower since Tuesday?")
    assert {row["unit"] for row in rows} == {night.unit}
    assert [row["factor"] for row in rows] == pytest.approx([SLOWER] * len(rows), rel=0.02)
    days = answers("since which day?")
    assert len(days) == NIGHTS
    assert min(day["p50_s"] for day in days[-SLOW_NIGHTS:]) > max(
        day["p50_s"] for day in days[:-SLOW_NIGHTS]
    )


def test_clickhouse_finds_the_slowest_host(answers: Answers) -> None:
    assert [row["host"] for row in answers("which host is slowest?")] == list(reversed(HOSTS))


def test_jaeger_lists_what_failed(spans: list[Span], jaeger: Jaeger, night: Job) -> None:
    (command,) = re.findall(
        r"^```bash\n(.*?/api/traces.*?)^```$", DOCUMENT.read_text(), re.M | re.S
    )
    done = subprocess.run(
        ["bash", "-c", command.replace("http://127.0.0.1:16686", jaeger.url)],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert sorted(row[:4] for row in rows if row[1] == night.unit) == [
        [host, night.unit, FAILED, "exit 2"] for host in HOSTS
    ]


def _on(spans: list[Span], number: int, day: Any) -> list[Span]:
    """As if it had run at two in the night of that day, as slow as it was then."""
    began = min(span.start for span in spans)
    two = datetime.combine(day, time(2), UTC).timestamp()

    def of_night(span_id: str | None) -> str | None:
        return span_id and f"{number:02x}{span_id[2:]}"

    return [
        replace(
            span,
            trace_id=of_night(span.trace_id),
            span_id=of_night(span.span_id),
            parent_id=of_night(span.parent_id),
            start=two + span.start - began,
            seconds=span.seconds
            * (SLOWER if number < SLOW_NIGHTS else 1)
            * (1 + HOSTS.index(span.host)),
        )
        for span in spans
    ]


def _runs(spans: list[Span], pipeline: str) -> list[Span]:
    """Those that are in no other run."""
    return [
        span
        for span in spans
        if span.tags.get("pipelined.pipeline") == pipeline and not span.tags["pipelined.nested"]
    ]
