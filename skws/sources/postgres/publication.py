"""Finds changes of the followed tables that a publication leaves out, and the statements that repair it.

Such changes never arrive: rows of the snapshot would remain after they are deleted in the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from psycopg2.extensions import cursor

from skws.sources.postgres.catalog import CatalogTable
from skws.sources.postgres.replica_identity import sql_name
from skws_schema.errors import SourceError

_KINDS: Final = ("insert", "update", "delete", "truncate")
_ACTIONS: Final = """
    SELECT pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot
    FROM pg_publication WHERE pubname = %s"""
_TABLES: Final = "SELECT schemaname, tablename, {} FROM pg_publication_tables WHERE pubname = %s"
_LISTS_SINCE: Final = 150000  # the first version with lists of columns and filters of rows
_LISTS: Final = "attnames::text[], rowfilter IS NOT NULL"
_NO_LISTS: Final = "NULL::text[], false"

RequiredColumns: TypeAlias = Mapping[CatalogTable, frozenset[str]]
"""The tables to follow, with the columns that are read."""


@dataclass(frozen=True, slots=True)
class _PublishedTable:
    """The published part of a table. ``columns``: None for all of them."""

    columns: frozenset[str] | None
    filtered: bool


@dataclass(frozen=True, slots=True)
class Publication:
    """``left_out``: the kinds of changes that are not published.

    ``via_root``: partitions appear as their root.
    """

    name: str
    left_out: tuple[str, ...]
    via_root: bool
    parts: Mapping[tuple[str, str], _PublishedTable]

    @classmethod
    def read(cls, statement: cursor, name: str) -> Publication:
        """The publication with a name. Raises SourceError if there is none, psycopg2.Error."""
        statement.execute(_ACTIONS, (name,))
        row = statement.fetchone()
        if row is None:
            raise SourceError(
                f"the publication {name!r} is gone, and a publication that is made later cannot replace it"
                " for this slot; drop the slot and start a new run"
            )
        *actions, via_root = row
        lists = _LISTS if statement.connection.server_version >= _LISTS_SINCE else _NO_LISTS
        statement.execute(_TABLES.format(lists), (name,))
        parts = {
            (namespace, table): _PublishedTable(None if columns is None else frozenset(columns), filtered)
            for namespace, table, columns, filtered in statement.fetchall()
        }
        left_out = tuple(kind for kind, is_published in zip(_KINDS, actions, strict=True) if not is_published)
        return cls(name, left_out, via_root, parts)

    def missing_tables(self, tables: Sequence[CatalogTable]) -> list[CatalogTable]:
        return [table for table in tables if not self._publishes(table)]

    def check(self, required: RequiredColumns) -> None:
        """Raises SourceError that lists the missing changes, with the statements that repair them."""
        alter = f"ALTER PUBLICATION {sql_name(self.name)} "
        faults = [
            f"{problem} ({'; '.join(alter + change for change in changes)})"
            for problem, *changes in self._faults(required)
        ]
        if faults:
            raise SourceError(
                f"publication {self.name!r} {'; '.join(faults)}: change it and start a new run, or name"
                " another with ?publication="
            )

    def _faults(self, required: RequiredColumns) -> Iterator[tuple[str, ...]]:
        """The missing changes, each with the clauses that repair it."""
        if self.left_out:
            yield f"leaves out {', '.join(self.left_out)}", f"SET (publish = '{', '.join(_KINDS)}')"
        roots = ", ".join(table.full_name for table in required if table.kind == "p")
        if roots and not self.via_root:
            yield (
                f"publishes the partitions of {roots} under their own names",
                "SET (publish_via_partition_root = true)",
            )
        lacking = self.missing_tables(list(required))
        if lacking:
            names = ", ".join(table.full_name for table in lacking)
            yield f"lacks {names}", f"ADD TABLE {', '.join(table.only_text for table in lacking)}"
        for table, columns in required.items():
            part = self.parts.get((table.namespace, table.name))
            if part is None:
                continue
            repairs = f"DROP TABLE {table.only_text}", f"ADD TABLE {table.only_text}"
            missing = [] if part.columns is None else sorted(columns - part.columns)
            if part.filtered:
                yield f"leaves out rows of {table.full_name} by a WHERE", *repairs
            elif missing:
                yield f"leaves out columns of {table.full_name}: {', '.join(missing)}", *repairs

    def _publishes(self, table: CatalogTable) -> bool:
        if table.kind == "p" and not self.via_root:
            # The server lists the partitions, even if their root was added.
            return all((p.namespace, p.name) in self.parts for p in table.partitions if p.logged)
        return (table.namespace, table.name) in self.parts
