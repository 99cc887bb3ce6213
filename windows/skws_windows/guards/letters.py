"""The letter of each record of a batch: a small number for the guards that hold there.

Guards are evaluated over whole columns, each distinct atom once per batch. The truth
values are those of ``alphabet.holds``, at a hundredth of the cost. Whole
numbers that a double cannot represent exactly are compared as Python integers.

``RowSource`` takes records as rows. A caller that already has columns provides
its own ``RecordSource``, so that rows are built only if they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from skws_schema.model import COMPARED, Analyzer, AttributeType, Row
from skws_windows.guards import guard as g
from skws_windows.guards.alphabet import ABSENT, TIME_COLUMN, Alphabet, FieldInfo, StreamRecord

Flags: TypeAlias = npt.NDArray[np.bool_]
Ints: TypeAlias = npt.NDArray[np.int64]
Values: TypeAlias = npt.NDArray[Any]

EXACT: Final = 1 << 53
"""A double represents all integers up to this one exactly."""


@dataclass(frozen=True, slots=True)
class FieldColumn:
    """The values of a field in a batch; a value is meaningless if ``present`` is false."""

    values: Values
    present: Flags

    def shift(self, records: int) -> FieldColumn:
        """The same column, as seen from ``records`` records later."""
        if not records:
            return self
        present = np.zeros_like(self.present)
        present[records:] = self.present[:-records]
        # Records before the batch are absent; their values only need the right type.
        values = np.concatenate([self.values[:records], self.values[:-records]])
        return FieldColumn(values[: len(present)], present)

    def to_list(self) -> list[Any]:
        """The values, None for absent ones."""
        values: list[Any] = self.values.tolist()
        if self.present.all():
            return values
        return [
            v if is_present else None for v, is_present in zip(values, self.present.tolist(), strict=True)
        ]


class RecordSource(Protocol):
    """Records in order; times in microseconds."""

    @property
    def relation(self) -> Ints: ...

    @property
    def time(self) -> Ints: ...

    def column(self, info: FieldInfo) -> FieldColumn:
        """A field of all records."""

    def record(self, index: int) -> StreamRecord:
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

    def column(self, info: FieldInfo) -> FieldColumn:
        if TIME_COLUMN in info.columns:
            return time_column(self.time)
        return field_column(self._values(info), info.sort)

    def record(self, index: int) -> StreamRecord:
        return StreamRecord(self.relation.item(index), self.time.item(index), self.rows[index])

    def _values(self, info: FieldInfo) -> list[Any]:
        columns = np.array(info.columns, dtype=np.int64)[self.relation]
        if len(columns) and columns[0] != ABSENT and (columns == columns[0]).all():
            index = int(columns[0])
            return [row[index] for row in self.rows]
        pairs = zip(self.rows, columns.tolist(), strict=True)
        return [None if index == ABSENT else row[index] for row, index in pairs]


def time_column(time: Ints) -> FieldColumn:
    """The event time as a field."""
    return FieldColumn(time, np.ones(len(time), dtype=bool))


def field_column(values: Sequence[Any], sort: AttributeType) -> FieldColumn:
    """Values of one sort, None for NULL."""
    if sort is AttributeType.NUMBER:
        numbers = np.array(values, dtype=np.float64)  # None becomes not-a-number, which marks a missing value
        return FieldColumn(numbers, ~np.isnan(numbers))
    if sort in (AttributeType.INTEGER, AttributeType.TIMESTAMP):
        return _integer_column(values)
    present = np.array([value is not None for value in values], dtype=bool)
    if sort is AttributeType.BOOLEAN:
        return FieldColumn(np.array([value is True for value in values], dtype=bool), present)
    texts = np.empty(len(values), dtype=object)
    texts[:] = values
    return FieldColumn(texts, present)


def _integer_column(values: Sequence[Any]) -> FieldColumn:
    try:
        numbers = np.array(values, dtype=np.int64)
        present = np.ones(len(values), dtype=bool)
    except TypeError:
        present = np.array([value is not None for value in values], dtype=bool)
        numbers = np.array([value or 0 for value in values], dtype=np.int64)
    return exact(FieldColumn(numbers, present))


def exact(column: FieldColumn) -> FieldColumn:
    """Whole numbers, as Python integers if a double cannot represent all of them."""
    numbers = column.values
    if len(numbers) and (numbers.max() > EXACT or numbers.min() < -EXACT):
        return FieldColumn(numbers.astype(object), column.present)
    return column


class RecordColumns:
    """A batch of consecutive records as columns, each made when it is first read."""

    def __init__(self, alphabet: Alphabet, source: RecordSource) -> None:
        self._alphabet = alphabet
        self._source = source
        self._columns: dict[tuple[str, int], FieldColumn] = {}
        self._atoms: dict[g.Guard, Flags] = {}

    def __len__(self) -> int:
        return len(self._source.relation)

    def column(self, name: str, back: int = 0) -> FieldColumn:
        """A field of the record ``back`` before each record; absent before the batch."""
        key = (name, back)
        if key not in self._columns:
            self._columns[key] = (
                self.column(name).shift(back) if back else self._source.column(self._alphabet.fields[name])
            )
        return self._columns[key]

    def holds(self, guard: g.Guard) -> Flags:
        """True for each record that satisfies a guard; meaningless if the records before it are missing."""
        if guard not in self._atoms:
            self._atoms[guard] = self._evaluate(guard)
        return self._atoms[guard]

    def _evaluate(self, guard: g.Guard) -> Flags:  # noqa: PLR0911 - one case each
        match guard:
            case g.Truth(value):
                return np.full(len(self), value, dtype=bool)
            case g.Not(inner):
                return ~self.holds(inner)
            case g.And(parts):
                return reduce(np.logical_and, [self.holds(part) for part in parts])
            case g.Or(parts):
                return reduce(np.logical_or, [self.holds(part) for part in parts])
            case g.OfRelation(relation, back):
                code = self._alphabet.relations.index(relation)
                return (
                    FieldColumn(self._source.relation == code, np.ones(len(self), dtype=bool))
                    .shift(back)
                    .values
                )
            case g.IsNull(field):
                return ~self.column(field.name, field.back).present
            case g.Contains(field, keyword):
                analyzer = self._alphabet.fields[field.name].analyzer
                return self._contains(self.column(field.name, field.back), keyword, analyzer)
            case g.Compare():
                return self._compare(guard)

    def _contains(self, column: FieldColumn, keyword: str, analyzer: Analyzer) -> Flags:
        contains = self._alphabet.contains
        pairs = zip(column.values.tolist(), column.present.tolist(), strict=True)
        return np.array(
            [is_present and contains(keyword, str(text), analyzer) for text, is_present in pairs], dtype=bool
        )

    def _compare(self, atom: g.Compare) -> Flags:
        left, right = self._term(atom.left), self._term(atom.right)
        # An absent value is replaced by one of its sort.
        with np.errstate(invalid="ignore"):  # not-a-number marks a missing value
            truth = np.asarray(COMPARED[atom.operator](left, right)).astype(bool)
        present = [self.column(field.name, field.back).present for field in g.fields(atom)]
        return reduce(np.logical_and, present, np.broadcast_to(truth, (len(self),)))

    def _term(self, term: g.Term) -> Values:
        match term:
            case g.GuardConstant(value):
                large = isinstance(value, int) and abs(value) > EXACT
                return np.array(value, dtype=object if large or isinstance(value, str) else None)
            case g.Field(name, back):
                return self.column(name, back).values
            case g.Sum(terms, constant):
                return self._sum(terms, constant)

    def _sum(self, terms: tuple[tuple[g.Number, g.Field], ...], constant: g.Number) -> Values:
        products = [(c, self.column(f.name, f.back).values) for c, f in terms]
        bound = sum(abs(c) * float(np.abs(v).max(initial=0)) for c, v in products) + abs(constant)
        if bound > EXACT:
            products = [(c, v.astype(object) if v.dtype == np.int64 else v) for c, v in products]
        total: Values = np.zeros(len(self), dtype=np.int64)
        with np.errstate(over="ignore", invalid="ignore"):  # infinite, as for Python's numbers
            for coefficient, values in products:
                total = total + coefficient * values
            return total + constant


_MOST_TABULATED: Final = 12
"""With at most this many guards, a table of all combinations is small."""
_BITS: Final = 62


class Letters:
    """Numbers the combinations of guards that occur, in order of occurrence.

    The processor's automata move by these numbers. Impossible combinations never
    get a number, so no guard has to be decided at run time.
    """

    def __init__(self, guards: Sequence[g.Guard]) -> None:
        self.guards = tuple(guards)
        self.signs: list[tuple[bool, ...]] = []
        self._numbers: dict[bytes | int, int] = {}
        size = 1 << len(guards) if len(guards) <= _MOST_TABULATED else 0
        self._table = np.full(size, -1, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.signs)

    def of(self, columns: RecordColumns) -> Ints:
        """The letter of each record of a batch."""
        truths = [columns.holds(guard) for guard in self.guards]
        if len(self.guards) > _BITS:
            return self._wide(np.array(truths))
        codes = np.zeros(len(columns), dtype=np.int64)
        for bit, flags in enumerate(truths):
            codes |= flags.astype(np.int64) << bit
        return self._look_up_in_table(codes) if len(self._table) else self._look_up(codes)

    def _look_up_in_table(self, codes: Ints) -> Ints:
        numbers = self._table[codes]
        if (numbers < 0).any():
            for code in np.unique(codes[numbers < 0]).tolist():
                self._table[code] = self._number(code, self._signs(code))
            numbers = self._table[codes]
        return numbers

    def _look_up(self, codes: Ints) -> Ints:
        distinct, inverse = np.unique(codes, return_inverse=True)
        numbers = [self._number(code, self._signs(code)) for code in distinct.tolist()]
        return np.array(numbers, dtype=np.int64)[inverse]

    def _wide(self, truths: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> Ints:
        """The letters if there are more guards than an integer has bits."""
        packed = np.packbits(truths, axis=0).T
        distinct, first, inverse = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        numbers = [
            self._number(code.tobytes(), tuple(truths[:, index].tolist()))
            for code, index in zip(distinct, first.tolist(), strict=True)
        ]
        return np.array(numbers, dtype=np.int64)[inverse.reshape(-1)]

    def _signs(self, code: int) -> tuple[bool, ...]:
        return tuple(bool(code >> bit & 1) for bit in range(len(self.guards)))

    def _number(self, code: bytes | int, signs: tuple[bool, ...]) -> int:
        if code not in self._numbers:
            self._numbers[code] = len(self.signs)
            self.signs.append(signs)
        return self._numbers[code]
