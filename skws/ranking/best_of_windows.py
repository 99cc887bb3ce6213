"""The k best results of each window that the data defines.

The results of such a window come with its last record, and are over then. So
none leaves: with each window the best of the results told with it enter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter

from msgspec.structs import replace

from schema.errors import UsageError
from schema.model import Schema
from skws.ranking.best import candidate
from skws.ranking.top import TopChoice, group_namer
from skws.results.model import Place, Result


def check_over_windows(choice: TopChoice) -> None:
    """Raises UsageError for what makes no sense there."""
    if choice.append_only:
        raise UsageError("--append-only does not go with a window expression: it keeps no results anyway")


class BestOfWindows:
    """Replaces the results of one query by the best of each window."""

    def __init__(self, choice: TopChoice, schema: Schema) -> None:
        self._size = choice.size
        self._group_of = group_namer(schema) if choice.group else None

    def take(self, results: Iterable[Result]) -> Iterator[Result]:
        """Results in order; those of one tick are of one window. All of a window must come at once."""
        for _, together in groupby(results, key=attrgetter("tick")):
            yield from self._best(list(together))

    def _best(self, results: list[Result]) -> Iterator[Result]:
        ordered = [each.result for each in sorted(map(candidate, results))]
        groups: list[str | None] = [None] * len(ordered)
        if self._group_of is not None:
            groups = [self._group_of(result) for result in ordered]
        members = Counter(groups)
        told: set[str] = set()
        rank = 0
        for result, group in zip(ordered, groups, strict=True):
            if rank == self._size:
                return
            if group is not None and group in told:
                continue
            rank += 1
            folded = None
            if group is not None:
                told.add(group)
                folded = members[group] - 1
            yield replace(result, place=Place("enter", rank, result.end, group=group, folded=folded))
