"""Positions and times of changes in PostgreSQL's log, and the offsets of a run."""

from __future__ import annotations

import pytest

from skws.sources.postgres.catalog import CatalogTable, MatchedTables
from skws.sources.postgres.changes import ChangeDecoder, LogReader
from skws.sources.postgres.log_history import LogHistory
from skws.sources.postgres.pgoutput import (
    BeginMessage,
    Change,
    Commit,
    Insert,
    RelationColumn,
    RelationMessage,
    ReplicaIdentity,
)
from skws.sources.postgres.slot import LogPosition
from skws_schema.errors import SourceError
from skws_schema.model import Attribute, AttributeType, Relation, Schema
from tests.sources.log_messages import encoded

PLAIN = Schema("s", (Relation("movie", (Attribute("mid", AttributeType.INTEGER),)),), ())
TABLE = CatalogTable(7, "public", "movie", "r", ReplicaIdentity.FULL, (), (), frozenset(), ())
RELATION_MESSAGE = RelationMessage(
    7, "public", "movie", ReplicaIdentity.FULL, (RelationColumn("mid", False),)
)


def reader_from(position: LogPosition) -> LogReader:
    reader = LogReader(ChangeDecoder(PLAIN, MatchedTables({0: TABLE}, {}, ())), position)
    reader.take(encoded(RELATION_MESSAGE))
    return reader


def transaction(lsn: int, time: int, *numbers: int) -> list[Change]:
    inserts = [Insert(7, (str(number).encode(),)) for number in numbers]
    return [BeginMessage(lsn, time), *inserts, Commit(lsn, lsn + 5, time)]


def numbers_and_times(reader: LogReader, messages: list[Change]) -> list[tuple[object, int]]:
    for message in messages:
        reader.take(encoded(message))
    return [(record.row[0], record.time) for record in reader.chunk().records.records()]


def test_event_times_do_not_decrease_when_commit_times_do() -> None:
    reader = reader_from(LogPosition(100))
    messages = transaction(110, 50, 1) + transaction(120, 40, 2) + transaction(130, 60, 3)
    assert numbers_and_times(reader, messages) == [(1, 50), (2, 50), (3, 60)]
    assert reader.position == LogPosition(135, 0, 60)


def test_event_times_do_not_decrease_when_a_run_resumes() -> None:
    reader = reader_from(LogPosition(115, time=50))
    assert numbers_and_times(reader, transaction(120, 40, 2)) == [(2, 50)]


def test_read_changes_of_a_transaction_are_skipped_once() -> None:
    reader = reader_from(LogPosition(100, change=2, time=50))
    messages = transaction(110, 50, 1, 2, 3) + transaction(120, 60, 4, 5, 6)
    assert numbers_and_times(reader, messages) == [(3, 50), (4, 60), (5, 60), (6, 60)]


def test_a_transaction_before_the_position_is_skipped() -> None:
    reader = reader_from(LogPosition(115, change=1, time=50))
    assert numbers_and_times(reader, transaction(110, 40, 1, 2) + transaction(120, 60, 3, 4)) == [(4, 60)]
    assert reader.position == LogPosition(125, 0, 60)


def test_the_position_advances_only_between_transactions() -> None:
    reader = reader_from(LogPosition(100))
    reader.skip_to(150)
    reader.skip_to(140)
    assert reader.position == LogPosition(150)
    reader.take(encoded(BeginMessage(160, 50)))
    reader.skip_to(170)
    assert reader.position == LogPosition(150)
    inside_transaction = reader_from(LogPosition(100, change=2, time=50))
    inside_transaction.skip_to(150)
    assert inside_transaction.position == LogPosition(100, 2, 50)


@pytest.mark.parametrize("offset", [{}, {"lsn": "0/1"}, {"lsn": "x", "change": 0, "time": 0}, {"items": 3}])
def test_offsets_of_other_sources_are_rejected(offset: dict[str, object]) -> None:
    with pytest.raises(SourceError, match=r"is not an offset of a PostgreSQL source|is not a position"):
        LogPosition.of(offset)


def test_an_offset_without_a_server_is_rejected() -> None:
    """It may belong to another cluster's log, which nothing would reveal."""
    position = LogPosition(100, time=5, server=LogHistory("7300000000000000001", 2))
    assert LogPosition.of(position.offset()) == position
    with pytest.raises(SourceError, match="does not name the server of its log"):
        LogPosition.of({"lsn": "0/64", "change": 0, "time": 5})
