# SPDX-License-Identifier: Apache-2.0
"""Findings on real pipelines, both faulty and healthy ones.

A finding rests on shares of the run, and other work on the machine can change those.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from experiments.disk import THROTTLE, Disk, made_disk
from pipelined.analysis.finding import Finding
from pipelined.analysis.findings import findings
from pipelined.analysis.machine import Host
from pipelined.analysis.rules.cpus import TAKEN
from pipelined.model.units import find_cgroup2
from pipelined.run.page_cache import evict, fill

if TYPE_CHECKING:
    from kernel.conftest import Observed, Watch
    from pipelined.runs import Run

pytestmark = [pytest.mark.real_time, pytest.mark.undisturbed]

MIB = 1 << 20


@pytest.fixture(scope="module")
def host() -> Host:
    return Host.read()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 MiB of lines."""
    path = tmp_path_factory.mktemp("text") / "text"
    lines = (f"{n * 7919 % 100003} some words of text {n % 97}\n" for n in range(600_000))
    path.write_bytes("".join(lines).encode()[: 16 * MIB])
    return path


@pytest.fixture
def text(written: Path) -> Path:
    """That file in the page cache, from where the host evicts what was not used for a minute."""
    fill(written)
    return written


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


def cold(watch: Watch, script: str, path: Path) -> Observed:
    """Run a script of which this file is not in the page cache."""
    evict(path)
    return watch.run(script)


def found_in(run: Run, host: Host) -> dict[str, Finding]:
    return {finding.id: finding for finding in findings(run, host)}


def the_finding(run: Run, id: str, host: Host) -> Finding:
    found = found_in(run, host)
    assert id in found, f"found only {sorted(found)} in {run}"
    return found[id]


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
    run = cold(watch, f"mawk '{COUNTING}' {path} | cat", path).only("mawk|cat")
    assert the_finding(run, "disk-not-overlapped", host).stages == (0,)
    found = found_in(run, host)
    assert "readahead-late" not in found and "readahead-useless" not in found
    assert "cold-run" in found


@pytest.mark.usefixtures("needs_readahead")
def test_a_slow_disk_that_is_read_ahead_is_the_limit_itself(
    watch: Watch, slow_disk: Disk, text: Path, host: Host
) -> None:
    slow_disk.read_ahead(8192)
    slow_disk.limit(bytes_per_second=8 * MIB)
    path = on(slow_disk, text)
    run = cold(watch, f"mawk '{COUNTING}' {path} | cat", path).only("mawk|cat")
    assert the_finding(run, "readahead-late", host).stages == (0,)
    assert "disk-not-overlapped" not in found_in(run, host)


@pytest.mark.usefixtures("needs_readahead")
def test_no_advice_to_remove_a_reader_in_front_that_waits_for_a_slow_disk(
    watch: Watch, slow_disk: Disk, text: Path, host: Host
) -> None:
    slow_disk.read_ahead(128)
    slow_disk.limit(bytes_per_second=8 * MIB)
    path = on(slow_disk, text)
    run = cold(watch, f"cat {path} | mawk '{COUNTING}'", path).only("cat|mawk")
    wrong = {"reader-costs", "disk-not-overlapped", "large-writes"}
    assert not wrong & found_in(run, host).keys()


@pytest.mark.usefixtures("needs_readahead")
def test_on_a_fast_disk_read_ahead_needs_no_reader(
    watch: Watch, disk: Disk, text: Path, host: Host
) -> None:
    disk.read_ahead(128)
    path = on(disk, text)
    run = cold(watch, f"mawk '{COUNTING}' {path} | cat", path).only("mawk|cat")
    assert not {"disk-not-overlapped", "readahead-useless"} & found_in(run, host).keys()


@pytest.mark.usefixtures("needs_readahead")
def test_reading_only_the_beginnings_of_files_wastes_a_large_read_ahead(
    watch: Watch, slow_disk: Disk, text: Path, host: Host
) -> None:
    for n in range(4):
        path = slow_disk.root / f"part{n}"
        path.write_bytes(text.read_bytes()[: 4 * MIB])
        evict(path)
    slow_disk.read_ahead(8192)
    slow_disk.limit(bytes_per_second=8 * MIB)
    script = f"for n in 0 1 2 3; do head -c 500000 {slow_disk.root}/part$n; done | cat > out"
    assert "readahead-wasted" in found_in(watch.run(script).only("bash|cat"), host)


@pytest.mark.usefixtures("needs_readahead")
def test_a_reader_in_front_of_a_file_in_memory_only_costs(
    watch: Watch, text: Path, host: Host
) -> None:
    run = watch.run(f"cat {' '.join([str(text)] * 20)} | wc -l").only("cat|wc")
    found = the_finding(run, "reader-costs", host)
    assert found.severity == "advice"
    assert found.stages == (0, 1)
    cat, wc = run.stages
    queued = wc.states["runqueue"] * wc.system_seconds / wc.cpu_seconds
    copying = cat.cpu_seconds + cat.states["runqueue"]
    bound = min(run.wall_seconds, copying + wc.system_seconds + queued)
    assert found.gain_seconds == pytest.approx(bound)


def test_a_shell_that_reads_a_pipe_makes_small_calls(watch: Watch, text: Path, host: Host) -> None:
    script = f"head -c 500000 {text} | while read -r a b; do echo $a; done | cat > firsts"
    run = watch.run(script).only("head|bash|cat")
    found = the_finding(run, "small-calls", host)
    assert found.stages == (1,)
    assert "reads of 1 B" in found.sentence


def test_a_process_for_each_line_is_a_storm(watch: Watch, host: Host) -> None:
    run = watch.run("seq 300 | xargs -I{} sh -c 'echo {}' > out").only("seq|xargs")
    assert the_finding(run, "fork-storm", host).stages == (1,)


def test_a_few_workers_are_no_storm(watch: Watch, host: Host) -> None:
    run = watch.run("seq 300 | split -n r/4 --filter 'sleep 0.2; exec cat' > out").only(
        "seq|split|cat"
    )
    assert "fork-storm" not in found_in(run, host)


def test_what_shrinks_the_data_behind_sort_should_stand_before_it(
    watch: Watch, text: Path, host: Host
) -> None:
    script = f"cat {text} | sort -R -S 256M | mawk '{{ print $1 }}' | uniq -c > counts"
    run = watch.run(script).only("cat|sort|mawk|uniq")
    found = the_finding(run, "barrier", host)
    assert found.advice.startswith("Try: put mawk before sort")
    assert found.gain_seconds is not None
    sort = run.stages[1]
    assert found.gain_seconds < sort.cpu_seconds + sort.states["runqueue"]


@pytest.fixture
def busy_host(host: Host) -> Iterator[None]:
    """Programs outside all pipelines that want each CPU twice."""
    endless = [sys.executable, "-c", "while True: pass"]
    # each in a session of its own: the kernel may share the CPUs out by session (autogroup)
    others = [subprocess.Popen(endless, start_new_session=True) for _ in range(2 * host.cores)]
    cpus = sorted(os.sched_getaffinity(0)) * 2
    for other, cpu in zip(others, cpus, strict=False):
        os.sched_setaffinity(other.pid, {cpu})
    time.sleep(0.5)  # until all of them compute
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


@pytest.mark.usefixtures("busy_host")
def test_programs_outside_a_pipeline_are_the_reason_for_its_waits(
    watch: Watch, text: Path, host: Host
) -> None:
    # the neighbours of gzip never wait for a CPU, and so gzip seldom for them: it is the ceiling
    script = f"chrt -f 1 cat {text} {text} | gzip | chrt -f 1 wc -c > out"
    run = watch.run(script).only("cat|gzip|wc")
    found = the_finding(run, "cpu-contention", host)
    assert found.stages == (1,)
    others = {one.name: one.value for one in found.evidence}["CPUs used by others"]
    assert 0.5 * host.cores <= others <= host.cores
    assert found.notice.startswith("The host was busy: gzip waited ")
    assert "pigz" in the_finding(run, "ceiling", host).advice


def test_a_pipeline_alone_on_the_host_blames_no_others(
    watch: Watch, text: Path, host: Host
) -> None:
    script = f"cat {text} {text} | gzip | wc -c > out"
    run = watch.run(script).only("cat|gzip|wc")
    found = found_in(run, host)
    assert run.surroundings is not None
    others = run.surroundings.others_cores
    assert others is not None and others < host.cores
    assert "cpu-contention" not in found or others >= TAKEN
    assert "cpu-limit" not in found


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Path]:
    """The file to write a process id to, of a cgroup that gets a twentieth of one CPU."""
    version1, version2 = Path("/sys/fs/cgroup/cpu"), find_cgroup2()
    name = f"pipelined-test-{os.getpid()}"
    if (version1 / "cpu.cfs_quota_us").exists():
        group = version1 / name
        limit, value = group / "cpu.cfs_quota_us", "5000"
    elif version2 and "cpu" in (version2 / "cgroup.subtree_control").read_text().split():
        group = version2 / name
        limit, value = group / "cpu.max", "5000 100000"
    else:
        pytest.skip("no cgroup can be given a CPU limit")
    group.mkdir()
    try:
        limit.write_text(value)
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


def test_a_cpu_limit_is_the_reason_for_a_wait(
    watch: Watch, limited: Path, text: Path, host: Host
) -> None:
    script = f"head -c 6000000 {text} > part; echo $$ > {limited}; cat part | gzip | wc -c > out"
    run = watch.run(script).only("cat|gzip|wc")
    found = the_finding(run, "cpu-limit", host)
    held = {one.name: one.value for one in found.evidence}["held back by the limit"]
    assert held >= 0.25 * run.wall_seconds
    assert "cpu-contention" not in found_in(run, host)


def test_a_sort_that_spills_is_given_more_memory(watch: Watch, text: Path, host: Host) -> None:
    # what is written to a directory with this attribute is on disk when the call returns
    assert watch.run("mkdir synced && chattr +S synced").returncode == 0
    script = f"head -c 4000000 {text} | sort -S 64k -T synced | cat > out"
    run = watch.run(script).only("head|sort|cat")
    found = the_finding(run, "sort-spills", host)
    written = {one.name: one.value for one in found.evidence}["written to temporary files"]
    assert written >= 1.9 * 4_000_000  # it is merged more than once


def test_two_stages_that_share_the_work_are_healthy(watch: Watch, text: Path, host: Host) -> None:
    slow = r"s/\([0-9]*\) \([a-z]*\) \([a-z]*\)/\3 \2 \1/"
    script = f"head -c 4000000 {text} | sed '{slow}' | sed '{slow}' > out"
    run = watch.run(script).only("head|sed|sed")
    assert not [found for found in findings(run, host) if found.severity == "warning"]


def test_a_short_run_has_no_findings(watch: Watch, host: Host) -> None:
    run = watch.run("seq 3 | cat").only("seq|cat")
    assert run.wall_seconds < 0.1
    assert findings(run, host) == ()
