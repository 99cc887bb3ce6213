"""One cluster of the mesh: its counts, and the prefix tree of operators down to networks."""

from __future__ import annotations

from collections.abc import Sequence

from mesh.network import CandidateNetwork, node_text
from mesh.tree import Tree
from skws.explain.branch import Branch, Role
from skws.explain.count import ClusterCount
from skws.explain.observed import Observed
from skws.explain.prefixes import OperatorPrefix, prefix_tree
from skws.plan import Plan
from skws.wording import counted


def cluster_branch(
    plan: Plan, cluster: ClusterCount, drawn: Sequence[Tree], observed: Observed | None
) -> Branch:
    """A cluster with the networks that are ``drawn``; what is left out is counted."""
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
    """What common prefixes save: joins of single networks against joins of the mesh."""
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
        """A node that is there already; numbered where another reads the same."""
        text = self._node(at, node)
        same = [n for n in range(at.size - 1) if self._node(at, n) == text]
        return f"{text} no. {node + 1}" if len(same) > 1 else text
