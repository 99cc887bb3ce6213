"""A stream joined with a table of millions of rows, or of a thousand: ``python -m bench.tables``."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from skws.data.batch import Record, RecordBatch
from skws.durable import CACHE, cache_folder
from skws.index.index_cache import open_tables
from skws.index.kept import TABLES
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.stream_engine import StreamEngine
from skws.spec.query_spec import RankingChoice
from skws_schema.model import Schema
from skws_schema.yaml.load import parse_schema
from skws_windows.window import parse_window

STREAM = 200_000  # tuples, a thousand a second
QUERIES = ("rare gift", "common gift")
SEARCHES = ("rare gift", "word5 word7", "common word9", "common sold")
BEST = 20
_SCHEMA = """
name: shop
window: 20 seconds
relations:
  product:
    attributes: {{pid: integer, name: text, maker: integer}}
    key: [pid]
    table: true
    source: {source}
  sale: {{attributes: {{oid: integer, pid: integer, note: text}}}}
joins: [sale.pid = product.pid]
"""


def write_table(path: Path, rows: int) -> None:
    """Products with names of three of 50,000 words; one in 10,000 is rare, half of them are common."""
    import pyarrow as pa  # noqa: PLC0415 - the measuring process loads it by itself
    import pyarrow.compute as pc  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    rng = np.random.default_rng(1)
    words = pa.array([f"word{n}" for n in range(50_000)])
    with pq.ParquetWriter(
        path, pa.schema([("pid", pa.int64()), ("name", pa.string()), ("maker", pa.int64())])
    ) as out:
        for begin in range(0, rows, 500_000):
            pid = np.arange(begin, min(begin + 500_000, rows))
            word_columns = [words.take(pa.array(rng.zipf(1.3, len(pid)) % 50_000)) for _ in range(3)]
            last_words = pc.if_else(pa.array(pid % 10_000 == 7), "rare", word_columns[2])
            middle_words = pc.if_else(pa.array(pid % 2 == 1), "common", word_columns[1])
            name = pc.binary_join_element_wise(word_columns[0], middle_words, last_words, " ")
            out.write_table(pa.table({"pid": pid, "name": name, "maker": pid // 100}))


def stream(rows: int) -> Iterator[RecordBatch]:
    """Sales of random products; one in a thousand is a gift, which is a rare product."""
    rng = np.random.default_rng(2)
    products = rng.integers(0, rows, STREAM)
    products[::1000] = products[::1000] // 10_000 * 10_000 + 7
    products_of_sales = products.tolist()
    for begin in range(0, STREAM, 16_384):
        yield RecordBatch.of(
            [
                Record(1, 1000 * n, (n, products_of_sales[n], "a gift" if n % 1000 == 0 else "sold"))
                for n in range(begin, min(begin + 16_384, STREAM))
            ]
        )


def private_megabytes() -> float:
    """Memory of this process alone."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty")) / 1024


def most_megabytes() -> float:
    """The peak memory of this process, including shared memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_stream(schema: Schema, rows: int, query: str) -> str:
    """The result of one run over the stream, as a line."""
    batches = list(stream(rows))
    began = time.process_time()
    engine = StreamEngine.of(Plan(schema, parse_query(query, schema), parse_window(schema.window), 4))
    result_count = sum(1 for _ in engine.load_tables(()))
    load_end = time.process_time()
    result_count += sum(1 for _ in engine.process_batches(batches))
    took = time.process_time() - load_end
    return (
        f"{query}: begin {load_end - began:.2f} s, {STREAM / took:,.0f} tuples/s, {result_count} results,"
        f" {engine.live_tuples:,} live, {private_megabytes():.0f} MB private"
        f" (at most {most_megabytes():.0f} in all)"
    )


def measure_searches(schema: Schema, rows: int) -> list[str]:
    """Lines for searches of all live sales and all products, each run twice."""
    window = parse_window("none")

    def plan(text: str) -> Plan:
        return Plan(schema, parse_query(text, schema), window, 4, ranking=RankingChoice())

    engine = StreamEngine.of(plan(QUERIES[0]))
    for _ in chain(engine.load_tables(()), engine.process_batches(stream(rows))):
        pass
    while engine.prepare_searches(STREAM):
        pass
    lines = []
    for text in SEARCHES:
        took = []
        for _ in range(2):
            began = time.process_time()
            result_count = engine.search(plan(text), BEST).found
            took.append(1000 * (time.process_time() - began))
        lines.append(f"search {text}: {took[0]:.0f} ms, again {took[1]:.0f} ms, {result_count:,} results")
    return lines


def measure_table(folder: Path, rows: int, processes: int) -> Iterator[str]:
    path = folder / f"product-{rows}.parquet"
    write_table(path, rows)
    schema = parse_schema(_SCHEMA.format(source=path))
    began = time.process_time()
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # its memory is released when it ends
        took, most = pool.apply(_measure_index, (schema,))
    size = sum(file.stat().st_size for file in cache_folder(TABLES).rglob("*.*"))
    yield (
        f"{rows:,} rows: indexed in {took:.1f} s of processor time, {most:.0f} MB private at most,"
        f" {size / 1e6:.0f} MB on disk in all"
    )
    (table,) = open_tables(schema)
    values = np.sort(np.random.default_rng(3).integers(0, rows, 10_000))
    join_index = table.join_index((0,))
    join_index.partners(values)
    began = time.process_time()
    for _ in range(10):
        join_index.partners(values)
    yield f"  a probe by a join value: {(time.process_time() - began) * 10:.2f} microseconds"
    for query in QUERIES:
        # Memory is measured in processes that do nothing else.
        with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=1) as pool:
            for line in pool.starmap(measure_stream, [(schema, rows, query)] * processes, chunksize=1):
                yield f"  {line}"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for line in pool.apply(measure_searches, (schema, rows)):
            yield f"  {line}"


def _measure_index(schema: Schema) -> tuple[float, float]:
    """Seconds to index, and peak memory, sampled ten times a second."""
    samples, stop_event = [private_megabytes()], threading.Event()

    def look() -> None:
        while not stop_event.wait(0.1):
            samples.append(private_megabytes())

    sampler = threading.Thread(target=look)
    sampler.start()
    began = time.process_time()
    open_tables(schema)
    took = time.process_time() - began
    os.sync()  # dirty pages would count as memory of the process that reads them
    stop_event.set()
    sampler.join()
    return took, max(samples)


def main() -> None:
    """Print the measurements and the load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ[CACHE] = folder
        for rows in (1000, args.rows):
            for line in measure_table(Path(folder), rows, args.processes):
                print(line, flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
