"""How often the keywords of a query stand in texts, each distinct chunk of text being looked at once."""

from __future__ import annotations

from collections.abc import Sequence

from skws.keywords.analysis import chunks
from skws.keywords.highlight import occurrences
from skws.keywords.prefilter import hopeless
from skws.keywords.query import Phrase, Slot
from skws.keywords.table import ChunkMemory


class OccurrenceCounts:
    """The counts of ``highlight.occurrences`` for the slots of a query in the columns of a schema."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots
        self._columns: dict[tuple[int, int], list[_SlotCounts | None]] = {}
        self._shared: dict[Slot, _SlotCounts] = {}

    def of(self, relation: int, column: int, text: str) -> tuple[int, ...]:
        """How often each slot's words, phrases and prefixes begin in a value."""
        tables = self._columns.get((relation, column))
        if tables is None:
            tables = [self._table(slot, relation, column) for slot in self._slots]
            self._columns[relation, column] = tables
        return tuple(0 if table is None else table.count(text) for table in tables)

    def _table(self, slot: Slot, relation: int, column: int) -> _SlotCounts | None:
        """The counts of a slot in a column; None if it cannot look there."""
        here = tuple(each for each in slot.alternatives if each.applies(relation, column))
        if not here:
            return None
        there = Slot(slot.text, here)
        if there not in self._shared:
            self._shared[there] = _SlotCounts(there, relation, column)
        return self._shared[there]


class _SlotCounts(ChunkMemory[int]):
    """From chunks to counts; a phrase may reach over several of them, so its texts are read whole."""

    def __init__(self, slot: Slot, relation: int, column: int) -> None:
        super().__init__()
        self._at = slot, relation, column
        self._whole = any(isinstance(each, Phrase) for each in slot.alternatives)
        self._hopeless = hopeless(slot.alternatives)
        self._analyzer = slot.alternatives[0].analyzer

    def count(self, text: str) -> int:
        if self._whole:
            return occurrences(*self._at, text)
        return sum(map(self.__getitem__, chunks(text, self._analyzer)))

    def look_up(self, chunk: str) -> int:
        return 0 if self._hopeless(chunk) else occurrences(*self._at, chunk)
