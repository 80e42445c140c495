# SPDX-License-Identifier: Apache-2.0
"""Which files of a pipeline can be read again."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from pipelined.analysis.read_again import why_not_read_again
from pipelined.analysis.shell_text import parse
from pipelined.run.file_kinds import kinds


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Here are a file, a folder, a FIFO, a socket, and links to the last two."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").write_text("1\n")
    (tmp_path / "d").mkdir()
    os.mkfifo("p.fifo")
    os.symlink("p.fifo", "to-fifo")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("s")
    return tmp_path


def why_not(text: str) -> str:
    found = parse(text)
    assert found is not None, text
    return why_not_read_again(found, kinds)


@pytest.mark.parametrize(
    "text",
    [
        "cat f | sort",
        "sort < f | uniq",
        "sort gone | uniq",
        "grep x f d* | wc -l",
        "grep -r x d | sort",
        "find d -type f | xargs -n1 cat",
        "tar c d | gzip",
        "du d p.fifo | sort",
        "ls -l p.fifo | sort",
        "grep p.fifo f | sort",
        "sort f /dev/null | uniq",
        "dd if=/dev/zero bs=1M count=1 | gzip",
        "jq . f | sort",
    ],
)
def test_files_and_what_is_below_a_folder_can_be_read_again(text: str) -> None:
    assert why_not(text) == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("cat p.fifo | sort", "p.fifo is a FIFO"),
        ("cat to-fifo | sort", "to-fifo is a FIFO"),
        ("cat f | sort - p.fifo", "p.fifo is a FIFO"),
        ("cat *.fifo f | sort", "*.fifo names a FIFO"),
        ("sort < p.fifo", "p.fifo is a FIFO"),
        ("dd if=p.fifo bs=1M | wc", "p.fifo is a FIFO"),
        ("comm -12 f p.fifo | wc", "p.fifo is a FIFO"),
        ("xargs --arg-file=p.fifo cat | wc", "--arg-file=p.fifo is a FIFO"),
        ("xargs -ap.fifo cat | wc", "-ap.fifo is a FIFO"),
        ("cat s | sort", "s is a socket"),
        ("cat /dev/full | sort", "/dev/full is a device"),
        ("cat /dev/fd/3 | sort", "/dev/fd/3 is an open descriptor"),
        ("cat /proc/self/fd/0 | sort", "/proc/self/fd/0 is an open descriptor"),
        ("cat /proc/uptime | sort", "/proc/uptime is what the kernel has at the moment"),
    ],
)
def test_what_is_no_file_cannot(text: str, reason: str) -> None:
    assert why_not(text) == f"{reason}, which is not read again and again"


@pytest.mark.parametrize(
    ("text", "program"),
    [("cat d | wc", "cat"), ("sort < d", "sort"), ("sort f | cat - d", "cat")],
)
def test_a_directory_in_place_of_a_file_has_a_reason_of_its_own(text: str, program: str) -> None:
    assert why_not(text) == f"d is a directory, and {program} reads files"


@pytest.mark.parametrize(
    "text",
    [
        "sort f | comm -13 f /dev/stdin | wc -l",
        "sort f | paste /dev/stdin - | wc",
        "cat f | xargs -a /dev/stdin echo",
        "cat f | xargs -a/dev/fd/0 echo",
        "tail -n +2 f | sort - /proc/self/fd/0",
        "pdftotext a.pdf /dev/stdout | sort",
        "openssl enc -d -in f -out /dev/fd/1 | sort",
        "cat f | curl -s -o /dev/stdout -D /dev/stderr URL | jq .",
    ],
)
def test_descriptors_of_a_pipe_and_of_what_is_written_are_no_reason(text: str) -> None:
    assert why_not(text) == ""


def test_behind_a_pipe_a_dash_is_not_the_file_of_that_name() -> None:
    os.mkfifo("-")
    assert why_not("cat f | sort -") == ""


@pytest.mark.parametrize("name", ["/dev/fd/3", "/proc/1/fd/0", "/proc/self/fd/11"])
def test_behind_a_pipe_other_descriptors_are_a_reason(name: str) -> None:
    assert "an open descriptor" in why_not(f"cat f | sort - {name}")


def test_a_block_device_can_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found = os.stat_result((stat.S_IFBLK | 0o660, *[0] * 9))
    monkeypatch.setattr("pipelined.run.file_kinds.os.stat", lambda name: found)
    assert why_not("dd if=vg/snap bs=64k | gzip -1") == ""
