# SPDX-License-Identifier: Apache-2.0
"""What the child that compiles with bcc hands over."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from pipelined.kernel import bcc_loader


def test_no_command_inherits_the_descriptors_that_bcc_hands_over(tmp_path: Path) -> None:
    child = object.__new__(bcc_loader._Child)
    child._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with child._socket, theirs, open(tmp_path / "map", "wb") as given:
        socket.send_fds(theirs, [b"{}"], [given.fileno()] * 3)
        _, fds = child.ask({})
    try:
        assert len(fds) == 3 and {os.fstat(fd).st_ino for fd in fds} == {
            (tmp_path / "map").stat().st_ino
        }
        assert not any(os.get_inheritable(fd) for fd in fds)
    finally:
        for fd in fds:
            os.close(fd)
