"""A live search for half an hour: constant memory and latency, and the results of a search over the file."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import orjson
import pytest

from bench.load import Load
from skws.jobs.metrics import Metrics
from skws_schema.yaml.document import to_yaml
from tests.places import ROOT
from tests.waiting import until

LOAD = Load(relations=6, minutes=1, kwf=0.05, selectivity=100, max_size=3)
RATE = 500  # records per second
DELETED = 0.05


def lines(seed: int) -> Iterator[bytes]:
    """Records stamped with the current time; some delete a tuple of the last seconds."""
    rng = random.Random(seed)
    names = [[a.name for a in relation.attributes] for relation in LOAD.schema().relations]
    recent: list[tuple[int, dict[str, object]]] = []
    for relation, _, row, _ in LOAD.records(1 << 30, seed):
        fields: dict[str, object] = dict(zip(names[relation], row, strict=True))
        if recent and rng.random() < DELETED:
            old_relation, old_row = recent.pop(rng.randrange(len(recent)))
            yield line(old_relation, old_row, "-")
        recent.append((relation, fields))
        del recent[:-2000]
        yield line(relation, fields, "+")


def line(relation: int, row: dict[str, object], op: str) -> bytes:
    record = {"relation": f"r{relation}", "time": round(time.time(), 6), "op": op, "row": row}
    return orjson.dumps(record) + b"\n"


def resident(process: int) -> int:
    """The resident memory of a process in bytes."""
    text = Path(f"/proc/{process}/status").read_text()
    return next(int(field.split()[1]) * 1024 for field in text.splitlines() if field.startswith("VmRSS:"))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads resident memory from /proc")
@pytest.mark.slow
@pytest.mark.parametrize("minutes", [0.3, 30])
def test_a_long_watch_has_flat_memory_and_latency_and_all_results(tmp_path: Path, minutes: float) -> None:
    schema, source, out = tmp_path / "schema.yaml", tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    schema.write_text(to_yaml(LOAD.schema()))
    source.touch()
    watch = ["watch", LOAD.query, *options(schema), "--engine", "local", "--source", str(source)]
    watch += ["--sink", f"jsonl:{out}"]
    watch += ["--metrics-file", str(tmp_path / "metrics.json")]
    process = subprocess.Popen([sys.executable, "-m", "skws", *watch], cwd=ROOT, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        while not process.stderr.readline().startswith(b"watching"):
            assert process.poll() is None
        memory, latency, results = soak(
            lambda: resident(process.pid), source, tmp_path / "metrics.json", minutes * 60
        )
        wait_until_read(tmp_path / "metrics.json", source)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
    finally:
        process.kill()
        process.communicate()
    assert results > 50 * minutes
    assert flat(memory, slack=30e6), memory
    assert flat(latency, slack=0.3), latency
    assert result_events(out.read_bytes()) == search_results(schema, source)


def options(schema: Path) -> list[str]:
    """Options of the live search and of the search over the whole file."""
    return ["--schema", str(schema), "--max-size", "3", "--window", "10 seconds"]


def search_results(schema: Path, source: Path) -> list[tuple[str, str]]:
    """The results of a search over the whole file."""
    search = ["search", LOAD.query, *options(schema), "--engine", "local", "--replay", str(source)]
    command = [sys.executable, "-m", "skws", *search, "--format", "jsonl", "--quiet"]
    return result_events(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)


def soak(
    memory_now: Callable[[], float], source: Path, metrics: Path, seconds: float
) -> tuple[list[float], list[float], int]:
    """Writes at a steady rate; returns bytes of memory and 99th percentiles of latency over time."""
    memory: list[float] = []
    latency: list[float] = []
    records, start, written_count, results = lines(1), time.monotonic(), 0, 0
    with source.open("ab", buffering=0) as file:
        while (passed := time.monotonic() - start) < seconds:
            count = int(passed * RATE) - written_count
            file.write(b"".join(next(records) for _ in range(count)))
            written_count += count
            if passed > (len(memory) + 1) * seconds / 60 and metrics.exists():
                memory.append(memory_now())
                snapshot = Metrics.from_json(metrics.read_bytes())
                results = snapshot.results
                latency += [] if snapshot.latency_p99 is None else [snapshot.latency_p99]
            time.sleep(0.01)
    return memory, latency, results


def wait_until_read(metrics: Path, source: Path) -> None:
    written_count = source.read_bytes().count(b"\n")

    def read() -> int:
        snapshot = Metrics.from_json(metrics.read_bytes())
        return snapshot.tuples + snapshot.deletions

    until(lambda: read() >= written_count)
    time.sleep(1.5)  # results are written after their batch was counted


def flat(values: list[float], slack: float) -> bool:
    """True if the last third is not much above the middle one; the first warms up."""
    third = len(values) // 3
    middle, last = median(values[third : 2 * third]), median(values[2 * third :])
    return last <= middle * 1.15 + slack


def result_events(text: bytes) -> list[tuple[str, str]]:
    """Operation and id of every result, in order of the ids."""
    results = map(orjson.loads, text.splitlines())
    return sorted((result["id"], result["op"]) for result in results)
