"""Very many keyword queries over shared live tuples: one mesh for all, whose words are found together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from skws.data.batch import Rows
from skws.keywords.plan import Plan
from skws.keywords.query import Alternative, Condition, Slot
from skws.keywords.word_matching import WordMatching, words_of
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import Partials
from skws_mesh.delta.joins import DeltaJoins
from skws_mesh.delta.word_pairs import PairQuery
from skws_schema.model import Schema

MANY: Final = 1000
"""Queries for which one mesh for all is faster than a mesh for each shape."""
MOST_KEYWORDS: Final = 2


def is_shared(plan: Plan) -> bool:
    """True for a plan that the mesh for all can answer."""
    query = plan.query
    return (
        len(query.slots) <= MOST_KEYWORDS
        and not query.sequence
        and not query.match_names
        and plan.ranking is None
        and not plan.by_automata
        # Most tuples fail a condition, for each of the queries that ask for it.
        and not any(
            isinstance(alternative, Condition)
            for slot in (*query.slots, *query.exclusions)
            for alternative in slot.alternatives
        )
    )


@dataclass
class SharedQuery:
    """A query that the mesh for all answers."""

    mesh: DeltaJoins
    plan: Plan


Word: TypeAlias = frozenset[Alternative]


class SharedQueries:
    """Queries by number, the words that they ask for, and their mesh."""

    def __init__(self, live: LiveTuples, schema: Schema) -> None:
        self.queries: dict[int, SharedQuery] = {}
        self._schema = schema
        self._mesh = DeltaJoins(live, schema)
        self._matching = WordMatching(schema)
        self._numbers: dict[Word, int] = {}
        self._users: Counter[Word] = Counter()
        self._next = 0

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def mesh(self) -> DeltaJoins:
        return self._mesh

    def add(self, plans: Mapping[int, Plan], rows: Rows) -> Partials:
        """Answer queries from now on, given the live rows by slot; gives their results that are alive."""
        new: dict[int, Slot] = {}
        asked = {number: self._asked(plan, new) for number, plan in plans.items()}
        self._matching.add(new)
        slots, words = words_of(self._schema, new, rows)
        for number, plan in plans.items():
            self.queries[number] = SharedQuery(self._mesh, plan)
        return self._mesh.add(asked, slots, words)

    def remove(self, query: int) -> None:
        """Stop answering a query."""
        plan = self.queries.pop(query).plan
        self._mesh.remove(query)
        gone = []
        for slot in (*plan.query.slots, *plan.query.exclusions):
            word = frozenset(slot.alternatives)
            self._users[word] -= 1
            if not self._users[word]:
                del self._users[word]
                gone.append(self._numbers.pop(word))
        self._matching.remove(gone)
        self._mesh.forget(gone)

    def insert(self, first: int, rows: Rows) -> tuple[Partials, int]:
        """Take in the tuples from slot ``first`` on; gives the results that they complete.

        And the number of pairs of a tuple and a query that excludes it.
        """
        slots, words = self._matching.of(rows)
        slots = slots + first
        return self._mesh.insert(first, slots, words), self._mesh.excluded(slots, words)

    def _asked(self, plan: Plan, new: dict[int, Slot]) -> PairQuery:
        query = plan.query
        first, *second = (self._word(slot, new) for slot in query.slots)
        excluded = tuple(self._word(slot, new) for slot in query.exclusions)
        return PairQuery(first, second[0] if second else None, plan.max_size, excluded, query.without)

    def _word(self, slot: Slot, new: dict[int, Slot]) -> int:
        word = frozenset(slot.alternatives)
        number = self._numbers.get(word)
        if number is None:
            number = self._numbers[word] = self._next
            self._next += 1
            new[number] = slot
        self._users[word] += 1
        return number
