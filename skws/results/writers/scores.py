"""Scores for people: the rank, the score, why a result left, and what the score is made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from skws.ranking.score import Part, Score
from skws.results.model import Result
from skws.results.writers.text import visible


def standing(result: Result) -> str:
    """``2. 0.483``: rank and score, as far as there are any."""
    rank = "" if result.place is None else f"{result.place.rank}. "
    return rank + ("" if result.score is None else short(result.score.value))


def fate(result: Result) -> str:
    """Why a result left the best ones, and how many near-duplicates it stands for; empty if neither."""
    if result.place is None:
        return ""
    notes = [result.place.reason or "", f"{result.place.folded} alike" if result.place.folded else ""]
    return ", ".join(filter(None, notes))


def explained(result: Result) -> Iterator[str]:
    """A line for each part of the score, if they are to be shown."""
    if result.score is None or not result.score.explained or result.op == "-":
        return
    yield f"score {short(result.score.value)} = {_product(result.score)}"
    for part in result.score.parts:
        if part.why:
            yield f"  {visible(part.name)} {short(part.value)}: {'; '.join(map(_fact, part.why))}"


def short(value: float) -> str:
    return f"{value:.4g}"


def _product(score: Score) -> str:
    return " x ".join(_named(part) for part in score.parts)


def _named(part: Part) -> str:
    return f"{visible(part.name)} {short(part.value)}"


def _fact(fact: dict[str, Any]) -> str:
    if "keyword" in fact:
        return visible(
            f"{fact['keyword']} in {fact['tuple']}'s {fact['attribute']} {short(fact['weight'])}"
            f" ({fact['containing']:,} of {fact['texts']:,} texts)"
        )
    if "join" in fact:
        return visible(f"{fact['join']} {short(fact['value'])} ({fact['tuples']:,} tuples share it)")
    return ", ".join(f"{visible(name)} {_shown(value)}" for name, value in fact.items())


def _shown(value: object) -> str:
    if isinstance(value, list):
        return "/".join(map(_shown, value))
    return short(value) if isinstance(value, float) else visible(str(value))
