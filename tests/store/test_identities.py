"""Records end the tuples with their identities, for any keys and any blocks of rows."""

from __future__ import annotations

import gc
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pytest

from skws.data.arrow_blocks import ArrowBlock
from skws.data.batch import Record, RecordBatch, Rows
from skws.data.blocks import ColumnBlock
from skws.queries.session import Session
from skws.spec.query_spec import Query, Stream
from skws.store.identities import Identities
from skws_purging.lifespans import StreamTuple
from skws_schema.model import Attribute, AttributeType, Relation, Row, Schema, Value
from skws_windows.window import MICROSECOND, CountWindow, TimeWindow, Unbounded, Window
from tests.strategies import combinations, seeds


def same_hash(length: int = 2048) -> tuple[str, str]:
    """Texts with the same hash, a polynomial modulo 2^64: the Thue-Morse sequence and its complement."""
    bits = [number.bit_count() & 1 for number in range(length)]
    return "".join("ab"[bit] for bit in bits), "".join("ba"[bit] for bit in bits)


ONE, OTHER = same_hash()
TEXT, INTEGER, NUMBER = AttributeType.TEXT, AttributeType.INTEGER, AttributeType.NUMBER
STRING, BOOLEAN = AttributeType.STRING, AttributeType.BOOLEAN
KEYS: Final[dict[str, tuple[tuple[AttributeType, ...], list[Row]]]] = {
    "integers": ((INTEGER,), [(0,), (1,), (-(1 << 63),), ((1 << 63) - 1,)]),
    "numbers": ((NUMBER,), [(0,), (1,), (0.5,), ((1 << 60) + 1,), (1 << 60,), (1e300,)]),
    "texts": ((STRING,), [("x",), ("",), (ONE,), (OTHER,)]),
    "truth values": ((BOOLEAN,), [(True,), (False,)]),
    "several": ((INTEGER, STRING), [(1, "x"), (1, "y"), (2, "x"), (2, ONE), (2, OTHER)]),
    "with NULL": ((INTEGER, STRING), [(1, "x"), (1, None), (None, "x"), (None, None)]),
    "none": ((), [()]),
}


def schema_of(types: Sequence[AttributeType]) -> Schema:
    key = [Attribute(f"k{number}", kind) for number, kind in enumerate(types)]
    attributes = (*key, Attribute("t", TEXT), Attribute("n", INTEGER))
    return Schema(
        "s", (Relation("r", attributes, key=tuple(attribute.name for attribute in key), search=("t",)),), ()
    )


def as_rows(records: list[Record], _schema: Schema) -> RecordBatch:
    return RecordBatch.of(records)


def as_columns(records: list[Record], _schema: Schema) -> RecordBatch:
    return _with_block(
        records, lambda rows: ColumnBlock(0, [list(column) for column in zip(*rows, strict=True)])
    )


def as_arrow(records: list[Record], schema: Schema) -> RecordBatch:
    kinds = {
        INTEGER: pa.int64(),
        NUMBER: pa.float64(),
        STRING: pa.string(),
        BOOLEAN: pa.bool_(),
        TEXT: pa.string(),
    }
    arrow_types = [kinds[attribute.type] for attribute in schema.relations[0].attributes]

    def block(rows: list[Row]) -> ArrowBlock:
        columns = zip(*rows, strict=True)
        return ArrowBlock(
            0, [pa.array(values, kind) for values, kind in zip(columns, arrow_types, strict=True)]
        )

    return _with_block(records, block)


def _with_block(records: list[Record], block: Callable[[list[Row]], ColumnBlock | ArrowBlock]) -> RecordBatch:
    batch = RecordBatch.of(records)
    numbers = np.arange(len(batch))
    return RecordBatch(
        batch.relation,
        batch.time,
        Rows(np.zeros_like(numbers), numbers, (block([r.row for r in records]),)),
        batch.delete,
    )


def random_records(rng: random.Random, keys: list[Row], count: int) -> list[Record]:
    records: list[Record] = []
    time = 0
    for _ in range(count):
        time += rng.choice((0, 0, 1, 3)) * MICROSECOND
        row: Row = (*rng.choice(keys), rng.choice(("w", "w x", "y")), rng.randrange(2))
        records.append(Record(0, time, row, rng.random() < 0.3))
    return records


def alive(records: list[Record], schema: Schema, window: Window) -> list[Row]:
    """The rows that are alive after some records, computed one record at a time."""
    relation = schema.relations[0]
    live: dict[tuple[Value, ...], deque[tuple[int, Row]]] = {}
    count = 0
    for record in records:
        key = relation.key_of(record.row)
        queue = live.setdefault(record.row if key is None else ("key", *key), deque())
        start = record.time if not isinstance(window, CountWindow) else count
        for live_rows in live.values():
            while live_rows and _over(window, live_rows[0][0], start, deletion=record.delete):
                live_rows.popleft()
        if queue and (record.delete or key is not None):
            queue.popleft()
        if not record.delete:
            queue.append((start, record.row))
            count += 1
    return [row for queue in live.values() for _, row in queue]


def _over(window: Window, start: int, now: int, *, deletion: bool) -> bool:
    if isinstance(window, Unbounded):
        return False
    if isinstance(window, CountWindow):
        return now - start > window.size + deletion
    return window.end(start) <= now


def rows_with_keyword(schema: Schema, rows: list[Row]) -> list[tuple[object, ...]]:
    """Rows with the keyword, as in results, in any order."""
    keyword = schema.relations[0].columns["t"]
    return sorted((tuple(row) for row in rows if "w" in str(row[keyword]).split()), key=repr)


@pytest.mark.check
@combinations(
    "keys, window, batch_of",
    list(KEYS),
    [Unbounded(), TimeWindow(6 * MICROSECOND), CountWindow(5)],
    [as_rows, as_columns, as_arrow],
    every=3,
)
@seeds(1, 40)
def test_live_tuples_equal_a_simulation(
    keys: str, window: Window, batch_of: Callable[[list[Record], Schema], RecordBatch], seed: int
) -> None:
    types, values = KEYS[keys]
    if batch_of is as_arrow and keys == "numbers":
        values = [value for value in values if not isinstance(value[0], int) or value[0] < 1 << 53]
    rng, schema = random.Random(seed), schema_of(types)
    session = Session(Stream(schema, window, finite=False))
    session.add(Query("w").named("query", 3))
    records = random_records(rng, values, 120)
    past: list[Record] = []
    while records:
        size = rng.choice((1, 2, 7, 40))
        batch_records, records = records[:size], records[size:]
        past += batch_records
        session.take(batch_of(batch_records, schema))
        actual_rows = [tuple(result.tuples[0].row.values()) for result in session.alive("query")]
        assert sorted(actual_rows, key=repr) == rows_with_keyword(schema, alive(past, schema, window))


def test_the_colliding_texts_have_one_hash() -> None:
    schema = schema_of((STRING,))
    hashes, keyed = Identities(schema).of(
        RecordBatch.of([Record(0, 0, (text, "w", 1)) for text in (ONE, OTHER)]).rows
    )
    assert ONE != OTHER
    assert hashes[0] == hashes[1]
    assert keyed.all()


@pytest.mark.check
@pytest.mark.parametrize("lateness", [0, 5 * MICROSECOND])
def test_live_rows_need_no_objects(lateness: int) -> None:
    """The objects of tuples are released as soon as no late record can correct them."""
    schema = schema_of((INTEGER,))
    session = Session(Stream(schema, Unbounded(), lateness=lateness, finite=False))
    session.add(Query("none").named("query", 3))
    before = objects()
    for first in range(0, 4000, 500):
        rows = [Record(0, first + i, (first + i, f"w{i}", i)) for i in range(500)]
        session.take(RecordBatch.of(rows))
    session.take(RecordBatch.of([Record(0, 100 * MICROSECOND, (1, "w", 1))]))
    session.take(RecordBatch.of([Record(0, 200 * MICROSECOND, (2, "w", 1))]))
    assert session.load().live >= 4000
    assert objects() - before <= 4


def objects() -> int:
    gc.collect()
    return sum(isinstance(instance, StreamTuple) for instance in gc.get_objects())
