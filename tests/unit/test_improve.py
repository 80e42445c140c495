# SPDX-License-Identifier: Apache-2.0
"""`pipelined improve` at the prompt, and its report: with a made-up observer, real commands."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from rich.console import Console

from pipelined import cli
from pipelined.analysis.comparison_reasons import Trial
from pipelined.analysis.comparison_rows import Figure
from pipelined.analysis.improvement import Improvement, Measured, Tried
from pipelined.analysis.rewriting import Script
from pipelined.analysis.script_text import places
from pipelined.commands import improve as command
from pipelined.commands import improving, standard_error
from pipelined.errors import UserError
from pipelined.run import profile
from pipelined.runs import Edge, Run
from pipelined.runs.codec import read, written
from pipelined.runs.identity import Identity
from pipelined.terminal.improve_report import lines, render
from unit.invented import START, make_run, make_stage
from unit.observed import FakeObserver

Program = Callable[..., int]


@pytest.fixture
def observer(monkeypatch: pytest.MonkeyPatch) -> FakeObserver:
    """What observes: its `calls` are empty as long as nothing was run."""
    observer = FakeObserver()
    monkeypatch.setattr(profile, "open_private", lambda **_: observer)
    return observer


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, observer: FakeObserver) -> Program:
    """Runs `pipelined improve` with the given words and returns its exit status."""
    monkeypatch.setattr(standard_error, "log_to_stderr", lambda level: None)
    return lambda *words: cli._guarded(["improve", *words])


def trial(wall: float) -> Trial:
    return Trial(wall, wall, make_run([make_stage(1, "sort", cpu=wall)], wall, end=START + wall))


def tried(outcome: str = "won", detail: str = "", command: str = "sort -u f") -> Tried:
    measured = outcome not in ("output", "failed", "status")
    return Tried(
        command=command,
        instead_of="sort f | uniq",
        finding="barrier",
        advice="sort -u in place of both.",
        outcome=outcome,
        detail=detail,
        rounds=5 if measured else 0,
        ratio=Figure(0.5, 0.4, 0.6) if measured else None,
        seconds=-1.0 if measured else None,
    )


def improvement(*all_tried: Tried, ended: str = "nothing-left") -> Improvement:
    won = [one for one in all_tried if one.outcome == "won"]
    found = Improvement(
        original="sort f | uniq",
        command=won[-1].command if won else "sort f | uniq",
        outputs="same",
        prints=True,
        unpacked="",
        ended=ended,
        error_line="",
        executions=12,
        wall_seconds=20.0,
        tried=all_tried,
        measured=(),
        first_run=trial(2.0).run,
    )
    if not won:
        return found
    sides = ((found.original, 2.0), (found.command, 1.0))
    measured = [Measured(text, tuple(trial(wall) for _ in range(5))) for text, wall in sides]
    return replace(found, measured=tuple(measured))


def shown(found: Improvement) -> str:
    return "\n".join(line.plain for line in lines(found, 100))


# -- what is refused


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sort f | tee g", "tee changes something"),
        ("ls | xargs rm", "xargs runs rm"),
        ("while read a; do echo $a; done < f", "this is another thing"),
        ("sort | uniq", "reads its standard input"),
        ("curl -s localhost | sort", "it is not certain that curl only reads and prints"),
    ],
)
def test_what_must_not_or_cannot_be_run_again_is_not_run(
    program: Program,
    observer: FakeObserver,
    capfd: pytest.CaptureFixture[str],
    text: str,
    reason: str,
) -> None:
    assert program(text) == 1
    out, err = capfd.readouterr()
    assert reason in err
    assert (out, err.count("\n"), observer.calls) == ("", 1, [])


PASSING = "which is not read again and again"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("cat fifo | grep x | sort", f"fifo is a FIFO, {PASSING}"),
        ("paste f *o | sort", f"*o names a FIFO, {PASSING}"),
        ("sort < fifo | uniq", f"fifo is a FIFO, {PASSING}"),
        ("cat /dev/stdin | sort", f"/dev/stdin is an open descriptor, {PASSING}"),
        ("dd if=/dev/full bs=1M | zstd -dc", f"/dev/full is a device, {PASSING}"),
        (
            "sort /proc/net/dev | uniq",
            f"/proc/net/dev is what the kernel has at the moment, {PASSING}",
        ),
        ("grep x /etc | wc", "/etc is a directory, and grep reads files"),
    ],
)
def test_what_would_not_be_there_again_is_not_read_with_yes_either(
    program: Program,
    observer: FakeObserver,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    text: str,
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    assert program("--yes", text) == 1
    out, err = capfd.readouterr()
    refused = f"nothing was run: {reason}; "
    assert err == f"pipelined: {refused}let it read a file in its place\n"
    assert (out, observer.calls) == ("", [])


def test_what_is_known_to_change_something_is_not_run_with_yes_either(
    program: Program, observer: FakeObserver
) -> None:
    assert program("--yes", "ls | xargs rm") == 1
    assert observer.calls == []


def test_with_yes_an_unknown_program_is_run(
    program: Program, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert program("--yes", "true < /dev/null | wc -l") == 0
    assert "1 run in" in capfd.readouterr().out


@pytest.mark.parametrize(("answer", "status"), [(True, 0), (False, 1)])
def test_at_a_terminal_it_asks(
    program: Program,
    observer: FakeObserver,
    monkeypatch: pytest.MonkeyPatch,
    answer: bool,
    status: int,
) -> None:
    asked: list[str] = []
    for stream in ("stdin", "stderr"):
        monkeypatch.setattr(getattr(command.sys, stream), "isatty", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda text, **_: asked.append(text) or answer)
    assert program("true < /dev/null | wc -l") == status
    assert asked[0].startswith("It is not certain that true only reads and prints")
    assert (observer.calls == []) == (not answer)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["sort f", "uniq"], "one pipeline, as one quoted string"),
        (["--budget", "soon", "sort f | uniq"], "--budget"),
        (
            ["--state-directory", "/", "sort f | uniq"],
            "--state-directory is only for recorded runs",
        ),
    ],
)
def test_wrong_usage(
    program: Program, capfd: pytest.CaptureFixture[str], words: list[str], reason: str
) -> None:
    assert program(*words) == 2
    assert reason in capfd.readouterr().err


def test_of_a_recorded_run_the_command_lines_have_to_be_known(
    program: Program, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"runs": [written(trial(1.0).run)]}))
    assert program(str(file)) == 1
    assert "records command lines only with --show-arguments" in capfd.readouterr().err


def recorded(uid: int | None, *lines: str) -> Run:
    stages = [make_stage(n, "x", arguments=text) for n, text in enumerate(lines, 1)]
    identity = Identity(host="web-3", boot_id="b007", uid=uid)
    edges = tuple(Edge(index, index + 1) for index in range(len(stages) - 1))
    return make_run(stages, 1.0, identity=None if uid is None else identity, edges=edges)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (recorded(os.geteuid(), "/bin/bash ./nightly.sh", "sort"), "a shell ran a part of it"),
        (
            replace(
                recorded(os.geteuid(), "sort a", "sort b", "join x y"),
                edges=(Edge(0, 2), Edge(1, 2)),
            ),
            "its stages were not in a row",
        ),
    ],
)
def test_only_a_pipeline_of_programs_is_run_again(
    program: Program, tmp_path: Path, capfd: pytest.CaptureFixture[str], run: Run, reason: str
) -> None:
    assert program("--yes", run_file(tmp_path, run)) == 1
    assert reason in capfd.readouterr().err


def run_file(folder: Path, run: Run) -> str:
    file = folder / "run.json"
    file.write_text(json.dumps({"runs": [written(run, secrets=True)]}))
    return str(file)


def test_a_recorded_run_is_run_again(
    program: Program, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert program(run_file(tmp_path, recorded(os.geteuid(), "seq 3", "wc -l"))) == 0
    assert capfd.readouterr().out.startswith("seq 3 | wc -l\n")


@pytest.mark.parametrize(
    ("uid", "whose"), [(os.geteuid() + 1, f"is of uid {os.geteuid() + 1}"), (None, "may be")]
)
def test_the_run_of_another_user_is_shown_and_run_only_if_that_is_agreed_to(
    program: Program,
    observer: FakeObserver,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    uid: int | None,
    whose: str,
) -> None:
    file = run_file(tmp_path, recorded(uid, "seq 3", "wc -l"))
    assert program(file) == 1
    err = capfd.readouterr().err
    assert whose in err
    assert "seq 3 | wc -l" in err
    assert observer.calls == []
    assert program("--yes", file) == 0


def test_of_a_file_of_another_user_it_is_not_known_whose_run_it_is(
    program: Program,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    file = run_file(tmp_path, recorded(4711, "seq 3", "wc -l"))
    monkeypatch.setattr(command.os, "geteuid", lambda: 4711)
    assert Path(file).stat().st_uid != 4711
    assert program(file) == 1
    assert "the run may be another user's" in capfd.readouterr().err


@pytest.mark.parametrize(("url", "status"), [("http://127.0.0.1:1", 0), ("http://192.0.2.1", 1)])
def test_a_user_id_of_another_host_is_another_user(
    program: Program, monkeypatch: pytest.MonkeyPatch, url: str, status: int
) -> None:
    run = recorded(os.geteuid(), "seq 3", "wc -l")
    monkeypatch.setattr(command, "recorded_run", lambda *_: run)
    monkeypatch.setattr(command, "observer_opener", lambda *_: lambda: FakeObserver())
    assert program("--url", url, "last") == status


@pytest.mark.parametrize(("own", "status"), [(True, 0), (False, 1)])
def test_a_history_is_as_credible_as_its_owner(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: bool, status: int
) -> None:
    user = tmp_path.stat().st_uid + (not own)
    run = recorded(user, "seq 3", "wc -l")
    monkeypatch.setattr(command, "recorded_run", lambda *_: run)
    monkeypatch.setattr(command.os, "geteuid", lambda: user)
    assert program("--state-directory", str(tmp_path), "last") == status


def test_another_users_program_with_a_harmless_name_is_not_run(
    program: Program,
    observer: FakeObserver,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "cat").write_text("#!/bin/sh\ntouch ran\n")
    assert program(f"{tmp_path}/cat /etc/hostname | wc -l") == 1
    assert f"not certain that {tmp_path}/cat only reads" in capfd.readouterr().err
    assert observer.calls == []


def test_a_script_is_run_only_if_that_is_agreed_to(
    program: Program, observer: FakeObserver, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "a.sh"
    script.write_text("echo ran\nsort f | uniq\n")
    assert program(f"bash {script}") == 1
    assert "is run once, with all that it does" in capfd.readouterr().err
    assert observer.calls == []
    assert program("--yes", f"bash {script}") == 0
    assert "No pipeline in it takes long enough" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("LC_ALL=C /bin/rm -r {}", "rm changes something"),
        ("nice /usr/bin/tee {}/f", "tee changes something"),
        ("'/bin/rm' {}", "rm changes something"),
        ("nice {}/gunzip {}/f.gz", "gunzip replaces its files"),
    ],
)
def test_a_program_that_changes_something_is_no_script_whatever_stands_in_front(
    program: Program,
    observer: FakeObserver,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    command: str,
    reason: str,
) -> None:
    (tmp_path / "gunzip").write_text("#!/bin/sh\nexec gzip -d $1\n")
    assert program("--yes", command.replace("{}", str(tmp_path))) == 1
    assert f"nothing was run: {reason}" in capfd.readouterr().err
    assert observer.calls == []


@pytest.mark.parametrize("first", ["#!/usr/bin/python3", "\x7fELF"])
def test_a_program_that_is_no_shell_script_is_a_pipeline_of_one_command(
    program: Program, tmp_path: Path, capfd: pytest.CaptureFixture[str], first: str
) -> None:
    (tmp_path / "x").write_text(f"{first}\n")
    assert program(f"env TZ=UTC {tmp_path}/x < /dev/null") == 1
    assert "it is not certain that x only reads and prints" in capfd.readouterr().err


def test_a_script_that_fails_is_an_error(
    program: Program, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "a.sh"
    script.write_text("#!/bin/sh\nexit 3\n")
    script.chmod(0o755)
    assert program("--yes", str(script)) == 1
    assert "failed with exit status 3" in capfd.readouterr().err


# -- what it does


def test_it_first_says_that_it_runs_the_pipeline_once(
    program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    assert program("--budget", "30s", "seq 3 | wc -l") == 0
    err = capfd.readouterr().err
    assert err.startswith("Runs the pipeline once, to see what could be better.")
    assert "no new round after 30s (--budget)" in err


def test_what_goes_to_a_file_is_not_written_there(
    program: Program, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "counts"
    assert program(f"seq 3 | wc -l > {file}") == 0
    assert not file.exists()
    assert f"not written to {file}" in capfd.readouterr().err


def test_the_command_to_use_writes_to_the_file_again(
    program: Program, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"
    assert program("--json", "-o", str(report), "seq 3 | wc -l > f") == 0
    assert json.loads(report.read_text())["command"] == "seq 3 | wc -l > f"


def test_a_pipeline_that_fails_is_an_error(
    program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    assert program("seq 3 | grep -c 4") == 1
    assert "the pipeline failed with exit status 1" in capfd.readouterr().err


def test_compare_opens_what_improve_has_measured(
    program: Program, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "improved.json"
    file.write_text(json.dumps(written(improvement(tried()))))
    assert cli._guarded(["compare", str(file)]) == 0
    out = capfd.readouterr().out
    assert out.startswith("A  sort f | uniq\nB  sort -u f\n")
    assert "B wins: it took 0.50 of A's wall time in each round" in out


def test_compare_may_write_to_the_file_that_it_reads(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "improved.json"
    file.write_text(json.dumps(written(improvement(tried()))))
    assert cli._guarded(["compare", str(file), "--json", "-o", str(file)]) == 0
    assert json.loads(file.read_text())["sides"][1]["name"] == "sort -u f"


@pytest.mark.parametrize("text", [json.dumps(written(improvement())), "{}", "nothing"])
def test_compare_says_so_if_there_is_no_comparison_in_a_file(
    program: Program, tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str
) -> None:
    file = tmp_path / "improved.json"
    file.write_text(text)
    assert cli._guarded(["compare", str(file)]) == 1
    assert f"cannot read a comparison from {file}" in capfd.readouterr().err


def test_the_report_as_json_is_read_as_it_was() -> None:
    found = improvement(tried())
    assert read(Improvement, written(found)) == replace(found, first_run=None)


# -- the report


def test_the_report_has_the_gain_then_the_command_on_a_line_of_its_own() -> None:
    text = shown(improvement(tried()))
    assert "There is a faster way: it took 0.50 of the original's wall time in each round" in text
    assert "\n  Use B:\nsort -u f\n" in text
    assert "It prints the same." in text


def test_a_command_to_use_is_not_broken() -> None:
    command = f"sort -u {'f' * 200}"
    assert f"\n{command}\n" in shown(improvement(tried(command=command)))


def printed(found: Improvement, encoding: str) -> str:
    """The report as it is printed to a terminal."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    render(found, Console(file=file, force_terminal=True, color_system=None, width=100))
    file.seek(0)
    return file.read()


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_commands_are_printed_with_their_tabs(encoding: str) -> None:
    steps = "cut -d '\t' -f 2 f | sort", "cut\t-d '\t' -f 2 f | sort -u"
    text = printed(improvement(*(tried(command=step) for step in steps)), encoding)
    assert f"\n  Use B:\n{steps[1]}\n" in text
    assert all(f"\n      {step}\n" in text for step in steps)


def test_a_command_that_cannot_be_printed_as_it_is_is_said_to_be_another() -> None:
    found = improvement(tried(command="grep '50 µs…' f"))
    note = "  A ? may stand for a character that cannot be printed here; --json has it.\n"
    assert f"\n  Use B:\n{note}grep '50 ?s?' f\n" in printed(found, "ascii")
    assert "\n  Use B:\ngrep '50 µs…' f\n" in printed(found, "utf-8")


def test_each_step_has_what_it_gave() -> None:
    text = shown(improvement(tried(), tried(command="sort -u -S 1G f")))
    step = "0.50 of the time before in the median (0.40–0.60 round by round), 1.0 s less."
    assert f"Step 1: {step}" in text
    assert f"Step 2: {step}" in text


def test_what_did_not_win_is_listed_with_the_reason() -> None:
    detail = "in line 2 the original prints '2', it prints '3'"
    text = shown(
        improvement(tried("not-faster"), tried("output", detail), tried("failed", "it failed"))
    )
    assert "Nothing that was tried is known to be faster: keep it as it is." in text
    assert "- not faster (0.50 of the time, 0.40–0.60, 5 rounds). sort -u in place" in text
    assert f"- prints something else: {detail}." in text
    assert "- it failed. sort -u in place" in text


def test_what_was_not_tried_for_its_exit_status_is_listed_with_the_reason() -> None:
    kept = tried("status", "it changes if grep finds nothing", "grep x f | sort")
    text = shown(improvement(kept, ended="nothing-to-try"))
    assert "Nothing was tried: all that the findings advise may change the exit status." in text
    listed = "- it changes if grep finds nothing. sort -u in place of both. [barrier]"
    head = "  Not tried, as the script goes by the exit status:"
    assert f"{head}\n  {listed}\n      grep x f | sort\n" in text
    assert "Tried as well" not in text
    beside = shown(improvement(kept, tried()))
    assert "There is a faster way" in beside and listed in beside


@pytest.mark.parametrize("ended", ["budget", "interrupted"])
def test_what_ended_too_early_is_not_said_to_be_no_faster(ended: str) -> None:
    text = shown(improvement(tried("undecided"), ended=ended))
    assert "It ended before it was decided whether something is faster." in text


def test_another_order_is_said() -> None:
    silent = shown(replace(improvement(tried()), prints=False))
    assert "It prints nothing, as A: whether it does the same work was not compared." in silent
    assert "It prints the same" not in silent
    text = shown(replace(improvement(tried()), outputs="lines"))
    assert "It prints the same lines, but in another order." in text


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        ("budget", "the budget is used up"),
        ("interrupted", "interrupted"),
        ("nothing-left", "nothing is left to try"),
    ],
)
def test_the_last_line_says_why_it_ended(ended: str, words: str) -> None:
    last = shown(improvement(tried(), ended=ended)).splitlines()[-1]
    assert last == f"  12 runs in 20.0 s; {last.split('; ')[1]}"
    assert words in last


def test_without_anything_to_try_the_report_says_what_holds_the_pipeline_back() -> None:
    text = shown(improvement(ended="nothing-to-try"))
    assert "Nothing was tried: no finding says how else to write it." in text
    assert "on CPU 100 % of the run" in text


def test_all_steps_together_without_a_measurement_have_no_figure() -> None:
    text = shown(replace(improvement(tried(), tried()), measured=()))
    assert "What all steps gain together was not measured." in text


@pytest.mark.parametrize(
    ("first", "locale"),
    [("export LC_ALL=C", "C"), ("export LANG=$1", None), ("export OTHER=C", "as_we_do")],
)
def test_a_script_that_sets_a_locale_does_not_sort_by_ours(
    program: Program,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    first: str,
    locale: str | None,
) -> None:
    script = tmp_path / "job.sh"
    script.write_text(f"{first}\nsort /dev/null | uniq\n")
    tried: list[str | None] = []

    def first_place(_file: object, text: str, _seen: object, improve: Any, _budget: object) -> None:
        improve(places(text)[0], 1.0)
        raise UserError("enough")

    monkeypatch.setattr(improving, "improve_parts", first_place)
    monkeypatch.setattr(improving, "_searched", lambda known, *_: tried.append(known.locale))
    monkeypatch.setattr(command, "script_of", lambda text: Script(text, locale="as_we_do"))
    assert program("--yes", "--budget", "10s", f"bash {script}") == 1
    assert tried == [locale]


@pytest.mark.parametrize(
    ("script", "shell", "when"),
    [
        ("set -e\nsort /dev/null | cat\nls\n", "bash", "grep finds nothing"),
        ("set -eo pipefail\nsort /dev/null | cat\nls\n", "bash", ""),
        ("sort /dev/null | cat\nls\n", "bash -e", "grep finds nothing"),
        ("sort /dev/null | cat\nls\n", "bash", None),
    ],
)
def test_a_script_that_goes_by_exit_statuses_gets_no_other_ones(
    program: Program,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    script: str,
    shell: str,
    when: str | None,
) -> None:
    file = tmp_path / "job.sh"
    file.write_text(script)
    found: list[str | None] = []

    def first_place(_file: object, text: str, _seen: object, improve: Any, _budget: object) -> None:
        improve(places(text)[0], 1.0)
        raise UserError("enough")

    def searched(*given: Any) -> None:
        judge = given[-1]
        found.append(judge and judge("sort f | grep x", "grep x f | sort"))

    monkeypatch.setattr(improving, "improve_parts", first_place)
    monkeypatch.setattr(improving, "_searched", searched)
    assert program("--yes", f"{shell} {file}") == 1
    assert found == [when]


def test_a_script_is_read_as_it_is(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "job.sh"
    script.write_bytes(b"true  # a\rb\r\n")
    texts: list[str] = []

    def parts(_file: object, text: str, *_: object) -> None:
        texts.append(text)
        raise UserError("enough")

    monkeypatch.setattr(improving, "improve_parts", parts)
    assert program("--yes", f"bash {script}") == 1
    assert texts == ["true  # a\rb\r\n"]
