"""What is run: a query over a schema with a window. Immutable, picklable, shared by all engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from mesh.evaluator import Evaluator
from mesh.factory import make_evaluator
from mesh.generate import CNGen
from mesh.kinds import MeshKind, PurgeKind
from mesh.order import NodeOrder
from schema.errors import UsageError, nearest
from schema.model import Schema
from skws.choices import DEFAULT_MAX_SIZE, EvaluatorName
from skws.keywords import KeywordQuery, Matcher, parse_query
from skws.ranking.choice import RankingChoice
from windows.window import ExpressionWindow, Window, by_position, with_deletions


@dataclass(frozen=True)
class Plan:
    """One keyword query, ready to be run.

    ``max_size`` is T_max, the most tuples of a result. ``lateness`` is in
    microseconds of event time. ``frequencies``, one a keyword, order the mesh
    by the rarest. ``mesh``, ``purge`` and ``demand`` say how the tuple-at-a-time
    engine runs it (``mesh.factory``). Results depend on none of these four.
    ``ranking``: how results are scored, None for not at all. ``evaluated_by``:
    what the columnar engine runs candidate networks by; where records may
    be late it is the mesh.
    Raises UsageError for a mesh or purge that is not there.
    """

    schema: Schema
    query: KeywordQuery
    window: Window
    max_size: int = DEFAULT_MAX_SIZE
    lateness: int = 0
    frequencies: tuple[float, ...] | None = None
    mesh: str = MeshKind.HASHED
    purge: str | None = None
    demand: bool = True
    ranking: RankingChoice | None = None
    evaluated_by: str = EvaluatorName.MESH
    matcher: Matcher = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check("evaluator", self.evaluated_by, list(EvaluatorName))
        _check("mesh", self.mesh, [str(kind) for kind in MeshKind])
        if self.purge is not None:
            _check("purge", self.purge, [str(kind) for kind in PurgeKind])
        object.__setattr__(self, "matcher", Matcher(self.query, self.schema))

    @cached_property
    def keywords(self) -> tuple[str, ...]:
        """The keywords as networks show them, one a slot."""
        return tuple(slot.text for slot in self.query.slots)

    @property
    def by_count(self) -> bool:
        """True if ticks count positions in the stream instead of microseconds."""
        return by_position(self.window)

    @property
    def lifespans(self) -> Window:
        """The window over the ticks of tuples."""
        return with_deletions(self.window)

    def generator(self) -> CNGen:
        """Candidate networks of the query."""
        slots = len(self.query.slots)
        return CNGen(
            self.schema,
            slots,
            self.max_size,
            [self.matcher.searchable(r) for r in range(len(self.schema.relations))],
            NodeOrder.default(slots, self.frequencies, self.schema.evolution.grown),
            self.query.sequence,
            self.query.without,
        )

    def evaluator(self) -> Evaluator:
        """The mesh that the plan asks for, without tuples."""
        return make_evaluator(
            self.generator(),
            self.lifespans,
            MeshKind(self.mesh),
            None if self.purge is None else PurgeKind(self.purge),
            self.demand,
        )

    @property
    def by_automata(self) -> bool:
        """True if automata may evaluate some networks."""
        in_order = not self.lateness and not isinstance(self.window, ExpressionWindow)
        return in_order and self.evaluated_by != EvaluatorName.MESH

    def over(self, schema: Schema) -> Plan:
        """The plan over a changed schema. Raises QueryError if the query cannot be read there."""
        query = parse_query(self.query.text, schema, match_names=self.query.match_names)
        return replace(self, schema=schema, query=query)


def _check(what: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise UsageError(f"{what} {name!r}: expected one of {', '.join(known)}{nearest(name, known)}")
