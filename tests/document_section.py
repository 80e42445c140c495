# SPDX-License-Identifier: Apache-2.0
"""A section of a Markdown document that a program writes anew each time, or a part of it."""

from __future__ import annotations

import re

__all__ = ["put_section", "section_of"]


def put_section(document: str, section: str) -> str:
    """`document` with `section` in place of the one with the same heading, or at its end.

    The heading is the first line of `section`, and the only one in it.
    """
    found = _find(section.partition("\n")[0], document)
    if found is None:
        return f"{document.rstrip()}\n\n{section}".lstrip()
    after = document[found.end() :]
    return document[: found.start()] + section + (f"\n{after}" if after else "")


def section_of(document: str, heading: str) -> str:
    """The section with a heading; empty if there is none."""
    found = _find(heading, document)
    return found[0] if found else ""


def _find(heading: str, document: str) -> re.Match[str] | None:
    return re.search(rf"^{re.escape(heading)}\n.*?(?=^#|\Z)", document, re.MULTILINE | re.DOTALL)
