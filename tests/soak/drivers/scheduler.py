# SPDX-License-Identifier: Apache-2.0
"""A scheduler in Python: starts a pipeline each second, and every tenth time reads from a child.

Its arguments: the directory of the programs, the file that gets one byte per run, the file that
ends it. While it reads from a child it is a stage; the pipelines that it starts later are
top-level.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from pathlib import Path

tools, made, stop = map(Path, sys.argv[1:])
for number in itertools.count():
    if stop.exists():
        break
    if number % 10 == 0:
        subprocess.check_output("seq 10 | sort", shell=True)
    plan = subprocess.Popen([tools / "plan", "work", "0.2"], stdout=subprocess.PIPE)
    record = subprocess.Popen([tools / "record"], stdin=plan.stdout, stdout=subprocess.DEVNULL)
    assert plan.stdout
    plan.stdout.close()
    assert plan.wait() == record.wait() == 0
    with made.open("a") as file:
        file.write("x")
    time.sleep(0.8)
