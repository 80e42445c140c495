// SPDX-License-Identifier: Apache-2.0
/** Keys, mouse and fingers on a chart over time: they move its cursor, and zoom. */

/** A shorter drag than this is a click (pixels). */
const CLICK = 6;

/**
 * @typedef {import("./lanes.js").Lanes} Lanes
 * @typedef {{x: number, time: number}} Place pixels from the left end of the chart, and the time there
 */

/** What keys do while the cursor has the focus. @type {Record<string, (lanes: Lanes) => void>} */
const KEYS = {
  ArrowLeft: (lanes) => lanes.step(-1),
  ArrowRight: (lanes) => lanes.step(1),
  ArrowDown: (lanes) => lanes.step(-1),
  ArrowUp: (lanes) => lanes.step(1),
  PageDown: (lanes) => lanes.step(-10),
  PageUp: (lanes) => lanes.step(10),
  Home: (lanes) => lanes.moveTo(0),
  End: (lanes) => lanes.moveTo(lanes.end()),
  "+": (lanes) => lanes.zoom(0.5),
  "=": (lanes) => lanes.zoom(0.5),
  "-": (lanes) => lanes.zoom(2),
  Escape: (lanes) => {
    lanes.moveTo(null);
    lanes.show(null);
  },
};

/**
 * @param {Lanes} lanes
 * @param {{area: HTMLElement, cursor: HTMLElement, chosen: HTMLElement}} elements `chosen` is drawn
 *   over what a mouse is dragged across
 */
export function listen(lanes, { area, cursor, chosen }) {
  /** Where each finger, or the mouse with its button pressed, is. @type {Map<number, Place>} */
  const down = new Map();

  /** @returns {Place} */
  function placeOf(event) {
    const { left, width } = area.getBoundingClientRect();
    const x = Math.max(0, Math.min(width, event.clientX - left));
    const { from, to } = lanes.range();
    return { x, time: from + (x / width) * (to - from) };
  }

  /** Two fingers keep the times under them. @param {Place} one @param {Place} other */
  function pinch(one, other) {
    const [a, b] = one.time < other.time ? [one, other] : [other, one];
    if (b.x - a.x < CLICK) return;
    const scale = (b.time - a.time) / (b.x - a.x);
    const from = a.time - a.x * scale;
    lanes.show({ from, to: from + area.clientWidth * scale });
  }

  function press(event) {
    if (event.button !== 0 || event.target.closest("a")) return;
    down.set(event.pointerId, placeOf(event));
    area.setPointerCapture(event.pointerId);
  }

  function move(event) {
    const now = placeOf(event);
    const start = down.get(event.pointerId);
    if (start && down.size === 2) {
      start.x = now.x;
      pinch(...down.values());
      return;
    }
    lanes.moveTo(now.time);
    if (start && event.pointerType !== "mouse") down.set(event.pointerId, now);
    else if (start) {
      chosen.hidden = Math.abs(now.x - start.x) < CLICK;
      chosen.style.left = `${Math.min(start.x, now.x)}px`;
      chosen.style.width = `${Math.abs(now.x - start.x)}px`;
    }
  }

  function release(event) {
    const start = down.get(event.pointerId);
    down.delete(event.pointerId);
    const dragged = !chosen.hidden;
    chosen.hidden = true;
    if (!start || event.type === "pointercancel") return;
    const { time } = placeOf(event);
    if (dragged) lanes.show({ from: Math.min(start.time, time), to: Math.max(start.time, time) });
    else if (down.size === 0) {
      cursor.focus({ preventScroll: true }); // from here on keys move it
      lanes.moveTo(time);
    }
  }

  cursor.addEventListener("keydown", (event) => {
    const act = KEYS[event.key];
    if (!act || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    act(lanes);
    lanes.announce();
  });
  area.addEventListener("pointerdown", press);
  area.addEventListener("pointermove", move);
  area.addEventListener("pointerup", release);
  area.addEventListener("pointercancel", release);
  area.addEventListener("pointerleave", () => {
    if (down.size === 0 && document.activeElement !== cursor) lanes.moveTo(null);
  });
}
