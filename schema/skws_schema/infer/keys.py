"""Finds keys, event times, and references between attributes.

A join that others imply is left out, such as ``city.country = country.code`` if a city's province leads to
the country as well: the tuples are connected without it, and it would only repeat results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, product
from typing import Generic, TypeVar

from skws_schema.infer.column_profile import (
    EVENT,
    FEW_ODD,
    GENERIC,
    HALF_ODD,
    IDENTIFIERS,
    LATER,
    ROLES,
    ColumnProfile,
    is_reference_name,
    relation_tokens,
    stem,
    tokens,
)
from skws_schema.model import AttributeType, Join

T_co = TypeVar("T_co", covariant=True)

MIN_CONFIDENCE = 0.6
"""The least confidence of a guess in the schema."""
_TIME_WITH_NULL = 0.5
_WIDEST_KEY = 3
_MOST_COLUMNS = 8


@dataclass(frozen=True, slots=True)
class Finding(Generic[T_co]):
    """An inferred value, with its confidence (0 to 1) and a reason."""

    value: T_co
    confidence: float
    reason: str


@dataclass(frozen=True)
class SampledTable:
    """A relation's sampled columns, by name, in order. ``truncated``: it may have more rows than the sample.

    ``alias``: another name by which columns may refer to it.
    """

    name: str
    columns: Mapping[str, ColumnProfile]
    truncated: bool = False
    alias: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The words by which columns refer to it, the last one in the singular."""
        return relation_tokens(self.alias or self.name)

    @property
    def number(self) -> str:
        """The digits at the end of its name."""
        return self.name[len(self.name.rstrip("0123456789")) :]

    @property
    def rows(self) -> int:
        return max((len(c.values) for c in self.columns.values()), default=0)


def relations_named(name: str, source: SampledTable, tables: Sequence[SampledTable]) -> list[SampledTable]:
    """The relations to which an attribute of ``source`` refers by its name: the longest that end its stem.

    There are several if their names differ only in numbers, such as those of years; those with the number of
    ``source`` are first. If ``source`` is among them, the name is its own.
    """
    words = stem(name)
    candidates = [t for t in tables if t.words and words[-len(t.words) :] == t.words]
    longest = max((len(t.words) for t in candidates), default=0)
    named = [t for t in candidates if len(t.words) == longest]
    if any(t.name == source.name for t in named):
        return [source]
    return sorted(named, key=lambda t: t.number != source.number)


def relation_named(name: str, source: SampledTable, tables: Sequence[SampledTable]) -> SampledTable | None:
    """The first of ``relations_named``."""
    return next(iter(relations_named(name, source, tables)), None)


def identifier_score(table: SampledTable, column: ColumnProfile) -> float:
    """How likely other columns refer to a unique column, by its name and position (0 to 1)."""
    words = tokens(column.name)
    table_words = table.words
    if words == ("id",) or (words[-1:] == ("id",) and stem(column.name) == table_words):
        return 0.98
    if words[-1:] and words[-1] in {"code", "key", "uuid", "guid", "hash", "sha", "no", "number"}:
        return 0.85
    if words[-1:] == ("id",) or (len(words) == 1 and words[0].endswith("id")):
        return 0.85
    if words == ("name",) or stem(column.name) == table_words:
        return 0.8
    return 0.7 if next(iter(table.columns)) == column.name else 0.3


def find_key(
    table: SampledTable, tables: Sequence[SampledTable], reference_counts: Mapping[str, int]
) -> Finding[tuple[str, ...]] | None:
    """The likeliest key. ``reference_counts``: the number of joins that lead to each column."""
    candidates = [c for c in table.columns.values() if c.full and c.joinable]
    reference_columns = [c for c in candidates if _refers_elsewhere(c, table, tables)]
    if len(reference_columns) > 1 and len(reference_columns) == len(
        [c for c in table.columns.values() if c.joinable]
    ):
        key = _composite(table, reference_columns)
        if key:
            return key
    unique_columns = [c for c in candidates if c.unique]
    if unique_columns:
        best = max(
            unique_columns, key=lambda c: (reference_counts.get(c.name, 0) > 0, identifier_score(table, c))
        )
        score = identifier_score(table, best)
        uses = reference_counts.get(best.name, 0)
        # Below the score that `_lower_if_few` leaves unchanged, since few rows prove no key.
        score = max(score, 0.89) if uses else score
        reason = f"unique in {table.rows} rows" + (f", and {uses} of the joins lead to it" if uses else "")
        return Finding((best.name,), _lower_if_few(score, table.rows), reason)
    return _composite(table, candidates)


def widened_keys(
    tables: Mapping[str, SampledTable],
    keys: Mapping[str, Finding[tuple[str, ...]]],
    joins: Sequence[Finding[Join]],
) -> dict[str, Finding[tuple[str, ...]]]:
    """The keys; a composite one that has the naming column of a reference gets all of its columns.

    A city's name and province are unique in a sample, but a province is only identified with its country.
    """
    new_keys = dict(keys)
    for join in (finding.value for finding in joins if finding.confidence >= MIN_CONFIDENCE):
        key = new_keys.get(join.left)
        columns = [column for column, _ in join.on]
        table = tables[join.left]
        if not key or len(key.value) == 1 or not all(table.columns[c].full for c in columns):
            continue
        naming_columns = {c for c in columns if stem(c) == relation_tokens(join.right)}
        if naming_columns & set(key.value):
            columns_of_key = (*key.value, *(c for c in columns if c not in key.value))
            new_keys[join.left] = replace(key, value=columns_of_key)
    return new_keys


def find_time(table: SampledTable, earlier: str | None = None) -> Finding[str] | None:
    """The likeliest event time among the timestamps; ``earlier``: that of an earlier schema."""
    timestamps = [c for c in table.columns.values() if c.type is AttributeType.TIMESTAMP]
    findings = [
        _time(table, c, HALF_ODD if c.name == earlier else FEW_ODD)
        for c in timestamps
        if len(c.distinct) > max(1, table.rows // 100)
    ]
    return max(findings, key=lambda f: f.confidence, default=None)


def _refers_elsewhere(column: ColumnProfile, table: SampledTable, tables: Sequence[SampledTable]) -> bool:
    return relation_named(column.name, table, tables) not in (None, table)


def _composite(table: SampledTable, candidates: Sequence[ColumnProfile]) -> Finding[tuple[str, ...]] | None:
    """The narrowest unique combination of columns, the earliest first."""
    for width in range(2, _WIDEST_KEY + 1):
        for columns in combinations(candidates[:_MOST_COLUMNS], width):
            if len(set(zip(*(c.values for c in columns), strict=True))) == table.rows:
                reason = f"together unique in {table.rows} rows"
                return Finding(
                    tuple(c.name for c in columns), _lower_if_few(0.8 - 0.05 * width, table.rows), reason
                )
    return None


def _lower_if_few(score: float, rows: int) -> float:
    """A score, lowered if there are few rows."""
    return round(score * rows / (rows + 1), 2) if score < 0.9 else score


def _time(table: SampledTable, column: ColumnProfile, most_missing: float) -> Finding[str]:
    """``most_missing``: the share of rows that may be bad records, since they have no time."""
    words = set(tokens(column.name))
    texts = [str(v) for v in column.values if v is not None]
    order_share = sum(a <= b for a, b in pairwise(texts)) / max(1, len(texts) - 1)
    score, reasons = 0.3, ["a timestamp"]
    if words & EVENT and not words & LATER:
        score, reasons = score + 0.3, [*reasons, "named like the time of an event"]
    if words & LATER:
        score -= 0.2
    if table.words == stem(column.name)[: len(table.words)]:
        score, reasons = score + 0.1, [*reasons, "named after the relation"]
    if column.full:
        score, reasons = score + 0.1, [*reasons, "never empty"]
    if order_share >= 0.95:
        score, reasons = score + 0.2, [*reasons, "rows are in its order"]
    missing_count = len(column.values) - len(texts)
    if missing_count > len(column.values) * most_missing:
        score, reasons = min(score, _TIME_WITH_NULL), [*reasons, f"missing in {missing_count:,} rows"]
    return Finding(column.name, round(max(0.0, min(score, 0.99)), 2), ", ".join(reasons))


MIN_CONTAINMENT = 0.95
"""The least share of a column's values that occur in the column to which it refers."""
_FEW_VALUES = 3
_FEW_DOUBT = 0.3
_FEW_DOUBT_OF_IDENTIFIERS = 0.15
"""Equal names of identifiers are better evidence than two values: small data has joins too."""
_SHARED_NAME = 0.8
"""Evidence of two columns with the same name."""
_LEAST_SHARE = 0.5
_MANY_VALUES = 10
_SURE_IDENTIFIER = 0.9
"""Roles such as `parent` refer to identifiers with a higher score."""
_CLEAR_NAME = 0.85
_UNSEEN_FACTOR = 0.75
"""Factor of the confidence of a name if the values could not be compared."""
_MOST_OPTIONS = 4


@dataclass(frozen=True)
class _Reference:
    """A column that may refer to a unique column of another relation."""

    source: SampledTable
    column: ColumnProfile
    target: SampledTable
    identifier: ColumnProfile
    containment: float
    by_name: float

    @property
    def rank(self) -> tuple[float, float, float]:
        return self.by_name, self.containment, identifier_score(self.target, self.identifier)

    def finding(self, confidence: float, reason: str) -> Finding[Join]:
        left, right = f"{self.source.name}.{self.column.name}", f"{self.target.name}.{self.identifier.name}"
        pair = ((self.column.name, self.identifier.name),)
        join = Join(f"{left} = {right}", self.source.name, self.target.name, pair)
        return Finding(join, round(confidence, 2), reason)


def find_references(tables: Sequence[SampledTable]) -> list[Finding[Join]]:
    """The likeliest reference of each column that has one."""
    targets = _Targets([(t, c) for t in tables for c in t.columns.values() if _is_target(t, c, tables)])
    references = [
        max(options, key=lambda r: r.rank)
        for table in tables
        for column in table.columns.values()
        if (options := list(_named_options(table, column, tables, targets)))
    ]
    reference_counts = Counter((r.target.name, r.identifier.name) for r in references)
    findings = [_finding_by_name(r) for r in references]
    return findings + [_by_values(r) for r in _references_by_values(tables, references, reference_counts)]


def find_composite_references(
    tables: Sequence[SampledTable], keys: Mapping[str, tuple[str, ...]]
) -> list[Finding[Join]]:
    """References to composite keys, except keys of relations that only link others."""
    return [
        finding
        for target in tables
        if len(keys.get(target.name, ())) > 1 and not _is_link(target, keys[target.name], tables)
        for source in tables
        if source.name != target.name
        for finding in _composite_reference(source, target, keys[target.name])
    ]


class _Targets:
    """The identifiers that columns may refer to, indexed by name.

    A relation of a thousand columns has about as many identifiers: comparing all pairs would be slow.
    """

    def __init__(self, identifiers: Sequence[tuple[SampledTable, ColumnProfile]]) -> None:
        self._identifiers = identifiers
        self._of: dict[str, list[int]] = {}
        self._by_name: dict[tuple[str, ...], dict[str, list[int]]] = {}
        self._sure: dict[str, list[int]] = {}
        for number, (table, column) in enumerate(identifiers):
            self._of.setdefault(table.name, []).append(number)
            self._by_name.setdefault(tokens(column.name), {}).setdefault(table.name, []).append(number)
            if identifier_score(table, column) > _SURE_IDENTIFIER:
                self._sure.setdefault(table.name, []).append(number)

    def of(
        self, source: SampledTable, column: ColumnProfile, named_table: SampledTable | None
    ) -> Iterator[tuple[SampledTable, ColumnProfile]]:
        """The identifiers for which ``_name_evidence`` may be above 0, in order."""
        numbers = set(
            self._of.get(named_table.name, ()) if named_table is not None else self._sure.get(source.name, ())
        )
        if named_table is None or named_table is source:
            for table, identifiers in self._by_name.get(tokens(column.name), {}).items():
                numbers.update(identifiers if table != source.name else ())
        return map(self._identifiers.__getitem__, sorted(numbers))


def _named_options(
    source: SampledTable, column: ColumnProfile, tables: Sequence[SampledTable], targets: _Targets
) -> Iterator[_Reference]:
    named_tables: list[SampledTable | None] = [*relations_named(column.name, source, tables)]
    for named_table in named_tables or [None]:
        yield from _options(source, column, named_table, targets)


def _options(
    source: SampledTable, column: ColumnProfile, named_table: SampledTable | None, targets: _Targets
) -> Iterator[_Reference]:
    for target, identifier in targets.of(source, column, named_table):
        by_name = _name_evidence(source, column, target, identifier, named_table)
        if identifier is column or not by_name:
            continue
        containment = column.contained_in(identifier)
        if containment >= _LEAST_SHARE or _by_name_alone(column, target, identifier, by_name):
            yield _Reference(source, column, target, identifier, containment, by_name)


def _by_name_alone(
    column: ColumnProfile, target: SampledTable, identifier: ColumnProfile, by_name: float
) -> bool:
    """True if the name is clear evidence, and missing values may be in rows outside the sample."""
    is_telling = by_name >= _SHARED_NAME and is_reference_name(column.name) and bool(column.distinct)
    return target.truncated and is_telling and column.type is identifier.type


def _is_target(table: SampledTable, column: ColumnProfile, tables: Sequence[SampledTable]) -> bool:
    """True if the column is unique, and not itself a reference to another relation."""
    if not (column.unique and column.joinable):
        return False
    return relation_named(column.name, table, tables) in (None, table)


def _name_evidence(
    source: SampledTable,
    column: ColumnProfile,
    target: SampledTable,
    identifier: ColumnProfile,
    named_table: SampledTable | None,
) -> float:
    """How clearly the column's name refers to the target (0: not at all).

    ``named_table``: the relation it names.
    """
    if named_table is target:
        return _names_relation(source, column, target)
    if named_table is not None and named_table is not source:
        return 0.0
    words = tokens(column.name)
    if source is not target:
        if named_table is source and target.words == source.words:
            return 0.0  # the same ids of other things, as in exports of two years
        is_generic = len(words) == 1 and words[0] in GENERIC
        return _SHARED_NAME if words == tokens(identifier.name) and not is_generic else 0.0
    return _names_role(column, identifier) if identifier_score(target, identifier) > _SURE_IDENTIFIER else 0.0


def _names_relation(source: SampledTable, column: ColumnProfile, target: SampledTable) -> float:
    is_exact = stem(column.name) == target.words
    if source is target and column.unique:
        return 0.0  # its own identifier, or its own name
    if column.type is AttributeType.INTEGER and not is_reference_name(column.name):
        # `votes` and `up_votes` count; `vote` may refer.
        return 0.85 if is_exact and tokens(column.name) == target.words else 0.0
    return 0.95 if is_exact else 0.85


def _names_role(column: ColumnProfile, identifier: ColumnProfile) -> float:
    """The evidence for a reference to another tuple of the same relation by a role, such as parent."""
    if column.type is not identifier.type:
        return 0.0
    words = set(tokens(column.name))
    if words & ROLES:
        return 0.75
    is_unlikely = column.unique or len(column.distinct) < _MANY_VALUES or not is_reference_name(column.name)
    return 0.0 if is_unlikely or words & GENERIC - IDENTIFIERS else 0.5


def _finding_by_name(reference: _Reference) -> Finding[Join]:
    has_shared_name = reference.by_name == _SHARED_NAME and reference.column.type is not AttributeType.INTEGER
    is_complete = has_shared_name and reference.containment == 1
    has_few_values = (
        len(reference.column.distinct) < _FEW_VALUES and reference.by_name < _CLEAR_NAME and not is_complete
    )
    share = f"{reference.containment:.0%} of {len(reference.column.distinct)} values found there"
    is_identifier = is_reference_name(reference.column.name)
    doubt = _FEW_DOUBT_OF_IDENTIFIERS if is_identifier else _FEW_DOUBT
    confidence = reference.by_name * reference.containment - (doubt if has_few_values else 0)
    if reference.containment < MIN_CONTAINMENT:
        if _by_name_alone(reference.column, reference.target, reference.identifier, reference.by_name):
            note = f"only the first {reference.target.rows:,} rows of {reference.target.name} were looked at"
            return reference.finding(reference.by_name * _UNSEEN_FACTOR, f"by name; {note}")
        # By the name alone: the referenced rows may be deleted, or outside the sample.
        confidence = min(confidence, 0.5)
    return reference.finding(confidence, f"by name, and {share}")


def _references_by_values(
    tables: Sequence[SampledTable],
    references: Sequence[_Reference],
    reference_counts: Counter[tuple[str, str]],
) -> Iterator[_Reference]:
    """References of text columns whose names say nothing, but whose values occur in a referenced column."""
    used_columns = {(r.source.name, r.column.name) for r in references} | set(reference_counts)
    targets = [(t, t.columns[c]) for t in tables for c in t.columns if reference_counts[t.name, c] > 1]
    for source in tables:
        for column in source.columns.values():
            if (source.name, column.name) in used_columns or column.type is AttributeType.INTEGER:
                continue
            if len(column.distinct) < _MANY_VALUES:
                continue
            candidates = [(column.contained_in(identifier), t, identifier) for t, identifier in targets]
            candidates = [
                candidate
                for candidate in candidates
                if candidate[0] >= max(MIN_CONTAINMENT, 0.99) and candidate[2] is not column
            ]
            if candidates:
                containment, target, identifier = max(candidates, key=lambda candidate: candidate[0])
                yield _Reference(source, column, target, identifier, containment, 0.0)


def _by_values(reference: _Reference) -> Finding[Join]:
    weight = min(1.0, len(reference.column.distinct) / 20)
    reason = f"all {len(reference.column.distinct)} values found there, though the name does not say so"
    return reference.finding(0.5 + 0.2 * weight, reason)


def _is_link(table: SampledTable, key: Sequence[str], tables: Sequence[SampledTable]) -> bool:
    """True if every column of the key refers to another relation."""
    return all(relation_named(name, table, tables) not in (None, table) for name in key)


def _composite_reference(
    source: SampledTable, target: SampledTable, key: Sequence[str]
) -> Iterator[Finding[Join]]:
    options = [_parts(source, target, target.columns[name]) for name in key]
    key_values = set(zip(*(target.columns[name].values for name in key), strict=True))
    best: tuple[float, float, int, tuple[ColumnProfile, ...]] | None = None
    for columns in product(*options):
        if len(set(map(id, columns))) < len(columns):
            continue
        rows = {r for r in zip(*(c.values for c in columns), strict=True) if None not in r}
        containment = len(rows & key_values) / len(rows) if rows else 0.0
        names = sum(_is_named_like(c, target, name) for c, name in zip(columns, key, strict=True)) / len(key)
        if containment >= MIN_CONTAINMENT and names and (best is None or (names, containment) > best[:2]):
            best = (names, containment, len(rows), columns)
    if best:
        yield _composite_finding(source, target, key, best)


def _parts(source: SampledTable, target: SampledTable, key_column: ColumnProfile) -> list[ColumnProfile]:
    """The columns of the source most likely to refer to one column of the key, by name, then by values."""
    candidates = [(c, c.contained_in(key_column)) for c in source.columns.values()]
    candidates = [(c, share) for c, share in candidates if share >= MIN_CONTAINMENT - 0.05]
    candidates.sort(key=lambda pair: (not _is_named_like(pair[0], target, key_column.name), -pair[1]))
    return [c for c, _ in candidates[:_MOST_OPTIONS]]


def _is_named_like(column: ColumnProfile, target: SampledTable, key_column: str) -> bool:
    """True if the column is named like the key's column, or like the relation for a column such as ``id``."""
    is_generic = len(tokens(key_column)) == 1 and tokens(key_column)[0] in GENERIC
    if is_generic:
        return stem(column.name) == target.words
    return stem(column.name) == stem(key_column)


def _composite_finding(
    source: SampledTable,
    target: SampledTable,
    key: Sequence[str],
    best: tuple[float, float, int, tuple[ColumnProfile, ...]],
) -> Finding[Join]:
    names, containment, rows, columns = best
    pairs = tuple((column.name, name) for column, name in zip(columns, key, strict=True))
    confidence = (0.6 + 0.3 * names) * containment * (rows / (rows + 1)) - (0.3 if rows < _FEW_VALUES else 0)
    reason = f"{containment:.0%} of {rows} combinations found there"
    return Finding(Join.of(source.name, target.name, pairs), round(confidence, 2), reason)


Columns = tuple[str, ...]


def implied_joins(joins: Sequence[Finding[Join]], tables: Mapping[str, SampledTable]) -> frozenset[str]:
    """Names of joins that can be left out while all tuples stay connected; narrow joins go first."""
    remaining = {finding.value.name: finding.value for finding in joins}
    for join in sorted(remaining.values(), key=lambda j: len(j.on)):
        others = [other for other in remaining.values() if other is not join]
        if _reaches(join, others, tables):
            del remaining[join.name]
    return frozenset(finding.value.name for finding in joins) - frozenset(remaining)


def _reaches(join: Join, others: Sequence[Join], tables: Mapping[str, SampledTable]) -> bool:
    """True if a wider join, followed by any others, connects the same columns."""
    near, far = (tuple(column) for column in zip(*join.on, strict=True))
    frontier = [
        (wider.right, _partner_columns(wider, near))
        for wider in others
        if wider.left == join.left and len(wider.on) > len(join.on) and _determines(wider, near, tables)
    ]
    visited: set[tuple[str, Columns]] = set()
    while frontier:
        node = frontier.pop()
        if node == (join.right, far):
            return True
        if node not in visited:
            visited.add(node)
            steps = (j for j in others if j.left == node[0] and _determines(j, node[1], tables))
            frontier += [(step.right, _partner_columns(step, node[1])) for step in steps]
    return False


def _determines(join: Join, columns: Columns, tables: Mapping[str, SampledTable]) -> bool:
    """True if every tuple of the left side has a partner with equal values in ``columns``."""
    sources = [source for source, _ in join.on]
    return set(columns) <= set(sources) and all(tables[join.left].columns[s].full for s in sources)


def _partner_columns(join: Join, columns: Columns) -> Columns:
    targets = dict(join.on)
    return tuple(targets[column] for column in columns)
