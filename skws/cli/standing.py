"""Standing queries as users write them: arguments, options, and a file of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from schema.errors import UsageError
from skws.cli import options
from skws.live.standing import PATTERN, Query

_EXPECTED: Final = "expected a name, and keywords or {pattern: TEXT}"


def named_queries(words: list[str], patterns: list[str], path: Path | None) -> dict[str, Query]:
    """Queries by name: those of the command line are named by their texts. Raises UsageError."""
    text = options.query_text(words)
    named = {text: Query(text)} if text else {}
    for pattern in patterns:
        if pattern in named:
            raise UsageError(f"--pattern {pattern!r}: there is a query of this text already")
        named[pattern] = pattern_query(pattern)
    return named if path is None else {**named, **_read(path)}


def pattern_query(text: str) -> Query:
    """The query that a pattern is. Raises UsageError for bytes that are no text."""
    return Query(options.query_text([text]), kind=PATTERN)


def _read(path: Path) -> dict[str, Query]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: no YAML: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path}: expected lines of 'name: keywords' or 'name: {{pattern: TEXT}}'")
    return {_name(path, name, told): _query(path, name, told) for name, told in found.items()}


def _name(path: Path, name: Any, told: Any) -> str:
    if not (isinstance(name, str) and name):
        raise UsageError(f"{path}: {name!r}: {told!r}: {_EXPECTED}, both as texts")
    return name


def _query(path: Path, name: Any, told: Any) -> Query:
    match told:
        case str(text) if text:
            return Query(text)
        case {"pattern": str(text), **rest} if text and not rest:
            return pattern_query(text)
    raise UsageError(f"{path}: {name!r}: {told!r}: {_EXPECTED}, both as texts")
