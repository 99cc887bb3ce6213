"""Window expressions (window paper, Definition 7), with the selection, limits and keys of the language."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

from skws_windows.automata.k_sla import LookbackAutomaton
from skws_windows.automata.regular import Regular, letters, to_automaton
from skws_windows.guards import guard as g


class Selection(StrEnum):
    """Which of the windows count.

    ``every``: all. ``longest``: of those that end at one record, the one that
    begins first. ``first``: a window begins only while none is open, and ends
    where it first can.
    """

    EVERY = "every"
    FIRST = "first"
    LONGEST = "longest"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on windows: records in them, and microseconds from their first to their last. None: no bound."""

    least: int = 1
    most: int | None = None
    within: int | None = None

    @property
    def bounding(self) -> bool:
        """Whether the limits keep windows from growing without bound."""
        return self.most is not None or self.within is not None

    @property
    def any(self) -> bool:
        return self.bounding or self.least > 1


NO_LIMITS: Final = Limits()


@dataclass(frozen=True)
class Pair:
    """(r, r'): automata of the stream before a window, from its start on, and of the window itself."""

    before: LookbackAutomaton
    window: LookbackAutomaton

    @classmethod
    def of(cls, before: Regular, window: Regular, k: int) -> Pair:
        return cls(to_automaton(before, k), to_automaton(window, k))


@dataclass(frozen=True)
class WindowExpression:
    """A set of pairs with one lookback; (ib, ie) is a window if one of the pairs says so.

    That is, for k <= ib <= ie: w[0:ib-1] is in L(r) and w[ib-k:ie] in L(r').
    ``per`` names the fields by whose values the stream is split first.
    """

    pairs: tuple[Pair, ...]
    selection: Selection = Selection.EVERY
    limits: Limits = NO_LIMITS
    per: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.pairs:
            raise ValueError("a window expression needs a pair")
        if len({a.k for pair in self.pairs for a in (pair.before, pair.window)}) > 1:
            raise ValueError("all automata of a window expression have the same lookback")

    @property
    def k(self) -> int:
        return self.pairs[0].before.k

    @cached_property
    def guards(self) -> tuple[g.Guard, ...]:
        """The distinct guards of all automata: each is evaluated once a record."""
        found = (guard for p in self.pairs for a in (p.before, p.window) for guard in a.guards)
        return tuple(dict.fromkeys(found))


def lookback_of(regulars: list[Regular]) -> int:
    """The lookback that the guards of regular expressions need."""
    return max((g.lookback(guard) for regular in regulars for guard in letters(regular)), default=0)


def expression(
    pairs: list[tuple[Regular, Regular]],
    k: int | None = None,
    selection: Selection = Selection.EVERY,
    limits: Limits = NO_LIMITS,
    per: tuple[str, ...] = (),
) -> WindowExpression:
    """A window expression from pairs (r, r'); its lookback is what they need unless ``k`` is larger."""
    needed = lookback_of([side for pair in pairs for side in pair])
    k = max(needed, k or 0)
    return WindowExpression(tuple(Pair.of(a, b, k) for a, b in pairs), selection, limits, per)
