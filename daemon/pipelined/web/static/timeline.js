// SPDX-License-Identifier: Apache-2.0
/** The contents of the charts of a run, from its time line as the API returns it. */

import { asCount, asPercent, asSpeed } from "./chart.js";

/**
 * @typedef {{start_timestamp_seconds: number, end_timestamp_seconds: number,
 *            level_seconds: Record<string, number>,
 *            stages: Array<{state_seconds: Record<string, number>, read_bytes: number,
 *                           written_bytes: number}>}} Point
 * @typedef {{command: string, position: number}} Stage
 * @typedef {import("./chart.js").Content} Content
 */

/** How many colours of lines there are. */
const LINES = 8;

/** The stages' names, with their index if a name occurs twice. @param {Stage[]} stages */
function names(stages) {
  const seen = new Map();
  for (const { command } of stages) seen.set(command, (seen.get(command) ?? 0) + 1);
  return stages.map(({ command }, index) =>
    seen.get(command) > 1 ? `${command} (${index + 1})` : command,
  );
}

/** @param {Point} point */
const span = (point) => point.end_timestamp_seconds - point.start_timestamp_seconds;

/**
 * The times of points: the start of the first, then each one's end, in seconds from `zero`.
 *
 * @param {Point[]} points @param {number} zero Unix time
 */
function times(points, zero) {
  if (points.length === 0) return [];
  return [
    points[0].start_timestamp_seconds - zero,
    ...points.map((point) => point.end_timestamp_seconds - zero),
  ];
}

/** One value for each of `times`: a step begins at the previous point. */
function stepped(points, value) {
  const values = points.map(value);
  return values.length ? [values[0], ...values] : [];
}

/**
 * CPU of each stage: 100 % is one CPU.
 *
 * @param {Point[]} points @param {Stage[]} stages @param {number} zero
 * @returns {Content}
 */
export function cpu(points, stages, zero) {
  return perStage("CPU by stage", points, stages, zero, asPercent, (stage, point) =>
    (stage.state_seconds.cpu ?? 0) / span(point),
  );
}

/**
 * What each stage read or wrote per second, whichever is more.
 *
 * @param {Point[]} points @param {Stage[]} stages @param {number} zero
 * @returns {Content}
 */
export function throughput(points, stages, zero) {
  return perStage(
    "Throughput by stage: read or written, whichever is more",
    points,
    stages,
    zero,
    asSpeed,
    (stage, point) => Math.max(stage.read_bytes, stage.written_bytes) / span(point),
  );
}

function perStage(title, points, stages, zero, format, value) {
  const labels = names(stages);
  return {
    title,
    times: times(points, zero),
    format,
    series: labels.map((name, index) => ({
      name,
      color: `--line-${index % LINES}`,
      values: stepped(points, (point) =>
        point.stages[index] ? value(point.stages[index], point) : null,
      ),
    })),
  };
}

/**
 * How many stages were on CPU at once, as shares of the time.
 *
 * @param {Point[]} points @param {number} zero
 * @returns {Content}
 */
export function levels(points, zero) {
  const labels = Object.keys(points[0]?.level_seconds ?? {});
  const reached = labels.filter((label) => points.some((point) => point.level_seconds[label] > 0));
  return {
    title: "Level: how many stages were on CPU at once",
    times: times(points, zero),
    format: asPercent,
    stacked: true,
    top: 1,
    series: reached.map((label) => ({
      name: label,
      color: `--level-${labels.indexOf(label)}`,
      values: stepped(points, (point) => point.level_seconds[label] / span(point)),
    })),
  };
}

/**
 * Where one stage's time went; blank for the time that it was not alive.
 *
 * @param {Point[]} points @param {Stage[]} stages @param {number} index of the stage
 * @param {Array<[string, string]>} words for the states
 * @param {number} zero
 * @returns {Content}
 */
export function states(points, stages, index, words, zero) {
  const total = (point) =>
    Math.max(span(point), sum(Object.values(point.stages[index]?.state_seconds ?? {})));
  const seen = words.filter(([state]) =>
    points.some((point) => point.stages[index]?.state_seconds[state] > 0),
  );
  return {
    title: `States of ${names(stages)[index]}`,
    times: times(points, zero),
    format: asPercent,
    stacked: true,
    top: 1,
    height: 130,
    series: seen.map(([state, word]) => ({
      name: word,
      color: `--state-${state}`,
      values: stepped(
        points,
        (point) => (point.stages[index]?.state_seconds[state] ?? 0) / total(point),
      ),
    })),
  };
}

/**
 * How many stages were on CPU at once, on average, one number for each time.
 *
 * @param {Array<{time: number, level: number}>} marks @param {number} zero
 * @returns {Content}
 */
export function meanLevel(marks, zero) {
  return {
    title: "Stages on CPU at once, on average",
    times: marks.map((mark) => mark.time - zero),
    format: asCount,
    least: 1,
    height: 120,
    series: [{ name: "stages", color: "--line-0", values: marks.map((mark) => mark.level) }],
  };
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

/** The mean level of a point. @param {Point} point */
export function levelOf(point) {
  const seconds = Object.values(point.level_seconds);
  return sum(seconds.map((value, level) => value * level)) / (sum(seconds) || 1);
}
