"""The delay between writing a tuple to a file and a live search writing the result that it completes.

A separate process watches a file to which this one appends the paper's
load, stamped with the time of writing; this one also reads the results. With ``--rows``, the load is that of
:mod:`bench.soak` instead: updates of that many rows, which live until they are updated.

python -m bench.watch_latency --rate 1000 --seconds 30
python -m bench.watch_latency --rate 1000 --seconds 60 --rows 300000
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

import orjson

from bench.load import HEAVY, Load
from bench.soak import KEY, SCHEMA, Rows, Watch
from skws_schema.yaml.document import to_yaml

PART = 0.005  # seconds between two writes
COMMON_WORDS = tuple(f"w{number}" for number in range(60))  # so few that many updates complete a result


class Tail:
    """Reads results as they are written, and notes their ages."""

    def __init__(self, path: Path) -> None:
        self.ages: list[float] = []
        self._path = path
        self._stopping = Event()
        self._thread = Thread(target=self._read)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _read(self) -> None:
        self._path.touch()
        with self._path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            tail = b""
            while not self._stopping.is_set():
                tail += file.read()
                complete_lines, _, tail = tail.rpartition(b"\n")
                now = time.time()
                results = map(orjson.loads, complete_lines.splitlines())
                self.ages += [now - result["start"] for result in results if result["op"] == "+"]
                time.sleep(0.001)


def lines(load: Load) -> Iterator[bytes]:
    """The load's records, each stamped with the current time."""
    schema = load.schema()
    names = [[a.name for a in relation.attributes] for relation in schema.relations]
    for relation, _, row, _ in load.records(1 << 30):
        fields = dict(zip(names[relation], row, strict=True))
        line = {"relation": f"r{relation}", "time": round(time.time(), 6), "row": fields}
        yield orjson.dumps(line) + b"\n"


class StampedRows(Rows):
    """Rows whose changes are stamped with the current time."""

    def line(self, op: str, row: dict[str, object]) -> bytes:
        line = super().line(op, row)
        if len(self.alive) < self.number:
            return line
        return orjson.dumps({**orjson.loads(line), "time": round(time.time(), 6)}) + b"\n"


def write(path: Path, records: Iterator[bytes], rate: int, seconds: float) -> None:
    """Append ``rate`` records per second, a few at a time."""
    began, record_count = time.monotonic(), 0
    with path.open("ab", buffering=0) as file:
        while (elapsed := time.monotonic() - began) < seconds:
            missing = int(elapsed * rate) - record_count
            file.write(b"".join(islice(records, missing)))
            record_count += missing
            time.sleep(PART)


def quantile(ages: list[float], share: float) -> float:
    return sorted(ages)[min(len(ages) - 1, int(share * len(ages)))]


def measure(rate: int, seconds: float, *, checkpoint: bool) -> tuple[list[float], str]:
    """Ages of results in seconds, and the messages of the search."""
    load = replace(HEAVY, kwf=0.03)
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in.jsonl").touch()
        text = to_yaml(load.schema()).replace("20 minutes", "20 seconds")
        (folder / "schema.yaml").write_text(text)
        command = [sys.executable, "-m", "skws", "watch", load.query, "--engine", "local"]
        command += ["-s", str(folder / "schema.yaml"), "-S", str(folder / "in.jsonl")]
        command += ["-f", "jsonl", "-o", str(folder / "out.jsonl")]
        command += ["--checkpoint", str(folder / "kept")] if checkpoint else []
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        process.stderr.readline()  # it runs
        tail = Tail(folder / "out.jsonl")
        write(folder / "in.jsonl", lines(load), rate, seconds)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate()
        tail.stop()
    return tail.ages, messages


def measure_updates(rows: int, rate: int, seconds: float) -> list[float]:
    """Ages of results of updates in seconds, with a checkpoint."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "schema.yaml").write_text(SCHEMA.format(key=KEY))
        (folder / "queries.yaml").write_text("one: w11 w12\n")
        stamped_rows = StampedRows("updates", rows, COMMON_WORDS)
        with (folder / "in.jsonl").open("wb") as file:
            file.writelines(stamped_rows.first())
        watch = Watch(folder, [])
        watch.wait_until_started()
        watch.wait_for(rows)
        time.sleep(2)
        tail = Tail(folder / "out.jsonl")
        write(folder / "in.jsonl", stamped_rows.changes(), rate, seconds)
        time.sleep(1)
        watch.stop()
        tail.stop()
    return tail.ages


def shown(ages: list[float]) -> str:
    figures = (f"p{share:g} {1000 * quantile(ages, share / 100):.1f} ms" for share in (50, 95, 99, 100))
    return f"{len(ages)} results, {', '.join(figures)}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rows", type=int, help="measure updates of this number of rows")
    args = parser.parse_args()
    if args.rows is not None:
        print(f"updates, with checkpoint: {shown(measure_updates(args.rows, args.rate, args.seconds))}")
        return
    for checkpoint in (False, True):
        ages, messages = measure(args.rate, args.seconds, checkpoint=checkpoint)
        print(messages.splitlines()[0])
        print(f"{'with' if checkpoint else 'without'} checkpoint: {shown(ages)}")


if __name__ == "__main__":
    main()
