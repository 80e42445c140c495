# SPDX-License-Identifier: Apache-2.0
"""How a soak is judged, and what is made of its figures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from document_section import put_section
from soak.judgement import BOUNDED, Verdict, grows, judge
from soak.night import DRIVERS, JOBS, TOOLS, TURNS, due_times, first_turn, may_be_made, tool_name
from soak.picture import draw
from soak.readings import Account, Gap, Happened, Kept, Named, Reading, Sent, Soak
from soak.table import HEADING, section

FIGURES = Reading(
    seconds=0.0,
    life=0,
    runs=0,
    pipelines=0,
    resident_bytes=50e6,
    files=30,
    threads=8,
    series=9000,
    budget_ratio=0.99,
    scrape_bytes=1_200_000,
    scrape_cpu_seconds=0.07,
    sweep_seconds=0.01,
    cpu_ratio=0.05,
    lost=0.0,
    history_bytes=9.5e6,
    history_errors=0.0,
    stored_runs=6000,
    query_seconds=0.03,
)


def readings(**growth: float) -> list[Reading]:
    """20 readings in 40 minutes, a kill -9 after the second and fifth; fields grow by `growth`."""
    return [
        replace(
            FIGURES,
            seconds=120.0 * (number + 1),
            life=(number >= 2) + (number >= 5),
            runs=50_000 * (number + 1),
            **{
                "history_errors": 30.0 * (number >= 12),
                **{name: getattr(FIGURES, name) + step * number for name, step in growth.items()},
            },
        )
        for number in range(20)
    ]


GOOD = Soak(
    machine="Linux 6.18, 2 CPUs",
    command="make soak",
    history_max_bytes=10_000_000,
    readings=readings(),
    accounts=[
        Account(100_000, 100_000, 100_000, 0, 9),
        Account(150_000, 150_100, 151_000, 0, 9),
        Account(749_000, 764_000, 764_001, 15_000, 9),
    ],
    gaps=[Gap(240.0, 6.0, 1000), Gap(600.0, 7.0, 3000)],
    sent=Sent(outages=12, runs=9500, twice=0, stored=9000, not_come=0, missed=40, said=9500),
    happened=Happened(
        backups=48,
        slowest_backup=1.5,
        full_from=1380.0,
        full_until=1480.0,
        rotations=8,
        log_lines=90,
        tracebacks=0,
    ),
    unexplained=350,
    kept=[Kept(120.0, 50_000, 4000), Kept(2400.0, 1_000_000, 9000)],
    stored_pipelines=7000,
    lost={"tasks": 0.0, "ends": 0.0},
    jobs=[
        Named(
            "dump-00|pack-00",
            made=30,
            gap=1,
            rolled_up=30,
            stored=29,
            failed=10,
            failed_gap=1,
            reported=9,
        )
    ],
    drivers=[Named("plan|record", made=2000, gap=8, rolled_up=1992, stored=40)],
    resets={"dump-00|pack-00": 2.0},
    failed_scrapes=4,
)
JOB, DRIVER = GOOD.jobs[0], GOOD.drivers[0]
FIRST, SECOND, THIRD = GOOD.accounts


def bad(soak: Soak) -> list[str]:
    return [verdict.about for verdict in judge(soak) if not verdict.good]


def test_a_soak_in_which_nothing_grows_and_nothing_is_missing_is_passed() -> None:
    assert bad(GOOD) == []


def with_readings(**growth: float) -> Soak:
    return replace(GOOD, readings=readings(**growth))


#: What the verdict has to say of each.
BAD = [
    ("resident memory", with_readings(resident_bytes=0.6e6)),
    (
        "resident memory",
        replace(GOOD, readings=[replace(r, resident_bytes=64.1e6) for r in readings()]),
    ),
    ("series", with_readings(series=100)),
    ("size of a scrape", with_readings(scrape_bytes=20_000)),
    ("CPU of a scrape", with_readings(scrape_cpu_seconds=0.01)),
    ("sweep", with_readings(sweep_seconds=0.003)),
    ("slowest query", with_readings(query_seconds=0.01)),
    ("history's size", with_readings(history_bytes=0.03e6)),
    ("history's size", replace(GOOD, history_max_bytes=14_000_000)),
    ("lost", replace(GOOD, lost={"tasks": 0.0, "ends": 8.0})),
    (
        "runs in the metrics, life 1 of 3",
        replace(GOOD, accounts=[replace(FIRST, counted=99_999), SECOND, THIRD]),
    ),
    (
        "runs in the metrics, life 3 of 3",
        replace(GOOD, accounts=[FIRST, SECOND, replace(THIRD, others=7_000)]),
    ),
    (
        "runs in the roll-up, life 2 of 3",
        replace(GOOD, accounts=[FIRST, replace(SECOND, rolled_up=147_000), THIRD]),
    ),
    (
        "runs in the roll-up, life 3 of 3",
        replace(GOOD, accounts=[FIRST, SECOND, replace(THIRD, rolled_up=763_999)]),
    ),
    (
        "runs in the roll-up, life 3 of 3",
        replace(GOOD, accounts=[FIRST, SECOND, replace(THIRD, rolled_up=780_000)]),
    ),
    ("single runs", replace(GOOD, unexplained=401)),
    ("single runs", replace(GOOD, unexplained=None)),
    ("series of nightly jobs", replace(GOOD, without_series=["dump-00|pack-00 at minute 4"])),
    ("series of nightly jobs", replace(GOOD, resets={"dump-00|pack-00": 3.0})),
    ("runs of nightly jobs in the roll-up", replace(GOOD, jobs=[replace(JOB, rolled_up=28)])),
    ("runs of nightly jobs in the roll-up", replace(GOOD, jobs=[replace(JOB, rolled_up=31)])),
    ("runs of nightly jobs stored", replace(GOOD, jobs=[replace(JOB, stored=28)])),
    ("failures of jobs", replace(GOOD, jobs=[replace(JOB, reported=8)])),
    ("failures of jobs", replace(GOOD, jobs=[replace(JOB, reported=11)])),
    ("failures of jobs", replace(GOOD, jobs=[replace(JOB, failed=0, failed_gap=0, reported=0)])),
    ("units of containers", replace(GOOD, jobs=[replace(JOB, elsewhere=1)])),
    ("open files", with_readings(files=1)),
    ("threads", with_readings(threads=1)),
    ("driver's plan|record", replace(GOOD, drivers=[replace(DRIVER, rolled_up=0)])),
    ("driver's plan|record", replace(GOOD, drivers=[replace(DRIVER, made=0, rolled_up=0)])),
    ("Prometheus' scrapes", replace(GOOD, failed_scrapes=5)),
    ("live page", replace(GOOD, complaints=["TypeError"])),
    ("runs at the back end", replace(GOOD, sent=replace(GOOD.sent, twice=1))),
    ("runs at the back end", replace(GOOD, sent=replace(GOOD.sent, not_come=1))),
    ("runs at the back end", replace(GOOD, sent=replace(GOOD.sent, said=9501))),
    ("runs at the back end", replace(GOOD, sent=replace(GOOD.sent, outages=0))),
    ("backups", replace(GOOD, happened=replace(GOOD.happened, backups=0))),
    ("full disk", replace(GOOD, happened=replace(GOOD.happened, full_until=0.0))),
    ("full disk", with_readings(history_errors=1)),
    ("full disk", replace(GOOD, readings=[replace(r, history_errors=0.0) for r in readings()])),
    ("logs", replace(GOOD, happened=replace(GOOD.happened, tracebacks=1))),
    ("logs", replace(GOOD, happened=replace(GOOD.happened, log_lines=1000))),
]


@pytest.mark.parametrize(
    ("about", "soak"), [pytest.param(about, soak, id=about) for about, soak in BAD]
)
def test_each_claim_that_does_not_hold_is_reported_and_no_other(about: str, soak: Soak) -> None:
    assert bad(soak) == [about]


def test_growth_is_the_last_quarter_against_the_second() -> None:
    filling = [1.0, 1, 10, 10, 10, 10, 11, 11]
    assert grows(filling, tolerance=0.1, slack=0) == (False, 10, 11)
    assert grows([*filling[:-2], 11.1, 11.1], tolerance=0.1, slack=0)[0]
    assert not grows([*filling[:-2], 12, 12], tolerance=0.1, slack=1)[0]


def test_one_odd_reading_is_no_growth() -> None:
    values = [5.0] * 20
    values[18] = 500
    assert not grows(values, tolerance=0, slack=0)[0]


def test_too_few_readings_judge_no_growth() -> None:
    with pytest.raises(ValueError, match="3 readings are too few"):
        grows([1, 2, 3], 0, 0)


def test_readings_survive_their_file() -> None:
    assert Soak.from_json(GOOD.to_json()) == GOOD


def test_the_section_has_a_row_per_claim() -> None:
    text = section(GOOD, judge(GOOD), "images/soak.svg")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    claims = {re.sub(", life .*", "", verdict.about) for verdict in judge(GOOD)}
    assert len(rows) == 2 + len(claims) + 2 + len(GOOD.kept)
    assert "1,000,000 runs of 0 pipelines. The daemon was killed 2 times. 4,000 runs" in text
    assert rows[-1] == "| 40.0 min | 1,000,000 | 9,000 (0.9 %) |"
    assert "](images/soak.svg)" in text


def test_a_claim_that_does_not_hold_stands_out_in_the_section() -> None:
    text = section(GOOD, [Verdict("driver's a|b", False, "0 of 9")], None)
    assert "| drivers | **no** | a\\|b: 0 of 9 |" in text


def test_a_claim_holds_in_the_section_if_it_does_in_each_life() -> None:
    lives = [Verdict(f"runs, life {n} of 2", n == 1, f"{n} made") for n in (1, 2)]
    assert "| runs | **no** | life 1: 1 made · life 2: 2 made |" in section(GOOD, lives, None)


def test_the_section_replaces_its_former_one_and_nothing_else() -> None:
    new = f"{HEADING}\n\nnew\n"
    assert put_section("# A\n\ntext\n", new) == f"# A\n\ntext\n\n{new}"
    old = f"# A\n\n{HEADING}\n\nold\n\n## B\n\nmore\n"
    assert put_section(old, new) == f"# A\n\n{new}\n## B\n\nmore\n"
    assert put_section(put_section("# A\n", new), new) == put_section("# A\n", new)


def test_the_picture_has_a_line_per_chart_within_its_frame() -> None:
    picture = ET.fromstring(draw(GOOD))
    charts = [e for e in picture.iter() if e.tag.endswith("}g")]
    lines = [e for e in picture.iter() if e.tag.endswith("}polyline")]
    assert len(lines) == len(charts) == len(BOUNDED) + 2
    for line in lines:
        points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        assert len(points) == len(GOOD.readings)
        assert all(0 < x < 380 and 0 < y < 150 for x, y in points)


def test_a_higher_figure_is_higher_in_the_picture() -> None:
    def heights(soak: Soak) -> list[float]:
        line = next(e for e in ET.fromstring(draw(soak)).iter() if e.tag.endswith("}polyline"))
        return [float(point.split(",")[1]) for point in line.attrib["points"].split()]

    growing = heights(with_readings(resident_bytes=1e6))
    assert growing == sorted(growing, reverse=True)
    assert len(set(growing)) == len(growing)
    assert len(set(heights(GOOD))) == 1


def test_each_job_is_due_once_a_turn_from_its_first_turn_on() -> None:
    due = list(due_times(80.0))
    assert due == sorted(due)
    for job in range(len(JOBS)):
        turns = [(at, turn) for at, which, turn in due if which == job]
        assert [turn for _, turn in turns] == list(range(first_turn(job), TURNS))
        assert all(turn <= at / 80 < turn + 1 for at, turn in turns)


def test_tools_have_names_of_their_own() -> None:
    assert len({tool_name(number) for number in range(TOOLS)}) == TOOLS


def test_what_the_night_makes_is_known_by_its_name() -> None:
    one_liners = [f"{tool_name(0)}|{tool_name(1999)}", "|".join([tool_name(42)] * 3)]
    assert all(map(may_be_made, [*JOBS, *DRIVERS, *one_liners, "(other)"]))
    assert not any(map(may_be_made, ["sh|python3", "seq|sort", tool_name(1), "toolabcd|sort"]))
