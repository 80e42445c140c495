# SPDX-License-Identifier: Apache-2.0
"""What packages are made of agrees with the program that they bring."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import click
import jinja2
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pipelined.cli import cli
from pipelined.commands.export import DEFAULT_DIRECTORY
from pipelined.config import OPTIONS, Config
from pipelined.config.toml_file import load

TOP = Path(__file__).resolve().parents[2]
DEBIAN = TOP / "deploy" / "debian"
CONFIGURATION = TOP / "deploy" / "pipelined.toml"


def printed(script: str, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, str(TOP / script), *arguments],
        env={**os.environ, "SOURCE_DATE_EPOCH": "1795000000"},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def as_shown(page: str) -> str:
    """A page of roff as it is read, without its markup."""
    text = re.sub(r"\\f[BIR]", "", page)
    text = text.replace(r"\(aq", "'").replace(r"\(ga", "`").replace(r"\(dq", '"')
    return text.replace(r"\-", "-").replace(r"\&", "").replace(r"\e", "\\")


# The configuration file


def test_the_configuration_file_lists_the_options_as_they_are_now() -> None:
    new = printed("deploy/default_config.py")

    assert CONFIGURATION.read_text() == new, (
        "run: .venv/bin/python deploy/default_config.py > deploy/pipelined.toml"
    )


def test_the_configuration_file_as_installed_changes_nothing() -> None:
    assert load(CONFIGURATION) == Config()


def test_the_defaults_that_the_configuration_file_names_are_the_defaults(tmp_path: Path) -> None:
    uncommented = tmp_path / "pipelined.toml"
    uncommented.write_text(re.sub(r"^#(?! )|^#(?=    )", "", CONFIGURATION.read_text(), flags=re.M))
    named, default = load(uncommented), Config()
    examples = [option for option in OPTIONS if getattr(default, option.field) is None]

    assert len(tomllib.loads(uncommented.read_text())) > 1
    for option in OPTIONS:
        value = getattr(named, option.field)
        if option in examples:
            assert value == option.parse(tomllib.loads(f"x = {option.example}")["x"])
        else:
            assert value == getattr(default, option.field), option.name


# Manual pages


def test_the_manual_page_has_every_command_with_every_option() -> None:
    page = as_shown(printed("deploy/manual.py", "pipelined.1"))
    sections = dict(re.findall(r"^\.SS pipelined (\S+)$(.*?)(?=^\.S[HS])", page, re.M | re.S))

    assert list(sections) == sorted(cli.commands)
    for name, command in cli.commands.items():
        context = click.Context(command, info_name=name)
        for parameter in command.get_params(context):
            if isinstance(parameter, click.Option):
                for flag in (*parameter.opts, *parameter.secondary_opts):
                    assert flag in sections[name], f"{name} {flag}"


def test_the_manual_page_keeps_examples_as_they_are_typed() -> None:
    page = as_shown(printed("deploy/manual.py", "pipelined.1"))

    assert "\n  sudo pipelined run -o report.txt 'zcat f.gz | wc -l' > count\n" in page


def test_the_page_of_the_configuration_has_every_option_with_its_help() -> None:
    page = as_shown(printed("deploy/manual.py", "pipelined.toml.5"))

    for option in OPTIONS:
        assert f"\n{option.name} = " in page
        assert f"\n{option.help}\n" in page


# The Debian package


def test_each_dependency_is_in_the_package_or_in_debian() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    lines = (DEBIAN / "vendored.txt").read_text().splitlines()[1:]
    vendored = {
        canonicalize_name(name): version
        for line in lines
        for name, version in [line.split(" ")[0].split("==")]
    }
    (depends,) = re.findall(r"^Depends: (.*)$", (DEBIAN / "control").read_text(), re.M)
    of_debian = set(re.findall(r"\bpython3-(\S+)", depends))

    needed = [*project["dependencies"], *project["optional-dependencies"]["export"]]
    for requirement in map(Requirement, needed):
        name = canonicalize_name(requirement.name)
        if name in vendored:
            assert vendored[name] in requirement.specifier, "run deploy/debian/lock.py"
        else:
            assert name.removeprefix("py") in of_debian, requirement
    assert all(" --hash=sha256:" in line for line in lines)


# The apt repository

#: Stand for apt-ftparchive and gpg, which has the key `ours` alone; each signature is another one.
STAND_INS = {
    "apt-ftparchive": "#!/bin/sh\necho Date: now\n",
    "gpg": """#!/bin/sh
case " $* " in *" ours "*) ;; *) exit 2;; esac
while [ "$1" != --output ]; do shift; done
echo "signed by $$" > "$2"
""",
}


@pytest.fixture
def publish(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Publishes a package in `tmp_path` / "apt"; options can be given."""
    programs, package = tmp_path / "bin", tmp_path / "pipelined_1_amd64.deb"
    programs.mkdir()
    for name, text in STAND_INS.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    package.write_bytes(b"built once")
    script = [sys.executable, TOP / "deploy/release/apt_repository.py", tmp_path / "apt", package]
    path = f"{programs}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "SOURCE_DATE_EPOCH": "1795000000"}
    return lambda *options: subprocess.run(
        [*script, *options], env=environment, capture_output=True, text=True
    )


def published(folder: Path) -> dict[str, str]:
    """What hosts can get there: text by path."""
    found = (path for path in folder.rglob("*") if path.is_file())
    texts = {str(path.relative_to(folder)): path.read_bytes().decode("latin-1") for path in found}
    return {path: text for path, text in texts.items() if not re.search(r"(^|/)\.", path)}


def test_a_repository_that_cannot_be_signed_anew_stays_as_it_is(
    publish: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    assert publish("--key", "ours").returncode == 0
    before = published(tmp_path / "apt")
    signed = {"dists/stable/InRelease", "dists/stable/Release.gpg", "pipelined-archive-keyring.gpg"}
    assert signed < before.keys()

    assert publish("--key", "lost").returncode != 0
    assert published(tmp_path / "apt") == before

    assert publish("--key", "ours").returncode == 0
    after = published(tmp_path / "apt")
    assert after.keys() == before.keys()
    assert {path for path, text in after.items() if text != before[path]} == signed
    assert os.listdir(tmp_path / "apt/dists") == ["stable"]


def test_a_repository_that_is_signed_is_not_published_without_a_key(
    publish: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    assert publish().returncode == publish().returncode == 0
    assert publish("--key", "ours").returncode == 0
    before = published(tmp_path / "apt")

    done = publish()
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{tmp_path / 'apt'} is signed: give --key" in done.stderr
    assert published(tmp_path / "apt") == before


@pytest.mark.parametrize("key", ["ours", "lost"])
def test_a_version_is_published_once(
    publish: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, key: str
) -> None:
    """Hosts have the sums of the older index, until there is another one."""
    assert publish("--key", "ours").returncode == 0
    before = published(tmp_path / "apt")
    (tmp_path / "pipelined_1_amd64.deb").write_bytes(b"built again")

    done = publish("--key", key)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "give it a higher version" in done.stderr
    assert published(tmp_path / "apt") == before


def test_a_package_that_is_copied_in_part_is_not_published(
    publish: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "pipelined_1_amd64.deb").write_bytes(bytes(1_000_000))
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, limit[1]))
    try:
        assert publish().returncode != 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert published(tmp_path / "apt") == {}

    assert publish().returncode == 0
    assert "pool/main/p/pipelined/pipelined_1_amd64.deb" in published(tmp_path / "apt")


# What pip checks by hashes


def locked(path: str) -> dict[str, str]:
    """The version of each package in a file for pip; each has a hash at least."""
    text = (TOP / path).read_text()
    entries = re.findall(
        r"^(\S+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.M
    )
    assert len(entries) == text.count("=="), f"{path}: an entry without a hash"
    return {canonicalize_name(name): version for name, version, _ in entries}


def test_the_image_has_each_dependency_in_the_version_of_the_debian_package() -> None:
    found = locked("deploy/container/requirements.txt")
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["export"]]
    lines = (DEBIAN / "vendored.txt").read_text().splitlines()[1:]
    vendored = dict(line.split(" ")[0].split("==") for line in lines)

    for requirement in map(Requirement, needed):
        assert found[canonicalize_name(requirement.name)] in requirement.specifier, requirement
    for name, version in vendored.items():
        assert found[canonicalize_name(name)] == version, "run deploy/lock.py"


def test_what_libraries_of_the_image_need_is_in_it_too() -> None:
    """As far as their own descriptions are here, in the environment of the tests.

    That has the newest ones, which may need what those that are locked do not.
    """
    found = locked("deploy/container/requirements.txt")
    described = 0
    for name, version in found.items():
        try:
            library = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        described += 1
        if library.version != version:
            continue
        for requirement in map(Requirement, library.requires or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                needed = found.get(canonicalize_name(requirement.name))
                assert needed is not None, f"{name} needs {requirement}"
                assert needed in requirement.specifier, f"{name} needs {requirement}"

    assert described > len(found) / 2


def test_the_setuptools_that_makes_the_wheel_is_one_that_the_project_allows() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())
    found = locked("deploy/build-requirements.txt")

    (requirement,) = map(Requirement, project["build-system"]["requires"])
    assert list(found) == [requirement.name]
    assert found[requirement.name] in requirement.specifier


def test_what_lists_the_contents_of_a_release_is_locked_too() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    (requirement,) = map(Requirement, project["optional-dependencies"]["release"])

    found = locked("deploy/release/requirements.txt")
    assert found[requirement.name] in requirement.specifier


def test_the_bpf_object_does_not_name_the_folder_that_it_was_built_in() -> None:
    """Else two builds of one commit would differ, and packages would show the builder's paths."""
    found = (TOP / "daemon/pipelined/bpf/pipelined.bpf.o").read_bytes()

    assert b"./bpf/maps.bpf.h" in found
    assert str(TOP).encode() not in found


# What the RPM says


def test_the_rpm_asks_for_what_the_debian_package_asks_for() -> None:
    (depends,) = re.findall(r"^Depends: (.*)$", (DEBIAN / "control").read_text(), re.M)
    of_debian = dict(re.findall(r"(python3\S*) \(>= ([\d.]+)\)", depends))
    spec = (TOP / "deploy/rpm/pipelined.spec").read_text()
    of_fedora = dict(re.findall(r"^Requires: (python3\S*) >= ([\d.]+)$", spec, re.M))

    assert len(of_debian) > 3
    of_fedora["python3-yaml"] = of_fedora.pop("python3-pyyaml")
    assert of_fedora == of_debian
    assert "libbpf1 (>= 1:1.1)" in depends
    assert "Requires: libbpf.so.1(LIBBPF_1.1.0)(64bit)\n" in spec


def test_the_rpm_describes_the_program_as_the_debian_package_does() -> None:
    control = (DEBIAN / "control").read_text()
    spec = (TOP / "deploy/rpm/pipelined.spec").read_text()
    long = re.sub(r"^ \.?", "", control.split("\nDescription: ")[1].partition("\n")[2], flags=re.M)

    assert f"%description\n{long}" in spec


def test_requests_is_that_of_debian_which_trusts_the_authorities_of_the_system() -> None:
    names = re.findall(r"^(\S+)==", (DEBIAN / "vendored.txt").read_text(), re.M)
    assert {"protobuf", "opentelemetry-sdk"} <= set(names)
    assert not {"requests", "certifi", "urllib3", "idna", "charset-normalizer"} & set(names)
    assert "python3-requests" in (DEBIAN / "control").read_text()


def directives(unit: str) -> dict[str, list[str]]:
    """The values of each key of a unit of deploy/systemd, in their order."""
    found: dict[str, list[str]] = {}
    text = (TOP / "deploy/systemd" / unit).read_text()
    for key, value in re.findall(r"^(\w+)=(.*)$", text, re.M):
        found.setdefault(key, []).append(value)
    return found


def test_the_sender_has_no_capability_and_a_sandbox_no_wider_than_the_daemons() -> None:
    daemon, sender = directives("pipelined.service"), directives("pipelined-export.service")
    assert sender["CapabilityBoundingSet"] == sender["AmbientCapabilities"] == [""]
    assert sender["DynamicUser"] == sender["PrivateUsers"] == ["yes"]
    assert sender["RestrictAddressFamilies"] == ["AF_INET AF_INET6"]
    assert sender["SystemCallFilter"] == daemon["SystemCallFilter"][:2]
    of_sandbox = ("Protect", "Private", "Restrict", "Lock", "Memory", "NoNew", "Remove", "UMask")
    for key, values in daemon.items():
        if key.startswith(of_sandbox) and key not in ("MemoryMax", "RestrictAddressFamilies"):
            assert sender[key] == values, key


def test_the_unit_of_the_sender_runs_a_command_that_there_is_and_keeps_its_place_apart() -> None:
    sender = directives("pipelined-export.service")
    assert sender["ExecStart"] == ["/usr/bin/pipelined export $OPTIONS"]
    assert "export" in cli.commands
    assert sender["StateDirectory"] == [DEFAULT_DIRECTORY.name]
    assert sender["RestartPreventExitStatus"] == ["2"]


def test_no_maintainer_script_turns_the_sender_on() -> None:
    text = (DEBIAN / "postinst").read_text()
    enabling = text.partition("enable pipelined-export.service")[0].rsplit("if ", 1)[1]
    assert "was-enabled pipelined-export.service" in enabling
    assert "if deb-systemd-helper debian-installed pipelined-export.service" in text


@pytest.fixture
def dpkg(tmp_path: Path) -> Callable[[str], list[str]]:
    """Calls maintainer scripts on a host with systemd: "preinst install; postinst configure".

    Returns what they have systemd do with units. The units of `tmp_path` / "enabled" are enabled.
    """
    programs, done = tmp_path / "bin", tmp_path / "done"
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    programs.mkdir()
    for name, text in {
        "deb-systemd-invoke": f'echo "$@" >> {done}',
        "deb-systemd-helper": f'[ "$2" != was-enabled ] || grep --quiet "^$3$" {tmp_path}/enabled',
        **dict.fromkeys(("systemctl", "pipelined", "py3clean", "py3compile"), ":"),
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}

    def call(calls: str) -> list[str]:
        done.write_text("")
        for script, *words in map(str.split, calls.split(";")):
            text = (DEBIAN / script).read_text().replace("/run/", f"{tmp_path}/run/")
            subprocess.run(["dash", "-c", text, script, *words], env=environment, check=True)
        return done.read_text().splitlines()

    return call


REMOVED_AND_INSTALLED = "prerm remove; preinst install 1 2; postinst configure 1"
UPGRADED = "prerm upgrade 2; preinst upgrade 1 2; postinst configure 1"


@pytest.mark.parametrize(
    ("calls", "enabled", "action"),
    [
        ("preinst install; postinst configure", False, "try-restart"),
        (REMOVED_AND_INSTALLED, True, "restart"),
        (REMOVED_AND_INSTALLED, False, "try-restart"),
        (UPGRADED, True, "try-restart"),
        (f"{REMOVED_AND_INSTALLED}; {UPGRADED}", True, "try-restart"),
        ("prerm upgrade 2; postinst abort-upgrade 2", True, "try-restart"),
        ("prerm remove; postinst abort-remove", True, "restart"),
    ],
)
def test_the_sender_runs_again_if_it_ran_or_if_a_removal_stopped_it(
    dpkg: Callable[[str], list[str]], tmp_path: Path, calls: str, enabled: bool, action: str
) -> None:
    (tmp_path / "enabled").write_text("pipelined-export.service\n" if enabled else "")
    assert dpkg(calls)[-1] == f"{action} pipelined-export.service"


def test_the_service_runs_the_program_with_the_configuration_of_the_package() -> None:
    unit = (TOP / "deploy/systemd/pipelined.service").read_text()
    (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.M)

    assert command.startswith("/usr/bin/pipelined serve --config /etc/pipelined/pipelined.toml"), (
        command
    )


def test_the_ansible_role_checks_what_it_wrote_before_the_service_is_started_again() -> None:
    tasks = yaml.safe_load((TOP / "deploy/ansible/roles/pipelined/tasks/main.yml").read_text())
    at = {kind: n for n, task in enumerate(tasks) for kind in task if kind.startswith("ansible.")}
    check = tasks[at["ansible.builtin.command"]]
    (start,) = directives("pipelined.service")["ExecStart"]
    expected = [*start.removesuffix(" $OPTIONS").split(), "--check-config"]
    assert check["ansible.builtin.command"] == {"argv": expected}
    assert check["when"] == "pipelined_unit.stat.exists"  # whatever has changed
    (web,) = (n for n, task in enumerate(tasks) if "web.yml" in task.values())
    written, started = at["ansible.builtin.template"], at["ansible.builtin.systemd_service"]
    assert max(web, written) < at["ansible.builtin.command"] < started


def test_the_ansible_role_restarts_what_has_changed_before_anything_else_can_fail() -> None:
    """Ansible drops the handlers of a play that fails, and the next play finds nothing changed."""
    tasks = yaml.safe_load((TOP / "deploy/ansible/roles/pipelined/tasks/main.yml").read_text())
    (check,) = (n for n, task in enumerate(tasks) if "ansible.builtin.command" in task)
    (sender,) = (n for n, task in enumerate(tasks) if "export.yml" in task.values())
    flushed = [
        n for n, task in enumerate(tasks) if task.get("ansible.builtin.meta") == "flush_handlers"
    ]
    assert flushed == [check + 1, sender + 1]


def test_the_ansible_role_refuses_a_sender_that_has_no_password_for_the_port() -> None:
    role = TOP / "deploy/ansible/roles/pipelined"
    defaults = yaml.safe_load((role / "defaults/main.yml").read_text())
    tasks = yaml.safe_load((role / "tasks/main.yml").read_text())
    (task,) = (task for task in tasks if task["name"].startswith("Refuse a sender"))
    ansible = jinja2.Environment(undefined=jinja2.ChainableUndefined)
    ansible.filters["from_yaml"] = yaml.safe_load
    found = {name: text.strip("{} ") for name, text in task["vars"].items()}

    def holds(**values: object) -> bool:
        for name, text in found.items():
            values[name] = ansible.compile_expression(text)(**values)
        judged, refused = (
            [ansible.compile_expression(condition)(**values) for condition in conditions]
            for conditions in (task["when"], task["ansible.builtin.assert"]["that"])
        )
        assert {type(value) for value in (*judged, *refused)} == {bool}  # Ansible insists on it
        return not all(judged) or all(refused)

    install = (TOP / "docs/INSTALL.md").read_text().partition("### Ansible")[2]
    play, sender = re.findall(r"^```yaml\n(.*?)^```", install, re.M | re.S)
    given = {**defaults, **yaml.safe_load(play)[0]["roles"][0]["vars"]}
    advised = yaml.safe_load(sender)

    assert holds(**given)
    assert holds(**{**given, **advised})
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.example.org:4318"}
    with_url = {**endpoint, "PIPELINED_URL": "https://host17:9905"}
    with_file = {**endpoint, "OPTIONS": "--http.config.file /run/client.yml"}
    password = 'basic_auth_users: {prometheus: "$2y$10$X0h"}'
    tls = "tls_server_config: {cert_file: server.crt, key_file: server.key%s}"
    certificates = tls % ", client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt"
    elsewhere = {"web.config.file": "/etc/pipelined/own.yml"}
    for web_config, options, usable in (
        (password, {}, (False, False, True)),
        (certificates, {}, (False, False, True)),
        (tls % "", {}, (False, True, True)),
        ("", elsewhere, (False, True, True)),
        ("", {}, (True, True, True)),
        ("# basic_auth_users", {}, (True, True, True)),
        ("http_server_config: {headers: {X-Frame-Options: deny}}", {}, (True, True, True)),
    ):
        port = {"pipelined_web_config": web_config, "pipelined_options": options}
        for environment, expected in zip((endpoint, with_url, with_file), usable, strict=True):
            sent = {**given, **port, "pipelined_export_environment": environment}
            assert holds(**sent) == expected, (web_config, options, environment)


def test_an_address_filter_that_is_advised_lets_the_host_itself_in() -> None:
    lines = (TOP / "docs/INSTALL.md").read_text().splitlines()
    filters = [
        line
        for line in lines
        if {"IPAddressAllow", "IPAddressDeny"} <= set(re.findall(r"\w+", line))
    ]
    assert len(filters) == 2
    for line in filters:
        assert "localhost" in line, line


def test_a_history_on_a_disk_of_its_own_does_not_stop_the_purge(tmp_path: Path) -> None:
    (tmp_path / "deb-systemd-helper").write_text("#!/bin/sh\n")
    # rm removes what is on the disk, but not its mount point.
    (tmp_path / "rm").write_text('#!/bin/sh\nfor name; do echo "$name"; done\nexit 1\n')
    for program in tmp_path.iterdir():
        program.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", DEBIAN / "postrm", "purge"],
        env={"PATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0
    for name in ("pipelined", "pipelined-export"):
        assert {f"/var/lib/private/{name}", f"/var/lib/{name}"} <= set(done.stdout.split())


@pytest.mark.parametrize("script", ["preinst", "postinst", "prerm", "postrm", "pipelined.rtupdate"])
def test_maintainer_scripts_stop_at_the_first_error_and_are_posix_shell(script: str) -> None:
    path = DEBIAN / script

    assert "\nset -e\n" in path.read_text()
    subprocess.run(["dash", "-n", path], check=True)
