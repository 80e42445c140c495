# SPDX-License-Identifier: Apache-2.0
"""What this host offers the daemon, what is missing, and how to fix it."""

from pipelined.doctor.check import Check, Status, exit_code, render
from pipelined.doctor.hooks import Hook, HooksOfDaemon
from pipelined.doctor.host import checks, libbpf_version
from pipelined.doctor.listeners import Reply

__all__ = [
    "Check",
    "Hook",
    "HooksOfDaemon",
    "Reply",
    "Status",
    "checks",
    "exit_code",
    "libbpf_version",
    "render",
]
