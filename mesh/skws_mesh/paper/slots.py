"""A mesh of the paper over the live tuples that all queries share: tuples are slots, results are columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np

from skws_mesh.backend import OperatorUse, Sleep
from skws_mesh.cngen import CNGen
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import Flags, Ints
from skws_mesh.columnar.live import InsertedTuples, LiveTuples
from skws_mesh.columnar.store import NO_MEMBER, Partials
from skws_mesh.mesh_kinds import MeshChoice
from skws_mesh.paper import make_mesh
from skws_mesh.paper.execution import NetworkResult
from skws_mesh.paper.join_operator import JoinOperator, Producer, tree_of
from skws_mesh.paper.paper_meshes import DemandDrivenMesh
from skws_mesh.tree import Tree
from skws_purging.composites import MeshTuple
from skws_purging.lifespans import ALWAYS
from skws_schema.budgets import check
from skws_windows.window import Window

_CHUNK_RESULTS: Final = 1 << 14
"""The most results that are kept as tuples before they are turned into columns."""


class SlotMesh:
    """The paper's mesh for one query (``skws_mesh.backend.Mesh``).

    Tuples are inserted one by one, in order of their start, and time advances with each. So operators fall
    asleep, are destroyed and are purged within a batch as well. ``accepts_root``: True for the root tuples,
    by slot, that results may have.
    """

    def __init__(
        self,
        live: LiveTuples,
        generator: CNGen,
        window: Window,
        choice: MeshChoice,
        accepts_root: Callable[[Ints], Flags] | None = None,
    ) -> None:
        self._live = live
        self._mesh = make_mesh(generator, window, choice)
        self._all = generator.all
        self._width = generator.max_size
        self._accepts_root = accepts_root
        self._query = -1
        self._tuples: list[MeshTuple | None] = []  # by slot; None for tuples that take no part
        self._trees: list[Tree] = []
        self._numbers: dict[Tree, int] = {}
        self._results: list[Partials] = []
        self.excluded = 1 << generator.slots

    @property
    def operators(self) -> int:
        return self._mesh.operators

    @property
    def partials(self) -> int:
        """Always 0: no sweep reads composite tuples, which the purge policy removes."""
        return 0

    @property
    def results(self) -> list[Partials]:
        return self._results

    def add(self, queries: Iterable[int], bitmaps: KeywordBitmaps) -> Partials:
        """Add the query, which is the only one."""
        (self._query,) = queries
        slots = np.argsort(self._live.tuples.start, kind="stable")
        labels = np.zeros(len(slots), dtype=np.int64)
        labels[bitmaps.tuple] = bitmaps.bitmap
        self._tuples = [None] * len(slots)
        return self._insert(slots, labels.take(slots), ALWAYS)

    def remove(self, query: int) -> None:
        """Nothing to do: the mesh is dropped with its query."""

    def insert(self, new_tuples: InsertedTuples, bitmaps: KeywordBitmaps, horizon: int = ALWAYS) -> Partials:
        slots = np.arange(new_tuples.first, len(self._live))
        labels = np.zeros(len(slots), dtype=np.int64)
        labels[bitmaps.tuple - new_tuples.first] = bitmaps.bitmap
        self._tuples += [None] * len(slots)
        return self._insert(slots, labels, horizon)

    def load(self, bitmaps: KeywordBitmaps) -> Iterator[Partials]:
        yield self.add((self._query,), bitmaps)

    def _insert(self, slots: Ints, labels: Ints, horizon: int) -> Partials:
        """Insert the slots in order of start, with their keyword bitmaps."""
        tuples, mesh = self._live.tuples, self._mesh
        columns = (tuples.relation, tuples.start, tuples.end, tuples.place)
        rows = zip(
            *(column.take(slots).tolist() for column in columns),
            labels.tolist(),
            slots.tolist(),
            map(tuple, tuples.keys.take(slots, axis=0).tolist()),
            strict=True,
        )
        self._results, new_results, now = [Partials.none(self._width)], list[NetworkResult](), ALWAYS
        for relation, start, end, place, keywords, slot, values in rows:
            if keywords == self.excluded or start >= end:
                continue
            check()
            if start > now:
                now = start
                mesh.purge(min(now, horizon))
            mesh_tuple = MeshTuple(relation, values, start, end, keywords, place, slot)
            self._tuples[slot] = mesh_tuple
            new_results += mesh.insert(mesh_tuple)
            if len(new_results) >= _CHUNK_RESULTS:
                self._results.append(self._columns(new_results))
                new_results = []
        if new_results:
            self._results.append(self._columns(new_results))
        results, self._results = self._results, []
        return Partials.concat(results)

    def _columns(self, network_results: list[NetworkResult]) -> Partials:
        members = np.full((len(network_results), self._width), NO_MEMBER, dtype=np.int64)
        for row, (_, tuples) in enumerate(network_results):
            members[row, : len(tuples)] = [member.slot for member in tuples]
        results = Partials(
            np.full(len(network_results), self._query, dtype=np.int64),
            np.array([self._number(network) for network, _ in network_results], dtype=np.int64),
            members,
            np.array(
                [max(member.start for member in tuples) for _, tuples in network_results], dtype=np.int64
            ),
            np.array([min(member.end for member in tuples) for _, tuples in network_results], dtype=np.int64),
        )
        return results if self._accepts_root is None else results.take(self._accepts_root(members[:, 0]))

    def _number(self, tree: Tree) -> int:
        number = self._numbers.setdefault(tree, len(self._trees))
        if number == len(self._trees):
            self._trees.append(tree)
        return number

    def end(self, slots: Ints) -> None:
        ends = self._live.tuples.end.take(slots)
        for slot, end in zip(slots.tolist(), ends.tolist(), strict=True):
            if (mesh_tuple := self._tuples[slot]) is not None:
                self._mesh.end(mesh_tuple, end)

    def expire(self, horizon: int) -> None:
        self._mesh.purge(horizon)

    def compact(self, horizon: int, slots: Ints) -> None:
        self._mesh.purge(horizon)
        tuples: list[MeshTuple | None] = [None] * (int(slots.max(initial=-1)) + 1)
        for mesh_tuple, slot in zip(self._tuples, slots.tolist(), strict=True):
            if mesh_tuple is not None:
                mesh_tuple.slot = slot
                if slot >= 0:
                    tuples[slot] = mesh_tuple
        self._tuples = tuples

    def live_keywords(self, query: int) -> int:  # noqa: ARG002 - there is one
        bitmap = 0
        for (_, keywords), source in self._mesh.sources.items():
            if source.out.entries:
                bitmap |= keywords
        return bitmap & self._all

    def network(self, operator: int) -> Tree:
        return self._trees[operator]

    def operator_uses(self) -> list[OperatorUse]:
        """All operators that have output or sleep; those of a forest with the same tree are merged."""
        counts: Counter[Tree] = Counter()
        sleep: dict[Tree, Sleep] = {}
        by_demand = isinstance(self._mesh, DemandDrivenMesh)
        for operator, tree in self._operators():
            entries = 0 if operator.complete else len(operator.out.entries)
            is_asleep = by_demand and isinstance(operator, JoinOperator) and not operator.running
            if entries or is_asleep:
                counts[tree] += entries
            if is_asleep and isinstance(operator, JoinOperator):
                sleep[tree] = _sleep(operator)
        return [OperatorUse(tree, count, sleep=sleep.get(tree)) for tree, count in counts.items()]

    @property
    def waiting_counts(self) -> tuple[int, int]:
        sizes = [
            len(operator.out.entries)
            for source in self._mesh.sources.values()
            for operator in (source, *source.above())
            if not operator.complete and operator.out.entries and (operator.parents or operator is not source)
        ]
        return len(sizes), sum(sizes)

    def partial_results(self) -> Iterator[Partials]:
        for operator, tree in self._operators():
            if isinstance(operator, JoinOperator) and (entries := len(operator.out.entries)):
                yield Partials(
                    np.full(entries, self._query, dtype=np.int64),
                    np.full(entries, self._number(tree), dtype=np.int64),
                    *np.zeros((3, entries), dtype=np.int64),
                )

    def _operators(self) -> Iterator[tuple[Producer, Tree]]:
        """All operators with their trees, lower ones first."""
        for source in self._mesh.sources.values():
            if source.parents or source.complete:
                yield from self._with_parents(source, Tree.single(source.relation, source.keywords))

    def _with_parents(self, operator: Producer, tree: Tree) -> Iterator[tuple[Producer, Tree]]:
        yield operator, tree
        for join in operator.parents.values():
            yield from self._with_parents(join, tree_of(tree, join, self._mesh.generator))


def _sleep(join: JoinOperator) -> Sleep:
    """The flags of Figure 4.1 that are not set."""
    is_wanted, is_fed = join.demand.state.value
    return Sleep(None if is_fed else (join.right.relation, join.right.keywords), not is_wanted)
