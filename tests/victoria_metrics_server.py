# SPDX-License-Identifier: Apache-2.0
"""A real VictoriaMetrics for tests, to which Prometheus writes, and vmalert: Debian's binaries."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from server_process import ServerProcess, of_the_next_release


class VictoriaMetrics(ServerProcess):
    """Stores what is written to `<url>/api/v1/write`, and answers Prometheus' API.

    It answers with what is there, without the 30 s of delay that it would wait for late samples,
    and without the cache that hides samples that come late.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        command = [
            of_the_next_release("victoria-metrics"),
            f"-storageDataPath={directory / 'data'}",
            "-search.latencyOffset=0s",
            "-search.disableCache",
            "-memory.allowedBytes=256MB",
        ]
        super().__init__(directory, command, "-httpListenAddr")


class Vmalert(ServerProcess):
    """Evaluates the files of `rules` on a VictoriaMetrics, and writes to it what is recorded."""

    def __init__(self, directory: Path, rules: Iterable[Path], storage: VictoriaMetrics) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        command = [
            of_the_next_release("vmalert"),
            *(f"-rule={file}" for file in rules),
            f"-datasource.url={storage.url}",
            f"-remoteWrite.url={storage.url}",
            "-remoteWrite.flushInterval=500ms",
            "-rule.evalDelay=0s",
            "-notifier.blackhole",
        ]
        super().__init__(directory, command, "-httpListenAddr")
