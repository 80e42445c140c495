# SPDX-License-Identifier: Apache-2.0
"""Servers run for tests, most of which answer as Prometheus does: on a port of their own."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

#: Seconds that a server may take to start, to stop, and to answer.
PATIENCE = 60
#: Where `make` unpacks programs that the host does not have, and those of Debian's next release.
_TOOLS = Path(__file__).parents[1] / "build" / "tools"
_NEXT = _TOOLS / "next" / "forky" / "unpacked" / "prometheus"


def of_the_host(program: str) -> str:
    """Path of the host's program, or of the one of the host's release that `make` has unpacked."""
    return shutil.which(program) or _there(_TOOLS / "usr" / "bin" / program)


def of_the_next_release(program: str) -> str:
    """Path of the program of Debian's next release."""
    return _there(_NEXT / "usr" / "bin" / program)


def _there(path: Path) -> str:
    assert path.exists(), f"{path} is missing: run make test-setup"
    return str(path)


class ServerProcess:
    """Runs `command` while the `with` block lasts, and asks its HTTP API.

    `listen` is the flag that gets the address, such as ``--web.listen-address``. The server has to
    answer `ready` with 200 once it is ready. `environment` is added to that of the tests. Its log
    is a file in `directory`, named after the program.
    """

    def __init__(
        self,
        directory: Path,
        command: list[str],
        listen: str,
        *,
        ready: str = "/-/ready",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._name = Path(command[0]).name
        self._command = command
        self._listen = listen
        self._ready = ready
        self._environment = {**os.environ, **(environment or {})}
        self._log = directory / f"{self._name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        # It cannot pick a free port itself. Should another take this one, the next is tried.
        for _ in range(5):
            address = f"127.0.0.1:{_free_port()}"
            self.url = f"http://{address}"
            with self._log.open("wb") as log:
                command = [*self._command, f"{self._listen}={address}"]
                self._process = _started(command, self._environment, log)
            if self._wait_until_ready():
                return self
        raise AssertionError(f"{self._name} ended at once:\n{self.log()}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if error is not None:
            print(f"{self._name} said:\n{self.log()}")

    def log(self) -> str:
        """What it has logged."""
        return self._log.read_text(errors="replace")

    def get(self, path: str) -> Any:
        """The `data` of an answer of its API; raises AssertionError with the error that it has."""
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
                with urllib.request.urlopen(self.url + self._ready, timeout=1):
                    return True
            except (urllib.error.HTTPError, OSError) as error:
                if isinstance(error, urllib.error.HTTPError):
                    error.close()
            time.sleep(0.05)
        self.stop()
        raise AssertionError(f"{self._name} is not ready after {PATIENCE} s:\n{self.log()}")

    def stop(self) -> None:
        """Terminate it, if it runs."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()
            self._process = None


def _started(
    command: list[str], environment: Mapping[str, str], log: IO[bytes]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
