"""Suggests joins by values, for columns whose names do not show that they refer to another.

Suggestions are comments in the inferred schema, for the user to add. Values alone prove little. Codes and
names seldom occur elsewhere by chance, so a text column whose values occur in an identifier of another
relation is a candidate. The numbers 1 to n occur in every relation of n rows, so an integer column is a
candidate only if it is named like a reference, or if the identifiers have gaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from skws_schema.infer.column_profile import (
    AGENTS,
    IDENTIFIERS,
    ROLES,
    ColumnProfile,
    is_reference_name,
    tokens,
)
from skws_schema.infer.keys import MIN_CONFIDENCE, Finding, SampledTable, identifier_score, relation_named
from skws_schema.model import AttributeType, Join

MOST: Final = 5
"""The most suggestions for a schema."""
_SHARE_OF_TEXTS: Final = 0.9
_SHARE_OF_NUMBERS: Final = 0.95
_LEAST_VALUES: Final = 5
"""The least number of values without a telling name: fewer may match by chance."""
_LEAST_TEXTS: Final = 3
"""Like ``_LEAST_VALUES``, for texts that all occur in the identifier."""
_LEAST_NAMED_VALUES: Final = 2
_LEAST_IDENTIFIER_SCORE: Final = 0.7
_DENSITY: Final = 0.5
"""The share of used numbers between the least and the greatest identifier."""
_MOST_CONFIDENCE: Final = 0.55
"""The highest confidence of a suggestion, below that of a join."""
_PEOPLE: Final = frozenset(
    {"user", "person", "people", "employee", "staff", "member", "account", "agent", "customer", "author"}
    | {"client", "contact", "patient", "student", "teacher", "driver"}
)


class _Candidate(NamedTuple):
    strength: int
    share: float
    identifies: float
    source: SampledTable
    column: ColumnProfile
    target: SampledTable
    identifier: ColumnProfile

    @property
    def rank(self) -> tuple[int, float, float, int]:
        return self.strength, self.share, self.identifies, min(len(self.column.distinct), 20)

    def finding(self) -> Finding[Join]:
        on = ((self.column.name, self.identifier.name),)
        count = len(self.column.distinct)
        reason = f"by values: {self.share:.0%} of {count:,} found there"
        join = Join.of(self.source.name, self.target.name, on)
        return Finding(join, round(_MOST_CONFIDENCE * self.share * count / (count + 1), 2), reason)


def find_possible(tables: Sequence[SampledTable], joins: Sequence[Finding[Join]]) -> list[Finding[Join]]:
    """At most ``MOST`` likely joins, best first, besides ``joins``, which were found by name."""
    certain_joins = [finding.value for finding in joins if finding.confidence >= MIN_CONFIDENCE]
    referring_columns = {(finding.value.left, a) for finding in joins for a, _ in finding.value.on}
    referred_columns = {(join.right, b) for join in certain_joins for _, b in join.on}
    link_columns = {(join.left, a) for join in certain_joins if len(join.on) == 1 for a, _ in join.on}
    targets = [
        (table, column)
        for table in tables
        for column in table.columns.values()
        if column.unique
        and column.joinable
        and (table.name, column.name) not in link_columns
        and identifier_score(table, column) >= _LEAST_IDENTIFIER_SCORE
    ]
    candidates: list[_Candidate] = []
    for table in tables:
        for column in table.columns.values():
            position = (table.name, column.name)
            if column.joinable and position not in referring_columns and position not in referred_columns:
                candidates += _best_of(list(_candidates(table, column, targets, tables)))
    return [
        candidate.finding() for candidate in sorted(candidates, key=lambda one: one.rank, reverse=True)[:MOST]
    ]


def _candidates(
    source: SampledTable,
    column: ColumnProfile,
    targets: Sequence[tuple[SampledTable, ColumnProfile]],
    tables: Sequence[SampledTable],
) -> Iterator[_Candidate]:
    named_table = relation_named(column.name, source, tables)
    for target, identifier in targets:
        if target is source and not _may_refer_to_own(column, identifier):
            continue
        share = column.contained_in(identifier)
        strength = _strength(source, column, target, identifier, named_table)
        is_integer = column.type is AttributeType.INTEGER
        if share < (_SHARE_OF_NUMBERS if is_integer else _SHARE_OF_TEXTS):
            continue
        if is_integer and not strength and (column.unique or _is_dense(identifier)):
            continue
        min_count = (
            _LEAST_NAMED_VALUES if strength else _LEAST_VALUES if is_integer or share < 1 else _LEAST_TEXTS
        )
        if len(column.distinct) >= min_count:
            score = identifier_score(target, identifier)
            yield _Candidate(strength, share, score, source, column, target, identifier)


def _may_refer_to_own(column: ColumnProfile, identifier: ColumnProfile) -> bool:
    """True if texts, as in ``In-Reply-To``, may refer to identifiers of other rows of the same relation."""
    is_text = column.type is AttributeType.TEXT
    return is_text and all(
        value is None or value != other for value, other in zip(column.values, identifier.values, strict=True)
    )


def _strength(
    source: SampledTable,
    column: ColumnProfile,
    target: SampledTable,
    identifier: ColumnProfile,
    named_table: SampledTable | None,
) -> int:
    """The evidence of the name: 3 if it names the relation, 2 a person, 1 any reference, else 0."""
    words = tokens(column.name)
    if named_table is not None and named_table is not source:
        is_count = column.type is AttributeType.INTEGER and words[-1] not in IDENTIFIERS
        return 3 if named_table is target and not is_count else 0
    if not words or identifier_score(source, column) > 0.9:
        return 0  # its own identifier
    if words[-1] == "by" or set(words) & AGENTS:
        return 2 if target.words and target.words[-1] in _PEOPLE else 1
    if words == tokens(identifier.name) and column.type is AttributeType.TEXT:
        return 1
    return 1 if is_reference_name(column.name) or set(words) & ROLES else 0


def _is_dense(identifier: ColumnProfile) -> bool:
    numbers = [value for value in identifier.distinct if isinstance(value, int)]
    return bool(numbers) and len(numbers) > _DENSITY * (max(numbers) - min(numbers) + 1)


def _best_of(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """The best candidate; none if its integers occur in several identifiers and no name decides."""
    ranked = sorted(candidates, key=lambda one: one.rank, reverse=True)
    if len(ranked) > 1 and ranked[0].column.type is AttributeType.INTEGER:
        first, second = ranked[:2]
        is_ambiguous = _is_dense(first.identifier) and first.strength == second.strength
        return [] if is_ambiguous else [first]
    return ranked[:1]
