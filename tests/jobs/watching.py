"""Fixtures for tests of live searches: a small stream of orders, and runs over it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from skws.jobs.local import LocalWatch
from skws.jobs.log import Log
from skws.results.result import LiveResult
from skws.sinks.base import Sink, SinkRun
from skws.sinks.sink_addresses import open_sinks
from skws.spec.enums import EngineName
from skws.spec.job import Job
from tests.sim.shop import SCHEMA as SCHEMA

YAML: Final = """\
version: 1
name: shop
window: 10 seconds
relations:
  customer:
    attributes: {cid: integer, name: text}
    key: [cid]
  order:
    attributes: {cid: integer, item: text}
joins:
  - customer.cid = order.cid
"""
QUERY: Final = "ada lamp"


TABLES: Final = (
    "CREATE TABLE customer (cid bigint PRIMARY KEY, name text)",
    'CREATE TABLE "order" (cid bigint, item text)',
    'ALTER TABLE "order" REPLICA IDENTITY FULL',
    "INSERT INTO customer VALUES (7, 'ada')",
)
"""The shop in PostgreSQL, with one customer."""
LAMP: Final = "INSERT INTO \"order\" VALUES (7, 'lamp')"


def customer(time: float, cid: int, name: str = "ada", op: str = "+") -> dict[str, Any]:
    return {"relation": "customer", "time": time, "op": op, "row": {"cid": cid, "name": name}}


def order(time: float, cid: int, item: str = "lamp", op: str = "+") -> dict[str, Any]:
    return {"relation": "order", "time": time, "op": op, "row": {"cid": cid, "item": item}}


def append(path: Path, *records: dict[str, Any]) -> None:
    with path.open("ab") as file:
        file.write(b"".join(orjson.dumps(record) + b"\n" for record in records))


def lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def result_events(path: Path) -> list[tuple[str, str, str]]:
    """Operation, query and id of each result in a file, in order."""
    return [(line["op"], line["query"], line["id"]) for line in lines(path)]


def request(source: Path | str, **changes: Any) -> Job:
    defaults: dict[str, Any] = {"queries": {QUERY: QUERY}, "schema": SCHEMA, "engine": EngineName.LOCAL}
    return Job(**{**defaults, "source": str(source), **changes})


@dataclass
class Collected:
    """A sink that records its input."""

    name: str = "collected"
    every: float = 0.0
    results: list[LiveResult] = field(default_factory=list)
    flushes: int = 0
    opened: SinkRun | None = None

    def open(self, run: SinkRun) -> None:
        self.opened = run

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        self.results += (result.parsed for result in results)

    def flush(self) -> None:
        self.flushes += 1

    def close(self) -> None:
        self.opened = None

    def told(self) -> list[tuple[str, str]]:
        return [(result.op, result.query) for result in self.results]


class Notes:
    """A log that records its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.log = Log(stream=self)  # type: ignore[arg-type]  # a log needs no more of a stream

    def write(self, text: str) -> int:
        self.lines += [text] if text.strip() else []
        return len(text)

    def flush(self) -> None:
        pass


def opened(job: Job, *sinks: Sink, notes: Notes | None = None) -> LocalWatch:
    """A live search that is ready for its first step."""
    watch = LocalWatch(job, sinks or open_sinks(job.sinks), (notes or Notes()).log)
    watch.open()
    return watch


def steps(watch: LocalWatch) -> None:
    """Runs steps as long as there is something to do."""
    while watch.step():
        pass


def ran(job: Job, *records: dict[str, Any]) -> Collected:
    """A run that ends normally after it has read records appended to its source."""
    sink = Collected()
    watch = opened(job, sink)
    append(Path(job.source), *records)
    steps(watch)
    watch.close()
    return sink


def abandon(watch: LocalWatch) -> None:
    """Leaves the state after a kill: nothing flushed or committed, and the locks released."""
    if watch._checkpoint is not None:
        watch._checkpoint.close()
    if watch._control_folder is not None:
        watch._control_folder.release()
    out = watch._fanout
    if out is not None and out._dead_letters is not None:
        out._dead_letters.close()
    for sink in watch._sinks:
        with suppress(AttributeError):  # not opened yet
            sink.close()


def numbered(count: int) -> Iterator[dict[str, Any]]:
    """A stream in which every order completes a result."""
    for n in range(count):
        yield customer(1000 + n * 0.01, n, f"ada {n}")
        yield order(1000 + n * 0.01, n, f"lamp {n}")
