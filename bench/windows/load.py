"""The stream for measuring windows, and the processor run over it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from time import process_time
from typing import Final, TypeAlias, TypeVar

import numpy as np

from skws_schema.model import Attribute, AttributeType, Relation, Row, Schema
from skws_windows.guards.alphabet import Alphabet
from skws_windows.guards.letters import RowSource
from skws_windows.guards.satisfiability import Satisfiability
from skws_windows.language.window_parser import parse_expression
from skws_windows.overlap_verdict import compile_expression
from skws_windows.processor.panes import Aggregate
from skws_windows.processor.stream_processor import Processor

SCHEMA: Final = Schema(
    "sensors",
    (
        Relation(
            "reading",
            (Attribute("sensor", AttributeType.STRING), Attribute("temp", AttributeType.NUMBER)),
        ),
    ),
    (),
)
ALPHABET: Final = Alphabet(SCHEMA)
BATCH: Final = 8192
SECOND: Final = 1_000_000
GAP: Final = 30
KEYS: Final = 100
Found: TypeAlias = list[tuple[int, int, float]]
RISING: Final = "open when temp > 90 and temp > temp[-1] close when temp < 70"
Result = TypeVar("Result")
MEAN: Final = (Aggregate("mean", "temp"),)


def readings(count: int, keys: int = 1) -> tuple[list[Row], list[int]]:
    """Temperatures that vary around 80, and their times: one second apart, with occasional pauses."""
    rng = random.Random(7)  # the same stream in every run
    rows: list[Row] = []
    times: list[int] = []
    temp, time = 80.0, 0
    for i in range(count):
        temp += rng.gauss(0, 2) + (80 - temp) * 0.02
        # A pause affects the whole stream and is long enough to end the session of every sensor.
        time += SECOND * 4 * GAP if rng.random() < 0.0005 else SECOND // keys
        rows.append((f"s{i * 7919 % keys}", temp))
        times.append(time)
    return rows, times


def skws(text: str, rows: list[Row], times: list[int]) -> Found:
    """The windows by the processor, batch after batch."""
    processor = processor_of(text)
    relation, clock = np.zeros(len(rows), dtype=np.int64), np.array(times, dtype=np.int64)
    windows: Found = []
    for begin in range(0, len(rows), BATCH):
        end = begin + BATCH
        for window in processor.process_batch(
            RowSource(relation[begin:end], clock[begin:end], rows[begin:end])
        ):
            value = window.aggregates[0]
            windows.append((window.first, window.last, value if isinstance(value, float) else 0.0))
    return windows


def processor_of(text: str, aggregates: Sequence[Aggregate] = MEAN) -> Processor:
    """A processor with a mean of each window, unless other aggregates are given."""
    expression = compile_expression(parse_expression(text, ALPHABET), Satisfiability(ALPHABET))
    return Processor(expression, ALPHABET, aggregates)


def best(run: Callable[[], Result], runs: int) -> tuple[Result, float]:
    """The result, and the processor seconds of the fastest run."""
    fastest = float("inf")
    for _ in range(runs):
        began = process_time()
        result = run()
        fastest = min(fastest, process_time() - began)
    return result, fastest
