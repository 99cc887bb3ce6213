"""The library: search data in memory or in files, or feed a session batch by batch.

    import skws

    for result in skws.search("byron leaks", {"customer": customers, "complaint": rows}, schema="shop.yaml"):
        print(result)

It starts no thread and no process, and reads only the data in its arguments.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload

import numpy as np

from skws.data.batch import NO_RECORDS, concat_batches, records_of
from skws.extras import installed
from skws.formats import BadRecordLog
from skws.index import passed_over_in_sources, tell_missing
from skws.keywords.match import highlight
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.library_inputs import Data, Inputs, SchemaLike, schema_of, tables_and_stream, warn_of_missing
from skws.queries import session
from skws.queries.evaluator import Counts
from skws.queries.keywords.diagnosis import SAMPLE_RECORDS, EmptyResult, RecordSample
from skws.queries.keywords.stream_engine import StreamEngine
from skws.queries.kinds import plans_over
from skws.queries.operator import QueryPlan
from skws.results.frames import result_table, results_html
from skws.results.result import Result
from skws.sources.addresses import Database
from skws.spec.enums import DEFAULT_MAX_SIZE, OnError
from skws.spec.query_spec import (
    KEYWORDS,
    TOP,
    WINDOWED,
    Query,
    RankingChoice,
    Stream,
    read_lateness,
)
from skws_schema.errors import SkwsError, UsageError, quantity, shown
from skws_schema.model import AttributeType, Schema, sourced
from skws_windows.window import Unbounded, Window, parse_window

if TYPE_CHECKING:  # Arrow and pandas are loaded on demand
    import pandas as pd
    import pyarrow as pa

Queries: TypeAlias = str | Query | Sequence[str | Query] | Mapping[str, str | Query]
"""Keywords, a query of any kind, or several of them, perhaps by name; the default name is the text."""
_SHOWN: Final = 20  # results drawn in a notebook
_ON_ERROR: Final = (OnError.FAIL, OnError.SKIP)
_REMEDY: Final = 'use on_error="skip" to skip bad rows'


class Results(Sequence[Result]):
    """Results in order of time, or best first, computed as they are read.

    ``schema``: the schema of the search, given or inferred. ``counts``, ``bad`` and ``notes`` are complete
    when all results have been read. A length, an index and a data frame read them all. ``notes``: how to ask
    for rows that the best results hide, or why there are no results.
    """

    def __init__(self, schema: Schema, queries: Mapping[str, Query], on_error: OnError) -> None:
        self.schema = schema
        self.queries = dict(queries)
        self.counts = Counts()
        self.bad = BadRecordLog(on_error, remedy=_REMEDY)
        self.notes: tuple[str, ...] = ()
        self._results: list[Result] = []
        self._remaining: Iterator[Result] = iter(())
        self._error: Exception | None = None  # ended the search

    def __iter__(self) -> Iterator[Result]:
        position = 0
        while self._read_up_to(position + 1):
            yield self._results[position]
            position += 1

    def __len__(self) -> int:
        self._read(None)
        return len(self._results)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Result]: ...
    def __getitem__(self, index: int | slice) -> Result | Sequence[Result]:
        if isinstance(index, slice):
            counts_from_end = any((place or 0) < 0 for place in (index.start, index.stop, index.step))
            stop = None if counts_from_end else index.stop
        else:
            stop = None if index < 0 else index + 1
        if stop is None:
            len(self)
        else:
            self._read_up_to(stop)
        return self._results[index]

    def to_arrow(self) -> pa.Table:
        """All results as a table; columns as in ``skws.results.frames.COLUMNS``."""
        return result_table(self)

    def to_pandas(self) -> pd.DataFrame:
        """All results as a data frame of pandas, with the columns of ``to_arrow``.

        Values of rows keep their types, and times become pandas timestamps. Raises SourceError if pandas is
        not installed.
        """
        with installed():
            import pandas as pd  # noqa: PLC0415 - Arrow's error would say less

        frame: pd.DataFrame = self.to_arrow().to_pandas(maps_as_pydicts="lossy")
        moments = {
            (relation.name, attribute.name)
            for relation in self.schema.relations
            for attribute in relation.attributes
            if attribute.type is AttributeType.TIMESTAMP
        }

        def native(relation: str, name: str, value: Any) -> Any:
            moment = isinstance(value, str) and (relation, name) in moments
            return pd.Timestamp(value) if moment else value

        for tuples, result in zip(frame["tuples"], self, strict=True):
            for row_tuple, source in zip(tuples, result.tuples, strict=True):
                row_tuple["row"] = {
                    name: native(source.relation, name, value) for name, value in source.row.items()
                }
        return frame

    def to_dicts(self) -> list[dict[str, Any]]:
        """All results in the form of ``skws search --format jsonl``."""
        return [result.to_dict() for result in self]

    def __repr__(self) -> str:
        results = list(islice(self, _SHOWN + 1))
        more = f", and more than {_SHOWN}" if len(results) > _SHOWN else ""
        reason = f": {'; '.join(self.notes)}" if not results and self.notes else ""
        number = quantity(len(results[:_SHOWN]), "result")
        return f"<{number}{more} of {', '.join(map(repr, self.queries))}{reason}>"

    def _repr_html_(self) -> str:
        """The first results as trees of joined rows, their keywords marked."""
        results = list(islice(self, _SHOWN + 1))
        parsed = {
            name: parse_query(query.text, self.schema)
            for name, query in self.queries.items()
            if query.kind in (KEYWORDS, TOP, WINDOWED)
        }

        def marks(result: Result, relation: str, attribute: str, text: str) -> list[tuple[int, int]]:
            query = parsed.get(result.name)
            spans = [] if query is None else highlight(query, self.schema, relation, attribute, text)
            return [(start, end) for start, end, _ in spans]

        return results_html(results[:_SHOWN], marks, more=len(results) > _SHOWN)

    def _read_up_to(self, number: int) -> bool:
        if number > len(self._results):
            self._read(number - len(self._results))
        return len(self._results) >= number

    def _read(self, most: int | None) -> None:
        """Read more results, None for all. After an error, raises it again: the results are not complete."""
        if self._error is not None:
            raise self._error
        try:
            self._results += islice(self._remaining, most)
        except BaseException as error:
            interrupted = SkwsError("reading the results was interrupted: search again")
            self._error = error if isinstance(error, Exception) else interrupted
            raise


def search(
    query: Queries,
    data: Data,
    *,
    schema: SchemaLike | None = None,
    window: str | Window | None = None,
    max_size: int = DEFAULT_MAX_SIZE,
    limit: int | None = None,
    on_error: str = OnError.FAIL,
) -> Results:
    """Search frames or files with keywords, patterns, or any other kind of query, in this process.

    ``data``: by relation a frame (pandas, Polars, Arrow), rows as dictionaries, or the path of a file; or the
    paths of replay files; or a database as it is now: a SQLite file, postgresql://... Rows of a frame have
    times in the relation's time attribute or in a column ``time``; a frame without them is a static table. A
    column ``op`` is optional: "-" deletes, "truncate" deletes all rows.
    ``schema``: None infers one from the data, or takes the one that ``skws search`` has saved for these files
    or this database. ``window``: None for the schema's. ``max_size``: the most tuples of a result. ``limit``:
    the most results. Keywords over static tables, and keywords without a window but with a limit, give the
    best results first; others come in order of time. ``on_error``: "fail", or "skip" to count bad rows.

    Raises SchemaError, QueryError, PatternError, UsageError; SourceError, BadRecordsError while results are
    read.
    """
    if on_error not in _ON_ERROR:
        raise UsageError(f"on_error: expected {' or '.join(_ON_ERROR)}, found {shown(on_error)}")
    if limit is not None:
        at_least(0, "limit", limit)
    inputs = Inputs.of(data) if schema is not None else Inputs.of(data).with_names()
    stream_schema = inputs.timed(inputs.schema if schema is None else schema_of(schema))
    if schema is not None:
        warn_of_missing({name: table.column_names for name, table in inputs.frames.items()}, stream_schema, 2)
    stream = stream_of(stream_schema, window, max_size)
    queries = queries_over(stream, query)
    plans = plans_over(queries.values(), stream)
    results = Results(stream_schema, queries, OnError(on_error))
    answers = _search_results(results, inputs, stream, plans)
    if _wants_best(queries, stream) and (_without_times(stream_schema) or limit is not None):
        answers = _best_results(results, inputs, plans[0], limit)
    results._remaining = islice(answers, limit)  # noqa: SLF001 - its own
    return results


class Session:
    """Queries over a stream that is fed batch by batch.

    ``window``: None for the schema's. ``tables``: rows of static relations, by relation, or files or a
    database. ``schema`` may also be data, from which it is inferred. ``lateness``: how late rows may arrive,
    such as "5 s". Rows of a call are sorted by time; rows that arrive too late are dropped and counted in
    ``counts``. ``bad`` counts the values that were left out; a warning lists those of tables. Raises
    SchemaError, UsageError.
    """

    def __init__(
        self,
        schema: SchemaLike,
        *,
        window: str | Window | None = None,
        tables: Data | None = None,
        lateness: str | None = None,
        max_size: int = DEFAULT_MAX_SIZE,
    ) -> None:
        self.schema = schema_of(schema)
        microseconds = 0 if lateness is None else read_lateness(lateness)
        stream = stream_of(self.schema, window, max_size, finite=False)
        if microseconds and stream.by_count:
            raise UsageError("lateness needs a window of time: positions in a stream are never late")
        stream = replace(stream, lateness=microseconds)
        self._session = session.Session(stream)
        self.bad = BadRecordLog(remedy=_REMEDY)
        static, batches = tables_and_stream(Inputs.of(tables or {}), self.schema, self.bad)
        self._session.load_tables(chain(static, batches))
        tell_missing(self.schema, self.bad, partial(warnings.warn, stacklevel=3))

    @property
    def counts(self) -> Counts:
        return self._session.counts()

    def add(self, query: Queries) -> list[Result]:
        """Answer queries from now on; returns their live results.

        Raises QueryError, PatternError, UsageError, also for a name in use.
        """
        stream = self._session.stream
        return self._session.add_all(plans_over(queries_over(stream, query).values(), stream))

    def remove(self, name: str) -> None:
        """Stop answering a query. Raises UsageError if there is none of that name."""
        self._session.remove(name)

    def process(self, data: Mapping[str, Any]) -> list[Result]:
        """Process rows by relation; returns the results and retractions, in order of time.

        Rows of a frame without times get the time of the latest earlier row. Raises UsageError, also for rows
        of static tables, and for files; BadRecordsError, and then no row of the call is processed.
        """
        inputs = Inputs.of(data)
        if inputs.files or inputs.database is not None:
            raise UsageError("data: expected rows by relation; process reads no files and no database")
        time = self._session.latest or 0
        batches = list(inputs.chunks(self.schema, self.bad, time))
        batch = concat_batches(batches) if batches else NO_RECORDS
        for number in np.unique(batch.relation).tolist():
            relation = self.schema.relations[number]
            if relation.table:
                raise UsageError(
                    f"{relation.name} is a static table: pass its rows to the session (tables=...)"
                )
        if (np.diff(batch.time) < 0).any():  # the session sorts nothing under a window of tuples
            batch = batch.take(np.argsort(batch.time, kind="stable"))
        return self._session.take(batch)


def named_queries(query: object) -> dict[str, Query]:
    """``Queries`` by name. Raises UsageError for two with one name, and for anything else."""
    if isinstance(query, Mapping):
        pairs = [(str(name), _query(item)) for name, item in query.items()]
    else:
        if isinstance(query, str) or not isinstance(query, Sequence):
            query = [query]
        pairs = [(item.name or item.text, item) for item in map(_query, query)]
    queries: dict[str, Query] = {}
    for name, item in pairs:
        if name in queries:
            raise UsageError(f"two queries are called {shown(name)}")
        queries[name] = item
    return queries


def queries_over(stream: Stream, query: object) -> dict[str, Query]:
    """``Queries`` by name, over the windows of an expression if the stream has one. Raises UsageError."""
    return {
        name: named_query.over_expression(stream.window).named(name, stream.max_size)
        for name, named_query in named_queries(query).items()
    }


def at_least(least: int, name: str, value: object) -> None:
    """Raises UsageError unless ``value`` is a whole number of at least ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(f"{name}: expected a whole number of {least} or more, found {shown(value)}")


def _query(query: object) -> Query:
    if isinstance(query, Query):
        return query
    if isinstance(query, str):
        return Query(query)
    raise UsageError(f"query: expected keywords or a Query, found {type(query).__name__}")


def stream_of(schema: Schema, window: str | Window | None, max_size: int, *, finite: bool = True) -> Stream:
    """The stream of a schema. Raises UsageError for an invalid window or number of tuples."""
    if not isinstance(window, str | Window | None):
        raise UsageError(f"window: expected a duration such as '20 minutes', found {type(window).__name__}")
    at_least(1, "max_size", max_size)
    if window is None or isinstance(window, str):
        query_window = parse_window(schema.window if window is None else window)
    else:
        query_window = window
    return Stream(
        schema, query_window, max_size=max_size, finite=finite, overrides=finite and window is not None
    )


def _search_results(
    results: Results, inputs: Inputs, stream: Stream, plans: Sequence[QueryPlan]
) -> Iterator[Result]:
    """The results of a search; sets its counts at the end."""
    tables, batches = tables_and_stream(inputs, stream.schema, results.bad)
    results.bad.take(passed_over_in_sources(stream.schema))
    running_session, batches = session.bounded_session(plans, stream, batches)
    try:
        yield from running_session.load_tables(tables)
        for batch in batches:
            yield from running_session.process(batch)
        yield from running_session.process(NO_RECORDS, ended=True)
    finally:
        results.counts = running_session.counts()


def _wants_best(queries: Mapping[str, Query], stream: Stream) -> bool:
    """True for one query of keywords without a window: it asks for the best results over all rows."""
    unbounded = isinstance(stream.window, Unbounded) and not sourced(stream.schema)
    return unbounded and [query.kind for query in queries.values()] == [KEYWORDS]


def _without_times(schema: Schema) -> bool:
    """True if no row has a time, as in every database: results then have no order of time."""
    return all(relation.table for relation in schema.relations)


def _best_results(results: Results, inputs: Inputs, plan: QueryPlan, most: int | None) -> Iterator[Result]:
    """The best results over all rows, best first; ``most``: None for all."""
    assert plan.search is not None  # noqa: S101 - of keywords
    ranked = replace(plan.search, ranking=plan.search.ranking or RankingChoice())
    if inputs.database is not None:
        yield from _best_of_database(results, inputs.database, ranked, most)
        return
    tables, batches = tables_and_stream(inputs, ranked.schema, results.bad)
    engine = StreamEngine.holding(ranked, tables, batches, results.counts)
    page = engine.search_once(ranked, sys.maxsize if most is None else most)
    results.counts.results += len(page.results)
    results.notes = page.notes if page.results else _why_nothing(inputs, ranked).lines()
    yield from page.results


def _why_nothing(inputs: Inputs, plan: Plan) -> EmptyResult:
    """Why there are no results, judging by the first rows of frames or files."""
    sample = RecordSample(plan)
    tables, batches = tables_and_stream(inputs, plan.schema, BadRecordLog(OnError.SKIP))
    sample.add(records_of(chain(tables, batches)), SAMPLE_RECORDS)
    return sample.why_nothing()


def _best_of_database(results: Results, source: Database, plan: Plan, most: int | None) -> Iterator[Result]:
    """The best results, by the same index on disk as ``skws search``."""
    from skws.index.index_cache import database_index, passed_over  # noqa: PLC0415 - for databases only

    database = database_index(source, plan.schema, None, lambda _: None)
    results.bad.take(passed_over(database.tables))
    engine = StreamEngine.over(plan, database)
    page = engine.search_once(plan, sys.maxsize if most is None else most)
    results.counts.results += len(page.results)
    results.notes = page.notes if page.why_nothing is None else page.why_nothing.lines()
    yield from page.results
