#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds all packages of a release from the tag that is checked out, into build/release/VERSION.

    deploy/release/build.py [--key KEY] [--no-images]

`make release` installs what it needs and runs it.

Everything is built from what git has at the tag, in folders of its own: what lies around in the
checkout gets into no package. Two builds of one tag with the same versions of the tools give the
same bytes, but for signatures, which have the time of signing in them. tests/release holds that.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_TOP = _HERE.parents[1]
sys.path.insert(0, str(_HERE.parent))

from apt_repository import publish  # noqa: E402 - beside this file
from version import version  # noqa: E402 - found only by the path above

#: As Linux and pip name them, and as Debian and images do.
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--key", help="of gpg: signs the apt repository and the checksums")
    parser.add_argument(
        "--no-images", action="store_true", help="without the images, which need root"
    )
    options = parser.parse_args()
    found = _releasable()
    if options.key:
        _secret_key(options.key)
    if not options.no_images and os.geteuid() != 0:
        sys.exit("release: images need root; run: sudo make release, or with ARGS=--no-images")
    os.umask(0o022)
    os.environ["SOURCE_DATE_EPOCH"] = _git("log", "-1", "--format=%ct")
    os.environ["REVISION"] = _git("rev-parse", "HEAD")
    output = _TOP / "build/release" / found
    part = output.with_name(f"{found}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="pipelined-release-") as directory:
        _build(found, Path(directory), part, images=not options.no_images)
    publish(part / "apt", sorted(part.glob("*.deb")), options.key)
    _sums(part, options.key)
    shutil.rmtree(output, ignore_errors=True)
    part.rename(output)
    print(output)


def _releasable() -> str:
    """The version of the tag; ends with what is wrong if it cannot be released."""
    found = version()
    if "+" in found:
        sys.exit(f"release: this is {found}; commit all changes and check out a tag: v0.2.0")
    in_source = re.search(
        r'__version__ = "(.*)"', (_TOP / "daemon/pipelined/__init__.py").read_text()
    )
    if in_source is None or in_source[1] != found:
        sys.exit(f"release: daemon/pipelined/__init__.py does not say {found}, as the tag does")
    if not re.search(rf"^## {re.escape(found)}$", (_TOP / "CHANGELOG.md").read_text(), re.M):
        sys.exit(f"release: CHANGELOG.md has no section: ## {found}")
    return found


def _secret_key(key: str) -> None:
    done = subprocess.run(
        ["gpg", "--batch", "--list-secret-keys", key], capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"release: gpg has no secret key {key}; set GNUPGHOME to where it is")


def _build(found: str, work: Path, output: Path, *, images: bool) -> None:
    prefix = f"pipelined-{found}/"
    source = _git_bytes("archive", "--format=tar", f"--prefix={prefix}", "HEAD")
    (output / f"pipelined-{found}.tar.gz").write_bytes(gzip.compress(source, 9, mtime=0))
    shutil.copyfile(_TOP / "CHANGELOG.md", output / "CHANGELOG.md")
    for machine, architecture in _MACHINES.items():
        _say(f"packages for {architecture}")
        place = work / machine
        place.mkdir()
        subprocess.run(["tar", "-x", "-C", str(place)], input=source, check=True)
        tree = place / prefix
        _run("make", "-C", str(tree), "bpf", f"MACHINE={machine}", "PACKAGES=")
        wheel = _printed(tree / "deploy/wheel.py", place / "wheel", machine)
        package = _printed(tree / "deploy/debian/build.py", wheel, place / "deb")
        rpm = _printed(tree / "deploy/rpm/build.py", package, place / "rpm")
        for path in (wheel, package, rpm):
            shutil.copyfile(path, output / Path(path).name)
        if images:
            _say(f"the image for {architecture}")
            archive = output / f"pipelined-{found}-oci-{architecture}.tar"
            _run(str(tree / "deploy/container/build.sh"), architecture, str(archive))
    chart = _printed(tree / "deploy/helm/build.py", place / "helm")
    shutil.copyfile(chart, output / Path(chart).name)
    _say("what is in them")
    for kind, requirements in {
        "packages": "deploy/debian/vendored.txt",
        "image": "deploy/container/requirements.txt",
    }.items():
        listing = output / f"pipelined-{found}-{kind}.cdx.json"
        _run(
            *("cyclonedx-py", "requirements", "--output-reproducible"),
            *("--pyproject", str(_TOP / "pyproject.toml"), "--output-file", str(listing)),
            str(_TOP / requirements),
        )
        contents = json.loads(listing.read_text())
        contents["metadata"]["component"]["version"] = found  # pyproject.toml has none
        listing.write_text(json.dumps(contents, indent=2) + "\n")


def _sums(output: Path, key: str | None) -> None:
    """Of each file; apt checks its own."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(output.iterdir())
        if path.is_file()
    ]
    sums = output / "SHA256SUMS"
    sums.write_text("".join(lines))
    if key is not None:
        _run("gpg", "--batch", "--local-user", key, "--armor", "--detach-sign", str(sums))


def _say(what: str) -> None:
    print(f"release: {what}", flush=True)


def _git(*words: str) -> str:
    return _git_bytes(*words).decode().strip()


def _git_bytes(*words: str) -> bytes:
    command = ["git", "-c", "safe.directory=*", "-C", str(_TOP), *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def _printed(script: Path, *arguments: Path | str) -> str:
    """The path that a script of the tag printed."""
    command = [sys.executable, str(script), *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()[-1]


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"release: {command[0]} failed:\n{done.stdout}")


if __name__ == "__main__":
    main()
