"""Prefetching returns the same batches as polling, and never runs two polls at once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Event, Lock

import pytest

from skws.data.batch import BadRecord, Chunk, Item, Record, RecordBatch
from skws.data.packing import pack, unpack
from skws.sources.feed import Backlog, Batch, Feed, Offset
from skws.spark.streaming.reader import Prefetch
from skws_schema.errors import SourceError
from skws_schema.model import Schema
from tests.strategies import seeds


def pack_whole(records: RecordBatch) -> list[list[bytes]]:
    return [[pack(records)]]


@dataclass
class Counting(Feed):
    """A feed of numbered records that sometimes returns fewer than requested."""

    tables_pending = False
    most: int
    seed: int
    broken: int = -1
    refused: int = -1
    committed: list[int] = field(default_factory=list)
    may_end: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.lock = Lock()
        self.may_end.set()

    def poll(self, start: Offset, limit: int) -> Batch:
        assert self.lock.acquire(blocking=False), "two polls at once"
        try:
            self.may_end.wait()
            position = start["at"]
            if 0 <= self.broken <= position:
                raise SourceError("gone")
            end = min(self.most, position + self.rng.choice([0, limit // 2, limit, limit]))
            items = [Record(0, n, (n,)) for n in range(position, end)]
            notices = (f"notice {position}",) if position % 7 == 0 else ()
            return Batch(Chunk.of(items), {"at": end}, notices, end == self.most)
        finally:
            self.lock.release()

    def change_schema(self, schema: Schema) -> None:
        pass

    def start(self) -> Offset:
        return {"at": 0}

    def tables(self) -> Iterator[Chunk]:
        return iter(())

    def replay(self, start: Offset, end: Offset) -> Chunk:
        return Chunk.of([Record(0, n, (n,)) for n in range(start["at"], end["at"])])

    def commit(self, end: Offset) -> None:
        assert not self.lock.locked()
        self.committed.append(end["at"])
        if end["at"] == self.refused:
            raise SourceError("cannot forget")

    def backlog(self, offset: Offset) -> Backlog:
        return Backlog(str(self.most - offset["at"]))

    def close(self) -> None:
        pass


@seeds(1, 5)
def test_all_records_are_polled_in_order(seed: int) -> None:
    feed = Counting(200, seed)
    prefetch = Prefetch(feed, pack_whole)
    items: list[Item] = []
    offset, is_end, packed_count = feed.start(), False, 0
    while not is_end:
        polled = prefetch.poll(offset, 10)
        prefetch.read_on()
        batch = polled.batch
        if polled.packed is not None:
            packed_count += 1
            assert list(unpack(polled.packed[0][0]).records()) == list(batch.read)
        assert len(batch.read) <= 10
        assert list(feed.replay(offset, batch.end)) == list(batch.read)
        items += batch.read
        offset, is_end = batch.end, batch.ended
        prefetch.commit(offset)
    assert [item.time for item in items if isinstance(item, Record)] == list(range(200))
    assert packed_count > 3


def test_bad_records_are_left_to_the_caller_of_poll() -> None:
    feed = Counting(200, 1)
    prefetch = Prefetch(feed, pack_whole)
    bad_record = BadRecord("somewhere", 1, 0, b"", "no time")
    item_lists: list[list[Item]] = [
        [Record(0, 0, (0,))] * 3,
        [Record(0, 1, (1,)), bad_record, Record(0, 1, (1,))],
        [],
    ]
    polls = iter(item_lists)
    feed.poll = lambda start, limit: Batch(Chunk.of(next(polls)), {"at": start["at"] + 3})  # type: ignore[method-assign]
    first = prefetch.poll({"at": 0}, 3)
    prefetch.read_on()
    second = prefetch.poll({"at": 3}, 3)
    assert second.packed is not None
    assert (len(first.batch.read), len(unpack(second.packed[0][0]))) == (3, 2)
    assert list(second.batch.read.bad) == [bad_record]


def test_polling_at_another_offset_discards_the_prefetched_batch() -> None:
    prefetch = Prefetch(Counting(200, 1), pack_whole)
    while not prefetch.poll({"at": 0}, 10).batch.read.records:
        pass
    prefetch.read_on()
    assert prefetch.poll({"at": 50}, 10).batch.end["at"] >= 50
    assert all(
        item.time >= 50 for item in prefetch.poll({"at": 50}, 10).batch.read if isinstance(item, Record)
    )


def test_errors_are_raised_by_poll() -> None:
    feed = Counting(200, 3, broken=20)
    prefetch = Prefetch(feed, pack_whole)
    at = feed.start()

    def poll_on() -> None:
        nonlocal at
        for _ in range(50):
            at = prefetch.poll(at, 10).batch.end
            prefetch.read_on()
            prefetch.idle_feed()

    with pytest.raises(SourceError, match="gone"):
        poll_on()
    assert at["at"] >= 10


def test_a_commit_does_not_wait_for_a_running_poll() -> None:
    feed = Counting(200, 1)
    prefetch = Prefetch(feed, pack_whole)
    offset = feed.start()
    while len((batch := prefetch.poll(offset, 10).batch).read) < 10:
        offset = batch.end
    feed.may_end.clear()
    prefetch.read_on()
    prefetch.commit(batch.end)
    assert feed.committed == []
    feed.may_end.set()
    prefetch.poll(batch.end, 10)
    assert feed.committed == [batch.end["at"]]


def test_a_late_error_of_a_commit_is_raised_by_the_next_poll() -> None:
    feed = Counting(200, 1)
    prefetch = Prefetch(feed, pack_whole)
    offset = feed.start()
    while len((batch := prefetch.poll(offset, 10).batch).read) < 10:
        offset = batch.end
    feed.refused = batch.end["at"]
    prefetch.read_on()
    prefetch.commit(batch.end)
    with pytest.raises(SourceError, match="cannot forget"):
        prefetch.poll(batch.end, 10)
