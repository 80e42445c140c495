# SPDX-License-Identifier: Apache-2.0
"""Whether a pipeline that is written otherwise ends with the same exit status. Pure.

Most programs exit with 0 if they could do their work; ``grep`` exits with 1 if it finds nothing.
The status of a pipeline is that of its last command. With ``set -o pipefail`` it fails if any of
its commands does, and one that writes on when its reader has ended is killed by SIGPIPE.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from pipelined.analysis.shell_text import Command, Pipeline, in_common, parse
from pipelined.analysis.shell_words import base
from pipelined.command_names import AWKS, BARRIERS, COPIERS, GREPS

__all__ = ["another_status"]

#: Programs that fail if they find nothing.
_SEEKING = GREPS | {"bzgrep", "rg", "xzgrep", "zgrep", "zstdgrep"}
#: Programs that pass on something if they are given something.
_KEEPING = BARRIERS | COPIERS | {"wc"}
#: So does uniq with these options: not with -d or -u.
_KEEPS_ONE_OF_EACH = re.compile(r"-[ciz]*([fsw]\d+)?|--(count|ignore-case)")
#: Words with which a program may end before its input does.
_ENDING: Mapping[str, re.Pattern[str]] = {
    **dict.fromkeys(AWKS, re.compile(r"\bexit\b")),
    **dict.fromkeys(_SEEKING, re.compile("^-[A-Za-z]*[Llmq]|^--(files|max|quiet|silent)")),
    "sed": re.compile(r"(^(-[nErsuz]*e|--expression=)?|[\d$;{}!]|/[IM]*|\\(.).+\3[IM]*)\s*[Qq]"),
}


class _Failure(NamedTuple):
    """When commands fail, though all of them could do their work."""

    when: str = ""
    """For a sentence that ends with ``if``; empty if they never do."""
    certain: bool = True
    """Others that print the same, and fail then, fail on the same input."""


def another_status(old: str, new: str, *, any_stage: bool) -> str:
    """When the pipeline `new` may end with another exit status than `old`, though both print the
    same: ``grep finds nothing``. Empty if it is certain that it does not.

    `any_stage`: with ``set -o pipefail``.

    >>> another_status("sort f | grep x", "grep x f | sort", any_stage=False)
    'grep finds nothing'
    >>> another_status("sort f | grep x", "grep x f | sort", any_stage=True)
    ''
    """
    one, other = parse(old), parse(new)
    assert one is not None and other is not None, (old, new)
    begin, end = in_common(one, other)
    if not any_stage:
        return "" if end else _differ(one.commands[-1:], other.commands[-1:])
    changed, put = (side.commands[begin : len(side.commands) - end] for side in (one, other))
    early = _ending_early(one) ^ _ending_early(other)
    if early:
        return f"{min(early)} ends before what writes to it"
    return _differ(changed, put)


def _differ(changed: Sequence[Command], put: Sequence[Command]) -> str:
    """When some commands may fail and those in their place do not, or the other way round."""
    before, after = _failure(changed), _failure(put)
    return "" if before == after and before.certain else after.when or before.when


def _failure(commands: Sequence[Command]) -> _Failure:
    found = [(at, one) for at, one in enumerate(map(_failure_of, commands)) if one.when]
    if not found:
        return _Failure()
    last, (when, _) = found[-1]
    # if an earlier one finds nothing, so does the last, and what comes out shows it
    shows = commands[last].program not in _SEEKING or all(map(_keeps, commands[last + 1 :]))
    return _Failure(when, shows and all(one.certain for _, one in found))


def _keeps(command: Command) -> bool:
    """Whether it passes on something if it is given something."""
    options = (word.value for word in command.arguments)
    of_each = command.program == "uniq" and all(map(_KEEPS_ONE_OF_EACH.fullmatch, options))
    return of_each or command.program in _KEEPING


def _failure_of(command: Command) -> _Failure:
    name, values = command.program, [word.value for word in command.arguments]
    if name in _SEEKING:
        return _Failure(f"{name} finds nothing")
    at_once = name == "find" and ("{}", "+") in pairwise(values)
    if at_once or name in ("parallel", "xargs"):
        programs = {base(word) for value in values for word in value.split()[:1]}
        for one in sorted(programs & _SEEKING):
            return _Failure(f"{one} finds nothing in a part of its input", certain=False)
    return _Failure("a command that find runs fails") if at_once else _Failure()


def _ending_early(pipeline: Pipeline) -> frozenset[str]:
    """The programs that another command writes to, and that may end before it does."""
    return frozenset(one.program for one in pipeline.commands[1:] if _may_end_early(one))


def _may_end_early(command: Command) -> bool:
    words = _ENDING.get(command.program)
    ends = words is not None and any(words.search(word.value) for word in command.arguments)
    return ends or command.program == "head"
