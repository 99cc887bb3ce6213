"""``kill -9`` of any process of a streaming run at random moments: its output ends as if undisturbed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread
from uuid import uuid4

import pytest

from tests.watch.watching import QUERY, YAML, append, customer, lines, numbered

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 600.0  # a busy machine takes minutes for what a quiet one does in seconds
PATTERN = "customer c ; order o where c.cid = o.cid"
MARK = "SKWS_TEST_RUN"
BUSY = "Python worker failed to connect back."  # within ten seconds, which Spark does not let be changed
# By what stands in their command lines.
KINDS = {
    "driver": "-m\0skws\0watch",
    "java": "/java",
    "worker": "pyspark.daemon",
    "keeper": "skws.spark.streaming.keeper",
}


def processes_of(mark: str, text: str) -> list[int]:
    """Those that a marked run has started, with a text in their command lines."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            ours = f"{MARK}={mark}".encode() in (process / "environ").read_bytes()
            if ours and text in (process / "cmdline").read_text():
                found.append(int(process.name))
        except OSError:
            continue
    return sorted(found)


class Run:
    """``skws watch`` as a process of its own, with all that it starts."""

    def __init__(self, folder: Path, shards: int) -> None:
        self.mark = uuid4().hex
        self.errors = folder / "errors"
        command = [
            *(sys.executable, "-m", "skws", "watch", QUERY, "--pattern", PATTERN, "--master", "local[2,4]"),
            *("--schema", str(folder / "schema.yaml"), "--source", str(folder / "in.jsonl")),
            *("--checkpoint", str(folder / "checkpoint"), "--lateness", "1 s"),
            *("--sink", f"jsonl:{folder / 'out.jsonl'}"),
        ]
        settings = f"--conf spark.skws.shards={shards} pyspark-shell"
        env = {**os.environ, MARK: self.mark, "PYSPARK_SUBMIT_ARGS": settings}
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(command, cwd=ROOT, env=env, stderr=errors)

    def processes(self, kind: str) -> list[int]:
        return processes_of(self.mark, KINDS[kind])

    def end(self) -> None:
        """Wait until it has ended, whatever is left of it included."""
        self.process.wait(PATIENCE)
        until = time.monotonic() + PATIENCE
        while any(self.processes(kind) for kind in KINDS):
            assert time.monotonic() < until, {kind: self.processes(kind) for kind in KINDS}
            time.sleep(0.1)


class Writer(Thread):
    """Writes the stream, a result's two records every tenth of a second until it is over."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.over = Event()
        self.results = 0

    def run(self) -> None:
        records = list(numbered(20_000))
        while not self.over.wait(0.1):
            append(self._path, *records[2 * self.results : 2 * self.results + 2])
            self.results += 1


def killed_at_random(folder: Path, kinds: Sequence[str], seed: int, shards: int) -> None:
    rng = random.Random(seed)
    (folder / "schema.yaml").write_text(YAML)
    source, out = folder / "in.jsonl", folder / "out.jsonl"
    source.touch()
    writer = Writer(source)
    writer.start()
    try:
        for kind in kinds:
            kill_one(folder, kind, rng, shards)
    finally:
        writer.over.set()
        writer.join()
    # A pattern waits for records that may still come; this one says that the time for them is over.
    append(source, customer(2000, 0, "eve"))
    run = started(folder, shards, lambda: count(out) >= 2 * writer.results)
    time.sleep(0.5)
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(PATIENCE) == 130, run.errors.read_text()
    run.end()
    for query in (QUERY, PATTERN):
        found = [line for line in lines(out) if line["query"] == query]
        assert len(found) == len({line["id"] for line in found}) == writer.results
        assert [line["start"] for line in found] == sorted(line["start"] for line in found)


def kill_one(folder: Path, kind: str, rng: random.Random, shards: int) -> None:
    """Of a run that has given something, at any moment of its batches."""
    before = count(folder / "out.jsonl")
    run = started(folder, shards, lambda: count(folder / "out.jsonl") > before)
    time.sleep(rng.uniform(0, 1.5))
    os.kill(rng.choice(run.processes(kind)), signal.SIGKILL)
    if kind in {"worker", "keeper"}:
        # The task is run again, or the run ends with an error and whoever runs it starts it again.
        time.sleep(rng.uniform(0, 1.5))
        run.process.send_signal(signal.SIGINT)
    run.end()


def started(folder: Path, shards: int, done: Callable[[], bool]) -> Run:
    """A run that has come so far; started again where Spark gave a worker too little time to start."""
    run = Run(folder, shards)
    until = time.monotonic() + PATIENCE
    while not done():
        if run.process.poll() is not None:
            errors = run.errors.read_text()
            assert errors.rstrip().endswith(BUSY), errors
            run.end()
            run = Run(folder, shards)
        assert time.monotonic() < until, run.errors.read_text()
        time.sleep(0.05)
    return run


def count(out: Path) -> int:
    return out.read_bytes().count(b"\n") if out.exists() else 0


def test_killed_once_each(tmp_path: Path) -> None:
    killed_at_random(tmp_path, ["driver", "java"], 1, shards=1)


@pytest.mark.slow
def test_killed_twenty_times(tmp_path: Path) -> None:
    kinds = random.Random(20).choices(list(KINDS), k=20)
    killed_at_random(tmp_path, kinds, 20, shards=2)
