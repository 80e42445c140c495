# SPDX-License-Identifier: Apache-2.0
"""The tasks that schedulers_workflows.py has Luigi run."""

from __future__ import annotations

import os
from typing import Any

import luigi
from luigi.contrib.external_program import ExternalProgramTask
from recorded import held, pipeline


class Daily(ExternalProgramTask):
    """Luigi reads what the program prints, by a file."""

    first: Any = luigi.Parameter()

    def program_args(self) -> list[str]:
        return ["sh", "-c", pipeline(self.first)]


class Named(Daily):
    def program_environment(self) -> dict[str, str]:
        given = {"PIPELINED_JOB": self.task_family, "TRACEPARENT": os.environ["PARENT"]}
        return dict(os.environ) | given


class Waits(Daily):
    def program_args(self) -> list[str]:
        return ["sh", "-c", held(self.first, int(os.environ["GATE"]))]
