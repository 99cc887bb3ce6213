"""Searches over the live tuples of an operator and all rows of its tables with a source.

An operator only has those rows of such tables that its standing queries need (``indexed_rows.py``). A search
may need any other row. So searches have a separate store: its first tuples are all rows of the tables, in
columns that are mapped from a file, like those of a database; after them come copies of the tuples of the
stream, which are synchronized with the operator before each search and share their rows with the originals.
The store is created at the first search.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

import numpy as np

from skws.store.live_store import LiveStore
from skws_mesh.columnar.columns import NOTHING, Ints
from skws_purging.lifespans import ALWAYS

if TYPE_CHECKING:
    from skws.queries.keywords.keyword_operator import KeywordOperator
    from skws.queries.keywords.searching import LiveSearch

_NO_SLOT: Final = -1


class TableSearch:
    """The search. ``new``: makes an operator without queries that begins with the rows of ``tables``.

    The store is made again with more than ``dead_copies`` dead copies of tuples, or with the words of more
    than ``stored_texts`` texts of tables in memory.
    """

    def __init__(
        self,
        new: Callable[[], KeywordOperator],
        tables: Collection[int],
        dead_copies: int,
        stored_texts: int,
    ) -> None:
        self._new_operator = new
        self._most_dead_copies, self._most_stored_texts = dead_copies, stored_texts
        self._tables = list(tables)
        self._operator: KeywordOperator | None = None
        self._begin()

    def _begin(self) -> None:
        self._stored_count = 0  # tuples that are rows of tables
        self._slots: Ints = NOTHING  # by copy: the slot of the original in the operator; _NO_SLOT if removed
        self._examined = 0  # slots of the operator that were examined

    def over(self, store: LiveStore, now: int) -> LiveSearch:
        """The search over the tuples of ``store`` that are alive at ``now``, and all rows of tables."""
        operator, self._operator = self._operator, None  # made again if anything here fails
        if operator is None or self._is_worn(operator):
            self._begin()
            operator = self._new_operator()
            self._stored_count = len(operator.store)
        self._end(operator, store)
        self._copy(operator, store, now)
        self._operator = operator
        return operator.searches

    def compact(self, slots: Ints) -> None:
        """The operator's tuples have new slots, in the same order; removed ones have negative slots."""
        copies = np.flatnonzero(self._slots != _NO_SLOT)
        self._slots[copies] = slots.take(self._slots.take(copies))
        self._examined = int(np.count_nonzero(slots[: self._examined] >= 0))

    def _is_worn(self, operator: KeywordOperator) -> bool:
        """True if most copies are dead, or the words of very many texts of table rows are in memory."""
        dead_copies = np.count_nonzero(self._slots == _NO_SLOT)
        has_many_texts = operator.searches.words.stored_texts > self._most_stored_texts
        return bool(dead_copies > max(self._most_dead_copies, len(self._slots) // 2) or has_many_texts)

    def _end(self, operator: KeywordOperator, store: LiveStore) -> None:
        """End the copies of tuples that have ended."""
        own_ends = operator.store.live.tuples.end[self._stored_count :]
        is_live = self._slots != _NO_SLOT
        ends = np.full(len(self._slots), ALWAYS)
        ends[is_live] = store.live.tuples.end.take(self._slots[is_live])
        changed_copies = np.flatnonzero(ends != own_ends)
        if len(changed_copies):
            operator.end(changed_copies + self._stored_count, ends.take(changed_copies))

    def _copy(self, operator: KeywordOperator, store: LiveStore, now: int) -> None:
        """Copy the tuples of the stream that are new and alive."""
        tuples = store.live.tuples
        new = slice(self._examined, None)
        is_copied = (tuples.end[new] > now) & ~np.isin(tuples.relation[new], self._tables)
        slots = np.flatnonzero(is_copied) + self._examined
        slots = slots.take(np.argsort(tuples.start.take(slots), kind="stable"))
        if len(slots):
            operator.insert(store.batch_of(slots))
        self._slots = np.concatenate([self._slots, slots])
        self._examined = len(store)
