# SPDX-License-Identifier: Apache-2.0
"""A command that several lines of a script begin with, where once would do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pipelined.analysis.repeated import run_again
from pipelined.analysis.rewriting import Script
from pipelined.analysis.script_lines import ScriptFile
from pipelined.analysis.shell_text import parse
from pipelined.runs import Exit, Outcome, Run
from unit.invented import make_run, make_stage


def run(line: str, cpu: float = 1.0) -> Run:
    """A run of a line of a script, of which the first command computes for `cpu` seconds."""
    pipeline = parse(line)
    assert pipeline is not None
    stages = [
        make_stage(
            at,
            command.program,
            cpu=0.5 if at > 1 else cpu,
            arguments=" ".join(word.text for word in command.words[command.start :]),
        )
        for at, command in enumerate(pipeline.commands, 1)
    ]
    return make_run(stages, 1.5, id=line, end=1.0)


def found(lines: Sequence[str], *, cpu: float = 1.0, wall: float = 10.0, before: str = "") -> str:
    """What is said of a script of these lines, behind others."""
    file = ScriptFile(Script("\n".join([before, *lines])))
    return run_again([run(line, cpu) for line in lines], wall, file)


DECOMPRESSED = ("zcat log.gz | wc -l", "date", "zcat log.gz | sort -u", "zcat log.gz | awk 1")


def test_a_file_that_is_decompressed_for_each_pipeline_need_be_so_only_once() -> None:
    assert found(DECOMPRESSED) == (
        "zcat log.gz ran 3 times (lines 2, 4 and 5) and used 3.0 s of CPU. Try: run it once, into a"
        " file that all of them read, if what it reads stays the same. That spares at most 2.0 s of"
        " CPU."
    )


def test_of_many_lines_the_first_ones_are_named() -> None:
    lines = [f"zcat log.gz | head -n {n}" for n in range(8)]
    assert "8 times (lines 2, 3, 4, 5, 6 and 3 more) and" in found(lines)
    often = ScriptFile(Script(lines[0]))  # in a function
    assert "2 times (line 1) and" in run_again([run(lines[0]), run(lines[0])], 10.0, often)


def test_the_one_that_wastes_most_is_named() -> None:
    lines = ["grep -i error log | wc -l", "grep -i error log | sort"]
    dear = ["sort -u names | comm - other", "sort -u names | comm -3 - other"]
    runs = [*(run(line, 0.7) for line in lines), *(run(line, 2.0) for line in dear)]
    file = ScriptFile(Script("\n".join([*lines, *dear])))
    assert run_again(runs, 10.0, file).startswith("sort -u names ran 2 times")
    assert run_again(runs[:2], 10.0, file).startswith("grep -i error log ran 2 times")


def test_what_ended_early_is_not_counted_as_often_as_it_ran() -> None:
    lines = ["zcat f | wc -l", "zcat f | head -n 1", "zcat f | head -n 9", "zcat f | head -n 99"]
    runs = [run(line, 0.2 if "head" in line else 1.0) for line in lines]
    said = run_again(runs, 10.0, ScriptFile(Script("\n".join(lines))))
    assert "ran 4 times" in said and "used 1.6 s of CPU." in said
    assert said.endswith("at most 0.60 s of CPU.")


@pytest.mark.parametrize(
    ("cpu", "wall", "worth"),
    [(0.26, 10.0, True), (0.24, 10.0, False), (0.004, 0.1, False), (0.006, 0.1, True)],
)
def test_little_is_not_worth_it(cpu: float, wall: float, worth: bool) -> None:
    assert bool(found(DECOMPRESSED, cpu=cpu, wall=wall)) is worth


@pytest.mark.parametrize(
    "lines",
    [
        ("sort f | uniq", "sort g | uniq"),
        ("sort f | uniq", "sort -r f | uniq"),
        ("sort f | uniq", "LC_ALL=C sort f | uniq"),
        ("sort < a | uniq", "sort < b | uniq"),
        ("sort | uniq", "sort | wc -l"),  # its input may be another one
        ("sort f - | uniq", "sort f - | wc -l"),
        ("sort /dev/stdin | uniq", "sort /dev/stdin | wc -l"),
        ("sort /dev/fd/63 | uniq", "sort /dev/fd/63 | wc -l"),
        ("sort *.log | uniq", "sort *.log | wc -l"),  # there may be more of them
        ("sort -R f | uniq", "sort -R f | wc -l"),
        ("sort --sort=random f | uniq", "sort --sort=random f | wc -l"),
        ("awk '{ print rand() }' f | sort", "awk '{ print rand() }' f | uniq"),
        ("tail -f f | sort", "tail -f f | uniq"),
        ("./load.sh f | sort", "./load.sh f | uniq"),  # who knows what it does
        ("sort -o g f | uniq", "sort -o g f | wc -l"),
        ("seq 1000 | uniq", "seq 1000 | wc -l"),  # reads no file
        ("egrep foo f | sort", "egrep bar f | sort"),
        ("grep -f - f | sort", "grep -f - f | uniq"),
        ("cat f | sort", "cat f | uniq"),  # what it prints is in a file already
        ("cat < f | sort", "cat < f | uniq"),
    ],
)
def test_only_what_surely_prints_the_same_again(lines: tuple[str, str]) -> None:
    assert found(lines, cpu=3.0) == ""


def test_what_joins_or_changes_files_is_no_copy() -> None:
    assert found(["cat a b | sort", "cat a b | uniq"]).startswith("cat a b ran 2 times")
    assert found(["cat -n f | sort", "cat -n f | uniq"]).startswith("cat -n f ran 2 times")


def test_only_what_begins_a_line_reads_nothing_else() -> None:
    assert found(["seq 9 | sort f", "seq 8 | sort f"], cpu=0.0) == ""


def test_in_another_locale_a_command_prints_something_else() -> None:
    lines = ["sort f | uniq -c", "sort f | uniq -d"]
    assert found(lines).startswith("sort f ran 2 times")
    assert found(lines, before="export LC_ALL=C") == ""  # where it is set is not looked for
    assert found([f"LC_ALL=C {line}" for line in lines]).startswith("LC_ALL=C sort f ran 2 times")
    assert found(DECOMPRESSED, before="export LC_ALL=C").startswith("zcat log.gz ran 3 times")


def test_alike_redirections_are_alike() -> None:
    assert found(["sort < a | uniq", "sort < a | wc -l"]).startswith("sort < a ran 2 times")


def test_in_another_directory_a_name_is_another_file() -> None:
    assert found(DECOMPRESSED, before="cd /data") == ""
    named_in_full = [line.replace("log.gz", "/data/log.gz") for line in DECOMPRESSED]
    assert found(named_in_full, before="cd /data").startswith("zcat /data/log.gz ran 3 times")


def test_a_line_that_is_no_certain_pipeline_is_not_counted() -> None:
    """The script has a loop in its place."""
    file = ScriptFile(Script("for d in */; do (cd $d; sort f | uniq > g); done\n"))
    assert run_again([run("sort f | uniq")] * 9, 10.0, file) == ""
    assert run_again([run("sort f | uniq")] * 9, 10.0, None) == ""


def test_once_is_not_again() -> None:
    assert found(["sort f | wc -l"], cpu=3.0) == ""
    assert found([]) == ""


def test_a_run_that_failed_is_no_measure() -> None:
    first, *rest = (run(line) for line in DECOMPRESSED)
    stage = replace(first.stages[0], exit=Exit(code=1), outcome="failed")
    outcome = Outcome("failed", (0,))
    failed = replace(first, stages=(stage, *first.stages[1:]), outcome=outcome)
    file = ScriptFile(Script("\n".join(DECOMPRESSED)))
    assert "ran 2 times (lines 3 and 4)" in run_again([failed, *rest], 10.0, file)


def test_a_long_command_is_cut() -> None:
    lines = [f"grep -i {'x' * 80} log | {reader}" for reader in ("sort", "uniq")]
    assert found(lines).startswith(f"grep -i {'x' * 51}… ran 2 times")
