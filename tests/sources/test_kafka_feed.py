"""Topics on a broker: order, offsets, restarts, retention, brokers that are unavailable."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import count, pairwise
from random import Random
from typing import Any

import pytest

from skws.data.batch import BadRecord, Item, Record
from skws.sources.addresses import parse_source
from skws.sources.feed import Feed, Offset
from skws.sources.kafka.client import Client
from skws.sources.kafka.topic_address import Form, Settings, TopicAddress
from skws.sources.kafka.topic_reader import PartitionReader, ReadAhead, TopicReader
from skws.sources.retry import GIVE_UP
from skws_schema.errors import SourceError
from tests.clocks import HandClock
from tests.kafka import MockBroker
from tests.kafka_broker import Broker
from tests.sources.film_database import SCHEMA, film, rows_of
from tests.sources.table_items import table_items
from tests.strategies import seeds
from tests.waiting import PATIENCE, until

_names = count()


@pytest.fixture
def topic(kafka: MockBroker) -> str:
    """A topic of movies, whose name ends with the relation after a dot."""
    name = f"t{next(_names)}.movie"
    kafka.create(name, 3)
    return name


@pytest.fixture
def fragile() -> Iterator[MockBroker]:
    """A broker for a single test."""
    with closing(MockBroker()) as broker:
        broker.create("movie", 2)
        yield broker


def open_topics(
    kafka: MockBroker | Broker, *topics: str, clock: HandClock | None = None, **parameters: str
) -> Feed:
    return parse_source(kafka.uri(*topics, **parameters), clock=clock).open(SCHEMA)


def follow(
    feed: Feed, offset: Offset, minimum: int, limit: int = 1000
) -> tuple[list[Item], Offset, list[str]]:
    """Read until there are at least ``minimum`` items, and a poll returns no more."""
    read_items: list[Item] = []
    notices: list[str] = []
    end = time.monotonic() + PATIENCE
    while True:
        batch = feed.poll(offset, limit)
        read_items += batch.read
        notices += batch.notices
        offset = batch.end
        if len(read_items) >= minimum and not len(batch.read):
            return read_items, offset, notices
        assert time.monotonic() < end, (read_items, notices)


def numbers(items: list[Item]) -> list[Any]:
    return [item.row[0] if isinstance(item, Record) else item.reason for item in items]


def test_a_backlog_of_several_partitions_is_in_order_of_time(kafka: MockBroker, topic: str) -> None:
    for partition in (2, 0, 1):
        for number in range(partition, 60, 3):
            kafka.send(topic, [film(number)], partition=partition, millis=1000 + number)
    feed = open_topics(kafka, topic)
    items, offset, notices = follow(feed, feed.start(), 60, limit=7)
    assert numbers(items) == list(range(60))
    assert offset["next"] == {topic: {"0": 20, "1": 20, "2": 20}}
    assert not notices
    # An empty partition does not hold up the others.
    kafka.send(topic, [film(60)], partition=1, millis=5000)
    items, offset, _ = follow(feed, offset, 1)
    assert numbers(items) == [60]
    feed.close()


@seeds(0, 6)
def test_any_division_into_polls_and_restarts_gives_the_same_records(kafka: MockBroker, seed: int) -> None:
    """The records between two offsets are the same from polls, from polls after a restart, and repeated."""
    random = Random(seed)
    name = f"r{next(_names)}.movie"
    partitions = 1 + seed % 4
    kafka.create(name, partitions)
    feed = open_topics(kafka, name)
    offset = feed.start()
    contents = _sent_at_random(kafka, name, partitions, random)
    expected = sum(map(len, contents.values()))
    cuts, items = [offset], list[Item]()
    end = time.monotonic() + PATIENCE
    while len(items) < expected:
        assert time.monotonic() < end
        if random.random() < 0.1:
            feed.close()
            feed = open_topics(kafka, name)
        batch = feed.poll(offset, random.randrange(1, 12))
        if random.random() < 0.3:
            assert list(feed.replay(offset, batch.end)) == list(batch.read)
        items += batch.read
        offset = batch.end
        cuts.append(offset)
    assert len(items) == expected
    for partition, values in contents.items():
        partition_items = [item for item in items if _is_of(item, values, partition)]
        assert [item.row[0] for item in partition_items if isinstance(item, Record)] == [
            v for v in values if v != "bad"
        ]
        assert sum(isinstance(item, BadRecord) for item in partition_items) == values.count("bad")
    first, last = sorted(random.choices(range(len(cuts)), k=2))
    parts = [item for a, b in pairwise(cuts[first : last + 1]) for item in feed.replay(a, b)]
    assert sorted(map(repr, feed.replay(cuts[first], cuts[last]))) == sorted(map(repr, parts))
    feed.close()


def _sent_at_random(kafka: MockBroker, topic: str, partitions: int, random: Random) -> dict[int, list[Any]]:
    """The content of each partition: numbers of films, and ``bad``."""
    contents: dict[int, list[Any]] = {}
    for number in range(random.randrange(1, 60)):
        partition = random.randrange(partitions)
        value = random.choice([film(number)] * 5 + [b"nonsense", None])
        kafka.send(topic, [value], partition=partition, millis=random.randrange(1, 50))
        if value is not None:
            contents.setdefault(partition, []).append(number if isinstance(value, dict) else "bad")
    return contents


def _is_of(item: Item, values: list[Any], partition: int) -> bool:
    if isinstance(item, BadRecord):
        return item.source.endswith(f"[{partition}]")
    return item.row[0] in values


def test_a_run_begins_where_the_address_says(kafka: MockBroker, topic: str) -> None:
    kafka.send(topic, [film(1)])
    feed = open_topics(kafka, topic, from_="latest")
    offset = feed.start()
    kafka.send(topic, [film(2)])
    assert numbers(follow(feed, offset, 1)[0]) == [2]
    feed.close()


def test_the_backlog_is_reported_without_waiting(kafka: MockBroker, topic: str) -> None:
    kafka.send(topic, map(film, range(10)), partition=1)
    feed = open_topics(kafka, topic)
    items, offset, _ = follow(feed, feed.start(), 10)
    assert len(items) == 10
    feed.poll(offset, 10)
    assert feed.backlog(offset).text == "0 messages behind"
    assert feed.backlog({**offset, "next": {topic: {"0": 0, "1": 3, "2": 0}}}).text == (
        f"7 messages behind, 7 of them in {topic}[1]"
    )
    feed.close()


def test_reading_ahead_of_a_long_backlog_is_limited(kafka: MockBroker, topic: str) -> None:
    """One partition waits while the other returns all older messages; pausing loses and repeats nothing."""
    for partition in range(3):
        films = map(film, range(1000 * partition, 1000 * (partition + 1)))
        kafka.send(topic, films, partition=partition, millis=1000 * (partition + 1))
    address = TopicAddress.of(kafka.uri(topic))
    items: list[Item] = []
    with closing(Client(address, Settings.of(address))) as client:
        topic_reader = TopicReader(topic, SCHEMA, Form.AUTO)
        reader = PartitionReader(
            client,
            lambda _: topic_reader,
            {(topic, partition): 0 for partition in range(3)},
            read_ahead=ReadAhead(chunk=40, most=150, least=50),
        )
        most_waiting = 0
        end = time.monotonic() + PATIENCE
        while len(items) < 3000:
            assert time.monotonic() < end
            reader.fill(0.05)
            waiting_counts = Counter(message.partition for message in reader.all())
            most_waiting = max([most_waiting, *waiting_counts.values()])
            items += [item for message in reader.take(60) for item in message.items]
    assert numbers(items) == list(range(3000))
    assert most_waiting < 300


def test_rows_of_static_tables_are_read(kafka: MockBroker) -> None:
    kafka.create("genre", 2)
    kafka.create("mixed")
    old, new = {"gid": 1, "label": "old"}, {"gid": 1, "label": "new"}
    kafka.send("genre", [old, new, {"gid": 3, "label": "gone"}], millis=1)
    kafka.send("genre", [{"gid": 2, "label": "two"}], partition=1, millis=1)
    source = {"table": "genre", "ts_ms": 2}
    kafka.send("genre", [{"op": "d", "before": {"gid": 3}, "after": None, "source": source}], millis=2)
    kafka.send("mixed", [{"relation": "genre", "row": old}, {"relation": "movie", "row": film(1)}], millis=1)
    feed = open_topics(kafka, "genre", "mixed")
    offset = feed.start()
    assert sorted(rows_of(table_items(feed))) == [
        ("+", "genre", 1, "new"),
        ("+", "genre", 2, "two"),
    ]
    items, offset, notices = follow(feed, offset, 1)
    assert rows_of(items) == [("+", "movie", 1, "film 1", 1)]
    assert any("a stream contains rows of static tables" in line for line in notices)
    assert list(offset["next"]) == ["mixed"]
    feed.close()


def test_topics_with_the_names_of_relations_are_read(fragile: MockBroker) -> None:
    kafka, clock = fragile, HandClock()
    kafka.create("genre")
    kafka.send("movie", [film(1)])
    feed = open_topics(kafka, clock=clock)
    batch = feed.poll(feed.start(), 0)
    assert batch.notices == ("there is no topic sighting yet; waiting for it",)
    kafka.create("sighting")
    kafka.send("sighting", [{"mid": 1, "note": "seen"}], millis=9)
    clock.micros += 31_000_000
    items, offset, notices = follow(feed, batch.end, 2)
    assert sorted(rows_of(items)) == [("+", "movie", 1, "film 1", 1), ("+", "sighting", 1, "seen")]
    assert notices == ["sighting[0] is new: reading it from its beginning"]
    replayed = list(feed.replay(batch.end, offset))
    assert rows_of(replayed) == [
        ("+", "sighting", 1, "seen"),
        ("+", "movie", 1, "film 1", 1),
    ]  # in order of time
    feed.close()


def test_new_partitions_are_read_from_their_beginning(kafka: MockBroker, topic: str) -> None:
    kafka.send(topic, [film(1), film(2)], partition=2, millis=7)
    kafka.trim(topic, 1, partition=2)
    feed = open_topics(kafka, topic)
    earlier_offset = {**feed.start(), "next": {topic: {"0": 0, "1": 0}}}
    items, offset, notices = follow(feed, earlier_offset, 1)
    assert numbers(items) == [2]
    assert notices == [f"{topic}[2] is new: reading it from its beginning"]
    assert offset["first"] == {topic: {"2": 1}}
    assert list(feed.replay(earlier_offset, offset)) == items
    feed.close()


def test_an_unknown_topic_is_reported(kafka: MockBroker, topic: str) -> None:
    with pytest.raises(SourceError, match=rf"there is no topic {topic}s; did you mean '{topic}'"):
        open_topics(kafka, topic + "s")


def test_the_client_of_topics_of_another_form_is_closed(
    kafka: MockBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create("everything")
    closed: list[Client] = []
    close = Client.close

    def counted_close(client: Client) -> None:
        closed.append(client)
        close(client)

    monkeypatch.setattr(Client, "close", counted_close)
    with pytest.raises(SourceError, match="format=rows needs a topic named after a relation"):
        open_topics(kafka, "everything", format="rows")
    assert len(closed) == 1


def test_a_closed_feed_has_no_connection(kafka: MockBroker, topic: str) -> None:
    feed = open_topics(kafka, topic)
    feed.close()
    with pytest.raises(RuntimeError, match="closed"):
        feed.start()


def test_messages_deleted_by_retention_are_an_error(kafka: MockBroker, topic: str) -> None:
    kafka.send(topic, map(film, range(9)))
    feed = open_topics(kafka, topic)
    start = feed.start()
    items, offset, _ = follow(feed, start, 9)
    kafka.trim(topic, 5)
    message = rf"{topic}\[0\] no longer has the offset 0; it begins at 5 \(start a new run, or .*lost=skip"
    with pytest.raises(SourceError, match=message):
        follow(feed, start, 9)
    with pytest.raises(SourceError, match=message):
        list(feed.replay(start, offset))
    assert numbers(items) == list(range(9))
    feed.close()
    feed = open_topics(kafka, topic, lost="skip")
    items, offset, notices = follow(feed, start, 4)
    assert numbers(items) == [5, 6, 7, 8]
    assert notices[0].endswith(f"{topic}[0] no longer has the offset 0; it begins at 5; continuing at 5")
    assert numbers(list(feed.replay(start, offset))) == [5, 6, 7, 8]
    feed.close()


def test_a_recreated_topic_is_reported(kafka: MockBroker, topic: str) -> None:
    kafka.send(topic, map(film, range(9)))
    feed = open_topics(kafka, topic)
    _, offset, _ = follow(feed, feed.start(), 9)
    feed.close()
    kafka.delete(topic)
    kafka.create(topic, 3)
    kafka.send(topic, [film(70)])
    feed = open_topics(kafka, topic)
    with pytest.raises(SourceError, match=r"no longer has the offset 9; it ends at 1: was the topic deleted"):
        follow(feed, offset, 1)
    feed.close()


@pytest.fixture(scope="module")
def tansu() -> Iterator[Broker]:
    """A broker with topic ids."""
    with closing(Broker()) as broker:
        yield broker


def test_a_recreated_topic_with_more_messages_is_reported(tansu: Broker) -> None:
    """Its old offsets exist again, and only the topic's id differs."""
    name = f"again{next(_names)}.movie"
    tansu.create(name)
    tansu.send(name, map(film, range(3)))
    feed = open_topics(tansu, name)
    start = feed.start()
    _, offset, _ = follow(feed, start, 3)
    feed.close()
    tansu.delete(name)
    tansu.create(name)
    tansu.send(name, map(film, range(10, 15)))
    feed = open_topics(tansu, name)
    message = rf"topic {name} was deleted and created again since the offset was saved \(start a new run, or"
    with pytest.raises(SourceError, match=message):
        feed.poll(offset, 10)
    with pytest.raises(SourceError, match=message):
        feed.replay(start, offset)
    feed.close()
    feed = open_topics(tansu, name, lost="skip")
    items, end, notices = follow(feed, offset, 5)
    assert numbers(items) == list(range(10, 15))
    assert notices[0].endswith("since the offset was saved; its unread messages are lost")
    assert notices[1] == f"{name}[0] is new: reading it from its beginning"
    assert list(feed.replay(offset, end)) == items
    feed.close()


def test_one_deleted_topic_of_several_is_reported(fragile: MockBroker) -> None:
    fragile.create("sighting")
    feed = open_topics(fragile)
    offset = feed.poll(feed.start(), 1).end
    feed.close()
    fragile.delete("sighting")
    fragile.send("movie", [film(1)])
    feed = open_topics(fragile)
    with pytest.raises(SourceError, match="topic sighting was deleted since the offset was saved"):
        feed.poll(offset, 1)
    feed.close()
    feed = open_topics(fragile, lost="skip")
    items, offset, notices = follow(feed, offset, 1)
    assert numbers(items) == [1]
    assert any("topic sighting was deleted" in line for line in notices)
    assert "there is no topic sighting yet; waiting for it" in notices
    assert list(offset["next"]) == ["movie"]
    feed.close()


def test_a_topic_deleted_during_a_run_is_reported(fragile: MockBroker) -> None:
    clock = HandClock()
    fragile.create("sighting")
    feed = open_topics(fragile, clock=clock)
    offset = feed.poll(feed.start(), 1).end
    fragile.delete("sighting")
    clock.micros += 31_000_000
    with pytest.raises(SourceError, match="topic sighting was deleted"):
        feed.poll(offset, 1)
    feed.close()


def test_a_run_waits_for_its_first_topic() -> None:
    clock = HandClock()
    with closing(MockBroker()) as kafka:
        feed = open_topics(kafka, clock=clock)
        offset = feed.start()
        batch = feed.poll(offset, 1)
        assert not batch.read
        assert "there is no topic movie yet; waiting for it" in batch.notices
        kafka.create("movie")
        kafka.send("movie", [film(1)])
        clock.micros += 31_000_000
        assert numbers(follow(feed, batch.end, 1)[0]) == [1]
        feed.close()


def test_offsets_of_other_sources_are_rejected(kafka: MockBroker, topic: str) -> None:
    feed = open_topics(kafka, topic)
    with pytest.raises(SourceError, match="is not an offset of Kafka topics"):
        feed.poll({"lines": 3}, 1)
    with pytest.raises(SourceError, match="the saved offset belongs to cluster other"):
        feed.poll({**feed.start(), "cluster": "other"}, 1)
    feed.close()


def test_offsets_are_committed_to_the_consumer_group(kafka: MockBroker, topic: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    kafka.send(topic, map(film, range(4)))
    feed = open_topics(kafka, topic, group="watchers")
    _, offset, _ = follow(feed, feed.start(), 4)
    feed.commit(offset)
    watcher = Consumer({"bootstrap.servers": kafka.address, "group.id": "watchers"})
    until(
        lambda: watcher.committed([TopicPartition(topic, 0)], 5)[0].offset == 4, lambda: feed.poll(offset, 1)
    )
    watcher.close()
    feed.close()


@pytest.mark.slow
def test_a_run_survives_a_restart_of_its_broker(fragile: MockBroker) -> None:
    fragile.send("movie", [film(1)])
    feed = open_topics(fragile, "movie")
    start = feed.start()
    items, offset, _ = follow(feed, start, 1)
    fragile.down()
    notices: list[str] = []
    end = time.monotonic() + PATIENCE
    while len(notices) < 2:
        batch = feed.poll(offset, 10)
        assert not batch.read
        assert batch.end == offset
        notices += batch.notices
        assert time.monotonic() < end
    assert "brokers are down" in notices[0]
    assert "trying again in 0.1 s" in notices[0]
    assert "trying again in 0.2 s" in notices[1]
    fragile.up()
    fragile.send("movie", [film(2)], partition=1)
    later_items, offset, notices = follow(feed, offset, 1)
    assert numbers(items + later_items) == [1, 2]
    assert notices[-1].endswith("connected again, continuing")
    feed.close()


def test_an_unavailable_broker_ends_the_run(fragile: MockBroker) -> None:
    clock = HandClock()
    feed = open_topics(fragile, "movie", clock=clock)
    offset = feed.start()
    feed.poll(offset, 1)
    fragile.down()
    end = time.monotonic() + PATIENCE

    def poll_until_it_fails() -> None:
        while time.monotonic() < end:
            if feed.poll(offset, 1).notices:
                clock.micros += GIVE_UP + 1

    with pytest.raises(SourceError, match=r"\(tried for 300 seconds\)"):
        poll_until_it_fails()
    feed.close()


def test_a_silent_broker_is_reported(fragile: MockBroker) -> None:
    clock = HandClock()
    feed = open_topics(fragile, "movie", clock=clock)
    fragile.send("movie", [film(1)])
    offset = feed.start()
    fragile.freeze()
    try:
        feed.poll(offset, 10)
        clock.micros += 16_000_000
        (notice,) = feed.poll(offset, 10).notices
        assert "no answer for movie[0]; trying again" in notice
    finally:
        fragile.thaw()
    clock.micros += 1_000_000
    items, _, notices = follow(feed, offset, 1)
    assert numbers(items) == [1]
    assert notices[-1].endswith("connected again, continuing")
    feed.close()
