"""``kill -9`` of any process of a streaming run at random times does not change its output."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from uuid import uuid4

import pytest

from skws.spark.preloaded import PreloadedPython
from tests.jobs.watching import QUERY, YAML, append, customer, lines, numbered
from tests.places import ROOT
from tests.waiting import until

pytestmark = pytest.mark.spark
PATIENCE = 600.0  # a busy machine takes minutes where an idle one takes seconds
PATTERN = "customer c ; order o where c.cid = o.cid"
MARK = "SKWS_TEST_RUN"
# Texts in their command lines.
KINDS = {
    "driver": "-m\0skws\0watch",
    "java": "/java",
    "worker": "pyspark.daemon\0pyspark.worker",
    "server": "skws.spark.streaming.shard_server",
    "source": "python_streaming_source_runner",
    # They start with the query, and are idle until it starts again.
    "planners": "pyspark.sql.worker.",
}
AT_RANDOM = ("driver", "java", "worker", "server", "source")  # processes that always exist
ENDING = {"driver", "java"}  # their end ends the run


def processes_of(mark: str, text: str) -> list[int]:
    """The processes of a marked run with a text in their command lines."""
    process_ids = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_of_run = f"{MARK}={mark}".encode() in (process / "environ").read_bytes()
            if is_of_run and text in (process / "cmdline").read_text():
                process_ids.append(int(process.name))
        except OSError:
            continue
    return sorted(process_ids)


class Run:
    """``skws watch`` in a separate process, and the processes that it starts."""

    def __init__(
        self, folder: Path, shards: int, master: str, *settings: str, patterns: Sequence[str] = (PATTERN,)
    ) -> None:
        self.mark = os.environ.get(MARK) or uuid4().hex
        self.errors = folder / "errors"
        command = [
            *(sys.executable, "-m", "skws", "watch", QUERY, "--master", master),
            *(word for pattern in patterns for word in ("--pattern", pattern)),
            *("--schema", str(folder / "schema.yaml"), "--source", str(folder / "in.jsonl")),
            *("--checkpoint", str(folder / "checkpoint"), "--lateness", "1 s"),
            *("--sink", f"jsonl:{folder / 'out.jsonl'}"),
        ]
        submit_options = " ".join(f"--conf {one}" for one in (f"spark.skws.shards={shards}", *settings))
        env = {**os.environ, MARK: self.mark, "PYSPARK_SUBMIT_ARGS": f"{submit_options} pyspark-shell"}
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(command, cwd=ROOT, env=env, stderr=errors)

    def processes(self, kind: str) -> list[int]:
        return processes_of(self.mark, KINDS[kind])

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition while the run continues."""

        def ready() -> bool:
            assert self.process.poll() is None, self.errors.read_text()
            return condition()

        until(ready, state=self.errors.read_text)

    def kill(self, kind: str, rng: random.Random) -> None:
        """Kill one process of a kind once there is one, or all planners."""
        self.until(lambda: bool(self.processes(kind)))
        process_ids = self.processes(kind)
        for process in process_ids if kind == "planners" else [rng.choice(process_ids)]:
            os.kill(process, signal.SIGKILL)

    def kill_all(self, kind: str) -> None:
        """Kill all processes of a kind, including those that start later, until the run has ended."""
        while self.process.poll() is None:
            for process in self.processes(kind):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.1)
        self.end()

    def helpers(self) -> list[int]:
        """All processes but the driver and Java."""
        main_processes = {process for kind in ENDING for process in self.processes(kind)}
        return [process for process in processes_of(self.mark, "-m\0") if process not in main_processes]

    def kill_helpers(self, rng: random.Random | None = None) -> None:
        """Kill all current helpers; with ``rng``, some of them."""
        process_ids = self.helpers()
        if rng is not None:
            process_ids = rng.sample(process_ids, rng.randint(min(1, len(process_ids)), len(process_ids)))
        for process in process_ids:
            with suppress(ProcessLookupError):  # it ended with another one
                os.kill(process, signal.SIGKILL)

    def end(self) -> None:
        """Wait until the run and all its processes have ended."""
        self.process.wait(PATIENCE)
        until(lambda: not processes_of(self.mark, ""), state=lambda: processes_of(self.mark, ""))


class Writer(Thread):
    """Writes the two records of a result every tenth of a second, until ``over`` is set."""

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


@contextmanager
def running_stream(folder: Path) -> Iterator[Writer]:
    """A stream that is written until the block ends."""
    (folder / "schema.yaml").write_text(YAML)
    source = folder / "in.jsonl"
    source.touch()
    writer = Writer(source)
    writer.start()
    try:
        yield writer
    finally:
        writer.over.set()
        writer.join()


def killed_at_random(folder: Path, kinds: Sequence[str], start: Callable[[], Run]) -> Run:
    """Kill one process of each kind while a stream is searched; returns the last run, with all results.

    A run must recover by itself, unless its driver or Java was killed.
    """
    rng = random.Random(len(kinds))
    out = folder / "out.jsonl"
    with running_stream(folder) as writer:
        run = start()
        for kind in kinds:
            run.until(more_than_now(out))
            time.sleep(rng.uniform(0, 1.5))
            run.kill(kind, rng)
            if kind in ENDING:
                run.end()
                run = start()
    check_all_results(folder, run, writer.results)
    return run


def check_all_results(
    folder: Path, run: Run, results: int, queries: Sequence[str] = (QUERY, PATTERN)
) -> None:
    """Check that the run reports every result, once and in order."""
    # A pattern waits for late records; after this record there can be none.
    append(folder / "in.jsonl", customer(2000, 0, "eve"))
    out = folder / "out.jsonl"
    run.until(lambda: count(out) >= len(queries) * results)
    time.sleep(0.5)
    for query in queries:
        result_lines = [line for line in lines(out) if line["query"] == query]
        assert len(result_lines) == len({line["id"] for line in result_lines}) == results
        assert [line["start"] for line in result_lines] == sorted(line["start"] for line in result_lines)


def more_than_now(out: Path) -> Callable[[], bool]:
    """A condition that is true once there are more results than now."""
    earlier_count = count(out)
    return lambda: count(out) > earlier_count


def count(out: Path) -> int:
    return out.read_bytes().count(b"\n") if out.exists() else 0


@pytest.mark.slow
def test_each_process_killed_once(tmp_path: Path) -> None:
    """Spark repeats no task here, so the run itself must recover."""
    kinds = ["planners", "source", "server"]
    run = killed_at_random(tmp_path, kinds, lambda: Run(tmp_path, 1, "local[2]"))
    assert "the process of the source has gone; starting again in 1 s" in run.errors.read_text()
    run.kill("java", random.Random())
    run.end()
    assert run.process.returncode == 1
    errors = run.errors.read_text()
    assert "\nskws: Spark failed: its Java process has gone\n" in errors
    assert "Traceback" not in errors


@pytest.mark.slow
def test_random_processes_killed_twenty_times(tmp_path: Path) -> None:
    kinds = random.Random(20).choices(AT_RANDOM, k=20)
    run = killed_at_random(tmp_path, kinds, lambda: Run(tmp_path, 2, "local[2,4]"))
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(PATIENCE) == 130, run.errors.read_text()
    run.end()


@pytest.mark.slow
def test_processes_killed_while_state_moves(tmp_path: Path) -> None:
    """Each start has another number of shards; the start before may have been killed during its move."""
    rng = random.Random(9)
    shards = 1
    with running_stream(tmp_path) as writer:
        for _ in range(14):
            shards = rng.choice([number for number in (1, 2, 3, 4) if number != shards])
            spread = rng.choice(["keys", "roots"])
            run = Run(tmp_path, shards, "local[2,4]", f"spark.skws.partitioning={spread}", patterns=())
            if rng.random() < 0.5:
                run.until(more_than_now(tmp_path / "out.jsonl"))
            time.sleep(rng.uniform(0, 12))
            run.kill_all(rng.choice(["driver", "java"]))
    run = Run(tmp_path, 5 - shards, "local[2,4]", patterns=())
    check_all_results(tmp_path, run, writer.results, (QUERY,))
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(PATIENCE) == 130, run.errors.read_text()
    run.end()
    assert run.errors.read_text().count("the state moves") > 5
    assert "Traceback" not in run.errors.read_text()


@pytest.mark.slow
def test_several_helpers_killed_at_once_in_every_phase(tmp_path: Path) -> None:
    rng = random.Random(8)
    out = tmp_path / "out.jsonl"
    with running_stream(tmp_path) as writer:
        run = Run(tmp_path, 2, "local[2]")
        for _ in range(8):
            run.until(lambda: bool(run.helpers()))
            run.kill_helpers(rng)
            time.sleep(rng.expovariate(1 / 3))
        for _ in range(5):
            run.until(more_than_now(out))
            time.sleep(rng.uniform(0, 1))
            run.kill_helpers(rng)
    check_all_results(tmp_path, run, writer.results)
    run.process.send_signal(signal.SIGINT)

    def kill_some() -> None:
        run.kill_helpers(rng)
        time.sleep(0.1)

    until(lambda: run.process.poll() is not None, kill_some)
    assert run.process.returncode == 130, run.errors.read_text()
    run.end()
    assert "Traceback" not in run.errors.read_text()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Python is preloaded there")
def test_preloaded_python_killed_with_its_forks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run continues with new Python processes. Without the stand-in program, it reports that and ends."""
    monkeypatch.setenv(MARK, uuid4().hex)  # forks have the environment of their server
    python = PreloadedPython()
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, str(python.program))
    out = tmp_path / "out.jsonl"
    with running_stream(tmp_path) as writer:
        run = Run(tmp_path, 1, "local[2]")
        run.until(more_than_now(out))
        run.kill_helpers()
        run.until(more_than_now(out))
    check_all_results(tmp_path, run, writer.results)
    shutil.rmtree(python.folder)
    run.kill_helpers()
    run.end()
    python.close()
    assert run.process.returncode == 1
    errors = run.errors.read_text()
    assert f'\nskws: Spark failed: Cannot run program "{python.program}": ' in errors
    assert "Traceback" not in errors


@pytest.mark.slow
@pytest.mark.parametrize("pause", [0.5, 4, 8, 16])
def test_java_killed_during_its_start(tmp_path: Path, pause: float) -> None:
    with running_stream(tmp_path):
        run = Run(tmp_path, 1, "local[2]")
        run.until(lambda: bool(run.processes("java")))
        time.sleep(pause)
        for process in run.processes("java"):
            os.kill(process, signal.SIGKILL)
        run.end()
    errors = run.errors.read_text()
    is_lost = run.process.returncode == 1 and "skws: Spark failed: its Java process has gone\n" in errors
    is_missing = run.process.returncode == 4 and "skws: Spark cannot start: " in errors
    assert is_lost or is_missing, errors
    assert "Traceback" not in errors
