"""Results of batches between the job and slow sinks: delayed, never lost or repeated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest

from skws.spark.streaming.output_log import Output, OutputLog
from skws.spark.streaming.output_queue import AHEAD, OutputQueue

PATIENCE = 20.0


def told(number: int) -> Output:
    return Output(number, [(0, 0, b"{}")])


def opened(folder: Path, committed: int = 0, stopping: Event | None = None) -> tuple[OutputQueue, list[int]]:
    """A queue, and the numbers of what was left for it."""
    queue = OutputQueue(OutputLog(folder, segment_bytes=100), stopping or Event())
    return queue, [one.number for one in queue.left(committed)]


def rest(queue: OutputQueue) -> list[int]:
    return [one.number for one in queue.rest()]


def ahead(queue: OutputQueue) -> Thread:
    """The job's thread, which gives one batch more than may wait."""
    for number in range(1, AHEAD + 1):
        queue.put(told(number))
    thread = Thread(target=queue.put, args=[told(AHEAD + 1)], daemon=True)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    return thread


def test_sinks_that_are_slow_hold_the_job_up(tmp_path: Path) -> None:
    queue, _ = opened(tmp_path)
    thread = ahead(queue)
    first = queue.next()
    assert first is not None
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert [first.number, *rest(queue)] == list(range(1, AHEAD + 2))
    queue.close()


@pytest.mark.parametrize("end", ["stopping", "stop_waiting"])
def test_an_end_lets_the_job_go_and_the_next_start_has_what_waited(tmp_path: Path, end: str) -> None:
    stopping = Event()
    queue, _ = opened(tmp_path, stopping=stopping)
    ways: dict[str, Callable[[], None]] = {"stopping": stopping.set, "stop_waiting": queue.stop_waiting}
    thread = ahead(queue)
    ways[end]()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert rest(queue) == list(range(1, AHEAD + 1))
    queue.close()
    _, left = opened(tmp_path, committed=3)
    assert left == list(range(4, AHEAD + 2))


def test_a_batch_that_the_job_repeats_is_passed_over(tmp_path: Path) -> None:
    queue, _ = opened(tmp_path)
    for number in (1, 2, 2, 3):
        queue.put(told(number))
    assert rest(queue) == [1, 2, 3]
    queue.trim(1)
    queue.close()
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
