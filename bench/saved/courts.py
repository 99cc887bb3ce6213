"""The day of ``examples/courts``: 10,000 alerts on dockets, in skws and in a percolator.

The rows of the morning are loaded first. Then each change of the day, a docket or a filing, is measured
alone. Both must have the same (alert, docket) pairs at the end; otherwise this is an error.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

import orjson
import yaml

from bench.saved.percolator import Percolator
from skws.data.batch import RecordBatch, batched
from skws.formats import BadRecordLog, Replay
from skws.memory import expect_long_lived_objects
from skws.queries.kinds import plans_over
from skws.queries.session import Session
from skws.results.result import LiveResult
from skws.spec.query_spec import Query, Stream
from skws_schema.model import Schema
from skws_schema.yaml.load import load_schema
from skws_windows.window import parse_window

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "courts"
SIZE: Final = 4  # a party and an attorney of another party, joined through their docket
_MEASURED: Final = 2_000  # changes


@dataclass(frozen=True, slots=True)
class Courts:
    """Seconds to load the morning; milliseconds per change (median, worst); those of the large docket.

    ``together``: milliseconds per change in one batch with as many other changes.
    """

    name: str
    load_seconds: float
    change: tuple[float, float]
    hub: tuple[float, float]
    together: float


@dataclass(frozen=True, slots=True)
class Day:
    """Lines of the replay before the first change, the changes that are measured singly, and the others."""

    path: Path
    morning: list[dict[str, Any]]
    changes: list[dict[str, Any]]
    others: list[dict[str, Any]]
    alerts: dict[str, str]
    hub: int


def day(folder: Path, number: int, attorneys: int, alerts: int) -> Day:
    """Generate the day."""
    options = [f"--changes={number}", f"--hub={attorneys}", f"--alerts={alerts}"]
    subprocess.run([sys.executable, str(EXAMPLE / "generate.py"), str(folder), *options], check=True)
    lines = [orjson.loads(line) for line in (folder / "replay.jsonl").read_bytes().splitlines()]
    last = max(place for place, line in enumerate(lines) if line["relation"] == "party")
    first = next(place for place in range(last, len(lines)) if lines[place]["relation"] == "filing") + 1
    hub = lines[last]["row"]["docket"]
    most = min(_MEASURED, (len(lines) - first) // 2)
    # The renamed case and the large docket are measured for any number of changes.
    told = [line for line in lines[first + most :] if _docket(line) in {1, hub}]
    others = [line for line in lines[first + most : first + 2 * most] if line not in told]
    saved = yaml.load((folder / "alerts.yaml").read_text(), yaml.CSafeLoader)
    changes = lines[first : first + most]
    return Day(folder / "replay.jsonl", lines[:first], changes + told, others, saved, hub)


def compare(changes: int, hub: int, alerts: int) -> Iterator[Courts]:
    """The times of both over the same day. Raises AssertionError if their matches differ."""
    expect_long_lived_objects()
    with TemporaryDirectory() as folder:
        given = day(Path(folder), changes, hub, alerts)
        by_skws, found = _by_skws(given)
        yield by_skws
        percolated, expected = _percolated(given)
        yield percolated
    if found != expected:
        missing, extra = len(expected - found), len(found - expected)
        raise AssertionError(
            f"of {len(expected)} matches {missing} are missing, and there are {extra} others"
        )


def _by_skws(given: Day) -> tuple[Courts, set[tuple[str, int]]]:
    schema = load_schema(EXAMPLE / "schema.yaml")
    session = Session(Stream(schema, parse_window(schema.window), max_size=SIZE, finite=True))
    queries = [Query(text).named(name, SIZE) for name, text in given.alerts.items()]
    session.add_all(plans_over(queries, session.stream))
    matches: dict[tuple[str, int], int] = defaultdict(int)
    of_party: dict[int, int] = {
        line["row"]["id"]: line["row"]["docket"] for line in given.morning if line["relation"] == "party"
    }
    morning, changes, others = _records(given, schema)
    begun = perf_counter()
    for batch in morning:
        _count(matches, session.process(batch), of_party)
    loaded = perf_counter() - begun
    times: list[float] = []
    large: list[float] = []
    for batch, line in zip(changes, given.changes, strict=True):
        begun = perf_counter()
        results = list(session.process(batch))
        (large if _is_large(given, line) else times).append((perf_counter() - begun) * 1e3)
        _count(matches, iter(results), of_party)
    begun = perf_counter()
    results = [result for batch in others for result in session.process(batch)]
    together = (perf_counter() - begun) * 1e3 / len(given.others)
    _count(matches, iter(results), of_party)
    found = {pair for pair, alive in matches.items() if alive}
    return Courts("skws", loaded, _spread(times), _spread(large), together), found


def _records(given: Day, schema: Schema) -> tuple[list[RecordBatch], list[RecordBatch], list[RecordBatch]]:
    """The morning in batches, single changes, the other changes in batches; all with times in order."""
    path, found = given.path.with_name("part.jsonl"), []
    latest = 0
    for lines in (given.morning, given.changes, given.others):
        path.write_bytes(b"\n".join(map(orjson.dumps, lines)))
        records = []
        for batch in Replay.open(path, schema).batches(BadRecordLog()):
            for record in batch.records():
                latest = max(latest, record.time)
                records.append(record._replace(time=latest))
        found.append(records)
    morning, changes, others = found
    return list(batched(morning)), [RecordBatch.of([record]) for record in changes], list(batched(others))


def _percolated(given: Day) -> tuple[Courts, set[tuple[str, int]]]:
    percolator = Percolator(given.alerts)
    begun = perf_counter()
    for docket in {percolator.store(line["relation"], line["row"]) for line in given.morning}:
        percolator.percolate(docket)
    loaded = perf_counter() - begun
    times: list[float] = []
    large: list[float] = []
    for line in given.changes:
        begun = perf_counter()
        percolator.percolate(percolator.store(line["relation"], line["row"]))
        (large if _is_large(given, line) else times).append((perf_counter() - begun) * 1e3)
    begun = perf_counter()
    for line in given.others:
        percolator.percolate(percolator.store(line["relation"], line["row"]))
    together = (perf_counter() - begun) * 1e3 / len(given.others)
    found = {(given.alerts[name], docket) for docket, names in percolator.matches.items() for name in names}
    return Courts("percolator over SQLite", loaded, _spread(times), _spread(large), together), found


def _count(
    matches: dict[tuple[str, int], int], results: Iterator[LiveResult], of_party: dict[int, int]
) -> None:
    """Update the number of live results for each alert and docket."""
    for result in results:
        row, relation = result.tuples[0].row, result.tuples[0].relation
        keys = {"docket": "id", "attorney": "party"}
        docket = int(row[keys.get(relation, "docket")] or 0)
        docket = of_party[docket] if relation == "attorney" else docket
        matches[result.query, docket] += 1 if result.op == "+" else -1


def _is_large(given: Day, line: dict[str, Any]) -> bool:
    return _docket(line) == given.hub


def _docket(line: dict[str, Any]) -> int:
    """The docket of a line; attorneys have none."""
    return int(line["row"]["id"] if line["relation"] == "docket" else line["row"].get("docket", 0))


def _spread(times: Sequence[float]) -> tuple[float, float]:
    return median(times), max(times)
