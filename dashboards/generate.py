# SPDX-License-Identifier: Apache-2.0
"""Writes the dashboards as JSON: `python -m dashboards.generate [DIRECTORY]`, by default here."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from .disk import disk
from .fleet import fleet
from .itself import itself
from .overview import overview
from .pipeline import pipeline

__all__ = ["main"]


def main() -> None:
    """Write one file for each dashboard, named after its uid."""
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for dashboard in (overview(), pipeline(), disk(), fleet(), itself()):
        text = json.dumps(dashboard, cls=JSONEncoder, indent=2, sort_keys=True)
        (directory / f"{dashboard.uid}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
