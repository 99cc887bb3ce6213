"""Rows of COPY are the same by columns as one by one, for any values, with PostgreSQL's escapes."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg2
from hypothesis import given
from hypothesis import strategies as st

from skws.data.batch import Record
from skws.data.value_conversion import EARLIEST, MalformedError
from skws.formats.dead_letters import place
from skws.formats.rows import RowReader
from skws.sources.postgres.copied import CopiedRows
from skws.sources.postgres.spool import SnapshotSpool
from skws_schema.model import Attribute, AttributeType, Relation, Row, Schema
from tests.postgres import Database
from tests.sources.film_database import source
from tests.strategies import examples

TIME = 1_700_000_000_000_000
EVENT = Relation(
    "event",
    (
        Attribute("id", AttributeType.INTEGER),
        Attribute("about", AttributeType.TEXT),
        Attribute("price", AttributeType.NUMBER),
        Attribute("paid", AttributeType.BOOLEAN),
        Attribute("at", AttributeType.TIMESTAMP),
    ),
    key=("id",),
    search=("about",),
)
NAME = Relation("name", (Attribute("name", AttributeType.STRING),))
STAMPED = Relation("stamped", EVENT.attributes, key=("id",), search=("about",), time="at")
SCHEMA = Schema("copied", (EVENT, NAME, STAMPED), ())

ESCAPES = {"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r", "\b": r"\b", "\f": r"\f", "\v": r"\v"}
TEXTS = st.text(alphabet="aN\\\t\n\r\b\f\v,\"' é\ufeff\U0001f600", max_size=6)
INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1).map(str) | st.sampled_from(["0", "-1", "007"])
NUMBERS = st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.sampled_from(
    ["1", "12.50", "1e+308", "1e999", "NaN", "Infinity", "-0"]
)
MOMENTS = st.sampled_from(
    [
        *("2024-05-06 07:08:09+00", "2024-05-06 07:08:09.5+02", "2024-05-06", "0001-01-01 00:00:00+01"),
        *("infinity", "0044-03-15 BC", "12024-01-01 00:00:00+00", "1700000000", "soon"),
    ]
)
USUAL = st.tuples(
    INTEGERS,
    st.none() | TEXTS,
    st.none() | st.integers(-9, 9).map(str),
    st.sampled_from(["t", "f", None]),
    st.just("2024-05-06 07:08:09+00"),
)
ANY = st.tuples(
    INTEGERS | st.sampled_from(["", "0x1A", "1.0", " 1", "9223372036854775808"]),
    st.none() | TEXTS,
    st.none() | NUMBERS | st.just(""),
    st.sampled_from(["t", "f", None, "yes", "maybe", ""]),
    st.none() | MOMENTS,
)
ROWS = st.lists(
    st.tuples(st.sampled_from([0, 2]), USUAL | ANY) | st.tuples(st.just(1), st.tuples(TEXTS)), max_size=8
)


def line(relation: int, row: tuple[str | None, ...]) -> bytes:
    cells = (r"\N" if text is None else "".join(ESCAPES.get(c, c) for c in text) for text in row)
    return "\t".join([str(relation), *cells]).encode() + b"\n"


def one_by_one(reader: RowReader, row: tuple[str | None, ...]) -> Record | str:
    try:
        return reader.record(reader.convert(row), TIME)
    except MalformedError as error:
        return str(error)


@given(ROWS)
@examples(400)
def test_rows_by_columns_equal_single_rows(rows: list[tuple[int, tuple[str | None, ...]]]) -> None:
    lines = b"".join(line(*each) for each in rows)
    copied_rows = CopiedRows(SCHEMA, TIME, "here")
    readers = [RowReader(SCHEMA, number) for number in range(len(SCHEMA.relations))]
    chunk = copied_rows.read(lines)
    expected = [one_by_one(readers[relation], row) for relation, row in rows]
    # repr, as 0.0 equals -0.0, and 1 equals True.
    records = [each for each in expected if isinstance(each, Record)]
    assert repr(list(chunk.records.records())) == repr(records)
    reasons = [each for each in expected if isinstance(each, str)]
    assert sorted(bad.reason for bad in chunk.bad if not bad.passed_over) == sorted(reasons)
    skipped = {bad.reason: bad.passed_over for bad in chunk.bad if bad.passed_over}
    assert skipped == {reason: count for one in readers for reason, count in one.passed_over.items()}
    times = copied_rows.times(lines).tolist()
    for time, record, (relation, row) in zip(times, expected, rows, strict=True):
        if isinstance(record, Record):
            assert time == record.time
        elif relation == 2 and row[4] in (None, "soon"):
            assert time == EARLIEST


def test_a_snapshot_is_split_after_any_number_of_lines(tmp_path: Path) -> None:
    """It is read in pieces of some megabytes, the first of which has three rows."""
    spool, mega = SnapshotSpool(tmp_path, "slot"), 1 << 20
    rows = [(1, ("x" * size,)) for size in (0, 3 * mega, 2 * mega, 1, 0, 30, 2)]
    spool.rows.write_bytes(b"".join(line(*each) for each in rows))
    for limit in (1, 4, 100):
        offset, actual = 0, list[Row]()
        while (end := spool.lines_end(offset, limit)) > offset:
            chunk = spool.read_rows(SCHEMA, offset, end)
            assert len(chunk) == min(limit, len(rows) - len(actual))
            actual += [record.row for record in chunk.records.records()]
            offset = end
        assert actual == [row for _, row in rows]


def test_texts_are_those_of_the_database(database: Database) -> None:
    texts = [
        "",
        "\\N",
        "\\\\N",
        "a\\b",
        "tab\there",
        "line\nline",
        "\r\n",
        "\b\f\v",
        "\x01\x02\x7f",
        "\ufeffé\U0001f600",
        None,
    ]
    schema = Schema("copied", (replace(EVENT, attributes=EVENT.attributes[:2]),), ())
    database.run("CREATE TABLE event (id integer PRIMARY KEY, about text)")
    with psycopg2.connect(database.uri()) as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO event VALUES (%s, %s)", list(enumerate(texts)))
    connection.close()
    with closing(source(database).open(schema)) as feed:
        items = feed.poll(feed.start(), 100).read
    assert [record.row for record in items.records.records()] == list(enumerate(texts))


def test_a_bad_row_has_the_place_of_its_line() -> None:
    lines = b"0\t1\tx\t1\tt\t2024-05-06\n1\tada\n0\tx\tx\t1\tt\t2024-05-06\n0\ty\tx\t1\tt\t2024-05-06\n"
    bad = CopiedRows(SCHEMA, TIME, "snapshot of s").read(lines, 1000).bad
    offsets = [1000 + lines.index(b"0\tx"), 1000 + lines.index(b"0\ty")]
    assert [record.offset for record in bad] == offsets
    assert place(bad[0]) == f"snapshot of s (event, at byte {offsets[0]:,})"
