"""The terminal UI in a browser: Chromium, headless, driven by its own debugging protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from skws.movie_stream import movie_files
from tests.tui.ui import SPEED, free_port, scenario

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SECONDS = 90
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[URL]:
    """The address at which the demo's stream is served, with its token."""
    port = free_port()
    schema, replay = movie_files()
    command = [sys.executable, "-m", "skws", "tui", "tarantino", "travolta", "--schema", str(schema)]
    command += ["--source", f"replay:{replay}?speed={SPEED}", "--fresh", "--serve", "--port", str(port)]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as running:
        assert running.stdout is not None
        yield URL(running.stdout.readline().split()[-1])
        running.terminate()
        running.wait(30)


class Browser:
    """One page; ``seen`` is all that the page's terminal was sent."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.seen = ""

    async def listen(self) -> None:
        async for message in self._socket:
            told = json.loads(message.data)
            if "id" in told:
                self._answers.pop(told["id"]).set_result(told)
            elif told.get("method") == "Network.webSocketFrameReceived":
                frame = told["params"]["response"]
                raw = frame["payloadData"]
                text = base64.b64decode(raw).decode(errors="replace") if frame["opcode"] == 2 else raw
                self.seen += text

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        return await asyncio.wait_for(answer, SECONDS)

    async def type(self, text: str) -> None:
        for character in text:
            await self.ask("Input.dispatchKeyEvent", type="keyDown", text=character, key=character)
            await self.ask("Input.dispatchKeyEvent", type="keyUp", key=character)

    async def click(self, x: int, y: int) -> None:
        at = {"x": x, "y": y, "button": "left", "clickCount": 1}
        await self.ask("Input.dispatchMouseEvent", type="mousePressed", **at)
        await self.ask("Input.dispatchMouseEvent", type="mouseReleased", **at)

    async def shows(self, text: str) -> None:
        async with asyncio.timeout(SECONDS):
            while text not in self.seen:
                await asyncio.sleep(0.05)


@asynccontextmanager
async def browser(url: str, folder: Path) -> AsyncIterator[Browser]:
    assert CHROMIUM is not None
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run"]
    flags += [f"--user-data-dir={folder}", "--window-size=1200,800", "about:blank"]
    running = await asyncio.create_subprocess_exec(
        CHROMIUM, *flags, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(SECONDS):
            while not (folder / "DevToolsActivePort").exists():
                await asyncio.sleep(0.05)
        port = (folder / "DevToolsActivePort").read_text().splitlines()[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as listed:
                page = next(target for target in await listed.json() if target["type"] == "page")
            async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as opened:
                driven = Browser(opened)
                listening = asyncio.create_task(driven.listen())
                await driven.ask("Network.enable")
                await driven.ask("Emulation.setFocusEmulationEnabled", enabled=True)
                await driven.ask("Page.navigate", url=url)
                yield driven
                listening.cancel()
    finally:
        with suppress(ProcessLookupError):
            running.terminate()
        await running.wait()


async def until_served(port: int | None) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.1)


@scenario
async def test_a_browser_shows_the_results_and_takes_keys(served: URL, tmp_path: Path) -> None:
    await until_served(served.port)
    async with browser(str(served), tmp_path / "profile") as page:
        await page.shows("Travolta")
        await page.click(200, 27)  # the second line: where keywords are typed
        await page.type("nolan bale")
        await page.shows("of 769 live tuples")
        enter = {"key": "Enter", "code": "Enter", "text": "\r", "windowsVirtualKeyCode": 13}
        await page.ask("Input.dispatchKeyEvent", type="keyDown", **enter)
        await page.shows("The Dark Knight")
        drawn = await page.ask("Page.captureScreenshot", format="png")
        assert len(base64.b64decode(drawn["result"]["data"])) > 10_000


@scenario
async def test_only_this_machine_is_served(served: URL) -> None:
    await until_served(served.port)
    listening = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    here = [line.split()[1] for line in listening if line.split()[1].endswith(f":{served.port:04X}")]
    assert here
    assert {address.partition(":")[0] for address in here} == {"0100007F"}
