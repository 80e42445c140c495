# SPDX-License-Identifier: Apache-2.0
"""A finding: one thing to change, to try, or to know about a run."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Annotated

from pipelined.runs.fields import Key, OneOf, Seconds, UnixTime, computed

__all__ = ["DOCUMENTATION", "SEVERITIES", "Evidence", "Finding", "FindingTime", "Rewrite"]

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
class Rewrite:
    """A pipeline, and what is advised to run in its place."""

    old: str
    """For a shell, as the other."""
    new: str
    """Which has to do the same."""
    reordered: bool = False
    """The order of lines may change."""
    unpacked: str = ""
    """Both compress: what this command makes of their outputs has to be the same. Else empty."""
    cold: tuple[str, ...] = ()
    """Files that both read from disk."""
    repeatable: bool = True
    """It is certain that both can be run again, and have their input then."""

    @property
    def command(self) -> str:
        """The command that compares both, with what they print; empty unless `repeatable`."""
        if not self.repeatable:
            return ""
        texts = (
            f"{way} | {self.unpacked}" if self.unpacked else way for way in (self.old, self.new)
        )
        options = [f"--cold {file}" for file in self.cold]
        if self.reordered:
            options.append("--match lines")
        return " ".join(["pipelined compare", *options, *map(_quoted, texts)])


def _quoted(text: str) -> str:
    """As one word for a shell: in double quotes if that is as it is written."""
    return f'"{text}"' if "'" in text and not re.search(r'["$`\\!]', text) else shlex.quote(text)


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
    rewrite: Rewrite | None = None
    """The pipeline as it is advised. Without `--show-arguments` the daemon
    has none."""
    notice: str = ""
    """A sentence for the top of a report: the host was busy, or a CPU limit held the run back. Else
    empty."""
    stages: tuple[int, ...]
    """The stages concerned, by index from 0; empty for the whole run."""
    evidence: tuple[Evidence, ...]
    """Its figures."""
    likely_seconds: Seconds | None = None
    """The wall time that is [likely](FINDINGS.md#what-is-likely) to be saved. Findings of equal
    severity are in its order."""
    likely_reason: str = ""
    """How that was computed."""
    gain_seconds: Seconds | None = None
    """Upper bound of the wall time that could be saved."""
    gain_reason: str = ""
    """How that was computed."""
    times: tuple[FindingTime, ...] = ()
    """[When it shows](FINDINGS.md#when-a-finding-shows), in the answer with a time line. Empty if
    that does not show when."""

    @property
    def expected_seconds(self) -> float:
        """Its rank among others: what is likely, else the bound, else 0."""
        expected = self.gain_seconds if self.likely_seconds is None else self.likely_seconds
        return expected or 0.0

    @property
    @computed
    def command(self) -> str:
        """For a shell: [compares both](FINDINGS.md#the-command-to-try); empty if there is none."""
        return self.rewrite.command if self.rewrite else ""

    @property
    @computed
    def documentation(self) -> str:
        """Its section: `docs/FINDINGS.md#barrier`."""
        return f"{DOCUMENTATION}#{self.id}"
