"""Topics as a feed: messages between offsets of each partition, by time across partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from confluent_kafka import KafkaException

from schema.errors import NotYetError, SourceError
from schema.model import Schema
from skws.records import Record
from skws.sources.clock import Clock
from skws.sources.feed import Batch, Item, Offset
from skws.sources.kafka.address import Address, Begin, Lost
from skws.sources.kafka.client import Client
from skws.sources.kafka.finding import Topics, found_topics
from skws.sources.kafka.following import Following, GapError
from skws.sources.kafka.merging import Message, Partition, in_order
from skws.sources.kafka.messages import TopicReader
from skws.sources.kafka.position import Position
from skws.sources.kafka.settings import Settings
from skws.sources.kafka.tables import table_rows
from skws.sources.outage import Outage

# How long a poll waits for a message where none is here.
_WAIT_SECONDS: Final = 0.05
_PROBE_SECONDS: Final = 1.0
# Partitions come rarely; how long one may be waited for that gives nothing though it has more.
_LOOK_EVERY: Final = 30_000_000
_SILENCE: Final = 15_000_000


class KafkaFeed:
    """Follows the topics of ``address``."""

    tables_come = False

    def __init__(self, address: Address, schema: Schema, clock: Clock) -> None:
        """Raises SourceError without topics, NotYetError without brokers, SchemaError for wrong settings."""
        self._address = address
        self._schema = schema
        self._clock = clock
        self._client = Client(address, Settings.of(address))
        self._outage = Outage(address.shown, clock)
        self._notices: list[str] = []
        self._readers: dict[str, TopicReader] = {}
        self._static = frozenset(i for i, relation in enumerate(schema.relations) if relation.table)
        self._static_rows = False
        self._following: Following | None = None
        try:
            self._cluster = self._client.connected()
            self._topics: Topics = found_topics(address, schema, self._client)
        except KafkaException as error:
            self._client.close()
            raise self._client.failure(error) from None
        except SourceError:
            self._client.close()
            raise
        self._notices += self._topics.notices
        for topic in self._topics.streams:
            self._reader(topic)
        self._looked = self._heard_at = clock.now()

    def adopt(self, schema: Schema) -> None:
        """Topics of relations that are new are read from their beginning."""
        before = self._schema, self._readers
        self._schema, self._readers = schema, {}
        try:
            self._topics = found_topics(self._address, schema, self._client)
            for topic in self._topics.streams:
                self._reader(topic)
        except KafkaException as error:
            self._schema, self._readers = before
            raise self._client.failure(error) from None
        except SourceError:
            self._schema, self._readers = before
            raise
        self._static = frozenset(i for i, relation in enumerate(schema.relations) if relation.table)
        self._following = None

    def start(self) -> Offset:
        """Before the first message of every partition, or behind the last."""
        latest = self._address.begin is Begin.LATEST
        try:
            reach = {one: self._client.reach(one) for one in self._topics.partitions}
        except KafkaException as error:
            raise self._client.failure(error) from None
        return Position(self._cluster, {one: ends[latest] for one, ends in reach.items()}).offset()

    def tables(self) -> Iterator[Item]:
        """The rows of the topics that are named after static tables, as they are now."""
        try:
            yield from table_rows(self._address, self._schema, self._client, self._topics.tables)
        except KafkaException as error:
            raise self._client.failure(error) from None
        finally:
            self._following = None

    def poll(self, start: Offset, limit: int) -> Batch:
        """Messages that are here. While the brokers are away, empty."""
        position = self._checked(start)
        taken: list[Message] = []
        try:
            if self._there():
                following, position = self._at(position)
                taken = self._taken(following, limit)
                position = replace(position, next=following.offsets())
        except KafkaException as error:
            self._failed(error)
        items = self._streamed(in_order(taken))
        return Batch(items, position.offset(), self._told())

    def again(self, start: Offset, end: Offset) -> Iterator[Item]:
        """From the same messages; waits for the brokers if they are away."""
        first, last = self._checked(start), self._checked(end)
        begins = {one: first.next.get(one, last.first.get(one, 0)) for one in last.next}
        ends = {one: at for one, at in last.next.items() if begins[one] != at}
        self._following = None
        yield from self._streamed(in_order(self._between({one: begins[one] for one in ends}, ends)))

    def commit(self, end: Offset) -> None:
        """Tell the consumer group, if one was named; offsets are kept with the run."""
        if self._address.group is None:
            return
        try:
            self._client.commit(self._checked(end).next)
        except KafkaException as error:
            failure = self._client.failure(error)
            if not isinstance(failure, NotYetError):
                raise failure from None

    def behind(self, offset: Offset) -> str:
        """How many messages wait, as the brokers told last."""
        given = self._checked(offset).next
        waiting = {one: self._client.known_end(one) - at for one, at in given.items()}
        busy = {one: count for one, count in waiting.items() if count > 0}
        if not busy:
            return "0 messages behind"
        (topic, number), most = max(busy.items(), key=lambda entry: entry[1])
        line = f"{sum(busy.values()):,} messages behind"
        return line if len(given) == 1 else f"{line}, {most:,} of them in {topic}[{number}]"

    def close(self) -> None:
        self._client.close()

    def _checked(self, offset: Offset) -> Position:
        position = Position.of(offset)
        if position.cluster != self._cluster:
            raise SourceError(
                f"{self._address.shown}: the offset is of the cluster {position.cluster}, and this is"
                f" {self._cluster}; begin anew"
            )
        return position

    def _reader(self, topic: str) -> TopicReader:
        if topic not in self._readers:
            self._readers[topic] = TopicReader(topic, self._schema, self._address.form)
        return self._readers[topic]

    def _at(self, position: Position) -> tuple[Following, Position]:
        """What follows from ``position``, and where that is with the partitions that were found since."""
        if self._following is None or self._following.offsets() != position.next:
            self._following = None
            self._heard_at = self._clock.now()
        position = self._with_new(position)
        if self._following is None:
            self._following = Following(self._client, self._reader, position.next)
        return self._following, position

    def _with_new(self, position: Position) -> Position:
        """``position``, with partitions that it does not have yet from their beginning on."""
        now = self._clock.now()
        if now - self._looked >= _LOOK_EVERY:
            self._topics = found_topics(self._address, self._schema, self._client)
            self._looked = now
        for one in [one for one in self._topics.partitions if one not in position.next]:
            begin, _ = self._client.reach(one)
            first = position.first | ({one: begin} if begin else {})
            position = replace(position, next=position.next | {one: begin}, first=first)
            self._notices.append(f"{one[0]}[{one[1]}] is new: it is read from its beginning")
            if self._following is not None:
                self._following.add(one, begin)
        return position

    def _taken(self, following: Following, limit: int) -> list[Message]:
        taken: list[Message] = []
        count = 0
        while count < limit:
            some = following.take(limit - count)
            taken += some
            count += sum(len(message.items) for message in some)
            try:
                if count >= limit or not (following.fill(0 if taken else _WAIT_SECONDS) or some):
                    break
            except GapError as gap:
                self._pass(gap, following)
            except KafkaException as error:
                # What was taken is kept; the client tries again by itself.
                self._failed(error)
                break
            self._heard_at = self._clock.now()
        self._listen(following)
        return taken

    def _listen(self, following: Following) -> None:
        """Notice brokers that are away, and partitions that are silent though they have more."""
        now = self._clock.now()
        for error in self._client.heard():
            if not self._outage.too_early:
                self._failed(KafkaException(error))
        dry = following.dry()
        if not dry:
            self._heard_at = now
        elif now - self._heard_at > _SILENCE and not self._outage.lasts:
            topic, number = dry[0]
            self._outage.failed(SourceError(f"{self._address.shown}: no answer for {topic}[{number}]"))

    def _there(self) -> bool:
        """Whether to ask at all: while brokers are away, only now and then."""
        if not self._outage.lasts:
            return True
        if self._outage.too_early:
            return False
        self._client.answers(_PROBE_SECONDS)
        self._outage.over()
        self._heard_at = self._clock.now()
        self._client.heard()
        return True

    def _failed(self, error: KafkaException) -> None:
        failure = self._client.failure(error)
        if not isinstance(failure, NotYetError):
            raise failure
        self._outage.failed(failure)

    def _between(self, begins: Mapping[Partition, int], ends: Mapping[Partition, int]) -> list[Message]:
        if not ends:
            return []
        following = Following(self._client, self._reader, begins, ends)
        while not following.complete():
            try:
                following.fill(_WAIT_SECONDS)
                for error in self._client.heard():
                    self._failed(KafkaException(error))
                    self._outage.wait()
            except GapError as gap:
                self._pass(gap, following)
            except KafkaException as error:
                self._failed(error)
                self._outage.wait()
        return following.all()

    def _pass(self, gap: GapError, following: Following) -> None:
        """Go on behind what is gone, if that is wanted. Raises SourceError, KafkaException."""
        first, end = self._client.reach(gap.partition)
        topic, number = gap.partition
        place = f"{topic}[{number}]"
        there = (
            f"it begins at {first}" if gap.offset < first else f"it ends at {end}: was the topic made anew?"
        )
        lost = f"{self._address.shown}: {place} no longer has the offset {gap.offset}; {there}"
        if self._address.lost is Lost.FAIL:
            raise SourceError(
                f"{lost} (begin anew, or go on without what is lost by ?lost=skip in the address)"
            )
        self._notices.append(f"{lost}; going on at {first}")
        following.go_on_at(gap.partition, first)

    def _streamed(self, items: list[Item]) -> list[Item]:
        """Without the rows of static tables, which are not of the stream."""
        if not self._static:
            return items
        given = [i for i in items if not isinstance(i, Record) or i.relation not in self._static]
        if len(given) < len(items) and not self._static_rows:
            self._static_rows = True
            self._notices.append(
                f"{self._address.shown}: rows of static tables take no part in the stream; they are read at"
                " the start, from topics of their own"
            )
        return given

    def _told(self) -> tuple[str, ...]:
        for reader in self._readers.values():
            self._notices += reader.notices()
        told = (*self._notices, *self._outage.told())
        self._notices.clear()
        return told
