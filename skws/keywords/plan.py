"""A query over a schema with a window: immutable, picklable, shared by all engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from skws.keywords.keyword_query import KeywordQuery
from skws.keywords.match import Matcher
from skws.keywords.parse import parse_query
from skws.spec.enums import DEFAULT_MAX_SIZE, EvaluatorName, ToldUpdates
from skws.spec.query_spec import RankingChoice
from skws_mesh.cngen import CNGen, TooManyKindsError, count_networks
from skws_mesh.mesh_kinds import MeshChoice
from skws_mesh.tree import NodeOrder
from skws_schema.budgets import OverBudgetError, StepBudget, memory_checked
from skws_schema.errors import UsageError, nearest, shown
from skws_schema.model import Schema
from skws_windows.window import Window, by_position, with_deletions

_EVALUATORS: Final = tuple(EvaluatorName)


@dataclass(frozen=True)
class Plan:
    """One keyword query, ready to run.

    ``max_size`` is T_max, the most tuples of a result. ``lateness`` is in microseconds of event time.
    ``frequencies``, one per keyword, order the mesh by the rarest. ``evaluated_by``: the default evaluator of
    candidate networks; if records may be late, it is the columnar mesh. ``mesh``: one of the paper's meshes
    instead (``skws_mesh.paper``). Results do not depend on these three. ``ranking``: how results are scored;
    None for no scores. ``updates``: how updates of results are reported. ``name``: the name of the query in
    results, its text if it has no name; plans of different names may be equal. Raises UsageError for an
    unknown evaluator.
    """

    schema: Schema
    query: KeywordQuery
    window: Window
    max_size: int = DEFAULT_MAX_SIZE
    lateness: int = 0
    frequencies: tuple[float, ...] | None = None
    mesh: MeshChoice | None = None
    ranking: RankingChoice | None = None
    evaluated_by: str = EvaluatorName.AUTO
    updates: ToldUpdates = ToldUpdates.TELL
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        _check("evaluator", self.evaluated_by, _EVALUATORS)

    @property
    def called(self) -> str:
        """The name of the query, or its text if it has none."""
        return self.name or self.query.text

    @cached_property
    def matcher(self) -> Matcher:
        """Finds the keywords of tuples."""
        return Matcher(self.query, self.schema)

    @cached_property
    def keywords(self) -> tuple[str, ...]:
        """The keywords as networks show them, one per slot."""
        return tuple(slot.text for slot in self.query.slots)

    @property
    def by_count(self) -> bool:
        """True if ticks count positions in the stream instead of microseconds."""
        return by_position(self.window)

    @property
    def lifespans(self) -> Window:
        """The window over the ticks of tuples."""
        return with_deletions(self.window)

    def generator(self, searchable: Sequence[int] | None = None, max_size: int | None = None) -> CNGen:
        """Candidate networks of the query.

        ``searchable``: the keywords that tuples of each relation can carry; default: by the schema.
        """
        slots = len(self.query.slots)
        return CNGen(
            self.schema,
            slots,
            max_size or self.max_size,
            searchable or [self.matcher.searchable(r) for r in range(len(self.schema.relations))],
            NodeOrder.default(slots, self.frequencies, self.schema.evolution.grown),
            self.query.sequence,
            self.query.without,
            self.query.without_joins,
        )

    def over(self, schema: Schema) -> Plan:
        """The plan over a changed schema. Raises QueryError if the query is not valid over it."""
        query = parse_query(self.query.text, schema, match_names=self.query.match_names)
        return replace(self, schema=schema, query=query)


def _check(noun: str, name: str, choices: Sequence[str]) -> None:
    if name not in choices:
        raise UsageError(
            f"{noun} {shown(name)}: expected one of {', '.join(choices)}{nearest(name, choices)}"
        )


MOST: Final = 1_000_000
"""The most networks that are generated one by one: some ten seconds on one core, and a gigabyte."""
_NODES_PER_NETWORK: Final = 16  # nodes of all trees that are made on the way, so that large T_max end, too
_MANY_NETWORKS: Final = 100_000_000
_FEW_NETWORKS: Final = 20  # keywords times T_max: below this there are few networks
ADVICE: Final = "use fewer keywords or a smaller --max-size"


def network_counts(plan: Plan, most: int = MOST) -> tuple[tuple[int, ...], bool]:
    """The numbers of networks by size, from 1 to T_max, and False if counting stopped at ``most``."""
    try:
        return count_networks(plan.generator()), True
    except TooManyKindsError:
        return _generated_counts(plan, most)


def many_networks(plan: Plan) -> str:
    """A warning if a query has 100 million networks or more, as its mesh may grow large; otherwise empty."""
    if len(plan.query.slots) * plan.max_size < _FEW_NETWORKS:
        return ""
    try:
        total = sum(count_networks(plan.generator()))
    except TooManyKindsError:
        return ""
    if total < _MANY_NETWORKS:
        return ""
    return (
        f"query {shown(plan.query.text)} has {total:,} candidate networks, and its mesh may grow"
        f" large: {ADVICE}"
    )


def _generated_counts(plan: Plan, most: int) -> tuple[tuple[int, ...], bool]:
    sizes = [0] * plan.max_size
    try:
        with StepBudget(_NODES_PER_NETWORK * most, "counting networks") as budget:
            for number, tree in enumerate(memory_checked(plan.generator().networks(budget))):
                if number == most:
                    return tuple(sizes), False
                sizes[len(tree.relations) - 1] += 1
    except OverBudgetError:
        return tuple(sizes), False
    return tuple(sizes), True
