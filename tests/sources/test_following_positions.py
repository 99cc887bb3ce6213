"""Positions and times of messages that real servers rarely send, without a server."""

from __future__ import annotations

import pytest

from skws.data.record import Item, Record
from skws.sources.postgres.catalog import MatchedTables, Table
from skws.sources.postgres.changes import ChangeDecoder, LogReader
from skws.sources.postgres.pgoutput import Begin, Change, Column, Commit, Identity, Insert
from skws.sources.postgres.pgoutput import Relation as Described
from skws.sources.postgres.slot import Position
from skws_schema.errors import SourceError
from skws_schema.model import Attribute, AttributeType, Relation, Schema

SCHEMA = Schema("s", (Relation("movie", (Attribute("mid", AttributeType.INTEGER),)),), ())
TABLE = Table(7, "public", "movie", "r", Identity.FULL, (), (), frozenset(), ())
DESCRIBED = Described(7, "public", "movie", Identity.FULL, (Column("mid", False),))


def following(position: Position) -> LogReader:
    found = LogReader(ChangeDecoder(SCHEMA, MatchedTables({0: TABLE}, {}, ())), position)
    found.take(DESCRIBED)
    return found


def transaction(lsn: int, time: int, *numbers: int) -> list[Change]:
    inserts = [Insert(7, (str(number).encode(),)) for number in numbers]
    return [Begin(lsn, time), *inserts, Commit(lsn, lsn + 5, time)]


def taken(follower: LogReader, messages: list[Change]) -> list[tuple[object, int]]:
    items: list[Item] = [item for message in messages for item in follower.take(message)]
    return [(item.row[0], item.time) for item in items if isinstance(item, Record)]


def test_event_time_does_not_go_back_where_commit_times_do() -> None:
    follower = following(Position(100))
    messages = transaction(110, 50, 1) + transaction(120, 40, 2) + transaction(130, 60, 3)
    assert taken(follower, messages) == [(1, 50), (2, 50), (3, 60)]
    assert follower.position == Position(135, 0, 60)


def test_nor_where_a_run_goes_on() -> None:
    follower = following(Position(115, time=50))
    assert taken(follower, transaction(120, 40, 2)) == [(2, 50)]


def test_what_was_read_of_a_transaction_is_passed_over_once() -> None:
    follower = following(Position(100, change=2, time=50))
    messages = transaction(110, 50, 1, 2, 3) + transaction(120, 60, 4, 5, 6)
    assert taken(follower, messages) == [(3, 50), (4, 60), (5, 60), (6, 60)]


def test_a_transaction_from_before_the_position_is_passed_over() -> None:
    follower = following(Position(115, change=1, time=50))
    assert taken(follower, transaction(110, 40, 1, 2) + transaction(120, 60, 3, 4)) == [(4, 60)]
    assert follower.position == Position(125, 0, 60)


def test_a_rest_moves_the_position_but_not_within_a_transaction() -> None:
    follower = following(Position(100))
    follower.skip_to(150)
    follower.skip_to(140)
    assert follower.position == Position(150)
    follower.take(Begin(160, 50))
    follower.skip_to(170)
    assert follower.position == Position(150)
    parted = following(Position(100, change=2, time=50))
    parted.skip_to(150)
    assert parted.position == Position(100, 2, 50)


@pytest.mark.parametrize(
    ("last", "reached"),
    [
        (Position(100), [True]),
        (Position(110), [False, True]),
        (Position(112), [False, False, False, False, True]),
        (Position(115), [False, False, False, False, True]),
        (Position(100, change=1), [False, False, True]),
        (Position(105, change=2), [False, False, False, True]),
    ],
)
def test_where_reading_again_ends(last: Position, reached: list[bool]) -> None:
    follower = following(Position(100))
    seen = [follower.reached(last, 0)]
    for message in transaction(110, 50, 1, 2):
        follower.take(message)
        seen.append(follower.reached(last, 0))
    assert seen[: len(reached)] == reached
    assert following(Position(100)).reached(last, 200) == (last.change == 0)


@pytest.mark.parametrize("offset", [{}, {"lsn": "0/1"}, {"lsn": "x", "change": 0, "time": 0}, {"items": 3}])
def test_offsets_of_others_are_refused(offset: dict[str, object]) -> None:
    with pytest.raises(SourceError, match=r"is not an offset of a PostgreSQL source|is not a position"):
        Position.of(offset)


def test_offsets_come_back_as_they_were() -> None:
    for position in (Position(0x16_B374_8D10, 3, 5), Position(1, 0, 7, spool=12)):
        assert Position.of(position.offset()) == position
