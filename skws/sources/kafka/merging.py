"""Positions in topics, and messages of several partitions merged by time.

While a partition has messages that are not here yet, the others wait: a backlog
of one must not make another's records late. A partition that is read to its end
holds nobody up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, merge
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from skws.data.record import Item, Record
from skws.formats.values import EARLIEST
from skws.sources.feed import Offset, parse_offset

Partition: TypeAlias = tuple[str, int]
"""A topic and a number."""


class Message(NamedTuple):
    """The items of a message; ``next``: the offset after it."""

    partition: Partition
    next: int
    items: list[Item]

    @property
    def time(self) -> int:
        """The event time of its first record; before all others if there is none."""
        first = self.items[0] if self.items else None
        return first.time if isinstance(first, Record) else EARLIEST


@dataclass(slots=True)
class Queue:
    """Messages of a partition that are fetched and not given yet.

    ``given``: the offset after the given messages. ``end``: the partition's end
    as far as known; -1 before its broker has answered. ``spent``: an offset
    after which there was nothing to read when last asked, though ``end`` may be
    later (a transaction is open).
    """

    partition: Partition
    given: int
    end: int = -1
    spent: int = -1
    waiting: deque[Message] = field(default_factory=deque)

    @property
    def dry(self) -> bool:
        """True if the next message has not been fetched yet."""
        return not self.waiting and self.given != self.spent and (self.end < 0 or self.given < self.end)

    @property
    def fetched(self) -> int:
        """The offset after the fetched messages."""
        return self.waiting[-1].next if self.waiting else self.given

    def exhausted(self, offset: int) -> None:
        """Nothing comes after the fetched messages; the next one will have ``offset``."""
        self.spent = offset
        if offset > self.fetched:
            # The offsets between hold no messages: transaction markers, compacted messages.
            self.waiting.append(Message(self.partition, offset, []))


def take_merged(queues: Sequence[Queue], limit: int) -> list[Message]:
    """Messages of about ``limit`` items by time; none while the next message of a partition is unknown."""
    taken: list[Message] = []
    if any(queue.dry for queue in queues):
        return taken
    heads = [(queue.waiting[0].time, n) for n, queue in enumerate(queues) if queue.waiting]
    heapify(heads)
    count = 0
    while heads and count < limit:
        _, n = heappop(heads)
        queue = queues[n]
        message = queue.waiting.popleft()
        queue.given = message.next
        taken.append(message)
        count += len(message.items)
        if queue.waiting:
            heappush(heads, (queue.waiting[0].time, n))
        elif queue.dry:
            break
    return taken


def in_order(messages: Iterable[Message]) -> list[Item]:
    """The items of messages, in an order that does not depend on how they were fetched."""
    parts: dict[Partition, list[Message]] = {}
    for message in messages:
        parts.setdefault(message.partition, []).append(message)
    ordered = merge(*(parts[partition] for partition in sorted(parts)), key=attrgetter("time"))
    return [item for message in ordered for item in message.items]


_Nested = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Position:
    """``first``: where partitions began that were found later, unless at 0."""

    cluster: str
    next: dict[Partition, int]
    first: dict[Partition, int] = field(default_factory=dict)

    @classmethod
    def of(cls, offset: Offset) -> Position:
        """Raises SourceError if this is not an offset of Kafka's."""
        return parse_offset(
            offset,
            "Kafka topics",
            lambda: cls(str(offset["cluster"]), _flat(offset["next"]), _flat(offset.get("first", {}))),
        )

    def offset(self) -> Offset:
        found: Offset = {"cluster": self.cluster, "next": _nested(self.next)}
        return found | ({"first": _nested(self.first)} if self.first else {})


def _flat(nested: _Nested) -> dict[Partition, int]:
    return {(topic, int(n)): int(at) for topic, parts in nested.items() for n, at in parts.items()}


def _nested(flat: dict[Partition, int]) -> _Nested:
    found: _Nested = {}
    for (topic, number), at in sorted(flat.items()):
        found.setdefault(topic, {})[str(number)] = at
    return found
