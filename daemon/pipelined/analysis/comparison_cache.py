# SPDX-License-Identifier: Apache-2.0
"""What different states of the page cache explain of the difference of two wall times. Pure.

A reader of a file that is in memory already does not wait for disk, and uses less CPU time in the
kernel. What a side waited for disk, and used more of that than the other side, is seen; reading
from disk costs a little more than that. So the difference has to be several times as large before
the page cache does not explain it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

from pipelined.analysis.comparison_reasons import Trial
from pipelined.analysis.comparison_rows import warm_share
from pipelined.runs import Run
from pipelined.wording import duration, percent

__all__ = ["cache_caveats", "cache_explains", "caches_differ", "explained_seconds", "ratios_of"]

#: Warm shares further apart than this belong to different states of the page cache.
SAME_CACHE = 0.05
#: The outcome has to be the same without this multiple of what is seen. Of the difference of one
#: job from a cold and from a warm cache, half or more is seen (docs/COMPARE.md).
SURE = 4
#: Seconds. A ratio to no time at all is none.
LEAST = 1e-9
#: More CPU time in the kernel is named from this share of what the cache explains.
WORTH_NAMING = 0.05


def _warm_shares(a: Sequence[Trial], b: Sequence[Trial]) -> tuple[float, float] | None:
    """Share of its input that each side found in the page cache; None if not known."""
    shares = [_known_warm_shares(trials) for trials in (a, b)]
    return (median(shares[0]), median(shares[1])) if all(shares) else None


def _known_warm_shares(trials: Sequence[Trial]) -> list[float]:
    return [warm for trial in trials if (warm := warm_share(trial)) is not None]


def caches_differ(a: Sequence[Trial], b: Sequence[Trial]) -> bool:
    """Whether the two sides found the page cache in different states."""
    warm = _warm_shares(a, b)
    return warm is not None and abs(warm[0] - warm[1]) > SAME_CACHE


def explained_seconds(side: Sequence[Trial], other: Sequence[Trial]) -> list[float] | None:
    """Round by round: what is seen in a side's wall time of a cold page cache.

    None if that is not known: of a command without a pipeline, or with several of them.
    """
    found = []
    for mine, others in zip(side, other, strict=True):
        if mine.run is None or others.run is None or max(mine.pipelines, others.pipelines) > 1:
            return None
        more = _system_seconds(mine.run) - _system_seconds(others.run)
        found.append(mine.run.disk_wait_seconds + max(0.0, more))
    return found


def _system_seconds(run: Run) -> float:
    return sum(stage.system_seconds for stage in run.stages)


def cache_explains(
    a: Sequence[Trial], b: Sequence[Trial], judged: Callable[[Sequence[float]], object]
) -> bool:
    """Whether the outcome may be another one if both sides find the page cache alike.

    `judged` makes an outcome of the ratios of wall times, round by round.
    """
    if not caches_differ(a, b):
        return False
    seen = explained_seconds(a, b), explained_seconds(b, a)
    if seen[0] is None or seen[1] is None:
        return True
    outcome = judged(ratios_of(a, b))
    without = ratios_of(_without(a, seen[0]), b), ratios_of(a, _without(b, seen[1]))
    return any(judged(ratios) != outcome for ratios in without)


def _without(side: Sequence[Trial], seconds: Sequence[float]) -> list[Trial]:
    """A side with `SURE` times as much less wall time in each round, but never with none."""
    return [
        replace(trial, wall_seconds=max(LEAST, trial.wall_seconds - SURE * less))
        for trial, less in zip(side, seconds, strict=True)
    ]


def ratios_of(a: Sequence[Trial], b: Sequence[Trial]) -> list[float]:
    """The second side's wall times over the first one's, of the rounds in which that has one."""
    pairs = zip(a, b, strict=True)
    return [y.wall_seconds / x.wall_seconds for x, y in pairs if x.wall_seconds > 0]


def cache_caveats(labels: Sequence[str], trials: Sequence[Sequence[Trial]]) -> list[str]:
    """The sides found the page cache in different states, or one side did from round to round."""
    caveats = []
    for index in range(1, len(trials)):
        warm = _warm_shares(trials[0], trials[index])
        if warm and caches_differ(trials[0], trials[index]):
            names = labels[0], labels[index]
            caveats.append(
                f"{percent(warm[0])} of {names[0]}'s input was in memory before (in the page "
                f"cache), {percent(warm[1])} of {names[1]}'s; "
                f"{_explanation(names, trials[0], trials[index])}"
            )
    for label, of_side in zip(labels, trials, strict=False):
        shares = _known_warm_shares(of_side)
        if shares and max(shares) - min(shares) > SAME_CACHE:
            caveats.append(
                f"{label} did not find as much of its input in memory (in the page cache) in each "
                f"round: {percent(min(shares))} to {percent(max(shares))}"
            )
    return caveats


def _explanation(names: tuple[str, str], a: Sequence[Trial], b: Sequence[Trial]) -> str:
    """What is seen of different caches in the difference of two sides."""
    apart = median(y.wall_seconds - x.wall_seconds for x, y in zip(a, b, strict=True))
    slow, quick, name = (b, a, names[1]) if apart > 0 else (a, b, names[0])
    seen = explained_seconds(slow, quick)
    if seen is None:
        return "how much of the difference that explains is not known"
    most = median(seen)
    waited = median(trial.run.disk_wait_seconds for trial in slow if trial.run)
    text = f"{name} waited {duration(waited)} for disk"
    if most - waited > WORTH_NAMING * most:
        text += f" and used {duration(most - waited)} more CPU time in the kernel"
    between = f"of the {duration(abs(apart))} between them"
    if most >= abs(apart) or duration(most) == duration(abs(apart)):
        return f"{text}, which can explain all {between}"
    return f"{text}, which explains at most {duration(most)} {between}"
