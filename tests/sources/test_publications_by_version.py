"""The statements for a publication depend on the server's version: column lists were added in 15."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from psycopg2.extensions import cursor

from skws.sources.postgres.catalog import CatalogTable
from skws.sources.postgres.pgoutput import ReplicaIdentity
from skws.sources.postgres.publication import Publication
from skws_schema.errors import SourceError

MOVIE = CatalogTable(7, "public", "movie", "r", ReplicaIdentity.DEFAULT, (), ("mid",), frozenset({"mid"}), ())
SINCE_15 = ("attnames", "rowfilter")


@dataclass
class Connection:
    server_version: int


@dataclass
class Catalog:
    """A cursor over the catalog of a server with one publication, with the columns of its version."""

    connection: Connection
    columns: list[str] | None = None
    filtered: bool = False
    executed: list[str] = field(default_factory=list)
    rows: list[tuple[Any, ...]] = field(default_factory=list)

    def execute(self, statement: str, _parameters: object) -> None:
        self.executed.append(statement)
        if "FROM pg_publication_tables" not in statement:
            self.rows = [(True, True, True, True, True)]
            return
        later_columns = [name for name in SINCE_15 if name in statement]
        assert not later_columns or self.connection.server_version >= 150000, (
            f"column {later_columns[0]} does not exist"
        )
        column_values = (self.columns, self.filtered) if later_columns else (None, False)
        self.rows = [("public", "movie", *column_values)]

    def fetchone(self) -> tuple[Any, ...] | None:
        return self.rows[0]

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.rows


def read(catalog: Catalog) -> Publication:
    return Publication.read(cast("cursor", catalog), "films")


@pytest.mark.parametrize("version", [130000, 130022, 140000, 140019])
def test_servers_before_15_publish_whole_tables(version: int) -> None:
    catalog = Catalog(Connection(version))
    read(catalog).check({MOVIE: frozenset({"mid", "title"})})
    assert len(catalog.executed) == 2


@pytest.mark.parametrize("version", [150000, 160004, 180000])
def test_column_lists_are_read_from_later_servers(version: int) -> None:
    columns_by_table = {MOVIE: frozenset({"mid", "title"})}
    read(Catalog(Connection(version), ["mid", "title"])).check(columns_by_table)
    with pytest.raises(SourceError, match=r"leaves out columns of public\.movie: title"):
        read(Catalog(Connection(version), ["mid"])).check(columns_by_table)
    with pytest.raises(SourceError, match=r"leaves out rows of public\.movie by a WHERE"):
        read(Catalog(Connection(version), ["mid", "title"], filtered=True)).check(columns_by_table)
