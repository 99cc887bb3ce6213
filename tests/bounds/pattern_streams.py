"""A schema, streams, and patterns to compare synopses with the pattern engine."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Final

from skws.data.batch import Record, RecordBatch
from skws.queries.patterns.stream import PatternStream
from skws.queries.patterns.text import read_query
from skws_bounds.run import Output
from skws_schema.yaml.load import parse_schema
from skws_windows.window import Unbounded

SECOND: Final = 1_000_000
SCHEMA: Final = parse_schema("""\
version: 1
name: bank
window: none
relations:
  login: {attributes: {user: {type: integer, min: 1, max: 4}, place: text, ok: boolean}}
  transfer: {attributes: {user: {type: integer, min: 1, max: 4}, memo: text, amount: number}}
  refund: {attributes: {user: integer, amount: number}}
  rule:
    attributes: {user: integer, at: {type: timestamp, max: "1970-01-01T00:00:12Z"}}
    time: at
    finite: true
joins: []
""")
PATTERNS: Final = (
    ("login l ; refund r", "l.user,r.amount"),
    ("login l ; refund r where l.user = r.user", "r.amount"),
    ("login l ; refund r where l.user = r.user and r.amount != 2 and l.ok = true", "l.user,l.ok"),
    ('login l ; transfer t where l.user = t.user and l:"leeds" and t.amount >= 1', "t.amount,l.user"),
    ("login l AND transfer t where l.user = t.user", "l.user"),
    ("(login l AND transfer t) ; refund r where l.user = t.user = r.user", "r.amount"),
    ("(login l OR transfer l) ; refund r where l.user = r.user", "l.user,r.amount"),
    ("(login l ; transfer t) OR (login l AND transfer t)", "l.user"),
    ("login l AND login l", ""),
    ("(login l AND login l) ; refund r where l.user = r.user", "r.user"),
    ("login a ; login b where a.user = b.user", "b.user"),
    ('"leeds" f ; refund r', "r.amount"),
    ("* x ; refund r where x.user = r.user and x.user < 8 and x.user > 0", "r.amount"),
    ("rule u ; refund r where u.user = r.user", "u.user,r.amount"),
    ("login l ; rule u where l.user = u.user", "u.user"),
    ("Q(u, p, o, m, a) <- login(u, p, o), transfer(u, m, a)", "login.user"),
    ("Q(u, p, o, q, k) <- login(u, p, o), login(u, q, k)", "login.user"),
    ("Q(p, o) <- login(2, p, o)", "login.place"),
)
"""Texts, and what is shown of them; all are bounded, and the pattern engine runs them as well."""


def stream(seed: int, count: int) -> list[Record]:
    """Tuples with NULLs and equal times; rules until second 12."""
    chance = random.Random(seed)
    time, records = 0, []
    for _ in range(count):
        time += chance.choice((0, 0, 1)) * SECOND
        user = chance.choice((1, 2, 3, 4, None))
        amount = chance.choice((0, 1, 1.5, 2, None, 2**60 + 1))
        rows = (
            (user, chance.choice(("Leeds", "Bonn", None)), chance.choice((True, False, None))),
            (user, chance.choice(("to Leeds", "rent", None)), amount),
            (chance.choice((1, 2, 7, None)), amount),
            (user, time),
        )
        relation = chance.randrange(4 if time <= 12 * SECOND else 3)
        records.append(Record(relation, time, rows[relation]))
    return records


def by_the_pattern_engine(text: str, shown: str, records: Sequence[Record]) -> Counter[tuple[int, Output]]:
    """What the matches of a pattern show, by time, all tuples being kept."""
    engine = PatternStream(read_query(text, SCHEMA), SCHEMA, Unbounded())
    formal = "<-" in text
    found: Counter[tuple[int, Output]] = Counter()
    for result in engine.process(RecordBatch.of(records)):
        values = []
        for name in filter(None, shown.split(",")):
            variable, attribute = name.split(".")
            labels = {"login": "0", "transfer": "1"} if formal else {variable: variable}
            member = next(t for t in result.tuples if labels[variable] in t.labels)
            values.append(records[member.position].row[_column(member.relation, attribute)])
        found[round(result.start * SECOND), tuple(values)] += 1
    return found


def _column(relation: str, attribute: str) -> int:
    return SCHEMA.relation(relation).columns[attribute]
