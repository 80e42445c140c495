# SPDX-License-Identifier: Apache-2.0
"""One observer for the five experiments: for their own pipelines, and for programs that run alone.

Needs root and BPF. `make experiments` runs them and prints their tables; docs/EXPERIMENTS.md
explains them.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel.conftest import conserved, watch
from pipelined.analysis.machine import Host
from pipelined.config import Config
from pipelined.errors import UserError
from pipelined.observer import Observer
from pipelined.wording import data_size

from .disk import THROTTLE, Disk, made_disk

__all__ = ["conserved", "disk", "host", "needs_the_tier", "observer", "watch"]

_PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture(scope="session")
def observer() -> Iterator[Observer]:
    """As `pipelined run` opens it: for this session, also for programs that run alone."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    config = Config(recent_runs=10_000)
    try:
        opened = Observer.open(config, own_only=True, all_alone=True)
    except UserError as error:
        pytest.fail(f"BPF cannot be used: {error}; see `pipelined doctor`", pytrace=False)
    with opened:
        opened.start()
        yield opened


@pytest.fixture(scope="session")
def host() -> Host:
    """This machine; it is printed once."""
    found = Host.read()
    cache = "unknown" if found.l2_bytes is None else data_size(found.l2_bytes)
    print(f"\nhost: Linux {platform.release()}, {platform.machine()}, ", end="")
    print(f"{found.cores} CPUs, second-level cache {cache}")
    return found


@pytest.fixture
def needs_the_tier(observer: Observer) -> None:
    """Skips if page classes and stalls are not counted."""
    if not any(hook.tier == "readahead" and hook.attached for hook in observer.hooks()):
        pytest.skip("the readahead tier is off here; see `pipelined doctor`")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A disk that can be slowed."""
    if not (THROTTLE / "blkio.throttle.read_bps_device").exists():
        pytest.skip("no blkio controller of cgroup v1: no disk can be slowed")
    directory = tmp_path / "disk"
    directory.mkdir()
    with made_disk(directory, "1G") as made:
        yield made
