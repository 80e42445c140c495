# SPDX-License-Identifier: Apache-2.0
"""Which files of a pipeline can be read again."""

from __future__ import annotations

import os
import socket
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
        ("cat d | sort", "d is a directory"),
        ("cat /dev/full | sort", "/dev/full is a device"),
        ("cat /dev/fd/3 | sort", "/dev/fd/3 is an open descriptor"),
        ("cat /proc/self/fd/0 | sort", "/proc/self/fd/0 is an open descriptor"),
        ("cat /proc/uptime | sort", "/proc/uptime is what the kernel has at the moment"),
    ],
)
def test_what_is_no_file_cannot(text: str, reason: str) -> None:
    assert why_not(text) == reason
