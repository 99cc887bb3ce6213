"""``skws watch``: standing queries over a live source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from skws.cli import option_values, options
from skws.cli.data import describe, engine_of, live_data
from skws.cli.terminal import color_on_stdout, tell
from skws.jobs.alerts import Alert, FileState, Reloading, check_queries, file_state, read_alerts
from skws.jobs.control import Host, RunControl, open_host
from skws.jobs.fanout import Routing
from skws.jobs.log import Log, LogFormat
from skws.memory import freeze_loaded_objects, making_long_lived_objects
from skws.queries.kinds import plan_of, plans_of
from skws.queries.operator import QueryPlan
from skws.sinks.base import OutputClosedError, Sink
from skws.sinks.sink_addresses import open_sinks
from skws.sources.addresses import drop_slot_of
from skws.spec.enums import (
    SUFFIXES,
    EngineName,
    OutputFormat,
    ToldUpdates,
)
from skws.spec.job import Job
from skws.spec.query_spec import KEYWORDS, TOP, Query, RankingChoice, TopChoice, ranking_options, top_options
from skws_schema.errors import SkwsError, UsageError
from skws_windows.window import MICROSECOND

INTERRUPTED: Final = 130


class FollowedFile(NamedTuple):
    """The file of queries and its content at the start; ``state``: that of the file before it was read.

    ``apply_options`` applies the options of the command line to its queries.
    """

    path: Path
    alerts: Mapping[str, Alert]
    state: FileState | None
    apply_options: Callable[[Mapping[str, Query]], Mapping[str, Query]]


def run_watch(request: Job, notes: Log, file: FollowedFile | None = None) -> None:
    """Run until the source ends. Raises SkwsError; KeyboardInterrupt if a signal ended it.

    With a log in JSON, errors are logged there, and SystemExit is raised instead.
    """
    with with_json_errors(notes):
        _run(request, notes, file)


@contextmanager
def with_json_errors(notes: Log) -> Iterator[None]:
    """With a log in JSON, errors inside are logged there, and SystemExit is raised instead."""
    try:
        yield
    except (SkwsError, KeyboardInterrupt) as error:
        if notes.log_format is LogFormat.TEXT or isinstance(error, OutputClosedError):
            raise
        code = error.exit_code if isinstance(error, SkwsError) else INTERRUPTED
        event = "failed" if isinstance(error, SkwsError) else "interrupted"
        notes.error(event, str(error) or event, exit_code=code)
        raise SystemExit(code) from None


def _run(request: Job, notes: Log, file: FollowedFile | None) -> None:
    try:
        with making_long_lived_objects():
            plans = plans_of(request)
    except UsageError:
        if file is not None:
            _check_file(file, request)
        raise
    freeze_loaded_objects()
    for name, plan in plans.items():
        for note in plan.notes:
            notes.info("query", note, query=name)
    color = color_on_stdout() and request.engine is EngineName.LOCAL
    sinks: Sequence[Sink] = open_sinks(request.sinks, color=color)
    control, reloading = RunControl(request), None
    if file is not None:
        routing = Routing(dict(zip(dict.fromkeys(request.sinks), sinks, strict=True)), file.alerts)
        sinks = [routing]

        def change(old: Mapping[str, Alert], new: Mapping[str, Alert]) -> None:
            host.record_queries(old.keys() | new.keys())  # a removal takes effect later
            routing.change(new)

        def check(query: Query) -> QueryPlan:
            stream = replace(request.stream, schema=host.schema)
            return plan_of(request.with_defaults(query.name, query), stream)

        reloading = Reloading(file.path, file.alerts, file.state, change, file.apply_options, check, notes)

    diagnosis = EmptyResultDiagnosis(notes)

    def each_step() -> None:
        if reloading is not None:
            reloading.each_second(control.clock.now(), control.submit)
        diagnosis.each_step(control.clock.now(), host)

    host = open_host(request, control, sinks=sinks, log=notes, each_step=each_step, plans=plans)
    try:
        host.run()
    except KeyboardInterrupt:
        diagnosis.log_reasons(host)
        raise
    diagnosis.log_reasons(host)


def _check_file(file: FollowedFile, request: Job) -> None:
    """Raises ConfigurationError with the faults of all queries in a file."""
    queries = file.apply_options({name: alert.query for name, alert in file.alerts.items()})

    def check(query: Query) -> QueryPlan:
        return plan_of(request.with_defaults(query.name, query), request.stream)

    check_queries(file.path, (replace(query, name=name) for name, query in queries.items()), check)


def ranked_queries(
    queries: Mapping[str, Query], ranking: RankingChoice | None, top: TopChoice | None
) -> Mapping[str, Query]:
    """The queries, with the ranking for keywords. Raises UsageError if none is of keywords."""
    if ranking is None:
        return queries
    if queries and all(query.kind != KEYWORDS for query in queries.values()):
        raise UsageError("--rank and --top need a QUERY of keywords")
    kind, best_options = (KEYWORDS, {}) if top is None else (TOP, top_options(top))
    options = ranking_options(ranking) | best_options
    return {
        name: replace(query, kind=kind, options={**options, **query.options})
        if query.kind == KEYWORDS
        else query
        for name, query in queries.items()
    }


@dataclass(frozen=True)
class WatchOptions(
    options.DurableOptions, options.ScoringOptions, options.EngineOptions, options.LiveOptions
):
    """The options of ``skws watch``."""

    pattern: options.Patterns = None
    queries: Annotated[
        Path | None,
        options.query_option(
            "--queries",
            metavar="FILE",
            help="YAML file of more queries; changes to it apply while the job runs.",
            readable=False,
        ),
    ] = None
    without: options.Without = None
    packages: Annotated[
        str,
        options.engine_option("--packages", metavar="LIST", help="Connectors for Spark, comma-separated."),
    ] = ""
    memory: options.Memory = None
    updates: options.Updates = ToldUpdates.TELL
    output_format: options.ResultFormat = None
    output: options.Output = None
    limit: options.Limit = None
    quiet: options.Quiet = False
    control: options.MaybeControl = None
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            metavar="PORT",
            min=0,
            max=65535,
            help="Port for Prometheus metrics on 127.0.0.1; 0: any free one.",
        ),
    ] = None
    metrics_file: Annotated[
        Path | None,
        typer.Option(
            "--metrics-file",
            metavar="FILE",
            help="File for metrics as JSON, written every second.",
            readable=False,
        ),
    ] = None
    log_format: options.LoggedAs = LogFormat.TEXT
    drop_slot: Annotated[
        bool,
        typer.Option("--drop-slot", help="Drop the slot that an earlier run left in the database, and exit."),
    ] = False


@options.expanded
def watch(opts: WatchOptions, query: options.SourceAndWords = None) -> None:
    """Report results of standing queries as they arrive, until interrupted or the source ends.

    skws watch incoming/ tarantino travolta
    """
    data = live_data(query or [], opts)
    checkpoint, control = opts.checkpoint, opts.control
    if opts.drop_slot:
        tell(drop_slot_of(data.address, None if checkpoint is None else checkpoint / "source"))
        return
    top = option_values.top_choice(opts)
    apply_options = partial(ranked_queries, ranking=option_values.ranking_choice(opts), top=top)
    state = None if opts.queries is None else file_state(opts.queries)
    with making_long_lived_objects():
        alerts = {} if opts.queries is None else read_alerts(opts.queries)
    file_queries = {name: alert.query for name, alert in alerts.items()}
    if control is None and checkpoint is not None:
        control = checkpoint / "control"
    quiet, output = opts.quiet, opts.output
    result_format = option_values.chosen_format(
        opts.output_format, output, SUFFIXES, OutputFormat.TABLE, quiet=quiet
    )
    described_data = describe(data, opts, quiet=quiet, ordered=bool(opts.pattern))
    engine = engine_of(opts, opts.packages, quiet=quiet)
    request = Job(
        apply_options(
            option_values.named_queries(data.words, opts.pattern or [], file_queries, opts.without)
        ),
        sinks=_sinks(result_format, output, opts.sink or []),
        **option_values.job_fields(opts, described_data, control=control, engine=engine),
    )
    if not request.queries and request.control is None:
        raise UsageError("nothing to watch for: expected keywords, or --control to add queries later")
    file = None if opts.queries is None else FollowedFile(opts.queries, alerts, state, apply_options)
    run_watch(request, Log(opts.log_format, quiet), file)


def _sinks(output_format: OutputFormat, output: Path | None, sinks: list[str]) -> tuple[str, ...]:
    if output is None:
        if output_format is OutputFormat.PARQUET:
            raise UsageError("--format parquet needs --output FOLDER: results are written as files in it")
        return tuple(sinks) or (f"stdout:{output_format}",)
    if output_format is OutputFormat.PARQUET:
        return (f"parquet:{output}", *sinks)
    if output_format is OutputFormat.JSONL:
        return (f"jsonl:{output}", *sinks)
    raise UsageError(
        f"--format {output_format} is for standard output; {output} takes --format jsonl or parquet,"
        " chosen by its suffix if --format is left out"
    )


_AFTER: Final = 10 * MICROSECOND
_MOST: Final = 5
"""The maximum number of queries that are explained; the others are only counted."""


class EmptyResultDiagnosis:
    """Logs why standing queries have no results: once during a run, and at its end."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._logged_reasons: dict[str, Sequence[str]] = {}
        self._check_time: int | None = None  # the time of the check, in microseconds
        self._is_done = False

    def each_step(self, now: int, host: Host) -> None:
        """Check ten seconds after the first record. ``now``: microseconds of the job's clock."""
        if self._check_time is None and host.event_time is not None:
            self._check_time = now + _AFTER
        if not self._is_done and self._check_time is not None and now >= self._check_time:
            self._is_done = True
            self.log_reasons(host)

    def log_reasons(self, host: Host) -> None:
        """Log new reasons. A run without records, such as a resumed one, has none."""
        silent = host.silent_queries if host.event_time is not None else []
        for query in silent[:_MOST]:
            diagnosis = host.why_nothing(query.name)
            if diagnosis is None:
                continue
            for line in (
                diagnosis.reasons if diagnosis.reasons != self._logged_reasons.get(query.name) else ()
            ):
                self._log.info("no results", f"{query.name}: no results: {line}", query=query.name)
            self._logged_reasons[query.name] = diagnosis.reasons
        if self._logged_reasons and len(silent) > _MOST:
            hidden = len(silent) - _MOST
            self._log.info("no results", f"{hidden:,} more queries have no results", queries=hidden)
