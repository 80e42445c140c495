#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel, with the BPF object that `make bpf` put into the package.

    SOURCE_DATE_EPOCH=1795000000 deploy/wheel.py build/wheel x86_64

Its tag is py3-none-linux_x86_64 or _aarch64. `py3-none`: the same Python code serves all versions.
The platform: the object is made for the registers of one architecture. `linux` and not
`manylinux`: that is a promise about the C library, and the object is not linked with any.
Its version is that of the tag (version.py). The setuptools that makes it is that of
build-requirements.txt: the wheel names it, and another one would give other bytes.

It is built from a copy. In the checkout setuptools would leave files in build/lib, and files
deleted since then would get into the next wheel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from version import stamp, version

_TOP = Path(__file__).resolve().parents[1]
_OBJECT = "daemon/pipelined/bpf/pipelined.bpf.o"


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    output, machine = Path(sys.argv[1]), sys.argv[2]
    if "SOURCE_DATE_EPOCH" not in os.environ:
        sys.exit("wheel: SOURCE_DATE_EPOCH is not set; run: make wheel")
    if not (_TOP / _OBJECT).is_file():
        sys.exit(f"wheel: no {_OBJECT}; run: make wheel")
    shutil.rmtree(output, ignore_errors=True)
    os.umask(0o022)  # modes are part of the wheel
    with tempfile.TemporaryDirectory(prefix="pipelined-wheel-") as directory:
        copy, setuptools = Path(directory) / "copy", Path(directory) / "setuptools"
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        # Links are followed: FINDINGS.md of the package is one.
        shutil.copytree(_TOP / "daemon", copy / "daemon", ignore=ignored)
        stamp(copy, version())
        (copy / "bpf").mkdir()
        for name in ("pyproject.toml", "LICENSE", *_licences_of_bpf()):
            shutil.copy(_TOP / name, copy / name)
        for place in (copy, *copy.rglob("*")):
            place.chmod(0o755 if place.is_dir() else 0o644)
        hashed = ("--require-hashes", "--requirement", str(_TOP / "deploy/build-requirements.txt"))
        _pip("install", "--no-deps", "--target", str(setuptools), *hashed)
        _pip(
            *("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(output)),
            f"--config-settings=--build-option=--plat-name=linux_{machine}",
            str(copy),
            PYTHONPATH=str(setuptools),
        )
    (wheel,) = output.glob("*.whl")
    print(wheel)


def _licences_of_bpf() -> list[str]:
    return sorted(str(path.relative_to(_TOP)) for path in (_TOP / "bpf").glob("LICENSE.*"))


def _pip(*arguments: str, **environment: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    subprocess.run(command, env=os.environ | environment, check=True)


if __name__ == "__main__":
    main()
