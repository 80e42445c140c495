// SPDX-License-Identifier: Apache-2.0
/**
 * The connection to the daemon: a stream of events, or questions now and then where the daemon
 * has as many streams as it takes. Says when the daemon is lost, and finds it again.
 */

import { timeOfDay } from "./dom.js";

/** Milliseconds between questions, and until a stream that says nothing is given up. */
const ASK_EVERY = 2000;
const SILENCE = 15000;
/** Questions after which a stream is tried again. */
const ASKS_BEFORE_STREAM = 15;

export class Connection {
  /** @type {EventSource | null} */ #stream = null;
  #timer = 0;
  #heard = false;
  #asks = 0;
  /** @type {Date | null} */ #lostAt = null;
  #wasLost = false;
  #told = false;
  #onMoment;
  #onStatus;

  /**
   * @param {(moment: object) => void} onMoment what `/api/v1/now` tells
   * @param {(text: string, lost: boolean) => void} onStatus
   */
  constructor(onMoment, onStatus) {
    this.#onMoment = onMoment;
    this.#onStatus = onStatus;
  }

  /** Follow from now on, but not while nobody looks: streams are few. */
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
    this.#heard = false;
    this.#stream = new EventSource("/api/v1/events");
    this.#stream.addEventListener("now", (event) => {
      this.#hear();
      this.#onMoment(JSON.parse(event.data));
    });
    this.#stream.addEventListener("heartbeat", () => this.#hear());
    this.#stream.addEventListener("error", () => this.#ask());
    this.#timer = setTimeout(() => this.#ask(), SILENCE);
  }

  #hear() {
    this.#heard = true;
    this.#found("Live: updated every second.");
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(), SILENCE);
  }

  /** The stream has ended or says nothing: is the daemon there? */
  async #ask() {
    const brokeOff = this.#heard;
    this.#close();
    this.#lostAt ??= new Date();
    let moment;
    try {
      const answer = await fetch("/api/v1/now", { signal: AbortSignal.timeout(5000) });
      if (!answer.ok) throw new Error(answer.statusText);
      moment = await answer.json();
    } catch {
      this.#wasLost = true;
      this.#asks = ASKS_BEFORE_STREAM;
      this.#onStatus(`Lost the daemon at ${timeOfDay(this.#lostAt)}; trying again.`, true);
      this.#again();
      return;
    }
    this.#onMoment(moment);
    this.#asks += 1;
    if (brokeOff || this.#asks > ASKS_BEFORE_STREAM) {
      this.#asks = 0;
      this.#open();
    } else {
      this.#found("Updated every 2 seconds: the daemon has as many pages open as it serves live.");
      this.#again();
    }
  }

  #again() {
    if (!document.hidden) this.#timer = setTimeout(() => this.#ask(), ASK_EVERY);
  }

  /** @param {string} text */
  #found(text) {
    const again = this.#wasLost ? ` Found the daemon again at ${timeOfDay(new Date())}.` : "";
    if (this.#lostAt || !this.#told) this.#onStatus(text + again, false);
    this.#told = true;
    this.#lostAt = null;
    this.#wasLost = false;
  }
}
