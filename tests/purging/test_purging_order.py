"""Eager purging stops where nothing was dropped; sleeping operators leave their queue in order."""

from __future__ import annotations

from skws_purging.policy import LEAST, SleepQueue, Sweep, purge_upwards

ABOVE = {"source": ["j1", "j2"], "j1": ["j3"], "j2": ["j4"], "j3": [], "j4": []}


def test_eager_purging_stops_where_nothing_was_dropped() -> None:
    visited = []

    def drop(operator: str) -> bool:
        visited.append(operator)
        return operator != "j2"

    purge_upwards(ABOVE["source"], drop, lambda operator: ABOVE[operator])
    assert visited == ["j1", "j3", "j2"]


def test_sleepers_leave_the_queue_in_the_order_they_fell_asleep() -> None:
    queue: SleepQueue[str] = SleepQueue()
    for operator, due in (("j1", 10), ("j2", 11), ("j3", 12), ("j1", 13)):
        queue.append(operator, due)
    queue.discard("j2")
    queue.discard("j9")
    assert (list(queue.pop_due(9)), list(queue.pop_due(12)), "j1" in queue) == ([], ["j3"], True)
    assert (list(queue.drain()), len(queue)) == (["j1"], 0)


def test_a_sweep_is_due_once_the_entries_have_doubled() -> None:
    sweep = Sweep()
    assert not sweep.is_due(1, LEAST)
    assert sweep.is_due(1, LEAST + 1)
    sweep.record(1, 500)
    assert not sweep.is_due(1, 10 * LEAST)  # nothing has expired since
    assert not sweep.is_due(2, 1000 + LEAST)
    assert sweep.is_due(2, 1000 + LEAST + 1)


def test_a_quarter_of_many_entries_may_be_dead() -> None:
    """After a sweep without effect, the next one is due only when the entries have doubled."""
    sweep, size = Sweep(), 1 << 22
    assert sweep.is_due(1, 2 * size)
    sweep.record(1, size)
    assert not sweep.is_due(2, size + size // 4 + LEAST)
    assert sweep.is_due(2, size + size // 4 + LEAST + 1)
    sweep.record(2, size + size // 4)
    assert not sweep.is_due(3, 2 * size)
    assert sweep.is_due(3, 2 * (size + size // 4) + LEAST + 1)
