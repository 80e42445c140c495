# SPDX-License-Identifier: Apache-2.0
"""Rules about stages that the pipeline does not need, wherever they stand in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pipelined.analysis.estimates import saved_if_gone
from pipelined.analysis.finding import Evidence, Finding
from pipelined.analysis.rewriting import swapped
from pipelined.analysis.rules.moving import MOSTLY_BY_LINE, before_barrier
from pipelined.analysis.rules.rule import (
    BULK,
    ORDERS_ALL,
    SAME_SIZE,
    Case,
    bytes_in,
    bytes_out,
    drops_bytes,
    ratio,
    share_kept,
    with_waits,
)
from pipelined.analysis.sentence import stage_label
from pipelined.analysis.without_stages import (
    Counted,
    with_sort_unique,
    without_copier,
    without_counted_sort,
    without_round_trip,
    without_sort,
)
from pipelined.command_names import BARRIERS, SCRIPTS
from pipelined.runs import Stage
from pipelined.wording import data_size, duration, listing, percent

__all__ = [
    "filter_first",
    "idle_copier",
    "round_trip",
    "sort_unique",
    "sorted_count",
    "sorted_twice",
]

#: Programs that compress, by what a stage goes by.
_CODECS = frozenset({"bzip2", "gzip", "lbzip2", "lz4", "pigz", "xz", "zstd"})
#: Of a copier's CPU seconds, less the wake-ups that it spares, this share goes: its neighbours have
#: more to do where they copied beside it (measured: 0.2 and 0.4).
_FELT = 0.5


def round_trip(case: Case) -> Iterator[Finding]:
    """A stage decompresses what the stage before it has just compressed."""
    for index, reader in _pairs(case):
        first, second = case.run.stages[index], case.run.stages[reader]
        cpu = first.cpu_seconds + second.cpu_seconds
        took = sum(with_waits(stage, stage.cpu_seconds) for stage in (first, second))
        if not {_codec(first), _codec(second)} <= _CODECS or not case.worth(took):
            continue
        if case.pipeline:
            new = without_round_trip(case.pipeline, index)
            if new is None:
                continue
        else:
            new = None
            given, back = bytes_in(first), bytes_out(second)
            if given < BULK or bytes_out(first) > given or abs(back - given) > SAME_SIZE * given:
                continue
        yield _without(
            case,
            Finding(
                id="round-trip",
                severity="warning" if new else "advice",
                sentence=f"{_names(case, index, reader)} compressed {data_size(bytes_in(first))} "
                f"and decompressed them again at once: {duration(cpu)} of CPU.",
                advice=f"Try: without {_names(case, index, reader)}"
                + ("." if new else ", if what comes out is what went in."),
                rewrite=case.attempt(new),
                stages=(index, reader),
                evidence=(
                    Evidence("compressing on CPU", first.cpu_seconds, "seconds"),
                    Evidence("decompressing on CPU", second.cpu_seconds, "seconds"),
                ),
            ),
            {index: first.cpu_seconds, reader: second.cpu_seconds},
        )


def sorted_twice(case: Case) -> Iterator[Finding]:
    """A sort whose order nobody needs, because another one sorts the lines again."""
    for index, stage in enumerate(case.run.stages):
        if stage.command != "sort" or not case.worth(with_waits(stage, stage.cpu_seconds)):
            continue
        known = without_sort(case.pipeline, index) if case.pipeline else None
        later = known[1] if known else _behind_lines(case, index, "sort")
        if later is None or (not known and (case.pipeline or _drops_lines(stage))):
            continue
        name = stage_label(case.run, (index,))
        conditions = (
            ""
            if known
            else ", if it has neither -u nor -m, what is between them treats each line by itself, "
            f"and the later one has {ORDERS_ALL}"
        )
        yield _without(
            case,
            Finding(
                id="sorted-twice",
                severity="warning" if known else "advice",
                sentence=f"{name} took {duration(stage.cpu_seconds)} of CPU to sort lines that "
                f"{stage_label(case.run, (later,))} sorts again.",
                advice=f"Try: without {name}{conditions}.",
                rewrite=case.attempt(known[0] if known else None),
                stages=(index, later),
                evidence=(
                    Evidence("first sort on CPU", stage.cpu_seconds, "seconds"),
                    Evidence("second sort on CPU", case.run.stages[later].cpu_seconds, "seconds"),
                ),
            ),
            {index: stage.cpu_seconds},
        )


def sorted_count(case: Case) -> Iterator[Finding]:
    """A sort whose lines ``wc`` or ``grep -c`` only counts: it counts as many in any order."""
    for index, stage in enumerate(case.run.stages):
        if stage.command != "sort" or not case.worth(with_waits(stage, stage.cpu_seconds)):
            continue
        known = without_counted_sort(case.pipeline, index) if case.pipeline else None
        counter = known.counter if known else _behind_lines(case, index, "wc")
        if counter is None or (not known and (case.pipeline or _drops_lines(stage))):
            continue
        name = stage_label(case.run, (index,))
        temporary = stage.states["disk"] if case.graph.before[index] else 0.0
        yield _without(
            case,
            Finding(
                id="sorted-count",
                severity="warning" if known and known.ended else "advice",
                sentence=f"{name} took {duration(stage.cpu_seconds)} of CPU to sort lines that "
                f"{stage_label(case.run, (counter,))} only counts.",
                advice=f"Try: {_uncounted(name, known, direct=counter in case.graph.after[index])}",
                rewrite=case.attempt(known.new if known else None),
                stages=(index, counter),
                evidence=(Evidence("sort on CPU", stage.cpu_seconds, "seconds"),),
            ),
            {index: stage.cpu_seconds},
            slept={index: temporary},
        )


def _drops_lines(sort: Stage) -> bool:
    """Whether the bytes of a sort show that it drops lines, or are too few to show that it does
    not."""
    return bytes_in(sort) < BULK or drops_bytes(sort)


def _uncounted(name: str, known: Counted | None, *, direct: bool) -> str:
    """What to try in place of a sort before a count, and when the count is the same."""
    if known and known.ended:
        return f"without {name}."
    if known and known.joins:
        return (
            f"cat in place of {name}. The count is the same if each file ends in a newline, "
            "which sort adds."
        )
    conditions = "" if known else ", if it has no -u"
    if not known and not direct:
        conditions += " and what is between them treats each line by itself"
    return (
        f"without {name}{conditions}. The count is the same if the input ends in a newline, which "
        "sort adds."
    )


def _behind_lines(case: Case, index: int, command: str) -> int | None:
    """The stage with this command behind programs that mostly treat each line by itself; None if
    there is none."""
    following = dict(_pairs(case))
    at = following.get(index)
    while at is not None and case.run.stages[at].command in MOSTLY_BY_LINE:
        at = following.get(at)
    return at if at is not None and case.run.stages[at].command == command else None


def filter_first(case: Case) -> Iterator[Finding]:
    """A filter behind a sort throws lines away that need not have been sorted."""
    for index, reader in _pairs(case):
        sort, mover = case.run.stages[index], case.run.stages[reader]
        kept = share_kept(mover)
        if sort.command not in BARRIERS or kept is None:
            continue
        saved = sort.cpu_seconds * (1 - kept)
        if not case.worth(with_waits(sort, saved)):
            continue
        conditions = before_barrier(case, index, reader)
        if conditions is None:
            continue
        only = f", if {' and '.join(conditions)}" if conditions else ""
        yield _without(
            case,
            Finding(
                id="filter-first",
                severity="advice",
                sentence=f"{stage_label(case.run, (index,))} took {duration(sort.cpu_seconds)} of "
                f"CPU for lines of which {stage_label(case.run, (reader,))} passed on "
                f"{percent(kept)}.",
                advice=f"Try: put {mover.command} before {sort.command}{only}.",
                rewrite=case.attempt(
                    swapped(case.pipeline, index) if case.pipeline else None, reordered=True
                ),
                stages=(index, reader),
                evidence=(
                    Evidence("on CPU", sort.cpu_seconds, "seconds"),
                    Evidence("passed on", kept, "ratio"),
                ),
            ),
            {index: saved},
        )


def sort_unique(case: Case) -> Iterator[Finding]:
    """``uniq`` drops equal lines that ``sort`` could drop itself."""
    for index, reader in _pairs(case):
        sort, uniq = case.run.stages[index], case.run.stages[reader]
        if (sort.command, uniq.command) != ("sort", "uniq") or bytes_in(uniq) < BULK:
            continue
        kept = ratio(bytes_out(uniq), bytes_in(uniq))
        # what sort writes, and writes to its pipe, is only what uniq would keep
        writing = sort.system_seconds * (1 - min(1.0, kept))
        new = with_sort_unique(case.pipeline, index) if case.pipeline else None
        took = with_waits(uniq, uniq.cpu_seconds) + with_waits(sort, writing)
        if not case.worth(took) or (case.pipeline and new is None):
            continue
        pair = case.seen_pair(index, reader)
        if pair and not with_sort_unique(pair, 0):
            continue  # uniq -c
        yield _without(
            case,
            Finding(
                id="sort-unique",
                severity="advice",
                sentence=f"{stage_label(case.run, (reader,))} took {duration(uniq.cpu_seconds)} of "
                f"CPU to drop equal lines of the {data_size(bytes_in(uniq))} that "
                f"{stage_label(case.run, (index,))} wrote.",
                advice="Try: sort -u in place of sort | uniq"
                + ("." if new else ", if sort compares whole lines and uniq has no options."),
                rewrite=case.attempt(new),
                stages=(index, reader),
                evidence=(
                    Evidence("uniq on CPU", uniq.cpu_seconds, "seconds"),
                    Evidence("sort in the kernel", sort.system_seconds, "seconds"),
                    Evidence("passed on", kept, "ratio"),
                ),
            ),
            {index: writing, reader: uniq.cpu_seconds},
        )


def idle_copier(case: Case) -> Iterator[Finding]:
    """A ``cat`` between two stages passes on what it is given."""
    for index, reader in _pairs(case):
        stage = case.run.stages[index]
        if stage.command != "cat" or len(case.graph.before[index]) != 1:
            continue
        new = without_copier(case.pipeline, index) if case.pipeline else None
        if (case.pipeline and new is None) or bytes_in(stage) < BULK:
            continue
        saved = max(0.0, _FELT * stage.cpu_seconds - _woken_seconds(case, index, reader))
        # beside stages that have CPUs of their own it copies at no cost
        if not case.worth(saved_if_gone(case, {index: saved})):
            continue
        yield _without(
            case,
            Finding(
                id="idle-copier",
                severity="advice",
                sentence=f"{stage_label(case.run, (index,))} only copied "
                f"{data_size(bytes_in(stage))} from one pipe to the next: "
                f"{duration(stage.cpu_seconds)} of CPU.",
                advice="Try: without it"
                + ("." if new else ", if it has no options and reads nothing else."),
                rewrite=case.attempt(new),
                stages=(index, reader),
                likely_reason=f"{percent(_FELT)} of its CPU seconds, less the wake-ups that it "
                "spares",
                evidence=(
                    Evidence("on CPU", stage.cpu_seconds, "seconds"),
                    Evidence("copied", bytes_in(stage), "bytes"),
                ),
            ),
            {index: saved},
            most=stage.cpu_seconds,
        )


def _woken_seconds(case: Case, index: int, reader: int) -> float:
    """CPU seconds of wake-ups that a copier spares its neighbours, as it collects small pieces.

    Without it each piece wakes a reader that waits for it. One that takes as much CPU as its writer
    falls behind, and finds the next piece there.
    """
    stages = case.run.stages
    (writer,) = case.graph.before[index]
    pieces = max(0, stages[writer].write_calls - stages[reader].sleeps_empty)
    busy = min(1.0, ratio(stages[reader].cpu_seconds, stages[writer].cpu_seconds))
    costs = case.host.costs
    return pieces * (1 - busy) * (costs.switch_seconds if costs else 0.0)


def _pairs(case: Case) -> Iterator[tuple[int, int]]:
    """Stages in a row: each with its only reader, which reads nothing but its output."""
    for index, readers in enumerate(case.graph.after):
        for reader in readers:
            if len(readers) == 1 and case.graph.before[reader] == {index}:
                yield index, reader


def _without(
    case: Case,
    finding: Finding,
    saved: Mapping[int, float],
    most: float | None = None,
    slept: Mapping[int, float] | None = None,
) -> Finding:
    """With what is likely, and the most, that goes with `saved`, CPU seconds by stage index; `most`
    if more of them may go. `slept` are seconds of waiting for the disk that go with them."""
    stages = case.run.stages
    waits = ("runqueue", "disk")
    cpu = sum(saved.values()) if most is None else most
    gone = cpu + sum(stages[i].states[w] for i in finding.stages for w in waits)
    # who waited for the CPUs that these used need not
    others = [s.states["runqueue"] for i, s in enumerate(stages) if i not in finding.stages]
    gone += min(cpu, max(others, default=0.0))
    what = finding.likely_reason or "the CPU seconds that go"
    return replace(
        finding,
        likely_seconds=min(gone, saved_if_gone(case, saved, slept)),
        likely_reason=f"{what}, as far as no other stage worked meanwhile",
        gain_seconds=min(case.wall, gone),
        gain_reason="the CPU seconds that go, the waits of these stages for a CPU or disk, and the "
        "longest wait of another one for the CPUs that they used",
    )


def _codec(stage: Stage) -> str:
    return SCRIPTS.get(stage.command, stage.command)


def _names(case: Case, *indexes: int) -> str:
    return listing([stage_label(case.run, (index,)) for index in indexes])
