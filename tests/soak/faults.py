# SPDX-License-Identifier: Apache-2.0
"""What a night brings besides jobs: a full disk, backups of the history, rotated logs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from soak.night import Failed, Started
from soak.readings import Happened

__all__ = ["Faults", "fill", "small_disk"]

#: Backups and rotations of the logs in the eight hours of a night.
BACKUPS, ROTATIONS = 48, 8
#: When the disk is full, as shares of the night, and for how long at most (seconds).
FULL_FROM, FULL_FOR, FULL_AT_MOST = 14.1 / 24, 1 / 24, 300.0


@contextlib.contextmanager
def small_disk(size: int) -> Iterator[Path]:
    """A file system of so many bytes."""
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], check=True)
        try:
            yield Path(place)
        finally:
            subprocess.run(["umount", "-l", place], check=True)


def fill(filler: Path) -> None:
    """Write a file until not a byte fits."""
    with filler.open("wb", buffering=0) as out:
        for size in (1 << 20, 4096, 512):
            with contextlib.suppress(OSError):
                while True:
                    out.write(bytes(size))


@dataclass
class _Every:
    """Something that comes so often in the night."""

    times: int
    done: int = 0

    def due(self, share: float) -> bool:
        """Whether it is time again, when this share of the night has passed."""
        if share * self.times < self.done + 1:
            return False
        self.done += 1
        return True


class Faults:
    """Brings them over the daemon whose state is in `state`, on a disk of its own."""

    def __init__(self, state: Path, logs: Sequence[Path], seconds: float, directory: Path) -> None:
        self._state, self._logs, self._seconds = state, logs, seconds
        self._directory = directory
        self._began = time.monotonic()
        self._filler = state.parent / "filler"
        self._full_from = self._full_until = 0.0
        self._backups, self._rotations = _Every(BACKUPS), _Every(ROTATIONS)
        self._backup: Started | None = None
        self._good_backups = 0
        self._slowest_backup = self._backup_began = 0.0
        self._rotated = directory / "rotated.log"

    def tick(self) -> None:
        """Do what is due. Raises Failed if a backup failed or is damaged."""
        now = time.monotonic() - self._began
        share = now / self._seconds
        self._look_at_backup()
        if self._backup is None and self._backups.due(share):
            self._back_up()
        if self._rotations.due(share):
            self._rotate()
        if not self._full_from and share >= FULL_FROM:
            fill(self._filler)
            self._full_from = time.monotonic() - self._began
        length = min(FULL_FOR * self._seconds, FULL_AT_MOST)
        if self._full_from and not self._full_until and now > self._full_from + length:
            self._filler.unlink()
            self._full_until = time.monotonic() - self._began

    def happened(self) -> Happened:
        """What has happened, at the end."""
        while self._backup:
            time.sleep(0.1)
            self._look_at_backup()
        self._rotate()
        return Happened(
            backups=self._good_backups,
            slowest_backup=self._slowest_backup,
            full_from=self._full_from,
            full_until=self._full_until,
            rotations=self._rotations.done,
            tracebacks=self._rotated.read_text(errors="replace").count("Traceback"),
            log_lines=len(self._rotated.read_text(errors="replace").splitlines()),
        )

    def close(self) -> None:
        if self._backup:
            self._backup.close()

    def _back_up(self) -> None:
        """As docs/HISTORY.md says; then look whether the copy is intact."""
        copy = self._directory / "copy.db"
        line = (
            f'sqlite3 -cmd ".timeout 10000" {self._state / "history.db"} ".backup {copy}"'
            f' && test "$(sqlite3 {copy} "PRAGMA integrity_check")" = ok'
        )
        self._backup_began = time.monotonic()
        log = self._directory / "backup.log"
        self._backup = Started(["bash", "-c", line], log, self._directory)

    def _look_at_backup(self) -> None:
        if self._backup and self._backup.ended_well():
            took = time.monotonic() - self._backup_began
            self._slowest_backup = max(took, self._slowest_backup)
            self._good_backups += 1
            self._backup = None

    def _rotate(self) -> None:
        """As logrotate's `copytruncate`: the file stays open."""
        with self._rotated.open("ab") as rotated:
            for log in self._logs:
                if not log.exists():
                    raise Failed(f"{log} is gone")
                rotated.write(log.read_bytes())
                os.truncate(log, 0)
