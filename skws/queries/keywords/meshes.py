"""The meshes of queries; queries of one shape share a mesh."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from skws.keywords.match import EXCLUDED
from skws.keywords.plan import Plan
from skws_mesh.cngen import CNGen
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import Flags, Ints
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.mesh import ColumnarMesh
from skws_mesh.columnar.operators import OperatorTable
from skws_mesh.networks import prefix_of
from skws_mesh.tree import Tree
from skws_schema.errors import UsageError, nearest
from skws_schema.model import Schema
from skws_windows.window import Window

if TYPE_CHECKING:
    from skws.keywords.match import Matcher
    from skws.queries.keywords.automata import NetworkAutomata


_SHAPES: Final = 16
"""Shapes of searches whose operators are kept: most searches have few plain keywords, and make the same."""
_MOST: Final = 100_000  # operators of a shape, times keyword bitmaps


class AnsweredQueries:
    """Queries by name. Those of one plan have one number, and are answered once."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._plans: dict[int, Plan] = {}
        self._numbers: dict[Plan, int] = {}
        self._named: Counter[int] = Counter()
        self._next = 0

    def __iter__(self) -> Iterator[tuple[int, Plan]]:
        """The numbers and plans of different queries."""
        return iter(self._plans.items())

    def add(self, name: str, plan: Plan) -> tuple[int, bool]:
        """Add a query; gives its number, and whether it is new. Raises UsageError for a taken name."""
        if name in self._names:
            raise UsageError(f"there is already a query {name!r}")
        number = self._numbers.setdefault(plan, self._next)  # once, as plans are long to hash
        is_new = number == self._next
        if is_new:
            self._plans[self.number()] = plan
        self._names[name] = number
        self._named[number] += 1
        return number, is_new

    def remove(self, name: str) -> int | None:
        """Remove a name; gives the query's number if it has no other. Raises UsageError if there is none."""
        number = self.of(name)
        del self._names[name]
        self._named[number] -= 1
        if self._named[number]:
            return None
        del self._named[number], self._numbers[self._plans.pop(number)]
        return number

    def of(self, name: str) -> int:
        """The number of a query. Raises UsageError if there is none of that name."""
        if name not in self._names:
            raise UsageError(f"no standing query {name!r}{nearest(name, self._names)}")
        return self._names[name]

    def number(self) -> int:
        """A number that no query has or will have."""
        self._next += 1
        return self._next - 1

    def over(self, schema: Schema) -> AnsweredQueries:
        """The same queries and numbers over a changed schema. Raises QueryError if one cannot be read."""
        changed = AnsweredQueries()
        plans = {number: plan.over(schema) for number, plan in self._plans.items()}
        changed._numbers = {plan: number for number, plan in plans.items()}
        changed._plans = {number: plan for plan, number in changed._numbers.items()}
        changed._names = {name: changed._numbers[plans[number]] for name, number in self._names.items()}
        changed._named = Counter(changed._names.values())
        changed._next = self._next
        return changed


def coded_by(mesh: ColumnarMesh, bitmaps: KeywordBitmaps) -> KeywordBitmaps:
    """Labels of the queries of one mesh in its codes."""
    label = np.where(bitmaps.bitmap == EXCLUDED, mesh.excluded, bitmaps.bitmap)
    return KeywordBitmaps(bitmaps.tuple, bitmaps.query, label)


@dataclass
class MeshedQuery:
    mesh: ColumnarMesh
    plan: Plan
    automata: NetworkAutomata | None = None

    @property
    def matcher(self) -> Matcher:
        return self.plan.matcher

    @property
    def max_size(self) -> int:
        return self.plan.max_size


class Meshes:
    """All meshes over the same live tuples. ``queries``: by number.

    ``accepts_root``: by slot, whether results may have a root tuple.
    """

    def __init__(
        self, live: LiveTuples, window: Window, accepts_root: Callable[[Ints], Flags] | None
    ) -> None:
        self.queries: dict[int, MeshedQuery] = {}
        self._live = live
        self._window = window
        self._accepts_root = accepts_root
        self._meshes: dict[object, ColumnarMesh] = {}  # by shape
        self._passing: dict[object, OperatorTable] = {}  # by shape, the latest last

    def __iter__(self) -> Iterator[ColumnarMesh]:
        return iter(self._meshes.values())

    @property
    def by_root(self) -> bool:
        """Whether results may have some roots only."""
        return self._accepts_root is not None

    def add(self, query: int, plan: Plan, generator: CNGen | None = None) -> MeshedQuery:
        """Give a query a mesh, and automata if its plan asks for them."""
        generator = generator or plan.generator()
        mesh, automata = (
            self._split(plan, generator) if plan.by_automata else (self._mesh_of(generator), None)
        )
        standing = self.queries[query] = MeshedQuery(mesh, plan, automata)
        return standing

    def passing(self, plan: Plan) -> MeshedQuery:
        """A query with a mesh of its own, which is not among the meshes."""
        return MeshedQuery(ColumnarMesh(self._live, self._passing_operators(plan), self._accepts_root), plan)

    def _passing_operators(self, plan: Plan) -> OperatorTable:
        """The operators of a query that does not stay, perhaps with those that earlier ones made."""
        generator = plan.generator()
        operators = self._passing.pop(generator.shape, None)
        if operators is None or len(operators) << generator.slots > _MOST:
            operators = OperatorTable(generator)
        self._passing[generator.shape] = operators
        if len(self._passing) > _SHAPES:
            del self._passing[next(iter(self._passing))]
        return operators

    def remove(self, query: int) -> None:
        """Remove a query; its mesh goes with the last query of its shape."""
        mesh = self.queries.pop(query).mesh
        mesh.remove(query)
        if not any(standing.mesh is mesh for standing in self.queries.values()):
            self._meshes = {shape: other for shape, other in self._meshes.items() if other is not mesh}

    def coded(self, bitmaps: KeywordBitmaps) -> KeywordBitmaps:
        excluded = bitmaps.bitmap == EXCLUDED
        if not excluded.any():
            return bitmaps
        label = bitmaps.bitmap.copy()
        label[excluded] = [self.queries[query].mesh.excluded for query in bitmaps.query[excluded].tolist()]
        return KeywordBitmaps(bitmaps.tuple, bitmaps.query, label)

    def labels(self, bitmaps: KeywordBitmaps) -> Iterator[tuple[ColumnarMesh, KeywordBitmaps]]:
        if len(self._meshes) == 1:
            yield next(iter(self)), bitmaps
            return
        numbers = {id(mesh): number for number, mesh in enumerate(self)}
        of_query = np.zeros(max(self.queries, default=0) + 1, dtype=np.int64)
        for query, standing in self.queries.items():
            of_query[query] = numbers[id(standing.mesh)]
        which = of_query[bitmaps.query]
        for number, mesh in enumerate(self):
            yield mesh, bitmaps.taken(which == number)

    def _mesh_of(
        self,
        generator: CNGen,
        apart: tuple[Tree, ...] = (),
        needed: Callable[[Tree], bool] = lambda _: True,
    ) -> ColumnarMesh:
        """The mesh of a query's shape without the networks that automata evaluate (``apart``)."""
        shape = (generator.shape, apart)
        if shape not in self._meshes:
            operators = OperatorTable(generator, needed)
            self._meshes[shape] = ColumnarMesh(self._live, operators, self._accepts_root)
        return self._meshes[shape]

    def _split(self, plan: Plan, generator: CNGen) -> tuple[ColumnarMesh, NetworkAutomata | None]:
        """Automata for the networks they evaluate, and a mesh for the others."""
        # Only if automata are asked for: patterns load a parser.
        from skws.queries.keywords.automata import NetworkAutomata, networks_apart, prefixes  # noqa: PLC0415

        apart = networks_apart(plan, generator)
        if not apart:
            return self._mesh_of(generator), None
        elsewhere = set(apart)
        grown_from = prefixes([tree for tree in generator.networks() if tree not in elsewhere])
        mesh = self._mesh_of(generator, apart, lambda tree: prefix_of(tree) in grown_from)
        numbered = {mesh.add_network(tree): tree for tree in apart}
        return mesh, NetworkAutomata(generator, self._window, numbered)
