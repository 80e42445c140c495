#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints prometheusrule.yaml: the rules of deploy/prometheus as the Prometheus operator takes them.

    deploy/kubernetes/monitoring/rules.py > deploy/kubernetes/monitoring/prometheusrule.yaml

Groups are copied as text, four spaces further in, so that they read as in their own files.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

__all__ = ["prometheus_rule"]

_RULES = Path(__file__).parents[2] / "prometheus"
_HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# Made by rules.py from deploy/prometheus/*.rules.yml: change those.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: pipelined
spec:
  groups:
"""


def prometheus_rule(rules: Path = _RULES) -> str:
    """The resource with the groups of every ``*.rules.yml`` in `rules`, recording rules first."""
    files = sorted(rules.glob("*.rules.yml"), reverse=True)
    groups = [file.read_text().partition("\ngroups:\n")[2] for file in files]
    return _HEAD + "\n".join(textwrap.indent(group, "  ") for group in groups)


if __name__ == "__main__":
    sys.stdout.write(prometheus_rule())
