"""A full disk, or a second Ctrl-C during a write: the next run makes everything whole."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest

from skws.jobs import journal as journals
from skws.jobs.alerts import Alert, Rate
from skws.jobs.control import Command
from skws.jobs.fanout import Routing
from skws.jobs.local import LocalWatch
from skws.sinks.files import ParquetSink
from skws.spec.query import Query
from skws_schema.errors import SkwsError
from skws_windows.window import TimeWindow
from tests.durable.disks import Fault, FullDisk
from tests.jobs.test_watch_recovery import TWICE, Place, _sinks, reasons, stream
from tests.jobs.watching import QUERY, YAML, Notes, append, customer, lines, numbered, told
from tests.places import ROOT
from tests.queries.counted import counted
from tests.strategies import seeds
from tests.waiting import until

KINDS = [Fault.NONE_WRITTEN, Fault.SHORT, Fault.INTERRUPTED_SHORT, Fault.INTERRUPTED_BEHIND]


class Disk(Place):
    """A run's files with Parquet among them, whose processes end by errors and interrupts."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, TimeWindow(10_000_000), 0)
        self.folder = folder

    def work(self) -> None:
        if self.watch is None:
            sinks = [*_sinks(self.asked), ParquetSink(self.folder / "parquet")]
            alert = Alert(Query("bob"), (f"jsonl:{self.folder / 'bob.jsonl'}",), Rate.of("1 per 7 seconds"))
            self.watch = LocalWatch(self.asked, [Routing(sinks, {"bob": alert})], Notes().log)
            self.watch.open()
        super().work()

    def fail(self) -> None:
        """As ``LocalWatch.run`` ends it, with the disk as it is."""
        if self.watch is not None:
            with suppress(SkwsError):
                self.watch.close(failed=True)
        self.watch = None

    def parquet(self) -> list[str]:
        files = sorted((self.folder / "parquet").glob("*.parquet"))
        return [name for file in files for name in pq.read_table(file).column("id").to_pylist()]

    def left(self) -> list[Path]:
        """Files that nobody needs."""
        return [path for path in self.folder.rglob("*") if path.name.endswith(".partial")]


@seeds(3, 80)
def test_a_full_disk_at_any_write_ends_as_if_it_had_not_been(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    random.seed(seed)
    parts = stream(rng, 30)
    calm, full = Disk(tmp_path / "calm"), Disk(tmp_path / "full")
    failures = 0
    with pytest.MonkeyPatch.context() as small:
        small.setattr(journals, "SEGMENT_BYTES", 600)
        counted(small)
        for number, part in enumerate(parts):
            for disk in (calm, full):
                append(disk.source, *part)
                if number == 12:
                    disk.control.send(Command("add", "lamps", "lamp"))
                    disk.control.send(Command("add", "twice", TWICE, kind="pattern"))
            calm.work()
            while True:
                with pytest.MonkeyPatch.context() as patch:
                    if rng.random() < 0.8:
                        FullDisk(patch, rng.randint(1, 14), rng.choice(KINDS))
                    try:
                        full.work()
                        break
                    except (SkwsError, KeyboardInterrupt):
                        failures += 1
                        full.fail()
        for disk in (calm, full):
            assert disk.watch is not None
            disk.watch.close()
    assert failures
    assert told(full.out) == told(calm.out)
    assert lines(full.out) == lines(calm.out)
    assert full.rows() == calm.rows()
    assert full.parquet() == calm.parquet() == [line["id"] for line in lines(calm.out)]
    assert lines(full.folder / "bob.jsonl") == lines(calm.folder / "bob.jsonl")
    assert reasons(full.letters) == reasons(calm.letters)
    assert full.left() == []


def limited(kilobytes: int | None) -> list[str]:
    """What starts a command that cannot let a file grow beyond so much."""
    limit = "unlimited" if kilobytes is None else str(kilobytes)
    return ["bash", "-c", f"trap '' XFSZ; ulimit -f {limit}; exec \"$@\"", "bash", sys.executable]


def started(folder: Path, kilobytes: int | None) -> subprocess.Popen[bytes]:
    command = [
        *limited(kilobytes),
        *("-m", "skws", "watch", QUERY, "--engine", "local", "--on-error", "dead-letter"),
        *("--dead-letters", str(folder / "letters.jsonl")),
        *("--schema", str(folder / "schema.yaml"), "--source", str(folder / "in.jsonl")),
        *("--checkpoint", str(folder / "checkpoint"), "--sink", f"jsonl:{folder / 'out.jsonl'}"),
        *("--sink", f"parquet:{folder / 'parquet'}?every=1 s"),
    ]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)


@pytest.mark.parametrize("kilobytes", [300, 777, pytest.param(1_500, marks=pytest.mark.slow)])
def test_a_limit_of_file_sizes_in_a_process_of_its_own(tmp_path: Path, kilobytes: int) -> None:
    results = 6_000
    (tmp_path / "schema.yaml").write_text(YAML)
    records = list(numbered(results))
    append(tmp_path / "in.jsonl", *records[:100], {"relation": "nobody"}, *records[100:])
    first = started(tmp_path, kilobytes)
    _, error = first.communicate(timeout=120)
    assert first.returncode == 1, error
    assert b"File too large" in error
    assert b"Traceback" not in error
    assert b"unexpected" not in error
    assert (tmp_path / "out.jsonl").read_bytes().endswith(b"\n")
    second = started(tmp_path, None)
    try:
        until(lambda: (tmp_path / "out.jsonl").read_bytes().count(b"\n") >= results)
    finally:
        second.send_signal(signal.SIGINT)
        _, error = second.communicate(timeout=60)
    assert second.returncode == 130, error
    found = [line["id"] for line in lines(tmp_path / "out.jsonl")]
    assert len(found) == len(set(found)) == results
    kept = sorted((tmp_path / "parquet").glob("*.parquet"))
    assert [name for path in kept for name in pq.read_table(path).column("id").to_pylist()] == found
    assert len(lines(tmp_path / "letters.jsonl")) == 1


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_search_leaves_an_output_alone_that_it_cannot_replace(tmp_path: Path, form: str) -> None:
    (tmp_path / "schema.yaml").write_text(YAML)
    append(tmp_path / "in.jsonl", *numbered(3_000))
    output = tmp_path / "folder" / "out"
    output.parent.mkdir()
    output.write_text("of the run before")
    command = [
        *limited(20),
        *("-m", "skws", "search", QUERY, "--engine", "local", "-f", form, "-o", str(output)),
        *("-s", str(tmp_path / "schema.yaml"), "-r", str(tmp_path / "in.jsonl")),
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith(b"skws: cannot write to "), ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert [path.name for path in output.parent.iterdir()] == ["out"]
    assert output.read_text() == "of the run before"


def test_dead_letters_of_a_search_end_with_a_whole_line(tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text(YAML)
    bad = ({"relation": "nobody", "number": n} for n in range(3_000))
    append(tmp_path / "in.jsonl", customer(1, 1), *bad)
    letters = tmp_path / "letters.jsonl"
    command = [
        *limited(20),
        *("-m", "skws", "search", QUERY, "--engine", "local", "-s"),
        *(str(tmp_path / "schema.yaml"), "-r", str(tmp_path / "in.jsonl")),
        *("--on-error", "dead-letter", "--dead-letters", str(letters)),
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert ended.returncode == 1
    assert b"cannot write dead letters: File too large" in ended.stderr
    assert all(orjson.loads(line) for line in letters.read_bytes().splitlines())
