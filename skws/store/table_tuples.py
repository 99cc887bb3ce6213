"""The rows of static tables as tuples, from batches of records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from skws.data.batch import NO_RECORDS, RecordBatch, Rows, large_batches
from skws.data.blocks import Block
from skws.index.values import likely_identities, row_identities
from skws.store.tuple_batch import TupleBatch
from skws_mesh.columnar.columns import NOTHING, Flags, Ints
from skws_purging.lifespans import ALWAYS, GroupKey, StreamTuple, identity
from skws_schema.model import Relation, Row, Schema
from skws_windows.window import FOREVER

_ROWS_AT_A_TIME: Final = 1 << 16
"""The number of rows whose identities are compared by value at a time."""


def table_tuples(schema: Schema, batches: Iterable[RecordBatch]) -> TupleBatch:
    """The tuples of static tables, alive for ever.

    Among rows with equal keys only the last one counts, at the position of the first.
    """
    rows = _concat([batch.rows for batch in large_batches(batches)])
    last_of_key = np.arange(len(rows), dtype=np.int64)
    first: dict[GroupKey, int] = {}
    counts: Counter[GroupKey] = Counter()
    repeated_rows: list[tuple[int, int, Row, int]] = []
    for number, relation, row in _likely_duplicates(schema, rows):
        key = identity(schema, relation, row)
        _, _, is_keyed = key
        if not is_keyed:
            if counts[key]:
                repeated_rows.append((number, relation, row, counts[key]))
            counts[key] += 1
        elif key in first:
            last_of_key[first[key]], last_of_key[number] = number, -1
        else:
            first[key] = number
    survivors = np.flatnonzero(last_of_key >= 0)
    surviving_rows = rows if len(survivors) == len(rows) else rows.take(last_of_key[survivors])
    block_relations = np.array([block.relation for block in surviving_rows.blocks], dtype=np.int64)
    size = len(surviving_rows)
    return TupleBatch(
        block_relations.take(surviving_rows.block) if size else NOTHING,
        surviving_rows,
        np.full(size, ALWAYS),
        np.full(size, FOREVER),
        np.zeros(size, dtype=np.int64),
        np.zeros(size, dtype=np.int64),
        {
            int(np.searchsorted(survivors, number)): StreamTuple(
                relation, row, ALWAYS, FOREVER, occurrence=occurrence
            )
            for number, relation, row, occurrence in repeated_rows
        },
    )


def _likely_duplicates(schema: Schema, rows: Rows) -> Iterator[tuple[int, int, Row]]:
    """Number, relation and row of each row that may have the identity of another row; in order."""
    numbers = np.arange(len(rows), dtype=np.int64)
    for identities in (likely_identities, row_identities):
        if len(numbers):
            numbers = numbers[_has_equal_identity(schema, rows.take(numbers), identities)]
    for begin in range(0, len(numbers), _ROWS_AT_A_TIME):
        portion = numbers[begin : begin + _ROWS_AT_A_TIME]
        portion_rows = rows.take(portion)
        relations = [portion_rows.blocks[block].relation for block in portion_rows.block.tolist()]
        yield from zip(portion.tolist(), relations, portion_rows, strict=True)


def _has_equal_identity(schema: Schema, rows: Rows, identities: Callable[[Block, Relation], Ints]) -> Flags:
    """True for rows that have the same integer as another row of their relation."""
    is_alike = np.zeros(len(rows), dtype=bool)
    for relation, blocks, positions, places in rows.compact().by_relation():
        block_identities = [identities(block, schema.relations[relation]) for block in blocks]
        is_alike[positions] = _is_repeated(np.concatenate(block_identities)[places])
    return is_alike


def _concat(parts: Sequence[Rows]) -> Rows:
    """Concatenate rows without copying their blocks, which would take memory."""
    if not parts:
        return NO_RECORDS.rows
    blocks_before = np.cumsum([0, *(len(part.blocks) for part in parts[:-1])])
    block = [part.block + first for part, first in zip(parts, blocks_before, strict=True)]
    blocks = tuple(block for part in parts for block in part.blocks)
    return Rows(np.concatenate(block), np.concatenate([part.place for part in parts]), blocks)


def _is_repeated(values: Ints) -> Flags:
    """True for values that occur more than once."""
    order = np.argsort(values, kind="stable")
    is_equal = values[order[1:]] == values[order[:-1]]
    is_repeated = np.zeros(len(values), dtype=bool)
    is_repeated[order[1:]] |= is_equal
    is_repeated[order[:-1]] |= is_equal
    return is_repeated
