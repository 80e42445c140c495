// SPDX-License-Identifier: Apache-2.0
/** Findings as a list: severity, what is wrong, what to try, and a link to the documentation. */

import { element, setText } from "./dom.js";

/** @typedef {{id: string, severity: string, sentence: string, advice: string, notice: string}} Finding */

/**
 * Show findings. If the same ones are shown already, only their numbers change, so that the focus
 * stays where it is.
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
    setText(where.children[index].querySelector(".sentence"), `${one.sentence} ${one.advice}`.trim());
  });
}

/**
 * Show what to keep in mind when reading any figure of the run, such as a busy host.
 *
 * @param {HTMLElement} where
 * @param {Finding[]} findings
 */
export function showNotices(where, findings) {
  const notices = findings.map((one) => one.notice).filter(Boolean);
  while (where.childElementCount > notices.length) where.lastElementChild.remove();
  notices.forEach((notice, index) => {
    setText(where.children[index] ?? where.appendChild(element("p.notice")), notice);
  });
}

/**
 * Show findings in short: notes only by name, all others with their sentence. If that is shown
 * already, nothing changes.
 *
 * @param {HTMLElement} where a list
 * @param {Finding[]} findings
 */
export function showFindingsInShort(where, findings) {
  const shown = findings.map((one) => `${one.severity} ${one.id} ${one.sentence}`).join();
  if (where.dataset.shown === shown) return;
  where.dataset.shown = shown;
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
