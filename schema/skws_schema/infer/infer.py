"""Infers a schema from samples of its tables; each guess has a confidence and a reason.

Names and values both count: a column refers to another if its name says so and its values occur there.
Doubtful guesses are written as comments, for the user to accept or delete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from types import MappingProxyType
from typing import Final, NamedTuple

from skws_schema.errors import SchemaError
from skws_schema.infer.column_profile import FEW_ODD, ColumnProfile, profile
from skws_schema.infer.joins_by_values import find_possible
from skws_schema.infer.keys import (
    MIN_CONFIDENCE,
    Finding,
    SampledTable,
    find_composite_references,
    find_key,
    find_references,
    find_time,
    implied_joins,
    widened_keys,
)
from skws_schema.model import PLACE, Attribute, AttributeType, Join, Possible, Relation, Schema, sides
from skws_schema.yaml.document import as_name, attribute_text, head, is_name, join_lines, names, scalar
from skws_schema.yaml.suggested_joins import IMPLIED, possible_joins

SAMPLE_ROWS = 50_000
SAMPLE_OF_DATABASE: Final = 10_000
"""Rows that are sampled of each table of a database whose catalog declares no foreign keys."""

_TIMELESS: Final = "no attribute gives the time of a row"
_PLACE: Final = "where the row is in its file"
_TEXT_INDEX: Final = "a text index of PostgreSQL (tsvector), of words that other columns have"
_ARRAY: Final = "an array of objects"
_COMMENT_COLUMN = 48
_KEY_ROUNDS = 4


REFERS: Final = "refers to another relation, where it is searched"
NO_RELATION: Final = "it is not a valid name"
_TOO_MANY: Final = "the relation has more attributes than can be searched"
WIDEST: Final = 200
"""The most attributes of a relation: an object may be a map with thousands of keys."""
BYTES: Final = "no attribute type holds bytes"
NAMELESS: Final = "it has no name"
NO_ATTRIBUTES: Final = "it has no column that can be an attribute"


class Omission(NamedTuple):
    """A table or column that is not in the schema; ``reason`` completes "left out, since ..."."""

    name: str
    reason: str


class Nested(NamedTuple):
    """The array that holds a relation's rows, in rows of another relation, such as ``commits.files``.

    ``own`` and ``parents``: the equal columns of both relations; empty if the array is in objects that are
    not rows. ``beside``: the other fields of such an object, which are not read.
    """

    origin: str
    own: str = ""
    parents: str = ""
    beside: tuple[str, ...] = ()

    @property
    def parent(self) -> str:
        return self.origin.partition(".")[0]


@dataclass(frozen=True)
class InferredRelation:
    """A relation with all guesses about it. ``table``: why it is a static table; empty for a stream.

    ``origin``: the array that contains its rows.
    """

    name: str
    attributes: tuple[Finding[Attribute], ...]
    key: Finding[tuple[str, ...]] | None
    time: Finding[str] | None
    table: str
    left_out: tuple[Omission, ...] = ()
    origin: str | None = None


@dataclass(frozen=True)
class Inference:
    """The inferred schema, with guesses whose confidence is below MIN_CONFIDENCE."""

    name: str
    relations: tuple[InferredRelation, ...]
    joins: tuple[Finding[Join], ...]
    window: str = "none"
    left_out: tuple[Omission, ...] = ()
    notes: tuple[str, ...] = ()
    heading: str = "# Inferred from samples. Comments say how sure each guess is, from 0 to 1, and why."

    def accepts(self, finding: Finding[object] | None) -> bool:
        """True if the confidence is high enough for the schema."""
        return finding is not None and finding.confidence >= MIN_CONFIDENCE

    def schema(self) -> Schema:
        """The schema without the doubtful guesses."""
        joins = tuple(finding.value for finding in self.joins if self.accepts(finding))
        relations = tuple(map(self._relation, self.relations))
        return Schema(self.name, relations, joins, self.window, possible=tuple(self._possible()))

    def to_yaml(self) -> str:
        """The schema's YAML with confidences and reasons as comments; doubtful guesses are commented out."""
        return "\n".join(self._lines()) + "\n"

    def _possible(self) -> Iterator[Possible]:
        for finding in self.joins:
            if not self.accepts(finding):
                yield from possible_joins(self._guess(join_lines(finding.value)[0], finding))

    def _relation(self, relation: InferredRelation) -> Relation:
        attributes = tuple(finding.value for finding in relation.attributes)
        return Relation(
            name=relation.name,
            attributes=attributes,
            key=relation.key.value if relation.key and self.accepts(relation.key) else (),
            search=tuple(a.name for a in attributes if a.type is AttributeType.TEXT),
            time=relation.time.value if relation.time and self.accepts(relation.time) else None,
            table=bool(relation.table),
            origin=relation.origin,
        )

    def _lines(self) -> Iterator[str]:
        yield self.heading
        yield from head(self.name, self.window)
        yield "relations:"
        for omission in self.left_out:
            yield f"  # left out, since {omission.reason}: {scalar(omission.name)}"
        for relation in self.relations:
            yield from self._relation_lines(relation)
        yield "joins:" if self.joins else "joins: []"
        for finding in self.joins:
            first, *rest = join_lines(finding.value)
            yield from (self._guess(line, finding) for line in (first, *rest))

    def _relation_lines(self, relation: InferredRelation) -> Iterator[str]:
        yield f"  {scalar(relation.name)}:"
        if relation.origin is not None:
            nested = "." in relation.origin
            line = f"    from: {scalar(relation.origin)}"
            yield f"{line.ljust(_COMMENT_COLUMN)}  # {_ARRAY}" if nested else line
        yield "    attributes:"
        for attribute in relation.attributes:
            yield _with_note(
                f"      {scalar(attribute.value.name)}: {attribute_text(attribute.value)}", attribute
            )
        for omission in relation.left_out:
            yield f"      # left out, since {omission.reason}: {scalar(omission.name)}"
        if relation.key:
            yield self._guess(f"    key: {names(relation.key.value)}", relation.key)
        if relation.time:
            yield self._guess(f"    time: {scalar(relation.time.value)}", relation.time)
        if relation.table:
            yield "    table: true".ljust(_COMMENT_COLUMN) + f"  # {relation.table}"

    def _guess(self, line: str, finding: Finding[object]) -> str:
        if not self.accepts(finding):
            indent = len(line) - len(line.lstrip())
            line = f"{line[:indent]}# {line[indent:]}"
        return _with_note(line, finding)


def with_valid_names(inference: Inference) -> Inference:
    """The inference with valid names in place of invalid names of tables and columns in a catalog."""
    tables = {
        old: new for new, old in attribute_names([relation.name for relation in inference.relations]).items()
    }
    names = {
        relation.name: {
            column: name
            for name, column in attribute_names([a.value.name for a in relation.attributes]).items()
        }
        for relation in inference.relations
    }
    return replace(
        inference,
        relations=tuple(
            _with_names(relation, tables[relation.name], names[relation.name])
            for relation in inference.relations
        ),
        joins=tuple(_rename_join(finding, tables, names) for finding in inference.joins),
    )


def _with_names(relation: InferredRelation, name: str, names: Mapping[str, str]) -> InferredRelation:
    def rename(finding: Finding[Attribute]) -> Finding[Attribute]:
        column = finding.value.name
        if names[column] == column:
            return finding
        return replace(finding, value=replace(finding.value, name=names[column], origin=column))

    key, time = relation.key, relation.time
    return replace(
        relation,
        name=name,
        origin=relation.origin if name == relation.name else relation.name,
        attributes=tuple(map(rename, relation.attributes)),
        key=key and replace(key, value=tuple(names[column] for column in key.value)),
        time=time and replace(time, value=names[time.value]),
    )


def _rename_join(
    finding: Finding[Join], tables: Mapping[str, str], names: Mapping[str, Mapping[str, str]]
) -> Finding[Join]:
    join = finding.value
    on = tuple((names[join.left][a], names[join.right][b]) for a, b in join.on)
    left, right = tables[join.left], tables[join.right]
    is_unchanged = (left, right, on) == (join.left, join.right, join.on)
    return finding if is_unchanged else replace(finding, value=Join.of(left, right, on))


def infer(
    tables: Mapping[str, Mapping[str, Sequence[object]]],
    name: str = "inferred",
    *,
    timed: Collection[str] = (),
    window: str = "none",
    earlier: Schema | None = None,
    nested: Mapping[str, Nested] = MappingProxyType({}),
) -> Inference:
    """Infer a schema from columns of raw values: texts of CSV or values of JSON, None for NULL.

    ``tables[relation][attribute]`` lists the values in row order; the first SAMPLE_ROWS are used, without the
    few rows whose values do not fit their columns. ``timed``: the relations whose records have a time of
    their own; any other without an event-time attribute becomes a static table. ``earlier``: an earlier
    schema of the same data; its types hold while half of the values fit them. ``nested``: the relations whose
    rows are in arrays. Raises SchemaError if no table has a usable name, ValueError if columns of one
    relation differ in length.
    """
    columns_by_table = {name: attribute_columns(columns) for name, columns in tables.items() if is_name(name)}
    table_names = [name for name, (origins, _) in columns_by_table.items() if origins]
    if not table_names:
        if columns_by_table:
            raise SchemaError(f"nothing to infer a schema from: no columns in {', '.join(columns_by_table)}")
        raise SchemaError(f"nothing to infer a schema from: {len(tables)} tables, none with a usable name")
    samples = [
        _table(
            relation, tables[relation], columns_by_table[relation][0], SAMPLE_ROWS, _types(earlier, relation)
        )
        for relation in table_names
    ]
    arrays = {name: array.origin.rpartition(".")[2] for name, array in nested.items() if array.own}
    samples = [replace(table, alias=arrays.get(table.name, "")) for table in samples]
    joins, keys = _references(samples)
    nested_tables = {name: array for name, array in nested.items() if array.own and name in table_names}
    joins, keys = _with_nested(joins, keys, nested_tables, columns_by_table)
    earlier_times = {r.name: r.time for r in earlier.relations} if earlier else {}
    times = {table.name: find_time(table, earlier_times.get(table.name)) for table in samples}
    streams = {name for name, time in times.items() if time and time.confidence >= MIN_CONFIDENCE} | {*timed}
    relations = []
    for table in samples:
        origins, omissions = columns_by_table[table.name]
        time = times[table.name]
        ancestor = table.name
        while ancestor in nested_tables:
            ancestor = nested_tables[ancestor].parent
        relations.append(
            InferredRelation(
                name=table.name,
                attributes=tuple(_attribute(c, origins[c.name]) for c in table.columns.values()),
                key=keys.get(table.name),
                time=time,
                table="" if streams & {table.name, ancestor} else _TIMELESS,
                left_out=(*_sibling_omissions(nested.get(table.name)), *omissions),
                origin=nested[table.name].origin if table.name in nested else None,
            )
        )
    inference = Inference(
        name=name,
        relations=tuple(relations),
        joins=tuple(joins),
        window=window,
        left_out=tuple(
            Omission(relation, NO_ATTRIBUTES if is_name(relation) else NO_RELATION)
            for relation in tables
            if relation not in table_names
        ),
    )
    inference = keep_joins(inference, earlier) if earlier else inference
    return replace(
        inference, relations=tuple(_without_reference_search(r, inference) for r in inference.relations)
    )


def _sibling_omissions(nested: Nested | None) -> Iterator[Omission]:
    if nested is not None:
        rows = nested.origin.partition(".")[2]
        yield from (Omission(name, f"the rows are in {rows}") for name in nested.beside)


def _with_nested(
    joins: list[Finding[Join]],
    keys: dict[str, Finding[tuple[str, ...]]],
    nested: Mapping[str, Nested],
    columns_by_table: Mapping[str, tuple[dict[str, str], tuple[Omission, ...]]],
) -> tuple[list[Finding[Join]], dict[str, Finding[tuple[str, ...]]]]:
    """Replace the joins of rows in arrays by joins with the rows around them, on their key."""
    nested_joins: list[Finding[Join]] = []
    for name, array in nested.items():
        own_column = next(new for new, column in columns_by_table[name][0].items() if column == array.own)
        key = next(
            new for new, column in columns_by_table[array.parent][0].items() if column == array.parents
        )
        nested_joins.append(
            Finding(Join.of(name, array.parent, ((own_column, key),)), 1.0, "in an array of its rows")
        )
        keys = {**keys, array.parent: Finding((key,), 1.0, "rows in arrays refer to it")}
    nested_columns = {(finding.value.left, a) for finding in nested_joins for a, _ in finding.value.on}
    other_joins = [
        finding
        for finding in joins
        if not any(
            {(finding.value.left, a), (finding.value.right, b)} & nested_columns for a, b in finding.value.on
        )
    ]
    return [*other_joins, *nested_joins], keys


KEPT_JOIN: Final = "kept from the earlier schema"


def keep_joins(inference: Inference, earlier: Schema) -> Inference:
    """The inference with the joins of an earlier schema that the data no longer shows.

    A join is dropped only if its attributes no longer exist, or have types that cannot be equal.
    """
    accepted = {sides(finding.value) for finding in inference.joins if inference.accepts(finding)}
    types = {
        (relation.name, finding.value.name): finding.value.type.family
        for relation in inference.relations
        for finding in relation.attributes
    }
    kept_joins = tuple(
        Finding(join, MIN_CONFIDENCE, KEPT_JOIN)
        for join in earlier.joins
        if sides(join) not in accepted
        and all(None is not types.get((join.left, a)) is types.get((join.right, b)) for a, b in join.on)
    )
    kept_sides = set(map(sides, (finding.value for finding in kept_joins)))
    other_joins = tuple(finding for finding in inference.joins if sides(finding.value) not in kept_sides)
    return replace(inference, joins=other_joins + kept_joins)


def with_joins_by_values(
    inference: Inference, values: Mapping[str, Mapping[str, Sequence[object]]]
) -> Inference:
    """The inference with joins by names and values, for a catalog that declares none.

    ``values[relation][attribute]``: the values of the first rows of some relations, as for ``infer``.
    """
    tables = [
        _table(name, columns, {column: column for column in columns}, SAMPLE_OF_DATABASE)
        for name, columns in values.items()
    ]
    types = {
        (relation.name, finding.value.name): finding.value.type.family
        for relation in inference.relations
        for finding in relation.attributes
    }
    joins = tuple(
        finding
        for finding in _references(tables)[0]
        if all(types[finding.value.left, a] is types[finding.value.right, b] for a, b in finding.value.on)
    )
    result = replace(inference, joins=joins)
    return replace(
        result, relations=tuple(_without_reference_search(relation, result) for relation in result.relations)
    )


def attribute_names(columns: Sequence[str]) -> dict[str, str]:
    """Columns by attribute name: valid, distinct names for all of them."""
    origins: dict[str, str] = {}
    for position, column in enumerate(columns, 1):
        name = as_name(column) or f"column_{position}"
        if name in origins or (name in columns and name != column):
            used_names = {*origins, *columns}
            name = next(new for number in count(2) if (new := f"{name}_{number}") not in used_names)
        origins[name] = column
    return origins


def attribute_columns(columns: Mapping[str, Sequence[object]]) -> tuple[dict[str, str], tuple[Omission, ...]]:
    """The column of each attribute, by attribute name; and the columns that cannot be attributes."""
    objects = _objects(columns)
    byte_paths = [path for path, values in columns.items() if _are_bytes(values)]
    valid_paths = [path for path in columns if path and path not in objects and path not in byte_paths]
    omissions = [
        *(Omission(path, BYTES) for path in byte_paths),
        *(Omission(path, NAMELESS) for path in columns if not path),
        *(Omission(path, _TOO_MANY) for path in valid_paths[WIDEST:]),
    ]
    return attribute_names(valid_paths[:WIDEST]), tuple(omissions)


def _are_bytes(values: Sequence[object]) -> bool:
    """True if more than a few of the values are bytes."""
    count = sum(
        isinstance(value, bytes)
        or (isinstance(value, list) and any(isinstance(item, bytes) for item in value))
        for value in values
    )
    return count > sum(value is not None for value in values) * FEW_ODD


def _objects(columns: Mapping[str, Sequence[object]]) -> set[str]:
    """The paths at which rows only have objects, whose fields have separate paths."""
    around = {path[:end] for path in columns for end, letter in enumerate(path) if letter == "."}
    return {path for path in around & columns.keys() if all(value is None for value in columns[path])}


def _table(
    relation: str,
    columns: Mapping[str, Sequence[object]],
    origins: Mapping[str, str],
    limit: int = SAMPLE_ROWS,
    types: Mapping[str, AttributeType] = MappingProxyType({}),
) -> SampledTable:
    """A sample of the first ``limit`` rows, without rows that would be bad records."""
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise ValueError(f"relation {relation}: columns of different lengths")
    profiles = {
        name: profile(name, columns[origin][:limit], types.get(name)) for name, origin in origins.items()
    }
    odd_rows = {row for column in profiles.values() for row in column.odd}
    if odd_rows:
        profiles = {name: column.without(odd_rows) for name, column in profiles.items()}
    return SampledTable(relation, profiles, truncated=max(lengths, default=0) >= limit)


def _types(earlier: Schema | None, relation: str) -> dict[str, AttributeType]:
    """The types of a relation's attributes in an earlier schema."""
    if earlier is None or relation not in earlier.index:
        return {}
    return {attribute.name: attribute.type for attribute in earlier.relation(relation).attributes}


def _references(
    tables: Sequence[SampledTable],
) -> tuple[list[Finding[Join]], dict[str, Finding[tuple[str, ...]]]]:
    """Joins and keys, found together: a column that others refer to is a likely key."""
    single_joins = find_references(tables)
    uses = Counter((f.value.right, f.value.on[0][1]) for f in single_joins if f.confidence >= MIN_CONFIDENCE)
    keys: dict[str, Finding[tuple[str, ...]]] = {}
    for table in tables:
        key = find_key(table, tables, {column: uses[table.name, column] for column in table.columns})
        if key:
            keys[table.name] = key
    composite_joins: list[Finding[Join]] = []
    for _ in range(_KEY_ROUNDS):
        columns = {name: key.value for name, key in keys.items()}
        composite_joins = find_composite_references(tables, columns)
        wider_keys = widened_keys({t.name: t for t in tables}, keys, composite_joins)
        if wider_keys == keys:
            break
        keys = wider_keys
    joins = _without_implied(_unique_joins(single_joins + composite_joins), tables)
    return [*joins, *find_possible(tables, joins)], keys


def _unique_joins(joins: Sequence[Finding[Join]]) -> list[Finding[Join]]:
    """The joins without duplicates: of two between the same columns, the one with more confidence."""
    best: dict[frozenset[frozenset[tuple[str, str]]], Finding[Join]] = {}
    for finding in joins:
        pairs = sides(finding.value)
        if pairs not in best or best[pairs].confidence < finding.confidence:
            best[pairs] = finding
    return list(best.values())


def _without_implied(joins: list[Finding[Join]], tables: Sequence[SampledTable]) -> list[Finding[Join]]:
    """Lower the confidence of joins that others imply."""
    accepted = [finding for finding in joins if finding.confidence >= MIN_CONFIDENCE]
    implied = implied_joins(accepted, {t.name: t for t in tables})
    doubt = round(MIN_CONFIDENCE * 0.9, 2)
    return [
        replace(finding, confidence=doubt, reason=f"{finding.reason}, {IMPLIED}")
        if finding.value.name in implied
        else finding
        for finding in joins
    ]


def _attribute(column: ColumnProfile, origin: str) -> Finding[Attribute]:
    """The attribute of a column; one with an origin also accepts arrays and values of mixed types."""
    source = origin if column.mixed or origin != column.name else None
    if origin.rpartition(".")[2] == PLACE:
        return Finding(Attribute(column.name, AttributeType.STRING, origin=source), 1.0, _PLACE)
    if column.is_text_index:
        return Finding(Attribute(column.name, AttributeType.STRING, origin=source), 0.9, _TEXT_INDEX)
    attribute = Attribute(column.name, column.type, origin=source)
    return Finding(attribute, round(column.confidence, 2), column.reason)


def _without_reference_search(relation: InferredRelation, inference: Inference) -> InferredRelation:
    """The relation without search of texts that refer to another one, as every referring row would match."""
    key = relation.key.value if relation.key else ()
    targets_by_column = {
        column: join.right
        for join in (f.value for f in inference.joins if inference.accepts(f))
        for column, _ in join.on
        if join.left == relation.name and (key != (column,) or len(join.on) == 1)
    }
    attributes = tuple(
        replace(
            a,
            value=replace(a.value, type=AttributeType.STRING),
            reason=f"refers to {targets_by_column[a.value.name]}, where it is searched",
        )
        if a.value.type is AttributeType.TEXT and a.value.name in targets_by_column
        else a
        for a in relation.attributes
    )
    return replace(relation, attributes=attributes)


def _with_note(line: str, finding: Finding[object]) -> str:
    return f"{line.ljust(_COMMENT_COLUMN)}  # {finding.confidence:.2f} {finding.reason}"
