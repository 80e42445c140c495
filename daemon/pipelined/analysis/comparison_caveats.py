# SPDX-License-Identifier: Apache-2.0
"""Caveats: what to know before you trust the figures of a comparison.

Each function returns sentences, which docs/COMPARE.md lists with what to do about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from pipelined.analysis.bottleneck import share
from pipelined.analysis.comparison_reasons import Trial
from pipelined.analysis.comparison_rows import times
from pipelined.analysis.outcome_words import marked_outcome
from pipelined.analysis.pipe_graph import build_graph
from pipelined.analysis.sentence import stage_label, unwatched
from pipelined.runs import Run
from pipelined.wording import listing, percent

__all__ = [
    "differ_inside",
    "error_caveats",
    "output_caveats",
    "queue_caveats",
    "run_caveats",
    "trial_caveats",
]

#: From this share of a run on, a stage's wait for a free CPU is worth a caveat.
MUCH_QUEUED = 0.25
#: Inputs of one pipeline further apart than this share are different inputs.
SAME_INPUT = 0.02
#: A run that ended later than its command, by more than this share of it and this many seconds, has
#: outlived it.
_OUTLIVED_SHARE, _OUTLIVED_SECONDS = 0.02, 0.01


def output_caveats(outputs: str) -> list[str]:
    """The commands did not print the same, and were compared all the same."""
    texts = {
        "lines": "the outputs are the same lines, but not in the same order",
        "any": "the outputs differ: the commands may not do the same work",
    }
    return [texts[outputs]] if outputs in texts else []


def error_caveats(
    labels: Sequence[str], trials: Sequence[Sequence[Trial]], same: bool
) -> list[str]:
    """What a side printed on stderr, if another one printed nothing there, or if their outputs are
    not the `same`: then one may not have done its work."""
    printed = {
        label: [trial.error_line for trial in of_side if trial.error_line]
        for label, of_side in zip(labels, trials, strict=False)
    }
    if same and all(printed.values()):
        return []
    return [
        f"{label} exited with 0, but printed on stderr in {len(lines)} of {len(of_side)} rounds:"
        f" {lines[0]}"
        for (label, lines), of_side in zip(printed.items(), trials, strict=True)
        if lines
    ]


def queue_caveats(labels: Sequence[str], trials: Sequence[Sequence[Trial]]) -> list[str]:
    """A stage of a side waited long for a free CPU."""
    held_up = []
    for label, of_side in zip(labels, trials, strict=False):
        shares = [_queued_share(trial.run) for trial in of_side if trial.run]
        if shares and median(shares) >= MUCH_QUEUED:
            held_up.append(f"{percent(median(shares))} of the time in {label}")
    if not held_up:
        return []
    return [
        f"a stage waited for a free CPU {', '.join(held_up)}: the figures include the effect of "
        "other work on this host, or of more stages than CPUs"
    ]


def _queued_share(run: Run) -> float:
    """The longest wait of a stage for a free CPU, as a share of the run."""
    return max((share(stage, "runqueue", run.watched_seconds) for stage in run.stages), default=0.0)


def run_caveats(a: Run, b: Run) -> list[str]:
    """Two recorded runs did not do the same work, or one is not complete."""
    caveats = []
    if a.pipeline != b.pipeline:
        caveats.append(f"different pipelines: A is {a.pipeline}, B is {b.pipeline}")
    else:
        of_a, of_b = _inputs(a, b)
        if abs(of_a - of_b) > SAME_INPUT * max(of_a, of_b):
            caveats.append(
                f"different inputs: the first stages of B read {times(of_b / of_a)} times as many "
                "bytes as A's"
                if of_a
                else "different inputs: the first stages of A read nothing"
            )
        # the words themselves may be secret: only `show` has them, if they are to be shown
        if others := [
            stage_label(a, (index,))
            for index, (one, other) in enumerate(zip(a.stages, b.stages, strict=False))
            if None not in (one.arguments, other.arguments) and one.arguments != other.arguments
        ]:
            caveats.append(f"different command lines: those of {listing(others)}")
    for label, run in zip("AB", (a, b), strict=True):
        if words := unwatched(run):
            caveats.append(f"{label} is partial: {words}")
        elif run.partial:
            caveats.append(f"{label} is partial: it was already running when observation began")
        elif run.partial_tiers:
            caveats.append(
                f"figures of {' and '.join(run.partial_tiers)} are partial for {label}: it began"
                " before their hooks were attached"
            )
        if run.live:
            caveats.append(f"{label} is still running: its figures are those so far")
        if ended := marked_outcome(run):
            caveats.append(f"{label} {ended}: its figures are of the run as far as it got")
    return caveats


def _inputs(a: Run, b: Run) -> tuple[int, int]:
    """The inputs of two runs; if one is not known, or one alone is a bound, all that their first
    stages read."""
    if a.input_bytes is not None and b.input_bytes is not None and a.input_exact == b.input_exact:
        return a.input_bytes, b.input_bytes
    return _read_first(a), _read_first(b)


def _read_first(run: Run) -> int:
    """What the stages of a run read that no other one writes to."""
    return sum(
        stage.read_bytes
        for stage, writers in zip(run.stages, build_graph(run).before, strict=True)
        if not writers
    )


def differ_inside(labels: Sequence[str], trials: Sequence[Sequence[Trial]]) -> str:
    """A caveat if commands ran several pipelines and the longest of each is another one: then none
    stands for its command. Else empty."""
    several = any(trial.pipelines > 1 for of_side in trials for trial in of_side)
    seen = [[trial.run.pipeline for trial in of_side if trial.run] for of_side in trials]
    longest = [max(names, key=names.count) for names in seen if names]
    if not several or len(set(longest)) < 2:
        return ""
    return (
        f"the longest pipelines of {listing(labels[: len(trials)])} are not the same "
        f"({', '.join(longest)}): only wall and CPU time are compared, of the whole commands"
    )


def trial_caveats(labels: Sequence[str], trials: Sequence[Sequence[Trial]]) -> list[str]:
    """The pipeline seen in some rounds does not stand for the whole command."""
    apart = differ_inside(labels, trials)
    caveats = [apart] if apart else []
    unseen = [
        label
        for label, of_side in zip(labels, trials, strict=False)
        if any(trial.run is None for trial in of_side)
    ]
    if unseen:
        caveats.append(
            f"rounds of {' and '.join(unseen)} had no pipeline: only their wall time and CPU "
            "time are known"
        )
    for label, of_side in zip(labels, trials, strict=False):
        most = max(trial.pipelines for trial in of_side)
        if most > 1 and not apart:
            caveats.append(
                f"{label} ran {most:,} pipelines: the longest one stands for it, "
                "but wall and CPU time are those of the whole command"
            )
        signatures = {trial.run.pipeline for trial in of_side if trial.run}
        if len(signatures) > 1:
            caveats.append(f"{label} was not always the same: {', '.join(sorted(signatures))}")
        if ended := [trial.outcome for trial in of_side if trial.outcome]:
            caveats.append(
                f"in {len(ended)} of {len(of_side)} rounds of {label} a pipeline did not succeed,"
                f" though the command did: {ended[0]}; it may have done less work"
            )
        lost = sum(trial.lost for trial in of_side)
        if lost:
            caveats.append(f"{lost:,} events of {label} were lost: its figures are too low")
        if any(trial.run and trial.run.live for trial in of_side):
            caveats.append(f"stages of {label} outlived the command: their figures are cut off")
        elif any(map(_went_on, of_side)):
            caveats.append(
                f"stages of {label} outlived the command: its wall time does not include what they"
                " did after its end; let it wait for them"
            )
    return caveats


def _went_on(trial: Trial) -> bool:
    """Whether a run took longer than the command that started it: bash waits for no ``>(…)``."""
    longest = trial.wall_seconds + max(_OUTLIVED_SECONDS, _OUTLIVED_SHARE * trial.wall_seconds)
    return trial.run is not None and trial.run.wall_seconds > longest
