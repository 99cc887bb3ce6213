"""A `skws serve` server in a separate process, and its clients."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import orjson

from tests.forked import forked_skws
from tests.jobs.watching import YAML
from tests.waiting import PATIENCE, until

TIMEOUT: Final = httpx.Timeout(PATIENCE)


class Serving:
    """A server process. ``url`` is set once it listens.

    ``program``: the Python that runs the server and receives its signals. By default, the server is a fork
    with its modules loaded, and another process forwards signals to it.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
        program: str | None = None,
    ) -> None:
        skws = forked_skws() if program is None else (program, "-m", "skws")
        self.process = subprocess.Popen(
            [*skws, "serve", *arguments, "--log-format", "json"],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
        )
        self.lines: list[dict[str, Any]] = []
        self.raw: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        until(lambda: self.url or self.process.poll() is not None, state=lambda: self.raw)

    @property
    def url(self) -> str:
        return next((str(line["url"]) for line in self.lines if line.get("event") == "serving"), "")

    @property
    def port(self) -> int:
        return httpx.URL(self.url).port or 0

    def client(self, **options: Any) -> httpx.Client:
        # Reading the certificates of all authorities, which no test needs, takes longer than a request.
        return httpx.Client(base_url=self.url, timeout=TIMEOUT, trust_env=False, verify=False, **options)

    def wait_until_ready(self) -> None:
        """Wait until the job has started."""
        with self.client() as client:
            until(lambda: self._answers(client), state=lambda: self.raw)

    def _answers(self, client: httpx.Client) -> bool:
        assert self.process.poll() is None, self.raw
        try:
            return client.get("/healthz").status_code == 200
        except httpx.ConnectError:
            return False  # it listens already, or is about to end

    def kill(self) -> None:
        self.process.kill()
        self.wait()

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Waits until the process has ended; returns its exit code."""
        code = self.process.wait(PATIENCE)
        self._reading.join()
        if self.process.stderr is not None:
            self.process.stderr.close()
        return code

    def _read(self) -> None:
        for line in self.process.stderr or ():
            self.raw.append(line.decode())
            try:
                self.lines.append(orjson.loads(line))
            except orjson.JSONDecodeError:
                continue


@contextmanager
def serving(
    *arguments: str, environment: Mapping[str, str] | None = None, program: str | None = None
) -> Iterator[Serving]:
    """A server that runs until the block ends."""
    server = Serving(["--port", "0", *arguments], environment, program)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.kill()


def shop(folder: Path) -> tuple[Path, Path]:
    """The schema of the shop, and an empty file for its records."""
    schema, stream = folder / "shop.yaml", folder / "stream.jsonl"
    schema.write_text(YAML)
    stream.touch()
    return schema, stream


class Stream:
    """A subscriber: collects the events of a stream in a thread until it ends or ``close`` is called."""

    def __init__(self, client: httpx.Client, path: str, last: str | None = None, **options: Any) -> None:
        self.events: list[tuple[str, str, Any]] = []
        """Kind, id and data."""
        self.last = last
        self.ended = False
        self.status = 0
        self._client = client
        self._path = path
        self._options = options
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self, condition: Callable[[], object]) -> None:
        until(condition, state=lambda: self.events)

    def wait_for(self, kind: str, times: int = 1) -> None:
        self.wait(lambda: len(self.of(kind)) >= times)

    def of(self, kind: str) -> list[Any]:
        return [data for event_kind, _, data in list(self.events) if event_kind == kind]

    def join(self) -> None:
        self._thread.join(PATIENCE)
        assert self.ended

    def _run(self) -> None:
        headers = {} if self.last is None else {"last-event-id": self.last}
        try:
            if self._client.is_closed:  # the test ended before this thread began
                return
            with self._client.stream("GET", self._path, headers=headers, **self._options) as response:
                self.status = response.status_code
                self._take(response.iter_lines())
        except httpx.HTTPError:
            pass
        finally:
            self.ended = True

    def _take(self, lines: Iterator[str]) -> None:
        kind, identity, data = "message", "", ""
        for line in lines:
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "id":
                identity = value
            elif name == "data":
                data += value
            elif not line:
                if data:
                    self.events.append((kind, identity, orjson.loads(data)))
                if identity:
                    self.last = identity
                kind, identity, data = "message", "", ""


def results(stream: Stream) -> list[tuple[str, str]]:
    """Operation and id of each result in a stream."""
    return [(one["result"]["op"], one["result"]["id"]) for one in stream.of("result")]
