# SPDX-License-Identifier: Apache-2.0
"""Bytes that a stage moved: through its pipes, inside it, and from and to files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated

from pipelined.runs.fields import Bytes, Group, Key

__all__ = ["NO_FLOW", "Flow", "input_of"]

PIPE_BYTES = Group("pipe_bytes", "PipeBytes", "What went through the pipes of a stage.")
FILE_BYTES = Group(
    "file_bytes",
    "FileBytes",
    "What a stage moved beside its pipes: from and to files, sockets and terminals.",
)
INNER_BYTES = Group(
    "inner_pipe_bytes",
    "InnerPipeBytes",
    "What went through pipes between processes of a stage.",
)


@dataclass(frozen=True, slots=True)
class Flow:
    """Bytes that a stage took from pipes and passed on through them, and the rest that it moved."""

    pipe_in: Annotated[Bytes | None, Key(PIPE_BYTES, "in")]
    """[Taken from its pipes](CONCEPTS.md#what-flows); null if it has none there, or if that is not
    known."""
    pipe_out: Annotated[Bytes | None, Key(PIPE_BYTES, "out")]
    """Passed on through its pipes; null for the same reasons."""
    file_read: Annotated[Bytes | None, Key(FILE_BYTES, "read")]
    """At least this many, unless `exact`; null if the stage splices and that is not counted. Where
    `inner_pipe_bytes` are null they are a part of it."""
    file_written: Annotated[Bytes | None, Key(FILE_BYTES, "written")]
    """The same of writes."""
    exact: Annotated[bool, Key(PIPE_BYTES, "exact")]
    """They were counted; else they are upper bounds."""
    splices: bool = False
    """It moves bytes with `splice` or `tee`, which are not counted: its neighbours bound what it
    passed on."""
    inner_read: Annotated[Bytes | None, Key(INNER_BYTES, "read")] = 0
    """By its processes from other ones of its own. Null: not known, and a part of `file_bytes`."""
    inner_written: Annotated[Bytes | None, Key(INNER_BYTES, "written")] = 0
    """By its processes to other ones of its own; null as `read`."""
    temporary: Annotated[Bytes | None, Key(FILE_BYTES, "temporary")] = 0
    """Of `written`: to temporary files of a `sort`, which it read back, so that they are a part of
    `read` too. Null: not known, and a part of both."""

    @property
    def input_files(self) -> int | None:
        """What it read from files, without what it had written to temporary ones."""
        return self._without_temporary(self.file_read)

    @property
    def output_files(self) -> int | None:
        """What it wrote to files, without what was temporary."""
        return self._without_temporary(self.file_written)

    @property
    def input_is_bound(self) -> bool:
        """Whether `input_files` is the most that it can be."""
        return self.inner_read is None or self._temporary_is_bound

    @property
    def output_is_bound(self) -> bool:
        """Whether `output_files` is the most that it can be."""
        return self.inner_written is None or self._temporary_is_bound

    def _without_temporary(self, size: int | None) -> int | None:
        return None if size is None else max(0, size - (self.temporary or 0))

    @property
    def _temporary_is_bound(self) -> bool:
        """Whether more may have been temporary. It is certain only where all that was moved beside
        counted pipes was; else it is what was still in the page cache when it was read back."""
        if self.temporary is None:
            return True
        piped = self.pipe_in is not None or self.pipe_out is not None
        all_of_it = self.temporary == min(self.file_read or 0, self.file_written or 0)
        return self.temporary > 0 and not (self.exact and piped and all_of_it)

    @property
    def taken(self) -> int | None:
        """What it took in: from its pipes, or from files if it has none to read from."""
        return self.input_files if self.pipe_in is None else self.pipe_in

    @property
    def passed_on(self) -> int | None:
        """What it passed on: through its pipes, or to files if it has none to write to."""
        return self.output_files if self.pipe_out is None else self.pipe_out

    def __add__(self, other: Flow) -> Flow:
        return Flow(
            _sum_known(self.pipe_in, other.pipe_in),
            _sum_known(self.pipe_out, other.pipe_out),
            _sum_known(self.file_read, other.file_read),
            _sum_known(self.file_written, other.file_written),
            self.exact and other.exact,
            self.splices or other.splices,
            _sum_if_known(self.inner_read, other.inner_read),
            _sum_if_known(self.inner_written, other.inner_written),
            _sum_if_known(self.temporary, other.temporary),
        )


def input_of(flows: Sequence[Flow], fed: Collection[int]) -> int | None:
    """What the first stages of a run took in; None if that of one of them is not known.

    `fed` are those that another stage writes to, as indexes into `flows`.
    """
    total = None
    for at, flow in enumerate(flows):
        if at not in fed:
            taken = flow.taken
            if taken is None:
                return None
            total = taken + (total or 0)
    return total


def _sum_known(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b


def _sum_if_known(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


NO_FLOW = Flow(None, None, None, None, False)
