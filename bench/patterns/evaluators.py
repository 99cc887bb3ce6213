"""Candidate networks by the mesh and by automata: what the choice of ``--evaluator auto`` rests on.

Three relations joined on one attribute, results assembled, in one process.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from skws.data.batch import Record
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.memory import expect_long_lived_objects
from skws.queries.keywords.columnar import ColumnarEngine
from skws.spec.enums import EvaluatorName
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from skws_windows.window import CountWindow

WINDOW = CountWindow(3000)
_RARE = 0.003  # of tuples of C, where the third keyword is rare


@dataclass(frozen=True, slots=True)
class Shape:
    """A load. ``share``: of tuples with a keyword; ``values``: of how many x is.

    ``rare``: only few tuples of C have the third keyword, and their x is that of no other tuple.
    """

    name: str
    query: str
    values: int
    share: float
    rare: bool = False


SHAPES = (
    Shape("every tuple has a keyword, 1,000 values", "alpha beta gamma", 1000, 1.0),
    Shape("one in five has, 100 values", "alpha beta gamma", 100, 0.2),
    Shape("3 in 100 have, 300 values", "alpha beta gamma", 300, 0.03),
    Shape("two keywords, 300 values: others connect", "alpha beta", 300, 0.03),
    *(
        Shape(f"two are frequent and join, {n:,} values", "alpha beta gamma", n, 0.3, rare=True)
        for n in (1000, 100, 20)
    ),
)
_SCHEMA = Schema(
    "star",
    tuple(
        Relation(
            name,
            (Attribute("text", AttributeType.TEXT), Attribute("x", AttributeType.INTEGER)),
            search=("text",),
        )
        for name in "ABC"
    ),
    tuple(Join(f"{a}{b}", a, b, (("x", "x"),)) for a, b in ("AB", "BC")),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor seconds by evaluator, the median of some runs; ``equal``: whether results are the same."""

    results: int
    seconds: dict[EvaluatorName, float]
    equal: bool


def cost(shape: Shape, number: int, repeat: int) -> Cost:
    """What each takes for the first ``number`` tuples of a load, in turn."""
    records = list(_records(shape, number))
    plan = Plan(_SCHEMA, parse_query(shape.query, _SCHEMA), WINDOW, max_size=3)
    expect_long_lived_objects()
    taken: dict[EvaluatorName, list[float]] = {name: [] for name in EvaluatorName}
    found: set[tuple[str, ...]] = set()
    for name in taken:  # loads modules
        _ids(replace(plan, evaluated_by=name), records[:1])
    for _ in range(repeat):
        for name, seconds in taken.items():
            begun = time.process_time()
            ids = _ids(replace(plan, evaluated_by=name), records)
            seconds.append(time.process_time() - begun)
            found.add(ids)
    medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
    return Cost(max(map(len, found)), medians, len(found) == 1)


def _ids(plan: Plan, records: Sequence[Record]) -> tuple[str, ...]:
    engine = ColumnarEngine.of(plan)
    return tuple(f"{result.op}{result.id}" for result in engine.process(records))


def _records(shape: Shape, number: int, seed: int = 1) -> Iterator[Record]:
    """Every relation as often. Where a keyword is rare, A has the first, B the second; else any has any."""
    source = random.Random(seed)
    keywords = shape.query.split()
    for position in range(number):
        relation, x = source.randrange(3), source.randrange(shape.values)
        word = source.choice(keywords) if source.random() < shape.share else "none"
        if shape.rare:
            rare = relation == 2 and source.random() < _RARE
            frequent = relation < 2 and word != "none"
            word = keywords[2] if rare else keywords[relation] if frequent else "none"
            x = -1 - position if rare else x
        yield Record(relation, position, (word, x))
