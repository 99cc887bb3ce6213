"""Schemas, streams and random queries for the tests of bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from skws_bounds.normal_form import SpjQuery, Union
from skws_bounds.query_run import Bag, Item, NaiveJoin, UnionRun
from skws_bounds.sql_reader import parse_sql
from skws_schema.budgets import StepBudget
from skws_schema.model import Attribute, AttributeType, Relation, Row, Schema

SECOND = 1_000_000
_INTEGER = AttributeType.INTEGER
_TIMESTAMP = AttributeType.TIMESTAMP


def unlimited() -> StepBudget:
    """No limits, for small queries."""
    return StepBudget(100_000, "testing")


def stream(name: str, time: str, *integers: str, **more: Any) -> Relation:
    """A stream with an application time as the last column of its rows, and integer attributes."""
    attributes = (*(Attribute(a, _INTEGER) for a in integers), Attribute(time, _TIMESTAMP))
    return Relation(name, attributes, time=time, **more)


def table(name: str, *integers: str) -> Relation:
    return Relation(name, tuple(Attribute(a, _INTEGER) for a in integers), table=True)


STREAMS = Schema(
    "letters",
    (
        stream("s", "i", "a", "a2"),
        stream("t", "j", "b", "b2"),
        stream("u", "k", "c", "c2"),
        stream("v", "l", "d", "d2"),
        table("r", "x", "y"),
        Relation(
            "f", (Attribute("e", _INTEGER), Attribute("m", _TIMESTAMP, 0, 3 * SECOND)), time="m", finite=True
        ),
    ),
    (),
)
TIMES = {"s": "i", "t": "j", "u": "k", "v": "l", "f": "m"}
INTEGERS = {
    "s": ("a", "a2"),
    "t": ("b", "b2"),
    "u": ("c", "c2"),
    "v": ("d", "d2"),
    "r": ("x", "y"),
    "f": ("e",),
}

Step = tuple[int, Mapping[str, Sequence[Row]]]


def sql(text: str, schema: Schema = STREAMS) -> Union:
    return parse_sql(text, schema)


def results(
    query: SpjQuery, schema: Schema, tuples: Mapping[str, Sequence[Item]]
) -> Counter[tuple[Any, ...]]:
    """The results of a query over some tuples, by a naive join."""
    new = {alias: Bag(items) for alias, items in tuples.items()}
    return NaiveJoin(query, schema).new_results({s.alias: Bag() for s in query.streams}, new)


def naive_outputs(
    union: Union, schema: Schema, steps: Sequence[Step], tables: Mapping[str, Sequence[Row]]
) -> Any:
    """The output of a union at each step, evaluated over all tuples so far."""
    previous: Counter[tuple[Any, ...]] = Counter()
    received: dict[str, list[tuple[int, Row]]] = {
        name: [(0, r) for r in rows] for name, rows in tables.items()
    }
    outputs = []
    for time, rows in steps:
        for name, arrivals in rows.items():
            received.setdefault(name, []).extend((time, row) for row in arrivals)
        output: Counter[tuple[Any, ...]] = Counter()
        for query in union.queries:
            output += results(query, schema, {s.alias: received.get(s.relation, []) for s in query.streams})
        if union.distinct:
            output = Counter(set(output))
        outputs.append(output - previous)
        previous = output
    return outputs


def synopsis_outputs(
    union: Union, schema: Schema, steps: Sequence[Step], tables: Mapping[str, Sequence[Row]]
) -> Any:
    """The output of the synopses at each step."""
    run = UnionRun(union, schema, tables)
    return [Counter(dict(run.step(time, rows))) for time, rows in steps]


@st.composite
def queries(draw: st.DrawFn, names: str = "stuv", *, known: bool = True, most: int = 4) -> str:
    """SQL over some of the streams, with conditions that sometimes make it bounded."""
    relations = draw(st.lists(st.sampled_from(names), min_size=1, max_size=most, unique=True))
    if known:
        relations += [name for name in "rf" if draw(st.integers(0, 3)) == 0]
    conditions = []
    for one, other in pairwise(relations):
        if one in TIMES and other in TIMES and draw(st.integers(0, 3)):
            op = draw(st.sampled_from(["<", ">", ">", "=", ">=", "<>"]))
            conditions.append(f"{one}.{TIMES[one]} {op} {other}.{TIMES[other]}")
    attributes = [f"{n}.{a}" for n in relations for a in INTEGERS[n]]
    for attribute in attributes:
        if draw(st.integers(0, 2)):
            conditions += [f"{attribute} > 0", f"{attribute} < {draw(st.sampled_from([3, 4]))}"]
        elif draw(st.integers(0, 3)) == 0:
            conditions.append(f"{attribute} {draw(st.sampled_from(['<', '>', '=', '<>']))} 2")
    for _ in range(draw(st.integers(0, 3))):
        ends = (
            draw(st.lists(st.sampled_from(attributes), min_size=2, max_size=2, unique=True))
            if len(attributes) > 1
            else []
        )
        if ends:
            conditions.append(f"{ends[0]} {draw(st.sampled_from(['<', '>', '=', '<>', '<=']))} {ends[1]}")
    output = draw(st.lists(st.sampled_from(attributes), max_size=2, unique=True)) or ["1"]
    distinct = "DISTINCT " if draw(st.booleans()) else ""
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {distinct}{', '.join(output)} FROM {', '.join(relations)}{where}"


@st.composite
def steps(draw: st.DrawFn, *, most: int = 8) -> list[Step]:
    """Time steps with some tuples of every stream, with values of a small domain."""
    value = st.integers(-1, 5)
    steps: list[Step] = []
    time = 0
    for _ in range(draw(st.integers(1, most))):
        time += SECOND * draw(st.integers(1, 2))
        rows: dict[str, list[Row]] = {}
        for name in "stuvf":
            if name == "f" and time > 3 * SECOND:
                continue
            width = len(INTEGERS[name])
            tuples = draw(st.lists(st.tuples(*[value] * width), max_size=2))
            rows[name] = [(*row, time) for row in tuples]
        steps.append((time, rows))
    return steps


tables = st.fixed_dictionaries({"r": st.lists(st.tuples(st.integers(-1, 5), st.integers(-1, 5)), max_size=3)})
