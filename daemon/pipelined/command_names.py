# SPDX-License-Identifier: Apache-2.0
"""Lists of programs by name: which are shells, which only copy, which read all before they write.

A stage goes by the name of its command. What a name says about a program is decided here, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = [
    "AWKS",
    "BARRIERS",
    "BY_LINE",
    "COMMON_SHELLS",
    "COPIERS",
    "FILTERS",
    "GREPS",
    "MANY_IN_ONE",
    "SCRIPTS",
    "SHELLS",
    "WALKERS",
    "WRAPPERS",
    "Wrapper",
    "reports_signal",
]

#: Programs that run others and hold their pipes without using them: the default of ``--shells``.
SHELLS = ("bash", "sh", "dash", "ash", "zsh", "ksh", "mksh", "yash", "fish", "busybox")
#: Files with many programs in them, each started as ``busybox sort``, ``coreutils sort`` or
#: ``coreutils --coreutils-prog=sort``: a stage has that program's name.
MANY_IN_ONE = frozenset({"busybox", "coreutils", "toybox"})
#: The shells for which findings give advice on loops.
COMMON_SHELLS = frozenset(SHELLS) - {"fish", "mksh", "yash"}

#: Programs that write nothing before they have read everything (``sort -m`` apart).
BARRIERS = frozenset({"shuf", "sort", "sponge", "tac", "tsort"})
#: Programs that copy their input to their output, and do no more if both are of one size.
COPIERS = frozenset({"buffer", "cat", "dd", "mbuffer", "pv"})
#: The programs of the language awk.
AWKS = frozenset({"awk", "gawk", "mawk"})
#: grep, by all its names.
GREPS = frozenset({"egrep", "fgrep", "grep"})
#: Programs that treat, or can treat, each line by itself.
BY_LINE = AWKS | GREPS | {"cut", "jq", "perl", "rg", "sed", "tr"}
#: Programs that do the same with a file that they open, and with the same bytes from a pipe.
FILTERS = (BY_LINE - {"rg"}) | {
    "bzip2",
    "gzip",
    "md5sum",
    "nl",
    "od",
    "sha1sum",
    "sha256sum",
    "sort",
    "uniq",
    "wc",
    "xxd",
    "xz",
    "zcat",
    "zstd",
}
#: Scripts that end as another program. A stage older than the daemon has the name of that program.
#: Where they are programs of their own, they do the same.
SCRIPTS: Mapping[str, str] = {"egrep": "grep", "fgrep": "grep", "gunzip": "gzip", "zcat": "gzip"}
#: Programs that open the files of whole folders by themselves.
WALKERS = frozenset({"borg", "cp", "du", "find", "git", "restic", "rg", "rsync", "tar", "zip"})


class Wrapper(NamedTuple):
    """A program that runs the command which is given to it."""

    forks: bool
    """It stays the parent of that command, and its stage is named after it: it is in the default of
    ``--wrappers``. Others exec it, and become it."""
    taking: str | None = None
    """Its options of one letter that take a word; None: a job is named after the wrapper itself."""
    taking_long: tuple[str, ...] = ()
    """Its long options that take the next word, if no ``=`` brings their value."""
    operands: int = 0
    """How many words stand before the command."""
    rewritten: bool = False
    """A command behind it is rewritten as it would be without it."""


#: Programs that run another one.
WRAPPERS: Mapping[str, Wrapper] = {
    "timeout": Wrapper(forks=True, taking="ks", taking_long=("kill-after", "signal"), operands=1),
    "time": Wrapper(forks=True, taking="fo", taking_long=("format", "output")),
    "sudo": Wrapper(
        forks=True,
        taking="CDRTUghprtu",
        taking_long=(
            "chdir",
            "chroot",
            "close-from",
            "command-timeout",
            "group",
            "host",
            "other-user",
            "prompt",
            "role",
            "type",
            "user",
        ),
    ),
    "doas": Wrapper(forks=True),
    "su": Wrapper(forks=True),
    "runuser": Wrapper(forks=True, taking="gu", taking_long=("group", "user")),
    "flock": Wrapper(
        forks=True, taking="Ew", taking_long=("conflict-exit-code", "timeout", "wait"), operands=1
    ),
    "setsid": Wrapper(forks=True, taking=""),
    "unshare": Wrapper(forks=True),
    "nsenter": Wrapper(forks=True),
    "strace": Wrapper(forks=True),
    "ltrace": Wrapper(forks=True),
    "perf": Wrapper(forks=True),
    "script": Wrapper(forks=True),
    "systemd-run": Wrapper(forks=True),
    "systemd-inhibit": Wrapper(forks=True),
    "dbus-run-session": Wrapper(forks=True),
    # these start helpers before the command: their stage would be named after the first of them
    "xvfb-run": Wrapper(forks=False),
    "fakeroot": Wrapper(forks=False),
    "firejail": Wrapper(forks=True),
    "bwrap": Wrapper(forks=True),
    "chronic": Wrapper(forks=True, taking=""),
    "cpulimit": Wrapper(forks=True),
    "tini": Wrapper(forks=True),
    "dumb-init": Wrapper(forks=True),
    "chrt": Wrapper(
        forks=False,
        taking="DPT",
        taking_long=("sched-deadline", "sched-period", "sched-runtime"),
        operands=1,
    ),
    "command": Wrapper(forks=False, taking=""),
    "env": Wrapper(
        forks=False, taking="CSu", taking_long=("chdir", "split-string", "unset"), rewritten=True
    ),
    "exec": Wrapper(forks=False, taking="a"),
    "ionice": Wrapper(forks=False, taking="cn", taking_long=("class", "classdata")),
    "nice": Wrapper(forks=False, taking="n", taking_long=("adjustment",), rewritten=True),
    "nohup": Wrapper(forks=False, taking=""),
    "stdbuf": Wrapper(
        forks=False, taking="eio", taking_long=("error", "input", "output"), rewritten=True
    ),
    "systemd-cat": Wrapper(
        forks=False,
        taking="pt",
        taking_long=("identifier", "level-prefix", "priority", "stderr-priority"),
    ),
    "taskset": Wrapper(forks=False, taking="", operands=1),
}


def reports_signal(command: str, code: int) -> bool:
    """Whether a stage that exits with 128 and the number of a signal reports that signal.

    Shells do, of what they waited for, and Java of itself. git exits with 129 at an unknown option.
    """
    return code > 128 and (command, code) != ("git", 129)
