"""Pathway: all candidate networks as one incremental graph of joins with shared prefixes.

The replay is fed in time order and committed at every slice. The sliding window is a condition on differences
of time; the joins keep all tuples. Runs one worker, like the other engines. The first record is one that no
network uses: when it is through, the graph is built and ready for the stream.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pathway as pw

MICROSECONDS = 1_000_000
_FIRST = -1  # the relation of the first record


def run(task: dict[str, Any], begun: Callable[[], None]) -> int:
    width = max(len(relation["columns"]) for relation in task["relations"])
    # Attributes by position; the rest are 0 in relations with fewer, and no join reads them.
    types = dict.fromkeys(["number", "relation", "keywords", "start", *(f"c{c}" for c in range(width))], int)
    source = _Replayed(task, width, begun)
    schema = pw.schema_from_types(**types)
    replayed = pw.io.python.read(source, schema=schema, autocommit_duration_ms=None)
    pw.io.subscribe(replayed.filter(pw.this.relation == _FIRST), source.first_is_through)
    nodes = _nodes(task, replayed)
    written = _Written(Path(task["results"]))
    for number, (table, size) in enumerate(_networks(task, nodes)):
        pw.io.subscribe(table, written.of(number, size))
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    return written.closed()


class _Written:
    """Writes results as lines of a file: the number of the network, then the ids of the members."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        self._results = 0

    def of(self, number: int, size: int) -> Callable[..., None]:
        names = [f"i{place}" for place in range(size)]

        def on_change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:  # noqa: ARG001
            if not is_addition:
                raise ValueError("a result was taken back, which no insertion can do")
            self._file.write(f"{number} {' '.join(str(row[name]) for name in names)}\n")
            self._results += 1

        return on_change

    def closed(self) -> int:
        self._file.close()
        return self._results


class _Replayed(pw.io.python.ConnectorSubject):  # type: ignore[misc]
    """Records of the JSON lines, with their keyword bitmaps."""

    def __init__(self, task: dict[str, Any], width: int, begun: Callable[[], None]) -> None:
        super().__init__()
        self._task = task
        self._width = width
        self._begun = begun
        self._through = threading.Event()

    def first_is_through(self, **_: Any) -> None:
        self._through.set()

    def run(self) -> None:
        unused = {f"c{c}": 0 for c in range(self._width)}
        self.next(number=-1, relation=_FIRST, keywords=0, start=0, **unused)
        self.commit()
        self._through.wait()
        self._begun()
        self._replay()

    def _replay(self) -> None:
        names = {relation["name"]: place for place, relation in enumerate(self._task["relations"])}
        until = None
        with Path(self._task["replay"]).open() as lines:
            for number, line in enumerate(lines):
                record = json.loads(line)
                start = record["time"] * MICROSECONDS
                until = start + self._task["slice"] if until is None else until
                if start >= until:
                    self.commit()
                    until += self._task["slice"]
                self.next(**self._values(number, names[record["relation"]], start, record["row"]))
        self.commit()

    def _values(self, number: int, relation: int, start: int, row: dict[str, Any]) -> dict[str, int]:
        described = self._task["relations"][relation]
        words = {word for name in described["searched"] for word in row[name].split()}
        bitmap = sum(1 << slot for slot, word in enumerate(self._task["keywords"]) if word in words)
        values = {f"c{c}": 0 for c in range(self._width)}
        for c, name in enumerate(described["columns"]):
            if name not in described["searched"]:
                values[f"c{c}"] = row[name]
        return {"number": number, "relation": relation, "keywords": bitmap, "start": start, **values}


def _nodes(task: dict[str, Any], replayed: Any) -> dict[tuple[int, int], Any]:
    """One table for each node of the expanded schema."""
    relations = {
        r: replayed.filter(pw.this.relation == r) for r in {relation for relation, _ in task["nodes"]}
    }
    return {(r, k): relations[r].filter(pw.this.keywords == k) for r, k in task["nodes"]}


def _networks(task: dict[str, Any], nodes: dict[tuple[int, int], Any]) -> list[tuple[Any, int]]:
    """The table of results of each network, and the number of its members."""
    tables: list[Any] = []
    sizes: list[int] = []
    for step in task["steps"]:
        node = nodes[step["relation"], step["keywords"]]
        left = step["left"]
        sizes.append(1 if left is None else sizes[left] + 1)
        tables.append(
            _first(step, node) if left is None else _join(task, step, tables[left], sizes[left], node)
        )
    return [(tables[last], sizes[last]) for last in task["last_steps"]]


def _first(step: dict[str, Any], node: Any) -> Any:
    kept = {f"m0c{column}": node[f"c{column}"] for _, column in step["reads"]}
    return node.select(i0=node.number, low=node.start, high=node.start, **kept)


def _join(task: dict[str, Any], step: dict[str, Any], left: Any, size: int, node: Any) -> Any:
    """Partial results with one more member: equal on the join, alive at the same time, all different."""
    equal = [left[f"m{place}c{near}"] == node[f"c{far}"] for place, near, far in step["on"]]
    columns = {f"i{place}": left[f"i{place}"] for place in range(size)}
    columns |= {
        f"m{place}c{column}": node[f"c{column}"] if place == size else left[f"m{place}c{column}"]
        for place, column in step["reads"]
    }
    columns[f"i{size}"] = node.number
    joined = left.join(node, *equal).select(low=left.low, high=left.high, start=node.start, **columns)
    alive = (pw.this.start - pw.this.low < task["window"]) & (pw.this.high - pw.this.start < task["window"])
    for place in step["alike"]:
        alive &= pw.this[f"i{place}"] != pw.this[f"i{size}"]
    kept = {name: pw.this[name] for name in columns}
    low = pw.if_else(pw.this.start < pw.this.low, pw.this.start, pw.this.low)
    high = pw.if_else(pw.this.start > pw.this.high, pw.this.start, pw.this.high)
    return joined.filter(alive).select(low=low, high=high, **kept)
