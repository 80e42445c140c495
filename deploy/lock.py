#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the three files by which pip checks what it gets when packages are built.

    deploy/lock.py    with pip-tools in its Python: pip install pip-tools

`deploy/container/requirements.txt`: the libraries of the image, all that they need included.
`deploy/build-requirements.txt`: setuptools, which makes the wheel and is named in it.
`deploy/release/requirements.txt`: what lists the contents of a release, and is named in the list.

The libraries have the versions of the Debian package (deploy/debian/lock.py; run that first), with
the hashes of all files of a version: the image exists for two architectures.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

_TOP = Path(__file__).resolve().parents[1]


def main() -> None:
    project = tomllib.loads((_TOP / "pyproject.toml").read_text())
    libraries = project["project"]["dependencies"]
    optional = project["project"]["optional-dependencies"]
    _lock("deploy/container/requirements.txt", [*libraries, *optional["export"]])
    _lock("deploy/release/requirements.txt", optional["release"])
    _lock("deploy/build-requirements.txt", project["build-system"]["requires"])


def _lock(path: str, wanted: list[str]) -> None:
    lines = (_TOP / "deploy/debian/vendored.txt").read_text().splitlines()
    vendored = [line.split(" ")[0] for line in lines if not line.startswith("#")]
    with tempfile.TemporaryDirectory() as directory:
        asked, bounds = Path(directory) / "asked.in", Path(directory) / "bounds.txt"
        asked.write_text("\n".join([*wanted, ""]))
        bounds.write_text("\n".join([*vendored, ""]))
        options = ("--quiet", "--generate-hashes", "--allow-unsafe", "--strip-extras")
        silent = ("--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-trusted-host")
        subprocess.run(
            [
                *(sys.executable, "-m", "piptools", "compile", *options, *silent),
                *("--no-emit-options", "--constraint", str(bounds)),
                *("--output-file", str(_TOP / path), str(asked)),
            ],
            stdout=subprocess.DEVNULL,
            check=True,
        )
    text = (_TOP / path).read_text()
    (_TOP / path).write_text(f"# Written by deploy/lock.py.\n{text}")


if __name__ == "__main__":
    main()
