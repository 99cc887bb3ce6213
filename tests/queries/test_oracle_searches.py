"""A search in a session, and the live results of a query, equal the first results of a new query."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from skws.data.batch import Record, RecordBatch, batched
from skws.queries.keywords.result_emitter import ResultEmitter
from skws.queries.keywords.searching import Best, Searched
from skws.queries.keywords.stream_engine import StreamEngine
from skws.queries.kinds import plan_of
from skws.queries.session import Session
from skws.results.result import Result
from skws.spec.query_spec import RANK, Query, Stream
from skws_mesh.columnar.store import Partials
from skws_schema.budgets import TimeLimitError, within
from skws_schema.errors import QueryError, UsageError
from skws_schema.model import Analyzer, Attribute, AttributeType, Join, Relation, Schema
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.queries.random_streams import STREAMS, TABLES, batches_of_size, random_stream
from tests.strategies import combinations, length, seeds

TEXTS = (
    *("alpha beta", "alpha", "beta no", "alpha -no", '"alpha beta"', "al* no", "(alpha OR beta) no"),
    *("alhpa~ be?a", "alpha plain.x<2", "!keyed.y=1 beta", "(alpha OR !plain.x=0) b*a -link.y=2"),
    *("alpha beta -self:", "alpha no beta -plain.x:"),
    *("plain beta", "link alpha -no", "keyed !plain.x=1", "plain link (alpha OR !keyed.y=1)"),
)
RANKINGS = ("relevance", "relevance", "keywords", "compact", "recency")
WINDOWS: list[Window] = [TimeWindow(20), TimeWindow(200), CountWindow(15)]


def ranked_query(text: str, name: str, size: int, rank: str = "relevance") -> Query:
    return Query(text, options={RANK: rank}).named(name, size)


def order(result: Result) -> tuple[int, float, str]:
    assert result.score is not None
    tier, value = result.score.rank
    return -tier, -value, result.id


def searched(session: Session, query: Query, limit: int) -> Searched:
    return session.search(plan_of(query, session.stream), limit)


def compare(session: Session, text: str, size: int, limit: int, rank: str) -> int:
    """Compares a search with the snapshot of a new query; returns the number of its results."""
    hits, count, size_reached, complete, *_ = searched(session, ranked_query(text, "", size, rank), limit)
    snapshot = session.add(ranked_query(text, "new", size, rank))
    session.remove("new")
    live_results = sorted((one for one in snapshot if one.op == "+"), key=order)
    assert complete
    assert count == sum(len(one.tuples) <= size_reached for one in live_results)
    assert size_reached == size or len(hits) == limit
    assert [one.id for one in hits] == [one.id for one in live_results[:limit]]
    scores = [[one.score.value for one in some if one.score] for some in (hits, live_results[:limit])]
    assert scores[0] == pytest.approx(scores[1])
    assert [one.place.rank for one in hits if one.place] == list(range(1, len(hits) + 1))
    return len(live_results)


@seeds(1, 12)
@combinations("schema, window", [STREAMS, TABLES], WINDOWS)
def test_a_search_has_the_first_results_of_a_new_query(schema: Schema, window: Window, seed: int) -> None:
    rng = random.Random(seed)
    records = random_stream(schema, seed, length(96, 160), 3)
    stream = Stream(schema, window, max_size=3, match_names=True)
    session, undisturbed = Session(stream), Session(stream)
    tables = [record for record in records if schema.relations[record.relation].table]
    stream_records = [record for record in records if not schema.relations[record.relation].table]
    results_beside_searches: list[Result] = []
    expected: list[Result] = []
    for live, results in ((session, results_beside_searches), (undisturbed, expected)):
        live.load_tables(batched(tables))
        results.extend(live.add(ranked_query("alpha beta", "standing", 3)))
    for batch in batches_of_size(stream_records, 16):
        results_beside_searches += session.take(batch)
        expected += undisturbed.take(batch)
        for text in rng.sample(TEXTS, 4):
            size, limit = rng.choice((1, 2, 3)), rng.choice((1, 3, 1000))
            compare(session, text, size, limit, rng.choice(RANKINGS))
        counts_by_word = {
            word: searched(session, ranked_query(word, "", 1), 1).found for word in ("alpha", "beta", "pad")
        }
        for start in ("al", "b", "p", "x"):
            completions = [(word, n) for word, n in counts_by_word.items() if n and word.startswith(start)]
            assert session.completions(start, 8) == completions
        snapshot_ids = [
            one.id for one in session.add(ranked_query("alpha beta", "again", 3)) if one.op == "+"
        ]
        session.remove("again")
        assert sorted(one.id for one in session.alive("standing")) == sorted(snapshot_ids)
    assert [one.to_json() for one in results_beside_searches] == [one.to_json() for one in expected], (
        "searches disturb nothing"
    )


ANALYZED = Schema(
    "analyzed",
    (
        Relation(
            "item",
            (
                Attribute("title", AttributeType.TEXT),
                Attribute("code", AttributeType.TEXT, analyzer=Analyzer.SIMPLE),
            ),
            search=("title", "code"),
        ),
    ),
    (),
)


@seeds(3, 30)
def test_a_completion_counts_the_rows_that_a_search_for_it_finds(seed: int) -> None:
    """Even if the word is in columns with different analyzers, or only other words with its stem are."""
    rng = random.Random(seed)
    session = Session(Stream(ANALYZED, TimeWindow(100), max_size=1))
    words = ("report", "reports", "reported", "repo")
    rows = [tuple(" ".join(rng.choices(words, k=rng.randint(0, 2))) for _ in range(2)) for _ in range(8)]
    session.take(RecordBatch.of([Record(0, time, row) for time, row in enumerate(rows)]))
    written_words = {word for row in rows for text in row for word in text.split()}
    completions = dict(session.completions("rep", 8))
    assert completions == {
        word: searched(session, ranked_query(word, "", 1), 1).found for word in written_words
    }


def test_words_of_many_columns_stay_indexed_if_no_row_has_died() -> None:
    names = tuple(f"t{number}" for number in range(20))
    relation = Relation("item", tuple(Attribute(name, AttributeType.TEXT) for name in names), search=names)
    engine = StreamEngine(Schema("wide", (relation,), ()), Unbounded())
    assert not list(engine.process([Record(0, time, names) for time in range(4_200)]))
    assert not engine.prepare_searches(4_200)
    engine.compact(0)
    assert not engine.prepare_searches(0)


PARALLEL = Schema(
    "parallel",
    STREAMS.relations,
    (
        *STREAMS.joins,
        Join("also", "plain", "keyed", (("y", "x"),)),
        Join("alike", "link", "link", (("y", "y"),)),
    ),
)


@seeds(1, 24)
@pytest.mark.parametrize("schema", [STREAMS, TABLES, PARALLEL], ids=lambda schema: schema.name)
def test_paths_between_common_words_are_counted_and_ranked(schema: Schema, seed: int) -> None:
    rng = random.Random(seed)
    # Tuples are purged once there are a few thousand.
    window, size = rng.choice(((TimeWindow(150), 1600), (TimeWindow(10_000), 420), (CountWindow(150), 1600)))
    records = random_stream(schema, seed, size, rng.choice((30, 60)))
    session = Session(Stream(schema, window))
    session.load_tables(batched(record for record in records if schema.relations[record.relation].table))
    stream_records = [record for record in records if not schema.relations[record.relation].table]
    result_count = 0
    for number, batch in enumerate(batches_of_size(stream_records, 16)):
        session.take(batch)
        if number % 9 != 8:
            continue
        for text in rng.sample(
            ("alpha beta", "(alpha OR no) beta", "alpha beta -no", "beta alpha -link:"), 2
        ):
            size, limit, rank = rng.choice((3, 4, 5, 6)), rng.choice((1, 7, 20, 100)), rng.choice(RANKINGS)
            result_count += compare(session, text, size, limit, rank)
    assert result_count


def test_phrases_of_stop_words_are_searched_in_all_texts() -> None:
    session = Session(Stream(STREAMS, TimeWindow(200)))
    texts = ("to be alone", "be to", "not to be", "alpha", "to, be")
    session.take(RecordBatch.of([Record(0, number, (text, number, 0)) for number, text in enumerate(texts)]))
    assert compare(session, '"to be"', 2, 10, "relevance") == 3
    assert compare(session, '"to be" alone', 2, 10, "keywords") == 1


def test_an_interrupted_search_does_not_disturb_queries() -> None:
    stream = Stream(STREAMS, TimeWindow(200), max_size=4)
    session, undisturbed = Session(stream), Session(stream)
    records = random_stream(STREAMS, 1, 64, 3)
    results, expected = [], []
    for live in (session, undisturbed):
        live.add(ranked_query("alpha beta", "standing", 4))
    for batch in batches_of_size(records, 16):
        results += session.take(batch)
        expected += undisturbed.take(batch)
        with pytest.raises(TimeLimitError), within(0.0):
            searched(session, ranked_query("beta no", "", 4), 10)
        with pytest.raises(TimeLimitError), within(0.0):
            session.completions("a", 8)
        with pytest.raises(QueryError):
            searched(session, ranked_query("nowhere.t:x", "", 4), 10)
    assert expected
    assert [one.to_json() for one in results] == [one.to_json() for one in expected]
    with pytest.raises(UsageError, match="stand"):
        session.alive("standin")


def test_a_search_that_times_out_returns_its_smaller_results() -> None:
    """However early it times out; ranked by recency, larger results may be better."""
    session = Session(Stream(STREAMS, TimeWindow(10_000)))
    for batch in batches_of_size(random_stream(STREAMS, 1, 320, 40), 16):
        session.take(batch)
    complete_by_size = {
        size: searched(session, ranked_query("alpha beta", "", size, "recency"), 2) for size in range(1, 7)
    }
    seconds, complete, partial_count = 1e-4, False, 0
    while not complete:
        seconds *= 1.2
        with suppress(TimeLimitError), within(seconds):
            outcome = searched(session, ranked_query("alpha beta", "", 6, "recency"), 2)
            complete = outcome.complete
            assert outcome == complete_by_size[outcome.size]._replace(complete=complete)
            partial_count += not complete
    assert partial_count


def test_the_outer_time_limit_applies() -> None:
    with within(0.0), pytest.raises(TimeLimitError), within(60.0):
        searched(Session(Stream(STREAMS, TimeWindow(200))), ranked_query("alpha", "", 2), 1)


def test_only_some_of_many_equal_results_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    built_counts: list[int] = []

    def form(self: Best, emitter: ResultEmitter, partials: Partials) -> None:
        built_counts.append(len(partials))
        original(self, emitter, partials)

    original = Best.form
    monkeypatch.setattr(Best, "form", form)
    session = Session(Stream(STREAMS, TimeWindow(10_000)))
    records = [Record(0, number, ("open pad pad", number, 0)) for number in range(2_000)]
    better_record = Record(0, 2_000, ("open", 2_000, 0))
    for batch in batches_of_size([*records, better_record], 16):
        session.take(batch)
    outcome = searched(session, ranked_query("open", "", 1), 5)
    assert (outcome.found, outcome.complete, len(outcome.results)) == (2_001, True, 5)
    scores = [one.score.value for one in outcome.results if one.score is not None]
    assert scores[0] > scores[1] == scores[4]
    assert sum(built_counts) < 120
