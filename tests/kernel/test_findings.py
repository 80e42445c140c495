# SPDX-License-Identifier: Apache-2.0
"""Findings on real pipelines, ill ones and healthy ones.

A finding speaks of a share of the run, and other work on the machine takes its part of every
run: a test waits for a run that it was left in peace for, and is skipped if none is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from experiments.disk import THROTTLE, Disk, made_disk
from pipelined.analysis.findings import Finding, findings
from pipelined.analysis.machine import Host
from pipelined.run.page_cache import evict

if TYPE_CHECKING:
    from kernel.conftest import Watch
    from pipelined.runs import Run

pytestmark = pytest.mark.real_time

MIB = 1 << 20

#: Runs of one pipeline before the machine is given up as too busy.
TRIES = 5
#: A stage that waits no longer than this for a CPU was left in peace (share of the run).
IN_PEACE = 0.5


@pytest.fixture(scope="module")
def host() -> Host:
    return Host.read()


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 MiB of lines in the page cache."""
    path = tmp_path_factory.mktemp("text") / "text"
    lines = (f"{n * 7919 % 100003} some words of text {n % 97}\n" for n in range(600_000))
    path.write_bytes("".join(lines).encode()[: 16 * MIB])
    return path


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    with made_disk(tmp_path_factory.mktemp("disk"), "128M") as made:
        yield made


@pytest.fixture
def slow_disk(disk: Disk) -> Iterator[Disk]:
    """A disk that a test can limit."""
    if not (THROTTLE / "blkio.throttle.read_bps_device").exists():
        pytest.skip("no blkio controller of cgroup v1: no disk can be slowed")
    yield disk
    disk.limit()


@pytest.fixture
def needs_readahead(watch: Watch) -> None:
    hooks = [hook for hook in watch.observer.hooks() if hook.tier == "readahead"]
    if not any(hook.attached for hook in hooks):
        pytest.skip("the readahead tier is off here; see `pipelined doctor`")


def in_peace(watch: Watch, script: str, pipeline: str, cold: Path | None = None) -> Run:
    """A run of the script in which no stage lacked a CPU for long."""
    for _ in range(TRIES):
        if cold is not None:
            evict(cold)
        run = watch.run(script).only(pipeline)
        if max(stage.states["runqueue"] for stage in run.stages) < IN_PEACE * run.wall_seconds:
            return run
    pytest.skip(f"the machine is too busy: {TRIES} runs in a row lacked a CPU")


def told(run: Run, host: Host) -> dict[str, Finding]:
    return {finding.id: finding for finding in findings(run, host)}


def on(disk: Disk, text: Path) -> Path:
    path = disk.root / "text"
    if not path.exists():
        path.write_bytes(text.read_bytes())
    return path


# Each character counts: some 20 ns of computing for a byte.
COUNTING = '{ gsub(/[aeiou]/, "#"); n += length($0) } END { print n }'


@pytest.mark.usefixtures("needs_readahead")
def test_without_read_ahead_a_stage_computes_and_waits_by_turns(
    watch: Watch, slow_disk: Disk, text: Path, host: Host
) -> None:
    slow_disk.read_ahead(0)
    slow_disk.limit(bytes_per_second=8 * MIB)
    path = on(slow_disk, text)
    run = in_peace(watch, f"mawk '{COUNTING}' {path} | cat", "mawk|cat", cold=path)
    found = told(run, host)
    assert found["disk-not-overlapped"].stages == (0,)
    assert "readahead-late" not in found and "readahead-useless" not in found
    assert "cold-run" in found


@pytest.mark.usefixtures("needs_readahead")
def test_a_slow_disk_that_is_read_ahead_is_the_limit_itself(
    watch: Watch, slow_disk: Disk, text: Path, host: Host
) -> None:
    slow_disk.read_ahead(8192)
    slow_disk.limit(bytes_per_second=8 * MIB)
    path = on(slow_disk, text)
    run = in_peace(watch, f"mawk '{COUNTING}' {path} | cat", "mawk|cat", cold=path)
    found = told(run, host)
    assert found["readahead-late"].stages == (0,)
    assert "disk-not-overlapped" not in found


@pytest.mark.usefixtures("needs_readahead")
def test_a_reader_in_front_that_waits_for_a_slow_disk_is_not_told_to_go(
    watch: Watch, slow_disk: Disk, text: Path, host: Host
) -> None:
    slow_disk.read_ahead(128)
    slow_disk.limit(bytes_per_second=8 * MIB)
    path = on(slow_disk, text)
    run = in_peace(watch, f"cat {path} | mawk '{COUNTING}'", "cat|mawk", cold=path)
    assert not {"reader-costs", "disk-not-overlapped", "large-writes"} & told(run, host).keys()


@pytest.mark.usefixtures("needs_readahead")
def test_on_a_fast_disk_read_ahead_needs_no_reader(
    watch: Watch, disk: Disk, text: Path, host: Host
) -> None:
    disk.read_ahead(128)
    path = on(disk, text)
    run = in_peace(watch, f"mawk '{COUNTING}' {path} | cat", "mawk|cat", cold=path)
    assert not {"disk-not-overlapped", "readahead-useless"} & told(run, host).keys()


@pytest.mark.usefixtures("needs_readahead")
def test_who_reads_the_beginnings_of_files_wastes_a_large_read_ahead(
    watch: Watch, slow_disk: Disk, text: Path, host: Host
) -> None:
    for n in range(4):
        path = slow_disk.root / f"part{n}"
        path.write_bytes(text.read_bytes()[: 4 * MIB])
        evict(path)
    slow_disk.read_ahead(8192)
    slow_disk.limit(bytes_per_second=8 * MIB)
    script = f"for n in 0 1 2 3; do head -c 500000 {slow_disk.root}/part$n; done | cat > out"
    assert "readahead-wasted" in told(watch.run(script).only("bash|cat"), host)


@pytest.mark.usefixtures("needs_readahead")
def test_a_reader_in_front_of_a_file_in_memory_only_costs(
    watch: Watch, text: Path, host: Host
) -> None:
    run = in_peace(watch, f"cat {' '.join([str(text)] * 20)} | wc -l", "cat|wc")
    found = told(run, host)["reader-costs"]
    assert found.severity == "advice"
    assert found.stages == (0, 1)
    reading = run.stages[0].cpu_seconds + run.stages[1].system_seconds
    assert found.gain_seconds == pytest.approx(min(run.wall_seconds, reading))


def test_a_shell_that_reads_a_pipe_makes_small_calls(watch: Watch, text: Path, host: Host) -> None:
    script = f"head -c 500000 {text} | while read -r a b; do echo $a; done | cat > firsts"
    found = told(in_peace(watch, script, "head|bash|cat"), host)["small-calls"]
    assert found.stages == (1,)
    assert "reads of 1 B" in found.sentence


def test_a_process_for_each_line_is_a_storm(watch: Watch, host: Host) -> None:
    run = in_peace(watch, "seq 300 | xargs -I{} sh -c 'echo {}' > out", "seq|xargs")
    assert told(run, host)["fork-storm"].stages == (1,)


def test_a_few_workers_are_no_storm(watch: Watch, host: Host) -> None:
    run = watch.run("seq 300 | split -n r/4 --filter 'sleep 0.2; exec cat' > out").only(
        "seq|split|cat"
    )
    assert "fork-storm" not in told(run, host)


def test_what_shrinks_the_data_behind_sort_should_stand_before_it(
    watch: Watch, text: Path, host: Host
) -> None:
    run = in_peace(
        watch, f"cat {text} | sort -R -S 256M | mawk '{{ print $1 }}' | uniq -c > counts",
        "cat|sort|mawk|uniq",
    )  # fmt: skip
    found = told(run, host)["barrier"]
    assert found.advice.startswith("Try: put mawk before sort")
    assert found.gain_seconds is not None and found.gain_seconds < run.stages[1].cpu_seconds


def test_two_stages_that_share_the_work_are_healthy(watch: Watch, text: Path, host: Host) -> None:
    slow = r"s/\([0-9]*\) \([a-z]*\) \([a-z]*\)/\3 \2 \1/"
    run = in_peace(watch, f"head -c 4000000 {text} | sed '{slow}' | sed '{slow}' > out",
        "head|sed|sed",
    )  # fmt: skip
    assert not [found for found in findings(run, host) if found.severity == "warning"]


def test_of_a_moment_nothing_is_told(watch: Watch, host: Host) -> None:
    run = watch.run("seq 3 | cat").only("seq|cat")
    if run.wall_seconds >= 0.1:
        pytest.skip("the machine is too busy: three lines took 0.1 s")
    assert findings(run, host) == ()
