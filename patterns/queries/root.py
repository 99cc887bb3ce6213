"""By which variables the stream of a query can be sharded."""

from __future__ import annotations

from patterns.queries.query import ConjunctiveQuery
from patterns.root import RootKey, root_key


def root_of_query(query: ConjunctiveQuery) -> RootKey | None:
    """The root of a query: its variables that stand in every atom; None if there is none."""
    everywhere = [v for v in query.variables if len(query.atoms_of(v)) == len(query.atoms)]
    found = [{(a.relation, a.column(v)) for a in query.atoms} for v in everywhere]
    return root_key(list(zip(everywhere, found, strict=True)))
