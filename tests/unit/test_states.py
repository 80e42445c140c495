# SPDX-License-Identifier: Apache-2.0
"""What says or draws something of each state, and cannot be derived from the table, is held to it.

The kernel side's enum is compared in test_layout.py, the distance of the colours in
test_dashboards.py.
"""

from __future__ import annotations

import re
from pathlib import Path

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


@pytest.mark.parametrize(
    ("document", "heading"),
    [("CONCEPTS.md", "| state | when |"), ("METRICS.md", "| state | the thread is |")],
)
def test_the_tables_in_the_documents_have_each_state_in_order(document: str, heading: str) -> None:
    text = (ROOT / "docs" / document).read_text()
    (table,) = re.findall(re.escape(heading) + r"\n\| --- \| --- \|\n((?:\| .*\n)+)", text)
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == NAMES


def test_the_documents_name_what_is_absent_at_first_and_what_idle_threads_do() -> None:
    metrics = (ROOT / "docs" / "METRICS.md").read_text()
    (absent,) = re.findall(r"^\| state (.*) \| that state \|$", metrics, re.MULTILINE)
    assert re.findall(r"`(\w+)`", absent) == [s.name for s in STATE_TABLE if not s.from_start]
    dashboards = (ROOT / "docs" / "DASHBOARDS.md").read_text()
    (idle,) = re.findall(r"counts idle threads \((.*?)\)", dashboards)
    assert re.findall(r"`(\w+)`", idle) == [s.name for s in STATE_TABLE if s.idle]


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
