"""A subscriber that is too slow is ended and counted; others get their events meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.types import Message

from skws.serve.events import START, Event, Position
from skws.serve.hub import Hub
from skws.serve.streams import EventStream, StreamLimits, Streams, Subscription


class Client:
    """Takes what is sent; after ``most`` pieces nothing more."""

    def __init__(self, most: int) -> None:
        self.text = ""
        self._left = most

    async def send(self, message: Message) -> None:
        if message["type"] != "http.response.body":
            return
        if not self._left:
            await asyncio.Event().wait()
        self._left -= 1
        self.text += message["body"].decode()

    async def receive(self) -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    @property
    def numbers(self) -> list[int]:
        lines = [line for line in self.text.splitlines() if line.startswith("data: {")]
        return [int(line.rpartition(":")[2].rstrip("}")) for line in lines if '"n"' in line]


def events(first: int, last: int) -> list[Event]:
    return [Event(Position(n, 1), "result", ("x",), b'{"n":%d}' % n) for n in range(first, last + 1)]


def opened(hub: Hub, streams: Streams, client: Client) -> asyncio.Task[None]:
    async def snapshot() -> AsyncIterator[bytes]:
        yield b"event: ready\n\n"

    def show(event: Event, names: Any) -> bytes:
        assert list(names) == ["x"]
        return event.data

    stream = EventStream(hub, streams, Subscription("x", at=Position(*START)), snapshot, show)
    return asyncio.create_task(stream({}, client.receive, client.send))


async def until_it_has(client: Client, number: int) -> None:
    async with asyncio.timeout(20):
        while number not in client.numbers:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("kept", [1 << 20, 20], ids=["all", "few"])
def test_a_stream_that_falls_behind(kept: int) -> None:
    """By more events than it may, or by events that are no longer kept."""

    async def scenario() -> None:
        streams = Streams(StreamLimits(behind=3))
        streams.begin(asyncio.get_running_loop())
        hub = Hub(None, kept, lambda: 0, streams.wake)
        hub.log.append(events(1, 5))
        client = Client(99)
        await asyncio.wait_for(opened(hub, streams, client), 20)
        assert "event: behind" in client.text
        assert client.numbers == []
        assert (streams.slow, len(streams)) == (1, 0)

    asyncio.run(scenario())


def test_a_client_that_takes_nothing() -> None:
    async def scenario() -> None:
        streams = Streams(StreamLimits(stalled=0.5))
        streams.begin(asyncio.get_running_loop())
        hub = Hub(None, 1 << 20, lambda: 0, streams.wake)
        stuck, reading = Client(2), Client(99)
        ends, goes_on = opened(hub, streams, stuck), opened(hub, streams, reading)
        for number in range(1, 9):
            hub.log.append(events(number, number))
            streams.wake(["x"])
            await until_it_has(reading, number)
        await asyncio.wait_for(ends, 20)
        assert stuck.numbers == [1]
        assert (streams.slow, len(streams)) == (1, 1)
        hub.log.append(events(9, 9))
        streams.wake(["x"])
        await until_it_has(reading, 9)
        assert reading.numbers == list(range(1, 10))
        streams.close()
        await asyncio.wait_for(goes_on, 20)
        assert "event: end" in reading.text

    asyncio.run(scenario())
