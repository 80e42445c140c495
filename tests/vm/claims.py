# SPDX-License-Identifier: Apache-2.0
"""Claims that are tried one after the other: on a host, or in a virtual machine.

Standard library only: a virtual machine has nothing else.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable

__all__ = ["try_all"]


def try_all(claims: Iterable[Callable[[], None]], who: str) -> int:
    """Try each claim, and print a line for it that begins with `who`: how many did not hold."""
    failures = 0
    for claim in claims:
        name = claim.__name__.replace("_", " ")
        began = time.monotonic()
        try:
            claim()
        except Exception as error:
            failures += 1
            # in one line, for those who read the end of a long log: claims_hold says it again there
            why = traceback.format_exception_only(error)[-1].strip()
            print(f"{who}: FAILED {name}: {why}\n{traceback.format_exc()}", flush=True)
        else:
            print(f"{who}: ok {name} ({time.monotonic() - began:.1f} s)", flush=True)
    return failures
