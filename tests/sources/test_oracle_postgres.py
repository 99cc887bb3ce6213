"""Random transactions on a real database: the records add up to its tables."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random

from skws.data.batch import Item, Record
from skws.sources.feed import Feed, Offset
from skws.sources.postgres.change_feed import PostgresSource
from skws.sources.postgres.database_address import DatabaseAddress
from skws.sources.postgres.log_history import lsn_of
from skws_schema.model import Attribute, AttributeType, Relation, Row, Schema
from tests.postgres import Database
from tests.strategies import seeds

T = AttributeType
COLUMNS = (Attribute("k", T.INTEGER), Attribute("body", T.TEXT), Attribute("n", T.INTEGER))
SCHEMA = Schema("s", (Relation("keyed", COLUMNS, key=("k",)), Relation("bag", COLUMNS)), ())
TABLES = (
    "CREATE TABLE keyed (k int PRIMARY KEY, body text, n int)",
    "CREATE TABLE bag (k int, body text, n int)",
    "ALTER TABLE bag REPLICA IDENTITY FULL",
    "ALTER TABLE bag ALTER body SET STORAGE EXTERNAL",
    "INSERT INTO bag SELECT i, 'there before', i FROM generate_series(1, 20) i",
)


class Contents:
    """The content after the records so far: the newest row of each key, and a bag of rows without a key."""

    def __init__(self) -> None:
        self.keyed: dict[object, Row] = {}
        self.bag: Counter[Row] = Counter()

    def take(self, items: list[Item]) -> None:
        for item in items:
            assert isinstance(item, Record), item
            if item.relation == 1:
                self.bag[item.row] += -1 if item.delete else 1
                assert self.bag[item.row] >= 0
            elif item.delete:
                assert item.row[0] in self.keyed
                del self.keyed[item.row[0]]
            else:
                assert item.row[0] not in self.keyed
                self.keyed[item.row[0]] = item.row

    def check(self, database: Database) -> None:
        assert sorted(self.keyed.values(), key=str) == sorted(database.ask("SELECT * FROM keyed"), key=str)
        assert +self.bag == Counter(database.ask("SELECT * FROM bag"))


def statement(random: Random) -> str:
    key, number = random.randrange(12), random.randrange(12)
    size = random.choice((1, 1, 1, 90))
    body = f"repeat(md5('{key}{random.random()}'), {size})"
    table = random.choice(("keyed", "bag"))
    insert = f"INSERT INTO {table} VALUES ({key}, {body}, {number})"
    return random.choice(
        (
            insert + (" ON CONFLICT (k) DO UPDATE SET n = excluded.n" if table == "keyed" else ""),
            insert + (" ON CONFLICT DO NOTHING" if table == "keyed" else ""),
            f"INSERT INTO bag SELECT i, {body}, {number} FROM generate_series(1, {key}) i",
            f"UPDATE {table} SET body = {body} WHERE k = {key}",
            f"UPDATE bag SET n = {number} WHERE k = {key}",
            f"UPDATE {table} SET k = k + 100 WHERE k = {key}"
            f" AND NOT EXISTS (SELECT FROM {table} WHERE k = {key} + 100)",
            f"DELETE FROM {table} WHERE k IN ({key}, {number} + 100)",
            "SAVEPOINT s",
            "ROLLBACK TO s",
        )
    )


def transaction(random: Random) -> list[str]:
    statements = ["SAVEPOINT s", *(statement(random) for _ in range(random.choice((1, 2, 5, 40))))]
    return statements + (["SELECT 1 / 0"] if random.random() < 0.15 else [])


def open_feed(database: Database, folder: Path) -> Feed:
    return PostgresSource(DatabaseAddress.of(database.uri(slot=database.name)), folder).open(SCHEMA)


@seeds(1, 4)
def test_the_records_add_up_to_the_tables(database: Database, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    database.run(*TABLES, "ALTER TABLE keyed ALTER body SET STORAGE PLAIN")
    _run(database, transaction(random))
    contents, feed = Contents(), open_feed(database, tmp_path)
    try:
        offset = feed.start()
        for _ in range(25):
            for _ in range(random.choice((0, 1, 4))):
                _run(database, transaction(random))
            before = offset
            items: list[Item] = []
            for _ in range(random.choice((1, 3))):
                batch = feed.poll(offset, random.choice((1, 3, 10, 1000)))
                items += batch.read
                offset = batch.end
            contents.take(items)
            if random.random() < 0.5:
                assert list(feed.replay(before, offset)) == items
            if random.random() < 0.3:
                feed.commit(offset)
            if random.random() < 0.5:
                feed.close()
                feed = open_feed(database, tmp_path)
            if random.random() < 0.05:
                database.server.stop("immediate")
                database.server.start()
        offset = _read_rest(feed, database, offset, contents)
        contents.check(database)
    finally:
        feed.close()
    with closing(open_feed(database, tmp_path)) as last:
        assert list(last.poll(offset, 10).read) == []


def _run(database: Database, statements: list[str]) -> None:
    try:
        database.run(*statements)
    except Exception as error:
        if "division" not in str(error):
            raise


def _read_rest(feed: Feed, database: Database, offset: Offset, contents: Contents) -> Offset:
    ((current,),) = database.ask("SELECT pg_current_wal_lsn()::text")
    while lsn_of(offset["lsn"]) < lsn_of(str(current)) or "snapshot" in offset:
        batch = feed.poll(offset, 100)
        contents.take(list(batch.read))
        offset = batch.end
    return offset
