"""A pattern over the windows of an expression, as a standing query: it keeps its own state.

Patterns whose windows are the same find them together: those that have not
begun when the next record comes, and those that go on from equal states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from weakref import WeakValueDictionary

import orjson

from skws.data.record import Record
from skws.queries.evaluator import Counting, Evaluator, Load, OrderedBatch
from skws.queries.patterns import PatternQuery, PatternResult
from skws.queries.windowed.pattern import WindowedPattern
from skws.queries.windowed.stream_windows import SharedStreamWindows
from skws.queries.windowed.window_span import WindowSpan
from skws.spec.stream import Stream
from skws_schema.evolution import nameable
from skws_schema.model import Schema
from skws_windows.window import ExpressionWindow

_NOT_BEGUN: Final = orjson.dumps(None)


class SharedWindows:
    """Windows of one expression, from one record on. ``origin``: the state that they go on from."""

    def __init__(self, schema: Schema, window: ExpressionWindow, origin: bytes) -> None:
        self.started = False
        self.windows = SharedStreamWindows(schema, window)
        self._origin = origin
        self._begun = origin != _NOT_BEGUN
        if self._begun:
            self.windows.tracker.restore(orjson.loads(origin))

    def begin(self, position: int) -> None:
        """A record comes, at a position of the stream: nobody joins from now on."""
        self.started = True
        if not self._begun:
            self.windows.tracker.position = position
            self._begun = True

    def state(self) -> bytes:
        """From where windows go on after a failure."""
        return self.windows.state() if self.started else self._origin


class AllWindows:
    """The windows of all patterns of one live search."""

    def __init__(self) -> None:
        self._joined: WeakValueDictionary[tuple[object, ...], SharedWindows] = WeakValueDictionary()

    def join(self, schema: Schema, window: ExpressionWindow, origin: bytes = _NOT_BEGUN) -> SharedWindows:
        """Those that go on from a state."""
        key = (schema, window, origin)
        found = self._joined.get(key)
        if found is None or found.started:
            found = self._joined[key] = SharedWindows(schema, window, origin)
        return found


class StandingWindowedPattern(Counting):
    """Windows begin with the first record that comes after the query."""

    keeps: Final = None

    def __init__(
        self, query: PatternQuery, stream: Stream, window: ExpressionWindow, windows: AllWindows
    ) -> None:
        self._made_of = query, nameable(stream.schema), window
        self._all = windows
        self._go_on(_NOT_BEGUN)

    def load_tables(self, records: Sequence[Record]) -> None:
        """Takes no tables."""

    def begin(self, past: Iterable[OrderedBatch]) -> Iterable[PatternResult]:  # noqa: ARG002 - protocol
        """Nothing: what windows held is over when they end."""
        return ()

    def take(self, arrived: OrderedBatch) -> Iterable[PatternResult]:
        if not self._shared.started:
            self._shared.begin(arrived.position)
        return self._pattern.process(arrived.batch)

    @property
    def waits(self) -> bool:
        return False

    def end(self) -> Iterable[PatternResult]:
        """Windows that are open are not told."""
        return ()

    def take_over(self, former: Evaluator) -> Iterable[PatternResult]:
        """With the state of the former."""
        self.restore(former.snapshot())
        return ()

    def load(self) -> Load:
        return Load(self._pattern.live_tuples, self._pattern.runs, self._pattern.waiting)

    def stretches(self) -> list[WindowSpan]:
        """The windows that ended last, and those that are open."""
        return self._shared.windows.stretches()

    def snapshot(self) -> bytes:
        """As JSON; the windows' part is written once for all that share them."""
        windows = self._shared.state()
        if windows == _NOT_BEGUN:
            return _NOT_BEGUN
        return orjson.dumps({"tracker": orjson.Fragment(windows), **self._pattern.held()})

    def restore(self, state: bytes) -> None:
        held = orjson.loads(state)
        if held is None:
            self._go_on(_NOT_BEGUN)
            return
        self._go_on(orjson.dumps(held["tracker"]))
        self._pattern.hold(held)

    def _go_on(self, origin: bytes) -> None:
        _, schema, window = self._made_of
        self._shared = self._all.join(schema, window, origin)
        self._pattern = WindowedPattern(*self._made_of, self._shared.windows)
