"""What a result is judged by: facts about its tuples at the instant at which it was found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Match:
    """A keyword in one attribute of one tuple.

    ``occurrences``: how often it stands there. ``length``: of the text, in
    characters. ``texts``, ``containing`` and ``mean_length`` are of that
    attribute in the live tuples: how many are not NULL, how many contain the
    keyword, how long they are on average.
    """

    keyword: str
    tuple: str
    attribute: str
    occurrences: int
    length: int
    texts: int
    containing: int
    mean_length: float


@dataclass(frozen=True, slots=True)
class JoinFan:
    """A join of the result: on its busier side so many live ``tuples`` have the joined value."""

    name: str
    tuples: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """``ages``: seconds from each stream tuple to the newest. ``half_life`` in seconds, None for none."""

    matches: tuple[Match, ...]
    size: int
    ages: tuple[float, ...]
    joins: tuple[JoinFan, ...]
    half_life: float | None
