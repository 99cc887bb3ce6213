"""A search by several processes leaves no process and no file, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from skws.formats.files import Spool
from skws.parallel import ProcessWorker, Workers
from skws_schema.errors import SkwsError, UsageError
from tests.waiting import has_ended, until

SCHEMA = """version: 1
name: s
window: 2 s
relations:
  a:
    attributes: {text: text, x: integer}
  b:
    attributes: {text: text, x: integer}
joins:
  - a.x = b.x
"""
LISTENING = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three splits with more results than fit into a pipe."""
    path = tmp_path_factory.mktemp("replay") / "r.jsonl"
    pad = "pad " * 60
    with path.open("w") as file:
        for number in range(60_000):
            word = "alpha" if number % 2 else "beta"
            file.write(
                f'{{"relation": "{"ab"[number % 2]}", "time": {number / 10}, '
                f'"row": {{"text": "{word} {pad}", "x": {number // 2 % 50}}}}}\n'
            )
    return path


@contextmanager
def searching(
    replay: Path, folder: Path, *options: str, stdout: int = subprocess.PIPE
) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """A search that has started its two workers; temporary files are in ``folder``."""
    schema = folder.parent / "s.yaml"
    schema.write_text(SCHEMA)
    folder.mkdir()
    command = LISTENING + "from skws.cli import main; main()"
    arguments = ["search", "alpha beta", "-s", str(schema), "-r", str(replay), "-f", "jsonl", *options]
    with subprocess.Popen(
        [sys.executable, "-c", command, *arguments, "--engine", "local", "--jobs", "2"],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder)},
    ) as search:
        children = Path(f"/proc/{search.pid}/task/{search.pid}/children")
        workers: list[int] = []

        def both_started() -> bool:
            workers[:] = map(int, children.read_text().split())
            return len(workers) == 2

        until(both_started)
        try:
            yield search, workers
        finally:
            search.kill()
    for process in workers:
        until(lambda process=process: has_ended(process))  # type: ignore[misc]  # bound in each iteration
    assert list(folder.iterdir()) == []


def test_an_interrupt_ends_the_search(replay: Path, tmp_path: Path) -> None:
    output = tmp_path / "results.jsonl"
    with searching(replay, tmp_path / "tmp", "-o", str(output)) as (search, _):
        search.send_signal(signal.SIGINT)
        _, errors = search.communicate()
    assert (search.returncode, errors) == (130, b"skws: interrupted\n")
    assert not output.exists()


def test_an_interrupt_of_the_process_group_while_results_are_written(replay: Path, tmp_path: Path) -> None:
    """As from a terminal; results that do not fit into the pipe wait for a reader."""
    with searching(replay, tmp_path / "tmp") as (search, workers):
        assert search.stdout is not None
        search.stdout.read(100)
        for process in (*workers, search.pid):
            os.kill(process, signal.SIGINT)
        _, errors = search.communicate()
    assert (search.returncode, errors) == (130, b"skws: interrupted\n")


@pytest.mark.parametrize("late", [False, True])
def test_a_killed_search_leaves_nothing(replay: Path, tmp_path: Path, late: bool) -> None:
    with searching(replay, tmp_path / "tmp") as (search, _):
        if late:
            assert search.stdout is not None
            search.stdout.read(100)
        search.kill()


def test_a_killed_worker_fails_the_search(replay: Path, tmp_path: Path) -> None:
    with searching(replay, tmp_path / "tmp") as (search, workers):
        os.kill(workers[1], signal.SIGKILL)  # before it has read its part
        _, errors = search.communicate()
    assert search.returncode == 1
    assert b"a process of the search was killed" in errors


def test_a_worker_killed_while_results_are_written_ends_the_search(replay: Path, tmp_path: Path) -> None:
    """With an error, unless the worker has returned all its results before."""
    with searching(replay, tmp_path / "tmp") as (search, workers):
        assert search.stdout is not None
        search.stdout.read(100)
        for process in workers:
            os.kill(process, signal.SIGSTOP)
        os.kill(workers[1], signal.SIGKILL)
        os.kill(workers[0], signal.SIGCONT)
        _, errors = search.communicate()
    assert search.returncode in (0, 1)  # it may have finished
    assert search.returncode == 0 or b"a process of the search was killed" in errors


def test_a_reader_that_closes_the_pipe_ends_the_search(replay: Path, tmp_path: Path) -> None:
    with searching(replay, tmp_path / "tmp") as (search, _):
        assert search.stdout is not None
        search.stdout.read(100)
        search.stdout.close()
        assert search.stderr is not None
        errors = search.stderr.read()
        search.wait()
    assert (search.returncode, errors) == (0, b"")


def test_a_search_beyond_the_memory_budget_fails(replay: Path, tmp_path: Path) -> None:
    with searching(replay, tmp_path / "tmp", "--memory", "65MiB") as (search, _):
        _, errors = search.communicate()
    assert search.returncode == 1
    assert b"the memory budget of" in errors


def _echo(worker: ProcessWorker, number: int, count: int) -> None:
    for message in range(count):
        worker.emit((number, message, worker.number))


def _store(worker: ProcessWorker, data: bytes) -> None:
    worker.emit((worker.number, worker.spools[worker.number].append(data)))


def _fail(_: ProcessWorker, error: Exception) -> None:
    raise error


def _die(_: ProcessWorker) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def _in_one_thread() -> Iterator[None]:
    yield


@contextmanager
def _with_a_thread() -> Iterator[None]:
    """A context in which this process cannot be forked."""
    end = Event()
    thread = Thread(target=end.wait)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


@pytest.fixture(params=[_in_one_thread, _with_a_thread], ids=["forked", "with threads"])
def started(request: pytest.FixtureRequest) -> Iterator[Workers]:
    context: Callable[[], AbstractContextManager[None]] = request.param
    with context(), Workers(2, 2) as workers:
        yield workers


@pytest.mark.check
def test_messages_arrive_in_order_of_tasks(started: Workers) -> None:
    outputs = [list(messages) for messages in started.run([(_echo, (n, 300)) for n in range(5)])]
    assert [[each[:2] for each in one] for one in outputs] == [[(n, e) for e in range(300)] for n in range(5)]


@pytest.mark.check
def test_abandoned_tasks_do_not_disturb_later_ones(started: Workers) -> None:
    for messages in started.run([(_echo, (n, 50)) for n in range(5)]):
        assert next(messages)[:2] == (0, 0)
        break
    outputs = [list(messages) for messages in started.run([(_echo, (7, 2))])]
    assert [each[:2] for each in outputs[0]] == [(7, 0), (7, 1)]


@pytest.mark.check
def test_the_driver_reads_what_workers_store(started: Workers) -> None:
    blobs = [b"one" * 100_000, b"two", b"three"]
    locations = [next(messages) for messages in started.run([(_store, (data,)) for data in blobs])]
    for data, (number, offset) in zip(blobs, locations, strict=True):
        assert started.spools[number].read(offset, len(data)) == data


@pytest.mark.check
@pytest.mark.parametrize(
    ("error", "message"),
    [(UsageError("as it is"), "as it is"), (OSError(28, "No space"), "No space"), (KeyError("x"), "x")],
)
def test_errors_are_raised_at_their_task(started: Workers, error: Exception, message: str) -> None:
    outputs = started.run([(_echo, (1, 1)), (_fail, (error,)), (_echo, (2, 1))])
    assert len(list(next(outputs))) == 1
    with pytest.raises(type(error), match=message):
        list(next(outputs))
    assert len(list(next(outputs))) == 1


def test_an_error_that_cannot_be_pickled_is_reported(started: Workers) -> None:
    class LocalError(Exception):
        pass

    with pytest.raises((RuntimeError, AttributeError)):
        list(next(started.run([(_fail, (LocalError("here"),))])))


def test_a_worker_that_dies_is_reported(started: Workers) -> None:
    with pytest.raises(SkwsError, match="was killed"):
        list(next(started.run([(_die, ())])))


def test_an_empty_spool_takes_no_disk_space() -> None:
    spool = Spool()
    spool.append(b"x" * 1_000_000)
    assert os.fstat(spool.number).st_blocks > 0
    spool.empty()
    assert os.fstat(spool.number).st_blocks == 0
    spool.close()
