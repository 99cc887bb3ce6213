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
_EVENTS = {"Runtime.exceptionThrown", "Log.entryAdded", "Network.requestWillBeSent"}


class Browser:
    """A page; ``received`` is everything that the page's terminal has received."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.received = ""
        self.events: list[dict[str, Any]] = []
        """Exceptions, log entries, and requests of the page."""

    async def listen(self) -> None:
        async for message in self._socket:
            payload = json.loads(message.data)
            if payload.get("method") in _EVENTS:
                self.events.append(payload)
            if "id" in payload:
                self._answers.pop(payload["id"]).set_result(payload)
            elif payload.get("method") == "Network.webSocketFrameReceived":
                frame = payload["params"]["response"]
                raw = frame["payloadData"]
                text = base64.b64decode(raw).decode(errors="replace") if frame["opcode"] == 2 else raw
                self.received += text

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
        """Waits until an expression in the page is true."""
        try:
            async with asyncio.timeout(SECONDS):
                while not await self.run(expression):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{expression}: {await self.run('document.body.innerText')}") from None

    async def press(self, key: str, code: int, text: str = "") -> None:
        """Presses a key that is not a character, by its name and Windows code."""
        key_event: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        await self.ask(
            "Input.dispatchKeyEvent", type="keyDown", **key_event, **({"text": text} if text else {})
        )
        await self.ask("Input.dispatchKeyEvent", type="keyUp", **key_event)

    async def picture(self, path: Path) -> None:
        """Saves a screenshot as PNG."""
        screenshot = await self.ask("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(screenshot["result"]["data"]))

    async def type(self, text: str) -> None:
        for character in text:
            await self.ask("Input.dispatchKeyEvent", type="keyDown", text=character, key=character)
            await self.ask("Input.dispatchKeyEvent", type="keyUp", key=character)

    async def enter(self, text: str = "") -> None:
        """Types a text, then presses Enter."""
        await self.type(text)
        await self.press("Enter", 13, "\r")

    async def click(self, x: int, y: int) -> None:
        event = {"x": x, "y": y, "button": "left", "clickCount": 1}
        await self.ask("Input.dispatchMouseEvent", type="mousePressed", **event)
        await self.ask("Input.dispatchMouseEvent", type="mouseReleased", **event)

    async def shows(self, text: str) -> None:
        async with asyncio.timeout(SECONDS):
            while text not in ESCAPES.sub("", self.received):  # a line may arrive in pieces
                await asyncio.sleep(0.05)


@contextmanager
def chromium(folder: Path) -> Iterator[int]:
    """The port of its debugging protocol."""
    assert CHROMIUM is not None
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run"]
    flags += [f"--user-data-dir={folder}", "--window-size=1200,800", "about:blank"]
    with subprocess.Popen(
        [CHROMIUM, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            until(lambda: file_lines(folder / "DevToolsActivePort"))
            yield int(file_lines(folder / "DevToolsActivePort")[0])
        finally:
            process.terminate()


@asynccontextmanager
async def browser(url: str, port: int) -> AsyncIterator[Browser]:
    """A separate page, which leaves no data for later ones."""
    async with aiohttp.ClientSession() as session:
        async with session.put(f"http://127.0.0.1:{port}/json/new?about:blank") as response:
            page = await response.json()
        async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            tab = Browser(socket)
            listener = asyncio.create_task(tab.listen())
            for domain in ("Network", "Runtime", "Log", "Page"):
                await tab.ask(f"{domain}.enable")
            await tab.ask("Emulation.setFocusEmulationEnabled", enabled=True)
            await tab.ask("Page.navigate", url=url)
            try:
                yield tab
            finally:
                await tab.ask("Storage.clearDataForOrigin", origin=url, storageTypes="all")
                await tab.ask("Page.close")
                listener.cancel()


def file_lines(path: Path) -> list[str]:
    """The lines of a file, none if it does not exist yet."""
    return path.read_text().splitlines() if path.exists() else []
