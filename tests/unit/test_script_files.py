# SPDX-License-Identifier: Apache-2.0
"""The script that a command runs, and what is known of where it begins."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipelined.analysis.rewriting import Script
from pipelined.run.script_files import known_script
from unit.test_script_text import run


def here(text: str) -> Script:
    return Script(text, locale="de_DE.UTF-8", characters="C.UTF-8", awk="mawk")


@pytest.fixture(autouse=True)
def nightly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "nightly.sh"
    script.write_bytes(b"#!/bin/sh -e\nsort f | wc\n# \xff\n")
    return script


@pytest.mark.parametrize(
    "command", ["./nightly.sh", "sh nightly.sh x", "/bin/bash -eu ./nightly.sh", "$PWD/nightly.sh"]
)
def test_a_script_begins_in_the_locale_of_who_starts_it(command: str, tmp_path: Path) -> None:
    found = known_script(command.replace("$PWD", str(tmp_path)), here)
    assert found
    assert (found.script.locale, found.script.characters) == ("de_DE.UTF-8", "C.UTF-8")
    assert found.lines_of([run("a", 1.0, "sort", "wc")]) == (2,)


@pytest.mark.parametrize("command", ["LC_ALL=C ./nightly.sh", "env LC_ALL=C ./nightly.sh"])
def test_behind_what_may_set_another_locale_none_is_known(command: str) -> None:
    found = known_script(command, here)
    assert found
    assert (found.script.locale, found.script.characters, found.script.awk) == (None, None, "mawk")


@pytest.mark.parametrize(
    "command", ["sort f | wc", "./other.sh", "sh -c 'sort f'", "./a\0b", "./d"]
)
def test_another_command_runs_no_script(command: str, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    assert known_script(command, here) is None


def test_a_fifo_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert known_script("bash fifo", here) is None


def test_of_a_huge_file_no_line_is_known(nightly: Path) -> None:
    with nightly.open("r+b") as file:
        file.truncate(2 << 20)
    assert known_script("./nightly.sh", here) is None
