"""What candidate networks would need to keep if nothing ever expired: the verdict of ``bounds`` on each."""

from __future__ import annotations

from itertools import islice
from typing import Final

from bounds.names import attribute_of, promises, stream_of
from bounds.query import Atom, Attr, Constant, Domain, Op, Query, Stream, Union
from bounds.verdict import Verdict, check
from mesh.network import CandidateNetwork
from schema.model import Schema
from skws.explain.branch import Branch, counted
from skws.plan import Plan

MOST_NETWORKS: Final = 40


def network_query(network: CandidateNetwork, schema: Schema) -> Union:
    """A candidate network as a query in normal form: its nodes joined, their attributes put out.

    Duplicates are preserved, as two equal results of different tuples are two.
    Nodes of one relation are streams of their own, as their tuples contain
    different keywords; application times are no part of the output.
    """
    streams: list[Stream] = []
    for number, (relation, keywords) in enumerate(zip(network.relations, network.keywords, strict=True)):
        name = schema.relations[relation].name
        alias = name if name not in {s.alias for s in streams} else f"{name}_{number + 1}"
        stream = stream_of(schema, name, alias)
        streams.append(Stream(alias, name, stream.kind, stream.time, keywords))
    atoms = tuple(
        Atom(attribute_of(schema, streams[left], one), Op.EQUAL, attribute_of(schema, streams[right], other))
        for left, right, name in network.joins(schema)
        for one, other in next(j for j in schema.joins if j.name == name).on
    )
    output: list[Attr | Constant] = [
        attribute_of(schema, s, a.name) for s in streams for a in schema.relation(s.relation).attributes
    ]
    shown = tuple(t for t in output if t.domain is not Domain.TIME)
    joined = (*atoms, *promises(schema, streams))
    return Union((Query(tuple(streams), joined, shown, tuple(map(str, shown))),), distinct=False)


def network_verdict(network: CandidateNetwork, schema: Schema) -> Verdict:
    """Whether a candidate network could be run in constant memory with no window at all."""
    return check(network_query(network, schema))


def memory_branch(plan: Plan) -> Branch:
    """The verdict on each network, as far as they are few; to be shown where the window is ``none``."""
    trees = list(islice(plan.generator().networks(), MOST_NETWORKS + 1))
    networks = [CandidateNetwork.of(tree) for tree in trees[:MOST_NETWORKS]]
    verdicts = [network_verdict(network, plan.schema) for network in networks]
    bounded = sum(v.bounded is True for v in verdicts)
    shown = tuple(
        Branch(f"{network.text(plan.schema, plan.keywords)}: {_told(verdict)}")
        for network, verdict in zip(networks, verdicts, strict=True)
    )
    more = (Branch("... and more networks"),) if len(trees) > MOST_NETWORKS else ()
    heading = f"memory, as nothing expires: {bounded} of {counted(len(networks), 'network')} bounded"
    return Branch(heading, (*shown, *more))


def _told(verdict: Verdict) -> str:
    if verdict.bounded:
        return "bounded"
    return f"not bounded, {verdict.failures[0].message} ({verdict.failures[0].condition})"
