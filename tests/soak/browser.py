# SPDX-License-Identifier: Apache-2.0
"""Keeps the live page of a daemon open in headless Chromium until SIGTERM: browser.py URL

Ends with status 1 and a line if the page reported an error or has no connection at the end.
"""

from __future__ import annotations

import shutil
import signal
import sys

from playwright.sync_api import sync_playwright


def main(url: str) -> int:
    errors: list[str] = []
    asked_to_end: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked_to_end.append(number))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-dev-shm-usage"],
        )
        page = browser.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url)
        while not asked_to_end:
            page.wait_for_timeout(500)
        if page.locator("body.lost").count():
            errors.append("the page has lost its connection")
        browser.close()
    print("\n".join(errors))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
