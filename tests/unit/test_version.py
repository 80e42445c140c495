# SPDX-License-Identifier: Apache-2.0
"""Versions of packages come from the tags of git, and each later commit has a higher one."""

from __future__ import annotations

import itertools
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.version import Version

from pipelined import __version__

TOP = Path(__file__).resolve().parents[2]
_MODULE = runpy.run_path(str(TOP / "deploy/version.py"))
version, debian, image, chart, stamp = (
    _MODULE[name] for name in ("version", "debian", "image", "chart", "stamp")
)


class Checkout:
    """A repository with the one file that has a version in it."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.file = top / "daemon/pipelined/__init__.py"
        self.file.parent.mkdir(parents=True)
        self.file.write_text('"""A package."""\n\n__version__ = "0.1.0"\n')
        self.git("init", "--quiet")
        self.git("add", ".")
        self.commit()

    def git(self, *words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "tag.gpgSign=false")
        subprocess.run(["git", "-C", self.top, *who, *words], check=True)

    def commit(self) -> None:
        self.git("commit", "--quiet", "--allow-empty", "--no-gpg-sign", "--message", "a change")


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path.resolve())


def test_at_a_tag_it_is_the_tags(checkout: Checkout) -> None:
    checkout.git("tag", "v0.2.0")

    assert version(checkout.top) == "0.2.0"


def test_each_commit_is_an_upgrade_for_pip_dpkg_and_rpm(checkout: Checkout) -> None:
    found = [version(checkout.top)]
    for tag in (None, "v0.1.0", None, None, "v0.2.0rc1", None, "v0.2.0", *[None] * 10, "v0.10.0"):
        checkout.commit()
        if tag:
            checkout.git("tag", tag)
        found.append(version(checkout.top))

    assert found[0].startswith("0.1.0.dev1+g")
    assert found[2] == "0.1.0" and found[3].startswith("0.1.0.post1+g")
    for older, newer in itertools.pairwise(found):
        assert Version(older) < Version(newer)
        subprocess.run(
            ["dpkg", "--compare-versions", debian(older), "lt", debian(newer)], check=True
        )
        assert in_order(debian(older)) < in_order(debian(newer)), "as rpm orders them"


def in_order(version: str) -> list[tuple[int, int, str]]:
    """Sorts as rpmvercmp: numbers above words, words above the end, a tilde below the end."""
    parts = re.findall(r"\d+|[a-zA-Z]+|~", version)
    kinds = [
        (3, int(part), "") if part.isdigit() else (0, 0, "") if part == "~" else (2, 0, part)
        for part in parts
    ]
    return [*kinds, (1, 0, "")]


def test_what_is_not_committed_shows(checkout: Checkout) -> None:
    checkout.git("tag", "v0.2.0")
    checkout.file.write_text(checkout.file.read_text() + "# changed\n")
    at_the_tag = version(checkout.top)
    checkout.git("commit", "--quiet", "--no-gpg-sign", "--all", "--message", "a change")
    clean = version(checkout.top)
    checkout.file.write_text(checkout.file.read_text() + "# again\n")

    assert at_the_tag == "0.2.0+dirty"
    assert version(checkout.top) == f"{clean}.dirty"
    assert all(Version(text) for text in (at_the_tag, clean, f"{clean}.dirty"))


def test_without_git_it_is_the_one_in_the_source(checkout: Checkout) -> None:
    """A source archive, also one that is unpacked inside another repository."""
    checkout.git("tag", "v0.2.0")
    unpacked = checkout.top / "unpacked"
    shutil.copytree(checkout.top / "daemon", unpacked / "daemon")

    assert version(unpacked) == "0.1.0"


def test_stamped_into_a_copy_it_is_what_the_program_says(checkout: Checkout) -> None:
    stamp(checkout.top, "0.2.0.post1+gb46a1dab67")

    assert checkout.file.read_text() == (
        '"""A package."""\n\n__version__ = "0.2.0.post1+gb46a1dab67"\n'
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("0.2.0", "0.2.0"),
        ("0.2.0rc1", "0.2.0~rc1"),
        ("0.1.0.dev839+gb46a1dab67", "0.1.0~dev839+gb46a1dab67"),
        ("0.2.0.post3+gb46a1dab67", "0.2.0.post3+gb46a1dab67"),
        ("0.2.0rc1.post3+gb46a1dab67", "0.2.0~rc1.post3+gb46a1dab67"),
    ],
)
def test_for_dpkg_a_tilde_precedes_what_comes_before_a_release(given: str, expected: str) -> None:
    assert debian(given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("0.2.0", "0.2.0"),
        ("0.3.0rc1", "0.3.0-rc1"),
        ("0.2.0.dev800+g0123456789.dirty", "0.2.0-dev800+g0123456789.dirty"),
        ("0.2.0.post3+g0123456789", "0.2.0+post3.g0123456789"),
        ("0.3.0rc1.post2+g0123456789", "0.3.0-rc1+post2.g0123456789"),
        ("0.2.0+dirty", "0.2.0+dirty"),
    ],
)
def test_for_helm_it_is_semver(given: str, expected: str) -> None:
    assert chart(given) == expected


def test_an_image_has_no_plus_sign_in_its_tag() -> None:
    tag = image("0.2.0.post3+gb46a1dab67.dirty")
    assert re.fullmatch(r"\w[\w.-]{0,127}", tag), tag


def test_the_changelog_has_a_section_for_the_version_of_the_source() -> None:
    headings = re.findall(r"^## (\S+)", (TOP / "CHANGELOG.md").read_text(), re.M)
    releases = [heading for heading in headings if heading != "Unreleased"]

    assert releases[0] == __version__
    assert releases == sorted(releases, key=Version, reverse=True)
