# SPDX-License-Identifier: Apache-2.0
"""What doctor reports on hosts that lack something, each a directory made for the test."""

from __future__ import annotations

import errno
import io
import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from pipelined.commands import doctor as command
from pipelined.config import Address
from pipelined.doctor import Check, HooksOfDaemon, Reply, checks, exit_code, listeners, render
from pipelined.doctor.service import service_properties
from pipelined.errors import UserError
from pipelined.http_port.server import HttpServer
from pipelined.web.app import create_app
from unit.denied import deny
from unit.observed import HOST, FakeObserver

ROOT_CAPABILITIES = "000001ffffffffff"
BPF_AND_PERFMON = f"{1 << 39 | 1 << 38:016x}"
HELPERS = ("map_lookup_elem", "task_pt_regs", "get_current_task_btf", "task_storage_get")
BTF = b"\x9f\xeb\0" + b"".join(f"BPF_FUNC_{name}\0".encode() for name in HELPERS)
#: Of "secret", at the lowest cost there is.
HASH = "$2b$04$DaBjQgOeu0eDKLYt5q9oy.g8mssJa8xMvg1IlljMVILn5oE3UOE2i"
ELF_OF_BPF = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x01\x00\xf7\x00" + bytes(100)


@dataclass(frozen=True)
class FakeHook:
    name: str
    tier: str = "sched"
    method: str = "tp_btf"
    attached: bool = True
    reason: str = ""
    gives: str = ""
    pending: bool = False


HOOKS = [FakeHook("sched_switch"), FakeHook("sched_process_exec")]


class Host:
    """A root directory on which everything is as it should be."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.object = root / "pipelined.bpf.o"
        self.object.write_bytes(ELF_OF_BPF)
        self.hooks: Callable[[], Iterable[FakeHook]] | None = lambda: HOOKS
        self.daemon: Callable[[], HooksOfDaemon] | None = None
        self.always_ask = False
        self.reply = Reply(is_daemon=True)
        self.asked: list[Address] = []
        self.service: Mapping[str, str] = {}
        self.libbpf: Callable[[], str] = lambda: "1.1"
        self.loader = "auto"
        self.machine = "x86_64"
        self.write("proc/sys/kernel/osrelease", "6.1.0-56-amd64\n")
        self.write("sys/kernel/btf/vmlinux", BTF)
        self.write("sys/kernel/security/lockdown", "[none] integrity confidentiality\n")
        self.write("proc/self/status", f"Name:\tx\nCapEff:\t{ROOT_CAPABILITIES}\n")
        self.write("proc/self/limits", limits("unlimited"))
        self.write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
        self.write("proc/self/io", "")
        self.write("proc/self/schedstat", "1 2 3\n")
        self.listen()
        (root / "sys/bus/event_source/devices/kprobe").mkdir(parents=True)
        self.namespace("pid", 4026531836)
        self.namespace("user", 4026531837)

    def write(self, path: str, content: str | bytes) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())

    def listen(
        self, *sockets: tuple[str, str], table: str = "tcp", state: str = "0A", uid: int = 0
    ) -> None:
        """There are these sockets, each a local address and an inode, as the kernel lists them."""
        self.write(
            f"proc/net/{table}",
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid"
            "  timeout inode\n"
            + "".join(
                f"   {at}: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000"
                f" {uid:5}        0 {inode} 1 0000000000000000 100 0 0 10 0\n"
                for at, (local, inode) in enumerate(sockets)
            ),
        )

    def process(self, pid: int, command: str, words: str, *sockets: str) -> None:
        self.write(f"proc/{pid}/comm", f"{command}\n")
        self.write(f"proc/{pid}/cmdline", words.replace(" ", "\0") + "\0")
        (self.root / f"proc/{pid}/fd").mkdir()
        for at, inode in enumerate(("0", *sockets)):
            (self.root / f"proc/{pid}/fd/{at}").symlink_to(f"socket:[{inode}]")

    def ask_port(self, address: Address) -> Reply:
        self.asked.append(address)
        return self.reply

    def namespace(self, kind: str, inode: int) -> None:
        link = self.root / "proc/self/ns" / kind
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(f"{kind}:[{inode}]")

    def remove(self, path: str) -> None:
        (self.root / path).unlink()

    def checks(self) -> list[Check]:
        return checks(
            self.root,
            bpf_object=self.object,
            loader=self.loader,
            probe_hooks=self.hooks,
            ask_daemon=self.daemon,
            always_ask=self.always_ask,
            ask_port=self.ask_port,
            service=lambda: self.service,
            libbpf=self.libbpf,
            machine=self.machine,
        )

    def check(self, name: str) -> Check:
        return next(check for check in self.checks() if check.name == name)

    def text(self, width: int = 200) -> str:
        out = io.StringIO()
        render(self.checks(), Console(file=out, width=width))
        return out.getvalue()


def limits(soft: str) -> str:
    return (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        f"Max locked memory         {soft:<20} unlimited            bytes     \n"
    )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_good_host_is_ok_in_every_check(host: Host) -> None:
    assert [check for check in host.checks() if check.status != "ok"] == []
    assert exit_code(host.checks()) == 0
    assert host.text().endswith("\npipelined works here.\n")


def test_each_hook_is_reported(host: Host) -> None:
    assert host.check("hook sched_switch").detail == "sched, tp_btf"


# What makes the daemon impossible

FATAL = {
    "architecture": (
        lambda host: setattr(host, "machine", "riscv64"),
        "architecture: riscv64 is not supported; use x86-64 or arm64",
    ),
    "no BTF": (
        lambda host: host.remove("sys/kernel/btf/vmlinux"),
        "BTF: no /sys/kernel/btf/vmlinux; use a kernel built with CONFIG_DEBUG_INFO_BTF=y; "
        "Debian's and Ubuntu's are",
    ),
    "locked down": (
        lambda host: host.write(
            "sys/kernel/security/lockdown", "none integrity [confidentiality]\n"
        ),
        "lockdown: lockdown=confidentiality: BPF may not read kernel memory; "
        "boot with lockdown=integrity or none",
    ),
    "not root": (
        lambda host: host.write("proc/self/status", "CapEff:\t0000000000000000\n"),
        "capabilities: no CAP_BPF and no CAP_PERFMON; "
        "run it with sudo, or give it CAP_BPF and CAP_PERFMON",
    ),
    "no CAP_PERFMON": (
        lambda host: host.write("proc/self/status", f"CapEff:\t{1 << 39:016x}\n"),
        "capabilities: no CAP_PERFMON; run it with sudo, or give it CAP_PERFMON",
    ),
    "no CAP_BPF": (
        lambda host: host.write("proc/self/status", f"CapEff:\t{1 << 38:016x}\n"),
        "capabilities: no CAP_BPF; run it with sudo, or give it CAP_BPF",
    ),
    "rootless container": (
        lambda host: host.namespace("user", 4026532201),
        "capabilities: they apply only inside a user namespace; "
        "start it as the host's root, not in a rootless container",
    ),
    "no libbpf": (
        lambda host: setattr(host, "libbpf", no_library),
        "libbpf: no libbpf.so.1; run: sudo apt-get install libbpf1",
    ),
    "old libbpf": (
        lambda host: setattr(host, "libbpf", lambda: "1.0"),
        "libbpf: 1.0 is too old; install libbpf 1.1 or newer",
    ),
}


def no_library() -> str:
    raise OSError("libbpf.so.1: cannot open shared object file")


@pytest.mark.parametrize(("break_it", "line"), FATAL.values(), ids=FATAL.keys())
def test_what_is_missing_is_the_closing_line_with_its_fix(
    host: Host, break_it: Callable[[Host], None], line: str
) -> None:
    break_it(host)

    assert exit_code(host.checks()) == 1
    assert host.text().splitlines()[-1] == f"pipelined would not work here: {line}"


@pytest.mark.parametrize("content", [None, b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01" + bytes(30)])
def test_a_missing_or_wrong_object_is_named(host: Host, content: bytes | None) -> None:
    host.object.unlink()
    if content is not None:
        host.object.write_bytes(content)

    check = host.check("BPF object")

    assert check.failed
    assert str(host.object) in check.detail
    assert check.fix == "install the package again; in a checkout, build it: make setup"


def test_hooks_that_cannot_be_attached_say_why(host: Host) -> None:
    def refused() -> Iterable[FakeHook]:
        raise UserError("the kernel refused program sched_switch", "look into the log")

    host.hooks = refused

    assert exit_code(host.checks()) == 1
    assert host.text().endswith(
        "hooks: the kernel refused program sched_switch; look into the log\n"
    )


@pytest.mark.parametrize(
    ("hint", "fix"),
    [
        *[
            (
                "see `pipelined doctor` and the log with --log.level=debug",
                "see what the kernel says: sudo env PIPELINED_DEBUG=1 pipelined doctor",
            )
        ],
        ("a filter forbids it; `pipelined doctor` says more", "a filter forbids it"),
        ("", ""),
    ],
)
def test_nobody_is_sent_to_doctor_by_doctor(host: Host, hint: str, fix: str) -> None:
    def refused() -> Iterable[FakeHook]:
        raise UserError("the kernel refuses the BPF programs", hint)

    host.hooks = refused

    assert host.check("hooks").fix == fix


def test_no_attached_hook_at_all_is_no_daemon(host: Host) -> None:
    host.hooks = lambda: [FakeHook("sched_switch", attached=False, reason="refused")]

    assert exit_code(host.checks()) == 1


def test_hooks_are_not_tried_when_something_else_is_missing(host: Host) -> None:
    tried: list[bool] = []
    host.hooks = lambda: tried.append(True) or HOOKS
    host.remove("sys/kernel/btf/vmlinux")

    assert host.check("hooks").detail == "not tried: fix BTF first"
    assert tried == []


def test_hooks_not_tried_are_no_promise(host: Host) -> None:
    host.hooks = None

    assert exit_code(host.checks()) == 1
    assert host.text().endswith("cannot tell if pipelined works here: hooks: not tried\n")


# What the daemon can do without


def test_two_capabilities_are_enough(host: Host) -> None:
    host.write("proc/self/status", f"CapEff:\t{BPF_AND_PERFMON}\n")

    assert host.check("capabilities").detail == "CAP_BPF and CAP_PERFMON"
    assert exit_code(host.checks()) == 0


def test_a_low_memory_lock_is_reported_but_not_fatal(host: Host) -> None:
    host.write("proc/self/status", f"CapEff:\t{BPF_AND_PERFMON}\n")
    host.write("proc/self/limits", limits("65536"))

    check = host.check("memory lock")

    assert (check.status, check.failed) == ("unknown", False)
    assert check.detail.startswith("64 KiB and no CAP_SYS_RESOURCE")


def test_an_old_kernel_is_named_and_so_are_the_helpers_it_lacks(host: Host) -> None:
    host.write("proc/sys/kernel/osrelease", "5.10.0-32-amd64\n")
    names = b"\x9f\xebBPF_FUNC_map_lookup_elem\0BPF_FUNC_task_storage_get\0"
    host.write("sys/kernel/btf/vmlinux", names)

    assert host.check("kernel").detail == (
        "Linux 5.10.0-32-amd64, older than the oldest that was tried (6.1)"
    )
    assert host.text().splitlines()[-1] == (
        "pipelined would not work here: BPF helpers: the kernel has no bpf_task_pt_regs, "
        "bpf_get_current_task_btf; use Linux 6.1 or newer"
    )


def test_a_vendors_older_kernel_with_all_helpers_is_tried(host: Host) -> None:
    host.write("proc/sys/kernel/osrelease", "5.14.0-503.el9.x86_64\n")

    assert host.check("kernel").status == "unknown"
    assert exit_code(host.checks()) == 0


def test_types_that_name_no_helper_at_all_show_nothing_about_helpers(host: Host) -> None:
    host.write("sys/kernel/btf/vmlinux", b"\x9f\xeb truncated")

    assert not host.check("BPF helpers").failed


def test_without_the_schedulers_own_times_the_daemon_does_not_work(host: Host) -> None:
    host.remove("proc/self/schedstat")

    assert host.check("schedstat").fix == "use a kernel built with CONFIG_SCHED_INFO=y"
    assert exit_code(host.checks()) == 1


def test_integrity_lockdown_is_fine(host: Host) -> None:
    host.write("sys/kernel/security/lockdown", "none [integrity] confidentiality\n")

    assert host.check("lockdown") == Check("lockdown", "ok", "integrity")


OPTIONAL = {
    "PID namespace": lambda host: host.namespace("pid", 4026532300),
    "I/O accounting": lambda host: host.remove("proc/self/io"),
    "cgroup v2": lambda host: host.write("proc/self/mounts", "tmpfs / tmpfs rw 0 0\n"),
    "kprobes": lambda host: (host.root / "sys/bus/event_source/devices/kprobe").rmdir(),
}


@pytest.mark.parametrize(("name", "take_away"), OPTIONAL.items(), ids=OPTIONAL.keys())
def test_what_is_off_is_reported_with_its_fix_and_does_not_fail(
    host: Host, name: str, take_away: Callable[[Host], None]
) -> None:
    take_away(host)

    check = host.check(name)

    assert check.status == "off"
    assert check.fix
    assert exit_code(host.checks()) == 0
    assert host.text().endswith(f"pipelined works here, without: {name}.\n")


def test_without_cgroups_some_units_are_known_all_the_same(host: Host) -> None:
    host.write("proc/self/mounts", "tmpfs / tmpfs rw 0 0\n")
    assert host.check("cgroup v2").detail == (
        "not mounted: the label unit is -, but for jobs with a variable and those of cron"
    )


TMPFS = "tmpfs /sys/fs/cgroup tmpfs ro 0 0\n"


@pytest.mark.parametrize(
    ("mounts", "advice"),
    [
        ("tmpfs / tmpfs rw 0 0\n", "run: mount -t cgroup2 none /sys/fs/cgroup"),
        (TMPFS, "boot the host"),
        (f"{TMPFS}cgroup /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0\n", "boot the host"),
        ("cgroup /cgroup cgroup rw,memory 0 0\n", "boot the host"),
    ],
)
def test_nothing_is_to_be_mounted_over_cgroup_v1(host: Host, mounts: str, advice: str) -> None:
    host.write("proc/self/mounts", mounts)
    assert host.check("cgroup v2").fix.startswith(advice)


def test_cgroup_v2_beside_v1_is_fine(host: Host) -> None:
    beside = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
    host.write("proc/self/mounts", f"{TMPFS}cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\n{beside}")
    assert host.check("cgroup v2") == Check("cgroup v2", "ok", "/sys/fs/cgroup/unified")


def test_a_detached_hook_is_off_with_its_reason(host: Host) -> None:
    host.hooks = lambda: [*HOOKS, FakeHook("pipe_write", "functions", "kprobe", False, "no symbol")]

    check = host.check("hook pipe_write")

    assert (check.status, check.detail) == ("off", "functions, kprobe: no symbol")
    assert exit_code(host.checks()) == 0


def test_a_detached_hook_says_which_figures_are_absent(host: Host) -> None:
    lost = FakeHook("vfs_read", "functions", "fentry", False, "refused", "sizes of reads of files")
    host.hooks = lambda: [*HOOKS, lost]
    assert host.check("hook vfs_read").absent == "sizes of reads of files"
    assert "absent: sizes of reads of files" in host.text()


def refused(name: str, method: str, gives: str) -> FakeHook:
    return FakeHook(name, "functions", method, False, "forbidden (EPERM)", gives)


def test_what_is_off_at_begin_and_end_of_a_function_is_one_line(host: Host) -> None:
    both = [refused("vfs_read", "fentry", "sizes"), refused("vfs_read", "fexit", "times")]
    host.hooks = lambda: [*HOOKS, *both]
    (check,) = [check for check in host.checks() if check.status == "off"]
    assert check.detail == "functions, fentry and fexit: forbidden (EPERM)"
    assert check.absent == "sizes; times"


def test_attached_hooks_of_a_tier_share_a_line(host: Host) -> None:
    host.hooks = lambda: [*HOOKS, *(FakeHook(f"f{n}", "functions") for n in range(6))]
    lines = [line.split() for line in host.text().splitlines() if line.startswith("hook")]
    assert lines == [
        ["hooks", "of", "sched", "ok", "sched_switch,", "sched_process_exec"],
        ["hooks", "of", "functions", "ok", "f0,", "f1,", "f2,", "f3,", "f4,", "f5"],
    ]


def test_a_reason_that_hooks_share_is_printed_once(host: Host) -> None:
    host.hooks = lambda: [*HOOKS, *(refused(f"do_{n}", "fexit", f"bytes {n}") for n in range(3))]
    text = host.text()
    assert text.count("forbidden (EPERM)") == 1
    assert text.count(": as above") == 2
    assert [f"absent: bytes {n}" in text for n in range(3)] == [True] * 3


def test_the_closing_line_points_to_what_is_absent(host: Host) -> None:
    host.hooks = lambda: [*HOOKS, refused("do_tee", "fexit", "bytes")]
    end = "\npipelined works here, without: what is marked absent above.\n"
    assert host.text().endswith(end)


def test_an_attached_hook_lacks_nothing(host: Host) -> None:
    host.hooks = lambda: [FakeHook("vfs_read", "functions", gives="sizes of reads of files")]
    assert "absent" not in host.text()


# Hooks of a daemon

URL = "http://127.0.0.1:9905"
UNPRIVILEGED = f"CapEff:\t{0:016x}\n"
OF_DAEMON = [FakeHook("sched_switch"), refused("vfs_read", "fentry", "sizes of reads")]


def test_without_privileges_the_hooks_are_those_of_the_daemon(host: Host) -> None:
    host.write("proc/self/status", UNPRIVILEGED)
    host.daemon = lambda: HooksOfDaemon(URL, OF_DAEMON)
    assert host.check("daemon").detail == f"the hooks below are those of the daemon at {URL}"
    text = host.text()
    host.write("proc/self/status", f"CapEff:\t{ROOT_CAPABILITIES}\n")
    host.hooks = lambda: OF_DAEMON
    as_root = [line for line in host.text().splitlines() if "vfs_read" in line or "absent:" in line]
    assert len(as_root) == 2
    assert [" ".join(line.split()) in " ".join(text.split()) for line in as_root] == [True] * 2


def test_with_the_daemons_hooks_it_is_still_said_that_this_user_could_not_start_one(
    host: Host,
) -> None:
    host.write("proc/self/status", UNPRIVILEGED)
    host.daemon = lambda: HooksOfDaemon(URL, OF_DAEMON)
    assert exit_code(host.checks()) == 1
    assert host.check("hooks").detail == "not tried: fix capabilities first"
    assert host.text().splitlines()[-1].startswith("pipelined would not work here: capabilities")


def test_a_hook_that_the_daemon_has_yet_to_attach_is_not_off(host: Host) -> None:
    host.write("proc/self/status", UNPRIVILEGED)
    late = FakeHook("vfs_read", "functions", "fentry", False, gives="sizes", pending=True)
    host.daemon = lambda: HooksOfDaemon(URL, [late])
    expected = Check("hook vfs_read", "unknown", "functions, fentry: still to be attached")
    assert host.check("hook vfs_read") == expected


@pytest.mark.parametrize(("hint", "fix"), [("", ""), ("start it", "start it; or ")])
def test_if_no_daemon_answers_it_says_how_to_see_the_hooks(host: Host, hint: str, fix: str) -> None:
    def no_daemon() -> HooksOfDaemon:
        raise UserError(f"no daemon answers at {URL}: connection refused", hint)

    host.write("proc/self/status", UNPRIVILEGED)
    host.daemon = no_daemon
    assert exit_code(host.checks()) == 1
    check = host.check("hooks of a daemon")
    assert check.detail == f"no daemon answers at {URL}: connection refused"
    assert check.fix == f"{fix}run this as root to see which hooks are off"


@pytest.mark.parametrize(("always", "asked"), [(False, 0), (True, 1)])
def test_with_privileges_a_daemon_is_asked_only_on_request(
    host: Host, always: bool, asked: int
) -> None:
    calls = []

    def daemon() -> HooksOfDaemon:
        calls.append(1)
        return HooksOfDaemon(URL, OF_DAEMON)

    host.daemon, host.always_ask = daemon, always
    assert len([check for check in host.checks() if check.name == "daemon"]) == len(calls) == asked


def test_an_empty_root_is_unknown_or_missing_and_never_a_traceback(tmp_path: Path) -> None:
    found = checks(tmp_path, bpf_object=tmp_path / "none.o", libbpf=no_library, machine="x86_64")

    assert exit_code(found) == 1
    assert {check.status for check in found} <= {"ok", "off", "missing", "unknown"}


# Loaders


def install_bcc(host: Host) -> None:
    place = "usr/lib/python3/dist-packages/bcc"
    host.write(f"{place}/__init__.py", "")
    host.write(f"{place}/version.py", "__version__ = '0.31.0'\n")


def test_bcc_is_not_needed_unless_asked_for(host: Host) -> None:
    assert "bcc" not in {check.name for check in host.checks()}
    host.loader = "bcc"
    assert host.check("bcc").failed
    assert "apt-get install python3-bpfcc" in host.check("bcc").fix
    install_bcc(host)
    assert (host.check("bcc").status, host.check("bcc").detail) == ("ok", "0.31.0")
    assert exit_code(host.checks()) == 0


@pytest.mark.parametrize(("loader", "code"), [("auto", 0), ("libbpf", 1), ("bcc", 0)])
def test_bcc_does_without_the_object(host: Host, loader: str, code: int) -> None:
    install_bcc(host)
    host.object.unlink()
    host.loader = loader
    assert exit_code(host.checks()) == code


# The table


def test_a_narrow_terminal_gets_every_word(host: Host) -> None:
    host.namespace("pid", 4026532300)

    words = " ".join(host.text(width=50).split())

    assert "start the container with --pid=host" in words


def test_text_that_looks_like_markup_is_printed_as_it_is(host: Host) -> None:
    host.hooks = lambda: [*HOOKS, FakeHook("x", attached=False, reason="[bold]refused[/bold]")]

    assert "[bold]refused[/bold]" in host.text()


def test_no_text_can_send_control_codes(host: Host) -> None:
    hook = FakeHook("x\x1b[2J", attached=False, reason="y\x1b[2J", gives="z\x1b[2J")
    host.hooks = lambda: [*HOOKS, hook, FakeHook("v", tier="w\x1b[2J")]
    host.listen((LOCAL, "7"))
    host.process(812, "pipelined", "pipelined serve", "7")
    host.reply = Reply(is_daemon=False, refusal="u\x1b[2J")
    assert "\x1b" not in host.text()
    assert all(f"{text}?[2J" in host.text() for text in "uwxyz")


def test_this_host_can_be_examined() -> None:
    found = checks()

    assert [check.name for check in found][:3] == ["kernel", "architecture", "BTF"]


# The port of the service

PORT = "port of the service"
FILE = "etc/pipelined/pipelined.toml"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "127.0.0.1:9905, for this host only"),
        (
            "[web]\nlisten-address = ':9905'\nallow-unauthenticated = true\n",
            "0.0.0.0:9905, for other hosts too, without a password, as web.allow-unauthenticated"
            " has it",
        ),
        (
            "[web]\nlisten-address = '[::]:1'\nconfig.file = 'WEB'\n",
            "[::]:1, for other hosts too, with a password or a certificate",
        ),
    ],
)
def test_who_may_read_the_port_is_reported(host: Host, text: str, expected: str) -> None:
    host.write("web.yml", f"basic_auth_users: {{a: {HASH}}}\n")
    host.write(FILE, text.replace("WEB", str(host.root / "web.yml")))
    assert (host.check(PORT).status, host.check(PORT).detail) == ("ok", expected)


def test_a_port_that_the_service_would_not_open_is_an_error_with_what_to_do(host: Host) -> None:
    host.write(FILE, "[web]\nlisten-address = ':9905'\n")
    check = host.check(PORT)
    assert check.detail.startswith("will not listen on 0.0.0.0:9905 without a password")
    assert "--web.config.file" in check.fix
    assert exit_code(host.checks()) == 1
    assert host.check("hook sched_switch").status == "ok", "tried all the same"


def test_what_may_not_be_looked_at_is_unknown(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.write(FILE, "[web]\nlisten-address = '127.0.0.1:1234'\n")
    directory = (host.root / FILE).parent
    deny(monkeypatch, directory)
    check = host.check(PORT)
    assert (check.status, check.failed) == ("unknown", False)
    assert check.detail == f"this user may not look into {directory}"
    assert not any(re.match(r"port \d", check.name) for check in host.checks())


def test_without_the_packages_file_nothing_is_said_and_where_flags_replace_it_that(
    host: Host,
) -> None:
    assert PORT not in [check.name for check in host.checks()]
    host.write(FILE, "[web]\nlisten-address = ':9905'\n")
    for options in ("--web.listen-address 127.0.0.1:1", "--config /etc/other.toml"):
        host.write("etc/default/pipelined", f'OPTIONS="--log.level debug {options}"\n')
        check = host.check(PORT)
        assert (check.status, check.failed) == ("unknown", False)
        assert "flags in /etc/default/pipelined decide" in check.detail
        assert "--check-config" in check.fix
    host.write("etc/default/pipelined", 'OPTIONS="--log.level debug"\n')
    with open(host.root / "etc/default/pipelined", "ab") as file:
        file.write(b"# caf\xe9\n")
    assert host.check(PORT).status == "missing"


@pytest.mark.parametrize("private", ["web.yml", FILE])
def test_a_file_that_this_user_may_not_read_is_unknown(
    host: Host, monkeypatch: pytest.MonkeyPatch, private: str
) -> None:
    host.write("web.yml", "")
    host.write(FILE, f"[web]\nlisten-address = ':9905'\nconfig.file = '{host.root}/web.yml'\n")
    file, read_bytes = host.root / private, Path.read_bytes

    def read(path: Path) -> bytes:
        if path == file:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return read_bytes(path)

    monkeypatch.setattr("os.access", lambda path, _: path != file)
    monkeypatch.setattr(Path, "read_bytes", read)
    check = host.check(PORT)
    assert (check.status, check.failed) == ("unknown", False)
    assert check.detail == f"this user may not read {file}"


# Who listens on the port

LOCAL, OTHERS = "0100007F:26B1", "00000000:26B1"  # 127.0.0.1:9905, 0.0.0.0:9905
REFUSAL = "http://127.0.0.1:9905 does not answer in JSON"
STRANGER = Reply(is_daemon=False, refusal=REFUSAL)


def test_a_free_port_is_fine_and_nobody_is_asked(host: Host) -> None:
    check = host.check("port 9905")
    assert (check.status, check.detail) == ("ok", "free: nothing listens on 127.0.0.1:9905")
    assert host.asked == []


def test_an_address_of_another_host_is_not_free(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "is_of_this_host", lambda _: False)
    check = host.check("port 9905")
    assert (check.status, check.failed) == ("off", False)
    assert check.detail == "this host has no such address: 127.0.0.1"
    assert host.asked == []


def test_a_daemon_that_answers_is_named(host: Host) -> None:
    host.listen((LOCAL, "7"))
    check = host.check("port 9905")
    assert (check.status, check.detail) == ("ok", "a daemon of user root answers at 127.0.0.1:9905")
    assert host.asked == [Address("127.0.0.1", 9905)]


def test_another_program_is_named_with_what_to_do(host: Host) -> None:
    host.listen(("0100007F:0050", "6"), (LOCAL, "7"))
    host.process(80, "nginx", "nginx", "6")
    host.process(812, "squid\x1b[2J", "squid -N", "5", "7")
    host.process(1000, "squid", "squid -N", "7")
    host.reply = STRANGER
    check = host.check("port 9905")
    assert check.status == "off"
    assert "127.0.0.1:9905 is taken by PID 812 (squid?[2J)" in host.text()
    stop = "stop that program, or choose another port: "
    assert check.fix == f"{stop}--web.listen-address"
    host.write(FILE, "")
    assert host.check("port 9905").fix == f"{stop}listen-address in /etc/pipelined/pipelined.toml"


def test_a_taken_port_makes_no_host_unfit(host: Host) -> None:
    host.listen((LOCAL, "7"))
    host.process(812, "squid", "squid", "7")
    host.reply = STRANGER
    assert exit_code(host.checks()) == 0
    assert host.text().splitlines()[-1] == "pipelined works here, without: port 9905."
    assert host.check("hook sched_switch").status == "ok", "tried all the same"


@pytest.mark.parametrize(
    "words", ["/usr/bin/python3 -I /usr/bin/pipelined serve --config x", "pipelined serve"]
)
def test_a_daemon_that_wants_a_password_is_known_by_its_process(host: Host, words: str) -> None:
    host.listen((LOCAL, "7"))
    host.process(812, "pipelined", words, "7")
    host.reply = Reply(is_daemon=False, refusal="it asks for a password")
    check = host.check("port 9905")
    assert check.status == "ok"
    assert check.detail == (
        "the daemon of user root, PID 812 (pipelined), listens on 127.0.0.1:9905: it asks for a"
        " password"
    )


def test_a_program_that_may_only_call_itself_a_daemon_is_reported_with_its_user(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {1000: "mallory"}
    monkeypatch.setattr(listeners, "Users", lambda: SimpleNamespace(name=names.get))
    host.listen((LOCAL, "7"), uid=1000)
    host.process(812, "python3", "python3 x.py pipelined serve", "7")
    assert host.check("port 9905").detail.startswith("a daemon of user mallory answers at ")
    host.reply = STRANGER
    detail = host.check("port 9905").detail
    assert detail.startswith("the daemon of user mallory, PID 812 (python3), listens on ")
    host.listen((LOCAL, "7"), uid=1001)
    assert "the daemon of user 1001, PID 812" in host.check("port 9905").detail


def test_a_daemon_that_does_not_answer_is_off(host: Host) -> None:
    host.listen((LOCAL, "7"))
    host.process(812, "pipelined", "python3 pipelined serve", "7")
    host.reply = Reply(is_daemon=False, is_silent=True, refusal="timed out")
    check = host.check("port 9905")
    assert check.status == "off"
    assert check.detail == (
        "the daemon of user root, PID 812 (pipelined), has 127.0.0.1:9905 and does not answer"
    )
    assert "journalctl -u pipelined" in check.fix


def test_what_this_user_cannot_see_is_unknown_and_so_is_a_process_that_ended(host: Host) -> None:
    host.listen((LOCAL, "7"))
    host.reply = STRANGER
    host.write("proc/812/comm", "squid\n")
    check = host.check("port 9905")
    assert check.status == "unknown"
    assert check.detail == f"taken, and not known to be a daemon: {REFUSAL}"
    assert check.fix == "see by whom it is taken: sudo ss -ltnp sport = :9905"


@pytest.mark.parametrize(
    ("table", "local", "state", "listen", "taken"),
    [
        ("tcp", OTHERS, "0A", "127.0.0.1:9905", True),
        ("tcp", LOCAL, "0A", ":9905", True),
        ("tcp", LOCAL, "0A", "[::]:9905", True),
        ("tcp", LOCAL, "01", "127.0.0.1:9905", False),
        ("tcp", LOCAL, "0A", "127.0.0.2:9905", False),
        ("tcp", LOCAL, "0A", "127.0.0.1:9904", False),
        ("tcp", OTHERS, "0A", "[::1]:9905", False),
        ("tcp6", f"{'0' * 32}:26B1", "0A", "127.0.0.1:9905", True),
        ("tcp6", f"{'0' * 24}01000000:26B1", "0A", "[::1]:9905", True),
        ("tcp6", f"{'0' * 24}01000000:26B1", "0A", "127.0.0.1:9905", False),
        ("tcp6", "0000000000000000FFFF00000100007F:26B1", "0A", "127.0.0.1:9905", True),
    ],
)
def test_only_a_socket_that_is_in_the_way_counts(
    host: Host, table: str, local: str, state: str, listen: str, taken: bool
) -> None:
    host.write(FILE, f"[web]\nlisten-address = '{listen}'\nallow-unauthenticated = true\n")
    host.listen((local, "7"), table=table, state=state)
    host.checks()
    assert bool(host.asked) is taken


def test_the_port_is_that_of_the_service_if_it_is_known(host: Host) -> None:
    host.write(FILE, "[web]\nlisten-address = '127.0.0.1:1234'\n")
    assert host.check("port 1234").detail == "free: nothing listens on 127.0.0.1:1234"
    host.write("etc/default/pipelined", 'OPTIONS="--web.config.file /etc/pipelined/web.yml"\n')
    assert host.check("port 1234").status == "ok"
    host.write("etc/default/pipelined", 'OPTIONS="--config /etc/other.toml"\n')
    other_file = [check.name for check in host.checks()]
    host.write("etc/default/pipelined", 'OPTIONS="--web.listen-address 127.0.0.1:1"\n')
    unknown = [check.name for check in host.checks()]
    host.remove("etc/default/pipelined")
    host.write(FILE, "[web]\nlisten-address = '127.0.0.1:0'\n")
    any_free = [check.name for check in host.checks()]
    host.write(FILE, "[web]\nlisten-address = 1\n")
    wrong = [check.name for check in host.checks()]
    for names in (other_file, unknown, any_free, wrong):
        assert [name for name in names if re.match(r"port \d", name)] == []


def test_without_the_kernels_tables_nothing_is_known_of_the_port(host: Host) -> None:
    host.remove("proc/net/tcp")
    check = host.check("port 9905")
    assert (check.status, check.detail) == ("unknown", "no /proc/net/tcp")


def test_a_daemon_on_all_addresses_is_asked_by_one_of_this_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "_PATIENCE", 60.0)  # whatever else this host does
    observer: Any = FakeObserver()
    with HttpServer(create_app(observer, host=HOST), "127.0.0.1", 0) as server:
        assert command._ask_port(Address("0.0.0.0", server.port)) == Reply(is_daemon=True)


def test_a_program_that_does_not_answer_is_named_by_what_this_host_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "_PATIENCE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = Address(*other.getsockname())
        monkeypatch.setattr(listeners, "_listen_address", lambda root: address)
        reply = command._ask_port(address)
        (check,) = listeners.listener_check(Path("/"), command._ask_port)
    assert (reply.is_daemon, reply.is_silent) == (False, True)
    assert check.detail.startswith(f"{address} is taken by PID {os.getpid()} (")


# The service

LOADED = {"LoadState": "loaded", "Result": "success"}


@pytest.mark.parametrize(
    ("active", "sub", "result", "status", "detail"),
    [
        ("active", "running", "success", "ok", "active (running)"),
        ("inactive", "dead", "success", "off", "inactive (dead)"),
        ("failed", "failed", "exit-code", "off", "failed (Result: exit-code)"),
        *[
            (
                "activating",
                "auto-restart",
                "watchdog",
                "off",
                "activating (auto-restart) (Result: watchdog)",
            )
        ],
    ],
)
def test_a_service_that_does_not_run_is_reported_in_the_words_of_systemctl(
    host: Host, active: str, sub: str, result: str, status: str, detail: str
) -> None:
    host.service = LOADED | {"ActiveState": active, "SubState": sub, "Result": result}
    check = host.check("service")
    assert (check.status, check.detail) == (status, f"pipelined.service is {detail}")
    assert ("systemctl status pipelined; journalctl -u pipelined" in check.fix) is (status == "off")
    assert ("systemctl start pipelined" in check.fix) is (active == "inactive")
    assert exit_code(host.checks()) == 0


@pytest.mark.parametrize("properties", [{}, {"LoadState": "not-found", "ActiveState": "inactive"}])
def test_without_systemd_or_its_unit_nothing_is_said(
    host: Host, properties: Mapping[str, str]
) -> None:
    host.service = properties
    assert "service" not in [check.name for check in host.checks()]


def test_systemd_is_asked_only_where_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "systemctl"
    program.write_text(
        "#!/bin/sh\n[ \"$1 $3\" = 'show pipelined.service' ] || exit 1\n"
        "echo LoadState=loaded; echo ActiveState=failed; echo Result=\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert service_properties(tmp_path) == {}
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    found = {"LoadState": "loaded", "ActiveState": "failed", "Result": ""}
    assert service_properties(tmp_path) == found
    program.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert service_properties(tmp_path) == {}
