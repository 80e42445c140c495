# SPDX-License-Identifier: Apache-2.0
"""Numbers and states in words, the same in the report, the pages and `top`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pipelined.states import STATE_TABLE

if TYPE_CHECKING:  # whoever prints one line needs no runs
    from pipelined.runs import Flow

__all__ = [
    "STATE_WORDS",
    "TELLING",
    "about",
    "against_usual",
    "at_port",
    "cpu_share",
    "data_size",
    "duration",
    "expected",
    "input_size",
    "listing",
    "mean_size",
    "output_size",
    "percent",
    "printable",
    "run_input",
    "saves",
    "step_words",
    "times_usual",
    "valid_text",
]

#: A bound above this share of a run leaves all open.
TELLING = 0.9
#: A bound of more than so many times what is likely says nothing beside it.
TIGHT = 2.0
#: A smaller share of a run is little: of more CPUs, for example, where other work uses them all.
LITTLE = 0.02

#: What stands for a byte that is not UTF-8 (PEP 383).
_BYTE = re.compile("[\udc80-\udcff]")

#: Each state in words, as every view prints it.
STATE_WORDS: Mapping[str, str] = {state.name: state.words for state in STATE_TABLE}


def percent(value: float) -> str:
    """A share as text.

    >>> percent(0.974), percent(0.002), percent(0.0)
    ('97 %', '<1 %', '0 %')
    """
    if 0 < value < 0.005:
        return "<1 %"
    return f"{value * 100:.0f} %"


def at_port(ports: Iterable[int | None]) -> str:
    """What stands behind the network if all that is known of the peers is one port, with a space.

    >>> at_port([443, None]), at_port([443, 53]), at_port([None])
    ('(port 443) ', '', '')
    """
    known = {port for port in ports if port is not None}
    return f"(port {known.pop()}) " if len(known) == 1 else ""


def cpu_share(value: float, several: bool) -> str:
    """What a stage used of a CPU, as a share of the run; `several`: by several threads at once.

    >>> cpu_share(0.97, False), cpu_share(0.97, True), cpu_share(1.46, False)
    ('97 %', '97 % of one CPU', '146 % of one CPU')
    """
    return percent(value) + (" of one CPU" if several or value >= 1.005 else "")


def duration(seconds: float) -> str:
    """Seconds as text, in two or three digits.

    >>> duration(0.00034), duration(0.012), duration(0.58), duration(5.6), duration(200)
    ('340 µs', '12 ms', '0.58 s', '5.6 s', '3 min 20 s')
    """
    if seconds < 0.0000005:
        return "0 s"
    if seconds < 0.0009995:
        return f"{max(1, round(seconds * 1e6))} µs"
    if seconds < 0.0995:
        millis = seconds * 1e3
        return f"{millis:.1f} ms" if millis < 9.95 else f"{millis:.0f} ms"
    if seconds < 0.995:
        return f"{seconds:.2f} s"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, size, smaller, step in (("d", 86400, "h", 3600), ("h", 3600, "min", 60)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // step} {smaller}"
    return f"{whole // 60} min {whole % 60} s"


def about(seconds: float | None, exact: bool) -> str:
    """A duration; marked if it is within a factor of 2.

    >>> about(5.6, True), about(5.6, False), about(None, False)
    ('5.6 s', '≈ 5.6 s', '-')
    """
    if seconds is None:
        return "-"
    return duration(seconds) if exact else f"≈ {duration(seconds)}"


def expected(seconds: float) -> str:
    """What is expected to be saved; nothing if that is not known.

    >>> expected(5.6), expected(0)
    ('~ 5.6 s', '')
    """
    return f"~ {duration(seconds)}" if seconds else ""


def saves(likely: float | None, most: float | None, wall: float) -> str:
    """The sentence on what is likely to be saved of `wall` seconds, and at most.

    A bound that leaves nearly all open says nothing; beside what is likely, one that is far from it
    says nothing either. Empty if neither is known.

    >>> saves(4.1, 5.6, 9.0), saves(4.1, 8.5, 9.0), saves(1.9, 5.6, 9.0)
    ('Likely saves 4.1 s of 9.0 s, at most 5.6 s', 'Likely saves 4.1 s of 9.0 s', \
'Likely saves 1.9 s of 9.0 s')
    >>> saves(None, 5.6, 9.0), saves(None, 8.5, 9.0)
    ('Saves at most 5.6 s of 9.0 s', '')
    >>> saves(0.03, 5.6, 9.0)
    'Likely saves little of 9.0 s'
    """
    if most is not None and most > TELLING * wall:
        most = None
    if likely is None:
        return "" if most is None else f"Saves at most {duration(most)} of {duration(wall)}"
    if likely < LITTLE * wall:
        return f"Likely saves little of {duration(wall)}"
    text = f"Likely saves {duration(min(likely, wall))} of {duration(wall)}"
    if most is None or most > TIGHT * likely or duration(most) == duration(likely):
        return text
    return f"{text}, at most {duration(most)}"


def step_words(seconds: float) -> str:
    """Whole hours or days in words.

    >>> step_words(3600.0), step_words(3 * 3600.0), step_words(86400.0), step_words(7 * 86400.0)
    ('an hour', '3 hours', 'a day', '7 days')
    """
    one, many, count = (
        ("a day", "days", seconds / 86400)
        if seconds >= 86400
        else ("an hour", "hours", seconds / 3600)
    )
    return one if count == 1 else f"{count:g} {many}"


def times_usual(ratio: float, slower: bool | None) -> str:
    """How many times as long as usual a run took, with a sign and a word if that is far from it.

    >>> times_usual(1.04, False), times_usual(2.3, True), times_usual(12.3, True)
    ('1.0 × usual', '▲ slower: 2.3 × usual', '▲ slower: 12 × usual')
    """
    return f"▲ slower: {_times(ratio)} usual" if slower else f"{_times(ratio)} usual"


def against_usual(
    ratio: float | None, slower: bool | None, other_input: float | None, any_input: float | None
) -> str:
    """As `times_usual`, behind how many times the usual input a run had if that is far from it.

    Then `ratio` is by runs of about its input; without one, `any_input` by all. Empty: not known.

    >>> against_usual(1.04, False, None, 1.1), against_usual(None, None, None, None)
    ('1.0 × usual', '')
    >>> against_usual(None, None, 6.0, 5.1)
    '6.0 × the usual input in 5.1 × the usual time'
    >>> against_usual(None, None, 0.0002, 0.3)
    '<0.1 × the usual input in 0.3 × the usual time'
    >>> against_usual(2.3, True, 6.0, 14.0)
    '6.0 × the usual input, for that ▲ slower: 2.3 × usual'
    """
    compared = "" if ratio is None else times_usual(ratio, slower)
    if other_input is None:
        return compared
    words = f"{_times(other_input)} the usual input"
    if compared:
        return f"{words}, for that {compared}"
    return words if any_input is None else f"{words} in {_times(any_input)} the usual time"


def _times(ratio: float) -> str:
    if ratio < 0.05:
        return "<0.1 ×"
    return f"{ratio:.1f} ×" if ratio < 9.95 else f"{ratio:,.0f} ×"


def data_size(count: float) -> str:
    """Bytes as text, in decimal units.

    >>> data_size(999), data_size(8_400_000), data_size(0)
    ('999 B', '8.4 MB', '0 B')
    """
    return _scaled(count, 1000, ("B", "kB", "MB", "GB", "TB", "PB"))


def run_input(size: int | None, exact: bool) -> str:
    """What a run took in; ``-`` if it is not known.

    >>> run_input(8_400_000, True), run_input(8_400_000, False), run_input(None, True)
    ('8.4 MB', '≤ 8.4 MB', '-')
    """
    if size is None:
        return "-"
    return data_size(size) if exact or not size else f"≤ {data_size(size)}"


def input_size(flow: Flow) -> str:
    """What a stage took in: through its pipes, or else from files, sockets and terminals.

    >>> from pipelined.runs import Flow
    >>> [input_size(Flow(pipes, 9000, 50, 0, exact=False)) for pipes in (9000, None)]
    ['≤ 9.0 kB', 'files 50 B']
    """
    return _through(flow.pipe_in, flow.input_files, flow.exact, flow.input_is_bound)


def output_size(flow: Flow) -> str:
    """What a stage passed on: through its pipes, or else to files, sockets and terminals.

    ``?`` if it is not known.

    >>> from pipelined.runs import Flow
    >>> [output_size(Flow(0, None, 50, files, exact=False)) for files in (1200, None)]
    ['files 1.2 kB', '?']
    """
    return _through(flow.pipe_out, flow.output_files, flow.exact, flow.output_is_bound)


def _through(pipes: int | None, files: int | None, exact: bool, files_at_most: bool) -> str:
    """`files_at_most`: what is known of files is the most that it can be."""
    if pipes is None:
        at_most = "≤ " if files_at_most and files else ""
        return "?" if files is None else f"files {at_most}{data_size(files)}"
    return data_size(pipes) if exact or not pipes else f"≤ {data_size(pipes)}"


def mean_size(count: float, calls: int) -> str:
    """Bytes per call, in binary units as block sizes are; ``-`` without calls.

    >>> mean_size(1 << 20, 32), mean_size(0, 0)
    ('32 KiB', '-')
    """
    if calls <= 0:
        return "-"
    return _scaled(count / calls, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def _scaled(value: float, base: int, units: Sequence[str]) -> str:
    step = 0
    while round(value) >= base and step < len(units) - 1:
        value /= base
        step += 1
    tenths = f"{value:.1f}"
    whole = value >= 99.95 or (base == 1024 and (value >= 9.95 or tenths.endswith(".0")))
    return f"{value:.0f} {units[step]}" if step == 0 or whole else f"{tenths} {units[step]}"


def listing(words: Sequence[str]) -> str:
    """Words as a list in a sentence.

    >>> listing(["cat", "sed", "awk"])
    'cat, sed and awk'
    """
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def printable(name: str, ascii_only: bool = False) -> str:
    """A name in which each character that a terminal should not get is a ``?``.

    Command names come from other users' processes and may hold anything.

    >>> printable("evil\\x1b[2J"), printable("größe", ascii_only=True)
    ('evil?[2J', 'gr??e')
    """
    return "".join(
        character if character.isprintable() and not (ascii_only and ord(character) > 126) else "?"
        for character in name
    )


def valid_text(value: str) -> str:
    """A name as valid Unicode: one odd name must not make a scrape unreadable, or fail a database.

    What is decoded as names of files and arguments are (PEP 383) may have surrogates, for bytes
    that are not UTF-8. They become what they are in the name of a command.

    >>> valid_text("caf\\udce9"), valid_text("caf\\ud8e9")
    ('caf\\\\xe9', 'caf\\\\ud8e9')
    """
    if value.isascii():
        return value
    named = _BYTE.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:x}", value)
    return named.encode("utf-8", "backslashreplace").decode()
