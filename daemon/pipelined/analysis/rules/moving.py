# SPDX-License-Identifier: Apache-2.0
"""Whether two stages may change places, as far as their words decide that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from pipelined.analysis.by_line import (
    begins_in_order,
    one_line_of_each,
    only_selects,
    takes_each_line,
)
from pipelined.analysis.rules.rule import ORDERS_ALL, Case, drops_bytes
from pipelined.analysis.rules.sorting import compares_bytes
from pipelined.analysis.shell_text import Command
from pipelined.analysis.without_stages import orders_all
from pipelined.command_names import AWKS, BY_LINE

__all__ = ["BY_ITSELF", "MOSTLY_BY_LINE", "before_barrier", "both_take_each_line"]

#: A condition whose answer the words do not show.
BY_ITSELF = "it takes each line by itself"
#: Barriers that pass on each line: what is dropped before them would be dropped behind them.
_PASS_ON_ALL = frozenset({"shuf", "sort", "sponge", "tac"})


class _Dropping(NamedTuple):
    """Options of a barrier with which it does not pass on all lines as they are."""

    options: re.Pattern[str]
    without: str
    """The condition, if they are not known: without those that are common."""


_DROP: Mapping[str, _Dropping] = {
    "shuf": _Dropping(re.compile(r"-[^-]*[enirzo]|--\w"), "shuf has no -n"),
    "sort": _Dropping(
        re.compile(r"-[^-]*[cCmuoz]|--(ch|fil|me|o|u|z)"), "sort has neither -u nor -m"
    ),
    "tac": _Dropping(re.compile(r"-[^-]*[brs]|--[brs]"), "tac has no -s"),
}
#: Programs whose result does not depend on the order of the lines that they read; that of sort may,
#: with some options.
_ANY_ORDER = frozenset({"shuf", "sort", "wc"})
#: Programs that treat each line by itself, unless their words show that they do not.
MOSTLY_BY_LINE = BY_LINE - AWKS - {"jq", "perl"}


def both_take_each_line(case: Case, one: int, other: int) -> bool | None:
    """Whether two stages treat each line by itself; None if that is not known."""
    takes = [_takes_each_line(case, index) for index in (one, other)]
    return False if False in takes else None if None in takes else True


def before_barrier(case: Case, barrier: int, index: int) -> tuple[str, ...] | None:
    """On what conditions the stage at `index` may stand before the barrier; None: it may not."""
    stage, words = case.run.stages[barrier], case.words(barrier)
    waits = stage.command
    takes = _takes_each_line(case, index)
    options = [word.value for word in words.arguments] if words else []
    drop = _DROP.get(waits)
    if takes is False or waits not in _PASS_ON_ALL:
        return None
    if drop and (any(map(drop.options.match, options)) if words else drops_bytes(stage)):
        return None
    # sponge writes in the order in which it reads
    ordered = () if waits == "sponge" else _in_order(case, barrier, index)
    if ordered is None:
        return None
    conditions = [] if takes else [BY_ITSELF]
    conditions += ordered
    if drop and words is None:
        conditions.append(drop.without)
    return tuple(conditions)


def _in_order(case: Case, barrier: int, index: int) -> tuple[str, ...] | None:
    """On what conditions what comes behind both stages is in the same order if they change places,
    or in one that does not matter; None if it does."""
    words, mover, needing = case.words(barrier), case.words(index), _needs_order(case, index)
    if needing == "":
        behind = {case.run.stages[reader].command for reader in case.graph.downstream[index]}
        # whether it orders all lines, only its words show
        return () if mover or "sort" not in behind else (f"the later sort has {ORDERS_ALL}",)
    kept = _keeps_order(case, words, mover) if words and mover and takes_each_line(mover) else None
    if kept is not None:
        return kept
    if needing is None:
        return ("the order of the result does not matter",)
    if mover:
        return None
    waits = case.run.stages[barrier].command
    return (f"passes on lines as they are ({needing} behind it needs the order of {waits})",)


def _keeps_order(case: Case, barrier: Command, mover: Command) -> tuple[str, ...] | None:
    """On what conditions lines come in the same order if the mover, which takes each by itself, is
    put before the barrier; None if they may not."""
    if only_selects(mover):
        return ()
    if barrier.program in ("shuf", "tac"):
        return () if one_line_of_each(mover) else None
    options = any(word.value.startswith(("-", "+")) for word in barrier.arguments)
    return begins_in_order(mover) if not options and compares_bytes(case, barrier) else None


def _takes_each_line(case: Case, index: int) -> bool | None:
    words = case.words(index)
    return takes_each_line(words) if words else None


def _needs_order(case: Case, index: int) -> str | None:
    """The command of a stage behind this one whose result depends on the order of what it reads.

    Empty if none does; None if whoever reads the result may see it.
    """
    after, seen = case.graph.after, {index}
    queue = sorted(after[index], reverse=True)
    found = "" if queue else None
    while queue:
        reader = queue.pop()
        if reader in seen:
            continue
        seen.add(reader)
        command, words = case.run.stages[reader].command, case.words(reader)
        if command in _ANY_ORDER and (command != "sort" or not words or orders_all(words)):
            continue
        takes = _takes_each_line(case, reader)
        if takes is False or (takes is None and command not in MOSTLY_BY_LINE):
            return command
        found = found if after[reader] else None
        queue += sorted(after[reader], reverse=True)
    return found
