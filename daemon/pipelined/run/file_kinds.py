# SPDX-License-Identifier: Apache-2.0
"""What kind of file a word of a command names."""

from __future__ import annotations

import glob
import os
import re
import stat

from pipelined.analysis.read_again import DIRECTORY
from pipelined.analysis.shell_words import Word

__all__ = ["kinds"]

#: Names of what whoever opens them has open already.
_DESCRIPTOR = re.compile(r"/dev/(std(in|out|err)$|fd/)|/proc/[^/]+/(task/[^/]+/)?fd/")
#: Below these the kernel makes up what is read.
_OF_THE_KERNEL = ("/proc/", "/sys/")
#: /dev/null and /dev/zero (mem.c of Linux) give the same to whoever reads.
_ALWAYS_ALIKE = (os.makedev(1, 3), os.makedev(1, 5))
_NOUNS = (
    (stat.S_ISDIR, DIRECTORY),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISREG, ""),
    (stat.S_ISBLK, ""),
)


def kinds(word: Word) -> set[str]:
    """What the files are that a word names, regular files and block devices and those that are not
    there apart."""
    names = [word.value] if word.literal else glob.glob(os.path.expanduser(word.value))
    return {kind for name in names if (kind := _kind(name))}


def _kind(name: str) -> str:
    if _DESCRIPTOR.match(os.path.abspath(name)):
        return "an open descriptor"
    try:
        status = os.stat(name)
    except (OSError, ValueError):  # ValueError: a null byte in the name
        return ""
    if stat.S_ISCHR(status.st_mode) and status.st_rdev in _ALWAYS_ALIKE:
        return ""
    if not stat.S_ISDIR(status.st_mode) and os.path.realpath(name).startswith(_OF_THE_KERNEL):
        return "what the kernel has at the moment"
    return next((noun for is_one, noun in _NOUNS if is_one(status.st_mode)), "a device")
