"""When the finite streams of a query have ended."""

from __future__ import annotations

from collections.abc import Iterator

from bounds.modified import Modified
from bounds.query import Constant, Domain, Stream
from schema.errors import UsageError


def horizon(query: Modified) -> int:
    """The time from which on no finite stream can have tuples; 0 if there is none.

    Microseconds since the epoch. The paper has it known before processing
    starts (Execution Model). Raises UsageError if nothing tells it.
    """
    ends: dict[str, int] = {}
    for _ in query.finite:
        for stream in query.finite:
            told = [*_by_constants(query, stream), *_by_streams(query, stream, ends)]
            if told:
                ends[stream.alias] = min(told)
    for stream in query.finite:
        if stream.alias not in ends:
            raise UsageError(
                f"when the finite stream {stream.alias} ends is not told: give {stream.clock} a max in the "
                f"schema, or add a condition such as {stream.clock} < TIMESTAMP '2030-01-01'"
            )
    return max(ends.values(), default=0)


def _by_constants(query: Modified, stream: Stream) -> Iterator[int]:
    own = query.closure.class_of[stream.clock]
    for number, members in enumerate(query.closure.members):
        for term in members:
            if isinstance(term, Constant) and term.domain is Domain.TIME and isinstance(term.value, int):
                if number == own:
                    yield term.value + 1
                elif query.closure.above[own] >> number & 1:
                    yield term.value


def _by_streams(query: Modified, stream: Stream, ends: dict[str, int]) -> Iterator[int]:
    own = query.closure.class_of[stream.clock]
    for other in query.finite:
        number = query.closure.class_of[other.clock]
        if other.alias in ends and (number == own or query.closure.above[own] >> number & 1):
            yield ends[other.alias]
