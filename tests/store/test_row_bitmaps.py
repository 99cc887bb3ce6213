"""Keyword bitmaps next to row files: a start does not match texts again, and ignores foreign files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

import pytest

from skws.data.batch import Record, RecordBatch
from skws.data.texts import Column
from skws.keywords.chunk_table import Bitmaps, ChunkTable
from skws.queries.keywords import engine
from skws.queries.kinds import plans_over
from skws.queries.session import Session
from skws.spec.enums import EvaluatorName
from skws.spec.query_spec import Query, Stream
from skws.store import row_bitmaps, row_files
from skws.store.row_bitmaps import SUFFIX
from skws.store.row_files import RowFiles, Stored
from skws_mesh.columnar import live, mesh
from skws_mesh.delta import joins
from skws_mesh.mesh_kinds import MeshChoice, MeshKind
from skws_schema.model import Attribute, AttributeType, Join, Relation, Row, Schema
from skws_windows.window import Unbounded
from tests.strategies import seeds

SCHEMA = Schema(
    "shop",
    (
        Relation(
            "item",
            (Attribute("n", AttributeType.INTEGER), Attribute("t", AttributeType.TEXT)),
            key=("n",),
            search=("t",),
        ),
        Relation(
            "sale",
            (Attribute("n", AttributeType.INTEGER), Attribute("t", AttributeType.TEXT)),
            search=("t",),
        ),
    ),
    (Join("of", "sale", "item", (("n", "n"),)),),
)
STREAM = Stream(SCHEMA, Unbounded())
WORDS = ("lamp", "chair", "red", "blue", "old")
EXCLUDING = Query("lamp -old")
QUERIES = (Query("lamp red"), Query("chair"), EXCLUDING)


@pytest.fixture(autouse=True)
def _few_rows_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "LEAST", 3)
    monkeypatch.setattr(row_files, "MOST", 3)
    monkeypatch.setattr(row_files, "BATCH", 5)
    monkeypatch.setattr(engine, "LOAD_SIZE", 4)
    monkeypatch.setattr(live, "CHUNK_TUPLES", 7)
    monkeypatch.setattr(live, "MERGED", 16)
    monkeypatch.setattr(mesh, "PAIRS", 3)
    monkeypatch.setattr(joins, "PAIRS", 5)


class Run:
    """A session whose log contains the live tuples; ``matched``: texts that the last start has matched."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.stream = STREAM
        self.matched = 0
        self._number = 0
        self._texts = 0
        find_in = ChunkTable.find_in

        def counting(table: ChunkTable, parts: Sequence[tuple[Column, Bitmaps]]) -> None:
            self._texts += sum(len(bitmaps) for _, bitmaps in parts)
            find_in(table, parts)

        monkeypatch.setattr(ChunkTable, "find_in", counting)
        self.files = RowFiles(folder)
        self.session = Session(STREAM)

    def add(self, queries: Iterable[Query]) -> None:
        self.session.add_all(
            plans_over([query.named(query.text, 3) for query in queries], self.session.stream)
        )

    def take(self, records: list[Record]) -> None:
        self.session.take(RecordBatch.of(records))

    def keep(self) -> Stored:
        self._number += 1
        live_records = self.session.live_records()
        assert live_records is not None
        stored = self.files.store(live_records, f"{self._number}")
        self.files.trim(stored.files)
        return stored

    def start(self, stored: Stored, queries: Iterable[Query]) -> dict[str, list[str]]:
        """The ids of the live results, by query, after the start of another process."""
        self.begin([query.named(query.text, 3) for query in queries], stored)
        return {query.text: self.alive(query.text) for query in queries}

    def begin(self, queries: Sequence[Query], stored: Stored) -> None:
        before = self._texts
        self.files, self.session = RowFiles(self.folder), Session(self.stream)
        self.session.add_all(plans_over(queries, self.stream))
        self.session.replay(self.files.read(stored.files, stored.rest), {}, live=True)
        self.matched = self._texts - before

    def alive(self, name: str) -> list[str]:
        return sorted(result.id for result in self.session.alive(name))


def rows(count: int, seed: int = 1) -> list[Record]:
    rng = Random(seed)
    records = []
    for number in range(count):
        row: Row = (rng.randrange(12), " ".join(rng.sample(WORDS, 2)))
        records.append(Record(rng.randrange(2), 1_000 + number, row))
    return records


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


def results_of(records: list[Record], queries: Iterable[Query]) -> dict[str, list[str]]:
    """The results of a session that was never interrupted."""
    session = Session(STREAM)
    session.add_all(plans_over([query.named(query.text, 3) for query in queries], STREAM))
    session.take(RecordBatch.of(records))
    return {query.text: sorted(result.id for result in session.alive(query.text)) for query in queries}


def test_texts_matched_by_a_run_are_not_matched_again(run: Run) -> None:
    run.add(QUERIES)
    run.take(rows(60))
    stored = run.keep()
    assert run.start(stored, QUERIES) == results_of(rows(60), QUERIES)
    assert run.matched == 0


def test_texts_matched_by_a_start_are_not_matched_again(run: Run) -> None:
    run.take(rows(60))
    stored = run.keep()
    expected = results_of(rows(60), QUERIES)
    assert run.start(stored, QUERIES) == expected
    assert run.matched > 0
    assert run.start(stored, QUERIES) == expected
    assert run.matched == 0


def test_texts_are_matched_for_new_queries(run: Run) -> None:
    run.add(QUERIES[:2])
    run.take(rows(60))
    stored = run.keep()
    new_queries = (QUERIES[1], EXCLUDING, Query("blue"))
    assert run.start(stored, new_queries) == results_of(rows(60), new_queries)
    assert run.matched > 0
    run.start(stored, new_queries)
    assert run.matched == 0
    assert run.start(stored, QUERIES[:1]) == results_of(rows(60), QUERIES[:1])
    assert run.matched > 0


def test_queries_with_equal_bitmaps_share_them(run: Run) -> None:
    named_queries = [Query("lamp red").named("three", 3), Query("lamp red").named("one", 1)]
    run.session.add_all(plans_over(named_queries, STREAM))
    run.take(rows(60))
    stored = run.keep()
    run.begin(named_queries, stored)
    assert run.matched == 0
    assert run.alive("three") == results_of(rows(60), QUERIES)["lamp red"]
    assert 0 < len(run.alive("one")) < len(run.alive("three"))


@pytest.mark.parametrize("damage", ["torn", "flipped", "empty", "of other rows"])
def test_damaged_and_foreign_files_are_ignored(run: Run, damage: str) -> None:
    run.add(QUERIES)
    run.take(rows(60))
    stored = run.keep()
    paths = sorted(run.folder.glob(f"*{SUFFIX}"))
    assert paths
    for path in paths:
        data = path.read_bytes()
        if damage == "torn":
            data = data[: len(data) // 2]
        elif damage == "flipped":
            data = data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]
        elif damage == "empty":
            data = b""
        else:
            foreign_session = Session(STREAM)
            foreign_session.add_all(plans_over([query.named(query.text, 3) for query in QUERIES], STREAM))
            foreign_session.take(RecordBatch.of(rows(60, seed=2)))
            live_records = foreign_session.live_records()
            assert live_records is not None
            folder = run.folder / "other"
            folder.mkdir()
            RowFiles(folder).store(live_records, path.stem)
            data = (folder / path.name).read_bytes()
        path.write_bytes(data)
    assert run.start(stored, QUERIES) == results_of(rows(60), QUERIES)
    assert run.matched > 0


def test_without_stored_bitmaps_a_start_matches_everything(run: Run) -> None:
    run.take(rows(60))
    stored = run.keep()
    (file,) = stored.files
    (run.folder / file["name"]).with_suffix(SUFFIX).mkdir()
    for _ in range(2):
        assert run.start(stored, QUERIES) == results_of(rows(60), QUERIES)
        assert run.matched > 0


def test_bitmaps_too_large_for_the_disk_are_not_stored(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_bitmaps, "SMALL", 0)
    queries = [Query(word) for word in WORDS[:4]]
    run.add(queries)
    run.take(rows(60))
    stored = run.keep()
    for _ in range(2):
        assert run.start(stored, queries) == results_of(rows(60), queries)
        assert run.matched > 0
    assert not list(run.folder.glob(f"*{SUFFIX}"))


def test_bitmaps_are_deleted_with_their_rows(run: Run) -> None:
    run.add(QUERIES)
    run.take(rows(40))
    first = run.keep()
    assert list(run.folder.glob(f"*{SUFFIX}"))
    run.take([Record(1, 2_000 + n, record.row, True) for n, record in enumerate(rows(40)) if record.relation])
    run.take([Record(0, 3_000 + n, (n, ""), True) for n in range(12)])
    second = run.keep()
    assert first.files
    assert not second.files
    assert not list(run.folder.glob(f"*{SUFFIX}"))


@pytest.mark.parametrize("choice", [MeshChoice(MeshKind.FULL), MeshChoice(MeshKind.FOREST)])
def test_meshes_of_the_paper_restore_live_tuples(run: Run, choice: MeshChoice) -> None:
    run.take(rows(60))
    stored = run.keep()
    run.stream = Stream(SCHEMA, Unbounded(), mesh=choice)
    assert run.start(stored, QUERIES) == results_of(rows(60), QUERIES)


@pytest.mark.check
@pytest.mark.parametrize("evaluator", [EvaluatorName.MESH, EvaluatorName.DELTA])
@seeds(3, 8)
def test_repeated_restarts_with_other_queries_have_the_results_of_one_run(
    run: Run, seed: int, evaluator: EvaluatorName
) -> None:
    """Each start has other queries, and rows are inserted and deleted in between."""
    rng, run.stream = Random(seed), Stream(SCHEMA, Unbounded(), evaluator=evaluator)
    candidates = [*QUERIES[1:], *(Query(f"{a} {b}") for a in WORDS for b in WORDS if a < b)]
    undisturbed, time, count = Session(STREAM), 1_000, 0
    queries: list[Query] = []
    for _ in range(12):
        records = []
        for _ in range(rng.randrange(1, 20)):
            time += rng.randrange(3)
            row: Row = (rng.randrange(12), " ".join(rng.sample(WORDS, 2)))
            records.append(Record(rng.randrange(2), time, row, rng.random() < 0.3))
        for session in (undisturbed, run.session):
            session.take(RecordBatch.of(records))
        stored = run.keep()
        queries = rng.sample(candidates, rng.choice((0, 1, 3, 8)))
        ids = run.start(stored, queries)
        undisturbed.add_all(plans_over([query.named(query.text, 3) for query in queries], STREAM))
        for query in queries:
            assert ids[query.text] == sorted(result.id for result in undisturbed.alive(query.text))
            count += len(ids[query.text])
            undisturbed.remove(query.text)
    assert count
