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


def run(task: dict[str, Any], on_start: Callable[[], None]) -> int:
    width = max(len(relation["columns"]) for relation in task["relations"])
    # Attributes by position; the rest are 0 in relations with fewer, and no join reads them.
    types = dict.fromkeys(["number", "relation", "keywords", "start", *(f"c{c}" for c in range(width))], int)
    source = _Replayed(task, width, on_start)
    schema = pw.schema_from_types(**types)
    replayed = pw.io.python.read(source, schema=schema, autocommit_duration_ms=None)
    pw.io.subscribe(replayed.filter(pw.this.relation == _FIRST), source.first_is_through)
    nodes = _nodes(task, replayed)
    output = _Written(Path(task["results"]))
    for number, (table, size) in enumerate(_networks(task, nodes)):
        pw.io.subscribe(table, output.of(number, size))
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    return output.closed()


class _Written:
    """Writes results as lines of a file: the number of the network, then the ids of the members."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        self._results = 0

    def of(self, number: int, size: int) -> Callable[..., None]:
        names = [f"i{position}" for position in range(size)]

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

    def __init__(self, task: dict[str, Any], width: int, on_start: Callable[[], None]) -> None:
        super().__init__()
        self._task = task
        self._width = width
        self._announce_start = on_start
        self._through = threading.Event()

    def first_is_through(self, **_: Any) -> None:
        self._through.set()

    def run(self) -> None:
        unused = {f"c{c}": 0 for c in range(self._width)}
        self.next(number=-1, relation=_FIRST, keywords=0, start=0, **unused)
        self.commit()
        self._through.wait()
        self._announce_start()
        self._replay()

    def _replay(self) -> None:
        names = {relation["name"]: position for position, relation in enumerate(self._task["relations"])}
        slice_end = None
        with Path(self._task["replay"]).open() as lines:
            for number, line in enumerate(lines):
                record = json.loads(line)
                start = record["time"] * MICROSECONDS
                slice_end = start + self._task["slice"] if slice_end is None else slice_end
                if start >= slice_end:
                    self.commit()
                    slice_end += self._task["slice"]
                self.next(**self._values(number, names[record["relation"]], start, record["row"]))
        self.commit()

    def _values(self, number: int, relation: int, start: int, row: dict[str, Any]) -> dict[str, int]:
        relation_fields = self._task["relations"][relation]
        words = {word for name in relation_fields["searched"] for word in row[name].split()}
        bitmap = sum(1 << slot for slot, word in enumerate(self._task["keywords"]) if word in words)
        values = {f"c{c}": 0 for c in range(self._width)}
        for c, name in enumerate(relation_fields["columns"]):
            if name not in relation_fields["searched"]:
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
        left_step = step["left"]
        sizes.append(1 if left_step is None else sizes[left_step] + 1)
        tables.append(
            _first_table(step, node)
            if left_step is None
            else _join(task, step, tables[left_step], sizes[left_step], node)
        )
    return [(tables[step_number], sizes[step_number]) for step_number in task["last_steps"]]


def _first_table(step: dict[str, Any], node: Any) -> Any:
    columns = {f"m0c{column}": node[f"c{column}"] for _, column in step["reads"]}
    return node.select(i0=node.number, low=node.start, high=node.start, **columns)


def _join(task: dict[str, Any], step: dict[str, Any], left_table: Any, size: int, node: Any) -> Any:
    """Partial results with one more member: equal on the join, alive at the same time, all different."""
    equal = [
        left_table[f"m{position}c{left_column}"] == node[f"c{right_column}"]
        for position, left_column, right_column in step["on"]
    ]
    columns = {f"i{position}": left_table[f"i{position}"] for position in range(size)}
    columns |= {
        f"m{position}c{column}": node[f"c{column}"]
        if position == size
        else left_table[f"m{position}c{column}"]
        for position, column in step["reads"]
    }
    columns[f"i{size}"] = node.number
    pairs = left_table.join(node, *equal).select(
        low=left_table.low, high=left_table.high, start=node.start, **columns
    )
    alive = (pw.this.start - pw.this.low < task["window"]) & (pw.this.high - pw.this.start < task["window"])
    for position in step["alike"]:
        alive &= pw.this[f"i{position}"] != pw.this[f"i{size}"]
    kept_columns = {name: pw.this[name] for name in columns}
    low = pw.if_else(pw.this.start < pw.this.low, pw.this.start, pw.this.low)
    high = pw.if_else(pw.this.start > pw.this.high, pw.this.start, pw.this.high)
    return pairs.filter(alive).select(low=low, high=high, **kept_columns)
