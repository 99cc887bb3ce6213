"""Windows over all comments of a public Stack Exchange site, compared with handwritten loops."""

from __future__ import annotations

from itertools import pairwise

import pytest

from skws.data.batch import Record
from skws.formats import BadRecordLog, Replay
from skws.queries.evaluator import Counts
from skws.queries.windowed.stream_windows import windows
from skws.queries.windowed.window_plan import WindowPlan
from skws_schema.model import Schema
from skws_schema.yaml.load import load_schema
from skws_windows.processor.stream_processor import Window
from tests.keywords.texts_and_queries import terms
from tests.places import DATA, ROOT

COMMENTS = DATA / "stackexchange-ai" / "csv" / "Comments.csv"
DAY = 86_400_000_000

pytestmark = pytest.mark.skipif(not COMMENTS.is_file(), reason=f"the public data set is not at {COMMENTS}")


@pytest.fixture(scope="module")
def schema() -> Schema:
    return load_schema(ROOT / "examples" / "stackexchange" / "schema.yaml")


@pytest.fixture(scope="module")
def comments(schema: Schema) -> list[Record]:
    return list(Replay.open(COMMENTS, schema).stream(BadRecordLog()))


def windows_of(schema: Schema, text: str, *aggregates: str) -> list[Window]:
    request = WindowPlan.of_text(schema, text, aggregates=aggregates)
    return list(windows(request.processor(), Replay.open(COMMENTS, schema), BadRecordLog(), Counts()))


def test_windows_of_every_users_sessions(schema: Schema, comments: list[Record]) -> None:
    user = schema.relation("Comments").columns["UserId"]
    times: dict[object, list[int]] = {}
    for record in comments:
        if record.row[user] is not None:
            times.setdefault(record.row[user], []).append(record.time)
    expected = set()
    for key, user_times in times.items():
        begins = [i for i in range(1, len(user_times)) if user_times[i] - user_times[i - 1] > DAY]
        expected |= {(key, a, b, b - a + 1) for a, b in pairwise(begins)}
    text = "every open when time - time[-1] > 1 day close when time - time[-1] > 1 day per UserId"
    sessions = windows_of(schema, text, "count")
    assert {(w.key[0], w.first, w.last, w.aggregates[0]) for w in sessions} == expected
    assert len(sessions) == len(expected) > 150
    assert [w.end for w in sessions] == sorted(w.end for w in sessions)


def test_windows_from_a_keyword_to_a_high_score(schema: Schema, comments: list[Record]) -> None:
    columns = schema.relation("Comments").columns
    text, score = columns["Text"], columns["Score"]
    expected: list[tuple[int, int, int]] = []
    start, max_score = -1, 0
    for i, record in enumerate(comments):
        value = record.row[score]
        assert isinstance(value, int)
        if start >= 0:
            max_score = max(max_score, value)
            if value > 1:
                expected.append((start, i, max_score))
                start = -1
        elif terms("neural") <= terms(str(record.row[text])):
            start, max_score = i, value
    score_windows = windows_of(schema, "open when Text:'Neural' close when Score > 1", "max(Score)")
    assert [(w.first, w.last, w.aggregates[0]) for w in score_windows] == expected
    assert len(expected) > 15
