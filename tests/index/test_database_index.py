"""The index of a database provides its rows as live tuples, mapped from a file that is never modified."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from skws.index.database import StoredTuples
from skws.index.index_cache import as_batches, make_parts
from skws.index.postings import IndexFile, packed_folder
from skws.index.table import PART, arrow_schema
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.stream_engine import StreamEngine
from skws.spec.query_spec import RankingChoice
from skws.store.live_store import LiveStore
from skws_mesh.columnar.columns import NULL, index_hashes
from skws_mesh.columnar.hash_index import MERGED
from skws_mesh.columnar.live import KeySets
from skws_schema.model import Row, Schema
from skws_schema.yaml.load import parse_schema
from skws_windows.window import Unbounded

MakeDatabase = Callable[[Sequence[Row], Sequence[Row]], StoredTuples]


@pytest.fixture
def schema() -> Schema:
    return parse_schema(
        "version: 1\nname: shop\nwindow: none\nrelations:\n"
        "  item: {attributes: {id: integer, name: text}, key: [id], table: true}\n"
        "  sale: {attributes: {item: integer, note: text}, table: true}\n"
        "joins: [sale.item = item.id]\n"
    )


@pytest.fixture
def indexed(schema: Schema, tmp_path: Path) -> MakeDatabase:
    def make(items: Sequence[Row], sales: Sequence[Row]) -> StoredTuples:
        path, rows = tmp_path / "index", {"item": items, "sale": sales}
        with packed_folder(path) as parts:
            make_parts(
                parts,
                schema,
                lambda reader: as_batches(rows[reader.relation.name], arrow_schema(reader.relation)),
            )
        return StoredTuples.of_database(IndexFile(path), schema)

    return make


def matching_rows(schema: Schema, database: StoredTuples, text: str) -> list[list[Row]]:
    plan = Plan(schema, parse_query(text, schema), Unbounded(), ranking=RankingChoice())
    results = StreamEngine.over(plan, database).search_once(plan, 10).results
    return sorted(sorted(tuple(tuple_.row.values()) for tuple_ in result.tuples) for result in results)


@pytest.mark.parametrize("run_length", [MERGED, 10_000])
def test_superseded_rows_of_several_index_parts_are_not_found(
    schema: Schema, indexed: MakeDatabase, run_length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skws.index.database.MERGED", run_length)
    last = PART + 100
    items: list[Row] = [(number % 50 if number < 200 else number, "plain") for number in range(last)]
    items[60], items[-1] = (10, "replaced lamp"), (last - 1, "lamp")
    items[160] = (10, "brass lamp")
    sales: list[Row] = [(last - 1, "dented"), (10, "dented"), (10, "dented"), (None, "dented"), (7, "sold")]
    database = indexed(items, sales)
    assert len(database) == last - 150 + len(sales)
    assert len(database.by_join_value.runs) == -(-(len(database) - 1) // run_length)
    assert database.occurrences == {len(database) - 3: 1}
    brass = sorted([(10, "brass lamp"), (10, "dented")])
    assert matching_rows(schema, database, "lamp dented") == sorted(
        [brass, brass, sorted([(last - 1, "lamp"), (last - 1, "dented")])]
    )
    assert matching_rows(schema, database, "replaced") == []


def test_the_store_of_an_index_equals_one_computed_from_rows(schema: Schema, indexed: MakeDatabase) -> None:
    items: list[Row] = [(3, "lamp"), (1, "kettle"), (None, "lamp")]
    sales: list[Row] = [(1, "dented"), (None, "sold"), (1, "sold"), (3, None)]
    store = LiveStore(schema, Unbounded())
    store.open(indexed(items, sales))
    tuples, rows = store.live.tuples, store.directory.rows
    assert list(rows) == [*items, *sales]
    assert tuples.relation.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert store.values.all_exact
    np.testing.assert_array_equal(tuples.keys, LiveStore(schema, Unbounded()).values.of(rows))
    assert [int(key) for key in tuples.keys[:, 0]] == [3, 1, NULL, 1, NULL, 1, 3]
    id_edges = KeySets(schema).edge_index[np.flatnonzero(KeySets(schema).target_relation == 0)]
    position, slot = store.live.probe(index_hashes(np.repeat(id_edges, 2), np.array([1, 3])))
    assert sorted(zip(position.tolist(), slot.tolist(), strict=True)) == [(0, 1), (1, 0)]


def test_integers_equal_to_the_null_key_are_compared_by_value(schema: Schema, indexed: MakeDatabase) -> None:
    least = -(1 << 63)
    items: list[Row] = [(least, "lamp"), (hash(least), "lamp")]
    store = LiveStore(schema, Unbounded())
    store.open(indexed(items, [(least, "dented")]))
    assert not store.values.all_exact
    assert matching_rows(schema, indexed(items, [(least, "dented")]), "lamp dented") == [
        sorted([(least, "lamp"), (least, "dented")])
    ]


def test_changes_of_the_store_do_not_change_the_index_file(schema: Schema, indexed: MakeDatabase) -> None:
    database = indexed([(1, "lamp")], [])
    content = database.tables[0].path.read_bytes()
    store = LiveStore(schema, Unbounded())
    store.open(database)
    store.live.end(np.array([0]), np.array([7]))
    assert store.live.tuple_in(0)[2] == 7
    assert database.tables[0].path.read_bytes() == content
    reopened = LiveStore(schema, Unbounded())
    reopened.open(StoredTuples.of_database(IndexFile(database.tables[0].path), schema))
    assert reopened.live.tuple_in(0)[2] != 7


def test_a_database_without_rows_has_no_results(schema: Schema, indexed: MakeDatabase) -> None:
    database = indexed([], [])
    assert len(database) == 0
    assert matching_rows(schema, database, "lamp") == []
