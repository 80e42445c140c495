#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the newest versions that pyproject.toml allows, for the Debian package.

    .venv/bin/python deploy/debian/lock.py > deploy/debian/vendored.txt

Run it to update the libraries, then run the tests of the package. Output is one line per wheel,
with its hash, for `pip install --no-deps --require-hashes`. Only pure Python is listed: compiled
libraries depend on the version of Python, so they come from Debian (the python3-… of `Depends`).
The versions are those for the oldest supported Python.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

_TOP = Path(__file__).resolve().parents[2]

#: 5 MB for rich to colour source code, which nothing here prints.
_LEFT_OUT = {"Pygments"}


def main() -> None:
    project = tomllib.loads((_TOP / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=")
    report = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"),
            *("install", "--dry-run", "--ignore-installed", "--report", "-"),
            *("--only-binary", ":all:", "--python-version", oldest, "--target", "/nonexistent"),
            *project["dependencies"],
        ],
        check=True,
        stdout=subprocess.PIPE,
    )
    print("# Written by deploy/debian/lock.py: the pure Python libraries in the Debian package.")
    wheels = json.loads(report.stdout)["install"]
    for wheel in sorted(wheels, key=lambda wheel: wheel["metadata"]["name"].lower()):
        name, version = wheel["metadata"]["name"], wheel["metadata"]["version"]
        if wheel["download_info"]["url"].endswith("-none-any.whl") and name not in _LEFT_OUT:
            digest = wheel["download_info"]["archive_info"]["hash"].replace("=", ":")
            print(f"{name}=={version} --hash={digest}")


if __name__ == "__main__":
    main()
