"""What a live search is asked to do, whichever engine runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from schema.errors import UsageError
from schema.model import Schema
from skws.choices import DEFAULT_MAX_SIZE, EngineName, EvaluatorName, OnError, check_master
from skws.live.kinds import check
from skws.live.ranked import TOP
from skws.live.standing import KEYWORDS, PATTERN, WINDOW, Query, Standing
from skws.live.stream import Stream
from skws.memory import asked
from windows.window import CountWindow, ExpressionWindow, Window, parse_window

STDOUT: Final = "stdout:table"


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """Which standing queries to answer over which source, how, and where results go.

    ``queries``: by name, texts being keywords; more may be added while it runs. ``source``: an
    address for ``skws.sources.addresses``. ``window``: None for the schema's.
    ``lateness``: microseconds of event time. ``sinks``: addresses for
    ``skws.watch.sinks``. ``checkpoint``: the folder from which a run goes on
    after its end, None to keep nothing. ``control``: the folder through which
    queries are added and removed, None for none. ``speed``: of a replay, None
    for the source's own. ``limit``: the most results to give. ``metrics_port``
    (0: any free one) and ``metrics_file``: None for none. ``packages``: Spark's.
    ``force_unbounded``: without a window take queries that need unbounded memory.
    ``allow_unbounded_windows``: also if windows of an expression can pile up.
    ``evaluator``: what evaluates the networks of keyword queries; a run may go on with another one.
    ``memory``: what the processes that keep its shards may take together, on one machine.
    """

    queries: Mapping[str, str | Query]
    schema: Schema
    source: str
    window: Window | None = None
    max_size: int = DEFAULT_MAX_SIZE
    match_names: bool = False
    engine: EngineName = EngineName.SPARK
    master: str | None = None
    packages: tuple[str, ...] = ()
    lateness: int = 0
    on_error: OnError = OnError.FAIL
    dead_letters: Path | None = None
    limit: int | None = None
    sinks: tuple[str, ...] = field(default=(STDOUT,))
    checkpoint: Path | None = None
    control: Path | None = None
    metrics_port: int | None = None
    metrics_file: Path | None = None
    speed: float | None = None
    force_unbounded: bool = False
    allow_unbounded_windows: bool = False
    evaluator: EvaluatorName = EvaluatorName.MESH
    memory: str = field(default_factory=asked, compare=False)

    def __post_init__(self) -> None:
        if self.engine is EngineName.LOCAL and (self.master is not None or self.packages):
            raise UsageError("--master and --packages need --engine spark: the local engine runs here")
        check_master(self.master)
        if self.on_error is OnError.DEAD_LETTER and self.dead_letters is None:
            raise UsageError("--on-error dead-letter needs the name of a file for the dead letters")
        if self.speed is not None and not self.speed > 0:
            raise UsageError(f"--speed {self.speed:g}: expected a number above 0")
        if self.lateness and isinstance(self.plan_window, CountWindow):
            raise UsageError("--lateness needs a window of time: positions in a stream are never late")
        if self.evaluator is not EvaluatorName.MESH:
            self._check_evaluator()

    def _check_evaluator(self) -> None:
        if self.lateness:
            raise UsageError(
                f"--evaluator {self.evaluator} does not go with --lateness: automata read records in order"
            )
        if isinstance(self.plan_window, ExpressionWindow) or self.stream.bounded:
            raise UsageError(
                f"--evaluator {self.evaluator} needs a window of time or of tuples: "
                "without one automata forget nothing"
            )

    @property
    def stream(self) -> Stream:
        """What its queries share."""
        return Stream(
            self.schema,
            self.plan_window,
            self.lateness,
            self.max_size,
            self.match_names,
            self.force_unbounded,
            self.evaluator,
        )

    @property
    def asks_keywords(self) -> bool:
        """True if a query of keywords is among those that are given, or none is."""
        if isinstance(self.plan_window, ExpressionWindow):
            return False  # they are of another kind then
        return not self.queries or any(asked.kind == KEYWORDS for asked in self._asked().values())

    @property
    def keeps_past(self) -> bool:
        """Whether a run keeps its latest records, for queries and schemas that come to it later."""
        return self.checkpoint is not None or self.control is not None or not self.queries

    @property
    def plan_window(self) -> Window:
        """The window that holds. Raises UsageError if the schema's cannot be read."""
        return self.window or parse_window(self.schema.window)

    def given(self) -> dict[str, Standing]:
        """The queries by name. Raises QueryError, PatternError, UsageError."""
        given = {name: self.standing(name, asked) for name, asked in self._asked().items()}
        for standing in given.values():
            check(standing, self.stream)
        return given

    def standing(self, name: str, asked: Query) -> Standing:
        """The standing query of a name; under a window expression it is told that."""
        own = asked.options.get(WINDOW)
        window = self.plan_window if own is None else parse_window(own)
        if asked.kind in (KEYWORDS, TOP, PATTERN) and isinstance(window, ExpressionWindow):
            asked = asked.over(window, allowed=self.allow_unbounded_windows)
        return asked.named(name, self.max_size)

    def _asked(self) -> dict[str, Query]:
        return {
            name: Query(asked) if isinstance(asked, str) else asked for name, asked in self.queries.items()
        }
