"""Parses the YAML of a schema with its joins and synonyms, and reports all problems at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from skws_schema.errors import Problem, SchemaError, nearest, not_utf8, shown
from skws_schema.model import Analyzer, Attribute, AttributeType, Groups, Join, Possible, Relation, Schema
from skws_schema.yaml.check import (
    CheckExpression,
    CheckWindow,
    RelationDraft,
    bound_value,
    check_relations,
    check_window_text,
    drafts,
    mapping,
    window_place,
)
from skws_schema.yaml.document import (
    AttributeDocument,
    AttributeEntry,
    Document,
    RelationDocument,
    read_shape,
)
from skws_schema.yaml.located import Located, locate, place_of
from skws_schema.yaml.located import Path as KeyPath
from skws_schema.yaml.suggested_joins import possible_joins

# PyYAML reads about 200 kB a second; a relation and its join take about 120 bytes.
MAX_BYTES = 1 << 20
DEFAULT_NAME = "schema"


def load_schema(
    path: Path, *, check_window: CheckWindow | None = None, check_expression: CheckExpression | None = None
) -> Schema:
    """The schema of a YAML file, named like the file unless the YAML names it.

    ``check_window`` returns what is wrong with a window's text, or None; ``check_expression`` does so for a
    window expression over the relations. Raises SchemaError with every problem, in order of line and column.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise SchemaError(f"{path}: no such file; expected the YAML of a schema{_sibling(path)}") from None
    except OSError as error:
        raise SchemaError(f"{path}: cannot be read as the YAML of a schema: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise SchemaError(f"{path}: larger than {MAX_BYTES >> 20} MiB; expected the YAML of a schema")
    schema = parse_schema(
        _decode(raw, str(path)),
        str(path),
        check_window=check_window,
        check_expression=check_expression,
        default_name=path.stem,
        folder=path.absolute().parent,
    )
    possible = tuple(join._replace(file=str(path)) for join in schema.possible)
    return _with_sources_beside(path, replace(schema, possible=possible))


def _with_sources_beside(path: Path, schema: Schema) -> Schema:
    """The schema with paths of sources made relative to the YAML's folder."""
    if not any(relation.source for relation in schema.relations):
        return schema
    relations = tuple(
        replace(r, source=r.source and _source_in(path.absolute().parent, r.source)) for r in schema.relations
    )
    return replace(schema, relations=relations)


def _source_in(folder: Path, source: str) -> str:
    scheme, colon, name = source.partition(":")
    if colon and scheme == "sqlite":
        return f"sqlite:{folder / name.removeprefix('//')}"
    return source if colon and name.startswith("//") else str(folder / source)


def parse_schema(
    text: str,
    source: str = "<schema>",
    *,
    check_window: CheckWindow | None = None,
    check_expression: CheckExpression | None = None,
    default_name: str = DEFAULT_NAME,
    folder: Path | None = None,
) -> Schema:
    """The schema of a YAML text. ``source``: its name in messages. ``folder``: that of files it refers to.

    Raises SchemaError with every problem, in order of line and column.
    """
    located = locate(text.removeprefix("\ufeff"), source)
    if located.data is None and not located.problems:
        raise SchemaError([Problem(source, 1, 1, "empty; expected a mapping with 'relations' and 'joins'")])
    document = read_shape(located)
    relations = drafts(located)
    check_relations(located, relations)
    joins = read_joins(located, relations)
    check_window_text(located, check_window)
    synonyms = read_synonyms(located, folder)
    if located.problems or document is None:
        raise SchemaError(sorted(set(located.problems), key=lambda p: (p.line, p.column, p.message)))
    schema = replace(_schema(document, joins, default_name), synonyms=synonyms)
    possible = tuple(join for join in possible_joins(text) if _has_attributes(schema, join))
    schema = replace(schema, possible=possible)
    fault = check_expression(schema) if check_expression else None
    if fault:
        raise SchemaError([Problem(source, *window_place(located), f"window: {fault}")])
    return schema


def _has_attributes(schema: Schema, possible: Possible) -> bool:
    """False for a suggestion of attributes that the schema no longer has."""
    try:
        sides = parse_condition(possible.on)
    except ValueError:  # another comment
        return False
    return all(
        s.relation in schema.index and s.attribute in schema.relation(s.relation).columns for s in sides
    )


def warnings(schema: Schema) -> list[str]:
    """Warnings about valid but probably unintended parts, one sentence each."""
    joined_names = {name for join in schema.joins for name in (join.left, join.right)}
    isolated = [
        f"relation {shown(r.name)} has no join: its tuples are results only on their own"
        for r in schema.relations
        if r.name not in joined_names and len(schema.relations) > 1
    ]
    symmetric = [
        f"join {shown(j.name)} is the same from both sides: each pair of tuples joins twice"
        for j in schema.joins
        if j.left == j.right and set(j.on) == {(b, a) for a, b in j.on}
    ]
    return isolated + symmetric


def _schema(document: Document, joins: tuple[Join, ...], default_name: str) -> Schema:
    return Schema(
        name=document.name or default_name,
        relations=tuple(_relation(name, entry) for name, entry in document.relations.items()),
        joins=joins,
        window=document.window,
        unknown=document.unknown,
    )


def _relation(name: str, entry: RelationDocument) -> Relation:
    attributes = tuple(_attribute(n, a, entry.analyzer) for n, a in entry.attributes.items())
    texts = tuple(a.name for a in attributes if a.type is AttributeType.TEXT)
    return Relation(
        name=name,
        attributes=attributes,
        key=tuple(entry.key),
        search=texts if entry.search is None else tuple(entry.search),
        time=entry.time,
        table=entry.table,
        finite=entry.finite,
        source=entry.source,
        origin=entry.origin,
    )


def _attribute(name: str, entry: AttributeEntry, analyzer: Analyzer) -> Attribute:
    kind = entry.type if isinstance(entry, AttributeDocument) else entry
    if kind is not AttributeType.TEXT:
        analyzer = Analyzer.ENGLISH
    if not isinstance(entry, AttributeDocument):
        return Attribute(name, kind, analyzer=analyzer)
    low, high = (None if b is None else bound_value(kind, b) for b in (entry.min, entry.max))
    return Attribute(name, kind, low, high, entry.analyzer or analyzer, entry.origin, entry.order)


def _decode(raw: bytes, source: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        prefix = raw[: error.start].decode()
        message = f"{not_utf8(error)}; save the file as UTF-8"
        raise SchemaError([Problem(source, *place_of(prefix, len(prefix)), message)]) from None


def _sibling(path: Path) -> str:
    """A hint at the YAML file in the same folder with the closest name."""
    if not path.parent.is_dir():
        return ""
    return nearest(path.name, sorted(p.name for p in path.parent.iterdir() if p.suffix in {".yaml", ".yml"}))


_COMMENT: Final = re.compile(r"(?:^|\s)#.*")  # "c#" is a word
_SYNONYMS: Final = ("synonyms",)


def read_synonyms(located: Located, folder: Path | None) -> Groups:
    """Groups of synonyms from the YAML, or from a file with one group per line; faults are reported.

    Data of the wrong shape is skipped.
    """
    entry, position = mapping(located.data).get("synonyms"), located.value_place(_SYNONYMS)
    if isinstance(entry, list):
        groups = [
            _group(located, located.value_place((*_SYNONYMS, number)), "", line)
            for number, line in enumerate(entry)
            if isinstance(line, str) and line
        ]
    elif not (isinstance(entry, str) and entry):
        return ()
    elif folder is None:
        message = f"synonyms: a text has no folder to find {shown(entry)} in; write the groups as a list"
        located.report(position, message)
        return ()
    else:
        path = folder / entry
        groups = [
            _group(located, position, f"{path}, line {number}: ", text)
            for number, line in enumerate(_lines(located, path), 1)
            if (text := _COMMENT.sub("", line).strip())
        ]
    return tuple(filter(None, groups))


def _lines(located: Located, path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) <= MAX_BYTES:
            return raw.decode("utf-8-sig").splitlines()
        fault = f" is larger than {MAX_BYTES >> 20} MiB"
    except OSError as error:
        fault = f" cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        fault = f": {not_utf8(error)}; save the file as UTF-8"
    except ValueError as error:  # a NUL in the path
        fault = f" cannot be read: {error}"
    located.report(located.value_place(_SYNONYMS), f"synonyms: {path}{fault}")
    return []


def _group(located: Located, position: tuple[int, int], prefix: str, line: str) -> tuple[str, ...]:
    """The words and phrases of a line, separated by commas; empty, with a report, if it has a fault."""
    words = [" ".join(word.split()) for word in line.split(",")]
    bad_word = next((word for word in words if not any(map(str.isalnum, word))), None)
    group = tuple(dict.fromkeys(words))
    if not all(words):
        fault = "expected a word between commas, found nothing"
    elif bad_word is not None:
        fault = f"expected a word, found {shown(bad_word)}"
    elif len(group) < 2:
        fault = f"expected at least two words that mean the same, found {shown(group[0])} alone"
    else:
        return group
    located.report(position, f"synonyms: {prefix}{fault}")
    return ()


class Side(NamedTuple):
    """``relation.attribute``. ``offset``: its start in the condition's text."""

    relation: str
    attribute: str
    offset: int

    def __str__(self) -> str:
        return f"{self.relation}.{self.attribute}"


Condition: TypeAlias = tuple[Side, Side]
"""Two attributes that must be equal, in the order of the text."""


def parse_condition(text: str) -> Condition:
    """Read ``relation.attribute = relation.attribute``; raises ValueError with what was expected."""
    parts = text.split("=")
    if len(parts) == 1:
        raise ValueError(
            f"a join needs '=': expected relation.attribute = relation.attribute, found {shown(text)}"
        )
    if len(parts) > 2:
        raise ValueError(
            f"more than one '=' in {shown(text)}; write a composite join as a list: on: [a.x = b.x, ...]"
        )
    return _side(parts[0], 0), _side(parts[1], len(parts[0]) + 1)


def _side(text: str, start: int) -> Side:
    names = text.strip().split(".")
    if len(names) != 2 or not all(names) or any(c.isspace() for c in text.strip()):
        raise ValueError(f"expected relation.attribute, found {shown(text.strip())}")
    return Side(names[0], names[1], start + len(text) - len(text.lstrip()))


def read_joins(located: Located, relations: Mapping[str, RelationDraft]) -> tuple[Join, ...]:
    """The valid joins, in order; faults are reported."""
    entries = mapping(located.data).get("joins")
    joins: dict[KeyPath, Join] = {}
    for number in range(len(entries) if isinstance(entries, list) else 0):
        path: KeyPath = ("joins", number)
        conditions = _conditions(located, path, relations)
        if conditions:
            joins[path] = _join(located, path, conditions)
    _check_names(located, joins)
    _check_twice(located, joins)
    return tuple(joins.values())


def _conditions(located: Located, path: KeyPath, relations: Mapping[str, RelationDraft]) -> list[Condition]:
    """The conditions of one join, in the direction of the first; empty if any of them is wrong."""
    entry = located.at(path)
    if isinstance(entry, dict):
        entry, path = entry.get("on"), (*path, "on")
    texts = {(*path, i): e for i, e in enumerate(entry)} if isinstance(entry, list) else {path: entry}
    conditions: list[Condition] = []
    for text_path, text in texts.items():
        condition = (
            _condition(located, text_path, text, relations) if isinstance(text, str) and text else None
        )
        if condition and (not conditions or _is_oriented(located, text_path, conditions, condition)):
            conditions.append(condition)
    return conditions if len(conditions) == len(texts) else []


def _condition(
    located: Located, path: KeyPath, text: str, relations: Mapping[str, RelationDraft]
) -> Condition | None:
    try:
        condition = parse_condition(text)
    except ValueError as error:
        located.report(located.value_place(path), str(error))
        return None
    sides = [_check_side(located, path, text, side, relations) for side in condition]
    if not all(exists for exists, _ in sides):
        return None
    left, right = (kind for _, kind in sides)
    if left and right and left.family is not right.family:
        message = f"{condition[0]} is {left} but {condition[1]} is {right}; a join needs equal types"
        located.report(located.value_place(path), message)
    return condition


def _check_side(
    located: Located, path: KeyPath, text: str, side: Side, relations: Mapping[str, RelationDraft]
) -> tuple[bool, AttributeType | None]:
    """Whether the attribute exists (True if unknown), and its type if known."""
    draft = relations.get(side.relation)
    if draft is None:
        message = f"no relation {shown(side.relation)}{nearest(side.relation, relations)}"
        located.report(located.place_within(path, text, side.offset), message)
        return False, None
    if draft.types is None:
        return True, None
    if side.attribute not in draft.types:
        message = (
            f"no attribute {shown(side.attribute)} in"
            f" {shown(side.relation)}{nearest(side.attribute, draft.types)}"
        )
        offset = side.offset + len(side.relation) + 1
        located.report(located.place_within(path, text, offset), message)
        return False, None
    return True, draft.types[side.attribute]


def _is_oriented(located: Located, path: KeyPath, conditions: list[Condition], condition: Condition) -> bool:
    """True if the condition is between the relations of the first, in either direction, and new."""
    first = _relations(conditions[0])
    if _relations(condition) not in (first, first[::-1]):
        expected = " and ".join(map(repr, first))
        message = f"all conditions of a join are between the same two relations; expected {expected}"
        located.report(located.value_place(path), message)
        return False
    pairs = [_pair(c, first) for c in conditions]
    if _pair(condition, first) in pairs:
        located.report(located.value_place(path), f"condition {_condition_text(condition)} is written twice")
        return False
    return True


def _relations(condition: Condition) -> tuple[str, str]:
    return condition[0].relation, condition[1].relation


def _condition_text(condition: Condition) -> str:
    return " = ".join(map(str, condition))


def _pair(condition: Condition, relations: tuple[str, str]) -> tuple[str, str]:
    left, right = condition if _relations(condition) == relations else condition[::-1]
    return left.attribute, right.attribute


def _join(located: Located, path: KeyPath, conditions: list[Condition]) -> Join:
    name = mapping(located.at(path)).get("name")
    left, right = _relations(conditions[0])
    return Join(
        name=name if isinstance(name, str) and name else " and ".join(map(_condition_text, conditions)),
        left=left,
        right=right,
        on=tuple(_pair(condition, (left, right)) for condition in conditions),
    )


def _check_names(located: Located, joins: Mapping[KeyPath, Join]) -> None:
    first: dict[str, KeyPath] = {}
    for path, join in joins.items():
        first_path = first.setdefault(join.name, path)
        if first_path != path and _meaning(join) != _meaning(joins[first_path]):
            line = located.value_place(first_path)[0]
            position = located.value_place((*path, "name"))
            located.report(position, f"join name {shown(join.name)} is taken by the join in line {line}")


def _check_twice(located: Located, joins: Mapping[KeyPath, Join]) -> None:
    first: dict[object, KeyPath] = {}
    for path, join in joins.items():
        first_path = first.setdefault(_meaning(join), path)
        if first_path != path:
            line = located.value_place(first_path)[0]
            located.report(located.value_place(path), f"the same join as in line {line}: {join.name}")


def _meaning(join: Join) -> object:
    """A value that is equal for joins that connect the same tuples, in either direction."""
    forward = (join.left, join.right, tuple(sorted(join.on)))
    backward = (join.right, join.left, tuple(sorted((b, a) for a, b in join.on)))
    return min(forward, backward)
