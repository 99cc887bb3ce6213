"""How many candidate networks a query has, and what to say where they are very many."""

from __future__ import annotations

from typing import Final

from mesh.count import TooManyKindsError, count_networks
from purging.memory import watched
from skws.plan import Plan

MOST: Final = 1_000_000
"""Networks that are made one by one: some ten seconds on one core, and a gigabyte."""
_MANY: Final = 100_000_000
_FEW: Final = 20  # keywords times T_max: below that there are not so many networks
ADVICE: Final = "fewer keywords or a smaller --max-size leave fewer"


def network_counts(plan: Plan) -> tuple[tuple[int, ...], bool]:
    """Networks by size, from 1 to T_max, and whether these are all: else more than MOST were found."""
    try:
        return count_networks(plan.generator()), True
    except TooManyKindsError:
        return _made(plan)


def many_networks(plan: Plan) -> str:
    """A line on a query that has so many networks that its mesh may grow large; empty for others."""
    if len(plan.query.slots) * plan.max_size < _FEW:
        return ""
    try:
        total = sum(count_networks(plan.generator()))
    except TooManyKindsError:
        return ""
    if total < _MANY:
        return ""
    return (
        f"query {plan.query.text!r} has {total:,} candidate networks, and its mesh may grow large: {ADVICE}"
    )


def _made(plan: Plan) -> tuple[tuple[int, ...], bool]:
    sizes = [0] * plan.max_size
    for number, tree in enumerate(watched(plan.generator().networks())):
        if number == MOST:
            return tuple(sizes), False
        sizes[len(tree.relations) - 1] += 1
    return tuple(sizes), True
