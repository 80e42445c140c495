// SPDX-License-Identifier: Apache-2.0
/**
 * Charts over time, drawn by uPlot, each with its numbers in a table for those who cannot see it.
 * Colours come from the style sheet, so they follow the light and dark schemes.
 */

import uPlot from "./vendor/uplot/uPlot.esm.js";
import { element } from "./dom.js";

/**
 * @typedef {{name: string, color: string, values: Array<number | null>}} Series
 *   `color` is the name of a custom property of the style sheet; a value is that of the time since
 *   the previous point
 * @typedef {{title: string, series: Series[], times: number[], stacked?: boolean, top?: number,
 *            least?: number, height?: number, format: (value: number) => string}} Content
 *   `times` in seconds; `top`: the upper end of the scale, `least`: its minimum
 */

/** Seconds between the marks of the time axis; a multiple of one of these. */
const STEPS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600,
  900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800,
];

/** @param {number} value 0 to 1, or more on several CPUs */
export const asPercent = (value) => `${Math.round(value * 100)} %`;

/** @param {number} value */
export const asCount = (value) => String(Math.round(value * 100) / 100);

/** @param {number} value bytes per second */
export function asSpeed(value) {
  const units = ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"];
  const step = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(value || 1) / 3)));
  const scaled = value / 1000 ** step;
  return `${scaled >= 100 || step === 0 ? Math.round(scaled) : Math.round(scaled * 10) / 10} ${units[step]}`;
}

/** @param {number} seconds @param {number} step to the next mark */
function asTime(seconds, step) {
  const digits = step < 0.01 ? 3 : step < 0.1 ? 2 : step < 1 ? 1 : 0;
  if (step < 60) return `${seconds.toFixed(digits)} s`;
  return step < 3600 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 360) / 10} h`;
}

export class Chart {
  #figure;
  #plot;
  #table;
  #details;
  /** @type {uPlot | null} */ #uplot = null;
  /** @type {Content | null} */ #content = null;
  #shape = "";

  /** @param {HTMLElement} where a figure is appended to it */
  constructor(where) {
    this.#plot = element("div.plot", { role: "img" });
    this.#table = element("div.numbers", { tabindex: "0", role: "region" });
    this.#details = element("details", {}, element("summary", {}, "Numbers"), this.#table);
    this.#figure = element("figure.chart", {}, element("figcaption"), this.#plot, this.#details);
    where.append(this.#figure);
    this.#details.addEventListener("toggle", () => this.#fillTable());
    new ResizeObserver(() => this.#resize()).observe(this.#plot);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.#shape = "";
      if (this.#content) this.update(this.#content);
    });
  }

  /** @param {Content} content */
  update(content) {
    this.#content = content;
    this.#figure.firstElementChild.textContent = content.title;
    this.#figure.dataset.points = String(content.times.length);
    this.#plot.setAttribute("aria-label", describe(content));
    this.#table.setAttribute("aria-label", `${content.title}, numbers`);
    this.#fillTable();
    const shape = JSON.stringify([content.title, content.series.map((one) => one.name)]);
    const data = [content.times, ...heights(content)];
    if (shape === this.#shape && this.#uplot) {
      this.#uplot.setData(data);
      return;
    }
    this.#shape = shape;
    this.#uplot?.destroy();
    this.#uplot = new uPlot(this.#options(content), data, this.#plot);
  }

  /** @param {Content} content */
  #options(content) {
    const style = getComputedStyle(this.#figure);
    const ink = style.getPropertyValue("--quiet").trim();
    const line = style.getPropertyValue("--line").trim();
    const axis = { stroke: ink, font: `12px ${style.fontFamily}`, ticks: { show: false } };
    return {
      width: Math.max(200, this.#plot.clientWidth),
      height: content.height ?? 180,
      padding: [8, 12, 0, 0],
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      legend: { show: content.series.length > 1 },
      scales: {
        x: { time: false },
        y: { range: (_, __, highest) => [0, content.top ?? Math.max(highest * 1.05, content.least ?? 0.01)] },
      },
      axes: [
        {
          ...axis,
          size: 28,
          space: 60,
          incrs: STEPS,
          grid: { show: false },
          values: (_, marks, ___, ____, step) => marks.map((mark) => asTime(mark, step)),
        },
        {
          ...axis,
          size: 72,
          space: 34,
          grid: { stroke: line, width: 1 },
          values: (_, marks) => marks.map((mark) => this.#content.format(mark)),
        },
      ],
      series: [
        { label: "time", value: (_, seconds) => (seconds === null ? "" : `${seconds.toFixed(2)} s`) },
        ...content.series.map((one, index) => {
          const color = style.getPropertyValue(one.color).trim();
          return {
            label: one.name,
            stroke: color,
            width: content.stacked ? 0 : 2,
            fill: content.stacked ? color : undefined,
            paths: uPlot.paths.stepped({ align: -1 }),
            points: { show: false },
            value: (_, __, ___, at) => {
              const value = at === null ? null : this.#content.series[index].values[at];
              return value === null || value === undefined ? "" : this.#content.format(value);
            },
          };
        }),
      ],
      bands: content.stacked
        ? content.series.slice(1).map((_, index) => ({ series: [index + 2, index + 1] }))
        : [],
    };
  }

  #resize() {
    const width = this.#plot.clientWidth;
    if (this.#uplot && width > 0 && width !== this.#uplot.width) {
      this.#uplot.setSize({ width, height: this.#content.height ?? 180 });
    }
  }

  #fillTable() {
    if (!this.#details.open || !this.#content) return;
    const { title, series, times, format } = this.#content;
    const head = ["seconds", ...series.map((one) => one.name)].map((name) =>
      element("th", { scope: "col" }, name),
    );
    const rows = times.map((time, at) =>
      element(
        "tr",
        {},
        element("th", { scope: "row" }, time.toFixed(2)),
        ...series.map((one) =>
          element("td", {}, one.values[at] === null ? "" : format(one.values[at])),
        ),
      ),
    );
    this.#table.replaceChildren(
      element(
        "table",
        {},
        element("caption.visually-hidden", {}, title),
        element("thead", {}, element("tr", {}, ...head)),
        element("tbody", {}, ...rows),
      ),
    );
  }
}

/** The heights to draw: the values, or if stacked, their sums with those of the series before. */
function heights({ series, stacked, times }) {
  if (!stacked) return series.map((one) => one.values);
  const sum = times.map(() => 0);
  return series.map((one) =>
    one.values.map((value, at) => {
      if (value === null) return null;
      sum[at] += value;
      return sum[at];
    }),
  );
}

/** The chart in words. @param {Content} content */
function describe({ title, series, times, format }) {
  if (times.length === 0) return `${title}: nothing yet`;
  const parts = series.map((one) => {
    const known = one.values.filter((value) => value !== null);
    if (known.length === 0) return `${one.name}: nothing`;
    const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
    return `${one.name}: ${format(mean)} on average, ${format(Math.max(...known))} at most`;
  });
  const seconds = times.at(-1) - times[0];
  return `${title}, ${times.length} points over ${seconds.toFixed(1)} seconds. ${parts.join(". ")}`;
}
