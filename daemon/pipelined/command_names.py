# SPDX-License-Identifier: Apache-2.0
"""Lists of programs by name: which are shells, which only copy, which read all before they write.

A stage goes by the name of its command. What a name says about a program is decided here, once.
"""

from __future__ import annotations

__all__ = ["BARRIERS", "BY_LINE", "COMMON_SHELLS", "COPIERS", "SHELLS"]

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
