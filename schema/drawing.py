"""The join graph as text: a spanning tree of each component, then the joins that close cycles."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import networkx as nx

from schema.graph import edges_from
from schema.model import Schema


@dataclass(frozen=True)
class SpanningTree:
    """One component of the join graph; ``children`` of a relation are (relation, join) by position."""

    root: int
    children: Mapping[int, tuple[tuple[int, int], ...]]
    joins: frozenset[int]


def spanning_trees(schema: Schema) -> list[SpanningTree]:
    """A shallow tree of each component, rooted at its centre, in order of the schema."""
    graph = join_graph(schema)
    components = [[schema.index[name] for name in part] for part in nx.connected_components(graph)]
    return [_tree(schema, _centre(schema, graph, part)) for part in sorted(components, key=min)]


def join_graph(schema: Schema) -> nx.MultiGraph[str]:
    """The undirected multigraph of relations and joins, for drawing and for distances."""
    graph: nx.MultiGraph[str] = nx.MultiGraph()
    graph.add_nodes_from(r.name for r in schema.relations)
    for join in schema.joins:
        graph.add_edge(join.left, join.right, key=join.name)
    return graph


def draw(schema: Schema) -> list[str]:
    """The join graph, one relation a line, each with the join that leads to it."""
    trees = spanning_trees(schema)
    lines = [line for tree in trees for line in _draw(schema, tree)]
    drawn = frozenset[int]().union(*(tree.joins for tree in trees))
    rest = [join for number, join in enumerate(schema.joins) if number not in drawn]
    if rest:
        width = max(len(f"{j.left} - {j.right}") for j in rest)
        lines += ["and", *(f"  {f'{j.left} - {j.right}':<{width}}  ({j.name})" for j in rest)]
    return lines


def _centre(schema: Schema, graph: nx.MultiGraph[str], component: list[int]) -> int:
    names = [schema.relations[relation].name for relation in component]
    part = graph.subgraph(names)

    def rank(relation: int) -> tuple[int, int, int]:
        distances = nx.single_source_shortest_path_length(part, schema.relations[relation].name)
        return max(distances.values()), -len(edges_from(schema)[relation]), relation

    return min(component, key=rank)


def _tree(schema: Schema, root: int) -> SpanningTree:
    """Breadth first, joins in order of the schema."""
    children: dict[int, tuple[tuple[int, int], ...]] = {}
    seen = {root}
    waiting = deque([root])
    while waiting:
        relation = waiting.popleft()
        found: list[tuple[int, int]] = []
        for edge in edges_from(schema)[relation]:
            if edge.target not in seen:
                seen.add(edge.target)
                found.append((edge.target, edge.join))
                waiting.append(edge.target)
        children[relation] = tuple(found)
    joins = frozenset(join for below in children.values() for _, join in below)
    return SpanningTree(root, children, joins)


def _draw(schema: Schema, tree: SpanningTree) -> Iterator[str]:
    rows = list(_rows(schema, tree, tree.root, "", None))
    width = max(len(label) for label, _ in rows)
    for label, join in rows:
        yield f"{label:<{width}}  ({join})" if join else label


def _rows(
    schema: Schema, tree: SpanningTree, relation: int, indent: str, join: int | None
) -> Iterator[tuple[str, str]]:
    """Each relation with what stands before it, and the name of the join that leads to it."""
    branch = "" if join is None else "├─ "
    label = schema.joins[join].name if join is not None else ""
    yield f"{indent}{branch}{schema.relations[relation].name}", label
    below = tree.children[relation]
    inner = indent if join is None else f"{indent}│  "
    for child, via in below:
        rows = list(_rows(schema, tree, child, inner, via))
        if (child, via) == below[-1]:
            rows = [(_last(text, len(inner)), name) for text, name in rows]
        yield from rows


def _last(text: str, at: int) -> str:
    """The line of a last branch: nothing continues below it."""
    corner = {"├": "└", "│": " "}.get(text[at], text[at])
    return f"{text[:at]}{corner}{text[at + 1 :]}"
