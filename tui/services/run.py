"""What the app can ask of a run, whichever engine it is on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from tui.services.live_rows import LiveRows


@dataclass(frozen=True, slots=True)
class AddQuery:
    """Answer a query from now on, its results alive now first."""

    text: str


@dataclass(frozen=True, slots=True)
class RemoveQuery:
    """Answer a query no longer."""

    text: str


@dataclass(frozen=True, slots=True)
class ApplySchema:
    """Go on with the schema of a YAML text, without losing live tuples."""

    text: str


@dataclass(frozen=True, slots=True)
class Observe:
    """Tell what the mesh of a query is at."""

    text: str


Command: TypeAlias = AddQuery | RemoveQuery | ApplySchema | Observe


class Run(Protocol):
    """A live search under way; it tells what comes of all this through its outbox. Any thread may call.

    ``rows`` are the latest tuples of its window; None until it has begun.
    """

    @property
    def rows(self) -> LiveRows | None: ...

    @property
    def paused(self) -> bool: ...

    @property
    def speed(self) -> float: ...

    def post(self, command: Command) -> None:
        """Do it soon."""

    def pause(self) -> None:
        """Take in nothing until ``resume``; a replay stands still."""

    def resume(self) -> None: ...

    def set_speed(self, speed: float) -> None:
        """Of a replay, times its own; other sources go at theirs."""

    def start(self) -> None:
        """Begin, in the background."""

    def stop(self) -> None:
        """End soon; gives back when it has."""
