"""So many results in so much time; what is too much is counted and held back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from skws.queries.results import moment
from skws.results.model import LiveResult, Result
from skws_schema.errors import UsageError
from skws_windows.window import MICROSECOND, parse_duration

_FORM: Final = re.compile(r"\s*(\d+)\s+per\s+(\d.*|[a-z]+)\s*", re.IGNORECASE)
_REMEMBERED: Final = 100_000  # results held back, so that their retractions are, too


@dataclass(frozen=True, slots=True)
class Rate:
    """At most ``most`` results in each stretch of ``length`` microseconds of event time."""

    most: int
    length: int

    @classmethod
    def of(cls, text: str) -> Rate:
        """``10 per minute``, ``1 per 2 hours``. Raises UsageError."""
        found = _FORM.fullmatch(text)
        if found is None or not int(found[1]):
            raise UsageError(f"limit {text!r}: expected such as '10 per minute'")
        length = found[2] if found[2][0].isdigit() else f"1 {found[2]}"
        return cls(int(found[1]), parse_duration(length, what="limit"))


class Limiter:
    """Lets the results of one query through, up to a rate. Stretches begin at multiples of their length."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._stretch: int | None = None
        self._told = 0
        self._held: dict[str, None] = {}
        self.held_back = 0

    def let(self, result: LiveResult) -> LiveResult | None:
        """The result, with the number of those held back since the last one; None if it is held back.

        What takes back a result is let through, unless that one was held back.
        """
        if result.op == "-":
            if result.id in self._held:
                del self._held[result.id]
                return None
            return result
        stretch = int(moment(result) * MICROSECOND) // self._rate.length
        if stretch != self._stretch:
            self._stretch, self._told = stretch, 0
        if self._told >= self._rate.most:
            self._hold(result.id)
            return None
        self._told += 1
        if not isinstance(result, Result):
            return result  # has no place for their number, which is told at the end
        held, self.held_back = self.held_back, 0
        return replace(result, held_back=held) if held else result

    def state(self) -> dict[str, Any]:
        """All that decides what is let through next, as JSON."""
        return {
            "rate": [self._rate.most, self._rate.length],
            "stretch": self._stretch,
            "told": self._told,
            "held": list(self._held),
            "held_back": self.held_back,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state``; one of another rate counts no more."""
        if state["rate"] == [self._rate.most, self._rate.length]:
            self._stretch, self._told = state["stretch"], state["told"]
            self._held, self.held_back = dict.fromkeys(state["held"]), state["held_back"]

    def _hold(self, name: str) -> None:
        self.held_back += 1
        self._held[name] = None
        if len(self._held) > _REMEMBERED:
            del self._held[next(iter(self._held))]
