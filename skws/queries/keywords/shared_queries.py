"""Very many keyword queries over shared live tuples: one mesh for all, whose words are found together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from skws.data.batch import Rows
from skws.keywords.conditions import satisfied
from skws.keywords.keyword_matching import FEW_WORDS, WordMatching, matcher_of, spread, words_of
from skws.keywords.plan import Plan
from skws.keywords.query import Alternative, Condition, Slot
from skws.queries.keywords.live_words import LiveWords
from skws_mesh.columnar.columns import Ints
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import NO_MEMBER, Partials
from skws_mesh.delta.joins import DeltaJoins, WordQuery
from skws_schema.model import Row, Schema, sourced

MANY: Final = 250
"""Queries for which one mesh for all is faster than a mesh for each shape."""


def why_not_shared(plan: Plan) -> str:
    """Why the mesh for all cannot answer a plan; empty if it can."""
    query = plan.query
    reasons = {
        "its keywords come in an order": bool(query.sequence),
        "its keywords may be names of relations": query.match_names,
        "its results have scores": plan.ranking is not None,
        "automata evaluate its networks": plan.by_automata,
        "many tuples satisfy a condition that stands for a keyword": any(
            isinstance(each, Condition) for slot in query.slots for each in slot.alternatives
        ),
        "its schema has tables with a source of their own": bool(sourced(plan.schema)),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


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
        self._numbers: dict[Word, int] = {}
        self._users: Counter[Word] = Counter()
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
        self._conditioned |= {number for number, query in added.items() if query.conditions}
        return self._satisfying(self._mesh.add(asked, slots, words))

    def _carrying(self, new: Mapping[int, Slot], rows: Rows, index: LiveWords) -> tuple[Ints, Ints]:
        """The live tuples with new words: by the index, and by the texts that it does not cover."""
        few = 0 < len(new) <= FEW_WORDS
        indexed = index.label(0, matcher_of(self._schema, new), index.covered) if few else None
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
        return WordQuery(words, plan.max_size, excluded, query.without)

    def _word(self, slot: Slot, new: dict[int, Slot]) -> int:
        word = frozenset(slot.alternatives)
        number = self._numbers.get(word)
        if number is None:
            number = self._numbers[word] = self._next
            self._next += 1
            new[number] = slot
        self._users[word] += 1
        return number


def _of_words(exclusions: Sequence[Slot]) -> Iterator[Slot]:
    """What exclusions look for in texts, without conditions."""
    for slot in exclusions:
        words = tuple(each for each in slot.alternatives if not isinstance(each, Condition))
        if words:
            yield slot if len(words) == len(slot.alternatives) else replace(slot, alternatives=words)
