"""Updates of one result from several shards are reported as one engine reports them."""

from __future__ import annotations

from msgspec.structs import replace

from skws.queries.keywords.updates import ShardUpdates
from skws.results.result import Result, ResultTuple


def version(op: str, title: str, start: float, end: float | None) -> Result:
    member = ResultTuple.given("movie", "movie:1", ("pulp",), {"mid": 1, "title": title})
    return Result(op, "pulp", "pulp", "a", start, end, "movie{pulp}", (member,), ())  # type: ignore[arg-type]


RETRACTED = version("-", "Pulp", 3.0, 0.0)
FOUND = version("+", "Pulp Fiction", 0.0, None)


def merged_changes(first: int, second: int) -> list[tuple[str, float | None]]:
    results = ShardUpdates(replaces=False).take([(first, RETRACTED), (second, FOUND)])
    return [(result.op, result.start) for result in results]


def test_a_version_continued_by_another_shard_is_an_update() -> None:
    assert merged_changes(0, 1) == [("~", 3.0)]


def test_reports_of_one_shard_are_unchanged() -> None:
    """Under a count window, a result may end in one instant and return in the next, both at the same time."""
    assert merged_changes(0, 0) == [("-", 3.0), ("+", 0.0)]


NEXT: list[tuple[str, Result]] = [
    ("~", version("~", "Fiction", 0.0, 9.0)),
    ("-", version("-", "Fiction", 0.0, 5.0)),
]


def test_begins_survive_a_restart() -> None:
    """The shard that continues a result does not know when it began in another shard."""
    updates = ShardUpdates(replaces=False)
    updates.take([(0, RETRACTED), (1, FOUND)])
    for op, next_version in NEXT:
        restored = ShardUpdates(replaces=False)
        restored.restore(updates.snapshot())
        (result,) = [one.parsed for one in restored.take([(1, next_version)])]
        assert (result.op, result.start) == (op, 3.0)
        updates = restored
    assert updates.snapshot() == b""


def test_begins_of_results_that_expired_and_of_removed_queries_are_forgotten() -> None:
    updates = ShardUpdates(replaces=False)
    for number in range(5_000):
        name = f"{number:x}"
        old, new = (
            replace(one, id=name, end=end)
            for one, end in (
                (version("-", "Pulp", number - 1, 0), number),
                (version("+", "Fiction", number, 0), number + 9),
            )
        )
        updates.take([(0, old), (1, new)])
    assert len(updates) < 2_500
    updates.remove("other")
    assert len(updates)
    updates.remove("pulp")
    assert not len(updates)
