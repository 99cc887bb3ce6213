"""The rows of static tables, from topics of their own: read to their end, and what came of them kept.

A topic of a table tells its changes, as streams do; what counts is what
they add up to at the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from schema.model import Row, Schema
from skws.records import BadRecord, Record
from skws.sources.feed import Item
from skws.sources.kafka.address import Address
from skws.sources.kafka.client import Client
from skws.sources.kafka.following import Following
from skws.sources.kafka.merging import Message, Partition, in_order
from skws.sources.kafka.messages import TopicReader
from windows.lifespans import GroupKey, identity

_WAIT_SECONDS: Final = 0.05
_ALL: Final = 1 << 62


def table_rows(
    address: Address, schema: Schema, client: Client, topics: Mapping[str, tuple[Partition, ...]]
) -> Iterator[Item]:
    """The rows that are in ``topics`` now. Raises KafkaException."""
    # As a stream, a table may be deleted from and has the times of its messages.
    moving = replace(
        schema, relations=tuple(replace(one, table=False, time=None) for one in schema.relations)
    )
    for topic, partitions in topics.items():
        reader = TopicReader(topic, moving, address.form)
        yield from added_up(in_order(_all(client, reader, partitions)), moving)


def added_up(items: Iterable[Item], schema: Schema) -> Iterator[Item]:
    """What is left of insertions and deletions, as records of static tables; bad records as they are."""
    left: dict[GroupKey, list[Row]] = {}
    for item in items:
        if isinstance(item, BadRecord):
            yield item
            continue
        name = identity(schema, item.relation, item.row)
        _, _, keyed = name
        if item.delete:
            left[name] = left.get(name, [])[1:]
        else:
            left[name] = [item.row] if keyed else [*left.get(name, ()), item.row]
    for (relation, _, _), rows in left.items():
        for row in rows:
            yield Record(relation, 0, row)


def _all(client: Client, reader: TopicReader, partitions: tuple[Partition, ...]) -> list[Message]:
    following = Following(client, lambda _: reader, {one: client.reach(one)[0] for one in partitions})
    messages: list[Message] = []
    while True:
        following.fill(_WAIT_SECONDS)
        messages += following.take(_ALL)
        if not following.dry():
            return messages
