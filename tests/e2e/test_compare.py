# SPDX-License-Identifier: Apache-2.0
"""`pipelined compare` on real commands: what it says of them is in their counters."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import PATIENCE
from pipelined.run.page_cache import evict

pytestmark = pytest.mark.usefixtures("bpf")

Tool = Callable[[str], str]
Done = subprocess.CompletedProcess[str]
Words = Callable[..., Done]

#: Pages of `log_file`, but for the last ones.
PAGES = 700


@pytest.fixture
def compare(program: str) -> Words:
    """`pipelined compare` with the given words, to its end."""

    def compare(*words: str) -> Done:
        return subprocess.run(
            [program, "compare", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=4 * PATIENCE,
        )

    return compare


@pytest.fixture
def compared(compare: Words) -> Callable[..., dict[str, Any]]:
    """Run `pipelined compare --json` and return what it prints."""

    def compared(*words: str) -> dict[str, Any]:
        done = compare("--json", *words)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return compared


@pytest.fixture
def recorded(program: str, tmp_path: Path) -> Callable[[str, str], str]:
    """The file with the report on a command."""

    def recorded(name: str, command: str) -> str:
        file = tmp_path / f"{name}.json"
        subprocess.run(
            [program, "run", "--json", "-o", str(file), command], check=True, timeout=PATIENCE
        )
        return str(file)

    return recorded


def row(found: dict[str, Any], group: str, name: str) -> dict[str, Any]:
    (one,) = (r for r in found["rows"] if (r["group"], r["name"]) == (group, name))
    assert isinstance(one, dict)
    return one


def pages_from_disk(found: dict[str, Any], side: str) -> int:
    """Pages that had to be brought into the page cache; the median over the rounds."""
    pages = [row(found, "pages", name)[side] for name in ("hit", "late", "miss")]
    if None in pages:
        pytest.skip("no readahead tier here")
    return sum(pages)


def can_be_cold(file: Path) -> None:
    if evict(file):
        pytest.skip("the files of this directory are always in memory")


def test_where_the_time_went_is_reported(
    compared: Callable[..., dict[str, Any]], tool: Tool
) -> None:
    sleep, cat = tool("sleep"), tool("cat")
    found = compared("-n", "3", "--warm-up", "0", f"{sleep} 0.1 | {cat}", f"{sleep} 1.5 | {cat}")
    assert [side["pipeline"].count("|") for side in found["sides"]] == [1, 1]
    assert row(found, "waits", "sleep")["values"][1]["low"] > 1.4
    (idle,) = (r for r in found["pairs"][0]["reasons"] if r["part"] == "idle")
    assert idle["seconds"] > 0
    assert f"mostly {Path(sleep).name}: sleep" in idle["text"]


def test_three_pipelines_stand_side_by_side(compare: Words, tool: Tool, log_file: Path) -> None:
    awk, cat, wc = tool("awk"), tool("cat"), tool("wc")
    done = compare(
        "-n", "3", f"{wc} -l < {log_file}", f"{cat} {log_file} | {wc} -l",
        f"{awk} '{{ n++ }} END {{ print n }}' {log_file}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    heads = [line.split() for line in done.stdout.splitlines() if line.startswith(" " * 8)]
    assert ["A", "B", "B/A", "C", "C/A"] in heads or ["A", "C", "C/A"] in heads


def test_bytes_and_calls_are_those_of_each_command(
    compared: Callable[..., dict[str, Any]], tool: Tool, log_file: Path
) -> None:
    dd, wc = tool("dd"), tool("wc")
    found = compared(
        "-n",
        "1",
        *(f"{dd} if={log_file} bs={size} status=none | {wc} -c" for size in (4096, 65536)),
    )
    assert row(found, "data", "written")["a"] == row(found, "data", "written")["b"]
    # 3,000,000 bytes in 733 and in 46 writes, and one line of wc's.
    assert [row(found, "data", "write calls")[side] for side in "ab"] == [734, 47]


def test_files_are_cold_when_they_are_to_be_cold(
    compared: Callable[..., dict[str, Any]], tool: Tool, log_file: Path
) -> None:
    can_be_cold(log_file)
    commands = f"{tool('cat')} {log_file} | {tool('wc')} -l", f"{tool('wc')} -l < {log_file}"
    found = compared("-n", "2", "--cold", str(log_file), *commands)
    assert not any(caveat.startswith("not cold") for caveat in found["caveats"])
    assert min(pages_from_disk(found, side) for side in "ab") > PAGES / 2


def test_files_are_warm_when_they_are_to_be_warm(
    compared: Callable[..., dict[str, Any]], tool: Tool, log_file: Path
) -> None:
    can_be_cold(log_file)
    commands = f"{tool('cat')} {log_file} | {tool('wc')} -l", f"{tool('wc')} -l < {log_file}"
    found = compared("-n", "2", "--warm-up", "0", "--warm", str(log_file.parent), *commands)
    assert max(pages_from_disk(found, side) for side in "ab") < PAGES / 2
    assert row(found, "pages", "warm")["a"] > PAGES / 2


def test_what_the_cache_explains_of_two_recorded_runs_is_reported(
    compared: Callable[..., dict[str, Any]],
    recorded: Callable[[str, str], str],
    tool: Tool,
    log_file: Path,
) -> None:
    can_be_cold(log_file)
    command = f"{tool('cat')} {log_file} | {tool('wc')} -l > /dev/null"
    found = compared(recorded("cold", command), recorded("warm", command))
    if row(found, "pages", "warm share")["a"] is None:
        pytest.skip("no readahead tier here")
    assert found["winner"] is None
    (pair,) = found["pairs"]
    assert pair["cache_seconds"] is not None
    if pair["cache_seconds"] >= abs(pair["seconds"]):
        assert pair["outcome"] == "not-comparable"
    assert any("input was in memory before (in the page cache)" in c for c in found["caveats"])


def test_a_cold_cache_that_explains_little_lets_the_other_one_win(
    compared: Callable[..., dict[str, Any]], tool: Tool, log_file: Path, tmp_path: Path
) -> None:
    can_be_cold(log_file)
    copy = log_file.with_name("copy")
    copy.write_bytes(log_file.read_bytes())
    cat, wc, sleep = tool("cat"), tool("wc"), tool("sleep")
    found = compared(
        "--cold", str(log_file), "--warm", str(copy),
        f"({cat} {log_file}; {sleep} 2) | {wc} -l", f"{cat} {copy} | {wc} -l",
    )  # fmt: skip
    if row(found, "pages", "warm share")["a"] is None:
        pytest.skip("no readahead tier here")
    assert row(found, "pages", "warm share")["values"][0]["high"] < 0.1
    assert row(found, "pages", "warm share")["values"][1]["low"] > 0.9
    (pair,) = found["pairs"]
    assert (found["winner"], pair["outcome"]) == ("B", "faster")
    assert 0 <= pair["cache_seconds"] < abs(pair["seconds"]) / 4
    assert "which explains at most " in found["caveats"][0]


def test_the_longest_of_several_pipelines_stands_for_them(
    compared: Callable[..., dict[str, Any]], tool: Tool
) -> None:
    sleep, cat = tool("sleep"), tool("cat")
    several = f"{sleep} 0.01 | {cat}; {sleep} 2 | {cat} | {cat}; {sleep} 0.01 | {cat}"
    found = compared("-n", "1", f"{sleep} 2 | {cat} | {cat}", several)
    assert found["sides"][1]["pipeline"].count("|") == 2
    assert any(caveat.startswith("B ran 3 pipelines") for caveat in found["caveats"])
    assert found["stages"]
    # and not if the other side's is another one
    found = compared("-n", "1", f"{sleep} 0.01 | {cat}", several)
    assert [side["pipeline"] for side in found["sides"]] == [None, None]
    assert any("are not the same" in caveat for caveat in found["caveats"])
    assert not found["stages"]


def test_different_outputs_are_not_compared(compare: Words) -> None:
    done = compare("echo a | cat", "echo b | cat")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        "pipelined: the outputs differ: in line 1 A prints 'a', B prints 'b' (A 2 bytes, B 2); "
    )


def test_the_first_output_that_differs_is_the_last_one(compare: Words, tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = compare(
        "--warm-up", "0", f"echo A >> {log}; seq 4 | cat", f"echo B >> {log}; seq 4 | sort -r"
    )
    assert done.returncode == 1
    assert "in line 1 A prints '1', B prints '4'" in done.stderr
    assert log.read_text() == "A\nB\n"


@pytest.mark.parametrize(("match", "kind"), [("lines", "lines"), ("any", "any")])
def test_outputs_that_differ_can_be_accepted(
    compare: Words, compared: Callable[..., dict[str, Any]], match: str, kind: str
) -> None:
    words = "-n", "1", "--match", match, "seq 100 | cat", "seq 100 | sort -rn"
    assert compared(*words)["outputs"] == kind
    assert "Note: the outputs " in compare(*words).stdout


def test_a_command_that_fails_is_not_compared(compare: Words) -> None:
    done = compare("true", "echo gone | cat >&2; exit 4")
    assert (done.returncode, done.stdout) == (1, "")
    assert "B failed in the warm-up with exit status 4: gone; " in done.stderr


def test_runs_of_the_history_are_compared(
    compare: Words,
    compared: Callable[..., dict[str, Any]],
    start_daemon: Callable[..., Any],
    wait_until: Callable[[Callable[[], Any], str], Any],
    tool: Tool,
    log_file: Path,
    tmp_path: Path,
) -> None:
    cat, wc = tool("cat"), tool("wc")
    history = "--state-directory", str(tmp_path / "state")
    daemon = start_daemon(*history)
    for _ in range(2):
        subprocess.run(["bash", "-c", f"{cat} {log_file} | {wc} -l"], check=True, timeout=PATIENCE)
    runs = daemon.wait_for_runs(f"{Path(cat).name}|{Path(wc).name}", 2)
    words = *history, runs[1]["id"], runs[0]["id"]
    wait_until(lambda: compare(*words).returncode == 0, "both runs in the history")
    found = compared(*words)
    assert [side["run"] for side in found["sides"]] == list(words[2:])
    assert row(found, "data", "read")["a"] == row(found, "data", "read")["b"] > 6_000_000
