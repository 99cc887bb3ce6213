"""A server that is away: tried again after a while that doubles, and not for ever.

Nothing here waits by itself: whoever follows asks when it is time, and the
user is told of each try.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from schema.errors import NotYetError, SourceError
from skws.sources.clock import Clock

FIRST_WAIT: Final = 100_000
LONGEST_WAIT: Final = 10_000_000
GIVE_UP: Final = 300_000_000
"""Microseconds."""

T = TypeVar("T")


class Outage:
    """Whether the server ``shown`` is away, and when to try again; ``notices`` are for the user."""

    def __init__(self, shown: str, clock: Clock) -> None:
        self.notices: list[str] = []
        self._shown = shown
        self._clock = clock
        self._since: int | None = None
        self._next_try = 0
        self._wait = FIRST_WAIT

    @property
    def lasts(self) -> bool:
        return self._since is not None

    @property
    def too_early(self) -> bool:
        """True while it is not yet time to try again."""
        return self._since is not None and self._clock.now() < self._next_try

    @property
    def left(self) -> int:
        """Microseconds until it is time to try again."""
        return max(0, self._next_try - self._clock.now()) if self.lasts else 0

    def failed(self, failure: SourceError) -> None:
        """It did not work. Raises SourceError if that has lasted too long."""
        now = self._clock.now()
        if self._since is None:
            self._since = now
        if now - self._since > GIVE_UP:
            raise SourceError(f"{failure} (tried for {GIVE_UP // 1_000_000} seconds)")
        self.notices.append(f"{failure}; trying again in {self._wait / 1_000_000:g} s")
        self._next_try = now + self._wait
        self._wait = min(2 * self._wait, LONGEST_WAIT)

    def over(self) -> None:
        """It works."""
        if self._since is not None:
            self.notices.append(f"{self._shown}: connected again, going on")
        self._since, self._wait = None, FIRST_WAIT

    def wait(self) -> None:
        """Sleeps until it is time to try again."""
        self._clock.sleep(self.left)

    def told(self) -> tuple[str, ...]:
        """The notices so far, once."""
        told = tuple(self.notices)
        self.notices.clear()
        return told


def awaited(
    attempt: Callable[[], T], clock: Clock, wait: Callable[[float], bool], tell: Callable[[str], None]
) -> T | None:
    """What ``attempt`` gives, tried again while it raises NotYetError; None if the run ends meanwhile.

    ``wait`` lets some seconds pass and says False if the run shall end;
    ``tell`` takes lines for the user. Raises SourceError where trying again is
    of no use, or has lasted too long.
    """
    outage = Outage("", clock)
    while True:
        try:
            return attempt()
        except NotYetError as failure:
            outage.failed(failure)
        for notice in outage.told():
            tell(notice)
        if not wait(outage.left / 1_000_000):
            return None
