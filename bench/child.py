"""One measured run in a separate process, whose peak memory and processor time belong to this run alone.

Run as ``python -m bench.child``: reads a task as JSON from standard input, writes the measurements as JSON to
standard output. Every measurement includes reading, but not generating the load.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import orjson

import skws.formats.parquet_files  # noqa: F401 - loaded when a replay is opened; imports are not measured
from bench.load import Load, query_texts
from bench.peers.children.entry import peak_bytes
from skws.formats import BadRecordLog, Replay
from skws.keywords.keyword_matching import KeywordMatching
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.memory import expect_long_lived_objects
from skws.queries.keywords.stream_engine import StreamEngine
from skws_mesh.mesh_kinds import MeshChoice, MeshKind, PurgeKind
from skws_windows.window import parse_window

# The paper's meshes. As in Section 5, only the full mesh purges lazily.
MODES = {
    "full": MeshChoice(MeshKind.FULL),
    "full-eager": MeshChoice(MeshKind.FULL, PurgeKind.EAGER),
    "full-nodemand": MeshChoice(MeshKind.FULL, demand=False),
    "partial": MeshChoice(MeshKind.PARTIAL),
    "forest": MeshChoice(MeshKind.FOREST),
}
DEFAULT = "default"  # the columnar mesh
FLOOR = "floor"
QUERIES = "queries:"  # with the number of queries


def plan_of(load: Load) -> Plan:
    schema = load.schema()
    return Plan(schema, parse_query(load.query, schema), parse_window(schema.window), load.max_size)


def run(mode: str, load: Load, path: Path) -> dict[str, Any]:
    """The number of results, processor seconds in total and before the first tuple, and final operators."""
    began = process_time()
    plan = plan_of(load)
    replay = Replay.open(path, plan.schema)
    log = BadRecordLog()
    if mode == FLOOR:
        match_count = sum(_match_counts(plan, replay, log))
        return {
            "results": match_count,
            "cpu_seconds": process_time() - began,
            "init_seconds": 0.0,
            "operators": 0,
        }
    if mode.startswith(QUERIES):
        engine = _with_queries(plan, int(mode.removeprefix(QUERIES)))
        start = process_time()
        result_count = sum(1 for _ in engine.process_batches(replay.batches(log)))
        operators = len(engine.used())
    else:
        engine = StreamEngine.of(replace(plan, mesh=MODES.get(mode)))
        start = process_time()
        result_count = sum(1 for _ in engine.process_batches(replay.batches(log)))
        operators = len(engine.used()) if mode == DEFAULT else engine.operators
    return {
        "results": result_count,
        "cpu_seconds": process_time() - began,
        "init_seconds": start - began,
        "operators": operators,
    }


def _with_queries(plan: Plan, number: int) -> StreamEngine:
    engine = StreamEngine(plan.schema, plan.window)
    for index, text in enumerate(query_texts(number)):
        engine.add(replace(plan, query=parse_query(text, plan.schema), name=str(index)))
    return engine


def _match_counts(plan: Plan, replay: Replay, log: BadRecordLog) -> Iterator[int]:
    """The number of tuples with a keyword in each batch, read and matched as the default engine does."""
    matching = KeywordMatching.only(0, plan.matcher)
    for batch in replay.batches(log):
        yield len(matching.of(batch.rows))


def main() -> None:
    task = orjson.loads(sys.stdin.buffer.read())
    if task.get("one_core") and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    expect_long_lived_objects()
    outcome = run(task["mode"], Load(**task["load"]), Path(task["path"]))
    sys.stdout.write(orjson.dumps({**outcome, "peak_bytes": peak_bytes()}).decode())


if __name__ == "__main__":
    main()
