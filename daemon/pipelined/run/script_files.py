# SPDX-License-Identifier: Apache-2.0
"""The shell script that a command runs: its file, and the text in it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pipelined.analysis.rewriting import Script
from pipelined.analysis.script_lines import ScriptFile
from pipelined.analysis.script_text import script_file
from pipelined.analysis.shell_words import base
from pipelined.command_names import COMMON_SHELLS

__all__ = ["known_script", "shell_script", "text_of"]

_SHEBANG = re.compile(rf"#!.*\b({'|'.join(sorted(COMMON_SHELLS))})\b")
#: Of a larger file no lines are named: nobody wrote it by hand.
_LARGEST = 1 << 20


def shell_script(command: str) -> Path | None:
    """The shell script that a command runs; None if it runs another thing."""
    shell, name = script_file(command)
    path = Path(name)
    try:
        if not path.is_file():  # to read a FIFO would take what is the command's
            return None
        with open(path, encoding="utf-8", errors="replace") as file:
            first = file.readline()
    except (OSError, ValueError):  # ValueError: a null byte in the name
        return None
    return path if name and (shell or _SHEBANG.match(first)) else None


def text_of(path: Path) -> str:
    """The text of a script, byte by byte. Raises OSError."""
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read()


def known_script(command: str, known: Callable[[str], Script]) -> ScriptFile | None:
    """The shell script that a command runs, with what is `known` of a text here; None if it runs
    another thing, or if that cannot be read."""
    path = shell_script(command)
    try:
        if path is None or path.stat().st_size > _LARGEST:
            return None
        script = known(text_of(path))
    except OSError:
        return None
    first = shlex.split(command)[0]
    if Path(first) != path and base(first) not in COMMON_SHELLS:
        # behind a variable or `env`: the locale may be another one
        script = replace(script, locale=None, characters=None)
    return ScriptFile(script)
