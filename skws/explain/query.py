"""Branches about the query: its keywords, the networks that keys prune, memory without a window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple

from skws.explain.branch import Branch
from skws.keywords.plan import Plan
from skws.keywords.query import Alternative, Condition, Fuzzy, Phrase, Prefix, Slot, Term, Wildcard
from skws.queries.keywords.memory_guard import memory_in_words, memory_of, network_verdict, repairs
from skws.queries.partitioning import key_partitioning, why_not_by_key
from skws.queries.slices import why_whole
from skws.spec.query import KEYWORDS, Query, ranking_options
from skws_bounds.repairs import WINDOW
from skws_mesh.cngen import CNGen
from skws_mesh.networks import CandidateNetwork, node_text
from skws_mesh.tree import Tree, neighbours
from skws_schema.errors import counted
from skws_schema.graph import Edge, edges
from skws_schema.model import Analyzer, Schema

MOST_COMPARED: Final = 150_000
"""Networks that are compared with and without keys."""
_MOST_VERDICTS: Final = 40


def query_branch(plan: Plan) -> Branch:
    """Keywords with their stems and places, exclusions, and ignored parts of the query."""
    query = plan.query
    below = [_slot(plan.schema, slot, f"keyword {n}: {slot.text}") for n, slot in enumerate(query.slots, 1)]
    below += [_exclusion(plan.schema, slot) for slot in query.exclusions]
    below += [Branch(f"synonyms of {word}: {', '.join(others)}") for word, *others in query.synonyms]
    if query.without:
        names = [plan.schema.relations[relation].name for relation in sorted(query.without)]
        below.append(Branch(f"left out, also as a connection: {', '.join(names)}"))
    if query.sequence:
        parts = [_carried(plan, group) for group in query.sequence.groups]
        below.append(Branch(f"order: tuples with {' before those with '.join(parts)}"))
    if query.match_names:
        below.append(Branch("keywords without a place of their own may also be names of relations"))
    below += map(Branch, query.notes)
    return Branch(f"query: {query.text}", tuple(below))


def carriers_branch(plan: Plan) -> Branch:
    """The keywords that relations can carry; relations with equal ones share a line."""
    alike: dict[int, list[str]] = {}
    for position, relation in enumerate(plan.schema.relations):
        name = f"{relation.name} (table)" if relation.table else relation.name
        alike.setdefault(plan.matcher.searchable(position), []).append(name)
    lines = [f"{_carried(plan, bitmap)}: {', '.join(names)}" for bitmap, names in sorted(alike.items())]
    return Branch("keywords that relations can carry", tuple(Branch(line) for line in reversed(lines)))


def _carried(plan: Plan, bitmap: int) -> str:
    return ", ".join(word for n, word in enumerate(plan.keywords) if bitmap >> n & 1) or "none"


def _exclusion(schema: Schema, slot: Slot) -> Branch:
    (first, *_) = slot.alternatives
    if isinstance(first, Condition) and first.failing and first.scope is not None:
        return Branch(
            f"restricted: of {schema.relations[first.scope.relation].name} only tuples with {slot.text}"
        )
    return _slot(schema, slot, f"excluded: tuples with {slot.text}")


def _slot(schema: Schema, slot: Slot, text: str) -> Branch:
    """Alternatives that differ only in scope share a line."""
    places: dict[str, list[str]] = {}
    for alternative in slot.alternatives:
        places.setdefault(_meaning(alternative), []).extend(_places(schema, alternative))
    lines = (f"{meaning} in {', '.join(found) or 'no attribute'}" for meaning, found in places.items())
    return Branch(text, tuple(Branch(line) for line in lines))


def _meaning(alternative: Alternative) -> str:
    match alternative:
        case Phrase():
            meaning = f"phrase of the {_stem(alternative.analyzer)}s {' '.join(alternative.stems)}"
        case Prefix():
            meaning = f"words that begin with {alternative.start}"
        case Fuzzy():
            meaning = f"words within {counted(alternative.distance, 'typing error')} of {alternative.word}"
        case Wildcard():
            meaning = f"words of the form {alternative.form}"
        case Condition():
            meaning = "a value that satisfies the condition"
        case Term():
            meaning = f"{_stem(alternative.analyzer)} {alternative.stem}"
    return meaning


def _stem(analyzer: Analyzer) -> str:
    """What words are compared by."""
    known = {Analyzer.ENGLISH: "stem", Analyzer.SIMPLE: "word", Analyzer.NONE: "whole text"}
    return known.get(analyzer, f"{analyzer} stem")


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
    """A network without results: ``node`` would meet two tuples through ``edge``, at whose end is a key."""

    tree: Tree
    node: int
    edge: Edge


def pruned_by_keys(generator: CNGen) -> tuple[list[Impossible], bool]:
    """Those of the first ``MOST_COMPARED`` networks of a schema without keys, and whether these are all."""
    known = edges(generator.schema)
    if not any(edge.at_most_one for edge in known):
        return [], True
    networks = _without_keys(generator).networks()
    found = [clash for tree in islice(networks, MOST_COMPARED) if (clash := _clash(tree, known)) is not None]
    return found, next(networks, None) is None


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
    )


def _clash(tree: Tree, known: tuple[Edge, ...]) -> Impossible | None:
    for node, around in enumerate(neighbours(tree)):
        walked = [edge for edge, _ in around]
        for edge in walked:
            if known[edge].at_most_one and walked.count(edge) > 1:
                return Impossible(tree, node, known[edge])
    return None


def keys_branch(plan: Plan) -> Branch:
    """How many networks keys prune, and why, by an example."""
    pruned, whole = pruned_by_keys(plan.generator())
    if not pruned:
        return Branch("networks pruned by keys: none" + ("" if whole else " among those looked at"))
    tree, node, edge = min(pruned, key=lambda clash: len(clash.tree.relations))
    schema = plan.schema
    text = CandidateNetwork.of(tree).text(schema, plan.keywords)
    meeting = node_text(schema, tree.relations[node], tree.keywords[node], plan.keywords)
    target = schema.relations[edge.target]
    why = (
        f"because {meeting} meets at most one {target.name} tuple through {schema.joins[edge.join].name}: "
        f"{', '.join(target.key)} is a key"
    )
    heading = f"networks pruned by keys: {'' if whole else 'at least '}{len(pruned):,}"
    return Branch(heading, (Branch(f"such as {text}", (Branch(why),)),))


def partitioning_branch(plan: Plan) -> Branch:
    """How parallel tasks divide the stream, and why not otherwise."""
    options = {} if plan.ranking is None else ranking_options(plan.ranking)
    queries = [Query("", plan.max_size, KEYWORDS, options)]
    whole = why_whole(queries, plan.window)
    keys = why_not_by_key(queries, plan.window) or key_partitioning(plan.schema, plan.max_size)
    lines = [
        f"not by time: {whole}" if whole else "by time: each slice also reads the window before it",
        f"not by key: {keys}" if isinstance(keys, str) else f"by key: {keys.shown(plan.schema)}",
    ]
    return Branch("partitioning for parallel tasks", tuple(map(Branch, lines)))


def memory_branch(plan: Plan) -> Branch:
    """The verdict of ``bounds`` on the memory of each network, up to 40, where the window is ``none``."""
    trees = list(islice(plan.generator().networks(), _MOST_VERDICTS + 1))
    networks = [CandidateNetwork.of(tree) for tree in trees[:_MOST_VERDICTS]]
    verdicts = [network_verdict(network, plan.schema) for network in networks]
    bounded = sum(v.bounded is True for v in verdicts)
    shown = tuple(
        Branch(f"{network.text(plan.schema, plan.keywords)}: {memory_in_words(verdict)}")
        for network, verdict in zip(networks, verdicts, strict=True)
    )
    more = (Branch("... and more networks"),) if len(trees) > _MOST_VERDICTS else ()
    looked_at = counted(len(networks), "network")
    of = f"the first {looked_at}" if more else looked_at
    heading = f"memory, as nothing expires: {bounded} of {of} bounded"
    return Branch(heading, (*shown, *more, *_helping(plan)))


def _helping(plan: Plan) -> tuple[Branch, ...]:
    if memory_of(plan).bounded:
        return ()
    offered = (*repairs(plan), WINDOW)
    return (Branch("any of these would make all of them bounded", tuple(map(Branch, offered))),)
