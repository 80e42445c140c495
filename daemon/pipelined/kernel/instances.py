# SPDX-License-Identifier: Apache-2.0
"""Variables that identify the instance of a job, as the kernel side has found them at execs.

Stages and tasks refer to a record by its number, a keyed hash of what is in it: the same number
never has another meaning. The kernel side forgets old records; what a stage has shown is kept here.
"""

from __future__ import annotations

import secrets
import struct
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from ctypes import sizeof

from pipelined.kernel import layout
from pipelined.kernel.layout import Control, offset_of
from pipelined.kernel.loader import Loaded
from pipelined.records.stage import StageRecord

__all__ = ["Instances", "decode", "encode"]

#: Records that are kept although no live stage refers to them, as far as this module knows.
_KEPT = 256

#: A list of vendors' entries with commas between them: what is cut off ends with a whole one.
_LIST = "TRACESTATE"
_CUT = "…"
#: The kernel side's texts end with a zero.
_MOST_BYTES = layout.INSTANCE_TEXT - 1

_AT = offset_of(layout.WrittenTask, "task.instance")
_OF_TASK = struct.Struct(f"={_AT}xQ{sizeof(layout.WrittenTask) - _AT - 8}x")


class Instances:
    """The records of one loaded object. For one thread at a time."""

    def __init__(self, loaded: Loaded, names: Sequence[str], control: Control) -> None:
        """`names` are the variables in the order in which the kernel side knows them."""
        self._loaded = loaded
        self._names = names
        self._control = control
        control.secret[:] = [secrets.randbits(64) for _ in range(2)]
        self._known: OrderedDict[int, Mapping[str, str]] = OrderedDict()
        self.lost = 0
        """Records that stages referred to and that were forgotten before."""

    def variables(self, number: int) -> Mapping[str, str]:
        """Values by name of the record that a stage refers to; empty if that was forgotten."""
        known = self._known.pop(number, None)
        if known is None:
            known = self._read(number)
            if known is None:
                self.lost += 1
                known = {}
        self._known[number] = known
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return known

    def identify(self, stage: StageRecord, before: StageRecord | None) -> None:
        """Give a stage its variables; `before` is the stage that had its index before, if any."""
        if not stage.instance:
            return
        if before and before.instance == stage.instance:
            stage.variables = before.variables
        else:
            stage.variables = self.variables(stage.instance)

    def referred(
        self, stages: Iterable[StageRecord], written_tasks: bytes
    ) -> dict[int, Mapping[str, str]]:
        """What stages and records of `struct written_task` refer to, as far as it is known.

        If that is too much for the kernel side, what comes first.
        """
        of_stages: dict[int, Mapping[str, str] | None] = {}
        for stage in stages:
            of_stages[stage.instance] = of_stages.get(stage.instance) or stage.variables
        found: dict[int, Mapping[str, str]] = {}
        in_tasks = (number for (number,) in _OF_TASK.iter_unpack(written_tasks))
        for number in dict.fromkeys((*of_stages, *in_tasks)):
            known = of_stages.get(number) or self._known.get(number)
            if number and not known:
                known = self._read(number)
            if known and len(found) < layout.INSTANCES:
                found[number] = known
        return found

    def restore(self, instances: Mapping[int, Mapping[str, str]]) -> None:
        """Enter what an earlier daemon knew (`referred`)."""
        for slot, (number, variables) in enumerate(instances.items()):
            key = struct.pack("=Q", number)
            self._loaded.put("instances", key, encode(variables, self._names))
            self._loaded.put("entered_instances", struct.pack("=I", slot), key)
        self._control.instances = len(instances)

    def _read(self, number: int) -> Mapping[str, str] | None:
        raw = self._loaded.get("instances", struct.pack("=Q", number), sizeof(layout.Instance))
        return None if raw is None else decode(raw, self._names)


def decode(raw: bytes, names: Sequence[str]) -> dict[str, str]:
    """The values of a record by their names.

    One that was cut off ends with `…`; a trace's state with a whole entry.
    """
    record = layout.Instance.from_buffer_copy(raw)
    found = {}
    for value in record.values[: record.count]:
        name = names[value.variable]
        if value.length < layout.INSTANCE_TEXT:
            found[name] = value.text.decode(errors="backslashreplace")
        elif name == _LIST:
            found[name] = value.text.decode(errors="backslashreplace").rpartition(",")[0]
        else:
            kept = value.text[: _MOST_BYTES - len(_CUT.encode())]
            found[name] = kept.decode(errors="ignore") + _CUT
    return found


def encode(variables: Mapping[str, str], names: Sequence[str]) -> bytes:
    """A record of which `decode` makes these variables, of those that are in `names`."""
    record = layout.Instance()
    known = [(names.index(name), value) for name, value in variables.items() if name in names]
    for value, (variable, text) in zip(record.values, known, strict=False):
        value.variable, value.text = variable, text.encode()[:_MOST_BYTES]
        value.length = len(value.text)
        record.count += 1
    return bytes(record)
