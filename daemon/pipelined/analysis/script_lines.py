# SPDX-License-Identifier: Apache-2.0
"""Which lines of a shell script its runs are of, and what is known by that. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pipelined.analysis.rewriting import Script, matching, programs
from pipelined.analysis.script_locale import locale_of
from pipelined.analysis.script_text import has_words, places
from pipelined.analysis.shell_text import Command, Pipeline, parse
from pipelined.runs import Run

__all__ = ["ScriptFile"]


@dataclass(frozen=True)
class ScriptFile:
    """A script that a command ran."""

    script: Script
    """Its text, and what is known of where it began."""

    @cached_property
    def _places(self) -> dict[tuple[str, ...], list[tuple[int, Pipeline]]]:
        """Its lines, by their programs: there may be thousands, and thousands of runs."""
        found: dict[tuple[str, ...], list[tuple[int, Pipeline]]] = {}
        for place in places(self.script.text, least=1):
            pipeline = parse(place.text)
            assert pipeline is not None, place.text
            found.setdefault(programs(pipeline), []).append((place.line, pipeline))
        return found

    def lines_of(self, runs: Sequence[Run]) -> tuple[int, ...]:
        """The lines that alike runs are of, as far as their command lines are known, in order; none
        if some of the runs are of no line that is certain to be a pipeline."""
        found = [self._lines(run) for run in runs]
        return tuple(sorted(set().union(*found))) if all(found) else ()

    def first_commands(self, run: Run) -> dict[int, Command]:
        """What a run begins with, as the script has it, by the lines that the run may be of."""
        lines = self._lines(run)
        alike = self._places.get(programs(run), ())
        return {line: pipeline.commands[0] for line, pipeline in alike if line in lines}

    def with_locale(self, known: Script, run: Run) -> Script:
        """What is known of one of its runs, with the locale in which that began, if it is certain
        which line it is, and what the script sets."""
        lines = self._lines(run) if known.of_one_run and not run.nested else ()
        own = self.script
        locales = {locale_of(own.text, line, own.locale) for line in lines}
        characters = {locale_of(own.text, line, own.characters) for line in lines}
        if len(locales) != 1:
            return known
        return replace(known, locale=locales.pop(), characters=characters.pop())

    def _lines(self, run: Run) -> set[int]:
        alike = self._places.get(programs(run))
        # of the same programs all of them match, or none does
        if not alike or matching(Script(alike[0][1].text, of_one_run=True), run) is None:
            return set()
        return {line for line, pipeline in alike if has_words(run, pipeline)}
