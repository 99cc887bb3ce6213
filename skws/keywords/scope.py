"""Where a term may stand: ``actor``, ``actor.name`` or ``name`` before a colon, resolved on the schema."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from skws.keywords.query import Scope
from skws_schema.errors import QueryError, nearest
from skws_schema.model import Relation, Schema, meant


def resolve(name: str, schema: Schema) -> tuple[Scope, ...]:
    """The scopes that ``name`` stands for: one, or one for each relation that searches such an attribute.

    Raises ``QueryError`` if there is no such relation or attribute, or if no
    keyword is ever looked for in it.
    """
    relation = meant(name, schema.index)
    if relation is not None:
        return (_whole_relation(schema, relation),)
    head, dot, tail = name.rpartition(".")
    owner = meant(head, schema.index) if dot else None
    if owner is not None:
        return (_one_column(schema, owner, tail),)
    return _every_column(name, schema)


def left_out(name: str, schema: Schema) -> int:
    """The position of a relation that a query leaves out. Raises ``QueryError`` if there is none."""
    gone = schema.evolution.removed_relations
    known = [relation.name for number, relation in enumerate(schema.relations) if number not in gone]
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


def _one_column(schema: Schema, owner: str, name: str) -> Scope:
    relation = schema.relation(owner)
    attribute = meant(name, relation.columns)
    if attribute is None:
        raise QueryError(f"relation {owner!r} has no attribute {name!r}{nearest(name, relation.columns)}")
    if attribute not in relation.search:
        raise QueryError(f"attribute {owner}.{attribute} is not searched; {_searched(relation)}")
    return Scope(schema.index[owner], relation.columns[attribute])


def _searched(relation: Relation) -> str:
    names = ", ".join(f"{relation.name}.{name}" for name in relation.search)
    return f"searched are: {names}" if names else f"no attribute of {relation.name!r} is"


def _every_column(name: str, schema: Schema) -> tuple[Scope, ...]:
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
    if not scopes:
        raise QueryError(f"attribute {attribute!r} is searched in no relation (it is in {_listed(owners)})")
    return scopes


def _listed(relations: list[Relation]) -> str:
    return ", ".join(relation.name for relation in relations)


def _names(schema: Schema) -> list[str]:
    """What may stand before a colon."""
    attributes = [(r.name, a) for r in schema.relations for a in r.search]
    return [*schema.index, *(a for _, a in attributes), *(f"{r}.{a}" for r, a in attributes)]


_NAME: Final = re.compile(r"[^\W-][^\s!-,./:-@\[-^`{-~]*")


def with_left_out(text: str, relations: Iterable[str]) -> str:
    """The query that leaves out some relations, too. Raises QueryError for what can be no relation's name."""
    for name in relations:
        if not _NAME.fullmatch(name):
            raise QueryError(f"{name!r}: expected the name of a relation to leave out")
        text += f" -{name}:"
    return text
