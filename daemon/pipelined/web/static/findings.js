// SPDX-License-Identifier: Apache-2.0
/** Findings as a list: how severe, what is wrong, what to try, and where to read about it. */

import { element, say } from "./dom.js";

/** @typedef {{id: string, severity: string, sentence: string, advice: string}} Finding */

/**
 * Show findings. Those that were shown already only change their numbers, so that who reads or
 * has a link in focus is not disturbed.
 *
 * @param {HTMLElement} where a list
 * @param {Finding[]} findings
 */
export function showFindings(where, findings) {
  const ids = findings.map((one) => `${one.severity} ${one.id}`).join();
  if (where.dataset.ids !== ids) {
    where.dataset.ids = ids;
    where.replaceChildren(...findings.map(item));
  }
  findings.forEach((one, index) => {
    say(where.children[index].querySelector(".sentence"), `${one.sentence} ${one.advice}`.trim());
  });
}

/**
 * The same in few words: what calls for a change in full, notes by name only.
 *
 * @param {HTMLElement} where a list
 * @param {Finding[]} findings
 */
export function nameFindings(where, findings) {
  where.replaceChildren(
    ...findings.map((one) =>
      element(
        `li.finding.${one.severity}`,
        {},
        element("span.severity", {}, one.severity),
        one.severity === "note" ? " " : ` ${one.sentence} `,
        element("a", { href: `/findings#${one.id}` }, one.id),
      ),
    ),
  );
}

/** @param {Finding} finding */
function item(finding) {
  return element(
    `li.finding.${finding.severity}`,
    {},
    element("span.severity", {}, finding.severity),
    " ",
    element("span.sentence"),
    " ",
    element("a", { href: `/findings#${finding.id}` }, `About ${finding.id}`),
  );
}
