"""Polling ahead gives what polling gives, and never two polls at once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock

import pytest

from schema.errors import SourceError
from schema.model import Schema
from skws.records import Record
from skws.sources.feed import Batch, Item, Offset
from skws.spark.streaming.ahead import PolledAhead


@dataclass
class Counting:
    """A feed of numbered records that gives fewer than it is asked for now and then."""

    most: int
    seed: int
    broken: int = -1

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.lock = Lock()

    def poll(self, start: Offset, limit: int) -> Batch:
        assert self.lock.acquire(blocking=False), "two polls at once"
        try:
            at = start["at"]
            if 0 <= self.broken <= at:
                raise SourceError("gone")
            end = min(self.most, at + self.rng.choice([0, limit // 2, limit, limit]))
            items = [Record(0, n, (n,)) for n in range(at, end)]
            return Batch(items, {"at": end}, (f"notice {at}",) if at % 7 == 0 else (), end == self.most)
        finally:
            self.lock.release()

    def adopt(self, schema: Schema) -> None:
        pass

    def start(self) -> Offset:
        return {"at": 0}

    def tables(self) -> Iterator[Item]:
        return iter(())

    def again(self, start: Offset, end: Offset) -> Iterator[Item]:
        return iter([Record(0, n, (n,)) for n in range(start["at"], end["at"])])

    def commit(self, end: Offset) -> None:
        assert not self.lock.locked()

    def behind(self, offset: Offset) -> str:
        return str(self.most - offset["at"])

    def close(self) -> None:
        pass


@pytest.mark.parametrize("seed", range(5))
def test_all_records_in_order(seed: int) -> None:
    feed = Counting(200, seed)
    ahead = PolledAhead(feed)
    found: list[Item] = []
    at, ended = feed.start(), False
    while not ended:
        batch = ahead.poll(at, 10)
        assert len(batch.items) <= 10
        assert list(feed.again(at, batch.end)) == list(batch.items)
        found += batch.items
        at, ended = batch.end, batch.ended
        ahead.settled().commit(at)
    assert [item.time for item in found if isinstance(item, Record)] == list(range(200))


def test_another_offset_than_was_polled_ahead() -> None:
    ahead = PolledAhead(Counting(200, 1))
    while not ahead.poll({"at": 0}, 10).items:
        pass
    assert ahead.poll({"at": 50}, 10).end["at"] >= 50
    assert all(item.time >= 50 for item in ahead.poll({"at": 50}, 10).items if isinstance(item, Record))


def test_errors_come_to_who_polls() -> None:
    feed = Counting(200, 3, broken=20)
    ahead = PolledAhead(feed)
    at = feed.start()

    def poll_on() -> None:
        nonlocal at
        for _ in range(50):
            at = ahead.poll(at, 10).end
            ahead.settled()

    with pytest.raises(SourceError, match="gone"):
        poll_on()
    assert at["at"] >= 10
