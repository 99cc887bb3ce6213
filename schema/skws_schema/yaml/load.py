"""Parses the YAML of a schema, and reports all of its problems at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from skws_schema.errors import Problem, SchemaError, nearest, not_utf8
from skws_schema.model import Analyzer, Attribute, AttributeType, Join, Relation, Schema
from skws_schema.synonyms import Groups, read_group, read_groups
from skws_schema.yaml.check import (
    CheckExpression,
    CheckWindow,
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
from skws_schema.yaml.joins import read_joins
from skws_schema.yaml.located import Located, locate, place_of

# PyYAML reads some 200 kB a second; a relation and its join take some 120 bytes.
MAX_BYTES = 1 << 20
DEFAULT_NAME = "schema"


def load_schema(
    path: Path, *, check_window: CheckWindow | None = None, check_expression: CheckExpression | None = None
) -> Schema:
    """The schema of a YAML file; its default name is the file's.

    ``check_window`` returns the fault of a window's text, None if it has none;
    ``check_expression`` the same for a window over the relations.
    Raises SchemaError with every problem, in order of line and column.
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
    return _with_sources_beside(path, schema)


def _with_sources_beside(path: Path, schema: Schema) -> Schema:
    """The schema with paths of sources made relative to the YAML's folder."""
    if not any(relation.source for relation in schema.relations):
        return schema
    placed = tuple(
        replace(r, source=r.source and _beside(path.absolute().parent, r.source)) for r in schema.relations
    )
    return replace(schema, relations=placed)


def _beside(folder: Path, source: str) -> str:
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
    """The schema of a YAML text, which problems call ``source``; files that it names are in ``folder``.

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
    fault = check_expression(schema) if check_expression else None
    if fault:
        raise SchemaError([Problem(source, *window_place(located), f"window: {fault}")])
    return schema


def warnings(schema: Schema) -> list[str]:
    """Warnings for what is allowed but seldom meant, one sentence each."""
    joined = {name for join in schema.joins for name in (join.left, join.right)}
    isolated = [
        f"relation {r.name!r} has no join: its tuples are results only on their own"
        for r in schema.relations
        if r.name not in joined and len(schema.relations) > 1
    ]
    symmetric = [
        f"join {j.name!r} is the same from both sides: each pair of tuples joins twice"
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
    )


def _attribute(name: str, entry: AttributeEntry, analyzer: Analyzer) -> Attribute:
    kind = entry.type if isinstance(entry, AttributeDocument) else entry
    if kind is not AttributeType.TEXT:
        analyzer = Analyzer.ENGLISH
    if not isinstance(entry, AttributeDocument):
        return Attribute(name, kind, analyzer=analyzer)
    low, high = (None if b is None else bound_value(kind, b) for b in (entry.min, entry.max))
    return Attribute(name, kind, low, high, entry.analyzer or analyzer, entry.origin)


def _decode(raw: bytes, source: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode()
        message = f"{not_utf8(error)}; save the file as UTF-8"
        raise SchemaError([Problem(source, *place_of(before, len(before)), message)]) from None


def _sibling(path: Path) -> str:
    """A hint at the YAML file beside ``path`` whose name is nearest."""
    if not path.parent.is_dir():
        return ""
    return nearest(path.name, sorted(p.name for p in path.parent.iterdir() if p.suffix in {".yaml", ".yml"}))


_MOST_BYTES: Final = 1 << 20
_KEY: Final = ("synonyms",)


def read_synonyms(located: Located, folder: Path | None) -> Groups:
    """The groups, with each fault reported; data of the wrong shape is skipped."""
    written = mapping(located.data).get("synonyms")
    if isinstance(written, list):
        return _listed(located, written)
    return _from_file(located, written, folder) if isinstance(written, str) and written else ()


def _listed(located: Located, written: Sequence[object]) -> Groups:
    found = []
    for number, line in enumerate(written):
        if isinstance(line, str) and line:
            try:
                found.append(read_group(line))
            except ValueError as error:
                located.report(located.value_place((*_KEY, number)), f"synonyms: {error}")
    return tuple(found)


def _from_file(located: Located, name: str, folder: Path | None) -> Groups:
    place = located.value_place(_KEY)
    if folder is None:
        message = f"synonyms: a text has no folder to find {name!r} in; write the groups as a list"
        located.report(place, message)
        return ()
    path = folder / name
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            located.report(place, f"synonyms: {path} is larger than {_MOST_BYTES >> 20} MiB")
            return ()
        lines = raw.decode("utf-8-sig").splitlines()
    except OSError as error:
        located.report(place, f"synonyms: {path} cannot be read: {error.strerror}")
        return ()
    except UnicodeDecodeError as error:
        located.report(place, f"synonyms: {path}: {not_utf8(error)}; save the file as UTF-8")
        return ()
    found = []
    for number, group in read_groups(lines):
        if isinstance(group, ValueError):
            located.report(place, f"synonyms: {path}, line {number}: {group}")
        else:
            found.append(group)
    return tuple(found)
