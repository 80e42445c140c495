# SPDX-License-Identifier: Apache-2.0
"""Hosts that lack something: the daemon does without it, or says in one line what is wrong."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipelined.errors import UserError
from pipelined.kernel import hooks
from pipelined.kernel.hooks import Program
from pipelined.observer import Observer

if TYPE_CHECKING:
    from kernel.conftest import Configure, Watch

SOURCE = Path(__file__).parents[2] / "bpf"
PIPELINED = Path(sys.executable).with_name("pipelined")
BTF = Path("/sys/kernel/btf/vmlinux")


def elsewhere(
    configure: Configure | None, script: str, *arguments: str, memory_lock: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `pipelined …` in a mount namespace of its own that `script` has changed.

    `configure` says with which loader; without it the program decides.
    """

    def limit() -> None:
        if memory_lock is not None:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (memory_lock, memory_lock))

    loader = f" --loader {configure().loader}" if configure else ""
    command = f'{script}\nexec "$0" "$@"{loader}'
    return subprocess.run(
        ["unshare", "--mount", "sh", "-ec", command, str(PIPELINED), *arguments],
        capture_output=True,
        text=True,
        preexec_fn=limit,
        check=False,
    )


def doctors_verdict(text: str) -> str:
    return text.strip().splitlines()[-1]


def test_no_bpf_file_system_is_needed(configure: Configure) -> None:
    done = elsewhere(
        configure, "while umount /sys/fs/bpf 2>/dev/null; do :; done", "doctor", "--color=never"
    )
    assert done.returncode == 0, done.stdout
    assert doctors_verdict(done.stdout).startswith("pipelined works here")


def test_no_memory_need_be_locked(configure: Configure) -> None:
    done = elsewhere(configure, ":", "doctor", "--color=never", memory_lock=64 << 10)
    assert done.returncode == 0, done.stdout
    assert doctors_verdict(done.stdout).startswith("pipelined works here")


@pytest.mark.parametrize("bytes_left", [0, 1000, 1 << 20])
def test_truncated_types_are_said_in_one_line(
    configure: Configure, tmp_path: Path, bytes_left: int
) -> None:
    truncated = tmp_path / "vmlinux"
    truncated.write_bytes(BTF.read_bytes()[:bytes_left])
    script = f"mount --bind {truncated} {BTF}"
    done = elsewhere(configure, script, "doctor", "--color=never")
    assert done.returncode == 1
    assert "pipelined would not work here" in doctors_verdict(done.stdout)
    done = elsewhere(configure, script, "serve", "--web.listen-address=127.0.0.1:0")
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("pipelined: ")
    assert "BTF" in line or "BPF" in line


def test_a_kernel_without_types_is_named_by_doctor_and_serve(tmp_path: Path) -> None:
    script = f"mount --bind {tmp_path} {BTF.parent}"
    done = elsewhere(None, script, "doctor", "--color=never")
    assert done.returncode == 1
    assert doctors_verdict(done.stdout) == (
        "pipelined would not work here: BTF: no /sys/kernel/btf/vmlinux; use a kernel built with "
        "CONFIG_DEBUG_INFO_BTF=y; Debian's and Ubuntu's are"
    )
    done = elsewhere(None, script, "serve", "--web.listen-address=127.0.0.1:0")
    assert done.returncode == 1
    assert done.stderr == (
        "pipelined: this kernel cannot run the BPF programs: no /sys/kernel/btf/vmlinux; "
        "use a kernel built with CONFIG_DEBUG_INFO_BTF=y; Debian's and Ubuntu's are\n"
    )


def test_an_old_kernel_is_named_by_doctor(tmp_path: Path) -> None:
    """As 5.10 shows itself, which the virtual machines of test-kernels boot."""
    older = tmp_path / "vmlinux"
    older.write_bytes(BTF.read_bytes().replace(b"BPF_FUNC_task_pt_regs", b"BPF_FUNC_task_xx_regs"))
    script = f"mount --bind {older} {BTF}"
    said = "the kernel has no bpf_task_pt_regs; use Linux 6.1 or newer"
    done = elsewhere(None, script, "doctor", "--color=never")
    assert done.returncode == 1
    assert doctors_verdict(done.stdout) == f"pipelined would not work here: BPF helpers: {said}"


def test_a_tier_that_lacks_a_hook_is_off_as_a_whole_and_says_so(tmp_path: Path) -> None:
    changed = tmp_path / "vmlinux"
    tracepoint = "mm_filemap_add_to_page_cache"
    shown = f"\0btf_trace_{tracepoint}\0".encode()
    changed.write_bytes(BTF.read_bytes().replace(shown, shown.replace(b"trace", b"hides")))
    script = f"export COLUMNS=200\nmount --bind {changed} {BTF}"
    done = elsewhere(None, script, "doctor", "--color=never")
    assert done.returncode == 0
    off = re.findall(r"^hook (\S+) +off +readahead, \w+: (.*?) *$", done.stdout, re.M)
    assert (tracepoint, "no such tracepoint") in off
    assert f"of no use without {tracepoint}" in {reason for _, reason in off}
    assert "hooks of readahead" not in done.stdout


@pytest.fixture
def broken_source(tmp_path: Path) -> Path:
    """The BPF source, with an exec that reads beyond a task."""
    source = tmp_path / "source"
    shutil.copytree(SOURCE, source)
    main = source / "pipelined.bpf.c"
    begin = r"int BPF_PROG\(on_exec, struct task_struct \*p,[^)]*\)\n\{"
    head, hook, rest = re.split(f"({begin})", main.read_text(), maxsplit=1)
    assert hook
    main.write_text(head + hook + "\n\tif (((u64 *)p)[99999])\n\t\treturn 0;" + rest)
    return source


def test_what_the_verifier_refuses_is_named_with_its_reason(
    configure: Configure, broken_source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {}
    if configure().loader == "bcc":
        from pipelined.kernel import bcc_loader

        monkeypatch.setattr(bcc_loader, "_SOURCE", broken_source)
    else:
        built = broken_source / "pipelined.bpf.o"
        machine = os.uname().machine
        architecture = {"x86_64": "x86", "aarch64": "arm64"}[machine]
        flags = ["-g", "-O2", "-target", "bpf", "-mcpu=v3", f"-D__TARGET_ARCH_{architecture}"]
        flags += ["-idirafter", f"/usr/include/{machine}-linux-gnu"]
        subprocess.run(
            ["clang", *flags, "-c", str(broken_source / "pipelined.bpf.c"), "-o", str(built)],
            check=True,
        )
        options = {"object": built}
    with pytest.raises(UserError) as caught:
        Observer.open(configure(**options), own_only=True)
    said = str(caught.value)
    assert "program on_exec: access beyond struct task_struct" in said, said
    assert "\n" not in said


@pytest.mark.parametrize("configure", ["libbpf", "bcc"], indirect=True, scope="session")
def test_a_function_that_is_not_there_is_done_without(
    watch: Watch,
    observer: Observer,
    configure: Configure,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    absent = Program("no_such_splice", "functions", "fexit", ("no_such_splice",))
    monkeypatch.setattr(hooks, "_FUNCTIONS", hooks._FUNCTIONS | {"on_splice": absent})
    with Observer.open(configure(), own_only=True) as second:
        told = set(second.hooks())
        run = type(watch)(second, tmp_path).run("seq 100 | cat").only("seq|cat")
    others = {hook for hook in observer.hooks() if hook.name != "do_splice"}
    assert told - others == {absent.refused("no such function")}
    assert told >= others
    assert run.stages[1].read_bytes > 0
