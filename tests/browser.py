"""Headless Chromium, driven through its debugging protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.waiting import until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SECONDS = 90
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""Escape codes of a terminal between texts."""
_KEPT = {"Runtime.exceptionThrown", "Log.entryAdded", "Network.requestWillBeSent"}


class Browser:
    """One page; ``seen`` is everything that the page's terminal received."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.seen = ""
        self.told: list[dict[str, Any]] = []
        """Exceptions, log entries, and requests of the page."""

    async def listen(self) -> None:
        async for message in self._socket:
            told = json.loads(message.data)
            if told.get("method") in {
                "Runtime.exceptionThrown",
                "Log.entryAdded",
                "Network.requestWillBeSent",
            }:
                self.told.append(told)
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

    async def run(self, expression: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        answer = await self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        result = answer["result"]
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until an expression in the page is true."""
        try:
            async with asyncio.timeout(SECONDS):
                while not await self.run(expression):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{expression}: {await self.run('document.body.innerText')}") from None

    async def press(self, key: str, code: int, text: str = "") -> None:
        """Press a key that is not a character, by its name and Windows code."""
        named: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        await self.ask("Input.dispatchKeyEvent", type="keyDown", **named, **({"text": text} if text else {}))
        await self.ask("Input.dispatchKeyEvent", type="keyUp", **named)

    async def picture(self, path: Path) -> None:
        """A screenshot as PNG."""
        drawn = await self.ask("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(drawn["result"]["data"]))

    async def type(self, text: str) -> None:
        for character in text:
            await self.ask("Input.dispatchKeyEvent", type="keyDown", text=character, key=character)
            await self.ask("Input.dispatchKeyEvent", type="keyUp", key=character)

    async def enter(self, text: str = "") -> None:
        """Type a text, then Enter."""
        await self.type(text)
        await self.press("Enter", 13, "\r")

    async def click(self, x: int, y: int) -> None:
        at = {"x": x, "y": y, "button": "left", "clickCount": 1}
        await self.ask("Input.dispatchMouseEvent", type="mousePressed", **at)
        await self.ask("Input.dispatchMouseEvent", type="mouseReleased", **at)

    async def shows(self, text: str) -> None:
        async with asyncio.timeout(SECONDS):
            while text not in ESCAPES.sub("", self.seen):  # a line may arrive in pieces
                await asyncio.sleep(0.05)


@contextmanager
def chromium(folder: Path) -> Iterator[int]:
    """The port of its debugging protocol."""
    assert CHROMIUM is not None
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run"]
    flags += [f"--user-data-dir={folder}", "--window-size=1200,800", "about:blank"]
    with subprocess.Popen(
        [CHROMIUM, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as running:
        try:
            until(lambda: _told(folder / "DevToolsActivePort"))
            yield int(_told(folder / "DevToolsActivePort")[0])
        finally:
            running.terminate()


@asynccontextmanager
async def browser(url: str, port: int) -> AsyncIterator[Browser]:
    """A separate page, which leaves nothing to later ones."""
    async with aiohttp.ClientSession() as session:
        async with session.put(f"http://127.0.0.1:{port}/json/new?about:blank") as made:
            page = await made.json()
        async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as opened:
            driven = Browser(opened)
            listening = asyncio.create_task(driven.listen())
            for domain in ("Network", "Runtime", "Log", "Page"):
                await driven.ask(f"{domain}.enable")
            await driven.ask("Emulation.setFocusEmulationEnabled", enabled=True)
            await driven.ask("Page.navigate", url=url)
            try:
                yield driven
            finally:
                await driven.ask("Storage.clearDataForOrigin", origin=url, storageTypes="all")
                await driven.ask("Page.close")
                listening.cancel()


def _told(path: Path) -> list[str]:
    """The lines of a file, which may not exist, or not be written, yet."""
    return path.read_text().splitlines() if path.exists() else []
