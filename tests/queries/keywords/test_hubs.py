"""One tuple that very many join: words around it are joined first, and results stay those of the mesh."""

from __future__ import annotations

from random import Random

import pytest

from skws.data.record import Record
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.columnar import ColumnarEngine
from skws.results.model import Result
from skws.spec.enums import EvaluatorName
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from skws_windows.window import Unbounded

KEY = Attribute("docket", AttributeType.INTEGER)
TEXT = Attribute("t", AttributeType.TEXT)
ID = Attribute("id", AttributeType.INTEGER)
COURTS = Schema(
    "courts",
    (
        Relation("docket", (KEY, TEXT), key=("docket",), search=("t",)),
        Relation("attorney", (ID, KEY, TEXT), key=("id",), search=("t",)),
        Relation("filing", (ID, KEY, TEXT), key=("id",), search=("t",)),
    ),
    (
        Join("of", "attorney", "docket", (("docket", "docket"),)),
        Join("in", "filing", "docket", (("docket", "docket"),)),
    ),
    "none",
)
NAMES = tuple(f"name{number}" for number in range(60))


def stream(random: Random) -> list[Record]:
    """A docket that gets hundreds of attorneys, a small one, and updates of the large one's name."""
    records = [Record(0, 1, (1, "acme trial")), Record(0, 1, (2, "minor trial"))]
    for number in range(240):
        docket = 2 if number % 40 == 0 else 1
        records.append(
            Record(1 + number % 2, 2 + number, (number, docket, " ".join(random.sample(NAMES, 2))))
        )
    for turn, name in enumerate(("beta trial", "acme trial", "name3 trial")):
        before = records[0].row if not turn else records[-1].row
        records.append(Record(0, 300 + turn, before, delete=True))
        records.append(Record(0, 300 + turn, (1, name)))
    records += [Record(1, 400, records[number].row, delete=True) for number in range(2, 80, 2)]
    return records


def told(results: list[Result]) -> list[tuple[str, str, str, float | None]]:
    return sorted((r.op, r.query, r.id, r.end) for r in results)


@pytest.mark.parametrize("batch", [1000, 7])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_updates_of_a_hub(batch: int, size: int) -> None:
    random = Random(3)
    records = stream(random)
    texts = [" ".join(random.sample(NAMES, 2)) for _ in range(25)] + [
        "acme name1",
        "beta name2 -name7",
        "trial",
    ]
    plans = {text: Plan(COURTS, parse_query(text, COURTS), Unbounded(), size) for text in texts}
    by_mesh, by_delta = (ColumnarEngine(COURTS, Unbounded()) for _ in range(2))
    by_mesh.add_all(plans)
    delta = {
        text: Plan(COURTS, plan.query, Unbounded(), size, evaluated_by=EvaluatorName.DELTA)
        for text, plan in plans.items()
    }
    by_delta.add_all(delta)
    found = 0
    for begin in range(0, len(records), batch):
        some = records[begin : begin + batch]
        expected = told(list(by_mesh.process(some)))
        assert told(list(by_delta.process(some))) == expected
        found += len(expected)
    assert found > 50
    for text in texts[:5]:
        by_delta.remove(text)
        snapshot = told(by_delta.add(delta[text]))
        by_mesh.remove(text)
        assert snapshot == told(by_mesh.add(plans[text]))
