"""The intended result ranks first: direct joins, tuples that others refer to, and names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.ranking import PLACES, PUBLISHED, SAKILA, STACK_EXCHANGE, Question, measure, mondial
from bench.snapshots import make_file
from skws.data.batch import Record, batched
from skws.index.index_cache import database_index
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.evaluator import Counts
from skws.queries.keywords.stream_engine import StreamEngine
from skws.ranking.rankings import Match, keyword_weight, letters
from skws.sources.addresses import all_tables
from skws.sources.sqlite import SqliteDatabase
from skws.spec.query_spec import RankingChoice
from skws_schema.model import Row
from skws_schema.yaml.load import load_schema, parse_schema
from skws_windows.window import Unbounded
from tests.places import DATA, ROOT

WORLD = parse_schema("""\
version: 1
name: world
window: none
relations:
  country: {attributes: {code: string, name: text}, key: [code], table: true}
  borders: {attributes: {one: string, other: string}, table: true}
  province: {attributes: {id: integer, code: string, name: text}, key: [id], table: true}
  economy: {attributes: {code: string, gdp: number}, table: true}
  religion: {attributes: {code: string, name: text}, table: true}
  coast: {attributes: {id: integer, sea: string}, table: true}
  sea: {attributes: {sea: string, depth: integer}, key: [sea], table: true}
joins:
  - borders.one = country.code
  - borders.other = country.code
  - province.code = country.code
  - economy.code = country.code
  - religion.code = country.code
  - coast.id = province.id
  - coast.sea = sea.sea
""")
ROWS: dict[str, list[Row]] = {
    "country": [("H", "Haiti"), ("D", "Dominican Republic"), ("C", "Cuba")],
    "borders": [("D", "H")],
    "province": [(1, "H", "Haiti"), (2, "D", "Azua"), (3, "C", "Havana"), (4, "H", "Artibonite")],
    "economy": [("H", 27.0), ("D", 160.0)],
    "religion": [("H", "Catholic"), ("H", "Voodoo"), ("D", "Catholic")],
    "coast": [(number, "Atlantic") for number in (1, 2, 3, 4)],
    "sea": [("Atlantic", 9000)],
}


def networks(text: str) -> list[str]:
    plan = Plan(WORLD, parse_query(text, WORLD, match_names=True), Unbounded(), ranking=RankingChoice())
    rows = (
        Record(WORLD.index[name], 0, row) for name, relation_rows in ROWS.items() for row in relation_rows
    )
    engine = StreamEngine.holding(plan, batched(rows), (), Counts())
    return [result.network for result in engine.search_once(plan, 20).results]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("haiti religion", "country{haiti} - religion{religion}"),  # not through its neighbour
        ("haiti gdp", "country{haiti} - economy{gdp}"),
        ("haiti", "country{haiti}"),  # not the province, which has fewer references
        ("azua artibonite", "province{azua} - country{} -(borders"),  # not through the sea, which many share
    ],
)
def test_the_intended_network_ranks_first_in_a_small_database(text: str, first: str) -> None:
    shapes = networks(text)
    assert shapes[0].startswith(first)
    assert len(set(shapes)) > 1


@pytest.mark.parametrize(
    ("keyword", "factor"),
    [("india", 3.9), ("country.name:india", 3.9), ("india~", 3.9), ("indi*", 1.35), ("india|bharat", 3.9)],
)
def test_a_name_weighs_more_than_a_mention(keyword: str, factor: float) -> None:
    """Both texts have their attribute's mean length, both words are equally rare; whole texts weigh most."""
    name_weight = keyword_weight(Match(keyword, "country:IND", "name", 1, 5, 200, 1, 5.0))
    mention_weight = keyword_weight(Match(keyword, "organization:UNMOGIP", "name", 1, 60, 200, 1, 60.0))
    assert name_weight / mention_weight == pytest.approx(factor, rel=0.05)


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("gibson OR fender", 6),
        ("name:pulp OR kill", 4),
        ('name:"pulp fiction"', 12),
        ('"pulp | fiction"', 14),
        ("tarantino~2", 9),
        ("name:tra*ta", 5),
        ("std::vector", 11),
        ("name:12:30", 5),
    ],
)
def test_the_letters_of_a_keyword(query: str, count: int) -> None:
    """Counts the shortest alternative, without scope and signs: a match has at least as many letters."""
    (keyword,) = parse_query(query, WORLD).keywords
    assert letters(keyword) == count


def test_a_whole_text_ranks_before_a_mention_without_rare_words() -> None:
    """One of five continents is hardly rare, one of 168 organizations is."""
    whole_weight = keyword_weight(Match("asia", "continent:Asia", "name", 1, 4, 5, 1, 6.6, 48.0))
    mention_weight = keyword_weight(Match("asia", "organization:APEC", "name", 1, 33, 168, 5, 38.0, 47.0))
    assert whole_weight > 1.2 * mention_weight


DATABASES: dict[str, tuple[str, Callable[[], tuple[Question, ...]], int, float]] = {
    "mondial": ("mondial", lambda: (*mondial(DATA / "mondial"), *PLACES, *PUBLISHED), 37, 0.93),
    "sakila": ("sakila", lambda: SAKILA, 19, 0.97),
    "stackexchange": ("stackexchange-ai", lambda: STACK_EXCHANGE, 15, 0.91),
}


@pytest.mark.slow
@pytest.mark.skipif(not DATA.exists(), reason="real data is read beside the checkout")
@pytest.mark.parametrize("name", DATABASES)
def test_the_intended_results_rank_first_in_real_data(tmp_path: Path, name: str) -> None:
    folder, questions, first, mean = DATABASES[name]
    query_list = questions()
    schema = all_tables(load_schema(ROOT / "examples" / name / "schema.yaml"))
    path = tmp_path / "data.sqlite"
    make_file(path, schema, DATA / folder / "csv")
    database = database_index(SqliteDatabase(path), schema, tmp_path / "index", lambda _: None)
    ranks = measure(query_list, schema, database).places.values()
    assert sum(place == 1 for place in ranks) >= first
    assert sum(1 / place for place in ranks if place) / len(query_list) >= mean
