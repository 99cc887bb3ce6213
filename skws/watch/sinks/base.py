"""What a sink is to whoever gives it results: batches by number, each told once.

A run that goes on after a failure gives some batches again, with the same
numbers. A sink knows, from the folder of the run, the last batch that it has
for good; it passes over that one and all before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from schema.errors import SkwsError
from schema.model import Schema
from skws.results.model import LiveResult

NONE: Final = -1
"""Before all batches."""


class SinkError(SkwsError):
    """Results cannot be written."""


@dataclass(slots=True)
class Run:
    """What sinks are told of the run.

    ``id`` stays the same when a run goes on after its end. ``folder`` keeps
    what sinks know of it, None if it cannot go on. ``wait`` lets some seconds
    pass and says False if the run shall end instead. ``tell`` takes lines for
    the user. ``schema`` is that of the results to come; it may change.
    ``least``: of each file in ``folder`` that the checkpoint knows, the batch
    that it has got to. ``held``: the last batch that some sink has had.
    """

    id: str
    folder: Path | None
    schema: Schema
    match_names: bool
    wait: Callable[[float], bool]
    tell: Callable[[str], None]
    least: dict[str, int] = field(default_factory=dict)
    held: int = NONE

    def hold(self, batch: int) -> None:
        """A sink has had a batch already."""
        self.held = max(self.held, batch)


class Sink(Protocol):
    """A place for results. One thread at a time; all methods may raise SinkError.

    ``name`` is fit to be shown (no password in it). ``every``: the seconds
    between two flushes that suit it.
    """

    @property
    def name(self) -> str: ...

    @property
    def every(self) -> float: ...

    def open(self, run: Run) -> None:
        """Called once, before all else. What a broken run left half written is taken back here."""

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        """Results of one batch, in order; numbers of batches grow. Shown at once, if the sink can.

        A retraction is a result too (``op`` is ``-``). Takes its time: whoever
        calls waits, and so does the source.
        """

    def flush(self) -> None:
        """Behind this, all that was written is there for good, and no such batch is taken again."""

    def close(self) -> None:
        """Let go of files and connections. What was not flushed may be lost."""
