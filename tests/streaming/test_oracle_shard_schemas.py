"""Shards under a schema that changes give what one worker gives, whenever they lose their meshes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from schema.model import Relation, Schema
from schema.write import to_yaml
from skws.live.share import Spread
from skws.records import Record
from skws.watch.control import Command
from skws.watch.entry import Entry
from skws.watch.worker import Worker
from tests.streaming.shard_runs import all_shards, lines, parcel_of
from tests.streaming.test_oracle_shards import ATTRIBUTES, SCHEMA, cut, random_records, random_row, request
from windows.window import CountWindow, TimeWindow, Window


def _without(schema: Schema, *names: str) -> Schema:
    """Without some relations or joins."""
    relations = tuple(r for r in schema.relations if r.name not in names)
    joins = tuple(j for j in schema.joins if not {j.name, j.left, j.right} & set(names))
    return replace(schema, relations=relations, joins=joins)


_MORE = replace(
    SCHEMA,
    relations=(*SCHEMA.relations, Relation("extra", ATTRIBUTES, search=("t",))),
    joins=(*SCHEMA.joins, replace(SCHEMA.joins[0], name="ek", left="extra")),
)
CHANGES = [SCHEMA, _MORE, *(_without(SCHEMA, name) for name in ("pk", "self", "link", "keyed"))]
CHANGES += [_without(_MORE, "plain"), replace(_without(SCHEMA, "lk"), name="renamed")]


@pytest.mark.parametrize("window", [TimeWindow(40), CountWindow(40)])
@pytest.mark.parametrize(("shards", "spread"), [(1, Spread.ROOTS), (3, Spread.ROOTS), (2, Spread.QUERIES)])
@pytest.mark.parametrize("seed", [0, 2])  # by count most changes are refused, with 1 all of them
def test_shards_change_as_one_worker_does(window: Window, shards: int, spread: Spread, seed: int) -> None:
    rng = random.Random(seed)
    asked = request(window)
    # Other kinds of queries do not let the schema change.
    asked = replace(asked, queries={name: asked.queries[name] for name in ("a", "b")})
    tables = [Record(3, 0, random_row(rng, 5)) for _ in range(6)]
    one, several = Worker(asked), all_shards(asked, shards, spread)
    one.load_tables(tables)
    commands = [Command.adding(standing) for standing in asked.given().values()]
    found = changes = 0
    for number, batch in enumerate(cut(rng, random_records(rng, 200))):
        if rng.random() < 0.3:
            given = Command("schema", "", schema=to_yaml(rng.choice(CHANGES)))
            good, refused = one.standing.checked([given])
            counted = (
                isinstance(window, CountWindow) and "counts its tuples" in refused[0].error
                if refused
                else False
            )
            assert not refused or counted
            commands += good
            changes += len(good)
        records = batch
        if len(one.standing.stream.schema.relations) > 4:
            records = [r._replace(relation=4) if rng.random() < 0.2 and not r.delete else r for r in batch]
        outcome = one.work(Entry(number + 1, {}, 0, tuple(commands), tuple(records)))
        results = []
        for kept in several:
            if rng.random() < 0.4:
                kept.rebuild()
            results += kept.work(parcel_of(records, commands, () if number else tables)).results
        assert lines(results) == lines(outcome.results), number
        found += len(results)
        commands = []
    assert found > 5
    assert changes > (0 if isinstance(window, CountWindow) else 1)
