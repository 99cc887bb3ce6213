"""The standing queries of one engine: plans by name, and numbers for those that differ."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from schema.errors import UsageError, nearest
from schema.model import Schema
from skws.plan import Plan


class AnsweredQueries:
    """Queries of one plan, under whatever names, have one number and are answered once."""

    def __init__(self) -> None:
        self._names: dict[str, Plan] = {}
        self._numbers: dict[Plan, int] = {}
        self._next = count()

    def __iter__(self) -> Iterator[tuple[int, Plan]]:
        """The different ones."""
        return ((number, plan) for plan, number in self._numbers.items())

    def add(self, name: str, plan: Plan) -> tuple[int, bool]:
        """Take in a query; gives its number, and if it is new. Raises UsageError for a taken name."""
        if name in self._names:
            raise UsageError(f"there is a standing query {name!r} already")
        self._names[name] = plan
        is_new = plan not in self._numbers
        if is_new:
            self._numbers[plan] = next(self._next)
        return self._numbers[plan], is_new

    def remove(self, name: str) -> int | None:
        """Drop a name; gives the query's number if that was its last. Raises UsageError if there is none."""
        if name not in self._names:
            raise UsageError(f"no standing query {name!r}{nearest(name, self._names)}")
        plan = self._names.pop(name)
        return None if plan in self._names.values() else self._numbers.pop(plan)

    def over(self, schema: Schema) -> AnsweredQueries:
        """The same over a changed schema, numbers kept. Raises QueryError if one cannot be read there."""
        changed = AnsweredQueries()
        changed._names = {name: plan.over(schema) for name, plan in self._names.items()}
        changed._numbers = {changed._names[name]: self._numbers[plan] for name, plan in self._names.items()}
        changed._next = self._next
        return changed
