# SPDX-License-Identifier: Apache-2.0
"""Unpack programs of another Debian suite, without installing them.

    tests/vm/unpack.py SUITE DIRECTORY PACKAGE…

Their files are in DIRECTORY/SUITE/unpacked/PACKAGE, of the first of them, afterwards. The packages
that they depend on are not fetched.
"""

from __future__ import annotations

import sys
from pathlib import Path

from matrix import Suite, debian_machine

if __name__ == "__main__":
    suite, directory, *packages = sys.argv[1:]
    Suite(suite, Path(directory).resolve(), debian_machine()).unpacked(*packages)
