# SPDX-License-Identifier: Apache-2.0
"""Runs know whose they are, and of which start of which job, by what was in their environments."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipelined.config import Config
from pipelined.observer import Observer
from pipelined.runs import Identity, Trace
from pipelined.starter import boot_id
from pipelined.web.metrics import Metrics

if TYPE_CHECKING:
    from kernel.conftest import Configure, Watch

#: A pipeline that the shell starts and does not become.
SORT = "seq 1000 | sort -n | tail -n 1; true"
SORTED = "seq|sort|tail"

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


def identity(watch: Watch, script: str, pipeline: str = SORTED, **environment: str) -> Identity:
    """That of the one run of this pipeline in a script with these variables."""
    found = watch.run(script, environment=environment).only(pipeline).identity
    assert found
    return found


def variables(
    watch: Watch, script: str, pipeline: str = SORTED, **environment: str
) -> dict[str, str]:
    return dict(identity(watch, script, pipeline, **environment).variables)


@pytest.mark.oldest_kernel
def test_without_a_variable_it_is_user_and_host(watch: Watch) -> None:
    assert identity(watch, SORT, SLURM_JOB_IDS="1", NOT_SLURM_JOB_ID="2", slurm_job_id="3") == (
        Identity(host=socket.gethostname(), boot_id=boot_id(), uid=0, user="root")
    )


@pytest.mark.oldest_kernel
def test_values_of_named_variables_are_kept(watch: Watch) -> None:
    given = {"SLURM_JOB_ID": "4711", "BUILD_URL": "https://ci.example.org/job/etl/7/?a=b c"}
    found = identity(
        watch, SORT, **given, INVOCATION_ID="ab" * 16, TRACEPARENT=PARENT, TRACESTATE="foo=1"
    )
    assert found.variables == given
    assert found.invocation_id == "ab" * 16
    assert found.trace == Trace(TRACE, SPAN, True, "foo=1")


@pytest.mark.thorough
def test_no_other_variable_is_read(watch: Watch) -> None:
    secrets = {"AWS_SECRET_ACCESS_KEY": "s3cr3t", "SLURM_JOB_PASSWORD": "s3cr3t", "TRACE": "s3cr3t"}
    found = identity(watch, SORT, **secrets, SLURM_JOB_ID="1", CI_JOB_TOKEN="s3cr3t")
    assert found.variables == {"SLURM_JOB_ID": "1"}
    assert "s3cr3t" not in repr(found)


@pytest.mark.thorough
@pytest.mark.parametrize("name", Config().kept_variables[2:])
def test_each_variable_that_is_named_by_default_is_found(watch: Watch, name: str) -> None:
    others = {f"{name}S": "wrong", name[:-1]: "wrong", f"X{name}": "wrong"}
    given = {other: "wrong" for other in others if other not in Config().kept_variables}
    assert variables(watch, SORT, **given, **{name: "right"}) == {name: "right"}


@pytest.mark.oldest_kernel
@pytest.mark.parametrize(
    ("script", "pipeline"),
    [
        (f"bash -c '{SORT}'; true", SORTED),
        (
            "f() { for i in 1 2 3; do echo $i; done; }; f | while read x; do :; done; true",
            "bash|bash",
        ),
        (f"({SORT}) | cat; true", "bash|cat"),
        ("exec bash -c 'exec seq 1000' | sort -n | (exec tail -n 1); true", SORTED),
    ],
)
def test_what_is_forked_has_the_environment_of_the_last_exec(
    watch: Watch, script: str, pipeline: str
) -> None:
    assert variables(watch, script, pipeline, SLURM_JOB_ID="4711") == {"SLURM_JOB_ID": "4711"}


@pytest.mark.oldest_kernel
@pytest.mark.parametrize(
    "script",
    [
        f"env -i PATH=$PATH bash -c '{SORT}'; true",
        f"env -u SLURM_JOB_ID bash -c '{SORT}'; true",
        f"unset SLURM_JOB_ID; bash -c '{SORT}'; true",
    ],
)
def test_an_environment_without_any_has_none(watch: Watch, script: str) -> None:
    assert variables(watch, script, SLURM_JOB_ID="4711") == {}


@pytest.mark.oldest_kernel
def test_of_stages_with_different_values_the_first_counts(watch: Watch) -> None:
    script = "SLURM_JOB_ID=1 seq 1000 | SLURM_JOB_ID=2 BUILD_TAG=x sort -n | tail -n 1; true"
    assert variables(watch, script) == {"SLURM_JOB_ID": "1", "BUILD_TAG": "x"}


@pytest.mark.thorough
def test_a_nested_shell_may_be_of_another_instance(watch: Watch) -> None:
    runs = watch.run(
        f"(SLURM_JOB_ID=2 bash -c '{SORT}'; true) | cat; true", environment={"SLURM_JOB_ID": "1"}
    )
    inner, outer = runs.only(SORTED).identity, runs.only("bash|cat").identity
    assert inner and inner.variables == {"SLURM_JOB_ID": "2"}
    assert outer and outer.variables == {"SLURM_JOB_ID": "1"}


@pytest.mark.oldest_kernel
def test_each_of_many_instances_is_distinctions(watch: Watch) -> None:
    script = f"for i in $(seq 100); do SLURM_ARRAY_TASK_ID=$i bash -c '{SORT}'; done"
    runs = [run for run in watch.run(script).runs if run.pipeline == SORTED]
    found = [run.identity.variables["SLURM_ARRAY_TASK_ID"] for run in runs if run.identity]
    assert found == [str(n) for n in range(1, 101)]


@pytest.mark.oldest_kernel
def test_of_more_than_twelve_the_first_of_the_configuration_are_kept(watch: Watch) -> None:
    named = [name for name in Config().kept_variables if not name.startswith("TRACE")]
    given = {name: f"value of {name}" for name in reversed(named) if name != "INVOCATION_ID"}
    kept = named[1:13]
    assert variables(watch, SORT, **given) == {name: given[name] for name in kept}
    assert len(given) > 12
    # a trace comes before all of them
    found = identity(watch, SORT, **given, TRACEPARENT=PARENT)
    assert found.trace and list(found.variables) == kept[:11]


@pytest.mark.oldest_kernel
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 100, 246, 247, 248, 254, 255, 256, 300, 5000])
def test_long_values_are_cut(watch: Watch, size: int) -> None:
    found = variables(watch, SORT, BUILD_URL="x" * size, SLURM_JOB_ID="4711", AAA="y" * size)
    expected = {"BUILD_URL": "x" * size} if size <= 247 else {"BUILD_URL": "x" * 244 + "…"}
    assert found == {"SLURM_JOB_ID": "4711"} | (expected if size else {})


@pytest.mark.thorough
def test_a_long_state_of_a_trace_is_cut_between_entries(watch: Watch) -> None:
    entries = [f"vendor{n:02}=0123456789" for n in range(30)]
    found = identity(watch, SORT, TRACEPARENT=PARENT, TRACESTATE=",".join(entries))
    assert found.trace and found.trace.state == ",".join(entries[:12])


@pytest.mark.thorough
def test_it_is_found_behind_a_hundred_other_variables(watch: Watch) -> None:
    many = {f"V{n}": "x" * n for n in range(100)} | {f"SLURM_{n}": "x" for n in range(50)}
    assert variables(watch, SORT, **many, SLURM_JOB_ID="1") == {"SLURM_JOB_ID": "1"}


@pytest.mark.thorough
def test_text_that_is_not_unicode_is_shown_escaped(watch: Watch) -> None:
    script = f"export BUILD_TAG=$(printf 'caf\\351 \\033[2J'); bash -c '{SORT}'; true"
    assert variables(watch, script) == {"BUILD_TAG": "caf\\xe9 \x1b[2J"}


@pytest.mark.oldest_kernel
@pytest.mark.parametrize(
    "script",
    [
        f"setpriv --reuid=65534 --regid=65534 --clear-groups bash -c '{SORT}'; true",
        "setpriv --reuid=65534 --clear-groups seq 1000 | sort -n | tail -n 1; true",
    ],
)
def test_the_user_is_the_one_that_the_first_stage_runs_as(watch: Watch, script: str) -> None:
    watch.directory.chmod(0o777)
    found = identity(watch, script, SLURM_JOB_ID="1")
    assert (found.uid, found.user) == (65534, "nobody")
    assert found.variables == {"SLURM_JOB_ID": "1"}


@pytest.mark.thorough
def test_a_driver_gives_each_process_a_span_of_its_own(watch: Watch) -> None:
    driver = watch.directory / "driver.py"
    driver.write_text(
        "import os, subprocess\n"
        "for n in range(1, 4):\n"
        f"    parent = '00-{TRACE}-%016x-01' % n\n"
        "    environment = {**os.environ, 'TRACEPARENT': parent}\n"
        f"    subprocess.run(['bash', '-c', {SORT!r}], env=environment)\n"
    )
    runs = [r for r in watch.run(f"python3 {driver}; true").runs if r.pipeline == SORTED]
    spans = [r.identity.trace.parent_span_id for r in runs if r.identity and r.identity.trace]
    assert spans == [f"{n:016x}" for n in (1, 2, 3)]


@pytest.mark.thorough
def test_a_container_is_named_by_its_whole_id(
    watch: Watch, make_cgroup: Callable[[str], Path]
) -> None:
    container = "4a2a9c81b0d4".ljust(64, "e")
    cgroup = make_cgroup(f"docker-{container}.scope")
    found = identity(watch, f"echo $$ > $CGROUP/cgroup.procs; {SORT}", CGROUP=str(cgroup))
    assert found.container
    assert (found.container.runtime, found.container.id) == ("docker", container)
    assert found.pod is None


@pytest.mark.thorough
def test_ids_end_with_a_mark_of_host_and_boot(watch: Watch) -> None:
    first, second = (watch.run(SORT).only(SORTED).id for _ in range(2))
    assert first != second
    assert first.split("-")[2] == second.split("-")[2]
    assert len(first.split("-")[2]) == 8


@pytest.mark.oldest_kernel
def test_nothing_of_it_is_a_label(watch: Watch, make_cgroup: Callable[[str], Path]) -> None:
    container = "4a2a9c81b0d4".ljust(64, "e")
    cgroup = make_cgroup(f"docker-{container}.scope")
    values = {name: f"v4lue-of-{name}" for name in ("SLURM_JOB_ID", "BUILD_URL", "GITHUB_RUN_ID")}
    found = identity(
        watch,
        f"echo $$ > $CGROUP/cgroup.procs; {SORT}",
        CGROUP=str(cgroup),
        **values,
        INVOCATION_ID="ab" * 16,
        TRACEPARENT=PARENT,
        TRACESTATE="v4lue=of-trace",
    )
    text = Metrics(watch.observer, None, None, None).render()[0].decode()
    assert 'pipeline="seq|sort|tail"' in text
    # levels have numbers, too
    known = {*found.named.values(), found.host, found.boot_id, "v4lue", SPAN} - {"0"}
    assert len(known) > 8
    assert known & set(re.findall(r'="((?:[^"\\]|\\.)*)"', text)) == set()
    assert [value for value in known if len(value) > 4 and value in text] == []


@pytest.mark.oldest_kernel
def test_a_unit_that_is_gone_at_once_has_its_name(
    watch: Watch, make_cgroup: Callable[[str], Path]
) -> None:
    """Its cgroup is gone before anybody can read the directory."""
    names = [f"short-{letter * 2}.service" for letter in "ghijklmnopqr"]
    observed = watch.run(
        "for name in $NAMES; do\n"
        "mkdir $CGROUP/$name\n"
        f"(echo $BASHPID > $CGROUP/$name/cgroup.procs; {SORT})\n"
        "until rmdir $CGROUP/$name; do :; done\n"
        "done 2> tries",
        environment={
            "NAMES": " ".join(names),
            "CGROUP": str(make_cgroup("pipelined-test-units.slice")),
        },
    )
    assert sorted(run.series.unit for run in observed.runs) == names


#: As the packaged service with the drop-in of docs/INSTALL.md: it reads names, gives up its
#: capabilities, and meets another container.
READS_NAMES = """
import sys
from pathlib import Path
from pipelined.daemon import capabilities
from pipelined.model.containers import ContainerFiles
from pipelined.model.units import CgroupNames

root, tree = map(Path, sys.argv[1:])
names = CgroupNames(tree, containers=ContainerFiles(root), interval=0)
names.read_names()
capabilities.drop()
(tree / ("docker-" + 64 * "c" + ".scope")).mkdir()
print(*(names.unit((tree / ("docker-" + 64 * one + ".scope")).stat().st_ino) for one in "abc"))
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("capability", "units"),
    [
        ("+dac_read_search", "name-a.docker name-b.docker cccccccccccc.docker"),
        ("", "aaaaaaaaaaaa.docker bbbbbbbbbbbb.docker cccccccccccc.docker"),
    ],
)
def test_names_of_containers_are_read_before_the_capabilities_go(
    capability: str, units: str
) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        directory = Path(made)
        directory.chmod(0o755)
        root, tree = directory / "root", directory / "tree"
        tree.mkdir()
        tree.chmod(0o777)
        for one in "abc":
            if one != "c":
                (tree / f"docker-{64 * one}.scope").mkdir()
            container = root / "var/lib/docker/containers" / (64 * one)
            container.mkdir(parents=True)
            described = container / "config.v2.json"
            described.write_text(f'{{"Name": "/name-{one}"}}')
            described.chmod(0o600)
        (root / "var/lib/docker").chmod(0o710)
        given = ",".join(filter(None, ("+bpf,+perfmon", capability)))
        found = subprocess.run(
            [
                *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
                *(f"--inh-caps={given}", f"--ambient-caps={given}"),
                f"--bounding-set=-all,{given}",
                *(sys.executable, "-B", "-c", READS_NAMES, str(root), str(tree)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    assert found.stdout.strip() == units, found.stderr


# Options


@pytest.fixture
def configured(configure: Configure, watch: Watch) -> Iterator[Callable[..., Watch]]:
    """Watches with other options."""
    opened: list[Observer] = []

    def begin(**options: Any) -> Watch:
        opened.append(Observer.open(configure(**options), own_only=True))
        return type(watch)(opened[-1], watch.directory)

    yield begin
    for one in opened:
        one.close()


@pytest.mark.thorough
def test_the_list_decides_what_is_read(configured: Callable[..., Watch]) -> None:
    watch = configured(instance_variables=("X", "MY_RUN", "MY_ROUND"))
    given = {"X": "1", "MY_RUN": "2", "MY_ROUNDS": "3", "SLURM_JOB_ID": "4", "XY": "5"}
    assert variables(watch, SORT, **given) == {"X": "1", "MY_RUN": "2"}


@pytest.mark.thorough
def test_an_empty_list_reads_none_and_jobs_are_named_all_the_same(
    configured: Callable[..., Watch],
) -> None:
    watch = configured(instance_variables=())
    run = watch.run(
        SORT, environment={"SLURM_JOB_ID": "1", "TRACEPARENT": PARENT, "PIPELINED_JOB": "nightly"}
    ).only(SORTED)
    assert run.identity and (run.identity.variables, run.identity.trace) == ({}, None)
    assert run.series.unit == "nightly.job"


@pytest.mark.thorough
def test_a_host_has_the_name_that_it_is_given(configured: Callable[..., Watch]) -> None:
    watch = configured(host_name="node-7")
    assert identity(watch, SORT).host == "node-7"


@pytest.mark.thorough
def test_more_instances_than_there_is_room_for_are_distinctions_or_counted(
    watch: Watch, observer: Observer
) -> None:
    """The oldest give way; each run has the right one, or none, and then that is counted."""
    before = observer.lost()["instances"]
    script = "for i in $(seq 1500); do SLURM_ARRAY_TASK_ID=$i /bin/true; done; " + (
        f"for i in $(seq 20); do BUILD_TAG=$i bash -c '{SORT}'; done"
    )
    runs = [run for run in watch.run(script, timeout=900).runs if run.pipeline == SORTED]
    found = [r.identity.variables.get("BUILD_TAG") for r in runs if r.identity]
    assert found == [str(n) for n in range(1, 21)]
    assert observer.lost()["instances"] == before
