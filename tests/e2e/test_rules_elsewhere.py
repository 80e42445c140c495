# SPDX-License-Identifier: Apache-2.0
"""The recording rules and alerts do in VictoriaMetrics what tests/prometheus says of Prometheus."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from server_process import of_the_next_release
from unit.test_rules import ALERTS, CASES, DAYS, RECORDING

#: What VictoriaMetrics does otherwise: docs/PROMETHEUS.md names it.
OTHERWISE = {"A daemon that does not stay up", "A job takes longer on all hosts"}


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name not in DAYS], ids=lambda case: case.name
)
def test_the_rules_do_the_same_in_victoriametrics(case: Path, tmp_path: Path) -> None:
    """Those that look back for days take minutes there: recording.test.yml has their rules."""
    written = yaml.safe_load(case.read_text())
    written["rule_files"] = [str(RECORDING), str(ALERTS)]
    written["tests"] = [test for test in written["tests"] if test["name"] not in OTHERWISE]
    for test in written["tests"]:
        test["metricsql_expr_test"] = [
            {**asked, "expr": f"({asked['expr']}) + 0"}  # what keeps the name there has none here
            for asked in test.pop("promql_expr_test", [])
        ]
    translated = tmp_path / case.name
    translated.write_text(yaml.safe_dump(written))
    command = [of_the_next_release("vmalert-tool"), "unittest", "--disableAlertgroupLabel"]
    tested = subprocess.run(
        [*command, "--files", str(translated)], capture_output=True, text=True, timeout=600
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
