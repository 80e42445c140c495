# SPDX-License-Identifier: Apache-2.0
"""What the history loses: `kill -9` at random moments, a full disk, backups, an endless reader.

Each time a writer is under load, is killed, and its file is looked at. Needs root, for small disks
and for a daemon that sees real pipelines. Fails if a run is lost that ended more than 5 s before
the kill and was not counted as dropped, or if a file is damaged:

    sudo make faults
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from soak.daemon import PROGRAM
from soak.faults import fill, small_disk

#: A run that ended so long before the kill is stored, or counted as dropped (seconds).
BOUND = 5.0
#: Runs per second: what can be written, and far more than that.
LOAD, OVERLOAD = 10.0, 100.0
#: Writers at the same time.
WRITERS = 3
DISK_BYTES = 16 << 20
#: A reader that does not end.
READER = """
import sqlite3, sys
reader = sqlite3.connect(sys.argv[1], isolation_level=None)
reader.execute("BEGIN")
reader.execute("SELECT count(*) FROM runs").fetchone()
print("reads", flush=True)
sys.stdin.read()
"""


@dataclass
class Life:
    """What a writer reported until it was killed."""

    ended: dict[object, float] = field(default_factory=dict)
    """When each run ended, by what names it."""
    dropped: int = 0
    killed: float = 0.0


@dataclass
class Found:
    """What all kills of one kind have cost."""

    kills: int = 0
    ended: int = 0
    dropped: int = 0
    lost: int = 0
    oldest: float = 0.0
    """How long before the kill the run ended that was lost and had ended first (seconds)."""
    damaged: int = 0

    def count(self, life: Life, stored: set[object], damaged: bool) -> None:
        missing = sorted(end for run, end in life.ended.items() if run not in stored)
        # Dropped ones are those that waited longest: younger ones may have been, too.
        lost = missing[life.dropped :]
        self.kills += 1
        self.ended += len(life.ended)
        self.dropped += min(life.dropped, len(missing))
        self.lost += len(lost)
        self.oldest = max([self.oldest, *(life.killed - end for end in lost)])
        self.damaged += damaged


class Writer:
    """A process that writes made-up runs, until it is killed."""

    def __init__(self, directory: Path, first: int, rate: float) -> None:
        self.life = Life()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "soak.history_writer", directory, str(first), str(rate)],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reported = threading.Thread(target=self._read)
        self._reported.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            match line.split():
                case ["ended", number, moment]:
                    self.life.ended[int(number)] = float(moment)
                case ["dropped", count]:
                    self.life.dropped = int(count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process.returncode is None:
            self.kill()

    def kill(self) -> Life:
        self._process.kill()
        self.life.killed = time.monotonic()
        self._process.wait()
        self._reported.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return self.life


def stored(directory: Path, column: str) -> tuple[set[object], bool]:
    """What the file has in a column of its runs, and whether it is damaged or was set aside."""
    file = directory / "history.db"
    if not file.exists():
        return set(), False
    with contextlib.closing(sqlite3.connect(file, timeout=60)) as connection:
        intact = connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        made = connection.execute("SELECT name FROM sqlite_master WHERE name = 'runs'").fetchone()
        rows = connection.execute(f"SELECT {column} FROM runs").fetchall() if made else []
    return {cell for (cell,) in rows}, not intact or len(list(directory.glob("*.db.*"))) > 0


def numbers(directory: Path) -> tuple[set[object], bool]:
    ids, damaged = stored(directory, "id")
    return {int(str(one).partition("-")[2]) for one in ids}, damaged


Fault = Callable[[Path, float], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def nothing(directory: Path, lasting: float) -> Iterator[None]:
    time.sleep(lasting)
    yield


@contextlib.contextmanager
def backups(directory: Path, lasting: float) -> Iterator[None]:
    """The documented backup, over and over; each copy must be intact."""
    until = time.monotonic() + lasting
    copy = directory.parent / f"{directory.name}-copy.db"
    while time.monotonic() < until:
        if (directory / "history.db").exists():
            command = ["sqlite3", "-cmd", ".timeout 10000", directory / "history.db"]
            subprocess.run([*command, f".backup {copy}"], check=True, timeout=60)
            with contextlib.closing(sqlite3.connect(copy)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    yield


@contextlib.contextmanager
def endless_reader(directory: Path, lasting: float) -> Iterator[None]:
    """One that begins as soon as there is something to read, and outlives the writer."""
    until = time.monotonic() + lasting
    while not numbers(directory)[0]:
        time.sleep(0.05)
    with subprocess.Popen(
        [sys.executable, "-c", READER, directory / "history.db"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        time.sleep(max(0.0, until - time.monotonic()))
        yield
        reader.kill()


@contextlib.contextmanager
def full_disk(directory: Path, lasting: float) -> Iterator[None]:
    """Full for some time; then written again, which the daemon tries every 10 s."""
    time.sleep(2.0)
    filler = directory.parent / "filler"
    fill(filler)
    time.sleep(lasting)
    filler.unlink()
    time.sleep(11.0 + lasting)
    yield


@contextlib.contextmanager
def disk() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as place:
        yield Path(place)


def kills(
    fault: Fault,
    count: int,
    rate: float,
    place: Callable[[], contextlib.AbstractContextManager[Path]] = disk,
) -> Found:
    """Kill writers `count` times, each file's one after the other."""
    found, lock = Found(), threading.Lock()

    def kill(share: int) -> None:
        chance = random.Random(share)
        first = 0
        with place() as top:
            directory = top / "state"
            for _ in range(share, count, WRITERS):
                with (
                    Writer(directory, first, rate) as writer,
                    fault(directory, chance.uniform(0.5, 10.0)),
                ):
                    life = writer.kill()
                    there, damaged = numbers(directory)
                with lock:
                    found.count(life, there, damaged)
                first += 1_000_000

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(kill, range(WRITERS)))
    return found


def daemon_kills(count: int, port: int) -> Found:
    """Kill a daemon `count` times that watches pipelines, each with a name of its own."""
    found = Found()
    most = 2000
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        for number in range(count * most):
            (top / f"w{number:07}").symlink_to(str(shutil.which("wc")))
        for number in range(count):
            life = Life()
            with subprocess.Popen(
                [
                    *(PROGRAM, "serve", "--web.listen-address", f"127.0.0.1:{port}"),
                    *("--state-directory", top / "state"),
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            ) as daemon:
                assert daemon.stdout is not None
                said = ""
                while "Ctrl-C stops it." not in said:
                    said += daemon.stdout.readline()
                    assert daemon.poll() is None
                page = re.search(r"page +(http://\S+)/", said)
                assert page
                script = (
                    f"for ((i = {number * most}; i < {(number + 1) * most}; i++)); do"
                    f' printf -v name w%07d $i; seq 10 | "{top}/$name" > "{top}/out";'
                    " echo $name $EPOCHREALTIME; sleep 0.05; done"
                )
                with subprocess.Popen(
                    ["bash", "-c", script], stdout=subprocess.PIPE, text=True
                ) as load:
                    time.sleep(random.Random(number).uniform(1.0, 10.0))
                    # Also of other runs of the host, if it is busy.
                    life.dropped = dropped(page[1])
                    daemon.send_signal(signal.SIGKILL)
                    life.killed = time.time()
                    load.terminate()
                    assert load.stdout is not None
                    for line in load.stdout:
                        command, _, moment = line.partition(" ")
                        if (end := float(moment)) < life.killed:
                            life.ended[f"seq|{command}"] = end
            pipelines, damaged = stored(top / "state", "pipeline")
            found.count(life, pipelines, damaged)
    return found


def dropped(url: str) -> int:
    metric = rb'^pipelined_sink_dropped_runs_total{sink="history"} (\S+)'
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        found = re.search(metric, answer.read(), re.M)
    assert found
    return int(float(found[1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="of a writer that nothing disturbs")
    parser.add_argument("--others", type=int, default=21, help="of each other kind")
    parser.add_argument("--port", type=int, default=0, help="of the daemon")
    asked = parser.parse_args()
    print("| fault | kills | runs that ended | dropped | lost | the oldest | damaged files |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    worst: list[Found] = []
    cases: Sequence[tuple[str, Callable[[], Found]]] = (
        (f"none, {LOAD:g} runs per second", lambda: kills(nothing, asked.kills, LOAD)),
        (f"none, {OVERLOAD:g} runs per second", lambda: kills(nothing, asked.others, OVERLOAD)),
        ("backups in a loop", lambda: kills(backups, asked.others, LOAD)),
        ("a reader that does not end", lambda: kills(endless_reader, asked.others, LOAD)),
        (
            "a full disk",
            lambda: kills(full_disk, asked.others, LOAD, lambda: small_disk(DISK_BYTES)),
        ),
        ("a daemon and pipelines", lambda: daemon_kills(asked.others, asked.port)),
    )
    for what, measure in cases:
        found = measure()
        worst.append(found)
        print(
            f"| {what} | {found.kills} | {found.ended:,} | {found.dropped:,} | {found.lost:,} |"
            f" {found.oldest:.1f} s | {found.damaged} |",
            flush=True,
        )
    return int(any(found.damaged or found.oldest > BOUND for found in worst))


if __name__ == "__main__":
    sys.exit(main())
