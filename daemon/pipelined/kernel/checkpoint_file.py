# SPDX-License-Identifier: Apache-2.0
"""The file in which a daemon leaves what lives to the next one."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipelined.kernel.checkpoint import (
    Checkpoint,
    Restored,
    UnreadableError,
    damage_refused,
    restored,
)
from pipelined.kernel.decoding import decode_stage
from pipelined.starter import boot_id

__all__ = ["FILE_NAME", "CheckpointFile"]

FILE_NAME = "live.checkpoint"

log = logging.getLogger(__name__)


class CheckpointFile:
    """A checkpoint in a directory, replaced as a whole: a reader sees the old one or the new one.

    It is not synced, as the sweep would wait for the disk. It outlives the daemon; if the host
    loses its power, one of some seconds before may be there, or a damaged one.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._lock = -1
        self._failed = ""
        self._refused = ""

    @classmethod
    def open(cls, directory: Path) -> CheckpointFile:
        """The file, for this process alone; `usable` says whether it could be had.

        A directory that is missing is made when there is something to write.
        """
        file = cls(directory)
        try:
            if directory.exists():
                file._take_lock()
        except OSError as error:
            file.close()
            taken = isinstance(error, BlockingIOError)
            reason = "another daemon has it" if taken else (error.strerror or str(error)).lower()
            file._refused = reason
        return file

    def usable(self) -> CheckpointFile | None:
        """The file; None, which is logged, if it could not be had.

        For when the programs are loaded: a user who may not do that has no live runs to save.
        """
        if not self._refused:
            return self
        log.warning("%s: %s; live runs will not survive a restart", self.path, self._refused)
        return None

    def _take_lock(self) -> None:
        lock = _open(str(self.path.with_suffix(".lock")), os.O_CREAT | os.O_RDWR)
        try:
            self._give_to_owner(lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise
        self._lock = lock

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    def read(
        self, *, max_stages: int, read_cgroup: Callable[[Sequence[Any]], object] = tuple
    ) -> tuple[Checkpoint, Restored] | None:
        """What is there and can be restored; None: nothing. Damage is logged, never raised.

        It may be of another boot of the host: then it is there as a whole, whatever `max_stages`.
        `read_cgroup` reads what is known of one cgroup; LookupError, TypeError and ValueError of
        it are damage.
        """
        if self._refused:
            return None
        try:
            with open(self.path, "rb", opener=_open) as file:
                data = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("%s cannot be read: %s; live runs begin anew", self.path, error.strerror)
            return None
        try:
            found = Checkpoint.decode(data)
            lives = found.boot_id == boot_id()
            if lives and found.watched_ns > time.monotonic_ns():
                raise UnreadableError("it is of a later time")
            with damage_refused():
                what = restored(found, max_stages=max_stages if lives else len(found.stages))
                for index, raw in enumerate(what.stages, 1):
                    decode_stage(raw, index)
                for known in found.cgroups.values():
                    read_cgroup(known)
        except UnreadableError as error:
            aside = self.path.with_suffix(".unreadable")
            with contextlib.suppress(OSError):
                os.replace(self.path, aside)
            log.warning(
                "%s cannot be used: %s; set aside as %s; live runs begin anew",
                self.path,
                error,
                aside.name,
            )
            return None
        if what.left_out:
            log.warning(
                "%d stages of live runs begin anew: there is no room for them with --max-stages=%d",
                what.left_out,
                max_stages,
            )
        return found, what

    def write(self, checkpoint: Checkpoint) -> None:
        """Take the place of what is there. A failure is logged once, and tried again next time."""
        self._try(lambda: self._replace(checkpoint.encode()))

    def clear(self) -> None:
        """Nothing lives."""
        self._try(lambda: self.path.unlink(missing_ok=True))

    def _try(self, change: Callable[[], object]) -> None:
        try:
            change()
        except OSError as error:
            reason = error.strerror or str(error)
            if reason != self._failed:
                log.error(
                    "%s cannot be written: %s; live runs would not survive a restart of the daemon",
                    self.path,
                    reason.lower(),
                )
            self._failed = reason
        else:
            self._failed = ""

    def _replace(self, data: bytes) -> None:
        if self._lock < 0:
            self.path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._take_lock()
        made = self.path.with_suffix(".new")
        with contextlib.suppress(FileNotFoundError):
            made.unlink()
        with open(made, "xb", opener=_open) as file:
            self._give_to_owner(file.fileno())
            file.write(data)
        os.replace(made, self.path)

    def _give_to_owner(self, file: int) -> None:
        """Of root's in a directory of the service's user: it must be able to use them later."""
        owner = self.path.parent.stat()
        linked = os.fstat(file).st_nlink != 1  # by that user: the file may be any of root's
        if os.geteuid() == 0 and owner.st_uid != 0 and not linked:
            os.fchown(file, owner.st_uid, owner.st_gid)


def _open(path: str, flags: int) -> int:
    """The directory may be of the service's user, and this process root's: no link is followed.

    Nor is a FIFO waited for.
    """
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
