# SPDX-License-Identifier: Apache-2.0
"""The flows that schedulers_workflows.py has Prefect run; as a program it deploys them."""

from __future__ import annotations

import os
import subprocess

from prefect import flow, task
from recorded import held, pipeline


@task
def call(first: str) -> None:
    subprocess.run(pipeline(first), shell=True, check=True)


@flow(name="etl-daily")
def daily() -> None:
    call("pf-task")


@flow(name="held")
def waits() -> None:
    subprocess.run(held("pf-before", int(os.environ["GATE"])), shell=True, check=True)


if __name__ == "__main__":
    for name in ("daily", "waits"):
        found = flow.from_source(
            source=os.path.dirname(__file__), entrypoint=f"prefect_jobs.py:{name}"
        )
        found.deploy(name="nightly", work_pool_name="here")
