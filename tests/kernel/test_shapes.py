# SPDX-License-Identifier: Apache-2.0
"""Each shape gives exactly the pipelines that the rules name: order, names, nesting, endpoints."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from kernel.conftest import wait_for
from pipelined.observer import Observer
from pipelined.runs import Run

if TYPE_CHECKING:
    from kernel.conftest import Configure, Watch

pytestmark = pytest.mark.oldest_kernel

PYTHON = "/usr/bin/python3"

#: What Node.js, Java and others do: a thread with a name of its own reads.
READS_IN_A_THREAD = """
import ctypes, os, sys, threading
def read():
    ctypes.CDLL(None).prctl(15, b"worker")  # PR_SET_NAME
    open("ready", "w").close()
    while os.read(int(sys.argv[1]), 65536):
        pass
threading.Thread(target=read).start()
"""

#: Here as below a child sleeps for so long that its reader has come to sleep, too, on a busy host.
READS = """
import subprocess
with subprocess.Popen("sleep 0.3; exec zcat lines.gz", shell=True, stdout=subprocess.PIPE) as zcat:
    print(sum(len(line) for line in zcat.stdout))
"""

#: A race that one run in some wins is still a wrong answer.
REPEATS = 3


class Pipeline(NamedTuple):
    """What must be known of one run."""

    signature: str
    nested: bool
    stages: tuple[tuple[int, str], ...]
    endpoints: tuple[tuple[str, str], ...]


def pipeline(
    signature: str,
    *,
    nested: bool = False,
    times: Mapping[str, int] | None = None,
    endpoints: tuple[tuple[str, str], ...] = (),
) -> Pipeline:
    """Positions follow from the signature; `times` says how many branches bear a name."""
    stages: list[tuple[int, str]] = []
    for position, name in enumerate(re.findall(r"[^|(),]+", signature), start=1):
        stages += [(position, name)] * (times or {}).get(name, 1)
    return Pipeline(signature, nested, tuple(stages), endpoints)


def seen(run: Run) -> Pipeline:
    return Pipeline(
        run.pipeline,
        run.series.nested,
        tuple((stage.position, stage.command) for stage in run.stages),
        tuple(sorted((end.command, end.side) for end in run.endpoints)),
    )


@dataclass(frozen=True)
class Shape:
    name: str
    script: str
    expected: tuple[Pipeline, ...]
    shell: str = "bash"
    files: Mapping[str, str] = field(default_factory=dict)
    """Made in the directory first, executable."""
    status: int = 0
    silent: bool = True
    """Nothing on stderr, with and without observation."""


def shape(name: str, script: str, *expected: Pipeline | str, **more: object) -> Shape:
    pipelines = tuple(pipeline(item) if isinstance(item, str) else item for item in expected)
    return Shape(name, script, pipelines, **more)  # type: ignore[arg-type]


LONG = ("cat lines", "tr a b", "sed s/x/y/", "sort", "uniq -c", "cut -c 1-30", "cat", "wc -l")


def of_length(count: int) -> Shape:
    commands = LONG[: count - 1] + LONG[-1:]
    names = "|".join(command.split()[0] for command in commands)
    return shape(f"{count} stages", " | ".join(commands), names)


STAGES = [of_length(count) for count in range(2, 9)]

SHELL = [
    shape("subshell stage", "cat lines | (sort; true) | wc -l", "cat|bash|wc"),
    shape("group stage", "cat lines | { sort; echo end; } | wc -l", "cat|bash|wc"),
    shape("group at the start", "{ cat lines; echo end; } | wc -l", "bash|wc"),
    shape("group of builtins", "{ echo a; echo b; } | { read -r x; echo $x; }", "bash|bash"),
    shape(
        "while read in the middle",
        "seq 50 | while read -r x; do echo $x; done | wc -l",
        "seq|bash|wc",
    ),
    shape("while read at the end", "seq 50 | while read -r x; do y=$x; done", "seq|bash"),
    shape(
        "while read that forks",
        "seq 5 | while read -r x; do expr $x + 1; done | sort",
        "seq|bash|sort",
    ),
    shape(
        "while read around a pipeline",
        "seq 2 | while read -r x; do cat lines | wc -l; done",
        "seq|bash",
        pipeline("cat|wc", nested=True),
        pipeline("cat|wc", nested=True),
    ),
    shape("for loop as a stage", "for i in 1 2 3; do cat lines; done | wc -l", "bash|wc"),
    shape("function", "f() { sed s/a/b/; true; }; cat lines | f | wc -l", "cat|bash|wc"),
    shape(
        "function with a pipeline",
        "f() { sed s/a/b/ | sort; true; }; cat lines | f | wc -l",
        "cat|bash|wc",
        pipeline("sed|sort", nested=True),
    ),
    shape("builtin at the start", "echo hello | cat", "bash|cat"),
    shape(
        "a shell that has read from its children and becomes another program",
        # it sleeps in its read when the other stage ends: what it does on a CPU then is not counted
        "bash -c 'while read -r x; do y=$x; done < <(cat lines; exec sleep 0.5); exec sleep 0.1'",
        "sleep|bash",
    ),
    shape("list, then pipeline", "sleep 0.01; cat lines | wc -l", "cat|wc"),
    shape("pipeline, then list", "cat lines | wc -l; sleep 0.01; true", "cat|wc"),
    shape(
        "two pipelines in turn",
        "cat lines | wc -l; sort lines | uniq | wc -l",
        "cat|wc",
        "sort|uniq|wc",
    ),
    shape(
        "two pipelines at once",
        "cat lines | sort | wc -l & sort lines | uniq & wait",
        "cat|sort|wc",
        "sort|uniq",
    ),
    shape("no pipe", "sort lines > sorted; wc -l < sorted"),
    shape("stderr too", "ls nothing lines |& sort", "ls|sort", silent=True),
    shape("stderr is no edge", "ls nothing 2> >(sort); true"),
    shape(
        "nor if it is more than a pipe holds",
        "python3 -c 'import os; os.write(2, bytes(300000))' 2>&1 > none | (sleep 0.3; exec wc -c)",
    ),
    shape(
        "nor if its process lost the CPU before its stdout was redirected",
        "taskset -pc 0 $$ > moved; for i in 1 2; do while :; do :; done & done;"
        " for i in {1..8}; do seq 9 2>&1 > none | (sleep 0.01; exec cat); done; kill $(jobs -p)",
    ),
    shape(
        "more branches than a stage has places for pipes",
        f"cat lines | tee{' >(sleep 0.1; exec sort > /dev/null)' * 7} | wc -l; sleep 0.3",
        pipeline("cat|tee|(sort,wc)", times={"sort": 7}),
    ),
    shape("background", "cat lines | sort > sorted & wait", "cat|sort"),
    shape("in a subshell", "(cat lines | wc -l)", "cat|wc"),
    shape("negated", "! cat lines | grep -q nothing-like-it", "cat|grep"),
    shape("pipefail", "set -o pipefail; cat lines | wc -l", "cat|wc"),
    shape(
        "lastpipe",
        "shopt -s lastpipe; seq 9 | (sleep 0.3; exec sort) | while read -r x; do y=$x; done; true",
        "seq|sort|bash",
    ),
]

NESTED = [
    shape(
        "script into tee",
        "./job.sh | tee log",
        "job.sh|tee",
        pipeline("cat|sort|wc", nested=True),
        files={"job.sh": "#!/bin/bash\ncat lines | sort | wc -l\necho end\n"},
    ),
    shape(
        "script into tee, two levels",
        "./outer.sh | tee log",
        "outer.sh|tee",
        pipeline("job.sh|cat", nested=True),
        pipeline("cat|sort|wc", nested=True),
        files={
            "outer.sh": "#!/bin/bash\n./job.sh | cat\necho end\n",
            "job.sh": "#!/bin/bash\ncat lines | sort | wc -l\necho end\n",
        },
    ),
    shape(
        "script without pipes into tee",
        "./job.sh | tee log",
        "job.sh|tee",
        files={"job.sh": "#!/bin/sh\nsort lines\nwc -l lines\n"},
    ),
    shape(
        "script that ends by exec",
        "./job.sh | tee log",
        "job.sh|tee",
        files={"job.sh": "#!/bin/sh\nexec sort lines\n"},
    ),
    shape(
        "script that writes, and becomes a program that writes elsewhere",
        "seq 3 | ./job.sh | cat",
        "seq|job.sh|cat",
        files={"job.sh": "#!/bin/sh\necho header\nexec sort > out\n"},
    ),
    shape(
        "command substitution",
        "x=$(cat lines | wc -l); echo $x",
        pipeline("cat|wc", endpoints=(("bash", "read"),)),
    ),
    shape("command substitution of one command", "x=$(wc -l lines); echo $x"),
    shape(
        "command substitution in a stage",
        "{ echo $(cat lines | wc -l); } | cat",
        "bash|cat",
        pipeline("cat|wc", nested=True, endpoints=(("bash", "read"),)),
    ),
]

SUBSTITUTION = [
    shape(
        "two inputs",
        "diff <(sort lines) <(sort lines)",
        pipeline("sort|diff", times={"sort": 2}),
    ),
    shape(
        "two inputs, the shell stays",
        "diff <(sort lines) <(sort lines); true",
        pipeline("sort|diff", times={"sort": 2}),
    ),
    shape(
        "two inputs of other names",
        "paste <(sort lines) <(cat lines) > pasted",
        "(cat,sort)|paste",
    ),
    shape(
        "pipelines as inputs",
        "paste <(cat lines | sort) <(cat lines | uniq) > pasted; true",
        # each <(…) is a subshell that lives on: the stage; its pipeline lies inside it
        pipeline("bash|paste", times={"bash": 2}),
        pipeline("cat|sort", nested=True),
        pipeline("cat|uniq", nested=True),
    ),
    shape("input into a pipeline", "cat <(sort lines) | wc -l", "sort|cat|wc"),
    # /fd/ begins 62 and 500 bytes behind the start: the search goes in steps of 64, and ends at 512
    *(
        shape(
            f"input behind {count} other arguments",
            f"cat {'lines ' * count}<(sort lines) | wc -l",
            "sort|cat|wc",
        )
        for count in (9, 82)
    ),
    shape(
        "input of a loop",
        "while read -r x; do y=$x; done < <(cat lines | sort)",
        "bash|bash",
        pipeline("cat|sort", nested=True),
    ),
    shape(
        "two outputs",
        "cat lines | tee >(gzip > z) >(wc -l > n) > copy",
        "cat|tee|(gzip,wc)",
    ),
    shape(
        "an output to a file, beside the next stage",
        "seq 200000 | tee >(gzip > z) | wc -l > out",
        "seq|tee|(gzip,wc)",
    ),
    shape(
        "an output to a file, of a few bytes",
        "seq 10 | tee >(gzip > z) | wc -l > out",
        "seq|tee|(gzip,wc)",
    ),
    shape(
        "outputs into the next stage",
        "seq 2000 | tee >(sort) >(wc -l) | sed s/a/b/ > out",
        "seq|tee|(sort,wc)|sed",
    ),
    shape("output by redirection", "cat lines > >(wc -l > n)", "cat|wc"),
    shape(
        "zsh, two inputs",
        "diff <(sort lines) <(sort lines)",
        pipeline("sort|diff", times={"sort": 2}),
        shell="zsh -f",
    ),
]

FIFOS = [
    shape(
        "two shells",
        "mkfifo f; bash -c 'cat lines > f; true' & bash -c 'wc -l < f; true'; wait",
        "cat|wc",
    ),
    shape(
        "two shells that become the commands",
        "mkfifo f; bash -c 'cat lines > f' & bash -c 'wc -l < f'; wait",
        "cat|wc",
    ),
    shape(
        "two pipelines joined",
        "mkfifo f; cat lines | sort > f & uniq < f | wc -l; wait",
        "cat|sort|uniq|wc",
    ),
    shape(
        "by name as an argument",
        "mkfifo f; sh -c 'sleep 0.3; exec cat lines' > f & sort f | wc -l; wait",
        "cat|sort|wc",
    ),
]

WRAPPERS = [
    shape("timeout", "cat lines | timeout 10 sort | wc -l", "cat|sort|wc"),
    shape("timeout at the start", "timeout 10 cat lines | wc -l", "cat|wc"),
    shape("timeout at the end", "cat lines | timeout 10 wc -l", "cat|wc"),
    shape("nice", "cat lines | nice -n 5 sort | wc -l", "cat|sort|wc"),
    shape("env", "cat lines | env X=1 sort | wc -l", "cat|sort|wc"),
    shape("nohup", "cat lines | nohup sort | wc -l", "cat|sort|wc"),
    shape("stdbuf", "cat lines | stdbuf -oL sort | wc -l", "cat|sort|wc"),
    shape("time", "cat lines | /usr/bin/time -o t sort | wc -l", "cat|sort|wc"),
    shape("flock", "cat lines | flock lock sort | wc -l", "cat|sort|wc"),
    shape("setsid", "cat lines | setsid -w sort | wc -l", "cat|sort|wc"),
    shape("sh -c that becomes the command", "cat lines | sh -c 'exec sort' | wc -l", "cat|sort|wc"),
    shape("sh -c that stays", "cat lines | sh -c 'sort; true' | wc -l", "cat|sh|wc"),
    shape(
        "timeout of nice of env",
        "cat lines | timeout 10 nice env X=1 sort | wc -l",
        "cat|sort|wc",
    ),
    shape("timeout of timeout", "cat lines | timeout 9 timeout 8 sort | wc -l", "cat|sort|wc"),
    shape(
        "timeout of a shell",
        "cat lines | timeout 10 sh -c 'sort; true' | wc -l",
        "cat|sh|wc",
    ),
    shape(
        "timeout of a pipeline",
        "timeout 10 sh -c 'cat lines | sort; true' | wc -l",
        "sh|wc",
        pipeline("cat|sort", nested=True),
    ),
]

ENV_PYTHON = "#!/usr/bin/env python3\n"
BECOMES_SORT = {"mine": '#!/bin/sh\nexec sort "$@"\n'}
BECOMES_ITS_ARGUMENTS = '#!/bin/sh\nexec "$@"\n'

#: As fakeroot does.
STARTS_A_HELPER = '#!/bin/sh\noptions=$(getopt -o a -- "$@")\n"$@"\n'

SCRIPTS = [
    # Debian's zcat is a script that becomes gzip
    shape("zcat", "gzip -k lines; zcat lines.gz | sort | wc -l", "zcat|sort|wc"),
    shape(
        "a script that becomes a program",
        "cat lines | ./mine | wc -l",
        "cat|mine|wc",
        files=BECOMES_SORT,
    ),
    shape(
        "a script behind wrappers that exec and fork",
        "cat lines | nice timeout 10 env X=1 ./mine | wc -l",
        "cat|mine|wc",
        files=BECOMES_SORT,
    ),
    shape(
        "a script that becomes its arguments",
        "cat lines | ./with env X=1 sort | wc -l",
        "cat|with|wc",
        files={"with": BECOMES_ITS_ARGUMENTS},
    ),
    shape(
        "a script that becomes another script",
        "cat lines | ./with ./mine | wc -l",
        "cat|with|wc",
        files={"with": BECOMES_ITS_ARGUMENTS, **BECOMES_SORT},
    ),
    shape(
        "a script that becomes a wrapper that forks",
        "cat lines | ./with timeout 10 sort | wc -l",
        "cat|with|wc",
        files={"with": BECOMES_ITS_ARGUMENTS},
    ),
    shape(
        "a wrapper that is a script",
        "cat lines | ./chronic sort | wc -l",
        "cat|sort|wc",
        files={"chronic": BECOMES_ITS_ARGUMENTS},
    ),
    shape(
        "a script that runs a helper, and then its arguments",
        "cat lines | ./fakeroot sort | wc -l",
        "cat|fakeroot|wc",
        files={"fakeroot": STARTS_A_HELPER},
    ),
    shape(
        "a script that stays",
        "cat lines | ./mine | wc -l",
        "cat|mine|wc",
        files={"mine": "#!/bin/sh\nsort\ntrue\n"},
    ),
    shape(
        "what a script forks has its own name",
        "./mine; true",
        "sort|wc",
        files={"mine": '#!/bin/bash\nexec bash -c "sort lines | wc -l; true"\n'},
    ),
    shape(
        "a script of env",
        "cat lines | ./sum.py | wc -l",
        "cat|sum.py|wc",
        files={"sum.py": f"{ENV_PYTHON}import sys\nprint(len(sys.stdin.read()))\n"},
    ),
    shape(
        "a script of env is the interpreter that it becomes",
        "gzip -k lines; ./reads.py; true",
        "zcat|reads.py",
        files={"reads.py": f"{ENV_PYTHON}{READS}"},
    ),
    shape(
        "a script that names its interpreter itself",
        "gzip -k lines; ./reads.py; true",
        "zcat|reads.py",
        files={"reads.py": f"#!/usr/bin/python3\n{READS}"},
    ),
    shape(
        "a script that names its shell itself, and is the last part of a pipeline",
        "./job.sh; true",
        "seq|sort|job.sh",
        files={
            "job.sh": "#!/bin/bash\nshopt -s lastpipe\n"
            "seq 9 | (sleep 0.3; exec sort) | while read -r x; do y=$x; done\ntrue\n"
        },
    ),
    shape(
        "a script that names its shell itself and reads in a loop",
        "cat lines | ./loop.sh | wc -l",
        "cat|loop.sh|wc",
        files={"loop.sh": "#!/bin/sh\nwhile read -r x; do echo $x; done\n"},
    ),
    shape(
        "a script of env, a thread of which reads another descriptor",
        "rm -f ready; { until [ -e ready ]; do sleep 0.1; done; sleep 0.2; cat lines; }"
        " | ./reads.py 3 3<&0 </dev/null",
        "bash|reads.py",
        files={"reads.py": f"{ENV_PYTHON}{READS_IN_A_THREAD}"},
    ),
    shape(
        "programs of busybox",
        "cat lines | busybox sort | busybox wc -l",
        "cat|sort|wc",
    ),
    shape(
        "a program of busybox, by its folder, behind a program that execs it",
        "cat lines | nice /bin/busybox sort | env busybox wc -l",
        "cat|sort|wc",
    ),
    shape(
        "a program of busybox that a program of busybox becomes",
        "cat lines | busybox env busybox sort | busybox env busybox env wc -l",
        "cat|sort|wc",
    ),
    shape(
        "a program of busybox behind a wrapper",
        "cat lines | timeout 10 busybox sort | wc -l",
        "cat|sort|wc",
    ),
    shape(
        "a wrapper of busybox that forks",
        "cat lines | busybox setsid busybox sort | wc -l",
        "cat|sort|wc",
    ),
    shape(
        "a subshell of busybox",
        "busybox sh -c 'cat lines | (while read -r x; do echo $x; done) | wc -l'",
        "cat|sh|wc",
    ),
    shape(
        "busybox without a program",
        "cat lines | busybox 2>&1 | busybox --list | cat lines - | busybox /x/wc",
        "cat|busybox|busybox|cat|busybox",
    ),
    shape(
        "programs of coreutils",
        "cat lines | coreutils sort | coreutils --coreutils-prog=uniq -c | coreutils",
        "cat|sort|uniq|coreutils",
    ),
    shape(
        "a program of coreutils by a link",
        "ln -s $(command -v coreutils) tac; cat lines | ./tac sort | wc -l",
        "cat|tac|wc",
    ),
]

SHELLS = (
    [
        shape(f"{shell.split()[0]}: {name}", script, *expected, shell=shell)
        for shell in ("dash", "zsh -f", "busybox sh", "sh")
        for name, script, *expected in (
            ("three stages", "cat lines | sort | wc -l", "cat|sort|wc"),
            ("three stages, then more", "cat lines | sort | wc -l; true", "cat|sort|wc"),
            (
                "command substitution",
                "x=$(cat lines | wc -l); echo $x",
                pipeline("cat|wc", endpoints=((shell.split()[0], "read"),)),
            ),
        )
    ]
    + [
        shape(
            f"{shell.split()[0]}: while read",
            # zsh closes its descriptors before it exits: it is seen when it sleeps at the latest
            "seq 5 | while read -r x; do sleep 0.01; echo $x; done | sort",
            f"seq|{shell.split()[-1] if 'busybox' in shell else shell.split()[0]}|sort",
            shell=shell,
        )
        for shell in ("dash", "zsh -f", "busybox sh")
    ]
    + [
        shape(
            "zsh: the last loop runs in the shell itself",
            "seq 50 | (sleep 0.3; exec sort) | while read -r x; do y=$x; done; true",
            "seq|sort|zsh",
            shell="zsh -f",
        ),
    ]
)

CHAIN = """
import subprocess
from subprocess import PIPE
cat = subprocess.Popen(["cat", "lines"], stdout=PIPE)
sort = subprocess.Popen(["sort"], stdin=cat.stdout, stdout=PIPE)
cat.stdout.close()
wc = subprocess.Popen(["wc", "-l"], stdin=sort.stdout)
sort.stdout.close()
for process in (cat, sort, wc):
    process.wait()
"""
CHECK_OUTPUT = """
import subprocess
print(len(subprocess.check_output("sleep .3; cat lines | sort", shell=True)))
"""
WRITES = """
import subprocess
with subprocess.Popen(["sort"], stdin=subprocess.PIPE, text=True) as sort:
    for i in range(20000):
        print(i, file=sort.stdin)
"""
BOTH_WAYS = """
import subprocess
print(len(subprocess.run(["sort"], input=b"b\\na\\n" * 50000, stdout=subprocess.PIPE).stdout))
"""
SILENT_CHILDREN = """
import subprocess
for _ in range(3):
    subprocess.run(["sort", "-o", "sorted", "lines"], check=True)
"""

GETLINE = 'BEGIN { while (("sleep 0.3; exec cat lines" | getline x) > 0) n++; print n }'

# `sh -c command` may become the command or stay as its parent, by the version of dash: `exec`.
PROGRAMS = [
    shape("python: chain", f"{PYTHON} chain.py; true", "cat|sort|wc", files={"chain.py": CHAIN}),
    shape(
        "python: for line in zcat",
        f"gzip -k lines; {PYTHON} reads.py; true",
        "zcat|python3",
        files={"reads.py": READS},
    ),
    shape(
        "python: check_output of a shell's pipeline",
        f"{PYTHON} check.py; true",
        "sh|python3",
        pipeline("cat|sort", nested=True),
        files={"check.py": CHECK_OUTPUT},
    ),
    shape(
        "python: a thread reads",
        f"cat lines | {PYTHON} reads.py 0",
        "cat|python3",
        files={"reads.py": READS_IN_A_THREAD},
    ),
    shape(
        "python: a thread reads another descriptor",
        "rm -f ready; { until [ -e ready ]; do sleep 0.1; done; sleep 0.2; cat lines; }"
        f" | {PYTHON} reads.py 3 3<&0 </dev/null",
        "bash|python3",
        files={"reads.py": READS_IN_A_THREAD},
    ),
    shape(
        "python: writes to a child",
        f"{PYTHON} writes.py",
        "python3|sort",
        files={"writes.py": WRITES},
    ),
    shape(
        "python: writes and reads",
        f"{PYTHON} both.py",
        files={"both.py": BOTH_WAYS},
    ),
    shape(
        "python: children without pipes",
        f"{PYTHON} silent.py",
        files={"silent.py": SILENT_CHILDREN},
    ),
    shape(
        "python: a stage that starts children",
        f"{PYTHON} silent.py | cat",
        "python3|cat",
        files={"silent.py": SILENT_CHILDREN},
    ),
    # the child is slow enough for its reader to wait: one that never sleeps is not seen
    shape(
        "perl: reads a child",
        """perl -e 'open(F, "-|", "sleep 0.3; exec cat lines"); $n++ while <F>; print $n'""",
        "cat|perl",
    ),
    shape(
        "mawk: print | sort",
        """mawk '{ print $1 | "exec sort" }' lines > out""",
        "mawk|sort",
    ),
    shape("gawk: print | sort", """gawk '{ print $1 | "exec sort" }' lines > out""", "gawk|sort"),
    shape("awk: print | sort", """awk '{ print $1 | "exec sort" }' lines > out""", "awk|sort"),
    shape(
        "awk: print to a shell that stays",
        """awk '{ print $1 | "sort; true" }' lines > out""",
        "awk|sh",
    ),
    shape(
        "an interpreter by a name with a version",
        f"""ln -s "$(command -v mawk)" mawk1.3.4; ./mawk1.3.4 '{GETLINE}'""",
        "cat|mawk1.3.4",
    ),
    shape(
        "a program whose name begins like an interpreter's",
        f"""cp "$(command -v mawk)" awkward; ./awkward '{GETLINE}'""",
    ),
    shape(
        "a link to an interpreter",
        f"""ln -s "$(command -v mawk)" counts; ./counts '{GETLINE}'""",
        "cat|counts",
    ),
    # the kernel keeps 15 bytes of a name
    shape(
        "a wrapper with a long name",
        """ln -s "$(command -v timeout)" dbus-run-session; ./dbus-run-session 9 cat lines | sort""",
        "cat|sort",
    ),
    shape(
        "mawk: getline from a command",
        f"mawk '{GETLINE}'",
        "cat|mawk",
    ),
    shape(
        "mawk: print | sort inside a pipeline",
        """cat lines | mawk '{ print $1 | "exec sort" }' | wc -l""",
        "cat|mawk|sort|wc",
    ),
    shape(
        "coproc",
        'coproc (sleep 0.5; exec sort); cat lines >&"${COPROC[1]}"; exec {COPROC[1]}>&-; '
        'while read -r x <&"${COPROC[0]}"; do y=$x; done 2> /dev/null; true',
        "cat|sort|bash",
        silent=False,
    ),
    shape(
        "coproc written to by the shell",
        'coproc sort; for i in $(seq 5); do echo $i; sleep 0.02; done >&"${COPROC[1]}"; '
        'exec {COPROC[1]}>&-; read -r x <&"${COPROC[0]}"; true',
        silent=False,
    ),
    shape(
        "xargs -P",
        "seq 8 | xargs -P 4 -I{} sh -c 'echo {}' | wc -l",
        "seq|xargs|wc",
    ),
    shape(
        "xargs of pipelines",
        "seq 2 | xargs -P 2 -I{} sh -c 'cat lines | wc -l'",
        "seq|xargs",
        pipeline("cat|wc", nested=True),
        pipeline("cat|wc", nested=True),
    ),
    shape(
        "split --filter",
        "seq 3 | split -u -n r/2 --filter 'while read -r x; do y=$x; done'",
        pipeline("seq|split|bash", times={"bash": 2}),
    ),
    shape(
        "split --filter with many filters",
        "seq 100 | split -u -n r/12 --filter 'while read -r x; do y=$x; done'",
        pipeline("seq|split|bash", times={"bash": 12}),
    ),
    shape(
        "split --filter whose filters become commands",
        "seq 100 | split -u -n r/3 --filter 'exec sort > $FILE'",
        pipeline("seq|split|sort", times={"sort": 3}),
    ),
    shape(
        "split --filter inside a pipeline",
        "seq 100 | split -u -n r/2 --filter 'sort; true' | wc -l",
        pipeline("seq|split|bash|wc", times={"bash": 2}),
    ),
    shape("find -exec", "find . -name lines -exec cat {} + | wc -l", "find|wc"),
    shape(
        "make -j",
        "make -s -j4",
        files={"Makefile": "all: a b c d\na b c d:\n\tsleep 0.02; cat lines > /dev/null\n"},
    ),
    shape(
        "make -j with makes inside",
        "make -s -j4 all",
        files={
            "Makefile": "all: x y\nx y:\n\t+$(MAKE) -s a b\n"
            "a b:\n\tsleep 0.02; cat lines > /dev/null\n"
        },
    ),
    shape(
        "make -j with a pipeline in a recipe",
        "make -s -j2",
        "cat|wc",
        files={"Makefile": "all:\n\tcat lines | wc -l\n"},
    ),
    shape(
        "make -j as a stage",
        "make -s -j2 | cat",
        "make|cat",
        files={"Makefile": "all: a b\na b:\n\tsleep 0.02; cat lines\n"},
    ),
    shape("self-pipe", "selfpipe"),
    shape("self-pipe in a stage", "selfpipe | cat", "selfpipe|cat"),
]

DEATHS = [
    shape("SIGPIPE", "yes | head -1", "yes|head"),
    shape("SIGPIPE in the middle", "yes | tr y n | head -1", "yes|tr|head"),
    shape(
        "SIGKILL of the last",
        "yes | sh -c 'read x; kill -9 $$'",
        "yes|sh",
        status=137,
        silent=False,
    ),
    shape(
        "SIGKILL in the middle",
        "yes | { head -100; kill -9 $BASHPID; } | wc -l",
        "yes|bash|wc",
    ),
    shape(
        "SIGKILL of a sleeper",
        # once both have become what they are called
        "sleep 30 | cat & for pid in $(jobs -p) $!; do"
        " while read -r name < /proc/$pid/comm; [ $name = bash ]; do :; done; done;"
        " sleep 0.05; kill -9 $(jobs -p) $!; wait 2> /dev/null; true",
        "sleep|cat",
        silent=False,
    ),
    shape("failing stage", "cat nothing 2> /dev/null | sort | wc -l", "cat|sort|wc"),
    shape(
        "command not found",
        "cat lines | no-such-command 2> /dev/null | wc -l",
        "cat|bash|wc",
    ),
]

ALL = [
    *STAGES,
    *SHELL,
    *NESTED,
    *SUBSTITUTION,
    *FIFOS,
    *WRAPPERS,
    *SCRIPTS,
    *SHELLS,
    *PROGRAMS,
    *DEATHS,
]


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(item, id=item.name, marks=[pytest.mark.thorough] * ("script" not in item.name))
        for item in ALL
    ],
)
def test_a_shape_gives_exactly_the_pipelines_that_the_rules_name(
    item: Shape, watch: Watch, lines: Path
) -> None:
    for name, text in item.files.items():
        path = lines.parent / name
        path.write_text(text)
        path.chmod(0o755)
    kept = {"lines", *item.files}
    for attempt in range(REPEATS):
        for path in lines.parent.iterdir():
            if path.name not in kept:
                path.unlink()
        observed = watch.run(item.script, item.shell)
        assert observed.returncode == item.status, observed.stderr
        if item.silent:
            assert observed.stderr == ""
        assert sorted(map(seen, observed.runs)) == sorted(item.expected), f"attempt {attempt}"
        assert not any(run.partial for run in observed.runs)


def test_an_inner_run_names_the_run_it_lies_in(watch: Watch, lines: Path) -> None:
    job = lines.parent / "job.sh"
    job.write_text("#!/bin/bash\ncat lines | sort | wc -l\necho end\n")
    job.chmod(0o755)
    observed = watch.run("./job.sh | tee log")
    outer = observed.only("job.sh|tee")
    inner = observed.only("cat|sort|wc")
    assert (outer.parent, inner.parent) == (None, outer.id)


def test_an_outer_stage_holds_the_time_of_the_runs_inside(watch: Watch) -> None:
    observed = watch.run("bash -c 'burn 100 | burn 100; true' | cat")
    outer, inner = observed.only("bash|cat"), observed.only("burn|burn")
    assert outer.stages[0].cpu_seconds >= inner.cpu_seconds


def test_edges_join_writers_and_readers(watch: Watch, lines: Path) -> None:
    run = watch.run("cat lines | tee >(gzip > z) >(wc -l > n) > copy").only("cat|tee|(gzip,wc)")
    names = [stage.command for stage in run.stages]
    edges = sorted((names[writer], names[reader]) for writer, reader in run.edges)
    assert edges == [("cat", "tee"), ("tee", "gzip"), ("tee", "wc")]


@pytest.mark.real_time
def test_a_hundred_pipelines_at_once_are_a_hundred_runs(watch: Watch) -> None:
    # none ends before all have begun, however long that takes
    held = "{ echo >> begun; until [ -e go ]; do sleep 1; done; sort; }"
    script = f"""
        touch begun
        for i in {{1..100}}; do seq 100 | {held} | wc -l & done
        until mapfile -t begun < begun; [ ${{#begun[@]}} -eq 100 ]; do sleep 0.1; done
        touch go
        wait
    """
    observed = watch.run(script)
    assert observed.stdout.split() == ["100"] * 100
    assert [run.pipeline for run in observed.runs] == ["seq|bash|wc"] * 100
    assert max(run.start for run in observed.runs) < min(run.end or 0 for run in observed.runs)


def test_runs_of_other_processes_are_not_seen(watch: Watch) -> None:
    observed = watch.run("true")
    assert observed.runs == []


def test_output_is_the_same_under_observation(watch: Watch, lines: Path) -> None:
    script = "cat lines | sort | awk '{ n += $1 } END { print n }' | sed s/^/sum=/"
    assert watch.run(script).stdout == f"sum={sum(i * 7919 % 2003 for i in range(2000))}\n"


@pytest.fixture
def latecomer(configure: Configure) -> Iterator[Observer]:
    """An observer of the whole host that is opened after the pipeline began."""
    with Observer.open(configure()) as observer:
        yield observer


@pytest.mark.parametrize(
    ("script", "signature"),
    [
        ("yes | tr y n | wc -c", "yes|tr|wc"),
        ("sleep 300 | cat | wc -c", "sleep|cat|wc"),
        ("yes | while read -r x; do echo $x; done | wc -c", "yes|bash|wc"),
        ("yes | sh -c 'timeout --foreground 300 cat; true' > /dev/null", "yes|sh"),
    ],
)
def test_pipelines_older_than_the_observer_are_partial(
    watch: Watch, request: pytest.FixtureRequest, script: str, signature: str
) -> None:
    started = watch.start(script)
    try:
        pids = {stage.pid for stage in watch.live(signature).stages}
        time.sleep(0.2)
        late: Observer = request.getfixturevalue("latecomer")
        late.sweep()
        time.sleep(0.2)
        late.sweep()
        live = [run for run in late.runs() if pids & {stage.pid for stage in run.stages}]
    finally:
        started.kill()
        started.finish()
    late.settle()
    ended = [run for run in late.runs() if pids & {stage.pid for stage in run.stages}]
    assert [(run.pipeline, run.partial, run.live) for run in live] == [(signature, True, True)]
    assert [(run.pipeline, run.partial, run.live) for run in ended] == [(signature, True, False)]
    assert ended[0].wall_seconds >= 0.2
    assert {stage.pid for stage in ended[0].stages} == pids


def test_pipelines_younger_than_the_observer_are_whole(
    watch: Watch, latecomer: Observer, lines: Path
) -> None:
    pids = {stage.pid for stage in watch.run("cat lines | sort | wc -l").runs[0].stages}
    latecomer.settle()
    mine = [run for run in latecomer.runs() if pids & {stage.pid for stage in run.stages}]
    assert [(run.pipeline, run.partial) for run in mine] == [("cat|sort|wc", False)]


def test_a_stopped_stage_is_stopped(watch: Watch) -> None:
    started = watch.start("sleep 10 | cat")
    run = watch.live("sleep|cat")
    sleep, cat = (stage.pid for stage in run.stages)
    os.kill(cat, signal.SIGSTOP)
    # it stops when it next has a CPU
    while Path(f"/proc/{cat}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.001)
    time.sleep(0.2)
    os.kill(cat, signal.SIGCONT)
    os.kill(sleep, signal.SIGTERM)
    stage = started.finish().only("sleep|cat").stages[1]
    assert stage.states["stopped"] > 0.15


def test_a_frozen_stage_is_stopped(watch: Watch, make_cgroup: Callable[[str], Path]) -> None:
    """As `docker pause` and `systemctl freeze` do it: by the freezer of cgroup v2."""
    group = make_cgroup(f"pipelined-frozen-{os.getpid()}")
    started = watch.start("sleep 10 | cat")
    run = watch.live("sleep|cat")
    sleep, cat = (stage.pid for stage in run.stages)
    home = Path(f"/proc/{cat}/cgroup").read_text().rpartition("::")[2].strip()
    (group / "cgroup.procs").write_text(str(cat))
    try:
        (group / "cgroup.freeze").write_text("1")
        while "frozen 1" not in (group / "cgroup.events").read_text():
            time.sleep(0.001)
        time.sleep(0.2)
    finally:
        (group / "cgroup.freeze").write_text("0")
        (group.parent / home.lstrip("/") / "cgroup.procs").write_text(str(cat))
    os.kill(sleep, signal.SIGTERM)
    stage = started.finish().only("sleep|cat").stages[1]
    assert stage.states["stopped"] > 0.15


@pytest.mark.parametrize(
    "script", ["sleep 1 | cat", "out=$(sleep 1 | cat)"], ids=["closed", "read by the shell"]
)
def test_the_sweep_that_sees_the_last_stage_gone_ends_the_run(watch: Watch, script: str) -> None:
    counted = watch.counted()
    started = watch.start(f"{script}; sleep 60")
    try:
        run = watch.live("sleep|cat")
        last = run.stages[1].pid
        while Path(f"/proc/{last}").exists():
            time.sleep(0.001)

        def all_stages_gone() -> Run | None:
            watch.observer.sweep()
            (found,) = [found for found in watch.observer.runs() if found.id == run.id]
            return found if all(stage.end for stage in found.stages) else None

        # it can be waited for before it leaves its CPU for the last time
        ended: Run = wait_for(all_stages_gone, "the end of the stages")
        assert not ended.live
    finally:
        started.kill()
        started.finish()
    assert watch.counted()["sleep|cat", False] == counted["sleep|cat", False] + 1


def test_every_shell_and_tool_of_the_table_is_here() -> None:
    needed = ("bash", "dash", "zsh", "busybox", "mawk", "gawk", "perl", "make", "flock", "gzip")
    assert [tool for tool in needed if not shutil.which(tool)] == []
