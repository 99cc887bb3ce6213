"""The part of an old row that PostgreSQL logs, and whether it identifies the tuple, by table and partition.

The log names only the root of a partitioned table, with the identity of the root. But the logged part of an
old row depends on the identity of the row's partition, which may differ from that of the root.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from skws.sources.postgres.pgoutput import ReplicaIdentity
from skws_schema.model import Relation

_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_$]*")
_SHOWN: Final = 5
"""The most partitions that a message names; a table may have thousands."""
_WORDS: Final = {
    ReplicaIdentity.DEFAULT: "DEFAULT",
    ReplicaIdentity.NOTHING: "NOTHING",
    ReplicaIdentity.FULL: "FULL",
    ReplicaIdentity.INDEX: "USING INDEX",
}


def sql_name(*parts: str) -> str:
    """A qualified name in SQL, without quotes if it needs none."""
    escaped = (part.replace('"', '""') for part in parts)
    return ".".join(part if _PLAIN.fullmatch(part) else f'"{part}"' for part in escaped)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition with rows. ``logged``: its changes are logged, unlike those of foreign and unlogged tables.

    ``identity_columns``: those whose old values are logged; without meaning if whole rows are logged.
    """

    namespace: str
    name: str
    identity: ReplicaIdentity
    identity_columns: frozenset[str]
    logged: bool = True

    @property
    def refused(self) -> bool:
        """True if the server refuses updates and deletes of a published table with this identity."""
        return self.identity is not ReplicaIdentity.FULL and not self.identity_columns

    def fault(self, relation: Relation, root: str) -> str:
        """The effect on its updates and deletes, and the remedy; empty if they can be followed."""
        name = f"{self.namespace}.{self.name}, a partition of {root},"
        if not self.logged:
            return (
                f"{name} is a foreign or an unlogged table, whose changes are not logged: its present rows"
                " stay in the search until their window ends"
            )
        if self.refused:
            return (
                f"{name} has REPLICA IDENTITY {_WORDS[self.identity]} and no key for it: while {root} is in"
                " a publication, the server refuses all updates and deletes of its rows, from every client"
                f" (ALTER TABLE {self._sql_name} REPLICA IDENTITY FULL)"
            )
        if not identifies(relation, self.identity, self.identity_columns):
            return (
                f"{name} has REPLICA IDENTITY {_WORDS[self.identity]}, whatever the identity of {root}:"
                f" updates and deletes of its rows will be bad records: {self.advice(relation)}"
            )
        return ""

    def advice(self, relation: Relation) -> str:
        """The remedy if its old rows do not identify the tuple."""
        return advice(relation, self._sql_name)

    @property
    def _sql_name(self) -> str:
        return sql_name(self.namespace, self.name)


def faults(relation: Relation, root: str, partitions: Sequence[Partition]) -> Iterator[str]:
    """A line for each of the first partitions with a fault, and one for all others."""
    partition_faults = [fault for partition in partitions if (fault := partition.fault(relation, root))]
    yield from partition_faults[:_SHOWN]
    if len(partition_faults) > _SHOWN:
        yield f"the same holds for {len(partition_faults) - _SHOWN:,} more partitions of {root}"


def identifies(relation: Relation, identity: ReplicaIdentity, columns: frozenset[str]) -> bool:
    """True if a logged old row identifies its tuple."""
    key = [attribute.column for attribute in relation.attributes if attribute.name in relation.key]
    return identity is ReplicaIdentity.FULL or (bool(key) and columns.issuperset(key))


def advice(relation: Relation, table: str) -> str:
    """The remedy if old rows do not identify the tuple. ``table``: its name in SQL."""
    requirement = "the whole row, as the schema has no key"
    if relation.key:
        requirement = f"the key {list(relation.key)} of the schema"
    return (
        f"old rows are not logged with {requirement}"
        f" (ALTER TABLE {table} REPLICA IDENTITY FULL, or make the table's primary key the `key`)"
    )
