"""What names in a query stand for, resolved on the schema.

Before a colon: ``actor``, ``actor.name`` or ``name``. Before a comparison: ``movie.year`` or ``year``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from skws.keywords.query import Scope
from skws_schema.errors import QueryError, nearest
from skws_schema.model import AttributeType, Relation, Schema, meant


class Compared(NamedTuple):
    """An attribute whose values are compared, by position of its relation and in a row."""

    relation: int
    column: int


def resolve(name: str, schema: Schema) -> tuple[Scope, ...] | Compared:
    """The scopes that ``name`` stands for: one, or one for each relation that searches such an attribute.

    An attribute that is no text is compared, if no relation searches one of its name.
    Raises ``QueryError`` if there is no such relation or attribute, if no
    keyword is ever looked for in it, or if several could be compared.
    """
    relation = meant(name, schema.index)
    if relation is not None:
        return (_whole_relation(schema, relation),)
    head, dot, tail = name.rpartition(".")
    owner = meant(head, schema.index) if dot else None
    if owner is not None:
        return _one_column(schema, owner, tail)
    return _every_column(name, schema)


def compared(name: str, schema: Schema) -> Compared:
    """The attribute that ``name`` stands for in a comparison.

    Raises ``QueryError`` if there is none, or if there are several.
    """
    head, dot, tail = name.rpartition(".")
    known = _present(schema)
    owner = meant(head, [relation.name for relation in known]) if dot else None
    if owner is not None:
        return Compared(schema.index[owner], _column(schema.relation(owner), tail))
    attribute = meant(name, list(dict.fromkeys(a.name for r in known for a in r.attributes)))
    if attribute is None:
        hint = nearest(name, [a.name for r in known for a in r.attributes])
        hint = hint or "; to search for the text itself, put quotes around it"
        raise QueryError(f"no attribute {name!r} to compare with{hint}")
    return _only(schema, attribute, [relation for relation in known if attribute in relation.columns])


def comparable(schema: Schema) -> tuple[str, ...]:
    """The names by which conditions call attributes that are no texts, the shortest that are unambiguous."""
    owners: dict[str, list[str]] = {}
    for relation in _present(schema):
        for attribute in relation.attributes:
            owners.setdefault(attribute.name, []).append(relation.name)
    return tuple(
        attribute.name if len(owners[attribute.name]) == 1 else f"{relation.name}.{attribute.name}"
        for relation in _present(schema)
        for attribute in relation.attributes
        if attribute.type is not AttributeType.TEXT
    )


def completable(schema: Schema) -> tuple[str, ...]:
    """The names that a query may begin a keyword or a condition with, a keyword's with their colon."""
    searched = [relation for relation in _present(schema) if relation.search]
    whole = [relation.name for relation in searched]
    bare = [name for relation in searched for name in relation.search if name not in schema.index]
    full = [f"{relation.name}.{name}" for relation in searched for name in relation.search]
    before_colon = [f"{name}:" for name in dict.fromkeys((*whole, *bare))]
    names = (*before_colon, *comparable(schema), *(f"{name}:" for name in full))
    return tuple(name for name in names if all(map(_NAME.fullmatch, name.removesuffix(":").split("."))))


def _only(schema: Schema, attribute: str, owners: list[Relation]) -> Compared:
    if len(owners) > 1:
        names = ", ".join(f"{relation.name}.{attribute}" for relation in owners)
        raise QueryError(f"{attribute!r} is in {len(owners)} relations; write one of {names}")
    return Compared(schema.index[owners[0].name], owners[0].columns[attribute])


def _present(schema: Schema) -> list[Relation]:
    gone = schema.evolution.removed_relations
    return [relation for number, relation in enumerate(schema.relations) if number not in gone]


def left_out(name: str, schema: Schema) -> int:
    """The position of a relation that a query leaves out. Raises ``QueryError`` if there is none."""
    known = [relation.name for relation in _present(schema)]
    relation = meant(name, known)
    if relation is not None:
        return schema.index[relation]
    hint = nearest(name, known) or f"; there are {', '.join(known)}"
    raise QueryError(
        f"no relation {name!r}, which '-{name}:' would leave out{hint}"
        " (to exclude the word, leave out the colon)"
    )


def _whole_relation(schema: Schema, name: str) -> Scope:
    if not schema.relation(name).search:
        raise QueryError(f"relation {name!r} has no attribute that keywords are looked for in")
    return Scope(schema.index[name], None)


def _one_column(schema: Schema, owner: str, name: str) -> tuple[Scope] | Compared:
    relation = schema.relation(owner)
    column = _column(relation, name)
    attribute = relation.attributes[column]
    if column in relation.search_columns:
        return (Scope(schema.index[owner], column),)
    if attribute.type is AttributeType.TEXT:
        raise QueryError(
            f"attribute {owner}.{attribute.name} is not searched; {_searched(relation)} "
            f"(to compare the whole text, write {owner}.{attribute.name}=...)"
        )
    return Compared(schema.index[owner], column)


def _column(relation: Relation, name: str) -> int:
    attribute = meant(name, relation.columns)
    if attribute is None:
        raise QueryError(
            f"relation {relation.name!r} has no attribute {name!r}{nearest(name, relation.columns)}"
        )
    return relation.columns[attribute]


def _searched(relation: Relation) -> str:
    names = ", ".join(f"{relation.name}.{name}" for name in relation.search)
    return f"searched are: {names}" if names else f"no attribute of {relation.name!r} is"


def _every_column(name: str, schema: Schema) -> tuple[Scope, ...] | Compared:
    attribute = meant(name, list(dict.fromkeys(a.name for r in schema.relations for a in r.attributes)))
    owners = [relation for relation in schema.relations if attribute in relation.columns]
    if attribute is None:
        hint = nearest(name, _names(schema)) or "; if the colon is part of the text, put quotes around it"
        raise QueryError(f"no relation or attribute {name!r}{hint}")
    scopes = tuple(
        Scope(schema.index[owner.name], owner.columns[attribute])
        for owner in owners
        if attribute in owner.search
    )
    if scopes:
        return scopes
    owners = [relation for relation in owners if relation in _present(schema)]
    typed = [r for r in owners if r.attributes[r.columns[attribute]].type is not AttributeType.TEXT]
    if typed:
        return _only(schema, attribute, owners)
    raise QueryError(
        f"attribute {attribute!r} is searched in no relation"
        f" (it is in {', '.join(relation.name for relation in owners)});"
        f" to compare the whole text, write {attribute}=..."
    )


def _names(schema: Schema) -> list[str]:
    """What may stand before a colon."""
    attributes = [
        (r.name, a.name)
        for r in schema.relations
        for a in r.attributes
        if a.name in r.search or a.type is not AttributeType.TEXT
    ]
    return [*schema.index, *(a for _, a in attributes), *(f"{r}.{a}" for r, a in attributes)]


_NAME: Final = re.compile(r"[^\W-][^\s!-,./:-@\[-^`{-~]*")


def with_left_out(text: str, relations: Iterable[str]) -> str:
    """The query that leaves out some relations, too. Raises QueryError for what can be no relation's name."""
    for name in relations:
        if not _NAME.fullmatch(name):
            raise QueryError(f"{name!r}: expected the name of a relation to leave out")
        text += f" -{name}:"
    return text
