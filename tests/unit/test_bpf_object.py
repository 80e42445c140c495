# SPDX-License-Identifier: Apache-2.0
"""What kernels older than the host's would refuse, checked in the object without booting one."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "bpf"

Function = dict[int, str]
"""Instructions by number."""
Lines = dict[int, str]
"""File and line of the source that each is of."""


@pytest.fixture(scope="module", params=["x86", "arm64"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The object for an architecture: registers differ."""
    path = tmp_path_factory.mktemp(request.param) / "pipelined.bpf.o"
    subprocess.run(
        [
            *("clang", "-g", "-O2", "-target", "bpf", "-mcpu=v3"),
            *(f"-D__TARGET_ARCH_{request.param}", f"-I{SOURCE}"),
            *("-idirafter", f"/usr/include/{platform.machine()}-linux-gnu"),
            *("-c", SOURCE / "pipelined.bpf.c", "-o", path),
        ],
        check=True,
    )
    return path


def disassembled(built: Path, *options: str) -> str:
    command = ["llvm-objdump", "-d", *options, built]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def listing(built: Path) -> str:
    """Its instructions, with relocations and the lines that they are of."""
    return disassembled(built, "-r", "-l", "--no-show-raw-insn")


def test_no_loop_is_closed_by_an_instruction_that_does_not_jump(listing: str) -> None:
    """Linux 6.1 refuses that as a back-edge (check_cfg: loop_ok is for jumps only)."""
    functions = list(functions_of(listing))
    assert len(functions) > 50
    found = [
        f"{name} at {lines[number]}"
        for name, function, lines in functions
        for number in faults(function)
    ]
    assert found == [], (
        "Linux 6.1 would refuse the program. How the compiler lays out a loop hangs on the order "
        "of statements: another order of what you have changed in this function may do"
    )


def test_such_a_loop_would_be_found() -> None:
    into_the_middle = (
        "0 <f>:\n; /src/bpf/a.bpf.h:7\n 0: goto +1 <L>\n; f():\n; /src/bpf/b.bpf.h:9\n 1: r1 = 0\n"
        " 2: if r1 == 0 goto -2 <L>\n 3: exit\n"
    )
    ((name, function, lines),) = functions_of(into_the_middle)
    assert (name, faults(function)) == ("f", [1])
    assert (lines[0], lines[1]) == ("bpf/a.bpf.h:7", "bpf/b.bpf.h:9")


def functions_of(listing: str) -> Iterator[tuple[str, Function, Lines]]:
    parts = re.split(r"^[0-9a-f]+ <(?!LBB)(\w+)>:$", listing, flags=re.MULTILINE)[1:]
    for name, part in zip(parts[::2], parts[1::2], strict=True):
        function: Function = {}
        lines: Lines = {}
        line = "?"
        for place, number, text in re.findall(
            r"^(?:; /.*/(bpf/[\w.]+:\d+)|\s+(\d+):\s+(.+))$", part, re.MULTILINE
        ):
            line = place or line
            if number:
                function[int(number)], lines[int(number)] = text, line
        yield name, function, lines


def faults(function: Function) -> list[int]:
    """Instructions that fall through to one that the search, in the kernel's order, is still in."""
    numbers = list(function)
    after = dict(pairwise(numbers))
    found = []
    under_way, done = {numbers[0]}, set[int]()
    path = [(numbers[0], successors(numbers[0], function, after))]
    while path:
        at, left = path[-1]
        if not left:
            path.pop()
            under_way.discard(at)
            done.add(at)
            continue
        following = left.pop(0)
        if following in under_way and "goto" not in function[at]:
            found.append(at)
        elif following not in under_way | done:
            under_way.add(following)
            path.append((following, successors(following, function, after)))
    return found


def successors(at: int, function: Function, after: dict[int, int]) -> list[int]:
    text = function[at]
    if text.startswith("exit"):
        return []
    jump = re.search(r"goto ([+-]\w+)", text)
    there = [at + 1 + int(jump[1], 0)] if jump else []
    return there if text.startswith("goto") else [after[at], *there]


#: Bytes of stack for a program and what it calls; before 6.5 a frame counts in steps of 32.
STACK, STEP = 512, 32


#: In include/uapi/linux/bpf.h of Linux 5.15, bpf_task_pt_regs (dd6e10fbd9fb) is the last helper.
_LAST_OF_5_15 = 175


def test_no_helper_is_newer_than_5_15(built: Path) -> None:
    """As docs/HOSTS.md says of kernels that were not run."""
    called = helpers_called(disassembled(built))
    assert len(called) > 15
    assert max(called) == _LAST_OF_5_15


def test_a_call_of_a_function_is_no_call_of_a_helper() -> None:
    function = " 546:\t85 10 00 00 22 02 00 00\tcall 546\n"
    helper = " 547:\t85 00 00 00 af 00 00 00\tcall 175\n"
    assert helpers_called(function + helper) == {175}


def helpers_called(listing: str) -> set[int]:
    """Numbers in the calls whose source register is 0: 1 is for functions of the object."""
    found = re.findall(r"\s85 00 00 00 (\w\w) (\w\w) 00 00\s", listing)
    return {int(high + low, 16) for low, high in found}


def test_every_program_fits_into_the_stack_that_older_kernels_count(listing: str) -> None:
    frames, calls = stacks(listing)

    def deepest(name: str) -> int:
        return frames[name] + max(map(deepest, calls[name]), default=0)

    programs = [name for name in frames if name.startswith("on_") or name == "sweep_tasks"]
    assert len(programs) > 20
    assert {n: depth for n in programs if (depth := deepest(n)) > STACK} == {}


def stacks(listing: str) -> tuple[dict[str, int], dict[str, set[str]]]:
    """The frame of each function, and what it calls."""
    frames: dict[str, int] = {}
    calls: dict[str, set[str]] = {}
    head = r"^([0-9a-f]+) <(?!LBB)(\w+)>:$"
    text = listing.partition("section .text:")[2].partition("Disassembly")[0]
    # static functions are called by their place in the section .text
    places = {int(at, 16) // 8: name for at, name in re.findall(head, text, re.M)}
    parts = re.split(head, listing, flags=re.MULTILINE)
    for name, body in zip(parts[2::3], parts[3::3], strict=True):
        used = [int(n, 0) for n in re.findall(r"\(r10 - (0x[0-9a-f]+|\d+)\)", body)]
        used += [int(n, 0) for n in re.findall(r"= r10\n.*\+= -(0x[0-9a-f]+|\d+)$", body, re.M)]
        frames[name] = -(-max(used, default=1) // STEP) * STEP
        named = set(re.findall(r"R_BPF_64_32\s+([a-z_]\w+)", body))
        static = re.findall(r"call (0x[0-9a-f]+|\d+)\n\s*[0-9a-f]+:\s+R_BPF_64_32\s+\.text", body)
        calls[name] = named | {places[int(at, 0) + 1] for at in static}
    return frames, calls
