"""Delta joins for very many queries.

They keep no partial results. Joins walk outward from a batch of new tuples over
the live tuples that all queries share, and look up the words of the tuples they
meet in the index of queries. A result is found from the last of its tuples. The
cost of a tuple depends on its neighbourhood, and hardly on the number of
queries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from skws_mesh.backend import OperatorUse
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import NOTHING, Flags, Ints, distinct, ranges
from skws_mesh.columnar.hash_index import PAIRS
from skws_mesh.columnar.live import InsertedTuples, LiveTuples
from skws_mesh.columnar.store import NO_MEMBER, Partials
from skws_mesh.delta.neighbours import CHUNK_TUPLES, Partners
from skws_mesh.delta.network_numbers import PathNetworks, TreeNetworks
from skws_mesh.delta.results import NO_NODE, Candidates, PathJoins, Paths, TreeJoins, Trees
from skws_mesh.delta.walks import AskedWalks, Targets, Walks
from skws_mesh.delta.words import CarriedWords, WordPairs, WordSets
from skws_mesh.tree import Tree
from skws_purging.lifespans import ALWAYS
from skws_schema.budgets import check
from skws_schema.model import Schema

_BRANCHING: Final = 1 << 30  # numbers of networks that branch begin here
_NO_WORD: Final = -1
_QUERY: Final = (1 << 32) - 1
_PAIR_SIZE: Final = 2


@dataclass(frozen=True, slots=True)
class WordSearch:
    """A query for words in networks of at most ``max_size`` nodes.

    ``excluded``: words whose tuples take no part. ``without`` and ``without_joins``: relations and joins
    that no network contains.
    """

    words: tuple[int, ...]
    max_size: int
    excluded: tuple[int, ...] = ()
    without: frozenset[int] = frozenset()
    without_joins: frozenset[int] = frozenset()

    @property
    def plain(self) -> bool:
        """True if all tuples may take part, by all joins."""
        return not (self.excluded or self.without or self.without_joins)

    @property
    def pair(self) -> tuple[int, int]:
        """Its one or two words; the second is _NO_WORD if there is only one."""
        return self.words[0], self.words[1] if len(self.words) > 1 else _NO_WORD

    @property
    def most(self) -> int:
        """The most tuples of a result: one if there is one word."""
        return self.max_size if len(self.words) > 1 else 1

    @property
    def branching(self) -> bool:
        """True if its results may have branches."""
        return len(self.words) > _PAIR_SIZE


class DeltaJoins:
    """A ``Mesh`` for very many queries; ``ask`` registers their words before ``add`` (``WordSearch``).

    The labels of tuples say which words they contain, not which keywords of which queries: ``query`` is the
    number of a word, and ``bitmap`` is 1.
    """

    def __init__(self, live: LiveTuples, schema: Schema) -> None:
        self._live = live
        self._schema = schema
        self._queries: dict[int, WordSearch] = {}
        self._networks = PathNetworks(schema)
        self._branching = TreeNetworks(schema)
        self._size_counts: Counter[int] = Counter()  # the number of queries, by ``most``
        self._by_query = _SizeTable()
        self._exclusions: Ints = NOTHING  # excluded word and query in one integer, sorted
        self.results: list[Partials] = []
        """Results found so far for the tuples of the running call."""
        self._reset()

    def _reset(self) -> None:
        self._words = CarriedWords()
        self._pairs, self._sets = WordPairs(), WordSets()
        self._partners = Partners(self._words, self._pairs, self._sets.pairs)
        self._walks = AskedWalks(self._live, self._schema, self._words, self._partners)
        self._paths = PathJoins(self._words, self._pairs, self._partners)

    def __len__(self) -> int:
        """The number of queries."""
        return len(self._queries)

    @property
    def _width(self) -> int:
        """The most nodes of a network of any query."""
        return max(self._size_counts, default=1)

    @property
    def _has_pairs(self) -> bool:
        """True if there are queries for several words."""
        return len(self._pairs) > 0 or len(self._sets) > 0

    def network(self, operator: int) -> Tree:
        """The candidate network of a result."""
        if operator >= _BRANCHING:
            return self._branching.network(operator - _BRANCHING)
        return self._networks.network(operator)

    @property
    def excluded(self) -> int:
        """A value that no label has; here, words exclude tuples from queries (``exclusions``)."""
        return -1

    @property
    def partials(self) -> int:
        """The number of pairs of joined tuples that are stored; there are no partial results."""
        return self._walks.neighbours.pairs

    @property
    def operators(self) -> int:
        """The number of networks found so far."""
        return len(self._networks) + len(self._branching)

    @property
    def waiting_counts(self) -> tuple[int, int]:
        """Always zeros: there are no operators and no partial results."""
        return 0, 0

    def operator_uses(self) -> list[OperatorUse]:
        """Always empty: there are no operators."""
        return []

    def partial_results(self) -> Iterator[Partials]:
        """Always empty: there are no partial results."""
        return iter(())

    def insert(self, new_tuples: InsertedTuples, bitmaps: KeywordBitmaps, horizon: int = ALWAYS) -> Partials:  # noqa: ARG002 - nothing waits
        self._append(bitmaps)
        return self._results_between(new_tuples.first, len(self._live))

    def load(self, bitmaps: KeywordBitmaps) -> Iterator[Partials]:
        self._append(bitmaps)
        for begin in range(0, len(self._live), PAIRS):
            yield self._results_between(begin, min(begin + PAIRS, len(self._live)))

    def _append(self, bitmaps: KeywordBitmaps) -> None:
        """Record the words of new tuples."""
        live = len(self._live)
        self._words.append(bitmaps.tuple, bitmaps.query, live)
        self._partners.extend(live)

    def _results_between(self, first: int, end: int) -> Partials:
        """The results whose last tuple is in one of the slots from ``first`` to before ``end``."""
        return self._results(self._results_around(np.arange(first, end, dtype=np.int64)))

    def ask(self, queries: Mapping[int, WordSearch]) -> None:
        """Register the words of the queries that are added next."""
        self._queries |= queries
        self._size_counts.update(query.most for query in queries.values())

    def add(self, queries: Iterable[int], bitmaps: KeywordBitmaps) -> Partials:
        """Add queries; ``bitmaps``: of the live tuples with words that no earlier query asked for."""
        new = {query: self._queries[query] for query in queries}
        slots, live = bitmaps.tuple, len(self._live)
        self._words.insert(slots, bitmaps.query, live)
        self._by_query.add(new)
        pairs = _pairs_of(new)
        self._pairs.add(*pairs)
        word_sets = {n: query.words for n, query in new.items() if query.branching}
        if word_sets:
            self._sets.add(word_sets, self._words.frequencies)
        exclusions = [word << 32 | number for number, query in new.items() for word in query.excluded]
        if exclusions:
            self._exclusions = distinct(np.concatenate([self._exclusions, exclusions]))
        self._partners.extend(live)
        if self._has_pairs:
            self._walks.extend(live)
            self._walks.renew(distinct(slots))
        words = np.array([word for query in new.values() for word in query.words], dtype=np.int64)
        carriers = self._words.carriers(distinct(words))
        self._partners.renew(distinct(carriers[0]))
        numbers = np.array(list(new), dtype=np.int64)
        results = self._results(self._live_results(numbers, pairs, carriers))
        is_new = self._by_query.is_in(results.query, numbers)
        return results if is_new.all() else results.take(is_new)

    def remove(self, query: int) -> None:
        """Remove a query."""
        search = self._queries.pop(query)
        self._size_counts[search.most] -= 1
        self._size_counts = +self._size_counts
        if search.branching:
            self._sets.remove(query, search.words)
        else:
            self._pairs.remove(query, *search.pair)
        if search.excluded:
            self._exclusions = self._exclusions[self._exclusions & _QUERY != query]
        if not self._queries:  # without queries, new tuples are not recorded
            self._reset()

    def forget(self, words: Sequence[int]) -> None:
        """Forget words that no query asks for any more."""
        if words:
            self._words.forget(np.array(words, dtype=np.int64))

    def live_keywords(self, query: int) -> int:
        """The keywords of a query that live tuples contain."""
        return sum(
            1 << bit
            for bit, word in enumerate(self._queries[query].words)
            if len(self._words.carriers(np.array([word], dtype=np.int64))[0])
        )

    def exclusions(self, bitmaps: KeywordBitmaps) -> int:
        """The number of pairs of a tuple and a query that excludes it."""
        slots, words = bitmaps.tuple, bitmaps.query
        excluded_words, queries = self._exclusions >> 32, self._exclusions & _QUERY
        first = np.searchsorted(excluded_words, words)
        counts = np.searchsorted(excluded_words, words, side="right") - first
        return len(distinct(np.repeat(slots, counts) << 32 | queries.take(ranges(first, counts))))

    def end(self, slots: Ints) -> None:
        """Nothing to do: results are found among live tuples."""

    def expire(self, horizon: int) -> None:
        """Nothing to do, as in ``end``."""

    def compact(self, horizon: int, slots: Ints) -> None:  # noqa: ARG002 - nothing waits
        if not self._queries:
            return
        self._words.remap(slots)
        self._partners.remap(slots)
        self._walks.remap(slots)
        self._sets.order(self._words.frequencies)

    def _results_around(self, owners: Ints) -> Iterator[Partials]:
        """The results whose last tuple is one of the owners."""
        yield from self._single_results(owners)
        if not self._has_pairs:
            return
        for levels in self._walks.levels(owners, self._width, earlier=True):
            leaves = self._walks.leaves(levels)
            if len(self._pairs):
                yield from map(self._path_results, self._paths.find(leaves))
            if len(self._sets):
                joins = self._trees
                yield from map(self._tree_results, joins.trees(leaves, joins.candidates(levels)))

    @property
    def _trees(self) -> TreeJoins:
        return TreeJoins(self._live, self._words, self._sets, self._width, self._by_query.sizes)

    def _live_results(self, numbers: Ints, pairs: Ints, carriers: tuple[Ints, Ints]) -> Iterator[Partials]:
        """The live results of new queries, perhaps among those of others.

        Walks begin at the tuples with a word of these queries or, if these are most tuples, at all tuples.

        ``pairs``: see ``_pairs_of``. ``carriers``: the live tuples with their words, and these words.
        """
        live = np.arange(len(self._live), dtype=np.int64)
        _, first, second = pairs
        rarest = distinct(self._sets.rarest(self._sets.places_of(self._by_query.flags_of(numbers))))
        slots = _carrier_slots(carriers, np.concatenate([first[second >= 0], rarest]))
        if 2 * len(slots) > len(live) or len(numbers) > len(live):
            yield from self._results_around(live)
            return
        yield from self._single_results(_carrier_slots(carriers, first))
        if len(self._pairs):
            ends = _carrier_slots(carriers, first[second >= 0]), _carrier_slots(carriers, second[second >= 0])
            yield from self._live_paths(numbers, *ends)
        if len(rarest):
            yield from self._live_trees(numbers, _carrier_slots(carriers, rarest))

    def _live_paths(self, numbers: Ints, slots: Ints, targets: Ints) -> Iterator[Partials]:
        """The live results of new queries for two words, from tuples with the first word to the others."""
        if not (len(slots) and len(targets)):
            return
        most = int(self._by_query.sizes(numbers).max()) - 1  # joins
        walker = self._walks.walker
        goal = Targets(self._walks.neighbours, targets, len(self._live), most)
        for begin in range(0, len(slots), CHUNK_TUPLES):
            owners = walker.start(slots[begin : begin + CHUNK_TUPLES])
            stack = [(owners, most)] if most else []
            while stack:
                walks, joins = stack.pop()
                if len(walks) > CHUNK_TUPLES:
                    rows = np.arange(len(walks), dtype=np.int64)
                    parts = range(0, len(walks), CHUNK_TUPLES)
                    stack += [(walks.take(rows[first : first + CHUNK_TUPLES]), joins) for first in parts]
                    continue
                longer = self._toward(goal, walks, joins - 1)
                hits = np.flatnonzero(goal.joins.take(longer.ends) == 0)
                owner_rows = np.searchsorted(owners.owner, longer.owner.take(hits))
                for paths in self._paths.match(owners, owner_rows, longer, hits):
                    is_new = self._by_query.is_in(self._pairs.query(paths.entry), numbers)
                    # A turned path is also found from its other end.
                    indices = np.flatnonzero(is_new & ~self._pairs.is_reversed(paths.entry))
                    yield self._path_results(paths.take(indices))
                if joins > 1 and len(longer):
                    stack.append((longer, joins - 1))

    def _toward(self, goal: Targets, walks: Walks, joins: int) -> Walks:
        """The walks extended by a join, after which a target is at most ``joins`` joins away."""
        if not joins:
            return self._walks.walker.extend_to(goal, walks)
        return self._walks.walker.extend(
            walks, earlier=False, accepts=lambda _, ends: goal.joins.take(ends) <= joins
        )

    def _live_trees(self, numbers: Ints, slots: Ints) -> Iterator[Partials]:
        """The live results of new queries for more words, from the tuples with their rarest word."""
        joins = self._trees
        for levels in self._walks.levels(slots, self._width, earlier=False):
            row, words = self._words.of(levels[0].ends)
            position, place = self._sets.by_rarest(words)
            indices = np.flatnonzero(self._by_query.is_in(self._sets.query(place), numbers))
            candidates = Candidates(
                levels[0].owner.take(row.take(position.take(indices))), place.take(indices)
            )
            for trees in joins.trees(self._walks.leaves(levels), candidates):
                # A tree is found from each of its tuples with the word, and returned from one of them.
                rarest_of = self._sets.rarest(trees.place)
                is_repeat = np.zeros(len(trees), dtype=bool)
                for member in trees.members[1:]:
                    is_repeat |= (member > trees.members[0]) & self._words.contain(member, rarest_of)
                yield self._tree_results(trees.take(np.flatnonzero(~is_repeat)))

    def _single_results(self, owners: Ints) -> Iterator[Partials]:
        """The results of one tuple each."""
        tuples = self._live.tuples
        owners = owners[tuples.start.take(owners) < tuples.end.take(owners)]
        owner, words = self._words.of(owners)
        position, query = self._pairs.singles(words)
        slots = owners.take(owner.take(position))
        numbers = self._networks.single(tuples.relation.take(slots))
        allowed = self._is_allowed(query, [slots])
        slots = slots[allowed]
        yield self._partials(
            query[allowed], numbers[allowed], slots[None], tuples.start[slots], tuples.end[slots]
        )
        position, entry = self._paths.entries(owners, owners)
        is_forward = ~self._pairs.is_reversed(entry)
        slots, query = owners.take(position[is_forward]), self._pairs.query(entry[is_forward])
        allowed = self._is_allowed(query, [slots])
        slots = slots[allowed]
        numbers = tuples.relation.take(slots)
        yield self._partials(query[allowed], numbers, slots[None], tuples.start[slots], tuples.end[slots])

    def _path_results(self, paths: Paths) -> Partials:
        """The results of paths that are minimal and contain no excluded tuple."""
        near, far = self._pairs.words(paths.entry)
        query = self._pairs.query(paths.entry)
        first, *inner, last = paths.members
        valid = self._by_query.sizes(query) >= len(paths.members)
        valid &= ~(self._words.contain(first, far) | self._words.contain(last, near))
        for slots in inner:
            valid &= ~(self._words.contain(slots, near) | self._words.contain(slots, far))
        valid &= self._is_allowed(query, paths.members, paths.edges)
        indices = np.flatnonzero(valid)
        entry, members, edges, start, end = paths.take(indices)
        backward = np.flatnonzero(self._pairs.is_reversed(entry))
        members[:, backward], edges[:, backward] = members[::-1, backward], edges[::-1, backward] ^ 1
        numbers = self._networks.numbers(self._live.tuples.relation.take(members[0]), edges)
        return self._partials(query.take(indices), numbers, members, start, end)

    def _tree_results(self, trees: Trees) -> Partials:
        """The results of trees that contain no excluded tuple."""
        query, members = self._sets.query(trees.place), trees.members
        valid = self._is_allowed(query, np.where(members == NO_MEMBER, members[0], members), trees.edges)
        trees = trees.take(np.flatnonzero(valid))
        relations = np.where(
            trees.members == NO_MEMBER, NO_NODE, self._live.tuples.relation.take(trees.members)
        )
        numbers, order = self._branching.numbers(trees, relations)
        members = np.take_along_axis(trees.members, order, axis=0)
        return Partials(
            query[valid], numbers + _BRANCHING, np.ascontiguousarray(members.T), trees.start, trees.end
        )

    def _is_allowed(self, query: Ints, members: Iterable[Ints], edges: Iterable[Ints] = ()) -> Flags:
        """True for each result whose tuples and joins are all allowed by its query."""
        allowed = np.ones(len(query), dtype=bool)
        rows = np.flatnonzero(~self._by_query.plain(query))
        if not len(rows):
            return allowed
        relation, codes = self._live.tuples.relation, self._exclusions
        for column in members:
            slots = column[rows]
            position, words = self._words.of(slots)
            tuple_codes = words << 32 | query.take(rows).take(position)
            is_excluded = (
                codes.take(np.searchsorted(codes, tuple_codes), mode="clip") == tuple_codes
                if len(codes)
                else tuple_codes < 0
            )
            allowed[rows[position[is_excluded]]] = False
            for row, slot in zip(rows.tolist(), slots.tolist(), strict=True):
                excluded_relations = self._queries[int(query[row])].without
                if excluded_relations and int(relation[slot]) in excluded_relations:
                    allowed[row] = False
        for column in edges:
            for row, edge in zip(rows.tolist(), column.take(rows).tolist(), strict=True):
                if edge != NO_NODE and edge // 2 in self._queries[int(query[row])].without_joins:
                    allowed[row] = False
        return allowed

    def _partials(self, query: Ints, numbers: Ints, members: Ints, start: Ints, end: Ints) -> Partials:
        """Results from their members: a row of slots for each node."""
        wide = np.full((len(query), self._width), NO_MEMBER, dtype=np.int64)
        wide[:, : len(members)] = members.T
        return Partials(query, numbers, wide, start, end)

    def _results(self, parts: Iterator[Partials]) -> Partials:
        self.results = [Partials.none(self._width)]
        for part in parts:
            check()
            if len(part):
                self.results.append(part)
        results, self.results = self.results, []
        return Partials.concat(results)


def _pairs_of(queries: Mapping[int, WordSearch]) -> Ints:
    """The numbers of the queries for one or two words, and these words: three columns, as rows."""
    rows = [(n, *query.pair) for n, query in queries.items() if not query.branching]
    return np.array(rows, dtype=np.int64).reshape(-1, 3).T.copy()


def _carrier_slots(carriers: tuple[Ints, Ints], words: Ints) -> Ints:
    """The tuples that contain one of ``words``; ``carriers`` are pairs of a tuple and one of its words."""
    slots, slot_words = carriers
    return distinct(slots[np.isin(slot_words, words)])


class _SizeTable:
    """Sizes and flags of queries, by query number."""

    def __init__(self) -> None:
        self._sizes: Ints = NOTHING
        self._plain: Flags = np.empty(0, dtype=bool)

    def add(self, queries: Mapping[int, WordSearch]) -> None:
        count = max(queries) + 1
        if count > len(self._sizes):
            growth = max(64, 2 * count) - len(self._sizes)
            self._sizes = np.concatenate([self._sizes, np.zeros(growth, dtype=np.int64)])
            self._plain = np.concatenate([self._plain, np.ones(growth, dtype=bool)])
        numbers = list(queries)
        self._sizes[numbers] = [query.most for query in queries.values()]
        self._plain[numbers] = [query.plain for query in queries.values()]

    def sizes(self, query: Ints) -> Ints:
        """The most nodes of the queries' networks."""
        return self._sizes.take(query)

    def plain(self, query: Ints) -> Flags:
        """True for each query in which all tuples may take part."""
        return self._plain.take(query)

    def is_in(self, query: Ints, numbers: Ints) -> Flags:
        """True for each query that is in ``numbers``."""
        return self.flags_of(numbers).take(query)

    def flags_of(self, numbers: Ints) -> Flags:
        """By query: True if it is in ``numbers``."""
        flags = np.zeros(len(self._sizes), dtype=bool)
        flags[numbers] = True
        return flags
