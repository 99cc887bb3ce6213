"""A result's score: the product of its parts, and where it stands in the order of all results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, log2, prod
from typing import Any, Final, TypeAlias

FRESHNESS: Final = "freshness"
"""The part that fades: it halves with every half-life that passes."""

Rank: TypeAlias = tuple[int, float]


@dataclass(frozen=True, slots=True)
class Part:
    """One factor of a score; ``why`` are the facts that it was computed from, as JSON objects."""

    name: str
    value: float
    why: tuple[dict[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"part": self.name, "value": self.value}
        if self.why:
            shown["why"] = list(self.why)
        return shown


@dataclass(frozen=True, slots=True)
class Score:
    """The score of a result at an instant.

    ``found`` and ``half_life`` are in seconds: the event time of the newest
    tuple (None: all are static), and what halves the freshness (None: nothing
    fades). ``at`` is the instant that ``parts`` hold for, None for ``found``.
    ``explained``: the parts are shown too. ``kept``: the rank of when it was
    found, which rounding must not touch.
    """

    parts: tuple[Part, ...]
    found: float | None = None
    half_life: float | None = None
    at: float | None = None
    explained: bool = False
    kept: Rank | None = None

    @property
    def value(self) -> float:
        """The product of the parts."""
        return prod(part.value for part in self.parts)

    @property
    def rank(self) -> Rank:
        """The greater, the better; the same at every instant.

        What fades, fades for all results alike (forward decay: Cormode,
        Shkapenyuk, Srivastava and Xu, ICDE 2009), so their order follows from the
        values when they were found, moved to one common instant; as logarithms,
        since that instant is far away. Static results were always there: beside
        those of a stream they come last.
        """
        if self.kept is not None:
            return self.kept
        value = self.value
        order = log2(value) if value > 0 else -inf
        if self.half_life is None:
            return 0, order
        if self.found is None:
            return -1, order
        return 0, order + self.found / self.half_life

    def when(self, seconds: float | None) -> Score:
        """The score at an instant, which is None where it is not known."""
        if self.half_life is None or self.found is None or seconds is None:
            return self
        since = seconds - (self.found if self.at is None else self.at)
        faded = tuple(
            replace(part, value=part.value * 0.5 ** (since / self.half_life))
            if part.name == FRESHNESS
            else part
            for part in self.parts
        )
        return replace(self, parts=faded, at=seconds, kept=self.rank)

    def to_dict(self) -> dict[str, Any]:
        """All of it, for ``of_dict``."""
        parts = [part.to_dict() for part in self.parts]
        return {
            "parts": parts,
            "found": self.found,
            "half_life": self.half_life,
            "at": self.at,
            "explained": self.explained,
            "kept": self.kept,
        }

    @classmethod
    def of_dict(cls, shown: dict[str, Any]) -> Score:
        parts = tuple(Part(p["part"], p["value"], tuple(p.get("why", ()))) for p in shown["parts"])
        kept = shown["kept"] and (shown["kept"][0], shown["kept"][1])
        return cls(parts, shown["found"], shown["half_life"], shown["at"], shown["explained"], kept)
