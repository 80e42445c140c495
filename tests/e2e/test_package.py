# SPDX-License-Identifier: Apache-2.0
"""What an operator installs: the Debian package in bare Debian 12 and 13, and the wheel.

The roots are made by mmdebstrap, once, and kept in build/roots. They have no systemd: that the
service starts is tested in a virtual machine (tests/vm). Each test changes a layer of its own over
the installed root; mounts are in a namespace of the command that needs them, and end with it.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from e2e.conftest import Daemon
from vm.matrix import mirror

SUITES = {"bookworm": "3.11", "trixie": "3.13"}  # and their Python
TOP = Path(__file__).resolve().parents[2]
CACHE = TOP / "build" / "roots"
CONFIGURATION = "etc/pipelined/pipelined.toml"
ENABLED = "etc/systemd/system/multi-user.target.wants/pipelined.service"
SENDER = "etc/systemd/system/multi-user.target.wants/pipelined-export.service"

#: Needed by no code that runs here (deploy/debian/lock.py says why).
LEFT_OUT = {"pygments"}

# Arguments: the layers, the uppermost first, and behind `--` what is to run. /proc shows all of the
# host's processes: the daemon in the root is to see the host's pipelines.
ENTER = """
top=$1; shift
lower=
while [ "$1" != -- ]; do lower=$lower${lower:+:}$1/files; shift; done
shift
mkdir -p "$top"/{files,work,root}
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$top/files,workdir=$top/work" "$top/root"
mount -t proc proc "$top/root/proc"
mount --rbind /sys "$top/root/sys"
exec chroot "$top/root" "$@"
"""


@dataclass(frozen=True)
class Root:
    """A Debian that commands run in. What they change is kept in the uppermost layer."""

    layers: tuple[Path, ...]

    def command(self, *words: str) -> list[str]:
        layers = map(str, self.layers)
        return ["unshare", "--mount", "bash", "-euc", ENTER, "enter", *layers, "--", *words]

    def run(self, *words: str) -> str:
        """What the command printed; it has to succeed."""
        done = subprocess.run(
            self.command(*words),
            env={
                **{name: os.environ[name] for name in os.environ if name.endswith("_proxy")},
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "DEBIAN_FRONTEND": "noninteractive",
                "LC_ALL": "C.UTF-8",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{' '.join(words)}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def install(self, package: Path, *options: str) -> str:
        shutil.copy(package, self.file(f"srv/{package.name}"))
        return self.run("apt-get", "install", "-y", *options, f"/srv/{package.name}")

    def file(self, path: str) -> Path:
        """Where the uppermost layer has a file, for changing it between two commands."""
        place = self.layers[0] / "files" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def files(self) -> set[str]:
        """Every path but those that apt and dpkg keep for themselves, and the packages."""
        theirs = ("/var/cache/apt/", "/var/lib/dpkg/", "/var/log/", "/srv/")
        found = self.run("find", "/", "-xdev").splitlines()
        return {path for path in found if not path.startswith(theirs)}

    def over(self, layer: Path) -> Root:
        """This root with one more layer, which takes what is changed from now on."""
        (layer / "files").mkdir(parents=True)
        return Root((layer, *self.layers))


def checked(*command: str | Path, **options: Any) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        **options,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


def build(directory: Path, **options: Any) -> tuple[Path, Path]:
    """The wheel and the Debian package of this checkout, as `make deb` builds them."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1795000000", **options.pop("env", {})}
    options["env"] = environment
    make_wheel = (TOP / "deploy/wheel.py", directory / "wheel", platform.machine())
    wheel = checked(sys.executable, *make_wheel, **options)
    script = TOP / "deploy/debian/build.py"
    package = checked(sys.executable, script, wheel.strip(), directory / "deb", **options)
    return Path(wheel.strip()), Path(package.strip())


@pytest.fixture(scope="module")
def built(bpf: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def wheel(built: tuple[Path, Path]) -> Path:
    return built[0]


@pytest.fixture(scope="module")
def package(built: tuple[Path, Path]) -> Path:
    return built[1]


@pytest.fixture(scope="module")
def newer(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The next release: another version, and another default configuration."""
    directory = tmp_path_factory.mktemp("newer")
    tree = directory / "tree"
    checked("dpkg-deb", "--raw-extract", package, tree)
    control = (tree / "DEBIAN/control").read_text()
    version = checked("dpkg-deb", "--field", package, "Version").strip()
    (tree / "DEBIAN/control").write_text(
        control.replace(f"Version: {version}", f"Version: {version}+next")
    )
    with (tree / CONFIGURATION).open("a") as file:
        file.write("# new in the next release\n")
    checked("dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, directory)
    (found,) = directory.glob("*.deb")
    return found


@pytest.fixture(scope="module")
def archives() -> dict[str, Path]:
    """A bare root of each suite as a tar file, from the mirror that the host uses."""
    CACHE.mkdir(parents=True, exist_ok=True)
    found = {suite: CACHE / f"{suite}.tar" for suite in SUITES}

    def make(suite: str) -> None:
        part = CACHE / f"{suite}.part.tar"
        key = "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg"
        source = f"deb [{key}] {mirror()} {suite} main"
        checked("mmdebstrap", "--quiet", "--variant=minbase", suite, part, source)
        part.rename(found[suite])

    with ThreadPoolExecutor() as pool:
        list(pool.map(make, [suite for suite, tar in found.items() if not tar.exists()]))
    return found


@pytest.fixture(scope="module", params=SUITES)
def suite(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def bare(
    suite: str, bpf: None, archives: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Root]:
    """Debian with nothing but what makes it Debian, and apt's lists of today."""
    directory = tmp_path_factory.mktemp(suite)
    files = directory / "bare" / "files"
    files.mkdir(parents=True)
    checked("tar", "-xf", archives[suite], "-C", files)
    shutil.copy("/etc/resolv.conf", files / "etc/resolv.conf")
    (files / "etc/dpkg/dpkg.cfg.d/fast").write_text("force-unsafe-io\n")  # nothing has to last
    root = Root((directory / "bare",)).over(directory / "lists")
    root.run("apt-get", "-o", "Acquire::Retries=3", "update")
    yield root
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def ready(bare: Root, package: Path) -> Root:
    """With all that the package depends on, and not yet the package."""
    root = bare.over(bare.layers[0].with_name("ready"))
    depends = checked("dpkg-deb", "--field", package, "Depends").strip()
    root.run("apt-get", "satisfy", "-y", "--no-install-recommends", depends)
    return root


@pytest.fixture(scope="module")
def installed(ready: Root, package: Path) -> Root:
    root = ready.over(ready.layers[0].with_name("installed"))
    root.install(package)
    return root


@pytest.fixture
def root(installed: Root, tmp_path: Path) -> Iterator[Root]:
    """The installed root, to be changed."""
    yield installed.over(tmp_path / "layer")
    shutil.rmtree(tmp_path / "layer")


# The files


def test_the_same_source_gives_the_same_bytes(built: tuple[Path, Path], tmp_path: Path) -> None:
    again = build(tmp_path, env={"TZ": "Asia/Tokyo", "LC_ALL": "C"}, umask=0o077, cwd=tmp_path)

    for first, second in zip(built, again, strict=True):
        assert second.name == first.name
        assert second.read_bytes() == first.read_bytes()


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    package = TOP / "daemon" / "pipelined"
    found = {path.relative_to(TOP / "daemon") for path in package.rglob("*") if path.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        names = {Path(name) for name in archive.namelist() if ".dist-info/" not in name}

    assert names == {path for path in found if "__pycache__" not in path.parts}
    assert Path("pipelined/bpf/pipelined.bpf.o") in names


def test_lintian_finds_nothing_wrong(package: Path) -> None:
    checked("lintian", "--allow-root", "--fail-on", "error,warning", package)


# The package


def test_apt_installs_it_on_a_bare_debian_with_one_command(
    bare: Root, package: Path, tmp_path: Path
) -> None:
    plan = bare.over(tmp_path / "layer").install(package, "--simulate")

    assert "Inst pipelined " in plan
    # Debian's own, and few: neither a compiler nor a second web framework.
    found = {line.split()[1] for line in plan.splitlines() if line.startswith("Inst python3-")}
    ours = {"bcrypt", "markupsafe", "minimal", "requests", "yaml"}
    theirs = {"certifi", "chardet", "charset-normalizer", "idna", "urllib3"}
    of_one_release = {"cffi-backend", "pkg-resources", "six"}
    assert {f"python3-{name}" for name in ours | theirs} == found - {
        f"python3-{name}" for name in of_one_release
    }


def test_doctor_finds_that_it_works(root: Root) -> None:
    said = root.run("pipelined", "doctor").splitlines()[-1]

    assert said.startswith("pipelined works here")


def test_each_module_can_be_imported(root: Root) -> None:
    code = """
import importlib, pkgutil, sys
sys.path.insert(0, "/usr/lib/pipelined")
import pipelined
names = [module.name for module in pkgutil.walk_packages(pipelined.__path__, "pipelined.")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""
    modules = list((TOP / "daemon/pipelined").rglob("*.py"))

    inside = len(modules) - 1  # not `pipelined` itself
    assert int(root.run("python3", "-IWerror", "-c", code)) == inside


def test_libraries_have_the_versions_that_they_ask_each_other_for(root: Root, suite: str) -> None:
    ours = root.layers[1] / "files/usr/lib/pipelined"
    debian = root.layers[2] / "files/usr/lib/python3/dist-packages"
    found = {
        canonicalize_name(distribution.name): distribution
        for distribution in distributions(path=[str(ours), str(debian)])
    }
    lacking = [
        f"{name} needs {text}"
        for name, distribution in found.items()
        for text in distribution.requires or ()
        for requirement in [Requirement(text)]
        if requirement.marker is None
        or requirement.marker.evaluate({"extra": "", "python_version": SUITES[suite]})
        for needed in [found.get(canonicalize_name(requirement.name))]
        if requirement.name.lower() not in LEFT_OUT
        and (needed is None or not requirement.specifier.contains(needed.version))
    ]

    assert "flask" in found and "markupsafe" in found
    assert lacking == []


def test_the_sender_begins_with_the_libraries_of_the_package_and_of_debian(root: Root) -> None:
    """Nothing answers there: it says so, and asks again until it is stopped."""
    script = """
pipelined export --url http://127.0.0.1:1 --state-directory /tmp/place \\
    --web.listen-address 127.0.0.1:0 2>/tmp/log & sender=$!
until grep -q 'asked again' /tmp/log; do kill -0 $sender; sleep 0.1; done
kill $sender; wait $sender; cat /tmp/log
"""
    said = root.run("sh", "-euc", script)

    assert "no daemon answers at http://127.0.0.1:1" in said
    assert "Traceback" not in said


def test_the_daemon_loads_nothing_of_what_the_sender_needs(root: Root) -> None:
    code = """
import sys
sys.path.insert(0, "/usr/lib/pipelined")
import pipelined.cli, pipelined.daemon.serve, pipelined.web.app
print(sorted({name.partition(".")[0] for name in sys.modules}))
"""
    loaded = root.run("python3", "-c", code)

    assert "flask" in loaded
    assert not {"google", "opentelemetry", "requests"} & set(loaded.replace("'", " ").split())


def test_the_daemon_counts_a_pipeline(
    root: Root, tmp_path: Path, wait_until: Callable[[Callable[[], Any], str], Any]
) -> None:
    unit = root.run("cat", "/usr/lib/systemd/system/pipelined.service")
    (line,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    command = line.removeprefix("ExecStart=").replace("$OPTIONS", "").split()
    options = ["--web.listen-address", "127.0.0.1:0", "--state-directory", "/var/lib/pipelined"]
    log = tmp_path / "log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            root.command(*command, *options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    daemon = Daemon(process, log)
    try:
        daemon.wait_until_ready()
        # Names that no other process of the host has; in a root of their own, like a container.
        name = f"seq{os.getpid()}"
        aside = Root(root.layers[1:]).over(tmp_path / "aside")
        aside.run("sh", "-c", f"ln -s /usr/bin/seq /tmp/{name}; /tmp/{name} 100000 | wc -l")
        (run,) = daemon.wait_for_runs(f"{name}|wc", 1)

        assert [stage["command"] for stage in run["stages"]] == [name, "wc"]
        assert daemon.get("/").startswith("<!doctype html>")
        daemon.stop()
        assert process.returncode == 0, log.read_text()
    finally:
        daemon.close()
    assert name in root.run("pipelined", "runs", "--state-directory", "/var/lib/pipelined")


def test_bytecode_is_that_of_the_hosts_python_and_is_renewed_with_it(
    root: Root, suite: str
) -> None:
    tag = SUITES[suite].replace(".", "")
    pattern = f"/usr/lib/pipelined/pipelined/__pycache__/cli.cpython-{tag}.pyc"

    root.run("test", "-s", pattern)
    root.run("sh", "-c", "find /usr/lib/pipelined -name '*.pyc' -delete")
    root.run("/usr/share/python3/runtime.d/pipelined.rtupdate", "rtupdate", "3.9", SUITES[suite])
    root.run("test", "-s", pattern)


def test_the_bcc_loader_finds_the_program(package: Path, tmp_path: Path) -> None:
    """With the host's bcc, which is a large package: the files are laid over the host's /usr."""
    checked("dpkg-deb", "--extract", package, tmp_path)
    script = (
        'mount -t overlay overlay -o "lowerdir=$0/usr:/usr" /usr; pipelined doctor --loader bcc'
    )
    said = checked("unshare", "--mount", "bash", "-euc", script, tmp_path)

    assert said.splitlines()[-1].startswith("pipelined works here")


def test_bash_completes_commands(root: Root) -> None:
    script = """
source /usr/share/bash-completion/completions/pipelined
COMP_WORDS=(pipelined com) COMP_CWORD=1
_pipelined_completion pipelined
printf '%s\\n' "${COMPREPLY[@]}"
"""
    assert root.run("bash", "-c", script).split() == ["compare", "completion"]


def test_what_is_installed_is_what_was_built(root: Root) -> None:
    assert root.run("dpkg", "--verify", "pipelined") == ""


# Upgrade


def test_an_upgrade_leaves_what_the_administrator_changed(root: Root, newer: Path) -> None:
    root.run("sh", "-c", f"echo 'max-stages = 7' > /{CONFIGURATION}; rm /{ENABLED}")
    root.install(newer, "-o", "Dpkg::Options::=--force-confold")

    assert root.run("cat", f"/{CONFIGURATION}") == "max-stages = 7\n"
    assert "new in the next release" in root.run("cat", f"/{CONFIGURATION}.dpkg-dist")
    root.run("test", "!", "-e", f"/{ENABLED}")


def test_an_upgrade_says_what_the_new_release_refuses(root: Root, newer: Path) -> None:
    """As releases before 0.2 did not: a port for other hosts without a password."""
    text = '[web]\\nlisten-address = ":9905"\\n'
    root.run("sh", "-c", f"printf '{text}' > /{CONFIGURATION}")
    keep = "-o Dpkg::Options::=--force-confold"
    shutil.copy(newer, root.file(f"srv/{newer.name}"))
    said = root.run("sh", "-c", f"apt-get install -y {keep} /srv/{newer.name} 2>&1")

    (line,) = [line for line in said.splitlines() if line.startswith("pipelined: ")]
    assert line.startswith("pipelined: will not listen on 0.0.0.0:9905 without a password")
    # flags of the service win over the file, as for the service itself
    flags = "OPTIONS=--log.level debug --web.allow-unauthenticated"
    root.run("sh", "-c", f"echo '{flags}' > /etc/default/pipelined")
    said = root.run("sh", "-c", f"apt-get install -y --reinstall {keep} /srv/{newer.name} 2>&1")
    assert "will not listen" not in said


def test_the_sender_is_off_and_an_upgrade_leaves_it_as_it_is(root: Root, newer: Path) -> None:
    link = f"ln -s /usr/lib/systemd/system/pipelined-export.service /{SENDER}"
    root.run("test", "!", "-e", f"/{SENDER}")
    root.run("sh", "-c", link)
    root.install(newer)

    root.run("test", "-L", f"/{SENDER}")


def test_an_upgrade_brings_the_new_release_to_whoever_changed_nothing(
    root: Root, newer: Path
) -> None:
    root.install(newer)

    assert "new in the next release" in root.run("cat", f"/{CONFIGURATION}")
    root.run("test", "-L", f"/{ENABLED}")
    assert root.run("pipelined", "doctor").splitlines()[-1].startswith("pipelined works here")


# Removal


def test_removing_it_keeps_configuration_and_history_and_purging_leaves_nothing(
    ready: Root, root: Root
) -> None:
    # What systemd makes of StateDirectory= and DynamicUser=.
    history = "/var/lib/private/pipelined/history.sqlite"
    place = "/var/lib/private/pipelined-export/cursor"
    for file in (history, place):
        name = Path(file).parent.name
        link = f"ln -s private/{name} /var/lib/{name}"
        root.run("sh", "-c", f"mkdir -p $(dirname {file}); touch {file}; {link}")
    root.run("ln", "-s", "/usr/lib/systemd/system/pipelined-export.service", f"/{SENDER}")
    root.run("apt-get", "remove", "-y", "pipelined")

    assert {f"/{CONFIGURATION}", history, place} <= root.files()

    root.run("apt-get", "purge", "-y", "pipelined")
    before = ready.over(root.layers[0].with_name("look")).files()

    assert root.files() - before == {"/var/lib/private"}  # systemd's own


# The wheel


def test_the_wheel_works_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    program = tmp_path / "venv/bin/pipelined"
    pip = (sys.executable, "-m", "pip", "--python", tmp_path / "venv/bin/python")
    checked(*pip, "install", "--quiet", "--disable-pip-version-check", wheel)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["COLUMNS"] = "500"  # a path stays in one line

    said = checked(program, "doctor", cwd=tmp_path, env=environment)
    done = subprocess.run(
        [program, "run", "seq 1000 | wc -l"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )

    assert f"{tmp_path}/venv/lib" in said  # its own BPF object
    assert (done.returncode, done.stdout) == (0, "1000\n")
    assert done.stderr.startswith("seq|wc ")
