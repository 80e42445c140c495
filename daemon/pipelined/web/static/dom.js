// SPDX-License-Identifier: Apache-2.0
/**
 * Elements and times. Names of commands come from other users' processes: text is only ever set
 * as text.
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * A new element.
 *
 * @param {string} tag name, and classes after dots: `div.box.ended`
 * @param {Record<string, string>} [attributes]
 * @param {...(Node | string)} children strings become text
 * @returns {HTMLElement}
 */
export function element(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const made = document.createElement(name);
  made.classList.add(...classes);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/**
 * A new element of a drawing.
 *
 * @param {string} name
 * @param {Record<string, string>} [attributes]
 * @returns {SVGElement}
 */
export function drawn(name, attributes = {}) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/**
 * Set an element's text, if it is another one: what has not changed is not told again.
 *
 * @param {Element} where
 * @param {string} text
 */
export function say(where, text) {
  if (where.textContent !== text) where.textContent = text;
}

/**
 * The time of day here, `12:03:04`.
 *
 * @param {Date} when
 * @returns {string}
 */
export function timeOfDay(when) {
  return [when.getHours(), when.getMinutes(), when.getSeconds()]
    .map((part) => String(part).padStart(2, "0"))
    .join(":");
}

/**
 * Day and time here, `2026-11-22 12:03:04`; of today only the time.
 *
 * @param {number} seconds Unix time
 * @returns {string}
 */
export function dayAndTime(seconds) {
  const when = new Date(seconds * 1000);
  const time = timeOfDay(when);
  if (when.toDateString() === new Date().toDateString()) return time;
  const [month, day] = [when.getMonth() + 1, when.getDate()].map((n) => String(n).padStart(2, "0"));
  return `${when.getFullYear()}-${month}-${day} ${time}`;
}

/** Show every `<time>` under `root`, which the server wrote in UTC, as the time here. */
export function localTimes(root) {
  for (const time of root.querySelectorAll("time[data-seconds]")) {
    say(time, dayAndTime(Number(time.dataset.seconds)));
  }
}
