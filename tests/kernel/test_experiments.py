# SPDX-License-Identifier: Apache-2.0
"""The five experiments behind this project, as pipelines that it must explain correctly."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernel.conftest import PATIENCE, WAITS

if TYPE_CHECKING:
    from kernel.conftest import Watch
    from pipelined.runs import Stage

pytestmark = pytest.mark.undisturbed

#: What a program reads while it starts: its libraries and locale files.
START = 300_000


@pytest.fixture
def big(tmp_path: Path) -> Path:
    """48 MB of text in the page cache."""
    path = tmp_path / "big"
    block = "".join(f"{i * 7919 % 100003} some words of text {i % 97}\n" for i in range(50_000))
    with path.open("w") as file:
        while file.tell() < 48_000_000:
            file.write(block)
    return path


def test_cat_into_awk_shows_who_waits(watch: Watch, big: Path) -> None:
    run = watch.run("cat big | mawk '$5 ~ /00$/ { n += length($2) } END { print n }'").only(
        "cat|mawk"
    )
    size = big.stat().st_size
    cat, awk = run.stages
    assert cat.written_bytes == size
    assert size <= cat.read_bytes <= size + START
    assert size <= awk.read_bytes <= size + START
    assert awk.cpu_seconds > cat.cpu_seconds  # by far, but either may suffer from steal
    # awk is the bottleneck: cat sleeps on a full pipe, and longer than awk on an empty one
    assert cat.states["pipe_full"] > cat.states["pipe_empty"] == 0
    assert cat.states["pipe_full"] > awk.states["pipe_empty"]
    assert cat.sleeps_full > 0
    assert run.overlap is not None


def test_awk_alone_is_no_pipeline(watch: Watch, big: Path) -> None:
    observed = watch.run("mawk '$5 ~ /00$/ { n += length($2) } END { print n }' big")
    assert observed.runs == []


SLOW = r"s/\([0-9]*\) \([a-z]*\) \([a-z]*\)/\3 \2 \1/"


def test_equal_stages_share_the_work(watch: Watch, big: Path) -> None:
    watch.run("head -c 8000000 big > some")
    run = watch.run(f"sed '{SLOW}' some | sed '{SLOW}' > /dev/null").only("sed|sed")
    first, second = run.stages
    # equal work, but a virtual CPU with a busy neighbour has taken 2.4 times as long
    assert 0.25 < first.cpu_seconds / second.cpu_seconds < 4
    assert abs(second.read_bytes - first.written_bytes) <= START
    # neither idles for most of the run
    for stage in run.stages:
        idle = stage.states["pipe_empty"] + stage.states["pipe_full"]
        assert idle < 0.8 * stage.lifetime_seconds


def without_cpu(stage: Stage) -> float:
    """Seconds in which a stage neither had nor wanted a CPU; other work does not change them."""
    return stage.lifetime_seconds - stage.cpu_seconds - stage.states["runqueue"]


def test_behind_a_slow_stage_a_fast_one_idles_on_the_empty_pipe(watch: Watch, big: Path) -> None:
    watch.run("head -c 8000000 big > some")
    run = watch.run(f"sed '{SLOW}' some | tr a-z A-Z > /dev/null").only("sed|tr")
    sed, tr = run.stages
    assert sed.cpu_seconds > tr.cpu_seconds
    assert tr.states["pipe_empty"] > tr.cpu_seconds
    assert tr.states["pipe_empty"] > 0.9 * without_cpu(tr)
    assert sed.states["pipe_full"] < 0.1 * sed.lifetime_seconds
    assert sed.states["pipe_empty"] == 0


def test_before_a_slow_stage_a_fast_one_idles_on_the_full_pipe(watch: Watch, big: Path) -> None:
    watch.run("head -c 8000000 big > some")
    # to lower case: capitals would not match, and sed be as fast as tr
    run = watch.run(f"tr A-Z a-z < some | sed '{SLOW}' > /dev/null").only("tr|sed")
    tr, sed = run.stages
    assert sed.cpu_seconds > tr.cpu_seconds
    assert tr.states["pipe_full"] > tr.cpu_seconds
    assert tr.states["pipe_full"] > 0.9 * without_cpu(tr)
    assert sed.states["pipe_empty"] < 0.1 * sed.lifetime_seconds


def test_behind_sort_nothing_runs_until_it_has_read_all(watch: Watch, big: Path) -> None:
    watch.run("head -c 4000000 big > some")
    twice = f"cat some; sleep 1; {WAITS}; cat some"
    started = watch.start(f"{{ {twice}; }} | sort -S 64M | uniq -c > counts")
    end = time.monotonic() + PATIENCE
    try:
        while True:
            _, sort, uniq = watch.live("bash|sort|uniq").stages
            if sort.read_bytes >= 4_000_000 and uniq.sleeps_empty:
                break
            assert time.monotonic() < end, (sort, uniq)
            time.sleep(0.01)
    finally:
        (watch.directory / "go").touch()
    # sort has the first half, and uniq has only started and fallen asleep, once
    assert sort.write_calls == 0
    assert uniq.sleeps_empty == 1
    assert uniq.read_bytes < START
    before = uniq.cpu_seconds
    assert before < 0.02
    run = started.finish().only("bash|sort|uniq")
    _, sort, uniq = run.stages
    assert uniq.states["pipe_empty"] >= 1
    assert uniq.read_bytes >= 8_000_000
    assert uniq.cpu_seconds > before
    assert sort.states["pipe_empty"] >= 0.9


def test_xargs_starts_a_process_for_each_line(watch: Watch) -> None:
    run = watch.run("seq 200 | xargs -I{} -P4 sh -c 'echo {}' > out").only("seq|xargs")
    xargs = run.stages[1]
    assert (xargs.forks, xargs.exited_children) == (200, 200)
    assert xargs.execs == 1 + 200
    assert xargs.children_cpu_seconds > 0
    assert xargs.children_lifetime_seconds > xargs.children_cpu_seconds


def test_split_starts_a_process_for_each_filter(watch: Watch) -> None:
    # More than the pipes hold: split closes the pipe of a filter that has no more to read, and that
    # may be before the filter's exec, from where nothing shows that it reads what split wrote.
    observed = watch.run("seq 200000 | split -n r/4 --filter 'exec cat' > out")
    run = observed.only("seq|split|cat")
    assert [stage.command for stage in run.stages] == ["seq", "split", *["cat"] * 4]
    assert run.stages[1].forks == 4
    assert [stage.forks for stage in run.stages[2:]] == [0] * 4


@pytest.mark.parametrize(
    ("block", "count"),
    [(4 << 10, 8000), (64 << 10, 500), (1 << 20, 32)],
    ids=["4k", "64k", "1M"],
)
def test_dd_writes_blocks_of_its_size_and_sleeps_for_awk(
    watch: Watch, big: Path, block: int, count: int
) -> None:
    script = (
        f"dd if=big bs={block} count={count} iflag=fullblock status=none | mawk '{{ n += $1 }}'"
    )
    run = watch.run(script).only("dd|mawk")
    dd, awk = run.stages
    size = min(block * count, big.stat().st_size)
    assert dd.written_bytes == size
    assert dd.write_calls == -(-size // block)
    assert size <= awk.read_bytes <= size + START
    # no read returns more than the pipe holds
    assert awk.read_calls >= size // 65536
    assert dd.states["pipe_full"] > awk.states["pipe_empty"]
    assert dd.sleeps_full > 0
    if block > 65536:
        # a block exceeds the pipe: no call returns without a sleep
        assert dd.sleeps_full >= dd.write_calls
