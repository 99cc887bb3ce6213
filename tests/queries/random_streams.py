"""Random streams with ties, replacements, deletions and truncations, and their schemas."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from skws.data.batch import Record, RecordBatch
from skws_schema.model import Join, Relation, Row, Schema
from tests.strategies import COLUMNS

PLAIN = Relation("plain", COLUMNS, search=("t",))
KEYED = Relation("keyed", COLUMNS, key=("x",), search=("t",))
LINK = Relation("link", COLUMNS)
TABLE = Relation("fixed", COLUMNS, search=("t",), table=True)
JOINS = (
    Join("pk", "plain", "keyed", (("x", "x"),)),
    Join("pl", "plain", "link", (("y", "y"),)),
    Join("lk", "link", "keyed", (("x", "y"),)),
    Join("self", "plain", "plain", (("x", "y"),)),
)
STREAMS = Schema("streams", (PLAIN, KEYED, LINK), JOINS)
TABLES = Schema(
    "tables", (PLAIN, KEYED, LINK, TABLE), (*JOINS, Join("ft", "fixed", "plain", (("x", "x"), ("y", "y"))))
)

DIVIDED = Schema(
    "divided",
    (PLAIN, KEYED, LINK, TABLE),
    (
        Join("pk", "plain", "keyed", (("x", "x"),)),
        Join("pl", "plain", "link", (("x", "x"), ("y", "y"))),
        Join("self", "plain", "plain", (("x", "x"),)),
        Join("ft", "fixed", "plain", (("x", "x"), ("y", "y"))),
    ),
)
"""All joins use the attribute x."""


def random_stream(schema: Schema, seed: int, count: int, values: int, truncated: float = 0) -> list[Record]:
    """Records with ties, equal rows, NULLs, deletions of known and unknown rows, and replaced keys.

    ``truncated``: the share of records that are truncations.
    """
    rng = random.Random(seed)
    records: list[Record] = []
    time = 1_000_000
    for _ in range(count):
        time += rng.choice([0, 0, 1, 1, 2, 3])
        relation = rng.randrange(len(schema.relations))
        table = schema.relations[relation].table
        if truncated and not table and rng.random() < truncated:
            records.append(Record.truncation(relation, time))
            continue
        if records and not table and rng.random() < 0.2:
            earlier = rng.choice(records[-30:])
            if not schema.relations[earlier.relation].table and not earlier.truncates:
                records.append(earlier._replace(time=time, delete=rng.random() < 0.7))
                continue
        records.append(Record(relation, 0 if table else time, random_row(rng, values)))
    return records


def random_row(rng: random.Random, values: int) -> Row:
    words = [word for word in ("alpha", "beta", "no") if rng.random() < 0.3]
    numbers = [rng.choice([None, *range(values)]) if rng.random() < 0.9 else None for _ in range(2)]
    return (" ".join([*words, "pad"]), *numbers)


def without_dequeues(schema: Schema, records: Sequence[Record]) -> list[Record]:
    """The stream without deletions of rows that have no key: each ends the oldest of equal rows."""
    keys = [relation.key_of for relation in schema.relations]
    return [
        record
        for record in records
        if not record.delete or record.truncates or keys[record.relation](record.row) is not None
    ]


def deleted_singly(schema: Schema, records: Sequence[Record]) -> list[Record]:
    """The stream, in order of arrival, with a deletion of each row in place of a truncation.

    Includes rows that have ended, whose deletions have no effect.
    """
    rows: dict[int, list[Record]] = {}
    singles: list[Record] = []
    for record in records:
        live_rows = rows.setdefault(record.relation, [])
        if record.truncates:
            singles += [each._replace(time=record.time, delete=True) for each in live_rows]
            live_rows.clear()
        else:
            singles.append(record)
            if not record.delete:
                live_rows.append(record)
    return singles


DENSE = Schema(
    "dense",
    (PLAIN, replace(KEYED, key=("y",)), LINK, TABLE),
    (
        Join("pk", "plain", "keyed", (("x", "x"),)),
        Join("pp", "plain", "plain", (("x", "y"),)),
        Join("lk", "link", "keyed", (("x", "x"),)),
        Join("lp", "link", "plain", (("x", "x"),)),
        Join("fp", "fixed", "plain", (("x", "x"),)),
    ),
)


def dense_rows(
    rng: random.Random, count: int, steps: Sequence[int], last: int = 0, truncated: float = 0
) -> list[Record]:
    """Tuples that join, most with a keyword, many at one time; with duplicates, replacements, deletions.

    ``last``: the number of latest records that may be repeated or deleted; 0 for all. ``truncated``: the
    share of records that are truncations.
    """
    stream: list[Record] = []
    for _ in range(count):
        time = (stream[-1].time if stream else 0) + rng.choice(steps)
        if stream and rng.random() < 0.25:
            earlier = rng.choice(stream[-last:])
            stream.append(earlier._replace(time=time, delete=earlier.truncates or rng.random() < 0.6))
            continue
        if truncated and rng.random() < truncated:
            stream.append(Record.truncation(rng.randrange(3), time))
            continue
        words = [rng.choice(["alpha", "beta", "gamma", "no"]), rng.choice(["", "", "", "alpha"])]
        numbers = rng.choice([0, 1]), rng.choice([0, 1, 2, None])
        stream.append(Record(rng.randrange(3), time, (" ".join(words), *numbers)))
    return stream


def dense_tables(rng: random.Random) -> list[Record]:
    return [Record(3, 0, record.row) for record in dense_rows(rng, 2, [0])]


def batches_of_size(records: Sequence[Record], size: int) -> list[RecordBatch]:
    return [RecordBatch.of(records[first : first + size]) for first in range(0, len(records), size)]


def split_into_batches(records: Sequence[Record], splits: Sequence[int]) -> list[RecordBatch]:
    """The records as batches; each split is a position, modulo the number of positions."""
    bounds = [0, *sorted(split % (len(records) + 1) for split in splits), len(records)]
    return [RecordBatch.of(records[start:end]) for start, end in pairwise(bounds)]
