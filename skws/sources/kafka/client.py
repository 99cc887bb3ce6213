"""The Kafka consumer: it reads the partitions that it is assigned, and describes errors for users."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from skws.sources.kafka.topic_address import Settings, TopicAddress
from skws_schema.errors import NotYetError, SchemaError, SourceError

Partition: TypeAlias = tuple[str, int]
"""A topic and a number."""
_ANSWER_SECONDS: Final = 10.0
# Transient errors, in addition to those that the client calls retriable.
_TRANSIENT: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
        KafkaError._WAIT_CACHE,
    }
)
_FINAL: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._FATAL})
_GONE: Final = frozenset(
    {
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
    }
)
# The id that means "no id", which brokers before 2.8 return.
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
# Details that are of no use to users.
_STATE: Final = re.compile(r" \(after \d+ms in state \w+[^)]*\)")
SILENT: Final = logging.Logger("skws.kafka", logging.CRITICAL + 1)


def is_transient(error: KafkaError) -> bool:
    """True if a retry may help."""
    return error.code() in _TRANSIENT or error.retriable()


def is_missing(error: object) -> bool:
    """True if the error means that the topic or partition does not exist."""
    return isinstance(error, KafkaError) and error.code() in _GONE


class Client:
    """Reads partitions from given offsets on. Methods raise KafkaException while brokers do not answer."""

    def __init__(self, address: TopicAddress, settings: Settings) -> None:
        """Connects to nothing yet. Raises SchemaError for settings that the client rejects."""
        self._shown = address.shown
        self._settings = settings
        self._errors: list[KafkaError] = []
        self._reason = ""
        try:
            self._consumer = Consumer({**settings.values, "error_cb": self._on_error}, logger=SILENT)
        except KafkaException as error:
            raise SchemaError(f"{self._shown}: {settings.clean(error_text(error.args[0]))}") from None
        except (TypeError, ValueError) as error:
            raise SchemaError(f"{self._shown}: {settings.clean(str(error))}") from None

    def connect(self) -> str:
        """Wait for a broker to answer; returns the name of the cluster."""
        for _ in range(int(_ANSWER_SECONDS)):
            try:
                self.ping(1.0)
                break
            except KafkaException:
                # poll() reports why.
                self._consumer.poll(0)
                if self._errors:
                    raise KafkaException(self._errors[0]) from None
        return self._consumer.cluster_id(_ANSWER_SECONDS)

    def topics(self) -> dict[str, int]:
        """The number of partitions of every topic."""
        metadata = self._consumer.list_topics(timeout=_ANSWER_SECONDS).topics
        return {name: len(topic.partitions) for name, topic in metadata.items()}

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        """The ids of topics, if the brokers have ids.

        A topic that is deleted and created again gets another id.
        """
        cluster = self._consumer.list_topics(timeout=_ANSWER_SECONDS)
        # The controller answers; without one, the request would only time out.
        if not topics or cluster.controller_id not in cluster.brokers:
            return {}
        admin = AdminClient(dict(self._settings.values), logger=SILENT)
        descriptions = admin.describe_topics(TopicCollection(list(topics)), request_timeout=_ANSWER_SECONDS)
        ids: dict[str, str] = {}
        for topic, answer in descriptions.items():
            try:
                ids[topic] = str(answer.result().topic_id)
            except KafkaException as error:
                # Brokers that do not support ids, or deny access to them, do not prevent reading.
                if is_transient(error.args[0]):
                    raise
        return {topic: topic_id for topic, topic_id in ids.items() if topic_id != _NO_ID}

    def partitions(self, topic: str) -> list[Partition]:
        """The partitions of a topic; empty if the topic does not exist."""
        metadata = self._consumer.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic]
        return (
            [] if metadata.error is not None else [(topic, number) for number in sorted(metadata.partitions)]
        )

    def ping(self, seconds: float) -> None:
        """Raises KafkaException if no broker answers."""
        self._consumer.list_topics(timeout=seconds)
        self._reason = ""

    def offset_range(self, partition: Partition) -> tuple[int, int]:
        """The first offset of a partition, and the offset after the last message."""
        first, end = self._consumer.get_watermark_offsets(TopicPartition(*partition), _ANSWER_SECONDS)
        return first, end

    def cached_end(self, partition: Partition) -> int:
        """The offset after the last message, as of the latest fetch; negative before the first fetch."""
        watermarks = self._consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
        return watermarks[1] if watermarks else -1

    def assign(self, offsets: Mapping[Partition, int]) -> None:
        """Read only these partitions, from these offsets on."""
        assignment = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        self._consumer.assign(assignment)
        # A paused partition stays paused, even if assigned again.
        self._consumer.resume(assignment)

    def add(self, partition: Partition, offset: int) -> None:
        self._consumer.incremental_assign([TopicPartition(*partition, offset)])

    def move(self, partition: Partition, offset: int) -> None:
        self._consumer.incremental_unassign([TopicPartition(*partition)])
        self.add(partition, offset)

    def pause(self, partition: Partition) -> None:
        self._consumer.pause([TopicPartition(*partition)])

    def resume(self, partition: Partition) -> None:
        self._consumer.resume([TopicPartition(*partition)])

    def fetch(self, limit: int, seconds: float) -> list[Message]:
        """At most ``limit`` messages that have arrived; waits ``seconds`` for the first."""
        first = self._consumer.consume(1, seconds)
        return first + self._consumer.consume(limit, 0) if first else first

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets to the consumer group, for monitoring; runs resume from offsets of their own."""
        next_offsets = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        self._consumer.commit(offsets=next_offsets, asynchronous=True)

    def errors(self) -> Iterable[KafkaError]:
        """The errors to report since the last call."""
        errors, self._errors = self._errors, []
        return errors

    def close(self) -> None:
        self._consumer.close()

    def failure(self, error: KafkaException) -> SourceError:
        """The error for users, without passwords; NotYetError if it is transient."""
        cause = error.args[0]
        reason = error_text(cause)
        if self._reason and self._reason not in reason:
            reason = f"{reason} ({self._reason})"
        kind = NotYetError if isinstance(cause, KafkaError) and is_transient(cause) else SourceError
        return kind(f"{self._shown}: {self._settings.clean(reason)}")

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN or error.code() in _FINAL:
            self._errors.append(error)
        else:
            self._reason = error_text(error)


def error_text(error: Any) -> str:
    """The text of an error, without details that are of no use to users."""
    return _STATE.sub("", error.str()) if isinstance(error, KafkaError) else str(error)
