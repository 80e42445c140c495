// SPDX-License-Identifier: Apache-2.0
/** The history: the two runs that are checked, and local times. */

import { keepLocalTimes, setText } from "./dom.js";

keepLocalTimes();

const form = document.getElementById("choose");
if (form) {
  const button = document.getElementById("compare");
  const status = document.getElementById("chosen");
  const count = () => {
    const chosen = form.querySelectorAll("input[name=run]:checked").length;
    button.disabled = chosen !== 2;
    const left = chosen === 0 ? "two runs" : "one more run";
    if (chosen < 2) setText(status, `Check ${left} to compare them.`);
    else setText(status, chosen === 2 ? "" : `${chosen} are checked; two can be compared.`);
  };
  form.addEventListener("change", count);
  count();
}
