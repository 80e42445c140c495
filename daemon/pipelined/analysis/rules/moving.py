# SPDX-License-Identifier: Apache-2.0
"""Whether two stages may change places, as far as their words decide that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from pipelined.analysis.by_line import only_selects, passes_on_the_begin, takes_each_line
from pipelined.analysis.rules.rule import Case, drops_bytes
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
#: The order in which they write is that in which they read.
_IN_ORDER = frozenset({"sponge", "tac"})
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
    stage, mover = case.run.stages[barrier], case.words(index)
    waits = stage.command
    takes, words = _takes_each_line(case, index), case.words(barrier)
    options = [word.value for word in words.arguments] if words else []
    ordered = any(option.startswith(("-", "+")) for option in options)
    drop = _DROP.get(waits)
    if takes is False or waits not in _PASS_ON_ALL:
        return None
    if drop and (any(map(drop.options.match, options)) if words else drops_bytes(stage)):
        return None
    conditions = [] if takes else [BY_ITSELF]
    if waits not in _IN_ORDER and not (mover and takes and only_selects(mover)):
        needing = _needs_order(case, index)
        if needing is None:
            conditions.append("the order of the result does not matter")
        elif needing and mover is None:
            conditions.append(
                f"passes on its beginning ({needing} behind it needs the order of sort)"
            )
        elif mover and needing and (ordered or not passes_on_the_begin(mover)):
            return None
    if drop and words is None:
        conditions.append(drop.without)
    return tuple(conditions)


def _takes_each_line(case: Case, index: int) -> bool | None:
    words = case.words(index)
    return takes_each_line(words) if words else None


def _needs_order(case: Case, index: int) -> str | None:
    """The command of a stage behind this one whose result depends on the order of what it reads.

    Empty if none does; None if whoever reads the result may see it.
    """
    behind = case.graph.after[index]
    found: str | None = ""
    for reader in sorted(behind):
        command, words = case.run.stages[reader].command, case.words(reader)
        if command in _ANY_ORDER and (command != "sort" or not words or orders_all(words)):
            continue
        takes = _takes_each_line(case, reader)
        if takes is False or (takes is None and command not in MOSTLY_BY_LINE):
            return command
        further = _needs_order(case, reader)
        if further:
            return further
        found = None if further is None else found
    return found if behind else None
