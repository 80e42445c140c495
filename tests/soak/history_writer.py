# SPDX-License-Identifier: Apache-2.0
"""Writes made-up runs into a history until it is killed, as the daemon does, and reports each.

    python -m soak.history_writer DIRECTORY FIRST RATE

A line is `ended NUMBER TIME` (monotonic) before run NUMBER is handed over, or `dropped COUNT`.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from pipelined.analysis.machine import Host
from pipelined.history.history import History
from unit.invented import make_ended, make_finished

#: Seconds between two sweeps, each of which brings the runs that have ended meanwhile.
SWEEP = 1.0
#: Each sweep of this number brings a burst, of this number of runs at once.
BURST_EVERY, BURST = 15, 100
#: Different pipelines.
PIPELINES = 50


def main() -> None:
    directory, number, rate = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    chance = random.Random(number)
    history = History(directory, host=Host(cores=2, l2_bytes=None), max_age=1e12)
    with history.sink as sink:
        due = time.monotonic()
        while True:
            bursts = chance.randrange(BURST_EVERY) == 0
            for _ in range(int(rate * SWEEP) + (BURST if bursts else 0)):
                number += 1
                pipeline = f"cat|tool{chance.randrange(PIPELINES)}"
                run = make_ended(number, pipeline, wall=0.002 * 2 ** chance.randrange(14))
                print("ended", number, time.monotonic(), flush=True)
                sink.put(make_finished(run))
            due += SWEEP
            while (left := due - time.monotonic()) > 0:
                print("dropped", sink.dropped, flush=True)
                time.sleep(min(0.1, left))


if __name__ == "__main__":
    main()
