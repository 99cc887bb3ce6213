"""Requests made from the server's own OpenAPI description, and near it: no answer is unforeseen."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx
import orjson
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.serve.serving import Serving
from tests.strategies import examples

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


def values(described: dict[str, Any], parts: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema describes; now and then any other."""
    if "$ref" in described:
        return values(parts[described["$ref"].rpartition("/")[2]], parts)
    if "anyOf" in described:
        return st.one_of(*(values(each, parts) for each in described["anyOf"]))
    known: st.SearchStrategy[Any]
    match described.get("type"):
        case "object" if "properties" in described:
            known = objects(described, parts)
        case "object":
            other = described.get("additionalProperties")
            inner = values(other, parts) if isinstance(other, dict) else ANYTHING
            known = st.dictionaries(st.text(max_size=6), inner, max_size=3)
        case "array":
            known = st.lists(values(described["items"], parts), max_size=3)
        case "integer":
            known = st.integers(described.get("minimum", -3), described.get("maximum", 30))
        case "number":
            known = st.floats(0.01, 1)
        case "boolean":
            known = st.booleans()
        case "string":
            known = st.sampled_from(QUERIES) | st.text(max_size=12)
        case _:
            known = st.none()
    return st.integers(0, 9).flatmap(lambda rare: known if rare else ANYTHING)


@st.composite
def objects(draw: st.DrawFn, described: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """With the fields that are needed, and a few others; often a query."""
    names = draw(st.lists(st.sampled_from(sorted(described["properties"])), max_size=2))
    names += described.get("required", [])
    if "query" in described["properties"] and draw(st.booleans()):
        names.append("query")
    return {name: draw(values(described["properties"][name], parts)) for name in names}


@st.composite
def requests(draw: st.DrawFn, described: dict[str, Any]) -> tuple[str, str, dict[str, str], Any, str]:
    """Method, path, parameters, body, and the path as it is described."""
    parts = described["components"]["schemas"]
    known = [(path, *one) for path, methods in described["paths"].items() for one in methods.items()]
    bodies = [each for each in known if "requestBody" in each[2]]
    template, method, one = draw(st.sampled_from([*known, *bodies * 5]))
    path, query = template, {}
    for each in one.get("parameters", ()):
        value = draw(values(each["schema"], parts))
        if each["in"] == "path":
            path = path.replace("{name}", quote(str(value), safe="") or "x")
        elif each["in"] == "query" and value is not None and draw(st.booleans()):
            query[each["name"]] = str(value)
    asked = one.get("requestBody")
    body = draw(values(asked["content"]["application/json"]["schema"], parts)) if asked else None
    return method.upper(), path, query, body, template


def test_what_is_described(client: httpx.Client, served: Serving) -> None:
    described = client.get("/openapi.json").json()
    seen: set[str] = set()

    @given(requests(described))
    @examples(600, suppress_health_check=[HealthCheck.too_slow], deadline=None)
    def check(request: tuple[str, str, dict[str, str], Any, str]) -> None:
        method, path, query, body, template = request
        try:
            content = None if body is None else orjson.dumps(body)
        except TypeError:  # beyond 64 bits
            content = b"{"
        headers = {} if content is None else {"content-type": "application/json"}
        with client.stream(method, path, params=query, content=content, headers=headers) as answer:
            status = answer.status_code
            if answer.headers.get("content-type", "").startswith("text/event-stream"):
                assert status == 200
                return
            answer.read()
        seen.add(f"{method} {template} {status}")
        assert status < 500, answer.text
        known = described["paths"].get(template, {}).get(method.lower(), {}).get("responses", {})
        assert str(status) in known or status in {201, 405}, (request, status)
        if status >= 400:
            assert answer.json()["error"]

    check()
    assert client.get("/healthz").status_code == 200
    assert not any("unexpected" in line or "Traceback" in line for line in served.raw)
    for one in ("POST /search 200", "POST /search 400", "POST /search 422", "PUT /queries/{name} 400"):
        assert one in seen, seen


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b'{"query": "a", "query": 1}', b"[" * 100_000]
)
def test_bodies_that_are_no_request(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/search", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in {400, 422}
    assert set(answer.json()) == {"error"}
