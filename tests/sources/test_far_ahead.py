"""A record far ahead of the clock does not make all others late: every live source rejects it as bad."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from time import monotonic, time_ns

import pytest

from skws.cli.main import run
from skws.data.batch import BadRecord, Chunk, Item, Record
from skws.jobs.local import LocalWatch
from skws.sources.addresses import parse_source
from skws.sources.feed import Batch, Offset
from skws.sources.growing_files import FilesFeed
from skws.sources.horizon import BoundedFeed, BoundedSource, Horizon
from skws.sources.kafka.topic_address import TopicAddress
from skws.sources.kafka.topic_feed import KafkaSource
from skws.sources.postgres.catalog import CatalogTable, MatchedTables
from skws.sources.postgres.changes import ChangeDecoder, LogReader
from skws.sources.postgres.pgoutput import (
    BeginMessage,
    Commit,
    Insert,
    RelationColumn,
    RelationMessage,
    ReplicaIdentity,
)
from skws.sources.postgres.slot import LogPosition
from skws.sources.replays import ReplaySource
from skws.spec.enums import OnError
from skws_schema.errors import BadRecordsError
from skws_schema.model import Attribute, AttributeType, Relation, Schema, iso
from skws_windows.window import parse_duration
from tests.clocks import HandClock
from tests.jobs.watching import QUERY, SCHEMA, YAML, Collected, Notes, append, customer, opened, order, steps
from tests.jobs.watching import request as job
from tests.kafka import MockBroker
from tests.sources.log_messages import encoded
from tests.waiting import PATIENCE

DAY = parse_duration("1 day")
FAR = 5_000_000_000.0  # seconds: the year 2128


def times(items: Sequence[Item]) -> list[int]:
    return [item.time // 1_000_000 for item in items if isinstance(item, Record)]


def test_a_replay_after_a_failure_rejects_the_same_records(tmp_path: Path) -> None:
    """Though the clock has advanced, so that they would be accepted now."""
    path, clock = tmp_path / "in.jsonl", HandClock()

    def feed() -> BoundedFeed:
        return BoundedFeed(FilesFeed(path, SCHEMA), "in.jsonl", SCHEMA, Horizon(10_000_000, clock.now))

    append(path, customer(1, 7), order(11, 7), order(10, 8), order(2, 7))
    first = feed()
    start = first.start()
    batch = first.poll(start, 100)
    assert times(list(batch.read)) == [1, 10, 2]
    (bad_record,) = batch.read.bad
    assert (bad_record.source, bad_record.where) == ("in.jsonl", "(order)")
    assert bad_record.reason.startswith("the time 1970-01-01T00:00:11Z is more than 10 s ahead of the clock")
    assert b'"item":"lamp"' in bad_record.raw
    assert len(batch.notices) == 1
    clock.micros = 100_000_000
    append(path, order(20, 7))
    after = first.poll(batch.end, 100)
    assert times(list(after.read)) == [20]
    assert first.poll(after.end, 100).end is after.end
    reopened = feed()
    assert list(reopened.replay(start, batch.end)) == list(batch.read)
    assert list(reopened.replay(batch.end, after.end)) == list(after.read)
    assert list(reopened.poll(batch.end, 100).read) == list(after.read)
    assert reopened.backlog(after.end).text == "0 bytes behind"


def test_rejected_records_are_rejected_again_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.touch()
    feed = BoundedFeed(FilesFeed(path, SCHEMA), "in.jsonl", SCHEMA, Horizon(10_000_000, HandClock().now))
    offset = feed.start()
    for second in (11, 12):
        append(path, order(second, 7), order(1, 7))
        batch = feed.poll(offset, 100)
        assert (len(batch.read.bad), len(batch.read.records)) == (1, 1)
        assert list(feed.replay(offset, batch.end)) == list(batch.read)
        offset = batch.end


def test_messages_after_a_failure_are_rejected_as_before() -> None:
    """In two partitions, though the clock has advanced since then."""
    second = 1_000_000
    clock = HandClock()
    with closing(MockBroker()) as kafka:
        kafka.create("shop.order", 2)
        source = KafkaSource(
            TopicAddress.of(kafka.uri("shop.order")), horizon=Horizon(10 * second, clock.now)
        )
        feed = source.open(SCHEMA)
        polls: list[tuple[Offset, Batch]] = []

        def sent(*messages: tuple[int, int]) -> Chunk:
            """The items that polls return for messages at these seconds in these partitions."""
            for partition, seconds in messages:
                kafka.send("shop.order", [{"cid": 7}], partition=partition, millis=seconds * 1000)
            chunks: list[Chunk] = []
            deadline = monotonic() + PATIENCE
            while sum(map(len, chunks)) < len(messages):
                assert monotonic() < deadline
                start = polls[-1][1].end if polls else feed.start()
                polls.append((start, feed.poll(start, 100)))
                chunks.append(polls[-1][1].read)
            return Chunk.concat(chunks)

        first = sent((0, 1), (0, 11), (0, 10), (1, 2), (1, 12), (1, 3))
        assert sorted(times(list(first))) == [1, 2, 3, 10]
        assert sorted(one.reason.partition(" is ")[0] for one in first.bad) == [
            f"the time 1970-01-01T00:00:{seconds}Z" for seconds in (11, 12)
        ]
        clock.micros = 60 * second
        assert times(list(sent((0, 13), (1, 71)))) == [13]
        for reader in (feed, source.open(SCHEMA)):
            for start, batch in polls:
                assert list(reader.replay(start, batch.end)) == list(batch.read)
            reader.close()


@pytest.mark.parametrize("ahead", [DAY, None])
def test_a_record_far_ahead_makes_none_late_in_a_live_search(tmp_path: Path, ahead: int | None) -> None:
    path, sink, notes = tmp_path / "in.jsonl", Collected(), Notes()
    append(path, customer(1, 7), order(FAR, 9))
    watch = opened(job(path, on_error=OnError.SKIP, ahead=ahead), sink, notes=notes)
    steps(watch)
    append(path, order(2, 7), order(FAR, 9))
    steps(watch)
    counts = watch.metrics()
    if ahead is None:
        assert (sink.results, counts.late, counts.bad) == ([], 1, 0)
        return
    assert sink.told() == [("+", QUERY)]
    assert (counts.late, counts.bad) == (0, 2)
    (notice,) = [line for line in notes.lines if "ahead of the clock" in line]
    assert "(order): the time 2128-06-11T08:53:20Z is more than 1 day ahead of the clock" in notice


def test_the_bad_record_policy_applies(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    append(path, order(FAR, 9))
    watch = opened(job(path, ahead=DAY), Collected())
    with pytest.raises(BadRecordsError, match="more than 1 day ahead of the clock"):
        watch.step()


def test_only_replays_accept_any_time(tmp_path: Path) -> None:
    assert isinstance(parse_source("replay:x", ahead=DAY), ReplaySource)
    for address in ("-", "some/folder", "postgresql://joe@db/shop"):
        assert isinstance(parse_source(address, ahead=DAY), BoundedSource)
    path, sink = tmp_path / "in.jsonl", Collected()
    append(path, customer(FAR, 7), order(FAR + 1, 7))
    watch = LocalWatch(job(f"replay:{path}?speed=1e9", ahead=DAY), [sink], Notes().log)
    watch.run()
    assert sink.told() == [("+", QUERY)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), DAY),
        (("--ahead", "2 hours"), DAY // 12),
        (("--ahead", "none"), None),
        (("--lateness", "3 days"), 3 * DAY),
        (("--lateness", "3 days", "--ahead", "1 hour"), DAY // 24),
    ],
)
@pytest.mark.parametrize("command", ["watch", "serve"])
def test_the_option_has_a_default_and_a_minimum(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
    options: tuple[str, ...],
    expected: int | None,
) -> None:
    """One day by default; never less than the lateness. A line that is no record ends the run."""
    (tmp_path / "schema.yaml").write_text(YAML)
    source, hour = tmp_path / "in.jsonl", DAY // 24
    limit = time_ns() // 1_000 + (expected or 1_000 * DAY)
    append(source, *(order(each / 1_000_000, 7) for each in (limit - hour, limit + hour)))
    with source.open("a") as file:
        file.write("nonsense\n")
    words = ("lamp",) if command == "watch" else ("--port", "0")
    arguments = (command, str(source), *words, "-s", str(tmp_path / "schema.yaml"), *options)
    assert run([*arguments]) == 5
    error = capsys.readouterr().err
    assert ("ahead of the clock" in error) == (expected is not None)
    assert (f"the time {iso(limit + hour)} is" in error) == (expected is not None)


def test_the_option_is_a_duration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "schema.yaml").write_text(YAML)
    (tmp_path / "in.jsonl").touch()
    arguments = ("watch", str(tmp_path / "in.jsonl"), "lamp", "-s", str(tmp_path / "schema.yaml"))
    assert run([*arguments, "--ahead", "soon"]) == 2
    assert "ahead" in capsys.readouterr().err


def test_commit_times_far_ahead_do_not_raise_later_ones() -> None:
    """From a server whose clock was wrong for some time."""
    schema = Schema("s", (Relation("movie", (Attribute("mid", AttributeType.INTEGER),)),), ())
    table = CatalogTable(7, "public", "movie", "r", ReplicaIdentity.FULL, (), (), frozenset(), ())
    decoder = ChangeDecoder(schema, MatchedTables({0: table}, {}, ()))
    decoder.relation(
        RelationMessage(7, "public", "movie", ReplicaIdentity.FULL, (RelationColumn("mid", False),))
    )

    def read(horizon: Horizon) -> tuple[list[Item], LogPosition]:
        reader = LogReader(decoder, LogPosition(100), horizon)
        for lsn, time in ((110, 55), (120, 61), (130, 52)):
            for message in (BeginMessage(lsn, time), Insert(7, (b"1",)), Commit(lsn, lsn + 5, time)):
                reader.take(encoded(message))
        return list(reader.chunk()), reader.position

    items, end = read(Horizon(10, lambda: 50))
    assert not any(isinstance(item, BadRecord) for item in items)
    assert [item.time for item in items if isinstance(item, Record)] == [55, 61, 55]
    # Read again after the clock has advanced.
    assert read(Horizon(10, lambda: 99).fixed(end.time)) == (items, end)
