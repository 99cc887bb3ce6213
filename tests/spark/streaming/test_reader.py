"""The reader of a live source, called as Spark calls it: limited, and resumed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

import skws.spark.streaming.reader as reader_module
from skws.data.packing import rejoined, unpacked
from skws.jobs.control import Command
from skws.queries.partitioning import Partitioning
from skws.sources.addresses import parse_source
from skws.sources.feed import Offset
from skws.spark.streaming.command_log import Register
from skws.spark.streaming.layout import Layout, Wanted
from skws.spark.streaming.messages import MicroBatch
from skws.spark.streaming.reader import FeedReader, Reading, beginning
from skws.spark.streaming.run_directory import ReplayControl
from skws.spec.query import Query
from skws_windows.window import TimeWindow
from tests.jobs.test_schema_changes import WITH_NOTES, WITHOUT_ORDERS, note
from tests.jobs.watching import SCHEMA, append, customer, order, request

SECONDS = TimeWindow(1000)
WHOLE = Layout(Partitioning.ROOTS, (0,))


def reader(folder: Path, source: str, layout: Layout = WHOLE) -> FeedReader:
    (folder / "tables.log").touch()
    first = parse_source(source).open(SCHEMA).start()
    return FeedReader(Reading(request(source), folder, "a start", layout, beginning(first)))


def records(rows: Iterable[tuple[int, int, bytes]]) -> int:
    return sum(len(unpacked(MicroBatch.from_bytes(blob).records)) for *_, blob in rows)


def test_paused_it_gives_nothing_and_then_all_of_it(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    append(source, customer(1, 1))
    reading = reader(tmp_path, str(source))
    rows, at = reading.read(reading.initialOffset())
    assert records(rows) == 1
    ReplayControl(paused=True).put(tmp_path)
    append(source, order(2, 1), order(3, 1))
    for _ in range(3):
        rows, behind = reading.read(at)
        assert (records(rows), behind) == (0, at)
    ReplayControl().put(tmp_path)
    rows, behind = reading.read(at)
    assert records(rows) == 2
    assert records(reading.readBetweenOffsets(at, behind)) == 2


@pytest.mark.parametrize("paused", [False, True])
def test_a_replay_goes_as_fast_as_it_is_told(tmp_path: Path, paused: bool) -> None:
    """A thousand seconds of a replay, which would take as long."""
    source = tmp_path / "in.jsonl"
    append(source, customer(1000, 1), order(2000, 1))
    reading = reader(tmp_path, f"replay:{source}")
    rows, at = reading.read(reading.initialOffset())
    found = records(rows)
    ReplayControl(paused=paused, speed=1e9).put(tmp_path)
    for _ in range(5):
        rows, at = reading.read(at)
        found += records(rows)
    assert found == (1 if paused else 2)
    ReplayControl(speed=1e9).put(tmp_path)
    for _ in range(5):
        rows, at = reading.read(at)
        found += records(rows)
    assert found == 2
    assert at["ended"]


def test_batches_grow_while_spark_is_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "_FIRST", 10)
    monkeypatch.setattr(reader_module, "_MOST", 40)
    source = tmp_path / "in.jsonl"
    append(source, *(order(n, n) for n in range(200)))
    reading = reader(tmp_path, str(source))
    at = reading.initialOffset()
    sizes: list[int] = []
    while sum(sizes) < 200:
        rows, at = reading.read(at)
        sizes.append(records(rows))
    assert sizes[:3] == [10, 20, 40]
    assert max(sizes) == 40


@pytest.mark.parametrize("keyed", [False, True])
def test_a_large_batch_is_several_micro_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keyed: bool
) -> None:
    """In order of time, with numbers of their own; the same if it is read again."""
    monkeypatch.setattr(reader_module, "_PART", 10)
    source = tmp_path / "in.jsonl"
    append(source, *(order(n ^ 1, n) for n in range(25)))
    layout = Wanted(2 if keyed else 1).layout(
        [Query("ada").named("q", 2)], request(str(source)).stream, SECONDS
    )
    assert (layout.keys is not None) == keyed
    reading = reader(tmp_path, str(source), layout)
    rows, end = reading.read(reading.initialOffset())
    told = [(group, number, MicroBatch.from_bytes(blob)) for group, number, blob in rows]
    assert end["sequence"] == 3
    assert [(group, number) for group, number, _ in told] == [
        (group, number) for number in (1, 2, 3) for group in layout.groups
    ]
    first = [one for group, _, one in told if group == layout.groups[0]]
    assert [one.head.number for one in first] == [1, 2, 3]
    assert [one.head.ended for one in first] == [False] * 3
    parts = [
        rejoined([one.records for _, at, one in told if at == number])
        if keyed
        else unpacked(first[number - 1].records)
        for number in (1, 2, 3)
    ]
    assert list(map(len, parts)) == [8, 8, 9]
    times = [time for part in parts for time in part.time.tolist()]
    assert times == sorted(times)
    assert len(set(times)) == 25
    if keyed:
        assert [one.head.reached for _, _, one in told] == [max(p.time) for p in parts for _ in range(2)]
    again = [
        (group, number, MicroBatch.from_bytes(blob).records)
        for group, number, blob in reading.readBetweenOffsets(reading.initialOffset(), end)
    ]
    assert again == [(group, number, one.records) for group, number, one in told]


@pytest.mark.parametrize(("times", "sizes"), [(5, [10, 10, 5]), (7, [14, 7, 4]), (25, [25, 0, 0])])
def test_records_of_one_time_stay_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, sizes: list[int]
) -> None:
    monkeypatch.setattr(reader_module, "_PART", 10)
    source = tmp_path / "in.jsonl"
    append(source, *(order(n // times, n) for n in range(25)))
    rows, end = (reading := reader(tmp_path, str(source))).read(reading.initialOffset())
    assert [len(unpacked(MicroBatch.from_bytes(blob).records)) for *_, blob in rows] == sizes
    assert end["sequence"] == 3


def read(reader: FeedReader, start: Offset) -> tuple[list[MicroBatch], Offset]:
    """All that is there now, a micro_batch a micro-batch."""
    micro_batches: list[MicroBatch] = []
    while True:
        rows, end = reader.read(start)
        found = [MicroBatch.from_bytes(blob) for _, _, blob in rows]
        if not found:
            return micro_batches, start
        micro_batches += found
        start = end


def shown(micro_batches: list[MicroBatch]) -> list[tuple[list[str], list[int]]]:
    """The commands and the relations of the records of each."""
    return [
        ([command.op for command in one.head.commands], unpacked(one.records).relation.tolist())
        for one in micro_batches
    ]


def test_records_are_read_by_the_schema_that_holds_behind_the_commands(tmp_path: Path) -> None:
    source, folder = tmp_path / "in.jsonl", tmp_path / "run"
    (folder / "commands").mkdir(parents=True)
    (folder / "tables.log").touch()
    append(source, customer(1, 1), order(1, 1))
    asked = request(source)
    register = Register(asked, folder / "commands" / "commands.jsonl")
    reading = Reading(
        asked, folder, "one", Layout(Partitioning.ROOTS, (0,)), beginning({"files": {}, "next": 0})
    )
    reader = FeedReader(reading)
    cuts = [reader.initialOffset()]
    told: list[tuple[list[str], list[int]]] = []

    def step() -> None:
        micro_batches, end = read(reader, cuts[-1])
        told.extend(shown(micro_batches))
        cuts.append(end)

    step()
    register.take([Command("schema", "", schema=WITH_NOTES)], None)
    append(source, note(2, 1))
    step()
    register.take([Command("schema", "", schema=WITHOUT_ORDERS)], None)
    append(source, order(3, 1), customer(3, 2))
    step()
    assert told == [([], [0, 1]), (["schema"], [2]), (["schema"], [1, 0])]
    # Again in another process, and out of the order in which schemas were met.
    other = FeedReader(reading)
    for number in (1, 0, 2):
        rows = other.readBetweenOffsets(cuts[number], cuts[number + 1])
        assert shown([MicroBatch.from_bytes(blob) for _, _, blob in rows]) == [told[number]]
