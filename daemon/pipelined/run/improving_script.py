# SPDX-License-Identifier: Apache-2.0
"""`pipelined improve` of a script: its costliest pipelines are improved, each by itself.

The script runs once, under observation. Which pipeline of its text a run is of has to be certain,
and its input has to be there still.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace

from pipelined.analysis.improvement import (
    ImprovedPart,
    Improvement,
    NotTried,
    ScriptImprovement,
)
from pipelined.analysis.read_again import Kinds
from pipelined.analysis.script_text import (
    Place,
    Replaced,
    by_cost,
    places,
    replaced,
    why_not_replayed,
)
from pipelined.errors import UserError
from pipelined.run.child import StoppedError
from pipelined.run.file_kinds import kinds as kinds_of_files
from pipelined.run.profile import Profile

__all__ = ["improve_parts"]

#: So many pipelines are improved at most.
MOST_PARTS = 4
#: A pipeline is worth it from this share of the script's wall time, and so many seconds.
WORTH_SHARE = 0.05
WORTH_SECONDS = 0.1

Improve = Callable[[Place, float], Improvement]
"""Called with a pipeline and its share of the budget, in seconds."""


def improve_parts(
    name: str,
    text: str,
    profile: Profile,
    improve: Improve,
    budget: float,
    *,
    exists: Callable[[str], bool] = os.path.exists,
    is_here: Callable[[str], bool] = lambda name: os.path.realpath(name) == os.path.realpath("."),
    kinds: Kinds = kinds_of_files,
    clock: Callable[[], float] = time.monotonic,
) -> ScriptImprovement:
    """Improve the pipelines of a script, `text`, that has run.

    What is left of the budget is shared by those that are still to be improved. One that `improve`
    refuses (UserError) is not tried, and says why. Ctrl-C ends the search: what was found until
    then is returned. If nothing was, it raises KeyboardInterrupt.
    """
    wall = profile.ended.wall_seconds
    least = max(WORTH_SECONDS, WORTH_SHARE * wall)
    costly, elsewhere = by_cost(places(text), profile.runs)
    chosen: list[tuple[float, Place]] = []
    not_tried: list[NotTried] = []
    for seconds, place in costly:
        if seconds < least:
            continue
        reason = why_not_replayed(text, place, exists, is_here, kinds)
        if not reason and len(chosen) == MOST_PARTS:
            reason = f"{MOST_PARTS} others cost more"
        if reason:
            not_tried.append(NotTried(place.text, place.line, seconds, reason))
        else:
            chosen.append((seconds, place))
    for seconds, run, count in elsewhere:
        if seconds >= least and len(run.stages) > 1:
            times = "" if count == 1 else f"it ran {count} times, and "
            reason = (
                f"{times}no line of the script is certain to be it (one with a variable, a loop, "
                "a substitution or a newline in quotes is not)"
            )
            not_tried.append(NotTried(run.pipeline, None, seconds, reason))
    parts: list[ImprovedPart] = []
    changes: list[Replaced] = []
    ends = clock() + budget
    interrupted = False
    for number, (seconds, place) in enumerate(chosen):
        if interrupted:
            reason = "it was interrupted before"
            not_tried.append(NotTried(place.text, place.line, seconds, reason))
            continue
        try:
            found = improve(place, max(0.0, ends - clock()) / (len(chosen) - number))
        except KeyboardInterrupt:
            if not parts:
                raise
            interrupted = True
            not_tried.append(NotTried(place.text, place.line, seconds, "it was interrupted"))
            continue
        except StoppedError:
            raise
        except UserError as error:
            not_tried.append(NotTried(place.text, place.line, seconds, error.message))
            continue
        if place.target:
            found = replace(found, command=f"{found.command} > {place.target}")
        parts.append(ImprovedPart(place.line, seconds, found))
        if found.steps:
            changes.append(Replaced(place, found.command))
        interrupted = found.interrupted
    not_tried.sort(key=lambda one: -one.seconds)
    diff = replaced(text, changes, name)
    return ScriptImprovement(name, wall, diff, tuple(parts), tuple(not_tried), interrupted)
