"""A live search on Spark at a steady rate with deletions: flat memory and latency, and correct results.

SKWS_SOAK_MINUTES is its duration; half an hour by default.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from skws_schema.yaml.document import to_yaml
from tests.jobs.test_soak import (
    LOAD,
    flat,
    options,
    resident,
    result_events,
    search_results,
    soak,
    wait_until_read,
)
from tests.places import ROOT
from tests.spark.streaming.test_killed_streaming import KINDS, MARK, processes_of
from tests.waiting import until

MINUTES = float(os.environ.get("SKWS_SOAK_MINUTES", "30"))
JAVA_HEAP = 1 << 30  # the driver's heap grows to its limit under any load


@pytest.mark.slow
@pytest.mark.spark
def test_memory_and_latency_stay_flat_and_results_are_right(tmp_path: Path) -> None:
    schema, source, output_path = tmp_path / "schema.yaml", tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    metrics, checkpoint = tmp_path / "metrics.json", tmp_path / "checkpoint"
    schema.write_text(to_yaml(LOAD.schema()))
    source.touch()
    mark = uuid4().hex
    command = ["watch", LOAD.query, *options(schema), "--master", "local[2,4]", "--source", str(source)]
    command += [
        "--checkpoint",
        str(checkpoint),
        "--sink",
        f"jsonl:{output_path}",
        "--metrics-file",
        str(metrics),
    ]
    with (tmp_path / "errors").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "skws", *command],
            cwd=ROOT,
            stderr=errors,
            env={**os.environ, MARK: mark, "SKWS_DRIVER_MEMORY": "1g"},
        )

    java_memory: list[float] = []

    def python_memory() -> float:
        virtual_machines = set(processes_of(mark, KINDS["java"]))
        java_memory.append(memory(virtual_machines))
        return memory(set(processes_of(mark, "")) - virtual_machines)

    try:
        until(lambda: metrics.exists() or process.poll() is not None)  # there are no metrics before it runs
        assert process.poll() is None, (tmp_path / "errors").read_text()
        memories, latency, results = soak(python_memory, source, metrics, MINUTES * 60)
        wait_until_read(metrics, source)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130, (tmp_path / "errors").read_text()
    finally:
        process.kill()
        process.wait()
    print(f"Python {_megabytes(memories)} MB, Java {_megabytes(java_memory)} MB, latency {_every(latency)} s")
    size = sum(file.stat().st_size for file in checkpoint.rglob("*") if file.is_file())
    print(f"{results} results, checkpoint {size / 1e6:.0f} MB")
    assert results > 50 * MINUTES
    assert flat(memories, slack=60e6), memories
    assert max(java_memory) < JAVA_HEAP * 1.6, java_memory
    assert flat(latency, slack=0.5), latency
    assert result_events(output_path.read_bytes()) == search_results(schema, source)


def memory(processes: set[int]) -> float:
    """The memory of the existing processes in bytes."""
    total = 0
    for process in processes:
        with suppress(OSError, StopIteration):  # it has ended
            total += resident(process)
    return total


def _megabytes(values: list[float]) -> list[int]:
    return [round(value) for value in _every([value / 1e6 for value in values])]


def _every(values: list[float]) -> list[float]:
    """A sample of the values over time."""
    return [round(value, 2) for value in values[:: max(1, len(values) // 8)]]
