// SPDX-License-Identifier: Apache-2.0
/**
 * A live run in the list: one line with its name, age, verdict in short and a bar per stage. A
 * click on it opens its picture, findings and chart, which stay open while the line is updated.
 */

import { makeBar } from "./bar.js";
import { Chart } from "./chart.js";
import { element, setAttribute, setText } from "./dom.js";
import { showFindings, showNotices } from "./findings.js";
import { Picture } from "./picture.js";
import { levelOf, meanLevel } from "./timeline.js";

/** Seconds that the chart of a live run shows. */
const CHART_SECONDS = 300;
/** After more seconds without an update than this the chart is fetched again. */
const LONGEST_PAUSE = 10;

/** A link to the run's page. */
export function linkTo(run) {
  return element("a", { href: `/run/${encodeURIComponent(run.id)}` }, ...breakable(run.pipeline));
}

/** A signature that continues on the next line after one of its commands. */
function breakable(pipeline) {
  return pipeline.split(/(?<=\|)/).flatMap((command) => [command, element("wbr")]);
}

/** Where a nested run lies, in words; empty for others. */
export function inside(run) {
  return run.nested ? `inside ${run.parent_pipeline ?? "another pipeline"}` : "";
}

/** In how many of the runs listed above it a run lies; the style sheet has four depths. */
export function depth(run) {
  return String(Math.min(run.depth, 4));
}

export class Row {
  root;
  /** When it was seen to have ended, as of `performance.now()`; null while it is live. */
  endedAt = null;
  #button;
  #name = element("span.name");
  #inside = element("span");
  #distinction = element("span.inside");
  #age = element("span.age");
  #held = element("span.held");
  #stages = element("div.stages", { role: "group", "aria-label": "Stages, in the last second" });
  /** @type {Array<{root: HTMLElement, update: (box: object) => void}>} */ #bars = [];
  #shape = "";
  #place;
  /** @type {Opened | null} */ #opened = null;
  #run;
  #time = 0;

  constructor(run) {
    const id = `opened-${run.id}`;
    this.#button = element("button.opener", { type: "button", "aria-expanded": "false", "aria-controls": id });
    this.#button.append(this.#name);
    this.#place = element("div.opened", { id, hidden: "" });
    const line = element("div.line", {}, element("h3", {}, this.#button, " ", this.#inside, " ", this.#distinction));
    line.append(this.#age, this.#held, this.#stages);
    line.addEventListener("click", () => this.#toggle());
    this.root = element("article.run", { "data-run": run.id }, line, this.#place);
  }

  get isOpen() {
    return this.#opened !== null && !this.#place.hidden;
  }

  /** Somebody has opened the row or is at it with the keyboard. */
  get isUsed() {
    return this.isOpen || this.root.contains(document.activeElement);
  }

  /** The run has ended, and nobody uses the row. */
  get isLeft() {
    return this.endedAt !== null && !this.isUsed;
  }

  /** Whether the row of a new run may take the place of this one. */
  givesWayTo({ pipeline, parent }) {
    return this.isLeft && this.#run.pipeline === pipeline && this.#run.parent === parent;
  }

  /** What the opened row draws, for the legend. */
  get diagrams() {
    return this.isOpen ? [this.#run.now, this.#run.whole] : [this.#run.now];
  }

  /** @param {object} run @param {number} time of its figures, Unix time */
  update(run, time) {
    // The page was hidden, or had no connection: only the daemon knows what happened meanwhile.
    if (this.isOpen && time - this.#time > LONGEST_PAUSE) this.#opened.reopen();
    [this.#run, this.#time, this.endedAt] = [run, time, null];
    setAttribute(this.root, "data-depth", depth(run));
    this.root.classList.remove("ended");
    this.#setName(run.pipeline);
    // Where indentation shows it, only screen readers need it in words.
    setText(this.#inside, inside(run));
    setAttribute(this.#inside, "class", run.depth > 0 ? "visually-hidden" : "inside");
    setText(this.#distinction, run.distinction);
    setText(this.#age, run.age);
    setText(this.#held, run.short_verdict);
    setAttribute(this.#held, "title", run.verdict);
    this.#updateBars(run.now);
    if (this.isOpen) this.#opened.update(run, time);
  }

  /** The run has ended: the row shows its last figures. */
  end() {
    if (this.endedAt !== null) return;
    this.endedAt = performance.now();
    this.root.classList.add("ended");
    setText(this.#age, `${this.#run.age}, ended`);
  }

  /** Others are listed in its place: the row shows its last figures. */
  unlist() {
    setText(this.#age, `${this.#run.age}, no longer listed`);
  }

  #setName(pipeline) {
    if (this.#name.textContent === pipeline) return;
    this.#name.replaceChildren(...breakable(pipeline));
    this.#name.title = pipeline;
  }

  #updateBars({ boxes }) {
    const shape = JSON.stringify(boxes.map((box) => [box.command, box.count]));
    if (shape !== this.#shape) {
      this.#shape = shape;
      this.#bars = boxes.map(makeStage);
      this.#stages.replaceChildren(...this.#bars.map((bar) => bar.root));
    }
    boxes.forEach((box, index) => this.#bars[index].update(box));
  }

  #toggle() {
    this.#place.hidden = !this.#place.hidden;
    this.#button.setAttribute("aria-expanded", String(!this.#place.hidden));
    if (this.#place.hidden) return;
    this.#opened ??= new Opened(this.#place, this.#run);
    this.#opened.open();
    this.#opened.update(this.#run, this.#time);
  }
}

/** A stage in a row: its command, and under it its bar. */
function makeStage({ command, count }) {
  const name = count > 1 ? `${command} ×${count}` : command;
  const bar = makeBar(name);
  const exit = element("span.exit");
  const title = element("span.command", {}, element("span", { "aria-hidden": "true" }, name), " ", exit);
  const root = element("div.stage", {}, title, bar.root);
  return {
    root,
    update(box) {
      root.classList.toggle("bottleneck", box.bottleneck);
      root.classList.toggle("ended", box.ended);
      setText(exit, box.exit);
      setAttribute(title, "title", box.exit ? `${name}: ${box.exit}` : name);
      bar.update(box.states);
    },
  };
}

/** What is under the line of a row: all that is known about the live run. */
class Opened {
  #id;
  #figures = element("span");
  #notices = element("div");
  #verdict = element("p.verdict");
  #findings = element("ul.findings");
  #picture;
  #chart;
  /** @type {Array<{time: number, level: number}>} */ #marks = [];

  /** @param {HTMLElement} where @param {object} run */
  constructor(where, run) {
    this.#id = run.id;
    const picture = element("div");
    where.append(
      element("p.figures", {}, linkTo(run), " · ", this.#figures),
      this.#notices,
      this.#verdict,
      picture,
      this.#findings,
    );
    this.#picture = new Picture(picture, run.pipeline);
    this.#chart = new Chart(where);
  }

  /** As if it had just been opened: the levels so far are not joined to those to come. */
  reopen() {
    this.#marks = [];
    this.open();
  }

  /** Fetch the levels from before it was opened. */
  async open() {
    const answer = await fetch(`/api/v1/runs/${encodeURIComponent(this.#id)}`).catch(() => null);
    if (!answer?.ok) return;
    const { timeline } = await answer.json();
    const last = timeline.at(-1)?.end_timestamp_seconds ?? 0;
    this.#marks = [
      ...timeline.map((point) => ({ time: point.end_timestamp_seconds, level: levelOf(point) })),
      ...this.#marks.filter((mark) => mark.time > last),
    ];
    this.#draw();
  }

  update(run, time) {
    const about = [...run.figures, run.unit === "-" ? "" : run.unit, run.distinction, inside(run)];
    setText(this.#figures, about.filter(Boolean).join(" · "));
    showNotices(this.#notices, run.findings);
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
