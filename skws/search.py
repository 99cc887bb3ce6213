"""A search over a replay, whichever engine runs it: from a request to results and counts.

The command line, the terminal UI and tests all search by this module.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from mesh.kinds import MeshKind, PurgeKind
from purging.memory import told
from schema.errors import UsageError
from schema.model import Schema, sourced
from skws.choices import DEFAULT_MAX_SIZE, EngineName, EvaluatorName, OnError, check_master
from skws.engine.collector import expect_long_lived_objects
from skws.engine.columnar import ColumnarEngine
from skws.engine.engine import Counts, Engine
from skws.frequencies import ordered_by_first, ordered_by_first_batch
from skws.keywords import parse_query
from skws.late import Late, late_notice, late_record
from skws.plan import Plan
from skws.progress import Progress, ReportProgress, unreported
from skws.ranking.best_of_windows import BestOfWindows, check_over_windows
from skws.ranking.changelog import Changelog
from skws.ranking.choice import RankingChoice
from skws.ranking.top import TopChoice
from skws.records import Record
from skws.replay import BadRecordLog, Replay
from skws.results.model import Result
from windows.window import ExpressionWindow, Window, parse_window


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What to search for, where, and how.

    ``window``: None for the schema's. ``lateness`` in microseconds: None sorts
    the replay by time, so that nothing is late; else records are taken as they
    arrive, and those later than that are dropped and counted. ``limit``: the
    most results to give. ``master``: Spark's, None for the default. ``mesh``:
    None for the columnar one, else a layout of the paper's, to which alone
    ``purge`` and ``demand`` apply. ``allow_unbounded_windows``: also if windows
    of an expression can pile up without bound. ``evaluator``: of
    candidate networks. ``ranking``: None for results without score. ``top``:
    the changes of the best results instead of all, None for all.
    """

    query: str
    schema: Schema
    replay: tuple[Path, ...]
    window: Window | None = None
    max_size: int = DEFAULT_MAX_SIZE
    match_names: bool = False
    engine: EngineName = EngineName.SPARK
    master: str | None = None
    lateness: int | None = None
    on_error: OnError = OnError.FAIL
    dead_letters: Path | None = None
    limit: int | None = None
    mesh: MeshKind | None = None
    purge: PurgeKind | None = None
    demand: bool = True
    allow_unbounded_windows: bool = False
    ranking: RankingChoice | None = None
    evaluator: EvaluatorName = EvaluatorName.MESH
    top: TopChoice | None = None

    def __post_init__(self) -> None:
        if self.ranking is not None and self.mesh is not None:
            raise UsageError(f"--rank needs the columnar mesh: --mesh {self.mesh} gives results no score")
        if self.top is not None and self.ranking is None:
            raise UsageError("--top needs a ranking")
        if self.engine is EngineName.SPARK and self.lateness is not None:
            raise UsageError(
                "--lateness needs --engine local: on Spark the replay is sorted by time, so nothing is late"
            )
        self._check_mesh()
        if self.evaluator is not EvaluatorName.MESH and (self.mesh or self.lateness is not None):
            other = f"--mesh {self.mesh}" if self.mesh else "--lateness"
            raise UsageError(
                f"--evaluator {self.evaluator} does not go with {other}: automata read batches in order"
            )
        if self.engine is EngineName.LOCAL and self.master is not None:
            raise UsageError("--master needs --engine spark: the local engine runs in this process")
        check_master(self.master)
        if isinstance(self.plan_window, ExpressionWindow):
            self._check_expression()

    def _check_expression(self) -> None:
        if self.top is not None:
            check_over_windows(self.top)
        if self.lateness is not None:
            raise UsageError("--lateness does not go with a window expression: it is over records in order")
        if self.mesh is not None:
            raise UsageError(f"--mesh {self.mesh} does not go with a window expression: leave it out")

    @property
    def plan_window(self) -> Window:
        """The window that holds. Raises UsageError if the schema's cannot be read."""
        return self.window or parse_window(self.schema.window)

    def _check_mesh(self) -> None:
        if self.engine is EngineName.SPARK and self.mesh is not None:
            raise UsageError(
                f"--mesh {self.mesh} needs --engine local: on Spark the mesh is the columnar one"
            )
        if self.purge is not None and self.mesh is None:
            raise UsageError(
                f"--purge {self.purge} needs --mesh full, partial or forest: the columnar one has its own way"
            )
        if not self.demand and self.mesh is not MeshKind.FULL:
            raise UsageError("--no-demand needs --mesh full: only its operators run on demand")

    def plan(self) -> Plan:
        """The plan of the query. Raises QueryError, UsageError for a window that cannot be read."""
        return Plan(
            schema=self.schema,
            query=parse_query(self.query, self.schema, match_names=self.match_names),
            window=self.plan_window,
            max_size=self.max_size,
            lateness=self.lateness or 0,
            mesh=self.mesh or MeshKind.HASHED,
            purge=self.purge,
            demand=self.demand,
            ranking=self.ranking,
            evaluated_by=self.evaluator,
        )


def _admitted(request: SearchRequest) -> str:
    if not isinstance(request.plan_window, ExpressionWindow):
        return ""
    from skws.windowing.admission import admit  # noqa: PLC0415 - z3 and more, for who has an expression

    return admit(request.schema, request.plan_window, allowed=request.allow_unbounded_windows)


class Search:
    """One run of a request. ``counts`` and ``bad`` are complete when the results have been read.

    ``found`` and ``retracted`` are the results and retractions given so far,
    which with a limit are fewer than the engine's. ``warning`` is about windows
    that may pile up, empty if none may. ``tell`` hears at once that records
    come too late.

    Raises QueryError, UsageError, SourceError before anything is read.
    """

    def __init__(self, request: SearchRequest, tell: Callable[[str], None] = lambda _: None) -> None:
        self.request = request
        self._tell = tell
        self.plan = request.plan()
        self.warning = _admitted(request)
        self.replay = Replay.open(request.replay, request.schema)
        self.bad = BadRecordLog(request.on_error, request.dead_letters)
        self.counts = Counts()
        self.found = 0
        self.retracted = 0
        self._ended_at: int | None = None  # the last tick of the stream

    def results(self, report: ReportProgress = unreported) -> Generator[Result, None, None]:
        """Results in order of time; with a lateness, as they are found.

        Raises BadRecordsError, SourceError.
        """
        run = self._on_spark if self.request.engine is EngineName.SPARK else self._in_process
        if sourced(self.plan.schema):
            from skws.tables.cache import pinned  # noqa: PLC0415 - an index needs Arrow

            self.plan = replace(self.plan, schema=pinned(self.plan.schema, report))
        with self.bad, told():
            for result in islice(self._best(run(report)), self.request.limit):
                self.found += result.op == "+"
                self.retracted += result.op == "-"
                yield result

    def _best(self, results: Iterator[Result]) -> Iterator[Result]:
        """The changes of the best results if they are asked for, up to the end of the stream."""
        if self.request.top is None:
            yield from results
            return
        if isinstance(self.plan.window, ExpressionWindow):
            yield from BestOfWindows(self.request.top, self.plan.schema).take(results)
            return
        best = Changelog(
            {self.plan.query.text: self.request.top}, self.plan.schema, timed=not self.plan.by_count
        )
        yield from best.take(results)
        if self._ended_at is not None:
            yield from best.advance(self._ended_at)

    def _in_process(self, report: ReportProgress) -> Iterator[Result]:
        expect_long_lived_objects()
        if isinstance(self.plan.window, ExpressionWindow):
            yield from self._over_windows(report)
            return
        size = self.replay.size_bytes

        def loading(done: int) -> None:
            report(Progress("loading tables", done, size))

        def reading(done: int) -> None:
            report(Progress("reading", done, size))

        plan, by_batch = self.plan, self.request.mesh is None and self.request.lateness is None
        # Tables are loaded before anything of the stream is read, and late records are taken as they come.
        sampled = not any(relation.table for relation in plan.schema.relations) and len(plan.query.slots) > 1
        batches = self.replay.batches(self.bad, reading)
        stream = self.replay.stream(self.bad, reading)
        if self.request.lateness is not None:
            stream = self.replay.arrivals(self.bad, reading)
        elif sampled and by_batch:
            plan, batches = ordered_by_first_batch(plan, batches)
        elif sampled:
            plan, stream = ordered_by_first(plan, stream)
        engine = (Engine if self.request.mesh else ColumnarEngine.of)(plan, self._on_late)
        self.counts = engine.counts
        yield from engine.load_tables(self.replay.tables(self.bad, loading))
        if isinstance(engine, ColumnarEngine):
            yield from engine.process_batches(batches) if by_batch else engine.process(stream)
            self._ended_at = engine.now
        else:
            yield from engine.process(stream)

    def _over_windows(self, report: ReportProgress) -> Iterator[Result]:
        from skws.windowing.engine import WindowedEngine  # noqa: PLC0415 - only who has an expression

        engine = WindowedEngine.of(self.plan)
        self.counts = engine.counts
        size = self.replay.size_bytes

        def reading(done: int) -> None:
            report(Progress("reading", done, size))

        yield from engine.load_tables(self.replay.tables(self.bad, reading))
        yield from engine.process_batches(self.replay.batches(self.bad, reading))

    def _on_late(self, record: Record, reached: int) -> None:
        if self.counts.late == 1:  # the first one
            self._tell(late_notice(Late(record, reached), self.plan.schema, self.plan.lateness))
        if self.request.on_error is OnError.DEAD_LETTER:
            self.bad.set_aside(late_record(record, self.plan.schema, self.plan.lateness))

    def _on_spark(self, report: ReportProgress) -> Iterator[Result]:
        from skws.spark.search import SparkSearch  # noqa: PLC0415 - only who asks for Spark loads it

        with SparkSearch(self.plan, self.replay, self.request.master, report) as run:
            self.counts = run.counts
            yield from run.results(self.bad)
            self._ended_at = run.ended_at if self.request.top is not None else None
