# SPDX-License-Identifier: Apache-2.0
"""A finding: one thing to change, to try, or to know about a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pipelined.runs.fields import Key, OneOf, Seconds, UnixTime, computed

__all__ = ["DOCUMENTATION", "SEVERITIES", "Evidence", "Finding", "FindingTime"]

#: The page with a section for each id; the id is its anchor.
DOCUMENTATION = "docs/FINDINGS.md"
#: The most severe first.
SEVERITIES = ("warning", "advice", "note")


@dataclass(frozen=True, slots=True)
class Evidence:
    """A figure that a finding stands on."""

    name: str
    """For people; may change."""
    value: float
    """In this unit."""
    unit: Annotated[str, OneOf(("seconds", "bytes", "ratio", "pages", "calls", "count"))]
    """Of the value."""


@dataclass(frozen=True, slots=True)
class FindingTime:
    """A finding shows at one stage."""

    stage: int
    """Which one, by index from 0."""
    start: Annotated[UnixTime, Key("start_timestamp_seconds")]
    """From when."""
    end: Annotated[UnixTime, Key("end_timestamp_seconds")]
    """To when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to change, to try, or to know about a run."""

    id: str
    """Such as `barrier`: [FINDINGS.md](FINDINGS.md) has a section for each."""
    severity: Annotated[str, OneOf(SEVERITIES)]
    """Change it, worth trying, or affects how to read the numbers."""
    sentence: str
    """What is wrong, with its numbers."""
    advice: str
    """What to do, beginning with `Try:`; may be empty for a note."""
    command: str = ""
    """For a shell: [compares the pipeline with what is advised](FINDINGS.md#the-command-to-try);
    empty if there is none. Without `--show-arguments` the daemon has none."""
    notice: str = ""
    """A sentence for the top of a report, if all figures must be read with it in mind: the host was
    busy, or a CPU limit held the run back. Else empty."""
    stages: tuple[int, ...]
    """The stages concerned, by index from 0; empty for the whole run."""
    evidence: tuple[Evidence, ...]
    """Its figures."""
    gain_seconds: Seconds | None = None
    """Upper bound of the wall time that could be saved; null if it is not known. Above nine tenths
    of the run it says nothing: reports leave it out."""
    gain_reason: str = ""
    """How that was computed."""
    times: tuple[FindingTime, ...] = ()
    """[When it shows](FINDINGS.md#when-a-finding-shows), in the answer with a time line. Empty if
    that does not show when."""

    @property
    @computed
    def documentation(self) -> str:
        """Its section: `docs/FINDINGS.md#barrier`."""
        return f"{DOCUMENTATION}#{self.id}"
