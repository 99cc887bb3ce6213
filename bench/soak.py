"""Memory and checkpoint size of a live search while rows change for a long time.

python -m bench.soak
python -m bench.soak --of deletions --window '36500 days' --changes 1000000
python -m bench.soak --of touches --rows 100000 --changes 1000000 --searches 1000

Runs ``skws watch FILE --checkpoint FOLDER`` over a growing file, as a user would. The file begins with the
rows, followed by the changes: ``updates`` of random rows, ``deletions`` of random rows each with an
insertion, the same for rows without a key (``keyless``), or ``touches``, updates that no search matches. A
line of the table has the maximum of its part. Both are level if the maximum in the last third of the changes
is at most a tenth above that in the first third. At the end the search is restarted from its checkpoint, and
the results are counted by operation. Other options are passed to ``skws watch``.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import NamedTuple

import orjson

from skws.jobs.metrics import Metrics

SCHEMA = """\
name: shop
window: none
relations:
  customer: {{attributes: {{id: integer, name: text, seen: integer}}{key}}}
  visit: {{attributes: {{id: integer, customer: integer, note: text, seen: integer}}{key}}}
joins: [visit.customer = customer.id]
"""
KEY = ", key: [id]"
SEARCHES = "far: w11 w12 w13\nnear: {query: w21 w22, max_size: 3}\none: w31 w32 w33\n"
KINDS = ("updates", "deletions", "keyless", "touches")
WORDS = tuple(f"w{number}" for number in range(2_000))
START = 1_700_000_000
EACH = 0.05  # seconds between two samples
LEVEL = 1.1


class PartMeasures(NamedTuple):
    """Bytes of a process and of its checkpoint, live tuples, and changes per second."""

    memory: int
    checkpoint: int
    live: int
    rate: float


@dataclass
class Rows:
    """The lines of a file: rows, half of them customers and half visits, followed by their changes."""

    kind: str
    number: int
    words: tuple[str, ...] = WORDS
    rng: random.Random = field(default_factory=lambda: random.Random(5))
    time: int = START
    following: int = 0
    alive: list[dict[str, object]] = field(default_factory=list)

    def first(self) -> Iterator[bytes]:
        for _ in range(self.number):
            self.alive.append(self.row(self.following))
            yield self.line("+", self.alive[-1])

    def changes(self) -> Iterator[bytes]:
        while True:
            position = self.rng.randrange(self.number)
            row = self.alive[position]
            if self.kind == "touches":
                self.alive[position] = {**row, "seen": self.time}
            elif self.kind == "updates":
                self.alive[position] = self.row(int(str(row["id"])))
            else:
                yield self.line("-", row)
                self.alive[position] = self.row(self.following)
            yield self.line("+", self.alive[position])

    def row(self, number: int) -> dict[str, object]:
        self.following = max(self.following, number + 1)
        words = " ".join(self.rng.choices(self.words, k=3))
        if number % 2:
            return {"id": number, "customer": 2 * self.rng.randrange(self.number // 2), "note": words}
        return {"id": number, "name": words}

    def line(self, op: str, row: dict[str, object]) -> bytes:
        self.time += 1
        relation = "visit" if "note" in row else "customer"
        return orjson.dumps({"relation": relation, "time": self.time, "op": op, "row": row}) + b"\n"


class Watch:
    """A live search as a process, whose memory and checkpoint are sampled continuously."""

    def __init__(self, folder: Path, options: list[str]) -> None:
        self._folder = folder
        self.metrics = folder / "metrics.json"
        self.metrics.unlink(missing_ok=True)
        command = [sys.executable, "-m", "skws", "watch", str(folder / "in.jsonl"), *options]
        command += ["--schema", str(folder / "schema.yaml"), "--queries", str(folder / "queries.yaml")]
        command += ["--checkpoint", str(folder / "kept"), "--metrics-file", str(self.metrics)]
        command += ["--output", str(folder / "out.jsonl"), "--engine", "local"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self._stopping = Event()
        self._thread = Thread(target=self._sample, daemon=True)
        self.memory = self.checkpoint = 0
        self._thread.start()

    def wait_until_started(self) -> str:
        """The message that it prints when it runs."""
        assert self.process.stderr is not None
        messages = []
        for line in self.process.stderr:
            messages.append(line)
            if line.startswith("watching"):
                return messages[-2 if len(messages) > 1 else -1].strip()
        raise AssertionError("the search has ended: " + "".join(messages))

    def wait_for(self, records: int) -> Metrics:
        """Wait until it has read a number of records."""
        while self.process.poll() is None:
            if self.metrics.exists():
                metrics = Metrics.from_json(self.metrics.read_bytes())
                if metrics.tuples + metrics.deletions + metrics.bad >= records:
                    return metrics
            time.sleep(EACH)
        raise AssertionError("the search has ended")

    def take_maxima(self) -> tuple[int, int]:
        """The maximum of each value since the last call."""
        maxima = self.memory, self.checkpoint
        self.memory = self.checkpoint = 0
        return maxima

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self.process.send_signal(signal.SIGINT)
        self.process.communicate()

    def _sample(self) -> None:
        while not self._stopping.wait(EACH):
            self.memory = max(self.memory, memory_of(self.process.pid))
            self.checkpoint = max(self.checkpoint, size_of(self._folder / "kept"))


def memory_of(process: int) -> int:
    """Memory of a process in bytes; 0 if it has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS")), 0)


def size_of(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        try:
            size += path.stat().st_size
        except OSError:
            continue  # it has just been removed
    return size


def searches(number: int) -> str:
    """``number`` searches, beginning with those of ``SEARCHES``."""
    rng = random.Random(7)
    lines = (f"s{n}: {{query: {' '.join(rng.sample(WORDS, 2))}, max_size: 3}}\n" for n in range(number - 3))
    return SEARCHES + "".join(lines)


def soak(
    kind: str, window: str, rows: int, changes: int, part: int, options: list[str], number: int = 3
) -> Iterator[PartMeasures]:
    """The maxima of each part: first for the rows, then for the changes, then after a restart.

    ``number``: of searches.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in.jsonl").touch()
        (folder / "schema.yaml").write_text(SCHEMA.format(key="" if kind == "keyless" else KEY))
        (folder / "queries.yaml").write_text(searches(number))
        options = ["--window", window, *options]
        lines = Rows(kind, rows)
        watch = Watch(folder, options)
        watch.wait_until_started()
        yield measure_part(watch, folder, lines.first(), 0, rows)
        change_lines, record_count = lines.changes(), rows
        for _ in range(-(-changes // part)):
            yield measure_part(watch, folder, change_lines, record_count, part)
            record_count += part
        watch.stop()
        began = time.monotonic()
        watch = Watch(folder, options)
        message = watch.wait_until_started()
        seconds = time.monotonic() - began
        print(f"restarted in {seconds:.1f} s: {message}")
        yield measure_part(watch, folder, change_lines, 0, part)
        watch.stop()
        with (folder / "out.jsonl").open("rb") as file:
            ops = Counter(orjson.loads(line)["op"] for line in file)
        print("results: " + ", ".join(f"{ops[op]:,} {op}" for op in "+-~"))


def measure_part(
    watch: Watch, folder: Path, lines: Iterator[bytes], earlier_records: int, number: int
) -> PartMeasures:
    """The maxima while the search reads more lines; ``earlier_records``: the number of earlier records."""
    began = time.monotonic()
    watch.take_maxima()
    with (folder / "in.jsonl").open("ab") as file:
        file.writelines(islice(lines, number))
    live = watch.wait_for(earlier_records + number).live_tuples
    return PartMeasures(*watch.take_maxima(), live, number / (time.monotonic() - began))


def table_row(number: int, measures: PartMeasures) -> str:
    return (
        f"{number:12,} {measures.memory / 1e6:10.0f} {measures.checkpoint / 1e6:14.1f}"
        f" {measures.live:12,} {measures.rate:10,.0f}"
    )


def level(parts: list[PartMeasures]) -> bool:
    """Print whether memory and checkpoint stay level; ``parts``: of the changes."""
    third = -(-len(parts) // 3)
    fine = True
    for quantity in ("memory", "checkpoint"):
        first_maximum, last_maximum = (
            max(getattr(maxima, quantity) for maxima in third_maxima)
            for third_maxima in (parts[:third], parts[-third:])
        )
        fine = fine and last_maximum <= LEVEL * first_maximum
        print(
            f"{quantity}: in the last third of the changes {last_maximum / first_maximum:.2f}"
            " of that in the first"
        )
    return fine


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--of", choices=KINDS, default=KINDS[0])
    parser.add_argument("--window", default="none")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--changes", type=int, default=5_000_000, help="records after the first rows")
    parser.add_argument("--part", type=int, default=200_000, help="records of a line of the table")
    parser.add_argument("--searches", type=int, default=3, help="saved searches, 3 or more")
    args, options = parser.parse_known_args()
    print(f"{args.of}, window {args.window} {' '.join(options)}")
    print("     records  memory MB  checkpoint MB  live tuples  records/s")
    maxima: list[PartMeasures] = []
    number = 0
    for part_maxima in soak(args.of, args.window, args.rows, args.changes, args.part, options, args.searches):
        number += args.part if maxima else args.rows
        maxima.append(part_maxima)
        print(table_row(number, part_maxima), flush=True)
    sys.exit(not level(maxima[1:-1]))


if __name__ == "__main__":
    main()
