"""What is run: a query over a schema with a window. Immutable, picklable, shared by all engines."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from mesh.generate import CNGen
from mesh.order import NodeOrder
from schema.model import Schema
from skws.keywords import KeywordQuery, Matcher
from windows.window import CountWindow, Window

DEFAULT_MAX_SIZE = 5


@dataclass(frozen=True)
class Plan:
    """One keyword query, ready to be run.

    ``max_size`` is T_max, the most tuples of a result. ``lateness`` is in
    microseconds of event time. ``frequencies``, one a keyword, order the mesh
    by the rarest; results do not depend on them.
    """

    schema: Schema
    query: KeywordQuery
    window: Window
    max_size: int = DEFAULT_MAX_SIZE
    lateness: int = 0
    frequencies: tuple[float, ...] | None = None
    matcher: Matcher = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "matcher", Matcher(self.query, self.schema))

    @cached_property
    def keywords(self) -> tuple[str, ...]:
        """The keywords as networks show them, one a slot."""
        return tuple(slot.text for slot in self.query.slots)

    @property
    def by_count(self) -> bool:
        """True if ticks are positions in the stream instead of microseconds."""
        return isinstance(self.window, CountWindow)

    def generator(self) -> CNGen:
        """Candidate networks of the query."""
        slots = len(self.query.slots)
        return CNGen(
            self.schema,
            slots,
            self.max_size,
            [self.matcher.searchable(r) for r in range(len(self.schema.relations))],
            NodeOrder.default(slots, self.frequencies),
        )
