# SPDX-License-Identifier: Apache-2.0
"""Grafana dashboards. `python -m dashboards.generate` writes the JSON beside this file."""
