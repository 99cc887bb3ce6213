"""The loads: queries, their events, and the facts that engines need to run them. All engines read one file.

Star and nested are drawn so that 100,000 events have 98,793 and 97,386 matches, as published for other
engines. The others are the first query of the public Google cluster traces, in order and in any order.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

from skws_schema.model import Attribute, AttributeType, Relation, Schema

Event: TypeAlias = tuple[int, tuple[int, ...]]  # the relation and its values

TRACES: Final = Path(__file__).resolve().parents[3] / "shared" / "data" / "google-cluster"
EVENTS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Atom:
    """A tuple of a match, for engines without our language. ``on``: its columns that equal the first's."""

    variable: str
    relation: str
    on: tuple[str, ...]
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """A query over a few relations; a match spans at most ``window`` events.

    ``text``: in our language. ``atoms``: the same query for other engines, in a good join order.
    ``values``: the number of values of x and of y; None if events are read from the traces.
    """

    name: str
    text: str
    relations: dict[str, tuple[str, ...]]
    atoms: tuple[Atom, ...]
    window: int
    values: int | None = None
    ordered: bool = False

    def events(self, seed: int = 1) -> Iterator[Event]:
        """Endless if drawn, with equally frequent relations; y is drawn even if the query ignores it."""
        if self.values is None:
            yield from _trace_events()
            return
        source = random.Random(seed)
        arities = [len(columns) for columns in self.relations.values()]
        while True:
            relation = source.randrange(len(arities))
            x, y = source.randrange(self.values), source.randrange(self.values)
            yield relation, (x, y)[: arities[relation]]

    def schema(self) -> Schema:
        relations = (
            Relation(name, tuple(Attribute(a, AttributeType.INTEGER) for a in columns))
            for name, columns in self.relations.items()
        )
        return Schema(self.name, tuple(relations), ())

    def task(self, path: Path, number: int) -> dict[str, Any]:
        """The task of an engine's process, as JSON; writes the events to ``path``."""
        event_count = write(path, islice(self.events(), number))
        atoms = [
            {"variable": a.variable, "relation": a.relation, "on": a.on, "status": a.status}
            for a in self.atoms
        ]
        return {
            "load": self.name,
            "events": str(path),
            "number": event_count,
            "window": self.window,
            "relations": self.relations,
            "atoms": atoms,
            "ordered": self.ordered,
        }


def write(path: Path, events: Iterable[Event]) -> int:
    """Write one event per line, as the relation's number and its values; returns the number of events."""
    lines = [" ".join(map(str, (relation, *values))) for relation, values in events]
    path.write_text("\n".join(lines) + "\n")
    return len(lines)


def _trace_events() -> Iterator[Event]:
    """TASK(job, machine, status). Some lines have a superfluous empty value before the last one."""
    (path,) = TRACES.glob("*query1*.csv")
    with path.open(newline="") as file:
        rows = csv.reader(file)
        next(rows)
        for row in rows:
            if len(row) > 5:  # the last line of the file is cut off
                yield 0, (int(row[1]), int(float(row[3])), int(row[4]))


STAR: Final = Load(
    "star",
    "Q(x) <- A(x), B(x), C(x)",
    {"A": ("x",), "B": ("x",), "C": ("x",)},
    (Atom("b", "B", ()), Atom("c", "C", ("x",)), Atom("a", "A", ("x",))),
    window=3000,
    values=1000,
)
NESTED: Final = Load(
    "nested",
    "Q(x, y) <- A(x), B(x, y), C(x, y)",
    {"A": ("x",), "B": ("x", "y"), "C": ("x", "y")},
    (Atom("b", "B", ()), Atom("c", "C", ("x", "y")), Atom("a", "A", ("x",))),
    window=3000,
    values=100,
)


def _traces(name: str, operator: str, *, ordered: bool) -> Load:
    keys = ("job", "machine")
    text = f" {operator} ".join(f"TASK {variable}" for variable in "abc")
    return Load(
        name,
        f"{text} where a.status = 1 and b.status = 5 and c.status = 1 "
        "and a.job = b.job = c.job and a.machine = b.machine = c.machine",
        {"TASK": ("job", "machine", "status")},
        (Atom("a", "TASK", (), 1), Atom("b", "TASK", keys, 5), Atom("c", "TASK", keys, 1)),
        window=100,
        ordered=ordered,
    )


TRACES_IN_ORDER: Final = _traces("q1", ";", ordered=True)
TRACES_IN_ANY: Final = _traces("q1 any order", "AND", ordered=False)
DRAWN: Final = (STAR, NESTED)
LOADS: Final = {load.name: load for load in (*DRAWN, TRACES_IN_ORDER, TRACES_IN_ANY)}
