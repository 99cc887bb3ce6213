"""A PostgreSQL server: its rows, read in one snapshot each, and a schema from its catalog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from psycopg2.sql import SQL, Identifier

from schema.errors import SourceError
from schema.infer import Inference
from schema.model import Relation, Row
from skws.database.address import typed
from skws.sources.postgres.address import Address
from skws.sources.postgres.catalog import Table, tables
from skws.sources.postgres.fitting import fit_static
from skws.sources.postgres.inferring import inferred

_BATCH = 10_000


@dataclass(frozen=True)
class PostgresDatabase:
    """The tables and views that the search path shows."""

    address: Address

    @classmethod
    def of(cls, uri: str) -> PostgresDatabase:
        """Raises UsageError if it cannot be understood."""
        return cls(Address.of(uri))

    @property
    def name(self) -> str:
        return self.address.shown

    def stamp(self, relations: Sequence[Relation]) -> str:
        """How many rows there are, and the sum of hashes of what is read of each; the server reads all."""
        found = [self._stamp(relation) for relation in relations]
        return repr((self.name, found))

    def _stamp(self, relation: Relation) -> tuple[str, ...]:
        table = self._fitted(relation)
        row = SQL("ROW({})::text").format(SQL(", ").join(Identifier(a.name) for a in relation.attributes))
        statement = SQL("SELECT count(*), sum(hashtextextended({}, 0)) FROM {}").format(
            row, Identifier(table.namespace, table.name)
        )
        with self.address.sql() as connected, connected.cursor() as cursor:
            cursor.execute(statement)
            ((count, hashes),) = cursor.fetchall()
        return table.namespace, table.name, str(count), str(hashes)

    def inferred(self) -> Inference:
        return inferred(self.address, None, "none", followed=False)

    def rows(self, relation: Relation) -> Iterator[Row]:
        table = self._fitted(relation)
        statement = SQL("SELECT {} FROM {}").format(
            SQL(", ").join(SQL("{}::text").format(Identifier(a.name)) for a in relation.attributes),
            Identifier(table.namespace, table.name),
        )
        with self.address.sql() as connected, connected.cursor("skws") as cursor:
            cursor.itersize = _BATCH
            cursor.execute(statement)
            yield from typed(self.name, relation, iter(cursor))

    def _fitted(self, relation: Relation) -> Table:
        """Raises SourceError if there is no table for a relation."""
        faults = list(fit_static(relation, self._tables))
        if faults:
            raise SourceError(f"{self.name}: {'; '.join(faults)}")
        return self._tables[relation.name]

    @cached_property
    def _tables(self) -> dict[str, Table]:
        with self.address.sql() as connected:
            return tables(connected)
