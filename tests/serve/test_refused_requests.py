"""Requests that the server refuses: foreign hosts and origins, bad tokens, bodies too large or not JSON."""

from __future__ import annotations

import json
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import orjson
import pytest

from tests.commands import process
from tests.serve.serving import Serving, Stream, serving, shop

TOKEN = "correct-horse-battery-staple"
SEARCH = b'{"query":"ada lamp"}'
JSON = {"content-type": "application/json"}
NESTED = json.loads("[" * 300 + "]" * 300)


def send_raw(port: int, head: str, body: bytes = b"") -> tuple[int, bytes]:
    """The status and body of the answer to a request, which is sent unchanged."""
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n" + body)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
            if b"\r\n\r\n" in answer:
                break
        status_line, _, rest = answer.partition(b"\r\n\r\n")
        length = next(
            (
                int(line.split(b":")[1])
                for line in status_line.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            ),
            0,
        )
        while len(rest) < length:
            rest += connection.recv(65536)
    return int(status_line.split()[1]), rest


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /queries HTTP/1.1\nHost: localhost:{port}\n", 200),
        ("GET /queries HTTP/1.1\nHost: 127.0.0.1\n", 200),
        ("GET /queries HTTP/1.1\nHost: [::1]:{port}\n", 200),
        ("GET /queries HTTP/1.1\nHost: evil.example\n", 421),
        ("GET /queries HTTP/1.1\nHost: localhost.evil.example\n", 421),
        ("GET /queries HTTP/1.1\nHost: evil@localhost\n", 421),
        ("GET / HTTP/1.1\nHost: evil.example\n", 421),
        ("GET /healthz HTTP/1.1\nHost: evil.example\n", 421),
        ("GET /queries HTTP/1.0\n", 421),
        ("GET http://evil.example/queries HTTP/1.1\nHost: evil.example\n", 421),
        ("GET /queries HTTP/1.1\nHost: localhost:{port}\nOrigin: http://localhost:{port}\n", 200),
        ("GET /queries HTTP/1.1\nHost: localhost:{port}\nOrigin: http://evil.example\n", 403),
        ("GET /queries HTTP/1.1\nHost: localhost:{port}\nOrigin: null\n", 403),
        ("GET /queries HTTP/1.1\nHost: localhost:{port}\nOrigin: http://localhost:1\n", 403),
        (
            "GET /queries HTTP/1.1\nHost: localhost:{port}\nSec-Fetch-Site: cross-site\n",
            403,
        ),
        (
            "GET / HTTP/1.1\nHost: localhost:{port}\nSec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\n",
            200,
        ),
        ("OPTIONS /search HTTP/1.1\nHost: localhost:{port}\nOrigin: http://evil.example\n", 403),
        ("DELETE /search HTTP/1.1\nHost: localhost\n", 405),
        ("PUT /search HTTP/1.1\nHost: localhost\n", 405),
        ("GET /nothing HTTP/1.1\nHost: localhost\n", 404),
        ("GET /page/../app.py HTTP/1.1\nHost: localhost\n", 404),
        ("GET /page/..%2Fapp.py HTTP/1.1\nHost: localhost\n", 404),
        ("GET /page/%2Fetc%2Fpasswd HTTP/1.1\nHost: localhost\n", 404),
        ("GET /queries?ownr=ann HTTP/1.1\nHost: localhost\n", 422),
        ("GET /queries?owner=ann&owner=bob HTTP/1.1\nHost: localhost\n", 422),
        ("GET /healthz?now HTTP/1.1\nHost: localhost\n", 422),
        ("GET /queries/%FF HTTP/1.1\nHost: localhost\n", 400),
        ("GET /queries?owner=%FF HTTP/1.1\nHost: localhost\n", 400),
    ],
)
def test_foreign_hosts_origins_and_paths_are_rejected(served: Serving, head: str, status: int) -> None:
    answer_status, body = send_raw(served.port, head.format(port=served.port))
    assert answer_status == status, body
    if status >= 400:
        assert orjson.loads(body)["error"]


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ("Content-Type: application/json\nContent-Length: 20\n", SEARCH, 200),
        ("Content-Type: text/plain\nContent-Length: 20\n", SEARCH, 415),
        ("Content-Length: 20\n", SEARCH, 415),
        ("Content-Type: application/json\nContent-Length: 99999999999\n", b"", 413),
        ("Content-Type: application/json\nContent-Length: 3\n", b"{x}", 422),
        ("Content-Type: application/json\nContent-Length: 2\n", b"[]", 422),
        ("Content-Type: application/json\nContent-Length: 14\n", b'{"query":"\xff\xff"}', 400),
        ("Content-Type: application/json\nContent-Length: 22\n", b'{"query":"a","what":1}', 422),
        ("Content-Type: application/json\nContent-Length: 25\n", b'{"query":"a","query":"b"}', 422),
        ("Content-Type: application/json\nContent-Length: 30\n", b'{"query":"a","time_limit":NaN}', 422),
        ("Content-Type: application/json\nContent-Length: 5001\n", b"9" * 5001, 422),
    ],
)
def test_invalid_bodies_are_rejected(served: Serving, headers: str, body: bytes, status: int) -> None:
    answer_status, answer = send_raw(served.port, f"POST /search HTTP/1.1\nHost: localhost\n{headers}", body)
    assert answer_status == status, answer
    if status >= 400:
        assert orjson.loads(answer)["error"]


def test_an_answer_lists_all_methods_of_an_address(client: httpx.Client) -> None:
    for path, methods in (
        ("/queries", "GET, HEAD, PUT"),
        ("/queries/x", "DELETE, GET, HEAD, PUT"),
        ("/search", "POST"),
    ):
        assert client.patch(path).headers["allow"] == methods


def test_a_number_without_a_fraction_is_an_integer(client: httpx.Client) -> None:
    """JSON has no separate integers."""
    assert client.post(
        "/search", content=b'{"query":"ada","limit":3.0,"max_size":2.0}', headers=JSON
    ).is_success
    answer = client.post("/search", content=b'{"query":"ada","max_size":2.5}', headers=JSON)
    assert (answer.status_code, answer.json()["error"]) == (
        422,
        "max_size: expected an integer, got 2.5",
    )


def test_a_body_in_chunks_is_counted(served: Serving) -> None:
    head = (
        "POST /search HTTP/1.1\nHost: localhost\nContent-Type: application/json\nTransfer-Encoding: chunked\n"
    )
    with socket.create_connection(("127.0.0.1", served.port), 60) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n")
        piece = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        try:
            for _ in range(20):
                connection.sendall(piece)
        except OSError:
            pass  # the server has closed the connection
        answer = connection.recv(65536)
    assert b" 413 " in answer.split(b"\r\n")[0]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"query": "a" * 5000}, "at most 4,000"),
        ({"query": "nowhere.name:x"}, "no relation or attribute 'nowhere.name'"),
        ({"query": "ada", "limit": 0}, "limit: expected 1 or more"),
        ({"query": "ada", "limit": 100000}, "limit: expected at most 1,000"),
        ({"query": "ada", "time_limit": 3600}, "time_limit: expected at most 30.0"),
        ({"query": "ada", "max_size": 40}, "max_size: expected at most 12"),
        ({"query": "ada", "rank": "luck"}, "ranking 'luck': expected one of"),
        ({"query": "ada", "half_life": "soon"}, "half_life 'soon': expected a duration"),
        ({"query": ["ada"]}, "query: expected a text"),
        ({}, "query is missing"),
    ],
)
def test_invalid_searches_are_rejected(client: httpx.Client, body: dict[str, Any], message: str) -> None:
    answer = client.post("/search", json=body)
    assert answer.status_code in {400, 422}
    assert message in answer.json()["error"]


def test_saved_metadata_of_the_most_levels_can_be_read_again(client: httpx.Client) -> None:
    metadata = {"a": json.loads("[" * 99 + "]" * 99)}
    assert client.put("/queries/nested", json={"query": "ada", "metadata": metadata}).status_code == 201
    assert [search["metadata"] for search in client.get("/queries").json()["queries"]] == [metadata]
    client.delete("/queries/nested")
    deeper = {"query": "ada", "metadata": {"a": [metadata]}}
    assert client.put("/queries/nested", json=deeper).status_code == 400


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("x", {"query": "ada", "sinks": ["command:touch /tmp/x"]}, "unknown field sinks"),
        ("x", {"query": "ada", "limit": "1 per day"}, "unknown field limit"),
        ("x", {"query": "ada", "metadata": {"a": "b" * 20000}}, "metadata: 20,008 bytes of JSON"),
        ("x", {"query": "ada", "metadata": {"a": 1 << 64}}, "metadata: expected integers of 64 bits"),
        (
            "x",
            {"query": "ada", "metadata": {"a": NESTED}},
            "levels of objects and arrays: expected at most 100",
        ),
        (
            "x",
            {"query": "ada", "metadata": {"a": "\ud800"}},
            "and Unicode text without half of a surrogate pair",
        ),
        ("x", {"query": "ada", "owner": "o" * 300}, "expected at most 200 printable"),
        ("x", {"query": "ada", "owner": "o\nwner"}, "expected at most 200 printable"),
        ("x", {"query": "ada", "metadata": {"\ud800": 1}}, "not Unicode text"),
        ("x", {"\ud800": 1}, "not Unicode text"),
        ("", {"queries": {"\ud800": {"query": "ada"}}}, "not Unicode text"),
        ("x", {"query": "ada \udc80"}, "expected Unicode text"),
        ("x", {"pattern": "customer c[c.name = '\ud800']"}, "expected Unicode text"),
        ("x", {"query": "ada", "every": "often"}, "every 'often': expected a duration"),
        ("x", {"query": "ada", "every": "1 ms"}, "expected 1 second or more"),
        ("x", {"query": "ada", "updates": "now"}, "updates: expected true or false"),
        ("x", {"query": "ada lamp", "window": "5 seconds"}, "window: expected a window expression"),
        ("x", {"pattern": "customer c ; nothing n"}, "no relation 'nothing'"),
        ("x", {"sql": "select"}, "there is no FROM"),
        ("x", {"sql": "select * from customer", "top": 3}, "top cannot be combined with sql"),
        ("x", {"query": "ada", "pattern": "customer c"}, "query, pattern or sql"),
        ("x", {}, "query, pattern or sql"),
        ("n" * 300, {"query": "ada"}, "expected 1 to 200 printable characters"),
        ("%0a", {"query": "ada"}, "expected 1 to 200 printable characters"),
        ("", {"query": "ada"}, "expected 1 to 200 printable characters"),
        ("%2F", {"query": "ada"}, "expected 1 to 200 printable characters"),
        ("a%2Fb", {"query": "ada"}, "expected 1 to 200 printable characters"),
        ("a%2Fevents", {"query": "ada"}, "expected 1 to 200 printable characters"),
    ],
)
def test_invalid_saved_searches_are_rejected(
    client: httpx.Client, name: str, body: dict[str, Any], message: str
) -> None:
    # Encoded here, because httpx rejects text that is not Unicode.
    answer = client.put(f"/queries/{name}", content=json.dumps(body), headers=JSON)
    assert answer.status_code in {400, 422}, answer.text
    assert message in answer.json()["error"]
    assert "Traceback" not in answer.text
    assert not name or client.get(f"/queries/{name}").status_code == 404


@pytest.mark.parametrize("name", ["..", ".", "%2e%2e", ".%2E", "%2e"])
def test_names_that_clients_drop_from_an_address_are_rejected(served: Serving, name: str) -> None:
    body = b'{"query":"ada"}'
    head = (
        f"PUT /queries/{name} HTTP/1.1\nHost: localhost\nContent-Type: application/json\n"
        f"Content-Length: {len(body)}\n"
    )
    status, answer = send_raw(served.port, head, body)
    assert status == 400
    assert "expected one that can be part of an address" in orjson.loads(answer)["error"]


@pytest.mark.parametrize("name", ["a?b", "a#b", "a%b", "%2e%2e", "...", "a;b", " ", "+", "\\", "~", "é"])
def test_names_with_special_characters_are_accepted(client: httpx.Client, name: str) -> None:
    address = f"/queries/{quote(name, safe='')}"
    assert client.put(address, json={"query": "ada"}).status_code == 201
    assert client.get(address).json()["name"] == name
    assert client.delete(address).status_code == 204


def test_a_trailing_slash_is_ignored(client: httpx.Client) -> None:
    assert client.get("/queries/").json() == client.get("/queries").json()
    assert client.post("/search/", json={"query": "ada"}).status_code == 200
    answer = client.get("/search/")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["error"]


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/page/app.js", "/queries", "/schema", "/healthz", "/metrics", "/openapi.json"]
)
def test_head_is_get_without_a_body(client: httpx.Client, path: str) -> None:
    head, get_answer = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == get_answer.headers["content-type"]


def test_head_of_an_event_stream_ends(client: httpx.Client) -> None:
    answer = client.head("/events")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert client.head("/queries/nobody/events").status_code == 404
    assert client.head("/search").status_code == 405


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"q": "x"}', "unknown field q; did you mean query?"),
        ('{"Query": "x"}', "unknown field Query; did you mean query?"),
        ('{"query": "x", "limt": 3}', "unknown field limt; did you mean limit?"),
        (
            '{"text": "x"}',
            "unknown field text; expected: query, limit, max_size, rank, half_life, explain_score,"
            " time_limit, marks",
        ),
        ("{}", "query is missing"),
        ("", "the body is missing"),
        ("[]", "the body: expected a JSON object, got []"),
        ("null", "the body: expected a JSON object, got null"),
        ('{"query":"x"', "the body is not JSON: character 12: expected ',' delimiter"),
        ("{query:1}", "the body is not JSON: character 2: expected property name enclosed in double quotes"),
        ("[" * 200_000, "the body is nested too deeply"),
        ('{"query":1}', "query: expected a text, got 1"),
        ('{"query":""}', "query: expected 1 character or more, got ''"),
        ('{"query":"x","limit":"a"}', "limit: expected an integer, got 'a'"),
        ('{"query":"x","limit":0}', "limit: expected 1 or more, got 0"),
        ('{"query":"x","limit":9999}', "limit: expected at most 1,000, got 9999"),
        ('{"query":"x","marks":"yes"}', "marks: expected true or false, got 'yes'"),
        ('{"query":"x","time_limit":-1}', "time_limit: expected more than 0, got -1"),
    ],
)
def test_errors_in_bodies_are_explained(client: httpx.Client, body: str, message: str) -> None:
    answer = client.post("/search", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["error"]) == (422, message)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"queries": {"a": {"q": "x"}}}, "queries.a: unknown field q; did you mean query?"),
        ({"queries": []}, "queries: expected a JSON object, got []"),
        ({"queries": {"a": {"top": 0}}}, "queries.a.top: expected 1 or more, got 0"),
        (
            {"queries": {"a": {"query": "ada", "without": [1]}}},
            "queries.a.without: expected a text or an array of texts, got [1]",
        ),
    ],
)
def test_errors_in_many_searches_name_the_search(client: httpx.Client, body: Any, message: str) -> None:
    answer = client.put("/queries", json=body)
    assert (answer.status_code, answer.json()["error"]) == (422, message)


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", "/search", "GET /search: expected POST"),
        ("DELETE", "/queries", "DELETE /queries: expected GET or HEAD or PUT"),
        ("GET", "/nothing", "there is nothing at /nothing; /docs describes all addresses"),
        ("GET", "/queries?limit=a", "limit: expected an integer, got 'a'"),
        ("GET", "/events?marks=maybe", "marks: expected true or false, got 'maybe'"),
    ],
)
def test_errors_in_addresses_are_explained(
    client: httpx.Client, method: str, path: str, message: str
) -> None:
    assert client.request(method, path).json()["error"] == message


@pytest.mark.parametrize(
    "head",
    [
        "GET nonsense\n",
        "GET / HTTP/1.1\nHost: localhost\nHost: localhost\n",
        "POST /search HTTP/1.1\nHost: localhost\nContent-Length: many\n",
        "GET / HTTP/1.1\nno header\n",
    ],
)
def test_invalid_http_is_rejected_in_json(served: Serving, head: str) -> None:
    status, body = send_raw(served.port, head)
    error = orjson.loads(body)["error"]
    assert (status, error.partition(":")[0]) == (400, "the request is not HTTP")
    assert "bytearray" not in error


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server for other machines, with a token."""
    schema, stream = shop(tmp_path_factory.mktemp("guarded"))
    options = ["--host", "0.0.0.0", "--name", "search.example.org"]
    environment = {"SKWS_SERVE_TOKEN": TOKEN}
    with serving(str(stream), "--schema", str(schema), *options, environment=environment) as server:
        yield server


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer {TOKEN}", 200),
        ("", 401),
        ("Bearer ", 401),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        (f"Basic {TOKEN}", 401),
        (f"Bearer {TOKEN.upper()}", 401),
    ],
)
def test_requests_need_the_token(guarded: Serving, authorization: str, status: int) -> None:
    for path in ("/queries", "/metrics", "/schema", "/events", "/openapi.json"):
        if status == 200 and path == "/events":
            continue  # it never ends
        request = f"GET {path} HTTP/1.1\nHost: search.example.org\nAuthorization: {authorization}\n"
        answer_status, _ = send_raw(guarded.port, request)
        assert answer_status == status, path
    for path in ("/", "/healthz"):
        assert send_raw(guarded.port, f"GET {path} HTTP/1.1\nHost: 192.0.2.1:{guarded.port}\n")[0] == 200
    assert send_raw(guarded.port, "GET / HTTP/1.1\nHost: other.example.org\n")[0] == 421


def test_the_token_is_never_shown(guarded: Serving) -> None:
    command = Path(f"/proc/{guarded.process.pid}/cmdline").read_bytes()
    assert TOKEN.encode() not in command
    assert not any(TOKEN in line for line in guarded.raw)


def test_searches_of_very_many_networks_are_limited(tmp_path: Path) -> None:
    """Saved searches would keep the job busy; a single search ends at its time limit."""
    movies = Path("examples/movies")
    source = [f"replay:{movies / 'replay.jsonl'}", "--schema", str(movies / "schema.yaml"), "--speed", "1e12"]
    with serving(*source, "--window", "36500 days") as server, server.client() as client:
        search = {"query": "a* e* i* o* u* t* s* r*", "max_size": 12}
        answer = client.put("/queries/x", json=search)
        assert answer.status_code == 400
        assert "candidate networks" in answer.json()["error"]
        answer = client.post("/search", json={**search, "time_limit": 0.5})
        assert answer.status_code == 504 or not answer.json()["complete"]
        assert client.post("/search", json={"query": "tarantino"}).json()["complete"]


def test_a_server_for_other_machines_needs_a_token(tmp_path: Path) -> None:
    schema, stream = shop(tmp_path)
    command = ("serve", stream, "--schema", schema)
    answer = process(*command, "--host", "0.0.0.0")
    assert (answer.code, "token" in answer.err) == (2, True)
    answer = process(*command, SKWS_SERVE_TOKEN="short")
    assert (answer.code, "SKWS_SERVE_TOKEN" in answer.err, "short" in answer.err) == (3, True, False)
    # An empty variable may come from a secret that is missing: requests without a token would be answered.
    answer = process(*command, SKWS_SERVE_TOKEN="")
    assert (answer.code, "SKWS_SERVE_TOKEN: not a token" in answer.err) == (3, True)
    answer = process(*command, "--host", "0.0.0.0", "--checkpoint", schema)
    assert (answer.code, answer.err) == (1, f"skws: {schema}: cannot be created: File exists\n")


def test_a_token_is_created_in_a_private_file(tmp_path: Path) -> None:
    schema, stream = shop(tmp_path)
    file = tmp_path / "token"
    with serving(str(stream), "--schema", str(schema), "--token-file", str(file)) as server:
        token = file.read_text().strip()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        with server.client() as client:
            assert client.get("/queries").status_code == 401
            assert client.get("/queries", headers={"authorization": f"Bearer {token}"}).status_code == 200
        assert not any(token in line for line in server.raw)


def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    schema, stream = shop(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        answer = process("serve", stream, "--schema", schema, "--port", port)
    assert (answer.code, str(port) in answer.err, "Traceback" in answer.err) == (1, True, False)


@pytest.mark.check
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_streams_and_process(tmp_path: Path, number: int) -> None:
    schema, stream = shop(tmp_path)
    served = serving(str(stream), "--schema", str(schema), program=sys.executable)
    with served as server, server.client() as client:
        client.put("/queries/x", json={"query": "ada lamp"})
        open_stream = Stream(client, "/queries/x/events")
        open_stream.wait_for("ready")
        assert server.stop(number) == 130
        open_stream.join()
        assert open_stream.events[-1][0] == "end"
        assert not any("Traceback" in line for line in server.raw)
