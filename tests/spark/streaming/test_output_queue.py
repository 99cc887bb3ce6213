"""Results of batches between the job and slow sinks: delayed, never lost or repeated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest

from skws.spark.streaming.output_log import OutputLog, Told
from skws.spark.streaming.output_queue import AHEAD, OutputQueue

PATIENCE = 20.0


def told(number: int) -> Told:
    return Told(number, [(0, 0, b"{}")])


def opened(folder: Path, committed: int = 0, stopping: Event | None = None) -> tuple[OutputQueue, list[int]]:
    """A handover, and the numbers of what was left for it."""
    handover = OutputQueue(OutputLog(folder, segment_bytes=100), stopping or Event())
    return handover, [one.number for one in handover.left(committed)]


def rest(handover: OutputQueue) -> list[int]:
    return [one.number for one in handover.rest()]


def ahead(handover: OutputQueue) -> Thread:
    """The job's thread, which gives one batch more than may wait."""
    for number in range(1, AHEAD + 1):
        handover.put(told(number))
    thread = Thread(target=handover.put, args=[told(AHEAD + 1)], daemon=True)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    return thread


def test_sinks_that_are_slow_hold_the_job_up(tmp_path: Path) -> None:
    handover, _ = opened(tmp_path)
    thread = ahead(handover)
    first = handover.next()
    assert first is not None
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert [first.number, *rest(handover)] == list(range(1, AHEAD + 2))
    handover.close()


@pytest.mark.parametrize("end", ["stopping", "stop_waiting"])
def test_an_end_lets_the_job_go_and_the_next_start_has_what_waited(tmp_path: Path, end: str) -> None:
    stopping = Event()
    handover, _ = opened(tmp_path, stopping=stopping)
    ways: dict[str, Callable[[], None]] = {"stopping": stopping.set, "stop_waiting": handover.stop_waiting}
    thread = ahead(handover)
    ways[end]()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert rest(handover) == list(range(1, AHEAD + 1))
    handover.close()
    _, left = opened(tmp_path, committed=3)
    assert left == list(range(4, AHEAD + 2))


def test_a_batch_that_the_job_repeats_is_passed_over(tmp_path: Path) -> None:
    handover, _ = opened(tmp_path)
    for number in (1, 2, 2, 3):
        handover.put(told(number))
    assert rest(handover) == [1, 2, 3]
    handover.trim(1)
    handover.close()
    again, left = opened(tmp_path, committed=1)
    assert left == [2, 3]
    for number in (3, 4):  # the third was in the outbox, though the job had not heard of it
        again.put(told(number))
    assert rest(again) == [4]
    # All was committed, and the outbox is empty: the job repeats its last batch all the same.
    again.trim(4)
    again.close()
    last, left = opened(tmp_path, committed=4)
    last.put(told(4))
    assert (left, rest(last)) == ([], [])
    last.close()
