"""Refuses queries in SQL that are not bounded."""

from __future__ import annotations

from bounds.query import Union
from bounds.verdict import check
from schema.errors import UsageError


def refuse_unbounded_sql(union: Union) -> None:
    """Raises UsageError with the conditions that fail."""
    verdict = check(union)
    if not verdict.bounded:
        reasons = "".join(f"\n  {f.condition}: {f.message}" for f in verdict.failures)
        known = "needs" if verdict.bounded is False and verdict.certain else "is not known not to need"
        raise UsageError(
            f"this query {known} unbounded memory:{reasons}\n'skws bounds check' tells what would help"
        )
