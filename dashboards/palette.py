# SPDX-License-Identifier: Apache-2.0
"""Colours of the web page, so that a state looks the same there and in Grafana.

The page's dark colours: Grafana is dark by default, and filled areas in them are distinguishable
on white too.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["level_colours", "page_colours", "read_palette", "state_colours"]

_PAGE = Path(__file__).parents[1] / "daemon" / "pipelined" / "web" / "static" / "page.css"
_DARK = "@media (prefers-color-scheme: dark)"


def read_palette() -> dict[str, str]:
    """Name of a colour of the page, such as `state-cpu` or `level-2`, → ``#rrggbb``."""
    dark = _PAGE.read_text().split(_DARK)[1]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", dark))


def state_colours() -> dict[str, str]:
    """State, as in the label `state`, → colour."""
    return _colours("state-")


def level_colours() -> dict[str, str]:
    """Level, as in the label `level`, → colour."""
    found = _colours("level-")
    return {**{name: colour for name, colour in found.items() if name != "8"}, "8+": found["8"]}


def page_colours() -> dict[str, str]:
    """Class of pages, as in the label `class`, → colour."""
    states = state_colours()
    return {
        "hit": states["cpu"],
        "late": states["runqueue"],
        "miss": states["disk"],
        "warm": states["pipe_empty"],
        "wasted": states["sleep"],
        "other": states["other"],
    }


def _colours(prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix): colour
        for name, colour in read_palette().items()
        if name.startswith(prefix)
    }
