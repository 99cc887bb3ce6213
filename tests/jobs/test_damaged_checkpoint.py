"""A damaged checkpoint is rejected with the name of the file, or leads to the same results."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow.parquet as pq
import pytest

from skws.jobs import journal as journals
from skws.jobs.local import LocalWatch
from skws.sinks.sink_addresses import open_sinks
from skws.spec.enums import OnError
from skws.spec.query_spec import PATTERN, Query
from skws.state_database import NAME
from skws_schema.errors import StateError
from skws_schema.model import Attribute, AttributeType, Join, Relation
from tests.forked import FILE_SIZE, forked_skws
from tests.jobs.watching import (
    QUERY,
    SCHEMA,
    YAML,
    Notes,
    abandon,
    append,
    customer,
    lines,
    numbered,
    order,
    request,
    steps,
)
from tests.places import ROOT
from tests.queries.counted import counted
from tests.strategies import some
from tests.waiting import until

ORDERED: Final = "customer c ; order o where c.cid = o.cid within 10 s"
KIND: Final = Relation(
    "kind",
    (Attribute("item", AttributeType.TEXT), Attribute("note", AttributeType.TEXT)),
    key=("item",),
    search=("note",),
    table=True,
)
WITH_TABLE: Final = replace(
    SCHEMA,
    relations=(*SCHEMA.relations, KIND),
    joins=(*SCHEMA.joins, Join("order.item = kind.item", "order", "kind", (("item", "item"),))),
)
QUERIES_BY_START: Final[list[dict[str, str | Query]]] = [
    {QUERY: QUERY, "bob": "bob", "third": Query("3", kind="counted")},
    {QUERY: QUERY, "third": Query("3", kind="counted")},
    {
        QUERY: QUERY,
        "bob": "bob",
        "third": Query("3", kind="counted"),
        "ordered": Query(ORDERED, kind=PATTERN),
    },
]
"""The queries of three starts."""


def stream(rng: random.Random, parts: int) -> list[list[dict[str, Any]]]:
    """Records in parts: renamed and deleted customers, repeated orders, with ties, bad and late records."""
    time, stream_parts = 0.0, []
    for _ in range(parts):
        part: list[dict[str, Any]] = []
        for _ in range(rng.randint(1, 6)):
            time += rng.choice((0, 0, 0.5, 1, 3))
            cid, word = rng.randint(1, 4), rng.choice(("ada", "bob ada", "eve"))
            item = rng.choice(("lamp", "lamp old", "chair"))
            op = rng.choice("+++-")
            records = customer(time, cid, word, op), order(time, cid, item, op)
            part.append(rng.choice((*records, order(time, cid, item))))
        if rng.random() < 0.1:
            part.append({"relation": "nobody", "time": time})
        if rng.random() < 0.1:
            part.append(order(time - 2, 1))
        stream_parts.append(part)
    return stream_parts


class RunFolder:
    """The folder of a run, with its source, outputs and checkpoint, which can be copied and restored."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoint = folder / "checkpoint"

    def opened(self, queries: Mapping[str, str | Query]) -> LocalWatch:
        job = request(
            self.folder / "in.jsonl",
            schema=WITH_TABLE,
            queries=queries,
            sinks=(f"jsonl:{self.folder / 'out.jsonl'}", f"sqlite:{self.folder / 'out.db'}"),
            checkpoint=self.checkpoint,
            on_error=OnError.DEAD_LETTER,
            dead_letters=self.folder / "letters.jsonl",
        )
        watch = LocalWatch(job, open_sinks(job.sinks), Notes().log)
        try:
            watch.open()
        except BaseException:
            with suppress(AttributeError):  # sinks may not be open
                watch.close(failed=True)
            raise
        return watch

    def results(self) -> list[Any]:
        with closing(sqlite3.connect(self.folder / "out.db")) as connection:
            rows = connection.execute('SELECT "query", "id" FROM results ORDER BY 1, 2').fetchall()
        return [lines(self.folder / "out.jsonl"), lines(self.folder / "letters.jsonl"), rows]

    def copy_to(self, copy: Path) -> Path:
        shutil.rmtree(copy, ignore_errors=True)
        return Path(shutil.copytree(self.folder, copy))

    def restore_from(self, copy: Path) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(copy, self.folder)

    def end(self) -> list[Any]:
        """Continues to the end of the source; returns the results. Raises StateError."""
        watch = self.opened(QUERIES_BY_START[-1])
        steps(watch)
        watch.close()
        return self.results()


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every file of a checkpoint is damaged in many ways, so a journal with several segments must be small.
    monkeypatch.setattr(journals, "SEGMENT_BYTES", 600)
    counted(tmp_path / "installed", monkeypatch)


def make_run(folder: Path, copies: Path, *, killed: bool) -> tuple[RunFolder, Path, list[Path], list[Any]]:
    """A run that was killed or closed, a copy of its state, older copies, and its final results."""
    run = RunFolder(folder)
    folder.mkdir()
    copies.mkdir()
    source = folder / "in.jsonl"
    kinds = ({"item": item, "note": f"ada {item}"} for item in ("lamp", "chair"))
    append(source, *({"relation": "kind", "time": 0, "row": row} for row in kinds))
    parts = stream(random.Random(5), 30)
    older_copies = []
    for start in range(3):
        watch = run.opened(QUERIES_BY_START[start])
        for number, part in enumerate(parts[start * 7 : start * 7 + 7]):
            append(source, *part)
            steps(watch)
            if number % 3 == 1:
                watch.commit()
                older_copies.append(run.copy_to(copies / f"{start}-{number}"))
        if start < 2:
            watch.close()
            older_copies.append(run.copy_to(copies / f"{start}-end"))
    if killed:
        abandon(watch)
    else:
        watch.close()
    for part in parts[21:]:
        append(source, *part)
    state = run.copy_to(copies / "state")
    return run, state, older_copies, run.end()


def damaged_contents(data: bytes, rng: random.Random) -> list[bytes | None]:
    """Contents that damage may leave, None for a lost file. Other tests flip every bit of frames."""
    contents: list[bytes | None] = [None, b"", data[: len(data) // 2], data[:-1], data + data, b"{}"]
    for bit in (0, 37, rng.randrange(8 * len(data) or 1)):
        damaged = bytearray(data or b"\0")
        damaged[bit // 8] ^= 1 << bit % 8
        contents.append(bytes(damaged))
    return contents


def checkpoint_files(state: Path) -> list[Path]:
    """The files of a saved checkpoint, by their names in it."""
    root = state / "checkpoint"
    return sorted(
        path.relative_to(root) for path in root.rglob("*") if path.is_file() and path.name != "lock"
    )


def is_rejected(run: RunFolder, relative_path: Path, expected: list[Any], damage: object) -> bool:
    """True if the run is rejected with an error that names the damaged file or its folder."""
    try:
        results = run.end()
    except StateError as error:
        message = str(error)
        assert message.startswith(f"{run.checkpoint}/"), (relative_path, damage, message)
        assert "start with a new --checkpoint" in message
        return True
    assert results == expected, (relative_path, damage)
    return False


@pytest.mark.usefixtures("small")
@some("killed", [True], [False])
def test_a_damaged_checkpoint_file_is_rejected_or_harmless(tmp_path: Path, killed: bool) -> None:
    rng = random.Random(killed)
    run, state, _, expected = make_run(tmp_path / "run", tmp_path / "away", killed=killed)
    files = checkpoint_files(state)
    assert NAME in {path.name for path in files}
    assert len([path for path in files if path.parent.name == "journal"]) > 2
    for relative_path in files:
        data = (state / "checkpoint" / relative_path).read_bytes()
        rejected_count = 0
        for content in damaged_contents(data, rng):
            run.restore_from(state)
            damaged = run.checkpoint / relative_path
            if content is None:
                damaged.unlink()
            else:
                damaged.write_bytes(content)
            rejected_count += is_rejected(run, relative_path, expected, content)
        if relative_path.name == f"{NAME}-journal":  # not valid between two commits
            assert rejected_count == 0
        else:
            assert rejected_count > 5 or relative_path.parent.name == "journal", relative_path


@pytest.mark.usefixtures("small")
@pytest.mark.slow
@pytest.mark.parametrize("killed", [True, False])
def test_an_outdated_checkpoint_file_is_rejected_or_harmless(tmp_path: Path, killed: bool) -> None:
    run, state, older_copies, expected = make_run(tmp_path / "run", tmp_path / "away", killed=killed)
    rejected_count = 0
    for copy in older_copies:
        for relative_path in checkpoint_files(copy):
            run.restore_from(state)
            old_content, current = (
                (copy / "checkpoint" / relative_path).read_bytes(),
                run.checkpoint / relative_path,
            )
            if not current.exists() or current.read_bytes() != old_content:
                current.write_bytes(old_content)
                rejected_count += is_rejected(run, relative_path, expected, copy)
    assert rejected_count > 5


@pytest.mark.check
@pytest.mark.usefixtures("small")
def test_swapped_checkpoint_files_are_rejected(tmp_path: Path) -> None:
    run, state, _, expected = make_run(tmp_path / "run", tmp_path / "away", killed=True)
    pairs = [pair for pair in permutations(checkpoint_files(state), 2) if pair[0].suffix == pair[1].suffix]
    assert len(pairs) > 20
    for source, target in pairs:
        run.restore_from(state)
        shutil.copyfile(state / "checkpoint" / source, run.checkpoint / target)
        assert is_rejected(run, target, expected, source)


@pytest.mark.check
@pytest.mark.usefixtures("small")
def test_a_missing_journal_is_rejected(tmp_path: Path) -> None:
    run, state, _, expected = make_run(tmp_path / "run", tmp_path / "away", killed=True)
    run.restore_from(state)
    shutil.rmtree(run.checkpoint / "journal")
    assert is_rejected(run, Path("journal"), expected, "gone")


@pytest.mark.usefixtures("small")
def test_a_checkpoint_is_accessible_only_by_its_owner(tmp_path: Path) -> None:
    make_run(tmp_path / "run", tmp_path / "away", killed=False)
    for path in [tmp_path / "run" / "checkpoint", *(tmp_path / "run" / "checkpoint").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.check
@pytest.mark.usefixtures("small")
def test_partial_files_of_a_killed_process_are_deleted(tmp_path: Path) -> None:
    run, state, _, _ = make_run(tmp_path / "run", tmp_path / "away", killed=True)
    run.restore_from(state)
    folders = [run.checkpoint, *(path for path in run.checkpoint.rglob("*") if path.is_dir())]
    for folder in folders:
        (folder / ".000000000008.log.9.partial").write_bytes(b"half")
    assert {"journal", "source"} <= {folder.name for folder in folders}
    run.opened(QUERIES_BY_START[0]).close()
    assert not list(run.checkpoint.rglob("*.partial"))


def size_limit_environment(kilobytes: int) -> dict[str, str]:
    """The environment of a command that cannot write files above a size."""
    return {**os.environ, FILE_SIZE: str(1024 * kilobytes)}


def start_watch(folder: Path, kilobytes: int | None) -> subprocess.Popen[bytes]:
    command = [
        *(*forked_skws(), "watch", QUERY, "--engine", "local", "--on-error", "dead-letter"),
        *("--dead-letters", str(folder / "letters.jsonl")),
        *("--schema", str(folder / "schema.yaml"), "--source", str(folder / "in.jsonl")),
        *("--checkpoint", str(folder / "checkpoint"), "--sink", f"jsonl:{folder / 'out.jsonl'}"),
        *("--sink", f"parquet:{folder / 'parquet'}?every=1 s"),
    ]
    environment = None if kilobytes is None else size_limit_environment(kilobytes)
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, env=environment)


@pytest.mark.slow
@some("kilobytes", [300], [777, 1_500])
def test_a_watch_resumes_after_a_file_became_too_large(tmp_path: Path, kilobytes: int) -> None:
    results = 6_000
    (tmp_path / "schema.yaml").write_text(YAML)
    records = list(numbered(results))
    append(tmp_path / "in.jsonl", *records[:100], {"relation": "nobody"}, *records[100:])
    first = start_watch(tmp_path, kilobytes)
    _, error = first.communicate(timeout=120)
    assert first.returncode == 1, error
    assert b"File too large" in error
    assert b"Traceback" not in error
    assert b"unexpected" not in error
    assert (tmp_path / "out.jsonl").read_bytes().endswith(b"\n")
    second = start_watch(tmp_path, None)
    try:
        until(lambda: (tmp_path / "out.jsonl").read_bytes().count(b"\n") >= results)
    finally:
        second.send_signal(signal.SIGINT)
        _, error = second.communicate(timeout=60)
    assert second.returncode == 130, error
    ids = [line["id"] for line in lines(tmp_path / "out.jsonl")]
    assert len(ids) == len(set(ids)) == results
    parquet_files = sorted((tmp_path / "parquet").glob("*.parquet"))
    assert [name for path in parquet_files for name in pq.read_table(path).column("id").to_pylist()] == ids
    assert len(lines(tmp_path / "letters.jsonl")) == 1


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_a_failed_search_leaves_the_old_output(tmp_path: Path, form: str) -> None:
    (tmp_path / "schema.yaml").write_text(YAML)
    append(tmp_path / "in.jsonl", *numbered(3_000))
    output = tmp_path / "folder" / "out"
    output.parent.mkdir()
    output.write_text("of the run before")
    command = [
        *(*forked_skws(), "search", QUERY, "--engine", "local", "-f", form, "-o", str(output)),
        *("-s", str(tmp_path / "schema.yaml"), "-r", str(tmp_path / "in.jsonl")),
    ]
    process = subprocess.run(
        command, cwd=ROOT, env=size_limit_environment(20), capture_output=True, check=False
    )
    assert process.returncode == 1
    assert process.stderr.startswith(b"skws: cannot write to "), process.stderr
    assert len(process.stderr.splitlines()) == 1
    assert [path.name for path in output.parent.iterdir()] == ["out"]
    assert output.read_text() == "of the run before"


def test_dead_letters_of_a_failed_search_are_complete_lines(tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text(YAML)
    bad = ({"relation": "nobody", "number": n} for n in range(3_000))
    append(tmp_path / "in.jsonl", customer(1, 1), *bad)
    dead_letters = tmp_path / "letters.jsonl"
    command = [
        *(*forked_skws(), "search", QUERY, "--engine", "local", "-s"),
        *(str(tmp_path / "schema.yaml"), "-r", str(tmp_path / "in.jsonl")),
        *("--on-error", "dead-letter", "--dead-letters", str(dead_letters)),
    ]
    process = subprocess.run(
        command, cwd=ROOT, env=size_limit_environment(20), capture_output=True, check=False
    )
    assert process.returncode == 1
    assert b"cannot write dead letters: File too large" in process.stderr
    complete_lines = dead_letters.read_bytes().splitlines()
    assert len(complete_lines) > 50
    assert all(orjson.loads(line) for line in complete_lines)
