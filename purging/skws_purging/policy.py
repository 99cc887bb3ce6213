"""When the outputs of operators are purged (S-KWS paper, Section 4.3): what eager and lazy purging share.

Sources are purged at once under both policies. Negative tuples are no matter
of policy (``negative_tuples.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Generic, Protocol, Self, TypeVar

from skws_purging.tuples import Members, StreamTuple


class OutputBuffer(Protocol):
    """The composite tuples that an operator has put out."""

    @property
    def entries(self) -> Collection[Members]: ...

    def drop_dead(self, horizon: int) -> bool:
        """Remove what ended at or before ``horizon``; True if anything did."""
        ...

    def expunge(self, ended: StreamTuple) -> bool:
        """Remove all that contains a tuple; True if anything does."""
        ...

    def clear(self) -> None: ...


class Operator(Hashable, Protocol):
    """A source or a join, as purging sees it."""

    @property
    def out(self) -> OutputBuffer: ...

    @property
    def linked(self) -> bool:
        """False once the operator has been taken out of the mesh."""
        ...

    def consumers(self) -> Iterable[Self]:
        """The operators that read the output."""
        ...


Op = TypeVar("Op", bound=Operator)


class PurgePolicy(Generic[Op]):
    """Hears what happens to operators, and purges their outputs; here no event has an effect.

    ``due`` is a window's length from now. ``dries_up`` is called with an
    operator that has lost its last output.
    """

    dries_up: Callable[[Op], None]

    def use(self, *, tables: bool) -> None:
        """The schema has changed; ``tables``: it has static ones."""

    def probed(self, operator: Op, horizon: int) -> None:
        """The output is about to be probed."""

    def produces(self, operator: Op, due: int) -> None:
        """The operator has output, and may have had none."""

    def falls_asleep(self, operator: Op, due: int) -> None: ...
    def wakes(self, operator: Op) -> None: ...
    def forgets(self, operator: Op) -> None:
        """The operator is taken out of the mesh."""

    def sources_expired(self, sources: Iterable[Op], horizon: int) -> None:
        """Tuples of these sources have expired."""

    def time_passes(self, horizon: int, due: int) -> None: ...
    def nothing_lives(self) -> None: ...

    def drop_dead(self, operator: Op, horizon: int) -> bool:
        """Purge one output; True if anything was dead."""
        dropped = operator.out.drop_dead(horizon)
        if dropped and not operator.out.entries:
            self.dries_up(operator)
        return dropped
