# SPDX-License-Identifier: Apache-2.0
"""Pipelines run as a user would run them: with `pipelined run` and `pipelined compare`."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advice.data import make, named_in
from advice.judgement import Followed, Healthy, Spread, Untried
from advice.pairs import Pair
from experiments.disk import THROTTLE, Disk, made_disk
from other_work import Quiet
from pipelined.analysis.findings import MIN_WALL
from pipelined.run.page_cache import evict, files_below, fill

__all__ = ["ATTEMPTS", "Bench", "Failed"]

PIPELINED = Path(__file__).resolve().parents[2] / ".venv" / "bin" / "pipelined"
#: Seconds that one call of `pipelined` may take.
TIMEOUT = 600.0
#: Directories without programs, in front of those with.
FAR = ":".join(f"/nonexistent/some/directory/of/programs/{n}" for n in range(20))
#: Advice about the host, which a healthy pipeline cannot help.
OF_THE_HOST = frozenset({"cpu-limit"})


#: Attempts, at most, at a run that no other work disturbs.
ATTEMPTS = 3


class Failed(Exception):
    """A command of the benchmark does not work; the message says which and why."""


@dataclass
class Bench:
    """A directory with the files, a disk to be slowed, and the number of rounds."""

    directory: Path
    """On a file system that is not a tmpfs."""
    rounds: int
    stack: ExitStack
    """Removes the disk."""
    busy: int = field(default=0, init=False)
    """Profiles that other work disturbed in each attempt."""
    _disk: Disk | None = field(default=None, init=False)

    def follow(self, pair: Pair) -> Followed | Untried:
        """Profile the pair's pipeline, then compare it with what the finding advises."""
        commands = [pair.before, pair.after or ""]
        if pair.disk is None:
            return self._follow(pair, self.directory)
        if not (THROTTLE / "blkio.throttle.read_bps_device").exists():
            return Untried(pair, "no blkio controller of cgroup v1: no disk can be slowed")
        disk = self._slow_disk()
        make(disk.root, named_in(commands))
        disk.read_ahead(pair.disk.read_ahead_kib)
        disk.limit(pair.disk.bytes_per_second, pair.disk.reads_per_second)
        try:
            return self._follow(pair, disk.root)
        finally:
            disk.limit()

    def examine(self, command: str) -> Healthy:
        """Profile a healthy pipeline."""
        make(self.directory, named_in([command]))
        walls, advised = [], []
        for _ in range(self.rounds):
            for path in files_below(self.directory / name for name in named_in([command])):
                fill(path)  # the host may have taken memory back meanwhile
            runs = self._profile(command, self.directory, ())
            walls.append(max((run["wall_seconds"] for run in runs), default=0.0))
            found = {
                finding["id"]
                for run in runs
                for finding in run["findings"]
                if finding["severity"] != "note"
            }
            advised += sorted(found - OF_THE_HOST)
        wall = Spread.of(walls)
        return Healthy(command, wall.median, advised, wall.median < MIN_WALL)

    def _follow(self, pair: Pair, directory: Path) -> Followed | Untried:
        make(directory, named_in([pair.before, pair.after or ""]))
        bounds, likely, offered, found = [], [], [], 0
        for _ in range(self.rounds):
            runs = self._profile(pair.before, directory, pair.cold)
            if pair.needs and all(s[pair.needs] is None for run in runs for s in run["stages"]):
                return Untried(pair, f"{pair.needs} are not counted here")
            of_the_kind = [
                (finding, run["wall_seconds"])
                for run in runs
                for finding in run["findings"]
                if finding["id"] == pair.id
            ]
            if not of_the_kind:
                continue
            found += 1
            finding, wall = max(of_the_kind, key=lambda each: each[0]["gain_seconds"] or 0.0)
            for promised, key in ((bounds, "gain_seconds"), (likely, "likely_seconds")):
                if finding[key] is not None:
                    promised.append((finding[key], finding[key] / wall))
            if finding.get("command"):
                offered.append(finding["command"])
        arguments = _offered(offered) if pair.after is None else pair.arguments
        gain, refused = None, ""
        if arguments:
            try:
                gain = self._compare(arguments, directory)
            except Failed as error:
                refused = str(error)
        return Followed(
            pair=pair,
            after=arguments[-1] if arguments else "",
            runs=self.rounds,
            found=found,
            **_spreads("likely", likely),
            **_spreads("bound", bounds),
            gain_seconds=-gain["seconds"] if gain else None,
            gain_share=_gained(gain["ratio"]) if gain else None,
            faster=gain is not None and gain["outcome"] == "faster",
            not_compared=refused,
        )

    def _profile(self, command: str, directory: Path, cold: Sequence[str]) -> list[dict[str, Any]]:
        """The runs that `pipelined run` sees of a command.

        It is run again if other work took CPU time meanwhile: that changes who waits for whom.
        """
        for _ in range(ATTEMPTS):
            for path in files_below(directory / name for name in cold):
                evict(path)
            quiet = Quiet()
            runs: list[dict[str, Any]] = self._pipelined(directory, "run", command)["runs"]
            if quiet:
                break
        else:
            self.busy += 1
        return runs

    def _compare(self, arguments: Sequence[str], directory: Path) -> dict[str, Any]:
        """How the pair as advised compares with the pair as it was."""
        rounds = ["--rounds", str(self.rounds)]
        (difference,) = self._pipelined(directory, "compare", *rounds, *arguments)["pairs"]
        return dict(difference)

    def _pipelined(self, directory: Path, command: str, *arguments: str) -> Any:
        """What a command of `pipelined` reports as JSON."""
        report = self.directory / "report.json"
        # to a file: programs such as grep and tar do less work if their output is /dev/null
        with open(self.directory / "output", "wb") as output:
            process = subprocess.Popen(
                [PIPELINED, command, "--json", "-o", report, *arguments],
                cwd=directory,
                env=os.environ | self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
            try:
                _, stderr = process.communicate(timeout=TIMEOUT)
            except BaseException:
                process.terminate()  # it ends what it runs, which may keep the disk busy
                process.communicate()
                raise
        if process.returncode:
            reason = stderr.strip() or f"exit status {process.returncode}"
            raise Failed(f"{shlex.join(arguments)}: {reason}")
        return json.loads(report.read_text())

    def _environment(self) -> Mapping[str, str]:
        window = f"/sys/block/{self._disk.device}/queue/read_ahead_kb" if self._disk else ""
        return {
            "LC_ALL": "C.UTF-8",
            "LOCPATH": str(self.directory),
            "FAR": FAR,
            "READ_AHEAD": window,
        }

    def _slow_disk(self) -> Disk:
        if self._disk is None:
            directory = self.directory / "disk"
            directory.mkdir()
            self._disk = self.stack.enter_context(made_disk(directory, "1G"))
        return self._disk


def _offered(commands: Sequence[str]) -> Sequence[str]:
    """The arguments of the `pipelined compare …` that most findings write; none if none does."""
    return shlex.split(max(commands, key=commands.count))[2:] if commands else ()


def _spreads(name: str, promised: Sequence[tuple[float, float]]) -> dict[str, Spread]:
    """Seconds and shares of the wall time that findings promised; nothing if they did not."""
    if not promised:
        return {}
    seconds, shares = zip(*promised, strict=True)
    return {f"{name}_seconds": Spread.of(seconds), f"{name}_share": Spread.of(shares)}


def _gained(ratio: Mapping[str, float]) -> Spread:
    """The share of the wall time that was gained, given the ratio of the two by rounds."""
    return Spread(1 - ratio["median"], 1 - ratio["high"], 1 - ratio["low"])
