// SPDX-License-Identifier: Apache-2.0
/**
 * The connection to the daemon: a stream of events, or requests every 2 seconds if the daemon
 * refuses another stream. Reports when the connection is lost, and restores it.
 */

import { timeOfDay } from "./dom.js";

/** Milliseconds between requests, and until a stream without events is given up. */
const POLL_EVERY = 2000;
const MAX_QUIET = 15000;
/** Requests after which a stream is tried again. */
const POLLS_BEFORE_STREAM = 15;

export class Connection {
  /** @type {EventSource | null} */ #stream = null;
  #timer = 0;
  #hasReceived = false;
  #polls = 0;
  /** @type {Date | null} */ #lostAt = null;
  #wasLost = false;
  #hasReported = false;
  #onMoment;
  #onStatus;

  /**
   * @param {(moment: object) => void} onMoment the answer of `/api/v1/now`
   * @param {(text: string, lost: boolean) => void} onStatus
   */
  constructor(onMoment, onStatus) {
    this.#onMoment = onMoment;
    this.#onStatus = onStatus;
  }

  /** Follow from now on, but not while the page is hidden: there are few streams. */
  start() {
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.#close();
      else this.#open();
    });
    this.#open();
  }

  #close() {
    this.#stream?.close();
    this.#stream = null;
    clearTimeout(this.#timer);
  }

  #open() {
    this.#close();
    if (document.hidden) return;
    this.#hasReceived = false;
    this.#stream = new EventSource("/api/v1/events");
    this.#stream.addEventListener("now", (event) => {
      this.#received();
      this.#onMoment(JSON.parse(event.data));
    });
    this.#stream.addEventListener("heartbeat", () => this.#received());
    this.#stream.addEventListener("error", () => this.#poll());
    this.#timer = setTimeout(() => this.#poll(), MAX_QUIET);
  }

  #received() {
    this.#hasReceived = true;
    this.#connected("Live: updated every second.");
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#poll(), MAX_QUIET);
  }

  /** The stream has ended or is silent: ask whether the daemon still answers. */
  async #poll() {
    const brokeOff = this.#hasReceived;
    this.#close();
    this.#lostAt ??= new Date();
    let moment;
    try {
      const answer = await fetch("/api/v1/now", { signal: AbortSignal.timeout(5000) });
      if (!answer.ok) throw new Error(answer.statusText);
      moment = await answer.json();
    } catch {
      this.#wasLost = true;
      this.#polls = POLLS_BEFORE_STREAM;
      this.#onStatus(`Lost the connection to the daemon at ${timeOfDay(this.#lostAt)}; trying again.`, true);
      this.#pollLater();
      return;
    }
    this.#onMoment(moment);
    this.#polls += 1;
    if (brokeOff || this.#polls > POLLS_BEFORE_STREAM) {
      this.#polls = 0;
      this.#open();
    } else {
      this.#connected("Updated every 2 seconds: the daemon serves no more pages live.");
      this.#pollLater();
    }
  }

  #pollLater() {
    if (!document.hidden) this.#timer = setTimeout(() => this.#poll(), POLL_EVERY);
  }

  /** @param {string} text */
  #connected(text) {
    const restored = this.#wasLost ? ` Connected again since ${timeOfDay(new Date())}.` : "";
    if (this.#lostAt || !this.#hasReported) this.#onStatus(text + restored, false);
    this.#hasReported = true;
    this.#lostAt = null;
    this.#wasLost = false;
  }
}
