# SPDX-License-Identifier: Apache-2.0
"""Programs that read in no pipeline: a pipeline of one stage, when they are asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipelined.observer import Observer

if TYPE_CHECKING:
    from kernel.conftest import Configure, Watch

SIZE = 3_000_000


@pytest.fixture
def big(tmp_path: Path) -> Path:
    path = tmp_path / "big"
    path.write_bytes(b"some words of text\n" * (SIZE // 19))
    return path


@pytest.fixture(scope="module", params=["named", "all"])
def counting(request: pytest.FixtureRequest, configure: Configure) -> Iterator[Observer]:
    """An observer that counts wc, gzip, xargs and sort alone, by name or because it counts all."""
    options: dict[str, Any] = {}
    named: tuple[str, ...] = ("wc", "gzip", "xargs", "sort")
    if request.param == "all":
        options, named = {"all_alone": True}, ()
    with Observer.open(configure(alone=named), own_only=True, **options) as observer:
        observer.start()
        yield observer


@pytest.fixture
def alone(watch: Watch, counting: Observer, tmp_path: Path) -> Watch:
    """Runs commands under that observer."""
    return type(watch)(counting, tmp_path)


def names(alone: Watch, script: str) -> list[str]:
    return sorted(run.pipeline for run in alone.run(script).runs)


def test_a_program_that_reads_alone_is_a_pipeline_of_one_stage(alone: Watch, big: Path) -> None:
    run = alone.run("wc -l big").only("wc")
    (stage,) = run.stages
    assert stage.read_bytes >= big.stat().st_size
    assert stage.read_bytes - big.stat().st_size < 65536
    assert stage.forks == 0
    assert run.series.nested is False


@pytest.mark.parametrize("options", ["-S 300K -T .", ""])
def test_the_temporary_files_of_a_sort_from_file_to_file_make_its_bytes_bounds(
    alone: Watch, big: Path, options: str
) -> None:
    """Without any they are exact, if it is known that there are none."""
    flow = alone.run(f"sort {options} big > sorted").only("sort").stages[0].flow
    size = big.stat().st_size
    assert flow.taken is not None and flow.passed_on is not None
    assert flow.taken >= size and flow.passed_on >= size
    if options:
        assert flow.input_is_bound and flow.output_is_bound
    elif not flow.output_is_bound:
        assert flow.passed_on == size


def test_one_that_the_shell_becomes_counts_too(alone: Watch, big: Path) -> None:
    assert names(alone, "exec wc -l < big") == ["wc"]


def test_in_a_pipeline_it_is_a_stage_and_nothing_else(alone: Watch, big: Path) -> None:
    assert names(alone, "cat big | wc -l") == ["cat|wc"]
    assert names(alone, "wc -l < big | cat") == ["wc|cat"]


def test_what_reads_little_does_not_count(alone: Watch, big: Path) -> None:
    assert names(alone, "head -c 60000 big > small; wc -l small") == []


def test_what_computes_counts_even_if_it_reads_little(alone: Watch) -> None:
    compute = "./wc 'BEGIN { for (; i < %d; i++); }'; true"
    copy = "cp $(readlink -f $(command -v awk)) wc"
    (stage,) = alone.run(f"{copy}; {compute % 20_000_000}").only("wc").stages
    assert stage.read_bytes < 65536
    assert stage.cpu_seconds >= 0.1
    assert names(alone, compute % 1000) == []


def test_what_starts_another_does_not_count_but_that_one_may(alone: Watch, big: Path) -> None:
    assert names(alone, "echo big > list; xargs -a list wc -l") == ["wc"]


def test_what_a_stage_of_a_pipeline_starts_is_that_stage(alone: Watch, big: Path) -> None:
    assert names(alone, "cat big | timeout 20 cat | wc -l") == ["cat|cat|wc"]
    assert names(alone, "printf 'big\\nbig\\n' | xargs -n1 wc -l | cat") == ["bash|xargs|cat"]


def test_one_after_the_other_are_two_runs(alone: Watch, big: Path) -> None:
    assert names(alone, "wc -l big; gzip -1 < big > big.gz; true") == ["gzip", "wc"]


def test_nothing_counts_alone_unless_asked_for(watch: Watch, big: Path) -> None:
    assert names(watch, "wc -l big") == []


def test_one_that_finds_a_fifo_later_joins_its_pipeline(alone: Watch, big: Path) -> None:
    script = "mkfifo f; { sleep 0.2; cat big; } > f & gzip -1 < f > big.gz; wait"
    assert names(alone, script) == ["bash|gzip"]


@pytest.fixture
def unit(make_cgroup: Callable[[str], Path]) -> Path:
    """A cgroup that goes by the name of an instance of a unit."""
    return make_cgroup(f"pipelined-test@db1.example.{os.getpid()}.service")


def test_programs_of_a_named_unit_count(
    watch: Watch, configure: Configure, unit: Path, big: Path, tmp_path: Path
) -> None:
    named = configure(alone_units=("pipelined-test@.service", "other.service"))
    with Observer.open(named, own_only=True) as observer:
        alone = type(watch)(observer, tmp_path)
        inside = alone.run(
            f"echo $$ > {unit}/cgroup.procs; wc -l big; gzip -1 < big > big.gz; true"
        )
        assert sorted(run.pipeline for run in inside.runs) == ["gzip", "wc"]
        assert {run.series.unit for run in inside.runs} == {"pipelined-test@.service"}
        assert names(alone, "wc -l big") == []
