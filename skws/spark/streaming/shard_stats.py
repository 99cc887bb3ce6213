"""What goes on inside the shards, for an onlooker of the driver: waiting partials, windows of expressions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from skws.queries.session import Session
from skws.spec.query import Query
from skws_mesh.networks import Prefix, prefix_of

if TYPE_CHECKING:
    from skws.queries.windowed.stream_windows import WindowSpan

MOST: Final = 5_000
"""Operators that a shard reports, those with the most partials: it reports with every micro-batch."""


@dataclass(frozen=True, slots=True)
class ShardStats:
    """``waiting``: partials at the operators of keyword queries, all shards together.

    ``probes``: how often partials there have looked for partners.
    ``stretches``: the windows of queries over an expression, by name.
    """

    waiting: Mapping[Prefix, int] = field(default_factory=dict)
    probes: Mapping[Prefix, int] = field(default_factory=dict)
    stretches: Mapping[str, Sequence[WindowSpan]] = field(default_factory=dict)

    @classmethod
    def of(cls, stats: Iterable[Mapping[str, Any]]) -> ShardStats | None:
        """From the stats of shards (``stats_of``); None if they were not asked."""
        seen = [one for one in stats if "partials" in one]
        if not seen:
            return None
        waiting: Counter[Prefix] = Counter()
        probes: Counter[Prefix] = Counter()
        for one in seen:
            for *prefix, partials, probed in one["partials"]:
                relations, keywords, parents, edges = map(tuple, prefix)
                waiting[relations, keywords, parents, edges] += partials
                probes[relations, keywords, parents, edges] += probed
        stretches = {name: _read(rows) for one in seen for name, rows in one["stretches"].items()}
        return cls(waiting, probes, stretches)


def stats_of(live: Session, standing: Iterable[Query]) -> dict[str, Any]:
    """Of one shard, as JSON."""
    operators = nlargest(MOST, live.used(), key=attrgetter("waiting"))
    # A query without windows has none, and one that is another shard's has none here.
    stretches = {one.name: found for one in standing if (found := live.window_spans(one.name))}
    return {
        "partials": [[*prefix_of(tree), *numbers] for tree, *numbers in operators],
        "stretches": {
            name: [[one.key, one.start, one.end] for one in found] for name, found in stretches.items()
        },
    }


def _read(rows: Iterable[Sequence[Any]]) -> tuple[WindowSpan, ...]:
    from skws.queries.windowed.stream_windows import WindowSpan  # noqa: PLC0415 - for who has a window expression

    return tuple(WindowSpan(tuple(key), start, end) for key, start, end in rows)
