"""The file of standing queries, with their rankings, sinks and limits; it may change while the job runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson
import yaml
from msgspec import structs

from skws.jobs.control import JobCommand
from skws.jobs.log import Log
from skws.keywords.scope import with_left_out
from skws.queries.keywords.keyword_plans import ranking_of, top_of
from skws.queries.kinds import KINDS, moment
from skws.results.result import LiveResult, Result
from skws.sinks.sink_addresses import parse_sink
from skws.spec.query_spec import (
    APPEND_ONLY,
    EXPLAIN,
    GROUP,
    HALF_LIFE,
    KEYWORDS,
    PATTERN,
    RANK,
    SIZE,
    SQL,
    TOP,
    WINDOW,
    WINDOWED,
    Query,
)
from skws_schema.errors import (
    ConfigurationError,
    SchemaError,
    SkwsError,
    UsageError,
    nearest,
    not_utf8,
    quantity,
    shown,
)
from skws_schema.model import Schema
from skws_schema.yaml.located import TAG_PREFIX, locate, syntax_problem
from skws_windows.window import MICROSECOND, ExpressionWindow, parse_duration, parse_window

_FLAGS: Final = {"explain_score": EXPLAIN, "group": GROUP, "append_only": APPEND_ONLY}
_TEXTS: Final = {"rank": RANK, "half_life": HALF_LIFE}
_TEXT: Final = ("query", PATTERN, SQL)
_DELIVERY: Final = ("sinks", "limit", "updates")
_KEYS: Final = (
    *_TEXT,
    "kind",
    "options",
    "max_size",
    "without",
    "top",
    "window",
    *_TEXTS,
    *_FLAGS,
    *_DELIVERY,
)
_EXPECTED: Final = "expected keywords, or a mapping with query, pattern or sql"
_FILE_FORM: Final = "expected lines of 'name: keywords' or 'name: {query: keywords, ...}'"
_FORM: Final = re.compile(r"\s*(\d+)\s+per\s+(\d.*?|[a-z]+?)(?:\s+by\s+(\S+))?\s*", re.IGNORECASE)
_LARGEST: Final = (1 << 31) - 1
_MOST_DIGITS: Final = 9
_MOST_REMEMBERED: Final = 100_000  # results that were held back, so that their retractions are held back, too


@dataclass(frozen=True, slots=True)
class Rate:
    """At most ``most`` results in each interval of ``length`` microseconds of event time.

    ``by``: an attribute, ``relation.attribute`` or its name alone; each of its values then has its own
    limit. Empty for one limit over all results.
    """

    most: int
    length: int
    by: str = ""

    @classmethod
    def of(cls, text: str) -> Rate:
        """``10 per minute``, ``1 per 2 hours``, ``1 per day by change.source``. Raises UsageError."""
        match = _FORM.fullmatch(text)
        digits = "" if match is None else match[1].lstrip("0")
        if match is None or not digits:
            raise UsageError(f"limit {shown(text)}: expected a rate such as '10 per minute'")
        if len(digits) > _MOST_DIGITS:
            raise UsageError("limit: a number too large")
        length = match[2] if match[2][0].isdigit() else f"1 {match[2]}"
        return cls(int(digits), parse_duration(length, what="limit"), match[3] or "")

    def check(self, schema: Schema) -> None:
        """Raises UsageError if the schema has no such attribute, or several of that name."""
        removed = schema.evolution.removed_relations
        attributes = [
            (relation.name, attribute.name)
            for number, relation in enumerate(schema.relations)
            if number not in removed
            for attribute in relation.attributes
        ]
        matches = [f"{owner}.{name}" for owner, name in attributes if self.by in {name, f"{owner}.{name}"}]
        if self.by and not matches:
            hint = nearest(
                self.by, [name for owner, column in attributes for name in (column, f"{owner}.{column}")]
            )
            raise UsageError(f"limit: no attribute {shown(self.by)}{hint or '; expected relation.attribute'}")
        if len(matches) > 1:
            raise UsageError(
                f"limit: {shown(self.by)} is in several relations; write one of {', '.join(matches)}"
            )

    def value(self, result: Result) -> str:
        """The group that a result counts in: its values of the attribute, if any, as JSON."""
        owner, _, name = self.by.rpartition(".")
        rows = [member.row for member in result.tuples if not owner or member.relation == owner]
        values = {row[name] for row in rows if name in row}
        return orjson.dumps(sorted(values, key=str)).decode()


class Limiter:
    """Passes the results of one query, up to a rate. Intervals begin at multiples of their length.

    A result of an earlier interval, which a late record completes, counts in the current one.

    If each value of an attribute has the limit, only the latest ``_MOST_REMEMBERED`` values are counted.
    """

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._interval: int | None = None
        self._counts: dict[str, int] = {}  # by value
        self._held_ids: dict[str, None] = {}
        self.held_back = 0

    def admit(self, result: LiveResult) -> LiveResult | None:
        """The result, with the number of results held back before it; None if it is held back itself.

        A retraction or an update passes unless its result was held back.
        """
        if result.op == "-":
            if result.id in self._held_ids:
                del self._held_ids[result.id]
                return None
            return result
        if result.op == "~":
            return None if result.id in self._held_ids else result
        interval = int(moment(result) * MICROSECOND) // self._rate.length
        if self._interval is None or interval > self._interval:
            self._interval, self._counts = interval, {}
        value = self._rate.value(result.parsed) if self._rate.by else ""
        count = self._counts.get(value, 0)
        if count >= self._rate.most:
            self._hold(result.id)
            return None
        self._counts[value] = count + 1
        if len(self._counts) > _MOST_REMEMBERED:
            del self._counts[next(iter(self._counts))]
        self._held_ids.pop(result.id, None)  # the result may have expired and come back
        return self._with_held_back(result.parsed) if self.held_back else result.parsed

    def state(self) -> dict[str, Any]:
        """The state of the limiter, as JSON."""
        return {
            "rate": self.rate_fields,
            "stretch": self._interval,
            "told": self._counts if self._rate.by else self._counts.get("", 0),
            "held": list(self._held_ids),
            "held_back": self.held_back,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a ``state`` unless the rate has changed since."""
        if state["rate"] == self.rate_fields:
            counts = state["told"]
            self._interval, self._counts = state["stretch"], dict(counts) if self._rate.by else {"": counts}
            self._held_ids, self.held_back = dict.fromkeys(state["held"]), state["held_back"]

    @property
    def rate_fields(self) -> list[int | str]:
        """The rate as it is in a state."""
        return [self._rate.most, self._rate.length, *filter(None, [self._rate.by])]

    def _with_held_back(self, result: Result) -> Result:
        """The result, with the number of results held back before it."""
        copy = structs.replace(result, held_back=self.held_back)
        self.held_back = 0
        return copy

    def _hold(self, name: str) -> None:
        self.held_back += 1
        self._held_ids[name] = None
        if len(self._held_ids) > _MOST_REMEMBERED:
            del self._held_ids[next(iter(self._held_ids))]


@dataclass(frozen=True, slots=True)
class Alert:
    """A query of the file. ``sinks``: the addresses for its results; empty for the job's sinks.

    ``updates``: web hooks and programs get updates of results, too.
    """

    query: Query
    sinks: tuple[str, ...] = ()
    limit: Rate | None = None
    updates: bool = False


def read_alerts(path: Path) -> dict[str, Alert]:
    """The queries of a file by name.

    Raises ConfigurationError with every fault: the file, the query, and what was expected.
    """
    try:
        return _alerts(path)
    except UsageError as error:
        raise ConfigurationError(str(error)) from None


def _alerts(path: Path) -> dict[str, Alert]:
    try:
        text = path.read_text(encoding="utf-8")
        entries = _parse_yaml(text, str(path))
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: {not_utf8(error)}") from None
    if not isinstance(entries, dict):
        raise UsageError(f"{path}: {_FILE_FORM}")
    if set(entries) == {"queries"} and not _is_alert(entries["queries"]):
        raise UsageError(f"{path}: queries: {_FILE_FORM}, without 'queries:' above them")
    alerts: dict[str, Alert] = {}
    faults: list[str] = []
    for name, entry in entries.items():
        is_named = isinstance(name, str) and name
        try:
            if not is_named:
                raise UsageError(f"{shown(entry)}: expected a name as text, and its keywords")
            alerts[name] = alert_of(entry)
        except SkwsError as error:
            faults.append(f"{path}: {name if is_named else shown(name)}: {error}")
    if faults:
        raise UsageError("\n".join(faults))
    return alerts


def _is_alert(entry: object) -> bool:
    """True if a value of the file has the form of an alert, right or wrong."""
    return isinstance(entry, str) or (isinstance(entry, dict) and not entry.keys().isdisjoint(_KEYS))


class _Loader(yaml.CSafeLoader):
    """Parses with libyaml, and refuses duplicate keys, which libyaml would overwrite silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        mapping = super().construct_mapping(node, deep)
        if len(mapping) != len(node.value):
            raise yaml.constructor.ConstructorError(None, None, "a key is written twice", node.start_mark)
        return mapping


_DATE_OR_TIME: Final = re.compile(r"[0-9]+[-:].*")
# YAML 1.1 would read 2024-05-06 as a date, and 12:30 as 750.
_Loader.yaml_implicit_resolvers = {
    first: [(f"{TAG_PREFIX}str", _DATE_OR_TIME), *resolvers] if first in "0123456789" else resolvers
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
# PyYAML raises any of these for a value that is not of its tag.
_FAULTS: Final = (yaml.YAMLError, AttributeError, LookupError, ValueError, RecursionError)


def _parse_yaml(text: str, source: str) -> object:
    """Parse a file, which may have very many queries. Raises UsageError with line numbers."""
    try:
        document: object = yaml.load(text, _Loader)  # noqa: S506 - it is safe
    except _FAULTS as error:
        # In Python, which takes ten times as long, but every fault has its line.
        try:
            problems = locate(text, source).problems
        except SchemaError as fault:
            raise UsageError(str(fault)) from None
        if not problems and isinstance(error, yaml.MarkedYAMLError):
            problems = [syntax_problem(error, source)]
        raise UsageError("\n".join(map(str, problems)) or f"{source}: not valid YAML: {error}") from None
    return document


def alert_of(entry: Any) -> Alert:
    """The alert that a value of the file describes: keywords, or a mapping. Raises SkwsError."""
    if isinstance(entry, str) and entry:
        return Alert(Query(entry))
    if not isinstance(entry, dict):
        raise UsageError(f"{shown(entry)}: {_EXPECTED}, as text")
    return _alert_of_mapping(entry)


def entry_of(query: Query) -> dict[str, Any]:
    """The mapping that describes a query in the file; ``alert_of`` of it gives the query."""
    options, size = query.options, {} if query.max_size is None else {"max_size": query.max_size}
    if query.kind in (PATTERN, SQL):
        return {query.kind: query.text}
    if query.kind not in (KEYWORDS, TOP, WINDOWED):
        return {"query": query.text, "kind": query.kind, "options": dict(options), **size}
    return {
        "query": query.text,
        **size,
        **({"top": int(options[SIZE])} if SIZE in options else {}),
        **({"window": options[WINDOW]} if WINDOW in options else {}),
        **{key: options[option] for key, option in _TEXTS.items() if option in options},
        **{key: True for key, option in _FLAGS.items() if option in options},
    }


def _alert_of_mapping(entry: Mapping[Any, Any]) -> Alert:
    for key in entry:
        if key not in _KEYS:
            raise UsageError(f"no {shown(key)}{nearest(str(key), _KEYS)}")
        if entry[key] is None:
            raise UsageError(f"{key}: no value: give one, or remove the line")
    texts = [key for key in _TEXT if key in entry]
    if len(texts) != 1:
        raise UsageError(_EXPECTED)
    if "options" in entry and "kind" not in entry:
        raise UsageError(
            "options only apply to a kind of another package; rank, top and others are separate keys"
        )
    reader = _other_kind if "kind" in entry else {PATTERN: _pattern, SQL: _sql}.get(texts[0], _keywords)
    limit = entry.get("limit")
    return Alert(
        reader(entry),
        _sinks(entry),
        None if limit is None else Rate.of(_text("limit", limit)),
        flag(entry, "updates"),
    )


def _keywords(entry: Mapping[Any, Any]) -> Query:
    options = _options(entry)
    kind = TOP if SIZE in options else KEYWORDS  # with a window expression, of the kind that the job gives it
    text = with_left_out(_text("query", entry["query"]), _text_list(entry, "without", "a relation"))
    return Query(text, _number(entry, "max_size"), kind, options)


def _pattern(entry: Mapping[Any, Any]) -> Query:
    if "without" in entry:
        raise UsageError("without only applies to keywords; a pattern names its relations")
    if "max_size" in entry:
        raise UsageError("max_size only applies to keywords; a pattern names its tuples")
    if any(key in entry for key in ("top", "window", *_TEXTS, *_FLAGS)):
        raise UsageError("rank, top and window only apply to keywords; a pattern has 'within' in its text")
    return Query.of_pattern(_text(PATTERN, entry[PATTERN]))


def _sql(entry: Mapping[Any, Any]) -> Query:
    _check_keys(entry, SQL)
    return Query(_text(SQL, entry[SQL]), kind=SQL)


def _other_kind(entry: Mapping[Any, Any]) -> Query:
    """A query of a kind that another package adds."""
    _check_keys(entry, "query", "kind", "options", "max_size")
    if (kind := _text("kind", entry["kind"])) in KINDS:
        raise UsageError(
            f"kind: {shown(kind)}: expected a kind of another package; leave it out for query,"
            " pattern and sql"
        )
    options = entry.get("options", {})
    if not isinstance(options, dict):
        raise UsageError(f"options: {shown(options)}: expected a mapping of names to texts")
    option_texts = {str(name): _text(f"options: {name}", value) for name, value in options.items()}
    return Query(_text("query", entry["query"]), _number(entry, "max_size"), kind, option_texts)


def _check_keys(entry: Mapping[Any, Any], first: str, *other_keys: str) -> None:
    """Raises UsageError for a key that cannot be combined with the first one."""
    for key in entry:
        if key not in (first, *other_keys, *_DELIVERY):
            raise UsageError(f"{key} cannot be combined with {first}")


def flag(entry: Mapping[Any, Any], key: str) -> bool:
    """The value of a key, false by default. Raises UsageError if it is neither true nor false."""
    value = entry.get(key, False)
    if not isinstance(value, bool):
        raise UsageError(f"{key}: {shown(value)}: expected true or false")
    return value


def _options(entry: Mapping[Any, Any]) -> dict[str, str]:
    """The options of the query, checked."""
    if isinstance(entry.get("group"), str | list):
        raise UsageError(
            f"group: {shown(entry['group'])}: expected true or false: it folds near-duplicates of the best;"
            " results are not grouped by an attribute, since an expired one could hide others that are alive;"
            f" 'limit: 1 per day by {_first_name(entry['group'])!s:.80}' reports one for each value"
        )
    options = {option: _text(key, entry[key]) for key, option in _TEXTS.items() if key in entry}
    for key, option in _FLAGS.items():
        if flag(entry, key):
            options[option] = "yes"
    top = _number(entry, "top")
    if top is not None:
        options[SIZE] = str(top)
        if "window" in entry:
            options[WINDOW] = _text("window", entry["window"])
        top_of(options)
    elif GROUP in options or APPEND_ONLY in options:
        raise UsageError("group and append_only need top")
    elif "window" in entry:
        options[WINDOW] = _window_expression(entry["window"])
    ranking_of(options)
    return options


def _first_name(names: str | list[object]) -> object:
    return names if isinstance(names, str) or not names else names[0]


def _window_expression(entry: Any) -> str:
    """The window expression of a keyword query; queries without one share the job's window."""
    text = _text("window", entry)
    if not isinstance(parse_window(text), ExpressionWindow):
        raise UsageError(
            "window: expected a window expression, or top: all other keyword queries share the job's window"
        )
    return text


def _sinks(entry: Mapping[Any, Any]) -> tuple[str, ...]:
    sinks = _text_list(entry, "sinks", "an address")
    for address in sinks:
        parse_sink(address)
    return sinks


def _text_list(entry: Mapping[Any, Any], key: str, expected: str) -> tuple[str, ...]:
    """One text, or a list of texts; empty if the key is missing."""
    if key not in entry:
        return ()
    texts = [entry[key]] if isinstance(entry[key], str) else entry[key]
    if not (isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts)):
        raise UsageError(f"{key}: {shown(entry[key])}: expected {expected}, or a list of them")
    duplicate = next((text for index, text in enumerate(texts) if text in texts[:index]), None)
    if duplicate is not None:
        raise UsageError(f"{key}: {shown(duplicate)} occurs twice")
    return tuple(texts)


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{key}: {shown(value)}: expected a text")
    return value


def _number(entry: Mapping[Any, Any], key: str) -> int | None:
    value = entry.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise UsageError(f"{key}: {shown(value)}: expected a number above 0")
    if value is not None and value > _LARGEST:
        raise UsageError(f"{key}: a number too large")
    return value


FileState: TypeAlias = tuple[int, int]
"""Time and size of a file."""


class Reloading:
    """Follows the file ``path``, whose content was ``alerts``, read after its ``state``.

    ``on_change`` is called with the old and the new alerts. ``job_queries`` turns the queries of the file
    into those of the job. ``check`` raises SkwsError for a query that the job cannot answer.
    """

    def __init__(
        self,
        path: Path,
        alerts: Mapping[str, Alert],
        state: FileState | None,
        on_change: Callable[[Mapping[str, Alert], Mapping[str, Alert]], None],
        job_queries: Callable[[Mapping[str, Query]], Mapping[str, Query]],
        check: Callable[[Query], object],
        log: Log,
    ) -> None:
        self._path = path
        self._alerts = dict(alerts)
        self._on_change = on_change
        self._job_queries = job_queries
        self._check = check
        self._log = log
        self._state = state
        self._last_check = 0

    def each_second(self, now: int, submit: Callable[[JobCommand], object]) -> None:
        """Submit the changes of the file, if a second has passed; ``now`` in microseconds.

        A file with faults changes nothing.
        """
        if now - self._last_check < MICROSECOND:
            return
        self._last_check = now
        state = file_state(self._path)
        if state is None or state == self._state:
            return
        self._state = state
        try:
            alerts = read_alerts(self._path)
            commands = self._commands(alerts)
            self._on_change(self._alerts, alerts)
        except SkwsError as error:
            self._log.warning("queries", f"{error}; the queries are unchanged")
            return
        self._alerts = alerts
        for command in commands:
            submit(command)
        self._log.info(
            "queries",
            f"{self._path}: {len(alerts):,} queries now, {quantity(len(commands), 'change')}",
        )

    def _commands(self, alerts: Mapping[str, Alert]) -> list[JobCommand]:
        old_queries = self._job_queries({name: alert.query for name, alert in self._alerts.items()})
        new_queries = self._job_queries({name: alert.query for name, alert in alerts.items()})
        removed_names = [name for name, query in old_queries.items() if new_queries.get(name) != query]
        additions = [
            replace(query, name=name) for name, query in new_queries.items() if old_queries.get(name) != query
        ]
        check_queries(self._path, additions, self._check)
        return [*(JobCommand("remove", name) for name in removed_names), *map(JobCommand.add, additions)]


def check_queries(path: Path, queries: Iterable[Query], check: Callable[[Query], object]) -> None:
    """Check queries of a file by ``check``, which raises SkwsError for one that a job cannot answer.

    Raises ConfigurationError with every fault: the file, the query, and what was expected.
    """
    faults: list[str] = []
    for query in queries:
        try:
            check(query)
        except SkwsError as error:
            faults.append(f"{path}: {query.name}: {error}")
    if faults:
        raise ConfigurationError("\n".join(faults))


def file_state(path: Path) -> FileState | None:
    """Time and size of a file; None if it is missing, for instance while an editor replaces it."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
