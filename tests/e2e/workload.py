# SPDX-License-Identifier: Apache-2.0
"""Pipelines like those of the five experiments, short and over and over, in a unit of their own."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelined.model.units import find_cgroup2

#: The label `unit` of everything that runs here.
UNIT = "dashboards-test@.service"
#: One that gzip, which compresses as well as it can, holds back.
HELD_BACK = "cat|gzip|wc"
#: The one in which everything is found that a dashboard of one pipeline shows.
WHOLE = "cat|xargs|sort"

_LINES = 150_000
#: Seconds that the pipelines may take to start, and what is killed to end.
_PATIENCE = 60
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37

_SCRIPT = r"""
echo $$ > "$CGROUP/cgroup.procs"
touch started
until [ -e go ]; do sleep 0.05; done
export LC_ALL=C
cold() { dd if="$1" iflag=nocache count=0 status=none; }
again() { while :; do "$@"; sleep 0.3; done; }

reader_in_front() { cold text; cat text | awk '{ n += $2 } END { print n }' | wc -c; }
held_back() { cold text; cat text | gzip -9 | wc -c; }
workers() { # of four runs one fails: sort has no key 0
    if ((turn = (turn + 1) % 4)); then key=1; else key=0; fi
    cold copied; cold names
    cat names | PATH=none:.:$PATH xargs -n 1 -P 2 copied | sort --key=$key 2> errors
}
block_size() { dd if=/dev/zero bs=512 count=40000 status=none | dd of=/dev/null status=none; }
stages() { cold text; cat text | tr a-z A-Z | sort | uniq -c | sort -n; }
small_files() { for f in small/*; do cold $f; done; find small -type f | xargs -n 10 cat | md5sum; }
nested() { bash -c 'cat text2 | gzip -1 | wc -c; true' | cat; }
takes_a_while() { { echo; sleep 10.2; echo; } | wc; }

for each in reader_in_front held_back workers block_size stages small_files nested takes_a_while; do
    again "$each" > /dev/null &
done
wait
"""


class Workload:
    """Pipelines in a unit of their own, from `go` to `close`.

    Make it before the daemon: a daemon that starts while pytest is a stage of a pipeline itself
    (``make test | tee log``) takes what pytest has started for a part of that. What pytest has
    started and init has adopted before is none.
    """

    def __init__(self, directory: Path) -> None:
        _make_files(directory)
        root = find_cgroup2()
        assert root, "no cgroup v2 is mounted"
        self._directory = directory
        self._cgroup = root / UNIT.replace("@", f"@{os.getpid()}")
        self._cgroup.mkdir()
        with no_subreaper():
            subprocess.run(
                ["bash", "-c", 'setsid bash -c "$1" &', "start", _SCRIPT],
                cwd=directory,
                env={**os.environ, "CGROUP": str(self._cgroup)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
            )
        self._wait(lambda: (directory / "started").exists(), "the pipelines' shell")

    def go(self) -> None:
        """Let the pipelines begin."""
        (self._directory / "go").touch()

    def close(self) -> None:
        """End all of them."""
        (self._cgroup / "cgroup.kill").write_text("1")
        events = self._cgroup / "cgroup.events"
        self._wait(lambda: "populated 0" in events.read_text(), "the pipelines' end")
        self._cgroup.rmdir()

    @staticmethod
    def _wait(look: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not look():
            assert time.monotonic() < deadline, f"waited {_PATIENCE} s in vain for {what}"
            time.sleep(0.05)


@contextmanager
def no_subreaper() -> Iterator[None]:
    """Orphans go to init, not to this process, if it has asked for them (kernel tests do)."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    was = ctypes.c_int()
    assert prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(was), 0, 0, 0) == 0
    prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, was.value, 0, 0, 0)


def _make_files(directory: Path) -> None:
    lines = [f"word{n * 7919 % 100_003} {n % 97}\n" for n in range(_LINES)]
    directory.mkdir()
    (directory / "text").write_text("".join(lines))
    (directory / "text2").write_text("".join(lines[: _LINES // 3]))
    small = directory / "small"
    small.mkdir()
    for n in range(30):
        (small / str(n)).write_text("".join(lines[n * 50 : n * 50 + 50]))
    # one that lasts some tenths of a second: a scrape is to meet it
    names = [f"small/{n}\n" for n in range(12)] + ["text2\n"] * 8
    (directory / "names").write_text("".join(names))
    cat = shutil.which("cat")
    assert cat
    shutil.copy(cat, directory / "copied")
    os.sync()  # only what is on disk can be made cold
