#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the newest versions that pyproject.toml allows, for the Debian package.

    .venv/bin/python deploy/debian/lock.py > deploy/debian/vendored.txt

Run it to update the libraries, then run the tests of the package. Output is one line per wheel,
with its hash, for `pip install --no-deps --require-hashes`. Only pure Python is listed: compiled
libraries depend on the version of Python, so they come from Debian (the python3-… of `Depends`).
Of a library that is published both ways the pure wheel is listed. The versions are those for the
oldest supported Python.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

_TOP = Path(__file__).resolve().parents[2]

_LEFT_OUT = {
    # 5 MB for rich to colour source code, which nothing here prints.
    "Pygments",
    # Debian's requests, and what it needs, trusts the certificate authorities of the system.
    *("requests", "certifi", "charset-normalizer", "idna", "urllib3"),
}


def main() -> None:
    project = tomllib.loads((_TOP / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=")
    asked = [*project["dependencies"], *project["optional-dependencies"]["export"]]
    print("# Written by deploy/debian/lock.py: the pure Python libraries in the Debian package.")
    wheels = _wheels("--python-version", oldest, *asked)
    assert wheels is not None, "pip has said why"
    for wheel in sorted(wheels, key=lambda wheel: wheel["metadata"]["name"].lower()):
        name, version = wheel["metadata"]["name"], wheel["metadata"]["version"]
        if name in _LEFT_OUT:
            continue
        pure = [wheel]
        if not wheel["download_info"]["url"].endswith("-none-any.whl"):
            exact = ("--quiet", "--quiet", "--no-deps", f"{name}=={version}")
            pure = _wheels("--python-version", oldest, "--platform", "any", *exact) or []
        for each in pure:
            digest = each["download_info"]["archive_info"]["hash"].replace("=", ":")
            print(f"{name}=={version} --hash={digest}")


def _wheels(*words: str) -> list[dict[str, Any]] | None:
    """What pip would install; None if there is no such wheel."""
    report = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"),
            *("install", "--dry-run", "--ignore-installed", "--report", "-"),
            *("--only-binary", ":all:", "--target", "/nonexistent"),
            *words,
        ],
        stdout=subprocess.PIPE,
    )
    return None if report.returncode else list(json.loads(report.stdout)["install"])


if __name__ == "__main__":
    main()
