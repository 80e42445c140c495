# SPDX-License-Identifier: Apache-2.0
"""The pages in a real browser, against a real daemon under real pipelines.

The tests look for what a person would look for. Pipelines live until a test ends them; a test waits
until the page shows what it expects.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise, starmap
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from e2e.conftest import Daemon, StartDaemon, wait_until
from pipelined.runs import Edge, Run, Series, Surroundings
from pipelined.web.live_events import MAX_STREAMS, MIN_AGE, Now
from unit.invented import START, make_run, make_stage
from unit.observed import HOST, FakeObserver

Tool = Callable[[str], str]

#: Milliseconds until what a page should show must be there: CI has two slow CPUs.
PATIENCE = 60_000
PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests here. Without Chromium the tests are skipped, or in CI fail."""
    chromium = shutil.which("chromium")
    if chromium is None:
        reason = "chromium is not installed; make test installs it"
        if os.environ.get("PIPELINED_REQUIRE_BPF") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        # These tests run as root, where Chromium has no sandbox, and in containers, which have
        # little shared memory.
        flags = ["--no-sandbox", "--disable-dev-shm-usage"]
        found = playwright.chromium.launch(
            executable_path=chromium, args=flags, timeout=2 * PATIENCE
        )
        yield found
        found.close()


class Complaints(list[str]):
    """The errors that the browser reports about the pages of a test."""

    def listen(self, page: Page) -> Page:
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: self.append(str(error)))
        page.on("console", lambda m: self.append(m.text) if m.type == "error" else None)
        return page


@pytest.fixture
def complaints() -> Iterator[Complaints]:
    found = Complaints()
    yield found
    assert found == []


OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser, complaints: Complaints) -> Iterator[OpenPage]:
    """Opens a page in a context of its own, with options such as `viewport`."""
    opened = []

    def open_one(url: str, **options: Any) -> Page:
        context = browser.new_context(**options)
        opened.append(context)
        page = complaints.listen(context.new_page())
        page.goto(url)
        return page

    yield open_one
    for context in opened:
        context.close()


@pytest.fixture
def start_job() -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Starts pipelines in the background; those that still run end with the test."""
    jobs: list[subprocess.Popen[bytes]] = []

    def start(script: str) -> subprocess.Popen[bytes]:
        jobs.append(subprocess.Popen(["bash", "-c", script], start_new_session=True))
        return jobs[-1]

    yield start
    for job in jobs:
        end(job)


def end(job: subprocess.Popen[bytes]) -> None:
    if job.poll() is None:
        os.killpg(job.pid, signal.SIGKILL)
    job.wait()


StartJob = Callable[[str], subprocess.Popen[bytes]]


def name(*commands: str) -> str:
    return "|".join(Path(command).name for command in commands)


@pytest.fixture
def slow_awk(tool: Tool, start_job: StartJob) -> tuple[str, subprocess.Popen[bytes]]:
    """A pipeline whose second stage is the slow one: its signature, and the job."""
    yes, awk, cat = tool("yes"), tool("awk"), tool("cat")
    slow = "{ for (i = 0; i < 50; i++) n += i } NR % 1000 == 0 { print n }"
    return name(yes, awk, cat), start_job(f"{yes} | {awk} '{slow}' | {cat} > /dev/null")


def row(page: Page, pipeline: str) -> Locator:
    """The row of a live run."""
    return page.locator("article.run:not(.ended)").filter(
        has=page.get_by_role("button", name=pipeline, exact=True)
    )


def card(page: Page, pipeline: str) -> Locator:
    """The row of a live run, opened."""
    found = row(page, pipeline)
    found.get_by_role("button", name=pipeline, exact=True).click()
    return found


def sorted_once(daemon: Daemon, tool: Tool, log_file: Path, times: int = 3) -> dict[str, Any]:
    """A finished run of a pipeline with a real sort in it, of the file `times` times."""
    cat, uniq = tool("cat"), tool("uniq")
    files = f"{log_file} " * times
    subprocess.run(f"{cat} {files}| sort -R | {uniq} -c > /dev/null", shell=True, check=True)
    return daemon.wait_for_runs(f"{name(cat)}|sort|{name(uniq)}", 1)[0]


# -- now


def test_stages_stand_in_the_order_of_the_data(
    daemon: Daemon, open_page: OpenPage, slow_awk: tuple[str, Any]
) -> None:
    page = open_page(daemon.url)
    shown = card(page, slow_awk[0])
    expect(shown.locator(".box .head b")).to_have_text(slow_awk[0].split("|"))
    lefts = [box.bounding_box() for box in shown.locator(".box").all()]
    assert all(a and b and a["x"] < b["x"] for a, b in pairwise(lefts))


def test_the_slow_stage_is_marked_and_the_pipe_before_it_is_full(
    daemon: Daemon, open_page: OpenPage, slow_awk: tuple[str, Any]
) -> None:
    shown = card(open_page(daemon.url), slow_awk[0])
    expect(shown.locator(".box.bottleneck .head b")).to_have_text(slow_awk[0].split("|")[1])
    expect(shown.locator(".box.bottleneck .mark")).to_have_text("bottleneck")
    expect(shown.locator(".pipe-state").nth(0)).to_have_text(re.compile(r"^full \d+ %$"))
    expect(shown.locator(".pipe-state").nth(1)).to_have_text(re.compile(r"^empty \d+ %$"))
    expect(shown.locator(".pipe-speed").nth(0)).to_have_text(re.compile(r"[kMG]B/s$"))


def test_pictures_are_updated(
    daemon: Daemon, open_page: OpenPage, slow_awk: tuple[str, Any]
) -> None:
    shown = card(open_page(daemon.url), slow_awk[0])
    expect(shown.locator(".chart")).to_have_attribute("data-points", re.compile(r"^[4-9]$|\d\d"))
    bars = shown.locator(".box").nth(1).get_by_role("img")
    expect(bars).to_have_count(2)
    expect(bars.first).to_have_attribute("aria-label", re.compile(r"^now: .*on CPU \d+ %"))


def test_parallel_branches_stand_one_above_the_other(
    daemon: Daemon, open_page: OpenPage, tool: Tool, start_job: StartJob
) -> None:
    yes, tee, wc, gzip = tool("yes"), tool("tee"), tool("wc"), tool("gzip")
    start_job(f"{yes} | {tee} >({gzip} > /dev/null) | {wc} -l")
    page = open_page(daemon.url)
    page.get_by_role("button", name=Path(wc).name).click()
    column = page.locator(".column", has=page.get_by_text(Path(wc).name, exact=True))
    expect(column.locator(".head b")).to_have_text([Path(gzip).name, Path(wc).name])


def test_a_run_that_ends_moves_to_the_finished_ones(
    daemon: Daemon, open_page: OpenPage, slow_awk: tuple[str, subprocess.Popen[bytes]]
) -> None:
    page = open_page(daemon.url)
    expect(row(page, slow_awk[0])).to_have_count(1)
    end(slow_awk[1])
    ended = page.locator("article.ended", has=page.get_by_role("button", name=slow_awk[0]))
    expect(ended.locator(".age")).to_have_text(re.compile(", ended$"))
    expect(ended).to_have_count(0)
    expect(page.locator("#recent").get_by_role("link", name=slow_awk[0])).to_be_visible()


def test_page_top_runs_and_api_agree_on_nested_pipelines(
    start_daemon: StartDaemon,
    open_page: OpenPage,
    program: str,
    tool: Tool,
    start_job: StartJob,
    tmp_path: Path,
) -> None:
    state = ["--state-directory", str(tmp_path / "state")]
    daemon = start_daemon(*state)
    seq, sort, yes, cat, tee = map(tool, ("seq", "sort", "yes", "cat", "tee"))
    script = tmp_path / f"job{os.getpid()}.sh"
    outer, short, long = name(str(script), tee), name(seq, sort), name(yes, cat)
    script.write_text(
        f"#!/bin/bash\n{yes} | {cat} > /dev/null &\n"
        f"while :; do {seq} 50000 | {sort} -n; sleep 0.1; done\n"
    )
    script.chmod(0o755)

    def lines(*words: str) -> list[str]:
        """The lines of a command's table that are about the job."""
        environment = {**os.environ, "COLUMNS": "200", "LC_ALL": "C.UTF-8"}
        done = subprocess.run([program, *words], env=environment, capture_output=True, check=True)
        listed = done.stdout.decode().splitlines()
        return [line for line in listed if any(one in line for one in (outer, short, long))]

    def top() -> list[str]:
        return lines("top", "--once", "--interval", "0.2", "--url", daemon.url)

    def depth(shown: Locator) -> int:
        return int(shown.get_attribute("data-depth") or 0)

    page = open_page(daemon.url)
    job = start_job(f"{script} | {tee} {tmp_path}/log > /dev/null")

    # While the job lives, the live one stands under it, and the finished ones name it.
    below = row(page, outer).locator("xpath=following-sibling::article[1]//h3")
    expect(below).to_have_text(f"{long} inside {outer}")
    # The tests may themselves be in a pipeline.
    assert depth(row(page, long)) == depth(row(page, outer)) + 1
    page.locator("#short summary").click()
    several = re.compile(rf"^[1-9]\d* × {re.escape(short)}$")
    expect(page.locator("#short li", has_text=several)).to_have_count(1)
    around, *inner = wait_until(
        lambda: shown if "×" in (shown := top())[-1] else None, "several in one line"
    )
    indents = [re.match("[ └]*", line)[0] for line in (around, inner[0])]  # type: ignore[index]
    assert len(indents[1]) == len(indents[0]) + 2
    assert inner[0].lstrip().startswith(f"└ {long} ")
    assert f" × {short} in {outer} " in inner[-1]
    (run,) = daemon.runs(outer)
    for nested in (*daemon.runs(short), *daemon.runs(long)):
        assert (nested["parent"], nested["parent_pipeline"]) == (run["id"], outer)

    # Once it has ended, they all stand under it in the history.
    end(job)
    began = run["start_timestamp_seconds"]
    during = {"since": str(began), "until": str(began + 1)}
    flags = [*state, "--limit", "1000", *(f"--{key}={value}" for key, value in during.items())]
    wait_until(lambda: len(lines("runs", *flags)) == 3, "all of them to be stored")
    around, *inner = lines("runs", *flags)
    assert around.split()[0] == run["id"]
    everything = urllib.parse.urlencode({**during, "min_duration": "0", "top_level": "false"})
    page.goto(f"{daemon.url}/history?{everything}")
    rows = page.locator(f'tr[data-run="{run["id"]}"], tr[data-run="{run["id"]}"] ~ tr').locator(
        "th"
    )
    shown = rows.all_text_contents()[:3]
    assert [depth(row) - depth(rows.first) for row in rows.all()[:3]] == [0, 1, 1]
    assert shown[0].startswith(outer)
    assert [
        f"└ {text.removesuffix(f' inside {outer}')} " in line
        for text, line in zip(shown[1:], inner, strict=True)
    ] == [True, True]
    query = urllib.parse.urlencode({**during, "limit": 1000})
    stored = json.loads(daemon.get(f"/api/v1/runs?{query}"))["runs"]
    parents = {one["parent"] for one in stored if one["pipeline"] in (short, long)}
    assert parents == {run["id"]}


def test_finished_runs_are_shown_with_their_findings(
    daemon: Daemon, open_page: OpenPage, tool: Tool, log_file: Path
) -> None:
    run = sorted_once(daemon, tool, log_file, times=8)
    assert run["wall_seconds"] >= MIN_AGE  # shorter ones are summed up
    line = open_page(daemon.url).locator(f'#recent tr[data-run="{run["id"]}"]')
    expect(line.get_by_role("link", name="barrier")).to_be_visible()


def test_if_nothing_runs_it_says_what_to_do(
    start_daemon: StartDaemon, open_page: OpenPage, complaints: Complaints
) -> None:
    # Something always runs on a host, so the page gets an invented answer.
    page = open_page("about:blank")
    page.route("**/api/v1/events", lambda route: route.abort())
    empty = Now(FakeObserver(), HOST).moment().text  # type: ignore[arg-type]
    page.route("**/api/v1/now", lambda route: route.fulfill(body=empty))
    page.goto(start_daemon().url)
    expect(page.get_by_text("No pipeline is running. Run one on this host")).to_be_visible()
    expect(page.get_by_text("None yet. A pipeline is listed here")).to_be_visible()
    assert all("ERR_FAILED" in complaint for complaint in complaints)
    complaints.clear()


def test_names_are_only_ever_text(
    daemon: Daemon, open_page: OpenPage, start_job: StartJob, tmp_path: Path
) -> None:
    hostile = tmp_path / "<b id=ill>x"
    hostile.symlink_to(os.path.realpath(shutil.which("yes") or ""))
    start_job(f"'{hostile}' | cat > /dev/null")
    page = open_page(daemon.url)
    page.get_by_role("button", name=hostile.name).click()
    expect(page.locator(".box .head b").filter(has_text=hostile.name)).to_be_visible()
    assert page.locator("#ill").count() == 0


def test_one_page_too_many_polls(
    start_daemon: StartDaemon,
    open_page: OpenPage,
    complaints: Complaints,
    slow_awk: tuple[str, Any],
) -> None:
    daemon = start_daemon()
    streams = [urllib.request.urlopen(f"{daemon.url}/api/v1/events") for _ in range(MAX_STREAMS)]
    try:
        page = open_page(daemon.url)
        expect(page.get_by_role("status")).to_contain_text("Updated every 2 seconds")
        expect(row(page, slow_awk[0])).to_have_count(1)
    finally:
        for stream in streams:
            stream.close()
    # The browser itself logs that a stream was refused.
    assert all("503" in complaint for complaint in complaints)
    complaints.clear()


def test_a_lost_connection_is_shown_and_restored(
    start_daemon: StartDaemon,
    open_page: OpenPage,
    complaints: Complaints,
    slow_awk: tuple[str, Any],
) -> None:
    daemon = start_daemon()
    page = open_page(daemon.url)
    status = page.get_by_role("status")
    expect(status).to_have_text("Live: updated every second.")
    daemon.stop(signal.SIGKILL)
    expect(status).to_have_text(
        re.compile(r"^Lost the connection to the daemon at \d\d:\d\d:\d\d; trying again\.$")
    )
    start_daemon(address=daemon.url.removeprefix("http://"))
    expect(status).to_have_text(re.compile(r"^Live: .* Connected again since \d\d:\d\d:\d\d"))
    expect(card(page, slow_awk[0])).to_contain_text("partial")
    # The browser itself logs each request without an answer.
    assert all("ERR_" in complaint or "503" in complaint for complaint in complaints)
    complaints.clear()


@pytest.mark.undisturbed
def test_it_stops_within_a_second_while_pages_are_open(
    start_daemon: StartDaemon, open_page: OpenPage, complaints: Complaints, in_memory: Path
) -> None:
    daemon = start_daemon("--state-directory", str(in_memory))
    page = open_page(daemon.url)
    expect(page.get_by_role("status")).to_have_text("Live: updated every second.")
    assert daemon.stop() < 1
    assert daemon.process.returncode == 0
    assert "Traceback" not in daemon.log.read_text()
    page.close()
    complaints.clear()


# -- now, with invented runs: many, and what they do is known


#: Takes the place of the stream of events: a test sends them by calling `feed`.
FEED = """
window.EventSource = class extends EventTarget {
  constructor() {
    super();
    window.feed = (text) => this.dispatchEvent(new MessageEvent("now", { data: text }));
  }
  close() {}
};
"""
#: Counts the elements that are added to the list of live runs, and removed from it.
COUNT_ELEMENTS = """() => {
  window.changed = 0;
  const isElement = (node) => node.nodeType === Node.ELEMENT_NODE;
  new MutationObserver((records) => {
    for (const { addedNodes, removedNodes } of records) {
      window.changed += [...addedNodes, ...removedNodes].filter(isElement).length;
    }
  }).observe(document.getElementById("live"), { childList: true, subtree: true });
}"""
#: The CPU time (`threadTicks`) that the page's scripts, styles and layout have taken so far.
WORK = ("ScriptDuration", "RecalcStyleDuration", "LayoutDuration")
SIX = "zcat|grep|awk|sort|uniq|tee"


def invented(number: int, seconds: float = 10.0, pipeline: str = SIX, **given: Any) -> Run:
    """A run, live for `seconds`. The later its stage, the longer it waits."""
    commands = pipeline.split("|")
    stages = []
    for position, command in enumerate(commands, 1):
        asleep = seconds * position / (len(commands) + 1)
        moved = int(1e7 * (seconds - asleep))
        times = {"cpu": seconds - asleep, "pipe_empty": asleep}
        stages.append(make_stage(position, command, read_bytes=moved, written_bytes=moved, **times))
    return make_run(stages, seconds, **{"id": f"run-{number}", "start": START + number} | given)


def branching(number: int, seconds: float = 10.0) -> Run:
    """A tee into two branches, which a join reads, and a cat that also reads what tee writes."""
    series = Series(pipeline="tee|(gzip,wc)|join|cat", nested=False, unit="-")
    run = invented(number, seconds, "tee|gzip|wc|join|cat", series=series)
    edges = tuple(starmap(Edge, [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (0, 4)]))
    return replace(run, edges=edges)


def within(run: Run, outer: Run) -> Run:
    series = replace(run.series, nested=True)
    return replace(run, series=series, parent=outer.id, parent_pipeline=outer.pipeline)


def fifty(seconds: float) -> list[Run]:
    return [invented(number, seconds - number / 100) for number in range(50)]


Feed = Callable[..., None]


@pytest.fixture
def open_fed_page(daemon: Daemon, open_page: OpenPage) -> Callable[..., tuple[Page, Feed]]:
    """Opens the live page. It shows what the second value, a function, is called with."""

    def open_one(**options: Any) -> tuple[Page, Feed]:
        page = open_page("about:blank", **options)
        page.add_init_script(FEED)
        page.route("**/api/v1/runs/*", lambda route: route.fulfill(json={"timeline": []}))
        observer, times = FakeObserver(), itertools.count(1)
        now = Now(observer, HOST, lambda: 4.0 * next(times))  # type: ignore[arg-type]
        # Asked for if no event comes for a while.
        page.route("**/api/v1/now", lambda route: route.fulfill(body=now.moment().text))
        page.goto(daemon.url)

        def feed(*runs: Run, short: dict[str, int] | None = None, after: float = 1) -> None:
            observer.seen, observer.short = list(runs), short or {}
            observer.sweep_stats.last_time += after
            page.evaluate("text => window.feed(text)", now.moment().text)

        return page, feed

    return open_one


OpenFedPage = Callable[..., tuple[Page, Feed]]


def names(page: Page) -> list[str]:
    return page.locator("article.run .opener .name").all_text_contents()


def tops(found: Locator) -> list[float]:
    return [box["y"] for one in found.all() if (box := one.bounding_box())]


def test_fifty_live_pipelines_are_a_line_each(open_fed_page: OpenFedPage) -> None:
    page, feed = open_fed_page(viewport={"width": 1400, "height": 900})
    feed(*fifty(60.0))
    lines = page.locator("article.run > .line")
    expect(lines).to_have_count(50)
    heights = [box["height"] for line in lines.all() if (box := line.bounding_box())]
    assert max(heights) < 60
    first = page.locator("article.run").first
    expect(first.locator(".age")).to_have_text("60.0 s")
    expect(first.locator(".held")).to_have_text(re.compile("^zcat .*"))
    expect(first.locator(".stage .command")).to_have_text(SIX.split("|"))
    bar = first.get_by_role("img").first
    assert bar.get_attribute("aria-label") == "zcat: on CPU 86 %, pipe empty 14 %"


def test_an_opened_row_names_a_busy_host_above_its_verdict_while_it_is_busy(
    open_fed_page: OpenFedPage,
) -> None:
    def queued(seconds: float, others: float) -> Run:
        cat = make_stage(1, "cat", cpu=0.4, pipe_full=seconds - 0.4)
        gzip = make_stage(2, "gzip", cpu=0.54 * seconds, runqueue=0.46 * seconds)
        return make_run([cat, gzip], seconds, id="run-0", surroundings=Surroundings(others, 0.0))

    page, feed = open_fed_page()
    feed(queued(10.0, HOST.cores - 0.6))
    row = page.locator("article.run")
    row.get_by_role("button", name="cat|gzip").click()
    notice = row.locator(".notice")
    expect(notice).to_have_text(
        "The host was busy: gzip waited 46 % of the run for a CPU that others used, which cost"
        " at most 4.6 s of 10.0 s."
    )
    notice_box, verdict_box = notice.bounding_box(), row.locator(".verdict").bounding_box()
    assert notice_box and verdict_box and notice_box["y"] < verdict_box["y"]
    feed(queued(12.0, 0.0))
    expect(notice).to_have_count(0)


def test_an_update_of_fifty_pipelines_changes_what_is_there(open_fed_page: OpenFedPage) -> None:
    page, feed = open_fed_page(viewport={"width": 1400, "height": 900})
    feed(*fifty(60.0))
    feed(*fifty(60.5))
    opened = page.locator("article.run").nth(20)
    opened.get_by_role("button", name=SIX).click()
    expect(opened.locator(".box")).to_have_count(6)
    page.mouse.wheel(0, 600)
    feed(*fifty(61.0))
    page.evaluate(COUNT_ELEMENTS)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def worked() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return sum(one["value"] for one in metrics if one["name"] in WORK)

    scrolled, so_far = page.evaluate("scrollY"), [worked()]
    assert scrolled > 0
    for update in range(20):
        feed(*fifty(61.5 + update / 2))
        so_far.append(worked())
    # without the longest: where the host stalls, the thread's time goes on
    *usual, _ = sorted(after - before for before, after in pairwise(so_far))
    expect(page.locator("article.run .age").first).to_have_text("71.0 s")
    assert page.evaluate("changed") == 0
    assert page.evaluate("scrollY") == scrolled
    expect(opened.locator(".box").first).to_be_visible()
    # They could come twice a second and leave most of a CPU to others.
    took = sum(usual) / len(usual)
    assert took < 0.1, f"{took * 1e3:.1f} ms of scripts, styles and layout per update"


def test_longest_first_and_nested_below_what_encloses_them(open_fed_page: OpenFedPage) -> None:
    page, feed = open_fed_page()
    job, old = invented(2, 50, "job.sh|tee"), invented(1, 60, "yes|cat")
    feed(invented(4, 20, "seq|wc"), within(invented(3, 30, "zcat|sort"), job), job, old)
    assert names(page) == ["yes|cat", "job.sh|tee", "zcat|sort", "seq|wc"]
    nested = page.locator("article.run").nth(2)
    assert nested.get_attribute("data-depth") == "1"
    expect(nested.locator("h3")).to_have_text("zcat|sort inside job.sh|tee")


def test_what_is_in_view_stays_where_it_is_when_runs_begin_and_end(
    open_fed_page: OpenFedPage,
) -> None:
    page, feed = open_fed_page(viewport={"width": 1400, "height": 700})
    runs = fifty(60.0)
    feed(*runs)
    seen = page.locator('[data-run="run-30"]')
    seen.scroll_into_view_if_needed()
    assert page.evaluate("scrollY") > 0
    page.wait_for_function("() => new Promise((done) => requestAnimationFrame(() => done(true)))")
    (before,) = tops(seen)
    feed(*runs, within(invented(60, 5.0, "seq|sort"), runs[2]), invented(61, 5.0, "yes|cat"))
    assert names(page)[3] == "seq|sort"
    assert names(page)[-1] == "yes|cat"
    assert tops(seen) == [pytest.approx(before, abs=1)]
    # Rows that ended leave later, above it and below it.
    feed(*runs[5:40])
    expect(page.locator("article.ended")).to_have_count(17)
    assert tops(seen) == [pytest.approx(before, abs=1)]
    expect(page.locator("article.ended")).to_have_count(0)
    assert tops(seen) == [pytest.approx(before, abs=1)]


def test_what_a_script_runs_again_takes_the_place_of_what_ended(
    open_fed_page: OpenFedPage,
) -> None:
    page, feed = open_fed_page()
    job, other = invented(1, 50, "job.sh|tee"), invented(2, 40, "yes|cat")
    parts = [within(invented(number, 2, "seq|sort"), job) for number in (3, 4)]
    feed(job, parts[0], other)
    before = tops(page.locator('[data-run="run-2"]'))
    feed(job, parts[1], other)
    shown = page.locator("article.run").all()
    assert [row.get_attribute("data-run") for row in shown] == ["run-1", "run-4", "run-2"]
    assert tops(page.locator('[data-run="run-2"]')) == before


def test_a_row_that_ended_stays_while_it_is_open_or_under_the_pointer(
    open_fed_page: OpenFedPage,
) -> None:
    page, feed = open_fed_page()
    one, two, three = (invented(number, 9, f"{name}|wc") for number, name in enumerate("abc"))
    feed(one, two, three)
    card(page, "a|wc")
    page.locator("article.run").nth(1).hover()
    places = tops(page.locator("article.run"))
    feed(three)
    page.wait_for_timeout(6_500)
    assert tops(page.locator("article.run")) == places
    page.mouse.move(0, 0)
    expect(page.locator("article.run")).to_have_count(2)
    assert names(page) == ["a|wc", "c|wc"]
    page.get_by_role("button", name="a|wc").click()
    page.evaluate("document.activeElement.blur()")
    page.mouse.move(0, 0)
    expect(page.locator("article.run")).to_have_count(1)


def test_an_opened_row_stays_where_more_are_running_than_are_listed(
    open_fed_page: OpenFedPage,
) -> None:
    page, feed = open_fed_page()
    runs = [invented(number, 90.0) for number in range(70)]
    others = [run for run in runs if run.id != "run-5"]
    feed(*runs)
    opened = page.locator('article[data-run="run-5"]')
    button = opened.get_by_role("button", name=SIX)
    button.click()
    expect(opened.locator(".box")).to_have_count(6)
    feed(*others)
    expect(page.locator("#more")).to_have_text(re.compile("^9 more are running"))
    expect(opened.locator(".age")).to_have_text("90.0 s, no longer listed")
    expect(opened.locator(".box").first).to_be_visible()
    button.click()
    page.evaluate("document.activeElement.blur()")
    feed(*others)
    expect(opened).to_have_count(0)


def test_the_chart_of_a_row_begins_again_where_events_were_missed(
    open_fed_page: OpenFedPage,
) -> None:
    page, feed = open_fed_page()
    feed(invented(1, 60.0))
    chart = card(page, SIX).locator(".chart")
    for seconds in (61.0, 62.0, 63.0):
        feed(invented(1, seconds))
    expect(chart).to_have_attribute("data-points", "3")
    with page.expect_request("**/api/v1/runs/run-1"):
        feed(invented(1, 163.0), after=100)
    feed(invented(1, 164.0))
    expect(chart).to_have_attribute("data-points", "2")
    expect(chart.locator(".axis span").first).to_have_text("1 s ago")


def test_a_finished_run_keeps_the_focus_while_others_end(open_fed_page: OpenFedPage) -> None:
    page, feed = open_fed_page()
    job = invented(0, 50.0, "job.sh|tee")
    one = within(invented(1, 9.0, "seq|sort", end=START + 10), job)
    other = invented(2, 9.0, "yes|cat", end=START + 11)
    lines = page.locator("#recent tr")
    link = lines.get_by_role("link", name="seq|sort")
    feed(job, one)
    link.focus()
    feed(job, one, other)
    expect(lines).to_have_count(2)
    expect(link).to_be_focused()
    # One more of its line, which moves up.
    more = within(invented(8, 4.0, "seq|sort", end=START + 12), job)
    feed(job, one, other, more)
    expect(lines.first).to_contain_text("2 × seq|sort inside job.sh|tee")
    expect(link).to_be_focused()


def test_the_keyboard_opens_a_row_and_stays_on_it(open_fed_page: OpenFedPage) -> None:
    page, feed = open_fed_page()
    feed(*fifty(60.0))
    button = page.get_by_role("button", name=SIX).nth(3)
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-expanded", "true")
    opened = page.locator(f"#{button.get_attribute('aria-controls')}")
    expect(opened.get_by_role("link", name=SIX)).to_be_visible()
    feed(*fifty(61.0))
    expect(button).to_be_focused()
    expect(opened).to_be_visible()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-expanded", "false")
    expect(opened).to_be_hidden()


def test_short_runs_are_one_line_that_opens(open_fed_page: OpenFedPage) -> None:
    page, feed = open_fed_page()
    feed(short={"script|tr": 300, "seq|sort": 12})
    line = page.locator("#short summary")
    text = (
        "In the last minute 312 runs of less than 1 s, of 2 pipelines; most often script|tr (300)."
    )
    expect(line).to_have_text(text)
    line.click()
    feed(short={"script|tr": 301, "seq|sort": 12})
    expect(page.locator("#short li")).to_have_text(["301 × script|tr", "12 × seq|sort"])
    link = page.get_by_role("link", name="script|tr")
    assert link.get_attribute("href") == "/history?pipeline=script%7Ctr"
    feed()
    expect(line).to_be_hidden()


WIDTHS = (360, 700, 1400, 2560)
#: The labels of pipes that cover the edge of a box, or another label.
COVERED = """() => {
  const rects = (selector) =>
    [...document.querySelectorAll(selector)].map((one) => [one, one.getBoundingClientRect()]);
  const meet = (a, b) =>
    a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const labels = rects(".pipe-state, .pipe-speed").filter(([one]) => one.textContent.trim());
  return labels.flatMap(([label, at]) =>
    [...rects(".box"), ...labels.filter(([other]) => other !== label)]
      .filter(([, other]) => meet(at, other))
      .map(([other]) => `${label.textContent} on ${other.textContent}`));
}"""


@pytest.mark.parametrize("width", WIDTHS)
def test_labels_of_pipes_cover_no_box_and_nothing_scrolls_sideways(
    open_fed_page: OpenFedPage, width: int
) -> None:
    page, feed = open_fed_page(viewport={"width": width, "height": 900})
    long = "|".join(f"{number:02}-{'x' * 12}" for number in range(12))
    runs = [invented(1), branching(2), invented(3, pipeline=long), invented(4, pipeline="yes|cat")]
    assert len(long) > 190
    feed(*runs)
    for button in page.locator(".opener").all():
        button.click()
    feed(*runs)
    expect(page.locator(".box")).to_have_count(6 + 5 + 12 + 2)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(COVERED) == []


def test_stages_stand_side_by_side_as_long_as_they_fit_then_on_the_next_line(
    open_fed_page: OpenFedPage,
) -> None:
    page, feed = open_fed_page(viewport={"width": 1400, "height": 900})
    feed(invented(1))
    boxes = card(page, SIX).locator(".box")
    expect(boxes).to_have_count(6)
    assert len(set(tops(boxes))) == 1
    page.set_viewport_size({"width": 800, "height": 900})
    page.wait_for_function("() => document.querySelector('.picture').matches('.wraps')")
    lines = tops(boxes)
    assert lines == sorted(lines)
    assert len(set(lines)) == 2
    places = [box["x"] for one in boxes.all() if (box := one.bounding_box())]
    first = lines.count(lines[0])
    assert places[:first] == sorted(places[:first])
    assert places[first:] == places[: 6 - first]


# -- the history, a run, two runs


def search(page: Page, daemon: Daemon, *runs: dict[str, Any]) -> None:
    """Search the history for runs of one pipeline, once they are in it."""
    pipeline = runs[0]["pipeline"]
    query = f"/api/v1/runs?pipeline={urllib.parse.quote(pipeline)}"

    def stored() -> bool:
        listed = {run["id"] for run in json.loads(daemon.get(query))["runs"]}
        return listed >= {run["id"] for run in runs}

    wait_until(stored, f"{pipeline} in the history")
    page.goto(f"{daemon.url}/history")
    page.get_by_label("Pipeline", exact=True).fill(pipeline)
    page.get_by_role("button", name="Search").click()


def test_a_search_finds_a_run_and_its_page_draws_it(
    daemon: Daemon, open_page: OpenPage, tool: Tool, log_file: Path
) -> None:
    run = sorted_once(daemon, tool, log_file)
    page = open_page("about:blank")
    search(page, daemon, run)
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name=run["pipeline"]).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(run["pipeline"])
    expect(page.locator(".box .head b")).to_have_text(run["pipeline"].split("|"))
    lanes = [f"{at} {command}" for at, command in enumerate(run["pipeline"].split("|"), 1)]
    expect(page.locator(".lane-name")).to_have_text(
        ["Stages on CPU at once", *lanes, "Throughput of the stages"]
    )
    expect(page.get_by_role("link", name="About barrier")).to_be_visible()


def test_a_pipeline_is_listed_with_its_last_run(
    daemon: Daemon, open_page: OpenPage, tool: Tool, log_file: Path
) -> None:
    run = sorted_once(daemon, tool, log_file)
    page = open_page("about:blank")
    search(page, daemon, run)  # once it is stored
    page.get_by_role("link", name="Pipelines", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Pipelines")
    page.get_by_label("Part of the name or unit").fill(run["pipeline"].upper())
    page.get_by_label("Sort by").select_option("not-overlapped")
    page.get_by_role("button", name="Search").click()
    row = page.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row.locator("th .signature")).to_have_text(run["pipeline"])
    expect(row.get_by_role("img")).to_have_count(0)  # one bar is no trend
    expect(row.get_by_role("link", name="barrier")).to_be_visible()
    assert page.get_by_label("Sort by").input_value() == "not-overlapped"
    row.locator("td", has_text="last run").get_by_role("link").click()
    assert page.url == f"{daemon.url}/run/{run['id']}"
    page.go_back()
    page.get_by_role("link", name="All", exact=True).click()
    expect(page.locator("tbody .signature")).to_have_text(run["pipeline"])
    page.get_by_role("link", name=run["pipeline"], exact=True).click()
    expect(page.locator(f'tr[data-run="{run["id"]}"]')).to_have_count(1)


def less_than_a_tenth_of_a_second(daemon: Daemon, seq: str, wc: str) -> dict[str, Any]:
    """A run that was over so soon, which on a busy host not each one is."""
    for count in range(1, 51):
        subprocess.run(["bash", "-c", f"{seq} 10 | {wc} -l"], check=True, stdout=subprocess.DEVNULL)
        runs = daemon.wait_for_runs(name(seq, wc), count)
        if short := [run for run in runs if run["wall_seconds"] < 0.1]:
            return short[0]
    raise AssertionError(runs)


def test_short_runs_do_not_bury_the_history(
    daemon: Daemon, open_page: OpenPage, tool: Tool, log_file: Path
) -> None:
    run = sorted_once(daemon, tool, log_file)
    short = less_than_a_tenth_of_a_second(daemon, tool("seq"), tool("wc"))
    page = open_page("about:blank")
    search(page, daemon, run)
    search(page, daemon, short)
    expect(page.locator(f'tr[data-run="{short["id"]}"]')).to_have_count(1)
    # The tests may themselves be in a pipeline, so that these runs are nested.
    page.goto(f"{daemon.url}/history?top_level=false")
    expect(page.locator(f'tr[data-run="{run["id"]}"]')).to_have_count(1)
    expect(page.locator(f'tr[data-run="{short["id"]}"]')).to_have_count(0)
    expect(page.locator("#hidden")).to_contain_text("that took less than 100ms")
    page.get_by_role("link", name="List them too").click()
    expect(page.locator(f'tr[data-run="{short["id"]}"]')).to_have_count(1)
    page.get_by_role("link", name="Last hour").click()
    expect(page.locator(f'tr[data-run="{short["id"]}"]')).to_have_count(1)


def test_a_run_is_drawn_over_time(
    daemon: Daemon,
    open_page: OpenPage,
    slow_awk: tuple[str, subprocess.Popen[bytes]],
) -> None:
    page = open_live_run(open_page, daemon, slow_awk[0])
    # It grows while the run is live.
    expect(chart(page)).to_have_attribute("data-points", re.compile(r"^[5-9]$|\d\d"))
    expect(page.get_by_role("status")).to_have_text("Live: updated every 2 seconds.")
    end(slow_awk[1])
    expect(page.get_by_role("status")).to_have_text("This run has ended.")
    expect(page.locator("#summary")).to_contain_text("wall")
    # Each lane is drawn, and in words: the slow stage computes, the one behind it waits.
    for lane in page.locator(".lane").all():
        drawn = [path.bounding_box() for path in lane.locator("path").all()]
        assert any(box and box["width"] > 100 and box["height"] > 5 for box in drawn)
        # on one time axis: as wide as the chart
        ours, all_of_it = lane.bounding_box(), chart(page).bounding_box()
        assert ours and all_of_it and abs(ours["width"] - all_of_it["width"]) < 2
    expect(page.locator(".lane-value").nth(2)).to_contain_text(re.compile(r"^on CPU \d+ %"))
    expect(page.locator(".lane-value").nth(3)).to_contain_text(re.compile(r"^pipe empty \d+ %"))
    waits = page.locator(".lane").nth(3).locator("text", has_text="pipe empty")
    expect(waits.first).to_be_visible()
    # And as a table.
    page.get_by_text("As a table").click()
    cells = page.locator(".phases tr", has_text=slow_awk[0].split("|")[1]).locator("td")
    expect(cells.filter(has_text="on CPU").first).to_be_visible()


#: Hides the page or shows it, as far as its scripts know.
HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def open_live_run(open_page: OpenPage, daemon: Daemon, pipeline: str) -> Page:
    """The page of a run, from the link on the first page."""
    page = open_page(daemon.url)
    card(page, pipeline).get_by_role("link", name=pipeline, exact=True).click()
    return page


def test_the_page_of_a_live_run_requests_nothing_while_it_is_hidden(
    daemon: Daemon, open_page: OpenPage, slow_awk: tuple[str, Any]
) -> None:
    page = open_live_run(open_page, daemon, slow_awk[0])
    expect(page.get_by_role("status")).to_have_text("Live: updated every 2 seconds.")
    page.evaluate(HIDE, True)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.wait_for_timeout(5000)
    assert requests == []
    with page.expect_request(page.url):
        page.evaluate(HIDE, False)


def chart(page: Page) -> Locator:
    """The lanes of a run, which have the number of points that are shown."""
    return page.locator(".lanes-area")


def shown_points(page: Page) -> int:
    return int(chart(page).get_attribute("data-points") or 0)


@pytest.fixture
def long_run(
    daemon: Daemon, slow_awk: tuple[str, subprocess.Popen[bytes]]
) -> Callable[[], dict[str, Any]]:
    """A finished run with a time line of several points, once it is asked for."""

    def points() -> int:
        runs = daemon.runs(slow_awk[0])
        path = f"/api/v1/runs/{runs[0]['id']}" if runs else ""
        return len(json.loads(daemon.get(path))["timeline"]) if path else 0

    def finish() -> dict[str, Any]:
        wait_until(lambda: points() >= 7, "seven points of its time line")
        end(slow_awk[1])
        return daemon.wait_for_runs(slow_awk[0], 1)[0]

    return finish


def test_the_chart_is_used_by_keyboard(
    daemon: Daemon, open_page: OpenPage, long_run: Callable[[], dict[str, Any]]
) -> None:
    page = open_page(f"{daemon.url}/run/{long_run()['id']}")
    slider = page.get_by_role("slider", name="Time in the run")
    time_shown = page.locator(".lanes-time")
    expect(time_shown).to_have_text(re.compile("^0.* on average$"))
    points = shown_points(page)
    assert points >= 5

    page.get_by_role("button", name="Later").focus()
    page.keyboard.press("Tab")
    expect(slider).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(time_shown).to_have_text(re.compile(r"^At [\d.]+ s \(\d\d:\d\d:\d\d\)$"))
    second = float(slider.get_attribute("aria-valuenow") or 0)
    assert second > 0
    # What a screen reader announces has each lane.
    spoken = page.locator("[aria-live=polite]", has_text=re.compile(r"^At "))
    expect(spoken).to_contain_text("Stages on CPU at once: ")
    expect(spoken).to_contain_text("pipe empty")

    page.keyboard.press("End")
    expect(slider).to_have_attribute("aria-valuenow", slider.get_attribute("aria-valuemax") or "")
    page.keyboard.press("+")
    page.keyboard.press("+")
    assert shown_points(page) < points
    page.keyboard.press("Home")
    expect(slider).to_have_attribute("aria-valuenow", "0.000")
    page.keyboard.press("Escape")
    assert shown_points(page) == points
    expect(time_shown).to_have_text(re.compile("^0.* on average$"))


def test_the_chart_is_zoomed_with_the_mouse_and_by_touch(
    daemon: Daemon, open_page: OpenPage, long_run: Callable[[], dict[str, Any]]
) -> None:
    page = open_page(f"{daemon.url}/run/{long_run()['id']}", has_touch=True)
    chart(page).scroll_into_view_if_needed()
    box = chart(page).bounding_box()
    assert box
    points = shown_points(page)
    middle = box["y"] + 60
    page.mouse.move(box["x"] + 0.4 * box["width"], middle)
    expect(page.locator(".lanes-time")).to_have_text(re.compile("^At "))
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], middle, steps=3)
    page.mouse.up()
    assert shown_points(page) < points
    page.get_by_role("button", name="Show the whole run").click()
    assert shown_points(page) == points
    page.get_by_role("button", name="Zoom in").click()
    assert shown_points(page) < points
    page.get_by_role("button", name="Zoom out").click()
    assert shown_points(page) == points

    page.mouse.move(0, 0)
    page.touchscreen.tap(box["x"] + box["width"] - 5, middle)
    expect(page.locator(".lanes-time")).to_have_text(re.compile("^At "))
    slider = page.get_by_role("slider", name="Time in the run")
    now, last = (float(slider.get_attribute(f"aria-value{end}") or 0) for end in ("now", "max"))
    assert 0.9 * last < now <= last


def test_a_live_chart_stays_zoomed_while_it_grows(
    daemon: Daemon, open_page: OpenPage, slow_awk: tuple[str, Any]
) -> None:
    page = open_live_run(open_page, daemon, slow_awk[0])
    slider = page.get_by_role("slider", name="Time in the run")
    expect(chart(page)).to_have_attribute("data-points", re.compile(r"^[4-9]$|\d\d"))
    slider.focus()
    for key in ("Home", "+", "+"):
        page.keyboard.press(key)
    zoomed = page.locator(".lanes-time").text_content()
    last = float(slider.get_attribute("aria-valuemax") or 0)
    page.wait_for_function(
        "last => document.querySelector('.cursor').getAttribute('aria-valuemax') > last", arg=last
    )
    expect(slider).to_be_focused()
    assert page.locator(".lanes-time").text_content() == zoomed
    expect(page.get_by_role("button", name="Later")).to_have_attribute("aria-disabled", "false")


def test_what_was_clicked_on_is_updated_and_keeps_the_focus(
    daemon: Daemon, open_page: OpenPage, slow_awk: tuple[str, Any]
) -> None:
    page = open_live_run(open_page, daemon, slow_awk[0])
    expect(page.get_by_role("status")).to_have_text("Live: updated every 2 seconds.")
    table = page.locator("#stages .scroll").first
    table.click()
    expect(table).to_be_focused()
    before = table.text_content()
    end(slow_awk[1])
    expect(page.get_by_role("status")).to_have_text("This run has ended.")
    expect(table).to_be_focused()
    assert table.text_content() != before


def test_the_page_of_a_run_that_has_ended_is_updated_until_the_run_is_stored(
    daemon: Daemon, open_page: OpenPage, slow_awk: tuple[str, Any]
) -> None:
    page = open_live_run(open_page, daemon, slow_awk[0])
    expect(page.get_by_role("status")).to_have_text("Live: updated every 2 seconds.")
    end(slow_awk[1])
    expect(page.get_by_role("status")).to_have_text("This run has ended.")
    with page.expect_request(page.url):
        pass
    expect(page.get_by_role("heading", level=1)).to_have_text(slow_awk[0])


def test_the_page_of_a_run_that_has_just_ended_is_updated_by_its_whole_id(
    daemon: Daemon, open_page: OpenPage, tool: Tool, log_file: Path
) -> None:
    page = open_page("about:blank")
    run = sorted_once(daemon, tool, log_file)
    with page.expect_request(f"{daemon.url}/run/{run['id']}"):
        page.goto(f"{daemon.url}/run/{run['id'][:-1]}")
    expect(page.get_by_role("status")).to_have_text("This run has ended.")


def test_a_time_of_today_has_its_date_tomorrow(
    daemon: Daemon, open_page: OpenPage, tool: Tool, log_file: Path
) -> None:
    run = sorted_once(daemon, tool, log_file)
    page = open_page("about:blank")
    page.clock.install()
    search(page, daemon, run)
    expect(page).to_have_url(re.compile("pipeline="))
    started = page.locator(f'tr[data-run="{run["id"]}"] time')
    expect(started).to_have_text(re.compile(r"\d\d:\d\d:\d\d$"))  # no longer in UTC
    page.clock.fast_forward("24:00:00")
    expect(started).to_have_text(re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$"))


def test_findings_are_marked_where_they_happen(
    daemon: Daemon, open_page: OpenPage, tool: Tool, log_file: Path
) -> None:
    run = sorted_once(daemon, tool, log_file, times=12)
    page = open_page(f"{daemon.url}/run/{run['id']}")
    lane = page.locator(".lane", has_text=f"3 {run['pipeline'].split('|')[2]}")
    mark = lane.get_by_role("link", name=re.compile(r"^Finding \d+, barrier, at 3 "))
    text = mark.text_content() or ""
    mark.click()
    finding = page.locator(f"#finding-{text.split()[0]}")
    expect(finding).to_be_in_viewport()
    expect(finding.get_by_role("link", name="About barrier")).to_be_visible()
    expect(finding).to_contain_text(re.compile(r"When: uniq\w* 0 s to [\d.]+ s"))


def test_two_checked_runs_are_compared(
    daemon: Daemon, open_page: OpenPage, tool: Tool, log_file: Path
) -> None:
    cat, wc = tool("cat"), tool("wc")
    pipeline = name(cat, wc)
    for count in (1, 20):
        files = f"{log_file} " * count
        subprocess.run(f"{cat} {files} | {wc} -l > /dev/null", shell=True, check=True)
    runs = daemon.wait_for_runs(pipeline, 2)
    page = open_page("about:blank")
    search(page, daemon, *runs)
    boxes = page.get_by_role("checkbox", name="Compare ")
    expect(boxes).to_have_count(2)
    compare = page.get_by_role("button", name="Compare the two checked")
    expect(compare).to_be_disabled()
    for box in boxes.all():
        box.check()
    compare.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Two runs side by side")
    expect(page.get_by_role("link", name=pipeline)).to_have_count(2)
    expect(page.locator("main")).to_contain_text("different inputs")
    read = page.get_by_role("row").filter(has=page.get_by_text("read", exact=True))
    expect(read).to_contain_text("MB")


def test_an_unknown_run_has_a_page_that_says_so(
    daemon: Daemon, open_page: OpenPage, complaints: Complaints
) -> None:
    page = open_page(f"{daemon.url}/run/nothing")
    expect(page.get_by_text("there is no run nothing")).to_be_visible()
    assert all("404" in complaint for complaint in complaints)
    complaints.clear()


def test_what_a_finding_means_is_a_click_away(
    daemon: Daemon, open_page: OpenPage, tool: Tool, log_file: Path
) -> None:
    run = sorted_once(daemon, tool, log_file)
    page = open_page(f"{daemon.url}/run/{run['id']}")
    page.get_by_role("link", name="About barrier").click()
    expect(page.locator("#barrier")).to_be_in_viewport()


# -- what did not succeed


@pytest.mark.parametrize("width", [360, 1400])
def test_what_did_not_succeed_is_marked_on_every_page(
    daemon: Daemon, open_page: OpenPage, tool: Tool, width: int
) -> None:
    """With its text in view, and nothing scrolls sideways."""
    seq, perl, awk = tool("seq"), tool("perl"), tool("awk")
    failed, interrupted = name(seq, perl), name(seq, awk)
    subprocess.run(["bash", "-c", f"{seq} 9 | {perl} -e 'sleep 1; exit 3'"], check=False)
    waits = f"{seq} 9 | {awk} 'BEGIN {{ system(\"sleep 9\") }}' & sleep 1; kill -TERM $!"
    subprocess.run(["bash", "-c", waits], check=False)
    (broken,) = daemon.wait_for_runs(failed, 1)
    (stopped,) = daemon.wait_for_runs(interrupted, 1)
    wait_until(lambda: stopped["id"] in daemon.get("/api/v1/runs?limit=1000"), "both to be stored")
    page = open_page(daemon.url, viewport={"width": width, "height": 800})

    def fits() -> bool:
        return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))

    def line(run: dict[str, Any]) -> Locator:
        return page.locator(f'tr[data-run="{run["id"]}"]')

    expect(line(broken).locator(".failed")).to_have_text("failed")
    expect(line(broken)).to_contain_text(f"Failed: {Path(perl).name} exited with 3 after")
    expect(line(stopped).locator(".interrupted")).to_have_text("interrupted")
    assert fits()

    of_unit = f"unit={urllib.parse.quote(broken['unit'])}&command={Path(seq).name}"
    page.goto(f"{daemon.url}/history?{of_unit}")
    ended = f"failed: {Path(perl).name}: exit 3"
    expect(line(broken).locator(".failed")).to_have_text(ended)
    ended = f"interrupted: {Path(awk).name}: SIGTERM"
    expect(line(stopped).locator(".interrupted")).to_have_text(ended)
    page.get_by_label("Failed").check()
    page.get_by_role("button", name="Search").click()
    expect(line(stopped)).to_have_count(0)
    expect(line(broken)).to_have_count(1)
    assert fits()

    page.goto(f"{daemon.url}/pipelines?sort=failures&search={Path(seq).name}")
    rows = page.locator("table.pipelines tbody tr")
    expect(rows.locator(".failed")).to_have_text("1 failed, 100 %")
    expect(rows.locator(".interrupted")).to_have_text("1 interrupted")
    expect(rows.first.get_by_role("link").first).to_have_text(failed)
    assert fits()

    page.goto(f"{daemon.url}/run/{broken['id']}")
    expect(page.locator(".failed-stage .mark")).to_have_text(re.compile("exit 3$"))
    expect(page.locator("#stages .failed")).to_have_text("exit 3")
    expect(page.locator(".verdict")).to_have_text(re.compile("^Failed: "))
    assert fits()


def test_a_stage_that_dies_while_its_run_goes_on_says_how(
    daemon: Daemon, open_page: OpenPage, tool: Tool, start_job: StartJob
) -> None:
    perl, awk = tool("perl"), tool("awk")
    wait = 'END { system("sleep 600") }'
    start_job(f"{perl} -e 'sleep 1; kill KILL => $$' | {awk} '{wait}'")
    page = open_page(daemon.url, viewport=PHONE)
    shown = row(page, name(perl, awk))
    expect(shown.locator(".stage .exit").first).to_have_text("SIGKILL")
    said = re.compile(f"^{Path(perl).name} was killed by SIGKILL after ")
    expect(shown.locator(".held")).to_have_text(said)
    shown.get_by_role("button").click()
    expect(shown.locator(".failed-stage .mark")).to_have_text("SIGKILL")


# -- on a phone, in the dark, by keyboard


@pytest.fixture
def paths(daemon: Daemon, tool: Tool, log_file: Path, slow_awk: tuple[str, Any]) -> list[str]:
    """One page of each kind, with something on it."""
    run = sorted_once(daemon, tool, log_file)["id"]
    return [
        "/",
        "/history",
        "/pipelines",
        f"/run/{run}",
        f"/compare?a={run}&b={run}",
        "/findings",
        "/history?pipeline=nothing",
    ]


def settled(page: Page, url: str) -> None:
    """Go there, and wait until what a script draws is drawn."""
    page.goto(url)
    if url.endswith("/"):
        page.locator(".opener").first.click()
        expect(page.locator(".box").first).to_be_visible()
    if "/run/" in url:
        expect(page.locator(".lane path").first).to_be_visible()


def test_on_a_phone_no_page_scrolls_sideways(
    daemon: Daemon, open_page: OpenPage, paths: list[str]
) -> None:
    page = open_page("about:blank", viewport=PHONE)
    for path in paths:
        settled(page, daemon.url + path)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"], path


def test_on_a_phone_stages_stand_under_each_other(
    daemon: Daemon, open_page: OpenPage, slow_awk: tuple[str, Any]
) -> None:
    shown = card(open_page(daemon.url, viewport=PHONE), slow_awk[0])
    expect(shown.locator(".box")).to_have_count(3)
    boxes = [box.bounding_box() for box in shown.locator(".box").all()]
    assert all(a and b and a["y"] + a["height"] < b["y"] for a, b in pairwise(boxes))


#: The texts whose contrast with their background is below WCAG's 4.5 to 1 (3 to 1 for large text).
POOR_CONTRAST = """() => {
  const colour = (text) => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = colour(getComputedStyle(at).backgroundColor);
      if (found[3] === 1) return found;
    }
    return [255, 255, 255, 1];
  };
  const light = ([r, g, b]) => [r, g, b]
    .map((value) => value / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, at) => sum + value * [0.2126, 0.7152, 0.0722][at], 0);
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !element.checkVisibility()) continue;
    if (element.closest(".visually-hidden, noscript, script")) continue;
    const style = getComputedStyle(element);
    const [one, two] = [light(colour(style.color)), light(behind(element))];
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) {
      poor.push(`${ratio.toFixed(2)} ${element.className}: ${element.innerText}`);
    }
  }
  return poor;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(
    daemon: Daemon, open_page: OpenPage, paths: list[str], scheme: str
) -> None:
    page = open_page("about:blank", color_scheme=scheme)
    for path in paths:
        settled(page, daemon.url + path)
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        levels = [int(value) for value in re.findall(r"\d+", ground)[:3]]
        assert max(levels) < 64 if scheme == "dark" else min(levels) > 192
        assert page.evaluate(POOR_CONTRAST) == [], path


def test_the_keyboard_reaches_everything(
    daemon: Daemon, open_page: OpenPage, slow_awk: tuple[str, Any]
) -> None:
    page = open_page(daemon.url)
    expect(row(page, slow_awk[0])).to_have_count(1)
    first = page.locator(".opener .name").first.text_content()
    reached = []
    for _ in range(7):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent"))
        shown = page.evaluate("getComputedStyle(document.activeElement).outlineStyle !== 'none'")
        assert shown, reached
    assert reached[:3] == ["Skip to the content", "pipelined", "Now"]
    assert reached[3:] == ["History", "Pipelines", "Findings", first]


def test_the_first_link_skips_to_the_content(daemon: Daemon, open_page: OpenPage) -> None:
    page = open_page(f"{daemon.url}/history")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_what_is_drawn_is_also_text(daemon: Daemon, open_page: OpenPage, paths: list[str]) -> None:
    page = open_page("about:blank")
    for path in paths:
        settled(page, daemon.url + path)
        for image in page.get_by_role("img").all():
            assert (image.get_attribute("aria-label") or "").strip(), path
        hidden = page.locator('svg:not([aria-hidden="true"])')
        assert hidden.count() == 0, path
