"""The consumer: partitions that are given to it, and errors as users read them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from schema.errors import NotYetError, SchemaError, SourceError
from skws.sources.kafka.address import Address
from skws.sources.kafka.merging import Partition
from skws.sources.kafka.settings import Settings

_ANSWER_SECONDS: Final = 10.0
# What passes by itself, beside what the client calls retriable.
_PASSING: Final = frozenset(
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
# What is of no use to who reads why a connection failed.
_STATE: Final = re.compile(r" \(after \d+ms in state \w+[^)]*\)")
_SILENT: Final = logging.Logger("skws.kafka", logging.CRITICAL + 1)


def passing(error: KafkaError) -> bool:
    """Whether it is worth to try again."""
    return error.code() in _PASSING or error.retriable()


class Client:
    """Reads partitions from offsets on; methods raise KafkaException while there is no answer."""

    def __init__(self, address: Address, settings: Settings) -> None:
        """Raises SchemaError for settings that the client does not take; connects to nothing yet."""
        self._shown = address.shown
        self._settings = settings
        self._heard: list[KafkaError] = []
        self._reason = ""
        try:
            self._consumer = Consumer({**settings.values, "error_cb": self._hear}, logger=_SILENT)
        except KafkaException as error:
            raise SchemaError(f"{self._shown}: {settings.clean(_told(error.args[0]))}") from None
        except (TypeError, ValueError) as error:
            raise SchemaError(f"{self._shown}: {settings.clean(str(error))}") from None

    def connected(self) -> str:
        """The name of the cluster, once a broker answers."""
        for _ in range(int(_ANSWER_SECONDS)):
            try:
                self.answers(1.0)
                break
            except KafkaException:
                # Why, is told to those who poll.
                self._consumer.poll(0)
                if self._heard:
                    raise KafkaException(self._heard[0]) from None
        return self._consumer.cluster_id(_ANSWER_SECONDS)

    def topics(self) -> dict[str, int]:
        """The topics there are, with the number of their partitions."""
        found = self._consumer.list_topics(timeout=_ANSWER_SECONDS).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def partitions(self, topic: str) -> list[Partition]:
        """Those of one topic; none if there is no such topic."""
        found = self._consumer.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic]
        return [] if found.error is not None else [(topic, number) for number in sorted(found.partitions)]

    def answers(self, seconds: float) -> None:
        """Raises KafkaException if no broker does."""
        self._consumer.list_topics(timeout=seconds)
        self._reason = ""

    def reach(self, partition: Partition) -> tuple[int, int]:
        """The first offset there is, and the one behind the last."""
        first, end = self._consumer.get_watermark_offsets(TopicPartition(*partition), _ANSWER_SECONDS)
        return first, end

    def known_end(self, partition: Partition) -> int:
        """The offset behind the last message as the last fetch told it; below 0 before the first."""
        found = self._consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
        return found[1] if found else -1

    def assign(self, offsets: Mapping[Partition, int]) -> None:
        """Read these partitions and no other, from these offsets on."""
        given = [TopicPartition(*one, at) for one, at in offsets.items()]
        self._consumer.assign(given)
        # A partition that was paused stays so, assigned anew or not.
        self._consumer.resume(given)

    def add(self, partition: Partition, offset: int) -> None:
        self._consumer.incremental_assign([TopicPartition(*partition, offset)])

    def move(self, partition: Partition, offset: int) -> None:
        self._consumer.incremental_unassign([TopicPartition(*partition)])
        self.add(partition, offset)

    def pause(self, partition: Partition) -> None:
        self._consumer.pause([TopicPartition(*partition)])

    def resume(self, partition: Partition) -> None:
        self._consumer.resume([TopicPartition(*partition)])

    def fetch(self, most: int, seconds: float) -> list[Message]:
        """What is here, at most ``most`` messages; waits for the first so long."""
        first = self._consumer.consume(1, seconds)
        return first + self._consumer.consume(most, 0) if first else first

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Tell the group how far it is; for those who watch it, not for us."""
        told = [TopicPartition(*one, at) for one, at in offsets.items()]
        self._consumer.commit(offsets=told, asynchronous=True)

    def heard(self) -> Iterable[KafkaError]:
        """The errors that matter since the last call."""
        heard, self._heard = self._heard, []
        return heard

    def close(self) -> None:
        self._consumer.close()

    def failure(self, error: KafkaException) -> SourceError:
        """What the client says, without passwords; NotYetError if it passes."""
        cause = error.args[0]
        told = _told(cause)
        if self._reason and self._reason not in told:
            told = f"{told} ({self._reason})"
        kind = NotYetError if isinstance(cause, KafkaError) and passing(cause) else SourceError
        return kind(f"{self._shown}: {self._settings.clean(told)}")

    def _hear(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN or error.code() in _FINAL:
            self._heard.append(error)
        else:
            self._reason = _told(error)


def _told(error: Any) -> str:
    return _STATE.sub("", error.str()) if isinstance(error, KafkaError) else str(error)
