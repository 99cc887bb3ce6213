"""What shards tell of one result each is told as one engine tells it."""

from __future__ import annotations

from skws.queries.keywords.updates import ShardUpdates
from skws.results.model import Result, ResultTuple


def version(op: str, title: str, start: float, end: float | None) -> Result:
    shown = ResultTuple.given("movie", "movie:1", ("pulp",), {"mid": 1, "title": title})
    return Result(op, "pulp", "pulp", "a", start, end, "movie{pulp}", (shown,), ())  # type: ignore[arg-type]


RETRACTED = version("-", "Pulp", 3.0, 0.0)
FOUND = version("+", "Pulp Fiction", 0.0, None)


def told(first: int, second: int) -> list[tuple[str, float | None]]:
    results = ShardUpdates(replaces=False).take([(first, RETRACTED), (second, FOUND)])
    return [(result.op, result.start) for result in results]


def test_a_version_that_another_shard_goes_on_with_is_an_update() -> None:
    assert told(0, 1) == [("~", 3.0)]


def test_what_one_shard_tells_stays_as_it_is() -> None:
    """Under a count window instants may have one time: the result left, and came back at another."""
    assert told(0, 0) == [("-", 3.0), ("+", 0.0)]
