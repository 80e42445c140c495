// SPDX-License-Identifier: Apache-2.0
/**
 * Draws the diagram of a run, which the daemon computes (`diagram.py`): stages as boxes in columns,
 * joined by pipes. Only positions are computed here. Columns that do not fit side by side are
 * placed one below the other.
 */

import { element, setText, svgElement } from "./dom.js";

/**
 * @typedef {{state: string, word: string, share_ratio: number, text: string}} StatePart
 * @typedef {{column: number, command: string, count: number, position: number,
 *            bottleneck: boolean, ended: boolean, cpu: string, wait: string,
 *            states: StatePart[], read: string, written: string}} Box
 * @typedef {{writer: number, reader: number, state: string, share_ratio: number, text: string,
 *            speed: string}} Pipe
 * @typedef {{seconds: number, boxes: Box[], pipes: Pipe[]}} Diagram
 */

/** Minimum widths of a box and of the pipe beside it, in pixels. */
const BOX_WIDTH = 150;
const PIPE_WIDTH = 104;

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
    root.setAttribute("aria-label", `Stages of ${name}`);
    root.replaceChildren(this.#svg, this.#columns, this.#labels);
    new ResizeObserver(() => this.#place()).observe(root);
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

  /** Draw the pipes between the boxes, wherever the browser has placed these. */
  #place() {
    if (!this.#diagram) return;
    const count = this.#columns.childElementCount;
    const tall = count * BOX_WIDTH + (count - 1) * PIPE_WIDTH > this.#root.clientWidth;
    this.#root.classList.toggle("tall", tall);
    const passing = this.#diagram.pipes.some((pipe) => this.#passes(pipe));
    this.#root.classList.toggle("passing", passing);
    const frame = this.#root.getBoundingClientRect();
    this.#svg.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
    this.#diagram.pipes.forEach((pipe, index) => {
      const [writer, reader] = [this.#boxes[pipe.writer].root, this.#boxes[pipe.reader].root];
      const from = inside(writer.getBoundingClientRect(), frame);
      const to = inside(reader.getBoundingClientRect(), frame);
      const passes = this.#passes(pipe);
      let route;
      if (passes) route = around(from, to, frame, tall);
      else if (tall && isBranch(reader)) route = intoBranch(from, to);
      else if (tall && isBranch(writer)) route = outOfBranch(from, to, frame);
      else route = across(from, to, tall);
      this.#pipes[index].place(route);
      this.#pipes[index].label.classList.toggle("beside", passes || this.#branches(pipe));
    });
  }

  /** Whether the pipe shares its writer or reader with another one. @param {Pipe} pipe */
  #branches(pipe) {
    const { pipes } = this.#diagram;
    return pipes.some(
      (other) =>
        other !== pipe &&
        !this.#passes(other) &&
        (other.writer === pipe.writer || other.reader === pipe.reader),
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

/** The route of a pipe to the next column, and where its label is placed. */
function across(from, to, tall) {
  if (tall) {
    const half = (from.bottom + to.top) / 2;
    return {
      path: `M${from.center} ${from.bottom}C${from.center} ${half} ${to.center} ${half} ${to.center} ${to.top}`,
      x: (from.center + to.center) / 2,
      y: half,
    };
  }
  const half = (from.right + to.left) / 2;
  return {
    path: `M${from.right} ${from.middle}C${half} ${from.middle} ${half} ${to.middle} ${to.left} ${to.middle}`,
    x: half,
    y: (from.middle + to.middle) / 2,
  };
}

/** Whether a box shares its column with others. @param {HTMLElement} box */
const isBranch = (box) => box.parentElement.childElementCount > 1;

/** With columns below each other: down on the left side, then into the box. */
function intoBranch(from, to) {
  const x = 14;
  const begin = from.left < x ? `${x} ${from.bottom}` : `${from.left} ${from.middle}L${x} ${from.middle}`;
  return { path: `M${begin}L${x} ${to.middle}L${to.left} ${to.middle}`, x: to.left, y: to.top - 12 };
}

/** With columns below each other: out of the box, then down on the right side. */
function outOfBranch(from, to, frame) {
  const x = frame.width - 14;
  return {
    path: `M${from.right} ${from.middle}L${x} ${from.middle}L${x} ${to.top}`,
    x: from.left,
    y: from.bottom + 12,
  };
}

/** The route of a pipe past other boxes: below them, or to their right. */
function around(from, to, frame, tall) {
  if (tall) {
    const x = frame.width - 12;
    return {
      path: `M${from.right} ${from.middle}L${x} ${from.middle}L${x} ${to.middle}L${to.right} ${to.middle}`,
      x: x - 40,
      y: (from.middle + to.middle) / 2,
    };
  }
  const y = frame.height - 26;
  return {
    path: `M${from.center} ${from.bottom}L${from.center} ${y}L${to.center} ${y}L${to.center} ${to.bottom}`,
    x: (from.center + to.center) / 2,
    y,
  };
}

/** @param {Box} box @param {boolean} live */
function makeBox(box, live) {
  const name = box.count > 1 ? `${box.command} ×${box.count}` : box.command;
  const mark = element("span.mark");
  const now = makeBar(live ? "now" : "run");
  const whole = live ? makeBar("so far") : null;
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
      setText(mark, box.bottleneck ? "bottleneck" : box.ended && live ? "ended" : "");
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

/** A bar of states; it is blank for the time that the stage was not alive. @param {string} name */
function makeBar(name) {
  const bar = element("span.bar", { role: "img" });
  return {
    root: element("p.bar-line", {}, element("span.bar-name", {}, name), bar),
    /** @param {StatePart[]} states */
    update(states) {
      const shown = states.filter((part) => part.share_ratio >= 0.005);
      const text = shown.map((part) => `${part.word} ${part.text}`).join(", ") || "nothing";
      bar.setAttribute("aria-label", `${name}: ${text}`);
      bar.title = text;
      bar.replaceChildren(
        ...shown.map((part) => {
          const piece = element(`span.state-${part.state}`);
          piece.style.width = `${part.share_ratio * 100}%`;
          return piece;
        }),
      );
    },
  };
}

/** @param {string} writer @param {string} reader */
function makePipe(writer, reader) {
  const wall = svgElement("path");
  const content = svgElement("path");
  const text = element("span.pipe-state");
  const speed = element("span.pipe-speed");
  const label = element(
    "li",
    {},
    element("span.visually-hidden", {}, `from ${writer} to ${reader}: `),
    text,
    " ",
    speed,
  );
  return {
    lines: [wall, content],
    label,
    /** @param {Pipe} pipe */
    update(pipe) {
      wall.setAttribute("class", `wall ${pipe.state}`);
      content.setAttribute("class", `content ${pipe.state}`);
      label.classList.toggle("full", pipe.state === "full");
      setText(text, pipe.text);
      setText(speed, pipe.speed);
    },
    /** @param {{path: string, x: number, y: number}} route */
    place(route) {
      wall.setAttribute("d", route.path);
      content.setAttribute("d", route.path);
      label.style.left = `${route.x}px`;
      label.style.top = `${route.y}px`;
    },
  };
}

/**
 * What the colours of the bars mean, for the states in these diagrams.
 *
 * @param {HTMLElement} where
 * @param {Diagram[]} diagrams
 */
export function legend(where, diagrams) {
  const words = new Map();
  for (const box of diagrams.flatMap((diagram) => diagram.boxes)) {
    for (const part of box.states) if (part.share_ratio >= 0.005) words.set(part.state, part.word);
  }
  const shown = [...words.keys()].sort().join();
  if (where.dataset.shown === shown) return;
  where.dataset.shown = shown;
  where.replaceChildren(
    ...[...words].map(([state, word]) =>
      element("li", {}, element(`span.swatch.state-${state}`), word),
    ),
  );
}
