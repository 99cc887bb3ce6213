"""A batch of records as columns: the fields that guards and aggregates read.

``RowSource`` takes records as rows. A caller that has columns already provides
a ``Source`` of its own, so that no row is built which nothing reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from skws_schema.model import AttributeType, Row
from skws_windows.guards.alphabet import ABSENT, TIME_COLUMN, FieldInfo, StreamRecord

Flags: TypeAlias = npt.NDArray[np.bool_]
Ints: TypeAlias = npt.NDArray[np.int64]
Values: TypeAlias = npt.NDArray[Any]

EXACT: Final = 1 << 53
"""Up to here a double is an exact integer."""


@dataclass(frozen=True, slots=True)
class Column:
    """The values of a field in a batch; where ``present`` is false, the value means nothing."""

    values: Values
    present: Flags

    def before(self, records: int) -> Column:
        """The same column seen ``records`` later."""
        if not records:
            return self
        present = np.zeros_like(self.present)
        present[records:] = self.present[:-records]
        # Records before the batch are absent; their values only need the right type.
        values = np.concatenate([self.values[:records], self.values[:-records]])
        return Column(values[: len(present)], present)

    def listed(self) -> list[Any]:
        """The values, None where there is none."""
        values: list[Any] = self.values.tolist()
        if self.present.all():
            return values
        return [v if there else None for v, there in zip(values, self.present.tolist(), strict=True)]


class Source(Protocol):
    """Records in order; times in microseconds."""

    @property
    def relation(self) -> Ints: ...

    @property
    def time(self) -> Ints: ...

    def column(self, info: FieldInfo) -> Column:
        """A field of all records."""

    def record(self, place: int) -> StreamRecord:
        """One record."""


@dataclass(frozen=True, slots=True)
class RowSource:
    relation: Ints
    time: Ints
    rows: Sequence[Row]

    @classmethod
    def of(cls, records: Sequence[StreamRecord]) -> RowSource:
        relation = np.array([r.relation for r in records], dtype=np.int64)
        return cls(relation, np.array([r.time for r in records], dtype=np.int64), [r.row for r in records])

    def column(self, info: FieldInfo) -> Column:
        if TIME_COLUMN in info.columns:
            return time_column(self.time)
        return typed(self._listed(info), info.sort)

    def record(self, place: int) -> StreamRecord:
        return StreamRecord(self.relation.item(place), self.time.item(place), self.rows[place])

    def _listed(self, info: FieldInfo) -> list[Any]:
        places = np.array(info.columns, dtype=np.int64)[self.relation]
        if len(places) and places[0] != ABSENT and (places == places[0]).all():
            place = int(places[0])
            return [row[place] for row in self.rows]
        pairs = zip(self.rows, places.tolist(), strict=True)
        return [None if place == ABSENT else row[place] for row, place in pairs]


def time_column(time: Ints) -> Column:
    """The event time as a field."""
    return Column(time, np.ones(len(time), dtype=bool))


def typed(values: Sequence[Any], sort: AttributeType) -> Column:
    """Values of one sort, None for NULL."""
    if sort is AttributeType.NUMBER:
        numbers = np.array(values, dtype=np.float64)  # None becomes not-a-number, which is no value
        return Column(numbers, ~np.isnan(numbers))
    if sort in (AttributeType.INTEGER, AttributeType.TIMESTAMP):
        return _whole(values)
    present = np.array([value is not None for value in values], dtype=bool)
    if sort is AttributeType.BOOLEAN:
        return Column(np.array([value is True for value in values], dtype=bool), present)
    texts = np.empty(len(values), dtype=object)
    texts[:] = values
    return Column(texts, present)


def _whole(values: Sequence[Any]) -> Column:
    try:
        numbers = np.array(values, dtype=np.int64)
        present = np.ones(len(values), dtype=bool)
    except TypeError:
        present = np.array([value is not None for value in values], dtype=bool)
        numbers = np.array([value or 0 for value in values], dtype=np.int64)
    return exact(Column(numbers, present))


def exact(column: Column) -> Column:
    """Whole numbers, as Python integers if a double cannot hold all of them."""
    numbers = column.values
    if len(numbers) and (numbers.max() > EXACT or numbers.min() < -EXACT):
        return Column(numbers.astype(object), column.present)
    return column
