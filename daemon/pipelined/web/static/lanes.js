// SPDX-License-Identifier: Apache-2.0
/**
 * A run over time as in a trace viewer: one lane per track on one time axis, with one cursor, whose
 * read-out is beside each name. It is used by mouse, touch and keyboard. Colours come from the style
 * sheet, so they follow the light and dark schemes.
 */

import { bandPaths, bandWords, patterns, showLegend } from "./bands.js";
import { element, setText, svgElement, timeOfDay } from "./dom.js";
import { listen } from "./gestures.js";
import { roundTimes, timeText } from "./time_axis.js";

/**
 * @typedef {import("./timeline.js").Point} Point
 * @typedef {import("./timeline.js").Track} Track
 * @typedef {{number: number, id: string, severity: string, stage: number, start: number,
 *            end: number}} Mark a finding shows at a stage from `start` to `end`
 * @typedef {{points: Point[], tracks: Track[], marks: Mark[], zero: number}} Content
 *   Unix times; the chart shows seconds since `zero`
 */

/** Pixels that a label of the time axis takes. */
const LABEL = 90;
/** Milliseconds without another key until the read-out is announced. */
const SETTLED = 400;

export class Lanes {
  /** @type {Content | null} */ #content = null;
  /** What is shown, in seconds; null: all. @type {{from: number, to: number} | null} */ #view = null;
  /** The cursor's time. @type {number | null} */ #at = null;
  #shape = "";
  #buttons;
  #cursor;
  #area;
  /** One per track, with its elements. */
  #lanes = [];
  #time = element("p.lanes-time");
  #ticks = element("div.ticks", { "aria-hidden": "true" });
  #rows = element("div.rows");
  #legend = element("ul.legend.lanes-legend", { "aria-label": "What the colours of the lanes mean" });
  #chosen = element("div.chosen", { hidden: "" });
  #spoken = element("p.visually-hidden", { "aria-live": "polite" });
  #timer = 0;

  /** @param {HTMLElement} root is filled with the chart */
  constructor(root) {
    const button = (text, name, act) => {
      const made = element("button", { type: "button", "aria-label": name, title: name }, text);
      made.addEventListener("click", () => {
        act();
        this.announce();
      });
      return made;
    };
    this.#buttons = {
      closer: button("+", "Zoom in", () => this.zoom(0.5)),
      wider: button("−", "Zoom out", () => this.zoom(2)),
      all: button("All", "Show the whole run", () => this.show(null)),
      earlier: button("←", "Earlier", () => this.pan(-0.5)),
      later: button("→", "Later", () => this.pan(0.5)),
    };
    this.#cursor = element("div.cursor", {
      role: "slider",
      tabindex: "0",
      "aria-label": "Time in the run",
      "aria-describedby": "lanes-keys",
    });
    this.#area = element("div.lanes-area", {}, this.#ticks, this.#cursor, this.#rows, this.#chosen);
    const tools = element("div.lanes-tools", { role: "group", "aria-label": "Zoom" });
    tools.append(...Object.values(this.#buttons));
    const keys = element(
      "p.lanes-keys",
      { id: "lanes-keys" },
      "Drag, or pinch, to zoom. Keys: arrows move the cursor, + and − zoom, Home and End go to the start and the end, Escape shows all.",
    );
    const head = element("div.lanes-head", {}, tools, this.#time);
    root.replaceChildren(patterns(), head, this.#legend, this.#area, keys, this.#spoken);
    listen(this, { area: this.#area, cursor: this.#cursor, chosen: this.#chosen });
    new ResizeObserver(() => this.#draw()).observe(this.#area);
  }

  /** @param {Content} content */
  update(content) {
    this.#content = content;
    // The elements stay as long as they are the same: one of them may have the focus.
    const shape = JSON.stringify([
      content.tracks.map((track) => track.name),
      // One for all stretches of a finding: they come and go as the run grows.
      [...new Set(content.marks.map((mark) => `${mark.number} ${mark.id} ${mark.stage}`))],
    ]);
    if (shape !== this.#shape) {
      this.#shape = shape;
      this.#build();
    }
    content.tracks.forEach((track, index) => {
      this.#lanes[index].track = track;
    });
    showLegend(this.#legend, content.tracks);
    this.#draw();
  }

  #build() {
    const { tracks, marks } = this.#content;
    this.#lanes = tracks.map((track) => {
      const own = marks.filter((mark) => mark.stage === track.stage);
      const numbers = [...new Set(own.map((mark) => mark.number))];
      return {
        track,
        name: element("b.lane-name", { title: track.name }, track.name),
        value: element("span.lane-value"),
        plot: svgElement("svg", { class: "plot", "aria-hidden": "true" }),
        marks: numbers.map((number) => ({ number, row: element("div.stretches") })),
      };
    });
    this.#rows.replaceChildren(
      ...this.#lanes.map(({ track, name, value, plot, marks }) =>
        element(
          `div.lane.${track.kind}`,
          {},
          element("p.lane-head", {}, name, value),
          plot,
          ...marks.map((one) => one.row),
        ),
      ),
    );
  }

  /** What is shown, in seconds. */
  range() {
    return this.#view ?? { from: 0, to: this.end() };
  }

  /** When the run ends, or has come to, in seconds. */
  end() {
    return this.#content.points.at(-1).end_timestamp_seconds - this.#content.zero;
  }

  /** Start and end of a point, in seconds. @param {Point} point */
  #times(point) {
    const { zero } = this.#content;
    return [point.start_timestamp_seconds - zero, point.end_timestamp_seconds - zero];
  }

  /** The points that lie in a range, at least in part. */
  #within({ from, to }) {
    return this.#content.points.filter((point) => {
      const [start, end] = this.#times(point);
      return end > from && start < to;
    });
  }

  /** The index of the point at a time. @param {number} time */
  #pointAt(time) {
    const { points } = this.#content;
    const index = points.findIndex((point) => this.#times(point)[1] > time);
    return index < 0 ? points.length - 1 : index;
  }

  // -- drawing

  #draw() {
    const width = this.#area.clientWidth;
    if (!this.#content || width === 0) return;
    const { from, to } = this.range();
    const x = (time) => Math.min(1, Math.max(0, (time - from) / (to - from))) * width;
    this.#drawTicks(from, to, width, x);
    const shown = this.#within({ from, to });
    for (const { track, plot } of this.#lanes) {
      const height = plot.clientHeight;
      plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
      const heights = shown.map(track.heights);
      const edges = shown.map((point) => this.#times(point).map(x));
      plot.replaceChildren(
        ...bandPaths(track, heights, edges, height),
        ...bandWords(track, heights, edges, height, width),
      );
    }
    this.#drawMarks(from, to);
    this.#drawCursor();
    const whole = this.#view === null;
    for (const name of ["wider", "all"]) this.#enable(name, !whole);
    this.#enable("earlier", from > 0);
    this.#enable("later", to < this.end());
    this.#enable("closer", to - from > 1.01 * this.#least());
    this.#area.dataset.points = String(shown.length);
  }

  #enable(name, on) {
    this.#buttons[name].setAttribute("aria-disabled", String(!on));
  }

  #drawTicks(from, to, width, x) {
    const { step, times } = roundTimes(from, to, width / LABEL);
    this.#ticks.replaceChildren(
      ...times.map((time) => {
        const tick = element("div.tick", {}, element("span", {}, timeText(time, step)));
        tick.style.left = `${x(time)}px`;
        tick.classList.toggle("last", x(time) > width - 0.75 * LABEL); // its label does not fit
        return tick;
      }),
    );
  }

  #drawMarks(from, to) {
    const { marks, zero } = this.#content;
    for (const lane of this.#lanes) {
      for (const { number, row } of lane.marks) {
        const own = marks.filter((one) => one.stage === lane.track.stage && one.number === number);
        own.forEach((mark, index) => {
          const link = row.children[index] ?? row.appendChild(element("a"));
          const [start, end] = [mark.start - zero, mark.end - zero];
          link.className = `stretch ${mark.severity}`;
          link.href = `#finding-${number}`;
          link.hidden = end <= from || start >= to;
          // of a short one at the end, too, the number can be seen
          link.style.left = `min(${(Math.max(0, start - from) / (to - from)) * 100}%, 100% - 1.5rem)`;
          link.style.right = `${(Math.max(0, to - end) / (to - from)) * 100}%`;
          const when = `${this.#text(start)} to ${this.#text(end)}`;
          link.setAttribute("aria-label", `Finding ${number}, ${mark.id}, at ${lane.track.name}: ${when}`);
          link.title = `${mark.id}: ${when}`;
          setText(link, `${number} ${mark.id}`);
        });
        while (row.childElementCount > own.length) row.lastElementChild.remove();
      }
    }
  }

  /** The cursor, and the read-outs: of its point, or without it of all that is shown. */
  #drawCursor() {
    const range = this.range();
    const at = this.#at;
    const seen = at !== null && at >= range.from && at <= range.to;
    const points = seen ? [this.#content.points[this.#pointAt(at)]] : this.#within(range);
    for (const { track, value } of this.#lanes) setText(value, track.describe(points));
    this.#cursor.classList.toggle("seen", seen);
    const place = seen ? (at - range.from) / (range.to - range.from) : 0;
    this.#cursor.style.left = `${place * 100}%`;
    const moment = at ?? range.from;
    const clock = timeOfDay(new Date((this.#content.zero + moment) * 1000));
    this.#cursor.setAttribute("aria-valuemin", "0");
    this.#cursor.setAttribute("aria-valuemax", this.end().toFixed(3));
    this.#cursor.setAttribute("aria-valuenow", moment.toFixed(3));
    this.#cursor.setAttribute("aria-valuetext", this.#text(moment));
    const stretch = `${this.#text(range.from)} to ${this.#text(range.to)}, on average`;
    setText(this.#time, seen ? `At ${this.#text(at)} (${clock})` : stretch);
  }

  /** A time in words, as exact as what is shown. @param {number} seconds */
  #text(seconds) {
    const { from, to } = this.range();
    return timeText(seconds, roundTimes(from, to, 50).step);
  }

  // -- moving about

  /** Seconds: a shorter range is not shown. */
  #least() {
    const lengths = this.#content.points.map((point) => {
      const [start, end] = this.#times(point);
      return end - start;
    });
    return Math.max(Math.min(...lengths.filter((length) => length > 0)), this.end() / 1000);
  }

  /** Show this part of the run. @param {{from: number, to: number} | null} range null: all */
  show(range) {
    if (range) {
      const end = this.end();
      const length = Math.max(range.to - range.from, this.#least());
      const from = Math.max(0, Math.min(range.from, end - length));
      this.#view = length > 0.999 * end ? null : { from, to: from + length };
    } else {
      this.#view = null;
    }
    this.#draw();
  }

  /** Show `factor` times as much, around the cursor. @param {number} factor */
  zoom(factor) {
    const { from, to } = this.range();
    const at = this.#at !== null && this.#at >= from && this.#at <= to ? this.#at : (from + to) / 2;
    this.show({ from: at - (at - from) * factor, to: at + (to - at) * factor });
  }

  /** Show what is earlier or later. @param {number} share of what is shown, below 0 for earlier */
  pan(share) {
    const { from, to } = this.range();
    const by = (to - from) * share;
    this.show({ from: from + by, to: to + by });
  }

  /** Move the cursor, and what is shown after it. @param {number | null} time null: no cursor */
  moveTo(time) {
    this.#at = time === null ? null : Math.max(0, Math.min(time, this.end()));
    const { from, to } = this.range();
    if (this.#at !== null && this.#at < from) this.pan((this.#at - from) / (to - from) - 0.1);
    else if (this.#at !== null && this.#at > to) this.pan((this.#at - to) / (to - from) + 0.1);
    else this.#drawCursor();
  }

  /** Move the cursor by points. @param {number} count */
  step(count) {
    const { points } = this.#content;
    const old = this.#at === null ? this.#pointAt(this.range().from) : this.#pointAt(this.#at);
    const index = Math.max(0, Math.min(points.length - 1, old + (this.#at === null ? 0 : count)));
    const [start, end] = this.#times(points[index]);
    this.moveTo((start + end) / 2);
  }

  /** Announce the read-out, once the keys have come to rest. */
  announce() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      const texts = this.#lanes.map(({ track, value }) => `${track.name}: ${value.textContent}`);
      setText(this.#spoken, [this.#time.textContent, ...texts].join(". "));
    }, SETTLED);
  }
}
