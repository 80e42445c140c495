# SPDX-License-Identifier: Apache-2.0
"""Rules about programs that take their text apart into characters, where bytes would do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pipelined.analysis.bottleneck import share
from pipelined.analysis.estimates import saved_if_gone
from pipelined.analysis.finding import Evidence, Finding
from pipelined.analysis.rewriting import Script
from pipelined.analysis.rules.rule import Case, with_waits
from pipelined.analysis.sentence import on_cpu, stage_label
from pipelined.analysis.shell_text import Command

__all__ = ["c_locale"]

#: A stage that is on CPU, or waits for one, for this share of the run is most of it.
MOST = 0.5
#: The share of their CPU seconds in user mode that such programs save: 0.3 to 0.9 were measured
#: (docs/FINDINGS.md#c-locale).
LIKELY = 0.5
#: Functions of awk that count or change characters; gawk is 1.5 to 5 times slower in them.
_AWK_FUNCTIONS = re.compile(r"\b(length|substr|index|match|toupper|tolower|s?printf)\b")
#: Scripts of sed that match more than given characters, or change one into another.
_SED_SCRIPTS = re.compile(r"s(.)(?:(?!\1).)*(\[|\.\*|\()|y/")


def c_locale(case: Case) -> Iterator[Finding]:
    """A program that tells characters apart is the cost, and the locale has several bytes in one.

    Of which programs gain by it, those are taken that were measured to: neither tr, cut, uniq nor
    mawk does, and grep only with -o.
    """
    for index, stage in enumerate(case.run.stages):
        words, user = case.words(index), min(stage.user_seconds, case.wall)
        busy = share(stage, "cpu", case.wall) + share(stage, "runqueue", case.wall)
        if words is None or busy < MOST or not case.worth(with_waits(stage, user * LIKELY)):
            continue
        locale = _locale(words, case.script)
        if not re.search(r"\.utf-?8$", locale, re.IGNORECASE) or not _gains(words, case.script):
            continue
        yield Finding(
            id="c-locale",
            severity="advice",
            sentence=f"{stage_label(case.run, (index,))} was "
            + on_cpu(case.run, (index,), share(stage, "cpu", case.wall), " of the run")
            + f" and takes its text for characters of {locale}.",
            advice=f"Try: LC_ALL=C {words.program}, which takes it for bytes, if the text is ASCII "
            "or no other characters matter to it.",
            rewrite=case.attempt(case.rewritten(index, words.with_variable("LC_ALL=C"))),
            stages=(index,),
            evidence=(
                Evidence("in user mode", stage.user_seconds, "seconds"),
                Evidence("on CPU", stage.cpu_seconds, "seconds"),
            ),
            likely_seconds=saved_if_gone(case, {index: user * LIKELY}),
            likely_reason=f"{LIKELY:.0%} of its CPU seconds in user mode, as for most that were "
            "measured, as far as no other stage worked meanwhile",
            gain_seconds=min(case.wall, with_waits(stage, user)),
            gain_reason="its CPU seconds in user mode, and its waits for a CPU meanwhile",
        )


def _locale(words: Command, script: Script | None) -> str:
    """By which a command tells characters apart; empty if that is not known."""
    own = [words.variable(name) for name in ("LC_ALL", "LC_CTYPE")]
    given = next((value for value in own if value is not None), None)
    if given is None and words.variable("LANG") is not None:
        return ""
    return given if given is not None else (script.characters if script else None) or ""


def _gains(words: Command, script: Script | None) -> bool:
    values = [word.value for word in words.arguments]
    if not all(map(str.isascii, values)):  # in C, each of its bytes would be a character
        return False
    if words.program == "sed":
        return any(map(_SED_SCRIPTS.match, values))
    if words.program == "grep":
        return any(re.fullmatch(r"-[A-Za-z]*o[A-Za-z]*", value) for value in values)
    awk = script.awk if script and words.program == "awk" else words.program
    return awk == "gawk" and any(map(_AWK_FUNCTIONS.search, values))
