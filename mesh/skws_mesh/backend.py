"""The interface of a mesh, which evaluates the candidate networks of keyword queries.

The columnar mesh (``columnar/mesh.py``) takes tuples batch by batch, the paper's meshes
(``paper/slots.py``) one by one; delta joins (``delta/joins.py``) keep no partial results. All read the same
live tuples and return equal results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from skws_mesh.candidate_networks import Prefix, prefix_of
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import Ints
from skws_mesh.columnar.live import InsertedTuples
from skws_mesh.columnar.store import Partials
from skws_mesh.tree import Tree
from skws_purging.lifespans import ALWAYS


class Sleep(NamedTuple):
    """The reasons why an operator sleeps (S-KWS paper, Figure 4.1).

    ``starved_of``: the node (relation, keyword bitmap) that has no live tuple; None if it has some.
    ``unwanted``: no operator above it runs.
    """

    starved_of: tuple[int, int] | None
    unwanted: bool


class OperatorUse(NamedTuple):
    """An operator that has been used, identified by its tree.

    ``waiting``: the partial results that wait at the operator; the columnar mesh counts a partial once for
    each join for which it waits. ``probes``: the number of times that its partial results have probed for
    partners, over all joins; 0 if not counted.
    ``sleep``: None if the operator runs, or if the mesh puts only whole queries to sleep.
    """

    tree: Tree
    waiting: int
    probes: int = 0
    sleep: Sleep | None = None


class OperatorState(NamedTuple):
    """The sum over the operators with one tree, in one mesh or several; fields as in ``OperatorUse``."""

    waiting: int
    probes: int = 0
    sleep: Sleep | None = None

    def plus(self, other: OperatorState) -> OperatorState:
        """The sum of both states; asleep if both are."""
        sleep = self.sleep if other.sleep is not None else None
        return OperatorState(self.waiting + other.waiting, self.probes + other.probes, sleep)


def states_of(uses: Iterable[OperatorUse]) -> dict[Prefix, OperatorState]:
    """The states of operators, keyed by operator prefix."""
    return merge_states(
        (prefix_of(use.tree), OperatorState(use.waiting, use.probes, use.sleep)) for use in uses
    )


def merge_states(states: Iterable[tuple[Prefix, OperatorState]]) -> dict[Prefix, OperatorState]:
    """The states keyed by operator prefix; states with equal prefixes are added."""
    merged: dict[Prefix, OperatorState] = {}
    for prefix, state in states:
        merged[prefix] = merged[prefix].plus(state) if prefix in merged else state
    return merged


class Mesh(Protocol):
    """Finds the results of its queries. Tuples and queries are numbers: slots, and query numbers.

    Each mesh defines the labels of a tuple: the keywords of each query that it contains or, in delta joins,
    the words that any query asks for.
    """

    @property
    def excluded(self) -> int:
        """The bitmap of tuples that are excluded from a query."""

    @property
    def operators(self) -> int:
        """The number of operators made so far, or of those that exist now."""

    @property
    def partials(self) -> int:
        """The number of partial results that a sweep would read, dead ones included."""

    @property
    def results(self) -> list[Partials]:
        """Results found so far for the tuples of the running call."""

    def add(self, queries: Iterable[int], bitmaps: KeywordBitmaps) -> Partials:
        """Add queries, given the live tuples with their keywords; returns the results that are alive now."""

    def remove(self, query: int) -> None:
        """Stop answering a query."""

    def insert(self, new_tuples: InsertedTuples, bitmaps: KeywordBitmaps, horizon: int = ALWAYS) -> Partials:
        """Insert new live tuples; returns the results that they complete.

        ``bitmaps``: those of the new tuples with keywords, by slot. Later tuples begin at ``horizon`` or
        after it, so partial results that end by then need not wait.
        """

    def load(self, bitmaps: KeywordBitmaps) -> Iterator[Partials]:
        """Insert all live tuples, none of which was inserted before; yields their results in parts.

        The mesh must not be used in any other way before the last part.
        """

    def end(self, slots: Ints) -> None:
        """End the partial results that contain these tuples, which were ended early."""

    def expire(self, horizon: int) -> None:
        """Purge partial results, if the mesh does so here; no later tuple begins before ``horizon``."""

    def compact(self, horizon: int, slots: Ints) -> None:
        """Drop partial results that ended at or before ``horizon``.

        ``slots``: each slot's new number, -1 if its tuple was dropped.
        """

    def live_keywords(self, query: int) -> int:
        """The keywords of a query that live tuples carry; dead tuples may count until they are purged."""

    def network(self, operator: int) -> Tree:
        """The candidate network of a complete operator."""

    def operator_uses(self) -> list[OperatorUse]:
        """The operators that have been used."""

    @property
    def waiting_counts(self) -> tuple[int, int]:
        """The number of operators that have been used, and of the partial results that wait at them."""

    def partial_results(self) -> Iterator[Partials]:
        """The waiting partial results, and the new ones that will wait."""
