"""The graph of a schema's joins."""

from __future__ import annotations

import networkx as nx

from skws_schema.model import Schema


def join_graph(schema: Schema) -> nx.MultiGraph[str]:
    """The undirected multigraph of relations and joins."""
    graph: nx.MultiGraph[str] = nx.MultiGraph()
    graph.add_nodes_from(r.name for r in schema.relations)
    for join in schema.joins:
        graph.add_edge(join.left, join.right, key=join.name)
    return graph
