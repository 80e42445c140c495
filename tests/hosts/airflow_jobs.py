# SPDX-License-Identifier: Apache-2.0
"""The DAGs that schedulers_airflow.py runs. Airflow reads this file; nothing else does."""

from __future__ import annotations

import os
import subprocess
from datetime import timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG
from opentelemetry import propagate


def pipeline(first: str) -> str:
    return f"{first} 20000 | sort | tail -n 1"


def call(first: str) -> None:
    subprocess.run(pipeline(first), shell=True, check=True)


def capture(first: str) -> None:
    """Reads what the pipeline prints, as the operator does."""
    assert subprocess.check_output(pipeline(first), shell=True, text=True) == "9999\n"


def traced(first: str) -> None:
    """Hands the task's trace on, as docs/TRACES.md says."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    environment = os.environ | {name.upper(): value for name, value in carrier.items()}
    subprocess.run(pipeline(first), shell=True, env=environment, check=True)


#: A busy host may fail a task before it has begun.
PATIENT = {"retries": 3, "retry_delay": timedelta(seconds=1)}

with DAG("etl.daily", schedule=None, default_args=PATIENT):
    BashOperator(task_id="bash", bash_command=pipeline("air-bash"))
    BashOperator(
        task_id="bash_env", bash_command=pipeline("air-env"), env={"PATH": os.environ["PATH"]}
    )
    BashOperator(
        task_id="long",
        bash_command="sleep 10 & air-long -f --pid=$! /dev/null | sort | tail -n 1",
    )
    PythonOperator(task_id="python", python_callable=call, op_args=["air-python"])
    PythonOperator(task_id="captured", python_callable=capture, op_args=["air-captured"])
    PythonOperator(task_id="traced", python_callable=traced, op_args=["air-traced"])
    BashOperator(
        task_id="tries",
        bash_command=f"{pipeline('air-tries')}; exit {{{{ 0 if ti.try_number > 1 else 1 }}}}",
    )

with DAG("held", schedule=None, default_args=PATIENT):
    BashOperator(
        task_id="bash",
        bash_command=f"air-before -f --pid={os.environ['GATE']} /dev/null | sort | tail -n 1",
    )

with DAG("later", schedule=None, default_args=PATIENT):
    BashOperator(task_id="bash", bash_command=pipeline("air-later"))
