// SPDX-License-Identifier: Apache-2.0
/** One lane of a chart over time: bands on top of each other, and words in them. */

import { element, svgElement } from "./dom.js";
import { PATTERNS } from "./timeline.js";

/**
 * @typedef {import("./timeline.js").Track} Track
 * Of each point: the heights of its bands, and where it begins and ends (pixels).
 * @typedef {number[][]} Heights
 * @typedef {Array<[number, number]>} Edges
 */

/** Pixels: the least part of a lane that gets a word of its own, a letter, the height of a line. */
const CELL = 80;
const LETTER = 7;
const LINE = 14;
/** A band that is nowhere higher than this cannot be seen (pixels). */
const THIN = 0.1;

/** The shares of each point summed from the bottom up: one row more than there are bands. */
function sums(track, heights) {
  const rows = [heights.map(() => 0)];
  track.bands.forEach((_, band) => {
    rows.push(heights.map((one, at) => rows[band][at] + one[band]));
  });
  return rows;
}

/**
 * One path per band: steps along its upper edge, and back along its lower one.
 *
 * @param {Track} track @param {Heights} heights @param {Edges} edges @param {number} height pixels
 */
export function bandPaths(track, heights, edges, height) {
  const rows = sums(track, heights);
  const y = (value) => (height * (1 - value / track.top)).toFixed(1);
  return track.bands.flatMap((band, index) => {
    const [low, high] = [rows[index], rows[index + 1]];
    if (high.every((value, at) => ((value - low[at]) / track.top) * height < THIN)) return [];
    const there = edges.map(([, end], at) => `V${y(high[at])}H${end.toFixed(1)}`);
    const back = edges.map(([start], at) => `V${y(low[at])}H${start.toFixed(1)}`).reverse();
    const path = svgElement("path", {
      d: `M${edges[0][0].toFixed(1)} ${height}${there.join("")}${back.join("")}Z`,
    });
    path.style.fill = band.fill;
    return [path];
  });
}

/**
 * The words of the bands that are the largest for a while, where they fit.
 *
 * @param {Track} track @param {Heights} heights @param {Edges} edges
 * @param {number} height pixels @param {number} width
 */
export function bandWords(track, heights, edges, height, width) {
  const count = Math.max(1, Math.floor(width / CELL));
  const cell = width / count;
  /** @type {Array<{band: number, from: number, to: number, y: number}>} */
  const found = [];
  for (let n = 0; n < count; n++) {
    const mean = track.bands.map(() => 0);
    edges.forEach(([start, end], at) => {
      const part = Math.min(end, (n + 1) * cell) - Math.max(start, n * cell);
      if (part > 0) mean.forEach((_, band) => (mean[band] += (heights[at][band] * part) / cell));
    });
    const most = Math.max(0, ...mean);
    const band = mean.indexOf(most);
    if ((most / track.top) * height < LINE) continue;
    const below = mean.slice(0, band).reduce((a, b) => a + b, 0);
    const y = height * (1 - (below + most / 2) / track.top);
    const last = found.at(-1);
    if (last && last.band === band && last.to === n) {
      last.y = (last.y * (last.to - last.from) + y) / (n + 1 - last.from);
      last.to = n + 1;
    } else found.push({ band, from: n, to: n + 1, y });
  }
  return found.flatMap(({ band, from, to, y }) => {
    const { word } = track.bands[band];
    if (word.length * LETTER > (to - from) * cell) return [];
    const text = svgElement("text", { x: String(((from + to) / 2) * cell), y: String(y) });
    text.textContent = word;
    return [text];
  });
}

/**
 * What the colours of the level and of the states mean.
 *
 * @param {HTMLElement} where a list @param {Track[]} tracks
 */
export function showLegend(where, tracks) {
  const groups = [
    ["Stages on CPU at once:", "level"],
    ["States of a stage:", "stage"],
  ].map(([title, kind]) => {
    const bands = tracks.filter((track) => track.kind === kind).flatMap((track) => track.bands);
    if (kind === "level") bands.reverse(); // from the lowest
    return [title, new Map(bands.map(({ word, fill }) => [word, fill]))];
  });
  const key = JSON.stringify(groups.map(([title, fills]) => [title, ...fills.keys()]));
  if (where.dataset.shown === key) return;
  where.dataset.shown = key;
  where.replaceChildren(
    ...groups.map(([title, fills]) => {
      const entries = [...fills].map(([word, fill]) => {
        const swatch = svgElement("svg", { class: "swatch", "aria-hidden": "true" });
        const rect = svgElement("rect", { width: "100%", height: "100%" });
        rect.style.fill = fill;
        swatch.append(rect);
        return element("li", {}, swatch, word);
      });
      return element("li", {}, element("b", {}, title), element("ul.legend", {}, ...entries));
    }),
  );
}

/** The patterns of the states that have one. */
export function patterns() {
  const shapes = { pipe_empty: ["5", "M0 0H3V5H0Z"], pipe_full: ["8", "M0 8L8 0H3L0 3ZM8 8V5L5 8Z"] };
  const defs = svgElement("defs");
  for (const state of PATTERNS) {
    const [size, d] = shapes[state];
    const units = { patternUnits: "userSpaceOnUse", width: size, height: size };
    const pattern = svgElement("pattern", { id: `pattern-${state}`, ...units });
    const path = svgElement("path", { d });
    path.style.fill = `var(--state-${state})`;
    pattern.append(path);
    defs.append(pattern);
  }
  const svg = svgElement("svg", { class: "patterns", "aria-hidden": "true", width: "0", height: "0" });
  svg.append(defs);
  return svg;
}
