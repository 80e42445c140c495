# SPDX-License-Identifier: Apache-2.0
"""A virtual machine with systemd, cron, at and Slurm in which schedulers_guest.py runs.

Slurm's three daemons run on the one node, with cgroup v2 and munge, as on a small cluster.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import claims
from matrix import Suite, Unavailable
from systemd import base_root, boot, initial_files

#: Beside what any root with systemd has.
_MORE = "cron,at,libpam-systemd,dbus-user-session,procps,munge,slurmctld,slurmd,slurm-client"

_NODE = "node"
#: Of an interface that it has anyway; without one Slurm resolves no name (AI_ADDRCONFIG).
_ADDRESS = "10.0.0.1"
#: Seconds from power on to the result; on an idle host it takes a quarter of that, or less.
_TIMEOUT = 3600

_SLURM = f"""ClusterName=vm
SlurmctldHost={_NODE}({_ADDRESS})
AuthType=auth/munge
CryptoType=crypto/munge
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
MessageTimeout=60
NodeName={_NODE} NodeAddr={_ADDRESS} CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
"""
_CGROUP = """CgroupPlugin=cgroup/v2
ConstrainCores=yes
"""

_UNIT = """[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/usr/bin/python3 -B /hosts/schedulers_guest.py
ExecStopPost=/usr/bin/systemctl poweroff --no-block
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
"""
_ADDRESS_UNIT = f"""[Unit]
Before=slurmctld.service slurmd.service
[Service]
Type=oneshot
ExecStart=/usr/sbin/ip address add {_ADDRESS}/32 dev lo
"""
#: The daemon's start takes 15 s, emulated on an idle host.
_DROP_IN = """[Service]
TimeoutStartSec=300
WatchdogSec=120
"""

#: In a mount namespace of its own: what is mounted goes with it, however this ends.
_INSTALL = """
set -e
mount -t overlay overlay -o "lowerdir=$BASE,upperdir=$WORK/upper,workdir=$WORK/work" "$WORK/root"
mkdir -p "$WORK/root/etc/slurm" "$WORK/root/var/log/slurm"
cp -rT "$WORK/files" "$WORK/root"
cp "$PACKAGE" "$WORK/root/tmp/pipelined.deb"
for unit in guest address; do
    ln -s "../$unit.service" "$WORK/root/etc/systemd/system/multi-user.target.wants/$unit.service"
done
mount -t proc proc "$WORK/root/proc"
export DEBIAN_FRONTEND=noninteractive
chroot "$WORK/root" apt-get -qq -o APT::Sandbox::User=root update
chroot "$WORK/root" apt-get -qq -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 install -y \
    --no-install-recommends /tmp/pipelined.deb
chroot "$WORK/root" install -d -o slurm -g slurm /var/lib/slurm/slurmctld /var/log/slurm
umount "$WORK/root/proc"
rm -rf "$WORK"/root/var/lib/apt/lists/* "$WORK"/root/var/cache/apt/*
mkfs.ext4 -q -F -d "$WORK/root" "$WORK/root.img" 2G
"""


def run_in_machine(package: Path, suite: str, cache: Path) -> bool:
    """Whether every claim of the guest held."""
    kernel = Suite(suite, cache, "amd64").newest_kernel()
    base = base_root(suite, cache, "schedulers", _MORE)
    print(f"schedulers: Linux {kernel.version} on {suite}", flush=True)
    with tempfile.TemporaryDirectory(dir=cache) as directory:
        work = Path(directory)
        image = _install(package, base, work)
        return boot(kernel, image, initial_files(kernel, work), "schedulers", _TIMEOUT)


def _install(package: Path, base: Path, work: Path) -> Path:
    for name in ("upper", "work", "root", "files"):
        (work / name).mkdir()
    here = Path(__file__).parent
    files = {
        "etc/hostname": f"{_NODE}\n",
        "etc/hosts": f"127.0.0.1 localhost\n{_ADDRESS} {_NODE}\n",
        "etc/systemd/system/address.service": _ADDRESS_UNIT,
        "etc/slurm/slurm.conf": _SLURM,
        "etc/slurm/cgroup.conf": _CGROUP,
        "etc/systemd/system/guest.service": _UNIT,
        "etc/systemd/system/pipelined.service.d/test.conf": _DROP_IN,
    }
    for path in (here / "recorded.py", here / "schedulers_guest.py", Path(claims.__file__)):
        files[f"hosts/{path.name}"] = path.read_text()
    for name, text in files.items():
        path = work / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "bash", "-c", _INSTALL],
        env=os.environ | {"BASE": str(base), "WORK": str(work), "PACKAGE": str(package)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Unavailable(f"the root: {(done.stderr or done.stdout).strip()[-600:]}")
    return work / "root.img"
