"""What a keyword query would have to remember with no window: the verdict on all of its networks together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Final

from skws.keywords.plan import Plan
from skws.queries.keywords.bounded_networks import end_of, ends, lasting, network_verdict
from skws_bounds.verdict import Verdict
from skws_mesh.networks import CandidateNetwork
from skws_schema.model import Schema

MOST_NETWORKS: Final = 20_000
"""Looked at before a query is given up; a few seconds."""
MOST_FAULTS: Final = 5


@dataclass(frozen=True, slots=True)
class Fault:
    """A network that is not bounded, as results name it, with its relations and the verdict on it."""

    network: str
    relations: tuple[int, ...]
    verdict: Verdict

    @property
    def reason(self) -> str:
        return told(self.verdict)


@dataclass(frozen=True, slots=True)
class Memory:
    """The verdict on a query.

    ``bounded``: None if its networks are too many to look at. ``looked_at``:
    how many were; all of a bounded query, else up to ``MOST_FAULTS`` at fault.
    ``passing``: relations whose tuples need not be kept once they have met the
    others, from time ``until`` on (microseconds), when finite streams have ended.
    """

    bounded: bool | None
    looked_at: int = 0
    faults: tuple[Fault, ...] = ()
    passing: frozenset[int] = frozenset()
    until: int = 0


@lru_cache(maxsize=32)
def memory_of(plan: Plan) -> Memory:
    """Whether a query can be answered for ever in constant memory with no window."""
    schema = plan.schema
    passing = frozenset(n for n, r in enumerate(schema.relations) if not lasting(r))
    if not passing:
        return Memory(True)
    faults: list[Fault] = []
    until = looked_at = 0
    for looked_at, tree in enumerate(islice(plan.generator().networks(), MOST_NETWORKS + 1), start=1):
        if looked_at > MOST_NETWORKS:
            return Memory(False if faults else None, looked_at - 1, tuple(faults))
        found = passing.intersection(tree.relations)
        if not found:
            continue
        until = max(until, _end(schema, tree.relations))
        if not _plainly_bounded(schema, tree.relations, passing):
            faults += _faults(plan, CandidateNetwork.of(tree))
            if len(faults) == MOST_FAULTS:
                break
    return Memory(not faults, looked_at, tuple(faults), passing, until)


def told(verdict: Verdict) -> str:
    """A verdict on a network in a few words."""
    if verdict.bounded:
        return "bounded"
    return f"not bounded, {verdict.failures[0].message} ({verdict.failures[0].condition})"


def _faults(plan: Plan, network: CandidateNetwork) -> Iterator[Fault]:
    verdict = network_verdict(network, plan.schema)
    if not verdict.bounded:
        yield Fault(network.text(plan.schema, plan.keywords), network.relations, verdict)


def _plainly_bounded(schema: Schema, relations: Iterable[int], passing: frozenset[int]) -> bool:
    """True for one stream among tables, as most bounded networks are: that needs no theorem, and no time."""
    streams = [r for r in relations if not schema.relations[r].table]
    return len(streams) == 1 and streams[0] in passing and not schema.relations[streams[0]].key


def _end(schema: Schema, relations: Iterable[int]) -> int:
    """When the last of the finite streams ends that a stream is joined with."""
    finite = (schema.relations[r] for r in relations if ends(schema.relations[r]))
    return max((end_of(r) or 0 for r in finite), default=0)
