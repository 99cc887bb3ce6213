"""Topics as a source: messages between offsets of each partition, merged by time across partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from math import ceil
from typing import Final

from confluent_kafka import KafkaException

from skws.data.batch import Chunk, chunked
from skws.data.value_conversion import EARLIEST
from skws.sources.feed import (
    Backlog,
    Batch,
    BatchPlan,
    Clock,
    Feed,
    FeedPart,
    Offset,
    Source,
    SystemClock,
    parse_offset,
    static_relations,
)
from skws.sources.horizon import ANY_TIME, HORIZON, Horizon, RefusalMark, latest_between
from skws.sources.kafka.client import Client, Partition, is_missing
from skws.sources.kafka.topic_address import Lost, Settings, StartPoint, TopicAddress
from skws.sources.kafka.topic_reader import (
    GapError,
    Message,
    PartitionReader,
    TopicReader,
    Topics,
    chunk_of,
    find_topics,
    number_of,
    table_rows,
)
from skws.sources.partitions import latest_by_partition
from skws.sources.retry import Retry
from skws_schema.errors import NotYetError, SourceError
from skws_schema.model import Schema

# The time that a poll waits for a message if none has been fetched.
_WAIT_SECONDS: Final = 0.05
_PROBE_SECONDS: Final = 1.0
# The interval between checks for new partitions; the time to wait for a partition that has messages but sends
# none.
_DISCOVER_EVERY: Final = 30_000_000
_SILENCE: Final = 15_000_000
_LAST: Final = 10  # messages before the end of a batch, as the last one may be bad
_WORTH: Final = 4  # a batch is divided if at least ``limit`` divided by this number of messages wait


class KafkaFeed(Feed):
    """Follows the topics of ``address``."""

    def __init__(
        self, address: TopicAddress, schema: Schema, clock: Clock, horizon: Horizon = ANY_TIME
    ) -> None:
        """Open the topics.

        Raises SourceError if one is missing, NotYetError if no broker answers, SchemaError for settings.
        """
        self._address = address
        self._schema = schema
        self._clock = clock
        self._horizon = horizon
        self._client = Client(address, Settings.of(address))
        self._retry = Retry(address.shown, clock)
        self._notices: list[str] = []
        self._topic_readers: dict[str, TopicReader] = {}
        self._static = static_relations(schema)
        self._static_rows = False
        self._partition_reader: PartitionReader | None = None
        self._plan_ends: dict[Partition, int] = {}  # the end of the last plan
        self._latest = EARLIEST
        try:
            self._cluster = self._client.connect()
            self._topics: Topics = find_topics(address, schema, self._client)
            for topic in self._topics.streams:
                self._topic_reader(topic)
        except KafkaException as error:
            self._client.close()
            raise self._client.failure(error) from None
        except SourceError:
            self._client.close()
            raise
        self._notices += self._topics.notices
        self._discovered_at = self._active_at = clock.now()

    def change_schema(self, schema: Schema) -> None:
        """Topics of new relations are read from their beginning."""
        before = self._schema, self._topic_readers
        self._schema, self._topic_readers = schema, {}
        try:
            self._topics = find_topics(self._address, schema, self._client)
            for topic in self._topics.streams:
                self._topic_reader(topic)
        except KafkaException as error:
            self._schema, self._topic_readers = before
            raise self._client.failure(error) from None
        except SourceError:
            self._schema, self._topic_readers = before
            raise
        self._static = static_relations(schema)
        self._partition_reader = None

    def start(self) -> Offset:
        """The offsets of the first messages of every partition, or those after the last."""
        latest = self._address.begin is StartPoint.LATEST
        try:
            ranges = {
                partition: self._client.offset_range(partition) for partition in self._topics.partitions
            }
        except KafkaException as error:
            raise self._client.failure(error) from None
        begins = {partition: ends[latest] for partition, ends in ranges.items()}
        return TopicPosition(self._cluster, begins, ids=dict(self._topics.ids)).offset()

    @property
    def partitioned(self) -> bool:
        return True

    def tables(self) -> Iterator[Chunk]:
        """The present rows of the topics named after static tables."""
        try:
            yield from chunked(table_rows(self._address, self._schema, self._client, self._topics.tables))
        except KafkaException as error:
            raise self._client.failure(error) from None
        finally:
            self._partition_reader = None

    def poll(self, start: Offset, limit: int) -> Batch:
        """The messages that have arrived; none while the brokers are unreachable."""
        position = self._parse_position(start)
        messages: list[Message] = []
        ahead: dict[int, int] | None = None
        # It never decreases, even if the clock is set back: an accepted record remains accepted.
        self._latest = max(
            self._latest, self._horizon.latest(), *(r.latest for r in self._topic_readers.values())
        )
        try:
            if self._is_answering():
                reader, position = self._reader_at(position)
                messages = self._take(reader, limit)
                has_refusals = any(message.refused for message in messages)
                horizon = (
                    RefusalMark.after(position.horizon, self._latest) if has_refusals else position.horizon
                )
                position = replace(position, next=reader.offsets(), horizon=horizon)
                ahead = None if self._retry.away else reader.ahead()
        except KafkaException as error:
            self._handle_error(error)
        chunk, end = self._stream_chunk(messages), position.offset()
        return Batch(chunk, end, self._take_notices(), ahead=ahead or {}, answered=ahead is not None)

    def plan(self, start: Offset, limit: int) -> BatchPlan | None:
        """The same share of the waiting messages of each partition, so that partitions in step stay in step.

        None while the brokers are unreachable, or if messages are gone, which a poll reports.
        """
        position = self._parse_position(start)
        self._latest = max(self._latest, self._horizon.latest())
        try:
            if not self._is_answering():
                return None
            if self._plan_ends != position.next:
                position = self._without_deleted(position)
            position = self._with_new_partitions(position)
            ranges = {partition: self._client.offset_range(partition) for partition in position.next}
        except KafkaException as error:
            self._handle_error(error)
            return None
        backlogs = {
            partition: max(0, end - position.next[partition]) for partition, (_, end) in ranges.items()
        }
        total = sum(backlogs.values())
        if total * _WORTH < limit or any(
            backlogs[partition] and position.next[partition] < ranges[partition][0] for partition in ranges
        ):
            return None
        share, self._partition_reader = min(1.0, limit / total), None
        ends = {
            partition: offset + ceil(backlogs[partition] * share)
            for partition, offset in position.next.items()
        }
        self._plan_ends = ends
        horizon = position.horizon
        if self._horizon.ahead is not None:  # some may be refused later
            horizon = RefusalMark.after(horizon, self._latest)
        end = replace(position, next=ends, horizon=horizon)
        reached = self._latest_times(position.next, ends)
        return BatchPlan(end.offset(), total > limit, self._take_notices(), reached)

    def _latest_times(
        self, begins: Mapping[Partition, int], ends: Mapping[Partition, int]
    ) -> dict[int, int | None]:
        """For each partition with messages between two offsets the latest time among the last few."""
        last_ends = {partition: end for partition, end in ends.items() if end > begins[partition]}
        last_begins = {partition: max(begins[partition], end - _LAST) for partition, end in last_ends.items()}
        latest = latest_by_partition(self.between(last_begins, last_ends, self._latest))
        return {number: latest.get(number) for number in map(number_of, last_ends)}

    def parts(self, start: Offset, end: Offset, number: int) -> Sequence[FeedPart] | None:
        begins, ends = self._span(start, end)
        groups: list[dict[Partition, int]] = [{} for _ in range(min(number, len(ends)))]
        sizes = [0] * len(groups)
        for partition in sorted(ends, key=lambda partition: begins[partition] - ends[partition]):
            index = sizes.index(min(sizes))
            groups[index][partition] = ends[partition]
            sizes[index] += ends[partition] - begins[partition]
        latest, horizon = latest_between(start, end), self._horizon.ahead
        config = self._address.config
        address = replace(self._address, config=None if config is None else config.absolute())
        return [
            KafkaPart(address, {partition: begins[partition] for partition in group}, group, latest, horizon)
            for group in groups
        ]

    def replay(self, start: Offset, end: Offset) -> Chunk:
        """Reads the same messages; waits for the brokers if they are unreachable."""
        return self.between(*self._span(start, end), latest_between(start, end))

    def between(self, begins: Mapping[Partition, int], ends: Mapping[Partition, int], latest: int) -> Chunk:
        """The messages of each partition between two offsets; times after ``latest`` are refused."""
        self._partition_reader = None
        return self._stream_chunk(self._messages_between(begins, ends, latest))

    def _span(self, start: Offset, end: Offset) -> tuple[dict[Partition, int], dict[Partition, int]]:
        """The first and last offsets of each partition that has messages between two offsets of the feed."""
        first, last = self._parse_position(start), self._parse_position(end)
        last = self._without_deleted(last)
        recreated = {topic for topic, name in last.ids.items() if first.ids.get(topic, name) != name}
        begins = {
            partition: last.first.get(partition, 0)
            if partition[0] in recreated
            else first.next.get(partition, last.first.get(partition, 0))
            for partition in last.next
        }
        ends = {partition: offset for partition, offset in last.next.items() if begins[partition] != offset}
        return {partition: begins[partition] for partition in ends}, ends

    def commit(self, end: Offset) -> None:
        """Commits to the consumer group, if the address names one; a run resumes from offsets of its own."""
        if self._address.group is None:
            return
        try:
            self._client.commit(self._parse_position(end).next)
        except KafkaException as error:
            failure = self._client.failure(error)
            if not isinstance(failure, NotYetError):
                raise failure from None

    def backlog(self, offset: Offset) -> Backlog:
        """The number of waiting messages, as of the latest fetch."""
        position = self._parse_position(offset).next
        backlogs = {
            partition: self._client.cached_end(partition) - next_offset
            for partition, next_offset in position.items()
        }
        nonempty = {partition: count for partition, count in backlogs.items() if count > 0}
        if not nonempty:
            return Backlog("0 messages behind")
        (topic, number), largest = max(nonempty.items(), key=lambda entry: entry[1])
        line = f"{sum(nonempty.values()):,} messages behind"
        return Backlog(line if len(position) == 1 else f"{line}, {largest:,} of them in {topic}[{number}]")

    def close(self) -> None:
        self._client.close()

    def _parse_position(self, offset: Offset) -> TopicPosition:
        position = TopicPosition.of(offset)
        if position.cluster != self._cluster:
            raise SourceError(
                f"{self._address.shown}: the saved offset belongs to cluster {position.cluster}, but this is"
                f" cluster {self._cluster}; start a new run"
            )
        return position

    def _topic_reader(self, topic: str) -> TopicReader:
        if topic not in self._topic_readers:
            self._topic_readers[topic] = TopicReader(
                topic, self._schema, self._address.form, horizon=self._horizon
            )
        return self._topic_readers[topic]

    def _reader_at(self, position: TopicPosition) -> tuple[PartitionReader, TopicPosition]:
        """A reader at ``position``, and this position with newly found partitions."""
        if self._partition_reader is None or self._partition_reader.offsets() != position.next:
            self._partition_reader = None
            self._active_at = self._clock.now()
            position = self._without_deleted(position)
        position = self._with_new_partitions(position)
        if self._partition_reader is None:
            self._partition_reader = PartitionReader(self._client, self._topic_reader, position.next)
        return self._partition_reader, position

    def _with_new_partitions(self, position: TopicPosition) -> TopicPosition:
        """``position``, with new partitions from their beginning."""
        now = self._clock.now()
        if now - self._discovered_at >= _DISCOVER_EVERY:
            self._topics = find_topics(self._address, self._schema, self._client)
            self._discovered_at = now
            position = self._without_deleted(position)
        for partition in [
            partition for partition in self._topics.partitions if partition not in position.next
        ]:
            begin, _ = self._client.offset_range(partition)
            first = position.first | ({partition: begin} if begin else {})
            ids = position.ids | {
                topic: name for topic, name in self._topics.ids.items() if topic == partition[0]
            }
            position = replace(position, next=position.next | {partition: begin}, first=first, ids=ids)
            self._notices.append(f"{partition[0]}[{partition[1]}] is new: reading it from its beginning")
            if self._partition_reader is not None:
                self._partition_reader.add(partition, begin)
        return position

    def _without_deleted(self, position: TopicPosition) -> TopicPosition:
        """``position`` without topics that were deleted, or deleted and created again, since.

        Offsets do not apply to the messages of another topic with the same name. Raises SourceError unless
        the address allows lost messages.
        """
        for topic in sorted({topic for topic, _ in position.next}):
            reason = self._loss_reason(topic, position)
            if not reason:
                continue
            message = f"{self._address.shown}: {reason} since the offset was saved"
            if self._address.lost is Lost.FAIL:
                raise SourceError(
                    f"{message} (start a new run, or read its new messages with ?lost=skip in the address)"
                )
            self._notices.append(f"{message}; its unread messages are lost")
            position, self._partition_reader = position.without(topic), None
        ids = {topic: name for topic, name in self._topics.ids.items() if (topic, 0) in position.next}
        return replace(position, ids=ids | position.ids)

    def _loss_reason(self, topic: str, position: TopicPosition) -> str:
        size = self._topics.sizes.get(topic, 0)
        if not size:
            return f"topic {topic} was deleted"
        partition_count = 1 + max(number for name, number in position.next if name == topic)
        topic_id = self._topics.ids.get(topic)
        if partition_count > size or (topic_id is not None and position.ids.get(topic, topic_id) != topic_id):
            return f"topic {topic} was deleted and created again"
        return ""

    def _take(self, reader: PartitionReader, limit: int) -> list[Message]:
        messages: list[Message] = []
        count = 0
        while count < limit:
            new_messages = reader.take(limit - count, self._latest)
            messages += new_messages
            count += sum(len(message.items) for message in new_messages)
            try:
                if count >= limit or not (reader.fill(0 if messages else _WAIT_SECONDS) or new_messages):
                    break
            except GapError as gap:
                self._skip_gap(gap, reader)
            except KafkaException as error:
                # Keep the messages read so far; the client retries by itself.
                self._handle_error(error)
                break
            self._active_at = self._clock.now()
        self._check_brokers(reader)
        return messages

    def _check_brokers(self, reader: PartitionReader) -> None:
        """Notice unreachable brokers, and partitions that have messages but send none."""
        now = self._clock.now()
        for error in self._client.errors():
            if not self._retry.too_early:
                self._handle_error(KafkaException(error))
        partitions = reader.dry()
        if not partitions:
            self._active_at = now
        elif now - self._active_at > _SILENCE and not self._retry.away:
            topic, number = partitions[0]
            self._retry.record_failure(SourceError(f"{self._address.shown}: no answer for {topic}[{number}]"))
            self._discovered_at = now - _DISCOVER_EVERY

    def _is_answering(self) -> bool:
        """True if the brokers answer; while they do not, they are asked only from time to time."""
        if not self._retry.away:
            return True
        if self._retry.too_early:
            return False
        self._client.ping(_PROBE_SECONDS)
        self._retry.record_success()
        self._active_at = self._clock.now()
        self._client.errors()
        return True

    def _handle_error(self, error: KafkaException) -> None:
        failure = self._client.failure(error)
        if is_missing(error.args[0]):
            # The next poll checks whether the topic was deleted.
            self._discovered_at = self._clock.now() - _DISCOVER_EVERY
        elif not isinstance(failure, NotYetError):
            raise failure
        self._retry.record_failure(failure)

    def _messages_between(
        self, begins: Mapping[Partition, int], ends: Mapping[Partition, int], latest: int
    ) -> list[Message]:
        if not ends:
            return []
        horizon = self._horizon.fixed(latest)

        @cache
        def reader_of(topic: str) -> TopicReader:
            return TopicReader(topic, self._schema, self._address.form, horizon=horizon)

        reader = PartitionReader(self._client, reader_of, begins, ends)
        while not reader.complete():
            try:
                reader.fill(_WAIT_SECONDS)
                for error in self._client.errors():
                    self._handle_error(KafkaException(error))
                    self._retry.wait()
            except GapError as gap:
                self._skip_gap(gap, reader)
            except KafkaException as error:
                self._handle_error(error)
                self._retry.wait()
        return [message.bounded(latest) for message in reader.all()]

    def _skip_gap(self, gap: GapError, reader: PartitionReader) -> None:
        """Skip offsets that are gone, if the address allows it. Raises SourceError, KafkaException."""
        first, end = self._client.offset_range(gap.partition)
        topic, number = gap.partition
        partition_name = f"{topic}[{number}]"
        range_text = (
            f"it begins at {first}"
            if gap.offset < first
            else f"it ends at {end}: was the topic deleted and created again?"
        )
        message = (
            f"{self._address.shown}: {partition_name} no longer has the offset {gap.offset}; {range_text}"
        )
        if self._address.lost is Lost.FAIL:
            raise SourceError(
                f"{message} (start a new run, or skip the lost messages by ?lost=skip in the address)"
            )
        self._notices.append(f"{message}; continuing at {first}")
        reader.skip_to(gap.partition, first)

    def _stream_chunk(self, messages: list[Message]) -> Chunk:
        chunk = chunk_of(messages)
        stream_chunk = chunk.without(self._static)
        if len(stream_chunk) < len(chunk) and not self._static_rows:
            self._static_rows = True
            self._notices.append(
                f"{self._address.shown}: a stream contains rows of static tables, which are only read at"
                " the start, from topics of their own"
            )
        return stream_chunk

    def _take_notices(self) -> tuple[str, ...]:
        for reader in self._topic_readers.values():
            self._notices += reader.notices()
        notices = (*self._notices, *self._retry.take_notices())
        self._notices.clear()
        return notices


@dataclass(frozen=True)
class KafkaSource(Source):
    """Topics to follow."""

    address: TopicAddress
    clock: Clock = field(default_factory=SystemClock)
    horizon: Horizon = ANY_TIME

    @property
    def name(self) -> str:
        return self.address.shown

    @property
    def divisible(self) -> bool:
        return True

    def open(self, schema: Schema) -> Feed:
        return KafkaFeed(self.address, schema, self.clock, self.horizon)


@dataclass(frozen=True)
class KafkaPart(FeedPart):
    """Messages of some partitions, for another process.

    ``ahead``: as in ``Horizon``. ``latest``: the latest time that it allowed when the messages were read.
    """

    address: TopicAddress
    begins: Mapping[Partition, int]
    ends: Mapping[Partition, int]
    latest: int
    ahead: int | None

    def read(self, schema: Schema) -> Iterator[Chunk]:
        yield cached_feed(self.address, schema, self.ahead).between(self.begins, self.ends, self.latest)


@lru_cache(maxsize=1)
def cached_feed(address: TopicAddress, schema: Schema, ahead: int | None) -> KafkaFeed:
    """A feed for consecutive parts read by one process, since connecting takes longer than reading a few."""
    return KafkaFeed(address, schema, SystemClock(), ANY_TIME if ahead is None else Horizon(ahead))


_Nested = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class TopicPosition:
    """The next offset of each partition.

    ``first``: the first offsets of partitions that were found later, unless 0. ``ids``: the ids of topics.
    ``horizon``: that of refused messages; see ``latest_between``.
    """

    cluster: str
    next: dict[Partition, int]
    first: dict[Partition, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    horizon: RefusalMark | None = None

    @classmethod
    def of(cls, offset: Offset) -> TopicPosition:
        """The position in an offset. Raises SourceError if it is not an offset of Kafka."""
        return parse_offset(
            offset,
            "Kafka topics",
            lambda: cls(
                str(offset["cluster"]),
                _flat(offset["next"]),
                _flat(offset.get("first", {})),
                {topic: str(name) for topic, name in offset.get("ids", {}).items()},
                RefusalMark.of(offset),
            ),
        )

    def offset(self) -> Offset:
        offset: Offset = {"cluster": self.cluster, "next": _nested(self.next)}
        offset |= {"first": _nested(self.first)} if self.first else {}
        offset |= {} if self.horizon is None else {HORIZON: list(self.horizon)}
        return offset | ({"ids": dict(sorted(self.ids.items()))} if self.ids else {})

    def without(self, topic: str) -> TopicPosition:
        return TopicPosition(
            self.cluster,
            {partition: offset for partition, offset in self.next.items() if partition[0] != topic},
            {partition: offset for partition, offset in self.first.items() if partition[0] != topic},
            {name: topic_id for name, topic_id in self.ids.items() if name != topic},
            self.horizon,
        )


def _flat(nested: _Nested) -> dict[Partition, int]:
    return {
        (topic, int(number)): int(offset)
        for topic, parts in nested.items()
        for number, offset in parts.items()
    }


def _nested(flat: dict[Partition, int]) -> _Nested:
    nested: _Nested = {}
    for (topic, number), offset in sorted(flat.items()):
        nested.setdefault(topic, {})[str(number)] = offset
    return nested
