# SPDX-License-Identifier: Apache-2.0
"""Run the Ansible role under a real systemd, in a virtual machine.

    tests/vm/ansible_role.py --package build/deb/pipelined_VERSION_amd64.deb [--cache build/vm]

A Debian 12 root gets what the package depends on, but not the package; beside it ansible-core from
the Python Package Index, the role, the package, and a signed apt repository with a newer release of
it. The whole becomes a disk image, and a stock kernel boots from it. There ansible_guest.py, which
is a unit, has Ansible work on the machine that it runs on; its last line is the result. The host
stays as it is. Needs root. Exit code 0 only if every claim held.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
import tempfile
from pathlib import Path

from matrix import Suite, Unavailable, run
from systemd import base_root, boot, initial_files, newer_release

_TOP = Path(__file__).resolve().parents[2]
#: The last one that runs on Debian 12's Python, 3.11.
_CORE = "ansible-core>=2.19,<2.20"
_SUITE = "bookworm"

_UNIT = """[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/usr/bin/python3 -B /ansible_guest.py
ExecStopPost=/usr/bin/systemctl poweroff --no-block
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
"""

_INSTALL = """
set -e
mount -t overlay overlay -o "lowerdir=$BASE,upperdir=$WORK/upper,workdir=$WORK/work" "$WORK/root"
mount -t proc proc "$WORK/root/proc"
export DEBIAN_FRONTEND=noninteractive
chroot "$WORK/root" apt-get -qq -o APT::Sandbox::User=root update
chroot "$WORK/root" apt-get -qq -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 satisfy -y \\
    --no-install-recommends "$DEPENDS, gpgv, python3-apt"
umount "$WORK/root/proc"
# the machine has no network: only what it is given can be installed there
rm -rf "$WORK"/root/var/lib/apt/lists/* "$WORK"/root/var/cache/apt/*
rm "$WORK/root/etc/apt/sources.list"
cp "$HERE/ansible_guest.py" "$HERE/claims.py" "$WORK/root"
cp -r "$ROLES" "$WORK/root/roles"
# with its times: what Python has compiled of it is of no use otherwise
cp -a "$WORK/ansible" "$WORK/apt" "$WORK/root/srv"
cp "$PACKAGE" "$WORK/root/srv/pipelined.deb"
cp "$WORK/guest.service" "$WORK/root/etc/systemd/system/guest.service"
ln -s ../guest.service "$WORK/root/etc/systemd/system/multi-user.target.wants/guest.service"
# a getty hangs the console up, and with it the test
ln -s /dev/null "$WORK/root/etc/systemd/system/serial-getty@ttyS0.service"
mkfs.ext4 -q -F -d "$WORK/root" "$WORK/root.img" 2G
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--package", type=Path, required=True, help="the .deb to install")
    parser.add_argument("--cache", type=Path, default=_TOP / "build" / "vm")
    options = parser.parse_args()
    cache = options.cache.resolve()
    try:
        if platform.machine() != "x86_64":
            raise Unavailable("the machine is an x86-64 one, and so has the package to be")
        kernel = Suite(_SUITE, cache, "amd64").newest_kernel()
        base = base_root(_SUITE, cache)
        print(f"ansible: Linux {kernel.version} on {_SUITE}", flush=True)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            image = install(options.package.resolve(), base, Path(work))
            passed = boot(kernel, image, initial_files(kernel, Path(work)), "ansible")
    except Unavailable as reason:
        print(f"ansible: not run: {reason}", flush=True)
        return 1
    print("ansible: every claim held" if passed else "ansible: failed", flush=True)
    return int(not passed)


def install(package: Path, base: Path, work: Path) -> Path:
    """A disk image of `base` with Ansible, the role, the package and the test in it."""
    for directory in ("upper", "work", "root"):
        (work / directory).mkdir()
    (work / "guest.service").write_text(_UNIT)
    fetch_ansible(work / "ansible")
    newer_release(package, work)
    publish(work / "newer.deb", package, work)
    run(
        *("unshare", "--mount", "--propagation", "private", "bash", "-c", _INSTALL),
        BASE=str(base),
        WORK=str(work),
        PACKAGE=str(package),
        DEPENDS=run("dpkg-deb", "--field", str(package), "Depends").strip(),
        ROLES=str(_TOP / "deploy/ansible/roles"),
        HERE=str(Path(__file__).parent),
    )
    return work / "root.img"


def fetch_ansible(place: Path) -> None:
    """Of the guest's Python, which need not be the host's."""
    run(
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"),
        *("--target", str(place), "--python-version", "3.11", "--only-binary", ":all:", _CORE),
        *("--platform", "manylinux2014_x86_64", "--platform", "manylinux_2_28_x86_64"),
    )


def publish(newer: Path, package: Path, work: Path) -> None:
    """A repository with both releases, and its key, as `make release` makes them."""
    home = work / "gpg"
    home.mkdir(mode=0o700)
    who = "releases@example.org"
    key = ("--quick-generate-key", who, "ed25519", "sign")
    run("gpg", "--batch", "--passphrase", "", *key, GNUPGHOME=str(home))
    # the file's name has the version of neither
    shutil.copy(newer, work / "pipelined_newer_amd64.deb")
    script = str(_TOP / "deploy/release/apt_repository.py")
    packages = (str(work / "pipelined_newer_amd64.deb"), str(package))
    run(*(sys.executable, script, str(work / "apt"), "--key", who, *packages), GNUPGHOME=str(home))
    run("gpgconf", "--kill", "all", GNUPGHOME=str(home))


if __name__ == "__main__":
    sys.exit(main())
