"""The reader of a live source, called like Spark does: its limits, and resuming."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import mkdtemp

import orjson
import pytest

from skws.data.packing import unpack
from skws.durable import encode_frame
from skws.jobs.control import JobCommand
from skws.queries.partitioning.parts import Partitioning
from skws.sources.addresses import parse_source
from skws.sources.feed import Backlog
from skws.spark.streaming.input_rows import InputRow
from skws.spark.streaming.layout import Layout
from skws.spark.streaming.messages import MicroBatch
from skws.spark.streaming.reader import FeedReader, Reading, beginning
from skws.spark.streaming.run_directory import COMMANDS, ReplayControl, name_of
from skws.state_database import NAME, StateDatabase
from tests.growth.measurements import faster_than_linear
from tests.jobs.test_schema_changes import WITH_NOTES
from tests.jobs.watching import SCHEMA, append, customer, order, request

WHOLE = Layout(Partitioning.ROOTS, (0,))


def reader(folder: Path, source: str, layout: Layout = WHOLE, **sizes: int) -> FeedReader:
    StateDatabase(folder / NAME).close()
    first = parse_source(source).open(SCHEMA).start()
    return FeedReader(Reading(request(source), folder, "a start", layout, beginning(first)), **sizes)


def records(rows: Iterable[InputRow]) -> int:
    return sum(len(unpack(MicroBatch.from_bytes(blob).records)) for *_, blob in rows)


def test_a_paused_reader_returns_nothing_until_it_resumes(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    append(source, customer(1, 1))
    feed_reader = reader(tmp_path, str(source))
    rows, offset = feed_reader.read(feed_reader.initialOffset())
    assert records(rows) == 1
    ReplayControl(paused=True).put(tmp_path)
    append(source, order(2, 1), order(3, 1))
    for _ in range(3):
        rows, next_offset = feed_reader.read(offset)
        assert (records(rows), next_offset) == (0, offset)
    ReplayControl().put(tmp_path)
    rows, next_offset = feed_reader.read(offset)
    assert records(rows) == 2
    assert records(feed_reader.readBetweenOffsets(offset, next_offset)) == 2


def test_the_backlog_reaches_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "in.jsonl"
    append(source, customer(1, 1), order(2, 1))
    backlog = Backlog("3 bytes of log behind", 3, 40)
    monkeypatch.setattr("skws.sources.growing_files.FilesFeed.backlog", lambda *_: backlog)
    feed_reader = reader(tmp_path, str(source))
    rows, _ = feed_reader.read(feed_reader.initialOffset())
    assert MicroBatch.from_bytes(next(iter(rows))[-1]).head.backlog == backlog


@pytest.mark.parametrize("paused", [False, True])
def test_a_replay_runs_at_the_requested_rate(tmp_path: Path, paused: bool) -> None:
    """A thousand seconds of a replay, which would take a thousand seconds at its own rate."""
    source = tmp_path / "in.jsonl"
    append(source, customer(1000, 1), order(2000, 1))
    feed_reader = reader(tmp_path, f"replay:{source}")
    rows, offset = feed_reader.read(feed_reader.initialOffset())
    count = records(rows)
    ReplayControl(paused=paused, speed=1e9).put(tmp_path)
    for _ in range(5):
        rows, offset = feed_reader.read(offset)
        count += records(rows)
    assert count == (1 if paused else 2)
    ReplayControl(speed=1e9).put(tmp_path)
    for _ in range(5):
        rows, offset = feed_reader.read(offset)
        count += records(rows)
    assert count == 2
    assert offset["ended"]


def test_batches_grow_while_spark_is_fast(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    append(source, *(order(n, n) for n in range(200)))
    feed_reader = reader(tmp_path, str(source), first=10, most=40)
    offset = feed_reader.initialOffset()
    sizes: list[int] = []
    while sum(sizes) < 200:
        rows, offset = feed_reader.read(offset)
        sizes.append(records(rows))
    assert sizes[:3] == [10, 20, 40]
    assert max(sizes) == 40


@pytest.mark.parametrize(("times", "sizes"), [(5, [10, 10, 5]), (7, [14, 7, 4]), (25, [25, 0, 0])])
def test_records_of_one_time_stay_in_one_part(tmp_path: Path, times: int, sizes: list[int]) -> None:
    source = tmp_path / "in.jsonl"
    append(source, *(order(n // times, n) for n in range(25)))
    rows, end = (feed_reader := reader(tmp_path, str(source), part=10)).read(feed_reader.initialOffset())
    assert [len(unpack(MicroBatch.from_bytes(blob).records)) for *_, blob in rows] == sizes
    assert end["sequence"] == 3


def test_the_cost_of_a_command_does_not_depend_on_earlier_ones(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.touch()

    def commands(n: int) -> Callable[[], None]:
        folder = Path(mkdtemp(dir=tmp_path))
        feed_reader, path = reader(folder, str(source)), folder / COMMANDS
        path.parent.mkdir()
        text = orjson.dumps({"commands": [JobCommand("remove", "lamps").to_dict()]})

        def work() -> None:
            offset = feed_reader.initialOffset()
            for _ in range(n):
                with path.open("ab") as file:
                    file.write(encode_frame(text, name_of("", path), file.tell()))
                _, offset = feed_reader.read(offset)
            assert offset["commands"] == path.stat().st_size

        return work

    assert not faster_than_linear(commands, 10)


@pytest.mark.parametrize("again", [False, True])
def test_records_are_read_with_the_schema_after_earlier_commands(tmp_path: Path, again: bool) -> None:
    source, path = tmp_path / "in.jsonl", tmp_path / COMMANDS
    source.touch()
    path.parent.mkdir()
    feed_reader = reader(tmp_path, str(source))
    offsets = [feed_reader.initialOffset()]
    for schema in (WITH_NOTES, None):
        command = JobCommand("remove", "lamps") if schema is None else JobCommand("schema", "", schema=schema)
        text = orjson.dumps({"commands": [command.to_dict()]})
        with path.open("ab") as file:
            file.write(encode_frame(text, name_of("", path), file.tell()))
        _, offset = feed_reader.read(offsets[-1])
        offsets.append(offset)
    note = {"relation": "note", "time": 1, "row": {"cid": 1, "text": "ada"}}
    append(source, note)
    rows, end = feed_reader.read(offsets[-1])
    assert records(rows) == 1
    if again:  # before the schema, and after it
        assert records(feed_reader.readBetweenOffsets(offsets[0], offsets[0])) == 0
        assert records(feed_reader.readBetweenOffsets(offsets[-1], end)) == 1
