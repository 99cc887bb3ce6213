"""Window expressions including the time to read a replay: from Parquet, and from JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from bench.windows.load import GAP, RISING, SCHEMA, best
from skws.formats import BadRecordLog, Replay
from skws.queries.evaluator import Counts
from skws.queries.windowed.stream_windows import windows
from skws.queries.windowed.window_plan import WindowPlan
from skws_schema.model import Row

_PAUSE: Final = f"time - time[-1] > {GAP} s"
_EXPRESSIONS: Final = (
    f"first {RISING}",
    f"every {RISING}",
    f"every open when {_PAUSE} close when {_PAUSE} per sensor",
)


def files(rows: Sequence[Row], times: Sequence[int], runs: int) -> Iterator[str]:
    """Records per processor second for each format: only reading, and with each expression."""
    with TemporaryDirectory() as folder:
        for replay in (_parquet(Path(folder), rows, times), _json_lines(Path(folder), rows, times)):
            record_count, seconds = best(partial(_read_records, replay), runs)
            yield f"{replay.name:>8} {record_count / seconds / 1e6:>6.2f} M records/s  read alone, as columns"
            for text in _EXPRESSIONS:
                window_count, seconds = best(partial(_windows, text, replay), runs)
                rate = len(rows) / seconds / 1e6
                yield f"{replay.name:>8} {rate:>6.2f} M records/s  {window_count:>7,} windows  {text}"


def _read_records(replay: Path) -> int:
    return sum(map(len, Replay.open((replay,), SCHEMA).batches(BadRecordLog())))


def _windows(text: str, replay: Path) -> int:
    processor = WindowPlan.of_text(SCHEMA, text, aggregates=("mean(temp)",)).processor()
    return sum(1 for _ in windows(processor, Replay.open((replay,), SCHEMA), BadRecordLog(), Counts()))


def _parquet(folder: Path, rows: Sequence[Row], times: Sequence[int]) -> Path:
    sensor, temp = zip(*rows, strict=True)
    path = folder / "parquet"
    path.mkdir()
    time = pa.array(times, pa.timestamp("us"))
    pq.write_table(pa.table({"time": time, "sensor": sensor, "temp": temp}), path / "reading.parquet")
    return path


def _json_lines(folder: Path, rows: Sequence[Row], times: Sequence[int]) -> Path:
    path = folder / "r.jsonl"
    with path.open("wb") as file:
        for (sensor, temp), time in zip(rows, times, strict=True):
            row = {"sensor": sensor, "temp": temp}
            file.write(orjson.dumps({"relation": "reading", "time": time / 1e6, "row": row}) + b"\n")
    return path
