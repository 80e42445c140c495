# SPDX-License-Identifier: Apache-2.0
"""Run pipelines by real schedulers, and hold what the daemon says of them against docs/HOSTS.md.

    tests/hosts/schedulers.py [--only machine] [--suite bookworm] [--package FILE.deb]

`machine` boots Debian in QEMU, with cron, systemd's timers, at and Slurm. `runners` builds
GitLab's runner and act (Go 1.25 or newer). `workflows` are Prefect, Dagster, Celery and Luigi.
Each claim prints a line. Exit code 0 only if every claim held. Needs root.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

_TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_TOP / "tests" / "vm"))

from matrix import Unavailable  # noqa: E402
from schedulers_airflow import run_airflow  # noqa: E402
from schedulers_drivers import run_drivers  # noqa: E402
from schedulers_runners import run_runners  # noqa: E402
from schedulers_vm import run_in_machine  # noqa: E402
from schedulers_workflows import run_workflows  # noqa: E402

PARTS = ("machine", "airflow", "drivers", "runners", "workflows")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=PARTS, action="append", help="this part")
    parser.add_argument("--suite", choices=("bookworm", "trixie"), default="bookworm")
    parser.add_argument("--package", type=Path, help="the .deb; the newest one of build/deb")
    parser.add_argument("--cache", type=Path, default=_TOP / "build" / "vm")
    options = parser.parse_args()
    failed = []
    for part in options.only or PARTS:
        try:
            held = _try(part, options)
        except Unavailable as reason:
            print(f"{part}: not run: {reason}", flush=True)
            held = False
        if not held:
            failed.append(part)
    print(f"schedulers: {'failed: ' + ', '.join(failed) if failed else 'every claim held'}")
    return int(bool(failed))


def _try(part: str, options: argparse.Namespace) -> bool:
    pipelined = Path(sys.executable).with_name("pipelined")
    if part == "drivers":
        return run_drivers(pipelined)
    if part == "airflow":
        return run_airflow(pipelined, _TOP / "build" / "hosts")
    if part == "runners":
        return run_runners(pipelined, _TOP / "build" / "hosts")
    if part == "workflows":
        return run_workflows(pipelined, _TOP / "build" / "hosts")
    package = options.package or newest_package()
    return run_in_machine(package.resolve(), options.suite, options.cache.resolve())


def newest_package() -> Path:
    found = sorted(
        (_TOP / "build" / "deb").glob("pipelined_*.deb"), key=lambda f: f.stat().st_mtime
    )
    if not found:
        raise Unavailable("no package: make deb")
    return Path(found[-1])


if __name__ == "__main__":
    sys.exit(main())
