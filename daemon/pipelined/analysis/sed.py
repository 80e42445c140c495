# SPDX-License-Identifier: Apache-2.0
"""``sed -e A -e B`` as ``sed A | sed B``: two processes for its work."""

from __future__ import annotations

import re

from pipelined.analysis.by_line import is_within_line, sed_scripts
from pipelined.analysis.rewriting import files
from pipelined.analysis.shell_text import Pipeline, plain

__all__ = ["is_costly", "split"]

#: A script of sed with references, or that replaces all characters of a set, takes 22 to 75 ns for
#: each byte, others 3 to 8 (measured).
_COSTLY = re.compile(r"\\[1-9]|\[.*g$")


def is_costly(script: str) -> bool:
    """Whether a script takes so long that it is worth a process of its own."""
    return _COSTLY.search(script) is not None


def split(old: Pipeline, index: int) -> Pipeline | None:
    """With two ``sed`` in place of one, each with half of the costly scripts; None unless each
    script makes at most one line of each.

    >>> from pipelined.analysis.shell_text import parse
    >>> split(parse(r"sed -e 's/[ab]/x/g' -e s/c/d/ -e 's/[0-9]/#/g' f | wc"), 0).text
    "sed -e 's/[ab]/x/g' -e s/c/d/ f | sed 's/[0-9]/#/g' | wc"
    """
    command = old.commands[index]
    names, scripts = files(command), sed_scripts(command.arguments)
    costly = [at for at, script in enumerate(scripts) if is_costly(script.value)]
    if command.program != "sed" or names is None or len(costly) < 2:
        return None
    if not all(is_within_line(script.value) for script in scripts):
        return None
    extended = command.arguments[:1] if command.arguments[0].value in ("-E", "-r") else ()
    parts = []
    cut = costly[len(costly) // 2]
    for part in (scripts[:cut], scripts[cut:]):
        words = part if len(part) == 1 else [w for script in part for w in (plain("-e"), script)]
        parts.append((*extended, *words))
    first = command.with_arguments(*parts[0], *names)
    second = command.with_arguments(*parts[1]).with_source(None)
    return Pipeline((*old.commands[:index], first, second, *old.commands[index + 1 :]))
