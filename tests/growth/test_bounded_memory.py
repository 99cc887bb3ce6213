"""Memory is bounded by live data: rounds that leave nothing alive use no memory, however many there are."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Final

import orjson
import pytest

from skws.data.batch import Record, RecordBatch
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
from skws_schema.yaml.load import load_schema
from skws_windows.guards.alphabet import StreamRecord
from skws_windows.window import parse_window
from tests.growth.measured import growth
from tests.growth.streams import FEVER, MINUTE, PAIR, WARD

Turn = Callable[[int], object]

SHOP: Final = """\
window: 10 minutes
relations:
  product: {attributes: {k: integer, t: text}, key: [k], table: true, source: product.jsonl}
  sale: {attributes: {k: integer, note: text}}
joins: [sale.k = product.k]
"""

EACH: Final = 20
"""Keys per round."""


def windows() -> Turn:
    """`skws windows`: after the windows of a key have ended, only the number of its records is kept."""
    processor = WindowPlan.of_text(WARD, FEVER.text).processor()

    def turn(number: int) -> None:
        keys = range(EACH * number, EACH * (number + 1))
        records = [StreamRecord(0, number * MINUTE, (p, temp)) for p in keys for temp in (37, 39, 40, 37)]
        assert list(processor.process(records))

    return turn


def session(*queries: Query, window: str = "1 hour") -> Session:
    live = Session(Stream(WARD, parse_window(window), finite=False), keywords=False)
    queries_by_number = [query.named(f"query {number}", 4) for number, query in enumerate(queries)]
    live.add_all(plans_over(queries_by_number, live.stream))
    return live


def patients(live: Session) -> Turn:
    """Patients who arrive, have a fever and a visit, and never return."""

    def turn(number: int) -> None:
        records = []
        for p in range(EACH * number, EACH * (number + 1)):
            records += [Record(0, number * MINUTE, (p, temp)) for temp in (37, 39, 40)]
            records.append(Record(1, number * MINUTE, (p, "dr hopper")))
            records.append(Record(0, number * MINUTE, (p, 37)))
        assert len(live.take(RecordBatch.of(records))) == EACH

    return turn


def keywords_over_windows() -> Turn:
    return patients(session(Query("hopper").over(FEVER, allowed=False)))


LEAKS: Final = Query("ada leaks")
SECOND: Final = 1_000_000


def pair(query: Query, window: str = "none") -> Session:
    """Rows with few keys, which live for ever without a window."""
    live = Session(Stream(PAIR, parse_window(window), finite=False), keywords=False)
    live.add(query.named("query", 3))
    live.take(RecordBatch.of([Record(1, 0, ("leaks", k)) for k in range(EACH)]))
    return live


def taking(live: Session, records: Callable[[int], list[Record]]) -> Turn:
    """Micro-batches as in a job, which logs them and stores state for a restart."""

    def turn(number: int) -> None:
        live.take(RecordBatch.of(records(number)))
        live.begins()
        live.snapshot()

    return turn


def updates(query: Query = LEAKS, window: str = "none") -> Turn:
    """Updates with few keys, and with texts that never recur."""
    return taking(
        pair(query, window),
        lambda number: [Record(0, number * SECOND, (f"ada w{number}", k)) for k in range(EACH)],
    )


def come_and_go(number: int) -> list[Record]:
    """Rows with keys that never recur, each with a result and deleted at once."""
    keys = range(EACH * number, EACH * (number + 1))
    time = number * SECOND
    rows = [(1, ("leaks", k)) for k in keys] + [(0, ("ada", k)) for k in keys]
    return [
        Record(relation, time + deleted, row, bool(deleted)) for deleted in (0, 1) for relation, row in rows
    ]


def deletions() -> Turn:
    return taking(pair(LEAKS), come_and_go)


def deletions_in_a_window() -> Turn:
    return taking(pair(LEAKS, "10 days"), come_and_go)


def truncated(number: int) -> list[Record]:
    rows = [record for record in come_and_go(number) if not record.delete]
    return [*rows, *(Record.truncation(relation, number * SECOND + 1) for relation in (0, 1))]


def truncations() -> Turn:
    return taking(pair(LEAKS), truncated)


def passing(number: int) -> list[Record]:
    return [record for record in come_and_go(number) if not record.delete]


def a_window_of_time() -> Turn:
    return taking(pair(LEAKS, "5 seconds"), passing)


def a_window_of_tuples() -> Turn:
    return taking(pair(LEAKS, f"{5 * EACH} tuples"), passing)


BEST: Final = Query.of_keywords("ada leaks", RankingChoice(), TopChoice(3))


def best_of_a_window() -> Turn:
    return taking(pair(BEST, "5 seconds"), passing)


def best_that_are_updated() -> Turn:
    return updates(BEST)


def best_that_are_deleted() -> Turn:
    return taking(pair(BEST), come_and_go)


def patterns() -> Turn:
    return taking(pair(Query.of_pattern("a x ; b y where x.k = y.k within 5 seconds")), passing)


def searches() -> Turn:
    """Searches that are added, find something, and are removed."""
    live = pair(LEAKS)
    live.take(RecordBatch.of([Record(0, 0, (f"ada w{k}", k)) for k in range(EACH)]))

    def turn(number: int) -> None:
        saved = [Query(f"w{k} leaks none{number}").named(f"{number} {k}", 3) for k in range(EACH)]
        live.add_all(plans_over([*saved, LEAKS.named("again", 3)], live.stream))
        live.take(RecordBatch.of([Record(0, number, ("ada", 1))]))
        for query in saved:
            live.remove(query.name)
        live.remove("again")

    return turn


def a_job(watch: LocalWatch) -> Turn:
    """A job over a file that grows by updates."""
    path = Path(watch.request.source)

    def turn(number: int) -> None:
        with path.open("ab") as file:
            for k in range(EACH):
                row = {"t": f"ada w{number}", "k": k}
                file.write(orjson.dumps({"relation": "a", "time": number, "row": row}) + b"\n")
        while watch.step():
            pass
        watch.commit()

    return turn


NOTHING: Final = 400
"""Bytes per record or key by which caches and periodic purging vary; a leaked row,
result or run takes more.
"""
COUNT: Final = 260
TURNS: Final = (
    (windows, COUNT),
    (keywords_over_windows, NOTHING),
    (updates, NOTHING),
    (deletions, NOTHING),
    (deletions_in_a_window, NOTHING),
    (truncations, NOTHING),
    (a_window_of_time, NOTHING),
    (a_window_of_tuples, NOTHING),
    (best_of_a_window, NOTHING),
    (best_that_are_updated, NOTHING),
    (best_that_are_deleted, NOTHING),
    (patterns, NOTHING),
    (searches, NOTHING),
)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "limit"), TURNS, ids=lambda case: getattr(case, "__name__", ""))
def test_memory_is_that_of_what_lives(case: Callable[[], Turn], limit: int) -> None:
    assert growth(case, 45) / EACH < limit


@pytest.mark.slow
def test_the_memory_of_a_job_is_that_of_what_lives(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.touch()
    job = Job({"leaks": "ada leaks"}, PAIR, str(source), checkpoint=tmp_path / "kept")
    watch = LocalWatch(job, [], Log(stream=StringIO()))
    watch.open()
    assert growth(lambda: a_job(watch), 45) / EACH < NOTHING
    watch.close()


def reaching(folder: Path) -> Turn:
    """Rows of a stream, each of which reaches another row of a large table with its own source."""
    products = (orjson.dumps({"k": k, "t": f"lamp w{k}"}) for k in range(5 * 45 * EACH))
    (folder / "product.jsonl").write_bytes(b"\n".join(products))
    (folder / "shop.yaml").write_text(SHOP)
    schema = load_schema(folder / "shop.yaml")
    window = parse_window(schema.window)
    engine = StreamEngine(schema, window, sizes=Sizes(keyword_rows=8, rows_kept=200))
    engine.add(Plan(schema, parse_query("gift lamp", schema), window, 3))
    assert not list(engine.load_tables([]))

    def turn(number: int) -> None:
        keys = range(EACH * number, EACH * (number + 1))
        sales = [Record(1, number * MINUTE, (k, f"gift x{k}")) for k in keys]
        assert len(list(engine.process(sales))) == EACH

    return turn


@pytest.mark.slow
def test_rows_of_tables_that_a_stream_has_reached_do_not_stay(tmp_path: Path) -> None:
    assert growth(lambda: reaching(tmp_path), 45) / EACH < NOTHING
