# SPDX-License-Identifier: Apache-2.0
"""The pages: what they show, what they refuse, and that their HTML is valid without a script."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from datetime import datetime, tzinfo
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

import pipelined
from pipelined.answers.lists import TopFinding
from pipelined.answers.run import Compared
from pipelined.errors import UserError
from pipelined.history.files import Disruption, Reason
from pipelined.history.history import StoredRun
from pipelined.history.jobs import NO_JOBS, JobsSummary, JobSummary
from pipelined.history.pipeline_query import SORTS
from pipelined.history.pipelines import (
    NO_PIPELINES,
    PipelinesSummary,
    PipelineSummary,
)
from pipelined.history.pipelines import TrendBar as Bar
from pipelined.history.rollup import Sums
from pipelined.history.rows import Summary
from pipelined.model.ledger import OTHER
from pipelined.runs import (
    LEVELS,
    Container,
    Exit,
    Flow,
    Identity,
    Outcome,
    ParentSpan,
    Point,
    Run,
    Series,
    StagePoint,
    Surroundings,
    Timeline,
    Trace,
)
from pipelined.web.app import create_app
from unit.invented import START, make_readahead, make_run, make_stage
from unit.observed import HOST, FakeObserver, point, run, three_runs

STATIC = Path(pipelined.__file__).parent / "web" / "static"
BROWSER = {"Accept": "text/html,*/*;q=0.8"}


def summary(number: int, **given: Any) -> Summary:
    values: dict[str, Any] = {
        "id": f"{START + number:.0f}-{number}",
        "pipeline": "cat|awk",
        "nested": False,
        "unit": "nightly.service",
        "start": START + number,
        "end": START + number + 5,
        "wall": 5.0,
        "partial": False,
        "cores": 0.9,
        "overlap": 0.08,
        "cache": "cold",
        "bottleneck": "awk: CPU 97 %",
        "findings": ("barrier",),
    }
    return Summary(**values | given)


class FakeHistory:
    """Has the runs that it is given, and records what it was asked."""

    def __init__(self) -> None:
        self.rows = [summary(2), summary(1)]
        self.stored: dict[str, StoredRun] = {}
        self.hidden_runs = 0
        self.found_jobs = NO_JOBS
        self.found = NO_PIPELINES
        self.asked: dict[str, Any] = {}
        self.disrupted: Disruption | None = None

    def disruption(self) -> Disruption | None:
        return self.disrupted

    def runs(self, **asked: Any) -> list[Summary]:
        given = {name: value for name, value in asked.items() if value is not None}
        self.asked = {name: value for name, value in given.items() if value is not False}
        return self.rows[: asked["limit"]]

    def hidden(self, **asked: Any) -> int:
        return min(self.hidden_runs, asked["most"])

    def pipelines(self, **asked: Any) -> PipelinesSummary:
        self.asked = {name: value for name, value in asked.items() if value is not None}
        return self.found

    def jobs(self, **asked: Any) -> JobsSummary:
        self.asked = {name: value for name, value in asked.items() if value is not None}
        return self.found_jobs

    def run(self, which: str) -> StoredRun:
        return self.stored[which]

    def compared(self, run_id: str) -> Compared:
        return self.stored[run_id].compared if run_id in self.stored else Compared()

    def ids(self, prefix: str) -> list[str]:
        return [run_id for run_id in self.stored if run_id.startswith(prefix)]


@pytest.fixture
def observer() -> FakeObserver:
    return FakeObserver(*three_runs())


@pytest.fixture
def history() -> FakeHistory:
    return FakeHistory()


@pytest.fixture
def client(observer: FakeObserver, history: FakeHistory) -> FlaskClient:
    app = create_app(observer, host=HOST, history=history)  # type: ignore[arg-type]
    return app.test_client()


def page(client: FlaskClient, path: str) -> str:
    answer = client.get(path, headers=BROWSER)
    assert answer.status_code == 200, answer.text
    return answer.text


class Outline(HTMLParser):
    """The tags of a page, by which people and programs navigate it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


PATHS = ["/", "/history", "/pipelines", "/run/run-3", "/run/run-2", "/compare?a=run-1&b=run-2"]


# -- every page


@pytest.mark.parametrize("path", PATHS)
def test_a_page_has_one_heading_landmarks_and_a_language(client: FlaskClient, path: str) -> None:
    outline = Outline(page(client, path))
    assert len(outline.all("h1")) == 1
    for landmark in ("header", "nav", "main", "footer"):
        assert len(outline.all(landmark)) == 1
    assert outline.all("html") == [{"lang": "en"}]


@pytest.mark.parametrize("path", PATHS)
def test_each_table_has_a_caption_and_heads(client: FlaskClient, path: str) -> None:
    outline = Outline(page(client, path))
    assert len(outline.all("caption")) == len(outline.all("table"))
    assert all(head.get("scope") for head in outline.all("th"))


@pytest.mark.parametrize("path", PATHS)
def test_each_field_has_a_label(client: FlaskClient, path: str) -> None:
    outline = Outline(page(client, path))
    labelled = {label.get("for") for label in outline.all("label")}
    for field in outline.all("input"):
        assert field.get("aria-label") or field.get("id") in labelled


@pytest.mark.parametrize("path", PATHS)
def test_ids_are_unique_and_references_resolve(client: FlaskClient, path: str) -> None:
    outline = Outline(page(client, path))
    ids = [attributes["id"] for _, attributes in outline.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    referred = {a["aria-labelledby"] for _, a in outline.tags if a.get("aria-labelledby")}
    assert referred <= set(ids)


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_inline_and_nothing_comes_from_another_host(
    client: FlaskClient, path: str
) -> None:
    outline = Outline(page(client, path))
    assert outline.all("style") == []
    for name, attributes in outline.tags:
        assert not {"style", "onclick", "onload"} & attributes.keys()
        if name == "script":
            assert attributes.get("src") or attributes.get("type") == "application/json"
        for key in ("src", "href", "action"):
            assert (attributes.get(key) or "/").startswith(("/", "#"))


@pytest.mark.parametrize("path", PATHS)
def test_the_files_a_page_needs_exist(client: FlaskClient, path: str) -> None:
    outline = Outline(page(client, path))
    needed = [a["src"] for a in outline.all("script") if a.get("src")]
    needed += [a["href"] for a in outline.all("link")]
    assert needed
    for file in needed:
        with client.get(str(file)) as answer:
            assert answer.status_code == 200, file


def test_scripts_import_only_files_that_exist() -> None:
    for script in STATIC.glob("*.js"):
        for name in re.findall(r'^import .* from "(.*)";', script.read_text(), re.MULTILINE):
            assert (STATIC / name).resolve().exists(), (script.name, name)


def test_scripts_set_text_as_text() -> None:
    for script in STATIC.glob("*.js"):
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", script.read_text()
        ), script.name


def luminance(colour: str) -> float:
    """Relative luminance of ``#rrggbb``, as WCAG 2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_states_levels_and_throughput_contrast_with_their_background(scheme: str) -> None:
    light, dark = (STATIC / "page.css").read_text().split("prefers-color-scheme: dark")
    colours = dict(re.findall(r"(--[\w-]+): (#\w{6});", light if scheme == "light" else dark))
    for name, colour in colours.items():
        if re.match("--(state|flow|level)-", name) and name != "--level-0":
            for ground in (colours["--page"], colours["--card"]):
                one, two = sorted((luminance(colour), luminance(ground)))
                assert (two + 0.05) / (one + 0.05) >= 3, name


def test_each_level_has_a_colour() -> None:
    style = (STATIC / "page.css").read_text()
    for level in range(len(LEVELS)):
        assert style.count(f"--level-{level}: #") == 2, level


def test_every_colour_that_is_asked_for_is_defined_in_both_schemes() -> None:
    light, dark = (STATIC / "page.css").read_text().split("prefers-color-scheme: dark")
    names = r"^ +(--[\w-]+): #"
    of_light, of_dark = (set(re.findall(names, part, re.MULTILINE)) for part in (light, dark))
    assert of_light == of_dark
    text = "".join(file.read_text() for file in STATIC.glob("*.[cj]s*"))
    set_elsewhere = set(re.findall(r"(--[\w-]+): |setProperty\(.(--[\w-]+)", text))
    defined = of_light.union(*set_elsewhere)
    assert set(re.findall(r"var\((--[\w-]+)\)", text)) <= defined


def test_the_paths_for_programs_are_listed(client: FlaskClient) -> None:
    links = {link["href"] for link in Outline(page(client, "/")).all("a")}
    for path in ("/metrics", "/healthz", "/readyz", "/api/v1/pipelines", "/api/v1/events"):
        assert path in links


# -- the live page


def test_the_live_page_says_what_to_do_if_nothing_runs_and_without_a_script(
    client: FlaskClient,
) -> None:
    text = page(client, "/")
    assert "No pipeline is running. Run one on this host" in text
    assert "needs JavaScript" in text


def test_a_screen_reader_announces_only_changes_of_the_status(client: FlaskClient) -> None:
    live = [a for _, a in Outline(page(client, "/")).tags if a.get("aria-live")]
    assert [(a["id"], a["aria-live"], a["role"]) for a in live] == [
        ("connection", "polite", "status")
    ]


# -- the history


def test_the_history_lists_runs_with_their_findings(client: FlaskClient) -> None:
    text = page(client, "/history")
    outline = Outline(text)
    assert [row["data-run"] for row in outline.all("tr") if row.get("data-run")] == [
        f"{START + 2:.0f}-2",
        f"{START + 1:.0f}-1",
    ]
    assert {"href": "/findings#barrier"} in outline.all("a")
    assert "awk: CPU 97 %" in text


def test_a_search_uses_the_fields_that_were_filled_in(
    client: FlaskClient, history: FakeHistory
) -> None:
    page(client, "/history?pipeline=cat%7Cawk&unit=&command=awk&finding=&since=2026-11-21&until=")
    since = history.asked.pop("since")
    assert history.asked == {"pipeline": "cat|awk", "command": "awk", "limit": 51}
    assert isinstance(since, float)


def test_a_search_stays_in_its_form(client: FlaskClient) -> None:
    fields = Outline(page(client, "/history?pipeline=cat%7Cawk")).all("input")
    values = {field.get("name"): field.get("value") for field in fields if field.get("id")}
    assert values["pipeline"] == "cat|awk"


def test_short_and_nested_runs_are_hidden_unless_something_is_searched_for(
    client: FlaskClient, history: FakeHistory
) -> None:
    for query, hiding in (
        ("", {"min_duration": 0.1, "top_level": True}),
        ("?since=2h", {"min_duration": 0.1, "top_level": True}),
        ("?min_duration=2s", {"min_duration": 2.0, "top_level": True}),
        ("?min_duration=&top_level=", {"min_duration": 0.1, "top_level": True}),
        ("?min_duration=0&top_level=false", {"min_duration": 0.0}),
        ("?finding=barrier", {"finding": "barrier"}),
        ("?slower=true&top_level=true", {"slower": True, "top_level": True}),
        ("?failed=true", {"failed": True}),
        ("?interrupted=true", {"interrupted": True}),
    ):
        page(client, f"/history{query}")
        del history.asked["limit"]
        history.asked.pop("since", None)
        assert history.asked == hiding, query


def test_a_search_in_the_form_hides_nothing(client: FlaskClient, history: FakeHistory) -> None:
    outline = Outline(page(client, "/history"))
    fields = {str(field["name"]): field.get("value") or "" for field in outline.all("input")}
    marks = ("slower", "failed", "interrupted", "run")
    sent = {name: text for name, text in fields.items() if name not in marks}
    assert set(sent.values()) == {""}
    client.get("/history", query_string=sent | {"pipeline": "a|b", "top_level": ""})
    assert history.asked == {"pipeline": "a|b", "limit": 51}


def test_what_is_hidden_is_counted_and_one_click_away(
    client: FlaskClient, history: FakeHistory
) -> None:
    history.hidden_runs = 1234
    text = page(client, "/history?since=2h&before=17")
    assert "Not listed: 1,234 runs that lie in another or took less than 100ms." in text
    (all_of_them,) = (
        link["href"]
        for link in Outline(text).all("a")
        if "top_level=false" in (link.get("href") or "")
    )
    assert all_of_them == "/history?since=2h&min_duration=0&top_level=false"
    assert 'id="hidden"' not in page(client, all_of_them)
    history.hidden_runs = 10**6
    assert "more than 10,000 runs that" in page(client, "/history")
    history.hidden_runs = 1
    assert "1 run that" in page(client, "/history")


def test_a_history_whose_every_run_is_hidden_is_not_empty(
    client: FlaskClient, history: FakeHistory
) -> None:
    history.rows, history.hidden_runs = [], 5
    text = page(client, "/history")
    assert "No other run matches." in text
    assert "No run is stored yet" not in text


def test_a_run_that_has_failed_is_marked_with_what_ended_it(
    client: FlaskClient, history: FakeHistory
) -> None:
    history.rows = [summary(1, outcome="failed", failure="perl: SIGKILL")]
    assert '<span class="failed">failed: perl: SIGKILL</span>' in page(client, "/history")


def test_the_page_of_a_run_says_how_it_compares_with_its_usual_before_the_verdict(
    client: FlaskClient, history: FakeHistory
) -> None:
    stages = [
        make_stage(1, "zcat", flow=Flow(None, None, 6_000_000, 0, exact=True), end=START + 51)
    ]
    old = make_run(stages, 51.0, id="17-1", end=START + 51)
    history.stored["17-1"] = StoredRun(
        old, (), compared=Compared(usual_input=1e6, usual_any_input=10.0)
    )
    before, _ = page(client, "/run/17-1").split('<p class="verdict">')
    assert '<p class="compared">6.0 × the usual input in 5.1 × the usual time</p>' in before
    history.stored["17-1"] = StoredRun(old, ())
    assert "usual" not in page(client, "/run/17-1")


@pytest.mark.parametrize(
    ("files", "cells"),
    [(2_000, ['<td class="number">2,000</td>', '<td class="number"></td>']), (9, []), (None, [])],
)
def test_the_page_of_a_run_has_the_files_that_were_read_if_there_are_several(
    client: FlaskClient, history: FakeHistory, files: int | None, cells: list[str]
) -> None:
    stages = [
        make_stage(1, "cat", end=START + 9, readahead=make_readahead(files=files)),
        make_stage(2, "wc", end=START + 9),
    ]
    old = make_run(stages, 9.0, id="17-1", end=START + 9)
    history.stored["17-1"] = StoredRun(old, ())
    text = page(client, "/run/17-1")
    assert ("Files read" in text) == bool(cells)
    assert all(cell in text for cell in cells)


def test_a_run_that_is_far_from_its_usual_is_marked_with_a_sign_and_words(
    client: FlaskClient, history: FakeHistory
) -> None:
    history.rows = [summary(1, wall=9.0, usual=4.0, slower=True)]
    assert "▲ slower: 2.2 × usual" in page(client, "/history")
    history.rows = [summary(1, wall=5.0, usual=4.0, slower=False)]
    assert "usual</span>" not in page(client, "/history")


@pytest.mark.parametrize("path", ["/history", "/pipelines"])
def test_a_time_is_a_click_away_and_keeps_the_search(client: FlaskClient, path: str) -> None:
    links = Outline(page(client, f"{path}?since=1h&{SEARCHES[path]}&until=")).all("a")
    ranges = [link for link in links if str(link["href"]).startswith(f"{path}?{SEARCHES[path]}&s")]
    assert [link["href"] for link in ranges if link.get("aria-current")] == [
        f"{path}?{SEARCHES[path]}&since=1h"
    ]
    assert len(ranges) >= 5
    for link in ranges:
        assert client.get(str(link["href"]), headers=BROWSER).status_code == 200


#: A search that both pages have, as it is in a link.
SEARCHES = {"/history": "unit=u", "/pipelines": "search=u"}


@pytest.mark.parametrize(
    ("hour", "since", "until"),
    [
        (2, "2026-11-22+20:00", "2026-11-23+08:00"),
        (12, "2026-11-22+20:00", "2026-11-23+08:00"),
        (21, "2026-11-23+20:00", "2026-11-24+08:00"),
    ],
)
def test_last_night_is_the_one_that_began_last(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch, hour: int, since: str, until: str
) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Clock:
            return cls(2026, 11, 23, hour, 30)

    monkeypatch.setattr("pipelined.web.recorded_pages.datetime", Clock)
    text = page(client, "/history")
    assert f"since={since}&amp;until={until}" in text
    assert "since=2026-11-23&#34;" in text or 'since=2026-11-23"' in text


def test_older_runs_are_a_link_away_and_so_are_the_newest(
    client: FlaskClient, history: FakeHistory
) -> None:
    history.rows = [summary(number) for number in range(100, 0, -1)]
    links = Outline(page(client, "/history?unit=u&before=9")).all("a")
    targets = {link["rel"]: link["href"] for link in links if link.get("rel")}
    assert targets == {
        "first": "/history?unit=u",
        "next": f"/history?unit=u&before={START + 51:.0f}-51",
    }


def test_the_longest_runs_are_a_choice_away_and_so_are_shorter_ones(
    client: FlaskClient, history: FakeHistory
) -> None:
    history.rows = [summary(number, wall=float(number)) for number in range(100, 0, -1)]
    text = page(client, "/history?since=2h&sort=wall&before=200.0:1")
    assert (history.asked["sort"], history.asked["before"]) == ("wall", "200.0:1")
    assert "50 matching runs, longest first</caption>" in text
    options = [option for option in Outline(text).all("option") if "selected" in option]
    assert "wall" in [option["value"] for option in options]
    links = {link["rel"]: link["href"] for link in Outline(text).all("a") if link.get("rel")}
    assert links == {
        "first": "/history?since=2h&sort=wall",
        "next": f"/history?since=2h&sort=wall&before=51.0:{summary(51).id}",
    }
    assert [words in text for words in (">Longest<", ">Shorter<", ">Newest<")] == [
        True,
        True,
        False,
    ]
    kept = [link["href"] for link in Outline(text).all("a") if "since=7d" in (link["href"] or "")]
    assert kept == ["/history?sort=wall&since=7d"]


def test_the_longest_runs_have_a_line_each(client: FlaskClient, history: FakeHistory) -> None:
    inner = [summary(n, pipeline="seq|sort", **INSIDE) for n in range(20, 10, -1)]
    history.rows = [summary(1, pipeline="job.sh|tee"), *inner]
    text = page(client, "/history?sort=wall&top_level=false")
    depths = [head["data-depth"] for head in Outline(text).all("th") if "data-depth" in head]
    assert depths == ["0"] * 11
    assert text.count("inside job.sh|tee") == 10
    assert "1 matching runs and 10 nested ones, which name the run that encloses them, l" in text


def test_a_page_in_another_order_is_refused(client: FlaskClient) -> None:
    answer = client.get("/history?sort=wall&before=17", headers=BROWSER)
    assert answer.status_code == 400
    assert "&#39;17&#39; is not the next of an answer with sort=wall" in answer.text


INSIDE = {"nested": True, "parent": summary(1).id, "parent_pipeline": "job.sh|tee"}


def test_nested_runs_stand_under_the_run_that_encloses_them(
    client: FlaskClient, history: FakeHistory
) -> None:
    inner = [summary(n, pipeline="seq|sort", **INSIDE) for n in range(70, 9, -1)]
    history.rows = [*inner, summary(2), summary(1, pipeline="job.sh|tee")]
    text = page(client, "/history")
    depths = [head["data-depth"] for head in Outline(text).all("th") if "data-depth" in head]
    assert depths == ["0", "0", "1"]
    assert '<span class="times">61 × </span>' in text
    assert "2 runs and 61 nested ones, which stand under the run that encloses them" in text


def test_a_line_of_several_runs_says_how_many_did_not_succeed(
    client: FlaskClient, history: FakeHistory
) -> None:
    inner = [summary(n, pipeline="seq|sort", **INSIDE) for n in range(70, 59, -1)]
    inner[3] = replace(inner[3], outcome="failed", failure="sort: exit 2", wall=0.1)
    history.rows = [*inner, summary(1, pipeline="job.sh|tee")]
    text = page(client, "/history")
    assert '<span class="failed">1 of 11 did not succeed</span>' in text


def test_a_search_for_a_pipeline_lists_each_of_its_runs(
    client: FlaskClient, history: FakeHistory
) -> None:
    history.rows = [summary(n, pipeline="seq|sort", **INSIDE) for n in range(20, 10, -1)]
    text = page(client, "/history?pipeline=seq%7Csort")
    assert text.count("data-run=") == 10
    assert text.count("inside job.sh|tee") == 10


def test_lines_of_many_runs_do_not_end_the_list(client: FlaskClient, history: FakeHistory) -> None:
    inner = [summary(n, pipeline="seq|sort", **INSIDE) for n in range(1000, 500, -1)]
    history.rows = [*inner, *[summary(n) for n in range(300, 200, -1)]]
    text = page(client, "/history")
    assert text.count("data-run=") == 50
    # All of the nested runs and 49 others.
    assert f"before={summary(252).id}" in text


def test_text_that_is_not_a_moment_is_named(client: FlaskClient) -> None:
    answer = client.get("/history?since=yesterday", headers=BROWSER)
    assert answer.status_code == 400
    assert "&#39;yesterday&#39; is not a moment such as 2h" in answer.text


def test_an_empty_history_says_what_it_will_list(client: FlaskClient, history: FakeHistory) -> None:
    history.rows = []
    assert "A pipeline is listed here as soon as it has ended." in page(client, "/history")
    assert "No run matches." in page(client, "/history?command=sort")


def test_without_a_history_its_page_says_how_to_turn_it_on(observer: FakeObserver) -> None:
    app = create_app(observer, host=HOST)  # type: ignore[arg-type]
    text = page(app.test_client(), "/history")
    assert "The history is off" in text
    assert "--history" in text


@pytest.mark.parametrize("path", ["/history", "/pipelines"])
def test_what_happened_to_the_files_of_the_history_is_shown(
    client: FlaskClient, history: FakeHistory, path: str
) -> None:
    assert "removed" not in client.get(path).text
    history.disrupted = Disruption(
        Reason.DATABASE_REMOVED, START, "the history in /state was removed; a new one begins"
    )
    notice = re.search(r'<p class="notice">(.*)</p>', client.get(path).text)
    assert notice
    assert re.sub("<[^>]*>", "", notice[1]) == (
        "2023-11-14 22:13:20 UTC: the history in /state was removed; a new one begins."
    )


def test_a_history_that_cannot_be_read_says_why(
    client: FlaskClient, history: FakeHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*which: str, **asked: Any) -> list[Any]:
        raise UserError("cannot read /x/history.db: permission denied", "run it as root")

    monkeypatch.setattr(history, "runs", fail)
    monkeypatch.setattr(history, "ids", fail)
    reason = "/x/history.db: permission denied; run it as root"
    assert reason in page(client, "/history")
    answer = client.get("/run/17-1", headers=BROWSER)
    assert answer.status_code == 503
    assert reason in answer.text
    assert "run-3" in page(client, "/run/run-3")


# -- the pipelines

PIPELINE = PipelineSummary(
    series=Series(pipeline="cat|awk", nested=False, unit="nightly.service"),
    parent_pipeline=None,
    sums=Sums(runs=1200, wall=600.0, cpu=500.0, not_overlapped=450.0, longest=9.0, examined=1200),
    median=0.5,
    p95=2.0,
    exact=True,
    trend=(
        Bar(START - 3600, 1000, 100.0),
        Bar(START, 0, 0.0),
        Bar(START + 3600, 200, 500.0),
    ),
    bottleneck="awk: CPU",
    bottleneck_share=0.9,
    finding=TopFinding("barrier", 7, 120.0),
    last=summary(1, wall=9.0, usual=4.0, slower=True),
)


def pipelines(*listed: PipelineSummary, matching: int | None = None) -> PipelinesSummary:
    return PipelinesSummary(START, START + 7200, 3600.0, matching or len(listed), listed)


def test_a_pipeline_is_listed_with_what_it_cost(client: FlaskClient, history: FakeHistory) -> None:
    history.found = pipelines(PIPELINE)
    text = page(client, "/pipelines")
    for shown in (
        "1,200<",
        "10 min 0 s",
        "8 min 20 s",
        "7 min 30 s<",
        "75 %<",
        "95 %: 2.0 s",
        "0.50 s",
        "▲ slower: 2.2 × usual",
        "awk: CPU <",
        ">90 %<",
        "~ 2 min 0 s",
        "a bar is an hour",
        "UTC</time> on.",
    ):
        assert shown in text, shown
    outline = Outline(text)
    assert {"href": "/findings#barrier"} in outline.all("a")
    assert {"href": f"/run/{PIPELINE.last.id if PIPELINE.last else ''}"} in outline.all("a")
    assert {"d": "M0 20h3v-1.0h-3zM8 20h3v-20.0h-3z"} in outline.all("path")
    assert "0.10 s to 2.5 s on average" in text
    assert "≈" not in text
    assert re.search(
        r"UTC</time> to <time[^>]*>[^<]* UTC</time>\.", page(client, "/pipelines?until=1h")
    )


def test_a_single_bar_is_no_trend(client: FlaskClient, history: FakeHistory) -> None:
    history.found = pipelines(replace(PIPELINE, trend=(Bar(START, 3, 9.0), Bar(START + 1, 0, 0.0))))
    assert not Outline(page(client, "/pipelines")).all("path")


def test_the_name_of_a_pipeline_leads_to_its_runs_of_that_time(
    client: FlaskClient, history: FakeHistory
) -> None:
    history.found = pipelines(PIPELINE)
    (link,) = (
        link["href"]
        for link in Outline(page(client, "/pipelines?since=2h")).all("a")
        if link.get("class") == "signature"
    )
    assert link == "/history?pipeline=cat%7Cawk&unit=nightly.service&since=2h"
    assert client.get(link, headers=BROWSER).status_code == 200


def test_estimated_percentiles_are_marked(client: FlaskClient, history: FakeHistory) -> None:
    history.found = pipelines(replace(PIPELINE, exact=False))
    text = page(client, "/pipelines")
    assert "≈ 0.50 s" in text
    assert "within a factor of 2" in text


def test_what_is_not_known_of_a_pipeline_is_blank(
    client: FlaskClient, history: FakeHistory
) -> None:
    history.found = pipelines(
        replace(
            PIPELINE,
            series=Series(pipeline=OTHER, nested=True, unit="-"),
            bottleneck=None,
            bottleneck_share=None,
            finding=None,
            last=None,
        )
    )
    text = page(client, "/pipelines")
    assert "not counted apart" in text
    assert not [link for link in Outline(text).all("a") if link.get("class") == "signature"]


def test_a_nested_pipeline_names_the_one_around_it(
    client: FlaskClient, history: FakeHistory
) -> None:
    last = summary(2, nested=True, parent_pipeline="job.sh|tee")
    inner = replace(
        PIPELINE,
        series=Series(pipeline="seq|wc", nested=True, unit="u"),
        parent_pipeline="job.sh|tee",
        last=last,
    )
    outer = replace(PIPELINE, series=Series(pipeline="job.sh|tee", nested=False, unit="u"))
    history.found = pipelines(inner, outer)
    depths = [
        row["data-depth"]
        for row in Outline(page(client, "/pipelines")).all("th")
        if "data-depth" in row
    ]
    assert depths == ["0", "1"]
    history.found = pipelines(inner)
    assert '<span class="inside"> inside job.sh|tee' in page(client, "/pipelines")


def test_failures_of_a_pipeline_are_marked_with_their_share(
    client: FlaskClient, history: FakeHistory
) -> None:
    words = "Failed: the share is one of the runs whose outcome is known."
    sums = replace(PIPELINE.sums, runs=21, failed=5, interrupted=2)
    history.found = pipelines(replace(PIPELINE, sums=replace(sums, unknown=1)))
    text = page(client, "/pipelines")
    assert '<span class="failed">5 failed, 25 %</span>' in text
    assert '<span class="interrupted">2 interrupted</span>' in text
    assert words in text
    history.found = pipelines(replace(PIPELINE, sums=sums))
    assert words not in page(client, "/pipelines")
    history.found = pipelines(PIPELINE)
    assert 'class="failed"' not in page(client, "/pipelines")


def test_pipelines_are_those_of_a_week_unless_asked_otherwise(
    client: FlaskClient, history: FakeHistory
) -> None:
    page(client, "/pipelines")
    since = history.asked.pop("since")
    assert time.time() - since == pytest.approx(7 * 86400, abs=60)
    assert history.asked == {"sort": "wall", "limit": 50}
    page(client, "/pipelines?since=&sort=slower&search=awk&until=&limit=200")
    assert history.asked == {"sort": "slower", "search": "awk", "limit": 200}


def test_more_pipelines_are_a_click_away(client: FlaskClient, history: FakeHistory) -> None:
    history.found = pipelines(PIPELINE, matching=80)
    text = page(client, "/pipelines?sort=cpu")
    assert "1 of 80 pipelines, by CPU time" in text
    assert {"href": "/pipelines?sort=cpu&limit=80"} in Outline(text).all("a")


def test_a_wrong_field_of_the_pipelines_is_named(client: FlaskClient) -> None:
    answer = client.get("/pipelines?sort=name", headers=BROWSER)
    assert answer.status_code == 400
    assert "none of wall, cpu, not-overlapped, runs, slower" in answer.text


JOB = JobSummary(
    unit="nightly.service",
    pipelines=3,
    sums=replace(PIPELINE.sums, failed=6),
    costliest="cat|awk",
    costliest_share=0.75,
)


def test_a_job_is_listed_with_what_its_pipelines_cost(
    client: FlaskClient, history: FakeHistory
) -> None:
    history.found_jobs = JobsSummary(START, START + 7200, False, (JOB,))
    text = page(client, "/pipelines?by=job&since=2h&sort=cpu")
    for shown in ("1 job, by CPU time", "1,200<", "10 min 0 s", "8 min 20 s", "6 failed", "75 %"):
        assert shown in text, shown
    links = [link["href"] for link in Outline(text).all("a") if link.get("class") == "signature"]
    assert links == ["/pipelines?unit=nightly.service&since=2h"]
    assert history.asked["sort"] == "cpu"
    page(client, links[0])
    assert history.asked["unit"] == "nightly.service" and not history.asked.get("search")


@pytest.mark.parametrize("path", ["/pipelines", "/history"])
def test_a_form_says_whose_time_it_takes(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        text = page(client, path)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert "Since (IST)" in text and "Until (IST)" in text


def test_a_job_that_is_not_counted_apart_is_marked_and_no_link(
    client: FlaskClient, history: FakeHistory
) -> None:
    history.found_jobs = JobsSummary(START, START + 7200, False, (replace(JOB, unit=OTHER),))
    text = page(client, "/pipelines?by=job")
    assert "not counted apart" in text and "other jobs may lack these runs" in text
    assert not [link for link in Outline(text).all("a") if link.get("class") == "signature"]


def test_pipelines_and_jobs_lead_to_each_other(client: FlaskClient) -> None:
    for path, there in (
        ("/pipelines?search=x&sort=cpu", "/pipelines?search=x&by=job"),
        ("/pipelines?search=x&by=job", "/pipelines?search=x&by=pipeline"),
    ):
        assert {"href": there} in Outline(page(client, path)).all("a")
    assert {"type": "hidden", "name": "by", "value": "job"} in Outline(
        page(client, "/pipelines?by=job")
    ).all("input")


def test_more_jobs_are_a_click_away(client: FlaskClient, history: FakeHistory) -> None:
    history.found_jobs = JobsSummary(START, START + 7200, True, (JOB, replace(JOB, unit="-")))
    text = page(client, "/pipelines?by=job")
    assert "The first 2 jobs" in text
    assert {"href": "/pipelines?by=job&limit=4"} in Outline(text).all("a")


def test_the_input_of_a_job_has_a_column_if_it_is_known(
    client: FlaskClient, history: FakeHistory
) -> None:
    sums = replace(JOB.sums, input_bytes=12_000_000, input_runs=1199)
    history.found_jobs = JobsSummary(START, START + 7200, False, (replace(JOB, sums=sums),))
    text = page(client, "/pipelines?by=job")
    assert "≥ 12.0 MB" in text
    assert "of a part of the runs the input is not known" in text
    history.found_jobs = JobsSummary(START, START + 7200, False, (JOB,))
    assert ">Input<" not in page(client, "/pipelines?by=job")


def test_jobs_are_not_sorted_by_a_usual(client: FlaskClient) -> None:
    assert client.get("/pipelines?by=job&sort=slower", headers=BROWSER).status_code == 400
    assert "against the usual" not in page(client, "/pipelines?by=job")


def test_the_input_of_runs_and_pipelines_has_a_column_if_one_is_known(
    client: FlaskClient, history: FakeHistory
) -> None:
    history.rows = [
        replace(summary(1), input_bytes=6_000_000, usual_input=1e6, usual_any_input=0.1)
    ]
    history.found = pipelines(replace(PIPELINE, median_input=134e6, input_rate=12e6))
    text = page(client, "/history")
    assert "6.0 MB<" in text
    assert "6.0 × the usual input in" in text
    text = page(client, "/pipelines")
    assert ("134 MB<" in text, "12.0 MB/s" in text) == (True, True)
    history.rows, history.found = [summary(1)], pipelines(PIPELINE)
    for path in ("/history", "/pipelines"):
        assert ">Input<" not in page(client, path)


def test_without_pipelines_the_page_says_so(client: FlaskClient) -> None:
    assert "No pipeline ran in this time." in page(client, "/pipelines")
    assert "No pipeline matches." in page(client, "/pipelines?search=x")


def test_without_a_history_the_page_of_pipelines_says_how_to_turn_it_on(
    observer: FakeObserver,
) -> None:
    app = create_app(observer, host=HOST)  # type: ignore[arg-type]
    assert "--history" in page(app.test_client(), "/pipelines")


def test_every_sort_has_words(client: FlaskClient) -> None:
    options = Outline(page(client, "/pipelines?sort=runs")).all("option")
    assert [option["value"] for option in options] == list(SORTS)
    assert [option["value"] for option in options if "selected" in option] == ["runs"]


# -- one run


def test_a_run_says_whose_it_is_and_links_to_runs_of_the_same(
    observer: FakeObserver, client: FlaskClient
) -> None:
    known = Identity(
        host="web-3",
        boot_id="b007",
        uid=1000,
        user="app",
        container=Container("docker", "3f2a" * 16, None, "etl:1.4"),
        variables={"BUILD_URL": "https://ci/?a=b&c=<d>"},
        trace=Trace("4bf9" * 8, "00f0" * 4, True),
    )
    assert 'class="figures identity"' not in page(client, "/run/run-2")
    observer.seen[1] = replace(observer.seen[1], identity=known)
    text = page(client, "/run/run-2")
    said = re.search(r'<p class="figures identity">(.*?)</p>', text, re.S)
    assert said
    assert re.sub("<[^>]+>", "", said[1]) == (
        f"user app · host web-3 · container {'3f2a' * 16} (etl:1.4) ·"
        f" BUILD_URL https://ci/?a=b&amp;c=&lt;d&gt; · trace {'4bf9' * 8}"
    )
    links = [link["href"] for link in Outline(said[1]).all("a")]
    assert links == [
        "/history?identity=uid%3D1000",
        f"/history?identity=container%3D{'3f2a' * 16}",
        "/history?identity=BUILD_URL%3Dhttps://ci/?a%3Db%26c%3D%3Cd%3E",
        f"/history?identity=trace%3D{'4bf9' * 8}",
    ]


def test_the_history_shows_what_tells_its_runs_apart(
    client: FlaskClient, history: FakeHistory
) -> None:
    history.rows = [
        summary(2, identity={"uid": "0", "user": "root", "BUILD_TAG": "etl-<42>"}),
        summary(1, identity={"uid": "7", "user": "app"}),
    ]
    text = page(client, "/history")
    assert '<th scope="col">Identity</th>' in text
    assert '<a href="/history?identity=BUILD_TAG%3Detl-%3C42%3E" ' in text
    assert ">job etl-&lt;42&gt;</a>" in text
    assert ">user app</a>" in text


def test_the_history_does_not_repeat_what_all_its_runs_have(
    client: FlaskClient, history: FakeHistory
) -> None:
    history.rows = [summary(n, identity={"uid": "0", "user": "root"}) for n in range(3)]
    assert "root" not in page(client, "/history")


def test_under_a_heading_that_names_the_kind_only_phones_repeat_it(
    client: FlaskClient, history: FakeHistory
) -> None:
    users = enumerate(("root", "app"))
    history.rows = [summary(n, identity={"uid": str(n), "user": user}) for n, user in users]
    text = page(client, "/history")
    assert '<th scope="col">User</th>' in text
    assert re.search(r'<span class="narrow">user </span><a href="[^"]+" [^>]+>app</a>', text)


def test_the_trace_of_a_run_is_shown_if_a_store_has_it(
    observer: FakeObserver, client: FlaskClient
) -> None:
    run = observer.seen[1]
    assert run.trace_id not in page(client, "/run/run-2")
    observer.seen[1] = replace(run, exported=True)
    assert f"run run-2 · trace {run.trace_id}</p>" in page(client, "/run/run-2")


def test_the_trace_of_a_job_is_shown_once(observer: FakeObserver, client: FlaskClient) -> None:
    job = ParentSpan("4bf9" * 8, "00f0" * 4, True)
    identity = Identity(host="web-3", boot_id="b007", trace=Trace(job.trace_id, job.span_id, True))
    known = replace(observer.seen[1], exported=True, identity=identity, parent_span=job)
    observer.seen[1] = known
    shown = re.sub("<[^>]+>", "", page(client, "/run/run-2").partition('id="data"')[0])
    assert shown.count(job.trace_id) == 1


def test_the_history_is_searched_by_what_identifies_runs(
    client: FlaskClient, history: FakeHistory
) -> None:
    page(client, "/history?identity=SLURM_JOB_ID%3D4711")
    assert history.asked["identity"] == "SLURM_JOB_ID=4711"
    assert "top_level" not in history.asked


def test_a_run_has_its_headline_stages_and_a_link_to_its_figures(client: FlaskClient) -> None:
    text = page(client, "/run/run-2")
    assert "10.0 s wall" in text
    assert re.findall(r'<th scope="row">(\w+)</th>', text) == ["yes", "head"]
    assert 'href="/api/v1/runs/run-2"' in text


def test_a_stage_that_did_not_succeed_shows_how_it_ended(
    client: FlaskClient, history: FakeHistory
) -> None:
    stages = [
        make_stage(1, "yes", exit=Exit(signal="SIGPIPE"), outcome="succeeded"),
        make_stage(2, "perl", exit=Exit(signal="SIGKILL"), outcome="failed"),
        make_stage(3, "cat", exit=Exit(signal="SIGTERM"), outcome="interrupted"),
    ]
    outcome = Outcome("failed", (1,))
    old = make_run(stages, 6.0, id="17-1", end=START + 6, outcome=outcome)
    history.stored["17-1"] = StoredRun(old, ())
    text = page(client, "/run/17-1")
    assert '<p class="verdict">Failed: perl was killed by SIGKILL; what follows' in text
    assert re.findall(r'<th scope="row">(.*)</th>', text) == [
        "yes",
        'perl <span class="failed">SIGKILL</span>',
        'cat <span class="interrupted">SIGTERM</span>',
    ]


def test_a_stage_that_waits_for_the_network_shows_the_port(
    client: FlaskClient, history: FakeHistory
) -> None:
    stages = [
        make_stage(1, "curl", net=3.0, cpu=3.0, peer_port=443, peer_family="ipv4"),
        make_stage(2, "cat", net=3.0, cpu=3.0),
    ]
    history.stored["17-1"] = StoredRun(make_run(stages, 6.0, id="17-1", end=START + 6), ())
    text = page(client, "/run/17-1").replace("\N{NO-BREAK SPACE}", " ")
    assert re.findall(r"<td[^>]*>(.*network.*)</td>", text) == [
        "on CPU 50 %, network (port 443) 50 %",
        "on CPU 50 %, network 50 %",
    ]


def data_of(text: str) -> Any:
    """What the page of a run has for its script."""
    found = re.search(r'<script type="application/json" id="data">(.*)</script>', text)
    assert found
    return json.loads(found[1])


def test_a_run_has_the_data_that_its_script_draws(client: FlaskClient) -> None:
    drawn = data_of(page(client, "/run/run-3"))
    assert [box["command"] for box in drawn["diagram"]["boxes"]] == ["cat", "awk"]
    assert (drawn["live"], len(drawn["timeline"])) == (True, 2)


def test_the_script_learns_how_long_ago_the_run_ended(
    observer: FakeObserver, client: FlaskClient
) -> None:
    assert data_of(page(client, "/run/run-3"))["seconds_since_end"] is None
    observer.seen[1] = replace(observer.seen[1], end=time.time() - 4)
    since_end = data_of(page(client, "/run/run-2"))["seconds_since_end"]
    assert since_end == pytest.approx(4, abs=60)


def test_a_page_that_was_opened_by_the_beginning_of_an_id_has_all_of_it(
    history: FakeHistory, client: FlaskClient
) -> None:
    stages = [make_stage(1, "zcat"), make_stage(2, "wc")]
    old = make_run(stages, 6.0, id="17-1", end=START + 6)
    history.stored["17-1"] = StoredRun(old, ())
    assert data_of(page(client, "/run/17"))["id"] == "17-1"


def test_the_name_of_a_live_run_is_in_parts_that_are_replaced(client: FlaskClient) -> None:
    """It changes when a stage joins."""
    script = (STATIC / "run.js").read_text()
    (parts,) = re.findall(r"for \(const id of (\[.*\])\) {", script)
    text = page(client, "/run/run-3")
    for part in json.loads(parts):
        assert text.count(f' id="{part}"') == 1, part
        text = re.sub(rf'<(\w+) id="{part}".*?</\1>', "", text, flags=re.DOTALL)
    kept = text.partition("<main")[2].partition('<script type="application/json"')[0]
    assert "Over time" in kept
    assert "awk" not in kept


def course(of: Run, *rows: tuple[dict[str, float], ...]) -> Timeline:
    """Points of a second; a row has for each stage its seconds by state, and 1 MB that it read."""
    return tuple(
        Point(
            of.start + number,
            of.start + number + 1,
            (0.5, 0.5, *[0.0] * (len(LEVELS) - 2)),
            tuple(StagePoint(states, 10**6, 1000) for states in row),
        )
        for number, row in enumerate(rows)
    )


def test_a_run_over_time_is_a_table_of_phases_for_those_without_a_script(
    client: FlaskClient, history: FakeHistory
) -> None:
    old = make_run([make_stage(1, "zcat"), make_stage(2, "wc")], 6.0, id="17-1", end=START + 6)
    reading = ({"disk": 1.0}, {"pipe_empty": 1.0})
    counting = ({"cpu": 0.9, "pipe_full": 0.1}, {"cpu": 1.0})
    history.stored["17-1"] = StoredRun(old, course(old, *[reading] * 2, *[counting] * 3, ({}, {})))
    table = page(client, "/run/17-1").split("<caption>Phases")[1].split("</table>")[0]
    assert re.findall(r'<th scope="col">([^<]* to [^<]*)</th>', table) == [
        "0 s to 2.0 s",
        "2.0 s to 5.0 s",
        "5.0 s to 6.0 s",
    ]
    rows = dict(re.findall(r'<th scope="row">(.*?)</th>(.*?)</tr>', table))
    cells = {name: re.findall("<td>(.*?)</td>", row) for name, row in rows.items()}
    assert cells == {
        "Stages on CPU at once": ["0.5", "0.5", "0.5"],
        "1 zcat": ["disk 100 %", "on CPU 90 %, pipe full 10 %", "not alive"],
        "2 wc": ["pipe empty 100 %", "on CPU 100 %", "not alive"],
        "Throughput of the stages": ["2.0 MB/s", "2.0 MB/s", "2.0 MB/s"],
    }


def test_a_stage_that_lived_for_a_moment_of_a_phase_was_alive(
    client: FlaskClient, history: FakeHistory
) -> None:
    old = make_run([make_stage(1, "seq"), make_stage(2, "wc")], 2.0, id="17-1", end=START + 2)
    history.stored["17-1"] = StoredRun(old, course(old, *[({"cpu": 0.003}, {"cpu": 1.0})] * 2))
    table = page(client, "/run/17-1").split("<caption>Phases")[1].split("</table>")[0]
    assert '<th scope="row">1 seq</th><td>alive &lt;1 %</td>' in table


def test_a_run_without_a_time_line_says_so(client: FlaskClient, history: FakeHistory) -> None:
    old = make_run([make_stage(1, "zcat"), make_stage(2, "wc")], 4.0, id="17-1", end=START + 4)
    history.stored["17-1"] = StoredRun(old, ())
    text = page(client, "/run/17-1")
    assert "This run has no time line." in text
    assert "<details" not in text


def sorting_run() -> StoredRun:
    """A run with a barrier, at which the reader waits for 8 s, and of which more is found."""
    stages = [
        make_stage(1, "cat", cpu=1.0, pipe_full=3.0, written_bytes=10**8, end=START + 4),
        make_stage(2, "sort", cpu=9.0, pipe_empty=1.0, read_bytes=10**8),
        make_stage(3, "tail", cpu=1.2, pipe_empty=8.8, read_bytes=10**8),
    ]
    run = make_run(stages, 10.0, id="17-1", end=START + 10)
    waiting = ({"pipe_full": 1.0}, {"cpu": 1.0}, {"pipe_empty": 1.0})
    passing = ({}, {"cpu": 1.0}, {"cpu": 0.6, "pipe_empty": 0.4})
    return StoredRun(run, course(run, *[waiting] * 8, *[passing] * 2))


def test_findings_are_numbered_and_those_that_show_in_the_time_line_are_marked_there(
    client: FlaskClient, history: FakeHistory
) -> None:
    history.stored["17-1"] = sorting_run()
    text = page(client, "/run/17-1")
    listed = re.findall(r'id="finding-(\d+)".*?About ([\w-]+)</a></li>', text, re.DOTALL)
    assert [number for number, _ in listed] == [str(n + 1) for n in range(len(listed))]
    numbers = {found: int(number) for number, found in listed}
    assert {"barrier", "sort-locale"} <= numbers.keys()

    marks = data_of(text)["marks"]
    (mark,) = [mark for mark in marks if mark["id"] == "barrier"]
    assert (mark["number"], mark["stage"]) == (numbers["barrier"], 2)
    assert (mark["start"], mark["end"]) == (START, START + 8)
    assert "When: tail 0 s to 8.0 s" in text
    left = [number for found, number in numbers.items() if found not in {m["id"] for m in marks}]
    assert len(left) == 1
    assert f"Finding {left[0]} is not marked: the time line does not show when" in text


def test_a_finished_run_comes_from_the_history(client: FlaskClient, history: FakeHistory) -> None:
    old = make_run([make_stage(1, "zcat"), make_stage(2, "wc")], 4.0, id="17-1", end=START + 4)
    history.stored["17-1"] = StoredRun(old, (point(old, 0),))
    assert "zcat|wc" in page(client, "/run/17-1")


def test_a_run_on_a_busy_host_shows_that_above_its_verdict(
    client: FlaskClient, observer: FakeObserver
) -> None:
    stages = [
        make_stage(1, "tar", cpu=1.0, pipe_full=9.0),
        make_stage(2, "gzip", cpu=5.2, runqueue=4.6),
    ]
    around = Surroundings(1.9, None)
    observer.seen[0] = make_run(stages, 10.0, id="run-3", end=START + 10, surroundings=around)
    text = page(client, "/run/run-3")
    before, notice, after = text.partition('<p class="notice">The host was busy: gzip waited 46 %')
    assert notice
    assert "figures" in before
    assert 'class="verdict"' in after
    assert "notice" not in page(client, "/run/run-2")


def test_a_run_shows_its_findings(client: FlaskClient, observer: FakeObserver) -> None:
    sorting = make_run(
        [
            make_stage(1, "cat", cpu=1.0, pipe_full=3.0, written_bytes=10**8, end=START + 4),
            make_stage(2, "sort", cpu=9.0, pipe_empty=1.0, read_bytes=10**8),
            make_stage(3, "uniq", cpu=0.2, pipe_empty=9.8, read_bytes=10**8),
        ],
        10.0,
        id="sorting",
        end=START + 10,
    )
    observer.seen.append(sorting)
    assert 'href="/findings#' in page(client, "/run/sorting")


@pytest.mark.parametrize("path", ["/run/nothing", "/compare?a=nothing&b=run-1"])
def test_an_unknown_run_has_a_page_that_says_so(client: FlaskClient, path: str) -> None:
    answer = client.get(path, headers=BROWSER)
    assert answer.status_code == 404
    assert "there is no run nothing" in answer.text


HOSTILE = "</script><img src=x onerror=alert(1)>"


def test_names_are_shown_as_text_and_never_run(
    client: FlaskClient, observer: FakeObserver, history: FakeHistory
) -> None:
    ill = run(7, f"cat|{HOSTILE.replace('|', '')}", live=False)
    observer.seen.append(ill)
    history.rows = [summary(7, pipeline=HOSTILE, unit=HOSTILE, bottleneck=HOSTILE)]
    one = replace(
        PIPELINE, series=Series(pipeline=HOSTILE, nested=False, unit=HOSTILE), bottleneck=HOSTILE
    )
    history.found = pipelines(one)
    for path in ("/history", "/pipelines", "/run/run-7", "/compare?a=run-7&b=run-7"):
        text = page(client, path)
        assert "<img" not in text
        assert "onerror" in text


def test_command_lines_are_not_on_a_page_unless_the_daemon_shows_them(
    observer: FakeObserver,
) -> None:
    for show in (False, True):
        app = create_app(observer, host=HOST, show_arguments=show)  # type: ignore[arg-type]
        assert ("hunter2" in page(app.test_client(), "/run/run-3")) == show


def test_a_command_to_try_is_on_a_page_only_with_command_lines() -> None:
    stages = [
        make_stage(1, "grep", cpu=8.0, system_seconds=1.0, arguments="grep 'a b' f"),
        make_stage(2, "wc", cpu=2.0, read_bytes=1 << 24, arguments="wc -l"),
    ]
    observer = FakeObserver(replace(make_run(stages, 10.0), id="run-9", end=START + 10))
    for show in (False, True):
        app = create_app(observer, host=HOST, show_arguments=show)  # type: ignore[arg-type]
        text = page(app.test_client(), "/run/run-9")
        assert "grep -c in place of grep | wc -l" in text
        assert ("<code>pipelined compare " in text) == show


# -- what findings mean


def test_each_finding_that_is_documented_has_its_anchor(client: FlaskClient) -> None:
    text = page(client, "/findings")
    assert " style=" not in text
    outline = Outline(text)
    anchors = {heading["id"] for heading in outline.all("h2")}
    named = {str(link["href"])[1:] for link in outline.all("a") if str(link["href"])[0] == "#"}
    assert "barrier" in named
    assert named <= {*anchors, "main"}


def test_the_documentation_has_no_dead_links(client: FlaskClient) -> None:
    main = page(client, "/findings").split("<main")[1].split("</main>")[0]
    assert all(str(a["href"]).startswith(("#", "https:")) for a in Outline(main).all("a"))


# -- two runs


def test_two_runs_stand_side_by_side(client: FlaskClient) -> None:
    text = page(client, "/compare?a=run-1&b=run-2")
    links = [link["href"] for link in Outline(text).all("a")]
    assert {"/run/run-1", "/run/run-2"} <= set(links)
    assert "/compare?a=run-2&b=run-1" in links


def test_two_checked_runs_lead_to_their_comparison(client: FlaskClient) -> None:
    answer = client.get("/compare?run=run-1&run=run-2")
    assert answer.status_code == 303
    assert answer.headers["Location"] == "/compare?a=run-1&b=run-2"


@pytest.mark.parametrize("query", ["", "?a=run-1", "?run=run-1"])
def test_fewer_than_two_runs_cannot_be_compared(client: FlaskClient, query: str) -> None:
    answer = client.get(f"/compare{query}", headers=BROWSER)
    assert answer.status_code == 400
    assert "choose two runs to compare" in answer.text


def test_more_than_two_runs_cannot_be_compared(client: FlaskClient) -> None:
    answer = client.get("/compare?run=1&run=2&run=3")
    assert "'run' is given 3 times" in answer.get_json()["error"]["message"]


def test_a_comparison_is_also_json(client: FlaskClient) -> None:
    comparison = client.get("/api/v1/compare?a=run-1&b=run-2").get_json()
    assert [side["run"] for side in comparison["sides"]] == ["run-1", "run-2"]
    assert comparison["verdict"]


def test_caveats_of_a_comparison_are_shown(client: FlaskClient, observer: FakeObserver) -> None:
    observer.seen.append(replace(run(9, live=False), partial=True))
    assert "Note: B is partial" in page(client, "/compare?a=run-1&b=run-9")
