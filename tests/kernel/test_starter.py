# SPDX-License-Identifier: Apache-2.0
"""Runs are known by the process that started them, whatever lies between the two."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernel.conftest import PATIENCE
from pipelined.model import started as kept
from pipelined.starter import STARTER_NAME, Starter

if TYPE_CHECKING:
    from kernel.conftest import Started, Watch

#: What makes a shell a starter. The rest of the script runs once the test knows it.
BECOME = f"printf '{STARTER_NAME}' > /proc/$$/comm; mkfifo $0; : < $0; "


def begin(
    watch: Watch, script: str, name: str = "go", *, uid: int | None = None
) -> tuple[Started, Starter]:
    """Start a script, as another user if `uid` is given, whose shell is a starter; who that is."""
    user = ["setpriv", f"--reuid={uid}", "--clear-groups"] if uid is not None else []
    started = watch.start_command([*user, "bash", "-c", BECOME + script, name])
    stat = Path(f"/proc/{started.pid}/stat").read_text().rpartition(")")[2].split()
    return started, Starter(started.pid, int(stat[19]))


def go(watch: Watch, name: str = "go") -> None:
    """Let the script of this name go on."""
    wait_for(watch.directory / name).open("w").close()


def wait_for(fifo: Path) -> Path:
    deadline = time.monotonic() + PATIENCE
    while not fifo.is_fifo():
        assert time.monotonic() < deadline, f"no {fifo}"
        time.sleep(0.01)
    return fifo


def pipelines(watch: Watch, starter: Starter) -> list[str]:
    found = watch.observer.started(starter, 0)
    assert found.finished == len(found.runs)
    return sorted(run.pipeline for run in found.runs)


def started_by(watch: Watch, script: str) -> list[str]:
    """The runs that the shell of a script started."""
    started, starter = begin(watch, script)
    go(watch)
    started.finish()
    return pipelines(watch, starter)


@pytest.mark.parametrize(
    "script",
    [
        "seq 9 | sort -n | tail -n 1; true",
        "for i in 1; do (seq 9 | (sort -n) | tail -n 1); done; true",
        "bash -c 'seq 9 | sort -n | tail -n 1; true'; true",
        "x=$(seq 9 | sort -n | tail -n 1; true); true",
    ],
)
def test_a_pipeline_is_that_of_the_process_above_it(watch: Watch, script: str) -> None:
    assert "seq|sort|tail" in started_by(watch, script)


@pytest.mark.parametrize("shell", ["bash -c", "setsid bash -c", "env -i PATH=$PATH bash -c"])
def test_it_stays_so_when_all_processes_between_them_are_gone(watch: Watch, shell: str) -> None:
    inner = "(sleep 0.3; seq 9 | sort -n | tail -n 1; : > over) &"
    until = "until [ -e over ]; do sleep 0.05; done"
    assert started_by(watch, f"{shell} '{inner}'; {until}; true") == ["seq|sort|tail"]


def test_two_that_run_the_same_at_the_same_time_have_their_own(watch: Watch) -> None:
    script = "for i in $(seq {}); do seq 9 | sort -n | tail -n 1; done; true"
    one, first = begin(watch, script.format(5), "one")
    two, second = begin(watch, script.format(7), "two")
    go(watch, "one")
    go(watch, "two")
    # `finish` settles what has ended: a pipeline of the other one may lack a stage that is to come
    while one.alive() or two.alive():
        time.sleep(0.01)
    one.finish()
    two.finish()
    assert pipelines(watch, first).count("seq|sort|tail") == 5
    assert pipelines(watch, second).count("seq|sort|tail") == 7
    ids = [{run.id for run in watch.observer.started(of, 0).runs} for of in (first, second)]
    assert not ids[0] & ids[1]


def test_all_that_one_user_starts_has_one_bound(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound is also for processes that only call themselves `pipelined run`."""
    monkeypatch.setattr(kept, "KEPT", 5)
    watch.directory.chmod(0o777)
    script = "for i in $(seq {}); do seq 9 | sort -n | tail -n 1; done; true"
    began = {
        name: begin(watch, script.format(runs), name, uid=uid)
        for name, uid, runs in (("mine", 0, 3), ("one", 65534, 4), ("two", 65534, 4))
    }
    for name, (started, _) in began.items():
        go(watch, name)
        started.finish()
    found = {name: watch.observer.started(of, 0) for name, (_, of) in began.items()}
    assert {name: one.finished for name, one in found.items()} == {"mine": 3, "one": 4, "two": 4}
    assert {name: len(one.runs) for name, one in found.items()} == {"mine": 3, "one": 1, "two": 4}


def test_what_another_process_starts_meanwhile_is_not_its_own(watch: Watch) -> None:
    started, starter = begin(watch, "seq 9 | wc; true")
    watch.run("seq 9 | sort -n | tail -n 1; true").only("seq|sort|tail")
    go(watch)
    started.finish()
    assert pipelines(watch, starter) == ["seq|wc"]


def test_the_nearest_of_two_starters_counts(watch: Watch) -> None:
    inner = f'printf "{STARTER_NAME}" > /proc/$$/comm; seq 9 | sort -n | tail -n 1; true'
    assert started_by(watch, f"bash -c '{inner}'; seq 9 | wc; true") == ["seq|wc"]


def test_a_program_alone_counts_without_being_named(watch: Watch) -> None:
    (watch.directory / "big").write_bytes(b"some words\n" * 100_000)
    assert started_by(watch, "wc -l big; true") == ["wc"]


def test_it_counts_inside_the_pipeline_that_its_starter_is_in(watch: Watch) -> None:
    (watch.directory / "big").write_bytes(b"some words\n" * 100_000)
    inner = f"printf '{STARTER_NAME}' > /proc/$$/comm; mkfifo go; : < go; sort big; true"
    script = f'bash -c "{inner}" | wc'.replace("$$", "\\$\\$")
    around = watch.start(script)
    children = Path(f"/proc/{around.pid}/task/{around.pid}/children")
    wait_for(watch.directory / "go")
    starters = [
        Starter(int(pid), int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]))
        for pid in children.read_text().split()
        if STARTER_NAME in Path(f"/proc/{pid}/comm").read_text()
    ]
    go(watch)
    observed = around.finish()
    (starter,) = starters
    assert pipelines(watch, starter) == ["sort"]
    assert {run.nested for run in observed.runs if run.pipeline == "sort"} == {True}
