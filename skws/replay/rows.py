"""Rows of one relation from JSON objects: checked, converted, put in the order of attributes.

Compiled once per relation and, within it, once per combination of JSON types
met, so that the usual row costs one lookup and no conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any, TypeAlias

from schema.errors import nearest
from schema.model import Relation, Row, Schema
from skws.replay.values import (
    LARGEST,
    SMALLEST,
    Convert,
    MalformedError,
    as_it_is,
    conversion,
    integer_of_int,
    shown,
)

Steps: TypeAlias = tuple[tuple[int, Convert], ...]
_Plan: TypeAlias = tuple[tuple[int, ...], Steps]


def needed(schema: Schema, relation: Relation) -> frozenset[str]:
    """The attributes that every row must have, be they NULL: those of the key and of joins."""
    found = set(relation.key)
    for position, join in enumerate(schema.joins):
        if position in schema.evolution.removed_joins:
            continue
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
        # Whether an insertion takes the record's own time.
        self.stamped = not self.table and self.time_column is None
        self._width = len(self.names)
        self._needed = needed(schema, self.relation)
        self._key = frozenset(self.relation.key) or self._needed
        self._plans: dict[tuple[type, ...], _Plan] = {}
        self._get = self._getter()

    def _time_column(self) -> int | None:
        if self.relation.table or self.relation.time is None:
            return None
        return self.relation.columns[self.relation.time]

    def _getter(self) -> Callable[[Any], tuple[Any, ...]]:
        if self._width > 1:
            return itemgetter(*self.names)
        only = self.names[0]
        return lambda row: (row[only],)

    def insertion(self, row: Any) -> Row:
        """The row of a JSON object with every needed attribute; other missing attributes are NULL."""
        try:
            values = self._get(row)
            if len(row) == self._width:
                return self.convert(values)
        except (KeyError, TypeError):
            pass
        return self.convert(self.complete(row, self._needed))

    def deletion(self, row: Any) -> Row:
        """The row of a deletion: the key is enough, if the relation has one."""
        return self.convert(self.complete(row, self._key))

    def wanted(self, *, delete: bool) -> frozenset[str]:
        """The attributes that must be there, be they NULL."""
        return self._key if delete else self._needed

    def takes_time(self, *, delete: bool) -> bool:
        """Whether the record's own time matters."""
        return self.stamped or (delete and not self.table)

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
        plan = self._plans.get(types)
        if plan is None:
            plan = self._plans[types] = self._compile(types)
        integers, steps = plan
        for column in integers:
            # The same check as a call per integer takes twice the time.
            if not SMALLEST <= values[column] <= LARGEST:
                return self._converted(values, ((column, integer_of_int),))
        return self._converted(values, steps) if steps else values

    def _converted(self, values: tuple[Any, ...], steps: Steps) -> Row:
        row = list(values)
        try:
            for column, step in steps:
                row[column] = step(row[column])
        except MalformedError as error:
            raise MalformedError(f"{self.relation.name}.{self.names[column]}: {error}") from None
        return tuple(row)

    def _compile(self, types: tuple[type, ...]) -> _Plan:
        """Which values of these types are integers to be checked, and which are to be converted."""
        kinds = [a.type for a in self.relation.attributes]
        found = [conversion(kind, given) for kind, given in zip(kinds, types, strict=True)]
        integers = tuple(i for i, step in enumerate(found) if step is integer_of_int)
        passed = (as_it_is, integer_of_int)
        return integers, tuple((i, step) for i, step in enumerate(found) if step not in passed)

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
        if self.relation.source is not None:
            raise MalformedError(f"rows of {self.relation.name} come from its source alone")
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
