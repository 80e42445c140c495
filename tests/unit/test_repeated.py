# SPDX-License-Identifier: Apache-2.0
"""A command that several runs of a script begin with, where once would do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pipelined.analysis.repeated import run_again
from pipelined.analysis.rewriting import Script
from pipelined.analysis.script_lines import ScriptFile
from pipelined.runs import Edge, Exit, Outcome, Run
from unit.invented import make_run, make_stage


def run(number: int, *lines: str, cpu: float = 1.0, name: str = "") -> Run:
    """A run of these command lines, of which the first one, whose stage is named `name`, computes
    for `cpu` seconds."""
    stages = [
        make_stage(
            at,
            (name if at == 1 and name else line.split()[0]),
            cpu=cpu if at == 1 else 0.5,
            arguments=line,
        )
        for at, line in enumerate(lines, 1)
    ]
    return make_run(stages, 1.5, id=str(number), end=1.0)


def found(*runs: Run, wall: float = 10.0, file: ScriptFile | None = None) -> str:
    return run_again(runs, wall, file)


def decompressed(commands: Sequence[str] = ("wc -l", "sort", "awk '{ print $1 }'")) -> list[Run]:
    return [run(n, "gzip -cd log.gz", one, name="zcat") for n, one in enumerate(commands)]


def test_a_file_that_is_decompressed_for_each_pipeline_need_be_so_only_once() -> None:
    assert found(*decompressed()) == (
        "zcat log.gz ran 3 times and used 3.0 s of CPU. Try: run it once, into a file that all of"
        " them read, if what it reads stays the same. That spares at most 2.0 s of CPU."
    )


def test_the_lines_of_the_script_are_named() -> None:
    script = "zcat log.gz | wc -l\nzcat log.gz | sort\n\nzcat log.gz | awk '{ print $1 }'\n"
    file = ScriptFile(Script(script))
    assert "ran 3 times (lines 1, 2 and 4) and" in found(*decompressed(), file=file)
    often = ["wc -l"] * 8
    file = ScriptFile(Script("zcat log.gz | wc -l\n" * 8))
    assert "8 times (lines 1, 2, 3, 4, 5 and 3 more) and" in found(*decompressed(often), file=file)
    # one line, in a loop or not, says no more than that it ran so often
    file = ScriptFile(Script("zcat log.gz | wc -l\n"))
    assert "ran 8 times and" in found(*decompressed(often), file=file)


def test_the_one_that_wastes_most_is_named() -> None:
    cheap = [run(n, "grep -i error log", "wc -l", cpu=0.4) for n in range(3)]
    dear = [run(n, "sort -u names", "comm - other", cpu=2.0) for n in range(3, 5)]
    assert found(*cheap, *dear).startswith("sort -u names ran 2 times and used 4.0 s of CPU.")
    assert found(*cheap).startswith("grep -i error log ran 3 times and used 1.2 s of CPU.")


def test_what_ended_early_is_not_counted_as_often_as_it_ran() -> None:
    runs = [*decompressed(["wc -l"]), *(replace_cpu(one, 0.2) for one in decompressed())]
    assert "ran 4 times and used 1.6 s of CPU." in found(*runs)
    assert found(*runs).endswith("at most 0.60 s of CPU.")


def replace_cpu(of: Run, cpu: float) -> Run:
    first, *rest = of.stages
    states = {**first.states, "cpu": cpu}
    return replace(of, stages=(replace(first, states=states), *rest))


@pytest.mark.parametrize(
    ("cpu", "wall", "worth"),
    [(0.26, 10.0, True), (0.24, 10.0, False), (0.004, 0.1, False), (0.006, 0.1, True)],
)
def test_little_is_not_worth_it(cpu: float, wall: float, worth: bool) -> None:
    runs = [replace_cpu(one, cpu) for one in decompressed()]
    assert bool(found(*runs, wall=wall)) is worth


@pytest.mark.parametrize(
    "lines",
    [
        ("sort f", "sort g"),
        ("sort f", "sort -r f"),
        ("sort f", "TZ=UTC sort f"),
        ("sort", "sort"),  # its input is another one each time, as far as is known
        ("sort -", "sort -"),
        ("sort f -", "sort f -"),
        ("./load.sh f", "./load.sh f"),  # who knows what it does
        ("sort -o g f", "sort -o g f"),
        ("gzip f", "gzip f"),
        ("seq 1000", "seq 1000"),  # reads no file
        ("dd if=f", "dd if=f"),
    ],
)
def test_only_what_surely_prints_the_same_again(lines: tuple[str, str]) -> None:
    assert found(*(run(n, line, "wc -l", cpu=3.0) for n, line in enumerate(lines))) == ""


def test_once_is_not_again() -> None:
    assert found(run(1, "sort f", "wc -l", cpu=3.0)) == ""
    assert found() == ""


def test_words_that_are_not_known_are_not_made_up() -> None:
    runs = [
        replace(one, stages=tuple(replace(stage, arguments=None) for stage in one.stages))
        for one in decompressed()
    ]
    assert found(*runs) == ""


def test_only_what_begins_a_run_reads_nothing_else() -> None:
    assert found(*(run(n, "cat list", "sort f", cpu=0.0) for n in range(3))) == ""
    branches = [make_stage(1, "sort", cpu=1.0, arguments="sort f") for _ in range(2)]
    diff = make_run([*branches, make_stage(2, "diff")], 1.5, edges=(Edge(0, 2), Edge(1, 2)))
    assert found(diff).startswith("sort f ran 2 times and used 2.0 s of CPU.")


def test_a_run_that_failed_is_no_measure() -> None:
    first, *rest = decompressed()
    exits = Exit(code=1)
    failed = replace(
        first,
        stages=(replace(first.stages[0], exit=exits, outcome="failed"), *first.stages[1:]),
        outcome=Outcome("failed", (0,)),
    )
    assert "ran 2 times" in found(failed, *rest)


def test_a_long_command_is_cut() -> None:
    line = f"grep -i {'x' * 80} log"
    text = found(*(run(n, line, "wc -l") for n in range(2)))
    assert text.startswith(f"grep -i {'x' * 51}… ran 2 times")
