"""The reader of a streaming job under a changing schema, also when it reads again."""

from __future__ import annotations

from pathlib import Path

from skws.data.packing import unpacked
from skws.jobs.control import Command
from skws.queries.partitioning import Partitioning
from skws.sources.feed import Offset
from skws.spark.streaming.command_log import Register
from skws.spark.streaming.layout import Layout
from skws.spark.streaming.micro_batch import MicroBatch
from skws.spark.streaming.reader import FeedReader, Reading, beginning
from tests.jobs.test_schema_changes import WITH_NOTES, WITHOUT_ORDERS, note
from tests.jobs.watching import append, customer, order, request


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
