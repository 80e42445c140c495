# SPDX-License-Identifier: Apache-2.0
"""The jobs that schedulers_workflows.py has Dagster run."""

# No postponed annotations: Dagster looks at those of an op.
import os
import subprocess

from dagster import Definitions, OpExecutionContext, PipesSubprocessClient, job, op
from recorded import held, pipeline


@op
def call() -> None:
    subprocess.run(pipeline("dg-op"), shell=True, check=True)


@op
def capture() -> None:
    assert subprocess.check_output(pipeline("dg-captured"), shell=True, text=True) == "9999\n"


@op
def piped(context: OpExecutionContext, pipes: PipesSubprocessClient) -> None:
    """Names the job itself, and hands a trace on."""
    named = {"PIPELINED_JOB": context.job_name, "TRACEPARENT": os.environ["PARENT"]}
    command = ["sh", "-c", pipeline("dg-pipes")]
    pipes.run(command=command, context=context, env=named)


@op
def wait() -> None:
    subprocess.run(held("dg-before", int(os.environ["GATE"])), shell=True, check=True)


@job
def etl() -> None:
    call()
    capture()
    piped()


@job
def waits() -> None:
    wait()


defs = Definitions(jobs=[etl, waits], resources={"pipes": PipesSubprocessClient()})
