// SPDX-License-Identifier: Apache-2.0
/**
 * The page of one run: its picture and its charts over time. While the run is live, the page is
 * fetched again every 2 seconds, and its new parts replace the old ones.
 */

import { legend } from "./bar.js";
import { Chart } from "./chart.js";
import { localTimes, setText, timeOfDay } from "./dom.js";
import { Picture } from "./picture.js";
import { cpu, levels, states, throughput } from "./timeline.js";

/** Milliseconds between fetches of a live run. */
const REFRESH_EVERY = 2000;

const status = document.getElementById("connection");
const place = document.getElementById("charts");
const picture = new Picture(document.getElementById("picture"), document.title);
/** @type {Chart[]} */
const charts = [];

/** The data that the server put into the page for this script. @param {Document} page */
const dataOf = (page) => JSON.parse(page.getElementById("data").textContent);

function draw({ diagram, stages, timeline, words, start_timestamp_seconds: zero }) {
  picture.update(diagram, null);
  legend(document.getElementById("legend"), [diagram]);
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

/** Replace what differs in a new page, unless it has the focus. @param {Document} page */
function replaceParts(page) {
  for (const id of ["summary", "findings", "stages"]) {
    const [old, now] = [document.getElementById(id), page.getElementById(id)];
    if (!old.contains(document.activeElement) && old.innerText !== now.innerText) {
      old.replaceWith(document.adoptNode(now));
    }
  }
  localTimes(document);
}

/** @type {Date | null} */
let lostAt = null;

async function refresh() {
  try {
    const answer = await fetch(location.href, {
      headers: { Accept: "text/html" },
      signal: AbortSignal.timeout(5000),
    });
    if (answer.status === 404) {
      setText(status, "The daemon no longer has this run. The page shows its last known state.");
      return;
    }
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    replaceParts(page);
    const data = dataOf(page);
    draw(data);
    lostAt = null;
    status.classList.remove("lost");
    setText(status, data.live ? "Live: updated every 2 seconds." : "This run has ended.");
    if (!data.live) return;
  } catch {
    lostAt ??= new Date();
    status.classList.add("lost");
    setText(status, `Lost the connection to the daemon at ${timeOfDay(lostAt)}; trying again.`);
  }
  setTimeout(refresh, REFRESH_EVERY);
}

localTimes(document);
const data = dataOf(document);
draw(data);
if (data.live) refresh();
