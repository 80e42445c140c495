# SPDX-License-Identifier: Apache-2.0
"""A disk for tests: a file system in a loop device, as slow as an experiment needs it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["THROTTLE", "UNLIMITED", "Disk", "made_disk"]

#: The root group of cgroup v1's blkio controller, whose limit on a device holds for all processes.
THROTTLE = Path("/sys/fs/cgroup/blkio")
#: Seconds that a limit may let through too early: it counts in slices of 0.1 s
#: (block/blk-throttle.c), and rounds up the first and the last.
UNLIMITED = 0.2


@dataclass(frozen=True, slots=True)
class Disk:
    """A mounted ext4 file system in a loop device."""

    root: Path
    """Where it is mounted."""
    device: str
    """Name of the block device, such as ``loop0``."""

    def read_ahead(self, kib: int) -> None:
        """Set the device's readahead window, in KiB, for files opened from now on."""
        (self._settings / "queue" / "read_ahead_kb").write_text(str(kib))

    def limit(self, bytes_per_second: int = 0, reads_per_second: int = 0) -> None:
        """Limit what the device reads per second; 0 is no limit."""
        number = (self._settings / "dev").read_text().strip()
        for measure, rate in (("bps", bytes_per_second), ("iops", reads_per_second)):
            path = THROTTLE / f"blkio.throttle.read_{measure}_device"
            path.write_text(f"{number} {rate}")

    def reads(self) -> int:
        """How many reads the device has done (Documentation/block/stat.rst)."""
        return int((self._settings / "stat").read_text().split()[0])

    def remount(self) -> None:
        """Drop what the page cache, the inode cache and the device's buffers hold."""
        subprocess.run(["umount", self.root], check=True)
        self.mount()

    def mount(self) -> None:
        options = ["-t", "ext4", "-o", "noatime", f"/dev/{self.device}", str(self.root)]
        subprocess.run(["mount", *options], check=True)

    @property
    def _settings(self) -> Path:
        return Path("/sys/block") / self.device


@contextmanager
def made_disk(directory: Path, size: str) -> Iterator[Disk]:
    """A disk whose image, of a size such as ``1G``, is in `directory`. Removed afterwards."""
    image, root = directory / "image", directory / "root"
    root.mkdir()
    subprocess.run(["truncate", "-s", size, image], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0", image], check=True)
    made = subprocess.run(
        ["losetup", "--show", "-f", image], check=True, capture_output=True, text=True
    )
    disk = Disk(root, Path(made.stdout.strip()).name)
    try:
        disk.mount()
        try:
            yield disk
        finally:
            disk.limit()
            subprocess.run(["umount", root], check=True)
    finally:
        subprocess.run(["losetup", "-d", f"/dev/{disk.device}"], check=True)
        image.unlink()
