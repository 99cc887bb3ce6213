"""What a live search does when it is told to, wherever it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from skws.watch.metrics import Metrics

if TYPE_CHECKING:
    from skws.watch import control


class Steered(Protocol):
    """May be called from any thread."""

    def stop(self) -> None: ...

    def post(self, command: control.Command) -> None: ...

    def metrics(self) -> Metrics: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def set_speed(self, speed: float) -> None: ...
