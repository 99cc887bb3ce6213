"""The search for a failing order finds one exactly if some total order of all nodes fails."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations, islice

import pytest
from hypothesis import event, given

from skws_bounds import theorem1, theorem2
from skws_bounds.lto import Criterion, compared, forests
from skws_bounds.maxref import Failure, unkeepable
from skws_bounds.modified import Modified, conjunctions
from skws_bounds.normal_form import Atom, Attr, Domain, Term
from skws_bounds.verdict import lasting
from skws_schema.comparison import Op
from skws_schema.memory import StepBudget
from tests.bounds.bounds_queries import queries, sql, unlimited
from tests.strategies import examples

MOST_ORDERS = 100


def total_orders(query: Modified) -> Iterator[Modified]:
    """Every locally totally ordered query (Definition 6) that a query is split into."""
    for one, other in _local_pairs(query):
        if not query.closure.decided(one, other):
            for op in (Op.LESS, Op.EQUAL, Op.GREATER):
                refined = query.refined([Atom(one, op, other, case=True)])
                if refined is not None:
                    yield from total_orders(refined)
            return
    yield query


def _local_pairs(query: Modified) -> Iterator[tuple[Term, Term]]:
    own: dict[int, list[Term]] = defaultdict(list)
    for term in compared(query):
        if isinstance(term, Attr) and term.stream in query.node_of and term.domain is not Domain.TIME:
            own[query.node_of[term.stream]].append(term)
    fixed = [t for t in query.closure.class_of if not isinstance(t, Attr) and t.domain is Domain.INTEGER]
    for attributes in own.values():
        yield from ((a, b) for a, b in combinations([*attributes, *fixed], 2) if isinstance(a, Attr))


def _synopses(query: Modified) -> tuple[Failure, ...]:
    """Asked of what passes Theorem 2 alone; what fails it fails at once here."""
    return theorem2.failures(query) or unkeepable(query, distinct=True)


@pytest.mark.parametrize(
    "criterion",
    [
        pytest.param(theorem1.failures, id="theorem 1"),
        pytest.param(theorem2.failures, id="theorem 2"),
        pytest.param(_synopses, id="synopses"),
    ],
)
@examples(40)
@given(queries(most=3))
def test_a_failing_order_is_found_if_there_is_one(criterion: Criterion, text: str) -> None:
    for conjunction in islice(conjunctions(sql(text).queries[0], unlimited()), 3):
        for query in forests(conjunction, StepBudget(1000, "orders")):
            orders = list(islice(total_orders(query), MOST_ORDERS))
            if len(orders) < MOST_ORDERS and not any(not f.joins for f in criterion(query)):
                expected = any(map(criterion, orders))
                event(f"fails: {expected}, at first: {bool(criterion(query))}")
                assert bool(list(lasting(query, criterion, set(), StepBudget(5000, "orders")))) == expected
