# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus for tests: Debian's binary, with a configuration, on a port of its own."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

#: Seconds that Prometheus may take to start, to stop, and to answer.
PATIENCE = 30
#: Where `make` unpacks it on a host that has none.
UNPACKED = Path(__file__).parents[1] / "build" / "tools" / "usr" / "bin" / "prometheus"


class Prometheus:
    """Runs Prometheus in `directory` while the `with` block lasts.

    `config_text` is its configuration, `rules` are the files that it loads beside it; the paths
    in `config_text` are relative to `directory`. `flags` go to its command line as they are.

    >>> with Prometheus(tmp_path, "scrape_configs: [...]") as prometheus:
    ...     prometheus.query("up")
    [{'metric': {'__name__': 'up', 'job': 'pipelined', …}, 'value': [1764590400.1, '1']}]
    """

    def __init__(
        self,
        directory: Path,
        config_text: str,
        rules: Iterable[Path] = (),
        flags: Iterable[str] = (),
    ) -> None:
        program = shutil.which("prometheus") or (str(UNPACKED) if UNPACKED.exists() else None)
        assert program, "prometheus is missing: run make setup (Debian: apt-get install prometheus)"
        directory.mkdir(parents=True, exist_ok=True)
        files = [str(file.resolve()) for file in rules]
        if files:
            config_text = f"rule_files: {json.dumps(files)}\n{config_text}"
        config = directory / "prometheus.yml"
        config.write_text(config_text)
        self._command = [
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={directory / 'data'}",
            *flags,
        ]
        self._log = directory / "prometheus.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        # It cannot pick a free port itself. Should another take this one, the next is tried.
        for _ in range(5):
            port = _free_port()
            self.url = f"http://127.0.0.1:{port}"
            with self._log.open("wb") as log:
                self._process = _started(
                    [*self._command, f"--web.listen-address=127.0.0.1:{port}"], log
                )
            if self._wait_until_ready():
                return self
        raise AssertionError(f"prometheus ended at once:\n{self.log()}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()
        if error is not None:
            print(f"prometheus said:\n{self.log()}")

    def log(self) -> str:
        """What it has logged."""
        return self._log.read_text(errors="replace")

    def get(self, path: str) -> Any:
        """The `data` of an answer of its API; raises AssertionError with the error it tells."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as answer:
                told = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{path}: {error.read().decode()}") from None
        assert told["status"] == "success", told
        return told["data"]

    def query(self, expr: str, time: float | None = None) -> list[dict[str, Any]]:
        """The series of an instant query, at a Unix time or now."""
        parameters = {"query": expr} | ({} if time is None else {"time": str(time)})
        data = self.get(f"/api/v1/query?{urllib.parse.urlencode(parameters)}")
        result: list[dict[str, Any]] = data["result"]
        return result

    def wait_for(self, expr: str, patience: float = PATIENCE) -> list[dict[str, Any]]:
        """The first result of a query that is not empty; tries for `patience` seconds."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if found := self.query(expr):
                return found
            time.sleep(0.1)
        raise AssertionError(f"waited {patience} s in vain for {expr}:\n{self.log()}")

    def _wait_until_ready(self) -> bool:
        """False when it ended instead."""
        assert self._process is not None
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                return False
            try:
                with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1):
                    return True
            except (urllib.error.HTTPError, OSError) as error:
                if isinstance(error, urllib.error.HTTPError):
                    error.close()
            time.sleep(0.05)
        self._stop()
        raise AssertionError(f"prometheus is not ready after {PATIENCE} s:\n{self.log()}")

    def _stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()
            self._process = None


def _started(command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
