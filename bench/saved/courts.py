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
    last_party = max(index for index, line in enumerate(lines) if line["relation"] == "party")
    begin = next(index for index in range(last_party, len(lines)) if lines[index]["relation"] == "filing") + 1
    hub = lines[last_party]["row"]["docket"]
    most = min(_MEASURED, (len(lines) - begin) // 2)
    # The renamed case and the large docket are measured for any number of changes.
    extra = [line for line in lines[begin + most :] if _docket(line) in {1, hub}]
    other_lines = [line for line in lines[begin + most : begin + 2 * most] if line not in extra]
    alerts_by_name = yaml.load((folder / "alerts.yaml").read_text(), yaml.CSafeLoader)
    changes = lines[begin : begin + most]
    return Day(folder / "replay.jsonl", lines[:begin], changes + extra, other_lines, alerts_by_name, hub)


def compare(changes: int, hub: int, alerts: int) -> Iterator[Courts]:
    """The times of both over the same day. Raises AssertionError if their matches differ."""
    expect_long_lived_objects()
    with TemporaryDirectory() as folder:
        court_day = day(Path(folder), changes, hub, alerts)
        by_skws, matches = _by_skws(court_day)
        yield by_skws
        percolated, expected = _by_percolator(court_day)
        yield percolated
    if matches != expected:
        missing, extra = len(expected - matches), len(matches - expected)
        raise AssertionError(
            f"of {len(expected)} matches {missing} are missing, and there are {extra} others"
        )


def _by_skws(court_day: Day) -> tuple[Courts, set[tuple[str, int]]]:
    schema = load_schema(EXAMPLE / "schema.yaml")
    session = Session(Stream(schema, parse_window(schema.window), max_size=SIZE, finite=True))
    queries = [Query(text).named(name, SIZE) for name, text in court_day.alerts.items()]
    session.add_all(plans_over(queries, session.stream))
    matches: dict[tuple[str, int], int] = defaultdict(int)
    of_party: dict[int, int] = {
        line["row"]["id"]: line["row"]["docket"] for line in court_day.morning if line["relation"] == "party"
    }
    morning, changes, other_batches = _records(court_day, schema)
    began = perf_counter()
    for batch in morning:
        _count(matches, session.process(batch), of_party)
    load_seconds = perf_counter() - began
    times: list[float] = []
    large: list[float] = []
    for batch, line in zip(changes, court_day.changes, strict=True):
        began = perf_counter()
        results = list(session.process(batch))
        (large if _is_large(court_day, line) else times).append((perf_counter() - began) * 1e3)
        _count(matches, iter(results), of_party)
    began = perf_counter()
    results = [result for batch in other_batches for result in session.process(batch)]
    batch_ms = (perf_counter() - began) * 1e3 / len(court_day.others)
    _count(matches, iter(results), of_party)
    pairs = {pair for pair, alive in matches.items() if alive}
    return Courts("skws", load_seconds, _spread(times), _spread(large), batch_ms), pairs


def _records(
    court_day: Day, schema: Schema
) -> tuple[list[RecordBatch], list[RecordBatch], list[RecordBatch]]:
    """The morning in batches, single changes, the other changes in batches; all with times in order."""
    path, records_by_part = court_day.path.with_name("part.jsonl"), []
    latest = 0
    for lines in (court_day.morning, court_day.changes, court_day.others):
        path.write_bytes(b"\n".join(map(orjson.dumps, lines)))
        records = []
        for batch in Replay.open(path, schema).batches(BadRecordLog()):
            for record in batch.records():
                latest = max(latest, record.time)
                records.append(record._replace(time=latest))
        records_by_part.append(records)
    morning, changes, other_changes = records_by_part
    return (
        list(batched(morning)),
        [RecordBatch.of([record]) for record in changes],
        list(batched(other_changes)),
    )


def _by_percolator(court_day: Day) -> tuple[Courts, set[tuple[str, int]]]:
    percolator = Percolator(court_day.alerts)
    began = perf_counter()
    for docket in {percolator.store(line["relation"], line["row"]) for line in court_day.morning}:
        percolator.percolate(docket)
    load_seconds = perf_counter() - began
    times: list[float] = []
    large: list[float] = []
    for line in court_day.changes:
        began = perf_counter()
        percolator.percolate(percolator.store(line["relation"], line["row"]))
        (large if _is_large(court_day, line) else times).append((perf_counter() - began) * 1e3)
    began = perf_counter()
    for line in court_day.others:
        percolator.percolate(percolator.store(line["relation"], line["row"]))
    batch_ms = (perf_counter() - began) * 1e3 / len(court_day.others)
    pairs = {
        (court_day.alerts[name], docket) for docket, names in percolator.matches.items() for name in names
    }
    return Courts("percolator over SQLite", load_seconds, _spread(times), _spread(large), batch_ms), pairs


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


def _is_large(court_day: Day, line: dict[str, Any]) -> bool:
    return _docket(line) == court_day.hub


def _docket(line: dict[str, Any]) -> int:
    """The docket of a line; attorneys have none."""
    return int(line["row"]["id"] if line["relation"] == "docket" else line["row"].get("docket", 0))


def _spread(times: Sequence[float]) -> tuple[float, float]:
    return median(times), max(times)
