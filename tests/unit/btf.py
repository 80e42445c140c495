# SPDX-License-Identifier: Apache-2.0
"""The types in the .BTF section of the built BPF object.

The kernel's Documentation/bpf/btf.rst describes the format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OBJECT = Path(__file__).parents[2] / "daemon/pipelined/bpf/pipelined.bpf.o"

_INT, _POINTER, _ARRAY, _STRUCT, _UNION, _ENUM = 1, 2, 3, 4, 5, 6
_TYPEDEF, _VOLATILE, _CONST, _RESTRICT = 8, 9, 10, 11
_VARIABLE, _SECTION = 14, 15

#: Bytes after the 12 of each type, by kind: for each of its members, and besides.
_TRAILERS = {
    _INT: (0, 4),
    _ARRAY: (0, 12),
    _STRUCT: (12, 0),
    _UNION: (12, 0),
    _ENUM: (8, 0),
    13: (8, 0),  # function prototype
    _VARIABLE: (0, 4),
    _SECTION: (12, 0),
    17: (0, 4),  # declaration tag
    19: (12, 0),  # enum of 64 bits
}


@dataclass(frozen=True)
class _Type:
    name: str
    kind: int
    size_or_type: int
    members: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Map:
    """The definition of a map; 0 where it has none."""

    key_size: int
    value_size: int
    max_entries: int


class Btf:
    """All types of one object."""

    def __init__(self, path: Path = OBJECT) -> None:
        raw = _section(path.read_bytes(), b".BTF")
        header, types, types_size, strings = struct.unpack_from("=4xIIII", raw)
        self._strings = raw[header + strings :]
        self._types = [_Type("void", 0, 0, ())]
        self._types += self._parse(raw[header + types : header + types + types_size])
        self._by_name = {(t.kind, t.name): t for t in self._types}

    def _parse(self, raw: bytes) -> Iterator[_Type]:
        at = 0
        while at < len(raw):
            name, info, size_or_type = struct.unpack_from("=III", raw, at)
            kind, count = info >> 24 & 0x1F, info & 0xFFFF
            each, besides = _TRAILERS.get(kind, (0, 0))
            trailer = raw[at + 12 : at + 12 + each * count + besides]
            at += 12 + len(trailer)
            width = each or besides
            members = tuple(struct.iter_unpack(f"={width // 4}I", trailer)) if width else ()
            yield _Type(self._name(name), kind, size_or_type, members)

    def _name(self, at: int) -> str:
        return self._strings[at : self._strings.index(b"\0", at)].decode()

    def fields(self, name: str) -> dict[str, tuple[int, int]]:
        """Path of each plain field of a structure -> its offset and size; arrays have `[]`."""
        return dict(self._fields(self._by_name[_STRUCT, name]))

    def _fields(self, of: _Type, prefix: str = "", base: int = 0) -> Iterator[Any]:
        for name, kind, bits in of.members:
            yield from self._field(prefix + self._name(name), kind, base + bits // 8)

    def _field(self, path: str, kind: int, at: int) -> Iterator[Any]:
        found = self._resolve(kind)
        if found.kind == _STRUCT:
            yield from self._fields(found, f"{path}.", at)
        elif found.kind == _ARRAY and self._element(found).kind == _STRUCT:
            yield f"{path}[]", (at, self.size(kind))
            yield from self._fields(self._element(found), f"{path}[].", 0)
        else:
            yield path, (at, self.size(kind))

    def _element(self, array: _Type) -> _Type:
        return self._resolve(array.members[0][0])

    def _resolve(self, index: int) -> _Type:
        found = self._types[index]
        while found.kind in (_TYPEDEF, _VOLATILE, _CONST, _RESTRICT):
            found = self._types[found.size_or_type]
        return found

    def size(self, index: int) -> int:
        """Bytes of the type with this number."""
        found = self._resolve(index)
        if found.kind == _POINTER:
            return 8
        if found.kind == _ARRAY:
            element, _, count = found.members[0]
            return count * self.size(element)
        return found.size_or_type

    def maps(self) -> dict[str, Map]:
        """The maps that the object defines."""
        found = {}
        for variable, _, _ in self._by_name[_SECTION, ".maps"].members:
            name = self._types[variable].name
            definition = self._resolve(self._types[variable].size_or_type)
            members = {self._name(at): kind for at, kind, _ in definition.members}
            key_size, value_size = (
                self.size(self._types[members[part]].size_or_type) if part in members else 0
                for part in ("key", "value")
            )
            entries = 0
            if "max_entries" in members:
                # libbpf's convention: a pointer to an array with this number of members
                array = self._types[self._types[members["max_entries"]].size_or_type]
                entries = array.members[0][2]
            found[name] = Map(key_size, value_size, entries)
        return found


def _section(elf: bytes, wanted: bytes) -> bytes:
    """A section of an ELF file of 64 bits."""
    (table,) = struct.unpack_from("=Q", elf, 0x28)
    entry_size, count, names_at = struct.unpack_from("=HHH", elf, 0x3A)
    entries = [
        struct.unpack_from("=IIQQQQ", elf, table + number * entry_size) for number in range(count)
    ]
    names = entries[names_at][4]
    for name, _, _, _, offset, size in entries:
        begin = names + name
        if elf[begin : elf.index(b"\0", begin)] == wanted:
            return elf[offset : offset + size]
    raise LookupError(f"no section {wanted.decode()}")
