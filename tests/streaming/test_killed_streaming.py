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
# By what stands in their command lines.
KINDS = {
    "driver": "-m\0skws\0watch",
    "java": "/java",
    "worker": "pyspark.daemon\0pyspark.worker",
    "keeper": "skws.spark.streaming.keeper",
    "source": "python_streaming_source_runner",
}
ENDING = {"driver", "java"}  # what a run does not outlive


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

    def __init__(self, folder: Path, shards: int, master: str) -> None:
        self.mark = uuid4().hex
        self.errors = folder / "errors"
        command = [
            *(sys.executable, "-m", "skws", "watch", QUERY, "--pattern", PATTERN, "--master", master),
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

    def until(self, done: Callable[[], bool]) -> None:
        """Wait for something that it comes to by itself."""
        until = time.monotonic() + PATIENCE
        while not done():
            assert self.process.poll() is None, self.errors.read_text()
            assert time.monotonic() < until, self.errors.read_text()
            time.sleep(0.05)

    def kill(self, kind: str, rng: random.Random) -> None:
        """One process of a kind, once there is one."""
        self.until(lambda: bool(self.processes(kind)))
        os.kill(rng.choice(self.processes(kind)), signal.SIGKILL)

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


def killed_at_random(folder: Path, kinds: Sequence[str], start: Callable[[], Run]) -> Run:
    """A stream and its runs, of which processes of the kinds are killed; the last run, which has told all.

    A run has to go on by itself, unless it was its driver or Java.
    """
    rng = random.Random(len(kinds))
    (folder / "schema.yaml").write_text(YAML)
    source, out = folder / "in.jsonl", folder / "out.jsonl"
    source.touch()
    writer = Writer(source)
    writer.start()
    try:
        run = start()
        for kind in kinds:
            run.until(more_than_now(out))
            time.sleep(rng.uniform(0, 1.5))
            run.kill(kind, rng)
            if kind in ENDING:
                run.end()
                run = start()
    finally:
        writer.over.set()
        writer.join()
    # A pattern waits for records that may still come; this one says that the time for them is over.
    append(source, customer(2000, 0, "eve"))
    run.until(lambda: count(out) >= 2 * writer.results)
    time.sleep(0.5)
    for query in (QUERY, PATTERN):
        found = [line for line in lines(out) if line["query"] == query]
        assert len(found) == len({line["id"] for line in found}) == writer.results
        assert [line["start"] for line in found] == sorted(line["start"] for line in found)
    return run


def more_than_now(out: Path) -> Callable[[], bool]:
    """Whether results have come."""
    now = count(out)
    return lambda: count(out) > now


def count(out: Path) -> int:
    return out.read_bytes().count(b"\n") if out.exists() else 0


def test_killed_once_each(tmp_path: Path) -> None:
    """Spark repeats no task here: the run itself does what is to be done."""
    run = killed_at_random(tmp_path, ["source", "keeper", "driver"], lambda: Run(tmp_path, 1, "local[2]"))
    assert "the process of the source has gone; starting again in 1 s" in run.errors.read_text()
    run.kill("java", random.Random())
    run.end()
    assert run.process.returncode == 1
    told = run.errors.read_text()
    assert "\nskws: Spark failed: its Java process has gone\n" in told
    assert "Traceback" not in told


@pytest.mark.slow
def test_killed_twenty_times(tmp_path: Path) -> None:
    kinds = random.Random(20).choices(list(KINDS), k=20)
    run = killed_at_random(tmp_path, kinds, lambda: Run(tmp_path, 2, "local[2,4]"))
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(PATIENCE) == 130, run.errors.read_text()
    run.end()
