"""Batches of records as plain values for JSON: by columns, so that rows do not become objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from skws.data.batch import RecordBatch, Rows
from skws.data.blocks import Block, ColumnBlock, TruncationBlock, Values, packed_integers
from skws.data.texts import Texts
from skws_schema.model import Value


def plain_batch(batch: RecordBatch) -> dict[str, Any]:
    """Relations, times and deletions of records, and their rows block by block.

    A block has the numbers of its records, and the columns of their rows; that of truncations has none.
    """
    blocks = [
        (
            block.relation,
            numbers.tolist(),
            [list(block.values_at(column, places)) for column in range(_width(block, places))],
        )
        for block, numbers, places in batch.rows.by_block()
        if len(numbers)  # files have blocks without rows
    ]
    return {
        "relation": batch.relation.tolist(),
        "time": batch.time.tolist(),
        "delete": None if batch.delete is None else batch.delete.tolist(),
        "blocks": blocks,
    }


def batch_of_plain(plain: dict[str, Any]) -> RecordBatch:
    """Inverse of ``plain_batch``."""
    relation = np.array(plain["relation"], dtype=np.int64)
    block, place = np.empty_like(relation), np.empty_like(relation)
    blocks: list[Block] = []
    for of, numbers, columns in plain["blocks"]:
        block[numbers] = len(blocks)
        place[numbers] = np.arange(len(numbers)) if columns else 0
        blocks.append(ColumnBlock(of, list(map(_packed, columns))) if columns else TruncationBlock(of))
    delete = None if plain["delete"] is None else np.array(plain["delete"], dtype=bool)
    return RecordBatch(
        relation, np.array(plain["time"], dtype=np.int64), Rows(block, place, tuple(blocks)), delete
    )


def _width(block: Block, places: np.ndarray[Any, np.dtype[np.int64]]) -> int:
    return len(block.rows(places[:1])[0])


def _packed(column: Sequence[Value]) -> Values:
    """A column as an array of integers or as texts, if all of it is; those take a fraction of the memory."""
    kinds = set(map(type, column))
    packed: Values | None = None
    if kinds == {int}:
        packed = packed_integers(column)
    elif kinds == {str}:
        packed = Texts.of_strings(column)
    return column if packed is None else packed
