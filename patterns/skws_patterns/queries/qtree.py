"""q-trees of hierarchical queries (PCEA paper, Section 4 and Appendix B).

Inner nodes are variables, leaves are atoms; the variables of an atom are
those on its path to the root.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from skws_patterns.queries.hcq import ConjunctiveQuery

# The variable that connects a disconnected query; it is in no attribute.
FRESH: Final = "*"

Node: TypeAlias = "Inner | int"


@dataclass(frozen=True, slots=True)
class Inner:
    """A variable and its subtrees; atoms are given by their position in the query."""

    variable: str
    children: tuple[Node, ...]

    def atoms(self) -> frozenset[int]:
        below = [frozenset({c}) if isinstance(c, int) else c.atoms() for c in self.children]
        return frozenset().union(*below)

    def inner_nodes(self) -> Iterator[Inner]:
        """The node itself and the variables below it, in preorder."""
        yield self
        for child in self.children:
            if isinstance(child, Inner):
                yield from child.inner_nodes()


def qtree(query: ConjunctiveQuery) -> Inner:
    """The q-tree of a hierarchical query, the variables of equal atoms in order of their first occurrence.

    A disconnected query gets FRESH as its root. Raises ValueError if the
    query is not hierarchical.
    """
    whole = frozenset(range(len(query.atoms)))
    trees = _trees(query, whole, frozenset())
    if len(trees) == 1 and isinstance(trees[0], Inner):
        return trees[0]
    return Inner(FRESH, trees)


def _trees(query: ConjunctiveQuery, atoms: frozenset[int], above: frozenset[str]) -> tuple[Node, ...]:
    """The trees over some atoms below the variables ``above``, one for each connected part."""
    trees: list[Node] = []
    left = sorted(atoms)
    while left:
        part = _connected(query, left[0], atoms, above)
        left = [atom for atom in left if atom not in part]
        trees.append(_tree(query, part, above))
    return tuple(trees)


def _connected(
    query: ConjunctiveQuery, start: int, atoms: frozenset[int], above: frozenset[str]
) -> frozenset[int]:
    part, grown = frozenset({start}), True
    while grown:
        variables = frozenset().union(*(query.atoms[i].variables for i in part)) - above
        reached = part | {i for i in atoms if query.atoms[i].variables & variables}
        part, grown = reached, reached != part
    return part


def _tree(query: ConjunctiveQuery, part: frozenset[int], above: frozenset[str]) -> Node:
    variables = [v for v in query.variables if v not in above and query.atoms_of(v) & part]
    if not variables:
        (atom,) = part
        return atom
    shared = next((v for v in variables if query.atoms_of(v) >= part), None)
    if shared is None:
        raise ValueError(f"the query is not hierarchical: no variable is in all of atoms {sorted(part)}")
    return Inner(shared, _trees(query, part, above | {shared}))


def compact(tree: Inner) -> Inner:
    """Without the inner nodes that have a single child; the tree of one atom keeps its lowest variable."""
    children = tuple(_compact(child) for child in tree.children)
    if len(children) == 1 and isinstance(children[0], Inner):
        return children[0]
    return Inner(tree.variable, children)


def _compact(node: Node) -> Node:
    if isinstance(node, int):
        return node
    whole = compact(node)
    return whole.children[0] if len(whole.children) == 1 else whole


def drawing(query: ConjunctiveQuery, tree: Inner, relation_names: tuple[str, ...]) -> str:
    """The tree as indented lines: variables, and atoms with their positions."""
    lines: list[str] = []

    def draw(node: Node, depth: int) -> None:
        if isinstance(node, int):
            lines.append(f"{'  ' * depth}{node}: {query.atoms[node].text(relation_names)}")
            return
        lines.append(f"{'  ' * depth}{node.variable}")
        for child in node.children:
            draw(child, depth + 1)

    draw(tree, 0)
    return "\n".join(lines)
