// SPDX-License-Identifier: Apache-2.0
/** Times since the start of a run: where marks stand on an axis, and how a time is written. */

/** Seconds between two marks. */
const STEPS = [
  ...[0.0001, 0.001, 0.01, 0.1, 1].flatMap((unit) => [unit, 2 * unit, 5 * unit]),
  10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800,
];
const UNITS = [
  ["d", 86400],
  ["h", 3600],
  ["min", 60],
];

/**
 * Marks at round times.
 *
 * @param {number} from seconds @param {number} to
 * @param {number} count of times, about, at most
 * @returns {{step: number, times: number[]}}
 */
export function roundTimes(from, to, count) {
  const least = (to - from) / Math.max(1, count);
  const step = STEPS.find((one) => one >= least) ?? 604800 * Math.ceil(least / 604800);
  const first = Math.ceil(from / step - 1e-6);
  const times = [];
  for (let n = first; n * step <= to + step * 1e-6; n++) times.push(n * step);
  return { step, times };
}

/**
 * A time in words: `20 ms`, `3.2 s`, `5 min 30 s`, `1 h 10 min`.
 *
 * @param {number} seconds
 * @param {number} exact to this many seconds; 1.5 steps apart times differ
 */
export function timeText(seconds, exact) {
  const digits = Math.max(0, Math.ceil(-Math.log10(exact) - 1e-6));
  let left = Number(seconds.toFixed(digits));
  if (left === 0) return "0 s";
  if (left < 1 && digits > 2) return `${(left * 1000).toFixed(digits - 3)} ms`;
  const parts = [];
  for (const [unit, size] of UNITS) {
    if (left >= size) parts.push(`${Math.floor(left / size)} ${unit}`);
    left %= size;
  }
  if (Number(left.toFixed(digits)) > 0) parts.push(`${left.toFixed(digits)} s`);
  return parts.join(" ");
}
