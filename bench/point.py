"""Runs of one point each, within a time limit; a point that does not finish is reported, not dropped."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import orjson

from bench.load import Load

FINISHED = "ok"
OVER_LIMIT = "over time limit"
_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of one run; None if it did not finish. ``status``: ok, or the reason."""

    status: str
    wall_seconds: float
    cpu_seconds: float | None = None
    init_seconds: float | None = None
    peak_bytes: int | None = None
    results: int | None = None
    operators: int | None = None


def measure(mode: str, load: Load, path: Path, limit: float, *, one_core: bool = True) -> Measured:
    """Run one mode over the replay at ``path``; ``limit`` in seconds of wall time."""
    task = {"mode": mode, "load": asdict(load), "path": str(path.resolve()), "one_core": one_core}
    command = [sys.executable, "-m", "bench.child"]
    began = perf_counter()
    try:
        process = subprocess.run(
            command, input=orjson.dumps(task), capture_output=True, timeout=limit, cwd=_ROOT, check=False
        )
    except subprocess.TimeoutExpired:
        return Measured(OVER_LIMIT, perf_counter() - began)
    wall = perf_counter() - began
    if process.returncode:
        message = (process.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        return Measured(f"failed ({process.returncode}): {message}", wall)
    outcome = orjson.loads(process.stdout)
    return Measured(FINISHED, wall, **outcome)
