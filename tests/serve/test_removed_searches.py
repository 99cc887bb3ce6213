"""Snapshots of streams, while searches are removed or replaced."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from starlette.types import Message

from skws.jobs.control import JobCommand
from skws.keywords.match import Span
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
from tests.jobs.test_sinks import result


class Job:
    """A job; each of its searches has the same results. It records the threads that find marks."""

    ready = True

    def __init__(self, publisher: EventPublisher, results: Sequence[Result] = ()) -> None:
        self.hub = publisher
        self.marking_threads: list[int] = []
        self._results = list(results)

    def check_ready(self) -> None:
        pass

    def alive(
        self, choose: Callable[[], Sequence[SavedSearch]], seconds: float
    ) -> tuple[EventPosition, list[tuple[SavedSearch, list[Result]]]]:
        return self.hub.log.last, [(search, self._results) for search in choose()]

    def marks(self, query: str) -> Callable[[str, str, str], list[Span]]:
        def found(*_: str) -> list[Span]:
            self.marking_threads.append(threading.get_ident())
            return [(0, 3, 0)]

        return found


def open_publisher(*names: str) -> EventPublisher:
    publisher = EventPublisher(None, 1 << 20, lambda: 0, lambda _: None)
    publisher.take(1, [addition(name) for name in names], [], list)
    return publisher


def addition(name: str, text: str = "ada lamp") -> JobCommand:
    return JobCommand.add(SavedSearch(Query(text, name=name)).tagged_query)


def stream_text(
    job: Job,
    path: str,
    on_start: Callable[[], None],
    parameters: bytes = b"",
) -> str:
    """The text that a client receives. ``on_start`` is called before the snapshot is taken."""

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def answer() -> str:
        streams = EventStreams(StreamLimits())
        streams.begin(asyncio.get_running_loop())
        app = make_app(AppState(cast("ServedJob", job), streams, Measures(streams, job.hub)))
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
            "query_string": parameters,
            "headers": [],
        }
        await asyncio.wait_for(app(scope, receive, send), 20)
        return b"".join(pieces).decode()

    return asyncio.run(answer())


def test_a_search_removed_before_its_snapshot_ends_the_stream() -> None:
    publisher = open_publisher("lamps", "sofas")

    def remove() -> None:
        publisher.take(2, [JobCommand("remove", "lamps")], [], list)

    text = stream_text(Job(publisher), "/queries/lamps/events", remove)
    assert text.startswith("event: removed\n")
    assert "event: end" not in text


def test_a_snapshot_has_the_searches_of_its_instant() -> None:
    publisher = open_publisher("lamps", "sofas")

    def change() -> None:
        publisher.take(2, [JobCommand("remove", "lamps"), addition("chairs")], [], list)

    text = stream_text(Job(publisher), "/events", change)
    assert text.startswith(
        'event: snapshot\ndata: {"names":["sofas","chairs"],"reason":""}\n\nevent: ready\n'
    )


@pytest.mark.parametrize("of", ["search", "all"])
def test_marks_are_not_found_in_the_thread_of_the_server(of: str) -> None:
    """In texts of megabytes, this takes long and would block all other clients."""
    job = Job(open_publisher("lamps"), [result(1), result(2)])
    path = "/queries/lamps/events" if of == "search" else "/events"
    text = stream_text(job, path, lambda: None, b"marks=true")
    assert text.count('"marks":{"name":[[0,3,0]]}') == len(job.marking_threads) == 2
    assert threading.get_ident() not in job.marking_threads


def test_a_replaced_search_is_never_missing() -> None:
    publisher = open_publisher("lamps")

    class Watched(dict[str, SavedSearch]):
        def pop(self, name: str, *_: object) -> SavedSearch:
            raise AssertionError(name)

    publisher.saved = Watched(publisher.saved)
    publisher.take(2, [JobCommand("remove", "lamps"), addition("lamps", "ada sofa")], [], list)
    assert publisher.saved["lamps"].query.text == "ada sofa"
