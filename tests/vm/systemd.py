# SPDX-License-Identifier: Apache-2.0
"""Run the Debian package under a real systemd, in a virtual machine.

    tests/vm/systemd.py --package build/deb/pipelined_VERSION_amd64.deb
                        [--kernel bookworm] [--root bookworm] [--cache build/vm]

debootstrap makes a root file system once. The package is installed on top of it as apt would do
it, the whole becomes a disk image, and a stock kernel boots from it: systemd starts the service as
it does on any host. Then systemd_guest.py, which is a unit there, looks and tries; its last line
is the result. The host stays as it is. Needs root. Exit code 0 only if every claim held.
"""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from matrix import SUITES, Kernel, Suite, Unavailable, mirror, run

_TOP = Path(__file__).resolve().parents[2]
_PACKAGES = "systemd,systemd-sysv,udev,dbus,kmod,iproute2,python3,init-system-helpers"

#: Seconds from power on to the result: 300 to 500, emulated; a busy host takes ten times as long.
_TIMEOUT = 3600

#: What the initial file system does before the root's own init takes over.
_INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /root
/bin/busybox mount -t devtmpfs devtmpfs /dev
for module in $(/bin/busybox cat /modules/order); do /bin/busybox insmod /modules/$module; done
until [ -b /dev/vda ]; do /bin/busybox sleep 0.1; done
/bin/busybox mount -t ext4 /dev/vda /root
/bin/busybox umount /dev
exec /bin/busybox switch_root /root /sbin/init
"""

#: The console is the only way out: it has the test's lines, and nothing else.
_UNIT = """[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/usr/bin/python3 -B /systemd_guest.py
ExecStopPost=/usr/bin/systemctl poweroff --no-block
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
"""

#: Shorter waits, and room: emulated on an idle host, a start takes 15 s and a stop up to 6 s.
_DROP_IN = """[Service]
TimeoutStartSec=300
TimeoutStopSec=60
WatchdogSec=30
RestartSec=1
SupplementaryGroups=pipelined-web
"""
#: Where systemd can wait for the end of a reload, it shall.
_WAIT_FOR_RELOAD = {
    "bookworm": "",
    "trixie": "Type=notify-reload\nExecReload=\n",
}

#: Only root and this group may read the files of the port, as docs/INSTALL.md says.
_WEB_CONFIG = """http_server_config:
  headers:
    X-Frame-Options: deny
"""
_OPTIONS = """OPTIONS="--web.config.file /etc/pipelined/web.yml"
"""

#: In a mount namespace of its own: what is mounted goes with it, however this ends.
_INSTALL = """
set -e
mount -t overlay overlay -o "lowerdir=$BASE,upperdir=$WORK/upper,workdir=$WORK/work" "$WORK/root"
cp "$PACKAGE" "$WORK/root/pipelined.deb"
cp "$NEWER" "$WORK/root/newer.deb"
cp "$HERE/systemd_guest.py" "$HERE/claims.py" "$WORK/root"
cp "$WORK/guest.service" "$WORK/root/etc/systemd/system/guest.service"
mkdir "$WORK/root/etc/systemd/system/pipelined.service.d"
cp "$WORK/test.conf" "$WORK/root/etc/systemd/system/pipelined.service.d"
ln -s ../guest.service "$WORK/root/etc/systemd/system/multi-user.target.wants/guest.service"
mount -t proc proc "$WORK/root/proc"
export DEBIAN_FRONTEND=noninteractive
chroot "$WORK/root" apt-get -qq -o APT::Sandbox::User=root update
chroot "$WORK/root" apt-get -qq -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 install -y \
    --no-install-recommends /pipelined.deb
chroot "$WORK/root" groupadd --system pipelined-web
install -m 0640 "$WORK/web.yml" "$WORK/root/etc/pipelined/web.yml"
chroot "$WORK/root" chgrp pipelined-web /etc/pipelined/web.yml
cp "$WORK/options" "$WORK/root/etc/default/pipelined"
umount "$WORK/root/proc"
rm -rf "$WORK"/root/var/lib/apt/lists/* "$WORK"/root/var/cache/apt/*
mkfs.ext4 -q -F -d "$WORK/root" "$WORK/root.img" 1G
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--package", type=Path, required=True, help="the .deb to install")
    parser.add_argument("--kernel", choices=SUITES, default="bookworm", help="of this suite")
    parser.add_argument(
        "--root", choices=_WAIT_FOR_RELOAD, default="bookworm", help="suite of the rest"
    )
    parser.add_argument("--cache", type=Path, default=_TOP / "build" / "vm")
    options = parser.parse_args()
    cache = options.cache.resolve()
    try:
        if platform.machine() != "x86_64":
            raise Unavailable("the machine is an x86-64 one, and so has the package to be")
        kernel = Suite(options.kernel, cache, "amd64").newest_kernel()
        base = base_root(options.root, cache)
        print(f"systemd: Linux {kernel.version} on {options.root}", flush=True)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            image = install(options.package.resolve(), base, Path(work))
            initial = initial_files(kernel, Path(work))
            passed = boot(kernel, image, initial)
    except Unavailable as reason:
        print(f"systemd: not run: {reason}", flush=True)
        return 1
    print("systemd: every claim held" if passed else "systemd: failed", flush=True)
    return int(not passed)


def base_root(suite: str, cache: Path, name: str = "systemd", more: str = "") -> Path:
    """A Debian root with systemd, and `more` packages, made once."""
    root = cache / name / suite
    if not root.exists():
        part = root.with_name(f"{suite}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.parent.mkdir(parents=True, exist_ok=True)
        options = ["--variant=minbase", f"--include={_PACKAGES}{more and ','}{more}"]
        run("debootstrap", *options, suite, str(part), mirror())
        part.rename(root)
    return root


def install(package: Path, base: Path, work: Path) -> Path:
    """A disk image of `base` with the package and the test in it."""
    for directory in ("upper", "work", "root"):
        (work / directory).mkdir()
    (work / "guest.service").write_text(_UNIT)
    (work / "test.conf").write_text(_DROP_IN + _WAIT_FOR_RELOAD[base.name])
    (work / "web.yml").write_text(_WEB_CONFIG)
    (work / "options").write_text(_OPTIONS)
    newer_release(package, work)
    run(
        *("unshare", "--mount", "--propagation", "private", "bash", "-c", _INSTALL),
        BASE=str(base),
        WORK=str(work),
        PACKAGE=str(package),
        NEWER=str(work / "newer.deb"),
        HERE=str(Path(__file__).parent),
    )
    return work / "root.img"


def newer_release(package: Path, work: Path) -> None:
    """The same package with a higher version, which the program knows too, as `newer.deb`."""
    tree = work / "newer"
    run("dpkg-deb", "--raw-extract", str(package), str(tree))
    for path, line in {
        "DEBIAN/control": r"^(Version: .*)$",
        "usr/lib/pipelined/pipelined/__init__.py": r'^(__version__ = "[^"]*)(?=")',
    }.items():
        text = (tree / path).read_text()
        (tree / path).write_text(re.sub(line, r"\1.newer", text, flags=re.MULTILINE))
    run("dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(work / "newer.deb"))
    shutil.rmtree(tree)


def initial_files(kernel: Kernel, work: Path, busybox: Path = Path("/bin/busybox")) -> Path:
    """An archive with the modules that the root's disk needs, and what loads them.

    `busybox`: that of the kernel's architecture, linked with nothing.
    """
    files = work / "initial"
    (files / "bin").mkdir(parents=True)
    (files / "modules").mkdir()
    shutil.copy(busybox, files / "bin/busybox")
    (files / "init").write_text(_INIT)
    (files / "init").chmod(0o755)
    # …/lib/modules/VERSION lies in what modprobe takes for the root
    order = []
    for module in ("virtio_pci", "virtio_blk", "ext4"):
        for path in modules_for(module, kernel):
            name = path.name.removesuffix(".xz")
            if name in order:
                continue
            order.append(name)
            with (files / "modules" / name).open("wb") as plain:
                reader = ["xz", "-dc"] if path.suffix == ".xz" else ["cat"]
                subprocess.run([*reader, str(path)], stdout=plain, check=True)
    (files / "modules/order").write_text(" ".join(order))
    run("sh", "-c", "find . | busybox cpio -o -H newc > ../initial.cpio", where=files)
    return work / "initial.cpio"


def modules_for(module: str, kernel: Kernel) -> Iterator[Path]:
    """Its file and those that it needs, in the order in which they are to be loaded."""
    if not any(kernel.modules.rglob(f"{module}.ko*")):
        return  # built in: virtio_pci is, since 7.3 or before
    root = kernel.modules.parents[2]
    told = run("modprobe", "-d", str(root), "-S", kernel.version, "--show-depends", module)
    for line in told.splitlines():
        kind, _, path = line.partition(" ")
        if kind == "insmod":
            yield Path(path.strip())


def boot(
    kernel: Kernel, image: Path, initial: Path, name: str = "systemd", seconds: int = _TIMEOUT
) -> bool:
    """Boot from the image, with what the guest says on our output; whether every claim held."""
    command = [
        # with a thread for each CPU, QEMU may run code that the other has just patched: int3 Oops
        *("timeout", str(seconds), "qemu-system-x86_64", "-accel", "tcg,thread=single"),
        *("-cpu", "max", "-smp", "2", "-m", "1G", "-nographic", "-no-reboot", "-nic", "none"),
        *("-kernel", str(kernel.image), "-initrd", str(initial)),
        *("-append", "console=ttyS0 panic=-1 quiet loglevel=4 systemd.show_status=no"),
        *("-drive", f"file={image},if=virtio,format=raw"),
    ]
    return claims_hold(command, name)


def claims_hold(command: Sequence[str], name: str) -> bool:
    """Run a virtual machine, and print what its guest says, after `name`; whether all held.

    Claims that did not hold are printed once more at the end, behind the guest's journal.
    """
    result = None
    failed = []
    # through a pipe: into a file, QEMU would overwrite parts of what it wrote
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as machine:
        assert machine.stdout is not None
        for line in machine.stdout:
            print(f"{name}: {line.rstrip()}", flush=True)
            result = re.search(r"guest: result failures=(\d+)", line) or result
            if "guest: FAILED " in line:
                failed.append(line.rstrip())
    for line in failed:
        print(f"{name}: {line}", flush=True)
    if result is None:
        print(f"{name}: no result", flush=True)
        return False
    return result[1] == "0"


if __name__ == "__main__":
    sys.exit(main())
