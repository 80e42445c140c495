# SPDX-License-Identifier: Apache-2.0
"""Two stages that are joined in both directions are a conversation, and no pipeline.

It is in no list of runs and in no total, and is not handed on as finished. What one that converses
starts is judged like anything else.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from kernel.conftest import PATIENCE, count, wait_for
from pipelined.observer import Observer
from pipelined.runs import Run, Series

if TYPE_CHECKING:
    from kernel.conftest import Observed, Watch

pytestmark = pytest.mark.thorough

PYTHON = "/usr/bin/python3"
#: The browser itself: `chromium` is a shell script that has pipelines of its own.
CHROMIUM = "/usr/lib/chromium/chromium"


@dataclass(frozen=True)
class Talk:
    name: str
    script: str
    """For bash."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Made in the directory first, executable."""
    found: Mapping[str, int] = field(default_factory=dict)
    """Top-level runs by signature: pipelines that there are besides."""
    fed: frozenset[str] = frozenset()
    """Signatures of runs that there may be, too: what is fed by one of those that converse."""


COMMUNICATE = """
import subprocess
from subprocess import PIPE
for _ in range(3):
    with subprocess.Popen(["sort"], stdin=PIPE, stdout=PIPE) as sort:
        out, _ = sort.communicate(b"b\\na\\n" * 50_000)
        assert len(out) == 200_000
done = subprocess.run(["tr", "a", "b"], input=b"a" * 100_000, stdout=PIPE, stderr=PIPE)
assert done.stdout == b"b" * 100_000
"""

#: At the fork the parent can write to three pipes, one of Popen's own. It has closed two when cat
#: is looked at.
CLOSED = """
from subprocess import PIPE, Popen
for _ in range(3):
    with Popen(["cat"], stdin=PIPE, stdout=PIPE) as cat:
        cat.stdin.write(b"a")
        cat.stdin.close()
        assert cat.stdout.read() == b"a"
"""

#: A language server: `Content-Length: N`, an empty line, and N bytes of JSON, both ways.
SERVER = """
import json, subprocess, sys
def read(file):
    length = None
    while (line := file.readline()) not in (b"\\r\\n", b""):
        length = int(line.split(b":")[1])
    return json.loads(file.read(length)) if length is not None else None
def write(file, message):
    body = json.dumps(message).encode()
    file.write(b"Content-Length: %d\\r\\n\\r\\n%s" % (len(body), body))
    file.flush()
def serve():
    while request := read(sys.stdin.buffer):
        if request["method"] == "sort":
            subprocess.run("seq 10 | sort > /dev/null", shell=True, check=True)
        write(sys.stdout.buffer, {"id": request["id"], "result": request["params"]})
if __name__ == "__main__":
    serve()
"""
NODE_SERVER = """
let seen = Buffer.alloc(0);
process.stdin.on("data", (data) => {
    seen = Buffer.concat([seen, data]);
    for (;;) {
        const head = seen.indexOf("\\r\\n\\r\\n");
        const length = head < 0 ? 0 : Number(/Content-Length: (\\d+)/.exec(seen.toString())[1]);
        if (head < 0 || seen.length < head + 4 + length) return;
        const request = JSON.parse(seen.subarray(head + 4, head + 4 + length));
        seen = seen.subarray(head + 4 + length);
        const body = JSON.stringify({ id: request.id, result: request.params });
        process.stdout.write(`Content-Length: ${Buffer.byteLength(body)}\\r\\n\\r\\n${body}`);
    }
});
"""
CLIENT = """
import subprocess, sys
sys.dont_write_bytecode = True
from server import read, write
from subprocess import PIPE
with subprocess.Popen(sys.argv[2:], stdin=PIPE, stdout=PIPE) as server:
    for id in range(300):
        method = sys.argv[1] if id % 100 == 50 else "echo"
        write(server.stdin, {"id": id, "method": method, "params": ["x" * id]})
        assert read(server.stdout) == {"id": id, "result": ["x" * id]}
    server.stdin.close()
"""

#: Processes that multiprocessing forks: calls go to them through one pipe, results come by another.
POOL = """
import multiprocessing, subprocess
from concurrent.futures import ProcessPoolExecutor
def work(number):
    subprocess.run("seq 10 | sort > /dev/null", shell=True, check=True)
    return "x" * number
if __name__ == "__main__":
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(4, mp_context=fork) as pool:
        assert list(map(len, pool.map(work, range(20)))) == list(range(20))
"""

GIT = """
git init -q there; cd there
for i in 1 2 3; do
    seq 50000 > $i; git add $i
    git -c user.name=n -c user.email=e commit -q -m $i
done
cd ..
"""

HELPER = """#!/bin/bash
read -r capabilities
printf 'connect\\n\\n'
read -r connect
echo
exec git-upload-pack "$2"
"""

TALKS = [
    Talk("python: communicate", f"{PYTHON} talk.py", {"talk.py": COMMUNICATE}),
    Talk("python: Popen asks and closes at once", f"{PYTHON} talk.py", {"talk.py": CLOSED}),
    Talk(
        "a language server in Python",
        f"{PYTHON} client.py echo {PYTHON} server.py",
        {"client.py": CLIENT, "server.py": SERVER},
    ),
    Talk(
        "a language server in Node.js",
        f"{PYTHON} client.py echo node server.js",
        {"client.py": CLIENT, "server.py": SERVER, "server.js": NODE_SERVER},
    ),
    Talk(
        "a language server that runs pipelines",
        f"{PYTHON} client.py sort {PYTHON} server.py",
        {"client.py": CLIENT, "server.py": SERVER},
        found={"seq|sort": 3},
    ),
    Talk(
        "a pool of Python processes that run pipelines",
        f"{PYTHON} pool.py",
        {"pool.py": POOL},
        found={"seq|sort": 20},
    ),
    Talk(
        "bash: a coprocess",
        "coproc while read -r x; do echo $((x + 1)); done; "
        "for i in {1..50}; do echo $i; read -r x <&${COPROC[0]}; done >&${COPROC[1]}",
    ),
    Talk(
        "bash: bc as a coprocess",
        "coproc bc; for i in {1..50}; do echo $i + 1; read -r x <&${COPROC[0]}; "
        '[ "$x" = $((i + 1)) ] || exit 9; done >&${COPROC[1]}',
    ),
    Talk(
        "zsh: bc as a coprocess",
        "zsh -f -c 'coproc bc; for i in {1..50}; do print -p $i + 1; read -p x; done'; true",
    ),
    Talk(
        "gawk: bc as a coprocess of a stage",
        """seq 50 | gawk '{ print |& "bc"; "bc" |& getline x; print x }' | wc -l""",
        found={"seq|gawk|wc": 1},
    ),
    Talk(
        "a pipeline beside a coprocess",
        "coproc bc; echo 1 >&${COPROC[1]}; read -r x <&${COPROC[0]}; "
        "for i in 1 2 3; do seq 10 | sort > out; done; "
        "echo 2 >&${COPROC[1]}; read -r x <&${COPROC[0]}",
        found={"seq|sort": 3},
    ),
    # git feeds `git rev-list` at the end, which does not answer
    Talk(
        "git clone from a file",
        f"{GIT} git clone -q file://$PWD/there here",
        fed=frozenset({"git|git"}),
    ),
    Talk(
        "git clone by a remote helper",
        f"{GIT} PATH=$PWD:$PATH git clone -q helper::there here",
        {"git-remote-helper": HELPER},
        fed=frozenset({"git|git"}),
    ),
    Talk(
        "a FIFO back, two stages",
        "mkfifo f; ./first.sh < f | ./last.sh > f",
        {
            "first.sh": "#!/bin/bash\nwhile read -r x && [ $x -lt 50 ]; do echo $((x + 1)); done\n",
            "last.sh": "#!/bin/bash\necho 0\nwhile read -r x; do echo $x; done\n",
        },
    ),
]


def joined_both_ways(run: Run) -> bool:
    return any((reader, writer) in run.edges for writer, reader in run.edges)


def run_seconds(observer: Observer) -> dict[tuple[str, bool], float]:
    return {
        (series.pipeline, series.nested): totals.run_seconds
        for series, totals in observer.totals().items()
    }


@pytest.fixture
def talk(watch: Watch, finished: list[Series]) -> Callable[[Talk], Observed]:
    """Runs a conversation, and checks that there is no run of it, even for a while."""

    def run(item: Talk) -> Observed:
        for name, text in item.files.items():
            path = watch.directory / name
            path.write_text(text)
            path.chmod(0o755)
        before, seconds = watch.counted(), run_seconds(watch.observer)
        known = {run.id for run in watch.observer.runs()}
        seen: set[tuple[str, bool]] = set()
        started = watch.start(item.script)
        end = time.monotonic() + 120
        while started.alive() and time.monotonic() < end:
            watch.observer.sweep()
            seen |= set(count(run.series for run in watch.observer.runs() if run.id not in known))
            time.sleep(0.02)
        observed = started.finish()
        assert observed.returncode == 0, observed.stderr
        counted = watch.counted()
        counted.subtract(before)
        assert +counted == count(finished) == count(run.series for run in observed.runs)
        runs = [run for run in observed.runs if run.pipeline not in item.fed]
        expected = {(name, False): number for name, number in item.found.items()}
        assert count(run.series for run in runs) == expected
        assert [run.pipeline for run in observed.runs if joined_both_ways(run)] == []
        if not item.found and not item.fed:
            assert not seen, "shown for a while, and then no more"
            assert run_seconds(watch.observer) == seconds
        return observed

    return run


@pytest.mark.parametrize("item", TALKS, ids=lambda item: item.name)
def test_a_conversation_is_no_run(item: Talk, talk: Callable[[Talk], Observed]) -> None:
    talk(item)


def test_three_stages_with_a_fifo_back_to_the_first_are_a_pipeline(
    talk: Callable[[Talk], Observed],
) -> None:
    observed = talk(
        Talk(
            "three",
            "mkfifo f; ./first.sh < f | sed -u s/x/y/ | ./last.sh > f",
            TALKS[-1].files,
            found={"first.sh|sed|last.sh": 1},
        )
    )
    names = [stage.command for stage in observed.runs[0].stages]
    edges = sorted((names[a], names[b]) for a, b in observed.runs[0].edges)
    assert edges == [("first.sh", "sed"), ("last.sh", "first.sh"), ("sed", "last.sh")]


def test_live_conversations_are_listed_for_who_asks(watch: Watch) -> None:
    """The child with its parent as endpoint; or both, if it is not the parent that it talks to."""
    talks = TALKS[-1]
    for name, text in talks.files.items():
        (watch.directory / name).write_text(text.replace("-lt 50", "-lt 1000000"))
        (watch.directory / name).chmod(0o755)
    coprocess = "coproc sort; sleep 60 & echo b >&${COPROC[1]}; wait"
    started = [watch.start(talks.script), watch.start(coprocess)]
    try:
        end = time.monotonic() + PATIENCE
        found: dict[str, Run] = {}
        while set(found) != {"first.sh|last.sh", "sort"}:  # before its exec it is bash
            assert time.monotonic() < end, f"only {set(found)}"
            watch.observer.sweep()
            found = {run.pipeline: run for run in watch.observer.conversations()}
        assert not [run for run in watch.observer.runs() if run.live]
    finally:
        for command in started:
            command.kill()
            command.finish()
    ends = {(end.command, end.side) for end in found["sort"].endpoints}
    assert ends == {("bash", "read"), ("bash", "write")}

    def none_left() -> bool:
        watch.observer.sweep()
        left = watch.observer.conversations()
        assert not [run for run in left if all(stage.end for stage in run.stages)]
        return not left

    # a process can be waited for a moment before it leaves its CPU for the last time
    wait_for(none_left, "the end of the conversations")


#: A browser as test frameworks start it: requests go to its descriptor 3, answers come from 4.
BROWSER = """
import json, os, subprocess, sys
ours, theirs = os.pipe(), os.pipe()
command = [sys.argv[1], "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
           "--user-data-dir=profile", "--remote-debugging-pipe", "about:blank"]
script = f'exec "$@" 3<&{ours[0]} 4>&{theirs[1]}'
browser = subprocess.Popen(["bash", "-c", script, "bash", *command],
                           pass_fds=[ours[0], theirs[1]], stderr=subprocess.DEVNULL)
os.close(ours[0])
os.close(theirs[1])
answers = open(theirs[0], "rb")
def ask(id, method):
    os.write(ours[1], json.dumps({"id": id, "method": method}).encode() + b"\\0")
    answer = b""
    while f'"id":{id}'.encode() not in answer:
        answer = b""
        while not answer.endswith(b"\\0"):
            byte = answers.read(1)
            assert byte, "the browser is gone"
            answer += byte
    return json.loads(answer[:-1])
for id in range(1, 50):
    assert "product" in ask(id, "Browser.getVersion")["result"]
ask(50, "Browser.close")
browser.wait()
"""
PLAYWRIGHT = """
import sys
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    flags = ["--no-sandbox", "--disable-dev-shm-usage"]
    browser = playwright.chromium.launch(
        executable_path=sys.argv[1], args=flags, timeout=100_000  # a busy host takes long
    )
    page = browser.new_page()
    for number in range(50):
        page.set_content(f"<p>{number}</p>")
        assert page.inner_text("p") == str(number)
    browser.close()
"""


@pytest.mark.real_time
@pytest.mark.parametrize("configure", ["libbpf"], indirect=True, scope="session")
@pytest.mark.parametrize(
    ("python", "source"),
    [(PYTHON, BROWSER), (sys.executable, PLAYWRIGHT)],
    ids=["direct", "Playwright"],
)
def test_a_browser_and_what_drives_it_are_no_runs(
    python: str, source: str, talk: Callable[[Talk], Observed]
) -> None:
    talk(Talk("browser", f"{python} driver.py {CHROMIUM}", {"driver.py": source}))


def test_every_program_of_the_table_is_here() -> None:
    needed = (CHROMIUM, "bc", "gawk", "git", "node", "zsh")
    assert [program for program in needed if not shutil.which(program)] == []


#: Another thread of the parent may have written all, and closed that pipe, before the child has its
#: program: with many threads one time in twenty thousand. Here it is so each time.
FED_BEFORE_EXEC = """
import os, select, time
for _ in range(3):
    question, answer = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        while not os.path.exists("asked"):
            time.sleep(0.001)
        os.close(question[1])
        os.close(answer[0])
        os.dup2(question[0], 0)
        os.dup2(answer[1], 1)
        os.execvp("sort", ["sort", "-u"])
    os.close(question[0])
    os.close(answer[1])
    os.write(question[1], b"b\\na\\n")
    os.close(question[1])
    os.mkdir("asked")
    select.select([answer[0]], [], [])  # as communicate() waits: it never sleeps in a read
    assert os.read(answer[0], 100) == b"a\\nb\\n"
    os.waitpid(child, 0)
    os.rmdir("asked")
open("gate").read()
"""


def test_a_child_that_was_asked_before_its_exec_converses(watch: Watch) -> None:
    (watch.directory / "driver").write_text(FED_BEFORE_EXEC)
    observed = watch.drive(PYTHON, "driver")
    assert (observed.returncode, [run.pipeline for run in observed.runs]) == (0, [])
