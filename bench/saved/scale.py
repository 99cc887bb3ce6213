"""Costs by the number of two-keyword queries over the heavy load: adding all or one, tuples, memory.

The queries look for two of the load's 10,000 words each, so a word is in one tuple of about 1,250.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Final

from bench.load import HEAVY, WORDS, query_texts
from bench.peers.children.entry import peak_bytes
from skws.data.batch import RecordBatch, concat_batches
from skws.formats import BadRecordLog, Replay
from skws.memory import expect_long_lived_objects
from skws.queries.kinds import plans_over
from skws.queries.session import Session
from skws.spec.query_spec import Query, Stream
from skws_windows.window import parse_window

NUMBERS: Final = (1_000, 100_000, 1_000_000)
_WINDOW: Final = 60 * HEAVY.minutes * HEAVY.relations  # tuples
_AFTER: Final = {1_000: 60_000, 100_000: 20_000}
_LEAST: Final = 4_000
_ONE_MORE: Final = 50


@dataclass(frozen=True, slots=True)
class Scale:
    """The figures of a number of queries: rates with a full window; ms of one query as (median, worst)."""

    queries: int
    add_seconds: float
    tuples_per_second: float
    results_per_tuple: float
    one_more: tuple[float, float]
    one_less: tuple[float, float]
    peak_bytes: int


def points(numbers: tuple[int, ...]) -> Iterator[Scale]:
    """Measurements for each number of queries, in its own process on one core."""
    for number in numbers:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            yield pool.submit(measure, number).result()


def measure(number: int) -> Scale:
    """Measurements for one number of queries, in this process."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    expect_long_lived_objects()
    schema = HEAVY.schema()
    session = Session(Stream(schema, parse_window(schema.window), max_size=HEAVY.max_size, finite=True))
    began = process_time()
    queries = [Query(text).named(str(query_number), HEAVY.max_size) for query_number, text in _texts(number)]
    session.add_all(plans_over(queries, session.stream))
    add_seconds = process_time() - began
    tuple_count = _AFTER.get(number, _LEAST)
    window_batch, measured_batch = _load(_WINDOW + tuple_count)
    for _ in session.process(window_batch):
        pass
    began = process_time()
    results = sum(1 for _ in session.process(measured_batch))
    spent = process_time() - began
    add_times, remove_times = _one_by_one(session)
    return Scale(
        number, add_seconds, tuple_count / spent, results / tuple_count, add_times, remove_times, peak_bytes()
    )


def _texts(number: int) -> Iterator[tuple[int, str]]:
    return enumerate(query_texts(number + 1)[1:])


def _load(tuples: int) -> list[RecordBatch]:
    """A window of tuples, then the measured tuples."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "load.jsonl"
        HEAVY.write(path, tuples // HEAVY.relations)
        batches = list(Replay.open(path, HEAVY.schema()).batches(BadRecordLog()))
    return list(concat_batches(batches).cut(_WINDOW))


def _one_by_one(session: Session) -> tuple[tuple[float, float], tuple[float, float]]:
    rng = random.Random(7)
    add_times, remove_times = [], []
    while session.prepare_searches(1_000):  # as a server does while it waits
        pass
    for query_number in range(_ONE_MORE):
        query = Query(" ".join(rng.sample(WORDS, 2))).named(f"one more {query_number}", HEAVY.max_size)
        began = perf_counter()
        session.add(query)
        add_times.append((perf_counter() - began) * 1e3)
        began = perf_counter()
        session.remove(query.name)
        remove_times.append((perf_counter() - began) * 1e3)
    return (median(add_times), max(add_times)), (median(remove_times), max(remove_times))
