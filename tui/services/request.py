"""What the terminal UI is asked to show."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from schema.errors import UsageError
from schema.model import Schema
from skws.choices import DEFAULT_MAX_SIZE, EngineName, OnError, check_master
from windows.window import CountWindow, Window, parse_window


@dataclass(frozen=True, slots=True)
class UiRequest:
    """A live search to open the UI on.

    ``schema_path``: where the editor saves. ``source``: an address for
    ``skws.sources.addresses``, None to look at the schema alone. ``queries``
    stand from the start, those without a window whose memory no theorem bounds
    only if ``force_unbounded``; ``allow_unbounded_windows``: also if windows of an
    expression can pile up. ``speed`` multiplies a replay's own. ``lateness`` in
    microseconds. ``restore``: keep a session, and go on with the last one.
    ``served``: to a browser, which reaches no files but those in the folder ``exports``.
    """

    schema: Schema
    schema_path: Path
    source: str | None = None
    queries: tuple[str, ...] = ()
    window: Window | None = None
    max_size: int = DEFAULT_MAX_SIZE
    match_names: bool = False
    engine: EngineName = EngineName.LOCAL
    master: str | None = None
    lateness: int = 0
    on_error: OnError = OnError.SKIP
    dead_letters: Path | None = None
    speed: float = 1.0
    theme: str | None = None
    restore: bool = True
    force_unbounded: bool = False
    allow_unbounded_windows: bool = False
    served: bool = False
    exports: Path | None = None

    def __post_init__(self) -> None:
        if self.engine is EngineName.LOCAL and self.master is not None:
            raise UsageError("--master needs --engine spark: the local engine runs here")
        check_master(self.master)
        if not self.speed > 0:
            raise UsageError(f"--speed {self.speed:g}: expected a number above 0")
        if self.lateness and isinstance(self.plan_window, CountWindow):
            raise UsageError("--lateness needs a window of time: positions in a stream are never late")
        if self.on_error is OnError.DEAD_LETTER and self.dead_letters is None:
            raise UsageError("--on-error dead-letter needs the name of a file for the dead letters")

    @property
    def plan_window(self) -> Window:
        """The window that holds. Raises UsageError if the schema's cannot be read."""
        return self.window or parse_window(self.schema.window)

    def with_queries(self, queries: tuple[str, ...]) -> UiRequest:
        return replace(self, queries=queries)
