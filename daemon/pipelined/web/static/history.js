// SPDX-License-Identifier: Apache-2.0
/** The history: which two runs are chosen, and times as they are here. */

import { localTimes, say } from "./dom.js";

localTimes(document);

const form = document.getElementById("choose");
if (form) {
  const button = document.getElementById("compare");
  const told = document.getElementById("chosen");
  const count = () => {
    const chosen = form.querySelectorAll("input[name=run]:checked").length;
    button.disabled = chosen !== 2;
    const left = chosen === 0 ? "two runs" : "one more run";
    if (chosen < 2) say(told, `Check ${left} to compare them.`);
    else say(told, chosen === 2 ? "" : `${chosen} are checked; two can be compared.`);
  };
  form.addEventListener("change", count);
  count();
}
