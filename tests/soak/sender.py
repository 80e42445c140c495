# SPDX-License-Identifier: Apache-2.0
"""`pipelined export` as users run it, to a back end that comes and goes and counts the runs."""

from __future__ import annotations

import os
import re
import time
import urllib.request
from collections import Counter
from pathlib import Path

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otlp_back_end import BackEnd, said
from soak.daemon import PROGRAM
from soak.night import Failed, Started
from soak.readings import Sent

__all__ = ["Sender"]

#: Seconds that sending what waits may take: the sender may first look again after a minute.
PATIENCE = 180.0


class Sender:
    """Sends what the daemon at `url` stores. Of each `period` the last quarter has no back end.

    By turns nothing listens then, and every request is answered with 503.
    """

    def __init__(self, url: str, directory: Path, period: float) -> None:
        self._came: Counter[str] = Counter()
        self._period, self._began = period, time.monotonic()
        self._outages = 0
        self._back_end = BackEnd(self._count)
        self._back_end.start()
        self._there = True
        self._log = directory / "sender.log"
        self._started = Started(
            [
                *(PROGRAM, "export", "--url", url, "--state-directory", directory / "place"),
                *("--web.listen-address", "127.0.0.1:0"),
            ],
            self._log,
            directory,
            {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": self._back_end.url},
        )
        self._metrics_url = self._announced()

    def tick(self) -> None:
        """Let the back end come or go if it is time. Raises Failed if the sender has ended."""
        if self._started.ended_well():
            raise Failed(f"the sender has ended: see {self._log}")
        self._be_there((time.monotonic() - self._began) % self._period < 0.75 * self._period)

    def finish(self, stored: set[str]) -> Sent:
        """Wait until all is sent; what came, of the runs that are `stored` now."""
        self._be_there(True)
        deadline = time.monotonic() + PATIENCE
        while stored - self._came.keys() and time.monotonic() < deadline:
            time.sleep(0.5)
        metrics = self._metrics()
        self.close()
        return Sent(
            outages=self._outages,
            runs=len(self._came),
            twice=sum(times > 1 for times in self._came.values()),
            stored=len(stored),
            not_come=len(stored - self._came.keys()),
            missed=metrics.get('pipelined_export_skipped_runs_total{reason="missing"}', 0),
            said=metrics["pipelined_export_sent_runs_total"],
        )

    def close(self) -> None:
        self._started.close()
        self._back_end.stop()

    def _be_there(self, there: bool) -> None:
        if there == self._there:
            return
        self._there = there
        if there:
            self._back_end.status = 200
            self._back_end.stop()
            self._back_end.start()
            return
        self._outages += 1
        if self._outages % 2:
            self._back_end.stop()
        else:
            self._back_end.status = 503

    def _count(self, span: Span) -> None:
        attributes = said(span)
        if attributes["pipelined.kind"] == "run":
            self._came[attributes["pipelined.run.id"]] += 1

    def _announced(self) -> str:
        """Where its metrics are: its first line says so."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and not self._started.ended_well():
            if found := re.search(r"its metrics: (\S+)", self._log.read_text()):
                return found[1]
            time.sleep(0.1)
        raise Failed(f"the sender does not say where its metrics are: see {self._log}")

    def _metrics(self) -> dict[str, int]:
        with urllib.request.urlopen(self._metrics_url, timeout=20) as answer:
            lines = answer.read().decode().splitlines()
        return {
            name: int(float(value))
            for line in lines
            if not line.startswith("#")
            for name, _, value in [line.rpartition(" ")]
        }
