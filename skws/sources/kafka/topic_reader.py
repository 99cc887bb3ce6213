"""Reads partitions side by side, as far ahead as memory allows, and returns the records of messages in order.

While a partition has messages that are not fetched yet, the others wait: a
backlog of one partition must not make the records of another late. A partition
that has been read to its end does not hold up the others.

A topic of a static table contains changes, like a stream; the rows of the table
are the result of these changes at the start of the run.

The key of a message is only used if the value does not identify the deleted
row: for a tombstone, and for an event without ``before``.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from heapq import heapify, heappop, heappush, merge
from itertools import repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
import orjson
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as Fetched

from skws.data.batch import BadRecord, Chunk, Item, Record
from skws.data.value_conversion import EARLIEST, LATEST, MalformedError
from skws.formats.debezium import ChangeReader, is_change
from skws.formats.exact_json import loads
from skws.formats.files import not_json
from skws.formats.rows import BareRowReader, RecordReader, RowReader, refuse_deletion
from skws.sources.horizon import ANY_TIME, Horizon
from skws.sources.kafka.client import Client, Partition
from skws.sources.kafka.topic_address import Form, TopicAddress
from skws_purging.lifespans import GroupKey, identity
from skws_schema.errors import SourceError, nearest, shown
from skws_schema.model import AttributeType, Row, Schema

# The length of the prefix that serializers with a schema registry write: a zero and the id of a schema.
_REGISTRY: Final = 5


def relation_of(topic: str, schema: Schema) -> int | None:
    """The position of the relation that has the name of a topic, or its name after the last dot."""
    for name in (topic, topic.rpartition(".")[2]):
        if name in schema.index:
            return schema.index[name]
    return None


class TopicReader:
    """Reads the messages of one topic. Raises SourceError if its messages cannot have this form.

    ``timeless``: the times of messages do not matter, as in topics of static tables. ``horizon``: records
    beyond it are refused, since they would make all later records late.
    """

    def __init__(
        self,
        topic: str,
        schema: Schema,
        form: Form,
        *,
        timeless: bool = False,
        horizon: Horizon = ANY_TIME,
    ) -> None:
        relation = relation_of(topic, schema)
        if form is Form.ROWS and relation is None:
            names = ", ".join(schema.index)
            raise SourceError(f"topic {topic}: format=rows needs a topic named after a relation: {names}")
        bare = relation is not None and form in (Form.AUTO, Form.ROWS)
        self._topic = topic
        self._timeless = timeless
        self._horizon = horizon
        self.latest = EARLIEST  # the horizon when a record was last close to it
        self._form = form
        self._rows = BareRowReader(schema, relation) if bare and relation is not None else None
        self._row = RowReader(schema, relation) if bare and relation is not None else None
        self._columns = set(self._row.known_names) if self._row is not None else set()
        self._records = RecordReader(schema)
        self._changes = ChangeReader(schema)
        self._passed_over = False

    def notices(self) -> tuple[str, ...]:
        """Notices about the messages so far, each once."""
        if not self._passed_over or self._row is None:
            return ()
        self._passed_over, self._row = False, None
        return (
            f"topic {self._topic}: null values are skipped, like those after Debezium's deletions;"
            " with ?format=rows they delete the row of their key",
        )

    def items(
        self, partition: int, offset: int, key: bytes | None, value: bytes | None, time: int | None
    ) -> list[Item]:
        """The items of a message: none for a tombstone among changes, two for an update.

        ``time``: the message's time in microseconds, if it has one.
        """
        in_calendar = time is None or EARLIEST <= time <= LATEST
        if self._timeless and (time is None or not in_calendar):
            time, in_calendar = 0, True
        try:
            items = self._tombstone(key, time) if value is None else self._read(_parse(value), key, time)
            if not in_calendar:
                _refuse_time(items)
            return [*items, *self._notes()]
        except MalformedError as error:
            return [self._bad(partition, offset, key, value, str(error))]

    def refusal(
        self, items: Sequence[Item], partition: int, offset: int, key: bytes | None, value: bytes | None
    ) -> BadRecord | None:
        """The bad record that replaces a message whose ``items`` are beyond the horizon, or None."""
        time = max((item.time for item in items if isinstance(item, Record)), default=EARLIEST)
        if time > self.latest:
            self.latest = max(self.latest, self._horizon.latest())
        if time <= self.latest:
            return None
        return self._bad(partition, offset, key, value, self._horizon.reason(time, self.latest))

    def _bad(
        self, partition: int, offset: int, key: bytes | None, value: bytes | None, reason: str
    ) -> BadRecord:
        raw = key if value is None and key is not None else value or b""
        return BadRecord(f"{self._topic}[{partition}]", 0, offset, raw, reason, f"at offset {offset}")

    def _notes(self) -> Iterator[BadRecord]:
        """Notes on skipped values in the last messages."""
        for reader in (self._rows, self._records, self._changes):
            if reader is not None:
                yield from reader.notes(self._topic)

    def _read(self, item: Any, key: bytes | None, time: int | None) -> list[Item]:
        if type(item) is dict and item.keys() == _ENVELOPE and not item.keys() <= self._columns:
            item = item["payload"]
        if item is None:
            return self._tombstone(key, time)
        match self._form_of(item):
            case Form.ROWS if self._rows is not None:
                return [self._rows.record(item, time)]
            case Form.DEBEZIUM:
                return list(self._change_records(item, key, time))
        return [self._records.record(item, time)]

    def _form_of(self, item: Any) -> Form:
        """The form of a value: that of the address, or by its fields."""
        if self._form is not Form.AUTO:
            return self._form
        if type(item) is not dict:
            return Form.ROWS
        if self._rows is not None and item.keys() <= self._columns:
            return Form.ROWS
        if "relation" in item:
            return Form.RECORDS
        return Form.DEBEZIUM if is_change(item) else Form.ROWS

    def _change_records(self, item: Any, key: bytes | None, time: int | None) -> list[Record]:
        try:
            return self._changes.records(item, time)
        except MalformedError:
            key_fields = _key(key)
            if key_fields is None:
                raise
            return self._changes.records({"key": key_fields, "value": item}, time)

    def _tombstone(self, key: bytes | None, time: int | None) -> list[Item]:
        """A null value deletes the row of its key in a topic of rows; in other topics it is ignored."""
        if self._form is not Form.ROWS or self._row is None:
            self._passed_over = True
            return []
        refuse_deletion(self._row)
        row = self._row.deletion(_key_fields(key, self._row))
        return [self._row.record(row, time, delete=True)]


_ENVELOPE: Final = {"schema", "payload"}
"""The envelope in which Kafka Connect writes JSON by default (``schemas.enable``)."""


def _refuse_time(items: list[Item]) -> None:
    """Raises MalformedError if an item has the time of its message and this is outside the calendar."""
    for item in items:
        if isinstance(item, Record) and not EARLIEST <= item.time <= LATEST:
            raise MalformedError(
                f"the message's time {item.time // 1000} is after the year 9999: expected milliseconds since"
                " the epoch (microseconds or nanoseconds?)"
            )


def _key_fields(raw: bytes | None, reader: RowReader) -> dict[str, Any]:
    """The attributes of a key, which is an object or a single value.

    A single value of a text attribute is text, as most serializers write it: ``1.10`` is not ``1.1``.
    """
    key = _key(raw)
    if type(key) is dict and "payload" in key:
        key = key["payload"]
    relation, names = reader.relation, reader.relation.key
    if names and type(key) is dict:
        fields = {name: value for name, value in key.items() if reader.is_key_field(name)}
        if None not in fields.values():
            return fields
    if len(names) == 1 and raw is not None:
        attribute_type = relation.attributes[relation.columns[names[0]]].type
        if attribute_type in _TEXTUAL and type(key) not in (str, dict):
            key = _text(raw)
        if type(key) in (str, int, float, bool):
            return {names[0]: key}
    reason = f"the message's key {shown(key)} does not say which" if names else f"{relation.name} has no key"
    raise MalformedError(f"a null value deletes a row, and {reason}")


_TEXTUAL: Final = frozenset({AttributeType.TEXT, AttributeType.STRING})


def _text(raw: bytes) -> str:
    """The text of a key, without the schema id before it."""
    return (raw[_REGISTRY:] if raw[:1] == b"\0" else raw).decode(errors="replace")


def _parse(value: bytes) -> Any:
    value = value.removeprefix(BOM_UTF8)  # some libraries write a byte order mark
    try:
        return loads(value)
    except orjson.JSONDecodeError as error:
        if value[:1] != b"\0":
            raise MalformedError(_refusal(value, error)) from None
    try:
        return loads(value[_REGISTRY:])
    except orjson.JSONDecodeError:
        raise MalformedError(
            "not JSON; Avro and Protobuf, which need a schema registry, are not read"
        ) from None


_COMPRESSED: Final = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"\x04\x22\x4d\x18": "LZ4",
    b"\x82SNAPPY": "Snappy",
    b"BZh": "bzip2",
    b"\x78\x01": "zlib",
    b"\x78\x9c": "zlib",
    b"\x78\xda": "zlib",
}
"""The first bytes of compressed values."""


def _refusal(value: bytes, error: orjson.JSONDecodeError) -> str:
    """The reason why a value is not JSON."""
    form = next((name for begin, name in _COMPRESSED.items() if value.startswith(begin)), None)
    if form is not None:
        return (
            f"compressed with {form} by the sending program: let it send JSON, which the producer can"
            " compress itself (compression.type)"
        )
    return not_json(value, error, "let the producer send texts in UTF-8")


def _key(raw: bytes | None) -> Any:
    """The key of a message: as JSON, otherwise as text; None if there is none."""
    if raw is None:
        return None
    try:
        return _parse(raw)
    except MalformedError:
        return _text(raw)


@dataclass(frozen=True, slots=True)
class Topics:
    """``streams`` are followed; ``tables`` have the rows of static tables.

    ``sizes``: the number of partitions of each topic of the cluster. ``ids``: those of the streams, if the
    brokers have ids.
    """

    partitions: tuple[Partition, ...]
    streams: tuple[str, ...]
    tables: dict[str, tuple[Partition, ...]]
    sizes: Mapping[str, int]
    ids: Mapping[str, str]
    notices: tuple[str, ...] = ()


def find_topics(address: TopicAddress, schema: Schema, client: Client) -> Topics:
    """Find the topics of an address. Raises SourceError if one is missing; KafkaException."""
    topics = client.topics()
    removed = schema.evolution.removed_relations
    stream_names = {r.name for n, r in enumerate(schema.relations) if n not in removed and r.source is None}
    names = address.topics or tuple(name for name in schema.index if name in stream_names)
    missing = [topic for topic in names if topic not in topics]
    if missing and address.topics:
        raise SourceError(f"{address.shown}: there is no topic {missing[0]}{nearest(missing[0], topics)}")
    partitions_by_topic = {topic: client.partitions(topic) for topic in names if topic in topics}
    tables = {
        topic: tuple(partitions_by_topic[topic]) for topic in partitions_by_topic if _is_table(topic, schema)
    }
    streams = tuple(topic for topic in partitions_by_topic if topic not in tables)
    notices = tuple(f"there is no topic {topic} yet; waiting for it" for topic in missing)
    partitions = tuple(partition for topic in streams for partition in partitions_by_topic[topic])
    return Topics(partitions, streams, tables, topics, client.ids(streams), notices)


def _is_table(topic: str, schema: Schema) -> bool:
    relation = relation_of(topic, schema)
    return relation is not None and schema.relations[relation].table


class Message(NamedTuple):
    """The records of a message, or its bad record. ``next``: the offset after it.

    ``refusal``: the bad record that replaces the records while their times are beyond the horizon; None if
    they were not when the message arrived.
    """

    partition: Partition
    next: int
    items: list[Item]
    refusal: BadRecord | None = None

    @property
    def refused(self) -> bool:
        return self.refusal is not None and self.items[0] is self.refusal

    def bounded(self, latest: int) -> Message:
        """The message, refused if it has a time after ``latest``."""
        if self.refusal is None or all(
            item.time <= latest for item in self.items if isinstance(item, Record)
        ):
            return self
        return self._replace(items=[self.refusal])

    @property
    def time(self) -> int:
        """The event time of its first record; without records, the earliest time."""
        first = self.items[0] if self.items else None
        return first.time if isinstance(first, Record) else EARLIEST


@dataclass(slots=True)
class MessageQueue:
    """Messages of a partition that are fetched and not returned yet.

    ``next_offset``: the offset after the returned messages. ``end``: the end of the partition
    as far as known; -1 before its broker has answered. ``idle_offset``: an offset
    after which there was nothing to read at the last request, even though ``end`` may be
    later (a transaction is open).
    """

    partition: Partition
    next_offset: int
    end: int = -1
    idle_offset: int = -1
    messages: deque[Message] = field(default_factory=deque)

    @property
    def dry(self) -> bool:
        """True if the next message has not been fetched yet."""
        return (
            not self.messages
            and self.next_offset != self.idle_offset
            and (self.end < 0 or self.next_offset < self.end)
        )

    def head(self, latest: int) -> Message:
        """The next message; refused if it has a time after ``latest``."""
        self.messages[0] = self.messages[0].bounded(latest)
        return self.messages[0]

    @property
    def fetched_end(self) -> int:
        """The offset after the fetched messages."""
        return self.messages[-1].next if self.messages else self.next_offset

    def mark_end(self, offset: int) -> None:
        """Record that the partition ends after the fetched messages; the next one will have ``offset``."""
        self.idle_offset = offset
        if offset > self.fetched_end:
            # The offsets in between have no messages: transaction markers, compacted messages.
            self.messages.append(Message(self.partition, offset, []))


def take_merged(queues: Sequence[MessageQueue], limit: int, latest: int = LATEST) -> list[Message]:
    """Messages of about ``limit`` items by time; none while the next message of a partition is unknown.

    Messages with times after ``latest`` are refused.
    """
    messages: list[Message] = []
    if any(queue.dry for queue in queues):
        return messages
    heads = [(queue.head(latest).time, index) for index, queue in enumerate(queues) if queue.messages]
    heapify(heads)
    count = 0
    while heads and count < limit:
        _, index = heappop(heads)
        queue = queues[index]
        message = queue.messages.popleft()
        queue.next_offset = message.next
        messages.append(message)
        count += len(message.items)
        if queue.messages:
            heappush(heads, (queue.head(latest).time, index))
        elif queue.dry:
            break
    return messages


def in_order(messages: Iterable[Message]) -> list[Item]:
    """The items of messages, in an order that does not depend on how they were fetched."""
    return [item for message in _by_time(messages) for item in message.items]


def chunk_of(messages: Iterable[Message]) -> Chunk:
    """Like ``in_order``, with the partition of each record."""
    items: list[Item] = []
    partitions: list[int] = []
    for message in _by_time(messages):
        items += message.items
        record_count = sum(isinstance(item, Record) for item in message.items)
        partitions += [number_of(message.partition)] * record_count
    return replace(Chunk.of(items), partitions=np.array(partitions, dtype=np.int64))


@cache
def number_of(partition: Partition) -> int:
    """A number above 0 for a partition, the same in all processes."""
    topic, number = partition
    return crc32(f"{topic}[{number}]".encode()) or 1


def _by_time(messages: Iterable[Message]) -> Iterator[Message]:
    messages_by_partition: dict[Partition, list[Message]] = {}
    for message in messages:
        messages_by_partition.setdefault(message.partition, []).append(message)
    return merge(
        *(messages_by_partition[partition] for partition in sorted(messages_by_partition)),
        key=attrgetter("time"),
    )


_OUT_OF_RANGE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


class GapError(Exception):
    """The next offset of a partition no longer exists."""

    def __init__(self, partition: Partition, offset: int) -> None:
        super().__init__(partition, offset)
        self.partition = partition
        self.offset = offset


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """How far ahead partitions are read, in messages."""

    chunk: int = 5_000
    """The most messages to fetch at once."""
    most: int = 100_000
    """Messages of all partitions that may wait; a partition with more than its share is not fetched."""
    least: int = 1_000
    """The least share of one partition, however many there are."""


USUAL_READ_AHEAD: Final = ReadAhead()


class PartitionReader:
    """Reads partitions from ``offsets`` on, up to ``ends`` if given.

    Methods raise KafkaException while brokers are unreachable, GapError if messages are gone.
    """

    def __init__(
        self,
        client: Client,
        reader: Callable[[str], TopicReader],
        offsets: Mapping[Partition, int],
        ends: Mapping[Partition, int] | None = None,
        read_ahead: ReadAhead = USUAL_READ_AHEAD,
    ) -> None:
        self._client = client
        self._reader = reader
        self._chunk = read_ahead.chunk
        self._queues = {
            partition: MessageQueue(partition, offset) for partition, offset in sorted(offsets.items())
        }
        self._bounded = ends is not None
        for partition, end in (ends or {}).items():
            self._queues[partition].end = end
        self._share = max(read_ahead.least, read_ahead.most // max(1, len(offsets)))
        self._paused: set[Partition] = set()
        client.assign(offsets)

    def offsets(self) -> dict[Partition, int]:
        """The offsets after the messages that were returned."""
        return {partition: queue.next_offset for partition, queue in self._queues.items()}

    def add(self, partition: Partition, offset: int) -> None:
        """Read a new partition."""
        self._queues = dict(sorted((self._queues | {partition: MessageQueue(partition, offset)}).items()))
        self._client.add(partition, offset)

    def skip_to(self, partition: Partition, offset: int) -> None:
        """Skip to ``offset``, since the messages before it are gone."""
        self._queues[partition].messages.append(Message(partition, offset, []))
        self._client.move(partition, offset)

    def dry(self) -> list[Partition]:
        """The partitions that the others wait for."""
        return [partition for partition, queue in self._queues.items() if queue.dry]

    def ahead(self) -> dict[int, int] | None:
        """The times of the next messages that were fetched; None if those of some partition were not."""
        if self.dry():
            return None
        heads = [queue.messages[0] for queue in self._queues.values() if queue.messages]
        return {number_of(message.partition): message.time for message in heads if message.time != EARLIEST}

    def take(self, limit: int, latest: int = LATEST) -> list[Message]:
        """Messages of about ``limit`` items, in order; those with times after ``latest`` are refused."""
        messages = take_merged(list(self._queues.values()), limit, latest)
        for partition in [
            partition
            for partition in self._paused
            if len(self._queues[partition].messages) < self._share // 2
        ]:
            self._paused.remove(partition)
            self._client.resume(partition)
        return messages

    def all(self) -> list[Message]:
        """All fetched messages, partition by partition."""
        return [message for queue in self._queues.values() for message in queue.messages]

    def complete(self) -> bool:
        """True if everything up to ``ends`` has been fetched."""
        return all(queue.fetched_end >= queue.end for queue in self._queues.values())

    def fill(self, seconds: float) -> bool:
        """Fetch messages, waiting ``seconds`` for the first; False if none arrived."""
        messages = self._client.fetch(self._chunk, seconds)
        errors: list[Exception] = []
        for message in messages:
            queue = self._queues.get((message.topic() or "", message.partition() or 0))
            if queue is None:
                continue
            error = message.error()
            if error is not None:
                errors += self._on_event(queue, message, error)
            elif (message.offset() or 0) >= queue.fetched_end:
                self._append(queue, message)
        self._pause_full()
        if errors:
            raise errors[0]
        return bool(messages)

    def _on_event(self, queue: MessageQueue, message: Fetched, error: KafkaError) -> list[Exception]:
        """Handle an event; returns errors, to be raised once the other messages are stored."""
        if error.code() in _OUT_OF_RANGE:
            return [GapError(queue.partition, queue.fetched_end)]
        if error.code() != KafkaError._PARTITION_EOF:
            return [KafkaException(error)]
        queue.mark_end(message.offset() or 0)
        return (
            [GapError(queue.partition, queue.fetched_end)]
            if self._bounded and queue.fetched_end < queue.end
            else []
        )

    def _append(self, queue: MessageQueue, message: Fetched) -> None:
        offset = message.offset() or 0
        if self._bounded and offset >= queue.end:
            queue.mark_end(queue.end)
            return
        kind, millis = message.timestamp()
        # Producers without a clock write -1, whatever the kind of time.
        time = millis * 1000 if kind and millis >= 0 else None
        (topic, number), key, value = queue.partition, message.key(), message.value()
        reader = self._reader(topic)
        items = reader.items(number, offset, key, value, time)
        refusal = reader.refusal(items, number, offset, key, value)
        queue.messages.append(Message(queue.partition, offset + 1, items, refusal))

    def _pause_full(self) -> None:
        for queue in self._queues.values():
            if not self._bounded:
                queue.end = self._client.cached_end(queue.partition)
                is_full = len(queue.messages) > self._share
            else:
                is_full = queue.fetched_end >= queue.end
            if is_full and queue.partition not in self._paused:
                self._paused.add(queue.partition)
                self._client.pause(queue.partition)


_WAIT_SECONDS: Final = 0.05
_ALL: Final = 1 << 62


def table_rows(
    address: TopicAddress, schema: Schema, client: Client, topics: Mapping[str, tuple[Partition, ...]]
) -> Iterator[Item]:
    """The present rows of ``topics``. Raises KafkaException."""
    # Read as streams, since only those have deletions and times of messages.
    stream_schema = replace(
        schema, relations=tuple(replace(relation, table=False, time=None) for relation in schema.relations)
    )
    for topic, partitions in topics.items():
        reader = TopicReader(topic, stream_schema, address.form, timeless=True)
        yield from final_rows(in_order(_read_all(client, reader, partitions)), stream_schema)


def final_rows(items: Iterable[Item], schema: Schema) -> Iterator[Item]:
    """The rows left after all insertions and deletions, as records of static tables; and bad records."""
    # By relation: each row with the number of its copies, as equal rows without a key have one identity.
    rows_by_relation: defaultdict[int, dict[GroupKey, tuple[Row, int]]] = defaultdict(dict)
    for item in items:
        if isinstance(item, BadRecord):
            yield item
            continue
        rows = rows_by_relation[item.relation]
        if item.truncates:
            rows.clear()
            continue
        key = identity(schema, item.relation, item.row)
        _, _, has_key = key
        row, copies = rows.get(key, (item.row, 0))
        if not item.delete:
            rows[key] = item.row, 1 if has_key else copies + 1
        elif copies > 1:
            rows[key] = row, copies - 1
        else:
            rows.pop(key, None)
    for relation, rows in rows_by_relation.items():
        for row, copies in rows.values():
            yield from repeat(Record(relation, 0, row), copies)


def _read_all(client: Client, reader: TopicReader, partitions: tuple[Partition, ...]) -> list[Message]:
    partition_reader = PartitionReader(
        client, lambda _: reader, {partition: client.offset_range(partition)[0] for partition in partitions}
    )
    messages: list[Message] = []
    while True:
        partition_reader.fill(_WAIT_SECONDS)
        for error in client.errors():
            raise KafkaException(error)
        messages += partition_reader.take(_ALL)
        if not partition_reader.dry():
            return messages
