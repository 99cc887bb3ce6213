"""A schema guessed from samples of its tables, with how sure each guess is and why.

Names and values both count: a column refers to another if its name says so and
its values occur there. Doubtful guesses are written as comments, for the user to
accept or delete.
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
from skws_schema.infer.keys import (
    MIN_CONFIDENCE,
    Finding,
    Table,
    find_composite_references,
    find_key,
    find_references,
    find_time,
    implied_joins,
    widened_keys,
)
from skws_schema.infer.possible import find_possible
from skws_schema.model import PLACE, Attribute, AttributeType, Join, Possible, Relation, Schema, sides
from skws_schema.yaml.document import as_name, attribute_text, head, is_name, join_lines, names, scalar
from skws_schema.yaml.possible import IMPLIED, possible_joins

SAMPLE_ROWS = 50_000
SAMPLE_OF_DATABASE: Final = 10_000
"""Rows of each table of a database that are looked at where its catalog declares no foreign keys."""

_TIMELESS: Final = "no attribute gives the time of a row"
_PLACE: Final = "where the row is in its file"
_TEXT_INDEX: Final = "a text index of PostgreSQL (tsvector), of words that other columns have"
_ARRAY: Final = "an array of objects"
_COMMENT_COLUMN = 48
_KEY_ROUNDS = 4


REFERS: Final = "refers to another relation, where it is searched"
NO_RELATION: Final = "it is not a valid name"
_TOO_MANY: Final = "the relation has more attributes than can be searched"
_BOTH: Final = "some rows have an object there, others a value"
WIDEST: Final = 200
"""The most attributes of a relation: objects may be maps with a key for each thing."""
BYTES: Final = "no attribute type holds bytes"
NAMELESS: Final = "it has no name"
NO_ATTRIBUTES: Final = "it has no column that can be an attribute"


class LeftOut(NamedTuple):
    """A table or a column left out of the schema; ``reason`` follows the word since."""

    name: str
    reason: str


class Nested(NamedTuple):
    """Where a relation's rows are: an array in the rows of another one, such as ``commits.files``.

    ``own`` and ``parents``: the columns of both that are equal; empty for an array in objects that are no
    rows. ``beside``: the other fields of such an object, which are not read.
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
    """A relation with every guess about it. ``table``: why it is a static table; empty if it is not.

    ``origin``: the array that holds its rows.
    """

    name: str
    attributes: tuple[Finding[Attribute], ...]
    key: Finding[tuple[str, ...]] | None
    time: Finding[str] | None
    table: str
    left_out: tuple[LeftOut, ...] = ()
    origin: str | None = None


@dataclass(frozen=True)
class Inference:
    """The inferred schema, including doubtful guesses, of less than MIN_CONFIDENCE."""

    name: str
    relations: tuple[InferredRelation, ...]
    joins: tuple[Finding[Join], ...]
    window: str = "none"
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    heading: str = "# Inferred from samples. Comments say how sure each guess is, from 0 to 1, and why."

    def accepts(self, finding: Finding[object] | None) -> bool:
        """True if the guess is sure enough to be part of the schema."""
        return finding is not None and finding.confidence >= MIN_CONFIDENCE

    def schema(self) -> Schema:
        """The schema without the doubtful guesses."""
        joins = tuple(found.value for found in self.joins if self.accepts(found))
        relations = tuple(map(self._relation, self.relations))
        return Schema(self.name, relations, joins, self.window, possible=tuple(self._possible()))

    def to_yaml(self) -> str:
        """The schema's YAML; confidence and reason in comments, doubtful guesses commented out."""
        return "\n".join(self._lines()) + "\n"

    def _possible(self) -> Iterator[Possible]:
        for found in self.joins:
            if not self.accepts(found):
                yield from possible_joins(self._guess(join_lines(found.value)[0], found))

    def _relation(self, relation: InferredRelation) -> Relation:
        attributes = tuple(found.value for found in relation.attributes)
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
        for left in self.left_out:
            yield f"  # left out, since {left.reason}: {scalar(left.name)}"
        for relation in self.relations:
            yield from self._relation_lines(relation)
        yield "joins:" if self.joins else "joins: []"
        for found in self.joins:
            first, *rest = join_lines(found.value)
            yield from (self._guess(line, found) for line in (first, *rest))

    def _relation_lines(self, relation: InferredRelation) -> Iterator[str]:
        yield f"  {scalar(relation.name)}:"
        if relation.origin is not None:
            nested = "." in relation.origin
            line = f"    from: {scalar(relation.origin)}"
            yield f"{line.ljust(_COMMENT_COLUMN)}  # {_ARRAY}" if nested else line
        yield "    attributes:"
        for attribute in relation.attributes:
            yield _noted(
                f"      {scalar(attribute.value.name)}: {attribute_text(attribute.value)}", attribute
            )
        for left in relation.left_out:
            yield f"      # left out, since {left.reason}: {scalar(left.name)}"
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
        return _noted(line, finding)


def renamed(inference: Inference) -> Inference:
    """With other names for the tables and columns of a catalog that nothing can be called by."""
    tables = {old: new for new, old in attribute_names([each.name for each in inference.relations]).items()}
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
        joins=tuple(_joined(found, tables, names) for found in inference.joins),
    )


def _with_names(relation: InferredRelation, name: str, names: Mapping[str, str]) -> InferredRelation:
    def called(found: Finding[Attribute]) -> Finding[Attribute]:
        column = found.value.name
        if names[column] == column:
            return found
        return replace(found, value=replace(found.value, name=names[column], origin=column))

    key, time = relation.key, relation.time
    return replace(
        relation,
        name=name,
        origin=relation.origin if name == relation.name else relation.name,
        attributes=tuple(map(called, relation.attributes)),
        key=key and replace(key, value=tuple(names[column] for column in key.value)),
        time=time and replace(time, value=names[time.value]),
    )


def _joined(
    found: Finding[Join], tables: Mapping[str, str], names: Mapping[str, Mapping[str, str]]
) -> Finding[Join]:
    join = found.value
    on = tuple((names[join.left][a], names[join.right][b]) for a, b in join.on)
    left, right = tables[join.left], tables[join.right]
    same = (left, right, on) == (join.left, join.right, join.on)
    return found if same else replace(found, value=Join.of(left, right, on))


def infer(
    tables: Mapping[str, Mapping[str, Sequence[object]]],
    name: str = "inferred",
    *,
    timed: Collection[str] = (),
    window: str = "none",
    known: Schema | None = None,
    nested: Mapping[str, Nested] = MappingProxyType({}),
) -> Inference:
    """Infer a schema from columns of raw values: texts of CSV or values of JSON, None for NULL.

    ``tables[relation][attribute]`` lists the values in row order, of which
    SAMPLE_ROWS are looked at. ``timed`` names the relations whose records
    carry a time of their own; any other without an event-time attribute
    becomes a static table. Rows with a few values that do not fit their columns are not looked at.
    ``known``: an earlier schema of the same data, whose types hold while half of the values fit them.
    ``nested``: the relations whose rows are in arrays. Raises SchemaError if no table has a usable name,
    ValueError if columns of one relation are not equally long.
    """
    named = {name: named_columns(columns) for name, columns in tables.items() if is_name(name)}
    usable = [name for name, (origins, _) in named.items() if origins]
    if not usable:
        if named:
            raise SchemaError(f"nothing to infer a schema from: no columns in {', '.join(named)}")
        raise SchemaError(f"nothing to infer a schema from: {len(tables)} tables, none with a usable name")
    sampled = [
        _table(relation, tables[relation], named[relation][0], SAMPLE_ROWS, _types(known, relation))
        for relation in usable
    ]
    arrays = {name: each.origin.rpartition(".")[2] for name, each in nested.items() if each.own}
    sampled = [replace(table, called=arrays.get(table.name, "")) for table in sampled]
    joins, keys = _references(sampled)
    around = {name: each for name, each in nested.items() if each.own and name in usable}
    joins, keys = _with_nested(joins, keys, around, named)
    times = {table.name: find_time(table) for table in sampled}
    streams = {name for name, time in times.items() if time and time.confidence >= MIN_CONFIDENCE} | {*timed}
    relations = []
    for table in sampled:
        origins, left_out = named[table.name]
        time = times[table.name]
        outer = table.name
        while outer in around:
            outer = around[outer].parent
        relations.append(
            InferredRelation(
                name=table.name,
                attributes=tuple(_attribute(c, origins[c.name]) for c in table.columns.values()),
                key=keys.get(table.name),
                time=time,
                table="" if streams & {table.name, outer} else _TIMELESS,
                left_out=(*_beside(nested.get(table.name)), *left_out),
                origin=nested[table.name].origin if table.name in nested else None,
            )
        )
    found = Inference(
        name=name,
        relations=tuple(relations),
        joins=tuple(joins),
        window=window,
        left_out=tuple(
            LeftOut(relation, NO_ATTRIBUTES if is_name(relation) else NO_RELATION)
            for relation in tables
            if relation not in usable
        ),
    )
    found = keeping(found, known) if known else found
    return replace(found, relations=tuple(_referring(r, found) for r in found.relations))


def _beside(nested: Nested | None) -> Iterator[LeftOut]:
    if nested is not None:
        rows = nested.origin.partition(".")[2]
        yield from (LeftOut(name, f"the rows are in {rows}") for name in nested.beside)


def _with_nested(
    joins: list[Finding[Join]],
    keys: dict[str, Finding[tuple[str, ...]]],
    nested: Mapping[str, Nested],
    named: Mapping[str, tuple[dict[str, str], tuple[LeftOut, ...]]],
) -> tuple[list[Finding[Join]], dict[str, Finding[tuple[str, ...]]]]:
    """Join the rows of arrays to the rows around them, by the key of these, and by nothing else of theirs."""
    sure: list[Finding[Join]] = []
    for name, each in nested.items():
        own = next(new for new, column in named[name][0].items() if column == each.own)
        key = next(new for new, column in named[each.parent][0].items() if column == each.parents)
        sure.append(Finding(Join.of(name, each.parent, ((own, key),)), 1.0, "in an array of its rows"))
        keys = {**keys, each.parent: Finding((key,), 1.0, "rows in arrays refer to it")}
    taken = {(found.value.left, a) for found in sure for a, _ in found.value.on}
    others = [
        found
        for found in joins
        if not any({(found.value.left, a), (found.value.right, b)} & taken for a, b in found.value.on)
    ]
    return [*others, *sure], keys


KEPT_JOIN: Final = "kept from the earlier schema"


def keeping(inference: Inference, known: Schema) -> Inference:
    """With the joins of ``known``, an earlier schema of the same data, that the data shows no longer.

    Only a join whose attributes are gone, or have types that cannot be equal, is lost.
    """
    accepted = {sides(found.value) for found in inference.joins if inference.accepts(found)}
    types = {
        (relation.name, found.value.name): found.value.type.family
        for relation in inference.relations
        for found in relation.attributes
    }
    kept = tuple(
        Finding(join, MIN_CONFIDENCE, KEPT_JOIN)
        for join in known.joins
        if sides(join) not in accepted
        and all(None is not types.get((join.left, a)) is types.get((join.right, b)) for a, b in join.on)
    )
    again = set(map(sides, (found.value for found in kept)))
    others = tuple(found for found in inference.joins if sides(found.value) not in again)
    return replace(inference, joins=others + kept)


def joined_by_values(inference: Inference, values: Mapping[str, Mapping[str, Sequence[object]]]) -> Inference:
    """With the joins that names and values show: for a catalog that declares none.

    ``values[relation][attribute]`` are those of the first rows of some relations, as for ``infer``.
    """
    tables = [
        _table(name, columns, {column: column for column in columns}, SAMPLE_OF_DATABASE)
        for name, columns in values.items()
    ]
    types = {
        (relation.name, found.value.name): found.value.type.family
        for relation in inference.relations
        for found in relation.attributes
    }
    joins = tuple(
        found
        for found in _references(tables)[0]
        if all(types[found.value.left, a] is types[found.value.right, b] for a, b in found.value.on)
    )
    joined = replace(inference, joins=joins)
    return replace(joined, relations=tuple(_referring(each, joined) for each in joined.relations))


def attribute_names(columns: Sequence[str]) -> dict[str, str]:
    """The columns by the names of attributes for them."""
    origins: dict[str, str] = {}
    for place, column in enumerate(columns, 1):
        name = as_name(column) or f"column_{place}"
        if name in origins or (name in columns and name != column):
            others = {*origins, *columns}
            name = next(new for number in count(2) if (new := f"{name}_{number}") not in others)
        origins[name] = column
    return origins


def named_columns(columns: Mapping[str, Sequence[object]]) -> tuple[dict[str, str], tuple[LeftOut, ...]]:
    """What records call each attribute, by its name; and the columns that can be none."""
    objects = _objects(columns)
    raw = [path for path, values in columns.items() if _are_bytes(values)]
    fit = [path for path in columns if path and path not in objects and path not in raw]
    lost = [path for path in objects if any(value is not None for value in columns[path])]
    left = [
        *(LeftOut(path, _BOTH) for path in lost),
        *(LeftOut(path, BYTES) for path in raw),
        *(LeftOut(path, NAMELESS) for path in columns if not path),
        *(LeftOut(path, _TOO_MANY) for path in fit[WIDEST:]),
    ]
    return attribute_names(fit[:WIDEST]), tuple(left)


def _are_bytes(values: Sequence[object]) -> bool:
    """Whether more than a few of the values are bytes, which are no texts."""
    count = sum(
        isinstance(value, bytes) or (isinstance(value, list) and any(isinstance(one, bytes) for one in value))
        for value in values
    )
    return count > sum(value is not None for value in values) * FEW_ODD


def _objects(columns: Mapping[str, Sequence[object]]) -> list[str]:
    """The paths at which some rows have an object, which gives paths of its own.

    A row with both a value there and one further on has two fields with such names instead.
    """
    inner: dict[str, list[str]] = {}
    for path in columns:
        for place in (place for place, letter in enumerate(path) if letter == "."):
            if path[:place] in columns:
                inner.setdefault(path[:place], []).append(path)
    return [
        path
        for path, paths in inner.items()
        if not any(
            value is not None and others.count(None) < len(others)
            for value, *others in zip(columns[path], *(columns[one] for one in paths), strict=True)
        )
    ]


def _table(
    relation: str,
    columns: Mapping[str, Sequence[object]],
    origins: Mapping[str, str],
    most: int = SAMPLE_ROWS,
    types: Mapping[str, AttributeType] = MappingProxyType({}),
) -> Table:
    """Of the first ``most`` rows, without those that hold an odd value: they would be bad records."""
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise ValueError(f"relation {relation}: columns of different lengths")
    profiles = {
        name: profile(name, columns[origin][:most], types.get(name)) for name, origin in origins.items()
    }
    odd = {place for column in profiles.values() for place in column.odd}
    if odd:
        profiles = {name: column.without(odd) for name, column in profiles.items()}
    return Table(relation, profiles, cut=max(lengths) >= most)


def _types(known: Schema | None, relation: str) -> dict[str, AttributeType]:
    """The types that the attributes of a relation had before."""
    if known is None or relation not in known.index:
        return {}
    return {attribute.name: attribute.type for attribute in known.relation(relation).attributes}


def _references(
    tables: Sequence[Table],
) -> tuple[list[Finding[Join]], dict[str, Finding[tuple[str, ...]]]]:
    """Joins and keys together: a column referred to is likely a key, and composite keys are referred to."""
    single = find_references(tables)
    uses = Counter((f.value.right, f.value.on[0][1]) for f in single if f.confidence >= MIN_CONFIDENCE)
    keys: dict[str, Finding[tuple[str, ...]]] = {}
    for table in tables:
        key = find_key(table, tables, {column: uses[table.name, column] for column in table.columns})
        if key:
            keys[table.name] = key
    composite: list[Finding[Join]] = []
    for _ in range(_KEY_ROUNDS):
        columns = {name: key.value for name, key in keys.items()}
        composite = find_composite_references(tables, columns)
        wider = widened_keys({t.name: t for t in tables}, keys, composite)
        if wider == keys:
            break
        keys = wider
    joins = _without_implied(_once(single + composite), tables)
    return [*joins, *find_possible(tables, joins)], keys


def _once(joins: Sequence[Finding[Join]]) -> list[Finding[Join]]:
    """Of two references between the same columns, one from each side, the surer one."""
    best: dict[frozenset[frozenset[tuple[str, str]]], Finding[Join]] = {}
    for found in joins:
        pairs = sides(found.value)
        if pairs not in best or best[pairs].confidence < found.confidence:
            best[pairs] = found
    return list(best.values())


def _without_implied(joins: list[Finding[Join]], tables: Sequence[Table]) -> list[Finding[Join]]:
    """Make joins that others imply doubtful."""
    accepted = [found for found in joins if found.confidence >= MIN_CONFIDENCE]
    implied = implied_joins(accepted, {t.name: t for t in tables})
    doubt = round(MIN_CONFIDENCE * 0.9, 2)
    return [
        replace(found, confidence=doubt, reason=f"{found.reason}, {IMPLIED}")
        if found.value.name in implied
        else found
        for found in joins
    ]


def _attribute(column: ColumnProfile, origin: str) -> Finding[Attribute]:
    """An attribute with an origin takes more than its type alone: arrays, and what else is mixed."""
    told = origin if column.mixed or origin != column.name else None
    if origin.rpartition(".")[2] == PLACE:
        return Finding(Attribute(column.name, AttributeType.STRING, origin=told), 1.0, _PLACE)
    if column.is_text_index:
        return Finding(Attribute(column.name, AttributeType.STRING, origin=told), 0.9, _TEXT_INDEX)
    attribute = Attribute(column.name, column.type, origin=told)
    return Finding(attribute, round(column.confidence, 2), column.reason)


def _referring(relation: InferredRelation, inference: Inference) -> InferredRelation:
    """Texts that refer to another relation are searched there: here, every row that refers would match."""
    key = relation.key.value if relation.key else ()
    referring = {
        column: join.right
        for join in (f.value for f in inference.joins if inference.accepts(f))
        for column, _ in join.on
        if join.left == relation.name and (key != (column,) or len(join.on) == 1)
    }
    attributes = tuple(
        replace(
            a,
            value=replace(a.value, type=AttributeType.STRING),
            reason=f"refers to {referring[a.value.name]}, where it is searched",
        )
        if a.value.type is AttributeType.TEXT and a.value.name in referring
        else a
        for a in relation.attributes
    )
    return replace(relation, attributes=attributes)


def _noted(line: str, finding: Finding[object]) -> str:
    return f"{line.ljust(_COMMENT_COLUMN)}  # {finding.confidence:.2f} {finding.reason}"
