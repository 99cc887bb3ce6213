"""What every execution of a keyword query's mesh can do; engines know no more of it than this."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol, TypeAlias

from mesh.composite import Members, end_of
from mesh.generate import CNGen
from mesh.operator import Operator
from windows.tuples import StreamTuple

Found: TypeAlias = tuple[Operator, Members]


class Changed(NamedTuple):
    """Results that a change of the schema takes away, and those that it adds, among tuples alive then."""

    retracted: list[Found]
    found: list[Found]


class Reviving(ABC):
    """How evaluators prolong a tuple: out, wherever it is, and in again."""

    @abstractmethod
    def insert(self, new: StreamTuple) -> list[Found]: ...

    @abstractmethod
    def _forget(self, known: StreamTuple) -> None:
        """Remove a tuple, if it is there, and every partial that contains it."""

    def revive(self, known: StreamTuple, end: int) -> list[Found]:
        """Prolong a tuple whose deletion proved to be another's; give the results that this adds.

        Happens only when an insertion arrives after the deletion meant for it.
        """
        former = known.end
        self._forget(known)
        known.end = end
        lasting = self.insert(known)
        if former <= known.start:
            return lasting
        return [result for result in lasting if end_of(result[1]) > former]


class Evaluator(Protocol):
    """Live tuples in, results out, each with the operator of its candidate network.

    Ticks are those of the window. Tuples need not come in order of their start.
    """

    def insert(self, new: StreamTuple) -> list[Found]:
        """Add a live tuple; give the results that it completes."""
        ...

    def end(self, ended: StreamTuple, tick: int) -> list[Found]:
        """A negative tuple: end a live tuple at ``tick``; give the results that this retracts."""
        ...

    def revive(self, known: StreamTuple, end: int) -> list[Found]:
        """Prolong a tuple whose deletion proved to be another's; give the results that this adds."""
        ...

    def purge(self, horizon: int) -> None:
        """Remove what ended at or before ``horizon``: tuples at once, partial results by their policy."""
        ...

    def change_schema(self, generator: CNGen, tick: int) -> Changed:
        """Go on with the candidate networks of a changed schema (S-KWS paper, Section 4.4).

        The schema keeps the positions of the former one (``schema.evolve``).
        Results over what is removed are retracted, and results over new joins
        are found among the tuples alive at ``tick``: the join is the last to
        arrive.
        """
        ...

    @property
    def live_tuples(self) -> int: ...

    @property
    def partials(self) -> int:
        """Partial results held, dead ones not yet purged included."""
        ...

    @property
    def operators(self) -> int:
        """Operators that exist, roots of clusters included."""
        ...
