"""Messages planned and read in parts are those of polls."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import closing
from random import Random
from typing import Any

import pytest

from skws.data.batch import BadRecord, Chunk, Item, Record
from skws.sources.addresses import parse_source
from skws.sources.feed import Feed, FeedPart, Offset
from skws.sources.partitions import latest_by_partition
from skws_schema.errors import SourceError
from tests.kafka import MockBroker
from tests.sources.film_database import SCHEMA, film
from tests.strategies import seeds


def plans_of(feed: Feed, limit: int) -> Iterator[tuple[Offset, Offset, bool]]:
    """Plans from the start of the source to its end, and whether more follows each."""
    start = feed.start()
    while (plan := feed.plan(start, limit)) is not None:
        latest = latest_by_partition(feed.replay(start, plan.end))
        assert {number: time or latest[number] for number, time in plan.reached.items()} == latest
        yield start, plan.end, plan.rest
        start = plan.end


def read(feed: Feed, start: Offset, end: Offset, number: int) -> list[Chunk]:
    """Read the parts as other processes do."""
    parts = feed.parts(start, end, number)
    assert parts is not None
    assert len(parts) <= number
    received: list[FeedPart] = pickle.loads(pickle.dumps(parts))
    return [chunk for part in received for chunk in part.read(SCHEMA)]


def shown(items: list[Item]) -> list[str]:
    return sorted(map(repr, items))


@seeds(2, 10)
def test_oracle_parts_of_topics_have_the_messages_of_polls(kafka: MockBroker, seed: int) -> None:
    random = Random(seed)
    topic, partitions = f"p{seed}.movie", random.randrange(1, 5)
    kafka.create(topic, partitions)
    for number in range(random.randrange(20, 200)):
        value: Any = random.choice([film(number)] * 9 + [b"nonsense"])
        kafka.send(topic, [value], partition=random.randrange(partitions), millis=1000 + number)
    with closing(parse_source(kafka.uri(topic), ahead=10**18).open(SCHEMA)) as feed:
        planned_items: list[Item] = []
        end_of_plans = feed.start()
        for start, end, _ in plans_of(feed, random.choice([20, 50, 1000])):
            chunks = read(feed, start, end, random.randrange(1, 6))
            items = [item for chunk in chunks for item in chunk]
            assert shown(items) == shown(list(feed.replay(start, end)))
            for chunk in chunks:
                assert chunk.partitions is not None
                assert len(chunk.partitions) == len(chunk.records)
            planned_items += items
            end_of_plans = end
        polled_items: list[Item] = []
        while items_of_poll := list((batch := feed.poll(end_of_plans, 1000)).read):
            polled_items += items_of_poll
            end_of_plans = batch.end
        replayed = feed.replay(feed.start(), end_of_plans)
        assert shown(planned_items + polled_items) == shown(list(replayed))


def test_each_partition_has_the_same_share(kafka: MockBroker) -> None:
    """Partitions of a backlog that are in step remain in step, however unequal they are."""
    kafka.create("shares.movie", 2)
    for partition, number in ((0, 300), (1, 30)):
        kafka.send("shares.movie", [film(n) for n in range(number)], partition=partition, millis=1000)
    with closing(parse_source(kafka.uri("shares.movie")).open(SCHEMA)) as feed:
        shares = [(end["next"]["shares.movie"], remaining) for _, end, remaining in plans_of(feed, 110)]
        assert shares == [
            ({"0": 100, "1": 10}, True),
            ({"0": 200, "1": 20}, True),
            ({"0": 300, "1": 30}, False),
        ]


def test_deleted_messages_are_left_to_a_poll(kafka: MockBroker) -> None:
    kafka.create("trimmed.movie", 1)
    kafka.send("trimmed.movie", [film(n) for n in range(50)], millis=1000)
    with closing(parse_source(kafka.uri("trimmed.movie")).open(SCHEMA)) as feed:
        start = feed.start()
        assert feed.plan(start, 50) is not None
        kafka.trim("trimmed.movie", 20)
        assert feed.plan(start, 50) is None

        def polls() -> None:
            for _ in range(50):
                feed.poll(start, 50)

        with pytest.raises(SourceError, match="no longer has the offset 0"):
            polls()


def test_parts_of_topics_use_the_horizon_of_their_plan(kafka: MockBroker) -> None:
    kafka.create("ahead.movie", 2)
    for partition in range(2):
        far_millis = 4_000_000_000_000
        kafka.send("ahead.movie", [film(1)], partition=partition, millis=1000)
        kafka.send("ahead.movie", [film(2)], partition=partition, millis=far_millis)
    source = parse_source(kafka.uri("ahead.movie"), ahead=1_000_000)
    with closing(source.open(SCHEMA)) as feed, closing(source.open(SCHEMA)) as second_feed:
        ((start, end, _),) = plans_of(feed, 4)
        for reader in (feed, second_feed):
            items = [item for chunk in read(reader, start, end, 2) for item in chunk]
            assert [item.row[0] for item in items if isinstance(item, Record)] == [1, 1]
            assert sum(isinstance(item, BadRecord) for item in items) == 2
