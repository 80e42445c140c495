# SPDX-License-Identifier: Apache-2.0
"""Run the kernel tests on stock Debian kernels, each in a virtual machine of its own.

    tests/vm/matrix.py [--kernel bookworm] [--cache build/vm] [ARGUMENTS OF PYTEST]

Kernels come by apt from the Debian mirror that the host uses, with apt's own verification, into
directories of their own: the host's sources and packages stay as they are. QEMU emulates the
processor, because a host that is a virtual machine itself often cannot do otherwise; a boot takes
some 10 s. As many machines run at once as there are processors. Exit code 0 only if every kernel
was had, booted, and passed.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SUITES = ("bookworm", "trixie", "trixie-backports")

#: Seconds from power on to the result: some 10 s to boot, and the tests at a tenth of the speed.
_TIMEOUT = 1500

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_TOP = Path(__file__).resolve().parents[2]
_MODULES = Path("/lib/modules")


class Unavailable(Exception):
    """Why a kernel could not be had or booted."""


@dataclass(frozen=True)
class Kernel:
    version: str
    image: Path
    modules: Path


class Suite:
    """Packages of one Debian suite, apart from those of the host."""

    def __init__(self, name: str, cache: Path) -> None:
        self.name = name
        self._root = cache / name
        for part in ("lists/partial", "archives/partial", "unpacked"):
            (self._root / part).mkdir(parents=True, exist_ok=True)
        (self._root / "status").touch()
        source = f"deb [signed-by={_KEYRING}] {mirror()} {name} main\n"
        (self._root / "sources.list").write_text(source)

    def newest_kernel(self) -> Kernel:
        """Download and unpack the suite's generic kernel, unless that is done already."""
        self._apt("apt-get", "update")
        packages = self._kernel_packages()
        self._apt("apt-get", "download", *packages, where=self._root / "archives")
        unpacked = self._root / "unpacked" / packages[0]
        if not (unpacked / "done").exists():
            shutil.rmtree(unpacked, ignore_errors=True)
            for package in packages:
                newest = max(
                    (self._root / "archives").glob(f"{package}_*.deb"),
                    key=lambda path: path.stat().st_mtime,
                )
                _run("dpkg", "-x", str(newest), str(unpacked))
            if not (unpacked / "lib").exists():
                (unpacked / "lib").symlink_to("usr/lib")  # since 6.12
            (version,) = os.listdir(unpacked / "lib" / "modules")
            _run("depmod", "-b", str(unpacked), version)
            (unpacked / "done").touch()
        (version,) = os.listdir(unpacked / "lib" / "modules")
        modules = unpacked / "lib" / "modules" / version
        images = [unpacked / "boot" / f"vmlinuz-{version}", modules / "vmlinuz"]
        image = next((path for path in images if path.exists()), None)
        if image is None:
            raise Unavailable(f"{packages[0]} has no vmlinuz")
        return Kernel(version, image, modules)

    def _kernel_packages(self) -> list[str]:
        """The image, and the packages with a version in their name that it is split into."""
        found: list[str] = []
        ask = [f"linux-image-{_debian_machine()}"]
        while ask:
            package = ask.pop()
            record = self._apt("apt-cache", "show", "--no-all-versions", package)
            depends = re.search(r"^Depends: (.*)$", record, re.MULTILINE)
            names = re.findall(
                r"\b(linux-(?:image|binary|modules)-\d[^\s,(|]*)", depends[1] if depends else ""
            )
            ask += [name for name in names if name not in found]
            found += [name for name in names if name not in found]
        if not found:
            raise Unavailable(f"no kernel package in {self.name}")
        return found

    def _apt(self, *command: str, where: Path | None = None) -> str:
        options = {
            "Dir::Etc::SourceList": self._root / "sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::State::Lists": self._root / "lists",
            "Dir::State::status": self._root / "status",
            "Dir::Cache": self._root,
            "APT::Sandbox::User": "root",
            "Acquire::Retries": "3",
            "quiet": "2",
        }
        words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        return _run(*command, *words, where=where)


def mirror() -> str:
    """Where the host gets Debian from."""
    places = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for place in places:
        if place.is_file():
            for line in place.read_text(errors="replace").splitlines():
                found = re.match(r"(?:deb\s+(?:\[.*\]\s+)?|URIs:\s*)(\S+/debian/?)(?:\s|$)", line)
                if found:
                    return found[1]
    raise Unavailable("no Debian mirror in /etc/apt: kernels come from there")


def _debian_machine() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


def _run(*command: str, where: Path | None = None) -> str:
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{command[0]}: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout


@contextmanager
def modules_in_place(kernel: Kernel) -> Iterator[None]:
    """The guest looks for its modules where the host has its own: a link, for this while."""
    link = _MODULES / kernel.version
    if link.exists() and not link.is_symlink():
        yield  # the host runs this kernel
        return
    link.unlink(missing_ok=True)
    link.symlink_to(kernel.modules)
    try:
        yield
    finally:
        link.unlink()


def boot(name: str, kernel: Kernel, vng: Path, arguments: list[str]) -> bool:
    """Run guest.sh under this kernel, with its output on ours after `name`; whether all passed."""
    guest = ["bash", str(_TOP / "tests/vm/guest.sh"), *arguments]
    machine = ["--disable-kvm", "--force-9p", "--cpus", "2", "--memory", "2G", "--verbose"]
    # with a thread for each CPU, QEMU may run code that the other CPU has just patched: int3 Oops
    machine += ["--qemu-opts=-accel tcg,thread=single"]
    command = [str(vng), *machine, "--run", str(kernel.image), "--", *guest]
    environment = os.environ | {"PATH": f"{vng.parent}:{os.environ['PATH']}"}
    result = None
    said = deque[str](maxlen=30)
    # through a pipe: into a file, QEMU would overwrite parts of what it wrote
    with (
        modules_in_place(kernel),
        subprocess.Popen(
            ["timeout", str(_TIMEOUT), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
        ) as virtual,
    ):
        assert virtual.stdout is not None
        for line in virtual.stdout:
            if re.match(r"\[ *\d+\.\d+\]", line):
                said.append(line)
            else:
                print(f"{name}: {line.rstrip()}", flush=True)
            result = re.search(r"guest: result doctor=(\d+) tests=(\d+)", line) or result
    if result is None:
        print(f"{name}: no result; its last words:\n{''.join(said)}", flush=True)
        return False
    return result.groups() == ("0", "0")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kernel", action="append", choices=SUITES, help="only this suite's")
    parser.add_argument("--cache", type=Path, default=_TOP / "build" / "vm")
    parser.add_argument("--vng", type=Path, required=True, help="the program of virtme-ng")
    options, arguments = parser.parse_known_args()

    def passes(name: str) -> bool:
        try:
            kernel = Suite(name, options.cache.resolve()).newest_kernel()
        except Unavailable as reason:
            print(f"{name}: no kernel: {reason}", flush=True)
            return False
        print(f"{name}: Linux {kernel.version}", flush=True)
        return boot(name, kernel, options.vng.absolute(), arguments)

    names = options.kernel or SUITES
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        passed = list(pool.map(passes, names))
    failed = [name for name, well in zip(names, passed, strict=True) if not well]
    print(f"failed: {', '.join(failed)}" if failed else "every kernel passed", flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
