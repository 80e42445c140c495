# SPDX-License-Identifier: Apache-2.0
"""What `make release` builds, from a tag in two clones of this checkout, and how it is installed.

`sudo make test-release` runs this. It is of what is committed. There is no Fedora here: the RPM is
installed by Debian's rpm in a Debian root, with one made-up package in place of Fedora's own.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from e2e.test_package import TOP, Root, archives, checked  # noqa: F401 - archives is a fixture

VERSION = "9.8.7"
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
EM = {"amd64": 62, "arm64": 183}  # elf.h
WHO = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgSign=false")


@dataclass(frozen=True)
class Clone:
    """A clone in which a release can be made."""

    top: Path

    def git(self, *words: str) -> None:
        checked("git", "-c", "safe.directory=*", "-C", self.top, *WHO, *words)

    def release(self, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, self.top / "deploy/release/build.py", *options],
            cwd="/",
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """With a commit that names the version of the release, and its tag."""
    top = (tmp_path_factory.mktemp("clone") / "pipelined").resolve()
    checked("git", "-c", "safe.directory=*", "clone", "--quiet", "--no-local", TOP, top)
    made = Clone(top)
    source = top / "daemon/pipelined/__init__.py"
    source.write_text(re.sub(r'"\d.*"', f'"{VERSION}"', source.read_text()))
    (top / "CHANGELOG.md").write_text(f"# Changes\n\n## {VERSION}\n\nA release.\n")
    made.git("commit", "--quiet", "--all", "--message", "the release")
    made.git("tag", f"v{VERSION}")
    return made


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A secret key of gpg, in a keyring of its own."""
    home = Path(tmp_path_factory.mktemp("gpg"))
    home.chmod(0o700)
    os.environ["GNUPGHOME"] = str(home)
    name = "releases@example.org"
    checked("gpg", "--batch", "--passphrase", "", "--quick-generate-key", name, "ed25519", "sign")
    yield name
    checked("gpgconf", "--kill", "all")
    del os.environ["GNUPGHOME"]


@pytest.fixture(scope="module")
def released(clone: Clone, key: str) -> Path:
    done = clone.release("--no-images", "--key", key)
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(done.stdout.splitlines()[-1])


def sums(folder: Path) -> dict[str, str]:
    """The hash of each file below a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# The files


def test_a_release_has_every_package(released: Path) -> None:
    assert {path.name for path in released.iterdir()} == {
        "CHANGELOG.md",
        "SHA256SUMS",
        "SHA256SUMS.asc",
        "apt",
        f"pipelined-{VERSION}.tar.gz",
        f"pipelined-chart-{VERSION}.tgz",
        f"pipelined-{VERSION}-packages.cdx.json",
        f"pipelined-{VERSION}-image.cdx.json",
        *(f"pipelined_{VERSION}_{name}.deb" for name in MACHINES),
        *(f"pipelined-{VERSION}-py3-none-linux_{name}.whl" for name in MACHINES.values()),
        *(f"pipelined-{VERSION}-1.{name}.rpm" for name in MACHINES.values()),
    }


def test_checksums_and_their_signature_hold(released: Path) -> None:
    checked("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=released)
    checked("gpg", "--batch", "--verify", "SHA256SUMS.asc", "SHA256SUMS", cwd=released)
    listed = {line.split()[1] for line in (released / "SHA256SUMS").read_text().splitlines()}
    there = {path.name for path in released.iterdir() if path.is_file()}
    assert there - listed == {"SHA256SUMS", "SHA256SUMS.asc"}


def test_the_same_tag_gives_the_same_bytes_in_another_folder(
    clone: Clone, released: Path, tmp_path: Path
) -> None:
    other = Clone(tmp_path.resolve() / "elsewhere")
    clone.git("clone", "--quiet", str(clone.top), str(other.top))
    (tmp_path / "temporary").mkdir()
    temporary = str(tmp_path / "temporary")
    (other.top / "daemon/pipelined/not_in_git.py").write_text("# in no package\n")
    done = other.release("--no-images", TZ="Asia/Tokyo", LC_ALL="C", TMPDIR=temporary)
    assert done.returncode == 0, done.stdout + done.stderr

    signatures = {"SHA256SUMS.asc"} | {
        f"apt/{name}"
        for name in (
            "pipelined-archive-keyring.gpg",
            "dists/stable/InRelease",
            "dists/stable/Release.gpg",
        )
    }
    first, second = sums(released), sums(other.top / "build/release" / VERSION)
    assert set(first) - set(second) == signatures
    assert {name for name in second if first[name] != second[name]} == set()


def test_packages_of_two_architectures_differ_in_the_bpf_object_alone(
    released: Path, tmp_path: Path
) -> None:
    for name in MACHINES:
        checked(
            "dpkg-deb", "--extract", released / f"pipelined_{VERSION}_{name}.deb", tmp_path / name
        )
        assert (
            checked(
                "dpkg-deb", "--field", released / f"pipelined_{VERSION}_{name}.deb", "Architecture"
            )
            == f"{name}\n"
        )
    first, second = (sums(tmp_path / name) for name in MACHINES)

    assert set(first) == set(second)
    differ = {name for name in first if first[name] != second[name]}
    assert differ == {"usr/lib/pipelined/pipelined/bpf/pipelined.bpf.o"}


def test_the_source_archive_is_what_git_has_and_knows_its_version(
    clone: Clone, released: Path, tmp_path: Path
) -> None:
    checked("tar", "-xf", released / f"pipelined-{VERSION}.tar.gz", "-C", tmp_path)
    top = tmp_path / f"pipelined-{VERSION}"
    tracked = checked("git", "-c", "safe.directory=*", "-C", clone.top, "ls-files").splitlines()

    assert sorted(
        str(path.relative_to(top)) for path in top.rglob("*") if not path.is_dir()
    ) == sorted(tracked)
    assert checked(sys.executable, top / "deploy/version.py") == f"{VERSION}\n"


def test_the_lists_of_contents_name_each_library_with_its_version_and_hash(released: Path) -> None:
    for kind, path in {
        "packages": "deploy/debian/vendored.txt",
        "image": "deploy/container/requirements.txt",
    }.items():
        listed = json.loads((released / f"pipelined-{VERSION}-{kind}.cdx.json").read_text())
        found = {
            (canonicalize_name(part["name"]), part["version"])
            for part in listed["components"]
            if any(
                value["alg"] == "SHA-256"
                for reference in part["externalReferences"]
                for value in reference.get("hashes", ())
            )
        }
        text = (TOP / path).read_text()
        pinned = re.findall(r"^(\S+)==(\S+) ", text, re.M)
        assert listed["bomFormat"] == "CycloneDX"
        assert listed["metadata"]["component"]["version"] == VERSION
        assert found == {(canonicalize_name(name), version) for name, version in pinned}


# What is refused


def test_only_a_tag_is_released(clone: Clone, tmp_path: Path) -> None:
    other = Clone(tmp_path.resolve() / "other")
    clone.git("clone", "--quiet", str(clone.top), str(other.top))

    (other.top / "README.md").write_text("changed\n")
    assert "+dirty; commit all changes and check out a tag" in other.release().stderr
    other.git("commit", "--quiet", "--all", "--message", "a change")
    assert f"this is {VERSION}.post1+g" in other.release().stderr
    other.git("tag", "v9.9.0")
    assert "does not say 9.9.0" in other.release().stderr
    source = other.top / "daemon/pipelined/__init__.py"
    source.write_text(source.read_text().replace(VERSION, "9.9.1"))
    other.git("commit", "--quiet", "--all", "--message", "a version")
    other.git("tag", "v9.9.1")
    assert "CHANGELOG.md has no section: ## 9.9.1" in other.release().stderr


def test_a_key_that_gpg_does_not_have_is_an_error_before_anything_is_built(
    clone: Clone, key: str
) -> None:
    done = clone.release("--key", "nobody@example.org")

    assert done.returncode == 1
    assert done.stderr.startswith("release: gpg has no secret key nobody@example.org")
    assert done.stdout == ""


# apt


@pytest.fixture(scope="module")
def newer(released: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Debian package of the next release."""
    directory = tmp_path_factory.mktemp("newer")
    checked(
        "dpkg-deb", "--raw-extract", released / f"pipelined_{VERSION}_amd64.deb", directory / "t"
    )
    control = directory / "t/DEBIAN/control"
    control.write_text(control.read_text().replace(f"Version: {VERSION}", "Version: 9.8.10"))
    module = directory / "t/usr/lib/pipelined/pipelined/__init__.py"
    module.write_text(module.read_text().replace(VERSION, "9.8.10"))
    checked("dpkg-deb", "--root-owner-group", "-Znone", "--build", directory / "t", directory)
    return directory / "pipelined_9.8.10_amd64.deb"


@pytest.fixture(scope="module")
def bare(archives: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:  # noqa: F811
    directory = tmp_path_factory.mktemp("root")
    files = directory / "bare" / "files"
    files.mkdir(parents=True)
    checked("tar", "-xf", archives["bookworm"], "-C", files)
    shutil.copy("/etc/resolv.conf", files / "etc/resolv.conf")
    root = Root((directory / "bare",)).over(directory / "lists")
    root.run("apt-get", "-o", "Acquire::Retries=3", "update")
    yield root
    shutil.rmtree(directory)


def says(root: Root) -> str:
    return root.run("pipelined", "--version").split()[1]


def test_apt_installs_upgrades_and_goes_back_by_the_signed_repository(
    bare: Root, released: Path, newer: Path, key: str, tmp_path: Path
) -> None:
    root = bare.over(tmp_path / "layer")
    published = root.file("srv/apt")
    shutil.copytree(released / "apt", published)
    keyring = "/usr/share/keyrings/pipelined-archive-keyring.gpg"
    shutil.copy(released / "apt/pipelined-archive-keyring.gpg", root.file(keyring[1:]))
    source = f"deb [signed-by={keyring}] file:/srv/apt stable main\n"
    root.file("etc/apt/sources.list.d/pipelined.list").write_text(source)
    root.run("apt-get", "update")
    root.run("apt-get", "install", "-y", "--no-install-recommends", "pipelined")
    assert says(root) == VERSION

    checked(
        *(sys.executable, TOP / "deploy/release/apt_repository.py", published),
        *("--key", key, newer),
    )
    root.run("apt-get", "update")
    root.run("apt-get", "upgrade", "-y")
    assert says(root) == "9.8.10"

    root.run("apt-get", "install", "-y", "--allow-downgrades", f"pipelined={VERSION}")
    assert says(root) == VERSION

    # an index that somebody else has changed, though its sums agree
    for name in ("InRelease", "Release"):
        path = published / "dists/stable" / name
        path.write_text(path.read_text().replace("Label: pipelined", "Label: other"))
    with pytest.raises(AssertionError, match=r"not signed|signatures? (were|was) invalid|BADSIG"):
        root.run("apt-get", "-o", "APT::Update::Error-Mode=any", "update")


# rpm

#: What the RPM requires, as if Fedora's packages were there: Debian's are, and rpm does not know.
STAND_IN = """Name: python3
Version: 3.11.2
Release: 1
Summary: stands for what Debian has installed
License: none
BuildArch: noarch
Provides: python3-bcrypt = 3.2, python3-markupsafe = 2.1.1, python3-pyyaml = 6.0
Provides: python3-requests = 2.28, systemd = 252, /bin/sh
Provides: libbpf.so.1(LIBBPF_1.1.0)(64bit)
%description
Nothing.
%files
"""


def test_rpmlint_finds_nothing_that_is_not_meant(released: Path) -> None:
    rules = TOP / "deploy/rpm/rpmlintrc"
    for path in released.glob("*.rpm"):
        said = checked("rpmlint", "--rpmlintrc", rules, path)
        assert "1 packages and 0 specfiles checked; 0 errors, 0 warnings" in said, said


PACKAGE = f"/srv/pipelined-{VERSION}-1.x86_64.rpm"
STAND_IN_PACKAGE = "/srv/top/RPMS/noarch/python3-3.11.2-1.noarch.rpm"


@pytest.fixture(scope="module")
def with_rpm(
    bare: Root, released: Path, newer: Path, tmp_path_factory: pytest.TempPathFactory
) -> Root:
    """A root with rpm, dnf and what the package needs; in /srv the package, the next release of it
    and the stand-in, which is not installed."""
    directory = tmp_path_factory.mktemp("rpm")
    root = bare.over(directory / "layer")
    depends = checked("dpkg-deb", "--field", newer, "Depends").strip()
    root.run("apt-get", "satisfy", "-y", "--no-install-recommends", f"{depends}, rpm, dnf")
    shutil.copy(released / Path(PACKAGE).name, root.file(PACKAGE[1:]))
    upgrade = checked(
        *(sys.executable, TOP / "deploy/rpm/build.py", newer, directory / "rpm"),
        env={**os.environ, "SOURCE_DATE_EPOCH": "1795000000"},
    ).strip()
    shutil.copy(upgrade, root.file("srv/newer.rpm"))
    root.file("srv/python3.spec").write_text(STAND_IN)
    root.run("rpmbuild", "-bb", "--quiet", "--define", "_topdir /srv/top", "/srv/python3.spec")
    return root


def test_rpm_installs_upgrades_and_removes_the_package(with_rpm: Root, tmp_path: Path) -> None:
    root, package = with_rpm.over(tmp_path / "layer"), PACKAGE
    with pytest.raises(AssertionError, match=r"libbpf\.so\.1\(LIBBPF_1\.1\.0\)"):
        root.run("rpm", "--install", package)
    root.run("rpm", "--install", STAND_IN_PACKAGE)
    before = root.files()

    root.run("rpm", "--install", package)
    assert says(root) == VERSION
    assert root.run("pipelined", "doctor").splitlines()[-1].startswith("pipelined works here")
    root.run("test", "-s", "/usr/lib/pipelined/pipelined/__pycache__/cli.cpython-311.pyc")
    assert root.run("rpm", "--verify", "pipelined") == ""

    root.run("sh", "-c", "echo 'max-stages = 7' > /etc/pipelined/pipelined.toml")
    root.run("rpm", "--upgrade", "/srv/newer.rpm")
    assert says(root) == "9.8.10"
    assert root.run("cat", "/etc/pipelined/pipelined.toml") == "max-stages = 7\n"
    root.run("rpm", "--upgrade", "--oldpackage", package)
    assert says(root) == VERSION

    root.run("rpm", "--erase", "pipelined")
    left = {path for path in root.files() - before if "pipelined" in path}
    assert left == {"/etc/pipelined", "/etc/pipelined/pipelined.toml.rpmsave"}


def test_dnf_resolves_what_it_needs_upgrades_goes_back_and_removes_it(
    with_rpm: Root, tmp_path: Path
) -> None:
    root = with_rpm.over(tmp_path / "layer")
    dnf = ("dnf", "--assumeyes", "--disablerepo=*", "--setopt=install_weak_deps=False")
    with pytest.raises(AssertionError, match="nothing provides"):
        root.run(*dnf, "install", PACKAGE)
    root.run(*dnf, "install", PACKAGE, STAND_IN_PACKAGE)
    assert says(root) == VERSION

    text = '[web]\\nlisten-address = ":9905"\\n'
    root.run("sh", "-c", f"printf '{text}' > /etc/pipelined/pipelined.toml")
    said = root.run("sh", "-c", f"{' '.join(dnf)} upgrade /srv/newer.rpm 2>&1")
    assert says(root) == "9.8.10"
    assert "will not listen on 0.0.0.0:9905 without a password" in said
    root.run(*dnf, "downgrade", PACKAGE)
    assert says(root) == VERSION
    root.run(*dnf, "remove", "pipelined")
    root.run("test", "-e", "/etc/pipelined/pipelined.toml.rpmsave")
    root.run("test", "!", "-e", "/usr/bin/pipelined")


# Images


@pytest.fixture(scope="module", params=MACHINES)
def image(
    request: pytest.FixtureRequest, clone: Clone, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """The architecture, and the archive of its image."""
    return request.param, built_image(clone, request.param, tmp_path_factory.mktemp("image"))


def built_image(clone: Clone, architecture: str, directory: Path) -> Path:
    file = directory / "image.tar"
    script = clone.top / "deploy/container/build.sh"
    checked(script, architecture, file, env={**os.environ, "SOURCE_DATE_EPOCH": "1795000000"})
    return file


def unpacked(archive: Path, directory: Path) -> tuple[dict[str, object], Path]:
    """The configuration of the image in an OCI archive, and its files."""
    oci, root = directory / "oci", directory / "root"
    for place in (oci, root):
        place.mkdir()
    checked("tar", "-xf", archive, "-C", oci)

    def blob(descriptor: dict[str, str]) -> Path:
        return oci / "blobs" / descriptor["digest"].replace(":", "/")

    index = json.loads((oci / "index.json").read_text())
    manifest = json.loads(blob(index["manifests"][0]).read_text())
    for layer in manifest["layers"]:
        checked("tar", "-xf", blob(layer), "-C", root)
    return json.loads(blob(manifest["config"]).read_text()), root


def test_the_image_is_of_its_architecture_throughout(
    image: tuple[str, Path], released: Path, tmp_path: Path
) -> None:
    architecture, archive = image
    config, root = unpacked(archive, tmp_path)
    package = released / f"pipelined_{VERSION}_{architecture}.deb"
    checked("dpkg-deb", "--extract", package, tmp_path / "deb")
    (bpf,) = root.glob("opt/pipelined/lib/python3.*/site-packages/pipelined/bpf/pipelined.bpf.o")
    programs = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    heads = {path: path.read_bytes()[:20] for path in programs}
    machines = {
        path: int.from_bytes(head[18:20], "little")
        for path, head in heads.items()
        if head.startswith(b"\x7fELF") and path != bpf
    }

    assert (config["os"], config["architecture"]) == ("linux", architecture)
    assert len(machines) > 20
    assert {path for path, machine in machines.items() if machine != EM[architecture]} == set()
    version = next(bpf.parents[1].glob("__init__.py")).read_text()
    assert f'__version__ = "{VERSION}"' in version


def test_the_program_of_the_image_starts(image: tuple[str, Path], tmp_path: Path) -> None:
    """That of the other architecture under QEMU's emulation of its processor."""
    architecture, archive = image
    _, root = unpacked(archive, tmp_path)
    (libraries,) = root.glob("opt/pipelined/lib/python3.*/site-packages")
    python = root / "usr/bin" / libraries.parent.name
    code = f"""
import sys
sys.path.insert(0, {str(libraries)!r})
import bcrypt, google.protobuf, markupsafe, opentelemetry.sdk, yaml
from pipelined.cli import main
main()
"""
    emulated = (f"qemu-{MACHINES[architecture]}-static", "-L", root, python, "-I", "-c", code)

    assert checked(*emulated, "--version") == f"pipelined {VERSION}\n"


def test_the_same_tag_gives_the_same_image(
    image: tuple[str, Path], clone: Clone, tmp_path: Path
) -> None:
    architecture, archive = image

    again = built_image(clone, architecture, tmp_path)
    assert again.read_bytes() == archive.read_bytes()
