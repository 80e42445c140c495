# SPDX-License-Identifier: Apache-2.0
"""What the tests use of Prometheus is the host's, or else what `make setup` has unpacked."""

from __future__ import annotations

import os
from pathlib import Path

_TOOLS = Path(__file__).parents[1] / "build" / "tools" / "usr" / "bin"

os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:{_TOOLS}"
