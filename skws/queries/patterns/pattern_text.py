"""Reads the text of a pattern in either form; its keywords are those of keyword queries."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from skws.keywords.keyword_query import Alternative, Condition
from skws.keywords.match import Matcher
from skws.keywords.parse import parse_query
from skws_patterns.hcq import (
    ConjunctiveQuery,
    parse_conjunctive_query,
    refuse_unless_hierarchical,
    root_of_query,
)
from skws_patterns.hcq_automaton import automaton_of
from skws_patterns.language.compile import CompiledPattern, compile_pattern
from skws_patterns.language.pattern_parser import Keyword, former_spellings, parse_pattern
from skws_patterns.pcea import PCEA, RootKey
from skws_schema.errors import PatternError, shown
from skws_schema.model import Row, Schema
from skws_windows.window import Window

_FORMAL: Final = re.compile(r"\s*\w+\s*\([^()]*\)\s*(<-|:-)")


@dataclass(frozen=True, slots=True)
class PatternQuery:
    """A pattern with its automaton. ``window``: None if the text has none.

    ``source``: the parsed text. ``keywords``: for each label, the texts that its
    tuples must contain. ``root``: the value that all tuples of a result share;
    None if there is none.
    """

    text: str
    pcea: PCEA
    window: Window | None
    source: ConjunctiveQuery | CompiledPattern
    keywords: dict[str, tuple[str, ...]]
    root: RootKey | None


def is_formal(text: str) -> bool:
    """True for a conjunctive query ``Q(x) <- A(x)``, False for the pattern language."""
    return _FORMAL.match(text) is not None


def read_query(text: str, schema: Schema) -> PatternQuery:
    """The query of a text, in the formal form or the pattern language. Raises PatternError, QueryError."""
    if is_formal(text):
        query = parse_conjunctive_query(text, schema)
        refuse_unless_hierarchical(query, tuple(r.name for r in schema.relations))
        tables = [a.relation for a in query.atoms if schema.relations[a.relation].table]
        if tables:
            name = schema.relations[tables[0]].name
            raise PatternError(f"{name} is a static table: a pattern matches tuples of streams")
        return PatternQuery(text, automaton_of(query), None, query, {}, root_of_query(query))
    pattern = parse_pattern(text, schema)
    compiled = compile_pattern(pattern, schema, text_match(schema))
    keywords: dict[str, tuple[str, ...]] = {}
    for condition in pattern.conditions:
        if isinstance(condition, Keyword):
            conditions = keywords.get(condition.variable, ())
            keywords[condition.variable] = tuple(dict.fromkeys((*conditions, condition.text)))
    return PatternQuery(text, compiled.pcea, pattern.window, compiled, keywords, compiled.root)


def pattern_notes(text: str, schema: Schema) -> tuple[str, ...]:
    """Warnings: ignored or deprecated parts of a pattern. Raises PatternError, QueryError."""
    if is_formal(text):
        return ()
    keywords = read_query(text, schema).keywords.values()
    ignored_notes = [
        note for texts in keywords for keyword in texts for note in parse_query(keyword, schema).notes
    ]
    return tuple(dict.fromkeys([*former_spellings(text), *ignored_notes]))


def _can_satisfy(alternative: Alternative, relation: int, columns: Sequence[int]) -> bool:
    """True if rows of a relation can satisfy an alternative, by one of the columns or by a condition."""
    if isinstance(alternative, Condition):
        return alternative.relation == relation
    return any(alternative.applies(relation, column) for column in columns)


def text_match(schema: Schema) -> Callable[[str, int, tuple[int, ...]], Callable[[Row], bool]]:
    """The meaning of ``:`` before keywords: one tuple satisfies the keyword query, in some columns."""

    def match(text: str, relation: int, columns: tuple[int, ...]) -> Callable[[Row], bool]:
        relation_schema = schema.relations[relation]
        names = tuple(relation_schema.attributes[column].name for column in columns)
        if not names:
            raise PatternError(
                f"{relation_schema.name} has no attribute that is searched, so none contains {shown(text)}"
            )
        relations = [*schema.relations]
        relations[relation] = replace(relation_schema, search=names)
        query = parse_query(text, schema)
        if query.without or query.without_joins:
            noun = "relation" if query.without else "join"
            raise PatternError(f"one tuple must contain {shown(text)}: there is no {noun} to leave out")
        if query.sequence:
            raise PatternError(
                f"one tuple must contain {shown(text)}: use ';' in the pattern to order tuples"
            )
        for slot in (*query.slots, *query.exclusions):
            if not any(_can_satisfy(each, relation, columns) for each in slot.alternatives):
                places = ", ".join(f"{relation_schema.name}.{name}" for name in names)
                raise PatternError(f"{shown(slot.text)} is never found in {places}")
        matcher = Matcher(query, replace(schema, relations=tuple(relations)))
        all_bits = (1 << len(query.slots)) - 1
        return lambda row: matcher.bitmap(relation, row) == all_bits

    return match
