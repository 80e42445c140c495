# SPDX-License-Identifier: Apache-2.0
"""Run the kernel tests on stock Debian kernels, each in a virtual machine of its own.

    tests/vm/matrix.py [--kernel bookworm] [--brief] [--cache build/vm] [ARGUMENTS OF PYTEST]

On an x86-64 host arm64 kernels come too: there a small static program (arm64.c) loads the object
that was built for arm64, runs a pipeline, and compares.

Kernels come by apt from the Debian mirror that the host uses, with apt's own verification, into
directories of their own: the host's sources and packages stay as they are. QEMU emulates the
processor, because a host that is a virtual machine itself often cannot do otherwise; a boot takes
some 10 s. Three machines run at once on two processors: each keeps one busy, and the last is not to
run alone. Exit code 0 only if every kernel was had, booted, and passed.
"""

from __future__ import annotations

import argparse
import fcntl
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

ARM64 = {"arm64-bookworm": "bookworm", "arm64-trixie-backports": "trixie-backports"}

#: Suites with the kernels that are tried, and what `--brief` leaves out there, by the markers of
#: pyproject.toml.
_SPARED = {
    "bookworm": "real_time or thorough",
    "trixie-backports": "real_time or thorough or oldest_kernel",
    "trixie": "real_time or thorough or oldest_kernel or page_cache",
}
SUITES = tuple(_SPARED)

#: Seconds from power on to the result: some 10 s to boot, and the tests at a tenth of the speed.
#: All of them with both loaders are 700 of 2 to 4 s each.
_TIMEOUT = 3 * 3600
#: The same where arm64.c is all there is: it takes a minute, on a busy host ten times as long.
_ARM64_TIMEOUT = 1800

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
    """Packages of one Debian suite and machine, apart from those of the host."""

    def __init__(self, name: str, cache: Path, machine: str) -> None:
        self.name = name
        self._machine = machine
        self._root = cache / (name if machine == debian_machine() else f"{machine}-{name}")
        for part in ("lists/partial", "archives/partial", "unpacked"):
            (self._root / part).mkdir(parents=True, exist_ok=True)
        (self._root / "status").touch()
        source = f"deb [signed-by={_KEYRING}] {mirror()} {name} main\n"
        (self._root / "sources.list").write_text(source)

    def newest_kernel(self, flavour: str = "") -> Kernel:
        """Download and unpack the suite's kernel, unless that is done already.

        `flavour`: "cloud-" or "rt-"; nothing for the generic one.
        """
        with self._alone():
            self._apt("apt-get", "update")
            packages = self._kernel_packages(flavour)
            unpacked = self._unpack(packages)
            if not (unpacked / "done").exists():
                if not (unpacked / "lib").exists():
                    (unpacked / "lib").symlink_to("usr/lib")  # since 6.12
                (version,) = os.listdir(unpacked / "lib" / "modules")
                run("depmod", "-b", str(unpacked), version)
                (unpacked / "done").touch()
        (version,) = os.listdir(unpacked / "lib" / "modules")
        modules = unpacked / "lib" / "modules" / version
        images = [unpacked / "boot" / f"vmlinuz-{version}", modules / "vmlinuz"]
        image = next((path for path in images if path.exists()), None)
        if image is None:
            raise Unavailable(f"{packages[0]} has no vmlinuz")
        return Kernel(version, image, modules)

    def libraries(self) -> Path:
        """Where libbpf is unpacked with its headers and all that it is linked with."""
        return self.unpacked("libbpf-dev", "libelf-dev", "zlib1g-dev", "libzstd-dev") / "usr"

    def unpacked(self, *packages: str) -> Path:
        """Where these packages are unpacked together."""
        with self._alone():
            self._apt("apt-get", "update")
            return self._unpack(list(packages))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """`make test-service` may want the same kernel at the same time."""
        with (self._root / "used").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _unpack(self, packages: list[str]) -> Path:
        self._apt("apt-get", "download", *packages, where=self._root / "archives")
        unpacked = self._root / "unpacked" / packages[0]
        if not unpacked.exists():
            part = unpacked.with_name(f"{unpacked.name}.part")
            shutil.rmtree(part, ignore_errors=True)
            for package in packages:
                newest = max(
                    (self._root / "archives").glob(f"{package}_*.deb"),
                    key=lambda path: path.stat().st_mtime,
                )
                run("dpkg", "-x", str(newest), str(part))
            part.rename(unpacked)
        return unpacked

    def _kernel_packages(self, flavour: str) -> list[str]:
        """The image, and the packages with a version in their name that it is split into."""
        found: list[str] = []
        ask = [f"linux-image-{flavour}{self._machine}"]
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
            "APT::Architecture": self._machine,
            "APT::Architectures": self._machine,
            "Acquire::Retries": "3",
            "quiet": "2",
        }
        words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        return run(*command, *words, where=where)


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


def debian_machine() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


def run(*command: str, where: Path | None = None, **environment: str) -> str:
    """What a command prints; Unavailable, with its last words, if it fails."""
    done = subprocess.run(
        command,
        cwd=where,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
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
    _MODULES.mkdir(exist_ok=True)  # a host without modules has none
    link.unlink(missing_ok=True)
    link.symlink_to(kernel.modules)
    try:
        yield
    finally:
        link.unlink()


def boot(name: str, kernel: Kernel, vng: Path, arguments: list[str]) -> list[str]:
    """Run guest.sh under this kernel, with its output on ours after `name`; what failed."""
    guest = ["bash", str(_TOP / "tests/vm/guest.sh"), *arguments]
    machine = ["--disable-kvm", "--force-9p", "--cpus", "2", "--memory", "3G", "--verbose"]
    # with a thread for each CPU, QEMU may run code that the other CPU has just patched: int3 Oops
    machine += ["--qemu-opts=-accel tcg,thread=single"]
    command = [str(vng), *machine, "--run", str(kernel.image), "--", *guest]
    environment = os.environ | {"PATH": f"{vng.parent}:{os.environ['PATH']}"}
    result = None
    failed: list[str] = []
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
            of_kernel = re.match(r"\[ *\d+\.\d+\]", line)
            if of_kernel:
                said.append(line)
            if not of_kernel or re.search(r"BUG|Oops|Out of memory|invoked oom-killer", line):
                print(f"{name}: {line.rstrip()}", flush=True)
            failed += re.findall(r"^(?:FAILED|ERROR) (\S+)", line)
            result = re.search(r"guest: result doctor=(\d+) tests=(\d+)", line) or result
    if result is None:
        print(f"{name}: no result; its last words:\n{''.join(said)}", flush=True)
        return ["no result"]
    doctor, tests = (code != "0" for code in result.groups())
    return ["doctor"] * doctor + (failed or ["pytest"]) * tests


def boot_arm64(name: str, kernel: Kernel, libraries: Path, cache: Path) -> list[str]:
    """Build arm64.c and the object, boot them as all there is, and compare; what failed."""
    # arm64 had no fentry in 6.1
    tier = "kprobe" if kernel.version.startswith("6.1.") else "fentry"
    root = cache / "boot" / name
    shutil.rmtree(root, ignore_errors=True)
    files = root / "files"
    for directory in ("proc", "sys", "dev"):
        (files / directory).mkdir(parents=True)
    run(
        *("aarch64-linux-gnu-gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-static"),
        *(f"-I{libraries}/include", str(_TOP / "tests/vm/arm64.c"), "-o", str(files / "init")),
        *(f"-L{libraries}/lib/aarch64-linux-gnu", "-lbpf", "-lelf", "-lz", "-lzstd"),
    )
    run(
        *("clang", "-g", "-O2", "-target", "bpf", "-mcpu=v3", "-D__TARGET_ARCH_arm64"),
        *("-idirafter", "/usr/aarch64-linux-gnu/include"),
        *("-c", str(_TOP / "bpf/pipelined.bpf.c"), "-o", str(files / "pipelined.bpf.o")),
    )
    (module,) = (kernel.modules / "kernel/drivers/block").glob("brd.ko*")
    if module.suffix == ".xz":
        run("sh", "-c", f"xz -dc {module} > {files}/brd.ko")
    else:
        shutil.copy(module, files / "brd.ko")
    run("sh", "-c", "find . | busybox cpio -o -H newc > ../files.cpio", where=files)
    print(f"{name}: Linux {kernel.version}", flush=True)
    done = subprocess.run(
        [
            *("timeout", str(_ARM64_TIMEOUT), "qemu-system-aarch64", "-machine", "virt"),
            *("-cpu", "cortex-a57", "-smp", "2", "-m", "1G", "-nographic", "-no-reboot"),
            *("-kernel", str(kernel.image), "-initrd", str(root / "files.cpio")),
            *("-append", f"console=ttyAMA0 panic=-1 quiet rdinit=/init {tier}"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    print("".join(f"{name}: {line}\n" for line in done.stdout.splitlines()), end="", flush=True)
    return [] if "guest: result failures=0" in done.stdout else ["a claim"]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    # those that take longest first: then none is left to run alone
    names = [*SUITES, *(ARM64 if platform.machine() == "x86_64" else ())]
    parser.add_argument("--kernel", action="append", choices=names, help="only this one")
    parser.add_argument("--cache", type=Path, default=_TOP / "build" / "vm")
    parser.add_argument("--vng", type=Path, required=True, help="the program of virtme-ng")
    parser.add_argument(
        "--brief", action="store_true", help="without what the markers spare each kernel"
    )
    options, arguments = parser.parse_known_args()

    def failures(name: str) -> list[str]:
        cache = options.cache.resolve()
        try:
            if name in ARM64:
                kernel = Suite(ARM64[name], cache, "arm64").newest_kernel()
                libraries = Suite("bookworm", cache, "arm64").libraries()
                return boot_arm64(name, kernel, libraries, cache)
            kernel = Suite(name, cache, debian_machine()).newest_kernel()
            print(f"{name}: Linux {kernel.version}", flush=True)
            selected = ["-m", f"not ({_SPARED[name]})"] if options.brief else []
            return boot(name, kernel, options.vng.absolute(), [*selected, *arguments])
        except Unavailable as reason:
            print(f"{name}: not run: {reason}", flush=True)
            return ["not run"]

    names = options.kernel or names
    processors = os.cpu_count() or 1
    # one more machine would make 7.3 preempt its programs more often
    with ThreadPoolExecutor(processors if options.brief else (processors * 3 + 1) // 2) as pool:
        failed = dict(zip(names, pool.map(failures, names), strict=True))
    # once more at the end: of a long log often only that is kept
    for name, what in failed.items():
        if what:
            print(f"failed: {name}: {' '.join(what)}", flush=True)
    if any(failed.values()):
        return 1
    print("every kernel passed", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
