# SPDX-License-Identifier: Apache-2.0
"""Lists of runs: what stands under what, and what is one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipelined.nesting import first_lines, in_order, largest_first, nested_lines
from pipelined.runs import Outcome, Run
from unit.invented import make_ended, make_inside, make_live


def drawn(runs: Sequence[Run], *, grouped: bool = True) -> list[str]:
    """Each line as in a list that is indented by its depth."""
    return [
        f"{'  ' * line.depth}{line.times}{line.run.pipeline} {line.inside}".rstrip()
        for line in nested_lines(runs, grouped=grouped)
    ]


JOB = make_ended(1, "job.sh|tee", wall=100.0)


def test_a_nested_run_stands_under_the_one_that_encloses_it() -> None:
    other = make_ended(50)
    first, second = make_inside(JOB, 10, "seq|sort"), make_inside(JOB, 20, "sort|uniq")
    assert drawn([second, other, first, JOB]) == [
        "cat|sort",
        "job.sh|tee",
        "  sort|uniq",
        "  seq|sort",
    ]


def test_each_depth_stands_deeper() -> None:
    runs = [JOB]
    for number, name in enumerate(("a|b", "c|d", "e|f", "g|h"), 2):
        runs.append(make_inside(runs[-1], number, name))
    assert drawn(runs[::-1]) == ["job.sh|tee", "  a|b", "    c|d", "      e|f", "        g|h"]


def test_one_whose_enclosing_run_is_not_listed_stands_by_itself_and_names_it() -> None:
    assert drawn([make_inside(JOB, 10, "seq|sort")]) == ["seq|sort in job.sh|tee"]


def test_a_name_that_is_not_known_is_not_made_up() -> None:
    unnamed = make_inside(JOB, 10, "seq|sort", parent=None, parent_pipeline=None)
    assert drawn([unnamed, JOB]) == ["seq|sort in another pipeline", "job.sh|tee"]


def test_equal_runs_inside_the_same_one_are_one_line_of_the_longest() -> None:
    runs = [make_inside(JOB, n, "seq|sort", wall=9.0 if n == 7 else 0.1) for n in range(30, 2, -1)]
    (outer, inner) = nested_lines([JOB, *runs])
    assert (outer.runs, inner.runs, inner.times) == (1, 28, "28 × ")
    assert inner.run.wall_seconds == 9.0


def test_a_line_of_several_runs_says_how_many_did_not_succeed() -> None:
    failed, interrupted = (Outcome(result, (0,)) for result in ("failed", "interrupted"))
    runs = [make_inside(JOB, n, "seq|sort", wall=1.0 + (n == 7)) for n in range(12, 2, -1)]
    runs[0] = replace(runs[0], outcome=failed)
    runs[1] = replace(runs[1], outcome=interrupted)
    outer, inner = nested_lines([replace(JOB, outcome=failed), *runs])
    assert (outer.incomplete, outer.of_several) == (1, "")
    assert (inner.incomplete, inner.of_several) == (2, "2 of 10 did not succeed")
    assert nested_lines([JOB, *runs[2:]])[1].of_several == ""
    assert largest_first(runs, lambda run: 1.0)[0][0].incomplete == 2


def test_equal_runs_inside_different_ones_are_two_lines() -> None:
    other = make_ended(40, "other.sh|tee", wall=100.0)
    runs = [make_inside(outer, 50, "seq|sort") for outer in (JOB, other)]
    assert drawn(runs) == ["seq|sort in job.sh|tee", "seq|sort in other.sh|tee"]


def test_what_lies_in_equal_runs_is_one_line_too() -> None:
    inner = [make_inside(JOB, n, "part.sh|cat", wall=5.0) for n in (40, 30, 20)]
    innermost = [make_inside(outer, 41, "seq|sort") for outer in inner]
    assert drawn([*innermost, *inner, JOB]) == [
        "job.sh|tee",
        "  3 × part.sh|cat",
        "    3 × seq|sort",
    ]


def test_top_level_live_and_ungrouped_runs_have_a_line_each() -> None:
    ended = [make_inside(JOB, n, "seq|sort") for n in (2, 3)]
    live = [make_live(run) for run in ended]
    assert drawn([make_ended(2), make_ended(3)]) == ["cat|sort"] * 2
    assert drawn(live) == ["seq|sort in job.sh|tee"] * 2
    assert drawn(ended, grouped=False) == ["seq|sort in job.sh|tee"] * 2


def test_no_run_is_missing_from_the_lines() -> None:
    own = make_ended(60, id="60", parent="60")
    runs = [own, JOB, *[make_inside(JOB, n, "seq|sort") for n in range(10, 20)]]
    assert sum(line.runs for line in nested_lines(runs)) == len(runs)


def test_the_first_lines_are_of_as_many_runs_as_fit() -> None:
    runs = [make_inside(JOB, n, "seq|sort") for n in range(30, 20, -1)]
    runs += [make_ended(9), make_ended(8), JOB]
    assert len(first_lines(runs, 2)) == 11
    assert len(first_lines(runs, 2, grouped=False)) == 2
    assert first_lines(runs, 4) == runs


def test_live_runs_stand_by_their_start_and_ended_ones_by_their_end() -> None:
    old, new = make_live(make_ended(1, "tail|less")), make_live(make_ended(5, "cat|awk"))
    short, long = make_ended(8, "seq|wc", wall=1.0), make_ended(2, "job.sh|tee", wall=60.0)
    assert in_order([new, short, old, long]) == ([old, new], [long, short])


def test_a_live_run_comes_before_what_it_encloses() -> None:
    outer = make_live(JOB)
    inner = make_live(make_inside(outer, 10, "seq|sort"))
    assert in_order([inner, outer])[0] == [outer, inner]


def test_alike_runs_are_one_line_wherever_they_lie_and_the_largest_line_comes_first() -> None:
    loop = [make_ended(n, "echo|cut", wall=0.5) for n in range(200, 300)]
    inside = [make_inside(JOB, n, name) for n, name in ((10, "a|b"), (20, "c|d"), (30, "c|d"))]
    other = make_ended(400, "cat|sort", wall=60.0)
    found = largest_first([*inside, other, *loop, JOB], lambda run: run.wall_seconds)
    assert [(line.depth, line.times + line.run.pipeline) for line, _ in found] == [
        (0, "job.sh|tee"),
        (1, "2 × c|d"),
        (1, "a|b"),
        (0, "cat|sort"),
        (0, "100 × echo|cut"),
    ]
    assert [len(members) for _, members in found] == [1, 2, 1, 1, 100]
