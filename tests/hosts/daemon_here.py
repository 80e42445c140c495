# SPDX-License-Identifier: Apache-2.0
"""A daemon on this host, on a port of its own, with a history of its own."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from recorded import Recorded, wait_until


def free_port() -> int:
    """On 127.0.0.1, where nobody listens now."""
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return int(chosen.getsockname()[1])


class Daemon:
    """Observes the host while the `with` block lasts."""

    def __init__(self, pipelined: Path, state: Path, *options: str) -> None:
        address = f"127.0.0.1:{free_port()}"
        state.mkdir()
        self.url = f"http://{address}"
        self._log = state / "log"
        self._command = [str(pipelined), "serve", f"--web.listen-address={address}"]
        self._command += [f"--state-directory={state}", *options]

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(self._is_ready, "the daemon")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait()

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        return Recorded(self.url).is_ready()
