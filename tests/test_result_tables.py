"""Tables of results have the same content as the results."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from skws.results.frames import COLUMNS, result_table
from skws.results.result import Result, ResultTuple, Score


def random_result(rng: random.Random, number: int) -> Result:
    tuples = []
    for index in range(rng.randrange(4)):
        values = [None, True, 7, 2.5, "", "x" * 20, {"a": [1]}]
        row: dict[str, Any] = {f"c{n}": rng.choice(values) for n in range(rng.randrange(3))}
        plain = ResultTuple.given("r", f"r#{index}", tuple(rng.choices("ab", k=rng.randrange(3))), row)
        tuples.append(
            ResultTuple(plain.described, plain.keywords, tuple(rng.choices("lm", k=rng.randrange(3))), 3)
        )
    joins = tuple((left, left + 1, "j") for left in range(len(tuples) - 1))
    start, end = rng.choice([None, 1.5]), rng.choice([None, 2.25, 1e12])
    network = rng.choice(["", "a - b"])
    score = rng.choice([None, Score(())])
    op: Any = rng.choice("+-~")
    return Result(op, "n", "q", str(number), start, end, network, tuple(tuples), joins, score=score)


def row_of(result: Result) -> dict[str, Any]:
    """The row of a result, built from its fields."""

    def text(value: Any) -> str | None:
        return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    def micros(seconds: float | None) -> int | None:
        return None if seconds is None else min(round(seconds * 1e6), 253_402_300_799_999_999)

    return {
        "name": result.name,
        "query": result.query,
        "op": result.op,
        "start": micros(result.start),
        "end": micros(result.end),
        "id": result.id,
        "score": None if result.score is None else result.score.value,
        "network": result.network or None,
        "tuples": [
            {
                "relation": tuple_.relation,
                "label": "+".join(tuple_.labels) or None,
                "id": tuple_.id,
                "keywords": list(tuple_.keywords),
                "row": [(name, text(value)) for name, value in tuple_.row.items()],
            }
            for tuple_ in result.tuples
        ],
        "joins": [{"left": left, "right": right, "name": name} for left, right, name in result.joins],
    }


@pytest.mark.check
@pytest.mark.parametrize("number", [0, 1, 50, 10_001])
def test_a_table_has_a_row_for_each_result(number: int) -> None:
    rng = random.Random(number)
    results = [random_result(rng, n) for n in range(number)]
    table = result_table(iter(results))
    table.validate(full=True)
    assert table.equals(pa.Table.from_pylist(list(map(row_of, results)), schema=COLUMNS))


@pytest.mark.parametrize("number", [1, 50, 10_001])
def test_tuples_shared_by_results_are_in_each_row(number: int) -> None:
    rng = random.Random(number)
    pool = [tuple_ for n in range(20) for tuple_ in random_result(rng, n).tuples]
    results = [
        replace(random_result(rng, n), _tuples=tuple(rng.choices(pool, k=rng.randrange(5))))
        for n in range(number)
    ]
    table = result_table(results)
    table.validate(full=True)
    assert table.equals(pa.Table.from_pylist(list(map(row_of, results)), schema=COLUMNS))
