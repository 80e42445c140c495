#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the RPM from the Debian package: it has the same files, and Fedora's names around them.

    SOURCE_DATE_EPOCH=1795000000 deploy/rpm/build.py build/deb/pipelined_0.2.0_amd64.deb build/rpm

Needs rpmbuild and dpkg-deb. The same input and SOURCE_DATE_EPOCH give the same bytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
#: What only dpkg, lintian and Debian's Python read.
_DEBIAN_ONLY = (
    "usr/share/doc/pipelined/changelog.gz",
    "usr/share/lintian",
    "usr/share/python3",
)
_MOVED = {
    "usr/share/zsh/vendor-completions/_pipelined": "usr/share/zsh/site-functions/_pipelined",
}
#: Directories of the system have other owners.
_OURS = ("usr/lib/pipelined", "usr/share/doc/pipelined", "etc/pipelined")


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    if "SOURCE_DATE_EPOCH" not in os.environ:
        sys.exit("rpm: SOURCE_DATE_EPOCH is not set; run: make rpm")
    package, output = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    machine = _MACHINES[_field(package, "Architecture")]
    os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="pipelined-rpm-") as directory:
        work = Path(directory)
        tree = work / "tree"
        _run("dpkg-deb", "--extract", str(package), str(tree))
        _make_it_fedoras(tree)
        moment = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
        maintainer = _field(package, "Maintainer")
        values = {
            "VERSION": _field(package, "Version"),
            "DATE": f"{moment:%a %b %d %Y}",
            "VENDOR": maintainer.partition(" <")[0],
            "MAINTAINER": maintainer,
            "TREE": str(tree),
            "FILES": "\n".join(_files(tree)),
        }
        text = (_HERE / "pipelined.spec").read_text()
        for name, value in values.items():
            text = text.replace(f"@{name}@", value)
        spec = work / "pipelined.spec"
        spec.write_text(text)
        top = ("--define", f"_topdir {work}/top")
        _run("rpmbuild", "-bb", "--quiet", "--target", f"{machine}-linux", *top, str(spec))
        output.mkdir(parents=True, exist_ok=True)
        for old in output.glob(f"pipelined-*.{machine}.rpm"):
            old.unlink()
        (built,) = (work / "top/RPMS").rglob("*.rpm")
        print(shutil.move(built, output / built.name))


def _make_it_fedoras(tree: Path) -> None:
    for path in _DEBIAN_ONLY:
        if (tree / path).is_dir():
            shutil.rmtree(tree / path)
        else:
            (tree / path).unlink()
    for old, new in _MOVED.items():
        (tree / new).parent.mkdir(parents=True)
        (tree / old).rename(tree / new)


def _files(tree: Path) -> Iterator[str]:
    """The lines of %files: every file, and the directories that are ours."""
    for path in sorted(tree.rglob("*")):
        name = path.relative_to(tree).as_posix()
        quoted = f'"/{name}"'
        if path.is_dir():
            if name.startswith(_OURS):
                yield f"%dir {quoted}"
        elif name.startswith("etc/"):
            yield f"%config(noreplace) {quoted}"
        elif name.startswith(("usr/share/doc/", "usr/share/man/")):
            yield f"%doc {quoted}"
        else:
            yield quoted


def _field(package: Path, name: str) -> str:
    command = ["dpkg-deb", "--field", str(package), name]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"rpm: {command[0]} failed:\n{done.stdout}")


if __name__ == "__main__":
    main()
