# SPDX-License-Identifier: Apache-2.0
"""Have bcc compile the BPF source on this host, in a child process.

LLVM takes some 180 MB. The child (bcc_compiler.py) compiles, loads and attaches, hands the file
descriptors of maps and links over, and ends: the daemon stays as small as with libbpf. Requests and
answers are JSON, one per packet; descriptors travel with the answers.
"""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelined.errors import UserError
from pipelined.kernel.hooks import REQUIRED, Program
from pipelined.kernel.libbpf import FORBIDDEN, failure

__all__ = ["BccPrograms", "is_installed"]

#: The directory of Debian's python3-bpfcc, which a virtual environment does not search.
_DIST_PACKAGES = Path("/usr/lib/python3/dist-packages")

_SOURCE = Path(__file__).parents[1] / "bpf" / "source"

#: Descriptors in one answer at most.
_MOST_FDS = 32
_FD = struct.Struct("i")


def is_installed() -> bool:
    """Whether bcc's Python module is on this host."""
    return (_DIST_PACKAGES / "bcc").is_dir()


class BccPrograms:
    """The programs that bcc compiled, loaded, and attached one by one."""

    def __init__(self, sizes: Mapping[str, int], maps: tuple[str, ...]) -> None:
        """Compile, and load `REQUIRED`.

        `sizes` are entries of maps, `maps` the names of those to open. Raises `UserError` when
        bcc is missing or fails, or a program or a map cannot be had; nothing stays loaded.
        """
        if not is_installed():
            raise UserError(
                f"bcc is not installed: no {_DIST_PACKAGES}/bcc",
                "install it: apt-get install python3-bpfcc",
            )
        if not (_SOURCE / "pipelined.bpf.c").is_file():
            raise UserError(f"the BPF source {_SOURCE} is missing", "copy it there: make setup")
        self.maps: dict[str, int] = {}
        self._fds: list[int] = []
        self._child = _Child()
        try:
            request = {"source": os.fspath(_SOURCE), "sizes": dict(sizes), "maps": maps}
            _, fds = self._child.ask(request | {"machine": platform.machine()})
            self._fds += fds
            self.maps = dict(zip(maps, fds, strict=True))
            for name, program in REQUIRED.items():
                self._load(name, program)
        except BaseException:
            self.close()
            raise

    def _load(self, name: str, program: Program) -> None:
        self._child.ask({"load": name, "hook": program.hook, "method": program.method})

    def load_optional(
        self, optional: Mapping[str, Program]
    ) -> tuple[dict[str, Program], dict[str, tuple[Program, str]]]:
        """Load those that the kernel accepts. Returns them, and the others with the reasons."""
        left = dict(optional)
        accepted: dict[str, Program] = {}
        refused: dict[str, tuple[Program, str]] = {}
        while left:
            name = next(iter(left))
            program = left.pop(name)
            try:
                self._load(name, program)
            except UserError as error:
                refused[name] = program, error.message
                if isinstance(error, _Forbidden) and program.method in ("fentry", "fexit"):
                    # the host forbids this kind of program: all of them would be refused
                    kind = [n for n, p in left.items() if p.method in ("fentry", "fexit")]
                    refused |= {n: (left.pop(n), FORBIDDEN) for n in kind}
                    refused[name] = program, FORBIDDEN
            else:
                accepted[name] = program
        return accepted, refused

    def attach(self, name: str, program: Program) -> tuple[int, int]:
        """Attach one that is loaded; descriptors of its link and of itself, or `UserError`."""
        _, fds = self._child.ask({"attach": name, "hook": program.hook, "method": program.method})
        self._fds += fds
        link, itself = fds
        return link, itself

    def all_attached(self) -> None:
        """Nothing more will be attached: end the child, and LLVM with it."""
        self._child.close()

    def close(self) -> None:
        self._child.close()
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()


class _Forbidden(UserError):
    """EPERM."""


class _Child:
    """The process that holds LLVM."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        with theirs:
            self._process = subprocess.Popen(
                [
                    # -P: nothing is imported from the directory that we happen to be in
                    *(sys.executable, "-P", "-m", "pipelined.kernel.bcc_compiler"),
                    *(str(theirs.fileno()), os.fspath(_DIST_PACKAGES)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                # so that it finds this package even if only the program put it on its path
                env=os.environ | {"PYTHONPATH": os.fspath(Path(__file__).parents[2])},
            )

    def ask(self, request: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[int]]:
        """Send a request; return the answer and its descriptors. `UserError` if it is refused."""
        try:
            self._socket.sendall(json.dumps(request).encode())
            message, fds = self._answer()
        except OSError:
            message, fds = b"", []
        if not message:
            raise UserError(
                f"the bcc loader failed: {self._last_words()}", "see `pipelined doctor`"
            )
        answer = json.loads(message)
        if "errno" in answer:
            error = failure(answer["what"], answer["errno"], answer["reason"])
            if answer["errno"] == 1:
                raise _Forbidden(error.message, error.hint)
            raise error
        return answer, fds

    def _answer(self) -> tuple[bytes, list[int]]:
        """Its text and its descriptors, which no command that we start inherits."""
        # socket.recv_fds, of Python 3.11 at least, passes no flags on
        message, received, _, _ = self._socket.recvmsg(
            65536, socket.CMSG_LEN(_MOST_FDS * _FD.size), socket.MSG_CMSG_CLOEXEC
        )
        return message, [
            fd
            for level, kind, data in received
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
            for (fd,) in _FD.iter_unpack(data[: len(data) // _FD.size * _FD.size])
        ]

    def _last_words(self) -> str:
        self._process.wait()
        self._said.seek(0)
        text = self._said.read().decode(errors="replace")
        errors = re.findall(r"^.*\berror: .*$", text, re.M) or text.strip().splitlines()[-1:]
        return errors[0].strip() if errors else f"exit code {self._process.returncode}"

    def close(self) -> None:
        """End it; a second call does nothing."""
        self._socket.close()
        self._process.wait()
        self._said.close()
