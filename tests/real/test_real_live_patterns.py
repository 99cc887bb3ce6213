"""Patterns that stand in a live search over all of Stack Exchange find what a search finds there."""

from __future__ import annotations

import pytest

from skws.formats import BadRecordLog, Replay
from skws.queries.partitioning import Part, Partitioning
from skws.queries.session import Session
from skws.replay_search import Search
from skws.results.model import LiveResult
from skws.spec.job import Job
from skws.spec.query import PATTERN, Query
from skws.spec.stream import Stream
from skws_schema.yaml.load import load_schema
from skws_windows.window import parse_window
from tests.places import DATA, ROOT

FOLDER = DATA / "stackexchange-ai" / "csv"
SCHEMA = ROOT / "examples" / "stackexchange" / "schema.yaml"
PATTERNS = {
    "answered": 'Posts q ; Posts a where q.Id = a.ParentId and q:"singularity"',
    "thanked": 'Posts q ; (Posts a AND Comments c) where q.Id = a.ParentId = c.PostId and c:"thanks"',
    "rooted": 'Posts p ; Comments c where p.Id = c.PostId and c:"neural"',
    "formal": 'Q(p, u) <- Comments(_, p, _, _, _, u), PostTags(p, "philosophy", _), PostLinks(_, _, p, _, _)',
    "soon": 'Posts q ; Comments c where q.Id = c.PostId and c:"answer" within 1 hour',
}

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"the public data sets are not at {FOLDER}")


@pytest.mark.slow
def test_all_of_them_beside_keywords_on_two_shards() -> None:
    schema = load_schema(SCHEMA)
    stream = Stream(schema, parse_window(schema.window))
    shards = [Session(stream, Part(number, 2, Partitioning.ROOTS)) for number in range(2)]
    for live in shards:
        for name, text in PATTERNS.items():
            live.add(Query(text, kind=PATTERN).named(name, 5))
        live.add(Query('searle "chinese room"').named("keywords", 3))
    found: list[LiveResult] = []
    log = BadRecordLog()
    replay = Replay.open(FOLDER, schema)
    for batch in replay.batches(log):
        for live in shards:
            found += live.take(batch)
    for text in PATTERNS.values():
        searched = sorted(result.to_json() for result in Search(_request(text)).results())
        assert len(searched) > 5
        assert sorted(one.to_json() for one in found if one.query == text) == searched
    assert any(one.query not in PATTERNS.values() for one in found)


def _request(text: str) -> Job:
    return Job.search(Query.of_pattern(text), load_schema(SCHEMA), FOLDER)
