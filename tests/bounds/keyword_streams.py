"""A schema with relations of every kind of memory, and random streams for it."""

from __future__ import annotations

import random
from typing import Final

from skws.data.batch import Record
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws_schema.model import Row
from skws_schema.yaml.load import parse_schema
from skws_windows.window import Unbounded

SECOND: Final = 1_000_000
END: Final = 20
YAML: Final = """\
version: 1
name: shop
relations:
  product: {attributes: {pid: integer, name: text}, key: [pid], table: true}
  sale: {attributes: {pid: integer, till: integer, note: text}}
  till: {attributes: {till: {type: integer, min: 0, max: 3}, clerk: text}, key: [till]}
  visit: {attributes: {vid: integer, page: text}, key: [vid]}
  price:
    attributes: {pid: integer, label: text, at: {type: timestamp, max: "1970-01-01T00:00:20Z"}}
    time: at
    finite: true
  door: {attributes: {till: {type: integer, min: 0, max: 3}, sign: text}, key: [till]}
joins:
  - product.pid = sale.pid
  - sale.till = till.till
  - product.pid = price.pid
  - door.till = till.till
"""
SCHEMA: Final = parse_schema(YAML)
WORDS: Final = ("red", "blue", "green")


def plan(query: str, max_size: int = 3) -> Plan:
    return Plan(SCHEMA, parse_query(query, SCHEMA), Unbounded(), max_size)


def tables(chance: random.Random) -> list[Record]:
    return [Record(0, 0, (pid, _text(chance))) for pid in range(4)]


def stream(chance: random.Random, count: int) -> list[Record]:
    """Insertions by time; some at one instant, some equal, prices until their end only."""
    records: list[Record] = []
    time = 0
    for _ in range(count):
        time += chance.choice((0, 0, 1, 2)) * SECOND // 2
        relation = chance.choice((1, 1, 1, 2, 3, 4, 5))
        if relation == 4 and time > END * SECOND:
            continue
        records.append(Record(relation, time, _row(chance, relation, time)))
        if chance.random() < 0.15:
            records.append(records[-1])
    return records


def _row(chance: random.Random, relation: int, time: int) -> Row:
    number = chance.randrange(4)
    if relation == 1:
        return number, chance.randrange(4), _text(chance)
    return (number, _text(chance), time) if relation == 4 else (number, _text(chance))


def _text(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randrange(4)))
