"""Bounded queries over a growing file resume from a checkpoint after a crash."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from skws.jobs import journal
from skws.spec.enums import EngineName
from skws.spec.job import Job
from skws.spec.query import SQL, Query
from tests.bounds.keyword_streams import SCHEMA, SECOND, stream
from tests.jobs.watching import abandon, opened, steps
from tests.strategies import seeds

QUERIES: dict[str, str | Query] = {
    "tills": "till:red door:blue",
    "sales": "sale:red",
    "sold": Query(
        "SELECT sale.pid, till.till FROM sale, till WHERE sale.time > till.time AND sale.till = till.till",
        kind=SQL,
    ),
}


def _asked(folder: Path, results: str) -> Job:
    return Job(
        QUERIES,
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


@seeds(2, 3)
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


def test_the_checkpoint_does_not_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SEGMENT_BYTES", 4000)
    source = tmp_path / "in.jsonl"
    source.write_bytes(b"")
    watch = opened(_asked(tmp_path, "out"))
    for part in range(6):
        with source.open("ab") as file:
            for number in range(400):
                time = part * 1000 + number
                row = {"pid": number % 4, "till": number % 4, "note": f"red {time}"}
                file.write(orjson.dumps({"relation": "sale", "time": time, "row": row}) + b"\n")
        steps(watch)
    watch.close()
    kept = sum(path.stat().st_size for path in (tmp_path / "out.checkpoint").rglob("*") if path.is_file())
    assert source.stat().st_size > 150_000
    assert kept < 30_000
