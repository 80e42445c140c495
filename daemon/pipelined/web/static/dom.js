// SPDX-License-Identifier: Apache-2.0
/**
 * Elements and times. Names of commands come from other users' processes, so text is only ever
 * set as text, never as HTML.
 */

const SVG = "http://www.w3.org/2000/svg";
/** Milliseconds until times are looked at again. */
const RENEW_TIMES_EVERY = 60000;

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
 * A new SVG element.
 *
 * @param {string} name
 * @param {Record<string, string>} [attributes]
 * @returns {SVGElement}
 */
export function svgElement(name, attributes = {}) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/**
 * Set an element's text if it has changed: a screen reader announces every text that is set.
 *
 * @param {Element} where
 * @param {string} text
 */
export function setText(where, text) {
  if (where.textContent !== text) where.textContent = text;
}

/**
 * Set an attribute if it has changed.
 *
 * @param {Element} where
 * @param {string} name
 * @param {string} value
 */
export function setAttribute(where, name, value) {
  if (where.getAttribute(name) !== value) where.setAttribute(name, value);
}

/**
 * The local time of day, `12:03:04`.
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
 * Local date and time, `2026-11-22 12:03:04`; only the time if it is today.
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

/** Show every `<time>` under `root`, which the server writes in UTC, in local time. */
export function localTimes(root) {
  for (const time of root.querySelectorAll("time[data-seconds]")) {
    setText(time, dayAndTime(Number(time.dataset.seconds)));
  }
}

/** The same on this page for as long as it is open: tomorrow a time of today needs its date. */
export function keepLocalTimes() {
  const show = () => localTimes(document);
  show();
  setInterval(show, RENEW_TIMES_EVERY);
  document.addEventListener("visibilitychange", show);
}
