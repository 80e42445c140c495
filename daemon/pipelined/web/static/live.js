// SPDX-License-Identifier: Apache-2.0
/** The live page: pictures of the runs that are live, and a list of those that finished lately. */

import { Chart } from "./chart.js";
import { Connection } from "./connection.js";
import { dayAndTime, element, setText } from "./dom.js";
import { showFindingsInShort, showFindings } from "./findings.js";
import { Picture, legend } from "./picture.js";
import { levelOf, meanLevel } from "./timeline.js";

/** Seconds that the chart of a live run shows. */
const CHART_SECONDS = 300;

const page = {
  status: document.getElementById("connection"),
  live: document.getElementById("live"),
  more: document.getElementById("more"),
  empty: document.getElementById("empty"),
  legend: document.getElementById("legend"),
  recent: document.getElementById("recent"),
  noRecent: document.getElementById("no-recent"),
};

/** @type {Map<string, Card>} */
const cards = new Map();

/** One live run. */
class Card {
  root;
  #figures = element("p.figures");
  #verdict = element("p.verdict");
  #findings = element("ul.findings");
  #picture;
  #chart;
  /** @type {Array<{time: number, level: number}>} */ #marks = [];
  #id;

  constructor(run) {
    this.#id = run.id;
    const place = element("div");
    this.root = element("article.run", { "data-run": run.id }, element("h3", {}, linkTo(run)));
    this.root.append(this.#figures, this.#verdict, place, this.#findings);
    this.#picture = new Picture(place, run.pipeline);
    this.#chart = new Chart(this.root);
    this.#loadPast();
  }

  /** Fetch the levels from before the page was opened. */
  async #loadPast() {
    const answer = await fetch(`/api/v1/runs/${encodeURIComponent(this.#id)}`).catch(() => null);
    if (!answer?.ok) return;
    const { timeline } = await answer.json();
    const first = this.#marks[0]?.time ?? Infinity;
    const before = timeline
      .filter((point) => point.end_timestamp_seconds < first)
      .map((point) => ({ time: point.end_timestamp_seconds, level: levelOf(point) }));
    this.#marks.unshift(...before);
    this.#draw();
  }

  update(run, time) {
    const about = [...run.figures, run.unit === "-" ? "" : run.unit];
    if (run.nested) about.push(inside(run));
    this.root.dataset.depth = depth(run);
    setText(this.#figures, about.filter(Boolean).join(" · "));
    setText(this.#verdict, run.verdict);
    this.#picture.update(run.now, run.whole);
    showFindings(this.#findings, run.findings);
    // In a run's first event "now" is the whole run so far, which is no point of the chart.
    const isPoint = run.now.seconds < run.whole.seconds && run.now.mean_level !== null;
    if (isPoint && time > (this.#marks.at(-1)?.time ?? 0)) {
      this.#marks.push({ time, level: run.now.mean_level });
    }
    this.#draw();
  }

  #draw() {
    const last = this.#marks.at(-1)?.time ?? 0;
    this.#marks = this.#marks.filter((mark) => mark.time >= last - CHART_SECONDS);
    this.#chart.update(meanLevel(this.#marks, last));
  }
}

function show(moment) {
  const ids = new Set(moment.live.map((run) => run.id));
  for (const [id, card] of cards) {
    if (!ids.has(id)) {
      card.root.remove();
      cards.delete(id);
    }
  }
  moment.live.forEach((run, index) => {
    if (!cards.has(run.id)) cards.set(run.id, new Card(run));
    const { root } = cards.get(run.id);
    if (page.live.children[index] !== root) page.live.insertBefore(root, page.live.children[index]);
    cards.get(run.id).update(run, moment.sweep_timestamp_seconds);
  });
  page.empty.hidden = moment.live.length > 0;
  const hidden = moment.live_runs - moment.live.length;
  page.more.hidden = hidden === 0;
  setText(page.more, `${hidden} more are running, counting nested ones: pipelined top lists them all.`);
  legend(page.legend, moment.live.flatMap((run) => [run.now, run.whole]));
  showRecent(moment.recent);
}

/** A link to the run's page. */
function linkTo(run) {
  return element("a", { href: `/run/${encodeURIComponent(run.id)}` }, run.pipeline);
}

/** Where a nested run lies, in words. */
function inside(run) {
  return `inside ${run.parent_pipeline ?? "another pipeline"}`;
}

/** In how many of the runs listed above it a run lies; the style sheet has four depths. */
function depth(run) {
  return String(Math.min(run.depth, 4));
}

function showRecent(runs) {
  page.noRecent.hidden = runs.length > 0;
  page.recent.closest(".scroll").hidden = runs.length === 0;
  const ids = runs.map((run) => `${run.id} ${run.runs} ${run.depth}`).join();
  if (page.recent.dataset.ids === ids) return;
  page.recent.dataset.ids = ids;
  page.recent.replaceChildren(...runs.map(line));
}

function line(run) {
  const findings = element("ul.findings");
  showFindingsInShort(findings, run.findings);
  const times = run.runs > 1 ? element("span.times", {}, `${run.runs} × `) : "";
  // It is named to screen readers too where indentation shows it.
  const where = element(run.depth ? "span.visually-hidden" : "span.inside");
  if (run.nested) where.append(` ${inside(run)}`);
  const ended = new Date(run.end_timestamp_seconds * 1000).toISOString();
  return element(
    "tr",
    { "data-run": run.id },
    element("th", { scope: "row", "data-depth": depth(run) }, times, linkTo(run), where),
    element("td", {}, element("time", { datetime: ended }, dayAndTime(run.end_timestamp_seconds))),
    element("td", {}, run.figures.join(" · ")),
    element("td", {}, run.verdict, findings),
  );
}

new Connection(show, (text, lost) => {
  setText(page.status, text);
  page.status.classList.toggle("lost", lost);
  document.body.classList.toggle("lost", lost);
}).start();
