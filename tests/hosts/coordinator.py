# SPDX-License-Identifier: Apache-2.0
"""As much of GitLab as its runner asks for: it hands out jobs, and takes their output and end."""

from __future__ import annotations

import json
import queue
import re
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, Self

from recorded import wait_until

_JOB = re.compile(r"/api/v4/jobs/(\d+)(/trace)?")


class Coordinator:
    """Answers a runner on 127.0.0.1 while the `with` block lasts."""

    def __init__(self) -> None:
        coordinator = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, headers, answer = coordinator._answer(self.command, self.path, body)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_POST = do_PUT = do_PATCH = _answer

            def log_message(self, *_: object) -> None:
                """The claims say what went wrong."""

        self._waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._output: dict[int, bytes] = {}
        self._ended: dict[int, str] = {}
        self._cancelled: set[int] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def give(self, number: int, script: list[str], variables: Mapping[str, str]) -> None:
        """Have a runner run this job next; it has the variables that GitLab would give it."""
        given = {"CI_JOB_ID": str(number), "GIT_STRATEGY": "none", **variables}
        self._waiting.put(
            {
                "id": number,
                "token": "job",
                "job_info": {"name": "nightly", "stage": "test", "project_id": 7},
                "git_info": {"repo_url": f"{self.url}/etl.git", "ref": "main", "sha": "0" * 40},
                "runner_info": {"timeout": 3600},
                "variables": [
                    {"key": name, "value": value, "public": True} for name, value in given.items()
                ],
                "steps": [{"name": "script", "script": script, "timeout": 3600, "when": "always"}],
            }
        )

    def cancel(self, number: int) -> None:
        self._cancelled.add(number)

    def end_of(self, number: int) -> tuple[str, str]:
        """How a job has ended, once it has, and what it printed."""
        wait_until(lambda: number in self._ended, f"the end of GitLab's job {number}")
        return self._ended[number], self._output.get(number, b"").decode()

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        if path == "/api/v4/jobs/request":
            try:
                return 201, {}, json.dumps(self._waiting.get_nowait()).encode()
            except queue.Empty:
                return 204, {}, b""
        found = _JOB.fullmatch(path)
        if not found:
            return 404, {}, b""
        number = int(found[1])
        state = {"Job-Status": "canceled" if number in self._cancelled else "running"}
        if method == "PATCH":
            self._output[number] = self._output.get(number, b"") + body
            return 202, state | {"Range": f"0-{len(self._output[number])}"}, b""
        reported = json.loads(body)["state"]
        if reported != "running":
            self._ended[number] = reported
        return 200, state, b""
