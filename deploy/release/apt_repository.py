#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts Debian packages into an apt repository, which is a folder for any web server or file: URL.

    deploy/release/apt_repository.py FOLDER [--key KEY] PACKAGE.deb…

An existing folder keeps the packages that it has: publish each release in the same one, and hosts
can go back. KEY names a secret key of gpg: the index is signed with it, and the public key is in
FOLDER/pipelined-archive-keyring.gpg. Without one apt takes the repository only if its source says
`trusted=yes`. Needs apt-ftparchive (apt-utils). The time in the index is SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import subprocess
import time
from email.utils import formatdate
from pathlib import Path

_ARCHITECTURES = ("amd64", "arm64")
_SUITE = "stable"
_POOL = "pool/main/p/pipelined"
KEYRING = "pipelined-archive-keyring.gpg"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--key", help="of gpg, to sign the index with")
    parser.add_argument("packages", type=Path, nargs="+", metavar="PACKAGE.deb")
    options = parser.parse_args()
    missing = [str(path) for path in options.packages if not path.is_file()]
    if missing:
        parser.error(f"no such file: {', '.join(missing)}")
    publish(options.folder, options.packages, options.key)


def publish(folder: Path, packages: list[Path], key: str | None) -> None:
    """Add the packages and write the index anew."""
    (folder / _POOL).mkdir(parents=True, exist_ok=True)
    for package in packages:
        shutil.copyfile(package, folder / _POOL / package.name)
    index = folder / "dists" / _SUITE
    shutil.rmtree(index, ignore_errors=True)
    for architecture in _ARCHITECTURES:
        place = index / "main" / f"binary-{architecture}"
        place.mkdir(parents=True)
        text = _ftparchive(folder, "--arch", architecture, "packages", "pool")
        (place / "Packages").write_text(text)
        (place / "Packages.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    values = {
        "Origin": "pipelined",
        "Label": "pipelined",
        "Suite": _SUITE,
        "Codename": _SUITE,
        "Architectures": " ".join(_ARCHITECTURES),
        "Components": "main",
    }
    settings = [f"-oAPT::FTPArchive::Release::{name}={value}" for name, value in values.items()]
    release = _ftparchive(folder, *settings, "release", f"dists/{_SUITE}")
    now = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    release = re.sub(r"^Date: .*$", f"Date: {formatdate(now, usegmt=True)}", release, flags=re.M)
    (index / "Release").write_text(release)
    (folder / KEYRING).unlink(missing_ok=True)
    if key is not None:
        sign = ("gpg", "--batch", "--yes", "--local-user", key, "--output")
        _run(*sign, str(index / "InRelease"), "--clear-sign", str(index / "Release"))
        _run(*sign, str(index / "Release.gpg"), "--armor", "--detach-sign", str(index / "Release"))
        _run("gpg", "--batch", "--output", str(folder / KEYRING), "--export", key)


def _ftparchive(folder: Path, *words: str) -> str:
    command = ["apt-ftparchive", "--quiet", *words]
    done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
