"""Records per second read from JSON lines, CSV and Parquet, compared with parsing the JSON only.

Run as ``python -m bench.replay``. It creates 200,000 records of about 147 bytes
in a temporary directory. Measures processor time, because other work on the machine
affects it little, and reports the best of three runs.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from skws.data.batch import Record
from skws.formats import plan, read_split
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema

RECORDS = 200_000
RUNS = 3
START = datetime(2026, 1, 1, tzinfo=UTC)
TYPES = {
    "mid": AttributeType.INTEGER,
    "title": AttributeType.TEXT,
    "did": AttributeType.INTEGER,
    "year": AttributeType.INTEGER,
    "rating": AttributeType.NUMBER,
}
MOVIE = Relation("movie", tuple(Attribute(name, kind) for name, kind in TYPES.items()))
SCHEMA = Schema("bench", (MOVIE,), (Join("same_director", "movie", "movie", (("did", "did"),)),))


def rows() -> list[dict[str, object]]:
    """Flat records: the time, then the attributes."""
    return [
        {
            "time": (START + timedelta(seconds=i)).isoformat(),
            "mid": i,
            "title": f"Pulp Fiction {i}",
            "did": i % 1000,
            "year": 1994,
            "rating": i % 100 / 10,
        }
        for i in range(RECORDS)
    ]


def write_json_lines(path: Path) -> None:
    with path.open("wb") as file:
        for row in rows():
            time = row.pop("time")
            record = {"relation": "movie", "time": time, "op": "+", "row": row}
            file.write(orjson.dumps(record) + b"\n")


def write_csv(path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["time", *TYPES])
        writer.writeheader()
        writer.writerows(rows())


def write_parquet(path: Path) -> None:
    table = pa.Table.from_pylist(rows())
    times = table["time"].cast(pa.timestamp("us", "UTC"))
    pq.write_table(table.set_column(0, "time", times), path)


def parse_only(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for line in file if orjson.loads(line))


def read_records(path: Path) -> int:
    items = (item for split in plan(path, SCHEMA) for item in read_split(split, SCHEMA))
    return sum(1 for item in items if type(item) is Record)


def rate(work: Callable[[Path], int], path: Path) -> float:
    """Records per second of processor time."""
    best = float("inf")
    for _ in range(RUNS):
        began = process_time()
        if work(path) != RECORDS:
            raise AssertionError(f"{path.name}: not every record was read")
        best = min(best, process_time() - began)
    return RECORDS / best


def main() -> None:
    with TemporaryDirectory() as directory:
        lines = Path(directory) / "movie.jsonl"
        write_json_lines(lines)
        print(f"{RECORDS:,} records of {lines.stat().st_size / RECORDS:.0f} bytes as JSON lines")
        baseline = rate(parse_only, lines)
        print(f"{'orjson.loads':14}{baseline:12,.0f} /s")
        print_rate("JSON lines", rate(read_records, lines), baseline)
        for name, write in (("csv", write_csv), ("parquet", write_parquet)):
            path = Path(directory) / f"movie.{name}"
            write(path)
            print_rate(name, rate(read_records, path), baseline)


def print_rate(name: str, records_per_second: float, baseline: float) -> None:
    print(f"{name:14}{records_per_second:12,.0f} /s   {records_per_second / baseline:.2f} of orjson.loads")


if __name__ == "__main__":
    main()
