"""Clusters of the mesh: their counts, and the prefix trees of operators down to networks.

Counting visits each operator that CNGen makes once and keeps none. At a bound the visit ends, and the counts
are lower bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from skws.explain.branch import Branch, Role
from skws.explain.observed import Observed
from skws.keywords.plan import Plan
from skws_mesh.cngen import CNGen
from skws_mesh.networks import CandidateNetwork, OperatorPrefix, node_text, prefix_tree
from skws_mesh.tree import Tree
from skws_schema.errors import counted

MOST_OPERATORS: Final = 500_000
"""About three seconds on one core."""


@dataclass(frozen=True, slots=True)
class ClusterCount:
    """The operators above one root (S-KWS paper, Section 3.3), roots and joins together.

    ``sizes[n]`` is the number of networks of n + 1 nodes. ``made`` operators
    CNGen makes, of which ``kept`` lead to a network. ``whole``: all are counted.
    """

    relation: int
    keywords: int
    sizes: tuple[int, ...]
    made: int
    kept: int
    whole: bool

    @property
    def networks(self) -> int:
        return sum(self.sizes)

    @property
    def trimmed(self) -> int:
        return self.made - self.kept

    @property
    def depth(self) -> int:
        """Nodes of the largest network; 0 without networks."""
        return max((n for n, count in enumerate(self.sizes, start=1) if count), default=0)

    @property
    def joins(self) -> int:
        """Joins of the mesh: its operators without the root."""
        return max(self.kept - 1, 0)

    @property
    def joins_apart(self) -> int:
        """Joins if each network had its own: those of a forest."""
        return sum(n * count for n, count in enumerate(self.sizes))


@dataclass(frozen=True, slots=True)
class MeshCount:
    """All clusters in the order of their roots; ``uncounted`` roots came after the bound."""

    clusters: tuple[ClusterCount, ...]
    uncounted: int

    @property
    def whole(self) -> bool:
        return not self.uncounted and all(cluster.whole for cluster in self.clusters)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sum(column) for column in zip(*(c.sizes for c in self.clusters), strict=True))

    @property
    def made(self) -> int:
        return sum(c.made for c in self.clusters)

    @property
    def kept(self) -> int:
        return sum(c.kept for c in self.clusters)

    @property
    def joins(self) -> int:
        return sum(c.joins for c in self.clusters)

    @property
    def joins_apart(self) -> int:
        return sum(c.joins_apart for c in self.clusters)


def count_mesh(generator: CNGen, most: int = MOST_OPERATORS) -> MeshCount:
    """Count networks and operators of each cluster; stops soon after ``most`` operators."""
    clusters: list[ClusterCount] = []
    left = most
    for relation, keywords in generator.roots:
        if left <= 0:
            break
        clusters.append(_Visit(generator, left).cluster(relation, keywords))
        left -= clusters[-1].made
    return MeshCount(tuple(clusters), len(generator.roots) - len(clusters))


class _Visit:
    """One walk over the operators of a cluster."""

    def __init__(self, generator: CNGen, most: int) -> None:
        self._generator = generator
        self._most = most
        self._made = 0
        self._sizes = [0] * generator.max_size
        self._whole = True

    def cluster(self, relation: int, keywords: int) -> ClusterCount:
        root = Tree.single(relation, keywords)
        kept = self._kept(root, self._generator.is_total(root))
        return ClusterCount(relation, keywords, tuple(self._sizes), self._made, kept, self._whole)

    def _kept(self, tree: Tree, complete: bool) -> int:
        """Operators from here on that lead to a network."""
        self._made += 1
        if complete:
            self._sizes[len(tree.relations) - 1] += 1
            return 1
        if self._made >= self._most:
            self._whole = False
            return 0
        above = sum(self._kept(*extension) for extension in self._generator.extensions(tree))
        return above + 1 if above else 0


def cluster_branch(
    plan: Plan, cluster: ClusterCount, drawn: Sequence[Tree], observed: Observed | None
) -> Branch:
    """A cluster with its ``drawn`` networks, and the number of the others."""
    root = prefix_tree(drawn)
    writer = _Writer(plan, observed)
    below: tuple[Branch, ...] = (writer.operator(root),) if root else ()
    idle = observed is not None and all(branch.idle for branch in below)
    hidden = cluster.networks - len(drawn)
    if hidden > 0:
        more = f"... {counted(hidden, 'more network', at_least=not cluster.whole)}"
        below += (Branch(more, role=Role.MORE),)
    return Branch(_heading(plan, cluster), below, Role.CLUSTER, idle)


def _heading(plan: Plan, cluster: ClusterCount) -> str:
    root = node_text(plan.schema, cluster.relation, cluster.keywords, plan.keywords)
    parts = [counted(cluster.networks, "network", at_least=not cluster.whole)]
    if cluster.whole:
        parts.append(
            f"{counted(cluster.kept, 'operator')} ({cluster.made:,} generated, {cluster.trimmed:,} trimmed)"
        )
        parts.append(f"depth {cluster.depth}")
        if cluster.joins:
            parts.append(sharing(cluster.joins_apart, cluster.joins))
    return f"{root}: {', '.join(parts)}"


def sharing(apart: int, shared: int) -> str:
    """The savings by common prefixes: joins of separate networks against joins of the mesh."""
    return f"{counted(apart, 'join')} shared in {shared:,} ({apart / shared:.2f}x)"


class _Writer:
    def __init__(self, plan: Plan, observed: Observed | None) -> None:
        self._plan = plan
        self._observed = observed

    def operator(self, at: OperatorPrefix) -> Branch:
        """The operator and, below it, its successors."""
        if at.complete:
            return self._network(at)
        below = tuple(self.operator(above) for above in at.above.values())
        if self._observed is None:
            return Branch(self._added(at), below, Role.OPERATOR)
        waiting = self._observed.waiting
        if waiting is None:
            return Branch(self._added(at), below, Role.OPERATOR, all(branch.idle for branch in below))
        idle = not self._observed.touched(at.prefix)
        note = "idle" if idle else f"{waiting.get(at.prefix, 0):,} waiting"
        if reason := self._observed.asleep.get(at.prefix):
            note, idle = f"{waiting.get(at.prefix, 0):,} waiting, asleep: {reason}", True
        if probes := self._observed.probes.get(at.prefix, 0):
            note += f", {counted(probes, 'probe')}"
        return Branch(f"{self._added(at)}: {note}", below, Role.OPERATOR, idle)

    def _network(self, at: OperatorPrefix) -> Branch:
        text = CandidateNetwork.of(at.tree).text(self._plan.schema, self._plan.keywords)
        if self._observed is None:
            return Branch(f"=> {text}", role=Role.NETWORK)
        found = self._observed.results.get(text, 0)
        note = counted(found, "result") if found else "idle"
        if reason := self._observed.asleep.get(at.prefix):
            note = f"{counted(found, 'result')}, asleep: {reason}"
        return Branch(f"=> {text}: {note}", role=Role.NETWORK, idle=not found)

    def _added(self, at: OperatorPrefix) -> str:
        """The node that the operator adds, and by which join to which node."""
        tree, node = at.tree, at.size - 1
        if not node:
            return self._node(at, 0)
        join = self._plan.schema.joins[tree.edges[node] // 2]
        return f"+ {self._node(at, node)} to {self._member(at, tree.parents[node])} ({join.name})"

    def _node(self, at: OperatorPrefix, node: int) -> str:
        tree = at.tree
        return node_text(self._plan.schema, tree.relations[node], tree.keywords[node], self._plan.keywords)

    def _member(self, at: OperatorPrefix, node: int) -> str:
        """An earlier node; numbered if another one reads the same."""
        text = self._node(at, node)
        same = [n for n in range(at.size - 1) if self._node(at, n) == text]
        return f"{text} no. {node + 1}" if len(same) > 1 else text
