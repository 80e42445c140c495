// SPDX-License-Identifier: Apache-2.0
/**
 * The page of one run: its picture and its charts over time. While the run is live the page is
 * fetched again every few seconds, and what it tells anew takes the place of what it told.
 */

import { Chart } from "./chart.js";
import { localTimes, say, timeOfDay } from "./dom.js";
import { Picture, legend } from "./picture.js";
import { cpu, levels, states, throughput } from "./timeline.js";

/** Milliseconds from one look at a live run to the next. */
const AGAIN = 2000;

const status = document.getElementById("connection");
const place = document.getElementById("charts");
const picture = new Picture(document.getElementById("picture"), document.title);
/** @type {Chart[]} */
const charts = [];

/** What the server wrote for this script. @param {Document} page */
const drawnOf = (page) => JSON.parse(page.getElementById("drawn").textContent);

function draw({ picture: drawing, stages, timeline, words, start_timestamp_seconds: zero }) {
  picture.update(drawing, null);
  legend(document.getElementById("legend"), [drawing]);
  if (timeline.length === 0) return;
  document.getElementById("no-points").hidden = true;
  const contents = [
    cpu(timeline, stages, zero),
    throughput(timeline, stages, zero),
    levels(timeline, zero),
    ...stages.map((_, index) => states(timeline, stages, index, words, zero)),
  ];
  contents.forEach((content, index) => {
    charts[index] ??= new Chart(place);
    charts[index].update(content);
  });
}

/** Take over what a newly fetched page tells, unless somebody is at it. @param {Document} page */
function takeOver(page) {
  for (const id of ["told", "findings", "stages"]) {
    const [old, now] = [document.getElementById(id), page.getElementById(id)];
    if (!old.contains(document.activeElement) && old.innerText !== now.innerText) {
      old.replaceWith(document.adoptNode(now));
    }
  }
  localTimes(document);
}

/** @type {Date | null} */
let lostAt = null;

async function again() {
  try {
    const answer = await fetch(location.href, {
      headers: { Accept: "text/html" },
      signal: AbortSignal.timeout(5000),
    });
    if (answer.status === 404) {
      say(status, "The daemon no longer knows this run. What you see is the last that it told.");
      return;
    }
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    takeOver(page);
    const drawn = drawnOf(page);
    draw(drawn);
    lostAt = null;
    status.classList.remove("lost");
    say(status, drawn.live ? "Live: updated every 2 seconds." : "This run has ended.");
    if (!drawn.live) return;
  } catch {
    lostAt ??= new Date();
    status.classList.add("lost");
    say(status, `Lost the daemon at ${timeOfDay(lostAt)}; trying again.`);
  }
  setTimeout(again, AGAIN);
}

localTimes(document);
const drawn = drawnOf(document);
draw(drawn);
if (drawn.live) again();
