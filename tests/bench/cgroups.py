# SPDX-License-Identifier: Apache-2.0
"""What it costs the daemon to know the names of hundreds of containers before they are gone.

Makes the cgroups of containers, without processes, on this host, and looks for their names as the
daemon does, in a process without any other work: pipelines that the host runs do not count. First
with as many cgroups as `--number`, then while `--rate` of these are replaced each second.

    sudo .venv/bin/python tests/bench/cgroups.py
    sudo .venv/bin/python tests/bench/cgroups.py --number 2000 --rate 100
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelined.model.containers import ContainerFiles
from pipelined.model.units import CgroupNames, find_cgroup2


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--number", type=int, default=500, help="cgroups that there are")
    parser.add_argument("--rate", type=int, default=20, help="that come and go in a second")
    parser.add_argument("--seconds", type=float, default=60, help="of each part")
    asked = parser.parse_args()
    root = find_cgroup2()
    if os.geteuid() or root is None:
        print("cgroups: needs root, and cgroup v2", file=sys.stderr)
        return 1
    with containers(root, asked.number) as (parent, there):
        for rate in (0, asked.rate):
            names = CgroupNames(root, containers=ContainerFiles())
            look(names, asked.seconds, parent, there, rate)
    return 0


def look(names: CgroupNames, seconds: float, parent: Path, there: deque[Path], rate: int) -> None:
    """Look for names before each sweep, one a second, while containers come and go."""
    took: list[float] = []
    began = swept = replaced = time.monotonic()
    while (now := time.monotonic()) < began + seconds:
        while rate and replaced < now:
            there.popleft().rmdir()
            there.append(made(parent))
            replaced += 1 / rate
        if swept <= now:
            before = time.process_time()
            names.keep_up()
            took.append(time.process_time() - before)
            swept += 1
        time.sleep(0.02)
    looks = [one for one in took if one > 0.001]
    print(
        f"{len(there)} containers, {rate} a second replaced: {sum(took) / seconds:.2%} of a CPU; "
        f"{len(looks)} looks, {sum(looks) / max(1, len(looks)) * 1000:.1f} ms each",
        flush=True,
    )


def made(parent: Path) -> Path:
    """The cgroup of another container of Docker's."""
    cgroup = parent / f"docker-{secrets.token_hex(32)}.scope"
    cgroup.mkdir()
    return cgroup


@contextmanager
def containers(root: Path, number: int) -> Iterator[tuple[Path, deque[Path]]]:
    parent = root / "pipelined-bench.slice"
    parent.mkdir()
    there: deque[Path] = deque()
    try:
        there.extend(made(parent) for _ in range(number))
        yield parent, there
    finally:
        for cgroup in parent.glob("docker-*"):
            cgroup.rmdir()
        parent.rmdir()


if __name__ == "__main__":
    sys.exit(main())
