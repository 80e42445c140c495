# SPDX-License-Identifier: Apache-2.0
"""What says or draws something of each state, and cannot be derived from the table, is held to it.

The kernel side's enum is compared in test_layout.py, the distance of the colours in
test_dashboards.py.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelined.states import STATE_TABLE

ROOT = Path(__file__).parents[2]
NAMES = [state.name for state in STATE_TABLE]
STYLE = (ROOT / "daemon" / "pipelined" / "web" / "static" / "page.css").read_text()


@pytest.mark.parametrize("what", ["name", "words", "block", "letter"])
def test_no_two_states_look_the_same(what: str) -> None:
    marks = [getattr(state, what) for state in STATE_TABLE]
    assert len(set(marks)) == len(marks)
    if what in ("block", "letter"):
        assert {len(mark) for mark in marks} == {1}
        assert what == "block" or all(map(str.isascii, marks))


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_the_page_has_a_colour_for_each_state_and_for_no_other(theme: int) -> None:
    styles = STYLE.split("prefers-color-scheme: dark")[theme]
    assert re.findall(r"--state-(\w+): #[0-9a-f]{6};", styles) == NAMES


def test_the_page_fills_a_bar_of_each_state_and_of_no_other() -> None:
    assert re.findall(r"^\.state-(\w+) {", STYLE, re.MULTILINE) == NAMES


def test_the_table_of_states_has_each_state_in_order() -> None:
    text = (ROOT / "docs" / "CONCEPTS.md").read_text()
    (table,) = re.findall(r"\| state \| when \|\n\| --- \| --- \|\n((?:\| .*\n)+)", text)
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == NAMES


def test_the_page_of_the_metrics_lists_each_state_in_order() -> None:
    metrics = (ROOT / "docs" / "METRICS.md").read_text()
    (listed,) = re.findall(
        r"^\| `pipelined_state_seconds_total` \| `state`: (.*?) \|", metrics, re.MULTILINE
    )
    assert re.findall(r"`(\w+)`", listed) == NAMES


def test_the_documents_name_what_is_absent_at_first() -> None:
    metrics = (ROOT / "docs" / "METRICS.md").read_text()
    (absent,) = re.findall(r"^\| state (.*) \| that state \|$", metrics, re.MULTILINE)
    assert re.findall(r"`(\w+)`", absent) == [s.name for s in STATE_TABLE if not s.from_start]


def test_the_documents_name_what_idle_threads_do() -> None:
    dashboards = (ROOT / "docs" / "DASHBOARDS.md").read_text()
    (idle,) = re.findall(r"counts idle threads \((.*?)\)", dashboards)
    assert re.findall(r"`(\w+)`", idle) == [s.name for s in STATE_TABLE if s.idle]


def test_the_rules_leave_out_what_only_repeats_a_helper() -> None:
    rules = (ROOT / "deploy" / "prometheus" / "recording.rules.yml").read_text()
    (repeats,) = re.findall(r'state!~"([\w|]+)"', rules)
    assert repeats.split("|") == [s.name for s in STATE_TABLE if s.echo == "helper"]


def test_rules_dashboards_and_documents_ask_for_states_that_exist() -> None:
    files = [
        *(ROOT / "deploy" / "prometheus").glob("*.yml"),
        *(ROOT / "dashboards").glob("*.json"),
        *(ROOT / "docs").glob("*.md"),
    ]
    asked = [
        (file.name, state)
        for file in files
        for found in re.findall(r'\bstate[=!]~?\\?"([\w|]+)\\?"', file.read_text())
        for state in found.split("|")
    ]
    assert len({name for name, _ in asked}) > 5
    assert {state for _, state in asked} <= {*NAMES, "firing", "pending"}


# -- a state more, in memory (another_state.py)


def with_another_state(*arguments: str) -> str:
    """What Python prints that begins with it."""
    found = subprocess.run(
        [sys.executable, "-B", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'tests'}:{ROOT / 'daemon'}"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    return found.stdout + found.stderr


@pytest.fixture(scope="module")
def followed() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(with_another_state("-m", "unit.another_state"))
    return found


def test_a_state_more_has_its_phrase_in_the_verdict_and_its_mark_and_words_below(
    followed: dict[str, Any],
) -> None:
    report = "\n".join(followed["report"])
    assert "cat holds the others back without working: waits for another 90 % of the" in report
    assert "█☃" in report and "☃ another state" in report
    plain = "\n".join(followed["ascii"])
    assert "#?" in plain and "? another state" in plain
    assert followed["style"] == "bright_green"
    assert followed["page"][-2] == ["another", "another state"]


def test_a_state_more_is_measured_and_asked_for(followed: dict[str, Any]) -> None:
    assert followed["record"] == len(NAMES) + 1
    assert "another" in followed["metric"]
    asked = followed["dashboards"]
    idle = [state.name for state in STATE_TABLE if state.idle]
    at_work = [state.name for state in STATE_TABLE if state.at_work]
    assert asked["idle"].split("|") == [*idle, "another"]
    assert asked["at work"] == f'state=~"{"|".join([*at_work, "another"])}"'


def test_what_does_not_follow_a_state_more_is_reported_by_a_test_each() -> None:
    said = with_another_state(
        *("-m", "pytest", "-p", "unit.another_state", "-p", "no:cacheprovider", "-q"),
        *("-k", "not state_more", "tests/unit/test_states.py"),
        "tests/unit/test_layout.py::test_names_are_those_of_the_enum_in_its_order",
        "tests/unit/test_answers.py::test_the_schema_is_that_of_the_types",
    )
    failed = re.findall(r"^FAILED tests/unit/test_\w+.py::(.*?)(?: - .*)?$", said, re.MULTILINE)
    assert failed == [
        "test_the_page_has_a_colour_for_each_state_and_for_no_other[light]",
        "test_the_page_has_a_colour_for_each_state_and_for_no_other[dark]",
        "test_the_page_fills_a_bar_of_each_state_and_of_no_other",
        "test_the_table_of_states_has_each_state_in_order",
        "test_the_page_of_the_metrics_lists_each_state_in_order",
        "test_the_documents_name_what_is_absent_at_first",
        "test_the_documents_name_what_idle_threads_do",
        "test_the_rules_leave_out_what_only_repeats_a_helper",
        "test_names_are_those_of_the_enum_in_its_order[STATE-names0-STATES]",
        "test_the_schema_is_that_of_the_types",
    ], said
