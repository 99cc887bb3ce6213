"""A search without results ends with a suggestion; its paths are relative to the working directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from skws.formats import Replay, plan
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.replay_search import why_nothing
from skws_schema.yaml.load import parse_schema
from skws_windows.window import Unbounded
from tests.commands import Skws


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "customer.csv").write_text("cid,name\n7,Ada Byron\n8,Grace Murray\n")
    (tmp_path / "shop" / "purchase.csv").write_text(
        "pid,cid,item\n1,7,travel kettle\n2,8,toaster\n3,8,travelling bag\n4,7,travel bag\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        ("zzyzx", "skws schema show shop.schema.yaml lists the columns that are searched"),
        ("byron zzyzx", "without 'zzyzx': skws search shop byron"),
        ("item:kettle zzyzx byron -cup", "without 'zzyzx': skws search shop 'item:kettle byron -cup'"),
        ("kettle purchase.cid=8", "without 'purchase.cid=8': skws search shop kettle"),
        ("kettle -travel", "without '-travel': skws search shop kettle"),
        ("kettle zzyzx -travel -lamp", "without '-travel', '-lamp', 'zzyzx': skws search shop kettle"),
        ("toas byron", "no row matches 'toas'; did you mean 'toaster'?"),
        ("trav byron", "no row matches 'trav'; did you mean 'travel' or 'trav*'?"),
        ("kettel byron", "no row matches 'kettel'; did you mean 'kettle'?"),
    ],
)
def test_an_empty_search_ends_with_a_suggestion(shop: Path, skws: Skws, words: str, suggestion: str) -> None:
    assert skws("search", "shop", "--", *words.split()).err.splitlines()[-1] == suggestion


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("access.log", "a name with .jsonl"),
        ("dump.sql", "into a database"),
        ("people.xlsx", "sheets as .csv"),
    ],
)
def test_an_unsupported_format_is_rejected_with_a_remedy(
    tmp_path: Path, skws: Skws, name: str, hint: str
) -> None:
    (tmp_path / name).write_text("x")
    errors = skws("search", tmp_path / name, "x").err
    assert "unknown format" in errors
    assert hint in errors


def test_a_schema_in_the_working_directory_is_shown_as_a_relative_path(shop: Path, skws: Skws) -> None:
    assert "schema written to shop.schema.yaml; edit it" in skws("search", "shop", "byron").err
    assert "schema: shop.schema.yaml, from an earlier run" in skws("search", "shop", "byron").err


def test_rows_unused_by_small_files_are_examined_in_large_ones(tmp_path: Path) -> None:
    schema = parse_schema(
        "version: 1\nname: s\nrelations:\n"
        "  small: {attributes: {id: integer, text: text}, table: true}\n"
        "  large: {attributes: {id: integer, text: text}, table: true}\n"
    )
    (tmp_path / "small.csv").write_text("id,text\n1,one\n")
    (tmp_path / "large.csv").write_text("id,text\n" + "".join(f"{n},word\n" for n in range(9)))
    small = plan(tmp_path / "small.csv", schema, relation=0)
    large = plan(tmp_path / "large.csv", schema, first=1, relation=1)
    keyword_plan = Plan(schema, parse_query("zzyzx", schema), Unbounded())
    assert why_nothing(keyword_plan, Replay([*large, *small], schema), 10).reasons == (
        "no row matches 'zzyzx'",
    )
    assert why_nothing(keyword_plan, Replay([*large, *small], schema), 8).reasons == (
        "no row of the 8 examined matches 'zzyzx'",
    )


def test_a_keyword_in_a_header_that_may_be_a_row_is_explained(tmp_path: Path, skws: Skws) -> None:
    (tmp_path / "people.csv").write_text("Ada Byron,London\nGrace Murray,Boston\n")
    last_line = skws("search", tmp_path / "people.csv", "byron").err.splitlines()[-1]
    assert last_line.startswith(
        "'byron' is in 'Ada Byron', which names a column of people: if that is a row,"
    )


def test_a_suggested_command_repeats_the_given_schema(shop: Path, skws: Skws) -> None:
    skws("search", "shop", "byron")
    options = ("--schema", "shop.schema.yaml", "--replay", "shop")
    last_line = skws("search", *options, "byron", "zzyzx").err.splitlines()[-1]
    assert last_line == "without 'zzyzx': skws search --schema shop.schema.yaml --replay shop byron"


def test_a_partial_match_of_an_unsearched_column_is_not_reported(tmp_path: Path, skws: Skws) -> None:
    (tmp_path / "city.csv").write_text("code,name\nBrazzaville,one\nPointe,two\n")
    schema = tmp_path / "schema.yaml"
    schema.write_text("relations: {city: {attributes: {code: string, name: text}, table: true}}\n")
    for word, is_reported in (("brazzaville", True), ("braz", False)):
        errors = skws("search", tmp_path / "city.csv", word, "--schema", schema).err
        assert ("city.code contains" in errors) == is_reported


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("2024-03-15", "a date, and keywords are searched in texts only: try '!orders.day=2024-03-15'"),
        ("2024-03-16T08:00", "try '!orders.sent=2024-03-16T08:00'"),
        ('"2024-03-16 08:00"', "try '!orders.sent=\"2024-03-16 08:00\"'"),
        ("499.50", "a number, and keywords are searched in texts only: try '!orders.price=499.50'"),
        ("3", "try '!lines.id=3' or '!orders.price=3' or '!orders.id=3'"),
        (
            "2024",
            "a year, and keywords are searched in texts only: try '!orders.day:2024-01-01..2024-12-31' or",
        ),
        ("99", "try '!lines.id=99' or '!orders.price=99' or '!lines.order_id=99'"),
    ],
)
def test_a_number_or_date_is_offered_as_a_condition_that_a_row_satisfies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skws: Skws, word: str, hint: str
) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "orders.csv").write_text(
        "id,customer,day,sent,price\n1,Ada,2024-03-15,2024-03-16T08:00:00Z,499.50\n"
        "2,Grace,2024-04-01,2024-04-02T08:00:00Z,3\n3,Alan,2024-04-02,2024-04-03T08:00:00Z,5\n"
    )
    (tmp_path / "shop" / "lines.csv").write_text("id,order_id,item\n1,1,lamp\n2,1,desk\n3,2,chair\n")
    monkeypatch.chdir(tmp_path)
    for words in ([word], ["ada", word]):
        assert hint in skws("search", "shop", *words).err
    condition = hint.split("'")[1]
    assert bool(skws("search", "shop", condition).out) == (word != "99")  # no row satisfies the last one


def test_a_word_of_an_attribute_that_is_no_number_has_no_condition(shop: Path, skws: Skws) -> None:
    assert "try '!" not in skws("search", "shop", "2024-03-15", "7.5.1").err


NO_LARGER = "every keyword matches some row, but no tree of up to 5 joined rows contains all of them\n"


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ("byron murray", NO_LARGER + "with any of them: skws search shop '(byron OR murray)'\n"),
        (
            "byron murray -toaster",
            NO_LARGER + "with any of them: skws search shop '(byron OR murray) -toaster'\n",
        ),
        ("(byron OR ada) murray", NO_LARGER + "skws schema show shop.schema.yaml lists the columns"),
    ],
)
def test_a_larger_size_is_recommended_only_if_larger_trees_can_join_the_rows(
    shop: Path, skws: Skws, words: str, lines: str
) -> None:
    """Customers are joined through purchases, each of which has one customer."""
    (shop / "shop.yaml").write_text(
        "relations:\n  customer: {attributes: {cid: integer, name: text}, key: [cid], table: true}\n"
        "  purchase: {attributes: {pid: integer, cid: integer, item: text}, key: [pid], table: true}\n"
        "joins: [purchase.cid = customer.cid]\n"
    )
    assert lines.replace("shop.schema.yaml", "shop.yaml") in (
        skws("search", "shop", "-s", "shop.yaml", "--", words).err.replace("--schema shop.yaml --replay ", "")
    )
    outcome = skws("search", "shop", "-s", "shop.yaml", "--max-size", 1, "byron", "kettle")
    assert outcome.err.endswith("no row contains all of them; try a larger --max-size\n")


def test_a_search_of_one_relation_offers_rows_with_any_of_the_keywords(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skws: Skws
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text("id,text\n1,red lamp\n2,blue desk\n")
    err = skws("search", "log.csv", "red", "desk").err
    assert err.endswith("with any of them: skws search log.csv '(red OR desk)'\n")
    assert len(skws("search", "log.csv", "(red OR desk)").out.splitlines()) == 3
