"""The meshes of queries: queries of one shape share a mesh."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from msgspec.structs import replace as struct_replace

from skws.keywords.match import EXCLUDED
from skws.keywords.plan import Plan
from skws.results.result import Result
from skws_mesh.backend import Mesh
from skws_mesh.cngen import CNGen
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import Flags, Ints
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.mesh import ColumnarMesh
from skws_mesh.columnar.operators import OperatorTable
from skws_mesh.paper.slots import SlotMesh
from skws_schema.errors import UsageError, nearest, shown
from skws_schema.model import Schema
from skws_windows.window import Window

if TYPE_CHECKING:
    from skws.keywords.match import Matcher

_SHAPES: Final = 16
"""The number of shapes of searches whose operators are kept: most searches have a few plain keywords."""
_MOST: Final = 100_000  # operators of a shape, times keyword bitmaps


class PlanNumber(NamedTuple):
    """The number of a query, and whether it is new.

    ``like``: the number of an earlier equal query whose results it does not share; None if there is none.
    """

    number: int
    is_new: bool
    like: int | None = None


class SharedPlans:
    """Queries by name.

    Queries with equal plans share a number if they know the same results: they are evaluated once, and
    their results are reported under each name.
    """

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._plans: dict[int, Plan] = {}  # with the first name of each
        # The names of a number after the first, if there are any.
        self._other_names: dict[int, list[str]] = {}
        self._numbers: dict[Plan, int] = {}  # the latest number of each plan
        self._next = 0

    def __iter__(self) -> Iterator[tuple[int, Plan]]:
        """The numbers and plans of different queries."""
        return iter(self._plans.items())

    def add(self, plan: Plan, shares: Callable[[int], bool] = lambda _: True) -> PlanNumber:
        """Add a query. Raises UsageError for a name in use.

        ``shares``: True if another query may share the results of a number.
        """
        name = plan.called
        if name in self._names:
            raise UsageError(f"there is already a query {shown(name)}")
        number, equal = self._numbers.setdefault(plan, self._next), None  # once, as plans are long to hash
        if number != self._next and not shares(number):
            number, equal = self._next, number
            self._numbers[plan] = number
        is_new = number == self._next
        if is_new:
            self._plans[self.number()] = plan
        else:
            self._other_names.setdefault(number, []).append(name)
        self._names[name] = number
        return PlanNumber(number, is_new, equal)

    def remove(self, name: str) -> tuple[int, Plan | None]:
        """Remove a name; returns the query's number, and its plan under its first remaining name.

        The plan is None if no name remains. Raises UsageError if there is no query of that name.
        """
        number = self.of(name)
        del self._names[name]
        other_names = self._other_names.get(number)
        if other_names is None:
            plan = self._plans.pop(number)
            if self._numbers.get(plan) == number:
                del self._numbers[plan]
            return number, None
        if self._plans[number].called == name:
            self._plans[number] = replace(self._plans[number], name=other_names.pop(0))
        else:
            other_names.remove(name)
        if not other_names:
            del self._other_names[number]
        return number, self._plans[number]

    def under_all_names(self, results: list[Result]) -> list[Result]:
        """Results, which have the first name of their query, under all of its names."""
        if not self._other_names:  # the usual case
            return results
        return [
            each
            for result in results
            for each in (
                result,
                *(
                    struct_replace(result, name=name)
                    for name in self._other_names.get(self.of(result.name), ())
                ),
            )
        ]

    def of(self, name: str) -> int:
        """The number of a query. Raises UsageError if no query has that name."""
        if name not in self._names:
            raise UsageError(f"no standing query {shown(name)}{nearest(name, self._names)}")
        return self._names[name]

    def first(self, number: int) -> str:
        """The first name of a query, which its results have."""
        return self._plans[number].called

    def number(self) -> int:
        """A number that no query has or will have."""
        self._next += 1
        return self._next - 1

    @property
    def next(self) -> int:
        """The next number."""
        return self._next

    def compacted(self) -> SharedPlans:
        """The same queries in the same order, with numbers from 0 on."""
        numbers = {number: new_number for new_number, number in enumerate(self._plans)}
        plans = {new_number: self._plans[number] for number, new_number in numbers.items()}
        return self._with(plans, numbers, len(numbers))

    def over(self, schema: Schema) -> SharedPlans:
        """The same queries and numbers over a changed schema. Raises QueryError if one cannot be read."""
        plans = {number: plan.over(schema) for number, plan in self._plans.items()}
        return self._with(plans, {number: number for number in plans}, self._next)

    def _with(self, plans: Mapping[int, Plan], numbers: Mapping[int, int], number: int) -> SharedPlans:
        """The same names for ``plans``. ``numbers``: new numbers by former ones; ``number``: the next one."""
        shared = SharedPlans()
        shared._plans = dict(plans)
        shared._numbers = {plan: number for number, plan in plans.items()}
        shared._names = {name: numbers[number] for name, number in self._names.items()}
        for name, query in shared._names.items():
            if shared.first(query) != name:
                shared._other_names.setdefault(query, []).append(name)
        shared._next = number
        return shared


def in_codes_of(mesh: Mesh, bitmaps: KeywordBitmaps) -> KeywordBitmaps:
    """Labels of the queries of one mesh in its codes."""
    label = np.where(bitmaps.bitmap == EXCLUDED, mesh.excluded, bitmaps.bitmap)
    return KeywordBitmaps(bitmaps.tuple, bitmaps.query, label)


@dataclass
class MeshTenant:
    mesh: Mesh
    plan: Plan

    @property
    def matcher(self) -> Matcher:
        return self.plan.matcher

    @property
    def max_size(self) -> int:
        return self.plan.max_size


class Meshes:
    """The meshes over the same live tuples whose labels are keyword bitmaps. ``queries``: by number.

    Queries of one shape share a columnar mesh; a query that asks for one of the paper's meshes has its own.
    ``accepts_root``: True for the slots of tuples that may be the root of a result.
    """

    def __init__(
        self, live: LiveTuples, window: Window, accepts_root: Callable[[Ints], Flags] | None
    ) -> None:
        self.queries: dict[int, MeshTenant] = {}
        self._live = live
        self._window = window
        self._accepts_root = accepts_root
        self._columnar: dict[object, ColumnarMesh] = {}  # by shape
        self._paper: dict[int, SlotMesh] = {}  # by query
        self._search_operators: dict[object, OperatorTable] = {}  # by shape, the latest last

    def __iter__(self) -> Iterator[Mesh]:
        return chain(self._columnar.values(), self._paper.values())

    def __len__(self) -> int:
        return len(self._columnar) + len(self._paper)

    @property
    def columnar(self) -> Collection[ColumnarMesh]:
        return self._columnar.values()

    @property
    def by_root(self) -> bool:
        """True if only results with some roots are accepted."""
        return self._accepts_root is not None

    def add(self, query: int, plan: Plan, generator: CNGen | None = None) -> MeshTenant:
        """Give a query a mesh."""
        generator = generator or plan.generator()
        mesh: Mesh
        if plan.mesh is None:
            mesh = self._mesh_of(generator)
        else:
            mesh = SlotMesh(self._live, generator, self._window, plan.mesh, self._accepts_root)
            self._paper[query] = mesh
        tenant = self.queries[query] = MeshTenant(mesh, plan)
        return tenant

    def search_tenant(self, plan: Plan) -> MeshTenant:
        """A query with its own mesh, which is not one of the shared meshes."""
        return MeshTenant(ColumnarMesh(self._live, self._operators_of_search(plan), self._accepts_root), plan)

    def _operators_of_search(self, plan: Plan) -> OperatorTable:
        """The operators of a query that does not stay; a search of the same shape may have made them."""
        generator = plan.generator()
        operators = self._search_operators.pop(generator.shape, None)
        if operators is None or len(operators) << generator.slots > _MOST:
            operators = OperatorTable(generator)
        self._search_operators[generator.shape] = operators
        if len(self._search_operators) > _SHAPES:
            del self._search_operators[next(iter(self._search_operators))]
        return operators

    def remove(self, query: int) -> None:
        """Remove a query; its mesh is removed with the last query of its shape."""
        mesh = self.queries.pop(query).mesh
        mesh.remove(query)
        self._paper.pop(query, None)
        if not any(tenant.mesh is mesh for tenant in self.queries.values()):
            self._columnar = {
                shape: columnar for shape, columnar in self._columnar.items() if columnar is not mesh
            }

    def in_mesh_codes(self, bitmaps: KeywordBitmaps) -> KeywordBitmaps:
        is_excluded = bitmaps.bitmap == EXCLUDED
        if not is_excluded.any():
            return bitmaps
        label = bitmaps.bitmap.copy()
        label[is_excluded] = [
            self.queries[query].mesh.excluded for query in bitmaps.query[is_excluded].tolist()
        ]
        return KeywordBitmaps(bitmaps.tuple, bitmaps.query, label)

    def bitmaps_of(self, slots: Ints) -> KeywordBitmaps | None:
        """The bitmaps of some tuples, by their place in ``slots``; None if some meshes do not keep any."""
        if self._paper:
            return None
        parts = [KeywordBitmaps.none()]
        for mesh in self.columnar:
            codes = mesh.bitmaps_of(slots)
            bitmap = np.where(codes.bitmap == mesh.excluded, EXCLUDED, codes.bitmap)
            parts.append(KeywordBitmaps(codes.tuple, codes.query, bitmap))
        return KeywordBitmaps.concat(parts)

    def labels(self, bitmaps: KeywordBitmaps) -> Iterator[tuple[Mesh, KeywordBitmaps]]:
        if len(self) == 1:
            yield next(iter(self)), bitmaps
            return
        numbers = {id(mesh): number for number, mesh in enumerate(self)}
        mesh_numbers = np.zeros(max(self.queries, default=0) + 1, dtype=np.int64)
        for query, tenant in self.queries.items():
            mesh_numbers[query] = numbers[id(tenant.mesh)]
        numbers_by_label = mesh_numbers[bitmaps.query]
        for number, mesh in enumerate(self):
            yield mesh, bitmaps.take(numbers_by_label == number)

    def _mesh_of(self, generator: CNGen) -> ColumnarMesh:
        """The mesh of a query's shape."""
        shape = generator.shape
        if shape not in self._columnar:
            operators = OperatorTable(generator)
            self._columnar[shape] = ColumnarMesh(self._live, operators, self._accepts_root)
        return self._columnar[shape]
