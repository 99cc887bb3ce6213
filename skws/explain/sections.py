"""The sections of an explanation: the query, its keywords and memory, and the clusters of its mesh.

Counting visits each operator that CNGen makes once, and stores none. It stops at a limit; the counts
are then lower bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple

from skws.explain.branch import Branch, Role
from skws.explain.observed import Observed
from skws.keywords.keyword_query import Alternative, Condition, Fuzzy, Phrase, Prefix, Slot, Term, Wildcard
from skws.keywords.plan import Plan
from skws.queries.partitioning.parts import KeyPartitioning, key_partitioning, why_not_by_key
from skws.queries.partitioning.slices import why_whole
from skws.spec.query_spec import KEYWORDS, Query, ranking_options
from skws_mesh.candidate_networks import CandidateNetwork, OperatorPrefix, node_text, prefix_tree
from skws_mesh.cngen import CNGen
from skws_mesh.tree import Tree, neighbours
from skws_schema.errors import quantity
from skws_schema.graph import Edge, edges
from skws_schema.model import Analyzer, Schema

MOST_COMPARED: Final = 150_000
"""The most networks that are compared with and without keys."""


def query_branch(plan: Plan) -> Branch:
    """Keywords with their stems and places, exclusions, and ignored parts of the query."""
    query = plan.query
    below = [_slot(plan.schema, slot, f"keyword {n}: {slot.text}") for n, slot in enumerate(query.slots, 1)]
    below += [_exclusion(plan.schema, slot) for slot in query.exclusions]
    below += [Branch(f"synonyms of {word}: {', '.join(synonyms)}") for word, *synonyms in query.synonyms]
    if query.without:
        names = [plan.schema.relations[relation].name for relation in sorted(query.without)]
        below.append(Branch(f"left out, also as a connection: {', '.join(names)}"))
    if query.without_joins:
        names = [plan.schema.joins[join].name for join in sorted(query.without_joins)]
        below.append(Branch(f"joins left out: {', '.join(names)}"))
    if query.sequence:
        groups = [_carrier_text(plan, group) for group in query.sequence.groups]
        below.append(Branch(f"order: rows with {' before those with '.join(groups)}"))
    if query.match_names:
        below.append(Branch("keywords without a scope may also be names of relations and attributes"))
    below += map(Branch, query.notes)
    return Branch(f"query: {query.text}", tuple(below))


def carriers_branch(plan: Plan) -> Branch:
    """The keywords that relations can carry; relations with the same keywords share a line."""
    alike: dict[int, list[str]] = {}
    for position, relation in enumerate(plan.schema.relations):
        name = f"{relation.name} (table)" if relation.table else relation.name
        alike.setdefault(plan.matcher.searchable(position), []).append(name)
    lines = [f"{_carrier_text(plan, bitmap)}: {', '.join(names)}" for bitmap, names in sorted(alike.items())]
    return Branch("keywords that relations can carry", tuple(Branch(line) for line in reversed(lines)))


def _carrier_text(plan: Plan, bitmap: int) -> str:
    return ", ".join(word for n, word in enumerate(plan.keywords) if bitmap >> n & 1) or "none"


def _exclusion(schema: Schema, slot: Slot) -> Branch:
    (alternative, *_) = slot.alternatives
    if isinstance(alternative, Condition) and alternative.failing and alternative.scope is not None:
        return Branch(
            f"restricted: of {schema.relations[alternative.scope.relation].name} only rows with {slot.text}"
        )
    return _slot(schema, slot, f"excluded: rows with {slot.text}")


def _slot(schema: Schema, slot: Slot, text: str) -> Branch:
    """Alternatives that differ only in scope share a line."""
    places: dict[str, list[str]] = {}
    for alternative in slot.alternatives:
        places.setdefault(_meaning(alternative), []).extend(_places(schema, alternative))
    lines = (f"{meaning} in {', '.join(names) or 'no attribute'}" for meaning, names in places.items())
    return Branch(text, tuple(Branch(line) for line in lines))


def _meaning(alternative: Alternative) -> str:
    match alternative:
        case Phrase(spelled=compound) if compound:
            meaning = f"part of a compound: {compound}"
        case Phrase():
            meaning = f"phrase of the {_stem(alternative.analyzer)}s {' '.join(alternative.stems)}"
        case Prefix():
            meaning = f"words that begin with {alternative.start}"
        case Fuzzy():
            meaning = f"words within {quantity(alternative.distance, 'typing error')} of {alternative.word}"
        case Wildcard():
            meaning = f"words of the form {alternative.form}"
        case Condition():
            orders = dict.fromkeys(test.order for _, test in alternative.tests if test.order is not None)
            meaning = "a value that satisfies the condition"
            meaning += "".join(f", versions in {order} order" for order in orders)
        case Term():
            meaning = f"{_stem(alternative.analyzer)} {alternative.stem}"
    return meaning


def _stem(analyzer: Analyzer) -> str:
    """The unit by which words are compared."""
    units = {Analyzer.ENGLISH: "stem", Analyzer.SIMPLE: "word", Analyzer.NONE: "whole text"}
    return units.get(analyzer, f"{analyzer} stem")


def _places(schema: Schema, alternative: Alternative) -> Iterator[str]:
    if isinstance(alternative, Condition):
        if alternative.relation is not None:
            relation = schema.relations[alternative.relation]
            columns = dict.fromkeys(column for column, _ in alternative.tests)
            yield from (f"{relation.name}.{relation.attributes[column].name}" for column in columns)
        return
    for position, relation in enumerate(schema.relations):
        for name, column in zip(relation.search, relation.search_columns, strict=True):
            if alternative.applies(position, column):
                yield f"{relation.name}.{name}"


class Impossible(NamedTuple):
    """A network without results: ``node`` would meet two tuples through ``edge``, which leads to a key."""

    tree: Tree
    node: int
    edge: Edge


def pruned_by_keys(generator: CNGen) -> tuple[list[Impossible], bool]:
    """The impossible networks among the first ``MOST_COMPARED`` without keys, and True if these are all."""
    all_edges = edges(generator.schema)
    if not any(edge.at_most_one for edge in all_edges):
        return [], True
    networks = _without_keys(generator).networks()
    clashes = [
        clash for tree in islice(networks, MOST_COMPARED) if (clash := _clash(tree, all_edges)) is not None
    ]
    return clashes, next(networks, None) is None


def _without_keys(generator: CNGen) -> CNGen:
    schema = generator.schema
    keyless = replace(schema, relations=tuple(replace(r, key=()) for r in schema.relations))
    return CNGen(
        keyless,
        generator.slots,
        generator.max_size,
        generator.searchable,
        generator.order,
        generator.sequence,
        generator.without,
        generator.without_joins,
    )


def _clash(tree: Tree, schema_edges: tuple[Edge, ...]) -> Impossible | None:
    for node, links in enumerate(neighbours(tree)):
        edge_ids = [edge for edge, _ in links]
        for edge in edge_ids:
            if schema_edges[edge].at_most_one and edge_ids.count(edge) > 1:
                return Impossible(tree, node, schema_edges[edge])
    return None


def keys_branch(plan: Plan) -> Branch:
    """The number of networks that keys prune, and the reason, with an example."""
    pruned, complete = pruned_by_keys(plan.generator())
    if not pruned:
        return Branch("networks pruned by keys: none" + ("" if complete else " among those compared"))
    tree, node, edge = min(pruned, key=lambda clash: len(clash.tree.relations))
    schema = plan.schema
    text = CandidateNetwork.of(tree).text(schema, plan.keywords)
    node_label = node_text(schema, tree.relations[node], tree.keywords[node], plan.keywords)
    target = schema.relations[edge.target]
    reason = (
        f"because {node_label} meets at most one {target.name} row through {schema.joins[edge.join].name}: "
        f"{', '.join(target.key)} is a key"
    )
    heading = f"networks pruned by keys: {'' if complete else 'at least '}{len(pruned):,}"
    return Branch(heading, (Branch(f"such as {text}", (Branch(reason),)),))


def partitioning_branch(plan: Plan) -> Branch:
    """The division of the stream among parallel tasks, and why it is not divided otherwise."""
    options = {} if plan.ranking is None else ranking_options(plan.ranking)
    queries = [Query("", plan.max_size, KEYWORDS, options)]
    time_reason = why_whole(queries, plan.window)
    keys = why_not_by_key(queries, plan.window) or key_partitioning(plan.schema, plan.max_size)
    lines = [
        f"not by time: {time_reason}"
        if time_reason
        else "by time: each slice also reads the window before it",
        f"not by key: {keys}" if isinstance(keys, str) else _by_key(keys, plan.schema),
    ]
    return Branch("partitioning for parallel tasks", tuple(map(Branch, lines)))


def _by_key(keys: KeyPartitioning, schema: Schema) -> str:
    if not any(keys.columns):
        return "not by key: all relations are tables, which every task has"
    return f"by key: {keys.shown(schema)}"


MOST_OPERATORS: Final = 500_000
"""The most operators that are counted: about three seconds on one core."""


@dataclass(frozen=True, slots=True)
class ClusterCount:
    """The operators above one root (S-KWS paper, Section 3.3), roots and joins together.

    ``sizes[n]`` is the number of networks of n + 1 nodes. CNGen makes ``generated`` operators, of
    which ``useful`` ones lead to a network. ``complete``: True if all are counted.
    """

    relation: int
    keywords: int
    sizes: tuple[int, ...]
    generated: int
    useful: int
    complete: bool

    @property
    def networks(self) -> int:
        return sum(self.sizes)

    @property
    def trimmed(self) -> int:
        return self.generated - self.useful

    @property
    def depth(self) -> int:
        """Nodes of the largest network; 0 without networks."""
        return max((n for n, count in enumerate(self.sizes, start=1) if count), default=0)

    @property
    def joins(self) -> int:
        """Joins of the mesh: its operators without the root."""
        return max(self.useful - 1, 0)

    @property
    def joins_apart(self) -> int:
        """The number of joins if each network had its own, as in a forest."""
        return sum(n * count for n, count in enumerate(self.sizes))


@dataclass(frozen=True, slots=True)
class MeshCount:
    """All clusters in the order of their roots; ``uncounted`` roots come after the limit."""

    clusters: tuple[ClusterCount, ...]
    uncounted: int

    @property
    def complete(self) -> bool:
        return not self.uncounted and all(cluster.complete for cluster in self.clusters)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sum(column) for column in zip(*(c.sizes for c in self.clusters), strict=True))

    @property
    def generated(self) -> int:
        return sum(c.generated for c in self.clusters)

    @property
    def useful(self) -> int:
        return sum(c.useful for c in self.clusters)

    @property
    def joins(self) -> int:
        return sum(c.joins for c in self.clusters)

    @property
    def joins_apart(self) -> int:
        return sum(c.joins_apart for c in self.clusters)


def count_mesh(generator: CNGen, most: int = MOST_OPERATORS) -> MeshCount:
    """Count networks and operators of each cluster; stops soon after ``most`` operators."""
    clusters: list[ClusterCount] = []
    remaining = most
    for relation, keywords in generator.roots:
        if remaining <= 0:
            break
        clusters.append(_Visit(generator, remaining).cluster(relation, keywords))
        remaining -= clusters[-1].generated
    return MeshCount(tuple(clusters), len(generator.roots) - len(clusters))


class _Visit:
    """One walk over the operators of a cluster."""

    def __init__(self, generator: CNGen, most: int) -> None:
        self._generator = generator
        self._max_operators = most
        self._operators = 0
        self._sizes = [0] * generator.max_size
        self._complete = True

    def cluster(self, relation: int, keywords: int) -> ClusterCount:
        root = Tree.single(relation, keywords)
        useful = self._visit(root, self._generator.is_total(root))
        return ClusterCount(relation, keywords, tuple(self._sizes), self._operators, useful, self._complete)

    def _visit(self, tree: Tree, complete: bool) -> int:
        """The number of operators from here on that lead to a network."""
        self._operators += 1
        if complete:
            self._sizes[len(tree.relations) - 1] += 1
            return 1
        if self._operators >= self._max_operators:
            self._complete = False
            return 0
        above = sum(self._visit(*extension) for extension in self._generator.extensions(tree))
        return above + 1 if above else 0


def cluster_branch(
    plan: Plan, cluster: ClusterCount, trees: Sequence[Tree], observed: Observed | None
) -> Branch:
    """A cluster with the networks ``trees``, and the number of the others."""
    root = prefix_tree(trees)
    writer = _Writer(plan, observed)
    below: tuple[Branch, ...] = (writer.operator(root),) if root else ()
    idle = observed is not None and all(branch.idle for branch in below)
    hidden = cluster.networks - len(trees)
    if hidden > 0:
        label = f"... {quantity(hidden, 'more network', at_least=not cluster.complete)}"
        below += (Branch(label, role=Role.MORE),)
    return Branch(_heading(plan, cluster), below, Role.CLUSTER, idle)


def _heading(plan: Plan, cluster: ClusterCount) -> str:
    root = node_text(plan.schema, cluster.relation, cluster.keywords, plan.keywords)
    facts = [quantity(cluster.networks, "network", at_least=not cluster.complete)]
    if cluster.complete:
        facts.append(
            f"{quantity(cluster.useful, 'operator')}"
            f" ({cluster.generated:,} generated, {cluster.trimmed:,} trimmed)"
        )
        facts.append(f"depth {cluster.depth}")
        if cluster.joins:
            facts.append(sharing(cluster.joins_apart, cluster.joins))
    return f"{root}: {', '.join(facts)}"


def sharing(apart: int, shared: int) -> str:
    """The savings from common prefixes: joins of separate networks against joins of the mesh."""
    return f"{quantity(apart, 'join')} shared in {shared:,} ({apart / shared:.2f}x)"


class _Writer:
    def __init__(self, plan: Plan, observed: Observed | None) -> None:
        self._plan = plan
        self._observed = observed

    def operator(self, operator: OperatorPrefix) -> Branch:
        """The operator and, below it, its successors."""
        if operator.complete:
            return self._network(operator)
        below = tuple(self.operator(above) for above in operator.above.values())
        if self._observed is None:
            return Branch(self._step_text(operator), below, Role.OPERATOR)
        partials = self._observed.waiting
        if partials is None:
            return Branch(
                self._step_text(operator), below, Role.OPERATOR, all(branch.idle for branch in below)
            )
        idle = not self._observed.touched(operator.prefix)
        note = "idle" if idle else f"{partials.get(operator.prefix, 0):,} waiting"
        if reason := self._observed.asleep.get(operator.prefix):
            note, idle = f"{partials.get(operator.prefix, 0):,} waiting, asleep: {reason}", True
        if probes := self._observed.probes.get(operator.prefix, 0):
            note += f", {quantity(probes, 'probe')}"
        return Branch(f"{self._step_text(operator)}: {note}", below, Role.OPERATOR, idle)

    def _network(self, operator: OperatorPrefix) -> Branch:
        text = CandidateNetwork.of(operator.tree).text(self._plan.schema, self._plan.keywords)
        if self._observed is None:
            return Branch(f"=> {text}", role=Role.NETWORK)
        results = self._observed.results.get(text, 0)
        note = quantity(results, "result") if results else "idle"
        if reason := self._observed.asleep.get(operator.prefix):
            note = f"{quantity(results, 'result')}, asleep: {reason}"
        return Branch(f"=> {text}: {note}", role=Role.NETWORK, idle=not results)

    def _step_text(self, operator: OperatorPrefix) -> str:
        """The node that the operator adds, the node that it joins, and the join."""
        tree, node = operator.tree, operator.size - 1
        if not node:
            return self._node_text(operator, 0)
        join = self._plan.schema.joins[tree.edges[node] // 2]
        parent = self._member_text(operator, tree.parents[node])
        return f"+ {self._node_text(operator, node)} to {parent} ({join.name})"

    def _node_text(self, operator: OperatorPrefix, node: int) -> str:
        tree = operator.tree
        return node_text(self._plan.schema, tree.relations[node], tree.keywords[node], self._plan.keywords)

    def _member_text(self, operator: OperatorPrefix, node: int) -> str:
        """An earlier node; numbered if another one has the same text."""
        text = self._node_text(operator, node)
        namesakes = [n for n in range(operator.size - 1) if self._node_text(operator, n) == text]
        return f"{text} no. {node + 1}" if len(namesakes) > 1 else text
