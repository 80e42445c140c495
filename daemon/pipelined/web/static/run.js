// SPDX-License-Identifier: Apache-2.0
/**
 * The page of one run: its picture and its chart over time. While the run is live, and until it is
 * stored, the page is fetched again every 2 seconds, but not while it is hidden, and its new parts
 * replace the old ones.
 */

import { legend } from "./bar.js";
import { keepLocalTimes, localTimes, setText, timeOfDay } from "./dom.js";
import { Lanes } from "./lanes.js";
import { Picture } from "./picture.js";
import { tracks } from "./timeline.js";

/** Milliseconds between fetches of a live run. */
const REFRESH_EVERY = 2000;
/** Milliseconds from the end of a run after which it is stored, with what is usual for it. */
const STORED_AFTER = 10000;

const status = document.getElementById("connection");
const picture = new Picture(document.getElementById("picture"), document.title);
/** @type {Lanes | null} */
let lanes = null;

/** The data that the server put into the page for this script. @param {Document} page */
const dataOf = (page) => JSON.parse(page.getElementById("data").textContent);
const opened = dataOf(document);
/** That of the page itself may be of the last run, or of all whose id begins so. */
const address = `/run/${encodeURIComponent(opened.id)}`;

function draw({ diagram, stages, timeline, words, marks, start_timestamp_seconds: zero }) {
  picture.rename(document.title);
  picture.update(diagram, null);
  legend(document.getElementById("legend"), [diagram]);
  const points = timeline.filter((one) => one.end_timestamp_seconds > one.start_timestamp_seconds);
  if (points.length === 0) return;
  lanes ??= new Lanes(document.getElementById("lanes"));
  lanes.update({ points, tracks: tracks(points, stages, words), marks, zero });
}

/** What can have the focus in a part of the page. */
const FOCUSED = "a, summary, .scroll";

/**
 * Replace what differs in a new page; until the last one not a part of which text is selected.
 * @param {Document} page @param {boolean} last
 */
function replaceParts(page, last) {
  const selection = document.getSelection();
  const selected = !last && selection && !selection.isCollapsed ? selection.anchorNode : null;
  localTimes(page);
  document.title = page.title;
  for (const id of ["name", "summary", "findings", "phases", "stages", "actions"]) {
    const [old, now] = [document.getElementById(id), page.getElementById(id)];
    const details = now.querySelector("details");
    if (details) details.open = old.querySelector("details")?.open ?? false;
    if (!(selected && old.contains(selected)) && !old.isEqualNode(now)) {
      const at = [...old.querySelectorAll(FOCUSED)].indexOf(document.activeElement);
      const lefts = [...old.querySelectorAll(".scroll")].map((part) => part.scrollLeft);
      old.replaceWith(document.adoptNode(now));
      now.querySelectorAll(".scroll").forEach((part, i) => {
        part.scrollLeft = lefts[i] ?? 0;
      });
      if (at >= 0) now.querySelectorAll(FOCUSED)[at]?.focus({ preventScroll: true });
    }
  }
}

/** @type {Date | null} */
let lostAt = null;
/** When the run ended, or was seen to have. @type {number | null} */
let endedAt = opened.live ? null : Date.now() - 1000 * opened.seconds_since_end;

const isStored = () => endedAt !== null && Date.now() - endedAt >= STORED_AFTER;

async function refresh() {
  if (document.hidden) {
    document.addEventListener("visibilitychange", refresh, { once: true });
    return;
  }
  try {
    const answer = await fetch(address, {
      headers: { Accept: "text/html" },
      signal: AbortSignal.timeout(5000),
    });
    if (answer.status === 404) {
      status.classList.remove("lost");
      setText(status, "The daemon no longer has this run. The page shows its last known state.");
      return;
    }
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const data = dataOf(page);
    endedAt = data.live ? null : (endedAt ?? Date.now());
    const last = isStored();
    replaceParts(page, last);
    draw(data);
    lostAt = null;
    status.classList.remove("lost");
    setText(status, data.live ? "Live: updated every 2 seconds." : "This run has ended.");
    if (last) return;
  } catch {
    lostAt ??= new Date();
    status.classList.add("lost");
    setText(status, `Lost the connection to the daemon at ${timeOfDay(lostAt)}; trying again.`);
  }
  setTimeout(refresh, REFRESH_EVERY);
}

keepLocalTimes();
draw(opened);
if (!isStored()) refresh();
