// SPDX-License-Identifier: Apache-2.0
/**
 * The live page: a list of the runs that are live, and of those that finished lately. An update
 * changes the rows that are there. They are in the order of the daemon's list, which begins with the
 * run that has been live for longest, so that a new run moves only what is nested after it.
 */

import { legend } from "./bar.js";
import { Connection } from "./connection.js";
import { dayAndTime, element, setAttribute, setText } from "./dom.js";
import { showFindingsInShort } from "./findings.js";
import { Row, depth, inside, linkTo } from "./row.js";

/** Milliseconds for which a row stays after its run has ended, and at most, if the pointer is over
 * the list: nothing should move under it. A row that is opened or has the focus stays. */
const STAYS = 5000;
const STAYS_UNDER_POINTER = 60000;

const page = {
  status: document.getElementById("connection"),
  live: document.getElementById("live"),
  heads: document.getElementById("heads"),
  more: document.getElementById("more"),
  empty: document.getElementById("empty"),
  legend: document.getElementById("legend"),
  short: document.getElementById("short"),
  recent: document.getElementById("recent"),
  noRecent: document.getElementById("no-recent"),
};

/** @type {Map<string, Row>} */
const rows = new Map();
/** Of the runs that finished lately, by id and end. @type {Map<string, HTMLTableRowElement>} */
let lines = new Map();

function show(moment) {
  showLive(moment);
  showShort(moment.short);
  showRecent(moment.recent, moment.short.runs);
}

function showLive({ live, live_runs: count, recent, sweep_timestamp_seconds: time }) {
  const [ids, ended] = [live, recent].map((runs) => new Set(runs.map((run) => run.id)));
  const hidden = count - live.length;
  for (const [id, row] of rows) {
    if (ids.has(id) || row.endedAt !== null) continue;
    // If not all are listed, it may be among the others.
    if (hidden === 0 || ended.has(id)) row.end();
    else if (row.isUsed) row.unlist();
    else remove(id, row);
  }
  let next = page.live.firstElementChild;
  for (const run of live) {
    const isNew = !rows.has(run.id);
    if (isNew) rows.set(run.id, new Row(run));
    const row = rows.get(run.id);
    // A row that is no longer listed keeps its place, or gives it to the next run of the same
    // pipeline if it has ended: what a script runs again and again does not move what is below it.
    let place = null;
    while (next && !ids.has(next.dataset.run)) {
      if (isNew && rows.get(next.dataset.run).givesWayTo(run)) place ??= next;
      next = next.nextElementSibling;
    }
    if (place) rows.delete(place.dataset.run);
    if (place) place.replaceWith(row.root);
    else if (next === row.root) next = next.nextElementSibling;
    else page.live.insertBefore(row.root, next);
    row.update(run, time);
  }
  page.more.hidden = hidden === 0;
  setText(page.more, `${hidden} more are running, counting nested ones: pipelined top lists up to 500.`);
  legend(page.legend, live.flatMap((run) => rows.get(run.id).diagrams));
  clear();
}

/** Remove the rows that ended some time ago. */
function clear() {
  const stays = page.live.matches(":hover") ? STAYS_UNDER_POINTER : STAYS;
  for (const [id, row] of rows) {
    if (row.isLeft && performance.now() - row.endedAt >= stays) remove(id, row);
  }
  page.empty.hidden = rows.size > 0;
  page.heads.hidden = rows.size === 0;
}

function remove(id, row) {
  row.root.remove();
  rows.delete(id);
}

/** The line that sums up the short runs; opened, it lists their pipelines. */
function showShort({ sentence, pipelines }) {
  page.short.hidden = sentence === "";
  setText(page.short.querySelector("summary"), sentence);
  const list = page.short.querySelector("ul");
  while (list.childElementCount > pipelines.length) list.lastElementChild.remove();
  pipelines.forEach(({ pipeline, runs }, index) => {
    const line = list.children[index] ?? list.appendChild(shortLine());
    setText(line.firstElementChild, `${runs.toLocaleString("en")} × `);
    setText(line.lastElementChild, pipeline);
    setAttribute(line.lastElementChild, "href", `/history?${new URLSearchParams({ pipeline })}`);
  });
}

function shortLine() {
  return element("li", {}, element("span.times"), element("a"));
}

function showRecent(runs, shortRuns) {
  page.noRecent.hidden = runs.length > 0 || shortRuns > 0;
  page.recent.closest(".scroll").hidden = runs.length === 0;
  const focused = document.activeElement;
  const before = lines;
  const keys = runs.map((run) => `${run.id} ${run.end_timestamp_seconds}`);
  lines = new Map(keys.map((key, index) => [key, before.get(key) ?? line(runs[index])]));
  for (const [key, old] of before) if (!lines.has(key)) old.remove();
  [...lines.values()].forEach((one, index) => {
    showLine(one, runs[index]);
    const there = page.recent.children[index] ?? null;
    if (there !== one) page.recent.insertBefore(one, there);
  });
  // What has got another place was out of the page for a moment.
  if (page.recent.contains(focused)) focused.focus({ preventScroll: true });
}

/** A line with what does not change. `showLine` leaves its link in place: it may have the focus. */
function line(run) {
  const ended = new Date(run.end_timestamp_seconds * 1000).toISOString();
  return element(
    "tr",
    { "data-run": run.id },
    element("th", { scope: "row" }, linkTo(run)),
    element("td", {}, element("time", { datetime: ended }, dayAndTime(run.end_timestamp_seconds))),
    element("td"),
    element("td", {}, element("span"), element("ul.findings")),
  );
}

function showLine({ cells: [head, , figures, found] }, run) {
  showAround(head, run);
  setText(figures, run.figures.join(" · "));
  setText(found.firstElementChild, run.verdict);
  showFindingsInShort(found.lastElementChild, run.findings);
}

/** What is beside the link to a run: how many there are, where they lie, what did not succeed. */
function showAround(head, run) {
  const { runs, incomplete_runs: incomplete, outcome } = run;
  const shown = [runs, incomplete, run.depth, run.distinction].join();
  if (head.dataset.shown === shown) return;
  head.dataset.shown = shown;
  setAttribute(head, "data-depth", depth(run));
  const times = runs > 1 ? element("span.times", {}, `${runs} × `) : "";
  // It is named to screen readers too where indentation shows it.
  const where = element(run.depth ? "span.visually-hidden" : "span.inside");
  if (run.nested) where.append(` ${inside(run)}`);
  const marks = [];
  if (incomplete && runs > 1) marks.push(element("span.failed", {}, `${incomplete} of ${runs} did not succeed`));
  else if (incomplete) marks.push(element(`span.${outcome.result}`, {}, outcome.result));
  if (run.distinction) marks.push(element("span.second", {}, run.distinction));
  const link = head.querySelector("a");
  while (head.firstChild !== link) head.firstChild.remove();
  while (head.lastChild !== link) head.lastChild.remove();
  link.before(times);
  link.after(where, ...marks);
}

setInterval(() => {
  clear();
  // what ended today ended yesterday tomorrow
  for (const time of page.recent.querySelectorAll("time")) {
    setText(time, dayAndTime(Date.parse(time.dateTime) / 1000));
  }
}, 1000);
new Connection(show, (text, lost) => {
  setText(page.status, text);
  page.status.classList.toggle("lost", lost);
  document.body.classList.toggle("lost", lost);
}).start();
