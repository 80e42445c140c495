# SPDX-License-Identifier: Apache-2.0
"""What does the work of a stage that is on CPU all the time in less time, by what the stage is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pipelined.analysis.by_line import takes_each_line
from pipelined.analysis.finding import Rewrite
from pipelined.analysis.input_files import stores_time
from pipelined.analysis.rewriting import files
from pipelined.analysis.rules.rule import SED_BY_LINE, Case, bytes_in, bytes_out, is_shell
from pipelined.analysis.sed import split
from pipelined.analysis.shell_text import Command, Pipeline, plain
from pipelined.analysis.shell_words import Word
from pipelined.analysis.without_stages import orders_all_it_reads
from pipelined.analysis.xargs import at_once, in_parts, single_arguments
from pipelined.command_names import GREPS, SCRIPTS
from pipelined.runs import Stage

__all__ = [
    "LOOP_IN_AWK",
    "OF_ONE_CPU",
    "SPLITS",
    "faster",
    "less_cpu",
    "spread",
    "unpacks",
    "with_other_input",
]

#: Programs that compress.
_CODECS = frozenset({"bzip2", "gzip", "lz4", "pigz", "xz", "zstd"})
#: Of these, other formats are faster to read.
_SLOW_TO_READ = frozenset({"bzip2", "gzip", "pigz", "xz"})
#: A codec that passes on more than this for each byte it takes decompresses.
_GROWS = 1.05
#: What compresses on all CPUs: words, and the program in place of the stage's.
_COMPRESS: Mapping[str, tuple[str, str]] = {
    "bzip2": ("lbzip2, which writes the same format on all CPUs; or zstd -T0", "lbzip2"),
    "gzip": (
        "pigz, which writes the same format on all CPUs; or zstd -T0, which is faster",
        "pigz",
    ),
    "xz": ("xz -T0, which works on all CPUs; or zstd -T0, which is faster", "xz -T0"),
    "zstd": ("zstd -T0, which works on all CPUs", "zstd -T0"),
}
#: CPU seconds of what works on all CPUs, in terms of those of the program that it replaces, at its
#: best. Measured on one CPU with 20 MB of text: pigz -p1 took 0.70 of gzip -1, 0.85 of gzip -6 and
#: 0.87 of gzip -9; lbzip2 -n1 0.83 of bzip2.
OF_ONE_CPU: Mapping[str, float] = {"lbzip2": 0.8, "pigz": 0.7}
#: lbzip2 takes up to twice the CPU of bzip2 to decompress: so many CPUs do not make up for that
#: (20 MB of text took 2.5 s on two, in place of 1.1 s).
TOO_FEW = 2
#: What decompresses faster, by the command that a stage runs now: advice, and the command.
_DECOMPRESS: Mapping[str, tuple[str, str]] = {
    "bzip2": ("lbzip2, which decompresses on all CPUs", "lbzip2"),
    "gzip": (
        "a format that is faster to read, such as zstd, if you choose it. pigz does not decompress "
        "in parallel; rapidgzip does",
        "",
    ),
    "xz": (
        "xz -T0 (5.4 or newer), if the file has several blocks, as xz -T0 writes them; or a format "
        "that is faster to read, such as zstd",
        "xz -T0",
    ),
}
#: Filters that treat each line by itself and keep no sums: parts of their input can be treated
#: apart, and the results put together.
SPLITS = GREPS | {"cut", "sed", "tr"}
#: CPU seconds for each byte from which on it pays to divide their input: `parallel --pipe` takes
#: some 10 ns for a byte itself (measured), more than a plain grep.
SPLIT_PAYS = 25e-9
#: CPU seconds for each byte that `parallel --pipe` takes itself (measured).
SPLITTING = 10e-9
#: Another format is read in this share of the time: zstd for gzip, bzip2 or xz (measured: 0.2 to
#: 0.3).
OTHER_FORMAT = 0.25
#: An awk takes this share of a shell loop's CPU at most (measured: 0.01 to 0.05).
LOOP_IN_AWK = 0.05
#: A shell with a lower share of its stage's CPU starts what computes: its loop is not the cost.
SHELL_COMPUTES = 0.5


def faster(stage: Stage, words: Command | None, workers: int) -> tuple[str, str]:
    """What to try, in words, and the program to put in place of the stage's; both may be empty.

    `words` is its command, if that is known; `workers` is how many processes have a CPU each.
    """
    codec = SCRIPTS.get(stage.command, stage.command)
    if codec in _CODECS:
        if codec == "bzip2" and workers <= TOO_FEW and _expands(codec, stage, words):
            return "a format that is faster to read, such as zstd, if you choose it", ""
        return _codec(codec, stage, words)
    if stage.command == "xargs":
        if words and single_arguments([word.value for word in words.arguments])[1] > 1:
            return "", ""  # it has several, and other work had the CPUs
        return (
            f"several processes at a time (xargs -P {workers}, with an -n that leaves some for "
            "each), if CMD prints nothing, or a line at a time: what else they print at once is "
            "mixed in the middle of lines",
            "",
        )
    if stage.command in SPLITS:
        if stage.cpu_seconds < SPLIT_PAYS * bytes_in(stage):
            return "", ""
        return "; or ".join(_in_parts(stage, words)), ""
    if _is_loop(stage):
        return "a program in place of the loop: awk does the same for a fraction of the CPU", ""
    return "", ""


def _in_parts(stage: Stage, words: Command | None) -> Iterator[str]:
    """How several processes share the work of a stage that reads lines."""
    if words is None or takes_each_line(words):
        # not split --filter: what its filters write is mixed in the middle of lines
        only = "" if words else ", if CMD takes each line by itself"
        yield (
            "parts of its input at once (parallel --pipe -k --block 10M CMD, which keeps the order "
            f"of lines{only})"
        )
    if stage.command == "sed" and (words is None or split(Pipeline((words,)), 0)):
        only = "" if words else f", if B takes as long as A, and {SED_BY_LINE}"
        yield f"two stages for its work (sed -e A -e B is sed A | sed B{only})"


def less_cpu(stage: Stage, words: Command | None, workers: int, free: float) -> tuple[float, str]:
    """The share of a stage's CPU seconds that goes by what `faster` advises, and how that is known.

    The first arguments are those of `faster`; `free` is how many CPUs it can use.
    """
    if _is_loop(stage):
        return 1 - LOOP_IN_AWK, "its CPU seconds, but for the twentieth that awk takes"
    codec = SCRIPTS.get(stage.command, stage.command)
    in_parallel = codec == "bzip2" and workers > TOO_FEW
    if codec in _SLOW_TO_READ and not in_parallel and _expands(codec, stage, words):
        return (
            1 - OTHER_FORMAT,
            "three quarters of its CPU seconds: a format that is faster to read",
        )
    spread = 1 - 1 / free
    why = (
        f"its CPU seconds, less an even share on each of the {free:.1f} CPUs that the others leave"
    )
    if stage.command in SPLITS:
        own = min(1.0, SPLITTING * bytes_in(stage) / (stage.cpu_seconds or 1.0))
        return max(0.0, spread - own), f"{why}, and what dividing its input takes"
    return spread, why


def _expands(codec: str, stage: Stage, words: Command | None) -> bool:
    """Whether a codec decompresses."""
    if codec != stage.command:  # zcat, gunzip
        return True
    if words is None or words.program != codec:
        return bytes_out(stage) > _GROWS * bytes_in(stage)
    return _decompresses(word.value for word in words.arguments)


def _codec(codec: str, stage: Stage, words: Command | None) -> tuple[str, str]:
    known = words is not None and words.program == codec == stage.command
    expands = _expands(codec, stage, words)
    if expands and codec not in _SLOW_TO_READ:
        return "", ""
    options = [word.value for word in words.arguments] if words and known else []
    if words and options and not expands and (one := _on_one_cpu(words)):
        del options[one]
    advice, program = (_DECOMPRESS if expands else _COMPRESS).get(codec, ("", ""))
    if any(option.startswith(("-T", "--threads")) for option in options) or not advice:
        lower = "a format that is faster to read" if expands else "a lower level, such as -1"
        return f"{lower}; it cannot use more CPUs for this input", ""
    # other options have other meanings, or names of files in place
    flags = all(option[:1] == "-" and set(option[1:]) <= set("0123456789cdk") for option in options)
    return advice, program if flags else ""


def spread(case: Case, index: int, program: str, workers: int) -> tuple[Pipeline | None, bool]:
    """The pipeline with the work of a stage on several CPUs, and whether its lines may come in
    another order; None if that is not certain to do the same.

    `program` and `workers` are those of `faster`.
    """
    old, words, stage = case.pipeline, case.words(index), case.run.stages[index]
    if old is None or words is None:
        return None, False
    new: Command | None
    if program:
        one, given = _on_one_cpu(words), words.arguments
        if one:
            new = words.with_arguments(*given[: one.start], plain("-T0"), *given[one.stop :])
        else:
            new = words.with_program(program)
        return case.rewritten(index, new), False
    taken, behind = bytes_in(stage), old.commands[index + 1 : index + 2]
    if words.program == "xargs":
        sorted_again = any(map(orders_all_it_reads, behind))
        new = at_once(words, workers, taken, bytes_out(stage), stage.write_calls)
        return case.rewritten(index, new), not sorted_again
    if words.program not in SPLITS - GREPS:  # of binary data a grep says so for each part
        return None, False
    if two := split(old, index):
        return two, False
    names = () if words.program == "tr" else files(words)
    new = None if names is None else in_parts(words, names, workers, taken)
    return case.rewritten(index, new), False


def _on_one_cpu(words: Command) -> slice | None:
    """Which arguments say that a compressor is to use one CPU; None if none do."""
    values = [word.value for word in words.arguments]
    for at, value in enumerate(values):
        if value in ("-T1", "--threads=1"):
            return slice(at, at + 1)
        if values[at : at + 2] == ["-T", "1"]:
            return slice(at, at + 2)
    return None


def _decompresses(options: Iterable[str]) -> bool:
    return any(re.fullmatch(r"-[a-z0-9]*d[a-z0-9]*|--decompress", option) for option in options)


def unpacks(words: Command) -> str:
    """The command that makes again what `words` compresses; empty if it compresses nothing."""
    if words.program not in {*_COMPRESS, "pigz"}:
        return ""
    return "" if _decompresses(word.value for word in words.arguments) else f"{words.program} -dc"


def with_other_input(
    case: Case, index: int, new: Pipeline | None, cold: Sequence[Word] = ()
) -> Rewrite | None:
    """`new` in place of the run's pipeline. In it the stage at `index` reads a pipe in place of a
    file, or a file in place of a pipe; the time that it stores must not matter."""
    words = case.words(index)
    unpacked = unpacks(words) if words and stores_time(words) else ""
    if unpacked and case.graph.after[index]:
        return None  # what reads the compressed bytes gets others
    return case.attempt(new, unpacked=unpacked, cold=cold)


def _is_loop(stage: Stage) -> bool:
    """Whether it is a shell that computes itself, and does not mostly start what computes."""
    return is_shell(stage) and stage.own_cpu_seconds >= SHELL_COMPUTES * stage.cpu_seconds
