"""A database has one index on disk, whichever way its address is spelled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep

import pytest

from skws.durable import CACHE
from skws.formats.rows import RowReader
from skws.index.index_cache import database_index
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.stream_engine import StreamEngine
from skws.sources.addresses import database_at
from skws.sources.postgres.catalog import PostgresDatabase
from skws.sources.sqlite import SqliteDatabase
from skws.spec.query_spec import RankingChoice
from skws_schema.infer.infer import Inference
from skws_schema.model import Relation, Row, Schema
from skws_schema.yaml.load import parse_schema
from skws_windows.window import Unbounded

SPELLINGS = (
    "postgresql://ada@localhost:5432/shop",
    "postgres://ada:secret@127.0.0.1/shop?sslmode=disable",
)


@dataclass
class FakeDatabase:
    """A database with an address; ``read``: the relations whose rows were read, in order."""

    address: str
    read: list[str] = field(default_factory=list)
    rows_of: dict[str, list[Row]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return PostgresDatabase.of(self.address).name

    @property
    def identity(self) -> str:
        return PostgresDatabase.of(self.address).identity

    def stamp(self, relations: Sequence[Relation]) -> str:
        return repr((self.identity, [self.rows_of.get(relation.name) for relation in relations]))

    def inferred(self, *, followed: bool) -> Inference:
        raise NotImplementedError

    def rows(self, reader: RowReader) -> Iterator[Row]:
        return self.values(reader.relation)

    def values(self, relation: Relation) -> Iterator[Row]:
        self.read.append(relation.name)
        yield from self.rows_of.get(relation.name, [(1, "kettle")])


@pytest.fixture
def schema() -> Schema:
    return parse_schema(
        "version: 1\nname: shop\nwindow: none\nrelations:\n"
        "  item: {attributes: {id: integer, name: text}, key: [id], table: true}\n"
    )


def test_two_spellings_of_an_address_share_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: Schema
) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path))
    first, second = map(FakeDatabase, SPELLINGS)
    assert first.name != second.name
    for database in (first, second, first):
        assert len(database_index(database, schema, None, lambda _: None)) == 1
    assert (first.read, second.read) == (["item"], [])


def test_only_changed_tables_are_reindexed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    schema = parse_schema(
        "version: 1\nname: shop\nwindow: none\nrelations:\n"
        "  item: {attributes: {id: integer, name: text}, key: [id], table: true}\n"
        "  sale: {attributes: {item: integer, note: text}, table: true}\n"
        "joins: [sale.item = item.id]\n"
    )
    shop = FakeDatabase(SPELLINGS[0], rows_of={"item": [(1, "kettle"), (2, "lamp")], "sale": [(1, "dented")]})

    def searched(text: str, index: Path | None) -> list[list[str]]:
        shop.read.clear()
        plan = Plan(schema, parse_query(text, schema), Unbounded(), ranking=RankingChoice())
        database = database_index(shop, schema, index, lambda _: None)
        outcome = StreamEngine.over(plan, database).search_once(plan, 10)
        return [[tuple_.id for tuple_ in result.tuples] for result in outcome.results]

    for index in (None, tmp_path / "shop.index"):
        shop.rows_of["sale"] = [(1, "dented")]
        assert len(searched("kettle dented", index)) == 1
        assert shop.read == ["item", "sale"]
        assert len(searched("kettle dented", index)) == 1
        assert shop.read == []
        shop.rows_of["sale"] = [(2, "dented"), (2, "sold"), (1, "sold"), (2, "sold")]
        assert searched("kettle dented", index) == []
        assert shop.read == ["sale"]
        assert len(searched("lamp sold", index)) == 2
        assert shop.read == []


@pytest.mark.parametrize("content", [b"", b"damaged", b"skws index 1\n"])
def test_a_damaged_index_in_the_cache_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    """As after a loss of power; only a file that the user names must be an index."""
    monkeypatch.setenv(CACHE, str(tmp_path))
    schema = parse_schema("relations:\n  item: {attributes: {id: integer, name: text}}\n")
    shop = FakeDatabase(SPELLINGS[0])
    assert len(database_index(shop, schema, None, lambda _: None)) == 1
    (path,) = tmp_path.glob("**/index")
    path.write_bytes(content)
    assert len(database_index(shop, schema, None, lambda _: None)) == 1
    assert shop.read == ["item", "item"]


class SlowDatabase(FakeDatabase):
    def values(self, relation: Relation) -> Iterator[Row]:
        sleep(0.1)
        return super().values(relation)


def test_searches_that_need_one_index_file_make_it_once(tmp_path: Path) -> None:
    """Whether they are processes or, as here, threads."""
    schema = parse_schema("relations:\n  item: {attributes: {id: integer, name: text}}\n")
    shop = SlowDatabase(SPELLINGS[0])

    def indexed_rows(_: int) -> int:
        return len(database_index(shop, schema, tmp_path / "index", lambda _: None))

    with ThreadPoolExecutor() as threads:
        assert list(threads.map(indexed_rows, range(4))) == [1] * 4
    assert shop.read == ["item"]
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_equivalent_addresses_have_the_same_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop.db").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    addresses = (f"sqlite:{tmp_path / 'shop.db'}", "shop.db", "./shop.db")
    assert {database_at(address).identity for address in addresses} == {str(tmp_path.resolve() / "shop.db")}
    assert isinstance(database_at("shop.db"), SqliteDatabase)
    assert {database_at(address).identity for address in SPELLINGS} == {"localhost:5432/shop"}
    assert database_at("postgresql://ada@localhost:5433/shop").identity == "localhost:5433/shop"
