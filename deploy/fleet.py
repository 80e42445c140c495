#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reports what the metrics of one daemon cost a Prometheus, and of a whole fleet.

    deploy/fleet.py http://127.0.0.1:9905/metrics
    deploy/fleet.py --hosts 1000 --interval 30 metrics.txt other-host.txt

Takes addresses of /metrics or files with their content, one per host, and needs only Python.
docs/FLEET.md explains the figures.
"""

from __future__ import annotations

import argparse
import gzip
import re
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "BYTES_PER_SAMPLE",
    "BYTES_PER_SERIES",
    "Fleet",
    "Scrape",
    "fleet_table",
    "scrape_table",
]

#: Memory that a series takes in Prometheus' head, in bytes: 7.5 KiB, from a published calculator
#: that gives 7 to 9 KiB as the safe range (docs/FLEET.md has the sources).
BYTES_PER_SERIES = 7.5 * 1024
#: Size of a sample on Prometheus' disk, in bytes: the upper end of the documented 1 to 2.
BYTES_PER_SAMPLE = 2.0

_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? \S+(?: \S+)?$")


@dataclass(frozen=True)
class Scrape:
    """One answer of /metrics. Sizes are in bytes."""

    size: int
    compressed: int
    """With gzip, as the daemon sends it to a Prometheus on another host."""
    of_host: int
    """Series of the host and of the daemon itself, without the label `pipeline`."""
    of_pipelines: int
    """Series for a whole pipeline."""
    of_stages: int
    """Series for a stage of a pipeline: the label `position`."""
    pipelines: int
    """Different pipelines: by signature, nested or not, and unit."""
    stages: int
    """Different stages of these."""

    @property
    def series(self) -> int:
        return self.of_host + self.of_pipelines + self.of_stages

    @classmethod
    def parse(cls, text: str) -> Scrape:
        """Count the series in `text`. Raises ValueError if it is not Prometheus' text format."""
        kinds: Counter[str] = Counter()
        pipelines: set[tuple[str, ...]] = set()
        stages: set[tuple[str, ...]] = set()
        for line in text.splitlines():
            if not line or line.startswith("#"):
                continue
            sample = _SAMPLE.match(line)
            if sample is None:
                raise ValueError(f"not the text format of Prometheus: {line[:60]}")
            labels = dict(_LABEL.findall(sample[2] or ""))
            if "pipeline" not in labels:
                kinds["host"] += 1
                continue
            pipeline = (labels["pipeline"], labels.get("nested", ""), labels.get("unit", ""))
            pipelines.add(pipeline)
            if "position" in labels:
                kinds["stage"] += 1
                stages.add((*pipeline, labels["position"], labels["command"]))
            else:
                kinds["pipeline"] += 1
        encoded = text.encode()
        return cls(
            size=len(encoded),
            compressed=len(gzip.compress(encoded, compresslevel=1)),
            of_host=kinds["host"],
            of_pipelines=kinds["pipeline"],
            of_stages=kinds["stage"],
            pipelines=len(pipelines),
            stages=len(stages),
        )


@dataclass(frozen=True)
class Fleet:
    """A number of hosts with the same scrape."""

    hosts: int
    series_per_host: int
    bytes_per_scrape: int
    """Size on the network: compressed."""
    interval: float
    """Seconds between two scrapes of a host."""

    @property
    def series(self) -> int:
        return self.hosts * self.series_per_host

    @property
    def samples_per_second(self) -> float:
        return self.series / self.interval

    @property
    def bits_per_second(self) -> float:
        return 8 * self.hosts * self.bytes_per_scrape / self.interval

    @property
    def memory(self) -> float:
        """Bytes in the head of a Prometheus that holds all series."""
        return self.series * BYTES_PER_SERIES

    def disk(self, days: float) -> float:
        """Bytes of the samples of this many days."""
        return self.samples_per_second * days * 86400 * BYTES_PER_SAMPLE


def scrape_table(scrapes: Iterable[tuple[str, Scrape]]) -> str:
    """A Markdown table with a row per scrape, by name."""
    rows = [
        "| what ran | pipelines | stages | series | of host, pipelines, stages "
        "| size of a scrape |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    rows += [
        f"| {name} | {one.pipelines:,} | {one.stages:,} | {one.series:,} | {one.of_host:,}, "
        f"{one.of_pipelines:,}, {one.of_stages:,} | {_bytes(one.size)}, "
        f"gzip {_bytes(one.compressed)} |"
        for name, one in scrapes
    ]
    return "\n".join(rows)


def fleet_table(fleets: Iterable[Fleet]) -> str:
    """A Markdown table with a row per size of the fleet."""
    rows = [
        "| hosts | series | samples a second | network | memory in all | disk, 15 days |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    rows += [
        f"| {fleet.hosts:,} | {_count(fleet.series)} | {_count(fleet.samples_per_second)} | "
        f"{_count(fleet.bits_per_second)}bit/s | {_bytes(fleet.memory)} | "
        f"{_bytes(fleet.disk(15))} |"
        for fleet in fleets
    ]
    return "\n".join(rows)


def _scaled(value: float) -> tuple[str, str]:
    """Three digits and the prefix of the unit."""
    for prefix in ("", "k", "M", "G"):
        if value < 999.5:
            return f"{value:.3g}", prefix
        value /= 1000
    return f"{value:.3g}", "T"


def _count(value: float) -> str:
    return " ".join(_scaled(value)).rstrip()


def _bytes(value: float) -> str:
    number, prefix = _scaled(value)
    return f"{number} {prefix}B"


def _read(place: str) -> str:
    if place.startswith(("http://", "https://")):
        with urllib.request.urlopen(place, timeout=10) as answer:
            return str(answer.read().decode())
    return Path(place).read_text()


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Report what metrics cost a Prometheus, for one daemon and for a fleet."
    )
    parser.add_argument("place", nargs="+", help="address of /metrics, or a file; one per host")
    parser.add_argument("--hosts", type=int, action="append", help="size of the fleet; repeatable")
    parser.add_argument("--interval", type=float, default=15.0, help="seconds between scrapes [15]")
    asked = parser.parse_args()
    try:
        scrapes = [(place, Scrape.parse(_read(place))) for place in asked.place]
    except (OSError, ValueError) as error:
        sys.exit(f"fleet.py: {error}; give the address of a daemon's /metrics")
    print(scrape_table(scrapes))
    fleets = [
        Fleet(
            hosts=hosts,
            series_per_host=round(sum(one.series for _, one in scrapes) / len(scrapes)),
            bytes_per_scrape=round(sum(one.compressed for _, one in scrapes) / len(scrapes)),
            interval=asked.interval,
        )
        for hosts in asked.hosts or (10, 1_000, 100_000)
    ]
    print()
    print(fleet_table(fleets))


if __name__ == "__main__":
    main()
