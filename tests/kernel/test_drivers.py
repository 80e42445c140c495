# SPDX-License-Identifier: Apache-2.0
"""A driver starts pipelines and outlives them: each is counted, and is over while the driver lives.

Every driver is a real program. When its pipelines are over it reads a FIFO, `gate`, and stays there
until the test has seen that none of them is live (`Watch.drive`).
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from kernel.conftest import GAP, count
from pipelined.runs import Run

if TYPE_CHECKING:
    from kernel.conftest import Observed, Watch

PYTHON = "/usr/bin/python3"


@dataclass(frozen=True)
class Driver:
    name: str
    command: tuple[str, ...]
    """The source, if there is one, is a file of this name in the directory: `driver`."""
    source: str
    top: Mapping[str, int]
    """How many top-level runs of which signature."""
    nested: Mapping[str, int] = field(default_factory=dict)
    live: tuple[str, ...] = ()
    """Signatures of the runs that last as long as the driver."""
    at_once: int = 1
    """How many top-level runs there are at one moment at most."""
    polled: str = ""
    """The runs that the driver is a stage of if it is seen to read from its child, and around those
    of `top` then. A driver that polls its pipes, and never sleeps in a read, may not be seen to."""
    files: Mapping[str, str] = field(default_factory=dict)


PYTHON_HEAD = """
import subprocess, threading, time
from concurrent.futures import ThreadPoolExecutor
from subprocess import PIPE, Popen

def shell(command):
    subprocess.run(command, shell=True, check=True)

def chain(*commands, out=None):
    \"\"\"What `a | b | c` starts; the end is read, or goes to a file.\"\"\"
    before, processes = None, []
    for at, command in enumerate(commands, start=1):
        stdout = out if out and at == len(commands) else PIPE
        processes.append(Popen(command, stdin=before, stdout=stdout))
        if before:
            before.close()
        before = processes[-1].stdout
    read = b"" if out else before.read()
    for process in processes:
        assert process.wait() == 0
    return read

def to_file(*commands):
    with open("/dev/null", "wb") as out:
        chain(*commands, out=out)

def idle():
    open("gate").read()

# late enough for its reader to sleep: one that never waits is not seen
SEQ = ["sh", "-c", "sleep 0.3; exec seq 10"]
"""


def python(name: str, source: str, top: Mapping[str, int], **more: object) -> Driver:
    source = f"{PYTHON_HEAD}{source}\nidle()\n"
    return Driver(f"python: {name}", (PYTHON, "driver"), source, top, **more)  # type: ignore[arg-type]


#: What a CI job is: many pipelines, with output in two pipes, whose reader sleeps before the first.
JOB = """#!/bin/bash
sleep 0.3
for i in {1..5}; do
    sleep 0.02
    seq 10 | sort
    echo step $i >&2
    seq 5 | uniq | wc -l
done
"""

AGENT = """
def follow(pipe):
    for line in pipe:
        pass
    pipe.close()

def job():
    bash = Popen(["bash", "job.sh"], stdout=PIPE, stderr=PIPE)
    threads = [threading.Thread(target=follow, args=[end]) for end in (bash.stdout, bash.stderr)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bash.wait() == 0

job()
job()
"""

NODE = """
const { exec, execSync, spawn } = require("child_process");
const ended = (child) => new Promise((resolve) => child.on("close", resolve));
(async () => {
    for (let i = 0; i < 3; i++)
        await new Promise((resolve) => exec("seq 10 | sort", resolve));
    for (let i = 0; i < 3; i++) {
        const child = spawn("sh", ["-c", "seq 5 | uniq | wc -l"]);
        child.stdout.on("data", () => {});
        child.stderr.on("data", () => {});
        await ended(child);
    }
    execSync("seq 10 | tac");
    const seq = spawn("seq", ["100"]), sort = spawn("sort");
    seq.stdout.pipe(sort.stdin);
    sort.stdout.on("data", () => {});
    await Promise.all([ended(seq), ended(sort)]);
    require("fs").readFileSync("gate");
})();
"""
NODE_AGENT = """
const { spawn } = require("child_process");
const job = () => new Promise((resolve) => {
    const bash = spawn("bash", ["job.sh"]);
    bash.stdout.on("data", () => {});
    bash.stderr.on("data", () => {});
    bash.on("close", resolve);
});
(async () => {
    await job();
    await job();
    require("fs").readFileSync("gate");
})();
"""

PERL = """
for (1 .. 3) { my $all = `sleep 0.3; seq 10 | sort`; }
for (1 .. 3) {
    open(my $pipe, "sleep 0.3; seq 10 | sort |") or die;
    while (<$pipe>) { $n++ }
    close($pipe);
}
system("seq 5 | uniq | wc -l > /dev/null") for 1 .. 3;
open(my $gate, "<", "gate") or die;
<$gate>;
"""
RUBY = """
3.times { `seq 10 | sort` }
3.times { IO.popen("seq 10 | sort") { |io| io.each_line { |line| line } } }
3.times { system("seq 5 | uniq | wc -l > /dev/null") }
File.read("gate")
"""

MAKEFILE = """
lines := $(shell seq 9 | tac)
all: a b c d
	@read gate < gate || true
a b c d:
	@seq 10 | sort > $@
"""

DRIVERS = [
    python(
        "run with its output captured",
        """
for _ in range(10):
    subprocess.run("seq 10 | sort", shell=True, capture_output=True, check=True)
""",
        {"seq|sort": 10},
        polled="sh|python3",
    ),
    python(
        "check_output once, then others",
        """
subprocess.check_output("sleep 0.3; seq 10 | sort", shell=True)
for _ in range(5):
    shell("seq 20 | uniq | wc -l > /dev/null")
    to_file(["seq", "20"], ["tac"])
""",
        {"sh|python3": 1, "seq|uniq|wc": 5, "seq|tac": 5},
        nested={"seq|sort": 1},
    ),
    python(
        "Popen chains of which it reads the end",
        """
for _ in range(5):
    assert len(chain(SEQ, ["sort"])) == 21
""",
        {"seq|sort|python3": 5},
    ),
    python(
        "Popen chains from 4 threads at once",
        """
def work():
    for _ in range(5):
        to_file(["seq", "10"], ["sort"], ["uniq"])
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
""",
        {"seq|sort|uniq": 20},
        at_once=4,
    ),
    python(
        "4 of 40 at a time",
        """
with ThreadPoolExecutor(4) as pool:
    list(pool.map(shell, ["seq 10 | sort > /dev/null"] * 40))
""",
        {"seq|sort": 40},
        at_once=4,
    ),
    python(
        "4 of 40 at a time, their output captured",
        """
def captured(command):
    assert len(subprocess.run(command, shell=True, capture_output=True).stdout) == 21
with ThreadPoolExecutor(4) as pool:
    list(pool.map(captured, ["seq 10 | sort"] * 40))
""",
        {"seq|sort": 40},
        at_once=4,
        polled="sh|python3",
    ),
    python(
        "a child's lines, twice",
        """
import gzip
gzip.open("lines.gz", "wt").write("some text\\n" * 5000)
for _ in range(2):
    with Popen("sleep 0.3; exec zcat lines.gz", shell=True, stdout=PIPE) as zcat:
        assert sum(len(line.split()) for line in zcat.stdout) == 10_000
""",
        {"zcat|python3": 2},
    ),
    python(
        "pipelines while it reads a child's lines, and after",
        """
child = "sleep 0.3; seq 3; until [ -e done ]; do sleep 0.02; done"
with Popen(child, shell=True, stdout=PIPE) as lines:
    for _ in range(3):
        lines.stdout.readline()
        shell("seq 10 | sort > /dev/null")
    open("done", "w").close()
    assert lines.stdout.read() == b""
for _ in range(3):
    shell("seq 10 | sort > /dev/null")
""",
        {"sh|python3": 1, "seq|sort": 3},
        nested={"seq|sort": 3},
    ),
    python(
        "a CI agent, stdout and stderr in a pipe each",
        AGENT,
        {"bash|python3": 2},
        nested={"seq|sort": 10, "seq|uniq|wc": 10},
        files={"job.sh": JOB},
    ),
    python(
        "three children that it feeds, one after the other",
        """
for _ in range(3):
    with Popen(["sh", "-c", "sleep 0.02; exec sort -o sorted"], stdin=PIPE) as sort:
        sort.stdin.write(b"b\\na\\n" * 50_000)
""",
        {"python3|sort": 3},
    ),
    python(
        "a child that it feeds with little, then others",
        """
with Popen(["sh", "-c", "sleep 0.02; exec sort -o sorted"], stdin=PIPE) as sort:
    sort.stdin.write(b"b\\na\\n")
for _ in range(3):
    shell("seq 10 | sort > /dev/null")
""",
        {"python3|sort": 1, "seq|sort": 3},
    ),
    python(
        "from one child to the next, through itself",
        """
for _ in range(3):
    lines = "for i in 1 2 3 4 5 6; do sleep 0.05; echo $i; done"
    sort = Popen(["sort", "-o", "sorted"], stdin=PIPE)
    with Popen(lines, shell=True, stdout=PIPE) as sh, sort:
        for line in sh.stdout:
            sort.stdin.write(line * 50_000)
""",
        {"sh|python3|sort": 3},
    ),
    # what Node.js gives its children as stdio are sockets, no pipes
    Driver(
        "node: exec, spawn, execSync",
        ("node", "driver"),
        NODE,
        {"seq|sort": 3, "seq|uniq|wc": 3, "seq|tac": 1},
    ),
    Driver(
        "node: a CI agent",
        ("node", "driver"),
        NODE_AGENT,
        {"seq|sort": 10, "seq|uniq|wc": 10},
        files={"job.sh": JOB},
    ),
    Driver(
        "perl: backticks, open, system",
        ("perl", "driver"),
        PERL,
        {"sh|perl": 6, "seq|uniq|wc": 3},
        nested={"seq|sort": 6},
    ),
    Driver(
        "perl: a pipe to a child",
        ("perl", "driver"),
        """
for (1 .. 3) {
    open(my $pipe, "| exec sort > sorted") or die;
    print $pipe "b\\na\\n" x 50_000;
    close($pipe);
}
system("seq 5 | uniq | wc -l > /dev/null");
open(my $gate, "<", "gate") or die;
<$gate>;
""",
        {"perl|sort": 3, "seq|uniq|wc": 1},
    ),
    Driver(
        "awk: a pipe to a child",
        ("awk", "-f", "driver"),
        """
BEGIN {
    for (turn = 1; turn <= 3; turn++) {
        for (line = 1; line <= 50000; line++) print line | "exec sort > sorted"
        close("exec sort > sorted")
    }
    getline < "gate"
}
""",
        {"awk|sort": 3},
    ),
    Driver(
        "ruby: backticks, IO.popen, system",
        ("ruby", "driver"),
        RUBY,
        {"seq|sort": 6, "seq|uniq|wc": 3},
        polled="sh|ruby",
    ),
    Driver("make", ("make", "-s", "-f", "driver"), MAKEFILE, {"seq|tac": 1, "seq|sort": 4}),
    Driver(
        "make -j",
        ("make", "-s", "-j4", "-f", "driver"),
        MAKEFILE,
        {"seq|tac": 1, "seq|sort": 4},
        at_once=4,
    ),
    Driver(
        "make into tee",
        ("sh", "-c", "make -s -f driver | tee log"),
        MAKEFILE,
        {"make|tee": 1},
        nested={"seq|tac": 1, "seq|sort": 4},
        live=("make|tee",),
    ),
    Driver(
        "make -j into tee",
        ("sh", "-c", "make -s -j4 -f driver | tee log"),
        MAKEFILE,
        {"make|tee": 1},
        nested={"seq|tac": 1, "seq|sort": 4},
        live=("make|tee",),
    ),
    Driver(
        "a script into tee",
        ("bash", "-c", "./script.sh 2>&1 | tee log"),
        "",
        {"script.sh|tee": 1},
        nested={"seq|sort": 10, "seq|uniq|wc": 5},
        live=("script.sh|tee",),
        files={
            "script.sh": f"{JOB}for i in {{1..5}}; do x=$(seq 10 | sort); done\n"
            "read -r gate < gate || true\n"
        },
    ),
    Driver(
        "cron: a pipe from the job to the daemon",
        ("cron", "3", "sleep 0.3; seq 10 | sort; seq 5 | uniq | wc -l"),
        "",
        {"seq|sort": 3, "seq|uniq|wc": 3},
    ),
]


def drive(
    watch: Watch,
    command: Sequence[str],
    source: str,
    files: Mapping[str, str] | None = None,
    live: Sequence[str] = (),
) -> Observed:
    """Run a driver; its runs, which are also what the totals have counted."""
    for name, text in {"driver": source, **(files or {})}.items():
        path = watch.directory / name
        path.write_text(text)
        path.chmod(0o755)
    before = watch.counted()
    observed = watch.drive(*command, live=live)
    assert observed.returncode == 0, observed.stderr
    counted = watch.counted()
    counted.subtract(before)
    assert +counted == count(run.series for run in observed.runs)
    return observed


def drive_python(watch: Watch, source: str) -> Observed:
    return drive(watch, (PYTHON, "driver"), f"{PYTHON_HEAD}{source}\nidle()\n")


def most_at_once(runs: Sequence[Run]) -> int:
    """How many of these runs there were at the fullest moment."""
    began = [(run.start + GAP, 1) for run in runs]
    ended = [((run.end or 0) - GAP, -1) for run in runs]
    now = most = 0
    for _, change in sorted(began + ended):
        now += change
        most = max(most, now)
    return most


@pytest.mark.parametrize(
    "driver",
    [
        pytest.param(
            driver,
            id=driver.name,
            marks=[pytest.mark.thorough] * ("check_output" not in driver.name),
        )
        for driver in DRIVERS
    ],
)
def test_each_pipeline_of_a_driver_is_counted_and_over_while_the_driver_lives(
    driver: Driver, watch: Watch
) -> None:
    observed = drive(watch, driver.command, driver.source, driver.files, driver.live)
    if driver.polled:
        counted = Counter(run.pipeline for run in observed.runs if run.pipeline != driver.polled)
        assert counted == driver.top
    else:
        top = {(name, False): number for name, number in driver.top.items()}
        nested = {(name, True): number for name, number in driver.nested.items()}
        assert count(run.series for run in observed.runs) == top | nested
    assert most_at_once([run for run in observed.runs if run.parent is None]) <= driver.at_once
    # what is nested lies in a top-level run, and within its time
    around = {run.id: run for run in observed.runs if run.parent is None}
    for run in observed.runs:
        if run.series.nested:
            outer = around[run.parent or ""]
            assert outer.start - GAP <= run.start, run.pipeline
            assert (run.end or 0) <= (outer.end or 0) + GAP, run.pipeline


#: Prints, as JSON, the Unix times between which each of its pipelines ran.
TIMED = """
import json
def timed(command, capture):
    began = time.time()
    if capture:
        subprocess.check_output(command)
    else:
        subprocess.run(command)
    times.append([began, time.time()])
times = []
for capture in (False, True, False, True, False):
    timed(["sh", "-c", "sleep 0.2 | cat"], capture)
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
print(json.dumps(times), flush=True)
"""


@pytest.mark.thorough
def test_a_run_lasts_as_long_as_its_pipeline_not_as_its_driver(watch: Watch) -> None:
    observed = drive_python(watch, TIMED)
    runs = sorted((r for r in observed.runs if r.pipeline == "sleep|cat"), key=lambda r: r.start)
    assert [run.series.nested for run in runs] == [False, True, False, True, False]
    for run, (began, ended) in zip(runs, json.loads(observed.stdout), strict=True):
        assert run.wall_seconds >= 0.2
        assert began - GAP <= run.start and (run.end or 0) <= ended + GAP


#: Reads three children in turn. While it reads it computes, and between them it computes more.
#: Prints the Unix times around each child, and the seconds that it was on CPU meanwhile.
READS_IN_TURN = """
import json, os
def compute(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
times = []
for turn in range(3):
    compute(0.1)
    child = (
        "for i in 1 2 3 4; do sleep 0.05; echo $i;"
        f" until [ -e worked-on-{turn}-$i ]; do sleep 0.01; done; done"
    )
    began, before = time.time(), time.process_time()
    with Popen(child, shell=True, stdout=PIPE) as lines:
        for line in lines.stdout:
            compute(0.02)
            os.mkdir(f"worked-on-{turn}-{int(line)}")
    times.append([began, time.time(), time.process_time() - before])
compute(0.1)
print(json.dumps(times), flush=True)
"""


@pytest.mark.real_time
@pytest.mark.undisturbed
def test_an_interpreter_is_a_stage_only_while_the_child_that_it_reads_lives(watch: Watch) -> None:
    observed = drive_python(watch, READS_IN_TURN)
    runs = sorted(observed.runs, key=lambda run: run.start)
    assert [(run.pipeline, run.series.nested) for run in runs] == [("sh|python3", False)] * 3
    for run, (began, ended, cpu) in zip(runs, json.loads(observed.stdout), strict=True):
        assert began - GAP <= run.start and (run.end or 0) <= ended + GAP
        # the child is forked before, and ends after the last line has been worked on
        assert 0.7 * cpu <= run.stages[1].cpu_seconds <= cpu + GAP
    assert all((a.end or 0) <= b.start + GAP for a, b in pairwise(runs))


#: Reads a child of its own, then writes more than a pipe holds to its parent, which reads late.
READS_THEN_WRITES = """
import sys
with Popen("echo a; sleep 1", shell=True, stdout=PIPE) as child:
    child.stdout.readline()
    sys.stdout.write("a" * 300_000)
    sys.stdout.flush()
time.sleep(0.5)
sys.exit(3)
"""
READS_LATE = f"""
with Popen(["{PYTHON}", "reader"], stdout=PIPE) as reader:
    time.sleep(0.5)
    assert len(reader.stdout.read()) == 300_000
"""


def test_a_driver_that_writes_to_its_parent_is_a_stage_to_its_end(watch: Watch) -> None:
    """Whichever of its pipes is seen first."""
    reader = {"reader": f"{PYTHON_HEAD}{READS_THEN_WRITES}"}
    observed = drive(watch, (PYTHON, "driver"), f"{PYTHON_HEAD}{READS_LATE}\nidle()\n", reader)
    (run,) = observed.runs
    assert run.wall_seconds > 1.4
    assert [stage.exit and stage.exit.code for stage in run.stages[:2]] == [0, 3]


TWO_AT_ONCE = """
def read(seconds):
    with Popen(["sh", "-c", f"sleep {seconds}; exec seq 1000"], stdout=PIPE) as child:
        assert len(child.stdout.readlines()) == 1000
for _ in range(2):
    threads = [threading.Thread(target=read, args=[seconds]) for seconds in (0.2, 0.3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


@pytest.mark.thorough
def test_threads_that_read_a_child_each_are_in_a_run_each(watch: Watch) -> None:
    observed = drive_python(watch, TWO_AT_ONCE)
    assert count(run.series for run in observed.runs) == {("seq|python3", False): 4}
    for run in observed.runs:
        assert [stage.place for stage in run.stages] == [(1, "seq"), (2, "python3")]


#: Both children live until both have been read from, and are slow enough for it to sleep.
TWO_READ_AT_ONCE = """
child = "sleep {}; echo line; until [ -e done ]; do sleep 0.02; done"
children = [Popen(child.format(delay), shell=True, stdout=PIPE) for delay in (0.2, 0.6)]
for child in children:
    child.stdout.readline()
open("done", "w").close()
for child in children:
    child.communicate()
"""


@pytest.mark.thorough
def test_children_that_one_thread_reads_are_branches_of_one_run(watch: Watch) -> None:
    observed = drive_python(watch, TWO_READ_AT_ONCE)
    assert count(run.series for run in observed.runs) == {("sh|python3", False): 1}
    assert [stage.place for stage in observed.runs[0].stages] == [
        (1, "sh"),
        (1, "sh"),
        (2, "python3"),
    ]


THREADS_READ = """
SEQ = ["sh", "-c", "sleep 0.4; exec seq 10"]
def work():
    for _ in range(5):
        assert len(chain(SEQ, ["sort"])) == 21
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.real_time
def test_of_chains_that_four_threads_read_no_stage_is_missing_or_counted_twice(
    watch: Watch,
) -> None:
    """How many runs they are depends on which of them overlap."""
    observed = drive_python(watch, THREADS_READ)
    assert {(r.pipeline, r.series.nested) for r in observed.runs} == {("seq|sort|python3", False)}
    pids = [(stage.command, stage.pid) for run in observed.runs for stage in run.stages[:-1]]
    assert Counter(command for command, _ in pids) == {"seq": 20, "sort": 20}
    assert len(set(pids)) == 40


#: What a shell may write to the pipe itself; what dash forks a writer for; what no pipe can hold.
SMALL, PAGES, LARGE = (f"{'a' * 79}\n" * lines for lines in (2, 250, 1250))
DOCUMENTS = {
    "a here-document": "cat <<'END' > out\n{text}END\n",
    "a here-document with an expansion": "x=1\ncat <<END > out\n$x\n{text}END\n",
    "a here-document of a loop": "while read -r x; do y=$x; done <<'END'\n{text}END\n",
    "a here-document of a shell's child": "(cat; true) <<'END' > out\n{text}END\n",
    "a here-string": "cat <<< '{text}' > out\n",
    "a here-string of a loop": "while read -r x; do y=$x; done <<< '{text}'\n",
}


@pytest.mark.thorough
@pytest.mark.parametrize("shell", ["bash", "dash", "zsh -f"])
def test_here_documents_and_here_strings_make_no_pipeline(shell: str, watch: Watch) -> None:
    script = watch.directory / "script"
    for name, template in DOCUMENTS.items():
        if shell == "dash" and "<<<" in template:
            continue
        for text in (SMALL, PAGES, LARGE):
            script.write_text(template.format(text=text))
            observed = watch.run_command(*shell.split(), "script")
            assert observed.returncode == 0, observed.stderr
            assert observed.runs == [], f"{name} of {len(text)} bytes"


@pytest.mark.thorough
def test_a_here_document_at_the_start_of_a_pipeline_is_no_stage(watch: Watch) -> None:
    for shell in ("bash", "dash", "zsh -f"):
        observed = watch.run(f"cat <<'END' | sort\n{PAGES}END\n", shell)
        assert [run.pipeline for run in observed.runs] == ["cat|sort"], shell


@pytest.mark.thorough
def test_a_parent_that_was_asleep_when_it_was_found_waits_for_its_child(watch: Watch) -> None:
    """awk reads before its child has exec'd: only by that exec it is a stage."""
    commands = '"sleep 0.5; exec seq 9"'
    run = watch.run(f"mawk 'BEGIN {{ while (({commands} | getline x) > 0) n++ }}'").only("seq|mawk")
    states = run.stages[1].states
    assert states["pipe_empty"] > 0.4
    assert states["other"] < 0.05


def test_every_driver_of_the_table_is_here() -> None:
    needed = sorted({driver.command[0] for driver in DRIVERS if driver.command[0] != "cron"})
    assert [program for program in needed if not shutil.which(program)] == []


#: Its children exec on one CPU while it begins to read from them on another. They live long enough
#: for that also if it has to wait for a CPU.
READS_MANY = """
for _ in range(300):
    with Popen("sleep 0.02; echo a", shell=True, stdout=PIPE) as lines:
        assert lines.stdout.read() == b"a\\n"
"""
STARTS_READERS = f"""
readers = [Popen(["{PYTHON}", "reader"]) for _ in range(3)]
assert [reader.wait() for reader in readers] == [0, 0, 0]
"""


@pytest.mark.real_time
@pytest.mark.undisturbed
def test_a_driver_and_a_child_that_find_each_other_at_once_make_one_run(watch: Watch) -> None:
    reader = {"reader": f"{PYTHON_HEAD}{READS_MANY}"}
    observed = drive(watch, (PYTHON, "driver"), f"{PYTHON_HEAD}{STARTS_READERS}\nidle()\n", reader)
    assert {(run.pipeline, len(run.stages)) for run in observed.runs} == {("sh|python3", 2)}
    # one that has written and ended before the driver came to read is not known to be read from
    assert 800 < len(observed.runs) <= 900
