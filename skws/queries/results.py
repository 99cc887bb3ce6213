"""Results of all kinds: merged in order of time, and in JSON form."""

from __future__ import annotations

import json
from collections.abc import Sequence

import orjson

from skws.queries.patterns.result import PatternResult
from skws.results.model import EncodedResult, LiveResult, Result, parsed


def moment(result: LiveResult) -> float:
    """When a result is given, in seconds since the epoch; static results come first."""
    result = parsed(result)
    time = result.start if result.op == "+" else result.end
    if isinstance(result, Result) and result.place is not None:
        time = result.place.at
    return -1.0 if time is None else time


def in_order_of_time(parts: Sequence[list[LiveResult]]) -> list[LiveResult]:
    """The results of several operators, each in order, as one list."""
    found = [part for part in parts if part]
    if len(found) == 1:
        return found[0]
    return sorted((result for part in found for result in part), key=moment)


def read_result(line: bytes) -> LiveResult:
    """A result of any kind from its JSON form; for input that skws wrote itself."""
    shown = orjson.loads(line)
    if "network" in shown:
        return Result.from_dict(shown)
    if "count" in shown:
        from skws.queries.sql import SqlResult  # noqa: PLC0415 - only for SQL

        return SqlResult.from_dict(json.loads(line))  # counts may have more than 64 bits
    return PatternResult.from_dict(shown)


def encoded(line: bytes) -> EncodedResult:
    """As ``read_result``, when it is asked for."""
    return EncodedResult(line, read_result)


def written(result: LiveResult) -> bytes:
    """Inverse of ``read_result``."""
    return result.packed() if isinstance(result, Result) else result.to_json()
