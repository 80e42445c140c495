# SPDX-License-Identifier: Apache-2.0
"""The tasks that schedulers_workflows.py has a worker of Celery run. Messages are files."""

from __future__ import annotations

import os
import subprocess

from celery import Celery
from recorded import held, pipeline

app = Celery("etl", broker="filesystem://")
app.conf.broker_transport_options = {
    "data_folder_in": os.environ["QUEUE"],
    "data_folder_out": os.environ["QUEUE"],
    "control_folder": os.environ["QUEUE"] + "-control",
}


@app.task(name="call")
def call(first: str, **variables: str) -> None:
    subprocess.run(pipeline(first), shell=True, check=True, env=os.environ | variables)


@app.task(name="capture")
def capture(first: str) -> None:
    assert subprocess.check_output(pipeline(first), shell=True, text=True) == "9999\n"


@app.task(name="wait")
def wait(first: str) -> None:
    subprocess.run(held(first, int(os.environ["GATE"])), shell=True, check=True)
