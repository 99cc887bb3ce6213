"""Makes results of what a mesh finds: one by one, or many at once in a fraction of the time for each.

Of many, ids and the tuples that several results share are found by columns, for results of one size together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from skws.keywords.query import KeywordQuery
from skws.results.model import Joins, Made, Op, Result, ResultTuple
from skws.results.names import Lanes, Named, id_of, ids, lanes, mixed_lane
from skws_mesh.columnar.columns import NOTHING, Ints, cells, distinct, kinds_of, written
from skws_mesh.columnar.store import Table
from skws_mesh.networks import CandidateNetwork, Wording, carried
from skws_mesh.tree import Tree
from skws_schema.model import Schema
from skws_windows.window import FOREVER, MICROSECOND

Objects = npt.NDArray[np.object_]
Seconds = Sequence[float | None]

_MARKS: Final = tuple(map(chr, range(8)))  # in place of keywords, in which they cannot stand
_MARK: Final = re.compile("[\\0-\\7]")
_UNMET: Final = -1
_text, _joins = map(attrgetter, ("text", "joins"))


class Outline(NamedTuple):
    """How a candidate network reads, whatever the keywords.

    ``positions`` are those of the members in the tree, in reading order; ``bitmaps`` their keywords; ``text``
    is a format of all keywords. ``columns`` has bitmaps, positions, the left and the right nodes of joins,
    and the numbers of joins in the schema. The tree is kept so that its id stays its own.
    """

    tree: Tree
    positions: tuple[int, ...]
    bitmaps: tuple[int, ...]
    text: str
    joins: Joins
    columns: tuple[int, ...]


class Outlines:
    """The outlines of networks, each made once."""

    def __init__(self, schema: Schema) -> None:
        self._wording = Wording(schema, _MARKS)
        self._outlines: dict[int, Outline] = {}

    def of(self, tree: Tree) -> Outline:
        return self._outlines.get(id(tree)) or self._read(tree)

    def _read(self, tree: Tree) -> Outline:
        network = CandidateNetwork.of(tree)
        joins = self._wording.joins(network)
        left, right, _ = zip(*joins, strict=True) if joins else ((), (), ())
        numbers = [edge // 2 for edge in network.edges[1:]]
        text = self._wording.text(network).replace("{", "{{").replace("}", "}}")
        found = self._outlines[id(tree)] = Outline(
            tree,
            network.positions,
            network.keywords,
            _MARK.sub(lambda mark: f"{{{ord(mark.group())}}}", text),
            joins,
            (*network.keywords, *network.positions, *left, *right, *numbers),
        )
        return found


class Assembler:
    """Makes the results of one query, one by one."""

    def __init__(self, query: KeywordQuery, schema: Schema) -> None:
        self._query = query
        self._outlines = Outlines(schema)

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
        outline, keywords = self._outlines.of(tree), self._query.keywords
        named = [members[position] for position in outline.positions]
        return Result(
            op,
            self._query.text,
            id_of([member.digest for member in named], outline.joins),
            *seconds(start, end),
            outline.text.format(*keywords),
            tuple(map(ResultTuple, named, (carried(bitmap, keywords) for bitmap in outline.bitmaps))),
            outline.joins,
            snapshot,
        )


def seconds(start: int | None, end: int) -> tuple[float | None, float | None]:
    """A result's start and end as it shows them, from microseconds; None or FOREVER if not known."""
    return None if start is None else start / MICROSECOND, None if end >= FOREVER else end / MICROSECOND


class Readings:
    """Outlines by number, in the order in which networks were first met, with columns of all of them."""

    def __init__(self, outline: Callable[[int], Outline]) -> None:
        self._outline = outline
        self._numbers: dict[int, int] = {}  # by network, an integer
        self._outlines: list[Outline] = []
        self._of_each = Table((NOTHING, NOTHING))  # size, row among those of its size
        self._of_size: dict[int, Table] = {}

    def __len__(self) -> int:
        return len(self._outlines)

    def numbers(self, networks: Sequence[int]) -> Ints:
        """The numbers of some networks, each given once."""
        new = [network for network in networks if network not in self._numbers]
        if new:
            self._numbers.update(
                zip(new, range(len(self._outlines), len(self._outlines) + len(new)), strict=True)
            )
            self._add(list(map(self._outline, new)))
        return np.fromiter(map(self._numbers.__getitem__, networks), dtype=np.int64, count=len(networks))

    def some(self, numbers: Ints) -> list[Outline]:
        """Some of the outlines."""
        return list(map(self._outlines.__getitem__, numbers.tolist()))

    def sizes(self, numbers: Ints) -> Ints:
        """How many nodes each has."""
        return self._of_each.columns()[0].take(numbers)

    def columns(self, size: int, numbers: Ints) -> Ints:
        """``Outline.columns`` of some that have so many nodes, a row each."""
        (table,) = self._of_size[size].columns()
        return table.take(self._of_each.columns()[1].take(numbers), axis=0)

    def _add(self, new: Sequence[Outline]) -> None:
        self._outlines += new
        sizes = np.array([len(outline.positions) for outline in new], dtype=np.int64)
        rows = np.empty_like(sizes)
        for size in distinct(sizes).tolist():
            mine = np.flatnonzero(sizes == size)
            table = np.array([new[place].columns for place in mine.tolist()], dtype=np.int64)
            kept = self._of_size.setdefault(size, Table((np.empty((0, table.shape[1]), dtype=np.int64),)))
            rows[mine] = kept.append((table,)) + np.arange(len(mine))
        self._of_each.append((sizes, rows))


class ShownQueries:
    """What results show of their queries, by number; each is read when it is first met.

    ``query`` gives a query, and the number of the mesh whose networks it shares.
    """

    def __init__(self, query: Callable[[int], tuple[KeywordQuery, int]]) -> None:
        self._query = query
        self._places: Ints = NOTHING  # by number; negative where it was not met
        self._known: list[tuple[str, ...]] = []  # keywords
        self._texts: Objects = np.empty(0, dtype=object)
        self._keywords: Objects = np.empty((0, 0), dtype=object)  # a row each, as many as any query has
        self._meshes = Table((NOTHING, NOTHING))  # and where the query's cells begin
        self._cells = Table((NOTHING,))  # by query and bitmap: the number of the keywords, once asked for
        self._numbers: dict[tuple[str, ...], int] = {}
        self.sets: list[tuple[str, ...]] = []
        """Keywords by the numbers that ``brought`` gives."""

    def __len__(self) -> int:
        return len(self._known)

    def places(self, queries: Ints) -> Ints:
        if int(queries.max(initial=-1)) >= len(self._places):
            more = np.full(int(queries.max()) + 1, _UNMET, dtype=np.int64)
            self._places = written(more, 0, self._places)
        found = self._places.take(queries)
        unmet = distinct(queries[found == _UNMET])
        if len(unmet):
            self._meet(unmet)
            found = self._places.take(queries)
        return found

    def forget(self, query: int) -> None:
        """A query is met anew next time; its place is not used again."""
        if query < len(self._places):
            self._places[query] = _UNMET

    def meshes(self, places: Ints) -> Ints:
        """The numbers of the meshes that the queries share."""
        return self._meshes.columns()[0].take(places)

    def texts(self, places: Ints) -> list[str]:
        found: list[str] = self._texts.take(places).tolist()
        return found

    def keywords(self, places: Ints) -> list[list[str]]:
        """A column for each keyword; empty texts where queries have fewer."""
        return [column.take(places).tolist() for column in self._keywords.T]

    def brought(self, places: Ints, bitmaps: Ints) -> Ints:
        """Numbers of the keywords in bitmaps, a row for each query; equal ones of several have one number."""
        (numbers,) = self._cells.columns()
        cells = self._meshes.columns()[1].take(places)[:, None] + bitmaps
        found = numbers.take(cells)
        new = distinct(cells[found == _UNMET])
        if len(new):
            numbers[new] = self._numbered(new)
            found = numbers.take(cells)
        return found

    def _numbered(self, cells: Ints) -> list[int]:
        _, first = self._meshes.columns()
        places = np.searchsorted(first, cells, side="right") - 1
        keywords = map(self._known.__getitem__, places.tolist())
        asked = list(map(carried, (cells - first.take(places)).tolist(), keywords))
        for each in asked:
            if each not in self._numbers:
                self._numbers[each] = len(self.sets)
                self.sets.append(each)
        return list(map(self._numbers.__getitem__, asked))

    def _meet(self, queries: Ints) -> None:
        met = list(map(self._query, queries.tolist()))
        known, new = len(self._known), [query.keywords for query, _ in met]
        self._places[queries] = np.arange(known, known + len(met))
        self._known += new
        self._texts = written(self._texts, known, _objects([query.text for query, _ in met]))
        width = max(self._keywords.shape[1], *map(len, new))
        if width > self._keywords.shape[1]:
            wider = np.full((len(self._keywords), width - self._keywords.shape[1]), "", dtype=object)
            self._keywords = np.column_stack([self._keywords, wider])
        rows = np.array([(*keywords, *("",) * (width - len(keywords))) for keywords in new], dtype=object)
        self._keywords = written(self._keywords, known, rows)
        sizes = 1 << np.array(list(map(len, new)), dtype=np.int64)
        numbers = np.array([number for _, number in met], dtype=np.int64)
        self._meshes.append((numbers, self._cells.size + np.cumsum(sizes) - sizes))
        self._cells.append((np.full(int(sizes.sum()), _UNMET, dtype=np.int64),))


class Unformed(NamedTuple):
    """Results before they are formed, a row each.

    ``networks``: numbers of their outlines; ``queries``: places of their queries. ``members`` are their
    tuples as numbers in ``named``, in the order of the network's tree.
    """

    networks: Ints
    queries: Ints
    members: Ints
    named: Sequence[Named]


def put_together(
    op: Op,
    rows: Unformed,
    readings: Readings,
    shown: ShownQueries,
    joins: Lanes,
    starts: Seconds,
    ends: Seconds,
    *,
    snapshot: bool = False,
) -> tuple[list[Result], Lanes]:
    """Results, and numbers that are in the order of their ids.

    ``joins``: the digests of the schema's joins; ``starts`` and ``ends`` are None where not known.
    """
    digests = lanes([each.digest for each in rows.named])
    number, groups = len(rows.networks), list(_by_size(readings, rows))
    leading, identities = np.empty(number, dtype=np.uint64), np.empty(number, dtype=object)
    for group in groups:
        leading[group.places], identities[group.places] = ids(
            digests, group.ordered, joins, (group.left, group.right, group.joins)
        )
    if not len(starts) == len(ends) == number:
        raise ValueError(f"{number} results, {len(starts)} starts, {len(ends)} ends")
    # By map, since a loop of Python takes as long again.
    results = map(
        Result,
        repeat(op),
        shown.texts(rows.queries),
        identities.tolist(),
        starts,
        ends,
        repeat(_Parts(rows, groups, readings, shown)),
        range(number),
        repeat(()),
        repeat(snapshot),
    )
    return list(results), leading


class _Parts:
    """What some results are made of: all at once, when the first of them is asked for it.

    That may be in another thread, so ``shown`` and ``readings`` are only read then.
    """

    __slots__ = ("_alike", "_made", "_readings", "_rows", "_shown")

    def __init__(
        self, rows: Unformed, groups: Sequence[_Alike], readings: Readings, shown: ShownQueries
    ) -> None:
        self._rows = rows
        self._readings = readings
        self._shown = shown
        self._alike: list[tuple[Ints, Ints, Ints]] | None = [
            (each.places, each.ordered, shown.brought(rows.queries.take(each.places), each.bitmaps))
            for each in groups
        ]
        self._made: list[Made] = []

    def of(self, row: int) -> Made:
        """The network, tuples and joins of one."""
        alike = self._alike
        if alike is not None:
            self._made = self._make(alike)
            self._alike = None
        return self._made[row]

    def _make(self, alike: Sequence[tuple[Ints, Ints, Ints]]) -> list[Made]:
        rows, outlines = self._rows, self._readings.some(self._rows.networks)
        tuples = np.empty(len(outlines), dtype=object)
        for (places, _, _), made in zip(alike, self._tuples(alike), strict=True):
            tuples[places] = made
        networks = map(str.format, map(_text, outlines), *self._shown.keywords(rows.queries))
        return list(zip(networks, tuples.tolist(), map(_joins, outlines), strict=True))

    def _tuples(self, alike: Sequence[tuple[Ints, Ints, Ints]]) -> Iterator[Objects]:
        """The tuples of results of each size; each is made once for all that it brings equal keywords to."""
        numbers, brought = (_flat(each[part] for each in alike) for part in (1, 2))
        keywords = self._shown.sets
        first, inverse = kinds_of(numbers * len(keywords) + brought)
        described = map(self._rows.named.__getitem__, numbers[first].tolist())
        made = _objects(list(map(ResultTuple, described, map(keywords.__getitem__, brought[first].tolist()))))
        ends = np.cumsum([ordered.size for _, ordered, _ in alike]).tolist()
        for (_, ordered, _), end in zip(alike, ends, strict=True):
            mine = inverse[end - ordered.size : end].reshape(ordered.shape)
            yield _objects(list(map(tuple, made.take(mine).tolist())))


def leading_lanes(rows: Unformed, readings: Readings, joins: Lanes) -> Lanes:
    """The numbers that ``put_together`` gives besides the results, without making these."""
    digests = lanes([each.digest for each in rows.named])
    leading = np.empty(len(rows.networks), dtype=np.uint64)
    for group in _by_size(readings, rows):
        leading[group.places] = mixed_lane(
            digests, group.ordered, joins, (group.left, group.right, group.joins), 0
        )
    return leading


class _Alike(NamedTuple):
    """Results of one size.

    ``places`` are theirs among all, ``ordered`` the numbers of their tuples, ``bitmaps`` the keywords that
    these bring; the others are columns of the outlines, a row a result.
    """

    places: Ints
    ordered: Ints
    bitmaps: Ints
    left: Ints
    right: Ints
    joins: Ints


def _by_size(readings: Readings, rows: Unformed) -> Iterator[_Alike]:
    sizes = readings.sizes(rows.networks)
    for size in distinct(sizes).tolist():
        places = np.flatnonzero(sizes == size)
        columns = readings.columns(size, rows.networks.take(places))
        bitmaps, positions = columns[:, :size], columns[:, size : 2 * size]
        left, right, names = columns[:, 2 * size :].reshape(len(places), 3, size - 1).transpose(1, 0, 2)
        ordered = cells(rows.members, places[:, None], positions)
        yield _Alike(places, ordered, bitmaps, left, right, names)


def _flat(parts: Iterable[Ints]) -> Ints:
    return np.concatenate([np.empty(0, dtype=np.int64), *(part.ravel() for part in parts)])


def _objects(items: Sequence[Any]) -> Objects:
    return np.fromiter(items, dtype=object, count=len(items))
