"""Messages of several partitions in one order: by time, each partition's in its own.

Behind a partition that has more to give, the others wait: a backlog of one
must not make that of another late. One that is read to its end holds nobody
up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, merge
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from skws.records import Record
from skws.replay.values import EARLIEST
from skws.sources.feed import Item

Partition: TypeAlias = tuple[str, int]
"""A topic and a number."""


class Message(NamedTuple):
    """What a message came to; ``next``: the offset behind it."""

    partition: Partition
    next: int
    items: list[Item]

    @property
    def time(self) -> int:
        """The event time of its first record; before all others if it holds none."""
        first = self.items[0] if self.items else None
        return first.time if isinstance(first, Record) else EARLIEST


@dataclass(slots=True)
class Queue:
    """What was fetched of a partition and not given yet.

    ``given``: the offset behind what was given. ``end``: the partition's, as
    far as known; -1 before its broker has told. ``spent``: an offset behind
    which there was nothing for us when last asked, though ``end`` may be later
    (a transaction is open).
    """

    partition: Partition
    given: int
    end: int = -1
    spent: int = -1
    waiting: deque[Message] = field(default_factory=deque)

    @property
    def dry(self) -> bool:
        """True if there is more, which has not been fetched."""
        return not self.waiting and self.given != self.spent and (self.end < 0 or self.given < self.end)

    @property
    def fetched(self) -> int:
        """The offset behind what was fetched."""
        return self.waiting[-1].next if self.waiting else self.given

    def exhausted(self, offset: int) -> None:
        """There is nothing behind what was fetched; ``offset`` is where the next message will stand."""
        self.spent = offset
        if offset > self.fetched:
            # What stands between is no message: marks of transactions, what compaction took away.
            self.waiting.append(Message(self.partition, offset, []))


class Merge:
    """The queues of all partitions, in the order of their names."""

    def __init__(self, offsets: dict[Partition, int]) -> None:
        self.queues = {one: Queue(one, offset) for one, offset in sorted(offsets.items())}

    def add(self, partition: Partition, offset: int) -> None:
        self.queues = dict(sorted((self.queues | {partition: Queue(partition, offset)}).items()))

    def offsets(self) -> dict[Partition, int]:
        """Behind what was given."""
        return {partition: queue.given for partition, queue in self.queues.items()}

    def dry(self) -> list[Partition]:
        """The partitions that the others wait for."""
        return [partition for partition, queue in self.queues.items() if queue.dry]

    def take(self, limit: int) -> list[Message]:
        """Messages of about ``limit`` items; none while a partition has not told what comes next."""
        taken: list[Message] = []
        if self.dry():
            return taken
        queues = list(self.queues.values())
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
    """The items of messages, in the order that is the same however they were fetched."""
    parts: dict[Partition, list[Message]] = {}
    for message in messages:
        parts.setdefault(message.partition, []).append(message)
    ordered = merge(*(parts[partition] for partition in sorted(parts)), key=attrgetter("time"))
    return [item for message in ordered for item in message.items]
