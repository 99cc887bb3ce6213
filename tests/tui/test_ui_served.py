"""The terminal UI in a browser: Chromium, headless, driven by its own debugging protocol."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from yarl import URL

from skws.cli.demo import movie_files
from tests.browser import CHROMIUM, SECONDS, browser, chromium
from tests.tui.ui import SPEED, free_port, scenario

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
    with chromium(tmp_path / "profile") as port:
        async with browser(str(served), port) as page:
            await page.shows("Travolta")
            await page.click(200, 27)  # the second line: where keywords are typed
            await page.type("nolan bale")
            await page.shows("nolan 2 · bale 1")  # so many live tuples have them
            await page.enter()
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
