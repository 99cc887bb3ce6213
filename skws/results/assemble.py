"""Makes results of what a mesh finds: one by one, or many at once in a fraction of the time for each.

Of many, ids and the tuples that several results share are found by columns, for results of one size together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from skws.keywords.query import KeywordQuery, Slot
from skws.results.ids import Lanes, id_of, ids, lanes, mixed_lane
from skws.results.model import Op, Result, ResultTuple
from skws.results.names import Named
from skws_mesh.columnar.columns import NOTHING, Ints, cells, distinct, kinds_of
from skws_mesh.columnar.store import Table
from skws_mesh.networks import CandidateNetwork, Wording, carried
from skws_mesh.tree import Tree
from skws_schema.model import Schema
from skws_windows.window import FOREVER, MICROSECOND

Joins: TypeAlias = tuple[tuple[int, int, str], ...]
Objects = npt.NDArray[np.object_]
Seconds = Sequence[float | None]

_query, _text, _joins = map(attrgetter, ("query", "text", "joins"))


class Reading(NamedTuple):
    """How a candidate network reads: the members in their order, the keywords of each, the text, the joins.

    ``positions`` are those of the members in the tree, which is kept so that its id stays its own.
    ``columns`` has the positions, the left and the right nodes of joins, and the numbers of joins
    in the schema.
    """

    tree: Tree
    query: str
    positions: tuple[int, ...]
    carried: tuple[tuple[str, ...], ...]
    text: str
    joins: Joins
    columns: tuple[int, ...]


_MARKS: Final = ("\0", "\1")  # in place of keywords, in which they cannot stand
_MARK: Final = re.compile("([\0\1])")


class Assembler:
    """Makes the results of one query; remembers how each candidate network reads."""

    def __init__(self, query: KeywordQuery, schema: Schema) -> None:
        self._query = query.text
        self._wording = Wording(schema, query.keywords)
        self._carried = cache(partial(carried, keywords=query.keywords))
        self._readings: dict[int, Reading] = {}

    def result(
        self,
        op: Op,
        tree: Tree,
        members: Sequence[Named],
        start: int | None,
        end: int,
        snapshot: bool = False,
    ) -> Result:
        """``members`` in the order of the tree; times in microseconds, None or FOREVER if not known."""
        reading = self.reading(tree)
        named = [members[position] for position in reading.positions]
        return Result(
            op,
            reading.query,
            id_of([member.digest for member in named], reading.joins),
            *seconds(start, end),
            reading.text,
            tuple(map(ResultTuple, named, reading.carried)),
            reading.joins,
            snapshot,
        )

    def reading(self, tree: Tree) -> Reading:
        """How the network of a tree reads."""
        return self._readings.get(id(tree)) or self._read(tree)

    def _read(self, tree: Tree) -> Reading:
        network = CandidateNetwork.of(tree)
        joins = self._wording.joins(network)
        left, right, _ = zip(*joins, strict=True) if joins else ((), (), ())
        numbers = [edge // 2 for edge in network.edges[1:]]
        reading = self._readings[id(tree)] = Reading(
            tree,
            self._query,
            network.positions,
            tuple(map(self._carried, network.keywords)),
            self._wording.text(network),
            joins,
            (*network.positions, *left, *right, *numbers),
        )
        return reading


class PathReadings:
    """How networks without branches read, for any query of at most two keywords.

    What does not depend on the query is found once for each network.
    """

    def __init__(self, schema: Schema) -> None:
        self._assembler = Assembler(KeywordQuery("", tuple(Slot(mark, ()) for mark in _MARKS)), schema)
        self._outlines: dict[int, _Outline] = {}

    def reading(self, tree: Tree, query: str, keywords: tuple[str, ...]) -> Reading:
        """How the network of a tree reads for a query."""
        outline = self._outlines.get(id(tree)) or self._outline(tree)
        brought = ((), keywords[:1], keywords[1:], keywords)
        parts = outline.parts.copy()
        for place, keyword in outline.marks:
            parts[place] = keywords[keyword]
        carried, text = tuple(map(brought.__getitem__, outline.bitmaps)), "".join(parts)
        return Reading(tree, query, outline.positions, carried, text, outline.joins, outline.columns)

    def _outline(self, tree: Tree) -> _Outline:
        reading = self._assembler.reading(tree)
        parts = _MARK.split(reading.text)
        found = self._outlines[id(tree)] = _Outline(
            reading.positions,
            CandidateNetwork.of(tree).keywords,
            parts,
            [(place, _MARKS.index(parts[place])) for place in range(1, len(parts), 2)],
            reading.joins,
            reading.columns,
        )
        return found


class _Outline(NamedTuple):
    """What a reading has whatever the keywords; ``marks``: which of the text's parts are which keyword."""

    positions: tuple[int, ...]
    bitmaps: tuple[int, ...]
    parts: list[str]
    marks: list[tuple[int, int]]
    joins: Joins
    columns: tuple[int, ...]


def seconds(start: int | None, end: int) -> tuple[float | None, float | None]:
    """A result's start and end as it shows them, from microseconds; None or FOREVER if not known."""
    return None if start is None else start / MICROSECOND, None if end >= FOREVER else end / MICROSECOND


class Readings:
    """How networks read, by number, in the order in which their networks were first met.

    Columns hold what all results of a network have in common. A network is an
    integer; ``reading`` makes the reading of a new one.
    """

    def __init__(self, reading: Callable[[int], Reading]) -> None:
        self._reading = reading
        self._numbers: dict[int, int] = {}  # by network
        self._readings: list[Reading] = []
        self._carried: dict[tuple[str, ...], int] = {}  # keywords that a member brings
        self._of_each = Table((NOTHING, NOTHING))  # size, row among those of its size
        self._of_size: dict[int, Table] = {}

    def __getitem__(self, number: int) -> Reading:
        return self._readings[number]

    def __len__(self) -> int:
        return len(self._readings)

    def numbers(self, networks: Sequence[int]) -> Ints:
        """The numbers of some networks, each given once."""
        new = [network for network in networks if network not in self._numbers]
        if new:
            self._numbers.update(
                zip(new, range(len(self._readings), len(self._readings) + len(new)), strict=True)
            )
            self._add(list(map(self._reading, new)))
        return np.fromiter(map(self._numbers.__getitem__, networks), dtype=np.int64, count=len(networks))

    def some(self, numbers: Ints) -> list[Reading]:
        """Some of the readings."""
        return list(map(self._readings.__getitem__, numbers.tolist()))

    def sizes(self, numbers: Ints) -> Ints:
        """How many nodes each has."""
        return self._of_each.columns()[0].take(numbers)

    @property
    def brought(self) -> list[tuple[str, ...]]:
        """The keywords that members bring, by number."""
        return list(self._carried)

    def columns(self, size: int, numbers: Ints) -> Ints:
        """The columns of some that have so many nodes, a row each.

        The numbers of the keywords that the members bring, then ``Reading.columns``.
        """
        (table,) = self._of_size[size].columns()
        return table.take(self._of_each.columns()[1].take(numbers), axis=0)

    def _add(self, new: Sequence[Reading]) -> None:
        self._readings += new
        sizes = np.array([len(reading.positions) for reading in new], dtype=np.int64)
        rows = np.empty_like(sizes)
        for size in distinct(sizes).tolist():
            mine = np.flatnonzero(sizes == size)
            some = list(map(new.__getitem__, mine.tolist()))
            keywords = [self._number(each) for reading in some for each in reading.carried]
            table = np.column_stack(
                [
                    np.array(keywords, dtype=np.int64).reshape(len(some), size),
                    np.array([reading.columns for reading in some], dtype=np.int64),
                ]
            )
            kept = self._of_size.setdefault(size, Table((np.empty((0, table.shape[1]), dtype=np.int64),)))
            rows[mine] = kept.append((table,)) + np.arange(len(mine))
        self._of_each.append((sizes, rows))

    def _number(self, keywords: tuple[str, ...]) -> int:
        return self._carried.setdefault(keywords, len(self._carried))


def put_together(
    readings: Readings,
    which: Ints,
    members: Ints,
    named: Sequence[Named],
    joins: Lanes,
    starts: Seconds,
    ends: Seconds,
    *,
    snapshot: bool,
) -> tuple[list[Result], Lanes]:
    """New results, and numbers that are in the order of their ids; ``which``: each one's reading, by number.

    ``members`` are their tuples as numbers in ``named``, a row a result, in the order of the network's
    tree; ``joins`` the digests of the schema's joins; ``starts`` and ``ends`` are None where not known.
    """
    groups = list(_by_size(readings, which, members))
    digests = lanes([each.digest for each in named])
    identified = [ids(digests, g.ordered, joins, (g.left, g.right, g.joins)) for g in groups]
    made = list(chain.from_iterable(some for _, some in identified))
    tuples = _tuples(groups, readings, named)
    back = np.empty(len(which), dtype=np.int64)
    back[_flat(group.places for group in groups)] = np.arange(len(which))
    at, of = back.tolist(), readings.some(which)
    if not len(starts) == len(ends) == len(of):
        raise ValueError(f"{len(of)} results, {len(starts)} starts, {len(ends)} ends")
    # By map, since a loop of Python takes as long again.
    results = map(
        Result,
        repeat("+"),
        map(_query, of),
        map(made.__getitem__, at),
        starts,
        ends,
        map(_text, of),
        map(tuples.__getitem__, at),
        map(_joins, of),
        repeat(snapshot),
    )
    leading = np.concatenate([np.empty(0, dtype=np.uint64), *(first for first, _ in identified)])
    return list(results), leading.take(back)


def leading_lanes(
    readings: Readings, which: Ints, members: Ints, named: Sequence[Named], joins: Lanes
) -> Lanes:
    """The numbers that ``put_together`` gives besides the results, without making these."""
    digests = lanes([each.digest for each in named])
    leading = np.empty(len(which), dtype=np.uint64)
    for group in _by_size(readings, which, members):
        leading[group.places] = mixed_lane(
            digests, group.ordered, joins, (group.left, group.right, group.joins), 0
        )
    return leading


class _Alike(NamedTuple):
    """Results of one size.

    ``places`` are theirs among all, ``ordered`` the numbers of their tuples, ``brought`` those of the
    keywords that these bring; the others are columns of the readings, a row a result.
    """

    places: Ints
    ordered: Ints
    brought: Ints
    left: Ints
    right: Ints
    joins: Ints


def _by_size(readings: Readings, which: Ints, members: Ints) -> Iterator[_Alike]:
    sizes = readings.sizes(which)
    for size in distinct(sizes).tolist():
        places = np.flatnonzero(sizes == size)
        columns = readings.columns(size, which.take(places))
        brought, positions = columns[:, :size], columns[:, size : 2 * size]
        left, right, names = columns[:, 2 * size :].reshape(len(places), 3, size - 1).transpose(1, 0, 2)
        yield _Alike(places, cells(members, places[:, None], positions), brought, left, right, names)


def _tuples(
    groups: Sequence[_Alike], readings: Readings, named: Sequence[Named]
) -> list[tuple[ResultTuple, ...]]:
    """The tuples of results; each is made once for all that it brings the same keywords to."""
    keywords = readings.brought
    brought = _flat(group.brought for group in groups)
    numbers = _flat(group.ordered for group in groups)
    first, inverse = kinds_of(numbers * len(keywords) + brought)
    described = map(named.__getitem__, numbers[first].tolist())
    shown = _objects(list(map(ResultTuple, described, map(keywords.__getitem__, brought[first].tolist()))))
    ends = np.cumsum([group.ordered.size for group in groups])
    found: list[tuple[ResultTuple, ...]] = []
    for group, end in zip(groups, ends.tolist(), strict=True):
        mine = inverse[end - group.ordered.size : end].reshape(group.ordered.shape)
        found += map(tuple, shown.take(mine).tolist())
    return found


def _flat(parts: Iterable[Ints]) -> Ints:
    return np.concatenate([np.empty(0, dtype=np.int64), *(part.ravel() for part in parts)])


def _objects(items: Sequence[Any]) -> Objects:
    return np.fromiter(items, dtype=object, count=len(items))
