"""``kill -9`` of a running ``skws serve``: subscribers resume without lost or repeated events."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pytest

from tests.jobs.watching import LAMP, QUERY, TABLES, append, numbered
from tests.ports import free_port
from tests.postgres import Database
from tests.serve.serving import Serving, Stream, shop
from tests.strategies import some
from tests.waiting import until

pytestmark = pytest.mark.check

RESULTS = 600


class Follower:
    """A subscriber that reconnects after the last event that it has seen, as a browser does."""

    def __init__(self, url: str, path: str) -> None:
        self.events: list[tuple[str, str, Any]] = []
        self.connections = 0
        self._stop = Event()
        self._last: str | None = None
        self._client = httpx.Client(base_url=url, trust_env=False, verify=False, timeout=httpx.Timeout(60))
        self._path = path
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._client.close()
        self._thread.join(60)

    def of(self, kind: str) -> list[Any]:
        return [data for event_kind, _, data in list(self.events) if event_kind == kind]

    @property
    def results(self) -> list[str]:
        """The ids of results among changes and in digests, in order."""
        changes = [one["result"]["id"] for one in self.of("result") if not one["result"].get("snapshot")]
        return changes + [r["id"] for one in self.of("digest") for r in one["digest"]["results"]]

    @property
    def positions(self) -> list[tuple[int, int]]:
        parts = [i.split("-") for kind, i, _ in self.events if i and kind != "ready"]
        return [(int(batch), int(number)) for _, batch, number in parts]

    def _run(self) -> None:
        while not self._stop.is_set():
            stream = Stream(self._client, self._path, self._last)
            count = 0
            while True:
                is_ended = stream.ended
                new_events = stream.events[count:]
                self.events += new_events
                count += len(new_events)
                if is_ended and count == len(stream.events):
                    break
                self._stop.wait(0.005)
            self.connections += stream.status == 200
            self._last = stream.last
            self._stop.wait(0.02)


def check(follower: Follower, expected: int) -> None:
    until(
        lambda: len(follower.results) >= expected, state=lambda: (len(follower.results), follower.events[-3:])
    )
    assert len(follower.results) == expected
    assert set(Counter(follower.results).values()) == {1}
    assert follower.positions == sorted(set(follower.positions))
    assert len(follower.of("snapshot")) == 1, "each later connection continues where the previous one ended"


@some("kills", [2], [20])
def test_subscribers_of_a_killed_server_miss_nothing(tmp_path: Path, kills: int) -> None:
    rng = random.Random(kills)
    schema, source = shop(tmp_path)
    port = free_port()
    command = [
        str(source),
        "--schema",
        str(schema),
        "--checkpoint",
        str(tmp_path / "state"),
        "--port",
        str(port),
    ]
    records = list(numbered(RESULTS))
    share = len(records) // kills
    serving = Serving([*command, "--lateness", "1 s"])
    serving.wait_until_ready()
    url = serving.url
    with serving.client() as client:
        for name, more in (("now", {}), ("later", {"every": "1 second"})):
            body = {"query": QUERY, "owner": "ann", "metadata": {"n": 1}, **more}
            assert client.put(f"/queries/{name}", json=body).status_code == 201
    followers = [
        Follower(url, "/queries/now/events"),
        Follower(url, "/queries/later/events"),
        Follower(url, "/events?owner=ann"),
    ]
    until(lambda: all(follower.of("ready") for follower in followers))
    for kill in range(kills):
        for first in range(kill * share, (kill + 1) * share, 10):
            append(source, *records[first : min(first + 10, (kill + 1) * share)])
            time.sleep(rng.uniform(0, 0.01))
        time.sleep(rng.uniform(0, 0.3))
        serving.kill()
        serving = Serving([*command, "--lateness", "1 s"])
        if kill % 4 != 1:
            serving.wait_until_ready()
        else:
            time.sleep(rng.uniform(0.2, 1.5))  # killed during its start
    serving.kill()
    serving = Serving([*command, "--lateness", "1 s"])
    append(source, *records[kills * share :])
    serving.wait_until_ready()
    now, later, owned = followers
    check(now, RESULTS)
    check(later, RESULTS)
    until(lambda: len(owned.of("result")) >= RESULTS)
    assert [one["result"]["id"] for one in now.of("result")] == [
        one["result"]["id"] for one in owned.of("result")
    ]
    assert {one["searches"][0]["name"] for one in owned.of("digest")} == {"later"}
    assert all(one["searches"][0]["metadata"] == {"n": 1} for one in now.of("result"))
    assert now.connections >= kills / 2
    with serving.client() as client:
        assert {one["name"] for one in client.get("/queries").json()["queries"]} == {"now", "later"}
    assert serving.stop(signal.SIGTERM) == 130
    for follower in followers:
        follower.close()


@pytest.mark.slow
def test_a_subscriber_of_a_killed_server_over_a_database_misses_nothing(
    database: Database, tmp_path: Path
) -> None:
    kills = 20
    rng = random.Random(kills)
    database.run(*TABLES)
    schema, _ = shop(tmp_path)
    port = free_port()
    command = [
        database.uri(),
        "--schema",
        str(schema),
        "--checkpoint",
        str(tmp_path / "state"),
        "--port",
        str(port),
    ]
    serving = Serving([*command, "--window", "1 hour"])
    serving.wait_until_ready()
    with serving.client() as client:
        assert client.put("/queries/now", json={"query": QUERY}).status_code == 201
    follower = Follower(serving.url, "/queries/now/events")
    until(lambda: follower.of("ready"))
    for _ in range(kills):
        for _ in range(5):
            database.run(LAMP)
        time.sleep(rng.uniform(0, 0.3))
        serving.kill()
        database.run(LAMP)
        serving = Serving([*command, "--window", "1 hour"])
        serving.wait_until_ready()
    check(follower, 6 * kills)
    assert serving.stop(signal.SIGTERM) == 130
    follower.close()


@some("kills", [1], [8])
def test_saved_and_removed_searches_survive_every_kill(tmp_path: Path, kills: int) -> None:
    """100 searches are saved and every third is removed, while the server is killed repeatedly."""
    rng = random.Random(5)
    schema, source = shop(tmp_path)
    port = free_port()
    command = [str(source), "--schema", str(schema), "--checkpoint", str(tmp_path / "s"), "--port", str(port)]
    serving = Serving(command)
    serving.wait_until_ready()
    texts_by_name: dict[str, str] = {}
    client = httpx.Client(base_url=serving.url, trust_env=False, timeout=httpx.Timeout(60))

    def status_of(method: str, name: str, **options: Any) -> int:
        """The status, once a server answers; a removal may have succeeded without an answer."""
        while True:
            try:
                status = client.request(method, f"/queries/{name}", **options).status_code
            except httpx.TransportError:
                time.sleep(0.02)
                continue
            if status != 503:
                return status

    def work() -> None:
        for number in range(100):
            name, text = f"n{number}", f"ada word{number}"
            assert status_of("PUT", name, json={"query": text}) in {200, 201}
            texts_by_name[name] = text
            if number % 3 == 2:
                removed_name = f"n{number - 1}"
                assert status_of("DELETE", removed_name) in {204, 404}
                del texts_by_name[removed_name]

    worker = Thread(target=work, daemon=True)
    worker.start()
    for _ in range(kills):
        until(lambda: len(texts_by_name) > rng.randrange(100) or not worker.is_alive())
        serving.kill()
        serving = Serving(command)
        serving.wait_until_ready()
    worker.join(120)
    assert not worker.is_alive()
    serving.kill()
    serving = Serving(command)
    serving.wait_until_ready()
    listed_queries = client.get("/queries").json()["queries"]
    assert {one["name"]: one["query"] for one in listed_queries} == texts_by_name
    client.close()
    assert serving.stop(signal.SIGTERM) == 130
