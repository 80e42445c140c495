# SPDX-License-Identifier: Apache-2.0
"""Which error is raised if a kernel shows why it cannot run the programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelined.errors import NO_PROGRAMS, NotPermittedError, UserError
from pipelined.kernel.obstacles import explained

REFUSED = UserError("the kernel refuses the BPF programs: Invalid argument", "see the log")
FORBIDDEN = NotPermittedError(NO_PROGRAMS, "run as root")
HELPERS = ("map_lookup_elem", "task_pt_regs", "get_current_task_btf", "task_storage_get")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A kernel that has all it takes."""
    write(tmp_path, "sys/kernel/btf/vmlinux", types(*HELPERS))
    write(tmp_path, "sys/kernel/security/lockdown", b"none [integrity] confidentiality\n")
    return tmp_path


def write(root: Path, name: str, content: bytes) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(content)


def types(*helpers: str) -> bytes:
    return b"\x9f\xeb\0" + b"".join(f"BPF_FUNC_{name}\0".encode() for name in helpers)


def test_a_kernel_that_lacks_nothing_explains_nothing(root: Path) -> None:
    assert explained(REFUSED, root) is None
    assert explained(FORBIDDEN, root) is None


def test_missing_types_are_the_cause(root: Path) -> None:
    (root / "sys/kernel/btf/vmlinux").unlink()
    assert "no /sys/kernel/btf/vmlinux; use a kernel built with" in str(explained(REFUSED, root))


def test_missing_helpers_are_named(root: Path) -> None:
    write(root, "sys/kernel/btf/vmlinux", types("map_lookup_elem", "get_current_task_btf"))
    assert str(explained(REFUSED, root)) == (
        "this kernel cannot run the BPF programs: the kernel has no bpf_task_pt_regs, "
        "bpf_task_storage_get; use Linux 6.1 or newer"
    )


def test_lockdown_is_the_cause_for_every_user(root: Path) -> None:
    write(root, "sys/kernel/security/lockdown", b"none integrity [confidentiality]\n")
    for error in (REFUSED, FORBIDDEN):
        found = explained(error, root)
        assert not isinstance(found, NotPermittedError)
        assert str(found) == (
            "this kernel cannot run the BPF programs: lockdown=confidentiality: BPF may not read "
            "kernel memory; boot with lockdown=integrity or none"
        )


def test_a_user_without_privileges_is_asked_for_them_first(root: Path) -> None:
    """`pipelined run` then asks a daemon, which may have types that this user cannot see."""
    (root / "sys/kernel/btf/vmlinux").unlink()
    assert explained(FORBIDDEN, root) is None
