"""Prints a schema as text, as a Graphviz graph, and as YAML."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from skws_schema import drawing
from skws_schema.drawing import DotEdge, DotNode, branches, quoted
from skws_schema.errors import quantity
from skws_schema.graph import edges_from
from skws_schema.model import Analyzer, Attribute, Join, Relation, Schema
from skws_schema.yaml.document import bound_text, to_yaml

__all__ = ["show", "to_dot", "to_yaml"]


def show(schema: Schema) -> str:
    """Relations, joins and the join graph as indented text; equal schemas give equal texts."""
    return "\n".join(_lines(schema)) + "\n"


def to_dot(schema: Schema) -> str:
    """The join graph in Graphviz's DOT language."""
    nodes = [DotNode(quoted(r.name), style="style=dashed" if r.table else "") for r in schema.relations]
    edges = [DotEdge(quoted(join.left), quoted(join.right), join.name) for join in schema.joins]
    return drawing.to_dot(quoted(schema.name), [*nodes, *edges], ["node [shape=box]"], directed=False)


def _lines(schema: Schema) -> Iterator[str]:
    relations, joins = quantity(len(schema.relations), "relation"), quantity(len(schema.joins), "join")
    yield f"{schema.name}: {relations}, {joins}"
    yield f"window: {schema.window}"
    yield ""
    yield "relations"
    for relation in schema.relations:
        yield f"  {relation.name}{_kind(relation)}"
        yield from (f"    {line}" for line in _attribute_lines(relation))
    yield ""
    yield "joins"
    for join in schema.joins:
        condition = " and ".join(_conditions(join))
        yield f"  {join.name}" + ("" if join.name == condition else f": {condition}")
    yield ""
    yield "join graph"
    yield from (f"  {line}" for line in draw(schema))


def _kind(relation: Relation) -> str:
    kinds = [word for word, flag in (("table", relation.table), ("finite", relation.finite)) if flag]
    return f" ({', '.join(kinds)})" if kinds else ""


def _attribute_lines(relation: Relation) -> Iterator[str]:
    width = max(len(a.name) for a in relation.attributes)
    for attribute in relation.attributes:
        roles = [
            role
            for role, names in (
                ("key", relation.key),
                ("search", relation.search),
                ("time", (relation.time,)),
            )
            if attribute.name in names
        ]
        analyzer = [] if attribute.analyzer is Analyzer.ENGLISH else [f"analyzer {attribute.analyzer}"]
        order = [] if attribute.order is None else [f"versions of {attribute.order} order"]
        notes = ", ".join(roles + analyzer + order + _bounds(attribute))
        yield f"{attribute.name:<{width}}  {attribute.type:<9}  {notes}".rstrip()


def _bounds(attribute: Attribute) -> list[str]:
    ends = (("min", attribute.min), ("max", attribute.max))
    return [f"{end} {bound_text(attribute, value)}" for end, value in ends if value is not None]


def _conditions(join: Join) -> list[str]:
    return [f"{join.left}.{left} = {join.right}.{right}" for left, right in join.on]


@dataclass(frozen=True)
class SpanningTree:
    """A tree of one component of the join graph. ``children``: (relation, join) pairs by position."""

    root: int
    children: Mapping[int, tuple[tuple[int, int], ...]]
    joins: frozenset[int]
    height: int


def spanning_trees(schema: Schema) -> list[SpanningTree]:
    """A shallow tree of each component, rooted at its centre, in order of the schema."""
    trees: list[SpanningTree] = []
    for relation in range(len(schema.relations)):
        if not any(relation in tree.children for tree in trees):
            trees.append(_centre_tree(schema, relation))
    return trees


def draw(schema: Schema) -> list[str]:
    """The join graph, one line per relation, with the join that leads to it."""
    trees = spanning_trees(schema)
    lines = [line for tree in trees for line in _draw(schema, tree)]
    tree_joins = frozenset[int]().union(*(tree.joins for tree in trees))
    other_joins = [join for number, join in enumerate(schema.joins) if number not in tree_joins]
    if other_joins:
        width = max(len(f"{j.left} - {j.right}") for j in other_joins)
        lines += ["and", *(f"  {f'{j.left} - {j.right}':<{width}}  ({j.name})" for j in other_joins)]
    return lines


_MOST_ROOTS: Final = 300
"""The most roots to try, as each takes a search of the whole component."""


def _centre_tree(schema: Schema, relation: int) -> SpanningTree:
    """The shallowest tree of a relation's component; of several, one whose root has the most joins.

    In a large component, a tree rooted in the middle of a long path.
    """
    tree = _tree(schema, relation)
    if len(tree.children) > _MOST_ROOTS:
        path = _longest_path(_tree(schema, _longest_path(tree)[-1]))
        return _tree(schema, path[len(path) // 2])
    trees = [_tree(schema, root) for root in tree.children]
    return min(trees, key=lambda tree: (tree.height, -len(edges_from(schema)[tree.root]), tree.root))


def _longest_path(tree: SpanningTree) -> list[int]:
    """A path from the root to a deepest relation."""
    parents = {child: parent for parent, children in tree.children.items() for child, _ in children}
    # Relations are in the order of the search, nearest first.
    path = [[*tree.children][-1]]
    while path[-1] != tree.root:
        path.append(parents[path[-1]])
    return path[::-1]


def _tree(schema: Schema, root: int) -> SpanningTree:
    """The tree of a breadth-first search that follows joins in the schema's order."""
    children: dict[int, tuple[tuple[int, int], ...]] = {}
    depth = {root: 0}
    queue = deque([root])
    while queue:
        relation = queue.popleft()
        new_children: list[tuple[int, int]] = []
        for edge in edges_from(schema)[relation]:
            if edge.target not in depth:
                depth[edge.target] = depth[relation] + 1
                new_children.append((edge.target, edge.join))
                queue.append(edge.target)
        children[relation] = tuple(new_children)
    joins = frozenset(join for pairs in children.values() for _, join in pairs)
    return SpanningTree(root, children, joins, max(depth.values()))


def _draw(schema: Schema, tree: SpanningTree) -> Iterator[str]:
    """One line per relation, with the name of the join that leads to it."""
    tree_branches = branches((tree.root, -1), lambda node: tree.children[node[0]])
    rows = [(f"{lead}{schema.relations[relation].name}", join) for lead, (relation, join) in tree_branches]
    root = schema.relations[tree.root].name
    width = max(len(label) for label in (root, *(label for label, _ in rows)))
    yield root
    yield from (f"{label:<{width}}  ({schema.joins[join].name})" for label, join in rows)
