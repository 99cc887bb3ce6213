"""A folder of growing files on the simulated disk, written by another program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final

import orjson

from skws.data.batch import Record
from skws.jobs.control import RunControl
from skws.sources.feed import Source
from skws_schema.model import Row, Schema
from tests.sim.model import Sent
from tests.sim.plan import Event
from tests.sim.shop import ROWS, SCHEMA, TABLE
from tests.sim.world import World

FOLDER: Final = "/sim/in"
BAD: Final = "nobody"


class Upstream:
    """The source of records. ``truth``: what can be read, by part; ``time``: the latest event time."""

    address = ""
    schema = SCHEMA
    may_change = True  # the schema may change

    def source(self, control: RunControl) -> Source | None:
        """The source of the job; None for the source of the address."""
        return None

    def __init__(self, world: World) -> None:
        self.world = world
        self.time = 1_700_000_000_000_000
        self.truth: dict[str, list[Sent]] = {}
        self.needed: dict[str, int] = {}  # by part, the first item that may have to be read again
        self._bad = 0

    @contextmanager
    def installed(self) -> Iterator[None]:
        """A context in which product code finds the source."""
        yield

    def sent(self, event: Event) -> tuple[Sent, dict[str, Any]]:
        """An event in the form of the model, and as JSON."""
        time = self.time + event.micros
        self.time = max(self.time, time)
        relation = event.relation
        if event.bad:
            self._bad += 1
            relation = BAD
        columns = ("cid", "name" if relation == "customer" else "item")
        row = dict(zip(columns, event.row, strict=True)) | ({"n": self._bad} if event.bad else {})
        fields = {"relation": relation, "time": time / 1e6, "op": "-" if event.delete else "+", "row": row}
        return (relation, Record(-1, time, event.row, event.delete), orjson.dumps(fields)), fields

    def describe(self, schema: Schema) -> None:
        """Create the static table if the schema of the job has it."""
        if TABLE in schema.index:
            self.load([{"relation": TABLE, "row": {"cid": cid, "level": level}} for cid, level in ROWS])

    def load(self, rows: list[dict[str, Any]]) -> None:
        """Provide the rows of the static table."""
        raise NotImplementedError

    def part(self, relation: str, row: Row) -> str:
        raise NotImplementedError

    def publish(self, event: Event) -> None:
        raise NotImplementedError

    def save(self) -> Callable[[], None]:
        """Returns a call that undoes later effects of processes on the source."""
        return lambda: None

    def act(self, draw: int) -> None:
        """An action that is specific to the source."""

    def settle(self) -> None:
        """Make everything that was sent readable."""


class Files(Upstream):
    """Two files: one with customers and refunds, one with orders. Lines may be written in halves."""

    address = FOLDER

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.truth = {"a": [], "b": []}
        self._half: dict[str, tuple[Sent, bytes]] = {}
        self._rotated = 0
        world.disk.makedirs(FOLDER)
        for part in self.truth:
            world.disk.put(self._path(part), b"")

    def load(self, rows: list[dict[str, Any]]) -> None:
        self.world.disk.put(self._path(TABLE), b"".join(orjson.dumps(row["row"]) + b"\n" for row in rows))

    def part(self, relation: str, row: Row) -> str:
        return "b" if relation == "order" else "a"

    def publish(self, event: Event) -> None:
        item, _ = self.sent(event)
        part = self.part(event.relation, ())
        self._finish(part)
        self.world.disk.extend(self._path(part), item[2] + b"\n")
        self.truth[part].append(item)

    def act(self, draw: int) -> None:
        """Write half a line, or rotate a file while it is read, so that several are read in parallel."""
        rng = Random(draw)
        part = rng.choice("ab")
        if rng.random() < 0.6:
            self._finish(part)
            item, _ = self.sent(
                Event("order" if part == "b" else "customer", 0, (rng.randint(1, 4), "ada lamp"))
            )
            complete_line = item[2] + b"\n"
            length = rng.randint(1, len(complete_line) - 3)
            self.world.disk.extend(self._path(part), complete_line[:length])
            self._half[part] = item, complete_line[length:]
        elif part not in self._half and self.needed.get(part, 0) == len(self.truth[part]):
            self._rotated += 1
            with self.world.calm():
                self.world.disk.replace(self._path(part), f"{self._path(part)}.{1_000 - self._rotated}")
            self.world.disk.put(self._path(part), b"")

    def settle(self) -> None:
        for part in self.truth:
            self._finish(part)

    def _finish(self, part: str) -> None:
        if part in self._half:
            item, remaining = self._half.pop(part)
            self.world.disk.extend(self._path(part), remaining)
            self.truth[part].append(item)

    @staticmethod
    def _path(part: str) -> str:
        return f"{FOLDER}/{part}.jsonl"
