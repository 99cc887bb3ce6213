"""The file of queries: names with keywords, or with a query, how it is ranked, where its results go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from skws.jobs.alerts.limit import Rate
from skws.keywords.scope import with_left_out
from skws.queries.ranked import ranking_of, top_of
from skws.sinks.addresses import parse_sink
from skws.spec.query import (
    APPEND_ONLY,
    EXPLAIN,
    GROUP,
    HALF_LIFE,
    KEYWORDS,
    PATTERN,
    RANK,
    SELECT,
    SIZE,
    TOP,
    WINDOW,
    Query,
)
from skws_schema.errors import ConfigurationError, SkwsError, UsageError, nearest, not_utf8
from skws_schema.yaml.located import locate

_FLAGS: Final = {"explain_score": EXPLAIN, "group": GROUP, "append_only": APPEND_ONLY}
_TEXTS: Final = {"rank": RANK, "half_life": HALF_LIFE}
_KNOWN: Final = (
    "query",
    PATTERN,
    SELECT,
    "max_size",
    "without",
    "top",
    "window",
    *_TEXTS,
    *_FLAGS,
    "sinks",
    "limit",
)
_EXPECTED: Final = "expected keywords, or a mapping with query or pattern"


@dataclass(frozen=True, slots=True)
class Alert:
    """A query of the file. ``sinks``: addresses of its own; none: those of the job."""

    query: Query
    sinks: tuple[str, ...] = ()
    limit: Rate | None = None


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
        found = yaml.safe_load(text)
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: {not_utf8(error)}") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: no YAML: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path}: expected lines of 'name: keywords' or 'name: {{query: keywords, ...}}'")
    problems = locate(text, str(path)).problems
    if problems:  # such as a name that is written twice, of which only the last one would count
        raise UsageError("\n".join(map(str, problems)))
    alerts: dict[str, Alert] = {}
    faults: list[str] = []
    for name, told in found.items():
        try:
            alerts[_name(path, name, told)] = _alert(path, name, told)
        except UsageError as error:
            faults.append(str(error))
    if faults:
        raise UsageError("\n".join(faults))
    return alerts


def _name(path: Path, name: Any, told: Any) -> str:
    if not (isinstance(name, str) and name):
        raise UsageError(f"{path}: {name!r}: {told!r}: expected a name as text, and its keywords")
    return name


def _alert(path: Path, name: str, told: Any) -> Alert:
    try:
        return alert_of(told)
    except SkwsError as error:
        raise UsageError(f"{path}: {name}: {error}") from None


def alert_of(told: Any) -> Alert:
    """The alert that a value of the file describes: keywords, or a mapping. Raises SkwsError."""
    if isinstance(told, str) and told:
        return Alert(Query(told))
    if not isinstance(told, dict):
        raise UsageError(f"{told!r}: {_EXPECTED}, as text")
    return _of_mapping(told)


def _of_mapping(told: Mapping[Any, Any]) -> Alert:
    for key in told:
        if key not in _KNOWN:
            raise UsageError(f"no {key!r}{nearest(str(key), _KNOWN)}")
    text, pattern = told.get("query"), told.get(PATTERN)
    if (text is None) == (pattern is None):
        raise UsageError(_EXPECTED)
    limit = told.get("limit")
    return Alert(
        _keywords(told) if pattern is None else _pattern(told),
        _sinks(told.get("sinks", [])),
        None if limit is None else Rate.of(_text("limit", limit)),
    )


def _keywords(told: Mapping[Any, Any]) -> Query:
    if SELECT in told:
        raise UsageError("select needs pattern: keywords show whole tuples")
    options = _options(told)
    kind = TOP if SIZE in options else KEYWORDS
    text = with_left_out(
        _text("query", told["query"]), _several("without", told.get("without", []), "a relation")
    )
    return Query(text, _number(told, "max_size"), kind, options)


def _pattern(told: Mapping[Any, Any]) -> Query:
    if "without" in told:
        raise UsageError("a pattern is over the relations that it names: there is none to be without")
    if _options(told):
        raise UsageError("a pattern has no rank, top or window of these; its own text says 'within'")
    select = _select(told[SELECT]) if SELECT in told else None
    return Query.of_pattern(_text(PATTERN, told[PATTERN]), select, _number(told, "max_size"))


def _select(told: Any) -> str:
    """A list of attributes, in YAML's way or by commas as on the command line; none: matches are counted."""
    names = told if isinstance(told, list) else [told]
    if not all(isinstance(name, str) for name in names):
        raise UsageError(f"select: {told!r}: expected attributes, as [v.page, o.amount]")
    return ",".join(names)


def _options(told: Mapping[Any, Any]) -> dict[str, str]:
    """Checked, as standing queries have them."""
    options = {option: _text(key, told[key]) for key, option in _TEXTS.items() if key in told}
    for key, option in _FLAGS.items():
        if not isinstance(told.get(key, False), bool):
            raise UsageError(f"{key}: {told[key]!r}: expected true or false")
        if told.get(key):
            options[option] = "yes"
    top = _number(told, "top")
    if top is not None:
        options[SIZE] = str(top)
        if "window" in told:
            options[WINDOW] = _text("window", told["window"])
        top_of(options)
    elif GROUP in options or APPEND_ONLY in options or "window" in told:
        raise UsageError("group, append_only and a window of its own need top")
    ranking_of(options)
    return options


def _sinks(told: Any) -> tuple[str, ...]:
    sinks = _several("sinks", told, "an address")
    for each in sinks:
        parse_sink(each)
    return sinks


def _several(key: str, told: Any, expected: str) -> tuple[str, ...]:
    """One text, or a list of them."""
    texts = (told,) if isinstance(told, str) else told
    if not isinstance(texts, list | tuple) or not all(isinstance(each, str) for each in texts):
        raise UsageError(f"{key}: {told!r}: expected {expected}, or a list of them")
    return tuple(texts)


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{key}: {value!r}: expected a text")
    return value


def _number(told: Mapping[Any, Any], key: str) -> int | None:
    value = told.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise UsageError(f"{key}: {value!r}: expected a number above 0")
    return value
