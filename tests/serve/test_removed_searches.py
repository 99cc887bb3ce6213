"""Searches that are removed or replaced while a client subscribes to them or looks them up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from starlette.types import Message

from skws.jobs.control import JobCommand
from skws.results.result import Result
from skws.serve.event_publisher import EventPublisher
from skws.serve.events import EventPosition
from skws.serve.measures import Measures
from skws.serve.routes import AppState, make_app
from skws.serve.saved import SavedSearch
from skws.serve.served_job import ServedJob
from skws.serve.server_options import StreamLimits
from skws.serve.streams import EventStreams
from skws.spec.query_spec import Query


class Job:
    """A job without results."""

    ready = True

    def __init__(self, hub: EventPublisher) -> None:
        self.hub = hub

    def check_ready(self) -> None:
        pass

    def alive(
        self, choose: Callable[[], Sequence[SavedSearch]]
    ) -> tuple[EventPosition, list[tuple[SavedSearch, list[Result]]]]:
        return self.hub.log.last, [(search, []) for search in choose()]


def publisher(*names: str) -> EventPublisher:
    hub = EventPublisher(None, 1 << 20, lambda: 0, lambda _: None)
    hub.take(1, [adding(name) for name in names], [], list)
    return hub


def adding(name: str, text: str = "ada lamp") -> JobCommand:
    return JobCommand.add(SavedSearch(Query(text, name=name)).tagged_query)


def stream_text(hub: EventPublisher, path: str, on_start: Callable[[], None]) -> str:
    """What a client receives until the stream ends. ``on_start`` is called before the snapshot is taken."""

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def answer() -> str:
        streams = EventStreams(StreamLimits())
        streams.begin(asyncio.get_running_loop())
        app = make_app(AppState(cast("ServedJob", Job(hub)), streams, Measures(streams, hub)))
        pieces: list[bytes] = []

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                assert message["status"] == 200
                on_start()
                streams.close()  # a stream that does not end by itself ends here
            else:
                pieces.append(message["body"])

        scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [],
        }
        await asyncio.wait_for(app(scope, receive, send), 20)
        return b"".join(pieces).decode()

    return asyncio.run(answer())


def test_a_search_removed_before_its_snapshot_ends_the_stream() -> None:
    hub = publisher("lamps", "sofas")

    def remove() -> None:
        hub.take(2, [JobCommand("remove", "lamps")], [], list)

    text = stream_text(hub, "/queries/lamps/events", remove)
    assert text.startswith("event: removed\n")
    assert "event: end" not in text


def test_a_snapshot_has_the_searches_of_its_instant() -> None:
    hub = publisher("lamps", "sofas")

    def change() -> None:
        hub.take(2, [JobCommand("remove", "lamps"), adding("chairs")], [], list)

    text = stream_text(hub, "/events", change)
    assert text.startswith(
        'event: snapshot\ndata: {"names":["sofas","chairs"],"reason":""}\n\nevent: ready\n'
    )


def test_a_replaced_search_is_never_missing() -> None:
    hub = publisher("lamps")

    class Watched(dict[str, SavedSearch]):
        def pop(self, name: str, *_: object) -> SavedSearch:
            raise AssertionError(name)

    hub.saved = Watched(hub.saved)
    hub.take(2, [JobCommand("remove", "lamps"), adding("lamps", "ada sofa")], [], list)
    assert hub.saved["lamps"].query.text == "ada sofa"
