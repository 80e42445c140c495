# SPDX-License-Identifier: Apache-2.0
"""The files that the pipelines read: made once, always the same, and only those that are named."""

from __future__ import annotations

import gzip
import json
import random
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from experiments.text import text

__all__ = ["MADE", "make", "named_in"]

MIB = 1 << 20

_READER = """\
import hashlib, os, random, sys

file = os.open(sys.argv[2], os.O_RDONLY)
os.posix_fadvise(file, 0, 0, getattr(os, "POSIX_FADV_" + sys.argv[1]))
places = random.Random(1)
for _ in range(300):
    at = places.randrange(os.fstat(file).st_size >> 16) << 16
    for step in range(3):
        print(hashlib.sha256(os.pread(file, 4096, at + step * 4096)).hexdigest())
"""


def _small_files(directory: Path, count: int, size: int) -> None:
    """`count` files of lines, in ten directories."""
    content = text(size)
    for number in range(count):
        inside = directory / str(number % 10)
        inside.mkdir(parents=True, exist_ok=True)
        (inside / f"{number * 7919 % 100003:05}").write_bytes(content)


def _log() -> bytes:
    """A web server's log of 1,000,000 requests by 20,000 clients for 2,000 pages, 100 MB."""
    chosen = random.Random(1)
    lines = []
    for number in range(1_000_000):
        client, page = chosen.randrange(20_000), chosen.randrange(2000)
        (status,) = chosen.choices((200, 304, 404, 500), (90, 6, 3, 1))
        lines.append(
            f"10.0.{client >> 8}.{client & 255} - - "
            f"[23/Nov/2026:{number // 45_000:02}:00:00 +0000] "
            f'"GET /page/{page} HTTP/1.1" {status} {chosen.randrange(100_000)} "-" "Mozilla/5.0"\n'
        )
    return "".join(lines).encode()


def _records() -> bytes:
    """200,000 JSON objects, one per line."""
    lines = (
        json.dumps({"name": f"name {n * 7919 % 100003}", "size": n * 31 % 1000, "tags": ["a", "b"]})
        for n in range(200_000)
    )
    return "\n".join(lines).encode() + b"\n"


def _list(path: Path) -> None:
    """The names of the files in `tiny`, in the order of the names."""
    names = sorted(
        str(file.relative_to(path.parent)) for file in (path.parent / "tiny").glob("*/*")
    )
    path.write_text("\n".join(names) + "\n")


def _parts(path: Path) -> None:
    path.mkdir()
    for number in range(20):
        (path / f"{number:02}").write_bytes(text(4 * MIB))


def _locale(path: Path) -> None:
    """A locale that not every host has; it is found by way of LOCPATH."""
    subprocess.run(["localedef", "-i", "en_US", "-f", "UTF-8", path], check=True)


def _synced(path: Path) -> None:
    """A directory of which each write waits for the disk, as if there was no room in memory."""
    path.mkdir()
    subprocess.run(["chattr", "+S", path], check=True)


#: How each file or directory is made, given its path.
MADE: Mapping[str, Callable[[Path], object]] = {
    "big": lambda path: path.write_bytes(text(64 * MIB) * 5),
    "text": lambda path: path.write_bytes(text(64 * MIB)),
    "part": lambda path: path.write_bytes(text(16 * MIB)),
    "part.gz": lambda path: path.write_bytes(gzip.compress(text(16 * MIB), 6)),
    "parts": _parts,
    "small": lambda path: _small_files(path, 1300, 55_000),
    "tiny": lambda path: _small_files(path, 4000, 8000),
    "dust": lambda path: _small_files(path, 20_000, 4000),
    "list": _list,
    "files": lambda path: _small_files(path, 1000, 200_000),
    "log": lambda path: path.write_bytes(_log()),
    "log.gz": lambda path: path.write_bytes(gzip.compress(_log(), 6)),
    "log.zst": lambda path: subprocess.run(["zstd", "-q", "-o", path], input=_log(), check=True),
    "synced": _synced,
    "records": lambda path: path.write_bytes(_records()),
    "en_US.UTF-8": _locale,
    "random_reads.py": lambda path: path.write_text(_READER),
}
#: What another one is made from.
_NEEDS = {"list": "tiny"}


def named_in(commands: Iterable[str]) -> set[str]:
    """The files of `MADE` that commands name, and those that these are made from."""
    named = {word for command in commands for word in re.findall(r"[\w.-]+", command)} & MADE.keys()
    return named | {_NEEDS[name] for name in named & _NEEDS.keys()}


def make(directory: Path, names: Iterable[str]) -> None:
    """Make those files in `directory` that are not there."""
    wanted = set(names)
    for name, maker in MADE.items():
        if name in wanted and not (directory / name).exists():
            maker(directory / name)
