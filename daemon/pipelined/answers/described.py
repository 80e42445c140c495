# SPDX-License-Identifier: Apache-2.0
"""A run as JSON, with what it means: the one form behind the API and every `--json`.

Key names carry their unit (`wall_seconds`, `read_bytes`); time stamps are Unix time and end in
`_timestamp_seconds`; ratios go from 0 to 1 and end in `_ratio`. Keys are only ever added.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from pipelined.analysis.finding_times import finding_times
from pipelined.analysis.findings import findings
from pipelined.analysis.machine import Host
from pipelined.analysis.rewriting import Script
from pipelined.analysis.sentence import sentence
from pipelined.answers.run import Compared, DescribedRunJson, RunWithTimelineJson
from pipelined.runs import Run, Timeline
from pipelined.runs.codec import written

__all__ = ["describe_run", "describe_stored_run"]


def describe_run(
    run: Run,
    host: Host,
    show_arguments: bool = False,
    script: Script | None = None,
    timeline: Timeline = (),
) -> DescribedRunJson:
    """The run, and its analysis: the verdict and the findings.

    `host` is the machine that it ran on, `script` what is known of its command; with
    `show_arguments` that may be the stages' command lines. With the run's `timeline` findings have
    when they show. `codec.read` takes this form too, and passes over the analysis, which is
    computed anew.
    """
    if script is None and show_arguments:
        script = Script.of_arguments(run)
    found = findings(run, host, script)
    times = finding_times(run, timeline, found)
    shown = [replace(one, times=when) for one, when in zip(found, times, strict=True)]
    described = written(run, secrets=show_arguments)
    described |= {"verdict": sentence(run), "findings": [written(one) for one in shown]}
    return cast(DescribedRunJson, described)


def describe_stored_run(
    run: Run,
    host: Host,
    timeline: Timeline,
    show_arguments: bool = False,
    compared: Compared | None = None,
) -> RunWithTimelineJson:
    """`describe_run` with the time line, the machine, and what is usual for such a run."""
    described = dict(describe_run(run, host, show_arguments, timeline=timeline))
    described |= written(compared or Compared())
    described |= {"timeline": [written(point) for point in timeline], "machine": written(host)}
    return cast(RunWithTimelineJson, described)
