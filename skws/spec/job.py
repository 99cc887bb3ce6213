"""A job: queries, the stream they are answered over, the host, and the destinations of results.

Replay files are a finite stream; other sources are live. ``RULES`` lists the combinations of options that all
commands refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple

from skws.memory import size_text
from skws.spec.enums import DEFAULT_MAX_SIZE, EngineName, EvaluatorName, OnError, ToldUpdates, check_master
from skws.spec.query_spec import (
    FORMULA,
    KEYWORDS,
    LOOKBACK,
    PAIRS,
    PER,
    SELECT,
    WINDOWS,
    Query,
    Stream,
)
from skws_mesh.mesh_kinds import MeshChoice
from skws_schema.errors import UsageError
from skws_schema.model import Schema
from skws_windows.window import (
    MICROSECOND,
    CountWindow,
    ExpressionWindow,
    Window,
    parse_duration,
    parse_window,
)

STDOUT: Final = "stdout:table"
AHEAD: Final = "1 day"
"""By default, how far records of a live source may be ahead of the clock."""
IDLE: Final = 10 * MICROSECOND
"""By default, how long a live job waits for an idle partition, by the clock."""


def read_ahead(text: str) -> int | None:
    """The text of ``ahead`` in microseconds; None for no limit. Raises UsageError if it is not a duration."""
    return None if text.strip().lower() == "none" else parse_duration(text, what="ahead")


@dataclass(frozen=True, slots=True)
class Job:
    """Immutable. Raises UsageError for a combination of options in ``RULES``.

    ``queries``: by name; a text is keywords. A search of a replay has one query.
    ``source``: an address of ``skws.sources.addresses``; empty for ``replay``, files sorted by time.
    ``window``: None for the schema's, unless a pattern has its own. ``lateness``: microseconds of event
    time; None for a replay that is sorted first, so nothing is late. ``ahead``: how far records of a live
    source may be ahead of the clock, in microseconds; None for no limit. ``idle``: how long to wait for an
    idle partition, in microseconds of the clock. ``limit``: the most results.
    ``allow_unbounded_windows``: accept window expressions whose windows can pile up without bound.
    ``evaluator``: of candidate networks; a run may resume with another one.
    ``mesh``: one of the paper's meshes instead; None for none.
    ``jobs``: the number of processes of a local search; None chooses it by the size of the data.
    ``memory``: the memory of all shard processes on one machine.

    For live sources: ``sinks``: addresses of ``skws.sinks``. ``checkpoint``: the folder from which a run
    resumes; None to keep no state. ``control``: the folder for commands to a run. ``speed``: the speed of a
    replay address; None for the source's own. ``metrics_port``: 0 for any free port, None for none.
    ``metrics_file``: None for none. ``packages``: Spark packages.
    """

    queries: Mapping[str, str | Query]
    schema: Schema
    source: str = ""
    window: Window | None = None
    max_size: int = DEFAULT_MAX_SIZE
    match_names: bool = False
    engine: EngineName = EngineName.SPARK
    master: str | None = None
    packages: tuple[str, ...] = ()
    lateness: int | None = None
    ahead: int | None = None
    idle: int = IDLE
    on_error: OnError = OnError.FAIL
    dead_letters: Path | None = None
    limit: int | None = None
    sinks: tuple[str, ...] = field(default=(STDOUT,))
    checkpoint: Path | None = None
    control: Path | None = None
    metrics_port: int | None = None
    metrics_file: Path | None = None
    speed: float | None = None
    allow_unbounded_windows: bool = False
    evaluator: EvaluatorName = EvaluatorName.AUTO
    memory: str = field(default_factory=size_text, compare=False)
    replay: tuple[Path, ...] = ()
    mesh: MeshChoice | None = None
    jobs: int | None = None
    updates: ToldUpdates = ToldUpdates.TELL

    def __post_init__(self) -> None:
        check_master(self.master)
        for rule in RULES:
            if rule.broken(self):
                raise UsageError(rule.message.format(job=self))

    @classmethod
    def search(cls, query: str | Query, schema: Schema, *replay: Path, **options: Any) -> Job:
        """A job of one query over replay files; ``options``: other fields."""
        job_query = Query(query) if isinstance(query, str) else query
        return cls({job_query.text: job_query}, schema, replay=replay, **options)

    @property
    def finite(self) -> bool:
        """True if the stream ends."""
        return bool(self.replay)

    @property
    def stream(self) -> Stream:
        """The settings that all queries share."""
        return Stream(
            self.schema,
            self.plan_window,
            self.lateness or 0,
            self.max_size,
            self.match_names,
            self.evaluator,
            self.mesh,
            self.finite,
            overrides=self.finite and self.window is not None,
            updates=self.updates,
        )

    @property
    def asks_keywords(self) -> bool:
        """True if there is a keyword query, or no query yet."""
        if isinstance(self.plan_window, ExpressionWindow):
            return False  # keywords over an expression are another kind
        return not self.queries or any(query.kind == KEYWORDS for query in self._as_queries().values())

    @property
    def keeps_past(self) -> bool:
        """True if a run keeps recent records for later queries and schemas."""
        return self.checkpoint is not None or self.control is not None or not self.queries

    @property
    def plan_window(self) -> Window:
        """The window of the job, or else of the schema. Raises UsageError if the schema's is invalid."""
        return self.window or parse_window(self.schema.window)

    def named(self) -> dict[str, Query]:
        """The queries by name, unchecked. Raises UsageError for an invalid window."""
        return {name: self.with_defaults(name, query) for name, query in self._as_queries().items()}

    def with_defaults(self, name: str, query: Query) -> Query:
        """A query with its name, and over the job's window expression if there is one."""
        query = query.over_expression(self.plan_window, allowed=self.allow_unbounded_windows)
        return query.named(name, self.max_size)

    def _as_queries(self) -> dict[str, Query]:
        return {
            name: Query(query) if isinstance(query, str) else query for name, query in self.queries.items()
        }


class Rule(NamedTuple):
    """A refused combination of options, and its message, which may contain fields of the ``job``."""

    broken: Callable[[Job], bool]
    message: str


def _is_local(job: Job) -> bool:
    return job.engine is EngineName.LOCAL


def _is_parallel(job: Job) -> bool:
    return job.jobs is not None and job.jobs > 1


def _over_expression(job: Job) -> bool:
    return isinstance(job.plan_window, ExpressionWindow)


def _has_scores(job: Job) -> bool:
    return any(not isinstance(query, str) and query.scored for query in job.queries.values())


def _form_counts(job: Job) -> list[int]:
    """For each query for windows, the number of forms, out of three, in which it is written."""
    return [
        [bool(query.text), PAIRS in query.options, FORMULA in query.options].count(True)
        for query in _of_windows(job)
    ]


def _qualified_text(job: Job) -> bool:
    """True if a window expression in words is combined with options of the formal forms."""
    formal = {LOOKBACK, SELECT, PER}
    return any(query.text and formal & query.options.keys() for query in _of_windows(job))


def _of_windows(job: Job) -> list[Query]:
    return [query for query in job.queries.values() if isinstance(query, Query) and query.kind == WINDOWS]


def _never_late(job: Job) -> bool:
    return job.lateness is None and (job.finite or bool(_of_windows(job)))


RULES: Final = (
    Rule(
        lambda job: _is_local(job) and job.master is not None,
        "--master needs --engine spark: the local engine runs in this process",
    ),
    Rule(
        lambda job: _is_local(job) and bool(job.packages),
        "--packages needs --engine spark: the local engine runs in this process",
    ),
    Rule(
        lambda job: not _is_local(job) and job.jobs is not None,
        "--jobs needs --engine local: on Spark, --master sets the number of workers, as local[4]",
    ),
    Rule(
        lambda job: _is_parallel(job) and job.lateness is not None,
        "--jobs {job.jobs} cannot be combined with --lateness: records are taken one by one as they arrive",
    ),
    Rule(
        lambda job: job.finite and not _is_local(job) and job.lateness is not None,
        "--lateness needs --engine local: on Spark the replay is sorted by time, so nothing is late",
    ),
    Rule(
        lambda job: job.evaluator is not EvaluatorName.AUTO and job.mesh is not None,
        "--evaluator {job.evaluator} cannot be combined with --mesh {job.mesh.kind}: "
        "both choose the evaluator",
    ),
    Rule(
        lambda job: job.finite and job.lateness is not None and _over_expression(job),
        "--lateness cannot be combined with a window expression: it takes records in order",
    ),
    Rule(
        lambda job: job.mesh is not None and _over_expression(job),
        "--mesh {job.mesh.kind} cannot be combined with a window expression: leave it out",
    ),
    Rule(
        lambda job: not job.finite and bool(job.lateness) and isinstance(job.plan_window, CountWindow),
        "--lateness needs a window of time: positions in a stream are never late",
    ),
    Rule(
        lambda job: job.on_error is OnError.DEAD_LETTER and job.dead_letters is None,
        "--on-error dead-letter needs --dead-letters FILE",
    ),
    Rule(
        lambda job: (
            job.dead_letters is not None and job.on_error is not OnError.DEAD_LETTER and _never_late(job)
        ),
        "--dead-letters needs --on-error dead-letter: only then are records written there",
    ),
    Rule(
        lambda job: 0 in _form_counts(job),
        "expected a window expression, --pair R R2 (may be repeated) or --formula TEXT",
    ),
    Rule(
        lambda job: any(forms > 1 for forms in _form_counts(job)),
        "expected a window expression, --pair R R2 (may be repeated) or --formula TEXT, but only one of them",
    ),
    Rule(
        _qualified_text,
        "--lookback, --selection and --per need --pair or --formula; an expression includes "
        "them: 'every open when ... close when ... per user'",
    ),
    Rule(
        lambda job: job.speed is not None and not 0 < job.speed < inf,
        "--speed {job.speed:g}: expected a number above 0",
    ),
)
"""Combinations of options that are refused, in the order of the checks."""
