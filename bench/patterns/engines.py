"""Engines compared over one load, each run in its own process."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.patterns.loads import LOADS, TRACES, Load

_ROOT = Path(__file__).resolve().parents[2]
_CHILDREN = Path(__file__).parent / "children"
# Sizes of batches, which delay matches: DuckDB evaluates batches, and skws can. None: all events at once.
BATCHES = (None, 1000, 100)
_NAMES = {"core": "CORE", "flink": "Flink", "pathway": "Pathway"}


@dataclass(frozen=True, slots=True)
class Engine:
    """A way to run a load: its displayed name, and the command that starts its process.

    ``batch``: an element of BATCHES; ``by_columns``: True if skws evaluates batches.
    """

    name: str
    command: tuple[str, ...]
    batch: int | None = None
    by_columns: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """Matches of an engine, and seconds as the median of its runs; None if it cannot express the query."""

    engine: str
    matches: int | None
    cpu: float | None = None
    wall: float | None = None


_OURS = (sys.executable, "-m", "bench.patterns.children.skws_engine")
SKWS = Engine("skws", _OURS)


def peers(pythons: dict[str, Path]) -> list[Engine]:
    """The engines with an interpreter in ``pythons``, by ``core``, ``duckdb``, ``flink`` and ``pathway``."""
    engines = []
    for peer, python in pythons.items():
        command = (str(python), str(_CHILDREN / f"{peer}_engine.py"))
        if peer == "duckdb":
            engines += [Engine(_batch_name("DuckDB", batch), command, batch) for batch in BATCHES]
        else:
            engines.append(Engine(_NAMES[peer], command))
    return engines


def compare(engines: Sequence[Engine], number: int, repeat: int) -> Iterator[tuple[Load, int, list[Run]]]:
    """For each load its number of events and the engines' results, from ``repeat`` alternating runs."""
    for load in LOADS.values():
        if load.values is None and not TRACES.is_dir():
            print(f"\n{load.name}: skipped, since there are no public traces in {TRACES}")
            continue
        with tempfile.TemporaryDirectory() as name:
            task = load.task(Path(name) / "events", number)
            runs_by_engine: list[list[Run]] = [[] for _ in engines]
            for _ in range(repeat):
                for engine, runs in zip(engines, runs_by_engine, strict=True):
                    runs.append(_run(engine, task, Path(name)))
        yield load, task["number"], [_median(runs) for runs in runs_by_engine]


def in_batches() -> list[Engine]:
    """skws by columns."""
    return [Engine(_batch_name("skws", batch), _OURS, batch, by_columns=True) for batch in BATCHES]


def agree(runs: Sequence[Run]) -> bool:
    return len({run.matches for run in runs} - {None}) == 1


def _batch_name(name: str, batch: int | None) -> str:
    return f"{name}, at the end" if batch is None else f"{name}, every {batch:,}"


def _run(engine: Engine, task: dict[str, Any], folder: Path) -> Run:
    arguments = json.dumps(task | {"batch": engine.batch, "by_columns": engine.by_columns})
    directory = _ROOT if engine.command == _OURS else folder  # other engines leave log files
    process = subprocess.run(
        [*engine.command, arguments], check=True, capture_output=True, text=True, cwd=directory
    )
    outcome = json.loads(process.stdout.strip().splitlines()[-1])
    return Run(engine.name, None) if outcome is None else Run(engine.name, **outcome)


def _median(runs: Sequence[Run]) -> Run:
    first_run = runs[0]
    if first_run.matches is None:
        return first_run
    cpu, wall = (statistics.median(getattr(run, kind) for run in runs) for kind in ("cpu", "wall"))
    return Run(first_run.engine, first_run.matches if agree(runs) else -1, cpu, wall)
