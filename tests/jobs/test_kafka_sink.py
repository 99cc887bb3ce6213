"""Each result is in exactly one committed transaction of the topic, despite failures of run or broker."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any

import orjson
import pytest
from confluent_kafka import Consumer, TopicPartition

from skws.jobs.fanout import SinkFanout
from skws.jobs.local import LocalWatch
from skws.results.result import Result
from skws.sinks.base import Sink, SinkError, SinkRun
from skws.sinks.sink_addresses import parse_sink
from skws_schema.errors import SchemaError, StateError, UsageError
from tests.forked import forked_skws
from tests.jobs.test_killed_watch import ready, write
from tests.jobs.test_sinks import result, run, state_in
from tests.jobs.watching import QUERY, SCHEMA, YAML, Notes, append, customer, numbered, order, request
from tests.jobs.watching import opened as job_opened
from tests.kafka import MockBroker
from tests.kafka_broker import Broker
from tests.places import ROOT
from tests.strategies import some
from tests.waiting import until

RESULTS = 600


@pytest.fixture(scope="module")
def brokers() -> Iterator[Broker]:
    with closing(Broker()) as broker:
        yield broker


@pytest.fixture
def topic(brokers: Broker, request: pytest.FixtureRequest) -> str:
    """A separate topic with one partition."""
    name = f"{request.node.originalname}-{abs(hash(request.node.nodeid))}"
    brokers.create(name)
    return name


def batch(number: int, size: int = 3) -> list[Result]:
    return [result(10 * number + place) for place in range(size)]


def opened(address: str, folder: Path | None) -> Sink:
    sink = parse_sink(address)
    sink.open(run(folder))
    return sink


def json_results(*numbers: int) -> list[dict[str, Any]]:
    return [orjson.loads(result_.to_json()) for number in numbers for result_ in batch(number)]


def test_a_restarted_kafka_sink_continues_after_the_last_batch(
    brokers: Broker, topic: str, tmp_path: Path
) -> None:
    first = opened(brokers.uri(topic), tmp_path)
    for number in range(3):
        first.write(number, batch(number))
    first.write(3, [])
    assert brokers.log(topic) == (json_results(0, 1, 2), 0), "readers see a batch at once"
    second = opened(brokers.uri(topic), tmp_path)  # the first was killed before it saved any state
    for number in range(6):
        second.write(number, batch(number))
    second.flush()
    second.close()
    assert brokers.log(topic) == (json_results(0, 1, 2, 3, 4, 5), 0)


def test_a_replaced_kafka_producer_is_fenced(brokers: Broker, topic: str, tmp_path: Path) -> None:
    first = opened(brokers.uri(topic), tmp_path)
    first.write(0, batch(0))
    second = opened(brokers.uri(topic), tmp_path)
    second.flush()
    with pytest.raises(SinkError, match="another process writes for this run"):
        first.write(1, batch(1))
    second.write(1, batch(1))
    assert brokers.log(topic).committed == json_results(0, 1)


def test_a_run_from_an_old_checkpoint_copy_does_not_fence_the_current_run(
    brokers: Broker, topic: str, tmp_path: Path
) -> None:
    """It learns from the topic that it is outdated and ends; the current run remains the producer."""
    source, sink = tmp_path / "in.jsonl", parse_sink(brokers.uri(topic))
    append(source, customer(1, 1), order(2, 1))
    current = job_opened(request(source, checkpoint=tmp_path / "kept"), sink)
    until(lambda: brokers.log(topic).committed, current.step)
    shutil.copytree(tmp_path / "kept", tmp_path / "copy")
    append(source, order(3, 1))
    until(lambda: len(brokers.log(topic).committed) == 2, current.step)
    job = request(source, checkpoint=tmp_path / "copy")
    stale = LocalWatch(job, [parse_sink(brokers.uri(topic))], Notes().log)
    with pytest.raises(StateError, match=r"it has \d+ of \d+ micro-batches"):
        stale.run()
    append(source, order(4, 1))
    until(lambda: len(brokers.log(topic).committed) == 3, current.step)
    current.close()


def test_opening_a_sink_does_not_wait_for_a_transaction_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers hold back the offsets of an open transaction from readers of committed messages."""
    levels: list[str] = []

    def consumer(settings: dict[str, str], **options: Any) -> Consumer:
        levels.append(settings["isolation.level"])
        return Consumer(settings, **options)

    monkeypatch.setattr("skws.sinks.kafka.Consumer", consumer)
    with closing(MockBroker()) as mock:
        mock.create("out")
        sink = opened(mock.uri("out"), tmp_path)
        assert levels == ["read_uncommitted"]
        sink.flush()
        assert levels[1:] == ["read_committed"]
        sink.close()


def test_two_runs_may_write_to_one_topic(brokers: Broker, topic: str, tmp_path: Path) -> None:
    first, second = parse_sink(brokers.uri(topic)), parse_sink(brokers.uri(topic))
    for number, sink in enumerate((first, second)):
        sink.open(
            SinkRun(f"run{number}", state_in(tmp_path / str(number)), SCHEMA, False, lambda _: True, print)
        )
    first.write(0, batch(0))
    second.write(0, batch(1))
    first.write(1, batch(2))
    assert brokers.log(topic).committed == json_results(0, 1, 2)


def test_the_run_state_is_used_if_the_broker_has_no_offsets(tmp_path: Path) -> None:
    """As for a group that was idle for days; the mock cluster stores no offsets of transactions."""
    with closing(MockBroker()) as mock:
        mock.create("out")
        for last in (1, 3):
            sink = opened(mock.uri("out"), tmp_path)
            for number in range(last + 1):
                sink.write(number, batch(number))
            sink.flush()
            sink.close()
        consumer = Consumer({"bootstrap.servers": mock.address, "group.id": "test"})
        consumer.assign([TopicPartition("out", 0, 0)])
        values = [message.value() for message in consumer.consume(12, 30)]
        assert [orjson.loads(value or b"") for value in values] == json_results(0, 1, 2, 3)
        assert not consumer.consume(1, 0.5)
        consumer.close()


def test_a_kafka_sink_waits_for_an_unresponsive_broker(brokers: Broker, topic: str, tmp_path: Path) -> None:
    sink = opened(brokers.uri(topic), tmp_path)
    sink.write(0, batch(0))
    brokers.freeze()
    timer = Timer(1.5, brokers.thaw)
    timer.start()
    sink.write(1, batch(1))
    timer.join()
    assert brokers.log(topic).committed == json_results(0, 1)


@pytest.mark.slow
def test_a_kafka_sink_waits_for_unavailable_brokers(tmp_path: Path) -> None:
    """Uses librdkafka's mock cluster, which keeps its content while it is down."""
    notes: list[str] = []
    with closing(MockBroker()) as mock:
        mock.create("out")
        sink = parse_sink(mock.uri("out"))
        mock.down()

        def wait(seconds: float) -> bool:
            mock.up()
            time.sleep(seconds)
            return True

        sink.open(SinkRun("run1", state_in(tmp_path), SCHEMA, False, wait, notes.append))
        sink.write(0, batch(0))
        sink.flush()
        sink.close()
    assert any("trying again" in note for note in notes)


@pytest.mark.parametrize("suffix", ["", "/a,b", "/a?from=latest", "/a?format=rows", "/a?group=x"])
def test_invalid_kafka_sink_addresses_are_rejected(suffix: str) -> None:
    with pytest.raises(UsageError, match="one topic"):
        parse_sink(f"kafka://127.0.0.1:9092{suffix}")


def test_kafka_settings_that_break_exactly_once_are_rejected(tmp_path: Path) -> None:
    for name in ("transactional.id", "enable.idempotence", "isolation.level"):
        config = tmp_path / "client.properties"
        config.write_text(f"{name}=x\n")
        with pytest.raises(SchemaError, match=name):
            parse_sink(f"kafka://127.0.0.1:9092/a?config={config}")
    config.write_text("compression.type=best\nsasl.password=s3cret\n")
    with pytest.raises(SchemaError, match="best") as error:
        opened(f"kafka://127.0.0.1:9092/a?config={config}", tmp_path)
    assert "s3cret" not in str(error.value)


def test_a_result_too_large_for_a_message_is_a_dead_letter(
    brokers: Broker, topic: str, tmp_path: Path
) -> None:
    """Only that result is lost, even if its batch was committed and its dead letter was not."""
    small, large = result(1), result(2, name="x" * 2_000_000)
    notes: list[str] = []
    file = tmp_path / "letters.jsonl"
    for dead_letters in (None, file):
        sink_run = replace(run(tmp_path / "sinks"), tell=notes.append)
        fanout = SinkFanout([parse_sink(brokers.uri(topic))], dead_letters, sink_run)
        (bad_record,) = fanout.write(0, [small, large], ())
        fanout.close(failed=False)
        assert "max.message.bytes of the topic" in bad_record.reason
    assert brokers.log(topic).committed == [orjson.loads(small.to_json())]
    (dead_letter,) = map(orjson.loads, file.read_text().splitlines())
    assert orjson.loads(dead_letter["raw"])["id"] == large.id
    size = len(large.to_json()) + len(large.id)
    assert notes[0].startswith(
        f"result of 'ada': cannot be written to {brokers.uri(topic)}: {size:,} bytes,"
        " and message.max.bytes is 1,000,000 ("
    )


@pytest.mark.check
@some("kills", [2], [20])
def test_a_killed_watch_writes_each_result_to_kafka_once(
    brokers: Broker, topic: str, tmp_path: Path, kills: int
) -> None:
    rng = random.Random(kills)
    (tmp_path / "schema.yaml").write_text(YAML)
    source = tmp_path / "in.jsonl"
    source.touch()
    records = list(numbered(RESULTS))
    share = len(records) // kills
    command = [
        *(*forked_skws(), "watch", QUERY, "--engine", "local", "--lateness", "1 s"),
        *("--schema", str(tmp_path / "schema.yaml"), "--source", str(source)),
        *("--checkpoint", str(tmp_path / "checkpoint"), "--sink", brokers.uri(topic)),
    ]
    productive_runs = 0
    for kill in range(kills + 1):
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
        try:
            committed_count = len(brokers.log(topic).committed)
            if kill % 4 == 2:
                time.sleep(rng.uniform(0.2, 1.0))  # during its start, or later
            else:
                ready(process)
            write(source, records[kill * share : (kill + 1) * share if kill < kills else None], 0.2)
            if kill == kills:
                until(lambda: len(brokers.log(topic).committed) >= RESULTS)
                time.sleep(0.2)
                process.send_signal(signal.SIGINT)
                assert process.wait(60) == 130
        finally:
            process.kill()
            process.communicate()
        productive_runs += len(brokers.log(topic).committed) > committed_count
    messages = brokers.log(topic).committed
    ids = [message["id"] for message in messages]
    assert len(ids) == len(set(ids)) == RESULTS
    assert [message["start"] for message in messages] == sorted(message["start"] for message in messages)
    assert productive_runs > kills / 2
