"""Shards under a changing schema give what one worker gives, also after losing their meshes."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws.jobs.control import Command
from skws.jobs.journal import Entry
from skws.jobs.worker import Worker
from skws.queries.kinds import checked
from skws.queries.partitioning import Partitioning
from skws.queries.stream_state import LoggedBatch
from skws.spec.query import PATTERN, SIZE, TOP, Query
from skws_schema.model import Relation, Schema
from skws_schema.yaml.write import to_yaml
from skws_windows.window import CountWindow, TimeWindow, Window
from tests.queries.counted import counted
from tests.spark.streaming.shard_runs import all_shards, lines, micro_batch_of
from tests.spark.streaming.test_oracle_shards import SCHEMA, cut, random_records, random_row, request
from tests.strategies import COLUMNS


@pytest.fixture(autouse=True)
def _counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counted(monkeypatch)


def _without(schema: Schema, *names: str) -> Schema:
    """Without some relations or joins."""
    relations = tuple(r for r in schema.relations if r.name not in names)
    joins = tuple(j for j in schema.joins if not {j.name, j.left, j.right} & set(names))
    return replace(schema, relations=relations, joins=joins)


_MORE = replace(
    SCHEMA,
    relations=(*SCHEMA.relations, Relation("extra", COLUMNS, search=("t",))),
    joins=(*SCHEMA.joins, replace(SCHEMA.joins[0], name="ek", left="extra")),
)
CHANGES = [SCHEMA, _MORE, *(_without(SCHEMA, name) for name in ("pk", "self", "link", "keyed"))]
CHANGES += [_without(_MORE, "plain"), replace(_without(SCHEMA, "lk"), name="renamed")]


MORE_KINDS = {
    "any": Query("plain p ; * b where p.x = b.x", kind=PATTERN),
    "own": Query("plain p ; plain q where p.y = q.y within 6 tuples", kind=PATTERN),
    "best": Query("alpha beta", kind=TOP, options={SIZE: "3"}),
}


@pytest.mark.parametrize("window", [TimeWindow(40), CountWindow(40)])
@pytest.mark.parametrize(
    ("shards", "spread"), [(1, Partitioning.ROOTS), (3, Partitioning.ROOTS), (2, Partitioning.QUERIES)]
)
def test_shards_change_as_one_worker_does(window: Window, shards: int, spread: Partitioning) -> None:
    rng = random.Random(0)  # by count most changes are refused; of this seed not all
    asked = request(window)
    # A query that names a relation does not let it go: that is tested elsewhere.
    asked = replace(
        asked,
        queries={name: asked.queries[name] for name in ("a", "b", "fifth")} | MORE_KINDS,
        control=Path("none"),
    )
    tables = [Record(3, 0, random_row(rng, 5)) for _ in range(6)]
    log: list[LoggedBatch] = []
    one, several = Worker(asked, lambda _: log), all_shards(asked, shards, spread)
    one.load_tables(tables)
    commands = [Command.adding(standing) for standing in checked(asked).values()]
    found = changes = 0
    for number, batch in enumerate(cut(rng, random_records(rng, 130))):
        if rng.random() < 0.5:
            given = Command("schema", "", schema=to_yaml(rng.choice(CHANGES)))
            good, refused = one.standing.checked([given])
            reasons = ["there is no relation 'plain'"]
            reasons += ["counts its tuples"] if isinstance(window, CountWindow) else []
            assert not refused or any(reason in refused[0].error for reason in reasons), refused
            commands += good
            changes += len(good)
        records = batch
        if len(one.standing.stream.schema.relations) > 4:
            records = [r._replace(relation=4) if rng.random() < 0.2 and not r.delete else r for r in batch]
        before = one.live.position, one.live.now
        outcome = one.work(Entry(number + 1, {}, 0, tuple(commands), RecordBatch.of(records)))
        log.append(LoggedBatch(*before, RecordBatch.of(records)))
        results = []
        for kept in several:
            if rng.random() < 0.4:
                kept.rebuild()
            results += kept.work(micro_batch_of(records, commands, () if number else tables)).results
        assert lines(results) == lines(outcome.results), number
        found += len(results)
        commands = []
    assert found > 5
    assert changes > (0 if isinstance(window, CountWindow) else 1)
