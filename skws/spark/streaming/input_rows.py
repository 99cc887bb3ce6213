"""The rows of a live source as tasks of Spark get them; a separate module, so that they load no source.

A row is a micro-batch for a shard, or a part of one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from pyspark.sql.datasource import InputPartition

InputRow: TypeAlias = tuple[int, int, int, bytes]
"""A row of the source: the shard's group, the number of the micro-batch, the place in it, a ``MicroBatch``.

Place 0 has everything but the records that tasks read, whose parts have the next places. If it is too long
for one row, its beginning is in rows at places before 0.
"""


class RowsPartition(InputPartition, ABC):
    """A partition of the source in a batch."""

    @abstractmethod
    def rows(self) -> Iterator[InputRow]:
        """Called in a task."""


class InputRows(RowsPartition):
    """Rows that were made beside the driver."""

    def __init__(self, rows: Sequence[InputRow]) -> None:
        self._rows = rows

    def rows(self) -> Iterator[InputRow]:
        return iter(self._rows)


class TaskReader:
    """Reads the partitions of the source in tasks."""

    def read(self, partition: RowsPartition) -> Iterator[InputRow]:
        return partition.rows()
