"""What every mesh offers, whichever evaluates the candidate networks of keyword queries.

The columnar mesh (``columnar/mesh.py``) takes tuples batch by batch, the paper's meshes
(``paper/slots.py``) one by one; delta joins (``delta/joins.py``) keep no partial results. All read the same
live tuples and give equal results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import Ints
from skws_mesh.columnar.live import InsertedTuples
from skws_mesh.columnar.store import Partials
from skws_mesh.networks import Prefix, prefix_of
from skws_mesh.tree import Tree
from skws_purging.lifespans import ALWAYS


class Sleep(NamedTuple):
    """Why an operator sleeps (S-KWS paper, Figure 4.1).

    ``starved_of``: the node (relation, keyword bitmap) of which no tuple is alive, None if some are.
    ``unwanted``: no operator above it runs.
    """

    starved_of: tuple[int, int] | None
    unwanted: bool


class OperatorUse(NamedTuple):
    """An operator that has been used, by its tree.

    ``waiting``: the partial results that wait there, in the columnar mesh once for each join they wait for.
    ``probes``: how often its partial results have looked for partners, by join; 0 if not counted.
    ``sleep``: None for an operator that runs, or of which only whole queries sleep.
    """

    tree: Tree
    waiting: int
    probes: int = 0
    sleep: Sleep | None = None


class OperatorState(NamedTuple):
    """What operators with one tree, in one mesh or several, hold together; as in ``OperatorUse``."""

    waiting: int
    probes: int = 0
    sleep: Sleep | None = None

    def beside(self, other: OperatorState) -> OperatorState:
        """Both together; they sleep if both do."""
        sleep = self.sleep if other.sleep is not None else None
        return OperatorState(self.waiting + other.waiting, self.probes + other.probes, sleep)


def states_of(used: Iterable[OperatorUse]) -> dict[Prefix, OperatorState]:
    """The states of operators by what names them."""
    return together((prefix_of(use.tree), OperatorState(use.waiting, use.probes, use.sleep)) for use in used)


def together(states: Iterable[tuple[Prefix, OperatorState]]) -> dict[Prefix, OperatorState]:
    """States of operators, of which several may have one name."""
    found: dict[Prefix, OperatorState] = {}
    for prefix, state in states:
        found[prefix] = found[prefix].beside(state) if prefix in found else state
    return found


class Mesh(Protocol):
    """Finds the results of its queries. Tuples and queries are numbers: slots, and query numbers.

    What labels a tuple is the mesh's own: the keywords of each query that it contains, or for delta joins the
    words that any query asks for.
    """

    @property
    def excluded(self) -> int:
        """The bitmap of tuples that take no part in a query."""

    @property
    def operators(self) -> int:
        """Operators made so far, or that exist now."""

    @property
    def partials(self) -> int:
        """Partial results that a sweep would read; dead ones that are not yet purged included."""

    @property
    def found(self) -> list[Partials]:
        """Results found so far for the tuples of the running call."""

    def add(self, queries: Iterable[int], bitmaps: KeywordBitmaps) -> Partials:
        """Add queries, given the live tuples with their keywords; gives their results alive now."""

    def remove(self, query: int) -> None:
        """Stop answering a query."""

    def insert(self, arrived: InsertedTuples, bitmaps: KeywordBitmaps, horizon: int = ALWAYS) -> Partials:
        """Take in new live tuples; gives the results that they complete.

        ``bitmaps``: those of the new tuples with keywords, by slot. Later tuples begin at ``horizon`` or
        after: partial results that end by then need not wait.
        """

    def end(self, slots: Ints) -> None:
        """End the partial results that contain tuples which were ended early."""

    def expire(self, horizon: int) -> None:
        """Nothing begins before ``horizon`` any more."""

    def compact(self, horizon: int, slots: Ints) -> None:
        """Drop what ended at or before ``horizon``. ``slots``: each slot's new number, -1 if it is gone."""

    def carried(self, query: int) -> int:
        """The keywords of a query that live tuples carry; dead ones may count until they are purged."""

    def network(self, operator: int) -> Tree:
        """The candidate network of a complete operator."""

    def used(self) -> list[OperatorUse]:
        """The operators that have been used."""

    @property
    def waiting(self) -> tuple[int, int]:
        """The number of operators that have been used, and of the partial results that wait there."""

    def held(self) -> Iterator[Partials]:
        """The partial results that wait, and new ones that will."""
