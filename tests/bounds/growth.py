"""What any algorithm has to remember: a search for streams that need unboundedly many states.

It knows nothing of the theorems. For a *pattern* each number x makes a few
tuples whose values depend on x. If after any subset X of 1..n has arrived the
rest of the pattern tells from the outputs which x was in X, then all 2**n
subsets need states of their own, which no constant number of integers can tell
apart as n grows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

from skws_bounds.normal_form import Union
from skws_bounds.run import results
from skws_schema.model import Row
from tests.bounds.bounds_queries import INTEGERS, SECOND, STREAMS

_VALUES = (
    (0, 1),
    (0, 2),
    (10, 4),
    (90, -4),
    (11, 4),
    (91, -4),
    (9, 4),
    (89, -4),
    (-90, 4),
    (-10, -4),
    (0, 7),
    (0, 3),
)
_Bag = dict[str, list[tuple[int, Row]]]


@dataclass(frozen=True)
class Pattern:
    """``before``: the streams of a block, in order of time; ``after``: those of the rest.

    Each with whether it comes at the same time as the one before it.
    ``values``: for each attribute (c, d), which stands for c + d * x, or for
    the constant d where c is 0; for the rest under the name with a prime.
    """

    before: tuple[tuple[str, bool], ...]
    after: tuple[tuple[str, bool], ...]
    values: Mapping[str, tuple[tuple[int, int], ...]]

    def row(self, name: str, x: int, time: int, shift: int = 0) -> Row:
        made = [d if c == 0 else c + d * x for c, d in self.values[name + "'" * shift]]
        return (*made, time)


def patterns(union: Union, seed: int, count: int) -> Iterator[Pattern]:
    """Random patterns for the streams of a union of one query."""
    chance = random.Random(seed)
    names = [s.relation for s in union.queries[0].streams]
    for _ in range(count):
        order = chance.sample(names, len(names))
        cut = chance.randint(1, len(order))
        after = [*order[cut:], *(n for n in order[:cut] if chance.random() < 0.3)]
        values = {
            name + prime: tuple(chance.choice(_VALUES) for _ in INTEGERS[name])
            for name in names
            for prime in ("", "'")
        }
        before, rest = (tuple((n, chance.random() < 0.3) for n in part) for part in (order[:cut], after))
        yield Pattern(before, rest, values)


def states(union: Union, pattern: Pattern, n: int) -> int:
    """How many of the 2**n subsets the pattern tells apart."""
    subsets = chain.from_iterable(combinations(range(1, n + 1), size) for size in range(n + 1))
    return len({_responses(union, pattern, subset, n) for subset in subsets})


def witness(union: Union, *, seed: int, tries: int, n: int = 5) -> Pattern | None:
    """A pattern that tells all subsets of 1..n apart."""
    for pattern in patterns(union, seed, tries):
        if all(states(union, pattern, size) == 2**size for size in (1, 2, n)):
            return pattern
    return None


def _responses(union: Union, pattern: Pattern, subset: Sequence[int], n: int) -> tuple[Any, ...]:
    bag: _Bag = {s.alias: [] for s in union.queries[0].streams}
    time = SECOND
    for x in subset:
        for at, (name, together) in enumerate(pattern.before):
            time += 0 if together and at else SECOND
            bag[name].append((time, pattern.row(name, x, time)))
    shown = _evaluated(union, bag)
    return tuple(_response(union, pattern, bag, shown, y, time + SECOND) for y in range(n + 2))


def _response(
    union: Union, pattern: Pattern, bag: _Bag, shown: Counter[Any], y: int, time: int
) -> frozenset[Any]:
    more = {name: list(items) for name, items in bag.items()}
    for name, together in pattern.after:
        time += 0 if together else SECOND
        more[name].append((time, pattern.row(name, y, time, shift=1)))
    return frozenset((_evaluated(union, more) - shown).items())


def _evaluated(union: Union, bag: _Bag) -> Counter[Any]:
    found = results(union.queries[0], STREAMS, bag)
    return Counter(set(found)) if union.distinct else found
