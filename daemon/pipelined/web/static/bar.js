// SPDX-License-Identifier: Apache-2.0
/** Bars of states, and what their colours mean. */

import { element, setAttribute } from "./dom.js";

/** Smaller shares are not drawn. */
const LEAST = 0.005;

/** @typedef {{state: string, word: string, share_ratio: number, text: string}} StatePart */

/**
 * A bar of states; it is blank for the time that the stage was not alive.
 *
 * @param {string} name what it shows, for screen readers
 * @returns {{root: HTMLElement, update: (states: StatePart[]) => void}} an update changes the
 *   pieces that are there, and makes new ones only for more states than before
 */
export function makeBar(name) {
  const root = element("span.bar", { role: "img" });
  return {
    root,
    update(states) {
      const shown = states.filter((part) => part.share_ratio >= LEAST);
      const text = shown.map((part) => `${part.word} ${part.text}`).join(", ") || "nothing";
      setAttribute(root, "aria-label", `${name}: ${text}`);
      setAttribute(root, "title", text);
      while (root.childElementCount > shown.length) root.lastElementChild.remove();
      shown.forEach((part, index) => {
        const piece = root.children[index] ?? root.appendChild(element("span"));
        setAttribute(piece, "class", `state-${part.state}`);
        const width = `${(part.share_ratio * 100).toFixed(1)}%`;
        if (piece.style.width !== width) piece.style.width = width;
      });
    },
  };
}

/**
 * Add to a legend what the colours mean, for the states in these diagrams. What is in it stays, so
 * that it does not move what is below it with each update.
 *
 * @param {HTMLElement} where a list
 * @param {Array<{boxes: Array<{states: StatePart[]}>}>} diagrams
 */
export function legend(where, diagrams) {
  const known = new Set([...where.children].map((entry) => entry.dataset.state));
  for (const { states } of diagrams.flatMap((diagram) => diagram.boxes)) {
    for (const { state, word, share_ratio } of states) {
      if (share_ratio < LEAST || known.has(state)) continue;
      known.add(state);
      const swatch = element(`span.swatch.state-${state}`);
      where.append(element("li", { "data-state": state }, swatch, word));
    }
  }
}
