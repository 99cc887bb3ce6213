"""The meshes of standing queries: queries of one shape share one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mesh.columnar import ColumnarMesh, Labelled, LiveTuples
from mesh.columnar.columns import Flags, Ints
from mesh.generate import CNGen
from mesh.tree import Tree
from skws.engine.engine import EXCLUDED
from skws.plan import Plan
from skws.results.assemble import Assembler
from windows.window import Window

if TYPE_CHECKING:
    from skws.engine.automata import NetworkAutomata
    from skws.keywords import Matcher


class Standing(NamedTuple):
    """A query that is being answered."""

    mesh: ColumnarMesh
    assembler: Assembler
    automata: NetworkAutomata | None
    matcher: Matcher
    max_size: int


class Meshes:
    """All meshes over the same live tuples. ``queries`` are the standing ones by number.

    ``accepts_root`` tells by slot which root tuples results may have.
    """

    def __init__(
        self, live: LiveTuples, window: Window, accepts_root: Callable[[Ints], Flags] | None
    ) -> None:
        self.queries: dict[int, Standing] = {}
        self._live = live
        self._window = window
        self._accepts_root = accepts_root
        self._meshes: dict[object, ColumnarMesh] = {}  # by shape

    def __iter__(self) -> Iterator[ColumnarMesh]:
        return iter(self._meshes.values())

    def add(self, query: int, plan: Plan, generator: CNGen | None = None) -> Standing:
        """A mesh, and automata if the plan asks for them, for a query from now on."""
        generator = generator or plan.generator()
        mesh, automata = (
            self._split(plan, generator) if plan.by_automata else (self._mesh_of(generator), None)
        )
        standing = self.queries[query] = Standing(
            mesh, Assembler(plan), automata, plan.matcher, plan.max_size
        )
        return standing

    def remove(self, query: int) -> None:
        """Forget a query; its mesh goes with the last one of its shape."""
        mesh = self.queries.pop(query).mesh
        mesh.remove(query)
        if not any(standing.mesh is mesh for standing in self.queries.values()):
            self._meshes = {shape: other for shape, other in self._meshes.items() if other is not mesh}

    def coded(self, labelled: Labelled) -> Labelled:
        """Labels as their meshes know them."""
        excluded = labelled.label == EXCLUDED
        if not excluded.any():
            return labelled
        label = labelled.label.copy()
        label[excluded] = [self.queries[query].mesh.excluded for query in labelled.query[excluded].tolist()]
        return Labelled(labelled.tuple, labelled.query, label)

    def labels(self, labelled: Labelled) -> Iterator[tuple[ColumnarMesh, Labelled]]:
        """Each mesh with the labels for its queries."""
        if len(self._meshes) == 1:
            yield next(iter(self)), labelled
            return
        numbers = {id(mesh): number for number, mesh in enumerate(self)}
        of_query = np.zeros(max(self.queries, default=0) + 1, dtype=np.int64)
        for query, standing in self.queries.items():
            of_query[query] = numbers[id(standing.mesh)]
        which = of_query[labelled.query]
        for number, mesh in enumerate(self):
            yield mesh, labelled.taken(which == number)

    def _mesh_of(
        self,
        generator: CNGen,
        apart: tuple[Tree, ...] = (),
        needed: Callable[[Tree], bool] = lambda _: True,
    ) -> ColumnarMesh:
        """The mesh of a query's shape without the networks that are evaluated ``apart``."""
        shape = (generator.shape, apart)
        if shape not in self._meshes:
            self._meshes[shape] = ColumnarMesh(self._live, generator, self._accepts_root, needed)
        return self._meshes[shape]

    def _split(self, plan: Plan, generator: CNGen) -> tuple[ColumnarMesh, NetworkAutomata | None]:
        """Automata for the networks that they evaluate, and a mesh of what the others need."""
        # Only for who asks for automata: patterns bring a parser of texts.
        from skws.engine.automata import NetworkAutomata, networks_apart, prefix, prefixes  # noqa: PLC0415

        apart = networks_apart(plan, generator)
        if not apart:
            return self._mesh_of(generator), None
        elsewhere = set(apart)
        grown_from = prefixes([tree for tree in generator.networks() if tree not in elsewhere])
        mesh = self._mesh_of(generator, apart, lambda tree: prefix(tree) in grown_from)
        numbered = {mesh.add_network(tree): tree for tree in apart}
        return mesh, NetworkAutomata(generator, self._window, numbered)
