"""Access to a served UI, and what its page can do to files; a raw client stands in for a browser."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from skws.cli.demo import movie_files
from skws.hosts import LOOPBACK, asks_for, host_name
from tests.browser import ESCAPES
from tests.commands import process
from tests.tui.ui import SPEED, free_port, scenario

SECONDS = 60


@dataclass(frozen=True)
class Served:
    """A server under test; ``folder``: for exports, if there is one."""

    address: URL
    folder: Path | None
    schema: Path

    @property
    def token(self) -> str:
        return self.address.query["token"]

    @property
    def origin(self) -> str:
        return str(self.address.origin())

    def socket(self, token: str | None = None) -> URL:
        return self.address.origin() / "ws" / (self.token if token is None else token)


@pytest.fixture(scope="module", params=["folder", "none"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("served")
    replay = movie_files()[1]
    schema = home / "schema.yaml"
    schema.write_text(movie_files()[0].read_text())
    folder = home / "exports" if request.param == "folder" else None
    command = [sys.executable, "-m", "skws", "tui", "tarantino", "travolta", "--schema", str(schema)]
    command += [
        "--source",
        f"replay:{replay}?speed={SPEED}",
        "--fresh",
        "--serve",
        "--port",
        str(free_port()),
    ]
    if folder is not None:
        folder.mkdir()
        command += ["--export-to", str(folder)]
    environment = {**os.environ, "XDG_STATE_HOME": str(home), "XDG_CONFIG_HOME": str(home)}
    with (home / "stderr").open("w+") as told:
        with subprocess.Popen(
            command, env=environment, cwd=home, stdout=subprocess.PIPE, stderr=told, text=True
        ) as running:
            try:
                assert running.stdout is not None
                found = re.fullmatch(
                    r"Serving on (http://127\.0\.0\.1:\d+/\?token=\S+)\n", running.stdout.readline()
                )
                assert found is not None
                yield Served(URL(found[1]), folder, schema)
            finally:
                running.terminate()
                rest = running.communicate(timeout=30)[0]
        told.seek(0)
        written = rest + told.read()
        assert URL(found[1]).query["token"] not in written
        assert "Traceback" not in written
        assert str(replay) not in written


async def status(url: URL, **headers: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status


async def refused(url: URL, **headers: str) -> int:
    async with aiohttp.ClientSession() as session:
        try:
            await session.ws_connect(url, headers=headers)
        except aiohttp.WSServerHandshakeError as error:
            return error.status
    return 101


async def until_up(served: Served) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                await status(served.address)
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.1)
            else:
                return


@scenario
async def test_the_page_is_for_who_has_the_token(served: Served) -> None:
    await until_up(served)
    root = served.address.origin()
    assert await status(served.address) == 200
    for query in (
        {},
        {"token": ""},
        {"token": served.token[:-1]},
        {"token": served.token + "x"},
        {"token": "é"},
    ):
        assert await status(root.with_query(query)) == 403
    async with aiohttp.ClientSession() as session, session.get(served.address) as page:
        assert f'"ws://{served.address.authority}/ws/{served.token}"' in await page.text()
        assert page.headers["Referrer-Policy"] == "no-referrer"
        assert page.headers["X-Frame-Options"] == "DENY"
        assert "Set-Cookie" not in page.headers


@scenario
async def test_the_page_has_a_title_and_loads_nothing_from_other_sites(served: Served) -> None:
    await until_up(served)
    async with aiohttp.ClientSession() as session, session.get(served.address) as answer:
        page = await answer.text()
    assert "<title>skws</title>" in page
    assert "googleapis" not in page
    assert not re.search(r"(src|href)=.https?://(?!127\.0\.0\.1)", page)


@scenario
async def test_a_name_that_was_rebound_to_this_machine_is_refused(served: Served) -> None:
    await until_up(served)
    script = served.address.origin() / "static" / "js" / "textual.js"
    port = served.address.port
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1.evil.example",
        "x@localhost",
        "",
        "localhost/x",
    ):
        assert await status(served.address, Host=host) == 403
        assert await status(script, Host=host) == 403
        headers = {"Host": host, "Origin": f"http://{host}"}
        assert await refused(served.socket(), **headers) == 403
    for host in (f"localhost:{port}", f"LOCALHOST:{port}", "127.0.0.1", f"[::1]:{port}", "localhost:9999"):
        assert await status(served.address, Host=host) == 200
        assert await status(script, Host=host) == 200


@scenario
async def test_a_socket_is_for_the_page_of_this_server(served: Served) -> None:
    await until_up(served)
    port = served.address.port
    assert await refused(served.socket()) == 403
    for origin in (
        *(
            "http://evil.example",
            "null",
            "",
            "http://127.0.0.1",
            f"http://localhost:{port}",
            f"ftp://127.0.0.1:{port}",
        ),
        f"http://127.0.0.1:{port}.evil.example",
        f"http://evil.example/http://127.0.0.1:{port}",
        "http://[",
    ):
        assert await refused(served.socket(), Origin=origin) == 403
    for token in ("wrong", served.token[:-1], served.token + "A", "%00"):
        assert await refused(served.socket(token), Origin=served.origin) == 403
    plain = served.address.origin() / "ws"
    assert await refused(plain, Origin=served.origin) == 403
    assert await refused(plain.with_query(token=served.token), Origin=served.origin) == 403


class Page:
    """What a browser does over the socket. ``seen``: all that the terminal was sent."""

    def __init__(self, opened: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = opened
        self.seen = ""

    async def listen(self) -> None:
        async for message in self._socket:
            self.seen += message.data.decode(errors="replace") if isinstance(message.data, bytes) else ""

    async def type(self, *keys: str) -> None:
        for key in keys:
            await self._socket.send_str(json.dumps(["stdin", key]))

    async def shows(self, text: str) -> None:
        async with asyncio.timeout(SECONDS):
            tries = 0
            while text not in ESCAPES.sub("", self.seen):  # a line may come in pieces
                await asyncio.sleep(0.05)
                tries += 1
                if tries % 10 == 0:  # has all drawn, not what has changed alone
                    size = {"width": 120 + tries // 10 % 2, "height": 36}
                    await self._socket.send_str(json.dumps(["resize", size]))


@asynccontextmanager
async def page(served: Served) -> AsyncIterator[Page]:
    await until_up(served)
    url = served.socket().with_query(width="120", height="36")
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, headers={"Origin": served.origin}, max_msg_size=0) as opened,
    ):
        driven = Page(opened)
        listening = asyncio.create_task(driven.listen())
        yield driven
        listening.cancel()


async def export(driven: Page, name: str) -> None:
    driven.seen = ""
    await driven.type("\x0f")
    await driven.shows("results to")
    await driven.type(*name, "\r")  # in the place of the name that is proposed


@scenario
async def test_a_page_shows_results_and_writes_only_where_it_may(served: Served) -> None:
    elsewhere = served.schema.parent / "elsewhere.jsonl"
    if served.folder is not None:
        (served.folder / "link.jsonl").symlink_to(elsewhere)
        (served.folder / "below").mkdir()
    async with page(served) as driven:
        await driven.shows("Travolta")
        if served.folder is None:
            await export(driven, "results.jsonl")
            await driven.shows("exports from a browser are off")
        else:
            for name in ("../elsewhere.jsonl", "/tmp/r.jsonl", "below/r.jsonl", "~/r.jsonl"):
                await export(driven, name)
                await driven.shows(f"{name}: expected the name of a file")
            await export(driven, "link.jsonl")
            await driven.shows("link.jsonl: is a link")
            await export(driven, "results.jsonl")
            await driven.shows("results written")
            assert len((served.folder / "results.jsonl").read_text().splitlines()) > 0
        before = served.schema.read_bytes()
        await driven.type("\x1bOR")  # F3
        await driven.shows("schema.yaml: saved")
        await driven.type(*"# typed", "\r")
        await driven.shows("edited")
        await driven.type("\x13")
        await driven.shows("cannot save the schema file")
        assert served.schema.read_bytes() == before
    assert not elsewhere.exists()
    assert not (served.schema.parent / "results.jsonl").exists()
    assert served.folder is None or not list((served.folder / "below").iterdir())


def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        port = bound.getsockname()[1]
        refused = process("tui", "-s", movie_files()[0], "--serve", "--port", port)
    assert refused.code == 1
    assert refused.err.startswith(f"skws: cannot serve on 127.0.0.1, port {port}: ")
    assert refused.err.count("\n") == 1


@pytest.mark.parametrize(
    ("authority", "name"),
    [
        ("localhost:8000", "localhost"),
        ("[::1]:80", "::1"),
        ("::1", ""),
        ("[::1", ""),
        ("a:b", ""),
        ("a/b", ""),
        ("a?localhost", ""),
        ("a#localhost", ""),
        ("user@localhost", ""),
        ("", ""),
        (" localhost", " localhost"),
    ],
)
def test_the_name_in_a_host_header(authority: str, name: str) -> None:
    assert host_name(authority) == name


def test_no_host_is_none_of_ours() -> None:
    assert not asks_for(None, LOOPBACK)
