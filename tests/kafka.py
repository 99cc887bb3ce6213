"""A Kafka broker for tests: librdkafka's mock cluster, in a separate process, over real TCP.

It stores topics, offsets and groups like a broker. It can be stopped, restarted,
and made to delete old messages. Other processes connect to it.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Producer

from tests.places import ROOT
from tests.waiting import until

_PRODUCER = 0
_BROKER = 1


def _library() -> ctypes.CDLL:
    """The librdkafka that confluent_kafka has loaded."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    path = next(line.split()[-1] for line in maps if "librdkafka" in line and "/" in line)
    library = ctypes.CDLL(path)
    for name in ("rd_kafka_new", "rd_kafka_conf_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


def serve() -> None:
    """Runs a cluster; each line of standard input is a command, answered by a line."""
    library = _library()
    reason = ctypes.create_string_buffer(512)
    conf = ctypes.c_void_p(library.rd_kafka_conf_new())
    kafka = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, conf, reason, len(reason)))
    cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(kafka, 1))
    print(library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    for line in sys.stdin:
        op, *arguments = line.split()
        match op, arguments:
            case "create", [topic, partitions]:
                status = library.rd_kafka_mock_topic_create(cluster, topic.encode(), int(partitions), 1)
            case "delete", [topic]:
                status = library.rd_kafka_mock_topic_delete(cluster, topic.encode())
            case "trim", [topic, partition, before]:
                status = library.rd_kafka_mock_partition_delete_records(
                    cluster, topic.encode(), int(partition), ctypes.c_int64(int(before))
                )
            case "down", []:
                status = library.rd_kafka_mock_broker_set_down(cluster, _BROKER)
            case "up", []:
                status = library.rd_kafka_mock_broker_set_up(cluster, _BROKER)
            case _:
                raise ValueError(f"unknown command: {line!r}")
        print(status, flush=True)


def address(broker: str, *topics: str, **parameters: str) -> str:
    """The address of topics, as a source or a sink."""
    query = "&".join(f"{name}={value}" for name, value in parameters.items()).replace("from_=", "from=")
    return f"kafka://{broker}/{','.join(topics)}" + (f"?{query}" if query else "")


class MockBroker:
    """A broker in a separate process, controlled through its standard input."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kafka"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        self._producer = Producer(
            {"bootstrap.servers": self.address, "linger.ms": "0"}, logger=logging.Logger("silent", 60)
        )

    def uri(self, *topics: str, **parameters: str) -> str:
        return address(self.address, *topics, **parameters)

    def create(self, topic: str, partitions: int = 1) -> None:
        self._send_command(f"create {topic} {partitions}")

    def delete(self, topic: str) -> None:
        self._send_command(f"delete {topic}")

    def trim(self, topic: str, before: int, partition: int = 0) -> None:
        """Deletes the messages before an offset, like retention."""
        self._send_command(f"trim {topic} {partition} {before}")

    def down(self) -> None:
        self._send_command("down")

    def up(self) -> None:
        self._send_command("up")

    def send(
        self, topic: str, values: Iterable[Any], *, partition: int = 0, millis: int = 0, key: Any = None
    ) -> None:
        """Sends values as JSON; bytes and None unchanged. ``millis``: the time of the messages."""
        for value in values:
            self._producer.produce(
                topic, _bytes(value), key=_bytes(key), partition=partition, timestamp=millis
            )
        assert self._producer.flush(20) == 0

    def freeze(self) -> None:
        """Stops the broker from answering."""
        self._process.send_signal(signal.SIGSTOP)
        # The signal takes effect later: on a busy machine, threads of the broker answer a little longer.
        until(self._is_stopped)

    def _is_stopped(self) -> bool:
        """True if none of its threads is running."""
        stats = [task / "stat" for task in Path(f"/proc/{self._process.pid}/task").iterdir()]
        return all(stat.read_text().rpartition(") ")[2].startswith("T") for stat in stats)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _send_command(self, command: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline().strip() == "0", command


def _bytes(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else orjson.dumps(value)


if __name__ == "__main__":
    serve()
