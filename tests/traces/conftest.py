# SPDX-License-Identifier: Apache-2.0
"""Two hosts whose runs are sent to a real Jaeger.

There is one kernel, and each of the two daemons sees all pipelines on it: each under its own name
of the host, with its own history and its own sender.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from e2e.conftest import Daemon, _starter, bpf, program
from traces.fleet import Host, Job, Sender, Shell
from traces.jaeger_server import Jaeger

__all__ = ["bpf", "program"]

HOSTS = ("web-1", "web-2")


@pytest.fixture(scope="session")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    with Jaeger(tmp_path_factory.mktemp("jaeger")) as server:
        yield server


@pytest.fixture(scope="session")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    running = Shell(tmp_path_factory.mktemp("shell"))
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="session")
def daemons(
    bpf: None, program: str, shell: Shell, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Daemon]]:
    """One per name of `HOSTS`."""
    started: list[Daemon] = []
    start = _starter(program, tmp_path_factory.mktemp("daemons"), started)
    try:
        yield [start("--host-name", name) for name in HOSTS]
    finally:
        for daemon in started:
            daemon.close()


StartSenders = Callable[[str], contextlib.AbstractContextManager[list[Host]]]


@pytest.fixture(scope="session")
def senders(
    program: str, daemons: list[Daemon], tmp_path_factory: pytest.TempPathFactory
) -> StartSenders:
    """Starts a sender per daemon that sends to the given address."""

    @contextlib.contextmanager
    def running(otlp: str) -> Iterator[list[Host]]:
        directory = tmp_path_factory.mktemp("senders")
        with contextlib.ExitStack() as closing:
            hosts = []
            for name, daemon in zip(HOSTS, daemons, strict=True):
                sender = Sender(program, daemon, directory / name, otlp)
                closing.callback(sender.close)
                sender.start()
                hosts.append(Host(name, daemon, sender))
            yield hosts

    return running


@pytest.fixture(scope="session")
def hosts(senders: StartSenders, jaeger: Jaeger) -> Iterator[list[Host]]:
    """Both send to Jaeger."""
    with senders(jaeger.otlp) as running:
        yield running


@pytest.fixture(scope="session")
def new_job(shell: Shell) -> Callable[[], Job]:
    """Makes jobs whose names no others have, without digits: a unit has none."""
    numbers = itertools.count()

    def made() -> Job:
        number = f"{os.getpid()}{next(numbers):02}"
        return Job(shell, f"traced-{''.join(chr(ord('g') + int(digit)) for digit in number)}")

    return made


@pytest.fixture
def job(new_job: Callable[[], Job]) -> Job:
    return new_job()
