# SPDX-License-Identifier: Apache-2.0
"""A section of a Markdown document that a program writes anew each time."""

from __future__ import annotations

import re

__all__ = ["put_section"]


def put_section(document: str, section: str) -> str:
    """`document` with `section` in place of the one with the same heading, or at its end.

    The heading is the first line of `section`, and the only one in it.
    """
    heading = section.partition("\n")[0]
    found = re.search(rf"^{re.escape(heading)}\n.*?(?=^#|\Z)", document, re.MULTILINE | re.DOTALL)
    if found is None:
        return f"{document.rstrip()}\n\n{section}".lstrip()
    after = document[found.end() :]
    return document[: found.start()] + section + (f"\n{after}" if after else "")
