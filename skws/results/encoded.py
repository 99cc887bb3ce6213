"""A result in the JSON form that another process made: it goes to a sink as it is, and is rarely parsed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import orjson

from skws.results.model import LiveResult, Op, TupleShown

_RETRACTION: Final = b'{"op":"-"'
_QUERY: Final = len(b'{"op":"+","query":')
_AFTER_QUERY: Final = b',"id":'  # not in a query, whose quotes are escaped
_UNSHOWN: Final = b'"unshown":'
_COUNT: Final = b'"count":'


class EncodedResult:
    """A ``LiveResult``. ``line``: as ``skws.queries.results.written`` gives it; ``parse`` is its inverse."""

    __slots__ = ("_parse", "_parsed", "line")

    def __init__(self, line: bytes, parse: Callable[[bytes], LiveResult]) -> None:
        self.line = line
        self._parse = parse
        self._parsed: LiveResult | None = None

    @property
    def op(self) -> Op:
        return "-" if self.line.startswith(_RETRACTION) else "+"

    @property
    def query(self) -> str:
        return _text(self.line[_QUERY : self.line.index(_AFTER_QUERY, _QUERY)])

    @property
    def parsed(self) -> LiveResult:
        """As the process that made it had it."""
        if self._parsed is None:
            self._parsed = self._parse(self.line)
        return self._parsed

    @property
    def id(self) -> str:
        return self.parsed.id

    @property
    def start(self) -> float | None:
        return self.parsed.start

    @property
    def end(self) -> float | None:
        return self.parsed.end

    @property
    def snapshot(self) -> bool:
        return self.parsed.snapshot

    @property
    def tuples(self) -> Sequence[TupleShown]:
        return self.parsed.tuples

    @property
    def count(self) -> int:
        """The number of results that it stands for."""
        return getattr(self.parsed, "count", 1) if _COUNT in self.line else 1

    def to_dict(self) -> dict[str, Any]:
        return self.parsed.to_dict()

    def to_json(self) -> bytes:
        """The line itself, unless it has parts that users do not get."""
        return self.parsed.to_json() if _UNSHOWN in self.line else self.line


def parsed(result: LiveResult) -> LiveResult:
    """For those who distinguish kinds of results."""
    return result.parsed if isinstance(result, EncodedResult) else result


@lru_cache(1024)
def _text(json: bytes) -> str:
    text: str = orjson.loads(json)
    return text
