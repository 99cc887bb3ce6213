"""First stage: splits of replay files to rows with time, keywords and the packed row.

Rows cross shuffles packed as JSON arrays, since relations have different
columns. Input that is no record comes out as a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from skws.data.record import BadRecord, Record
from skws.formats import Split, read_split
from skws.keywords import Matcher
from skws_schema.memory import check
from skws_schema.model import Schema

BATCH = 10_000
BAD = -1  # in place of a relation: the packed row is a BadRecord

DECODED = (
    "relation smallint, time bigint, split int, place bigint, deletion boolean, "
    "keywords smallint, packed binary, identity binary"
)
_ARROW = pa.schema(
    [
        ("relation", pa.int16()),
        ("time", pa.int64()),
        ("split", pa.int32()),
        ("place", pa.int64()),
        ("deletion", pa.bool_()),
        ("keywords", pa.int16()),
        ("packed", pa.binary()),
        ("identity", pa.binary()),
    ]
)


def decoded(
    spark: SparkSession, schema: Schema, splits: Sequence[Split], matcher: Matcher | None = None
) -> DataFrame:
    """All records of the splits, one partition a split. Order of arrival is (split, place).

    ``matcher``: None to look for no keywords.
    """
    numbers = spark.range(0, len(splits), 1, max(1, len(splits)))
    return numbers.mapInArrow(_decoder(schema, tuple(splits), matcher), DECODED)


def _decoder(
    schema: Schema, splits: Sequence[Split], matcher: Matcher | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                rows = _rows(schema, matcher, number, read_split(splits[number], schema))
                yield from batched(rows, _ARROW)

    return decode


def _rows(
    schema: Schema, matcher: Matcher | None, number: int, items: Iterable[Record | BadRecord]
) -> Iterator[tuple[Any, ...]]:
    key_of = [relation.key_of for relation in schema.relations]
    for place, item in enumerate(items):
        if isinstance(item, BadRecord):
            packed = orjson.dumps({**asdict(item), "raw": item.raw.hex()})
            yield BAD, 0, number, place, False, 0, packed, None
            continue
        relation, time, row, deletion = item
        key = key_of[relation](row)
        identity = None if key is None else orjson.dumps(key)
        keywords = 0 if deletion or matcher is None else matcher.bitmap(relation, row)
        yield relation, time, number, place, deletion, keywords, orjson.dumps(row), identity


def unpack_bad(packed: bytes) -> BadRecord:
    """Inverse of the packing of bad records."""
    fields = orjson.loads(packed)
    return BadRecord(**{**fields, "raw": bytes.fromhex(fields["raw"])})


def batched(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow batches of at most BATCH rows."""
    chunk: list[tuple[Any, ...]] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == BATCH:
            check()
            yield _batch(chunk, schema)
            chunk = []
    if chunk:
        yield _batch(chunk, schema)


def _batch(chunk: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        pa.array(values, kind) for values, kind in zip(zip(*chunk, strict=True), schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def unbatched(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """Rows of Arrow batches as tuples."""
    for batch in batches:
        check()
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
