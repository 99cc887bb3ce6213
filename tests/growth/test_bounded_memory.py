"""Memory is bounded by live data: it does not grow with rounds that leave no live data."""

from __future__ import annotations

import random
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Final

import orjson
import pytest

from skws.data.batch import Record, RecordBatch
from skws.formats.rows import RowReader
from skws.jobs.local import LocalWatch
from skws.jobs.log import Log
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.keyword_operator import Sizes
from skws.queries.keywords.stream_engine import StreamEngine
from skws.queries.kinds import plans_over
from skws.queries.session import Session
from skws.queries.windowed.window_plan import WindowPlan
from skws.spec.job import Job
from skws.spec.query_spec import Query, RankingChoice, Stream, TopChoice
from skws_schema.model import Attribute, AttributeType, Relation, Schema
from skws_schema.yaml.load import load_schema
from skws_windows.guards.alphabet import StreamRecord
from skws_windows.window import parse_window
from tests.growth.measurements import growth
from tests.growth.streams import FEVER, MINUTE, PAIR, WARD

Round = Callable[[int], object]

SHOP: Final = """\
window: 10 minutes
relations:
  product: {attributes: {k: integer, t: text}, key: [k], table: true, source: product.jsonl}
  sale: {attributes: {k: integer, note: text}}
joins: [sale.k = product.k]
"""

KEYS: Final = 20
"""Keys per round."""


def windows() -> Round:
    """`skws windows`: once the windows of a key have ended, only the number of its records is stored."""
    processor = WindowPlan.of_text(WARD, FEVER.text).processor()

    def run_round(number: int) -> None:
        keys = range(KEYS * number, KEYS * (number + 1))
        records = [StreamRecord(0, number * MINUTE, (p, temp)) for p in keys for temp in (37, 39, 40, 37)]
        assert list(processor.process(records))

    return run_round


def session(*queries: Query, window: str = "1 hour") -> Session:
    live = Session(Stream(WARD, parse_window(window), finite=False), keywords=False)
    queries_by_number = [query.named(f"query {number}", 4) for number, query in enumerate(queries)]
    live.add_all(plans_over(queries_by_number, live.stream))
    return live


def patients(live: Session) -> Round:
    """Patients who arrive, have a fever and a visit, and do not return."""

    def run_round(number: int) -> None:
        records = []
        for p in range(KEYS * number, KEYS * (number + 1)):
            records += [Record(0, number * MINUTE, (p, temp)) for temp in (37, 39, 40)]
            records.append(Record(1, number * MINUTE, (p, "dr hopper")))
            records.append(Record(0, number * MINUTE, (p, 37)))
        assert len(live.take(RecordBatch.of(records))) == KEYS

    return run_round


def keywords_over_windows() -> Round:
    return patients(session(Query("hopper").over(FEVER, allowed=False)))


LEAKS: Final = Query("ada leaks")
SECOND: Final = 1_000_000


def pair(query: Query, window: str = "none") -> Session:
    """A session with rows of a few keys, which never expire without a window."""
    live = Session(Stream(PAIR, parse_window(window), finite=False), keywords=False)
    live.add(query.named("query", 3))
    live.take(RecordBatch.of([Record(1, 0, ("leaks", k)) for k in range(KEYS)]))
    return live


def micro_batches(live: Session, records: Callable[[int], list[Record]]) -> Round:
    """Micro-batches as in a job, which logs them and saves its state for a restart."""

    count = 0

    def run_round(number: int) -> None:
        nonlocal count
        count += len(live.take(RecordBatch.of(records(number))))
        assert count, "rounds without results"
        live.begins()
        live.snapshot()

    return run_round


def updates(query: Query = LEAKS, window: str = "none") -> Round:
    """Updates with few keys, and with texts that never recur."""
    return micro_batches(
        pair(query, window),
        lambda number: [Record(0, number * SECOND, (f"ada w{number}", k)) for k in range(KEYS)],
    )


def inserted_and_deleted(number: int) -> list[Record]:
    """Rows with keys that never recur; each has a result and is deleted at once."""
    keys = range(KEYS * number, KEYS * (number + 1))
    time = number * SECOND
    rows = [(1, ("leaks", k)) for k in keys] + [(0, ("ada", k)) for k in keys]
    return [
        Record(relation, time + deleted, row, bool(deleted)) for deleted in (0, 1) for relation, row in rows
    ]


def deletions() -> Round:
    return micro_batches(pair(LEAKS), inserted_and_deleted)


def deletions_in_a_window() -> Round:
    return micro_batches(pair(LEAKS, "10 days"), inserted_and_deleted)


def inserted_and_truncated(number: int) -> list[Record]:
    rows = [record for record in inserted_and_deleted(number) if not record.delete]
    return [*rows, *(Record.truncation(relation, number * SECOND + 1) for relation in (0, 1))]


def truncations() -> Round:
    return micro_batches(pair(LEAKS), inserted_and_truncated)


def insertions(number: int) -> list[Record]:
    return [record for record in inserted_and_deleted(number) if not record.delete]


def a_window_of_time() -> Round:
    return micro_batches(pair(LEAKS, "5 seconds"), insertions)


def a_window_of_tuples() -> Round:
    return micro_batches(pair(LEAKS, f"{5 * KEYS} tuples"), insertions)


BEST: Final = Query.of_keywords("ada leaks", RankingChoice(), TopChoice(3))


def best_of_a_window() -> Round:
    return micro_batches(pair(BEST, "5 seconds"), insertions)


def updates_of_the_best() -> Round:
    return updates(BEST)


def deletions_of_the_best() -> Round:
    return micro_batches(pair(BEST), inserted_and_deleted)


def patterns() -> Round:
    return micro_batches(pair(Query.of_pattern("b x ; a y where x.k = y.k within 5 seconds")), insertions)


def searches() -> Round:
    """Searches that are added, find something, and are removed."""
    live = pair(LEAKS)
    live.take(RecordBatch.of([Record(0, 0, (f"ada w{k}", k)) for k in range(KEYS)]))

    def run_round(number: int) -> None:
        saved = [Query(f"w{k} leaks none{number}").named(f"{number} {k}", 3) for k in range(KEYS)]
        live.add_all(plans_over([*saved, LEAKS.named("again", 3)], live.stream))
        live.take(RecordBatch.of([Record(0, number, ("ada", 1))]))
        for query in saved:
            live.remove(query.name)
        live.remove("again")

    return run_round


def a_job(watch: LocalWatch) -> Round:
    """A job over a file that grows by updates."""
    path = Path(watch.request.source)

    def run_round(number: int) -> None:
        with path.open("ab") as file:
            for k in range(KEYS):
                row = {"t": f"ada w{number}", "k": k}
                file.write(orjson.dumps({"relation": "a", "time": number, "row": row}) + b"\n")
        while watch.step():
            pass
        watch.commit()

    return run_round


def rows_with_nulls() -> Round:
    """Wide rows, in which NULL is in other attributes each time."""
    names = [f"a{number}" for number in range(60)]
    attributes = tuple(Attribute(name, AttributeType.TEXT) for name in names)
    reader = RowReader(Schema("s", (Relation("r", attributes),), ()), 0)
    rng = random.Random(1)

    def run_round(_number: int) -> None:
        for _ in range(KEYS):
            reader.insertion({name: rng.choice(("x", None)) for name in names})

    return run_round


TOLERANCE: Final = 400
"""Bytes per record or key by which caches and periodic purging vary; a leaked row,
result or run takes more.
"""
BYTES_OF_A_COUNT: Final = 260
"""Bytes per key for the number of its records."""
CASES: Final = (
    (windows, BYTES_OF_A_COUNT),
    (keywords_over_windows, TOLERANCE),
    (updates, TOLERANCE),
    (deletions, TOLERANCE),
    (deletions_in_a_window, TOLERANCE),
    (truncations, TOLERANCE),
    (a_window_of_time, TOLERANCE),
    (a_window_of_tuples, TOLERANCE),
    (best_of_a_window, TOLERANCE),
    (updates_of_the_best, TOLERANCE),
    (deletions_of_the_best, TOLERANCE),
    (patterns, TOLERANCE),
    (searches, TOLERANCE),
    (rows_with_nulls, TOLERANCE),
)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "limit"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_memory_does_not_grow_with_dead_data(case: Callable[[], Round], limit: int) -> None:
    assert growth(case, 45) / KEYS < limit


@pytest.mark.slow
def test_the_memory_of_a_job_does_not_grow_with_dead_data(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.touch()
    job = Job({"leaks": "ada leaks"}, PAIR, str(source), checkpoint=tmp_path / "kept")
    watch = LocalWatch(job, [], Log(stream=StringIO()))
    watch.open()
    assert growth(lambda: a_job(watch), 45) / KEYS < TOLERANCE
    watch.close()


def table_lookups(folder: Path) -> Round:
    """Rows of a stream, each of which joins a different row of a large table with its own source."""
    products = (orjson.dumps({"k": k, "t": f"lamp w{k}"}) for k in range(5 * 45 * KEYS))
    (folder / "product.jsonl").write_bytes(b"\n".join(products))
    (folder / "shop.yaml").write_text(SHOP)
    schema = load_schema(folder / "shop.yaml")
    window = parse_window(schema.window)
    engine = StreamEngine(schema, window, sizes=Sizes(keyword_rows=8, rows_kept=200))
    engine.add(Plan(schema, parse_query("gift lamp", schema), window, 3))
    assert not list(engine.load_tables([]))

    def run_round(number: int) -> None:
        keys = range(KEYS * number, KEYS * (number + 1))
        sales = [Record(1, number * MINUTE, (k, f"gift x{k}")) for k in keys]
        assert len(list(engine.process(sales))) == KEYS

    return run_round


@pytest.mark.slow
def test_table_rows_loaded_for_a_stream_are_released(tmp_path: Path) -> None:
    assert growth(lambda: table_lookups(tmp_path), 45) / KEYS < TOLERANCE
