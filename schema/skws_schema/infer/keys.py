"""Finds the attributes that identify rows, those that hold their time, and references between attributes.

A join that others imply is left out, such as ``city.country = country.code``
where a city's province leads there too: the tuples are connected without it, so
it would only repeat results by a shorter way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, product
from typing import Generic, TypeVar

from skws_schema.infer.column_profile import (
    EVENT,
    GENERIC,
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
"""Of a guess that is part of the schema, at least."""
_WIDEST_KEY = 3
_COLUMNS_TRIED = 8


@dataclass(frozen=True, slots=True)
class Finding(Generic[T_co]):
    """Something inferred, how sure it is (0 to 1), and why."""

    value: T_co
    confidence: float
    reason: str


@dataclass(frozen=True)
class Table:
    """A relation's sampled columns, by name, in order. ``cut``: it may have more rows than the sample.

    ``called``: what columns that refer to it may call it, if not by its name.
    """

    name: str
    columns: Mapping[str, ColumnProfile]
    cut: bool = False
    called: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """Those by which columns refer to it, the last in the singular."""
        return relation_tokens(self.called or self.name)

    @property
    def rows(self) -> int:
        return max((len(c.values) for c in self.columns.values()), default=0)


def relation_named(name: str, tables: Sequence[Table]) -> Table | None:
    """The relation that an attribute's name refers to: the one whose name ends its stem, the longest."""
    words = stem(name)
    fitting = [t for t in tables if t.words and words[-len(t.words) :] == t.words]
    return max(fitting, key=lambda t: len(t.words), default=None)


def identifier_score(table: Table, column: ColumnProfile) -> float:
    """How much a unique column looks like what others would refer to, by its name and place."""
    words = tokens(column.name)
    own = table.words
    if words == ("id",) or (words[-1:] == ("id",) and stem(column.name) == own):
        return 0.98
    if words[-1:] and words[-1] in {"code", "key", "uuid", "guid", "hash", "sha", "no", "number"}:
        return 0.85
    if words[-1:] == ("id",) or (len(words) == 1 and words[0].endswith("id")):
        return 0.85
    if words == ("name",) or stem(column.name) == own:
        return 0.8
    return 0.7 if next(iter(table.columns)) == column.name else 0.3


def find_key(
    table: Table, tables: Sequence[Table], referenced: Mapping[str, int]
) -> Finding[tuple[str, ...]] | None:
    """The likeliest key; ``referenced`` counts the joins found to each of the relation's columns."""
    fit = [c for c in table.columns.values() if c.full and c.joinable]
    links = [c for c in fit if _refers_elsewhere(c, table, tables)]
    if len(links) > 1 and len(links) == len([c for c in table.columns.values() if c.joinable]):
        found = _composite(table, links)
        if found:
            return found
    single = [c for c in fit if c.unique]
    if single:
        best = max(single, key=lambda c: (referenced.get(c.name, 0) > 0, identifier_score(table, c)))
        score = identifier_score(table, best)
        uses = referenced.get(best.name, 0)
        score = (
            max(score, 0.89) if uses else score
        )  # below what `_sure` takes as it is: few rows prove no key
        reason = f"unique in {table.rows} rows" + (f", and {uses} of the joins lead to it" if uses else "")
        return Finding((best.name,), _sure(score, table.rows), reason)
    return _composite(table, fit)


def widened_keys(
    tables: Mapping[str, Table],
    keys: Mapping[str, Finding[tuple[str, ...]]],
    joins: Sequence[Finding[Join]],
) -> dict[str, Finding[tuple[str, ...]]]:
    """Composite keys, extended by the rest of a reference whose naming part they have.

    A city's name and province are unique in a sample, but a province is identified with its country.
    """
    wider = dict(keys)
    for join in (found.value for found in joins if found.confidence >= MIN_CONFIDENCE):
        key = wider.get(join.left)
        columns = [column for column, _ in join.on]
        table = tables[join.left]
        if not key or len(key.value) == 1 or not all(table.columns[c].full for c in columns):
            continue
        naming = {c for c in columns if stem(c) == relation_tokens(join.right)}
        if naming & set(key.value):
            parts = (*key.value, *(c for c in columns if c not in key.value))
            wider[join.left] = replace(key, value=parts)
    return wider


def find_time(table: Table) -> Finding[str] | None:
    """The likeliest event time among the timestamps."""
    moments = [c for c in table.columns.values() if c.type is AttributeType.TIMESTAMP]
    found = [_time(table, c) for c in moments if len(c.distinct) > max(1, table.rows // 100)]
    return max(found, key=lambda f: f.confidence, default=None)


def _refers_elsewhere(column: ColumnProfile, table: Table, tables: Sequence[Table]) -> bool:
    target = relation_named(column.name, tables)
    return target is not None and target.name != table.name


def _composite(table: Table, fit: Sequence[ColumnProfile]) -> Finding[tuple[str, ...]] | None:
    """The narrowest unique combination of columns, the earliest first."""
    for width in range(2, _WIDEST_KEY + 1):
        for columns in combinations(fit[:_COLUMNS_TRIED], width):
            if len(set(zip(*(c.values for c in columns), strict=True))) == table.rows:
                reason = f"together unique in {table.rows} rows"
                return Finding(tuple(c.name for c in columns), _sure(0.8 - 0.05 * width, table.rows), reason)
    return None


def _sure(score: float, rows: int) -> float:
    """Lower the confidence where there are few rows."""
    return round(score * rows / (rows + 1), 2) if score < 0.9 else score


def _time(table: Table, column: ColumnProfile) -> Finding[str]:
    words = set(tokens(column.name))
    known = [str(v) for v in column.values if v is not None]
    ordered = sum(a <= b for a, b in pairwise(known)) / max(1, len(known) - 1)
    score, reasons = 0.3, ["a timestamp"]
    if words & EVENT and not words & LATER:
        score, reasons = score + 0.3, [*reasons, "named like the time of an event"]
    if words & LATER:
        score -= 0.2
    if table.words == stem(column.name)[: len(table.words)]:
        score, reasons = score + 0.1, [*reasons, "named after the relation"]
    if column.full:
        score, reasons = score + 0.1, [*reasons, "never empty"]
    if ordered >= 0.95:
        score, reasons = score + 0.2, [*reasons, "rows are in its order"]
    return Finding(column.name, round(max(0.0, min(score, 0.99)), 2), ", ".join(reasons))


MIN_CONTAINMENT = 0.95
"""The share of a column's values that occur in the one it refers to, at least."""
_FEW = 3
_FEW_DOUBT = 0.3
_FEW_DOUBT_OF_IDENTIFIERS = 0.15
"""Equal names of identifiers say more than two values can: small data has joins, too."""
_SHARED = 0.8
"""Of two columns with one name."""
_NEARLY = 0.5
_MANY = 10
_SURE_IDENTIFIER = 0.9
"""The score of an identifier that roles such as `parent` refer to is above it."""
_TELLING = 0.85
_UNSEEN = 0.75
"""Of the confidence of a name, what is left where the values could not be compared."""
_OPTIONS = 4


@dataclass(frozen=True)
class _Reference:
    """One column that may refer to another relation's unique column."""

    source: Table
    column: ColumnProfile
    target: Table
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


def find_references(tables: Sequence[Table]) -> list[Finding[Join]]:
    """The likeliest single-column reference of each column, if it has one."""
    targets = _Targets([(t, c) for t in tables for c in t.columns.values() if _is_target(t, c, tables)])
    best = [
        max(options, key=lambda r: r.rank)
        for table in tables
        for column in table.columns.values()
        if (options := list(_options(table, column, relation_named(column.name, tables), targets)))
    ]
    hubs = Counter((r.target.name, r.identifier.name) for r in best)
    found = [_named(r) for r in best]
    return found + [_by_values(r) for r in _unnamed(tables, best, hubs)]


def find_composite_references(
    tables: Sequence[Table], keys: Mapping[str, tuple[str, ...]]
) -> list[Finding[Join]]:
    """References to the composite keys of relations, except links between others."""
    return [
        found
        for target in tables
        if len(keys.get(target.name, ())) > 1 and not _is_link(target, keys[target.name], tables)
        for source in tables
        if source.name != target.name
        for found in _composite_reference(source, target, keys[target.name])
    ]


class _Targets:
    """The identifiers that columns may refer to: each column looks only at those which its name allows.

    A relation of a thousand columns has about as many, and so a million pairs.
    """

    def __init__(self, every: Sequence[tuple[Table, ColumnProfile]]) -> None:
        self._every = every
        self._of: dict[str, list[int]] = {}
        self._named: dict[tuple[str, ...], dict[str, list[int]]] = {}
        self._sure: dict[str, list[int]] = {}
        for place, (table, column) in enumerate(every):
            self._of.setdefault(table.name, []).append(place)
            self._named.setdefault(tokens(column.name), {}).setdefault(table.name, []).append(place)
            if identifier_score(table, column) > _SURE_IDENTIFIER:
                self._sure.setdefault(table.name, []).append(place)

    def of(
        self, source: Table, column: ColumnProfile, named: Table | None
    ) -> Iterator[tuple[Table, ColumnProfile]]:
        """All those of which ``_name_evidence`` may be above 0, in order."""
        places = set(self._of.get(named.name, ()) if named is not None else self._sure.get(source.name, ()))
        if named is None or named is source:
            for table, same in self._named.get(tokens(column.name), {}).items():
                places.update(same if table != source.name else ())
        return map(self._every.__getitem__, sorted(places))


def _options(
    source: Table, column: ColumnProfile, named: Table | None, targets: _Targets
) -> Iterator[_Reference]:
    for target, identifier in targets.of(source, column, named):
        by_name = _name_evidence(source, column, target, identifier, named)
        if identifier is column or not by_name:
            continue
        containment = column.contained_in(identifier)
        if containment >= _NEARLY or _by_name_alone(column, target, identifier, by_name):
            yield _Reference(source, column, target, identifier, containment, by_name)


def _by_name_alone(column: ColumnProfile, target: Table, identifier: ColumnProfile, by_name: float) -> bool:
    """True if the name says so, and the values that are missing may be in rows that were not looked at."""
    telling = by_name >= _SHARED and is_reference_name(column.name) and bool(column.distinct)
    return target.cut and telling and column.type is identifier.type


def _is_target(table: Table, column: ColumnProfile, tables: Sequence[Table]) -> bool:
    """Unique, and not itself a reference to another relation."""
    if not (column.unique and column.joinable):
        return False
    named = relation_named(column.name, tables)
    return named is None or named.name == table.name


def _name_evidence(
    source: Table, column: ColumnProfile, target: Table, identifier: ColumnProfile, named: Table | None
) -> float:
    """How clearly the column's name, which names ``named``, refers to the target; 0 if not at all."""
    if named is target:
        return _names_relation(source, column, target)
    if named is not None and named is not source:
        return 0.0
    words = tokens(column.name)
    if source is not target:
        generic = len(words) == 1 and words[0] in GENERIC
        return _SHARED if words == tokens(identifier.name) and not generic else 0.0
    return _names_role(column, identifier) if identifier_score(target, identifier) > _SURE_IDENTIFIER else 0.0


def _names_relation(source: Table, column: ColumnProfile, target: Table) -> float:
    exact = stem(column.name) == target.words
    if source is target and column.unique:
        return 0.0  # its own identifier, or its own name
    if column.type is AttributeType.INTEGER and not is_reference_name(column.name):
        # `votes` and `up_votes` count; `vote` may refer.
        return 0.85 if exact and tokens(column.name) == target.words else 0.0
    return 0.95 if exact else 0.85


def _names_role(column: ColumnProfile, identifier: ColumnProfile) -> float:
    """A column that refers to another tuple of its own relation by its role, such as parent."""
    if column.type is not identifier.type:
        return 0.0
    words = set(tokens(column.name))
    if words & ROLES:
        return 0.75
    counts = column.unique or len(column.distinct) < _MANY or not is_reference_name(column.name)
    return 0.0 if counts or words & GENERIC - IDENTIFIERS else 0.5


def _named(reference: _Reference) -> Finding[Join]:
    shared = reference.by_name == _SHARED and reference.column.type is not AttributeType.INTEGER
    whole = shared and reference.containment == 1
    small = len(reference.column.distinct) < _FEW and reference.by_name < _TELLING and not whole
    share = f"{reference.containment:.0%} of {len(reference.column.distinct)} values found there"
    identifies = is_reference_name(reference.column.name)
    doubt = _FEW_DOUBT_OF_IDENTIFIERS if identifies else _FEW_DOUBT
    confidence = reference.by_name * reference.containment - (doubt if small else 0)
    if reference.containment < MIN_CONTAINMENT:
        if _by_name_alone(reference.column, reference.target, reference.identifier, reference.by_name):
            seen = f"only the first {reference.target.rows:,} rows of {reference.target.name} were looked at"
            return reference.finding(reference.by_name * _UNSEEN, f"by name; {seen}")
        # By the name alone: rows that are referred to may be gone, or were not sampled.
        confidence = min(confidence, 0.5)
    return reference.finding(confidence, f"by name, and {share}")


def _unnamed(
    tables: Sequence[Table],
    named: Sequence[_Reference],
    hubs: Counter[tuple[str, str]],
) -> Iterator[_Reference]:
    """Columns of codes without a telling name whose values all occur in a column that others refer to."""
    taken = {(r.source.name, r.column.name) for r in named} | set(hubs)
    targets = [(t, t.columns[c]) for t in tables for c in t.columns if hubs[t.name, c] > 1]
    for source in tables:
        for column in source.columns.values():
            if (source.name, column.name) in taken or column.type is AttributeType.INTEGER:
                continue
            if len(column.distinct) < _MANY:
                continue
            fits = [(column.contained_in(identifier), t, identifier) for t, identifier in targets]
            fits = [fit for fit in fits if fit[0] >= max(MIN_CONTAINMENT, 0.99) and fit[2] is not column]
            if fits:
                containment, target, identifier = max(fits, key=lambda fit: fit[0])
                yield _Reference(source, column, target, identifier, containment, 0.0)


def _by_values(reference: _Reference) -> Finding[Join]:
    many = min(1.0, len(reference.column.distinct) / 20)
    reason = f"all {len(reference.column.distinct)} values found there, though the name does not say so"
    return reference.finding(0.5 + 0.2 * many, reason)


def _is_link(table: Table, key: Sequence[str], tables: Sequence[Table]) -> bool:
    """True if every part of the key refers to another relation."""
    named = [relation_named(name, tables) for name in key]
    return all(target is not None and target is not table for target in named)


def _composite_reference(source: Table, target: Table, key: Sequence[str]) -> Iterator[Finding[Join]]:
    options = [_parts(source, target, target.columns[name]) for name in key]
    known = set(zip(*(target.columns[name].values for name in key), strict=True))
    best: tuple[float, float, int, tuple[ColumnProfile, ...]] | None = None
    for columns in product(*options):
        if len(set(map(id, columns))) < len(columns):
            continue
        rows = {r for r in zip(*(c.values for c in columns), strict=True) if None not in r}
        containment = len(rows & known) / len(rows) if rows else 0.0
        names = sum(_part_named(c, target, name) for c, name in zip(columns, key, strict=True)) / len(key)
        if containment >= MIN_CONTAINMENT and names and (best is None or (names, containment) > best[:2]):
            best = (names, containment, len(rows), columns)
    if best:
        yield _composite_finding(source, target, key, best)


def _parts(source: Table, target: Table, part: ColumnProfile) -> list[ColumnProfile]:
    """Columns of the source that may stand for one column of the key: the best named, best contained."""
    fits = [(c, c.contained_in(part)) for c in source.columns.values()]
    fits = [(c, share) for c, share in fits if share >= MIN_CONTAINMENT - 0.05]
    fits.sort(key=lambda fit: (not _part_named(fit[0], target, part.name), -fit[1]))
    return [c for c, _ in fits[:_OPTIONS]]


def _part_named(column: ColumnProfile, target: Table, part: str) -> bool:
    """True if the column has the part's own name, or the relation's for the part that names it."""
    generic = len(tokens(part)) == 1 and tokens(part)[0] in GENERIC
    if generic:
        return stem(column.name) == target.words
    return stem(column.name) == stem(part)


def _composite_finding(
    source: Table,
    target: Table,
    key: Sequence[str],
    best: tuple[float, float, int, tuple[ColumnProfile, ...]],
) -> Finding[Join]:
    names, containment, rows, columns = best
    pairs = tuple((column.name, name) for column, name in zip(columns, key, strict=True))
    confidence = (0.6 + 0.3 * names) * containment * (rows / (rows + 1)) - (0.3 if rows < _FEW else 0)
    reason = f"{containment:.0%} of {rows} combinations found there"
    return Finding(Join.of(source.name, target.name, pairs), round(confidence, 2), reason)


Columns = tuple[str, ...]


def implied_joins(joins: Sequence[Finding[Join]], tables: Mapping[str, Table]) -> frozenset[str]:
    """Names of the joins that can be left out, narrow ones first, so that every connection stays."""
    kept = {found.value.name: found.value for found in joins}
    for join in sorted(kept.values(), key=lambda j: len(j.on)):
        others = [other for other in kept.values() if other is not join]
        if _reaches(join, others, tables):
            del kept[join.name]
    return frozenset(found.value.name for found in joins) - frozenset(kept)


def _reaches(join: Join, others: Sequence[Join], tables: Mapping[str, Table]) -> bool:
    """True if a wider join, then any others, carry the join's columns to where it leads."""
    near, far = (tuple(column) for column in zip(*join.on, strict=True))
    waiting = [
        (wide.right, _carried(wide, near))
        for wide in others
        if wide.left == join.left and len(wide.on) > len(join.on) and _carries(wide, near, tables)
    ]
    seen: set[tuple[str, Columns]] = set()
    while waiting:
        place = waiting.pop()
        if place == (join.right, far):
            return True
        if place not in seen:
            seen.add(place)
            steps = (j for j in others if j.left == place[0] and _carries(j, place[1], tables))
            waiting += [(step.right, _carried(step, place[1])) for step in steps]
    return False


def _carries(join: Join, columns: Columns, tables: Mapping[str, Table]) -> bool:
    """True if every tuple of the left side has a partner, which repeats the columns' values."""
    sources = [source for source, _ in join.on]
    return set(columns) <= set(sources) and all(tables[join.left].columns[s].full for s in sources)


def _carried(join: Join, columns: Columns) -> Columns:
    targets = dict(join.on)
    return tuple(targets[column] for column in columns)
