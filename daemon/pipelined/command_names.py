# SPDX-License-Identifier: Apache-2.0
"""Lists of programs by name: which are shells, which only copy, which read all before they write.

A stage goes by the name of its command. What a name says about a program is decided here, once.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "AWKS",
    "BARRIERS",
    "BY_LINE",
    "COMMON_SHELLS",
    "COPIERS",
    "FILTERS",
    "SCRIPTS",
    "SHELLS",
    "WALKERS",
]

#: Programs that run others and hold their pipes without using them: the default of ``--shells``.
SHELLS = ("bash", "sh", "dash", "ash", "zsh", "ksh", "mksh", "yash", "fish", "busybox")
#: The shells for which findings give advice on loops.
COMMON_SHELLS = frozenset(SHELLS) - {"fish", "mksh", "yash"}

#: Programs that write nothing before they have read everything (``sort -m`` apart).
BARRIERS = frozenset({"shuf", "sort", "sponge", "tac", "tsort"})
#: Programs that copy their input to their output, and do no more if both are of one size.
COPIERS = frozenset({"buffer", "cat", "dd", "mbuffer", "pv"})
#: Programs that treat, or can treat, each line by itself.
BY_LINE = frozenset(
    {"awk", "cut", "egrep", "fgrep", "gawk", "grep", "jq", "mawk", "perl", "rg", "sed", "tr"}
)
#: The programs of the language awk.
AWKS = frozenset({"awk", "gawk", "mawk"})
#: Programs that do the same with a file that they open, and with the same bytes from a pipe.
FILTERS = (BY_LINE - {"rg"}) | {
    "bzip2",
    "gzip",
    "md5sum",
    "nl",
    "od",
    "sha1sum",
    "sha256sum",
    "sort",
    "uniq",
    "wc",
    "xxd",
    "xz",
    "zcat",
    "zstd",
}
#: Scripts that end as another program. A stage older than the daemon has the name of that program.
#: Where they are programs of their own, they do the same.
SCRIPTS: Mapping[str, str] = {"egrep": "grep", "fgrep": "grep", "gunzip": "gzip", "zcat": "gzip"}
#: Programs that open the files of whole folders by themselves.
WALKERS = frozenset({"borg", "cp", "du", "find", "git", "restic", "rg", "rsync", "tar", "zip"})
