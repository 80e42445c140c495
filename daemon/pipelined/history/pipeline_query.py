# SPDX-License-Identifier: Apache-2.0
"""What may be asked of pipelines over a time: the same at the prompt, on the page, in the API."""

from __future__ import annotations

__all__ = ["DEFAULT_SINCE", "GROUPS", "JOB_SORTS", "SORTS"]

#: Since when they are summed up if nobody says.
DEFAULT_SINCE = "7d"

#: What they are sorted by, most first; the first is the default. `slower`: how many times as long
#: as usual the last run took.
SORTS = ("wall", "cpu", "not-overlapped", "runs", "slower", "failures")
#: What jobs are sorted by: they have no usual.
JOB_SORTS = tuple(sort for sort in SORTS if sort != "slower")
#: What is summed up as one line; the first is the default.
GROUPS = ("pipeline", "job")
