"""Jobs and shards of bounded queries give all results, also after restarts from constant-size state."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from skws.data.batch import RecordBatch
from skws.jobs.control import Command
from skws.jobs.journal import SEGMENT_BYTES, Entry
from skws.jobs.worker import Worker
from skws.queries.kinds import checked
from skws.results.model import LiveResult
from skws.spec.enums import EngineName
from skws.spec.job import Job
from skws.spec.query import SQL, Query
from tests.bounds.keyword_streams import SCHEMA, SECOND, stream, tables
from tests.jobs.watching import abandon, opened, steps
from tests.spark.streaming.shard_runs import all_shards, lines, micro_batch_of
from tests.strategies import seeds

JOINED = "SELECT sale.pid, till.till FROM sale, till WHERE sale.time > till.time AND sale.till = till.till"
ASKED = Job(
    {
        "sold": "sale:red product:blue",
        "tills": "till:red door:blue",
        "priced": "sale:red price:blue",
        "joined": Query(JOINED, kind=SQL),
    },
    SCHEMA,
    "nowhere",
    max_size=3,
)


@pytest.mark.parametrize("shards", [1, 3])
@seeds(1, 2)
def test_shards_give_what_one_process_gives_that_keeps_everything(seed: int, shards: int) -> None:
    chance = random.Random(seed)
    static, records = tables(chance), stream(chance, 250)
    everything = Worker(replace(ASKED, force_unbounded=True))
    everything.load_tables(static)
    several = all_shards(ASKED, shards)
    first = [Command.adding(one) for one in checked(ASKED).values()]
    found: list[LiveResult] = []
    for number, begin in enumerate(range(0, len(records), 11)):
        batch, commands = records[begin : begin + 11], () if number else tuple(first)
        expected = everything.work(Entry(number + 1, {}, 0, commands, RecordBatch.of(batch))).results
        micro_batch = micro_batch_of(batch, commands, () if number else static)
        results: list[LiveResult] = []
        for shard in several:
            if chance.random() < 0.4:
                shard.rebuild()
            results += shard.work(micro_batch).results
            assert len(shard.chunks) <= 1, "no log is kept"
        assert lines(results) == lines(expected), number
        found += results
    assert {result.query for result in found} >= {"joined", "sale:red product:blue", "till:red door:blue"}
    assert sum(len(state) for shard in several for state in shard.states.values()) < 6000 * shards


RECOVERED: dict[str, str | Query] = {
    "tills": "till:red door:blue",
    "sales": "sale:red",
    "sold": Query(
        "SELECT sale.pid, till.till FROM sale, till WHERE sale.time > till.time AND sale.till = till.till",
        kind=SQL,
    ),
}


def _asked(folder: Path, results: str) -> Job:
    return Job(
        RECOVERED,
        SCHEMA,
        str(folder / "in.jsonl"),
        max_size=2,
        engine=EngineName.LOCAL,
        sinks=(f"jsonl:{folder / results}",),
        checkpoint=folder / f"{results}.checkpoint",
    )


def _lines(seed: int) -> list[bytes]:
    records = [r for r in stream(random.Random(seed), 150) if r.relation != 4]
    shown: list[dict[str, Any]] = [
        {
            "relation": SCHEMA.relations[r.relation].name,
            "time": r.time / SECOND,
            "row": dict(zip(SCHEMA.relations[r.relation].columns, r.row, strict=True)),
        }
        for r in records
    ]
    return [orjson.dumps(record) + b"\n" for record in shown]


@seeds(1, 3)
def test_nothing_is_lost_or_told_twice(tmp_path: Path, seed: int) -> None:
    lines, chance = _lines(seed), random.Random(seed)
    source = tmp_path / "in.jsonl"
    source.write_bytes(b"")
    broken, whole = opened(_asked(tmp_path, "broken")), opened(_asked(tmp_path, "whole"))
    first = 0
    while first < len(lines):
        size = chance.randrange(1, 25)
        with source.open("ab") as file:
            file.write(b"".join(lines[first : first + size]))
        first += size
        steps(whole)
        for _ in range(chance.randrange(1, 4)):
            broken.step()
        if chance.random() < 0.5:
            abandon(broken)
            broken = opened(_asked(tmp_path, "broken"))
    for watch in (broken, whole):
        steps(watch)
        watch.close()
    told = [sorted((tmp_path / name).read_bytes().splitlines()) for name in ("broken", "whole")]
    assert told[0] == told[1]
    assert {orjson.loads(line)["query"] for line in told[0]} == {"till:red door:blue", "sale:red", "sold"}


def test_the_checkpoint_does_not_grow(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(b"")
    watch, long = opened(_asked(tmp_path, "out")), "x" * 20_000
    for part in range(6):
        with source.open("ab") as file:
            for number in range(400):
                time = part * 1000 + number
                row = {"pid": number % 4, "till": number % 4, "note": f"red {time} {long}"}
                file.write(orjson.dumps({"relation": "sale", "time": time, "row": row}) + b"\n")
        steps(watch)
    watch.close()
    kept = sum(path.stat().st_size for path in (tmp_path / "out.checkpoint").rglob("*") if path.is_file())
    assert source.stat().st_size > 10 * SEGMENT_BYTES
    assert kept < 3 * SEGMENT_BYTES
