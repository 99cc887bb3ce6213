"""A Kafka cluster as its client sees it: partitions, brokers that fail, messages that arrive twice."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final
from unittest.mock import patch

import orjson
from confluent_kafka import KafkaError, KafkaException

from skws.jobs.control import RunControl
from skws.sources.feed import Source
from skws.sources.kafka import topic_feed as feeds
from skws.sources.kafka.client import Partition, is_transient
from skws.sources.kafka.topic_address import TopicAddress
from skws.sources.kafka.topic_feed import KafkaSource
from skws_schema.errors import NotYetError, SourceError
from skws_schema.model import Row
from tests.sim.files import Upstream
from tests.sim.plan import Event
from tests.sim.shop import TABLE
from tests.sim.world import SimClock, World

_DOWN: Final = KafkaError._ALL_BROKERS_DOWN
_MOST: Final = 4  # partitions of a topic


@dataclass(slots=True)
class Log:
    """The log of a partition: messages from offset ``first`` on, with times in milliseconds."""

    first: int = 0
    messages: list[tuple[bytes, int]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.first + len(self.messages)


@dataclass(frozen=True, slots=True)
class Fetched:
    """A message or an event, as the client returns it."""

    place: Partition
    at: int
    text: bytes | None = None
    millis: int = 0
    fault: KafkaError | None = None

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes | None:
        return self.text

    def timestamp(self) -> tuple[int, int]:
        return 1, self.millis

    def error(self) -> KafkaError | None:
        return self.fault


class Kafka(Upstream):
    """Topics of customers and orders; ``cid`` determines the partition of a row, which may not exist yet."""

    address = "kafka://broker:9092"
    may_change = False

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.logs: dict[Partition, Log] = {
            (topic, n): Log() for topic in ("customer", "order") for n in (0, 1)
        }
        self.truth = {_name(place): [] for place in self.logs}
        self.moved: set[Partition] = set()  # to another broker, unnoticed by the client

    def load(self, rows: list[dict[str, Any]]) -> None:
        self.logs[TABLE, 0] = Log(0, [(orjson.dumps(row), self.time // 1000) for row in rows])

    def source(self, control: RunControl) -> Source:
        return KafkaSource(TopicAddress.of(self.address), control.pace)

    @contextmanager
    def installed(self) -> Iterator[None]:
        feeds.cached_feed.cache_clear()  # of tasks that read another simulation's topics
        with (
            patch.object(feeds, "Client", lambda address, _: SimClient(self, address)),
            patch.object(feeds, "SystemClock", lambda: SimClock(self.world)),  # the clock of tasks
        ):
            yield

    def part(self, relation: str, row: Row) -> str:
        cid = row[0]
        assert isinstance(cid, int)
        return _name((relation, cid - 1))

    def publish(self, event: Event) -> None:
        partition = event.relation, event.row[0] - 1
        if partition in self.logs:
            item, _ = self.sent(event)
            self.logs[partition].messages.append((item[2], item[1].time // 1000))
            self.truth[_name(partition)].append(item)

    def act(self, draw: int) -> None:
        """Add a partition, move one to another broker, or delete old messages."""
        rng = Random(draw)
        partition = rng.choice(sorted(partition for partition in self.logs if partition[0] != TABLE))
        match rng.randrange(3):
            case 0:
                new_partition = partition[0], sum(topic == partition[0] for topic, _ in self.logs)
                if new_partition[1] < _MOST:
                    self.logs[new_partition] = Log()
                    self.truth[_name(new_partition)] = []
            case 1:
                self.moved.add(partition)
            case 2:
                log, needed_from = self.logs[partition], self.needed.get(_name(partition), 0)
                remaining = needed_from - log.first
                if remaining > 0:
                    del log.messages[:remaining]
                    log.first = needed_from

    def settle(self) -> None:
        self.world.micros += 31_000_000  # until the client looks for new partitions


def _name(partition: Partition) -> str:
    return f"{partition[0]}[{partition[1]}]"


class SimClient:
    """Like ``skws.sources.kafka.client.Client``."""

    def __init__(self, cluster: Kafka, address: TopicAddress) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._shown = address.shown
        self._next: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}
        self._paused: set[Partition] = set()
        self._reported_ends: set[Partition] = set()  # partitions whose end was reported
        self._errors: list[KafkaError] = []

    def connect(self) -> str:
        self._ask()
        return "the cluster"

    def topics(self) -> dict[str, int]:
        self._ask()
        counts: dict[str, int] = {}
        for topic, _ in self._cluster.logs:
            counts[topic] = counts.get(topic, 0) + 1
        return counts

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        self._ask()
        return {topic: f"the id of {topic}" for topic in topics}

    def partitions(self, topic: str) -> list[Partition]:
        self._ask()
        return sorted(partition for partition in self._cluster.logs if partition[0] == topic)

    def ping(self, seconds: float) -> None:
        self._ask()

    def offset_range(self, partition: Partition) -> tuple[int, int]:
        self._ask()
        log = self._cluster.logs[partition]
        return log.first, log.end

    def cached_end(self, partition: Partition) -> int:
        return self._ends.get(partition, -1)

    def assign(self, offsets: Mapping[Partition, int]) -> None:
        self._next, self._reported_ends = dict(offsets), set()
        self._paused -= offsets.keys()

    def add(self, partition: Partition, offset: int) -> None:
        self._next[partition] = offset
        self._reported_ends.discard(partition)

    def move(self, partition: Partition, offset: int) -> None:
        self.add(partition, offset)

    def pause(self, partition: Partition) -> None:
        self._paused.add(partition)

    def resume(self, partition: Partition) -> None:
        self._paused.discard(partition)

    def fetch(self, most: int, seconds: float) -> list[Any]:
        world = self._world
        world.effect("fetch", self._shown)
        if world.away:
            world.pass_time(int(seconds * 1_000_000))
            self._errors.append(KafkaError(_DOWN))
            return []
        fetched: list[Fetched] = []
        repeats = world.repeats()
        for partition in sorted(self._next.keys() - self._paused):
            if partition in self._cluster.moved:
                self._cluster.moved.discard(partition)
                self._reported_ends.discard(partition)
                fetched.append(Fetched(partition, 0, fault=KafkaError(KafkaError._TRANSPORT)))
                continue
            fetched += self._of(partition, most, again=repeats)
        if not fetched:
            world.pass_time(int(seconds * 1_000_000))
        return fetched

    def _of(self, partition: Partition, most: int, *, again: bool) -> Iterator[Fetched]:
        log, offset = self._cluster.logs[partition], self._next[partition]
        if offset < log.first:
            yield Fetched(partition, offset, fault=KafkaError(KafkaError._AUTO_OFFSET_RESET))
            return
        if again:
            offset = max(log.first, offset - 2)
        for text, millis in log.messages[offset - log.first :][: min(most, 5)]:
            yield Fetched(partition, offset, text, millis)
            offset += 1
        if offset > self._next[partition]:
            self._reported_ends.discard(partition)
        self._next[partition] = max(offset, self._next[partition])
        self._ends[partition] = log.end
        if offset >= log.end and partition not in self._reported_ends:
            self._reported_ends.add(partition)
            yield Fetched(partition, log.end, fault=KafkaError(KafkaError._PARTITION_EOF))

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        pass

    def errors(self) -> Iterable[KafkaError]:
        errors, self._errors = self._errors, []
        return errors

    def close(self) -> None:
        pass

    def failure(self, error: KafkaException) -> SourceError:
        cause = error.args[0]
        kind = NotYetError if isinstance(cause, KafkaError) and is_transient(cause) else SourceError
        return kind(f"{self._shown}: {cause}")

    def _ask(self) -> None:
        self._world.effect("ask", self._shown)
        if self._world.away:
            self._world.pass_time(1_000_000)
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
