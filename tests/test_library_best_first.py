"""skws.search over rows without times returns the best results first, or the reason why there are none."""

from __future__ import annotations

from typing import Any, Final

import skws

SHOP: Final[dict[str, list[dict[str, Any]]]] = {
    "country": [{"code": code, "name": name} for code, name in (("BR", "Brazil"), ("PE", "Peru"))],
    "religion": [
        {"country": "PE", "belief": "Roman Catholic"},
        {"country": "BR", "belief": "Roman Catholic"},
    ],
    "border": [{"first": "BR", "second": "PE"}],
}
SCHEMA: Final = """
version: 1
name: world
window: none
relations:
  country: {attributes: {code: string, name: text}, key: [code], table: true}
  religion: {attributes: {country: string, belief: text}, key: [country], table: true}
  border: {attributes: {first: string, second: string}, key: [first, second], table: true}
joins:
  - religion.country = country.code
  - border.first = country.code
  - border.second = country.code
"""


def search(query: str, **options: Any) -> skws.Results:
    return skws.search(query, SHOP, schema=SCHEMA, **options)


def test_the_best_result_is_first_with_and_without_a_limit() -> None:
    results, best = search("catholic brazil"), search("catholic brazil", limit=1)
    assert [len(result.tuples) for result in results] == [2, 4]
    assert [result.id for result in best] == [results[0].id]
    assert all(result.score is not None for result in results)


def test_timed_rows_are_ranked_only_with_a_limit() -> None:
    rows = [
        {"nr": 1, "text": "kettle and other things that are long to tell", "time": 1},
        {"nr": 2, "text": "kettle", "time": 2},
    ]
    numbers = [result.tuples[0].row["nr"] for result in skws.search("kettle", {"item": rows})]
    assert numbers == [1, 2]
    assert [result.tuples[0].row["nr"] for result in skws.search("kettle", {"item": rows}, limit=2)] == [2, 1]


def test_empty_results_contain_the_reason() -> None:
    results, reason = search("catholic brasil"), "no row matches 'brasil'; did you mean 'brazil'?"
    assert repr(results) == f"<0 results of 'catholic brasil': {reason}>"
    assert results.notes == (reason,)
    unjoined = search("brazil peru", max_size=2)
    assert len(unjoined) == 0
    assert unjoined.notes == (
        "every keyword matches some row, but no tree of up to 2 joined rows contains all of them;"
        " try a larger --max-size",
    )
    assert repr(search("catholic peru", limit=1)) == "<1 result of 'catholic peru'>"
