"""Delta joins for very many queries of one or two keywords.

They keep no partial results. A batch of new tuples is walked outward from, over
the live tuples that all queries share; the two ends of each path are then
looked up in the index of queries. A path is found from the last of its tuples,
which may be one of its ends or between two walks. What a tuple costs depends
on its neighbourhood, and hardly on the number of queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from skws_mesh.columnar.columns import NOTHING, Flags, Ints, distinct, ranges
from skws_mesh.columnar.hash_index import PAIRS
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import NO_MEMBER, Partials
from skws_mesh.delta.carried_words import CarriedWords
from skws_mesh.delta.neighbours import NeighbouringWords
from skws_mesh.delta.partners import Partners
from skws_mesh.delta.paths import PathNetworks
from skws_mesh.delta.walks import Walker, Walks
from skws_mesh.delta.word_pairs import PairQuery, WordPairs
from skws_mesh.tree import Tree
from skws_schema.memory import check
from skws_schema.model import Schema

_ROWS: Final = 1 << 19  # walks of some tuples together
_HUB: Final = 1 << 14  # pairs of walks about one tuple, beyond which their words are joined first
_NO_WORD: Final = -1


class _Ends(NamedTuple):
    """Walks from one tuple, two a row, whose ends complete an entry of the index; ``from_`` has its word."""

    from_: Walks
    to: Walks
    entry: Ints


class DeltaJoins:
    """The queries of very many (``PairQuery``) over live tuples, with the protocol of ``ColumnarMesh``.

    Queries are numbers. Words of tuples are given as two columns: slots, and words.
    """

    def __init__(self, live: LiveTuples, schema: Schema) -> None:
        self._live = live
        self._schema = schema
        self._walker = Walker(live, schema)
        self._queries: dict[int, PairQuery] = {}
        self._words = CarriedWords()
        self._pairs = WordPairs()
        self._partners = Partners(self._words, self._pairs)
        self._behind = NeighbouringWords(self._words, self._walker)
        self._networks = PathNetworks(schema)
        self._width = 1  # the most nodes of a network
        self._by_query = _ByQuery()
        self._excluding: tuple[Ints, Ints] = NOTHING, NOTHING  # word, sorted, and query
        self.found: list[Partials] = []
        """Results found so far for the tuples of the running call."""

    def __len__(self) -> int:
        """The number of queries."""
        return len(self._queries)

    @property
    def _walks(self) -> bool:
        """Whether there are queries whose results have joins."""
        return len(self._pairs) > 0 and self._width > 1

    def network(self, operator: int) -> Tree:
        """The candidate network of a result."""
        return self._networks.tree(operator)

    @property
    def operators(self) -> int:
        """Networks met so far."""
        return len(self._networks)

    def insert(self, first: int, slots: Ints, words: Ints) -> Partials:
        """Take in new live tuples, from slot ``first`` on; gives the results that they complete."""
        live = len(self._live)
        self._words.append(slots, words, live)
        self._partners.extend(live)
        self._behind.extend(live)
        return self._results(self._around(np.arange(first, live, dtype=np.int64)))

    def add(self, queries: Mapping[int, PairQuery], slots: Ints, words: Ints) -> Partials:
        """Add queries, given the live tuples with words that are new; gives the results that are alive."""
        live = len(self._live)
        if not self._queries:  # nothing was taken in since there was one
            self._words, self._pairs = CarriedWords(), WordPairs()
            self._partners = Partners(self._words, self._pairs)
            self._behind = NeighbouringWords(self._words, self._walker)
        self._words.insert(slots, words, live)
        first = np.array([query.first for query in queries.values()], dtype=np.int64)
        second = np.array(
            [_NO_WORD if query.second is None else query.second for query in queries.values()], dtype=np.int64
        )
        numbers = np.array(list(queries), dtype=np.int64)
        self._queries |= queries
        self._by_query.add(queries)
        walked = self._walks
        self._pairs.add(numbers, first, second)
        if any(query.excluded for query in queries.values()):
            self._renew_excluding()
        self._width = max(self._width, *(query.max_size for query in queries.values()))
        self._partners.extend(live)
        self._behind.extend(live)
        if self._walks:
            self._behind.renew(distinct(slots) if walked else np.arange(live, dtype=np.int64))
        carrying, _ = self._words.carriers(distinct(np.concatenate([first, second])))
        carrying = distinct(carrying)
        self._partners.renew(carrying)
        found = self._results(self._standing(numbers, first, second))
        mine = self._by_query.among(found.query, numbers)
        return found if mine.all() else found.taken(mine)

    def remove(self, query: int) -> None:
        """Remove a query."""
        gone = self._queries.pop(query)
        self._pairs.remove(query, gone.first, _NO_WORD if gone.second is None else gone.second)
        if gone.excluded:
            self._renew_excluding()

    def forget(self, words: Sequence[int]) -> None:
        """Forget words that no query asks for any more."""
        if words:
            self._words.forget(np.array(words, dtype=np.int64))

    def carried(self, query: int) -> int:
        """The keywords of a query that live tuples contain."""
        asked = self._queries[query]
        words = [asked.first] + ([] if asked.second is None else [asked.second])
        return sum(
            1 << bit
            for bit, word in enumerate(words)
            if len(self._words.carriers(np.array([word], dtype=np.int64))[0])
        )

    def excluded(self, slots: Ints, words: Ints) -> int:
        """The number of pairs of a tuple and a query that excludes it."""
        known, queries = self._excluding
        first = np.searchsorted(known, words)
        counts = np.searchsorted(known, words, side="right") - first
        return len(distinct(np.repeat(slots, counts) << 32 | queries.take(ranges(first, counts))))

    def compact(self, slots: Ints) -> None:
        """Tuples have new slots; those with negative ones are gone."""
        if not self._queries:
            return
        self._words.remap(slots)
        self._partners.remap(slots)
        self._behind.remap(slots)

    def _renew_excluding(self) -> None:
        both = [(word, n) for n, query in self._queries.items() for word in query.excluded]
        columns = np.array(sorted(both), dtype=np.int64).reshape(-1, 2)
        self._excluding = columns[:, 0].copy(), columns[:, 1].copy()

    def _around(self, owners: Ints) -> Iterator[Partials]:
        """The results whose last tuple is one of the owners."""
        yield from self._alone(owners)
        if not self._walks:
            return
        at_once, place = 512, 0
        while place < len(owners):
            some = owners[place : place + at_once]
            levels = self._levels(some, earlier=True)
            if levels is None:
                at_once = max(1, at_once // 4)
                continue
            place += len(some)
            rows = sum(map(len, levels))
            at_once = min(4 * at_once, 4096, max(1, _ROWS // 2 * len(some) // max(1, rows)))
            yield from map(self._partials, self._completed(levels))

    def _levels(self, owners: Ints, *, earlier: bool) -> list[Walks] | None:
        """The walks from some tuples by length; None if they are too many to be made together.

        Of the two greatest lengths only those that may be part of a path which a query asks for.
        """
        begun = self._walker.begun(owners)
        levels, rows, last = [begun], len(owners), self._width - 1
        asked = np.zeros(len(owners), dtype=np.int64)  # by owner: the partners of its words
        asked[begun.owner] = self._partners.signatures(begun.ends)
        for joins in range(1, self._width):
            walks, to = levels[-1], None
            if joins == last:
                if joins > 1:
                    walks = walks.taken(np.flatnonzero(self._behind.of(walks.ends) & asked.take(walks.owner)))
                to = self._ending(asked)
            elif joins == last - 1 and joins > 1:
                either = asked.copy()
                np.bitwise_or.at(either, levels[1].owner, self._partners.signatures(levels[1].ends))
                to = self._ending(either, asked)
            levels.append(self._walker.further(walks, earlier=earlier, to=to))
            if joins == 1:
                self._behind.met(levels[1])
            rows += len(levels[-1])
            if rows > _ROWS and len(owners) > 1:
                return None
        return levels

    def _ending(self, asked: Ints, behind: Ints | None = None) -> Callable[[Ints, Ints], Ints]:
        """Chooses walks by the words of their ends, or by those behind; both as signatures by owner."""

        def kept(owner: Ints, ends: Ints) -> Ints:
            found = self._words.signatures(ends) & asked.take(owner)
            if behind is not None:
                found |= self._behind.of(ends) & behind.take(owner)
            return np.flatnonzero(found)

        return kept

    def _completed(self, levels: list[Walks]) -> Iterator[_Ends]:
        """Walks from the last tuple of a path, to both of its ends."""
        levels = self._useful(levels)
        begun, *longer = levels
        hubs = self._hubs(levels)
        for walks in longer:
            yield from self._matched(begun, np.searchsorted(begun.owner, walks.owner), walks)
        for shorter, one in enumerate(longer, 1):
            for length in range(shorter, self._width - shorter):
                other = levels[length]
                for rows, others in _cross(one, other, hubs, same=length == shorter):
                    yield from self._joined(one, rows, other, others)
        for owner in np.flatnonzero(hubs).tolist():
            yield from self._about_hub(levels, owner)

    def _useful(self, levels: list[Walks]) -> list[Walks]:
        """The walks to words that queries pair with those of another end of a path."""
        asked = np.zeros(int(levels[0].owner.max(initial=-1)) + 1, dtype=np.int64)
        upto = []  # by length: the partners of all words within so many joins, as signatures by owner
        for walks in levels:
            np.bitwise_or.at(asked, walks.owner, self._partners.signatures(walks.ends))
            upto.append(asked.copy())
        found = levels[:1]
        for walks, others in zip(levels[1:], reversed(upto[:-1]), strict=True):
            found.append(walks.taken(self._ending(others)(walks.owner, walks.ends)))
        return found

    def _hubs(self, levels: list[Walks]) -> Flags:
        """By owner: whether pairs of walks about it are too many to be tried one by one."""
        owners = int(levels[0].owner.max(initial=-1)) + 1
        counts = [np.bincount(walks.owner, minlength=owners) for walks in levels]
        pairs = np.zeros(owners, dtype=np.int64)
        for i in range(1, len(levels)):
            for j in range(i, len(levels) - i):
                pairs += counts[i] * counts[j]
        return pairs > _HUB

    def _joined(self, one: Walks, rows: Ints, other: Walks, others: Ints) -> Iterator[_Ends]:
        """Pairs of walks that make a path, with the entries that it completes."""
        kept = _make_path(one, rows, other, others)
        rows, others = rows.take(kept), others.take(kept)
        yield from self._matched(one, rows, other, others)

    def _matched(self, one: Walks, rows: Ints, other: Walks, others: Ints | None = None) -> Iterator[_Ends]:
        """The entries for the two ends of paths: rows of some walks beside all, or rows, of others."""
        ends, far = one.ends.take(rows), other.ends if others is None else other.ends.take(others)
        for begin in range(0, len(ends), PAIRS >> 2):
            part = slice(begin, begin + (PAIRS >> 2))
            place, entry = self._entries(ends[part], far[part])
            if len(place):
                place += begin
                to = place if others is None else others.take(place)
                yield _Ends(one.taken(rows.take(place)), other.taken(to), entry)

    def _entries(self, one: Ints, other: Ints) -> tuple[Ints, Ints]:
        """The entries that pairs of tuples complete, as (position, entry)."""
        position, words = self._words.of(other)
        hits = np.flatnonzero(self._partners.have(one.take(position), words))
        position, words = position.take(hits), words.take(hits)
        of, near = self._words.of(one.take(position))
        found, entry = self._pairs.between(near, words.take(of))
        return position.take(of.take(found)), entry

    def _about_hub(self, levels: list[Walks], owner: int) -> Iterator[_Ends]:
        """As ``_joined`` for one tuple with many neighbours: the words around it are joined first."""
        mine = [
            walks.taken(np.arange(*np.searchsorted(walks.owner, (owner, owner + 1)), dtype=np.int64))
            for walks in levels[1:-1]
        ]
        found = [self._words.of(walks.ends) for walks in mine]
        there = distinct(np.concatenate([words for _, words in found]))
        _, entries = self._pairs.from_words(there)
        near, far = self._pairs.words.take(entries), self._pairs.partners.take(entries)
        known = np.flatnonzero((near < far) & (there.take(np.searchsorted(there, far), mode="clip") == far))
        entries, near, far = entries.take(known), near.take(known), far.take(known)
        if not len(entries):
            return
        by_word = [_by_word(*each) for each in found]
        for i, one in enumerate(mine):
            for j, other in enumerate(mine):
                if i + j + 3 > self._width:
                    continue
                for entry, rows, others in _products(entries, near, by_word[i], far, by_word[j]):
                    kept = _make_path(one, rows, other, others)
                    if len(kept):
                        yield _Ends(
                            one.taken(rows.take(kept)), other.taken(others.take(kept)), entry.take(kept)
                        )

    def _alone(self, owners: Ints) -> Iterator[Partials]:
        """The results of one tuple each."""
        tuples = self._live.tuples
        owners = owners[tuples.start.take(owners) < tuples.end.take(owners)]
        owner, words = self._words.of(owners)
        position, query = self._pairs.singles(words)
        slots = owners.take(owner.take(position))
        numbers = self._networks.single(tuples.relation.take(slots))
        kept = self._allowed(query, [slots])
        yield self._rows(query[kept], numbers[kept], slots[kept][:, None])
        position, entry = self._entries(owners, owners)
        forward = ~self._pairs.turned(entry)
        slots, query = owners.take(position[forward]), self._pairs.query(entry[forward])
        kept = self._allowed(query, [slots])
        slots = slots[kept]
        yield self._rows(query[kept], tuples.relation.take(slots), slots[:, None])

    def _standing(self, numbers: Ints, first: Ints, second: Ints) -> Iterator[Partials]:
        """At least the live results of new queries: from the tuples with one of their words, or from all."""
        live = np.arange(len(self._live), dtype=np.int64)
        asked = distinct(first[second >= 0])
        slots = distinct(self._words.carriers(asked)[0])
        if 2 * len(slots) > len(live) or len(numbers) > len(live):
            yield from self._around(live)
            return
        yield from self._alone(distinct(self._words.carriers(distinct(first))[0]))
        # Walks to the other tuples complete only queries that were there before.
        ending = np.zeros(len(live), dtype=bool)
        ending[self._words.carriers(distinct(second[second >= 0]))[0]] = True
        for begin in range(0, len(slots), 512):
            walks = self._walker.begun(slots[begin : begin + 512])
            owners = walks
            for joins in range(1, self._width):
                to = (lambda _, ends: np.flatnonzero(ending.take(ends))) if joins == self._width - 1 else None
                walks = self._walker.further(walks, earlier=False, to=to)
                done = walks.taken(np.flatnonzero(ending.take(walks.ends)))
                for ends in self._matched(owners, np.searchsorted(owners.owner, done.owner), done):
                    mine = self._by_query.among(self._pairs.query(ends.entry), numbers)
                    # Else the path is found from its other end as well.
                    forward = np.flatnonzero(mine & ~self._pairs.turned(ends.entry))
                    yield self._partials(
                        _Ends(ends.from_.taken(forward), ends.to.taken(forward), ends.entry.take(forward))
                    )

    def _partials(self, ends: _Ends) -> Partials:
        """The results of complete entries: those that are minimal, of tuples that may take part."""
        one, other, entry = ends
        near, far = self._pairs.words.take(entry), self._pairs.partners.take(entry)
        members = np.column_stack([one.members[:, ::-1], other.members[:, 1:]])
        walked = np.column_stack([one.edges[:, ::-1] ^ 1, other.edges])
        query = self._pairs.query(entry)
        size = members.shape[1]
        kept = self._by_query.sizes(query) >= size
        kept &= ~self._words.contain(members[:, 0], far) & ~self._words.contain(members[:, -1], near)
        for inner in members.T[1:-1]:
            slots = np.ascontiguousarray(inner)
            kept &= ~(self._words.contain(slots, near) | self._words.contain(slots, far))
        for step in range(size - 1):
            kept &= self._live.joined(walked[:, step], members[:, step], members[:, step + 1])
        kept &= self._allowed(query, members.T)
        turned = self._pairs.turned(entry)
        members[turned], walked[turned] = members[turned, ::-1], walked[turned, ::-1] ^ 1
        chosen = np.flatnonzero(kept)
        members, walked = members.take(chosen, axis=0), walked.take(chosen, axis=0)
        numbers = self._networks.numbers(self._live.tuples.relation.take(members[:, 0]), walked)
        return self._rows(query.take(chosen), numbers, members)

    def _allowed(self, query: Ints, members: Iterable[Ints]) -> Flags:
        """Which results have only tuples that their queries let take part."""
        allowed = np.ones(len(query), dtype=bool)
        limited = np.flatnonzero(~self._by_query.plain(query))
        if not len(limited):
            return allowed
        known, queries = self._excluding
        relation = self._live.tuples.relation
        codes = known << 32 | queries
        for column in members:
            slots = column[limited]
            position, words = self._words.of(slots)
            asked = words << 32 | query.take(limited).take(position)
            order = np.sort(codes)
            hit = order.take(np.searchsorted(order, asked), mode="clip") == asked if len(order) else asked < 0
            allowed[limited[position[hit]]] = False
            for at, slot in zip(limited.tolist(), slots.tolist(), strict=True):
                without = self._queries[int(query[at])].without
                if without and int(relation[slot]) in without:
                    allowed[at] = False
        return allowed

    def _rows(self, query: Ints, numbers: Ints, members: Ints) -> Partials:
        tuples = self._live.tuples
        wide = np.full((len(query), self._width), NO_MEMBER, dtype=np.int64)
        wide[:, : members.shape[1]] = members
        start = tuples.start.take(members).max(axis=1) if len(members) else NOTHING
        end = tuples.end.take(members).min(axis=1) if len(members) else NOTHING
        return Partials(query, numbers, wide, start, end)

    def _results(self, parts: Iterator[Partials]) -> Partials:
        self.found = [Partials.none(self._width)]
        for part in parts:
            check()
            if len(part):
                self.found.append(part)
        found, self.found = self.found, []
        return Partials.together(found)


class _ByQuery:
    """What holds for a query, by its number."""

    def __init__(self) -> None:
        self._sizes: Ints = NOTHING
        self._plain: Flags = np.empty(0, dtype=bool)

    def add(self, queries: Mapping[int, PairQuery]) -> None:
        most = max(queries) + 1
        if most > len(self._sizes):
            more = max(64, 2 * most) - len(self._sizes)
            self._sizes = np.concatenate([self._sizes, np.zeros(more, dtype=np.int64)])
            self._plain = np.concatenate([self._plain, np.ones(more, dtype=bool)])
        numbers = list(queries)
        self._sizes[numbers] = [query.max_size for query in queries.values()]
        self._plain[numbers] = [query.plain for query in queries.values()]

    def sizes(self, query: Ints) -> Ints:
        """The most nodes of the queries' networks."""
        return self._sizes.take(query)

    def plain(self, query: Ints) -> Flags:
        """Which queries let all tuples take part."""
        return self._plain.take(query)

    def among(self, query: Ints, numbers: Ints) -> Flags:
        """Which are among some queries."""
        chosen = np.zeros(len(self._sizes), dtype=bool)
        chosen[numbers] = True
        return chosen.take(query)


def _make_path(one: Walks, rows: Ints, other: Walks, others: Ints) -> Ints:
    """The places of the pairs of walks from one tuple that share no other, and are alive together."""
    kept = np.maximum(one.start.take(rows), other.start.take(others)) < np.minimum(
        one.end.take(rows), other.end.take(others)
    )
    for near in one.members.T[1:]:
        column = np.ascontiguousarray(near).take(rows)
        for far in other.members.T[1:]:
            kept &= column != np.ascontiguousarray(far).take(others)
    return np.flatnonzero(kept)


def _cross(one: Walks, other: Walks, hubs: Flags, *, same: bool) -> Iterator[tuple[Ints, Ints]]:
    """Pairs of rows of walks from one tuple, but for hubs; each pair once where both are the same."""
    first = np.searchsorted(other.owner, one.owner)
    end = np.searchsorted(other.owner, one.owner, side="right")
    if same:
        first = np.arange(1, len(one) + 1)
    counts = np.where(hubs.take(one.owner), 0, end - first)
    ends = np.cumsum(counts)
    cuts = np.searchsorted(ends, np.arange(PAIRS, int(ends[-1]) if len(ends) else 0, PAIRS))
    for begin, until in zip([0, *cuts.tolist()], [*cuts.tolist(), len(one)], strict=True):
        part = slice(begin, until)
        rows = np.repeat(np.arange(begin, until, dtype=np.int64), counts[part])
        if len(rows):
            yield rows, ranges(first[part], counts[part])


class _ByWord(NamedTuple):
    """Rows in order of a word."""

    words: Ints
    rows: Ints


def _by_word(rows: Ints, words: Ints) -> _ByWord:
    order = np.argsort(words, kind="stable")
    return _ByWord(words.take(order), rows.take(order))


def _products(
    entries: Ints, near: Ints, one: _ByWord, far: Ints, other: _ByWord
) -> Iterator[tuple[Ints, Ints, Ints]]:
    """For each entry all rows with its word beside all rows with its other word."""
    first = np.searchsorted(one.words, near)
    rows = np.searchsorted(one.words, near, side="right") - first
    second = np.searchsorted(other.words, far)
    others = np.searchsorted(other.words, far, side="right") - second
    of = np.repeat(np.arange(len(entries), dtype=np.int64), rows)
    left = one.rows.take(ranges(first, rows))
    counts = others.take(of)
    ends = np.cumsum(counts)
    cuts = np.searchsorted(ends, np.arange(PAIRS, int(ends[-1]) if len(ends) else 0, PAIRS))
    for begin, until in zip([0, *cuts.tolist()], [*cuts.tolist(), len(of)], strict=True):
        part = slice(begin, until)
        times = counts[part]
        yield (
            np.repeat(entries.take(of[part]), times),
            np.repeat(left[part], times),
            other.rows.take(ranges(second.take(of[part]), times)),
        )
