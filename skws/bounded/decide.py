"""Refuses queries in SQL and patterns that are not bounded, with all that tells why and what would help."""

from __future__ import annotations

from collections.abc import Iterator

from bounds.query import Union
from bounds.repairs import repairs
from bounds.verdict import Verdict, check
from schema.errors import UsageError
from skws.bounded.report import offers, reasons


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
