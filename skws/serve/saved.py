"""A saved search: a query with its owner, free metadata and, for digests, an interval.

Everything beside the query is in its tag, so the job's journal stores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from skws.jobs.alerts import alert_of, entry_of, flag
from skws.spec.query_spec import KEYWORDS, Query
from skws_schema.errors import UsageError, shown
from skws_windows.window import parse_duration

MOST_NAME: Final = 200
MOST_TEXT: Final = 4_000
"""The most characters of a query."""
MOST_METADATA: Final = 16 << 10
"""The most bytes of metadata as JSON."""
MOST_LEVELS: Final = 100
"""The most levels of metadata; answers, which surround it with more, have at most 254."""
LEAST_EVERY: Final = 1_000_000
"""The shortest interval of digests, in microseconds."""
_OWN: Final = ("owner", "metadata", "every", "updates")
_TAGGED: Final = (*_OWN, "default_size")


@dataclass(frozen=True, slots=True)
class SavedSearch:
    """``query`` has its name. ``every``: the interval of digests in words; empty for instant results.

    ``updates``: digests include updates of results. ``default_size``: its ``max_size`` is that of the server
    on which it was saved.
    """

    query: Query
    owner: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    every: str = ""
    updates: bool = False
    default_size: bool = False

    @classmethod
    def of(cls, query: Query) -> SavedSearch:
        """The saved search of a standing query; one that was added in another way has no owner."""
        try:
            tag = orjson.loads(query.tag) if query.tag else {}
        except orjson.JSONDecodeError:
            tag = {}
        fields = tag if isinstance(tag, dict) else {}
        return cls(query, **{key: fields[key] for key in _TAGGED if key in fields})

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> SavedSearch:
        """Inverse of ``to_dict``."""
        text, kind = fields.get("query", ""), fields.get("kind", KEYWORDS)
        query = Query(text, fields.get("max_size"), kind, fields.get("options", {}), fields["name"])
        return cls(query, **{key: fields[key] for key in _OWN if key in fields})

    @classmethod
    def from_request(cls, name: str, fields: Mapping[str, Any]) -> SavedSearch:
        """The saved search of a request: a query as in a file of queries, and further fields.

        Raises UsageError.
        """
        _check_name(name)
        query_fields = {key: value for key, value in fields.items() if key not in _OWN}
        for key in ("sinks", "limit"):
            if key in query_fields:
                raise UsageError(f"no {shown(key)} here: results go to the event stream of the query")
        if "kind" in query_fields:
            raise UsageError("no 'kind' here: queries of other packages are not saved over the network")
        query = alert_of(query_fields).query
        is_default = query.max_size is None
        if len(query.text) > MOST_TEXT:
            raise UsageError(f"the query has {len(query.text):,} characters: expected at most {MOST_TEXT:,}")
        metadata, interval = _metadata(fields.get("metadata", {})), _interval(fields)
        updates = flag(fields, "updates")
        return cls(replace(query, name=name), _owner(fields), metadata, interval, updates, is_default)

    @property
    def name(self) -> str:
        return self.query.name

    @property
    def interval(self) -> int | None:
        """The interval of digests in microseconds; None for instant results."""
        return parse_duration(self.every, what="every") if self.every else None

    @property
    def tagged_query(self) -> Query:
        """The query, with all other fields in its tag."""
        nonempty = {key: value for key in _TAGGED if (value := getattr(self, key))}
        return replace(self.query, tag=orjson.dumps(nonempty).decode() if nonempty else "")

    def envelope(self) -> dict[str, Any]:
        """The fields that are returned with each result."""
        return {"name": self.name, "owner": self.owner, "metadata": self.metadata}

    def to_dict(self) -> dict[str, Any]:
        query = self._own_query
        fields: dict[str, Any] = {
            **self.envelope(),
            "query": query.text,
            "kind": query.kind,
            "max_size": query.max_size,
            "options": dict(query.options),
        }
        fields |= {"every": self.every} if self.every else {}
        return fields | ({"updates": True} if self.updates else {})

    def described(self) -> dict[str, Any]:
        """The search, with the body of the request that saves it again."""
        own_fields = {key: value for key in _OWN if (value := getattr(self, key))}
        return {**self.to_dict(), "request": {**entry_of(self._own_query), **own_fields}}

    @property
    def _own_query(self) -> Query:
        """The query as it was requested."""
        return replace(self.query, max_size=None) if self.default_size else self.query


def _check_name(name: str) -> None:
    if not name or len(name) > MOST_NAME or not name.isprintable() or "/" in name:
        raise UsageError(
            f"the name {shown(name[:MOST_NAME])}: expected 1 to {MOST_NAME} printable characters without /"
        )
    if name in {".", ".."}:  # clients remove them from an address, however they are encoded
        raise UsageError(f"the name {shown(name)}: expected one that can be part of an address")


def _owner(fields: Mapping[str, Any]) -> str:
    owner = fields.get("owner", "")
    if not isinstance(owner, str) or len(owner) > MOST_NAME or not owner.isprintable():
        raise UsageError(f"owner {shown(owner)}: expected at most {MOST_NAME} printable characters")
    return owner


def _metadata(metadata: Any) -> Mapping[str, Any]:
    if not isinstance(metadata, dict):
        raise UsageError("metadata: expected a JSON object")
    levels = 0
    inner: list[Any] = [metadata]
    while inner:
        levels += 1
        inner = [child for item in inner for child in _children(item) if isinstance(child, dict | list)]
    if levels > MOST_LEVELS:
        raise UsageError(f"metadata: {levels:,} levels of objects and arrays: expected at most {MOST_LEVELS}")
    try:
        text = orjson.dumps(metadata)
    except TypeError:
        raise UsageError(
            "metadata: expected integers of 64 bits, and Unicode text without half of a surrogate pair"
        ) from None
    if orjson.loads(text) != metadata:
        raise UsageError("metadata: a number is too large")
    if len(text) > MOST_METADATA:
        raise UsageError(f"metadata: {len(text):,} bytes of JSON: expected at most {MOST_METADATA:,}")
    return metadata


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _interval(fields: Mapping[str, Any]) -> str:
    interval = fields.get("every", "")
    if not isinstance(interval, str):
        raise UsageError(f"every: {shown(interval)}: expected a duration such as '1 day'")
    if interval and parse_duration(interval, what="every") < LEAST_EVERY:
        raise UsageError(f"every: {shown(interval)}: expected 1 second or more")
    return interval
