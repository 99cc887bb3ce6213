"""Results that were told and are alive, by their members, so that they can be retracted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from skws_mesh.columnar import Partials
from skws_mesh.columnar.columns import Flags, Ints
from skws_mesh.columnar.store import PartialStore
from skws_windows.window import FOREVER

Found: TypeAlias = tuple[int, int, tuple[int, ...]]
"""A result: query, operator, slots of its members."""


class LiveResults:
    """One table for each size that the largest network of a query may have."""

    def __init__(self) -> None:
        self._stores: dict[int, PartialStore] = {}

    def __len__(self) -> int:
        return sum(store.size for store in self._stores.values())

    def add(self, results: Partials) -> None:
        """Remember results."""
        width = results.members.shape[1]
        self._stores.setdefault(width, PartialStore(width)).append(results.columns())

    def held(self) -> Iterator[Partials]:
        """All that are remembered; columns are as narrow as they are kept."""
        return (store.partials for store in self._stores.values())

    def end(self, slots: Ints, ends: Ints) -> Iterator[Partials]:
        """Results that end earlier with one of the tuples in ``slots``; ``ends`` are those of all tuples."""
        for store in self._stores.values():
            places = store.end(slots, ends)
            yield store.taken(places)

    def take(self, slots: Ints) -> Iterator[Partials]:
        """Results that contain one of the tuples; they are forgotten."""
        for store in self._stores.values():
            touched: Flags = np.isin(store.partials.members, slots).any(axis=1)  # type: ignore[assignment]
            if touched.any():
                yield store.taken(touched)
                store.keep(~touched)

    def released(self, told: Callable[[Partials], Ints]) -> Iterator[tuple[Partials, Ints]]:
        """Results with the ticks at which they are told; they are forgotten. FOREVER: not yet."""
        for store in self._stores.values():
            ticks = told(store.taken(slice(None)))
            due: Flags = ticks < FOREVER
            if due.any():
                yield store.taken(due), ticks[due]
                store.keep(~due)

    def alive(self, horizon: int) -> Iterator[Partials]:
        """Results that end after ``horizon``."""
        for store in self._stores.values():
            yield store.taken(store.partials.end > horizon)

    def remove(self, query: int) -> None:
        """Forget the results of a query."""
        for store in self._stores.values():
            store.keep(store.partials.query != query)

    def mark(self, horizon: int, referred: Flags) -> None:
        """Flag the tuples, by slot, of results that end after ``horizon``."""
        for store in self._stores.values():
            store.mark(horizon, referred)

    def compact(self, horizon: int, slots: Ints) -> None:
        """Forget what ended at or before ``horizon``, tuples having got new slots."""
        for store in self._stores.values():
            store.compact(horizon, slots)
