"""A database that is followed: its start, memory, disk, changes and restart, beside indexes built by hand.

    python -m bench.store --postgres postgresql://USER@HOST/EMPTY_DATABASE --rows 100000

Three joined tables of random words are made in an empty database: customers, products and purchases. Then

- ``skws watch`` follows it from nothing until it has all rows; its memory is the most of the process;
- rows are updated at random, and after each round a new row must lead to its alert: the delay of that;
- it is stopped and started again from its checkpoint, until the next new row has led to its alert;
- ``skws search`` asks the same, first without its index and then with it.

Beside it: the same texts in an FTS5 index of SQLite, and in a GIN index of PostgreSQL itself; neither follows
changes of joined rows, nor knows joins. Seconds are by the clock; CPU seconds stand behind them.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, Final

import psycopg2

from bench.soak import memory_of, size_of
from skws.jobs.metrics import Metrics

WORDS: Final = 5_000
TEXT: Final = 8  # words
ROUNDS: Final = 5
EACH: Final = 0.02  # seconds between two looks
LIMIT: Final = 1_800.0
QUERY: Final = "w11 w12"
TABLES: Final = ("customer", "product", "purchase")
_TEXT: Final = (
    f"(SELECT string_agg('w' || (random() * {WORDS})::int, ' ') FROM generate_series(1, {TEXT}) WHERE n > 0)"
)


@dataclass
class Line:
    """A line of the table."""

    what: str
    seconds: float
    cpu: float | None = None
    memory: int | None = None
    disk: int | None = None

    def __str__(self) -> str:
        cpu = "" if self.cpu is None else f"{self.cpu:.1f}"
        memory = "" if self.memory is None else f"{self.memory / 1e6:,.0f}"
        disk = "" if self.disk is None else f"{self.disk / 1e6:,.0f}"
        return f"{self.what:52} {self.seconds:10.3f} {cpu:>8} {memory:>10} {disk:>8}"


@dataclass
class Shop:
    """The database."""

    url: str
    rows: int
    connected: Any = field(init=False)  # psycopg2 has no type hints

    def __post_init__(self) -> None:
        self.connected = psycopg2.connect(self.url)
        self.connected.autocommit = True

    def run(self, statement: str, *values: object) -> None:
        with self.connected.cursor() as cursor:
            cursor.execute(statement, values or None)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with self.connected.cursor() as cursor:
            cursor.execute(statement)
            found: list[tuple[Any, ...]] = cursor.fetchall()
            return found

    def make(self) -> None:
        customers, products = max(1, self.rows // 10), max(1, self.rows // 25)
        purchases = self.rows - customers - products
        self.run("SELECT setseed(0.5)")
        for name, number in (("customer", customers), ("product", products)):
            self.run(f"CREATE TABLE {name} (id integer PRIMARY KEY, about text, seen integer)")
            self.run(
                f"INSERT INTO {name} SELECT n, {_TEXT}, 0 FROM generate_series(1, %s) AS n",
                number,
            )
        self.run(
            "CREATE TABLE purchase (id integer PRIMARY KEY, customer integer REFERENCES customer,"
            " product integer REFERENCES product, about text, seen integer)"
        )
        self.run(
            f"INSERT INTO purchase SELECT n, 1 + n %% %s, 1 + n %% %s, {_TEXT}, 0"
            " FROM generate_series(1, %s) AS n",
            customers,
            products,
            purchases,
        )

    def update(self, number: int) -> None:
        """Random rows."""
        self.run(
            f"UPDATE purchase AS p SET about = {_TEXT.replace('n > 0', 'p.id > 0')}, seen = seen + 1"
            " WHERE id IN (SELECT 1 + (random() * (SELECT max(id) - 1 FROM purchase))::int"
            " FROM generate_series(1, %s))",
            number,
        )

    def sell(self, word: str) -> None:
        """A new purchase, of the words that are searched for and one that tells it apart."""
        self.run("INSERT INTO purchase SELECT max(id) + 1, 1, 1, %s, 0 FROM purchase", f"{QUERY} {word}")

    @property
    def size(self) -> int:
        ((size,),) = self.ask(
            "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class"
            " WHERE relname IN ('customer', 'product', 'purchase')"
        )
        return int(size)


class Watch:
    """``skws watch`` as a process."""

    def __init__(self, shop: Shop, folder: Path) -> None:
        self.begun = perf_counter()
        self._out, self._metrics, self._checkpoint = (
            folder / "out.jsonl",
            folder / "metrics.json",
            folder / "kept",
        )
        self._metrics.unlink(missing_ok=True)
        self._seen = self._out.stat().st_size if self._out.exists() else 0
        command = [
            sys.executable,
            "-m",
            "skws",
            "watch",
            shop.url,
            QUERY,
            "--window",
            "none",
            "--engine",
            "local",
        ]
        command += ["--checkpoint", str(self._checkpoint), "--metrics-file", str(self._metrics)]
        command += ["--output", str(self._out), "--quiet"]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        self.memory = 0

    def wait_for_rows(self, rows: int) -> float:
        """Seconds until it has so many."""
        for _ in self._looks():
            if self._metrics.exists() and Metrics.from_json(self._metrics.read_bytes()).tuples >= rows:
                break
        return perf_counter() - self.begun

    def wait_for(self, word: str) -> None:
        """Until a result with a word is written."""
        for _ in self._looks():
            if self._out.exists():
                with self._out.open("rb") as file:
                    file.seek(self._seen)
                    if word.encode() in file.read():
                        break

    @property
    def cpu(self) -> float:
        """Seconds so far."""
        fields = (
            Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        )
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def disk(self) -> int:
        return size_of(self._checkpoint)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait()

    def _looks(self) -> Iterator[None]:
        while perf_counter() - self.begun < LIMIT:
            if self._process.poll() is not None:
                raise SystemExit("the search has ended")
            self.memory = max(self.memory, memory_of(self._process.pid))
            yield
            time.sleep(EACH)
        raise SystemExit(f"nothing after {LIMIT:,.0f} s")


def watched(shop: Shop, folder: Path) -> Iterator[Line]:
    watch = Watch(shop, folder)
    seconds = watch.wait_for_rows(shop.rows)
    yield Line("skws watch, all rows", seconds, watch.cpu, watch.memory, watch.disk)
    delays: list[float] = []
    before = watch.cpu
    begun = perf_counter()
    for number in range(ROUNDS):
        shop.update(shop.rows // 10)
        sold = perf_counter()
        shop.sell(f"round{number}")
        watch.wait_for(f"round{number}")
        delays.append(perf_counter() - sold)
    changes = ROUNDS * (shop.rows // 10)
    what = f"{changes:,} updates, the last alert after {delays[-1]:.2f} s"
    yield Line(what, perf_counter() - begun, watch.cpu - before, watch.memory, watch.disk)
    sold = perf_counter()
    shop.sell("calm")
    watch.wait_for("calm")
    yield Line("a change to its alert", perf_counter() - sold)
    watch.stop()
    again = Watch(shop, folder)
    shop.sell("again")
    again.wait_for("again")
    yield Line(
        "started again, to an alert", perf_counter() - again.begun, again.cpu, again.memory, again.disk
    )
    again.stop()


def searched(shop: Shop, folder: Path) -> Iterator[Line]:
    command = [sys.executable, "-m", "skws", "search", shop.url, QUERY, "--format", "jsonl"]
    for what in (
        "skws search, without an index",
        "skws search, with the index",
        "skws search, after a change of one product",
    ):
        if "change" in what:
            shop.run("UPDATE product SET seen = seen + 1 WHERE id = 1")
        begun, before = perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=cached_in(folder)
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        yield Line(what, perf_counter() - begun, cpu, disk=size_of(folder / "cache"))


def cached_in(folder: Path) -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}


def indexed(shop: Shop, folder: Path) -> Iterator[Line]:
    yield in_sqlite(shop, folder)
    yield in_postgres(shop)


def in_sqlite(shop: Shop, folder: Path) -> Line:
    """The same texts in FTS5, read from the server and indexed."""
    path = folder / "fts.sqlite"
    with _measured() as line, closing(sqlite3.connect(path)) as database:
        for name in TABLES:
            database.execute(f"CREATE VIRTUAL TABLE {name} USING fts5(about, tokenize = 'porter')")
            with psycopg2.connect(shop.url) as connected, connected.cursor(name) as cursor:
                cursor.itersize = 20_000
                cursor.execute(f"SELECT id, about FROM {name}")
                database.executemany(f"INSERT INTO {name}(rowid, about) VALUES (?, ?)", cursor)
        database.commit()
    line.what, line.disk = "SQLite FTS5, of the same texts", path.stat().st_size
    return line


def in_postgres(shop: Shop) -> Line:
    """The same texts in the server's own index."""
    before = shop.size
    with _measured() as line:
        for name in TABLES:
            shop.run(f"CREATE INDEX ON {name} USING gin (to_tsvector('english', about))")
    line.what, line.cpu, line.disk = "PostgreSQL GIN, of the same texts", None, shop.size - before
    return line


@contextmanager
def _measured() -> Iterator[Line]:
    line = Line("", 0.0)
    begun, cpu = perf_counter(), process_time()
    yield line
    line.seconds, line.cpu = perf_counter() - begun, process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--postgres", required=True, help="address of an empty database, with wal_level=logical"
    )
    parser.add_argument("--rows", type=int, default=100_000)
    given = parser.parse_args()
    measure(given.postgres, given.rows)


def measure(url: str, rows: int) -> None:
    shop = Shop(url, rows)
    shop.make()
    print(f"{rows:,} rows, {shop.size / 1e6:,.0f} MB in PostgreSQL\n")
    print(f"{'':52} {'seconds':>10} {'CPU s':>8} {'memory MB':>10} {'disk MB':>8}")
    with TemporaryDirectory() as name:
        folder = Path(name)
        for line in chain(watched(shop, folder), searched(shop, folder), indexed(shop, folder)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
