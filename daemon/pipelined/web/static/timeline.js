// SPDX-License-Identifier: Apache-2.0
/** What is drawn of a run over time: tracks of stacked bands, from its time line as the API has it. */

/**
 * @typedef {{start_timestamp_seconds: number, end_timestamp_seconds: number,
 *            level_seconds: Record<string, number>, unwatched_seconds: number,
 *            stages: Array<{state_seconds: Record<string, number>, read_bytes: number,
 *                           written_bytes: number}>}} Point
 * @typedef {{command: string, position: number}} Stage
 * @typedef {{word: string, fill: string}} Band `word` is written into it; `fill` as of SVG
 * @typedef {{kind: string, name: string, stage: number | null, bands: Band[],
 *            heights: (point: Point) => number[], top: number,
 *            describe: (points: Point[]) => string}} Track
 *   `stage` is the index of the track's stage; `heights` are of the bands, from the bottom up, of at
 *   most `top` in all; `describe` is what happened in these points, in words
 */

/** States whose colour comes with a pattern, as in the bars; `lanes.js` draws the patterns. */
export const PATTERNS = ["pipe_empty", "pipe_full"];

/** @param {number} value 0 to 1 */
const asPercent = (value) => (value > 0 && value < 0.005 ? "<1 %" : `${Math.round(value * 100)} %`);

/** @param {number} value bytes per second */
function asSpeed(value) {
  const units = ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"];
  const step = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(value || 1) / 3)));
  const scaled = value / 1000 ** step;
  return `${scaled >= 100 || step === 0 ? Math.round(scaled) : Math.round(scaled * 10) / 10} ${units[step]}`;
}

/** @param {number[]} values */
const sum = (values) => values.reduce((total, value) => total + value, 0);

/** Seconds in which no daemon ran. @param {Point} point */
const unwatched = (point) => point.unwatched_seconds ?? 0;

/** Seconds that were watched: shares are of these. @param {Point} point */
const span = (point) => point.end_timestamp_seconds - point.start_timestamp_seconds - unwatched(point);

/** @param {Point[]} points */
const length = (points) => sum(points.map(span));

/** Seconds times stages on CPU. @param {Point} point */
const stageSeconds = (point) => sum(Object.values(point.level_seconds).map((s, level) => s * level));

/** The mean level of a point. @param {Point} point */
export const levelOf = (point) => stageSeconds(point) / (span(point) || 1);

/**
 * How many stages were on CPU at once, on average, for the small chart of a live run.
 *
 * @param {Array<{time: number, level: number}>} marks each with the mean since the one before
 * @param {number} zero when the chart's times are 0
 * @returns {import("./chart.js").Content}
 */
export function meanLevel(marks, zero) {
  const points = marks.map((mark) => ({ time: mark.time - zero, value: mark.level }));
  return { title: "Stages on CPU at once", points };
}

/**
 * The tracks of a run: the level, each stage in the order of the data, the throughput.
 *
 * @param {Point[]} points @param {Stage[]} stages
 * @param {Array<[string, string]>} words for the states
 * @returns {Track[]}
 */
export function tracks(points, stages, words) {
  const labels = names(stages);
  return [
    levels(points),
    ...stages.map((_, index) => states(points, index, labels[index], words)),
    throughput(points, labels),
  ];
}

/** The stages' positions and names; several of one name and position are counted. */
function names(stages) {
  const alike = (one) => stages.filter((s) => s.position === one.position && s.command === one.command);
  return stages.map((stage) => {
    const group = alike(stage);
    const place = group.length > 1 ? `, ${group.indexOf(stage) + 1} of ${group.length}` : "";
    return `${stage.position} ${stage.command}${place}`;
  });
}

/** What share of some points no daemon ran. @param {Point[]} some */
const unwatchedShare = (some) => sum(some.map(unwatched)) / (length(some) + sum(some.map(unwatched)) || 1);

/** Shares of the time at each level, the highest at the bottom; and of the time not watched. */
function levels(points) {
  const all = Object.keys(points[0].level_seconds);
  const share = (some, level) => sum(some.map((p) => p.level_seconds[level])) / (length(some) || 1);
  const gaps = points.some((point) => unwatched(point) > 0) ? [{ word: "not watched", fill: "var(--unwatched)" }] : [];
  const reached = all.filter((level) => points.some((p) => p.level_seconds[level] > 0)).reverse();
  return {
    kind: "level",
    name: "Stages on CPU at once",
    stage: null,
    bands: [...reached.map((level) => ({ word: level, fill: `var(--level-${all.indexOf(level)})` })), ...gaps],
    heights: (point) => {
      const gap = unwatchedShare([point]);
      return [...reached.map((level) => share([point], level) * (1 - gap)), ...gaps.map(() => gap)];
    },
    top: 1,
    describe: (some) => {
      const gap = unwatchedShare(some);
      if (gap > 0.995) return "not watched: no daemon ran";
      const parts = reached.toReversed().map((level) => [level, share(some, level)]);
      const shown = parts.filter(([, value]) => value >= 0.005);
      const each = shown.map(([level, value]) => `${level}: ${asPercent(value)}`).join(", ");
      const mean = sum(some.map(stageSeconds)) / (length(some) || 1);
      const rest = gap > 0 ? `, ${asPercent(gap)} not watched` : "";
      return `${mean.toFixed(1)} on average${each ? ` (${each})` : ""}${rest}`;
    },
  };
}

/** Shares of a stage's time in each state; blank for the time that it was not alive. */
function states(points, index, name, words) {
  const seconds = (point, state) => point.stages[index]?.state_seconds[state] ?? 0;
  const whole = (point) => Math.max(span(point), sum(words.map(([state]) => seconds(point, state))));
  const seen = words.filter(([state]) => points.some((point) => seconds(point, state) > 0));
  return {
    kind: "stage",
    name,
    stage: index,
    bands: seen.map(([state, word]) => ({
      word,
      fill: PATTERNS.includes(state) ? `url(#pattern-${state})` : `var(--state-${state})`,
    })),
    heights: (point) => seen.map(([state]) => seconds(point, state) / (whole(point) || 1)),
    top: 1,
    describe: (some) => {
      const total = sum(some.map(whole)) || 1;
      const shares = seen
        .map(([state, word]) => [word, sum(some.map((point) => seconds(point, state))) / total])
        .filter(([, value]) => value >= 0.005)
        .sort((a, b) => b[1] - a[1])
        .map(([word, value]) => `${word} ${asPercent(value)}`);
      if (shares.length === 0) {
        if (unwatchedShare(some) > 0.5) return "not watched";
        const alive = sum(seen.map(([state]) => sum(some.map((point) => seconds(point, state))))) / total;
        return alive > 0 ? `alive ${asPercent(alive)}` : "not alive";
      }
      const bytes = (key) => sum(some.map((point) => point.stages[index]?.[key] ?? 0));
      const flow = [["read_bytes", "reads"], ["written_bytes", "writes"]]
        .filter(([key]) => bytes(key) > 0)
        .map(([key, verb]) => `${verb} ${asSpeed(bytes(key) / (length(some) || 1))}`);
      const cpus = sum(some.map((point) => seconds(point, "cpu"))) / (length(some) || 1);
      const several = cpus > 1.05 ? [`${cpus.toFixed(1)} CPUs`] : [];
      return [shares.join(", "), ...several, ...flow].join("; ");
    },
  };
}

/** What each stage read or wrote per second, whichever is more, one on top of the other. */
function throughput(points, labels) {
  const moved = (some, index) =>
    sum(some.map(({ stages }) => Math.max(stages[index]?.read_bytes ?? 0, stages[index]?.written_bytes ?? 0))) /
    (length(some) || 1);
  const heights = (point) => labels.map((_, index) => moved([point], index));
  const top = Math.max(...points.map((point) => sum(heights(point))));
  return {
    kind: "throughput",
    name: "Throughput of the stages",
    stage: null,
    bands: labels.map((label, index) => ({
      word: label.split(" ")[0],
      fill: `var(--flow-${index % 2})`,
    })),
    heights,
    top: top || 1,
    describe: (some) => {
      const each = labels.map((label, index) => [label, moved(some, index)]);
      const [label, most] = each.reduce((a, b) => (b[1] > a[1] ? b : a));
      const all = asSpeed(sum(each.map(([, value]) => value)));
      const by = most > 0 ? `, most by ${label}: ${asSpeed(most)}` : "";
      return `${all} in all${by} (top of the lane: ${asSpeed(top)})`;
    },
  };
}
