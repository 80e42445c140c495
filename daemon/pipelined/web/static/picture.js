// SPDX-License-Identifier: Apache-2.0
/**
 * Draws the diagram of a run, which the daemon computes (`diagram.py`): stages as boxes in columns,
 * joined by pipes. Only positions are computed here. Columns that do not fit side by side continue
 * on the next line, as text does. If not even two fit, they stand one below the other.
 */

import { makeBar } from "./bar.js";
import { element, setAttribute, setText, svgElement } from "./dom.js";

/**
 * @typedef {import("./bar.js").StatePart} StatePart
 * @typedef {{column: number, command: string, count: number, position: number,
 *            bottleneck: boolean, ended: boolean, exit: string, cpu: string, wait: string,
 *            states: StatePart[], read: string, written: string}} Box
 * @typedef {{writer: number, reader: number, state: string, share_ratio: number, text: string,
 *            speed: string}} Pipe
 * @typedef {{seconds: number, boxes: Box[], pipes: Pipe[]}} Diagram
 */

/** Minimum width of a box, width of the pipe beside it, and of the margin of a picture of several
 * lines, in which a pipe leaves one line and enters the next (pixels; as in page.css). */
const BOX_WIDTH = 132;
const PIPE_WIDTH = 84;
const MARGIN = 24;
/** How far from a box, and from the line of boxes above, a pipe runs that does not lead straight
 * to the next box. */
const AWAY = 12;
const BELOW = 26;

/**
 * @typedef {"on" | "above" | "below" | "over" | "left" | "right"} Side where a label is: around the
 *   pipe, beyond the end of a branch, in one line over the pipe, or on one side of it
 * @typedef {{path: string, x: number, y: number, side: Side, arrow: string}} Route
 */

export class Picture {
  #root;
  #columns;
  #svg;
  #labels;
  /** @type {Array<ReturnType<typeof makeBox>>} */ #boxes = [];
  /** @type {Array<ReturnType<typeof makePipe>>} */ #pipes = [];
  /** @type {Diagram | null} */ #diagram = null;
  #shape = "";

  /**
   * @param {HTMLElement} root where to draw
   * @param {string} name of the pipeline, for screen readers
   */
  constructor(root, name) {
    this.#root = root;
    this.#columns = element("div.columns");
    this.#svg = svgElement("svg", { "aria-hidden": "true" });
    this.#labels = element("ul.pipes", { "aria-label": "Pipes" });
    root.classList.add("picture");
    root.setAttribute("role", "group");
    this.rename(name);
    root.replaceChildren(this.#svg, this.#columns, this.#labels);
    new ResizeObserver(() => this.#place()).observe(root);
  }

  /** @param {string} name of the pipeline, which changes when a stage joins */
  rename(name) {
    setAttribute(this.#root, "aria-label", `Stages of ${name}`);
  }

  /**
   * @param {Diagram} now of the last second or so
   * @param {Diagram | null} whole of the run so far; null when `now` is of the whole run
   */
  update(now, whole) {
    const shape = JSON.stringify([
      now.boxes.map((box) => [box.column, box.command, box.count, box.position]),
      now.pipes.map((pipe) => [pipe.writer, pipe.reader]),
      whole === null,
    ]);
    if (shape !== this.#shape) {
      this.#shape = shape;
      this.#build(now, whole !== null);
    }
    this.#diagram = now;
    now.boxes.forEach((box, index) => this.#boxes[index].update(box, whole?.boxes[index]));
    now.pipes.forEach((pipe, index) => this.#pipes[index].update(pipe));
    this.#place();
  }

  /** @param {Diagram} diagram @param {boolean} live */
  #build(diagram, live) {
    this.#boxes = diagram.boxes.map((box) => makeBox(box, live));
    this.#pipes = diagram.pipes.map((pipe) =>
      makePipe(diagram.boxes[pipe.writer].command, diagram.boxes[pipe.reader].command),
    );
    const columns = [];
    diagram.boxes.forEach((box, index) => {
      columns[box.column] ??= element("div.column");
      columns[box.column].append(this.#boxes[index].root);
      columns[box.column].classList.toggle("many", columns[box.column].childElementCount > 1);
    });
    this.#columns.replaceChildren(...columns.filter(Boolean));
    this.#svg.replaceChildren(...this.#pipes.flatMap((pipe) => pipe.lines));
    this.#labels.replaceChildren(...this.#pipes.map((pipe) => pipe.label));
  }

  /** Place the columns in lines, then draw the pipes between the boxes. */
  #place() {
    const width = this.#root.clientWidth;
    if (!this.#diagram || width === 0) return; // nothing yet, or hidden
    const count = this.#columns.childElementCount;
    const fitting = (space) => Math.floor((space + PIPE_WIDTH) / (BOX_WIDTH + PIPE_WIDTH));
    const wraps = fitting(width) < count;
    const perLine = wraps ? Math.max(1, fitting(width - 2 * MARGIN)) : count;
    const tall = wraps && perLine === 1;
    this.#root.classList.toggle("tall", tall);
    this.#root.classList.toggle("wraps", wraps && !tall);
    this.#root.classList.toggle(
      "passing",
      this.#diagram.pipes.some((pipe) => this.#passes(pipe)),
    );
    this.#columns.style.setProperty("--per-line", String(perLine));
    const frame = this.#root.getBoundingClientRect();
    this.#svg.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
    this.#diagram.pipes.forEach((pipe, index) => {
      this.#pipes[index].place(tall ? this.#down(pipe, frame) : this.#along(pipe, frame, perLine));
    });
  }

  /** The route of a pipe if every column has a line of its own. @returns {Route} */
  #down(pipe, frame) {
    const [writer, reader] = [this.#boxes[pipe.writer].root, this.#boxes[pipe.reader].root];
    const from = inside(writer.getBoundingClientRect(), frame);
    const to = inside(reader.getBoundingClientRect(), frame);
    if (this.#passes(pipe)) return beside(from, to, frame);
    if (isBranch(reader)) return intoBranch(from, to);
    const column = inside(writer.parentElement.getBoundingClientRect(), frame);
    if (isBranch(writer)) return outOfBranch(from, to, column.right);
    return straightDown(from, to);
  }

  /** The route of a pipe if columns are side by side. @returns {Route} */
  #along(pipe, frame, perLine) {
    const [writer, reader] = [this.#boxes[pipe.writer].root, this.#boxes[pipe.reader].root];
    const from = inside(writer.getBoundingClientRect(), frame);
    const to = inside(reader.getBoundingClientRect(), frame);
    const columns = [...this.#columns.children];
    const lineOf = (box) => Math.floor(columns.indexOf(box.parentElement) / perLine);
    const line = lineOf(writer);
    const bottom = columns[line * perLine].getBoundingClientRect().bottom - frame.top;
    if (this.#passes(pipe)) {
      const under = (box, at) => isLowest(box) && lineOf(box) === line ? at.center : null;
      return below(from, to, bottom + BELOW, under(writer, from), under(reader, to));
    }
    if (lineOf(reader) !== line) {
      const next = columns[(line + 1) * perLine].getBoundingClientRect().top - frame.top;
      return below(from, to, next - BELOW);
    }
    return across(from, to, this.#branches(pipe, "reader"), this.#branches(pipe, "writer"));
  }

  /** Whether another pipe has the same writer or reader. @param {"writer" | "reader"} end */
  #branches(pipe, end) {
    return this.#diagram.pipes.some(
      (other) => other !== pipe && !this.#passes(other) && other[end] === pipe[end],
    );
  }

  /** Whether the pipe leads past a column, or backwards. @param {Pipe} pipe */
  #passes(pipe) {
    const { boxes } = this.#diagram;
    return boxes[pipe.reader].column - boxes[pipe.writer].column !== 1;
  }
}

/** @param {DOMRect} rect @param {DOMRect} frame */
function inside(rect, frame) {
  const [left, top] = [rect.left - frame.left, rect.top - frame.top];
  return {
    left,
    top,
    right: left + rect.width,
    bottom: top + rect.height,
    middle: top + rect.height / 2,
    center: left + rect.width / 2,
  };
}

/** Whether a box shares its column with others. @param {HTMLElement} box */
const isBranch = (box) => box.parentElement.childElementCount > 1;

/** Whether there is no box below it in its column. @param {HTMLElement} box */
const isLowest = (box) => box.nextElementSibling === null;

/** The mark just before the end of a pipe: where the data goes. */
const arrowRight = (x, y) => `M${x - 13} ${y - 4}l5 4l-5 4`;
const arrowLeft = (x, y) => `M${x + 13} ${y - 4}l-5 4l5 4`;
const arrowUp = (x, y) => `M${x - 4} ${y + 13}l4 -5l4 5`;
const arrowDown = (x, y) => `M${x - 4} ${y - 13}l4 5l4 -5`;

/**
 * To the next column on the same line. The label of a branch is beyond its end that is no other
 * branch's, so that labels are neither in each other's way nor over a box.
 *
 * @returns {Route}
 */
function across(from, to, sharesReader, sharesWriter) {
  const half = (from.right + to.left) / 2;
  const path = `M${from.right} ${from.middle}C${half} ${from.middle} ${half} ${to.middle} ${to.left} ${to.middle}`;
  const arrow = arrowRight(to.left, to.middle);
  const [own, other] = sharesReader ? [from, to] : [to, from];
  if ((sharesReader || sharesWriter) && Math.abs(own.middle - other.middle) > BELOW) {
    const side = own.middle < other.middle ? "above" : "below";
    return { path, x: half, y: own.middle, side, arrow };
  }
  return { path, x: half, y: (from.middle + to.middle) / 2, side: "on", arrow };
}

/**
 * Out of the box to the right, along below its line at height `y`, and from the left into the
 * other: to the next line, or past other columns.
 *
 * @param {number | null} [out] leave the box at its bottom, here
 * @param {number | null} [into] enter the other at its bottom, here
 * @returns {Route}
 */
function below(from, to, y, out = null, into = null) {
  const [right, left] = [out ?? from.right + AWAY, into ?? to.left - AWAY];
  const begin = out === null ? `M${from.right} ${from.middle}H${right}` : `M${out} ${from.bottom}`;
  const end = into === null ? `V${to.middle}H${to.left}` : `V${to.bottom}`;
  return {
    path: `${begin}V${y}H${left}${end}`,
    x: (right + left) / 2,
    y,
    side: "over",
    arrow: into === null ? arrowRight(to.left, to.middle) : arrowUp(into, to.bottom),
  };
}

/** With columns below each other, to the next one. @returns {Route} */
function straightDown(from, to) {
  const half = (from.bottom + to.top) / 2;
  return {
    path: `M${from.center} ${from.bottom}C${from.center} ${half} ${to.center} ${half} ${to.center} ${to.top}`,
    x: (from.center + to.center) / 2 + 16,
    y: half,
    side: "right",
    arrow: arrowDown(to.center, to.top),
  };
}

/** With columns below each other: down on the left side, then into the box. @returns {Route} */
function intoBranch(from, to) {
  const x = 14;
  const begin = from.left < x ? `${x} ${from.bottom}` : `${from.left} ${from.middle}H${x}`;
  return {
    path: `M${begin}V${to.middle}H${to.left}`,
    x: to.left,
    y: to.top - 12,
    side: "right",
    arrow: arrowRight(to.left, to.middle),
  };
}

/** With columns below each other: out of the box, then down on the right side. @returns {Route} */
function outOfBranch(from, to, right) {
  const x = right - 14;
  return {
    path: `M${from.right} ${from.middle}H${x}V${to.top}`,
    x: from.left,
    y: from.bottom + 12,
    side: "right",
    arrow: arrowDown(x, to.top),
  };
}

/** With columns below each other: past other boxes to their right. @returns {Route} */
function beside(from, to, frame) {
  const x = frame.width - 12;
  return {
    path: `M${from.right} ${from.middle}H${x}V${to.middle}H${to.right}`,
    x: x - 46,
    y: (from.middle + to.middle) / 2,
    side: "left",
    arrow: arrowLeft(to.right, to.middle),
  };
}

/** @param {Box} box @param {boolean} live */
function makeBox(box, live) {
  const name = box.count > 1 ? `${box.command} ×${box.count}` : box.command;
  const mark = element("span.mark");
  const now = makeBarLine(live ? "now" : "run");
  const whole = live ? makeBarLine("so far") : null;
  const [cpu, wait] = [element("span"), element("span")];
  const [read, written] = [element("span"), element("span")];
  const root = element(
    "div.box",
    {},
    element("p.head", {}, element("span.position", {}, String(box.position)), element("b", {}, name)),
    mark,
    now.root,
    ...(whole ? [whole.root] : []),
    element("p.shares", {}, cpu, " ", wait),
    element("p.bytes", {}, read, " ", written),
  );
  return {
    root,
    /** @param {Box} box @param {Box | undefined} sum */
    update(box, sum) {
      root.classList.toggle("bottleneck", box.bottleneck);
      root.classList.toggle("ended", box.ended && live);
      root.classList.toggle("failed-stage", box.exit !== "");
      const marks = [box.bottleneck && "bottleneck", box.exit || (box.ended && live && "ended")];
      setText(mark, marks.filter(Boolean).join(", "));
      now.update(box.states);
      if (whole && sum) whole.update(sum.states);
      const ended = box.ended && sum ? sum : box;
      setText(cpu, ended.cpu);
      setText(wait, ended.wait);
      setText(read, `in ${(sum ?? box).read}`);
      setText(written, `out ${(sum ?? box).written}`);
    },
  };
}

/** A bar with its name before it. @param {string} name */
function makeBarLine(name) {
  const bar = makeBar(name);
  const root = element("p.bar-line", {}, element("span.bar-name", {}, name), bar.root);
  return { ...bar, root };
}

/** @param {string} writer @param {string} reader */
function makePipe(writer, reader) {
  const wall = svgElement("path");
  const content = svgElement("path");
  const arrow = svgElement("path", { class: "arrow" });
  const [state, share] = [element("span"), element("span")];
  const speed = element("span.pipe-speed");
  const label = element(
    "li",
    {},
    element("span.visually-hidden", {}, `from ${writer} to ${reader}: `),
    element("span.pipe-state", {}, state, " ", share),
    " ",
    speed,
  );
  return {
    lines: [wall, content, arrow],
    label,
    /** @param {Pipe} pipe */
    update(pipe) {
      setAttribute(wall, "class", `wall ${pipe.state}`);
      setAttribute(content, "class", `content ${pipe.state}`);
      setAttribute(label, "class", pipe.state);
      const [word, ...rest] = pipe.text.split(" ");
      setText(state, word);
      setText(share, rest.join(" "));
      setText(speed, pipe.speed);
    },
    /** @param {Route} route */
    place(route) {
      setAttribute(wall, "d", route.path);
      setAttribute(content, "d", route.path);
      setAttribute(arrow, "d", route.arrow);
      setAttribute(label, "data-side", route.side);
      label.style.left = `${route.x}px`;
      label.style.top = `${route.y}px`;
    },
  };
}
