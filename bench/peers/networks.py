"""Candidate networks for other engines: one SQL query each, or shared join steps.

An engine has one table for each node R{K} of the expanded schema, with the columns ``id``, ``start``
(in ticks of the window) and the attributes by position: ``c0``, ``c1``, ... Members of a result are
in the reading order of ``skws_mesh.candidate_networks``. Supports schemas without keys, tables
and deletions, and windows of one length: two tuples are alive at the same time if their starts differ by less
than that length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from skws_mesh.candidate_networks import CandidateNetwork
from skws_schema.graph import Edge, edges
from skws_schema.model import Schema

# Members of a result that a later step reads: (position of the member, column).
Read = tuple[int, int]


def node_table(relation: int, keywords: int) -> str:
    """Name of the table of the tuples of a relation with exactly the keywords of a bitmap."""
    return f"r{relation}_{keywords}"


def network_sql(schema: Schema, network: CandidateNetwork, window: int) -> str:
    """A query for all results of a network with a member that starts at ``$since`` or later.

    Returns the ids of the members. ``window`` in ticks. The tables must hold all
    tuples that were alive at ``$since``, and none that start after the slice of time.
    """
    tables = [node_table(*node) for node in zip(network.relations, network.keywords, strict=True)]
    joins = (
        f"JOIN {tables[node]} n{node} ON {' AND '.join(_conditions(schema, network, node))}"
        for node in range(1, network.size)
    )
    alive = [
        f"n{right_node}.start - n{left_node}.start BETWEEN {1 - window} AND {window - 1}"
        for left_node, right_node in combinations(range(network.size), 2)
    ]
    fresh = " OR ".join(f"n{node}.start >= $since" for node in range(network.size))
    ids = ", ".join(f"n{node}.id" for node in range(network.size))
    conditions = " AND ".join([f"({fresh})", *alive])
    return f"SELECT {ids} FROM {' '.join([f'{tables[0]} n0', *joins])} WHERE {conditions}"


def _conditions(schema: Schema, network: CandidateNetwork, node: int) -> list[str]:
    edge = edges(schema)[network.edges[node]]
    pairs = zip(edge.source_columns, edge.target_columns, strict=True)
    equal = [
        f"n{network.parents[node]}.c{left_column} = n{node}.c{right_column}"
        for left_column, right_column in pairs
    ]
    return equal + [f"n{alike_node}.id <> n{node}.id" for alike_node in _alike_nodes(network, node)]


def _alike_nodes(network: CandidateNetwork, node: int) -> list[int]:
    """Earlier nodes that could match the same tuple: the tuples of a result must differ."""
    label = (network.relations[node], network.keywords[node])
    return [n for n in range(node) if (network.relations[n], network.keywords[n]) == label]


@dataclass(frozen=True, slots=True)
class Step:
    """One operator: partial results of step ``left`` joined with a node's tuples.

    ``left`` is None for the first node of a network. ``on``: (position of the member, its
    column, column of the new one). ``alike``: positions of members that must be
    another tuple. ``reads``: the members and columns that later steps read.
    """

    left: int | None
    relation: int
    keywords: int
    on: tuple[tuple[int, int, int], ...]
    alike: tuple[int, ...]
    reads: tuple[Read, ...] = ()


def shared_steps(schema: Schema, networks: Sequence[CandidateNetwork]) -> tuple[list[Step], list[int]]:
    """Left-deep join steps with shared prefixes, and the last step of each network."""
    schema_edges = edges(schema)
    numbers: dict[tuple[object, ...], int] = {}
    steps: list[Step] = []
    last_steps = []
    for network in networks:
        previous: int | None = None
        for node in range(network.size):
            prefix = _prefix(network, node + 1)
            if prefix not in numbers:
                numbers[prefix] = len(steps)
                steps.append(_step(network, node, previous, schema_edges))
            previous = numbers[prefix]
        last_steps.append(numbers[_prefix(network, network.size)])
    return _with_reads(steps), last_steps


def _prefix(network: CandidateNetwork, size: int) -> tuple[object, ...]:
    return (
        network.relations[:size],
        network.keywords[:size],
        network.parents[:size],
        network.edges[:size],
    )


def _step(network: CandidateNetwork, node: int, previous: int | None, schema_edges: Sequence[Edge]) -> Step:
    on: tuple[tuple[int, int, int], ...] = ()
    if previous is not None:
        edge, parent = schema_edges[network.edges[node]], network.parents[node]
        pairs = zip(edge.source_columns, edge.target_columns, strict=True)
        on = tuple((parent, left_column, right_column) for left_column, right_column in pairs)
    return Step(
        previous, network.relations[node], network.keywords[node], on, tuple(_alike_nodes(network, node))
    )


def _with_reads(steps: list[Step]) -> list[Step]:
    """The steps, each of which passes on only the columns that later steps read."""
    reads: list[set[Read]] = [set() for _ in steps]
    for number in range(len(steps) - 1, -1, -1):  # a step precedes the steps that build on it
        step = steps[number]
        if step.left is not None:
            join_reads = {(position, column) for position, column, _ in step.on}
            inherited = {read for read in reads[number] if read[0] < _size(steps, step.left)}
            reads[step.left] |= join_reads | inherited
    return [
        Step(s.left, s.relation, s.keywords, s.on, s.alike, tuple(sorted(read)))
        for s, read in zip(steps, reads, strict=True)
    ]


def _size(steps: Sequence[Step], number: int) -> int:
    """The number of members of a step's partial results."""
    previous = steps[number].left
    return 1 if previous is None else 1 + _size(steps, previous)
