# SPDX-License-Identifier: Apache-2.0
"""A scheduler in Python: reads from a child once, then starts a pipeline each second.

Its arguments: the directory of the programs, the file that gets one byte per run, the file that
ends it. A child of it was a stage once; the pipelines that it starts later are top-level.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

tools, made, stop = map(Path, sys.argv[1:])
subprocess.check_output("seq 10 | sort", shell=True)
while not stop.exists():
    plan = subprocess.Popen([tools / "plan", "work", "0.2"], stdout=subprocess.PIPE)
    record = subprocess.Popen([tools / "record"], stdin=plan.stdout, stdout=subprocess.DEVNULL)
    assert plan.stdout
    plan.stdout.close()
    assert plan.wait() == record.wait() == 0
    with made.open("a") as file:
        file.write("x")
    time.sleep(0.8)
