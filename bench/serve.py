"""The delay of ``skws serve`` until it answers searches and notifies subscribers, over HTTP on this machine.

python -m bench.serve search FOLDER --schema SCHEMA.yaml
python -m bench.serve commit postgresql://USER@HOST/DATABASE
python -m bench.serve streams

``search``: two keywords each, over a replay without expiry; words are drawn uniformly from the
vocabulary, or by their frequency in the texts. ``commit``: from the end of a COMMIT to its event.
``streams``: from writing a record to its event in many streams, of one search each or all of the same one.
The server has one core, and this process another, if there are two.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from urllib.request import Request, urlopen

import orjson

from skws.data.batch import records_of
from skws.formats import BadRecordLog, Replay
from skws.keywords.analysis import tokens
from skws.spec.enums import DEFAULT_MAX_SIZE
from skws_schema.yaml.load import load_schema

_FOREVER = "36500 days"
_LEAST_LETTERS = 3
_WORDS = 1_000
SCHEMA = """\
version: 1
name: shop
window: 10 minutes
relations:
  skws_customer: {attributes: {cid: integer, name: text}, key: [cid]}
  skws_order: {attributes: {oid: integer, cid: integer, item: text}, key: [oid]}
joins: [skws_order.cid = skws_customer.cid]
"""


class Server:
    """A server, on the first core."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port

    def ask(self, method: str, path: str, body: object = None) -> bytes:
        data = None if body is None else orjson.dumps(body)
        url = f"http://127.0.0.1:{self.port}{path}"
        request = Request(url, data, {"Content-Type": "application/json"}, method=method)
        with urlopen(request, timeout=60) as answer:
            content: bytes = answer.read()
            return content

    def cpu(self) -> float:
        """Processor seconds used so far."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def live(self) -> int:
        lines = self.ask("GET", "/metrics").decode().splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith("skws_live_tuples"))


@contextmanager
def serving(source: str, schema: Path, *options: str) -> Iterator[Server]:
    """A server that is ready. Raises SystemExit if it ends before."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "skws", "serve", source, "--schema", str(schema), "--port", str(port)]
    cores = sorted(os.sched_getaffinity(0))
    process = subprocess.Popen([*command, *options, "--quiet"], stderr=subprocess.DEVNULL)
    os.sched_setaffinity(process.pid, cores[:1])
    os.sched_setaffinity(0, cores[-1:])
    server = Server(process, port)
    try:
        while b'"ok"' not in _try_call(lambda: server.ask("GET", "/healthz")):
            if process.poll() is not None:
                raise SystemExit(
                    f"the server has ended with exit code {process.returncode}: {' '.join(command)}"
                )
            time.sleep(0.1)
        yield server
    finally:
        os.sched_setaffinity(0, cores)
        process.send_signal(signal.SIGINT)
        process.wait()


def _try_call(call: Callable[[], bytes]) -> bytes:
    try:
        return call()
    except OSError:
        return b""


def quantiles(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    values = (
        (f"p{share}", ordered[min(len(ordered) - 1, len(ordered) * share // 100)]) for share in (50, 95, 100)
    )
    return ", ".join(f"{name} {1000 * value:.1f} ms" for name, value in values)


def words_of(folder: Path, schema_file: Path) -> list[str]:
    """The words of all searched texts, repeated by frequency."""
    schema = load_schema(schema_file)
    replay, log = Replay.open(folder, schema), BadRecordLog()
    texts = (
        str(record.row[column])
        for record in records_of(chain(replay.tables(log), replay.batches(log)))
        for column in schema.relations[record.relation].search_columns
        if record.row[column] is not None
    )
    words = (token.word for text in texts for token in tokens(text) if token.searchable)
    return [word for word in words if word.isalpha() and len(word) >= _LEAST_LETTERS]


def search(folder: Path, schema: Path, count: int, size: int) -> None:
    words = words_of(folder, schema)
    rng = random.Random(7)
    word_lists = {"drawn alike": sorted(set(words)), "by frequency": words}
    queries = {
        method: [" ".join(rng.sample(word_list, 2)) for _ in range(count)]
        for method, word_list in word_lists.items()
    }
    options = ["--window", _FOREVER, "--speed", "1e12"]
    with serving(f"replay:{folder}", schema, *options) as server:
        live_tuples = -1
        while live_tuples != (live_tuples := server.live()) or not live_tuples:
            time.sleep(1)
        server.ask("POST", "/search", {"query": " ".join(words[:2]), "time_limit": 30})  # indexes the rest
        print(f"{live_tuples:,} live tuples, {len(set(words)):,} words; T_max {size}, the best 20")
        for method, texts in queries.items():
            seconds, cpu_times, answers = [], [], []
            for text in texts:
                began, before_it = time.perf_counter(), server.cpu()
                body = {"query": text, "max_size": size}
                answer_body = _try_call(partial(server.ask, "POST", "/search", body))
                seconds.append(time.perf_counter() - began)
                cpu_times.append(server.cpu() - before_it)
                answers.append(orjson.loads(answer_body) if answer_body else {"found": 0, "complete": False})
            counts = sorted(answer["found"] for answer in answers)
            incomplete = sum(not answer["complete"] for answer in answers)
            print(f"{method}: {quantiles(seconds)}; of the processor {quantiles(cpu_times)}", end="; ")
            print(f"results: median {counts[count // 2]:,}, most {counts[-1]:,}", end="; ")
            print(f"{incomplete} of {count} not complete in 5 s")


class Reader:
    """Reads an event stream, and notes the arrival of each event by the ``oid`` in it."""

    def __init__(self, server: Server, path: str) -> None:
        self.arrival_times: dict[int, float] = {}
        self.ready = False
        self._socket = socket.create_connection(("127.0.0.1", server.port))
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with self._socket.makefile("rb") as file:
            for line in file:
                self.ready = self.ready or line.startswith(b"event: ready")
                if line.startswith(b"data: ") and b'"oid":' in line:
                    self.arrival_times[int(line.partition(b'"oid":')[2].split(b",")[0])] = time.perf_counter()


def commit(uri: str, count: int) -> None:
    import psycopg2  # noqa: PLC0415 - an extra

    rng = random.Random(7)
    connection = psycopg2.connect(uri)
    connection.autocommit = True
    statement = connection.cursor()
    statement.execute(
        "CREATE TABLE skws_customer (cid bigint PRIMARY KEY, name text);"
        "CREATE TABLE skws_order (oid bigint PRIMARY KEY, cid bigint, item text);"
        "INSERT INTO skws_customer SELECT n, 'ada ' || n FROM generate_series(1, 1000) n"
    )
    try:
        with TemporaryDirectory() as name:
            schema = Path(name) / "schema.yaml"
            schema.write_text(SCHEMA)
            with serving(uri, schema) as server:
                server.ask("PUT", "/queries/lamps", {"query": "ada lamp"})
                reader = Reader(server, "/queries/lamps/events")
                while not reader.ready:
                    time.sleep(0.01)
                commit_times = {}
                for oid in range(count):
                    statement.execute(
                        "INSERT INTO skws_order VALUES (%s, %s, 'a lamp')", (oid, rng.randint(1, 1000))
                    )
                    commit_times[oid] = time.perf_counter()
                    time.sleep(rng.uniform(0.01, 0.1))
                time.sleep(1)
                ages = [
                    max(0.0, reader.arrival_times[oid] - commit_time)
                    for oid, commit_time in commit_times.items()
                ]
        print(f"{count} commits, one at a time: {quantiles(ages)} from the end of COMMIT to the event")
    finally:
        statement.execute("DROP TABLE skws_customer, skws_order")
        connection.close()


async def _subscribe(port: int, path: str, ages: list[float], ready: asyncio.Semaphore) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    while line := await reader.readline():
        if line.startswith(b"event: ready"):
            ready.release()
        elif line.startswith(b"data: ") and b'"start":' in line:
            ages.append(time.time() - float(line.partition(b'"start":')[2].split(b",")[0]))


async def _streams(
    server: Server, source: Path, number: int, rate: int, seconds: float, *, own: bool
) -> None:
    queries = {f"q{n}": {"query": f"word{n if own else 0} ada"} for n in range(number if own else 1)}
    server.ask("PUT", "/queries", {"queries": queries})
    ages: list[float] = []
    ready = asyncio.Semaphore(0)
    paths = [f"/queries/q{n if own else 0}/events" for n in range(number)]
    read_tasks = [asyncio.create_task(_subscribe(server.port, path, ages, ready)) for path in paths]
    for _ in paths:
        await ready.acquire()
    rng, began, row_count = random.Random(7), time.monotonic(), 0
    cpu = server.cpu()
    with source.open("ab", buffering=0) as file:
        while (elapsed := time.monotonic() - began) < seconds:
            for _ in range(int(elapsed * rate) - row_count):
                row_count += 1
                row = {
                    "oid": row_count,
                    "cid": rng.randint(1, _WORDS),
                    "item": f"word{rng.randrange(number) if own else 0}",
                }
                file.write(
                    orjson.dumps({"relation": "skws_order", "time": round(time.time(), 6), "row": row})
                    + b"\n"
                )
            await asyncio.sleep(0.005)
    cpu = server.cpu() - cpu
    for _ in range(100):
        await asyncio.sleep(0.1)
        if len(ages) >= row_count * (1 if own else number):
            break
    for task in read_tasks:
        task.cancel()
    await asyncio.gather(*read_tasks, return_exceptions=True)
    shape = f"{number:,} streams of " + ("searches of their own" if own else "one search")
    print(
        f"{shape}, {rate} results/s, {len(ages):,} events of {row_count * (1 if own else number):,}:", end=" "
    )
    print(f"{quantiles(ages)} from writing to the event; {100 * cpu / seconds:.0f} % of a core")


def streams(number: int, seconds: float) -> None:
    for own, rate in ((True, 500), (False, 10)):
        with TemporaryDirectory() as name:
            schema, source = Path(name) / "schema.yaml", Path(name) / "in.jsonl"
            schema.write_text(SCHEMA)
            with source.open("ab") as file:
                for cid in range(1, _WORDS + 1):
                    record = {
                        "relation": "skws_customer",
                        "time": round(time.time(), 6),
                        "row": {"cid": cid, "name": "ada"},
                    }
                    file.write(orjson.dumps(record) + b"\n")
            with serving(str(source), schema) as server:
                while server.live() < _WORDS:
                    time.sleep(0.1)
                asyncio.run(_streams(server, source, number, rate, seconds, own=own))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    of_search = kinds.add_parser("search")
    of_search.add_argument("folder", type=Path)
    of_search.add_argument("--schema", type=Path, required=True)
    of_search.add_argument("--count", type=int, default=200)
    of_search.add_argument("--max-size", type=int, default=DEFAULT_MAX_SIZE)
    of_commit = kinds.add_parser("commit")
    of_commit.add_argument("uri")
    of_commit.add_argument("--count", type=int, default=200)
    of_streams = kinds.add_parser("streams")
    of_streams.add_argument("--number", type=int, default=1_000)
    of_streams.add_argument("--seconds", type=float, default=20)
    args = parser.parse_args()
    match args.kind:
        case "search":
            search(args.folder, args.schema, args.count, args.max_size)
        case "commit":
            commit(args.uri, args.count)
        case _:
            streams(args.number, args.seconds)


if __name__ == "__main__":
    main()
