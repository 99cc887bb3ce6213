"""Refuses queries in SQL and patterns that are not bounded, with all that tells why and what would help."""

from __future__ import annotations

from collections.abc import Iterator

from skws.queries.sql.report import offers, reasons
from skws_bounds.normal_form import Union
from skws_bounds.repairs import repairs
from skws_bounds.verdict import Verdict, check
from skws_schema.errors import UsageError


def refuse_unbounded_union(union: Union, what: str = "this query") -> None:
    """Raises UsageError with the conditions that fail, the atoms responsible and the smallest repairs."""
    verdict = check(union)
    if not verdict.bounded:
        raise UsageError("\n".join(_refusal(union, verdict, what)))


def _refusal(union: Union, verdict: Verdict, what: str) -> Iterator[str]:
    needs = "needs" if verdict.bounded is False and verdict.certain else "may need"
    yield f"{what} {needs} unbounded memory:"
    yield from reasons(union, verdict)
    yield from offers(repairs(union, verdict))
