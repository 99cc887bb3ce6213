"""The sinks of a simulated job, and their guarantees."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import orjson
import pyarrow.parquet as pq

from skws.jobs.alerts import Rate
from skws.results.result import LiveResult
from skws.sinks.base import SinkRun
from tests.sim.hook import Hook
from tests.sim.model import Line, Model, check, net
from tests.sim.world import Killed, World

FOLDER: Final = "/sim/out"
LETTERS: Final = f"{FOLDER}/hook.jsonl"
_connect: Final = sqlite3.connect


class Tap:
    """The first sink of a job: the model sees results before the others do."""

    name = "tap"
    every = 1.0

    def __init__(self, model: Model) -> None:
        self._model = model
        self.written = 0

    def open(self, run: SinkRun) -> None:
        pass

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        self._model.written(batch, results)
        self.written = batch

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class Pipe:
    """Standard output, read by another program."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._held = b""
        self.read: list[bytes] = []

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        raise io.UnsupportedOperation

    def write(self, data: bytes) -> int:
        self._held += data
        return len(data)

    def flush(self) -> None:
        self._world.effect("write", "stdout")
        self.read += self._held.splitlines()
        self._held = b""

    def end_process(self) -> None:
        self._held = b""


class Database:
    """SQLite in memory: committed content survives a kill, all else does not."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._uri = f"file:{name}?mode=memory&cache=shared"
        self._permanent = _connect(self._uri, uri=True)
        self._connected: sqlite3.Connection | None = None

    def connect(self, *_: Any, **__: Any) -> Connection:
        try:
            self._world.effect("sql", "connect")
        except OSError as error:
            raise sqlite3.OperationalError(error.strerror) from None
        self.end_process()
        self._connected = _connect(self._uri, uri=True)
        return Connection(self._world, self._connected)

    def end_process(self) -> None:
        if self._connected is not None:
            with suppress(sqlite3.ProgrammingError):  # closed already
                self._connected.rollback()
                self._connected.close()
            self._connected = None

    def close(self) -> None:
        self.end_process()
        self._permanent.close()

    def save(self) -> Callable[[], None]:
        """Returns a call that restores the content committed now."""
        snapshot = _connect(":memory:")
        self._permanent.backup(snapshot)

        def restore() -> None:
            snapshot.backup(self._permanent)
            snapshot.close()

        return restore

    def rows(self) -> set[tuple[str, str]]:
        try:
            return set(self._permanent.execute('SELECT "name", "id" FROM results').fetchall())
        except sqlite3.OperationalError:  # it has no table yet
            return set()


class Connection:
    """A connection whose statements and commits are effects."""

    def __init__(self, world: World, real: sqlite3.Connection) -> None:
        self._world = world
        self._real = real

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        self._effect("sql")
        if statement.startswith("PRAGMA"):
            return None
        return self._real.execute(statement, values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> Any:
        self._effect("sql")
        return self._real.executemany(statement, rows)

    def cursor(self) -> Connection:
        return self

    def close(self) -> None:
        self._real.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._real.rollback()
            return
        self._effect("commit")
        self._real.commit()
        self._effect("committed")

    def _effect(self, name: str) -> None:
        try:
            self._world.effect(name, "database")
        except OSError as error:
            raise sqlite3.OperationalError(error.strerror) from None
        except Killed:
            self._real.rollback()
            raise


class Expected:
    """The expected content of the outputs, from the results written so far."""

    def __init__(
        self,
        world: World,
        model: Model,
        pipe: Pipe,
        database: Database,
        hook: Hook | None,
        own: str,
        rate: Rate,
    ) -> None:
        """``own``: the query whose results go to a separate file, at a limited rate."""
        self._world, self._model, self._pipe, self._database = world, model, pipe, database
        self._hook, self._own = hook, own
        self.rates = [(1, rate)]
        """Limits, each with the first micro-batch that it applies to."""

    def check(self, *, last: int, flushed: int) -> None:
        """``last``: the last micro-batch in all outputs; ``flushed``: the last durable one."""
        disk = self._world.disk
        lines = self._lines(last)
        unlimited = [line for line in lines if line[1] != self._own]
        content = disk.content(f"{FOLDER}/out.jsonl")
        expected = b"".join(line + b"\n" for *_, line in unlimited)
        check(content == expected, "out.jsonl differs:", *_difference(content, expected))
        content = disk.content(f"{FOLDER}/own.jsonl")
        actual_ids = [(line["op"], line["id"]) for line in map(orjson.loads, content.splitlines())]
        expected_ids = self._limited(last)
        check(actual_ids == expected_ids, "own.jsonl has", actual_ids, "and not", expected_ids)
        if self._hook is not None:
            batches = [
                [line for line in batch.lines or () if line[1] != self._own and line[0] != "~"]
                for batch in self._model.batches[:last]
            ]
            self._hook.check(batches, disk.content(LETTERS))
        dead_letters = disk.content(f"{FOLDER}/letters.jsonl").splitlines()
        position = 0
        for batch in self._model.batches[:last]:
            end = position + len(batch.entry.letters) + len(batch.late)
            batch.check_letters(dead_letters[position:end])
            position = end
        check(
            position == len(dead_letters),
            "there are more dead letters than bad and late records:",
            dead_letters[position:],
        )
        check(self._database.rows() == net(unlimited), "the table differs from the live results")
        flushed_lines = [line for line in self._lines(flushed) if line[1] != self._own]
        self._check_parquet([name for _, _, name, _ in flushed_lines], [name for _, _, name, _ in unlimited])

    def check_durable(self, committed: int) -> None:
        """Check that a power loss now would leave all sinks complete up to the ``committed`` micro-batch."""
        files = self._world.disk.durable_files(FOLDER)
        lines = self._lines(committed)
        unlimited = [line for line in lines if line[1] != self._own]
        content = files.get(f"{FOLDER}/out.jsonl", b"")
        expected = b"".join(line + b"\n" for *_, line in unlimited)
        check(content.startswith(expected), "out.jsonl would lack:", *_difference(content, expected))
        limited = self._limited(committed)
        own_count = files.get(f"{FOLDER}/own.jsonl", b"").count(b"\n")
        check(own_count >= len(limited), "own.jsonl would have", own_count, "lines and not", len(limited))
        least_letter_count = sum(
            len(batch.entry.letters) + len(batch.late) for batch in self._model.batches[:committed]
        )
        letter_count = files.get(f"{FOLDER}/letters.jsonl", b"").count(b"\n")
        check(
            letter_count >= least_letter_count,
            "there would be",
            letter_count,
            "dead letters and not",
            least_letter_count,
        )
        parquet_count = sum(len(_ids(data)) for path, data in files.items() if path.endswith(".parquet"))
        check(
            parquet_count >= len(unlimited),
            "the Parquet files would have",
            parquet_count,
            "results and not",
            len(unlimited),
        )

    def check_pipe(self, first: int, since: int, last: int) -> None:
        """Check a process begun after micro-batch ``first``, and that ``since`` lines or more were read."""
        expected = [line for batch in self._model.batches[first:last] for line in batch.lines or ()]
        expected_lines = [line for _, query, _, line in expected if query != self._own]
        actual = self._pipe.read[since:]
        check(
            actual == expected_lines, "standard output has", len(actual), "lines and not", len(expected_lines)
        )

    def _lines(self, last: int) -> list[Line]:
        return [line for batch in self._model.batches[:last] for line in batch.lines or ()]

    def _limited(self, last: int) -> list[tuple[str, str]]:
        """The results of the query with a limit: operation and id. A new limit starts without history."""
        limited_ids: list[tuple[str, str]] = []
        ends = [first - 1 for first, _ in self.rates[1:]]
        for (first, rate), end in zip(self.rates, [*ends, last], strict=True):
            batches = self._model.batches[first - 1 : min(end, last)]
            lines = (line for batch in batches for line in batch.lines or () if line[1] == self._own)
            limited_ids += _limited(lines, rate)
        return limited_ids

    def _check_parquet(self, required: list[str], allowed: list[str]) -> None:
        actual_ids: list[str] = []
        for path, data in sorted(self._world.disk.files(f"{FOLDER}/parquet").items()):
            if path.endswith(".parquet"):
                actual_ids += _ids(data)
        check(
            actual_ids == allowed[: len(actual_ids)] and len(actual_ids) >= len(required),
            "the Parquet files have", len(actual_ids), "results and not", len(required), "to", len(allowed),
        )  # fmt: skip


@lru_cache(maxsize=1024)
def _ids(parquet: bytes) -> list[str]:
    table = pq.ParquetFile(io.BytesIO(parquet)).read(["id"], use_threads=False)
    ids: list[str] = table.column("id").to_pylist()
    return ids


def _difference(content: bytes, expected: bytes) -> tuple[object, ...]:
    actual_lines, expected_lines = content.splitlines(), expected.splitlines()
    number = next(
        (n for n, (a, b) in enumerate(zip(actual_lines, expected_lines, strict=False)) if a != b),
        min(len(actual_lines), len(expected_lines)),
    )
    return (
        f"{len(actual_lines)} lines, expected {len(expected_lines)}; line {number + 1} is",
        actual_lines[number : number + 1],
        "not",
        expected_lines[number : number + 1],
    )


def _limited(lines: Iterable[Line], rate: Rate) -> Iterator[tuple[str, str]]:
    """The results that a limit passes, by intervals in order; a retraction stays with its result."""
    held_ids: set[str] = set()
    interval: int | None = None
    count = 0
    for op, _, name, line in lines:
        if op == "-":
            if name in held_ids:
                held_ids.discard(name)
            else:
                yield op, name
            continue
        if op == "~":
            if name not in held_ids:
                yield op, name
            continue
        start = orjson.loads(line)["start"]
        interval_of_result = int((-1 if start is None else start) * 1_000_000) // rate.length
        if interval is None or interval_of_result > interval:
            interval, count = interval_of_result, 0
        if count == rate.most:
            held_ids.add(name)
        else:
            count += 1
            held_ids.discard(name)
            yield op, name
