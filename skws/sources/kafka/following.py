"""Reading partitions side by side, as far ahead as memory allows, and giving their messages in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as Fetched

from skws.sources.kafka.client import Client
from skws.sources.kafka.merging import Merge, Message, Partition, Queue
from skws.sources.kafka.messages import TopicReader

_CHUNK: Final = 5_000
# Messages that wait, in all and of one partition: others are read meanwhile.
_MOST_WAITING: Final = 100_000
_LEAST_WAITING: Final = 1_000
_OUT_OF_RANGE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


class GapError(Exception):
    """The offset that comes next is not there."""

    def __init__(self, partition: Partition, offset: int) -> None:
        super().__init__(partition, offset)
        self.partition = partition
        self.offset = offset


class Following:
    """Reads ``offsets`` on; to ``ends`` and not beyond, where they are given.

    Methods raise KafkaException while brokers are away, and GapError.
    """

    def __init__(
        self,
        client: Client,
        reader: Callable[[str], TopicReader],
        offsets: Mapping[Partition, int],
        ends: Mapping[Partition, int] | None = None,
    ) -> None:
        self._client = client
        self._reader = reader
        self._merge = Merge(dict(offsets))
        self._bounded = ends is not None
        for partition, end in (ends or {}).items():
            self._merge.queues[partition].end = end
        self._share = max(_LEAST_WAITING, _MOST_WAITING // max(1, len(offsets)))
        self._paused: set[Partition] = set()
        client.assign(offsets)

    def offsets(self) -> dict[Partition, int]:
        """Behind what was given."""
        return self._merge.offsets()

    def add(self, partition: Partition, offset: int) -> None:
        """Read a partition that is new."""
        self._merge.add(partition, offset)
        self._client.add(partition, offset)

    def go_on_at(self, partition: Partition, offset: int) -> None:
        """Pass over what is not there."""
        self._merge.queues[partition].waiting.append(Message(partition, offset, []))
        self._client.move(partition, offset)

    def dry(self) -> list[Partition]:
        """The partitions that all others wait for."""
        return self._merge.dry()

    def take(self, limit: int) -> list[Message]:
        """Messages of about ``limit`` items, in order."""
        taken = self._merge.take(limit)
        for partition in [p for p in self._paused if len(self._merge.queues[p].waiting) < self._share // 2]:
            self._paused.remove(partition)
            self._client.resume(partition)
        return taken

    def all(self) -> list[Message]:
        """All that was fetched, partition by partition."""
        return [message for queue in self._merge.queues.values() for message in queue.waiting]

    def complete(self) -> bool:
        """Whether all up to ``ends`` was fetched."""
        return all(queue.fetched >= queue.end for queue in self._merge.queues.values())

    def fill(self, seconds: float) -> bool:
        """Fetch what is here, or what comes within ``seconds``; False if nothing did."""
        fetched = self._client.fetch(_CHUNK, seconds)
        queues = self._merge.queues
        faults: list[Exception] = []
        for message in fetched:
            queue = queues.get((message.topic() or "", message.partition() or 0))
            if queue is None:
                continue
            error = message.error()
            if error is not None:
                faults += self._noted(queue, message, error)
            elif (message.offset() or 0) >= queue.fetched:
                self._append(queue, message)
        self._look_at(queues.values())
        if faults:
            raise faults[0]
        return bool(fetched)

    def _noted(self, queue: Queue, message: Fetched, error: KafkaError) -> list[Exception]:
        """What the client tells in place of a message; faults are for when the others have been kept."""
        if error.code() in _OUT_OF_RANGE:
            return [GapError(queue.partition, queue.fetched)]
        if error.code() != KafkaError._PARTITION_EOF:
            return [KafkaException(error)]
        queue.exhausted(message.offset() or 0)
        return (
            [GapError(queue.partition, queue.fetched)] if self._bounded and queue.fetched < queue.end else []
        )

    def _append(self, queue: Queue, message: Fetched) -> None:
        offset = message.offset() or 0
        if self._bounded and offset >= queue.end:
            queue.exhausted(queue.end)
            return
        kind, millis = message.timestamp()
        items = self._reader(queue.partition[0]).items(
            queue.partition[1], offset, message.key(), message.value(), millis * 1000 if kind else None
        )
        queue.waiting.append(Message(queue.partition, offset + 1, items))

    def _look_at(self, queues: Iterable[Queue]) -> None:
        for queue in queues:
            if not self._bounded:
                queue.end = self._client.known_end(queue.partition)
                over = len(queue.waiting) > self._share
            else:
                over = queue.fetched >= queue.end
            if over and queue.partition not in self._paused:
                self._paused.add(queue.partition)
                self._client.pause(queue.partition)
