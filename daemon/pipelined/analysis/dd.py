# SPDX-License-Identifier: Apache-2.0
"""``dd`` with other blocks, where it copies the same whatever they are."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pipelined.analysis.shell_text import Command, plain
from pipelined.analysis.shell_words import Word

__all__ = [
    "IN_BLOCKS",
    "copies_alike",
    "in_smaller_blocks",
    "input_file",
    "is_device",
    "with_blocks",
    "with_larger_blocks",
]

#: What other blocks change as well, for a sentence that ends with ``bs=64k``.
IN_BLOCKS = "; count=, skip= and seek= are in blocks"
#: Of what is below /dev these two give the same to whoever reads, and /dev/shm has files.
_DEVICE = re.compile(r"/dev/(?!(null|zero)$|shm/)")
#: Operands of which what is copied does not depend. With ``count``, ``skip`` and ``seek`` blocks
#: are counted, and with ``cbs`` and ``of`` or flags more is done than copying to a pipe.
_OPERANDS = frozenset({"bs", "conv", "ibs", "if", "iflag", "obs", "status"})
#: Values of ``conv`` that treat each byte by itself. ``sync`` fills each block up, ``swab`` turns
#: each two bytes of one, and with ``noerror`` a block that cannot be read is lost.
_BYTE_BY_BYTE = frozenset({"lcase", "ucase"})
_BLOCKS = ("bs", "ibs", "obs")
_SIZE = re.compile(r"([0-9]+)(|[cwb]|[kKMG](?:i?B)?)")
_UNITS: Mapping[str, int] = {"": 1, "c": 1, "w": 2, "b": 512} | {
    letter + more: base**power
    for letter, power in (("k", 1), ("K", 1), ("M", 2), ("G", 3))
    for more, base in (("", 1024), ("B", 1000), ("iB", 1024))
}


def in_smaller_blocks(size: str) -> str:
    """The operands of ``dd`` for smaller blocks, with what they change as well: a tape gives no
    part of its block.

    >>> in_smaller_blocks("32k")
    'bs=32k; count=, skip= and seek= are in blocks; from a tape write ibs=OLD obs=32k'
    """
    return f"bs={size}{IN_BLOCKS}; from a tape write ibs=OLD obs={size}"


def with_blocks(command: Command, size: str) -> Command | None:
    """``dd`` with `size` in place of each larger block; None if that may copy something else.

    Its output is the same bytes, whatever they are read and written in: ``conv=ucase`` converts
    what is in the buffer.

    >>> from pipelined.analysis.shell_text import parse
    >>> parsed = parse("dd ibs=64k obs=16M | dd bs=1M conv=sync")
    >>> [found and found.text for found in (with_blocks(one, "128k") for one in parsed.commands)]
    ['dd ibs=64k obs=128k', None]
    """
    if not copies_alike(command):
        return None
    changed, words = False, list[Word]()
    for word in command.arguments:
        name, _, value = word.value.partition("=")
        larger = name in _BLOCKS and _bytes(value) > _bytes(size)
        words.append(plain(f"{name}={size}") if larger else word)
        changed |= larger
    return command.with_arguments(*words) if changed else None


def with_larger_blocks(command: Command, size: str) -> Command | None:
    """``dd`` with ``bs=SIZE`` in place of smaller blocks; None if that may copy something else.

    >>> from pipelined.analysis.shell_text import parse
    >>> parsed = parse("dd if=f | dd ibs=1k obs=512 | dd bs=1k count=9 | dd bs=1M")
    >>> found = [with_larger_blocks(one, "64k") for one in parsed.commands]
    >>> [one and one.text for one in found]
    ['dd if=f bs=64k', 'dd bs=64k', None, None]
    """
    if not copies_alike(command):
        return None
    kept = []
    for word in command.arguments:
        name, _, value = word.value.partition("=")
        if name not in _BLOCKS:
            kept.append(word)
        elif not 0 < _bytes(value) < _bytes(size):
            return None
    return command.with_arguments(*kept, plain(f"bs={size}"))


def copies_alike(command: Command) -> bool:
    """Whether it is a ``dd`` that copies the same with other blocks."""
    if command.program != "dd":
        return False
    for word in command.arguments:
        name, _, value = word.value.partition("=")
        if name not in _OPERANDS or not value:
            return False
        if name == "conv" and not _BYTE_BY_BYTE.issuperset(value.split(",")):
            return False
        if name == "iflag" and value != "fullblock":
            return False
    return not any(is_device(word.value) for word in (*input_file(command), command.source) if word)


def input_file(command: Command) -> tuple[Word, ...]:
    """The file that ``dd`` reads; none if it reads its standard input.

    >>> from pipelined.analysis.shell_text import parse
    >>> input_file(parse("dd bs=1M if='my file'").commands[0])[0].text
    "'my file'"
    """
    named = [word for word in command.arguments if word.text.startswith("if=")]
    return tuple(Word(word.text[3:], word.value[3:], word.literal) for word in named[-1:])


def is_device(name: str) -> bool:
    """Whether a file of this name is a device: what it gives may depend on how much is asked for,
    and on what was read before."""
    return _DEVICE.match(name) is not None


def _bytes(value: str) -> int:
    """How large a block is; 0 if that is not known."""
    found = _SIZE.fullmatch(value)
    return int(found[1]) * _UNITS[found[2]] if found else 0
