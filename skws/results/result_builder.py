"""Makes results from the tuples that a mesh finds, one by one, or many at once in a fraction of the time.

For many results of one size, ids and shared tuples are computed by columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from skws.keywords.plan import Plan
from skws.results.names import Lanes, Named, ids, lanes, shown_ids
from skws.results.result import Joins, Made, Op, Result, ResultTuple
from skws_mesh.candidate_networks import CandidateNetwork, Wording, keywords_in
from skws_mesh.columnar.columns import NOTHING, Ints, distinct, kinds_of, write
from skws_mesh.columnar.store import Table
from skws_mesh.tree import Tree
from skws_schema.model import Schema
from skws_windows.window import FOREVER, MICROSECOND

Objects = npt.NDArray[np.object_]
Seconds = Sequence[float | None]

_MARKS: Final = tuple(map(chr, range(8)))  # placeholders of keywords, which never contain these characters
_MARK: Final = re.compile("[\\0-\\7]")
_NO_INDEX: Final = -1
_text, _joins, _query_name, _query_text = map(attrgetter, ("text", "joins", "called", "query.text"))


class NetworkTemplate(NamedTuple):
    """The text of a candidate network, independent of the keywords.

    ``positions``: the positions of the members in the tree, in reading order; ``bitmaps``: their keywords;
    ``text``: a format for the keywords. ``columns``: bitmaps, positions, the left and the right nodes of
    joins, and the numbers of joins in the schema. The reference to the tree keeps its ``id`` from being
    reused.
    """

    tree: Tree
    positions: tuple[int, ...]
    bitmaps: tuple[int, ...]
    text: str
    joins: Joins
    columns: tuple[int, ...]


class NetworkTemplates:
    """The templates of networks, each made once."""

    def __init__(self, schema: Schema) -> None:
        self._wording = Wording(schema, _MARKS)
        self._templates: dict[int, NetworkTemplate] = {}

    def of(self, tree: Tree) -> NetworkTemplate:
        return self._templates.get(id(tree)) or self._read(tree)

    def clear(self) -> None:
        """Forget the templates, and the networks that they keep."""
        self._templates.clear()

    def _read(self, tree: Tree) -> NetworkTemplate:
        network = CandidateNetwork.of(tree)
        joins = self._wording.joins(network)
        left_nodes, right_nodes, _ = zip(*joins, strict=True) if joins else ((), (), ())
        numbers = [edge // 2 for edge in network.edges[1:]]
        text = self._wording.text(network).replace("{", "{{").replace("}", "}}")
        template = self._templates[id(tree)] = NetworkTemplate(
            tree,
            network.positions,
            network.keywords,
            _MARK.sub(lambda mark: f"{{{ord(mark.group())}}}", text),
            joins,
            (*network.keywords, *network.positions, *left_nodes, *right_nodes, *numbers),
        )
        return template


def seconds(start: int | None, end: int) -> tuple[float | None, float | None]:
    """A result's start and end in seconds, from microseconds; None or FOREVER if unknown."""
    return None if start is None else start / MICROSECOND, None if end >= FOREVER else end / MICROSECOND


class Interpretations:
    """Templates by number, in order of the networks' first occurrence, with columns of all of them."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}  # by network, an integer
        self._templates: list[NetworkTemplate] = []
        self._sizes_and_rows = Table((NOTHING, NOTHING))  # size, row among the templates of this size
        self._tables_by_size: dict[int, Table] = {}

    def __len__(self) -> int:
        return len(self._templates)

    def numbers(self, networks: Sequence[int], make_template: Callable[[int], NetworkTemplate]) -> Ints:
        """The numbers of distinct networks. ``make_template``: for a new one."""
        new_networks = [network for network in networks if network not in self._numbers]
        if new_networks:
            self._numbers.update(
                zip(
                    new_networks,
                    range(len(self._templates), len(self._templates) + len(new_networks)),
                    strict=True,
                )
            )
            self._add(list(map(make_template, new_networks)))
        return np.fromiter(map(self._numbers.__getitem__, networks), dtype=np.int64, count=len(networks))

    def templates(self, numbers: Ints) -> list[NetworkTemplate]:
        """The templates with these numbers."""
        return list(map(self._templates.__getitem__, numbers.tolist()))

    def sizes(self, numbers: Ints) -> Ints:
        """The number of nodes of each template."""
        return self._sizes_and_rows.columns()[0].take(numbers)

    def columns(self, size: int, numbers: Ints) -> Ints:
        """``NetworkTemplate.columns`` of networks of one size, one column per network."""
        (table,) = self._tables_by_size[size].columns()
        return table.T.take(self._sizes_and_rows.columns()[1].take(numbers), axis=1)

    def _add(self, templates: Sequence[NetworkTemplate]) -> None:
        self._templates += templates
        sizes = np.array([len(template.positions) for template in templates], dtype=np.int64)
        rows = np.empty_like(sizes)
        for size in distinct(sizes).tolist():
            template_rows = np.flatnonzero(sizes == size)
            table = np.array([templates[index].columns for index in template_rows.tolist()], dtype=np.int64)
            same_size = self._tables_by_size.setdefault(
                size, Table((np.empty((0, table.shape[1]), dtype=np.int64),))
            )
            rows[template_rows] = same_size.append((table,)) + np.arange(len(template_rows))
        self._sizes_and_rows.append((sizes, rows))


DescribeQueries: TypeAlias = Callable[[list[int]], tuple[list[Plan], list[int]]]
"""Looks up queries, and the number of the mesh whose networks each shares."""


class ResultLabels:
    """The names, texts and keywords of queries for results, by number; read at the first use of a query."""

    def __init__(self) -> None:
        self._indices: Ints = NOTHING  # by number; negative for queries that have not occurred
        self._plans: list[Plan] = []
        self._names: Objects = np.empty(0, dtype=object)
        self._texts: Objects = np.empty(0, dtype=object)
        self._meshes: Ints = NOTHING

    def __len__(self) -> int:
        return len(self._plans)

    def places(self, queries: Ints, describe: DescribeQueries) -> Ints:
        """The indices of queries here. ``describe`` looks up new queries."""
        if int(queries.max(initial=-1)) >= len(self._indices):
            places = np.full(int(queries.max()) + 1, _NO_INDEX, dtype=np.int64)
            self._indices = write(places, 0, self._indices)
        indices = self._indices.take(queries)
        new_queries = distinct(queries[indices == _NO_INDEX])
        if len(new_queries):
            self._add(new_queries, describe)
            indices = self._indices.take(queries)
        return indices

    def forget(self, query: int) -> None:
        """Forget a query; its index is not reused."""
        if query < len(self._indices):
            self._indices[query] = _NO_INDEX

    def meshes(self, places: Ints) -> Ints:
        """The numbers of the meshes that the queries share."""
        return self._meshes.take(places)

    def names(self, places: Ints) -> list[str]:
        names: list[str] = self._names.take(places).tolist()
        return names

    def texts(self, places: Ints) -> list[str]:
        texts: list[str] = self._texts.take(places).tolist()
        return texts

    def keywords(self, places: Ints) -> list[tuple[str, ...]]:
        """The keywords of the queries."""
        return [self._plans[place].keywords for place in places.tolist()]

    def _add(self, queries: Ints, describe: DescribeQueries) -> None:
        plans, numbers = describe(queries.tolist())
        first = len(self._plans)
        self._indices[queries] = np.arange(first, first + len(plans))
        self._plans += plans
        self._names = write(self._names, first, _objects(list(map(_query_name, plans))))
        self._texts = write(self._texts, first, _objects(list(map(_query_text, plans))))
        self._meshes = write(self._meshes, first, np.array(numbers, dtype=np.int64))


class ResultColumns(NamedTuple):
    """Results as columns, one row per result.

    ``networks``: the numbers of their templates. ``queries``: the indices of their queries. ``members``:
    their tuples as numbers in ``named``, in the order of the network's tree.
    """

    networks: Ints
    queries: Ints
    members: Ints
    named: Sequence[Named]


_DEFAULTS: Final = tuple(map(repeat, Result.__struct_defaults__[1:-1]))
"""The defaults of the fields between ``snapshot`` and ``until``, for any number of new results."""


class ResultBuilder:
    """Builds results. ``joins``: the digests of the schema's joins. ``ids``: the digests of the results."""

    def __init__(
        self, rows: ResultColumns, interpretations: Interpretations, labels: ResultLabels, joins: Lanes
    ) -> None:
        self._rows = rows
        self._interpretations = interpretations
        self._labels = labels
        digests = lanes([each.digest for each in rows.named])
        self.ids = np.empty((2, len(rows.networks)), dtype=np.uint64)
        for size_group in _by_size(interpretations, rows):
            ends = size_group.left, size_group.right, size_group.joins
            self.ids[:, size_group.places] = ids(digests, size_group.tuples, joins, ends)

    def results(
        self,
        op: Op,
        rows: Ints,
        starts: Seconds,
        ends: Seconds,
        *,
        snapshot: bool = False,
        until: Iterable[float | None] = repeat(None),
    ) -> list[Result]:
        """Some of the results, with their lifespans (None if unknown). ``until``: as in ``Result``."""
        if not len(starts) == len(ends) == len(rows):
            raise ValueError(f"{len(rows)} results, {len(starts)} starts, {len(ends)} ends")
        queries = self._rows.queries.take(rows)
        # With map, since a Python loop takes twice as long.
        results = map(
            Result,
            repeat(op),
            self._labels.names(queries),
            self._labels.texts(queries),
            shown_ids(self.ids.take(rows, axis=1)),
            starts,
            ends,
            repeat(_Parts(self._rows, self._interpretations, self._labels)),
            rows.tolist(),
            repeat(()),
            repeat(snapshot),
            *_DEFAULTS,
            until,
        )
        return list(results)


class _Parts:
    """The parts of some results, made together when the first one is needed.

    That may be in another thread, so ``labels`` and ``interpretations`` are only read.
    """

    __slots__ = ("_interpretations", "_labels", "_parts", "_rows")

    def __init__(self, rows: ResultColumns, interpretations: Interpretations, labels: ResultLabels) -> None:
        self._rows = rows
        self._interpretations = interpretations
        self._labels = labels
        self._parts: list[Made] | None = None

    def of(self, row: int) -> Made:
        """The network, tuples and joins of one result."""
        if self._parts is None:
            self._parts = self._make()
        return self._parts[row]

    def _make(self) -> list[Made]:
        templates = self._interpretations.templates(self._rows.networks)
        queries, query_numbers = kinds_of(self._rows.queries)
        keywords = self._labels.keywords(self._rows.queries.take(queries))
        texts = zip(map(_text, templates), map(keywords.__getitem__, query_numbers.tolist()), strict=True)
        networks = [text.format(*query_keywords) for text, query_keywords in texts]
        size_groups = list(_by_size(self._interpretations, self._rows))
        tuples = np.empty(len(templates), dtype=object)
        for size_group, tuples_of_group in zip(
            size_groups, self._tuples(size_groups, query_numbers, keywords), strict=True
        ):
            tuples[size_group.places] = tuples_of_group
        return list(zip(networks, tuples.tolist(), map(_joins, templates), strict=True))

    def _tuples(
        self, size_groups: Sequence[_SizeGroup], query_numbers: Ints, keywords: Sequence[tuple[str, ...]]
    ) -> Iterator[Objects]:
        """The tuples of results of each size; one is shared by all results in which it has the same keywords.

        ``query_numbers``: for each result the index of its query's ``keywords``.
        """
        numbers, bitmaps = (_flat(each[part] for each in size_groups) for part in (1, 2))
        keyword_rows = np.flatnonzero(bitmaps)
        bitmaps, most = bitmaps.take(keyword_rows), int(bitmaps.max(initial=0)) + 1
        result_queries = _flat(
            np.broadcast_to(query_numbers.take(each.places), each.tuples.shape) for each in size_groups
        )
        codes = result_queries.take(keyword_rows) * most + bitmaps
        first, kinds = kinds_of(codes)
        sets: dict[tuple[str, ...], int] = {(): 0}
        tuple_sets = (keywords_in(code % most, keywords[code // most]) for code in codes.take(first).tolist())
        set_numbers = np.array([sets.setdefault(each, len(sets)) for each in tuple_sets], dtype=np.int64)
        tuple_set_numbers = np.zeros(len(numbers), dtype=np.int64)
        tuple_set_numbers[keyword_rows] = set_numbers.take(kinds)
        first, inverse = kinds_of(numbers * len(sets) + tuple_set_numbers)
        names = map(self._rows.named.__getitem__, numbers.take(first).tolist())
        keyword_sets = map(list(sets).__getitem__, tuple_set_numbers.take(first).tolist())
        tuples_made = _objects(list(map(ResultTuple, names, keyword_sets)))
        ends = np.cumsum([each.tuples.size for each in size_groups]).tolist()
        for each, end in zip(size_groups, ends, strict=True):
            columns = inverse[end - each.tuples.size : end].reshape(each.tuples.shape)
            yield _objects(list(map(tuple, tuples_made.take(columns.T).tolist())))


class _SizeGroup(NamedTuple):
    """Results of one size, one column per result.

    ``places``: their indices among all results. ``tuples``: the numbers of their tuples. ``bitmaps``: the
    keywords of these. The others are as in ``NetworkTemplate.columns``.
    """

    places: Ints
    tuples: Ints
    bitmaps: Ints
    left: Ints
    right: Ints
    joins: Ints


def _by_size(interpretations: Interpretations, rows: ResultColumns) -> Iterator[_SizeGroup]:
    sizes, width = interpretations.sizes(rows.networks), rows.members.shape[1]
    for size in distinct(sizes).tolist():
        places = np.flatnonzero(sizes == size)
        columns = interpretations.columns(size, rows.networks.take(places))
        bitmaps, positions = columns[:size], columns[size : 2 * size]
        left, right, join_numbers = columns[2 * size :].reshape(3, size - 1, len(places))
        tuples = rows.members.ravel().take(positions + places * width)
        yield _SizeGroup(places, tuples, bitmaps, left, right, join_numbers)


def _flat(parts: Iterable[Ints]) -> Ints:
    return np.concatenate([np.empty(0, dtype=np.int64), *(part.ravel() for part in parts)])


def _objects(items: Sequence[Any]) -> Objects:
    return np.fromiter(items, dtype=object, count=len(items))
