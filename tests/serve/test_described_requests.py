"""Requests generated from the server's OpenAPI description, or close to it: every answer is documented."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import orjson
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from docs.page_files import files
from skws.cli.demo import movie_files
from tests.docs.blocks import blocks
from tests.jobs.watching import append, customer, order
from tests.places import ROOT
from tests.ports import free_port
from tests.serve.serving import Serving, Stream, serving, shop
from tests.strategies import examples
from tests.waiting import until

QUERIES = (
    "ada",
    "ada lamp",
    "a* b",
    "(",
    "ada~",
    "customer.cid<3 ada",
    '"',
    "ada ; lamp",
    "-ada",
    "\x00",
    "é 東京",
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def values(description: dict[str, Any], parts: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema describes, and sometimes others."""
    if "$ref" in description:
        return values(parts[description["$ref"].rpartition("/")[2]], parts)
    if "anyOf" in description:
        return st.one_of(*(values(option, parts) for option in description["anyOf"]))
    described_values: st.SearchStrategy[Any]
    match description.get("type"):
        case "object" if "properties" in description:
            described_values = objects(description, parts)
        case "object":
            value_schema = description.get("additionalProperties")
            entries = values(value_schema, parts) if isinstance(value_schema, dict) else ANYTHING
            described_values = st.dictionaries(st.text(max_size=6), entries, max_size=3)
        case "array":
            described_values = st.lists(values(description["items"], parts), max_size=3)
        case "integer":
            described_values = st.integers(description.get("minimum", -3), description.get("maximum", 30))
        case "number":
            described_values = st.floats(0.01, 1)
        case "boolean":
            described_values = st.booleans()
        case "string":
            described_values = st.sampled_from(QUERIES) | st.text(max_size=12)
        case _:
            described_values = st.none()
    return st.integers(0, 9).flatmap(lambda rare: described_values if rare else ANYTHING)


@st.composite
def objects(draw: st.DrawFn, description: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Objects with the required fields, and a few others; often with a query."""
    names = draw(st.lists(st.sampled_from(sorted(description["properties"])), max_size=2))
    names += description.get("required", [])
    if "query" in description["properties"] and draw(st.booleans()):
        names.append("query")
    return {name: draw(values(description["properties"][name], parts)) for name in names}


@st.composite
def requests(draw: st.DrawFn, description: dict[str, Any]) -> tuple[str, str, dict[str, str], Any, str]:
    """Method, path, parameters, body, and the path as described."""
    parts = description["components"]["schemas"]
    paths = sorted(description["paths"].items())
    operations = [(path, *operation) for path, methods in paths for operation in methods.items()]
    with_body = [entry for entry in operations if "requestBody" in entry[2]]
    template, method, operation = draw(st.sampled_from([*operations, *with_body * 5]))
    path, query = template, {}
    for parameter in operation.get("parameters", ()):
        value = draw(values(parameter["schema"], parts))
        if parameter["in"] == "path":
            path = path.replace("{name}", quote(str(value), safe="") or "x")
        elif parameter["in"] == "query" and value is not None and draw(st.booleans()):
            query[parameter["name"]] = str(value)
    request_body = operation.get("requestBody")
    body = (
        draw(values(request_body["content"]["application/json"]["schema"], parts)) if request_body else None
    )
    return method.upper(), path, query, body, template


def test_every_answer_is_documented(client: httpx.Client, served: Serving) -> None:
    described = client.get("/openapi.json").json()
    answer = described["paths"]["/search"]["post"]["responses"]["200"]["content"]["application/json"]
    assert answer["schema"]["properties"]["results"]["items"]["properties"]["score"] == {"type": "number"}
    responses: set[str] = set()

    # In every run: an answer, an error in a query, and bodies that do not match the description.
    @example(("POST", "/search", {}, {"query": "ada"}, "/search"))
    @example(("POST", "/search", {}, {"query": "("}, "/search"))
    @example(("POST", "/search", {}, {"query": 5}, "/search"))
    @example(("PUT", "/queries/x", {}, {}, "/queries/{name}"))
    @given(requests(described))
    @examples(2_000, suppress_health_check=[HealthCheck.too_slow], deadline=None)
    def check(request: tuple[str, str, dict[str, str], Any, str]) -> None:
        method, path, query, body, template = request
        try:
            content = None if body is None else orjson.dumps(body)
        except TypeError:  # integers of more than 64 bits
            content = b"{"
        headers = {} if content is None else {"content-type": "application/json"}
        with client.stream(method, path, params=query, content=content, headers=headers) as answer:
            status = answer.status_code
            if answer.headers.get("content-type", "").startswith("text/event-stream"):
                assert status == 200
                return
            answer.read()
        responses.add(f"{method} {template} {status}")
        assert status < 500 or status == 504, answer.text  # a search may reach its limit on a busy machine
        documented_statuses = (
            described["paths"].get(template, {}).get(method.lower(), {}).get("responses", {})
        )
        assert str(status) in documented_statuses or status in {201, 405}, (request, status)
        if status >= 400:
            assert answer.json()["error"]

    check()
    assert client.get("/healthz").status_code == 200
    assert not any("unexpected" in line or "Traceback" in line for line in served.raw)
    for expected in ("POST /search 200", "POST /search 400", "POST /search 422", "PUT /queries/{name} 400"):
        assert expected in responses, responses


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b'{"query": "a", "query": 1}', b"[" * 100_000]
)
def test_bodies_that_are_not_requests_are_rejected(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/search", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in {400, 422}
    assert set(answer.json()) == {"error"}


def test_the_documented_requests_are_accepted(tmp_path: Path) -> None:
    schema, replay = movie_files()
    commands = [
        shlex.split(command)
        for block in blocks(ROOT / "docs" / "serve.md")
        for command in block.commands
        if command.startswith("curl")
    ]
    assert len(commands) > 6
    options = ["--schema", str(schema), "--checkpoint", str(tmp_path / "state"), "--window", "36500 days"]
    with serving(f"replay:{replay}", *options, "--speed", "1e12") as server, server.client() as client:
        body = {"query": "tarantino travolta"}
        until(lambda: client.post("/search", json=body).json()["found"])
        source = f"replay:{replay}?speed=1e+12"
        assert client.get("/schema").json()["source"] == source
        assert f'source="{source}"' in client.get("/metrics").text
        for command in commands:
            url = next(word for word in command if word.startswith("localhost:8080"))
            path = url.removeprefix("localhost:8080")
            if path.endswith("/events"):
                stream = Stream(client, path)
                stream.wait_for("ready")
                assert stream.of("result")
                continue
            data = command[command.index("-d") + 1] if "-d" in command else None
            method = command[command.index("-X") + 1] if "-X" in command else "POST" if data else "GET"
            headers = {"content-type": "application/json"} if data else {}
            answer = client.request(method, path, content=data, headers=headers)
            assert answer.status_code in {200, 201, 204}, (command, answer.text)
            if method == "GET":
                assert "ann" in answer.text


@pytest.mark.check
def test_the_documented_client_continues_after_a_kill(tmp_path: Path) -> None:
    (tmp_path / "follow.py").write_text(files(ROOT / "docs" / "serve.md")["follow.py"])
    schema, stream = shop(tmp_path)
    options = ["--checkpoint", str(tmp_path / "state"), "--port", str(free_port())]
    command = [str(stream), "--schema", str(schema), *options]
    server = Serving(command, program=sys.executable)
    server.wait_until_ready()
    httpx.put(f"{server.url}queries/duo", json={"query": "ada lamp"}, timeout=60, trust_env=False)
    output_path = tmp_path / "out"
    with output_path.open("w") as output:
        client = subprocess.Popen(
            [sys.executable, "follow.py", f"{server.url}queries/duo/events"], cwd=tmp_path, stdout=output
        )
    try:
        append(stream, customer(1, 1), order(1, 1))
        until(lambda: output_path.read_text().count("lamp") == 1)
        server.kill()
        append(stream, customer(2, 2), order(2, 2))
        server = Serving(command, program=sys.executable)
        append(stream, order(3, 2))
        until(lambda: output_path.read_text().count("lamp") == 3)
        assert output_path.read_text().count("the live results") == 1
        httpx.delete(f"{server.url}queries/duo", timeout=60, trust_env=False)
        assert client.wait(60) == 1
    finally:
        client.kill()
        server.kill()
