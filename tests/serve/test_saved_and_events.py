"""Searches, saved searches and their event streams over a growing file."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from skws.serve.request_guard import MOST_ANSWER
from tests.jobs.watching import append, customer, lines, order
from tests.serve.serving import Serving, Stream, results, serving, shop
from tests.waiting import until

_numbers = count(1)
TIME = count(1000)


def pair(folder: Path, name: str, item: str, op: str = "+", number: int | None = None) -> int:
    """Appends a customer with an order to the stream; returns the customer's id."""
    cid = next(_numbers) if number is None else number
    append(folder / "stream.jsonl", customer(next(TIME), cid, name, op), order(next(TIME), cid, item, op))
    return cid


def search_answer(client: httpx.Client, query: str, **options: Any) -> dict[str, Any]:
    answer = client.post("/search", json={"query": query, **options})
    assert answer.status_code == 200, answer.text
    answer_body: dict[str, Any] = answer.json()
    return answer_body


def test_a_search_returns_live_results_best_first(client: httpx.Client, folder: Path) -> None:
    pair(folder, "grace", "compiler compiler")
    pair(folder, "grace hopper of the navy of the united states", "a compiler among many other words")
    until(lambda: search_answer(client, "grace compiler")["found"] == 2)
    answer = search_answer(client, "grace compiler", marks=True, explain_score=True)
    scores = [result["score"] for result in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > scores[1]
    assert answer["complete"]
    assert answer["max_size"] == 5
    best = answer["results"][0]
    assert {member["relation"]: member["marks"] for member in best["tuples"]} == {
        "customer": {"name": [[0, 5, 0]]},
        "order": {"item": [[0, 8, 1], [9, 17, 1]]},
    }
    limited_answer = search_answer(client, "grace compiler", limit=1)
    assert limited_answer["found"] == 2
    assert [result["id"] for result in limited_answer["results"]] == [best["id"]]
    assert search_answer(client, "grace compiler", max_size=1)["found"] == 0


def test_a_keyword_without_matches_is_reported_with_a_similar_one(client: httpx.Client, folder: Path) -> None:
    pair(folder, "hopper", "keyboard")
    until(lambda: search_answer(client, "hopper keyboard")["found"])
    answer = search_answer(client, "hoper keyboard , the")
    assert answer["meant"] == "hopper keyboard , the"
    assert answer["found"] == 0
    assert [note.split(":")[0] for note in answer["notes"]] == [
        "not searched (too common, or not a word)",
        "no row matches 'hoper'; did you mean 'hopper'?",
    ]
    assert not search_answer(client, "hopper keyboard")["notes"]


def test_the_query_without_the_unmatched_keyword_is_suggested(client: httpx.Client, folder: Path) -> None:
    pair(folder, "lovelace", "engine")
    until(lambda: search_answer(client, "lovelace engine")["found"])
    answer = search_answer(client, "lovelace zzyzx -loom")
    assert (answer["meant"], answer["instead"]) == ("", "lovelace -loom")
    assert answer["notes"] == ["no row matches 'zzyzx'", "without 'zzyzx': lovelace -loom"]
    assert search_answer(client, "lovelce zzyzx engine")["meant"] == "engine lovelace"
    unjoined_answer = search_answer(client, "lovelace engine", max_size=1)
    assert unjoined_answer["instead"] == ""
    assert "no row within a window contains all of them" in unjoined_answer["notes"][0]


def test_the_last_word_is_completed(client: httpx.Client, folder: Path) -> None:
    for item in ("zebra crossing", "zebra & <zephyr> crossings", "zephyr"):
        pair(folder, "zoe", item)

    def completed(query: str, **options: Any) -> list[tuple[str, str, int | None]]:
        answer = client.post("/complete", json={"query": query, **options})
        assert answer.status_code == 200, answer.text
        return [(entry["text"], entry["query"], entry["count"]) for entry in answer.json()["completions"]]

    until(lambda: search_answer(client, "zoe zephyr")["found"] == 2)
    assert completed('zoe -"ZE') == [("zebra", 'zoe -"zebra', 2), ("zephyr", 'zoe -"zephyr', 2)]
    assert completed("ze", limit=1) == [("zebra", "zebra", 2)]
    assert completed("order:zep") == [("zephyr", "order:zephyr", 2)]
    assert completed("zoe cus") == [
        ("customer:", "zoe customer:", None),
        ("customer.cid", "zoe customer.cid", None),
        ("customer.name:", "zoe customer.name:", None),
    ]
    assert completed("zoe !customer.c") == [("customer.cid", "zoe !customer.cid", None)]
    assert completed("zoe it") == [("item:", "zoe item:", None)]
    assert completed("crossing") == [("crossings", "crossings", 2)], "found by the same stem"
    for complete_query in ("", "zoe ", "ze*", "zebra~", "cid<3", "-", "z" * 4_000):
        assert completed(complete_query) == []
    for bad_request in (
        {},
        {"query": "z" * 4_001},
        {"query": 1},
        {"query": "z", "limit": 51},
        {"query": "z", "most": 1},
    ):
        assert client.post("/complete", json=bad_request).status_code == 422


@pytest.mark.check
def test_an_answer_is_limited_to_32_mb(tmp_path: Path) -> None:
    """It has the best results that fit, with and without the positions of keywords."""
    schema, stream = shop(tmp_path)
    padding = " " * 6_000_000
    names = [*["ada"] * 7, "bob", "eve"]
    append(
        stream,
        *(
            customer(next(TIME), cid, name + (6 if name == "eve" else 1) * padding)
            for cid, name in enumerate(names)
        ),
    )
    with (
        serving(str(stream), "--schema", str(schema), "--window", "1 hour") as server,
        server.client() as client,
    ):
        until(lambda: search_answer(client, "eve")["found"])
        for marks in (False, True):
            answer = client.post("/search", json={"query": "ada", "limit": 1000, "marks": marks})
            body = answer.json()
            assert (body["found"], len(body["results"])) == (7, 5)
            assert [result["rank"] for result in body["results"]] == [1, 2, 3, 4, 5]
            assert body["notes"] == [
                "the answer has the best 5: with one more it would exceed 33,554,432 bytes"
            ]
            assert len(answer.content) < MOST_ANSWER + 10_000
            body = search_answer(client, "bob", marks=marks)
            assert (len(body["results"]), body["notes"]) == (1, [])
            body = search_answer(client, "eve", marks=marks)
            assert (body["found"], body["results"]) == (1, [])
            assert "the best 0" in body["notes"][0]


def test_a_search_leaves_no_standing_query(client: httpx.Client) -> None:
    before = client.get("/queries").json()
    search_answer(client, "nobody nothing")
    assert client.get("/queries").json() == before
    assert "nobody" not in client.get("/metrics").text


def test_a_saved_search_sends_a_snapshot_then_changes(client: httpx.Client, folder: Path) -> None:
    cid = pair(folder, "ada", "engine")
    until(lambda: search_answer(client, "ada engine")["found"])
    body = {"query": "ada engine", "owner": "ann", "metadata": {"mail": "ann@example.org", "n": [1]}}
    response = client.put("/queries/engines", json=body)
    assert response.status_code == 201, response.text
    assert client.get("/queries/engines").json()["metadata"] == body["metadata"]
    stream = Stream(client, "/queries/engines/events")
    stream.wait_for("ready")
    assert [kind for kind, _, _ in stream.events] == ["snapshot", "result", "ready"]
    first = stream.of("result")[0]
    assert first["searches"] == [{"name": "engines", "owner": "ann", "metadata": body["metadata"]}]
    assert first["result"]["snapshot"]
    pair(folder, "ada", "engine")
    stream.wait_for("result", 2)
    append(folder / "stream.jsonl", customer(next(TIME), cid, "ada", "-"))
    stream.wait_for("result", 3)
    operations = results(stream)
    assert [op for op, _ in operations] == ["+", "+", "-"]
    assert operations[0][1] == operations[2][1] != operations[1][1]
    assert client.delete("/queries/engines").status_code == 204
    stream.join()
    assert stream.events[-1][0] == "removed"
    assert client.get("/queries/engines/events").status_code == 404


def test_a_stream_resumes_after_the_last_event(client: httpx.Client, folder: Path) -> None:
    client.put("/queries/lamps", json={"query": "bob lamp"})
    stream = Stream(client, "/queries/lamps/events")
    stream.wait_for("ready")
    for _ in range(5):
        pair(folder, "bob", "lamp")
    stream.wait_for("result", 5)
    result_events = [(identity, data) for kind, identity, data in stream.events if kind == "result"]
    for number, (identity, _) in enumerate(result_events):
        resumed = Stream(client, "/queries/lamps/events", identity)
        resumed.wait_for("result", len(result_events) - number - 1)
        assert [(i, data) for _, i, data in resumed.events] == result_events[number + 1 :]
    query = Stream(client, f"/queries/lamps/events?last={result_events[3][0]}")
    query.wait_for("result", 1)
    assert [data for _, _, data in query.events] == [result_events[4][1]]


def test_an_event_id_of_the_future_is_reported_as_unknown(client: httpx.Client) -> None:
    client.put("/queries/later", json={"query": "carol lamp"})
    stream = Stream(client, "/queries/later/events")
    stream.wait_for("ready")
    run = (stream.last or "").partition("-")[0]
    later = Stream(client, "/queries/later/events", f"{run}-999999-1")
    later.wait_for("ready")
    assert later.of("snapshot")[0]["reason"] == "this run has no event with this id"


@pytest.mark.parametrize("identity", ["0123456789ab-3-1", "nonsense", "", "-1", "a-b-c"])
def test_an_unknown_event_id_begins_with_a_snapshot(client: httpx.Client, identity: str) -> None:
    client.put("/queries/anew", json={"query": "carol lamp"})
    stream = Stream(client, "/queries/anew/events", identity)
    stream.wait_for("ready")
    assert stream.events[0][0] == "snapshot"
    assert bool(stream.events[0][2]["reason"]) is bool(identity)


def test_two_searches_with_the_same_text_are_separate(client: httpx.Client, folder: Path) -> None:
    pair(folder, "dora", "desk")
    until(lambda: search_answer(client, "dora desk")["found"])
    client.put("/queries/first", json={"query": "dora desk", "owner": "one"})
    first = Stream(client, "/queries/first/events")
    first.wait_for("ready")
    client.put("/queries/second", json={"query": "dora desk", "owner": "two"})
    second = Stream(client, "/queries/second/events")
    second.wait_for("ready")
    pair(folder, "dora", "desk")
    first.wait_for("result", 2)
    second.wait_for("result", 2)
    assert results(first) == results(second)
    assert {event["result"]["name"] for event in second.of("result")} == {"second"}
    owner_stream = Stream(client, "/events?owner=two")
    owner_stream.wait_for("ready")
    pair(folder, "dora", "desk")
    owner_stream.wait_for("result", 3)
    assert {event["searches"][0]["name"] for event in owner_stream.of("result")} == {"second"}
    response = client.put("/queries/third", json={"query": "dora desk", "top": 3})
    assert response.status_code == 201


def test_an_owner_does_not_see_the_removals_of_others(client: httpx.Client) -> None:
    for name, owner in (("hers", "ann"), ("his", "bob")):
        assert (
            client.put(f"/queries/{name}", json={"query": f"{name} own", "owner": owner}).status_code == 201
        )
    owner_stream, all_stream = Stream(client, "/events?owner=ann"), Stream(client, "/events")
    for stream in (owner_stream, all_stream):
        stream.wait_for("ready")
    for name in ("his", "hers"):
        client.delete(f"/queries/{name}")
    for stream, expected in ((all_stream, ["his", "hers"]), (owner_stream, ["hers"])):
        stream.wait_for("removed", len(expected))
        assert [event["name"] for event in stream.of("removed")] == expected


def test_many_searches_are_saved_at_once_and_invalid_ones_named(client: httpx.Client) -> None:
    queries = {f"many {n}": {"query": f"word{n} other", "owner": "many"} for n in range(200)}
    queries["bad"] = {"query": "nowhere.name:x"}
    queries["worse"] = {"query": "a", "pattern": "b"}
    answer = client.put("/queries", json={"queries": queries})
    assert answer.status_code == 200
    assert answer.json()["saved"] == 200
    assert set(answer.json()["refused"]) == {"bad", "worse"}
    assert "nowhere" in answer.json()["refused"]["bad"]
    saved = client.get("/queries", params={"owner": "many", "limit": 50}).json()
    assert (len(saved["queries"]), saved["count"]) == (50, 200)


def test_a_saved_search_contains_the_request_that_saves_it(client: httpx.Client) -> None:
    own_fields = {"owner": "ann", "metadata": {"mail": "ann@example.org"}, "every": "1 day", "updates": True}
    requests: dict[str, dict[str, Any]] = {
        "keywords": {"query": "ada lamp -customer:", "max_size": 3, **own_fields},
        "scores": {"query": "ada", "rank": "recency", "half_life": "2 hours", "explain_score": True},
        "best": {"query": "ada lamp", "top": 2, "group": True, "window": "1 hour", "half_life": "90 minutes"},
        "append": {"query": "ada lamp", "top": 3, "append_only": True},
        "windowed": {"query": "ada lamp", "window": "open when cid > 3 close when cid < 2"},
        "pattern": {"pattern": "customer c ; order o where c.cid = o.cid within 1 hour"},
        "sql": {
            "sql": "SELECT DISTINCT customer.cid FROM customer WHERE customer.cid > 1 AND customer.cid < 9"
        },
    }
    for _ in range(2):
        assert client.put("/queries", json={"queries": requests}).json()["refused"] == {}
        saved = {search["name"]: search for search in client.get("/queries").json()["queries"]}
        requests_again = {name: saved[name]["request"] for name in requests}
        assert requests_again == requests
        requests = requests_again
    answer = client.put("/queries/keywords", json={"query": "ada lamp", "without": ["order"]}).json()
    assert answer["request"] == {"query": "ada lamp -order:"}
    for name in requests:
        client.delete(f"/queries/{name}")


def test_a_saved_search_may_have_the_size_of_the_server(client: httpx.Client, tmp_path: Path) -> None:
    body = {"query": "ada lamp", "max_size": 14}
    refused = client.put("/queries/large", json=body)
    assert (refused.status_code, refused.json()["error"]) == (400, "max_size: expected at most 12, got 14")
    schema, stream = shop(tmp_path)
    with (
        serving(str(stream), "--schema", str(schema), "--max-size", "14") as server,
        server.client() as large_client,
    ):
        answer = large_client.put("/queries/large", json=body)
        assert (answer.status_code, answer.json()["request"]) == (201, body)
        larger = large_client.put("/queries/large", json={**body, "max_size": 15})
        assert (larger.status_code, larger.json()["error"]) == (400, "max_size: expected at most 14, got 15")


def test_a_restart_with_another_size_changes_no_saved_search(tmp_path: Path) -> None:
    """The request of a search that was saved without a size stays without one."""
    schema, stream = shop(tmp_path)
    append(stream, customer(1000, 7), order(1000, 7))
    options = ("--schema", str(schema), "--checkpoint", str(tmp_path / "checkpoint"), "--ahead", "none")
    with serving(str(stream), *options, "--max-size", "1") as server, server.client() as client:
        saved = client.put("/queries/duo", json={"query": "ada lamp"}).json()
        assert (saved["max_size"], saved["request"]) == (None, {"query": "ada lamp"})
        assert server.stop() == 130
    with serving(str(stream), *options, "--max-size", "5") as server, server.client() as client:
        del saved["notes"]
        assert client.get("/queries/duo").json() == saved
        events = Stream(client, "/queries/duo/events")
        events.wait_for("ready")
        assert events.of("result") == []


def test_concurrent_requests_respect_the_limit_of_searches(tmp_path: Path) -> None:
    schema, stream = shop(tmp_path)
    with serving(str(stream), "--schema", str(schema), "--most-queries", "10") as server:

        def status(request: int) -> int:
            queries = {f"{request} {n}": {"query": f"word{n} other"} for n in range(10)}
            with server.client() as client:
                return client.put("/queries", json={"queries": queries}).status_code

        with ThreadPoolExecutor(5) as pool:
            assert sorted(pool.map(status, range(5))) == [200, 400, 400, 400, 400]
        with server.client() as client:
            answer = client.get("/queries").json()
            assert answer["count"] == 10
            name = answer["queries"][0]["name"]  # any of the five requests may be the first
            assert client.put(f"/queries/{name}", json={"query": "another"}).status_code == 200
            assert client.put("/queries/more", json={"query": "another"}).status_code == 400
            client.delete(f"/queries/{name}")
            assert client.put("/queries/more", json={"query": "another"}).status_code == 201


def test_concurrent_requests_replace_a_new_search(client: httpx.Client, served: Serving) -> None:
    """The latest one replaces the others."""

    def statuses(request: int) -> list[int]:
        with served.client() as other_client:
            return [
                other_client.put(f"/queries/busy{n}", json={"query": f"word{request} other"}).status_code
                for n in range(10)
            ]

    with ThreadPoolExecutor(5) as pool:
        assert {status for answer in pool.map(statuses, range(5)) for status in answer} <= {200, 201}
    for n in range(10):
        assert client.get(f"/queries/busy{n}").json()["query"].startswith("word")
        client.delete(f"/queries/busy{n}")


def test_a_search_is_replaced_in_one_step(client: httpx.Client, folder: Path) -> None:
    client.put("/queries/moves", json={"query": "eve lamp"})
    stream = Stream(client, "/queries/moves/events")
    stream.wait_for("ready")
    pair(folder, "eve", "sofa")
    until(lambda: search_answer(client, "eve sofa")["found"])
    assert client.put("/queries/moves", json={"query": "eve sofa", "owner": "new"}).status_code == 200
    stream.wait_for("added")
    stream.wait_for("result")
    assert stream.of("added")[0]["query"] == "eve sofa"
    assert stream.of("result")[0]["result"]["snapshot"]
    rejected = client.put("/queries/moves", json={"query": "nowhere.name:x"})
    assert rejected.status_code == 400
    assert client.get("/queries/moves").json()["query"] == "eve sofa"


def test_a_search_replaced_by_another_owner_is_removed_for_the_first(tmp_path: Path) -> None:
    """No owner sees events of the other: immediately, later, or after a kill."""
    schema, stream = shop(tmp_path)
    command = [str(stream), "--schema", str(schema), "--window", "1 hour"]
    command += ["--checkpoint", str(tmp_path / "state")]
    search_of_ann = {"query": "eve lamp", "owner": "ann", "metadata": {"mail": "ann@example.org"}}
    search_of_bob = {"query": "eve sofa", "owner": "bob", "metadata": {"mail": "bob@example.org"}}
    with serving(*command) as first, first.client() as client:
        client.put("/queries/moves", json=search_of_ann)
        client.put("/queries/moves", json={**search_of_ann, "metadata": {"mail": "ann@new.example.org"}})
        paths = {"ann": "/events?owner=ann", "bob": "/events?owner=bob", "all": "/events"}
        paths["named"] = "/queries/moves/events"
        streams = {name: Stream(client, path) for name, path in paths.items()}
        for stream_of_owner in streams.values():
            stream_of_owner.wait_for("ready")
        last_ids = {name: str(stream_of_owner.last) for name, stream_of_owner in streams.items()}
        pair(tmp_path, "eve", "lamp")
        streams["ann"].wait_for("result")
        client.put("/queries/moves", json=search_of_bob)
        pair(tmp_path, "eve", "sofa")
        streams["bob"].wait_for("result")
        expected = {
            "ann": [("result", "ann"), ("removed", "ann")],
            "bob": [("added", "bob"), ("result", "bob")],
            "all": [("result", "ann"), ("added", "bob"), ("result", "bob")],
        }
        expected["named"] = expected["all"]
        check_owners(streams, expected)
        assert streams["ann"].of("removed")[0]["by"] == "bob"
        check_owners({name: Stream(client, path, last_ids[name]) for name, path in paths.items()}, expected)
    with serving(*command) as second, second.client() as client:
        check_owners({name: Stream(client, path, last_ids[name]) for name, path in paths.items()}, expected)
        client.delete("/queries/moves")
        expected = {
            name: events if name == "ann" else [*events, ("removed", "bob")]
            for name, events in expected.items()
        }
        del paths["named"]
        check_owners({name: Stream(client, path, last_ids[name]) for name, path in paths.items()}, expected)


def check_owners(streams: dict[str, Stream], expected: dict[str, list[tuple[str, str]]]) -> None:
    """Checks the events after ``ready`` and their owners; no owner sees the address of another."""
    for name, stream in streams.items():
        stream.wait(lambda s=stream, e=expected[name]: len(changes(s)) >= len(e))  # type: ignore[misc]
        assert [(kind, owner) for kind, owner, _ in changes(stream)] == expected[name], name
        for _, owner, data in changes(stream):
            assert f"{owner}@" in str(data)
            assert {"ann": "bob@", "bob": "ann@"}[owner] not in str(data)


def changes(stream: Stream) -> list[tuple[str, str, Any]]:
    return [
        (kind, data["searches"][0]["owner"] if "searches" in data else data["owner"], data)
        for kind, _, data in list(stream.events)
        if kind not in {"snapshot", "ready"} and not data.get("result", {}).get("snapshot")
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"pattern": "customer c ; order o where c.cid = o.cid within 1 hour"},
        {"query": "frank chair", "top": 2, "rank": "relevance"},
    ],
    ids=["pattern", "top"],
)
def test_other_kinds_of_queries_are_saved(client: httpx.Client, folder: Path, body: dict[str, Any]) -> None:
    name = "kind " + next(iter(body))
    response = client.put(f"/queries/{name}", json=body)
    assert response.status_code == 201, response.text
    stream = Stream(client, f"/queries/{name}/events")
    stream.wait_for("ready")
    before = len(stream.of("result"))
    pair(folder, "frank", "chair")
    stream.wait_for("result", before + 1)
    second_stream = Stream(client, f"/queries/{name}/events")
    second_stream.wait_for("ready")
    assert len(second_stream.of("result")) >= 1
    client.delete(f"/queries/{name}")


def test_the_schema_is_returned(client: httpx.Client) -> None:
    description = client.get("/schema").json()
    assert [relation["name"] for relation in description["relations"]] == ["customer", "order"]
    assert description["relations"][0]["attributes"] == {"cid": "integer", "name": "text"}
    assert description["window"] == "1 hour", "of the server, in place of the schema's 10 seconds"
    assert description["joins"] == [
        {"name": "customer.cid = order.cid", "left": "customer", "right": "order", "on": [["cid", "cid"]]}
    ]


def test_metrics_of_the_job_and_the_server_are_exported(client: httpx.Client, served: Serving) -> None:
    metrics = client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert "skws_tuples_total" in metrics.text
    assert "skws_serve_searches_total" in metrics.text
    assert client.get("/openapi.json").json()["info"]["title"] == "skws"


def test_results_also_go_to_sinks(tmp_path: Path) -> None:
    schema, stream = shop(tmp_path)
    output_path = tmp_path / "out.jsonl"
    with (
        serving(str(stream), "--schema", str(schema), "--sink", f"jsonl:{output_path}") as server,
        server.client() as client,
    ):
        client.put("/queries/lamps", json={"query": "ada lamp"})
        pair(tmp_path, "ada", "lamp")
        until(lambda: output_path.exists() and len(lines(output_path)) == 1)
        assert lines(output_path)[0]["query"] == "ada lamp"
