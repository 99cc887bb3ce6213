"""The time to decide whether a query needs bounded memory: random queries over six streams."""

from __future__ import annotations

import random
from statistics import median
from time import process_time

from skws_bounds.sql_reader import parse_sql
from skws_bounds.verdict import check
from skws_schema.model import Attribute, AttributeType, Relation, Schema

NAMES = "stuvwx"


def schema() -> Schema:
    def stream(name: str) -> Relation:
        integers = (Attribute(a, AttributeType.INTEGER) for a in "abc")
        return Relation(name, (*integers, Attribute("at", AttributeType.TIMESTAMP)), time="at")

    return Schema("six", tuple(stream(name) for name in NAMES), ())


def query(chance: random.Random) -> str:
    """A query over six streams, most of them ordered in time, with twelve conditions."""
    names = chance.sample(NAMES, 6)
    conditions = [
        f"{names[i]}.at {chance.choice('>><=')} {names[i + 1]}.at" for i in range(5) if chance.random() < 0.8
    ]
    attributes = [f"{name}.{a}" for name in names for a in "abc"]
    for _ in range(6):
        low = chance.randint(0, 9)
        attribute = chance.choice(attributes)
        conditions += [f"{attribute} > {low}", f"{attribute} < {low + chance.randint(2, 9)}"]
    for _ in range(6):
        left, right = chance.sample(attributes, 2)
        conditions.append(f"{left} {chance.choice(['<', '>', '=', '<>', '<='])} {right}")
    condition = " AND ".join(conditions)
    distinct = chance.choice(["", "DISTINCT "])
    return f"SELECT {distinct}{chance.choice(attributes)} FROM {', '.join(names)} WHERE {condition}"


def seconds(count: int) -> tuple[float, float, dict[bool | None, int]]:
    """(median, maximum, counts of verdicts) over ``count`` queries."""
    chance, streams_schema = random.Random(6), schema()
    times: list[float] = []
    verdicts: dict[bool | None, int] = {True: 0, False: 0, None: 0}
    for _ in range(count):
        union = parse_sql(query(chance), streams_schema)
        began = process_time()
        verdicts[check(union).bounded] += 1
        times.append(process_time() - began)
    return median(times), max(times), verdicts
