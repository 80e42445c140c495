# SPDX-License-Identifier: Apache-2.0
"""What is known of programs by their names."""

from __future__ import annotations

__all__ = ["BARRIERS", "BY_LINE", "COPIERS", "SHELLS"]

#: Commands that write nothing before they have read everything (``sort -m`` apart).
BARRIERS = frozenset({"shuf", "sort", "sponge", "tac", "tsort"})
#: Copy their input to their output, and no more, if both are of one size.
COPIERS = frozenset({"buffer", "cat", "dd", "mbuffer", "pv"})
#: Treat, or can treat, each line by itself.
BY_LINE = frozenset(
    {"awk", "cut", "egrep", "fgrep", "gawk", "grep", "jq", "mawk", "perl", "rg", "sed", "tr"}
)
SHELLS = frozenset({"ash", "bash", "busybox", "dash", "ksh", "sh", "zsh"})
