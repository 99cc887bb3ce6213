"""Many results put together at once, for a fraction of what each takes alone (``Assembler.result``).

The order of what ids are made of, the texts of joins, and the tuples that
several results share are found by columns, for results of one size together.
Python is left with joining texts and hashing them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from skws.results.assemble import Named, Reading, hashed
from skws.results.model import Result, ResultTuple

Ints = npt.NDArray[np.int64]
Objects = npt.NDArray[np.object_]


def put_together(
    readings: Sequence[Reading],
    which: Ints,
    members: Ints,
    named: Sequence[Named],
    spans: Iterable[tuple[float | None, float | None]],
    *,
    snapshot: bool,
) -> list[Result]:
    """New results; ``which`` tells the reading of each, by number.

    ``members`` are their tuples as numbers in ``named``, a row a result, in the order of the network's
    tree; ``spans`` their starts and ends in seconds, None where not known.
    """
    groups = list(_by_size(readings, which, members))
    ids = _Ids(named)
    made = [id_ for group in groups for id_ in ids.of(group, readings)]
    tuples = _tuples(groups, readings, named)
    back = np.argsort(np.concatenate([[], *(group.places for group in groups)])).tolist()
    of = map(readings.__getitem__, which.tolist())
    return [
        Result("+", reading.query, made[at], start, end, reading.text, tuples[at], reading.joins, snapshot)
        for at, reading, (start, end) in zip(back, of, spans, strict=True)
    ]


class _Alike(NamedTuple):
    """Results of one size.

    ``places`` are theirs among all, ``which`` the numbers of their readings, ``ordered`` the numbers
    of their tuples in the order of these; the others are columns of the readings, a row a result.
    """

    places: Ints
    which: Ints
    ordered: Ints
    bitmaps: Ints
    left: Ints
    right: Ints
    joins: Ints


def _by_size(readings: Sequence[Reading], which: Ints, members: Ints) -> Iterator[_Alike]:
    sizes = np.array([len(reading.positions) for reading in readings], dtype=np.int64)
    for size in np.unique(sizes).tolist():
        alike = np.flatnonzero(sizes == size)
        columns = b"".join([readings[number].columns for number in alike.tolist()])
        table = np.frombuffer(columns, dtype=np.int64).reshape(len(alike), -1)
        places = np.flatnonzero(sizes[which] == size)
        rows = table.take(np.searchsorted(alike, which[places]), axis=0)
        positions, *parts = np.split(rows, np.cumsum([size, size, size - 1, size - 1]), axis=1)
        yield _Alike(places, which[places], np.take_along_axis(members[places], positions, axis=1), *parts)


class _Ids:
    """Makes ids from the names of tuples."""

    def __init__(self, named: Sequence[Named]) -> None:
        identities = [each.identity for each in named]
        order = sorted(range(len(named)), key=identities.__getitem__)
        self._texts = [identities[number] for number in order]
        self._ranks = np.empty(len(named), dtype=np.int64)
        self._ranks[order] = np.arange(len(named))

    def of(self, group: _Alike, readings: Sequence[Reading]) -> list[str]:
        """The ids of results of one size.

        The texts of joins are in the order of the names in them: where a name begins another, that one
        goes on with a digit, which comes after the separator.
        """
        texts, ranks = self._texts, self._ranks[group.ordered]
        first = np.arange(len(ranks))[:, None]
        ends = ranks[first, group.left] * len(texts) + ranks[first, group.right]
        kinds = int(group.joins.max(initial=0)) + 1
        joined = np.sort(ends * kinds + group.joins, axis=1)
        distinct, described = np.unique(joined, return_inverse=True)
        pairs, joins = np.divmod(distinct, kinds)
        left, right = np.divmod(pairs, len(texts))
        names = _join_texts(group, readings)
        parts = texts + [
            f"{texts[one]}\x1f{texts[other]}{names[join]}"
            for one, other, join in zip(left.tolist(), right.tolist(), joins.tolist(), strict=True)
        ]
        rows = np.concatenate([np.sort(ranks, axis=1), len(texts) + described.reshape(joined.shape)], axis=1)
        return list(map(hashed, _objects(parts)[rows].tolist()))


def _join_texts(group: _Alike, readings: Sequence[Reading]) -> dict[int, str]:
    """What the ids of some results have for joins, by number."""
    joins, first = np.unique(group.joins, return_index=True)
    rows, nodes = np.divmod(first, max(group.joins.shape[1], 1))
    where = zip(joins.tolist(), group.which[rows].tolist(), nodes.tolist(), strict=True)
    return {join: readings[number].connected[node][2] for join, number, node in where}


def _tuples(
    groups: Sequence[_Alike], readings: Sequence[Reading], named: Sequence[Named]
) -> list[tuple[ResultTuple, ...]]:
    """The tuples of results; each is made once for all that it brings the same keywords to."""
    queries: dict[str, int] = {}
    query = np.array([queries.setdefault(r.query, len(queries)) for r in readings], dtype=np.int64)
    numbers = _flat(group.ordered for group in groups)
    bitmaps = _flat(group.bitmaps for group in groups)
    which = _flat(np.broadcast_to(group.which[:, None], group.ordered.shape) for group in groups)
    nodes = _flat(np.broadcast_to(np.arange(group.ordered.shape[1]), group.ordered.shape) for group in groups)
    kinds = int(bitmaps.max(initial=0)) + 1
    _, first, inverse = np.unique(
        (numbers * len(queries) + query[which]) * kinds + bitmaps, return_index=True, return_inverse=True
    )
    distinct = zip(numbers[first].tolist(), which[first].tolist(), nodes[first].tolist(), strict=True)
    shown = _objects([ResultTuple.of(named[one], readings[it].carried[node]) for one, it, node in distinct])
    ends = np.cumsum([group.ordered.size for group in groups])
    found: list[tuple[ResultTuple, ...]] = []
    for group, end in zip(groups, ends.tolist(), strict=True):
        mine = inverse[end - group.ordered.size : end].reshape(group.ordered.shape)
        found += map(tuple, shown[mine].tolist())
    return found


def _flat(parts: Iterable[Ints]) -> Ints:
    return np.concatenate([np.empty(0, dtype=np.int64), *(part.ravel() for part in parts)])


def _objects(items: Sequence[Any]) -> Objects:
    return np.fromiter(items, dtype=object, count=len(items))
