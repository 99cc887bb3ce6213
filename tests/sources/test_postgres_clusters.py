"""A run resumes only at the server whose log its offset refers to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from skws.sources.feed import Feed
from skws_schema.errors import SourceError
from tests.postgres import Database, Server, binaries, run_outside_transaction
from tests.sources.film_database import TABLES, follow, insert, movies, open_feed, rows_of


@pytest.fixture
def own_database(postgres_server: Server) -> Iterator[Database]:
    """A database on a separate server, which a test may stop and change."""
    programs = binaries()
    assert programs is not None
    assert postgres_server.port
    server = Server(programs)
    try:
        server.start()
        run_outside_transaction(Database(server, "postgres"), "CREATE DATABASE films")
        yield Database(server, "films")
        server.stop("immediate")
    finally:
        server.remove()


def test_another_cluster_at_the_address_is_rejected(database: Database, own_database: Database) -> None:
    for cluster in (database, own_database):
        cluster.run(*TABLES, insert(1, 3))
    with closing(open_feed(database)) as feed:
        _, offset, _ = follow(feed, database, feed.start())
    with closing(open_feed(own_database)) as feed:
        _, own_offset, _ = follow(feed, own_database, feed.start())
        feed.poll(own_offset, 10)
    message = r"belongs to the cluster .*, but this is"
    with closing(open_feed(own_database)) as feed, pytest.raises(SourceError, match=message):
        feed.poll(offset, 10)


@pytest.mark.check
def test_a_server_restored_from_before_the_offset_is_rejected(own_database: Database) -> None:
    """Its files were copied, with the slot; then the run continued."""
    own_database.run(*TABLES, insert(1, 3))
    with closing(open_feed(own_database)) as feed:
        _, offset, _ = follow(feed, own_database, feed.start())
    server = own_database.server
    server.stop()
    copy_with_owners(server.folder / "data", server.folder / "backup")
    server.start()
    own_database.run(insert(4, 6), "SELECT pg_logical_emit_message(true, 'x', repeat('x', 3000000))")
    with closing(open_feed(own_database)) as feed:
        _, offset, _ = follow(feed, own_database, offset)
    server.stop()
    shutil.rmtree(server.folder / "data")
    (server.folder / "backup").rename(server.folder / "data")
    server.start()
    assert "was restored to a state before the saved offset" in refusal(open_feed(own_database), offset)
    server.stop()
    server.restore()  # restored in another way, to another timeline
    own_database.run("SELECT pg_logical_emit_message(true, 'x', repeat('x', 9000000))")
    assert "was restored to a state before the saved offset" in refusal(open_feed(own_database), offset)


def copy_with_owners(source: Path, target: Path) -> None:
    """Keep the owner of each file, since the server's user differs from that of the tests."""
    shutil.copytree(source, target)
    for path in (source, *source.rglob("*")):
        owner = path.stat()
        os.chown(target / path.relative_to(source), owner.st_uid, owner.st_gid)


@pytest.mark.check
def test_a_run_resumes_on_a_later_timeline_with_its_log(own_database: Database) -> None:
    own_database.run(*TABLES, insert(1, 3))
    with closing(open_feed(own_database)) as feed:
        items, offset, _ = follow(feed, own_database, feed.start())
    own_database.server.stop()
    own_database.server.restore()
    own_database.run(insert(4, 6))
    with closing(open_feed(own_database)) as feed:
        later_items, later_offset, _ = follow(feed, own_database, offset)
    assert rows_of(items + later_items) == movies(*range(1, 7))
    assert (offset["server"][1], later_offset["server"][1]) == (1, 2)
    with closing(open_feed(own_database)) as feed:
        own_database.run(insert(7, 7))
        assert rows_of(follow(feed, own_database, later_offset)[0]) == movies(7)


def refusal(feed: Feed, offset: dict[str, object]) -> str:
    with closing(feed), pytest.raises(SourceError) as error:
        feed.poll(offset, 10)
    return str(error.value)
