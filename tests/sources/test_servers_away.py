"""Temporary connection failures, and feeds that open once their server is available again."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from skws.data.batch import NOTHING, Chunk
from skws.sources.feed import Backlog, Batch, Feed, Offset, Source
from skws.sources.postgres.database_address import DatabaseAddress
from skws.sources.retry import GIVE_UP, RetryingFeed, retry
from skws_schema.errors import NotYetError, SourceError
from skws_schema.model import Schema
from tests.clocks import HandClock
from tests.postgres import Database
from tests.sources.film_database import SCHEMA


@contextmanager
def server_that_says(severity: str, code: str, text: str) -> Iterator[int]:
    """A server that answers every connection with a message of PostgreSQL's protocol; yields its port."""
    fields = b"".join(
        f"{kind}{value}\0".encode() for kind, value in (("S", severity), ("C", code), ("M", text))
    )
    answer = b"E" + struct.pack(">i", len(fields) + 5) + fields + b"\0"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    while request := connection.recv(8):
                        if struct.unpack(">ii", request)[1] in {80877103, 80877104}:  # encryption
                            connection.sendall(b"N")
                        else:
                            connection.recv(4096)
                            connection.sendall(answer)
                            break

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)


@pytest.mark.parametrize(
    ("code", "text", "is_temporary"),
    [
        ("57P03", "the database system is starting up", True),
        ("57P03", "the database system is shutting down", True),
        ("57P03", "the database system is not yet accepting connections", True),
        ("57P03", "the database system is in recovery mode", True),
        ("53300", "sorry, too many clients already", True),
        ("53300", "remaining connection slots are reserved for roles with the SUPERUSER attribute", True),
        ("28P01", 'password authentication failed for user "joe"', False),
        ("28000", 'role "joe" does not exist', False),
        (
            "28000",
            'no pg_hba.conf entry for host "127.0.0.1", user "joe", database "x", no encryption',
            False,
        ),
        ("3D000", 'database "x" does not exist', False),
    ],
)
def test_which_server_errors_are_temporary(code: str, text: str, is_temporary: bool) -> None:
    with server_that_says("FATAL", code, text) as port:
        for connect in ("connect", "connect_for_replication"):
            address = DatabaseAddress.of(f"postgresql://joe:hush@127.0.0.1:{port}/x")
            if is_temporary and connect == "connect_for_replication":
                continue  # psycopg2's own error, for callers that retry
            with pytest.raises(SourceError, match=text.partition("(")[0]) as error:
                getattr(address, connect)()
            assert isinstance(error.value, NotYetError) is is_temporary
            assert "hush" not in str(error.value)


@pytest.mark.parametrize(
    ("address", "message", "is_temporary"),
    [
        ("postgresql://joe@127.0.0.1:1/x", "Connection refused", True),
        ("postgresql://joe@nonesuch.invalid/x", "could not translate host name", True),
        ("postgresql://joe@/x?host=/nonesuch", "No such file or directory", True),
        ("postgresql://joe@127.0.0.1:1,127.0.0.1:2/x", "Connection refused", True),
        ("postgresql:///x?service=nonesuch", "definition of service", False),
        ("postgresql://joe@127.0.0.1:{port}/x", "no password supplied", False),
        ("postgresql://joe:wrong@127.0.0.1:{port}/x", "password authentication failed", False),
        ("postgresql://joe:wrong@127.0.0.1:1,127.0.0.1:{port}/x", "password authentication failed", False),
        ("postgresql://joe:wrong@127.0.0.1:{port}/x?sslmode=require", "SSL was required", False),
    ],
)
def test_which_connection_failures_are_temporary(
    database: Database, monkeypatch: pytest.MonkeyPatch, address: str, message: str, is_temporary: bool
) -> None:
    monkeypatch.setenv("PGPASSFILE", "/nonesuch")
    with pytest.raises(SourceError, match=message) as error:
        DatabaseAddress.of(address.format(port=database.server.port)).connect()
    assert isinstance(error.value, NotYetError) is is_temporary


def test_waiting_reports_each_attempt_and_ends_with_the_run() -> None:
    clock, reports, failures = HandClock(), list[str](), iter((True, True, False))

    def wait(seconds: float) -> bool:
        clock.sleep(int(seconds * 1_000_000))
        return len(reports) < 3

    def attempt() -> str:
        if next(failures):
            raise NotYetError("it is away")
        return "there"

    assert retry(attempt, clock, wait, reports.append) == "there"
    assert reports == ["it is away; trying again in 0.1 s", "it is away; trying again in 0.2 s"]
    failures = iter((True,) * 9)
    assert retry(attempt, clock, wait, reports.append) is None
    assert len(reports) == 3


def test_waiting_ends_after_a_limit() -> None:
    clock = HandClock()

    def attempt() -> str:
        raise NotYetError("it is away")

    def wait(seconds: float) -> bool:
        clock.sleep(int(seconds * 1_000_000))
        return True

    with pytest.raises(SourceError, match=r"it is away \(tried for 300 seconds\)") as error:
        retry(attempt, clock, wait, lambda _: None)
    assert not isinstance(error.value, NotYetError)
    assert GIVE_UP <= clock.micros <= GIVE_UP + 11_000_000


class LateSource(Source, Feed):
    """A source and feed that are unavailable at the first attempts."""

    name = "late"
    bounded = False
    local_only = False
    tables_pending = False

    def __init__(self, tries: int) -> None:
        self.tries = tries
        self.calls: list[str] = []

    def open(self, schema: Schema) -> Feed:
        self.tries -= 1
        if self.tries >= 0:
            raise NotYetError("late: it is away")
        self.calls.append(f"open {schema.name}")
        return self

    def start(self) -> Offset:
        return {"at": 0}

    def tables(self) -> Iterator[Chunk]:
        return iter(())

    def poll(self, start: Offset, limit: int) -> Batch:
        return Batch(NOTHING, {"at": start["at"] + limit}, ("polled",))

    def replay(self, start: Offset, end: Offset) -> Chunk:
        self.calls.append("replay")
        return NOTHING

    def commit(self, end: Offset) -> None:
        self.calls.append("commit")

    def backlog(self, offset: Offset) -> Backlog:
        return Backlog("behind")

    def change_schema(self, schema: Schema) -> None:
        self.calls.append(f"change {schema.name}")

    def close(self) -> None:
        self.calls.append("close")


def test_a_feed_is_empty_until_its_server_is_available() -> None:
    clock, late_source = HandClock(), LateSource(2)
    with closing(RetryingFeed(late_source, SCHEMA, clock)) as feed:
        first = feed.poll({"at": 5}, 7)
        assert first == Batch(
            NOTHING, {"at": 5}, ("late: it is away; trying again in 0.1 s",), answered=False
        )
        assert feed.poll({"at": 5}, 7) == Batch(NOTHING, {"at": 5}, answered=False)
        assert feed.backlog({"at": 5}) == Backlog()
        feed.commit({"at": 5})
        feed.change_schema(Schema("other", SCHEMA.relations, SCHEMA.joins))
        clock.sleep(100_000)
        assert feed.poll({"at": 5}, 7).notices == ("late: it is away; trying again in 0.2 s",)
        clock.sleep(200_000)
        assert feed.poll({"at": 5}, 7) == Batch(
            NOTHING, {"at": 12}, ("late: connected again, continuing", "polled")
        )
        assert feed.poll({"at": 12}, 7).notices == ("polled",)
        assert feed.backlog({"at": 5}) == Backlog("behind")
    assert late_source.calls == ["open other", "close"]


def test_reading_again_fails_until_the_server_is_available() -> None:
    late_source = LateSource(3)
    feed = RetryingFeed(late_source, SCHEMA, HandClock())
    for _ in range(2):
        with pytest.raises(NotYetError, match="it is away"):
            feed.replay({"at": 0}, {"at": 1})
    assert list(feed.replay({"at": 0}, {"at": 1})) == []
    assert late_source.calls == ["open films", "replay"]


def test_a_rejected_feed_is_not_awaited() -> None:
    class Refused(LateSource):
        def open(self, schema: Schema) -> Feed:
            raise SourceError("no right to read")

    with pytest.raises(SourceError, match="no right"):
        RetryingFeed(Refused(0), SCHEMA, HandClock())


def test_an_unavailable_server_ends_the_run() -> None:
    clock = HandClock()
    feed = RetryingFeed(LateSource(99), SCHEMA, clock)
    clock.sleep(GIVE_UP + 1)
    with pytest.raises(SourceError, match="tried for 300 seconds"):
        feed.poll({"at": 0}, 1)
