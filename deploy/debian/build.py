#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the Debian package from the wheel.

    SOURCE_DATE_EPOCH=1795000000 deploy/debian/build.py build/wheel/pipelined-*.whl build/deb

One package serves Debian 12 and 13, whose Python differs (3.11, 3.13): it contains the pure Python
libraries that it needs, in the versions of vendored.txt, under /usr/lib/pipelined; compiled ones
come from Debian, by `Depends`. The same input and SOURCE_DATE_EPOCH give the same bytes.

The architecture is that of the wheel. The program in the wheel prints manual pages and completions,
so this Python needs its compiled libraries.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from email.parser import HeaderParser
from email.utils import format_datetime
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_TOP = _HERE.parents[1]
sys.path.insert(0, str(_HERE.parent))

from version import debian  # noqa: E402 - found only by the path above

_CONFIGURATION = "etc/pipelined/pipelined.toml"
_COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/pipelined",
    "zsh": "usr/share/zsh/vendor-completions/_pipelined",
    "fish": "usr/share/fish/vendor_completions.d/pipelined.fish",
}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
#: Licences whose text every Debian system has; Debian policy asks for a reference to it.
_COMMON_LICENCES = {
    "Apache License": "/usr/share/common-licenses/Apache-2.0",
    "GNU GENERAL PUBLIC LICENSE": "/usr/share/common-licenses/GPL-2",
}


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    if "SOURCE_DATE_EPOCH" not in os.environ:
        sys.exit("deb: SOURCE_DATE_EPOCH is not set; run: make deb")
    wheel, output = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    version, platform = debian(wheel.name.split("-")[1]), wheel.stem.rpartition("-")[2]
    machine = platform.removeprefix("linux_")
    os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="pipelined-deb-") as directory:
        tree = Path(directory) / "tree"
        libraries = tree / "usr/lib/pipelined"
        _install_python(wheel, platform, libraries)
        documentation = tree / "usr/share/doc/pipelined"
        documentation.mkdir(parents=True)
        (documentation / "copyright").write_text(_copyright(libraries))
        _tidy(libraries)
        _install_files(tree)
        _install_generated(tree, libraries)
        _zip(documentation / "changelog.gz", _changelog(version))
        _write_control(tree, version, _ARCHITECTURES[machine])
        output.mkdir(parents=True, exist_ok=True)
        for old in output.glob("pipelined_*.deb"):
            old.unlink()
        # -Zxz: the default differs between Debian and Ubuntu, and with it the bytes.
        _run("dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(tree), str(output))
    (package,) = output.glob("pipelined_*.deb")
    print(package)


def _install_python(wheel: Path, platform: str, target: Path) -> None:
    """The program, and the packages of vendored.txt, checked by their hashes."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install")
    options = ("--no-deps", "--no-compile", "--only-binary", ":all:", "--target", str(target))
    hashed = ("--require-hashes", "--requirement", str(_HERE / "vendored.txt"))
    for what in (hashed, ("--platform", platform, str(wheel))):
        _run(*pip, *options, *what)
        shutil.rmtree(target / "bin")  # programs of the libraries; ours is made by _install_files


def _copyright(libraries: Path) -> str:
    """Our own statement, then the licences of the program's parts and of each library."""
    parts = [(_HERE / "copyright").read_text()]
    for info in sorted(libraries.glob("*.dist-info"), key=lambda path: path.name.lower()):
        metadata = HeaderParser().parsestr((info / "METADATA").read_text())
        licences = _licences(info)
        if not licences:
            sys.exit(f"deb: {info.name} has no licence file; it cannot be packaged")
        for path in licences:
            name = path.relative_to(info).as_posix().removeprefix("licenses/")
            parts.append(f"\n{'-' * 78}\n{metadata['Name']} {metadata['Version']}: {name}\n")
            text = path.read_text().strip()
            common = next((at for it, at in _COMMON_LICENCES.items() if text.startswith(it)), None)
            parts.append(f"\n{f'The text is in {common}.' if common else text}\n")
    return "".join(parts)


def _licences(info: Path) -> list[Path]:
    names = ("LICENSE", "LICENCE", "COPYING", "NOTICE")
    found = (path for path in sorted(info.rglob("*")) if path.is_file())
    return [path for path in found if path.name.upper().startswith(names)]


def _tidy(libraries: Path) -> None:
    """Delete what the libraries do not need to run."""
    for info in libraries.glob("*.dist-info"):
        # Libraries read their own METADATA, and OpenTelemetry finds its parts by entry points.
        # Licences are in the copyright file; the rest is pip's.
        read = ("METADATA", "entry_points.txt")
        kept = {name: (info / name).read_text() for name in read if (info / name).exists()}
        shutil.rmtree(info)
        info.mkdir()
        for name, text in kept.items():
            (info / name).write_text(text)
    for path in libraries.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _install_files(tree: Path) -> None:
    _copy(_HERE / "pipelined", tree / "usr/bin/pipelined", 0o755)
    for unit in sorted((_TOP / "deploy/systemd").glob("*.service")):
        _copy(unit, tree / "usr/lib/systemd/system" / unit.name)
    _copy(_TOP / "deploy/pipelined.toml", tree / _CONFIGURATION)
    _copy(
        _HERE / "pipelined.rtupdate", tree / "usr/share/python3/runtime.d/pipelined.rtupdate", 0o755
    )
    _copy(_HERE / "lintian-overrides", tree / "usr/share/lintian/overrides/pipelined")
    documentation = tree / "usr/share/doc/pipelined"
    for page in sorted((_TOP / "docs").glob("*.md")):
        _copy(page, documentation / page.name)
    examples = documentation / "examples"
    for file in sorted((_TOP / "dashboards").glob("*.json")):
        _copy(file, examples / "dashboards" / file.name)
    for folder in ("prometheus", "opentelemetry"):
        for file in sorted((_TOP / "deploy" / folder).rglob("*.*")):
            _copy(file, examples / file.relative_to(_TOP / "deploy"))


def _install_generated(tree: Path, libraries: Path) -> None:
    # What is packaged, and not what this Python has; and its bytecode is not to be packaged.
    packaged = {"PYTHONPATH": str(libraries), "PYTHONDONTWRITEBYTECODE": "1"}
    for page in ("pipelined.1", "pipelined.toml.5"):
        text = _output(sys.executable, str(_TOP / "deploy/manual.py"), page, **packaged)
        _zip(tree / f"usr/share/man/man{page[-1]}/{page}.gz", text)
    for shell, place in _COMPLETIONS.items():
        program = "from pipelined.cli import main; main()"
        script = _output(sys.executable, "-c", program, "completion", shell, **packaged)
        (tree / place).parent.mkdir(parents=True, exist_ok=True)
        (tree / place).write_text(script)


def _write_control(tree: Path, version: str, architecture: str) -> None:
    files = sorted(path for path in tree.rglob("*") if path.is_file())
    size = sum(path.stat().st_size for path in files)
    values = {
        "VERSION": version,
        "ARCHITECTURE": architecture,
        "MAINTAINER": _maintainer(),
        "INSTALLED_SIZE": str(-(-size // 1024)),
    }
    control = (_HERE / "control").read_text()
    for name, value in values.items():
        control = control.replace(f"@{name}@", value)
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN/control").write_text(control)
    (tree / "DEBIAN/conffiles").write_text(f"/{_CONFIGURATION}\n")
    sums = (f"{_md5(path)}  {path.relative_to(tree)}\n" for path in files)
    (tree / "DEBIAN/md5sums").write_text("".join(sums))  # for dpkg --verify
    for script in ("preinst", "postinst", "prerm", "postrm"):
        _copy(_HERE / script, tree / "DEBIAN" / script, 0o755)


def _md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def _maintainer() -> str:
    """Who builds it, from the variables that Debian's tools use."""
    name = os.environ.get("DEBFULLNAME", "the pipelined authors")
    return f"{name} <{os.environ.get('DEBEMAIL', 'maintainers@pipelined.invalid')}>"


def _changelog(version: str) -> str:
    """The changelog of one release, in the form that Debian's tools read, without its changes."""
    moment = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
    return (
        f"pipelined ({version}) unstable; urgency=medium\n\n"
        f"  * Release {version}.\n\n"
        f" -- {_maintainer()}  {format_datetime(moment)}\n"
    )


def _copy(source: Path, target: Path, mode: int = 0o644) -> None:
    if not source.is_file():
        sys.exit(f"deb: no {source.relative_to(_TOP)}; the package needs it")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def _zip(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def _output(*command: str, **environment: str) -> str:
    environment = os.environ | environment
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
