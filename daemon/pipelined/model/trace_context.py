# SPDX-License-Identifier: Apache-2.0
"""`TRACEPARENT` and `TRACESTATE`, as W3C's trace context has them (Recommendation of 2021).

What is not valid is as if it were not there: the text says so of both headers, and OpenTelemetry of
the variables of the environment that carry them.
"""

from __future__ import annotations

import re

from pipelined.runs import Trace

__all__ = ["trace_of", "trace_state"]

#: Versions after 00 may add to it, with a dash before what is new; ff is none.
_PARENT = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_FIRST_VERSION = "00"
_SAMPLED = 1

#: Entries of a state at most.
_ENTRIES = 32
_KEY = re.compile(r"[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13}")
#: Printable, without comma and equals sign; no blank at the end.
_VALUE = re.compile(r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")


def trace_of(parent: str, state: str = "") -> Trace | None:
    """The trace that these variables name; None if `parent` is not valid.

    >>> trace_of("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").sampled
    True
    """
    found = _PARENT.fullmatch(parent)
    if not found:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if (version == _FIRST_VERSION and more) or not (trace_id.strip("0") and span_id.strip("0")):
        return None
    return Trace(trace_id, span_id, bool(int(flags, 16) & _SAMPLED), trace_state(state))


def trace_state(text: str) -> str | None:
    """The entries of a state, with commas between them; None if there is none, or one is wrong.

    >>> trace_state("rojo=00f067aa0ba902b7 , congo=t61rcWkgMzE")
    'rojo=00f067aa0ba902b7,congo=t61rcWkgMzE'
    """
    entries = [entry for part in text.split(",") if (entry := part.strip(" \t"))]
    keys = set()
    for entry in entries:
        key, _, value = entry.partition("=")
        if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            return None
        keys.add(key)
    if not entries or len(entries) > _ENTRIES or len(keys) < len(entries):
        return None
    return ",".join(entries)
