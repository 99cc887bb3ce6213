"""Following a database: start, memory, disk, changes and restart, compared with indexes built by hand.

python -m bench.store --postgres postgresql://USER@HOST/EMPTY_DATABASE --rows 100000

Creates three joined tables of random words in an empty database: customers, products and purchases. Then

- ``skws watch`` follows it from nothing until it has all rows; the memory is the peak of the process;
- rows are updated at random, and the delay from a new row to its alert is measured after each round;
- the search is restarted from its checkpoint, until another new row has led to its alert;
- ``skws search`` runs the same query, first without its index and then with it.

The alternatives are other stores for the tables: SQLite with FTS5 indexes and triggers that keep them up to
date, DuckDB (in its own environment), and a GIN index of PostgreSQL itself. They are queried for joined
rows with the words, and must return the results of skws; none reports how changes affect the results.
Seconds are elapsed time, followed by CPU seconds.
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
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, Final

import orjson
import psycopg2

from bench.peers.environment import python_of
from bench.soak import memory_of, size_of
from skws.jobs.metrics import Metrics

WORDS: Final = 5_000
TEXT: Final = 8  # words
ROUNDS: Final = 5
EACH: Final = 0.02  # seconds between two samples
LIMIT: Final = 1_800.0
QUERY: Final = "w11 w12"
FOUND: Final = "found.jsonl"
"""The results of the last search, in the folder of the measurement."""
TABLES: Final = ("customer", "product", "purchase")
_DUCKDB: Final = Path(__file__).parent / "peers" / "children" / "duckdb_tables.py"
_COLUMNS: Final = {
    "customer": ("id", "about", "seen"),
    "product": ("id", "about", "seen"),
    "purchase": ("id", "customer", "product", "about", "seen"),
}
_TEXT: Final = (
    f"(SELECT string_agg('w' || (random() * {WORDS})::int, ' ') FROM generate_series(1, {TEXT}) WHERE n > 0)"
)


@dataclass
class Line:
    """A line of the table."""

    label: str
    seconds: float
    cpu: float | None = None
    memory: int | None = None
    disk: int | None = None

    def __str__(self) -> str:
        cpu = "" if self.cpu is None else f"{self.cpu:.1f}"
        memory = "" if self.memory is None else f"{self.memory / 1e6:,.0f}"
        disk = "" if self.disk is None else f"{self.disk / 1e6:,.0f}"
        return f"{self.label:52} {self.seconds:10.3f} {cpu:>8} {memory:>10} {disk:>8}"


@dataclass
class Shop:
    """The database."""

    url: str
    rows: int
    connection: Any = field(init=False)  # psycopg2 has no type hints

    def __post_init__(self) -> None:
        self.connection = psycopg2.connect(self.url)
        self.connection.autocommit = True

    def run(self, statement: str, *values: object) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, values or None)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
            return rows

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
        """Insert a new purchase with the searched words and one that identifies it."""
        self.run("INSERT INTO purchase SELECT max(id) + 1, 1, 1, %s, 0 FROM purchase", f"{QUERY} {word}")

    @property
    def size(self) -> int:
        ((size,),) = self.ask(
            "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class"
            " WHERE relname IN ('customer', 'product', 'purchase')"
        )
        return int(size)


class Watch:
    """A process of ``skws watch``, whose memory is sampled while it is waited for."""

    def __init__(self, shop: Shop, folder: Path) -> None:
        self.started_at = perf_counter()
        self._out, self._metrics, self._checkpoint = (
            folder / "out.jsonl",
            folder / "metrics.json",
            folder / "kept",
        )
        self._metrics.unlink(missing_ok=True)
        self._output_start = self._out.stat().st_size if self._out.exists() else 0
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
        """Seconds until the search has all rows."""
        for _ in self._samples():
            if self._metrics.exists() and Metrics.from_json(self._metrics.read_bytes()).tuples >= rows:
                break
        return perf_counter() - self.started_at

    def wait_for(self, word: str) -> None:
        """Wait for a result with a word."""
        for _ in self._samples():
            if self._out.exists():
                with self._out.open("rb") as file:
                    file.seek(self._output_start)
                    if word.encode() in file.read():
                        break

    @property
    def cpu(self) -> float:
        """CPU seconds so far."""
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

    def _samples(self) -> Iterator[None]:
        while perf_counter() - self.started_at < LIMIT:
            if self._process.poll() is not None:
                raise SystemExit("the search has ended")
            self.memory = max(self.memory, memory_of(self._process.pid))
            yield
            time.sleep(EACH)
        raise SystemExit(f"nothing after {LIMIT:,.0f} s")


def measure_watch(shop: Shop, folder: Path) -> Iterator[Line]:
    watch = Watch(shop, folder)
    seconds = watch.wait_for_rows(shop.rows)
    yield Line("skws watch, all rows", seconds, watch.cpu, watch.memory, watch.disk)
    delays: list[float] = []
    cpu = watch.cpu
    began = perf_counter()
    for number in range(ROUNDS):
        shop.update(shop.rows // 10)
        sold = perf_counter()
        shop.sell(f"round{number}")
        watch.wait_for(f"round{number}")
        delays.append(perf_counter() - sold)
    changes = ROUNDS * (shop.rows // 10)
    label = f"{changes:,} updates, the last alert after {delays[-1]:.2f} s"
    yield Line(label, perf_counter() - began, watch.cpu - cpu, watch.memory, watch.disk)
    sold = perf_counter()
    shop.sell("calm")
    watch.wait_for("calm")
    yield Line("one change until its alert", perf_counter() - sold)
    watch.stop()
    second_watch = Watch(shop, folder)
    shop.sell("again")
    second_watch.wait_for("again")
    yield Line(
        "restart until an alert",
        perf_counter() - second_watch.started_at,
        second_watch.cpu,
        second_watch.memory,
        second_watch.disk,
    )
    second_watch.stop()


def measure_search(shop: Shop, folder: Path) -> Iterator[Line]:
    command = [sys.executable, "-m", "skws", "search", shop.url, QUERY, "--format", "jsonl"]
    for label in (
        "skws search, without an index",
        "skws search, with the index",
        "skws search, after a change of one product",
    ):
        if "change" in label:
            shop.run("UPDATE product SET seen = seen + 1 WHERE id = 1")
        began, usage_before = perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        with (folder / FOUND).open("wb") as out:
            subprocess.run(command, check=True, stdout=out, stderr=subprocess.DEVNULL, env=cached_in(folder))
        usage_after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = usage_after.ru_utime + usage_after.ru_stime - usage_before.ru_utime - usage_before.ru_stime
        yield Line(label, perf_counter() - began, cpu, disk=size_of(folder / "cache"))


def cached_in(folder: Path) -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}


def measure_index(shop: Shop, folder: Path) -> Iterator[Line]:
    yield from in_sqlite(shop, folder)
    yield from in_duckdb(shop, folder)
    yield in_postgres(shop)


def in_sqlite(shop: Shop, folder: Path) -> Iterator[Line]:
    """The same tables, read from the server, with FTS5 indexes of their texts."""
    path = folder / "fts.sqlite"
    with closing(sqlite3.connect(path)) as database:
        with _measured("SQLite with FTS5 and triggers, all rows", path) as line:
            for name in TABLES:
                _fill(shop, database, name)
            database.commit()
        yield line
        with _measured("joined rows of it with both words") as line:
            purchases = {number for (number,) in database.execute(_join_query(*QUERY.split()))}
        yield line
        if purchases != _found_purchases(folder / FOUND, database):
            raise SystemExit("SQLite and skws have found different purchases")
        changes = ROUNDS * (shop.rows // 10)
        with _measured(f"{changes:,} updates of it", path) as line:
            _update(database, changes)
        yield line


def _found_purchases(results: Path, database: sqlite3.Connection) -> set[int]:
    """The purchases whose row, together with those of its customer and product, has both words."""
    purchases: set[int] = set()
    for line in results.read_bytes().splitlines():
        by_table: dict[str, list[int]] = {name: [] for name in TABLES}
        for result_tuple in orjson.loads(line)["tuples"]:
            by_table[result_tuple["relation"]].append(result_tuple["row"]["id"])
        sold = by_table.pop("purchase")
        if len(sold) == 1:
            purchases.update(sold)
        elif not sold:  # a customer or a product, whose purchases all have its words
            ((name, number),) = ((name, number) for name, numbers in by_table.items() for number in numbers)
            rows = database.execute(f"SELECT id FROM purchase WHERE {name} = ?", (number,))
            purchases.update(number for (number,) in rows)
    return purchases


def _fill(shop: Shop, database: sqlite3.Connection, name: str) -> None:
    """Fill a table with an index of its texts, maintained by triggers (SQLite's manual, FTS5, 4.4.3)."""
    columns = ", ".join(_COLUMNS[name])
    database.execute(f"CREATE TABLE {name} ({columns.replace('id', 'id INTEGER PRIMARY KEY', 1)})")
    database.execute(
        f"CREATE VIRTUAL TABLE {name}_words USING"
        f" fts5(about, content = '{name}', content_rowid = 'id', tokenize = 'porter')"
    )
    remove = f"INSERT INTO {name}_words({name}_words, rowid, about) VALUES ('delete', old.id, old.about);"
    insert = f"INSERT INTO {name}_words(rowid, about) VALUES (new.id, new.about);"
    for event, does in (("INSERT", insert), ("DELETE", remove), ("UPDATE", remove + insert)):
        database.execute(f"CREATE TRIGGER {name}_{event} AFTER {event} ON {name} BEGIN {does} END")
    with psycopg2.connect(shop.url) as connection, connection.cursor(name) as cursor:
        cursor.itersize = 20_000
        cursor.execute(f"SELECT {columns} FROM {name}")
        places = ", ".join("?" * len(_COLUMNS[name]))
        database.executemany(f"INSERT INTO {name}({columns}) VALUES ({places})", cursor)


def _update(database: sqlite3.Connection, changes: int) -> None:
    """Update the texts of random purchases, in as many transactions as on the server."""
    rng = Random(5)
    ((most,),) = database.execute("SELECT max(id) FROM purchase").fetchall()
    for _ in range(ROUNDS):
        rows = (
            (" ".join(f"w{rng.randrange(WORDS)}" for _ in range(TEXT)), rng.randint(1, most))
            for _ in range(changes // ROUNDS)
        )
        database.executemany("UPDATE purchase SET about = ?, seen = seen + 1 WHERE id = ?", rows)
        database.commit()


def _join_query(*words: str) -> str:
    """A query for the joined rows that have each of the words in some text."""
    conditions = " AND ".join(
        "("
        + " OR ".join(
            f"{letter}.id IN (SELECT rowid FROM {name}_words WHERE {name}_words MATCH '{word}')"
            for letter, name in zip("cdp", TABLES, strict=True)
        )
        + ")"
        for word in words
    )
    return (
        "SELECT p.id FROM purchase p JOIN customer c ON p.customer = c.id JOIN product d ON p.product = d.id"
        f" WHERE {conditions}"
    )


def in_duckdb(shop: Shop, folder: Path) -> Iterator[Line]:
    """The same tables in DuckDB, which reads them from CSV files."""
    python = python_of("duckdb", lambda text: print(text, file=sys.stderr))
    for name in TABLES:
        with psycopg2.connect(shop.url) as connection, (folder / f"{name}.csv").open("wb") as file:
            connection.cursor().copy_expert(f"COPY {name} TO STDOUT WITH (FORMAT csv, HEADER)", file)
    command = [str(python), str(_DUCKDB), str(folder), *QUERY.split()]
    process = subprocess.run(command, check=True, capture_output=True)
    outcome = orjson.loads(process.stdout)
    with closing(sqlite3.connect(folder / "fts.sqlite")) as database:
        if outcome["found"] != len(_found_purchases(folder / FOUND, database)):
            raise SystemExit("DuckDB and skws have found different purchases")
    yield Line("DuckDB, all rows from CSV files", **outcome["loaded"], disk=outcome["disk"])
    yield Line("joined rows of it with both words", **outcome["searched"])


def in_postgres(shop: Shop) -> Line:
    """The same texts in PostgreSQL's own index."""
    size_before = shop.size
    with _measured("PostgreSQL GIN, of the same texts") as line:
        for name in TABLES:
            shop.run(f"CREATE INDEX ON {name} USING gin (to_tsvector('english', about))")
    line.cpu, line.disk = None, shop.size - size_before
    return line


@contextmanager
def _measured(label: str, file: Path | None = None) -> Iterator[Line]:
    line = Line(label, 0.0)
    began, cpu = perf_counter(), process_time()
    yield line
    line.seconds, line.cpu = perf_counter() - began, process_time() - cpu
    if file is not None:
        line.disk = file.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--postgres", required=True, help="address of an empty database, with wal_level=logical"
    )
    parser.add_argument("--rows", type=int, default=100_000)
    args = parser.parse_args()
    measure(args.postgres, args.rows)


def measure(url: str, rows: int) -> None:
    shop = Shop(url, rows)
    shop.make()
    print(f"{rows:,} rows, {shop.size / 1e6:,.0f} MB in PostgreSQL\n")
    print(f"{'':52} {'seconds':>10} {'CPU s':>8} {'memory MB':>10} {'disk MB':>8}")
    with TemporaryDirectory() as name:
        folder = Path(name)
        for line in chain(
            measure_watch(shop, folder), measure_search(shop, folder), measure_index(shop, folder)
        ):
            print(line, flush=True)


if __name__ == "__main__":
    main()
