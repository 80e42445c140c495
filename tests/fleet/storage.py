# SPDX-License-Identifier: Apache-2.0
"""A Prometheus that holds a simulated fleet, as if it had scraped it and evaluated the rules.

Raw series are scraped once a minute in the range that is simulated. The recorded ones are what
promtool makes of them by the project's own rules; of the days before the range there are only run
durations, one in twelve hours at most, as the rules record them.
"""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import yaml

from dashboard_files import FILES, load, queries
from prometheus_server import Prometheus
from server_process import of_the_host

from .hosts import DAY, KINDS, Host

__all__ = ["STEP", "Fleet", "stored"]

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "recording.rules.yml"
#: Seconds from one scrape to the next.
STEP = 60
#: So many days before the range have durations of runs.
DAYS = 14
_DURATION = "pipeline:pipelined_run_duration_seconds:last"
_RECORDED = re.compile(r"\w+:pipelined_\w+:\w+")
#: Rules that look back over a day, or days, are evaluated over the days too, once an hour.
_OVER_DAYS = re.compile(r"\[\d+d[\]:]")
_NO_SCRAPES = "global: {evaluation_interval: 1m}\n"
_FLAGS = ("--storage.tsdb.retention.time=10y", "--query.timeout=5m")


@dataclass(frozen=True)
class Fleet:
    """So many hosts, whose last scrape is at `ends`, a whole minute."""

    size: int
    ends: int
    minutes: int

    @property
    def begin(self) -> int:
        return self.ends - 60 * self.minutes

    @property
    def hosts(self) -> list[Host]:
        return [Host(number, self.begin) for number in range(self.size)]


@contextmanager
def stored(fleet: Fleet, directory: Path) -> Iterator[Prometheus]:
    """A Prometheus with this fleet. What the directory has of it already is not made again."""
    data = directory / "data"
    if not data.exists():
        data.mkdir(parents=True)
        _import(directory / "scraped", data, lambda file: _write_scrapes(fleet, file))
        _import(directory / "days", data, lambda file: _write_durations(fleet, file))
    for number, layer in enumerate(_layers()):
        left = [rule for rule in layer if not (directory / rule["record"]).exists()]
        if not left:
            continue
        with Prometheus(directory, _NO_SCRAPES, flags=_FLAGS) as server:
            file = directory / f"layer{number}.yml"
            groups = [{"name": "simulated", "interval": "1m", "rules": left}]
            file.write_text(yaml.safe_dump({"groups": groups}))
            times = (f"--start={fleet.begin}", f"--end={fleet.ends}", "--eval-interval=1m")
            url = f"--url={server.url}"
            _promtool("rules", url, *times, f"--output-dir={data}", file)
            days = [rule for rule in left if _OVER_DAYS.search(rule["expr"])]
            if days:
                lines = [line for rule in days for line in _hourly(rule, server, fleet)]
                _import(
                    directory / "hourly", data, lambda file, lines=lines: file.writelines(lines)
                )
        for rule in left:
            (directory / rule["record"]).touch()
    with Prometheus(directory, _NO_SCRAPES, flags=_FLAGS) as server:
        yield server


def _import(name: Path, data: Path, write: Any) -> None:
    """Blocks of what `write` writes in OpenMetrics' text format."""
    file = name.with_suffix(".txt")
    with file.open("w", buffering=1 << 20) as text:
        write(text)
        text.write("# EOF\n")
    _promtool("openmetrics", "--max-block-duration=960h", "--quiet", file, data)
    file.unlink()


def _promtool(*arguments: str | Path) -> None:
    command = [of_the_host("promtool"), "tsdb", "create-blocks-from", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _write_scrapes(fleet: Fleet, text: TextIO) -> None:
    """All series of all hosts. Hosts of a kind are alike, but each some minutes behind another."""
    hosts = fleet.hosts
    shifts = (fleet.size - 1) // KINDS
    times = range(fleet.begin - STEP * shifts, fleet.ends + 1, STEP)
    for one in hosts[:KINDS]:
        scrapes = [one.exposition(at, fleet.ends) for at in times]
        for host in hosts[one.number :: KINDS]:
            _write_host(host, scrapes[shifts - host.number // KINDS :], fleet, text)


def _write_host(
    host: Host, scrapes: Sequence[list[tuple[str, str]]], fleet: Fleet, text: TextIO
) -> None:
    heads: dict[str, str] = {}
    for at, series in zip(range(fleet.begin, fleet.ends + 1, STEP), scrapes, strict=False):
        up = int(host.kind != 99 or at < fleet.ends - 600)
        lines = [f"{_of_target('up', host)} {up} {at}\n"]
        if up:
            for name in ("scrape_duration_seconds", "scrape_samples_scraped"):
                value = len(series) if name.endswith("scraped") else 0.004 + host.kind / 1e4
                lines.append(f"{_of_target(name, host)} {value} {at}\n")
            for head, value in series:
                full = heads.get(head) or heads.setdefault(head, _of_target(head, host))
                lines.append(f"{full} {value} {at}\n")
        text.write("".join(lines))


def _of_target(head: str, host: Host) -> str:
    """A series as Prometheus stores it: with the labels of its target."""
    name, brace, labels = head.partition("{")
    target = f'job="pipelined",instance="{host.instance}"'
    return f"{name}{{{target},{labels}" if brace else f"{name}{{{target}}}"


def _write_durations(fleet: Fleet, text: TextIO) -> None:
    for host in fleet.hosts:
        for job in host.jobs:
            if job.nested_in or job.first or job.typed:
                continue
            labels = f'nested="false",pipeline="{job.pipeline}",unit="{job.unit}"'
            head = _of_target(f"{_DURATION}{{{labels}}}", host)
            last = 0.0
            for ended, took in host.ended(job, fleet.ends - DAYS * DAY, fleet.ends):
                if ended >= last + DAY / 2 and ended < fleet.begin:
                    text.write(f"{head} {took:.3f} {60 * (1 + ended // 60):.0f}\n")
                    last = ended


# -- the rules


def _hourly(rule: Mapping[str, str], server: Prometheus, fleet: Fleet) -> Iterator[str]:
    """What the rule records of the days before the range: computed once an hour, and kept.

    At full hours, because subqueries look there; every five minutes, so that graphs have no gaps.
    """
    first = (fleet.ends - round((DAYS - 1) * DAY)) // 3600 * 3600
    parameters = {"query": rule["expr"], "start": first, "end": fleet.begin - STEP, "step": 3600}
    found = server.get(f"/api/v1/query_range?{urllib.parse.urlencode(parameters)}")["result"]
    for series in found:
        labels = (f"{name}={json.dumps(value)}" for name, value in series["metric"].items())
        own = ",".join(label for label in labels if not label.startswith("__name__"))
        for hour, value in series["values"]:
            for at in range(int(hour), min(int(hour) + 3600, fleet.begin - STEP), 300):
                yield f"{rule['record']}{{{own}}} {value} {at}\n"


def _layers() -> list[list[dict[str, Any]]]:
    """Rules that the dashboards need, in the order in which they need each other."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = {rule["record"]: rule for group in groups for rule in group["rules"]}
    wanted = {name for file in FILES for query in queries(load(file)) for name in query.recorded}
    layers: list[list[dict[str, Any]]] = []

    def layer_of(name: str) -> int:
        below = set(_RECORDED.findall(rules[name]["expr"])) - {name}
        return 1 + max((layer_of(other) for other in below), default=-1)

    def with_those_below(name: str) -> set[str]:
        below = set(_RECORDED.findall(rules[name]["expr"])) - {name}
        return {name}.union(*(with_those_below(other) for other in below))

    for name in sorted(set().union(*(with_those_below(name) for name in wanted))):
        while len(layers) <= layer_of(name):
            layers.append([])
        layers[layer_of(name)].append(rules[name])
    return layers
