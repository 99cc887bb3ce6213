"""Batches of records as window expressions read them: by columns, without a row being made."""

from __future__ import annotations

from typing import Final

import numpy as np

from skws.data.batch import Ints, RecordBatch
from skws.data.blocks import Block
from skws_windows.guards.alphabet import ABSENT, TIME_COLUMN, FieldInfo, Sort, StreamRecord
from skws_windows.guards.columns import Column, exact, time_column, typed

_TYPES: Final = {
    Sort.NUMBER: np.dtype(np.float64),
    Sort.INTEGER: np.dtype(np.int64),
    Sort.TIMESTAMP: np.dtype(np.int64),
    Sort.BOOLEAN: np.dtype(np.bool_),
    Sort.TEXT: np.dtype(object),
}


class BatchSource:
    """The records of a batch, none of them a deletion."""

    def __init__(self, batch: RecordBatch) -> None:
        self._batch = batch
        self._blocks = list(batch.rows.by_block())
        self._columns: dict[FieldInfo, Column] = {}

    @property
    def relation(self) -> Ints:
        return self._batch.relation

    @property
    def time(self) -> Ints:
        return self._batch.time

    def record(self, place: int) -> StreamRecord:
        batch = self._batch
        return StreamRecord(batch.relation.item(place), batch.time.item(place), batch.rows.row(place))

    def column(self, info: FieldInfo) -> Column:
        if TIME_COLUMN in info.columns:
            return time_column(self.time)
        if info not in self._columns:
            self._columns[info] = self._read(info)
        return self._columns[info]

    def _read(self, info: FieldInfo) -> Column:
        size = len(self._batch)
        values = np.zeros(size, dtype=_TYPES[info.sort])
        present = np.zeros(size, dtype=bool)
        for block, mine, places in self._blocks:
            column = info.columns[block.relation]
            if column == ABSENT:
                continue
            read = _of_block(block, column, info.sort)
            if read.values.dtype == object:
                values = values.astype(object)
            values[mine], present[mine] = read.values[places], read.present[places]
        return exact(Column(values, present)) if values.dtype == np.int64 else Column(values, present)


def _of_block(block: Block, column: int, sort: Sort) -> Column:
    numbers = block.numbers(column)
    return typed(block.values(column), sort) if numbers is None else Column(*numbers)
