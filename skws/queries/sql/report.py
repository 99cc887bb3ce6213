"""The verdict on a query: as JSON, as text, and as the reason to refuse the query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from skws_bounds.maxref import Failure
from skws_bounds.normal_form import Atom, Place, Union
from skws_bounds.repairs import WINDOW, Repair
from skws_bounds.repairs import repairs as repairs_of
from skws_bounds.verdict import Verdict, check
from skws_schema.errors import UsageError

_HEADINGS = {True: "bounded", False: "not bounded", None: "not known to be bounded"}
_REASONS = {
    (True, False): "duplicates are kept, and all conditions of Theorem 1 hold",
    (True, True): "duplicates are eliminated, and all conditions of Theorem 2 hold",
    (False, False): "duplicates are kept, and Theorem 1 needs all of its conditions",
    (False, True): "duplicates are eliminated, so all output has to be remembered",
    (None, False): "duplicates are kept, and not all orders could be checked",
    (None, True): "duplicates are eliminated; Theorem 2 does not apply, so it is not decided",
}


def to_json(union: Union, verdict: Verdict, repairs: Sequence[Repair]) -> dict[str, Any]:
    """The verdict as ``skws bounds check --format json`` prints it; consumers depend on it."""
    return {
        "bounded": verdict.bounded,
        "projection": verdict.projection,
        "failed": [_failed(union.text, failure) for failure in verdict.failures],
        "repairs": [*map(str, repairs), WINDOW] if verdict.failures else [],
        "certain": verdict.certain,
    }


def to_text(union: Union, verdict: Verdict, repairs: Sequence[Repair]) -> str:
    return "".join(f"{line}\n" for line in _lines(union, verdict, repairs))


def _failed(text: str, failure: Failure) -> dict[str, Any]:
    return {
        "condition": failure.condition,
        "atoms": [_located(text, atom) for atom in failure.atoms]
        + [_column(text, p) for p in failure.columns],
        "streams": list(failure.streams),
        "attributes": list(map(str, failure.attributes)),
        "message": failure.message,
    }


def _located(text: str, atom: Atom) -> dict[str, Any]:
    if atom.place is None:
        return {"text": str(atom), "line": None, "column": None}
    line, column = _place(text, atom.place.start)
    return {"text": str(atom), "line": line, "column": column}


def _column(text: str, place: Place) -> dict[str, Any]:
    """A projected column, where no atom is responsible."""
    line, column = _place(text, place.start)
    return {"text": text[place.start : place.end], "line": line, "column": column}


def _place(text: str, offset: int) -> tuple[int, int]:
    """Line and column, from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _lines(union: Union, verdict: Verdict, repairs: Sequence[Repair]) -> Iterator[str]:
    yield f"{_HEADINGS[verdict.bounded]}: {_REASONS[verdict.bounded, verdict.distinct]}"
    yield from reasons(union, verdict)
    if verdict.bounded is False and not verdict.certain:
        yield "  the theorem is about synopses of one form; others might do: skws bounds run --force-synopses"
    if verdict.failures:
        yield from offers(repairs)


def reasons(union: Union, verdict: Verdict) -> Iterator[str]:
    """The conditions that fail, each with the responsible atoms and their places."""
    for failure in verdict.failures:
        yield f"  {failure.condition}: {failure.message}"
        for atom in failure.atoms:
            yield f"    {_written(union.text, atom)}"
        for place in failure.columns:
            column = _column(union.text, place)
            yield f"    line {column['line']}, column {column['column']}: {column['text']}"


def offers(repairs: Sequence[Repair]) -> Iterator[str]:
    """Changes that would make a query bounded."""
    yield "any of these would make it bounded:" if repairs else "no small change makes it bounded, but:"
    yield from (f"  - {repair}" for repair in repairs)
    yield f"  - {WINDOW}"


def _written(text: str, atom: Atom) -> str:
    if atom.place is None:
        return str(atom)
    line, column = _place(text, atom.place.start)
    return f"line {line}, column {column}: {atom}"


def refuse_unbounded_union(union: Union, what: str = "this query") -> None:
    """Raises UsageError with the conditions that fail, the atoms responsible and the smallest repairs."""
    verdict = check(union)
    if not verdict.bounded:
        raise UsageError("\n".join(_refusal(union, verdict, what)))


def _refusal(union: Union, verdict: Verdict, what: str) -> Iterator[str]:
    needs = "needs" if verdict.bounded is False and verdict.certain else "may need"
    yield f"{what} {needs} unbounded memory:"
    yield from reasons(union, verdict)
    yield from offers(repairs_of(union, verdict))
