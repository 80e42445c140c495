# SPDX-License-Identifier: Apache-2.0
"""Run the installed program on kernels and architectures that the kernel tests are not run on.

    tests/vm/kernels.py --package build/deb/pipelined_VERSION_amd64.deb
                        [--only arm64-trixie] [--cache build/vm]

A root file system is unpacked from Debian's packages, and no script of a package is run: so one of
another architecture needs no emulation to be made. The package is unpacked into it, the whole
becomes a disk image, and each kernel boots from it in QEMU, one after the other. There
kernels_guest.py tries doctor, run, serve and the history; its last line is the result. Kernels that
cannot work, and those that are made to lack something, have to say so in one line.
The host stays as it is. Needs root. Exit code 0 only if every claim held.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from matrix import Kernel, Suite, Unavailable, mirror, run
from systemd import claims_hold, initial_files

_TOP = Path(__file__).resolve().parents[2]
_PACKAGES = (
    "base-files,busybox-static,coreutils,dash,libbpf1,mawk,python3,python3-bcrypt,"
    "python3-markupsafe,python3-yaml"
)

#: Seconds from power on to the result.
_TIMEOUT = 3600

#: The first process: there is no other service, and no udev.
_INIT = """#!/bin/busybox sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 COLUMNS=100
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t devtmpfs devtmpfs /dev
busybox mount -t tmpfs tmpfs /run
busybox mount -t securityfs securityfs /sys/kernel/security
busybox mount -t cgroup2 cgroup2 /sys/fs/cgroup
busybox ip link set lo up
busybox mount -t tracefs tracefs /sys/kernel/tracing
exec < /dev/null > /dev/console 2>&1
python3 -B /kernels_guest.py
busybox poweroff -f
"""

_LINES = "".join(f"{number * 7919 % 100003:06d} the quick brown fox\n" for number in range(30_000))


@dataclass(frozen=True)
class Row:
    """One kernel, and what is expected of it."""

    suite: str
    flavour: str = ""
    """`cloud-`, `rt-`, or nothing for the generic kernel."""
    machine: str = "amd64"
    """Its architecture; `uml`: a process of this host, by Debian's User Mode Linux."""
    root: str = "bookworm"
    """Suite of everything but the kernel."""
    off: tuple[str, ...] = ()
    """Hooks that it has not got."""
    readahead: str = "on"
    hide: str = ""
    """Tracepoints that its BTF is not to name: to whoever reads it, the kernel has none of them."""
    append: str = ""
    """For the kernel's command line."""
    verifier: str = ""
    """If the verifier does not know all that the programs need."""
    preempts: str = ""
    """If it can preempt BPF programs: then it leaves out events."""
    refuses: str = ""
    """A part of the sentence that says why it does not work there."""

    def options(self) -> str:
        told = {
            "off": ",".join(self.off),
            "readahead": self.readahead,
            "hide": self.hide,
            "verifier": self.verifier,
            "preempts": self.preempts,
            "refuses": self.refuses,
        }
        words = [f"pipelined.{name}={quote(value)}" for name, value in told.items() if value]
        return " ".join([*words, self.append])


_BEFORE_6_6 = ("iomap_dio_complete",)
#: arm64 could attach no program to a function then, but kprobes.
_ARM64_6_1 = (
    *_BEFORE_6_6,
    *("__arm64_sys_execve", "__arm64_sys_vmsplice", "do_splice", "do_tee"),
    *("pipe_read", "pipe_write", "vfs_read"),
)
_HIDDEN = ("mm_filemap_add_to_page_cache",)

ROWS = {
    "bullseye": Row("bullseye", verifier="old", refuses="bpf_task_pt_regs"),
    "bookworm-cloud": Row("bookworm", "cloud-", off=_BEFORE_6_6),
    "bookworm-rt": Row("bookworm", "rt-", off=_BEFORE_6_6, preempts="rt"),
    "trixie-cloud": Row("trixie", "cloud-"),
    "trixie-rt": Row("trixie", "rt-", preempts="rt"),
    "testing": Row("testing", preempts="lazy"),
    "testing-cloud": Row("testing", "cloud-", preempts="lazy"),
    "testing-rt": Row("testing", "rt-", preempts="rt"),
    "backports": Row("trixie-backports", preempts="lazy"),
    "arm64-bookworm": Row("bookworm", machine="arm64", off=_ARM64_6_1),
    "arm64-trixie": Row("trixie", machine="arm64", root="trixie"),
    "no-btf": Row("bookworm", machine="uml", refuses="no /sys/kernel/btf/vmlinux"),
    "confidentiality": Row("bookworm", append="lockdown=confidentiality", refuses="lockdown"),
    "no-page-cache": Row(
        "bookworm",
        hide=",".join(_HIDDEN),
        off=(
            *(*_BEFORE_6_6, *_HIDDEN),
            *("filemap_fault", "filemap_get_pages", "sched_process_exit"),
        ),
        readahead="off",
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--package", type=Path, required=True, help="the .deb to unpack")
    parser.add_argument("--only", action="append", choices=ROWS, help="only this row")
    parser.add_argument("--cache", type=Path, default=_TOP / "build" / "vm")
    options = parser.parse_args()
    if platform.machine() != "x86_64":
        print("kernels: not run: the package is unpacked for x86-64, and changed for arm64")
        return 1
    cache = options.cache.resolve()
    failed = []
    with tempfile.TemporaryDirectory(dir=_made(cache)) as work:
        for name in options.only or ROWS:
            try:
                passed = tried(name, ROWS[name], options.package.resolve(), cache, Path(work))
            except Unavailable as reason:
                print(f"{name}: not run: {reason}", flush=True)
                passed = False
            failed += [] if passed else [name]
    print(f"kernels: failed: {', '.join(failed)}" if failed else "kernels: every claim held")
    return bool(failed)


def tried(name: str, row: Row, package: Path, cache: Path, work: Path) -> bool:
    """Boot one kernel; whether every claim held."""
    by_process = row.machine == "uml"
    machine = "amd64" if by_process else row.machine
    suite = Suite(row.suite, cache, machine)
    if by_process:
        program = suite.unpacked("user-mode-linux") / "usr/bin/linux.uml"
        print(f"{name}: {program.name} on {row.root}", flush=True)
    else:
        kernel = suite.newest_kernel(row.flavour)
        print(f"{name}: Linux {kernel.version} on {row.root}", flush=True)
    base = base_root(row.root, machine, cache)
    image = work / f"{machine}-{row.root}.img"
    if not image.exists():
        install(package, base, machine, work, image)
    mine = work / name
    mine.mkdir()
    if by_process:
        command = user_mode(row, program, image, mine)
    else:
        initial = initial_files(kernel, mine, base / "bin/busybox")
        command = emulated(row, kernel, image, initial)
    # a busy host takes ten times as long as an idle one
    return claims_hold(["timeout", str(_TIMEOUT), *command], name)


def base_root(suite: str, machine: str, cache: Path) -> Path:
    """A Debian root, made once, in which no script of a package has run."""
    root = cache / "roots" / f"{machine}-{suite}"
    if not root.exists():
        part = root.with_name(f"{root.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.parent.mkdir(parents=True, exist_ok=True)
        run(
            *("mmdebstrap", "--mode=root", "--variant=extract", f"--architectures={machine}"),
            *("--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", f"--include={_PACKAGES}"),
            *('--aptopt=APT::Sandbox::User "root"', suite, str(part), mirror()),
        )
        # what such scripts would have made
        for directory in ("proc", "sys", "dev", "run", "tmp", "root", "etc", "data"):
            (part / directory).mkdir(exist_ok=True)
        (part / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        for link, target in (("usr/bin/awk", "mawk"), ("usr/bin/sh", "dash")):
            if not (part / link).is_symlink():
                (part / link).symlink_to(target)
        part.rename(root)
    return root


def install(package: Path, base: Path, machine: str, work: Path, image: Path) -> None:
    """A disk image of `base` with the package and the test in it."""
    root = work / "root"
    run("cp", "-a", str(base), str(root))
    # not by `dpkg -x`: it would put directories where the root has links
    packed = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE)
    subprocess.run(
        ["tar", "-x", "--keep-directory-symlink", "-C", str(root)], stdin=packed.stdout, check=True
    )
    if packed.wait():
        raise Unavailable(f"{package} cannot be unpacked")
    if machine == "arm64":
        # all else in the package is Python, which is the same on each machine
        run(
            *("clang", "-g", "-O2", "-target", "bpf", "-mcpu=v3", "-D__TARGET_ARCH_arm64"),
            *("-idirafter", "/usr/aarch64-linux-gnu/include", "-c"),
            *(str(_TOP / "bpf/pipelined.bpf.c"), "-o", f"{work}/pipelined.bpf.o"),
        )
        run("llvm-strip", "-g", f"{work}/pipelined.bpf.o")
        place = root / "usr/lib/pipelined/pipelined/bpf/pipelined.bpf.o"
        assert place.exists(), "the package has its BPF object elsewhere"
        shutil.copy(work / "pipelined.bpf.o", place)
    for name in ("kernels_guest.py", "claims.py"):
        shutil.copy(Path(__file__).with_name(name), root / name)
    _compile(root)
    (root / "sbin/init").write_text(_INIT)
    (root / "sbin/init").chmod(0o755)
    for name in ("lines", "again"):
        (root / "data" / name).write_text(_LINES)
    run("mkfs.ext4", "-q", "-F", "-d", str(root), str(image), "512M")
    shutil.rmtree(root)


def _compile(root: Path) -> None:
    """Bytecode of all Python, if this is that Python: emulated, to compile takes long."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if not (root / "usr/lib" / version).exists():
        return
    # some files of the standard library's tests do not compile
    subprocess.run(
        [
            *(sys.executable, "-m", "compileall", "-qq", "--invalidation-mode", "unchecked-hash"),
            *("-s", str(root), "-p", "/"),
            *(str(root / "usr/lib" / part) for part in (version, "python3", "pipelined")),
        ],
        check=False,
    )


def emulated(row: Row, kernel: Kernel, image: Path, initial: Path) -> list[str]:
    """What boots the kernel from the image."""
    x86 = row.machine == "amd64"
    machine = (
        ["qemu-system-x86_64", "-cpu", "max"]
        if x86
        else ["qemu-system-aarch64", "-machine", "virt", "-cpu", "cortex-a57"]
    )
    console = "ttyS0" if x86 else "ttyAMA0"
    return [
        *machine,
        # with a thread for each CPU, QEMU may run code that the other has just patched: int3 Oops
        *("-accel", "tcg,thread=single", "-smp", "2", "-m", "1G"),
        *("-nographic", "-no-reboot", "-nic", "none", "-snapshot"),
        *("-kernel", str(kernel.image), "-initrd", str(initial)),
        *("-append", f"console={console} panic=-1 quiet loglevel=4 {row.options()}"),
        *("-drive", f"file={image},if=virtio,format=raw"),
    ]


def user_mode(row: Row, program: Path, image: Path, work: Path) -> list[str]:
    """The same, of a kernel that is a program; what it writes to the image goes to `work`."""
    return [
        *(str(program), "mem=1G", f"ubd0={work}/written,{image}", "root=/dev/ubda", "rw"),
        *("con=null", "con0=null,fd:1", "ssl=null", "console=tty0", "panic=-1"),
        *("quiet", "loglevel=4", *row.options().split()),
    ]


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


if __name__ == "__main__":
    sys.exit(main())
