# SPDX-License-Identifier: Apache-2.0
"""Debian with systemd, and with cgroup v2 alone, booted in a container: for containers_guest.py.

    tests/hosts/containers_booted.py ROOT ARCHIVE WORK

The daemon runs outside, on the host, and sees all of it: it finds the files of Docker and Podman
where they lie in ROOT, as if that were the host's. Whatever is mounted for that is in a mount
namespace of its own, so it is to be started in one. Exit code 0 only if every claim held.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import claims
import containers_docker
import containers_guest
import containers_runtimes
import containers_trials
import daemon_here
import recorded
from containers_trials import call

from pipelined.model.units import find_cgroup2

#: Beside what any root with systemd has. Podman needs one of two for networks.
PACKAGES = (
    "libpam-systemd,dbus-user-session,procps,podman,netavark,runc,uidmap,docker.io,containerd,"
    "systemd-container"
)
#: Seconds until it has ended, or is ended.
_PATIENCE = 600
#: Of these, what is in the root's upper layer could not be one again.
_STATES = ("docker", "containers")

_UNIT = """[Unit]
After=multi-user.target
[Service]
Type=oneshot
Environment=HOME=/root
ExecStart=/usr/bin/python3 -B /hosts/containers_guest.py {url}
ExecStopPost=/usr/bin/systemctl poweroff --no-block
StandardOutput=append:/hosts/output
StandardError=append:/hosts/output
"""
#: The host's network is not to be changed.
_DOCKER = {"bridge": "none", "iptables": False, "ip6tables": False}


def main() -> int:
    base, archive, work = map(Path, sys.argv[1:])
    root, state = work / "root", work / "state"
    call("rm", "-rf", "--one-file-system", work)
    for name in ("upper", "work", "root", *_STATES):
        (work / name).mkdir(parents=True)
    layers = f"lowerdir={base},upperdir={work / 'upper'},workdir={work / 'work'}"
    call("mount", "-t", "overlay", "overlay", "-o", layers, root)
    call("mount", "-t", "tmpfs", "tmpfs", "/var/lib")
    for name in _STATES:
        for place in (Path("/var/lib", name), root / "var/lib" / name):
            place.mkdir(exist_ok=True)
            call("mount", "--bind", work / name, place)
    with daemon_here.Daemon(Path(sys.executable).with_name("pipelined"), state) as daemon:
        _write(root, archive, daemon.url)
        os.environ |= {
            "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
            "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "yes",
        }
        group = find_cgroup2()
        assert group, "no cgroup v2"
        group /= "pipelined-booted"
        group.mkdir(exist_ok=True)
        command = (
            *("sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"),
            *("timeout", str(_PATIENCE), "systemd-nspawn", "--quiet", "--register=no"),
            *("--keep-unit", "--boot", "--machine=booted", "--directory", str(root)),
            *("--capability=all", "--system-call-filter=bpf @keyring", "--console=pipe"),
            "--bind=/dev/fuse",
        )
        try:
            with (work / "console").open("w") as console:
                subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, check=False
                )
        finally:
            call("find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";")
    output = root / "hosts/output"
    text = output.read_text() if output.exists() else (work / "console").read_text()[-1500:]
    print(text.replace("guest:", "systemd:"))
    return int("guest: result failures=0" not in text)


def _write(root: Path, archive: Path, url: str) -> None:
    modules = (claims, containers_docker, containers_guest, containers_runtimes)
    modules = (*modules, containers_trials, daemon_here, recorded)
    files = {f"hosts/{module.__name__}.py": Path(str(module.__file__)) for module in modules}
    texts = {
        "etc/hostname": "node\n",
        "etc/hosts": "127.0.0.1 localhost node\n",
        "etc/docker/daemon.json": json.dumps(_DOCKER),
        "etc/systemd/system/guest.service": _UNIT.format(url=url),
    }
    contents = {name: file.read_bytes() for name, file in files.items()}
    contents |= {name: text.encode() for name, text in texts.items()}
    contents["hosts/job.tar"] = archive.read_bytes()
    for name, content in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    wanted = root / "etc/systemd/system/multi-user.target.wants/guest.service"
    wanted.symlink_to("../guest.service")


if __name__ == "__main__":
    sys.exit(main())
