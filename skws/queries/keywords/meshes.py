"""The meshes of queries: queries of one shape share one, and very many share delta joins."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from msgspec.structs import replace as struct_replace

from skws.data.batch import Rows
from skws.keywords.keyword_matching import FEW_WORDS, WordMatching, matcher_of, spread, words_of
from skws.keywords.match import EXCLUDED
from skws.keywords.plan import Plan
from skws.keywords.query import Alternative, Condition, Slot
from skws.keywords.scope import satisfied
from skws.queries.keywords.live_words import LiveWords
from skws.results.model import Result
from skws.spec.enums import EvaluatorName
from skws_mesh.backend import Mesh
from skws_mesh.cngen import CNGen
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import Flags, Ints
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.mesh import ColumnarMesh
from skws_mesh.columnar.operators import OperatorTable
from skws_mesh.columnar.store import NO_MEMBER, Partials
from skws_mesh.delta.joins import DeltaJoins, WordQuery
from skws_mesh.paper.slots import SlotMesh
from skws_schema.errors import UsageError, nearest
from skws_schema.model import Row, Schema, sourced
from skws_windows.window import Window

if TYPE_CHECKING:
    from skws.keywords.match import Matcher

_SHAPES: Final = 16
"""Shapes of searches whose operators are kept: most searches have few plain keywords, and make the same."""
_MOST: Final = 100_000  # operators of a shape, times keyword bitmaps


class AnsweredQueries:
    """Queries by name. Those of equal plans have one number: found once, and told by each name."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._plans: dict[int, Plan] = {}  # with the first name of each
        self._others: dict[int, list[str]] = {}  # the names of a number after the first, if there are any
        self._numbers: dict[Plan, int] = {}
        self._next = 0

    def __iter__(self) -> Iterator[tuple[int, Plan]]:
        """The numbers and plans of different queries."""
        return iter(self._plans.items())

    def add(self, plan: Plan) -> tuple[int, bool]:
        """Add a query; gives its number, and whether it is new. Raises UsageError for a taken name."""
        name = plan.called
        if name in self._names:
            raise UsageError(f"there is already a query {name!r}")
        number = self._numbers.setdefault(plan, self._next)  # once, as plans are long to hash
        is_new = number == self._next
        if is_new:
            self._plans[self.number()] = plan
        else:
            self._others.setdefault(number, []).append(name)
        self._names[name] = number
        return number, is_new

    def remove(self, name: str) -> tuple[int, Plan | None]:
        """Remove a name; gives the query's number, and its plan with the name that is the first now.

        None if it has no other name. Raises UsageError if there is no query of that name.
        """
        number = self.of(name)
        del self._names[name]
        others = self._others.get(number)
        if others is None:
            del self._numbers[self._plans.pop(number)]
            return number, None
        if self._plans[number].called == name:
            self._plans[number] = replace(self._plans[number], name=others.pop(0))
        else:
            others.remove(name)
        if not others:
            del self._others[number]
        return number, self._plans[number]

    def told(self, results: list[Result]) -> list[Result]:
        """Results, which have the first name of their query, by all of its names."""
        if not self._others:  # as is usual
            return results
        return [
            told
            for result in results
            for told in (
                result,
                *(struct_replace(result, name=name) for name in self._others.get(self.of(result.name), ())),
            )
        ]

    def of(self, name: str) -> int:
        """The number of a query. Raises UsageError if there is none of that name."""
        if name not in self._names:
            raise UsageError(f"no standing query {name!r}{nearest(name, self._names)}")
        return self._names[name]

    def first(self, number: int) -> str:
        """The name that results of a query are formed with."""
        return self._plans[number].called

    def number(self) -> int:
        """A number that no query has or will have."""
        self._next += 1
        return self._next - 1

    @property
    def next(self) -> int:
        """The next number."""
        return self._next

    def compacted(self) -> AnsweredQueries:
        """The same queries in their order by numbers from 0 on."""
        numbers = {number: new for new, number in enumerate(self._plans)}
        plans = {new: self._plans[number] for number, new in numbers.items()}
        return self._with(plans, numbers, len(numbers))

    def over(self, schema: Schema) -> AnsweredQueries:
        """The same queries and numbers over a changed schema. Raises QueryError if one cannot be read."""
        plans = {number: plan.over(schema) for number, plan in self._plans.items()}
        kept = {plan: number for number, plan in plans.items()}  # plans that differed may be one now
        numbers = {number: kept[plan] for number, plan in plans.items()}
        return self._with({number: plan for plan, number in kept.items()}, numbers, self._next)

    def _with(self, plans: Mapping[int, Plan], numbers: Mapping[int, int], number: int) -> AnsweredQueries:
        """The same names. ``numbers``: of plans, by the former ones; ``number``: the next one."""
        changed = AnsweredQueries()
        changed._plans = dict(plans)
        changed._numbers = {plan: number for number, plan in plans.items()}
        changed._names = {name: numbers[number] for name, number in self._names.items()}
        for name, its in changed._names.items():
            if changed.first(its) != name:
                changed._others.setdefault(its, []).append(name)
        changed._next = number
        return changed


def coded_by(mesh: Mesh, bitmaps: KeywordBitmaps) -> KeywordBitmaps:
    """Labels of the queries of one mesh in its codes."""
    label = np.where(bitmaps.bitmap == EXCLUDED, mesh.excluded, bitmaps.bitmap)
    return KeywordBitmaps(bitmaps.tuple, bitmaps.query, label)


@dataclass
class MeshedQuery:
    mesh: Mesh
    plan: Plan

    @property
    def matcher(self) -> Matcher:
        return self.plan.matcher

    @property
    def max_size(self) -> int:
        return self.plan.max_size


class Meshes:
    """All meshes over the same live tuples. ``queries``: by number.

    Queries of one shape share a columnar mesh; each that asks for one of the paper's meshes has its own.
    ``accepts_root``: by slot, whether results may have a root tuple.
    """

    def __init__(
        self, live: LiveTuples, window: Window, accepts_root: Callable[[Ints], Flags] | None
    ) -> None:
        self.queries: dict[int, MeshedQuery] = {}
        self._live = live
        self._window = window
        self._accepts_root = accepts_root
        self._columnar: dict[object, ColumnarMesh] = {}  # by shape
        self._paper: dict[int, SlotMesh] = {}  # by query
        self._passing: dict[object, OperatorTable] = {}  # by shape, the latest last

    def __iter__(self) -> Iterator[Mesh]:
        return chain(self._columnar.values(), self._paper.values())

    def __len__(self) -> int:
        return len(self._columnar) + len(self._paper)

    @property
    def columnar(self) -> Collection[ColumnarMesh]:
        return self._columnar.values()

    @property
    def by_root(self) -> bool:
        """Whether results may have some roots only."""
        return self._accepts_root is not None

    def add(self, query: int, plan: Plan, generator: CNGen | None = None) -> MeshedQuery:
        """Give a query a mesh."""
        generator = generator or plan.generator()
        mesh: Mesh
        if plan.mesh is None:
            mesh = self._mesh_of(generator)
        else:
            mesh = SlotMesh(self._live, generator, self._window, plan.mesh, self._accepts_root)
            self._paper[query] = mesh
        standing = self.queries[query] = MeshedQuery(mesh, plan)
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
        self._paper.pop(query, None)
        if not any(standing.mesh is mesh for standing in self.queries.values()):
            self._columnar = {shape: other for shape, other in self._columnar.items() if other is not mesh}

    def coded(self, bitmaps: KeywordBitmaps) -> KeywordBitmaps:
        excluded = bitmaps.bitmap == EXCLUDED
        if not excluded.any():
            return bitmaps
        label = bitmaps.bitmap.copy()
        label[excluded] = [self.queries[query].mesh.excluded for query in bitmaps.query[excluded].tolist()]
        return KeywordBitmaps(bitmaps.tuple, bitmaps.query, label)

    def labels(self, bitmaps: KeywordBitmaps) -> Iterator[tuple[Mesh, KeywordBitmaps]]:
        if len(self) == 1:
            yield next(iter(self)), bitmaps
            return
        numbers = {id(mesh): number for number, mesh in enumerate(self)}
        of_query = np.zeros(max(self.queries, default=0) + 1, dtype=np.int64)
        for query, standing in self.queries.items():
            of_query[query] = numbers[id(standing.mesh)]
        which = of_query[bitmaps.query]
        for number, mesh in enumerate(self):
            yield mesh, bitmaps.taken(which == number)

    def _mesh_of(self, generator: CNGen) -> ColumnarMesh:
        """The mesh of a query's shape."""
        shape = generator.shape
        if shape not in self._columnar:
            operators = OperatorTable(generator)
            self._columnar[shape] = ColumnarMesh(self._live, operators, self._accepts_root)
        return self._columnar[shape]


MANY: Final = 250
"""Queries for which one mesh for all is faster than a mesh for each shape."""


def why_not_shared(plan: Plan) -> str:
    """Why the mesh for all cannot answer a plan; empty if it can."""
    return next((reason for holds, reason in _NOT_SHARED if holds(plan)), "")


_NOT_SHARED: Final[tuple[tuple[Callable[[Plan], bool], str], ...]] = (
    (lambda plan: bool(plan.query.sequence), "its keywords come in an order"),
    (lambda plan: plan.query.match_names, "its keywords may be names in the schema"),
    (lambda plan: plan.ranking is not None, "its results have scores"),
    (
        lambda plan: plan.evaluated_by == EvaluatorName.MESH or plan.mesh is not None,
        "the mesh was asked for",
    ),
    (
        lambda plan: any(
            isinstance(each, Condition) for slot in plan.query.slots for each in slot.alternatives
        ),
        "many tuples satisfy a condition that stands for a keyword",
    ),
    (lambda plan: bool(sourced(plan.schema)), "its schema has tables with a source of their own"),
)


@dataclass
class SharedQuery:
    """A query that the mesh for all answers."""

    mesh: DeltaJoins
    plan: Plan

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """The tuples that satisfy one of them take no part."""
        excluded = (each for slot in self.plan.query.exclusions for each in slot.alternatives)
        return tuple(each for each in excluded if isinstance(each, Condition))


Word: TypeAlias = frozenset[Alternative]
_SLOTS: Final = 4


@dataclass(slots=True)
class AskedWord:
    """A word that queries ask for, and how many do.

    ``slots``: some that ask for it, by which it is found fast: queries share most of their slots.
    """

    word: Word
    number: int
    users: int = 0
    slots: list[Slot] = field(default_factory=list)


class SharedQueries:
    """Queries by number, the words that they ask for, and their mesh. ``row``: the live rows, by slot.

    Conditions are looked at for the tuples of results only: most tuples fail one, for each query that asks.
    """

    def __init__(self, live: LiveTuples, schema: Schema, row: Callable[[int], Row]) -> None:
        self.queries: dict[int, SharedQuery] = {}
        self._conditioned: set[int] = set()
        self._live = live
        self._schema = schema
        self._row = row
        self._mesh = DeltaJoins(live, schema)
        self._matching = WordMatching(schema)
        self._words: dict[Word, AskedWord] = {}
        self._by_slot: dict[int, AskedWord] = {}  # by the identity of slots: words are long to hash
        self._next = 0

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def mesh(self) -> DeltaJoins:
        return self._mesh

    def add(self, plans: Mapping[int, Plan], rows: Rows, index: LiveWords) -> Partials:
        """Answer queries from now on, given the live rows by slot; gives their results that are alive.

        ``index``: the words of the first live rows.
        """
        new: dict[int, Slot] = {}
        asked = {number: self._asked(plan, new) for number, plan in plans.items()}
        self._matching.add(new)
        slots, words = self._carrying(new, rows, index)
        added = {number: SharedQuery(self._mesh, plan) for number, plan in plans.items()}
        self.queries |= added
        self._conditioned |= {
            number for number, query in added.items() if query.plan.query.exclusions and query.conditions
        }
        return self._satisfying(self._mesh.add(asked, slots, words))

    def _carrying(self, new: Mapping[int, Slot], rows: Rows, index: LiveWords) -> tuple[Ints, Ints]:
        """The live tuples with new words: by the index, and by the texts that it does not cover."""
        few = 0 < len(new) <= FEW_WORDS
        indexed = index.label(0, matcher_of(self._schema, new)) if few else None
        if indexed is None:
            return words_of(self._schema, new, rows)
        slots, words = spread(indexed.bitmaps, new)
        if index.covered == len(rows):
            return slots, words
        others, its = words_of(self._schema, new, rows.taken(slice(index.covered, None)))
        return np.concatenate([slots, others + index.covered]), np.concatenate([words, its])

    def remove(self, query: int) -> None:
        """Stop answering a query."""
        plan = self.queries.pop(query).plan
        self._conditioned.discard(query)
        self._mesh.remove(query)
        gone = []
        for slot in (*plan.query.slots, *_of_words(plan.query.exclusions)):
            asked = self._words[frozenset(slot.alternatives)]
            asked.users -= 1
            if not asked.users:
                del self._words[asked.word]
                for each in asked.slots:
                    del self._by_slot[id(each)]
                gone.append(asked.number)
        self._matching.remove(gone)
        self._mesh.forget(gone)

    def insert(self, first: int, rows: Rows) -> tuple[Partials, int]:
        """Take in the tuples from slot ``first`` on; gives the results that they complete.

        And the number of pairs of a tuple and a query that excludes it.
        """
        slots, words = self._matching.of(rows)
        slots = slots + first
        found = self._satisfying(self._mesh.insert(first, slots, words))
        return found, self._mesh.excluded(slots, words)

    def _satisfying(self, found: Partials) -> Partials:
        """Drop results with tuples that conditions of their queries exclude."""
        if not self._conditioned or not len(found):
            return found
        relation = self._live.tuples.relation
        rows: dict[int, Row] = {}
        kept = np.ones(len(found), dtype=bool)
        asking = np.isin(found.query, np.array(sorted(self._conditioned), dtype=np.int64))
        for at in np.flatnonzero(asking).tolist():
            conditions = self.queries[int(found.query[at])].conditions
            for slot in found.members[at][found.members[at] != NO_MEMBER].tolist():
                mine = [each for each in conditions if each.relation == relation[slot]]
                if mine and slot not in rows:
                    rows[slot] = self._row(slot)
                kept[at] &= not any(satisfied(each, rows[slot]) for each in mine)
        return found if kept.all() else found.taken(kept)

    def _asked(self, plan: Plan, new: dict[int, Slot]) -> WordQuery:
        query = plan.query
        words = tuple(self._word(slot, new) for slot in query.slots)
        excluded = tuple(self._word(slot, new) for slot in _of_words(query.exclusions))
        return WordQuery(words, plan.max_size, excluded, query.without, query.without_joins)

    def _word(self, slot: Slot, new: dict[int, Slot]) -> int:
        asked = self._by_slot.get(id(slot)) or self._asked_by(slot, new)
        asked.users += 1
        return asked.number

    def _asked_by(self, slot: Slot, new: dict[int, Slot]) -> AskedWord:
        word = frozenset(slot.alternatives)
        asked = self._words.get(word)
        if asked is None:
            asked = self._words[word] = AskedWord(word, self._next)
            self._next += 1
            new[asked.number] = slot
        if len(asked.slots) < _SLOTS:
            asked.slots.append(slot)
            self._by_slot[id(slot)] = asked
        return asked


def _of_words(exclusions: Sequence[Slot]) -> Iterator[Slot]:
    """What exclusions look for in texts, without conditions."""
    for slot in exclusions:
        words = tuple(each for each in slot.alternatives if not isinstance(each, Condition))
        if words:
            yield slot if len(words) == len(slot.alternatives) else replace(slot, alternatives=words)
