#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the version of this checkout, which packages get; it comes from the tags of git.

    deploy/version.py             0.2.0 at the tag v0.2.0; three commits later
                                  0.2.0.post3+g0123456789
    deploy/version.py --debian    the same, as dpkg and rpm order it: 0.2.0~rc1 for 0.2.0rc1
    deploy/version.py --image     the same, as the tag of an image: without a plus sign
    deploy/version.py --chart     the same, as Helm has it (SemVer): 0.2.0-rc1 for 0.2.0rc1

Later commits have higher versions, so that each rebuild is an upgrade, until the next tag. Before
the first tag it is 0.2.0.dev800+g0123456789, with the version that `__version__` names and the
number of commits: lower than the release. Without git, in an unpacked source archive, it is
`__version__`, which `make release` requires to be that of the tag. Changes that are not committed
add `.dirty`.

`stamp` writes the version into a copy of the package.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_TOP = Path(__file__).resolve().parents[1]
_LINE = re.compile(r'^__version__ = "(.*)"$', re.M)
#: Of the commit's name, whatever git takes for short enough in a larger clone.
_DIGITS = 10


def version(top: Path = _TOP) -> str:
    """The version of the checkout at `top`, in the form of Python packages."""
    written = _written(top)
    if _git(top, "rev-parse", "--show-toplevel") != str(top):
        return written  # none, or that of a folder around it
    dirty = ".dirty" if _git(top, "status", "--porcelain", "--untracked-files=no") else ""
    described = _git(top, "describe", "--tags", "--long", "--match", "v[0-9]*")
    if described is None:
        base, step, count = written, "dev", _git(top, "rev-list", "--count", "HEAD")
    else:
        tag, count, _ = described.rsplit("-", 2)
        base, step = tag.removeprefix("v"), "post"
        if count == "0":
            return f"{base}+dirty" if dirty else base
    commit = _git(top, "rev-parse", "HEAD")
    assert commit is not None, "git has named its commits before"
    return f"{base}.{step}{count}+g{commit[:_DIGITS]}{dirty}"


def debian(version: str) -> str:
    """For dpkg and rpm a tilde comes before the end: what precedes a release has one."""
    public, plus, commit = version.partition("+")
    return re.sub(r"\.?(a|b|rc|dev)(?=\d)", r"~\1", public, count=1) + plus + commit


def image(version: str) -> str:
    return version.replace("+", "-")


def chart(version: str) -> str:
    """For SemVer what precedes a release follows a dash; for what follows one it has no order."""
    public, _, commit = version.partition("+")
    public = re.sub(r"\.?(a|b|rc|dev)(?=\d)", r"-\1", public, count=1)
    public, _, after = public.partition(".post")
    build = ".".join(filter(None, (f"post{after}" if after else "", commit)))
    return f"{public}+{build}" if build else public


def stamp(copy: Path, version: str) -> None:
    """Write the version into the package below `copy`."""
    path = copy / "daemon/pipelined/__init__.py"
    path.write_text(_LINE.sub(f'__version__ = "{version}"', path.read_text()))


def _written(top: Path) -> str:
    (found,) = _LINE.findall((top / "daemon/pipelined/__init__.py").read_text())
    return str(found)


def _git(top: Path, *words: str) -> str | None:
    """What git prints; None if it fails or is not installed."""
    # Under sudo the checkout is another user's.
    command = ["git", "-c", "safe.directory=*", "-C", str(top), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return None if done.returncode else done.stdout.strip()


_FORMS = {"--debian": debian, "--image": image, "--chart": chart}


def main() -> None:
    forms = sys.argv[1:]
    if len(forms) > 1 or not set(forms) <= set(_FORMS):
        sys.exit(__doc__)
    found = version()
    for form in forms:
        found = _FORMS[form](found)
    print(found)


if __name__ == "__main__":
    main()
