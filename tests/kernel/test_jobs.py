# SPDX-License-Identifier: Apache-2.0
"""Runs know the job that they are part of: by a variable, or by the command that cron runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipelined.observer import Observer

if TYPE_CHECKING:
    from kernel.conftest import Configure, Watch

#: A pipeline that the shell starts and does not become.
SORT = "seq 1000 | sort -n | tail -n 1; true"
SORTED = "seq|sort|tail"


def unit(watch: Watch, script: str, pipeline: str = SORTED, **environment: str) -> str:
    """The unit of the one run of this pipeline in a script with these variables."""
    return watch.run(script, environment=environment).only(pipeline).series.unit


def units(watch: Watch, script: str, **environment: str) -> Counter[str]:
    """Of all runs of the same pipeline, how many are in each unit."""
    runs = watch.run(script, environment=environment).runs
    return Counter(run.series.unit for run in runs if run.pipeline == SORTED)


@pytest.mark.oldest_kernel
def test_without_a_variable_the_unit_is_that_of_the_cgroup(watch: Watch) -> None:
    assert unit(watch, SORT) == unit(watch, SORT, PIPELINED_JOBS="x", NOT_PIPELINED_JOB="y")
    assert not unit(watch, SORT).endswith((".job", ".cron"))


@pytest.mark.oldest_kernel
@pytest.mark.parametrize(
    ("script", "pipeline"),
    [
        (SORT, SORTED),
        (f"bash -c '{SORT}'; true", SORTED),
        (f"env -u PIPELINED_JOB bash -c '{SORT}'; true", SORTED),
        (f"env -i PATH=$PATH bash -c '{SORT}'; true", SORTED),
        (f"unset PIPELINED_JOB; setsid -w bash -c '{SORT}'; true", SORTED),
        (
            "f() { for i in 1 2 3; do echo $i; done; }; f | while read x; do :; done; true",
            "bash|bash",
        ),
        (f"({SORT}) | cat; true", "bash|cat"),
    ],
)
def test_what_a_process_with_the_variable_starts_is_its_job(
    watch: Watch, script: str, pipeline: str
) -> None:
    assert unit(watch, script, pipeline, PIPELINED_JOB="nightly") == "nightly.job"


@pytest.mark.thorough
def test_a_nested_pipeline_may_be_another_job(watch: Watch) -> None:
    inner = f"PIPELINED_JOB=inner bash -c '{SORT}'"
    runs = watch.run(f"({inner}; true) | cat; true", environment={"PIPELINED_JOB": "outer"})
    assert runs.only(SORTED).series.unit == "inner.job"
    assert runs.only("bash|cat").series.unit == "outer.job"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "script",
    [
        "env PIPELINED_JOB=one sh -c 'seq 1000 | sort -n | tail -n 1; true'; true",
        "PIPELINED_JOB=one seq 1000 | sort -n | tail -n 1; true",
        "export PIPELINED_JOB=one; seq 1000 | sort -n | tail -n 1; true",
        "seq 1000 | PIPELINED_JOB=one sort -n | tail -n 1; true",
    ],
)
def test_a_pipeline_is_of_the_job_of_the_first_stage_that_has_one(
    watch: Watch, script: str
) -> None:
    assert unit(watch, script) == "one.job"


@pytest.mark.thorough
def test_each_of_many_jobs_is_counted_by_its_name(watch: Watch) -> None:
    names = [f"job-{a}{b}" for a in "ghijklmnop" for b in "ghijklmnop"]
    seen = units(watch, f"for j in {' '.join(names)}; do PIPELINED_JOB=$j bash -c '{SORT}'; done")
    assert seen == Counter(f"{name}.job" for name in names)


@pytest.mark.oldest_kernel
def test_the_variable_that_is_named_first_counts(watch: Watch) -> None:
    variables = {"AIRFLOW_CTX_DAG_ID": "c", "PIPELINED_JOB": "a", "SLURM_JOB_NAME": "b"}
    assert unit(watch, SORT, **variables) == "a.job"
    assert unit(watch, SORT, **variables | {"PIPELINED_JOB": ""}) == "b.job"
    assert unit(watch, SORT, AIRFLOW_CTX_DAG_ID="etl.daily") == "etl.daily.job"


@pytest.mark.thorough
@pytest.mark.parametrize("size", [100, 254, 255, 256, 257, 511, 5000])
def test_long_variables_around_it_change_nothing(watch: Watch, size: int) -> None:
    around = {"A": "x" * (size - 2), "B": "PIPELINED_JOB=wrong", "Z": "y" * size}
    assert unit(watch, SORT, **around, PIPELINED_JOB="nightly") == "nightly.job"


@pytest.mark.oldest_kernel
def test_it_is_found_behind_a_hundred_other_variables(watch: Watch) -> None:
    many = " ".join(f"V{n}=x" for n in range(100))
    assert unit(watch, f"env -i PATH=$PATH {many} PIPELINED_JOB=one bash -c '{SORT}'; true") == (
        "one.job"
    )


@pytest.mark.thorough
def test_a_long_name_is_cut(watch: Watch) -> None:
    assert unit(watch, SORT, PIPELINED_JOB="n" * 500) == "n" * 119 + ".job"


@pytest.mark.thorough
def test_another_user_s_process_is_no_different(watch: Watch) -> None:
    watch.directory.chmod(0o777)
    script = f"setpriv --reuid=65534 --regid=65534 --clear-groups bash -c '{SORT}'; true"
    assert unit(watch, script, PIPELINED_JOB="theirs") == "theirs.job"


@pytest.mark.thorough
def test_what_was_started_before_is_of_another_job(watch: Watch) -> None:
    script = f"PIPELINED_JOB=one bash -c '{SORT}'; {SORT}"
    seen = units(watch, script, PIPELINED_JOB="whole")
    assert seen == {"one.job": 1, "whole.job": 1}


# What cron starts


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("command", "unit"),
    [
        (SORT, "seq.cron"),
        (f"cd / && {SORT}", "seq.cron"),
        ("LC_ALL=C nice -n 5 ./backup.sh --all", "backup.sh.cron"),
        ("bash ./backup.sh secret", "backup.sh.cron"),
        ("run-parts --regex=sh jobs", "weekly.sh.cron"),
        ("PIPELINED_JOB=nightly ./backup.sh", "nightly.job"),
    ],
)
def test_each_command_of_cron_is_a_job(watch: Watch, command: str, unit: str) -> None:
    jobs = watch.directory / "jobs"
    jobs.mkdir()
    for script in (watch.directory / "backup.sh", jobs / "weekly.sh"):
        script.write_text(f"#!/bin/bash\n{SORT}\n")
        script.chmod(0o755)
    observed = watch.drive("cron", "2", command)
    assert [run.series.unit for run in observed.runs if run.pipeline == SORTED] == [unit] * 2


def test_a_variable_wins_over_cron(watch: Watch) -> None:
    observed = watch.run(
        f"mkfifo gate; : > gate & cron 1 '{SORT}'; true", environment={"PIPELINED_JOB": "crontab"}
    )
    assert observed.only(SORTED).series.unit == "crontab.job"


# In a container


@pytest.fixture
def container(make_cgroup: Callable[[str], Path]) -> Path:
    """A cgroup that goes by the name of a container that no runtime knows."""
    return make_cgroup(f"docker-{'3f2a9c81b0d4'.ljust(64, 'e')}.scope")


@pytest.mark.thorough
def test_a_container_is_a_unit_in_which_jobs_have_their_own(
    watch: Watch, configure: Configure, container: Path, tmp_path: Path
) -> None:
    with Observer.open(configure(), own_only=True) as observer:
        other = type(watch)(observer, tmp_path)
        seen = units(
            other,
            f"echo $$ > {container}/cgroup.procs; {SORT}; PIPELINED_JOB=one bash -c '{SORT}'; true",
        )
    assert seen == {"3f2a9c81b0d4.docker": 1, "one.job": 1}


# Other lists


def observed_with(watch: Watch, configure: Configure, directory: Path, **options: object) -> str:
    """The unit of a pipeline that cron starts with variables, by an observer with these options."""
    with Observer.open(configure(**options), own_only=True) as observer:
        other = type(watch)(observer, directory)
        return unit(
            other,
            f"mkfifo gate; : > gate & cron 1 '{SORT}'; true",
            PIPELINED_JOB="ours",
            THEIR_JOB="theirs",
        )


@pytest.mark.oldest_kernel
def test_variables_and_schedulers_are_those_of_the_configuration(
    watch: Watch, configure: Configure, tmp_path: Path
) -> None:
    def under(name: str, **options: object) -> str:
        (directory := tmp_path / name).mkdir()
        return observed_with(watch, configure, directory, **options)

    assert under("one", job_variables=("THEIR_JOB", "PIPELINED_JOB")) == "theirs.job"
    assert under("two", job_variables=()) == "seq.cron"
    assert not under("three", job_variables=(), schedulers=()).endswith((".job", ".cron"))
