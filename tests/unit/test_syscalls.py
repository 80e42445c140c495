# SPDX-License-Identifier: Apache-2.0
"""System call numbers of bpf/syscalls.bpf.h against those of the C library's headers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

BPF = Path(__file__).parents[2] / "bpf"
SOURCE = (BPF / "syscalls.bpf.h").read_text()
X86, _, ARM64 = SOURCE.partition("#elif defined(__TARGET_ARCH_arm64)")

#: How a call may wait, by its name without 64, time64 and the like.
EXPECTED = {
    "READ": "read pread readv preadv preadv2",
    "WRITE": "write pwrite writev pwritev pwritev2 vmsplice",
    "SPLICE": "splice",
    "TEE": "tee",
    "SENDFILE": "sendfile",
    "COPY": "copy_file_range",
    "FILE": "msync fsync fdatasync sync sync_file_range arm_sync_file_range syncfs",
    "ADVISE": "readahead fadvise",
    "WAIT": "wait4 waitid waitpid clone vfork clone3",
    "LOCK": "futex futex_waitv futex_wait fcntl flock semop semtimedop",
    "POLL": "poll ppoll select _newselect pselect6 epoll_wait epoll_pwait epoll_pwait2",
    "NET": "connect accept accept4 sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg socketcall",
    "SLEEP": "pause nanosleep clock_nanosleep rt_sigtimedwait rt_sigsuspend sigsuspend",
}


def kinds(part: str, function: str) -> dict[int, str]:
    """Number -> kind, as the switch of a function has them."""
    body = part[part.index(f"{function}") :]
    body = body[: body.index("default:")]
    found = {}
    for cases, kind in re.findall(
        r"((?:\s*case -?\d+:(?:\s*/\*[^*]*\*/)?)+)\s*return CALL_(\w+);", body
    ):
        for number in re.findall(r"case (-?\d+):", cases):
            assert int(number) not in found
            found[int(number)] = kind
    assert found.pop(-1) == "FAULT"
    return found


def numbers(header: str) -> dict[str, int]:
    """Name -> number, as the header has them for the host's compiler."""
    text = subprocess.run(
        ["gcc", "-E", "-dM", "-x", "c", "-D__BITS_PER_LONG=64", "-D__ARCH_WANT_SYS_CLONE3", "-"],
        input=f"#include <{header}>\n",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    plain = dict(re.findall(r"^#define (__NR\w*?_\w+) (\w+)$", text, re.M))
    return {
        re.sub(r"^__NR(3264)?_", "", name): int(value)
        for name, value in plain.items()
        if value.isdigit()
    }


TABLES: Mapping[str, tuple[str, str, str]] = {
    "x86-64": (X86, "call_kind_64", "asm/unistd_64.h"),
    "x86-32": (X86, "call_kind_32", "asm/unistd_32.h"),
    "arm64": (ARM64, "call_kind_64", "asm-generic/unistd.h"),
}


@pytest.mark.parametrize("table", TABLES)
def test_every_number_is_of_a_call_that_waits_so(table: str) -> None:
    part, function, header = TABLES[table]
    named = {number: name for name, number in numbers(header).items()}
    for number, kind in kinds(part, function).items():
        if number not in named:
            assert number > 450, f"{number} is nothing"  # newer than the header
            continue
        name = re.sub(r"_?time(64|32)$|(64)?_?64$|_time64|^old", "", named[number])
        assert name in EXPECTED[kind].split(), f"{number} is {named[number]}, not {kind}"


@pytest.mark.parametrize("table", TABLES)
def test_every_call_that_waits_is_known(table: str) -> None:
    part, function, header = TABLES[table]
    there, known = numbers(header), kinds(part, function)
    for kind, names in EXPECTED.items():
        for name in names.split():
            for variant in (name, f"{name}64", f"{name}64_64", f"{name}_time64"):
                if variant in there and there[variant] < 450:
                    assert known.get(there[variant]) == kind, f"{variant}: {there[variant]}"


@pytest.mark.parametrize("table", ["x86-64", "arm64"])
def test_the_calls_told_at_once_are_read_and_write(table: str) -> None:
    part, _, header = TABLES[table]
    named = {name: int(number) for name, number in re.findall(r"#define NR_(\w+) (\d+)", part)}
    assert named == {name: numbers(header)[name.lower()] for name in ("READ", "WRITE")}


@pytest.mark.parametrize("architecture", ["x86", "arm64"])
def test_the_object_builds(architecture: str, tmp_path: Path) -> None:
    machine = subprocess.check_output(["uname", "-m"], text=True).strip()
    flags = ["-g", "-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror"]
    flags += [f"-D__TARGET_ARCH_{architecture}", "-idirafter", f"/usr/include/{machine}-linux-gnu"]
    built = tmp_path / "pipelined.bpf.o"
    command = ["clang", *flags, "-c", str(BPF / "pipelined.bpf.c"), "-o", str(built)]
    subprocess.run(command, check=True)
    assert built.stat().st_size > 100_000


#: Where a call that reads a file takes its position from, as the source's macros name it.
POSITIONS = {
    "CALLS_AT_FILE": ["read", "readv"],
    "CALLS_AT_ARGUMENT": ["pread64", "preadv", "preadv2"],
    "CALL_AT_SPLICE": ["splice"],
    "CALL_AT_SENDFILE": ["sendfile"],
}


@pytest.mark.parametrize("table", ["x86-64", "arm64"])
@pytest.mark.parametrize("macro", POSITIONS)
def test_where_a_call_reads_is_known_by_its_number(table: str, macro: str) -> None:
    part, _, header = TABLES[table]
    there = numbers(header)
    defined = re.search(rf"^#define {macro} (.*?)(?:/\*.*)?$", part, re.M)
    assert defined
    found = sorted(map(int, re.findall(r"\d+", defined[1])))
    assert found == sorted(there[name] for name in POSITIONS[macro])
