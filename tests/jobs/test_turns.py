"""Turns are granted one at a time, in the order of the requests."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from skws.jobs.clock import Turns
from skws_schema.budgets import TimeLimitError, check_time
from tests.waiting import until


def _are_waiting(turns: Turns, count: int) -> bool:
    return turns.waiting_count == count


def test_turns_are_granted_in_the_order_of_requests() -> None:
    turns = Turns()
    order: list[int] = []
    threads = []
    with turns.turn():
        for number in range(8):

            def take(number: int = number) -> None:
                with turns.turn():
                    order.append(number)

            threads.append(threading.Thread(target=take))
            threads[-1].start()
            until(partial(_are_waiting, turns, number + 1))
    with turns.turn():
        assert order == list(range(8))
    for thread in threads:
        thread.join()


def test_a_timed_out_request_leaves_the_queue() -> None:
    turns = Turns()
    with turns.turn():
        with pytest.raises(TimeLimitError), turns.turn(0.01):
            pass
        assert not turns.waiting_count
    with turns.turn(0.0):
        pass


def test_the_wait_for_a_turn_counts_towards_its_limit() -> None:
    turns, limit = Turns(), 0.4

    def work() -> None:
        with turns.turn(limit):
            time.sleep(limit / 2)
            check_time()

    with ThreadPoolExecutor(1) as executor:
        with turns.turn():
            working = executor.submit(work)
            until(partial(_are_waiting, turns, 1))
            time.sleep(0.75 * limit)
        with pytest.raises(TimeLimitError):
            working.result()


def test_only_one_thread_has_the_turn() -> None:
    turns = Turns()
    inside = maximum = 0

    def work() -> None:
        nonlocal inside, maximum
        for _ in range(100):
            with turns.turn():
                inside += 1
                time.sleep(0)  # without it, a thread does all of its work before another one starts
                maximum = max(maximum, inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, maximum) == (0, 1)
