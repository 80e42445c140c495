# SPDX-License-Identifier: Apache-2.0
"""The container image: what is in it, and that `docker run` as docs/CONTAINER.md has it works.

`sudo make test-image` builds the image and runs this. There is no Docker here: Podman takes the
same flags. It gets its own seccomp profile with Docker's rule for bpf(2), and the container has
no network but its own loopback, because Podman alone cannot publish a port.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kernel.test_start_stop import gone, held

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "CONTAINER.md"
IMAGE = "localhost/pipelined"
#: The label `unit` of what runs there. Its cgroup is an instance of this process's own.
UNIT = "pipelined-image-test@.service"
#: runc and cgroupfs, because crun wants cgroup v2 alone.
PODMAN = ["podman", "--cgroup-manager", "cgroupfs", "--runtime", "runc"]
#: A host may give even root no CAP_SYS_RESOURCE, and Podman raises these limits if left alone.
LIMITS = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
BPF_PROG_GET_FD_BY_ID = 13
#: A test that waits longer than this for something has failed (seconds), also on a host where other
#: work has most of the CPUs.
PATIENCE = 120


def output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(command)}: {done.stderr}"
    return done.stdout


def documented(section: str = "Run") -> list[str]:
    """The words of the `docker run` command in a section of the document."""
    text = DOCUMENT.read_text().split(f"\n## {section}\n")[1]
    found = re.search(r"^docker run (?:.*\\\n)*.*$", text, re.MULTILINE)
    assert found, f"no docker run in {DOCUMENT}, {section}"
    return shlex.split(found[0].replace("\\\n", " "))


def adapted(words: list[str], name: str, others: dict[str, str]) -> list[str]:
    """The documented command for this Podman: what differs is replaced, nothing is added to it
    that could make it work where the original would not."""
    text = shlex.join(words)
    for old, new in {
        "docker run": shlex.join([*PODMAN, "run", "--pull", "never", *LIMITS]),
        "--name pipelined": f"--name {name}",
        "--restart unless-stopped ": "",
        **others,
    }.items():
        assert text.count(old) == 1, f"{old!r} is not once in: {text}"
        text = text.replace(old, new)
    return shlex.split(text)


@dataclass(frozen=True)
class Container:
    name: str
    state: Path

    @property
    def pid(self) -> int:
        return int(output(*PODMAN, "inspect", "--format", "{{.State.Pid}}", self.name))

    def get(self, path: str) -> str:
        """What the daemon answers in its own network namespace."""
        url = f"http://127.0.0.1:9905{path}"
        return output("nsenter", f"--net=/proc/{self.pid}/ns/net", "curl", "-fsS", url)

    def runs(self, pipeline: str) -> dict[str, float]:
        """How many runs of the pipeline have ended, by unit."""
        return {
            sample.labels["unit"]: sample.value
            for family in text_string_to_metric_families(self.get("/metrics"))
            for sample in family.samples
            if sample.name == "pipelined_runs_total" and sample.labels["pipeline"] == pipeline
        }


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """The documented container, ready."""
    directory = tmp_path_factory.mktemp("container")
    name, state = f"pipelined-test-{os.getpid()}", directory / "state"
    seccomp = directory / "seccomp.json"
    state.mkdir()
    profile = ROOT / "deploy" / "container" / "podman-seccomp.jq"
    seccomp.write_text(output("jq", "-f", str(profile), "/usr/share/containers/seccomp.json"))
    others = {
        "--publish 127.0.0.1:9905:9905": "--network none",
        "--security-opt no-new-privileges": f"--security-opt no-new-privileges "
        f"--security-opt seccomp={seccomp}",
        "--volume pipelined:": f"--volume {state}:",
        " pipelined serve": f" {IMAGE} serve",
    }
    output(*adapted(documented(), name, others))
    started = Container(name, state)
    try:
        wait_until_healthy(started)
        yield started
    finally:
        print(output(*PODMAN, "logs", name))
        output(*PODMAN, "rm", "--force", "--time", "10", name)


def wait_until_healthy(container: Container) -> None:
    """The image's own health check, as an engine runs it."""
    check = [*PODMAN, "healthcheck", "run", container.name]
    end = time.monotonic() + PATIENCE
    while (done := subprocess.run(check, capture_output=True, text=True)).returncode != 0:
        assert time.monotonic() < end, f"not healthy: {done.stdout}{done.stderr}"
        time.sleep(0.2)


@contextlib.contextmanager
def unit_of_the_host() -> Iterator[Path]:
    """A cgroup of the host, with the name of a service."""
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    root = next(Path(line.split()[1]) for line in mounts if line.split()[2] == "cgroup2")
    group = root / UNIT.replace("@", f"@{os.getpid()}")
    group.mkdir()
    try:
        yield group
    finally:
        group.rmdir()


def test_the_image_has_no_shell_no_package_manager_and_no_compiler() -> None:
    name = output("buildah", "from", "--pull-never", IMAGE).strip()
    try:
        root = Path(output("buildah", "mount", name).strip())
        programs = [*(root / "usr/bin").iterdir(), *(root / "usr/sbin").iterdir()]
        assert {program.name.rstrip("0123456789.") for program in programs} == {"python"}
        assert not list(root.rglob("pip")) and not list(root.rglob("*.deb"))
        files = [path for path in root.rglob("*") if path.is_file()]
        assert not [path for path in files if path.stat().st_mode & 0o6000]
        assert len(list((root / "var/lib/dpkg/status.d").iterdir())) > 10
    finally:
        output("buildah", "rm", name)


def test_the_image_is_about_as_large_as_the_document_says() -> None:
    """Packages grow a little from release to release."""
    said = re.search(r"\*\*(\d+) MB\*\*", DOCUMENT.read_text())
    assert said
    inspected = json.loads(output(*PODMAN, "image", "inspect", IMAGE))[0]
    assert inspected["Size"] <= 1.15 * int(said[1]) * 1e6


def test_labels_say_what_it_is() -> None:
    labels = json.loads(output(*PODMAN, "image", "inspect", IMAGE))[0]["Labels"]
    version = output(sys.executable, str(ROOT / "deploy/version.py")).strip()
    assert labels["org.opencontainers.image.version"] == version
    assert labels["org.opencontainers.image.title"] == "pipelined"


def test_the_program_says_the_version_of_the_label() -> None:
    alone = ("--rm", "--pull", "never", "--network", "none")
    said = output(*PODMAN, "run", *alone, *LIMITS, IMAGE, "--version")
    assert said == f"pipelined {output(sys.executable, str(ROOT / 'deploy/version.py'))}"


def test_it_listens_on_loopback_unless_told_otherwise() -> None:
    config = json.loads(output(*PODMAN, "image", "inspect", IMAGE))[0]["Config"]
    assert config["Entrypoint"] == ["pipelined"]
    assert config["Cmd"] == ["serve"]


def test_it_counts_a_pipeline_of_the_host(container: Container) -> None:
    before = sum(container.runs("seq|gawk|wc").values())
    output("bash", "-c", "seq 200000 | gawk '{ s += $1 } END { print s }' | wc -c")
    end = time.monotonic() + PATIENCE
    while sum(container.runs("seq|gawk|wc").values()) < before + 1:
        assert time.monotonic() < end, container.runs("seq|gawk|wc")
        time.sleep(0.2)


def test_it_knows_the_units_of_the_host(container: Container) -> None:
    with unit_of_the_host() as group:
        into = f"echo $$ > {group}/cgroup.procs; seq 1000 | gawk '{{ print $1 }}' | sort | wc -l"
        output("bash", "-c", into)
        end = time.monotonic() + PATIENCE
        while UNIT not in container.runs("seq|gawk|sort|wc"):
            assert time.monotonic() < end, container.runs("seq|gawk|sort|wc")
            time.sleep(0.2)


def test_every_hook_of_the_scheduler_and_the_page_cache_is_attached(container: Container) -> None:
    """execve's is an fexit program, which some kernels refuse to everybody."""
    end = time.monotonic() + PATIENCE
    while '"pending_hooks":[]' not in container.get("/readyz").replace(" ", ""):
        assert time.monotonic() < end, container.get("/readyz")
        time.sleep(0.2)
    hooks = {
        sample.labels["hook"]: sample.value
        for family in text_string_to_metric_families(container.get("/metrics"))
        for sample in family.samples
        if sample.name == "pipelined_hook_attached" and sample.labels["method"] == "tp_btf"
    }
    assert {"sched_switch", "mm_filemap_add_to_page_cache"} <= hooks.keys()
    assert set(hooks.values()) == {1}


def test_its_privileges_are_no_more_than_documented(container: Container) -> None:
    status = dict(
        line.split(":\t", 1)
        for line in Path(f"/proc/{container.pid}/status").read_text().splitlines()
        if ":\t" in line
    )
    bpf_and_perfmon = 1 << 39 | 1 << 38
    assert int(status["CapBnd"], 16) == bpf_and_perfmon
    # CAP_BPF is kept where the kernel wants it for reading maps.
    assert int(status["CapPrm"], 16) & ~(1 << 39) == 0
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"


def test_it_writes_nowhere_but_into_its_volume(container: Container) -> None:
    assert list(container.state.iterdir())
    mounts = Path(f"/proc/{container.pid}/mounts").read_text().splitlines()
    root = next(line.split() for line in mounts if line.split()[1] == "/")
    assert "ro" in root[3].split(",")


#: Keeps what is sent to it, and prints its port.
BACK_END = """
import http.server, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open(sys.argv[1], "ab") as file:
            file.write(body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextlib.contextmanager
def sender_of(container: Container, received: Path) -> Iterator[Container]:
    """The documented sender beside the container, and a back end in its network."""
    enter = ["nsenter", f"--net=/proc/{container.pid}/ns/net"]
    name = f"{container.name}-export"
    with subprocess.Popen(
        [*enter, sys.executable, "-c", BACK_END, received], stdout=subprocess.PIPE, text=True
    ) as back_end:
        assert back_end.stdout
        others = {
            "--network container:pipelined ": f"--network container:{container.name} ",
            "--volume pipelined-export:": f"--volume {name}:",
            "//collector.example.org:4318": f"//127.0.0.1:{int(back_end.stdout.readline())}",
            " pipelined export": f" {IMAGE} export",
        }
        words = shlex.join(documented("Runs as spans"))
        words = words.replace("--name pipelined-export", "--name pipelined")
        try:
            output(*adapted(shlex.split(words), name, others))
            volume = output(*PODMAN, "volume", "inspect", "--format", "{{.Mountpoint}}", name)
            yield Container(name, Path(volume.strip()))
        finally:
            print(output(*PODMAN, "logs", name))
            output(*PODMAN, "rm", "--force", "--time", "10", "--volumes", name)
            subprocess.run([*PODMAN, "volume", "rm", "--force", name], check=False)
            back_end.terminate()


def test_a_sender_beside_it_sends_runs_without_root_and_privileges(
    container: Container, tmp_path: Path
) -> None:
    received = tmp_path / "received"
    received.touch()
    with sender_of(container, received) as sender:
        end = time.monotonic() + PATIENCE
        # Again and again: of many runs that end at once the history has the longest.
        while b"sleep|gawk|tail|wc" not in received.read_bytes():
            assert time.monotonic() < end, output(*PODMAN, "logs", sender.name)
            output("bash", "-c", "sleep 1 | gawk '{ print $1 }' | tail -n 1 | wc -c")
        wait_until_healthy(sender)
        status = Path(f"/proc/{sender.pid}/status").read_text()
        assert re.search(r"^Uid:\t65532\t65532\t65532\t65532$", status, re.M)
        assert re.findall(r"^Cap(?:Prm|Eff|Bnd|Amb):\t(\S+)$", status, re.M) == ["0" * 16] * 4
        assert re.search(r"^NoNewPrivs:\t1$", status, re.M)
        assert (sender.state / "cursor").stat().st_uid == 65532


def test_stop_detaches_every_hook(container: Container) -> None:
    """The last one: it stops the container."""
    programs = held(container.pid, "prog_id")
    assert programs
    output(*PODMAN, "stop", "--time", "10", container.name)
    assert output(*PODMAN, "inspect", "--format", "{{.State.ExitCode}}", container.name) == "0\n"
    assert gone(BPF_PROG_GET_FD_BY_ID, programs)
