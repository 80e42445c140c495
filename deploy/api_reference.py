#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the JSON Schema of all answers, and the tables of keys in docs/API.md.

    deploy/api_reference.py

Both are made of the classes in `pipelined.runs` and `pipelined.answers`, and of the strings below
their fields. A table of docs/API.md stands between ``<!-- keys of Run -->``, which may name several
classes or groups of fields, and ``<!-- end -->``; it has the keys that these classes add to those
that they extend. Keys that mean the same in a class behind `like`, as in
``<!-- keys of JobSummary like PipelineSummary -->``, are only named, below the table. Keys of a
class behind `with` follow the key that has such an object: ``edges[].writer``. A class that
``<!-- in the schema alone: BoxJson -->`` names has no table.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import (
    Annotated,
    Any,
    NamedTuple,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from pipelined.analysis.comparison import ComparisonJson
from pipelined.analysis.improvement import Improvement, ScriptImprovement
from pipelined.answers import finished, hooks, lists, live, run
from pipelined.history.jobs import JobsSummary
from pipelined.history.pipelines import PipelinesSummary
from pipelined.history.run_list import RunList
from pipelined.runs import run as runs_run
from pipelined.runs import stage
from pipelined.runs.codec import bare, members
from pipelined.runs.fields import AsDict, Group, Keys, OneOf, Unit

TOP = Path(__file__).parents[1]
SCHEMA = TOP / "daemon" / "pipelined" / "web" / "schema.json"
REFERENCE = TOP / "docs" / "API.md"

#: What is answered as a whole, and where.
ANSWERS = {
    run.Pipelines: "GET /api/v1/pipelines",
    PipelinesSummary: "GET /api/v1/pipelines/summary, pipelined pipelines --json",
    JobsSummary: "GET /api/v1/jobs/summary, pipelined pipelines --by job --json",
    run.Started: "GET /api/v1/started",
    RunList: "GET /api/v1/runs, pipelined runs --json",
    finished.FinishedRunsJson: "GET /api/v1/runs/finished",
    run.RunWithTimelineJson: "GET /api/v1/runs/ID, pipelined show --json",
    live.NowJson: "GET /api/v1/now, and the data of events now of GET /api/v1/events",
    ComparisonJson: "GET /api/v1/compare, pipelined compare --json",
    lists.RunReportJson: "pipelined run --json",
    Improvement: "pipelined improve --json, of a pipeline",
    ScriptImprovement: "pipelined improve --json, of a script",
    hooks.Hooks: "GET /api/v1/hooks",
    lists.HealthJson: "GET /healthz",
    lists.ReadinessJson: "GET /readyz",
    lists.ErrorJson: "any path, with a status from 400 on",
}

_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean"}
_UNTABLED = re.compile(r"<!-- in the schema alone: ([\w ]+) -->")
#: More values than this stand in the first table that has them.
_FEW_VALUES = 4
_TABLE = re.compile(r"(<!-- keys of ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


class Field(NamedTuple):
    """A key of an object."""

    name: str
    type: Any
    meaning: str
    always: bool
    """False: it may be missing."""


def main() -> None:
    # both are made before either is written: one may be refused
    try:
        made = schema(), reference(REFERENCE.read_text(encoding="utf-8"))
    except ValueError as error:
        sys.exit(f"nothing is written: {error}")
    for path, text in zip((SCHEMA, REFERENCE), made, strict=True):
        path.write_text(text, encoding="utf-8")


# -- the types


Described = type | Group


def own_fields(described: Described) -> list[Field]:
    """The keys that this class adds to those that it extends. Raises ValueError without a text."""
    if isinstance(described, Group):
        return [field for group, field in _placed(_owner(described)) if group == described]
    if is_typeddict(described):
        return _typed_fields(described)
    fields: dict[str, Field] = {}
    for group, field in _placed(described):
        found = field if group is None else Field(group.key, group, group.meaning, True)
        fields.setdefault(found.name, found)
    return list(fields.values())


def _placed(described: type) -> Iterator[tuple[Group | None, Field]]:
    """The fields of an annotated class, and the group that each of them is in."""
    texts, own = _texts(described), _own_names(described)
    for member in members(described):
        if member.name not in own:
            continue
        kind, _ = bare(member.kind)
        if not member.path:
            yield from _placed(kind)
            continue
        *groups, name = member.path
        meaning = texts.get(member.name) or _one_line(
            getattr(described, member.name).__doc__ or "" if member.computed else ""
        )
        if not meaning:
            raise ValueError(f"{described.__name__}.{member.name} has no text below it")
        field = Field(str(name), member.kind, meaning, not member.secret)
        yield (groups[0] if groups and isinstance(groups[0], Group) else None), field


def _own_names(described: type) -> set[str]:
    """Of the fields and properties that are written in the body of a class."""
    source = _source(described)
    names = (
        {node.name for node in source.body if isinstance(node, ast.FunctionDef)}
        if source
        else set()
    )
    return names | set(_texts(described))


@cache
def _owner(group: Group) -> type:
    """The class of the fields in this group."""
    known = [getattr(module, name) for module in (stage, runs_run) for name in module.__all__]
    owners = (each for each in known if isinstance(each, type) and is_dataclass(each))
    return next(each for each in owners if any(placed == group for placed, _ in _placed(each)))


def _typed_fields(described: type) -> list[Field]:
    hints = get_type_hints(described, include_extras=True)
    texts = _texts(described)
    fields = []
    for name, meaning in texts.items():
        kind, always = hints[name], True
        if get_origin(kind) is NotRequired:
            (kind,), always = get_args(kind), False
        if not meaning:
            raise ValueError(f"{described.__name__}.{name} has no text below it")
        fields.append(Field(name, kind, meaning, always))
    return fields


def all_fields(described: Described) -> list[Field]:
    """All keys: those of the classes that it extends first."""
    inherited = [field for base in _bases(described) for field in all_fields(base)]
    extended, only, without = getattr(described, "__keys_of__", (None, (), ()))
    if extended is not None:
        found = all_fields(extended)
        inherited = [
            f for f in found if (not only or f.name in only) and f.name not in without
        ] + inherited
    return inherited + own_fields(described)


@cache
def _source(described: type) -> ast.ClassDef | None:
    """The class as it is written; None if it is made by a call of `TypedDict`."""
    module = ast.parse(inspect.getsource(sys.modules[described.__module__]))
    written = [node for node in module.body if isinstance(node, ast.ClassDef)]
    return next((node for node in written if node.name == described.__name__), None)


def _bases(described: Described) -> list[type]:
    """The described classes that a class extends, which a TypedDict does not remember."""
    if isinstance(described, Group):
        return []
    if not is_typeddict(described):
        return [base for base in described.__bases__ if is_dataclass(base)]
    source = _source(described)
    names = [base.id for base in source.bases if isinstance(base, ast.Name)] if source else []
    found = [getattr(sys.modules[described.__module__], name) for name in names]
    return [base for base in found if is_typeddict(base)]


def _texts(described: type) -> Mapping[str, str]:
    """The string below each field in the body of a class; empty if it has no body."""
    source = _source(described)
    texts: dict[str, str] = {}
    name = ""
    for statement in source.body if source else ():
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
            texts[name] = ""
        elif name and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            texts[name] = _one_line(str(statement.value.value))
    return texts


def _one_line(text: str) -> str:
    """The text of a docstring as one line of Markdown, with the words of JSON."""
    return re.sub(r"\bNone\b", "null", re.sub(r"\s+", " ", text).replace("``", "`").strip())


def _notes(kind: Any) -> tuple[Any, ...]:
    return bare(kind)[1]


def _bare(kind: Any) -> Any:
    return bare(kind)[0]


def _is_object(kind: Any) -> bool:
    """Whether a type has fields of its own."""
    if isinstance(kind, Group) or is_typeddict(kind) or is_dataclass(kind):
        return True
    return isinstance(kind, type) and hasattr(kind, "_fields")


def _choices(kind: Any) -> tuple[Any, ...]:
    """The types of a union; of anything else itself."""
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


# -- JSON Schema


def schema() -> str:
    """The schema of all answers, as text."""
    classes = {known for answer in ANSWERS for known in _classes(answer)}
    definitions = {_name(known): _definition(known) for known in classes}
    if len(definitions) < len(classes):
        raise ValueError("two classes have the same name")
    for answer, where in ANSWERS.items():
        definitions[_name(answer)]["description"] += f" Answer of {where}."
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:pipelined:api:v1",
        "title": "Answers of pipelined: the API v1 and --json",
        "description": "New keys may be added; none is renamed or removed. Keys that an older "
        "version did not store are null or empty in its runs. `unit` is no keyword.",
        "anyOf": [_reference(answer) for answer in ANSWERS],
        "$defs": dict(sorted(definitions.items())),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _name(described: Described) -> str:
    return described.name if isinstance(described, Group) else _tag(described).removesuffix("Json")


def _tag(described: Described) -> str:
    """How a table names it."""
    return described.name if isinstance(described, Group) else described.__name__


def _reference(described: Described) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{_name(described)}"}


def _definition(described: Described) -> dict[str, Any]:
    fields = all_fields(described)
    return {
        "type": "object",
        "description": _plain(_one_line(_meaning(described))),
        "properties": {
            field.name: _schema_of(field.type) | {"description": _plain(field.meaning)}
            for field in fields
        },
        "required": [field.name for field in fields if field.always],
    }


def _meaning(described: Described) -> str:
    return described.meaning if isinstance(described, Group) else described.__doc__ or ""


def _schema_of(kind: Any) -> dict[str, Any]:
    found = _schema_of_bare(_bare(kind))
    for note in _notes(kind):
        if isinstance(note, AsDict):
            found = _with_reference(found, note.of)
        elif isinstance(note, Keys):
            inner = found.pop("items" if found["type"] == "array" else "additionalProperties")
            found |= {"type": "object", "properties": dict.fromkeys(note.names, inner)}
            found |= {"required": list(note.names)} if note.always else {}
        elif isinstance(note, OneOf):
            found["enum"] = list(note.values)
        elif isinstance(note, Unit):
            found["unit"] = note.name
    return found


def _schema_of_bare(kind: Any) -> dict[str, Any]:
    if kind in _SCALARS:
        return {"type": _SCALARS[kind]}
    if _is_object(kind):
        return _reference(kind)
    of = get_args(kind)
    if get_origin(kind) in (list, tuple):
        return {"type": "array", "items": _schema_of(of[0])}
    if get_origin(kind) in (Union, types.UnionType):
        return _or_null(*(_schema_of(choice) for choice in of if choice is not type(None)))
    return {"type": "object", "additionalProperties": {} if of[1] is Any else _schema_of(of[1])}


def _or_null(found: dict[str, Any]) -> dict[str, Any]:
    if found.get("type") in _SCALARS.values():
        values = {"enum": [*found["enum"], None]} if "enum" in found else {}
        return found | {"type": [found["type"], "null"]} | values
    return {"anyOf": [found, {"type": "null"}]}


def _with_reference(found: Any, to: type) -> Any:
    """The schema with a reference in the place of each object."""
    if isinstance(found, list):
        return [_with_reference(each, to) for each in found]
    if not isinstance(found, dict):
        return found
    if found.get("type") == "object":
        return _reference(to)
    return {key: _with_reference(value, to) for key, value in found.items()}


def _plain(text: str) -> str:
    """The text without the addresses of links."""
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text)


# -- docs/API.md


def reference(page: str) -> str:
    """The page with new tables. Raises ValueError for a class that is in none, or is unknown."""
    classes = {_tag(known): known for answer in ANSWERS for known in _classes(answer)}
    heads = [_head(names) for _, names, _ in _TABLE.findall(page)]
    shown = {name for head in heads for name in (*head.own, *head.inner)}
    shown.update(name for names in _UNTABLED.findall(page) for name in names.split())
    unknown = shown.union(*(head.like for head in heads)) - classes.keys()
    missing = classes.keys() - shown
    missing = {name for name in missing if own_fields(classes[name])}
    if unknown or missing:
        raise ValueError(
            f"the marks of {REFERENCE} name no class {sorted(unknown)}, and leave out "
            f"{sorted(missing)}: see the head of {Path(__file__).name}"
        )
    listed: set[tuple[str, ...]] = set()

    def written(found: re.Match[str]) -> str:
        own, inner, like = ([classes[name] for name in names] for names in _head(found[2]))
        return found[1] + _table(own, inner, like, listed) + found[3]

    return _TABLE.sub(written, page)


class _Head(NamedTuple):
    """The classes that a table names."""

    own: list[str]
    inner: list[str]
    """Of objects in these."""
    like: list[str]
    """That have some of the same keys."""


def _head(names: str) -> _Head:
    names, _, like = names.partition(" like ")
    own, _, inner = names.partition(" with ")
    return _Head(own.split(), inner.split(), like.split())


def _classes(described: Any) -> Iterator[Described]:
    """A class, and all that it extends or names."""
    yield described
    extended = getattr(described, "__keys_of__", (None,))[0]
    for base in [*_bases(described), *([extended] if extended else [])]:
        yield from _classes(base)
    for field in own_fields(described):
        yield from _classes_in(field.type)


def _classes_in(kind: Any) -> Iterator[Described]:
    for note in _notes(kind):
        if isinstance(note, AsDict):
            yield from _classes(note.of)
    kind = _bare(kind)
    if _is_object(kind):
        yield from _classes(kind)
    for inner in get_args(kind):
        yield from _classes_in(inner)


def _table(
    classes: Sequence[Described],
    inner: Sequence[Described],
    like: Sequence[Described],
    listed: set[tuple[str, ...]],
) -> str:
    """The rows of some classes; `listed` has the long lists of values that stand further up.

    Raises ValueError if one of `inner` is the object of no key.
    """
    used: list[Described] = []
    rows = ["| key | type | meaning |", "| --- | --- | --- |"]
    alike: dict[str, list[str]] = {_words(_name(other)): [] for other in like}
    for field in (field for described in classes for field in own_fields(described)):
        same = [
            other
            for other in like
            if any(_shown_alike(field, theirs) for theirs in own_fields(other))
        ]
        if same:
            alike[_words(_name(same[0]))].append(f"`{field.name}`")
        else:
            rows += _rows(field, inner, listed, used)
    unused = [_tag(each) for each in inner if each not in used]
    if unused:
        raise ValueError(f"{REFERENCE}: no key of the table has {unused}")
    below = [f"As of a {word}: {', '.join(names)}." for word, names in alike.items() if names]
    return "\n".join(rows) + "\n" + "".join(f"\n{line}\n" for line in below)


def _shown_alike(one: Field, other: Field) -> bool:
    """Whether the schema has both alike, whatever they are called in Python."""
    return (one.name, one.meaning, one.always, _schema_of(one.type)) == (
        other.name,
        other.meaning,
        other.always,
        _schema_of(other.type),
    )


def _rows(
    field: Field,
    inner: Sequence[Described],
    listed: set[tuple[str, ...]],
    used: list[Described],
    before: str = "",
) -> Iterator[str]:
    """The row of a field, and those of the fields of its object if that is one of `inner`, which
    then is `used`."""
    name = f"{before}{field.name}"
    text = " ".join([field.meaning, *_values(field, listed)]).replace("|", "\\|")
    yield f"| `{name}` | {_word(field.type)} | {text} |"
    path, described = _object_in(field.type)
    if described in inner:
        used.append(described)
        for each in own_fields(described):
            yield from _rows(each, inner, listed, used, f"{name}{path}.")


def _object_in(kind: Any) -> tuple[str, Any]:
    """The path from a value of a type to the object in it, such as ``[]``, and its class."""
    notes, kind = _notes(kind), _bare(kind)
    by_key = ".*" if any(isinstance(note, Keys) for note in notes) else ""
    as_dict = [note.of for note in notes if isinstance(note, AsDict)]
    if as_dict:
        return by_key, as_dict[0]
    (kind, *_) = (choice for choice in _choices(kind) if choice is not type(None))
    if _is_object(kind):
        return by_key, kind
    if get_origin(kind) in (list, tuple):
        path, described = _object_in(get_args(kind)[0])
        return by_key or f"[]{path}", described
    return by_key, None


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


def _word(kind: Any) -> str:
    """A type in the table: ``number?``, ``stage[]``."""
    as_dict = [note for note in _notes(kind) if isinstance(note, AsDict)]
    by_key = any(isinstance(note, Keys) for note in _notes(kind))
    kind = _bare(kind)

    def word_of(inner: Any) -> str:
        return _word(Annotated[inner, as_dict[0]] if as_dict else inner)

    choices = [choice for choice in _choices(kind) if choice is not type(None)]
    if len(choices) < len(_choices(kind)):
        return word_of(choices[0]) + "?"
    if kind in _SCALARS:
        return _SCALARS[kind]
    if _is_object(kind):
        return _words(_name(kind))
    if get_origin(kind) in (list, tuple) and not by_key:
        return word_of(get_args(kind)[0]) + "[]"
    return _word(as_dict[0].of) if as_dict else "object"


def _values(field: Field, listed: set[tuple[str, ...]]) -> Iterator[str]:
    """The values or keys of a field if all are known, unless its text has them, or they are many
    and stand further up."""
    for choice in (field.type, *_choices(_bare(field.type))):
        for note in _notes(choice):
            if isinstance(note, OneOf | Keys):
                word, names = (
                    ("Keys", note.names) if isinstance(note, Keys) else ("One of", note.values)
                )
                quoted = [f"`{name}`" for name in names]
                if not all(name in field.meaning for name in quoted) and names not in listed:
                    yield f"{word}: {', '.join(quoted)}."
                if len(names) > _FEW_VALUES:
                    listed.add(tuple(names))
                return


if __name__ == "__main__":
    main()
