"""Rows of one relation from JSON objects: checked, converted, put in the order of attributes.

Compiled once per relation and, within it, once per combination of JSON types
met, so that the usual row costs one lookup and no conversion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any, TypeAlias

from schema.errors import nearest
from schema.model import Relation, Row, Schema
from skws.replay.values import Convert, MalformedError, as_it_is, conversion, number_of_float, shown

Steps: TypeAlias = tuple[tuple[int, Convert], ...]


def needed(schema: Schema, relation: Relation) -> frozenset[str]:
    """The attributes that every row must have, be they NULL: those of the key and of joins."""
    found = set(relation.key)
    for join in schema.joins:
        for left, right in join.on:
            found |= {left} if join.left == relation.name else set()
            found |= {right} if join.right == relation.name else set()
    return frozenset(found)


class RowReader:
    """Reads rows of the relation at position ``index`` of ``schema``; all methods raise MalformedError."""

    def __init__(self, schema: Schema, index: int) -> None:
        self.index = index
        self.relation = schema.relations[index]
        self.table = self.relation.table
        self.names = tuple(a.name for a in self.relation.attributes)
        self.time_column = self._time_column()
        self._width = len(self.names)
        self._needed = needed(schema, self.relation)
        self._key = frozenset(self.relation.key) or self._needed
        self._steps: dict[tuple[type, ...], Steps] = {}
        self._get = self._getter()

    def _time_column(self) -> int | None:
        if self.relation.table or self.relation.time is None:
            return None
        return self.relation.columns[self.relation.time]

    def _getter(self) -> itemgetter[Any]:
        # itemgetter of one name gives a bare value; a slice of names keeps it a tuple.
        return itemgetter(*self.names) if self._width > 1 else itemgetter(self.names[0], self.names[0])

    def insertion(self, row: Any) -> Row:
        """The row of a JSON object with every needed attribute; other missing attributes are NULL."""
        try:
            values = self._get(row)
            usual = len(row) == self._width
        except (KeyError, TypeError):
            usual = False
        if not usual:
            values = self.complete(row, self._needed)
        return self.convert(values[: self._width])

    def deletion(self, row: Any) -> Row:
        """The row of a deletion: the key is enough, if the relation has one."""
        return self.convert(self.complete(row, self._key))

    def wanted(self, *, delete: bool) -> frozenset[str]:
        """The attributes that must be there, be they NULL."""
        return self._key if delete else self._needed

    def takes_time(self, *, delete: bool) -> bool:
        """Whether the record's own time matters."""
        return not self.table and (delete or self.time_column is None)

    def complete(self, row: Any, wanted: Iterable[str]) -> tuple[Any, ...]:
        """The values of ``row`` in order, NULL where one is missing that is not in ``wanted``."""
        if type(row) is not dict:
            raise MalformedError(f"expected a row (a JSON object) of {self.relation.name}, got {shown(row)}")
        for name in row:
            if name not in self.relation.columns:
                raise self.no_attribute(name)
        for name in self.names:
            if name in wanted and name not in row:
                raise self.missing(name)
        return tuple(map(row.get, self.names))

    def convert(self, values: tuple[Any, ...]) -> Row:
        """``values``, in the order of attributes, as typed values."""
        types = tuple(map(type, values))
        steps = self._steps.get(types)
        if steps is None:
            steps = self._steps[types] = self._compile(types)
        if not steps:
            return values
        row = list(values)
        try:
            for column, step in steps:
                row[column] = step(row[column])
        except MalformedError as error:
            raise MalformedError(f"{self.relation.name}.{self.names[column]}: {error}") from None
        return tuple(row)

    def _compile(self, types: tuple[type, ...]) -> Steps:
        steps = (
            (i, conversion(a.type, t))
            for i, (a, t) in enumerate(zip(self.relation.attributes, types, strict=True))
        )
        # JSON has no infinite numbers, so a double needs no look either.
        return tuple((i, s) for i, s in steps if s is not as_it_is and s is not number_of_float)

    def no_attribute(self, name: str) -> MalformedError:
        near = nearest(name, self.names)
        return MalformedError(f"{self.relation.name} has no attribute {shown(name)}{near}")

    def missing(self, name: str) -> MalformedError:
        part = "the key" if name in self.relation.key else "a join"
        return MalformedError(f"{self.relation.name}.{name} is missing, and {part} needs it")

    def time(self, row: Row, given: int | None, *, delete: bool) -> int:
        """The time of a record with ``row`` whose own time is ``given``.

        The time attribute wins for an insertion; a deletion happens at its own
        time, and only without one at that of the row.
        """
        if self.table:
            return 0
        if self.time_column is None or (delete and given is not None):
            if given is None:
                raise MalformedError(f"no time: {self.relation.name} needs a `time`, or a `time:` attribute")
            return given
        value = row[self.time_column]
        if type(value) is int:
            return value
        raise MalformedError(
            f"{self.relation.name}.{self.relation.time} gives the time and is {shown(value)}"
        )


def readers(schema: Schema) -> Mapping[str, RowReader]:
    """A reader for each relation, by name."""
    return {r.name: RowReader(schema, i) for i, r in enumerate(schema.relations)}


def no_relation(name: object, schema: Schema) -> MalformedError:
    near = nearest(name, schema.index) if isinstance(name, str) else ""
    return MalformedError(f"no relation {shown(name)} in schema {schema.name}{near}")
