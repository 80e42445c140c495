// SPDX-License-Identifier: Apache-2.0
/** A small chart of one figure over the last minutes, with its mean and its maximum as text. */

import { element, setText, svgElement } from "./dom.js";
import { timeText } from "./time_axis.js";

/**
 * @typedef {{title: string, points: Array<{time: number, value: number}>}} Content
 *   points in order, `time` in seconds; a value is the mean since the point before
 */

/** Pixels in the chart's own measure; it is as wide as its place. */
const WIDTH = 1000;
const HEIGHT = 60;

export class Chart {
  #figure;
  #title = element("figcaption");
  #line = svgElement("path");
  #start = element("span");

  /** @param {HTMLElement} where a figure is appended to it */
  constructor(where) {
    const size = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" };
    const svg = svgElement("svg", { ...size, "aria-hidden": "true" });
    svg.append(this.#line);
    const axis = element("p.axis", { "aria-hidden": "true" }, this.#start, element("span", {}, "now"));
    this.#figure = element("figure.chart", {}, this.#title, svg, axis);
    where.append(this.#figure);
  }

  /** @param {Content} content */
  update({ title, points }) {
    this.#figure.dataset.points = String(points.length);
    const values = points.map((point) => point.value);
    const top = Math.max(1, ...values);
    const spans = points.slice(1).map((point, i) => point.time - points[i].time);
    const total = spans.reduce((sum, span) => sum + span, 0);
    const area = spans.reduce((sum, span, i) => sum + span * values[i + 1], 0);
    const mean = total > 0 ? area / total : (values[0] ?? 0);
    setText(this.#title, `${title}: ${mean.toFixed(1)} on average, at most ${Math.max(0, ...values).toFixed(1)}`);
    if (points.length < 2) return;
    const [first, last] = [points[0].time, points.at(-1).time];
    const x = (time) => (((time - first) / (last - first)) * WIDTH).toFixed(1);
    const steps = points.slice(1).map(({ time, value }) => `V${((1 - value / top) * HEIGHT).toFixed(1)}H${x(time)}`);
    this.#line.setAttribute("d", `M0 ${HEIGHT}${steps.join("")}V${HEIGHT}Z`);
    setText(this.#start, `${timeText(last - first, 1)} ago`);
  }
}
