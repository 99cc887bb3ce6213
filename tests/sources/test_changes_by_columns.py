"""Row changes are the same decoded together as one by one, whatever they contain."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.batch import Chunk
from skws.data.blocks import ColumnBlock
from skws.sources.postgres.catalog import CatalogTable, MatchedTables
from skws.sources.postgres.changes import ChangeDecoder, LogReader, Moment
from skws.sources.postgres.numerics import NUMBER_OF_TYPE, without_zeros
from skws.sources.postgres.pgoutput import (
    UNCHANGED,
    BeginMessage,
    Cell,
    Cells,
    Delete,
    Insert,
    RelationColumn,
    RelationMessage,
    ReplicaIdentity,
    RowChange,
    Update,
)
from skws.sources.postgres.slot import LogPosition
from skws_schema.errors import SourceError
from skws_schema.model import Attribute, AttributeType, Relation, Schema
from tests.sources.log_messages import encoded
from tests.strategies import examples

CHAR_OF_LENGTH = 1042
MANY = 40  # enough to be decoded together

ATTRIBUTES = {
    "id": AttributeType.INTEGER,
    "title": AttributeType.TEXT,
    "price": AttributeType.NUMBER,
    "code": AttributeType.STRING,
    "sold": AttributeType.BOOLEAN,
    "digits": AttributeType.STRING,
    "at": AttributeType.TIMESTAMP,
}
TYPES = {"code": CHAR_OF_LENGTH, "digits": NUMBER_OF_TYPE}
USUAL: dict[str, list[Cell]] = {
    "id": [b"1", b"2", b"-3", b"123456789012345678"],
    "title": [b"", b"lamp", "rote Lampe, größer".encode(), b"'\"\\\n\t", None],
    "price": [b"1", b"2.50", b"-1e3", b".5", None],
    "code": [b"ab  ", b"   ", b"", b"a b", None],
    "sold": [b"t", b"f", None],
    "digits": [b"1.50", b"1.00", b"100", b"0.0", b"-0.010", None],
    "at": [b"2026-11-30 10:11:12.5+00", b"2026-11-30 10:11:12+00", b"1999-12-31 23:59:59.999999-03:30"],
}
UNUSUAL: dict[str, list[Cell]] = {
    "id": [b"9223372036854775807", b"9223372036854775808", b"x", None, UNCHANGED],
    "title": [b"\xff", UNCHANGED],
    "price": [b"NaN", b"Infinity", b"cheap", UNCHANGED],
    "code": [b"\xff ", UNCHANGED],
    "sold": [b"perhaps", UNCHANGED],
    "digits": [b"NaN", UNCHANGED],
    "at": [b"infinity", b"2026-11-30", b"0044-03-15 00:00:00+00 BC", None, UNCHANGED],
}


def schema(*, key: bool, timed: bool) -> Schema:
    attributes = tuple(Attribute(name, kind) for name, kind in ATTRIBUTES.items())
    relation = Relation("sale", attributes, key=("id",) if key else (), time="at" if timed else None)
    return Schema("s", (relation, Relation("note", (Attribute("text", AttributeType.TEXT),))), ())


def decoder(schema: Schema, identity: ReplicaIdentity) -> ChangeDecoder:
    tables = {
        number: CatalogTable(7 + number, "public", name, "r", identity, (), (), frozenset(), ())
        for number, name in enumerate(("sale", "note"))
    }
    changes = ChangeDecoder(schema, MatchedTables(tables, {}, ()))
    columns = [RelationColumn(name, name == "id", TYPES.get(name, 25)) for name in reversed(ATTRIBUTES)]
    changes.relation(
        RelationMessage(7, "public", "sale", identity, (RelationColumn("more", False), *columns))
    )
    changes.relation(
        RelationMessage(8, "public", "note", ReplicaIdentity.FULL, (RelationColumn("text", False),))
    )
    return changes


def cells(rng: Random, unusual: float, *, key_only: bool = False) -> Cells:
    values: list[Cell] = [rng.choice([b"x", None, UNCHANGED])]
    for name in reversed(ATTRIBUTES):
        kind = UNUSUAL if rng.random() < unusual else USUAL
        values.append(None if key_only and name != "id" else rng.choice(kind[name]))
    return tuple(values)


def change(rng: Random, unusual: float) -> RowChange:
    if rng.random() < 0.2:
        return Insert(8, (rng.choice([b"lamp", b"", None]),))
    logging = rng.choice(["none", "key", "whole"])
    key = cells(rng, unusual, key_only=True) if logging == "key" else None
    old = cells(rng, unusual) if logging == "whole" else None
    match rng.choice(["insert", "update", "delete"]):
        case "insert":
            return Insert(7, cells(rng, unusual))
        case "update":
            return Update(7, key, old, cells(rng, unusual))
        case _ if logging == "none":
            return Delete(7, cells(rng, unusual, key_only=True), None)
        case _:
            return Delete(7, key, old)


def one_by_one(changes: ChangeDecoder, messages: list[bytes], moments: list[Moment]) -> list[object]:
    """The good and the bad records of each message, decoded separately."""
    chunks = [changes.chunk([message], [moment]) for message, moment in zip(messages, moments, strict=True)]
    return [
        *(bad for chunk in chunks for bad in chunk.bad),
        *(each for chunk in chunks for each in chunk.records.records()),
    ]


@examples(60)
@given(
    st.integers(0, 1 << 32),
    st.sampled_from([0.0, 0.0, 0.002, 0.05]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([ReplicaIdentity.DEFAULT, ReplicaIdentity.FULL]),
)
def test_changes_decoded_together_equal_single_changes(
    seed: int, unusual: float, key: bool, timed: bool, identity: ReplicaIdentity
) -> None:
    rng = Random(seed)
    messages = [encoded(change(rng, unusual)) for _ in range(rng.randint(MANY, 4 * MANY))]
    moments = [
        Moment(100 + number // 7, 5_000 + number // 7, 1 + number % 7) for number in range(len(messages))
    ]
    sale_schema = schema(key=key, timed=timed)
    chunk = decoder(sale_schema, identity).chunk(messages, moments)
    assert list(chunk) == one_by_one(decoder(sale_schema, identity), messages, moments)


def by_columns(chunk: Chunk) -> bool:
    return all(isinstance(block, ColumnBlock) for block in chunk.records.rows.blocks)


@pytest.mark.parametrize("timed", [False, True])
def test_usual_changes_are_decoded_by_columns(timed: bool) -> None:
    """Otherwise the test above would compare decoding one by one with itself."""
    rng = Random(1)
    messages = [encoded(Update(7, None, None, cells(rng, 0.0))) for _ in range(MANY)]
    chunk = decoder(schema(key=True, timed=timed), ReplicaIdentity.DEFAULT).chunk(
        messages, [Moment(1, 2, 3)] * MANY
    )
    assert by_columns(chunk)
    assert len(chunk.records) == 2 * MANY
    chunk_of_few = decoder(schema(key=True, timed=timed), ReplicaIdentity.DEFAULT).chunk(
        messages[:5], [Moment(1, 2, 3)] * 5
    )
    assert not by_columns(chunk_of_few)


def test_long_changes_are_decoded_in_parts() -> None:
    """NumPy needs eight bytes for each byte of a text."""
    text, number = b"x" * 200_000, 200
    reader = LogReader(decoder(schema(key=False, timed=False), ReplicaIdentity.FULL), LogPosition(1))
    reader.take(encoded(BeginMessage(5, 1)))
    tracemalloc.start()
    try:
        for _ in range(number):
            reader.take(encoded(Insert(8, (text,))))
        chunk = reader.chunk()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [record.row for record in chunk.records.records()] == [(text.decode(),)] * number
    assert peak < 4 * number * len(text)


def test_other_changes_are_decoded_by_columns_beside_an_unlogged_value() -> None:
    rng = Random(1)
    rows = [list(cells(rng, 0.0)) for _ in range(MANY)]
    rows[3][-2] = UNCHANGED  # the title
    messages = [encoded(Update(7, None, None, tuple(row))) for row in rows]
    chunk = decoder(schema(key=True, timed=False), ReplicaIdentity.DEFAULT).chunk(
        messages, [Moment(1, 2, 3)] * MANY
    )
    assert "was not logged" in chunk.bad[0].reason
    assert len(chunk.records) == 2 * MANY - 1
    assert sum(isinstance(block, ColumnBlock) for block in chunk.records.rows.blocks) == 1


@pytest.mark.parametrize("cut", [1, 3, 9])
def test_a_malformed_message_among_others_is_rejected(cut: int) -> None:
    rng = Random(1)
    messages = [encoded(Update(7, None, None, cells(rng, 0.0))) for _ in range(MANY)]
    changes = decoder(schema(key=True, timed=False), ReplicaIdentity.DEFAULT)
    for broken_message in (messages[5][:-cut], messages[5] + b"x" * cut):
        with pytest.raises(SourceError, match=r"is truncated|is longer than its kind"):
            changes.chunk([*messages[:5], broken_message, *messages[6:]], [Moment(1, 2, 3)] * MANY)


@examples(200)
@given(st.binary(max_size=40), st.integers(0, MANY - 1))
def test_any_bytes_among_changes_are_a_change_or_an_error(payload: bytes, position: int) -> None:
    rng = Random(2)
    messages = [encoded(Update(7, None, None, cells(rng, 0.0))) for _ in range(MANY)]
    messages[position] = messages[position][:5] + payload
    chunked: object
    single: object
    try:
        chunked = list(
            decoder(schema(key=True, timed=False), ReplicaIdentity.DEFAULT).chunk(
                messages, [Moment(1, 2, 3)] * MANY
            )
        )
    except SourceError as error:
        chunked = str(error)
    try:
        single = one_by_one(
            decoder(schema(key=True, timed=False), ReplicaIdentity.DEFAULT),
            messages,
            [Moment(1, 2, 3)] * MANY,
        )
    except SourceError as error:
        single = str(error)
    assert chunked == single


@given(st.from_regex(r"-?[0-9]{1,4}(\.[0-9]{0,5})?", fullmatch=True))
def test_trailing_zeros_of_numerics_are_removed(digits: str) -> None:
    """A regular expression removes them from columns, ``without_zeros`` from single values."""
    rng = Random(3)
    rows = [list(cells(rng, 0.0)) for _ in range(MANY)]
    rows[0][2] = digits.encode()
    messages = [encoded(Insert(7, tuple(row))) for row in rows]
    chunk = decoder(schema(key=True, timed=False), ReplicaIdentity.DEFAULT).chunk(
        messages, [Moment(1, 2, 3)] * MANY
    )
    assert by_columns(chunk)
    assert chunk.records.rows.row(0)[5] == without_zeros(digits)
