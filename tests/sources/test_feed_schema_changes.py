"""Feeds whose schema changes in the middle of a stream: tables, topics and files are added and removed."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from skws.sources.addresses import parse_source
from skws.sources.feed import Feed, Offset
from skws.sources.postgres.change_feed import PostgresSource
from skws.sources.postgres.database_address import DatabaseAddress
from skws_schema.errors import SourceError
from skws_schema.evolution import SchemaChange
from skws_schema.model import Schema
from tests.jobs.watching import append
from tests.kafka import MockBroker
from tests.postgres import Database
from tests.sources.film_database import SCHEMA, TABLES, follow, insert, movies, rows_of
from tests.waiting import PATIENCE

WITHOUT_SIGHTINGS = Schema("films", SCHEMA.relations[:2], SCHEMA.joins[:1])
WITH_SIGHTINGS = SchemaChange.between(WITHOUT_SIGHTINGS, SCHEMA).after
SIGHTINGS_REMOVED = SchemaChange.between(
    SCHEMA, replace(SCHEMA, relations=SCHEMA.relations[:2], joins=SCHEMA.joins[:1])
).after


def poll_until(feed: Feed, offset: Offset, count: int) -> tuple[list[tuple[object, ...]], Offset]:
    items: list[tuple[object, ...]] = []
    end = time.monotonic() + PATIENCE
    while len(items) < count:
        assert time.monotonic() < end, items
        batch = feed.poll(offset, 100)
        items += rows_of(list(batch.read))
        offset = batch.end
    return items, offset


@pytest.mark.check
def test_tables_are_added_and_removed(database: Database) -> None:
    database.run(*TABLES)
    feed = PostgresSource(DatabaseAddress.of(database.uri(slot=database.name))).open(WITHOUT_SIGHTINGS)
    offset = feed.start()
    database.run(insert(1, 2), "INSERT INTO sighting VALUES (1, 'before')")
    items, offset, _ = follow(feed, database, offset)
    assert rows_of(items) == movies(1, 2)
    feed.change_schema(WITH_SIGHTINGS)
    database.run(insert(3, 3), "INSERT INTO sighting VALUES (3, 'seen')")
    items, offset, _ = follow(feed, database, offset)
    assert rows_of(items) == [*movies(3), ("+", "sighting", 3, "seen")]
    # A table may be removed with its relation, and a missing table is rejected.
    feed.change_schema(SIGHTINGS_REMOVED)
    database.run("DROP TABLE sighting", insert(4, 4))
    with pytest.raises(SourceError, match="no table 'sighting'"):
        feed.change_schema(SCHEMA)
    items, offset, _ = follow(feed, database, offset)
    assert rows_of(items) == movies(4)
    feed.close()


def test_a_publication_of_another_owner_is_not_changed(database: Database) -> None:
    database.run(*TABLES, "CREATE PUBLICATION theirs FOR TABLE movie")
    feed = PostgresSource(DatabaseAddress.of(database.uri(slot=database.name, publication="theirs"))).open(
        WITHOUT_SIGHTINGS
    )
    offset = feed.start()
    with pytest.raises(SourceError, match=r"publication 'theirs' lacks .*sighting"):
        feed.change_schema(WITH_SIGHTINGS)
    database.run(insert(1, 1))
    assert rows_of(follow(feed, database, offset)[0]) == movies(1)
    feed.close()


def test_a_topic_is_added() -> None:
    with closing(MockBroker()) as kafka:
        for topic in ("movie", "sighting"):
            kafka.create(topic)
        movie = {"mid": 1, "title": "film 1", "gid": 1}
        kafka.send("movie", [movie], millis=1)
        kafka.send("sighting", [{"mid": 1, "note": "seen"}], millis=2)
        feed = parse_source(kafka.uri()).open(Schema("films", (SCHEMA.relations[1],), ()))
        _, offset = poll_until(feed, feed.start(), 1)
        assert offset["next"] == {"movie": {"0": 1}}
        feed.change_schema(Schema("films", SCHEMA.relations[1:], SCHEMA.joins[1:]))
        batch = feed.poll(offset, 10)
        end = time.monotonic() + PATIENCE
        while not batch.read and time.monotonic() < end:
            batch = feed.poll(batch.end, 10)
        assert [item.row for item in batch.read] == [(1, "seen")]  # type: ignore[union-attr]
        assert list(feed.replay(offset, batch.end)) == list(batch.read)
        feed.close()


def test_files_of_added_relations_are_read(tmp_path: Path) -> None:
    movie = {"relation": "movie", "time": 1, "row": {"mid": 1, "title": "film 1", "gid": 1}}
    append(tmp_path / "all.jsonl", movie)
    feed = parse_source(str(tmp_path)).open(WITHOUT_SIGHTINGS)
    items, offset = poll_until(feed, feed.start(), 1)
    feed.change_schema(WITH_SIGHTINGS)
    append(tmp_path / "sighting.jsonl", {"time": 2, "mid": 1, "note": "seen"})
    append(tmp_path / "all.jsonl", {"relation": "sighting", "time": 3, "row": {"mid": 1, "note": "again"}})
    items, offset = poll_until(feed, offset, 2)
    assert sorted(items) == [("+", "sighting", 1, "again"), ("+", "sighting", 1, "seen")]
    feed.close()
