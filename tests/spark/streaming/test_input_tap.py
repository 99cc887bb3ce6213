"""Copies of records read by the source: each once, in order, and none before its results."""

from __future__ import annotations

from pathlib import Path

from skws.data.batch import NO_RECORDS, RecordBatch
from skws.data.packing import packed
from skws.data.record import Record
from skws.spark.streaming.input_tap import MOST, InputTap


def records(*numbers: int) -> list[Record]:
    return [Record(0, number, (number, f"word {number}"), number % 2 == 1) for number in numbers]


def taken(tap: InputTap, up_to: int) -> list[list[Record]]:
    return [list(batch.records()) for batch in tap.take(up_to)]


def test_nothing_is_copied_unless_the_driver_asks(tmp_path: Path) -> None:
    copies = InputTap(tmp_path)
    copies.leave(1, packed(RecordBatch.of(records(1))))
    assert list(tmp_path.iterdir()) == []
    assert taken(copies, 9) == []


def test_each_parcel_is_taken_once_when_its_results_are_there(tmp_path: Path) -> None:
    driver, source = InputTap(tmp_path), InputTap(tmp_path)
    driver.ask()
    for number in (9, 10, 11):
        source.leave(number, packed(RecordBatch.of(records(number, number + 100))))
    assert not driver.missed
    source.leave(12, packed(NO_RECORDS))
    assert taken(driver, 10) == [records(9, 109), records(10, 110)]
    assert taken(driver, 10) == []
    assert taken(driver, 12) == [records(11, 111), []]
    assert not driver.missed


def test_a_driver_that_is_busy_leaves_no_more_than_so_many_behind(tmp_path: Path) -> None:
    copies = InputTap(tmp_path)
    copies.ask()
    for number in range(1, MOST + 10):
        copies.leave(number, packed(RecordBatch.of(records(number))))
        if number == 2:
            assert len(list(copies.take(2))) == 2
    times = [one.time for micro_batch in taken(copies, MOST + 9) for one in micro_batch]
    assert times == list(range(10, MOST + 10))
    assert copies.missed
