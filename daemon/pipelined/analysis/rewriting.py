# SPDX-License-Identifier: Apache-2.0
"""Other ways to write a pipeline.

Every function returns None unless the other way is certain to be what the advice says. Nothing is
run here, and no file is looked at.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pipelined.analysis.awk_text import program_of, without_flushes
from pipelined.analysis.by_line import is_within_line
from pipelined.analysis.finding import Rewrite
from pipelined.analysis.input_files import alike_from_file, by_file, is_file, sees_name
from pipelined.analysis.repeatable import is_repeatable
from pipelined.analysis.shell_text import Command, Pipeline, parse, plain
from pipelined.analysis.shell_words import ASSIGNMENT, Word, behind_wrapper
from pipelined.command_names import AWKS, FILTERS, GREPS, SCRIPTS, SHELLS
from pipelined.runs import Run

__all__ = [
    "COUNT",
    "FIRST",
    "OFFERED",
    "Script",
    "counted_by_grep",
    "counted_in_hash",
    "files",
    "flushing_less",
    "in_place_of_cat",
    "joined",
    "matching",
    "programs",
    "rewrite",
    "swapped",
    "with_buffer",
    "with_reader_in_front",
]

#: Programs that advice puts in the place of others, and that may have to be installed.
OFFERED = ("lbzip2", "parallel", "pigz")
#: Counts equal lines as ``uniq -c`` prints them, in no order.
COUNT = """awk '{ n[$0]++ } END { for (l in n) printf "%7d %s\\n", n[l], l }'"""
#: Passes on each line the first time that it comes.
FIRST = "awk '!n[$0]++'"

#: Short options that take a word, of programs whose other words are files that they read ...
_VALUED: Mapping[str, str] = {
    **dict.fromkeys(AWKS, "Fvf"),
    **dict.fromkeys(GREPS, "efmABCdD"),
    "bzip2": "",
    "cat": "",
    "cut": "bcdf",
    "gzip": "S",
    "head": "nc",
    "md5sum": "",
    "sed": "efl",
    "sha256sum": "",
    "sort": "koStT",
    "tac": "s",
    "tail": "nc",
    "wc": "",
    "xz": "FCMTS",
    "zcat": "",
    "zstd": "oDTM",
}
#: ... of which the first one is not a file unless one of these options is given.
_PROGRAM_OPTIONS: Mapping[str, str] = {
    **dict.fromkeys(AWKS, "f"),
    **dict.fromkeys((*GREPS, "sed"), "ef"),
}
#: Long options without a value, as far as they are known not to take the next word.
_FLAGS = re.compile(
    "--(count|decompress|extended-regexp|fixed-strings|ignore-case|invert-match|line-buffered|"
    "null-data|numeric-sort|only-matching|quiet|regexp-extended|reverse|silent|stable|stdout|"
    "unbuffered|unique|version-sort|word-regexp)"
)
#: Options with which they write their files, or walk through folders.
_ELSEWHERE: Mapping[str, frozenset[str]] = {
    "sed": frozenset("i"),
    **dict.fromkeys(GREPS, frozenset("rR")),
}
#: Programs that read no standard input.
_GENERATORS = frozenset({"df", "du", "find", "git", "journalctl", "ls", "lsof", "ps", "seq", "yes"})
#: Programs that treat several files as one, whatever they are called. But with these words a record
#: does not end with its line; at the end of a file it does all the same, where `cat` joins two.
_TAKES_MANY: Mapping[str, re.Pattern[str]] = {
    **dict.fromkeys(AWKS, re.compile(r"(\b|^-v)RS\b")),
    **dict.fromkeys(("cut", "sed", "sort"), re.compile("^-[A-Za-z]*z|^--(null|zero)")),
}
#: An awk program that is one action for each line.
_ONE_ACTION = re.compile(r"\{[^{}]*\}")
#: With these it sees which lines it was not given, or what a match is is set otherwise.
_LINES = re.compile(r"\b(IGNORECASE|NR|RS|RT)\b")


@dataclass(frozen=True, slots=True)
class Script:
    """What is known of the command of a run."""

    text: str
    """For a shell."""
    own_input: bool = False
    """Our standard input is a terminal or nothing: an unknown first command has an input of its
    own."""
    locale: str | None = None
    """By which programs sort, if it sets none; None if it is not known."""
    characters: str | None = None
    """The locale by which they tell characters apart; as `locale`."""
    awk: str = ""
    """The program that awk is; empty if it is not known."""
    missing: frozenset[str] = frozenset()
    """Of `OFFERED`, what is not installed, as far as that is known."""
    of_one_run: bool = field(default=False, compare=False)
    """It is the text of one run's pipeline, which may lie inside another."""

    @classmethod
    def of_arguments(cls, run: Run) -> Script | None:
        """From the command lines of a run's stages; None unless all are known."""
        lines = [stage.whole_arguments for stage in run.stages]
        text = " | ".join(map(_as_words, filter(None, lines)))
        return cls(text, of_one_run=True) if lines and all(lines) else None

    @classmethod
    def of_run(cls, run: Run, whole: Script | None) -> Script | None:
        """What is known of a run of the command `whole`: that, or its stages' command lines."""
        found = None if matching(whole, run) else cls.of_arguments(run)
        if found is None or whole is None:
            return found or whole
        # a script may set another locale, but these are of the host
        return replace(found, awk=whole.awk, missing=whole.missing)

    @property
    def standalone(self) -> bool:
        """Whether it does the same with no input."""
        found = parse(self.text)
        reads = _reads_stdin(found.commands[0]) if found else True
        return self.own_input if reads is None else not reads


def _as_words(line: str) -> str:
    """A recorded command line for a shell: its first word is a program, whatever it is called."""
    named = ASSIGNMENT.match(line)
    return f"'{named[0]}'{line[named.end() :]}" if named else line


def matching(script: Script | None, run: Run) -> Pipeline | None:
    """The script's pipeline, if its commands are the run's stages one by one."""
    found = parse(script.text) if script else None
    if script is None or found is None or len(found.commands) != len(run.stages):
        return None
    if run.nested and not script.of_one_run:
        return None
    if {stage.command for stage in run.stages} & set(SHELLS):
        return None  # a part that the shell runs itself
    edges = {(index, index + 1) for index in range(len(run.stages) - 1)}
    return found if programs(found) == programs(run) and set(run.edges) == edges else None


def programs(what: Pipeline | Run) -> tuple[str, ...]:
    """The programs of a pipeline or a run, by which a text and its runs are alike."""
    if isinstance(what, Pipeline):  # the kernel keeps 15 bytes of a name
        return tuple(SCRIPTS.get(one.program, one.program)[:15] for one in what.commands)
    return tuple(SCRIPTS.get(stage.command, stage.command) for stage in what.stages)


def rewrite(
    script: Script,
    old: Pipeline,
    new: Pipeline,
    *,
    reordered: bool = False,
    unpacked: str = "",
    cold: Sequence[Word] = (),
) -> Rewrite:
    """`new` in place of `old`.

    `reordered`, `unpacked` and `cold` are those of `Rewrite`. It is not repeatable if they need an
    input that is gone, if a program is missing, or if it is not certain that they can be run again.
    """
    repeatable = script.standalone and all(word.literal for word in cold)
    repeatable &= script.missing.isdisjoint(command.program for command in new.commands)
    return Rewrite(
        old=old.text,
        new=new.text,
        reordered=reordered,
        unpacked=unpacked,
        cold=tuple(word.text for word in cold),
        repeatable=repeatable and all(map(is_repeatable, old.commands)),
    )


def files(command: Command) -> tuple[Word, ...] | None:
    """The files that a command names to read; None if that is not known."""
    valued = _VALUED.get(command.program)
    if valued is None:
        return None
    names: list[Word] = []
    by_option = False
    words = iter(command.arguments)
    for word in words:
        value = word.value
        if value == "--":
            names.extend(words)
        elif value.startswith("--"):
            if "=" not in value and not _FLAGS.fullmatch(value):
                return None
            by_option |= value.startswith(("--file=", "--expression=", "--regexp="))
        elif value.startswith("-") and value != "-":
            at = next((i for i, letter in enumerate(value) if i and letter in valued), None)
            if set(value[1:at]) & _ELSEWHERE.get(command.program, frozenset()):
                return None
            if at is not None:
                by_option |= value[at] in _PROGRAM_OPTIONS.get(command.program, "")
                if at == len(value) - 1 and next(words, None) is None:
                    return None
        elif command.program in AWKS and names and re.match(r"[A-Za-z_]\w*=", value):
            return None  # a variable between the files
        elif command.program in ("sort", "tail") and value.startswith("+"):
            return None  # `sort +1` is a key of old
        else:
            names.append(word)
    if command.program in _PROGRAM_OPTIONS and not by_option:
        del names[:1]
    return tuple(names)


def in_place_of_cat(old: Pipeline) -> Pipeline | None:
    """Without the ``cat`` or ``dd`` in front: the second command opens the files."""
    if len(old.commands) < 2:
        return None
    first, second, *rest = old.commands
    if not alike_from_file(second):
        return None
    names: Sequence[Word] | None = None
    if first.source and not first.arguments and first.program == "cat":
        return _joined([second.with_source(first.source), *rest])
    if first.program == "cat" and not any(w.value.startswith("-") for w in first.arguments):
        names = first.arguments
    elif first.program == "dd" and all(w.value[:3] in ("if=", "bs=") for w in first.arguments):
        names = [
            Word(word.text[3:], word.value[3:], word.literal)
            for word in first.arguments
            if word.text.startswith("if=")
        ]
    if not names or first.source or first.start or first.assignments:
        return None
    if len(names) == 1 and names[0].literal:
        return _joined([second.with_source(names[0]), *rest])
    if files(second) != () or not (_as_one(second) or _is_grep_of_lines(second)):
        return None
    if not all(is_file(name, second.program) for name in names):
        return None
    arguments = (*second.arguments, *names)
    if second.program in GREPS:
        arguments = (plain("-h"), *arguments)
    return _joined([second.with_arguments(*arguments), *rest])


def with_reader_in_front(old: Pipeline, reader: str) -> tuple[Pipeline, tuple[Word, ...]] | None:
    """With a reader of its files before the first command, and these files.

    `reader` is ``cat`` or ``dd bs=32k``, which takes one file only.
    """
    first = old.commands[0]
    names = files(first) or ()
    if first.program not in FILTERS or any(word.value == "-" for word in names):
        return None
    if names and sees_name(first):
        return None
    if first.source and not names:
        if not alike_from_file(first):
            return None
        names = (first.source,)
    several = len(names) != 1 or not names[0].literal
    if not names or (several and (reader != "cat" or not _as_one(first))):
        return None
    given = [names[0]] if reader == "cat" else [Word(f"if={names[0].text}", "", True)]
    given = [*given, *names[1:]]
    words = tuple(map(plain, reader.split()))
    front = Command((), (*words, *given), None, 0, None)
    behind = first.with_source(None).with_arguments(*_without(first, names))
    return _joined([front, behind, *old.commands[1:]]), tuple(names)


def swapped(old: Pipeline, index: int) -> Pipeline | None:
    """With the command at `index` and the one after it in turned order."""
    one, other = old.commands[index : index + 2]
    names = files(one)
    if (
        names is None
        or files(other) != ()
        or len(names) > (index == 0)
        or not all(word.literal and is_file(word, other.program) for word in names)
    ):
        return None
    if names:
        other = other.with_arguments(*other.arguments, *names)
        one = one.with_arguments(*_without(one, names))
    elif one.source:
        one, other = one.with_source(None), other.with_source(one.source)
    return _joined([*old.commands[:index], other, one, *old.commands[index + 2 :]])


def counted_in_hash(old: Pipeline, index: int) -> Pipeline | None:
    """``sort | uniq -c`` as a count in a hash, then sorted; ``sort | uniq`` as its first lines."""
    sort, uniq = old.commands[index : index + 2]
    names = files(sort)
    options = [word.value for word in sort.arguments if word not in (names or ())]
    if names is None or sort.program != "sort" or uniq.program != "uniq" or options:
        return None
    if not all(is_file(name, "awk") for name in names):
        return None
    arguments = [word.value for word in uniq.arguments]
    before, behind = old.commands[:index], old.commands[index + 2 :]
    if arguments not in ([], ["-c"]):
        return None
    parsed = parse(COUNT if arguments else FIRST)
    assert parsed is not None
    (awk,) = parsed.commands
    awk = awk.with_arguments(*awk.arguments, *names).with_source(sort.source)
    alone = sort.with_arguments().with_source(None)
    if not arguments:
        return _joined([*before, awk, alone, *behind])
    after = [] if behind and behind[0].program == "sort" else [alone.with_arguments(plain("-k2"))]
    return _joined([*before, awk, *after, *behind])


def counted_by_grep(old: Pipeline, index: int) -> Pipeline | None:
    """``grep A FILE | wc -l`` as ``grep -c A FILE``."""
    grep, wc = old.commands[index : index + 2]
    names = files(grep)
    if [word.value for word in wc.arguments] != ["-l"] or names is None or len(names) > 1:
        return None
    if any(not word.literal for word in names):
        return None
    # -o prints more lines than it matches; -A, -B, -C and -c print others
    options = [word.value for word in grep.arguments if word.value.startswith("-")]
    if any(not re.fullmatch(r"-[EFGPainvwxhe]+", option) for option in options):
        return None
    counting = grep.with_arguments(plain("-c"), *grep.arguments)
    return _joined([*old.commands[:index], counting, *old.commands[index + 2 :]])


def joined(old: Pipeline, indexes: Sequence[int]) -> Pipeline | None:
    """Some commands in a row as one: several ``sed``, or ``grep`` and ``awk``."""
    chosen = [old.commands[index] for index in indexes]
    one = _joined_seds(chosen) if chosen[0].program == "sed" else _joined_grep(chosen)
    if one is None:
        return None
    return _joined([*old.commands[: indexes[0]], one, *old.commands[indexes[-1] + 1 :]])


def _joined_seds(chosen: Sequence[Command]) -> Command | None:
    first = chosen[0]
    scripts: list[Word] = []
    extended = set()
    names: tuple[Word, ...] = ()
    for command in chosen:
        read = files(command)
        if read is None or (read and command is not first) or command.assignments or command.start:
            return None
        names = names or read
        rest = list(_without(command, read))
        extended.add(bool(rest) and rest[0].value in ("-E", "-r"))
        rest = rest[1:] if rest and rest[0].value in ("-E", "-r") else rest
        if len(rest) % 2 == 0 and all(word.value == "-e" for word in rest[::2]):
            rest = rest[1::2]
        if not rest or any(not is_within_line(word.value) for word in rest):
            return None
        scripts += rest
    if len(extended) > 1:
        return None
    options = [plain("-E")] if extended == {True} else []
    words = [word for script in scripts for word in (plain("-e"), script)]
    return first.with_arguments(*options, *words, *names)


def _joined_grep(chosen: Sequence[Command]) -> Command | None:
    """``grep foo | awk '{ … }'``: a pattern of letters and digits is the same for both."""
    if len(chosen) != 2:
        return None
    grep, awk = chosen
    names = files(grep)
    if names is None or len(names) > 1 or files(awk) != () or not awk.arguments:
        return None
    words = _without(grep, names)
    program = program_of(awk)
    if program is None or program is not awk.arguments[-1]:
        return None
    if any(_LINES.search(word.value) for word in awk.arguments) or by_file(awk):
        return None
    if len(words) != 1 or not re.fullmatch(r"[\w ]+", words[0].value, re.ASCII):
        return None
    if not _ONE_ACTION.fullmatch(program.value):
        return None
    if not all(word.literal and is_file(word, awk.program) for word in names):
        return None
    selecting = f"/{words[0].value}/ {program.value}"
    text = Word(shlex.quote(selecting), selecting, True)
    merged = awk.with_arguments(*awk.arguments[:-1], text, *names)
    return merged.with_source(grep.source)


def with_buffer(command: Command, size: str) -> Command:
    """``sort`` with ``-S SIZE``, in place of a smaller one."""
    kept: list[Word] = []
    words = iter(command.arguments)
    for word in words:
        if word.value == "-S":
            next(words, None)
        elif not word.value.startswith(("-S", "--buffer-size=")):
            kept.append(word)
    return command.with_arguments(plain("-S"), plain(size), *kept)


def flushing_less(command: Command) -> Command | None:
    """Without what makes a program write each line at once."""
    if command.words[0].value == "stdbuf":
        behind = behind_wrapper([word.value for word in command.words])
        return replace(
            command, words=command.words[behind:], start=command.start - behind, written=None
        )
    if command.program in AWKS:
        return without_flushes(command)
    switch = {"grep": "--line-buffered", "sed": "-u"}.get(command.program)
    kept = [word for word in command.arguments if word.value != switch]
    return command.with_arguments(*kept) if len(kept) < len(command.arguments) else None


def _is_grep_of_lines(command: Command) -> bool:
    """Whether it is a grep that prints what matches, and no numbers or counts of each file."""
    options = (word.value for word in command.arguments if word.value.startswith("-"))
    return command.program in GREPS and all(
        re.fullmatch("-[EFGPaehiovwx]+", option) for option in options
    )


def _as_one(command: Command) -> bool:
    """Whether several files are to it as if they were one, if all of them end in a newline."""
    otherwise = _TAKES_MANY.get(command.program)
    if otherwise is None or by_file(command):
        return False
    return not any(otherwise.search(word.value) for word in command.arguments)


def _reads_stdin(command: Command) -> bool | None:
    """Whether it reads its standard input; None if that is not known."""
    if command.source is not None or command.program in _GENERATORS:
        return False
    values = [word.value for word in command.arguments]
    if command.program == "tar":
        return not values or "c" not in values[0]
    if command.program == "dd":
        return not any(value.startswith("if=") for value in values)
    names = files(command)
    return None if names is None else not names or any(word.value == "-" for word in names)


def _without(command: Command, names: Iterable[Word]) -> tuple[Word, ...]:
    """The arguments that are none of these."""
    gone = [id(word) for word in names]
    return tuple(word for word in command.arguments if id(word) not in gone)


def _joined(commands: Sequence[Command]) -> Pipeline:
    return Pipeline(tuple(commands))
