"""How fast a live search goes: through a replay, and from poll to poll."""

from __future__ import annotations

from typing import Final

from schema.errors import UsageError
from skws.sources.clock import Clock
from skws.watch.request import WatchRequest

_REPLAY: Final = "replay:"
_LEAST_REST: Final = 2_000  # microseconds
_MOST_REST: Final = 50_000


def replay_rate(request: WatchRequest) -> float:
    """What a replay's own speed is multiplied by. Raises UsageError where that makes no sense."""
    if request.speed is None:
        return 1.0
    if not request.source.startswith(_REPLAY):
        raise UsageError("--speed needs a source replay:PATH: others go at their own speed")
    if "speed=" in request.source.partition("?")[2]:
        raise UsageError("--speed and speed= in the source are two ways to say one thing: leave one out")
    return request.speed


def paced(source: str, request: WatchRequest) -> str:
    """The name of a source for the note that a run begins; of a replay with its pace."""
    if not request.source.startswith(_REPLAY) or "speed=" in request.source.partition("?")[2]:
        return source
    name = source.rpartition("?")[0]
    if request.speed in (None, 1):
        return f"{name} at the pace at which it happened (--speed N goes N times as fast)"
    return f"{name} {request.speed:g} times as fast as it happened"


class Rest:
    """Rests between polls that gave nothing, each twice as long as the one before, up to 50 ms."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._micros = _LEAST_REST

    def after(self, *, busy: bool) -> None:
        """Rest, if the last poll gave nothing."""
        if busy:
            self._micros = _LEAST_REST
            return
        self._clock.sleep(self._micros)
        self._micros = min(2 * self._micros, _MOST_REST)
