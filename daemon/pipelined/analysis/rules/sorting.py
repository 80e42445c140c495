# SPDX-License-Identifier: Apache-2.0
"""Rules about sort: its temporary files, the locale it compares in, and sorting only to count."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pipelined.analysis.bottleneck import share
from pipelined.analysis.estimates import saved_if_gone
from pipelined.analysis.finding import Evidence, Finding
from pipelined.analysis.rewriting import COUNT, FIRST, counted_in_hash, with_buffer
from pipelined.analysis.rules.rule import BULK, Case, bytes_in, bytes_out, ratio, with_waits
from pipelined.analysis.sentence import on_cpu, stage_label
from pipelined.analysis.shell_text import Command
from pipelined.analysis.without_stages import orders_all_it_reads
from pipelined.runs import Stage
from pipelined.wording import data_size, duration, listing, percent

__all__ = ["compares_bytes", "count_in_hash", "sort_locale", "sort_spills"]

#: A sort that is on CPU, or waits for one, for this share of the run is most of it.
MOST = 0.5
#: The same, of one that a hash would replace: then most of its time would go.
MUCH = 0.25
#: ``uniq`` that passes on a lower share of its input counts lines that repeat ten times.
REPEATS = 0.1
#: Memory that sort takes for each byte of its input: lines of 12 bytes have a record of 32 each.
MEMORY = 5
#: A larger buffer than this is not advised without asking for the memory there is (MiB).
LARGEST = 1024
#: Comparing by the rules of a language takes this share of a sort's user time (measured: 0.61 to
#: 0.83).
BY_RULES = 0.75
#: The same in C.UTF-8, whose rule is the order of the bytes (measured: 0.36 to 0.51).
BY_CODE_POINTS = 0.45
#: A hash of a few lines takes this share of what sorting takes in C, in C.UTF-8 and by the rules of
#: a language (measured with mawk: 0.30, 0.17, 0.12).
HASHED, HASHED_BY_CODE_POINTS, HASHED_BY_RULES = 0.3, 0.2, 0.1
#: A larger one does not stay in the CPU cache: by how much more, per share of the bytes that it
#: keeps (measured where it keeps 0.08: 0.78, 0.44, 0.15).
OF_KEPT = 15
#: So many times as much takes gawk.
BY_GAWK = 1.5
#: Locales in which sort compares bytes.
BYTES = ("C", "POSIX")
#: The one that has the same order, and in which it calls strcoll all the same.
_CODE_POINTS = re.compile(r"C\.utf-?8", re.IGNORECASE)
#: What expects its input in the order of its own locale.
_COMPARE = frozenset({"comm", "join"})
#: Options and keys of a sort that compares numbers, versions or months: which marks belong to a
#: number, and what a month is called, is the locale's, too.
_NUMBERS = re.compile(
    r"-[bcdfimrsu]*[ghMnRV].*|(-[a-zA-Z]*k|--key=)?\d[\d.,bdfir]*[ghMnRV][\d.,bdfirghMnRV]*"
    r"|--(general-numeric|human-numeric|month|numeric|random|version)-sort|--sort=.*"
)


def sort_spills(case: Case) -> Iterator[Finding]:
    """A sort waits for the disk that its temporary files are on.

    While they stay in the page cache they cost less than a larger buffer, which does not fit the
    CPU cache.
    """
    for index, stage in enumerate(case.run.stages):
        spilled = _spilled(case, index) if stage.command == "sort" else 0
        waited = stage.states["disk"]
        if spilled < BULK or not case.worth(waited):
            continue
        size = 16
        while size << 20 < MEMORY * _given(case, index, spilled):
            size *= 2
        words = case.words(index)
        larger = with_buffer(words, f"{size}M") if words and size <= LARGEST else None
        name = stage_label(case.run, (index,))
        yield Finding(
            id="sort-spills",
            severity="advice",
            sentence=f"{name} wrote {data_size(spilled)} to temporary files, and read them again "
            f"to merge them; it was in the kernel for {duration(stage.system_seconds)} and waited "
            f"{duration(waited)} for disk.",
            advice=f"Try: sort -S {size}M, if the host has the memory; else a faster folder for "
            "them (sort -T, or TMPDIR).",
            stages=(index,),
            evidence=(
                Evidence("written to temporary files", spilled, "bytes"),
                Evidence("in the kernel", stage.system_seconds, "seconds"),
                Evidence("waiting for disk", waited, "seconds"),
            ),
            likely_seconds=saved_if_gone(
                case,
                {index: stage.system_seconds * ratio(spilled, stage.written_bytes)},
                {index: waited},
            ),
            likely_reason="its waiting for disk, and its seconds in the kernel for the share of "
            "temporary files in all that it wrote",
            # each wait for disk may end in one for a CPU
            gain_seconds=min(case.wall, waited + stage.system_seconds + stage.states["runqueue"]),
            gain_reason="its seconds in the kernel, waiting for disk or for a CPU, those for its "
            "pipes among them",
            rewrite=case.attempt(case.rewritten(index, larger)),
        )


def sort_locale(case: Case) -> Iterator[Finding]:
    """A sort asks the locale how lines compare, which takes longer than comparing bytes."""
    for index, stage in enumerate(case.run.stages):
        words = case.words(index)
        locale = _locale(case, words)
        user = min(stage.user_seconds, case.wall)
        comparing = _comparing(locale)
        if stage.command != "sort" or _busy(case, stage) < MOST or not comparing:
            continue
        same = locale is not None and _is_code_points(locale)
        if not case.worth(user * comparing if same else user) or _compares_numbers(words):
            continue
        known = bool(locale)
        new = case.rewritten(index, words.with_variable("LC_ALL=C") if words else None)
        name = stage_label(case.run, (index,))
        pairing = [] if same else sorted(_pairing(case, index))
        new = None if pairing else new
        yield Finding(
            id="sort-locale",
            severity="advice" if known else "note",
            sentence=f"{name} was "
            + on_cpu(case.run, (index,), share(stage, "cpu", case.wall), " of the run")
            + (f" and compares by the rules of {locale}." if locale else "."),
            advice=f"Try: LC_ALL=C sort{_alike(pairing)}, which compares bytes"
            + (
                f": {locale} has the same order."
                if same
                else ", if that order will do."
                if locale
                else ", if that order will do (in C.UTF-8 it is the same)"
                + ("" if words else ", it sorts no numbers or months,")
                + " and it does not run so already."
            ),
            stages=(index,),
            evidence=(
                Evidence("in user mode", stage.user_seconds, "seconds"),
                Evidence("on CPU", stage.cpu_seconds, "seconds"),
            ),
            likely_seconds=saved_if_gone(case, {index: stage.user_seconds * comparing})
            if known
            else None,
            likely_reason=f"{percent(comparing)} of its CPU seconds in user mode, in which it "
            "compares"
            if known
            else "",
            gain_seconds=min(case.wall, with_waits(stage, user)) if known else None,
            gain_reason="its CPU seconds in user mode, in which it compares, and its waits for a "
            "CPU meanwhile"
            if known
            else "",
            rewrite=case.attempt(new, reordered=not same) if locale else None,
        )


def _pairing(case: Case, index: int) -> set[str]:
    """The programs behind a sort, up to the next one, that need lines in the order of their own
    locale."""
    after, stages = case.graph.after, case.run.stages
    queue, seen = [index], {index}
    while queue:
        readers = after[queue.pop()] - seen
        seen |= readers
        queue += (reader for reader in readers if stages[reader].command != "sort")
    return {stages[reader].command for reader in seen} & _COMPARE


def _alike(pairing: Sequence[str]) -> str:
    """That what is behind a sort needs its locale."""
    return f" and LC_ALL=C {listing(pairing)}" if pairing else ""


def _locale(case: Case, words: Command | None) -> str | None:
    """By which a sort compares; None if that is not known.

    What starts in another locale than C may be a script that sets C for all of it.
    """
    given = case.script.locale if case.script else None
    if words is None:
        return given if given is not None and _comparing(given) == 0 else None
    own = [words.variable(name) for name in ("LC_ALL", "LC_COLLATE", "LANG")]
    return next((value for value in own if value is not None), given)


def compares_bytes(case: Case, words: Command) -> bool:
    """Whether a sort without options is certain to put lines into the order of their bytes."""
    found = [words.variable("LC_ALL")]
    if found == [None]:  # what it is given besides may be without effect
        others = (words.variable(name) for name in ("LC_COLLATE", "LANG"))
        found = [case.script.locale if case.script else None, *filter(None, others)]
    return all(locale is not None and locale.partition(".")[0] in BYTES for locale in found)


def _comparing(locale: str | None) -> float:
    """The share of a sort's user time that comparing takes more than in C."""
    if locale is None or locale.partition(".")[0] not in BYTES:
        return BY_RULES
    return BY_CODE_POINTS if _is_code_points(locale) else 0.0


def _compares_numbers(words: Command | None) -> bool:
    options = [word.value for word in words.arguments] if words else []
    return any(map(_NUMBERS.fullmatch, options))


def _is_code_points(locale: str) -> bool:
    return _CODE_POINTS.fullmatch(locale) is not None


def count_in_hash(case: Case) -> Iterator[Finding]:
    """Lines are sorted only to count, or to drop, those that repeat."""
    run = case.run
    for index, behind in enumerate(case.graph.after):
        if run.stages[index].command != "sort" or len(behind) != 1:
            continue
        (reader,) = behind
        sort, uniq = run.stages[index], run.stages[reader]
        kept = ratio(bytes_out(uniq), bytes_in(uniq))
        if uniq.command != "uniq" or bytes_in(uniq) < BULK or kept > REPEATS:
            continue
        if case.graph.before[reader] != {index} or _busy(case, sort) < MUCH:
            continue
        others = [s.cpu_seconds for i, s in enumerate(run.stages) if i not in (index, reader)]
        gain = min(sort.cpu_seconds + uniq.cpu_seconds, case.wall - max(others, default=0.0))
        takes = _hashed(case, index, kept)
        likely = saved_if_gone(
            case, {index: sort.cpu_seconds * (1 - takes), reader: uniq.cpu_seconds}
        )
        words = case.seen(reader)
        options = [word.value for word in words.arguments] if words else None
        if not case.worth(min(gain, likely)) or (
            options is not None and options not in ([], ["-c"])
        ):
            continue
        new = counted_in_hash(case.pipeline, index) if case.pipeline else None
        behind_uniq = map(case.seen, case.graph.after[reader])
        sorted_again = any(words and orders_all_it_reads(words) for words in behind_uniq)
        hashed = f"{COUNT} counts without sorting; sort its result"
        advice = {
            None: f"for uniq -c: {hashed}; for uniq: {FIRST} | sort",
            "": f"{FIRST} | sort in place of sort | uniq",
            "-c": f"{COUNT} counts without sorting"
            if sorted_again
            else f"{hashed}. Lines with equal counts may come in another order",
        }[None if options is None else "".join(options)]
        yield Finding(
            id="count-in-hash",
            severity="advice",
            sentence=f"{stage_label(run, (index,))} took {duration(sort.cpu_seconds)} of CPU to "
            f"sort {data_size(bytes_in(uniq))}, of which uniq kept {percent(kept)}.",
            advice=f"Try: {advice}.",
            stages=(index, reader),
            evidence=(
                Evidence("sort on CPU", sort.cpu_seconds, "seconds"),
                Evidence("uniq on CPU", uniq.cpu_seconds, "seconds"),
                Evidence("kept by uniq", kept, "ratio"),
            ),
            likely_seconds=likely,
            likely_reason="the CPU seconds of both, but for what a hash takes, "
            f"{percent(takes)} of those of sort, as far as no other stage worked meanwhile",
            gain_seconds=min(
                with_waits(sort, sort.cpu_seconds) + with_waits(uniq, uniq.cpu_seconds),
                case.wall - max(others, default=0.0),
            ),
            gain_reason="the CPU seconds of both, and their waits for a CPU, but no more than the "
            "run less the busiest other stage's CPU seconds",
            rewrite=case.attempt(new, reordered=options == ["-c"] and not sorted_again),
        )


def _hashed(case: Case, index: int, kept: float) -> float:
    """The share of a sort's CPU seconds that a hash takes, which keeps the share `kept`."""
    locale = _locale(case, case.words(index))
    if not locale or _is_code_points(locale):  # not known: the one between the others
        share = HASHED_BY_CODE_POINTS
    else:
        share = HASHED_BY_RULES if _comparing(locale) else HASHED
    gawk = case.script is not None and case.script.awk == "gawk"
    return min(1.0, share * (1 + OF_KEPT * kept) * (BY_GAWK if gawk else 1.0))


def _busy(case: Case, stage: Stage) -> float:
    """The share of the run that a stage was on CPU, or would have been without other work."""
    return share(stage, "cpu", case.wall) + share(stage, "runqueue", case.wall)


def _given(case: Case, index: int, spilled: int) -> int:
    """Bytes that a sort was given to sort, without what it read from its temporary files."""
    stage, writers = case.run.stages[index], case.graph.before[index]
    if stage.flow.pipe_in is not None:
        return stage.flow.pipe_in
    written = sum(bytes_out(case.run.stages[writer]) for writer in writers)
    return min(stage.read_bytes, written) if writers else stage.read_bytes - spilled


def _spilled(case: Case, index: int) -> int:
    """Bytes that a sort wrote to temporary files; 0 if its output does not show that."""
    stage, flow = case.run.stages[index], case.run.stages[index].flow
    if flow.file_written is not None:
        # without a pipe behind it, it writes as much again: its result
        return flow.file_written - (0 if flow.pipe_out is not None else bytes_in(stage))
    readers = case.graph.after[index]
    if len(readers) != 1:
        return 0
    return stage.written_bytes - sum(case.run.stages[reader].read_bytes for reader in readers)
