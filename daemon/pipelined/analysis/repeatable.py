# SPDX-License-Identifier: Apache-2.0
"""Which commands can be run again and again: they only read, and print.

A command to try is run a dozen times by whoever pastes it. It must not delete, send or change
anything, so a command passes only if its program and its arguments are known to do none of that.
It may be another user's command line, so the program has to be the host's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from pipelined.analysis.awk_text import only_prints, program_at
from pipelined.analysis.dd import input_file, is_device
from pipelined.analysis.shell_text import Command
from pipelined.analysis.xargs_options import split_options
from pipelined.command_names import AWKS

__all__ = ["is_repeatable", "reads_by_name"]

#: What may stand in front of the arguments: the name of a program that PATH finds, or one of the
#: host's own, options of `nice` and the like, and variables that do not change what is run.
_HOSTS_OWN = re.compile(
    r"(/usr)?/bin/[\w.+-]+|[\w.+-]+|(LC_\w+|LANG|TZ)=[\w.@:+-]*|TMPDIR=[\w./+-]*", re.ASCII
)

#: Programs that only read and print, whatever their arguments are.
_READS = re.compile(
    "base64|basename|bzcat|cat|cksum|column|comm|cut|df|dirname|du|echo|egrep|expand|fgrep|file|fold|"
    "grep|head|jq|join|ls|lsof|md5sum|nl|od|paste|printf|ps|rev|seq|sha1sum|sha256sum|sha512sum|"
    "stat|strings|tac|tail|tr|wc|xzcat|zcat|zgrep"
)
#: Subcommands of git that only read.
_GIT = frozenset({"cat-file", "diff", "grep", "log", "ls-files", "rev-list", "show"})
#: Actions of find that write, run or ask.
_FIND_ACTS = re.compile("-(delete|exec|execdir|fls|fprint.*|ok|okdir)")
#: Options with which zstd writes a file, or deletes the one that it reads, even with -c.
_ACTS_BESIDE = re.compile("-[^-]*o|--o|--rm")
#: Commands of sed that neither write files nor run commands: s/A/B/g, /A/d, 2,5p and their like.
_SED_READS = re.compile(
    r"(([0-9$]+|/(\\.|[^/\\])+/)(,([0-9$]+|/(\\.|[^/\\])+/))?)?!?"
    r"([dpqD=]|[sy]([^\w\s\\])(\\.|(?!\8)[^\\])*\8(\\.|(?!\8)[^\\])*\8[gIp0-9]*)"
)


def is_repeatable(command: Command) -> bool:
    """Whether it is certain that running it again changes nothing."""
    hosts_own = all(_HOSTS_OWN.fullmatch(word.value) for word in command.front)
    return hosts_own and reads_by_name(command) and not _moves_on(command)


def reads_by_name(command: Command) -> bool:
    """Whether a program of this name, with these arguments, only reads and prints."""
    values = [word.value for word in command.arguments]
    check = _CHECKS.get(command.program)
    return _only_reads(command.program) or (check is not None and check(values))


def _moves_on(command: Command) -> bool:
    """Whether it reads a device, as far as that is certain: a tape is somewhere else then."""
    named = {"cat": command.arguments, "dd": input_file(command)}.get(command.program, ())
    return any(is_device(word.value) for word in (*named, command.source) if word)


def _only_reads(program: str) -> bool:
    return _READS.fullmatch(program) is not None


def _awk(values: Sequence[str]) -> bool:
    at = program_at(values)
    return at is not None and only_prints(values[at])


def _codec(values: Sequence[str]) -> bool:
    """They replace the files that they are given, unless they write to their output."""
    flags = [
        value for value in values if re.fullmatch("-[a-zA-Z0-9]+|--(decompress|stdout)", value)
    ]
    # behind -S and -D a name goes on
    to_output = any(re.match("-[^-DS]*c|--stdout", flag) for flag in flags)
    return len(flags) == len(values) or (to_output and not any(map(_ACTS_BESIDE.match, values)))


def _zstdcat(values: Sequence[str]) -> bool:
    return _codec(("-c", *values))


def _dd(values: Sequence[str]) -> bool:
    return not any(value.startswith("of=") for value in values)


def _find(values: Sequence[str]) -> bool:
    acts = [at for at, value in enumerate(values) if _FIND_ACTS.fullmatch(value)]
    return all(
        values[at] in ("-exec", "-execdir") and any(map(_only_reads, values[at + 1 : at + 2]))
        for at in acts
    )


def _git(values: Sequence[str]) -> bool:
    # -O of git grep starts a pager
    acts = any(re.match("-[a-zA-Z]*O|--op|.*output", value) for value in values)
    return bool(values) and values[0] in _GIT and not acts


def _parallel(values: Sequence[str]) -> bool:
    at = 2 if values[:1] == ["-j"] else 1 if re.match("-j", "".join(values[:1])) else 0
    command = values[at:]
    # a shell runs it: ">" would be what it is there
    harmless = all(re.fullmatch(r"[\w./,@%+={}-]+", word, re.ASCII) for word in command)
    return bool(command) and _only_reads(command[0]) and harmless


def _sed(values: Sequence[str]) -> bool:
    scripts, operands = list[str](), list[str]()
    words = iter(values)
    for value in words:
        if found := re.fullmatch("(?:-[nErsuz]*e|--expression=?)(.*)", value, re.DOTALL):
            scripts.append(found[1] or next(words, ""))
        elif not value.startswith("-"):
            operands.append(value)
        elif not re.fullmatch("-[nErsuz]+", value):
            return False
    scripts = scripts or operands[:1]
    return bool(scripts) and all(map(_SED_READS.fullmatch, scripts))


def _sort(values: Sequence[str]) -> bool:
    """GNU programs take the beginning of a long option for it: --o is --output."""
    return not any(re.match("-[a-zA-Z]*o|--o|--co", value) for value in values)


def _tar(values: Sequence[str]) -> bool:
    """``tar c DIR`` and ``tar cf - DIR``."""
    mode = re.fullmatch("-?c[vz]*(f?)[vz]*", values[0]) if values else None
    plain = not any(re.match("-|--", value) for value in values[1:] if value != "-")
    return mode is not None and plain and (not mode[1] or values[1:2] == ["-"])


def _uniq(values: Sequence[str]) -> bool:
    return all(re.fullmatch("-[a-zA-Z]+", value) for value in values)


def _xargs(values: Sequence[str]) -> bool:
    found = split_options(values)
    return found is not None and all(map(_only_reads, values[found[1] :][:1]))


_CHECKS: Mapping[str, Callable[[Sequence[str]], bool]] = {
    **dict.fromkeys(AWKS, _awk),
    **dict.fromkeys(("bunzip2", "bzip2", "gunzip", "gzip", "lbzip2", "pigz"), _codec),
    **dict.fromkeys(("unxz", "xz", "zstd"), _codec),
    "dd": _dd,
    "find": _find,
    "git": _git,
    "parallel": _parallel,
    "sed": _sed,
    "sort": _sort,
    "tar": _tar,
    "uniq": _uniq,
    "xargs": _xargs,
    "zstdcat": _zstdcat,
}
