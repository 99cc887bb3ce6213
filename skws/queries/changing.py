"""Changes of the schema during a search: checks, and the stream afterwards.

Relations and joins keep their positions, and removed ones stay as holes
(``skws_schema.evolution``), so records of all schemas fit in one log. Records
of removed relations are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from skws.queries.kinds import check, kind_of
from skws.spec.query import Query
from skws.spec.stream import Stream
from skws_schema.errors import SchemaError, SkwsError, UsageError
from skws_schema.evolution import SchemaChange
from skws_schema.yaml.load import parse_schema
from skws_windows.window import Window, parse_window


def check_change(
    stream: Stream, text: str, standing: Iterable[Query], window: Window | None, *, shards: bool = False
) -> Stream:
    """The changed stream. Raises SchemaError, UsageError for a change that cannot be made.

    ``window``: the job's own, if any, which the schema's does not replace.
    ``shards``: the search has shards, which are rebuilt under the new schema from older records.
    """
    given = parse_schema(text, default_name=stream.schema.name)
    change = SchemaChange.between(stream.schema, given)
    if window is None and parse_window(given.window) != stream.window:
        raise SchemaError(
            f"the window of a running search cannot change, from {stream.schema.window!r} to"
            f" {given.window!r}: start a search with the new window"
        )
    relations = change.after.relations
    tables = [relations[i].name for i in sorted(change.added[0]) if relations[i].table]
    if tables:
        raise SchemaError(
            f"{', '.join(tables)}: static tables are read at the start; none can be added or changed"
            " while the search runs"
        )
    if shards and stream.by_count and change.removed_relations:
        gone = ", ".join(stream.schema.relations[i].name for i in sorted(change.removed_relations))
        raise SchemaError(
            f"{gone}: a window of {stream.schema.window} counts its tuples: it cannot be removed or"
            " changed while the search runs on Spark; start a new search"
        )
    after = replace(stream, schema=change.after)
    for one in standing:
        _check_query(one, stream, after)
    return after


def _check_query(standing: Query, before: Stream, after: Stream) -> None:
    try:
        check(standing, after)
    except SkwsError as error:
        raise UsageError(f"query {standing.name!r} does not fit the new schema: {error}") from None
    try:
        kind_of(standing.kind).check_change(standing, before, after)
    except SkwsError as error:
        raise UsageError(
            f"query {standing.name!r} ({standing.kind}) cannot continue with the new schema: {error};"
            " remove it first"
        ) from None
