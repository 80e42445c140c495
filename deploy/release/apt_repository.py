#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts Debian packages into an apt repository, which is a folder for any web server or file: URL.

    deploy/release/apt_repository.py FOLDER [--key KEY] PACKAGE.deb…

An existing folder keeps the packages that it has: publish each release in the same one, and hosts
can go back. KEY names a secret key of gpg: the index is signed with it, and the public key is in
FOLDER/pipelined-archive-keyring.gpg. Without one apt takes the repository only if its source says
`trusted=yes`: a repository that is signed needs one. The index takes the place of the older one
when it is complete; if anything fails before, hosts still get that, and every package that it
names: a version is published once. Needs apt-ftparchive (apt-utils). The time in the index is
SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import argparse
import filecmp
import gzip
import os
import re
import shutil
import subprocess
import sys
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
    """Add the packages and write the index anew.

    Ends if that would drop a signature, or change a package that hosts may know.
    """
    index = folder / "dists" / _SUITE
    new, old = (index.with_name(f".{_SUITE}.{which}") for which in ("new", "old"))
    for signed in (index, old):  # the older one is left if a call was killed in the end
        if key is None and (signed / "InRelease").exists():
            sys.exit(f"{folder} is signed: give --key, or remove {signed} if it shall not be")
    pool = folder / _POOL
    pool.mkdir(parents=True, exist_ok=True)
    for package in packages:
        there = pool / package.name
        if there.exists() and not filecmp.cmp(package, there, shallow=False):
            sys.exit(
                f"{package} is not the {there} that hosts may have: give it a higher version,"
                " or remove that file if no index has named it"
            )
    for package in packages:
        part = pool / f".{package.name}.new"
        shutil.copyfile(package, part)
        part.replace(pool / package.name)
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    _write_index(folder, new)
    if key is None:
        (folder / KEYRING).unlink(missing_ok=True)
    else:
        _sign(new, folder / KEYRING, key)
    if index.exists():
        index.rename(old)
    new.rename(index)
    shutil.rmtree(old, ignore_errors=True)


def _write_index(folder: Path, index: Path) -> None:
    """Write into `index`, which is new, what the packages in `folder` are."""
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
    release = _ftparchive(folder, *settings, "release", str(index.relative_to(folder)))
    now = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    release = re.sub(r"^Date: .*$", f"Date: {formatdate(now, usegmt=True)}", release, flags=re.M)
    (index / "Release").write_text(release)


def _sign(index: Path, keyring: Path, key: str) -> None:
    """Sign the index, and put the public key in place of what `keyring` has."""
    sign = ("gpg", "--batch", "--local-user", key, "--output")
    _run(*sign, str(index / "InRelease"), "--clear-sign", str(index / "Release"))
    _run(*sign, str(index / "Release.gpg"), "--armor", "--detach-sign", str(index / "Release"))
    part = keyring.with_name(f".{keyring.name}.new")
    _run("gpg", "--batch", "--yes", "--output", str(part), "--export", key)
    part.replace(keyring)


def _ftparchive(folder: Path, *words: str) -> str:
    command = ["apt-ftparchive", "--quiet", *words]
    done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
