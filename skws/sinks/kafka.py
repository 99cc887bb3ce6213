"""Results as messages of a Kafka topic, exactly once: each batch is one transaction.

The transaction also commits the number of the batch, as the offset of a consumer group of the run. A later
process reads it, and skips the batches up to it. While the brokers are unreachable, the run waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from skws.formats.dead_letters import unwritable
from skws.results.result import LiveResult
from skws.sinks.base import NONE, BatchSink, SinkProgress, SinkRun, persistently
from skws.sources.kafka.client import SILENT, error_text, is_transient
from skws.sources.kafka.topic_address import Settings, TopicAddress
from skws_schema.errors import NotYetError, SchemaError, SourceError, UsageError

T = TypeVar("T")

_DEFAULTS: Final = {"client.id": "skws", "socket.timeout.ms": "10000", "reconnect.backoff.max.ms": "5000"}
_OWN_SETTINGS: Final = {
    "isolation.level": "read_committed",
    "enable.idempotence": "true",
    "transactional.id": "skws",
    "enable.auto.commit": "false",
}
_FENCED_CODES: Final = frozenset(
    {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
)
_REFUSED_CODES: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError.MSG_SIZE_TOO_LARGE,
    }
)
"""Errors for which a retry cannot help, although they abort a transaction like transient ones."""
_TRANSIENT_CODES: Final = frozenset({KafkaError.LEADER_NOT_AVAILABLE, KafkaError.INVALID_PRODUCER_ID_MAPPING})
"""Further transient errors: a new topic; a producer that the brokers forgot after days without results."""
_ANSWER_SECONDS: Final = 10.0
_FULL_SECONDS: Final = 0.1
_MOST_BYTES: Final = 1_000_000
"""The default limit for a message in bytes, below the default of brokers."""


class KafkaSink(BatchSink):
    """Sends messages with a result as JSON and its id as the key, so that a retraction follows its result.

    The constructor raises UsageError for an address that is not of one topic, SchemaError for wrong settings.
    """

    def __init__(self, address: TopicAddress) -> None:
        super().__init__()
        if len(address.topics) != 1 or address != TopicAddress(
            address.brokers, address.topics, config=address.config
        ):
            raise UsageError(
                f"sink {address.shown}: expected kafka://HOST:PORT/TOPIC with one topic,"
                " and no parameter but ?config=FILE"
            )
        self._address = address
        self._topic = address.topics[0]
        self.place = "kafka", address.brokers, self._topic
        self._settings = Settings.of(address, defaults=_DEFAULTS, own=_OWN_SETTINGS)
        self._max_bytes = self._limit()
        self._producer: Producer | None = None

    def _limit(self) -> int:
        limit = self._settings.values.get("message.max.bytes", "")
        return int(limit) if limit.isdecimal() else _MOST_BYTES  # the client refuses anything else

    @property
    def name(self) -> str:
        return self._address.shown

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        # Also for committed batches, whose dead letters may not be durable.
        super().write(batch, [result for result in results if self._fits(result)])

    def _fits(self, result: LiveResult) -> bool:
        """True if a result fits in a message, by the client's rules; otherwise it is refused."""
        size = len(result.to_json()) + len(result.id)
        if size <= self._max_bytes:
            return True
        reason = (
            f"cannot be written to {self.name}: {size:,} bytes, and message.max.bytes is {self._max_bytes:,}"
            " (set it in ?config=FILE, and max.message.bytes of the topic)"
        )
        self._run.refused.append(unwritable(result, reason))
        return False

    def _opened(self, run: SinkRun) -> int:
        self._progress = SinkProgress(run, self.name)
        self._identity = f"skws-{run.id}-{self._topic}"
        # Brokers forget the offsets of a group after days without use.
        self._committed = int(self._progress.read().get("batch", NONE))
        persistently(run, self.name, lambda: self._call(self._read_committed))
        return self._committed

    def _take_over(self) -> None:
        persistently(self._run, self.name, lambda: self._attempt(lambda _: None))

    def _put(self, batch: int, results: Sequence[LiveResult]) -> None:
        persistently(
            self._run,
            self.name,
            lambda: self._attempt(lambda producer: self._write(producer, batch, results)),
        )

    def _keep(self, batch: int) -> None:
        self._progress.keep(batch)

    def close(self) -> None:
        """Leaves an open transaction to the next producer of the run, which aborts it."""
        if self._producer is not None:
            self._producer.purge()
            self._consumer.close()
            self._producer = None

    def _attempt(self, work: Callable[[Producer], None]) -> None:
        """Work with a producer. Raises NotYetError if a retry may help, otherwise SourceError."""
        self._call(lambda: work(self._producer or self._connect()))

    def _call(self, work: Callable[[], None]) -> None:
        """Work with the brokers. Raises NotYetError if a retry may help, otherwise SourceError."""
        try:
            work()
        except KafkaException as error:
            self.close()
            raise self._failure(error.args[0]) from None

    def _read_committed(self) -> None:
        """Read the number of the last committed batch, except for one in doubt.

        A producer would fence off the producer of another process of the run, so it is created later.
        """
        consumer = self._client(Consumer, **{"isolation.level": "read_uncommitted"})
        try:
            self._check_topic(consumer)
            self._committed = max(self._committed, self._batch_of(consumer))
        finally:
            consumer.close()

    def _connect(self) -> Producer:
        """Create a producer, which resolves a transaction in doubt, and read the last committed batch."""
        producer, self._consumer = self._client(Producer), self._client(Consumer)
        self._producer = producer
        self._check_topic(producer)
        producer.init_transactions(_ANSWER_SECONDS)
        self._committed = max(self._committed, self._batch_of(self._consumer))
        return producer

    def _client(self, kind: Callable[..., T], **more: str) -> T:
        """A client of the run. Raises SchemaError."""
        settings = {"transactional.id": self._identity, "group.id": self._identity, **more}
        try:
            return kind({**self._settings.values, **settings}, logger=SILENT)
        except (KafkaException, TypeError, ValueError) as error:
            raise SchemaError(f"{self.name}: {self._settings.clean(error_text(error.args[0]))}") from None

    def _check_topic(self, client: Consumer | Producer) -> None:
        """Raises KafkaException if the topic does not exist."""
        metadata = client.list_topics(self._topic, timeout=_ANSWER_SECONDS).topics[self._topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)

    def _batch_of(self, consumer: Consumer) -> int:
        """The last committed batch; below 0 for none."""
        (partition,) = consumer.committed([TopicPartition(self._topic, 0)], _ANSWER_SECONDS)
        if partition.error is not None:
            raise KafkaException(partition.error)
        return int(partition.offset)

    def _write(self, producer: Producer, batch: int, results: Sequence[LiveResult]) -> None:
        if self._committed >= batch:
            return  # an earlier attempt was committed, but its answer was lost
        producer.begin_transaction()
        for result in results:
            self._send(producer, result)
        number = [TopicPartition(self._topic, 0, batch)]
        group = self._consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(number, group, _ANSWER_SECONDS)
        producer.commit_transaction(_ANSWER_SECONDS)
        self._committed = batch

    def _send(self, producer: Producer, result: LiveResult) -> None:
        while True:
            try:
                producer.produce(self._topic, result.to_json(), result.id)
            except BufferError:
                producer.poll(_FULL_SECONDS)
            else:
                producer.poll(0)
                return

    def _failure(self, error: KafkaError) -> SourceError:
        reason = f"{self.name}: {self._settings.clean(error_text(error))}"
        if error.code() in _FENCED_CODES:
            return SourceError(
                f"{reason} (another process writes for this run, or the transaction took longer than"
                " transaction.timeout.ms)"
            )
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return SourceError(
                f"{self.name}: topic {self._topic} does not exist, and the brokers do not create topics"
            )
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return SourceError(
                f"{reason}: topic {self._topic} accepts no message of {self._max_bytes:,} bytes: raise its"
                " max.message.bytes, or set message.max.bytes to it in ?config=FILE, so that larger results"
                " are left out"
            )
        is_retriable = is_transient(error) or error.txn_requires_abort() or error.code() in _TRANSIENT_CODES
        return (
            NotYetError(reason)
            if is_retriable and error.code() not in _REFUSED_CODES
            else SourceError(reason)
        )
