"""The formal form of queries: ``Q(x, y) <- T(x), S(x, y), R(x, 2)``, arguments by position."""

from __future__ import annotations

from typing import cast

from lark import Token, Tree

from skws_patterns.automata.predicates import typed
from skws_patterns.grammar import constant_value, parse, span
from skws_patterns.queries.hcq import Atom, ConjunctiveQuery, Constant, Term, Variable
from skws_schema.errors import PatternError, nearest
from skws_schema.model import Attribute, Relation, Schema


def parse_conjunctive_query(text: str, schema: Schema) -> ConjunctiveQuery:
    """The conjunctive query of a text; ``_`` stands for any value.

    Raises PatternError with carets at the place.
    """
    _, *parts = parse(text, "rule").children
    head = [part for part in parts if isinstance(part, Token)]
    body = [part for part in parts if isinstance(part, Tree)]
    atoms = tuple(_atom(text, tree, schema) for tree in body)
    _check_types(text, body, atoms, schema)
    known = {name for atom in atoms for name in atom.variables}
    for token in head:
        if token not in known:
            raise PatternError.at(
                text, *span(token), f"{token} is in the head, but in no atom{nearest(token, known)}"
            )
    return ConjunctiveQuery(tuple(map(str, head)), atoms)


def _atom(text: str, tree: Tree[Token], schema: Schema) -> Atom:
    name, *terms = cast("list[Token]", tree.children)
    relation = schema.index.get(name)
    if relation is None:
        raise PatternError.at(
            text, *span(name), f"there is no relation {str(name)!r}{nearest(name, schema.index)}"
        )
    described = schema.relations[relation]
    if len(terms) != len(described.attributes):
        names = ", ".join(a.name for a in described.attributes)
        raise PatternError.at(
            text,
            *span(tree),
            f"{name} has {len(described.attributes)} attributes ({names}), not {len(terms)}",
        )
    return Atom(relation, tuple(_term(text, t, described, i) for i, t in enumerate(terms)))


def _check_types(text: str, body: list[Tree[Token]], atoms: tuple[Atom, ...], schema: Schema) -> None:
    """Raises PatternError for a variable in attributes that are never equal."""
    first: dict[str, tuple[str, Attribute]] = {}
    for tree, atom in zip(body, atoms, strict=True):
        relation = schema.relations[atom.relation]
        for token, attribute in zip(tree.children[1:], relation.attributes, strict=True):
            if not isinstance(token, Token) or token.type != "NAME" or str(token) == "_":
                continue
            other, known = first.setdefault(str(token), (relation.name, attribute))
            if known.type.family is not attribute.type.family:
                raise PatternError.at(
                    text,
                    *span(token),
                    f"{token} is {other}.{known.name} of type {known.type}, and here {relation.name}."
                    f"{attribute.name} of type {attribute.type}: they are never equal",
                )


def _term(text: str, token: Token, relation: Relation, column: int) -> Term:
    if token.type == "NAME":
        return None if str(token) == "_" else Variable(str(token))
    try:
        return Constant(typed(constant_value(token), relation.attributes[column]))
    except ValueError as error:
        raise PatternError.at(text, *span(token), str(error)) from None
