"""The process that keeps a shard's mesh: found, restarted, and never used for another epoch."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import pytest

from skws.data.batch import Record
from skws.jobs.control import JobCommand
from skws.queries.partitioning.parts import Part, Partitioning
from skws.spark.preloaded import PreloadedPython
from skws.spark.streaming import shard_server
from skws.spark.streaming.messages import BatchAnswer, LogEnd
from skws.spark.streaming.shard_client import ShardClient, shut_down, socket_dir
from skws.spark.streaming.shard_server import ShardServer, servers_beside
from skws.spec.query_spec import Query
from skws_purging.lifespans import ALWAYS
from skws_schema.errors import MemoryBudgetError, UsageError
from skws_windows.window import TimeWindow
from tests.spark.streaming.shard_runs import micro_batch_of
from tests.spark.streaming.test_oracle_shards import shards_job
from tests.waiting import has_ended, until

SHARE = Part(0, 1, Partitioning.ROOTS)
REQUEST = shards_job(TimeWindow(10))


@pytest.fixture
def run() -> Iterator[str]:
    name = uuid4().hex[:12]
    yield name
    shut_down(name)


def work(client: ShardClient, epoch: int, *records: Record, commands: tuple[JobCommand, ...] = ()) -> str:
    answer = client.ask("work", epoch, micro_batch_of(records, commands).to_bytes(), False)
    return "done" if isinstance(answer, BatchAnswer) else answer


def stand(client: ShardClient, epoch: int) -> None:
    client.ask("begin", LogEnd(0, ALWAYS, None, ALWAYS), [], [], [], {})
    client.ask("seek", 0, 0, epoch)


def server_of(run: str) -> int:
    """The server's process: the one that has the run's socket open."""
    inodes = {
        line.split()[6] for line in Path("/proc/net/unix").read_text().splitlines() if f"-{run}/" in line
    }
    for process in Path("/proc").glob("[0-9]*"):
        try:
            links = {os.readlink(link) for link in (process / "fd").iterdir()}
        except OSError:
            continue
        if links & {f"socket:[{inode}]" for inode in inodes}:
            return int(process.name)
    raise AssertionError(run)


def test_a_mesh_is_kept_for_the_next_task(run: str) -> None:
    first = ShardClient(run, pickle.dumps(REQUEST), SHARE)
    assert work(first, 0) == "behind"
    stand(first, 0)
    assert work(first, 0, Record(0, 5, ("alpha", 1, 1))) == "done"
    first.close()
    second = ShardClient(run, pickle.dumps(REQUEST), SHARE)
    assert work(second, 1) == "done"
    second.close()


def test_a_repeated_batch_is_not_processed_twice(run: str) -> None:
    client = ShardClient(run, pickle.dumps(REQUEST), SHARE)
    stand(client, 0)
    assert work(client, 0) == "done"
    assert work(client, 0) == "behind"
    assert work(client, 2) == "behind"
    assert work(client, 1) == "done"
    client.close()


def test_an_error_is_raised_and_discards_the_mesh(run: str) -> None:
    client = ShardClient(run, pickle.dumps(REQUEST), SHARE)
    stand(client, 0)
    with pytest.raises(UsageError, match="no standing query 'x'"):
        work(client, 0, commands=(JobCommand("remove", "x"),))
    assert work(client, 0) == "behind"
    assert work(client, 1) == "behind"
    client.close()


def test_exhausted_memory_is_reported(run: str) -> None:
    client = ShardClient(run, pickle.dumps(replace(REQUEST, memory="64MiB")), SHARE)
    stand(client, 0)
    records = [Record(0, 5, ("alpha beta gamma" * 50, n, n)) for n in range(20_000)]
    with pytest.raises(MemoryBudgetError, match=r"memory budget of 64\.0 MiB is used up"):
        work(client, 0, *records, commands=(JobCommand.add(Query("alpha", name="q")),))
    assert work(client, 0) == "behind"
    client.close()


@pytest.mark.check
def test_memory_is_divided_by_the_servers_of_this_machine(run: str) -> None:
    """Not by the number of shards, most of which are on other machines."""
    first, second = (
        ShardClient(run, pickle.dumps(replace(REQUEST, memory="1GiB")), Part(number, 16, Partitioning.ROOTS))
        for number in range(2)
    )
    assert servers_beside(socket_dir(run) / "1.socket") == 2
    stand(first, 0)
    records = [Record(0, 5, ("alpha beta gamma" * 50, n, n)) for n in range(20_000)]  # more than 64 MiB
    assert work(first, 0, *records, commands=(JobCommand.add(Query("alpha", name="q")),)) == "done"
    first.close()
    second.close()


def listening(run: str, serve: Callable[[socket.socket], object]) -> Path:
    """The socket of a stand-in for a server, which ``serve`` handles in a thread."""
    path = socket_dir(run) / "0.socket"
    path.parent.mkdir(mode=0o700)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def accept() -> None:
        with listener, listener.accept()[0] as connection:
            serve(connection)

    Thread(target=accept, daemon=True).start()
    return path


def test_a_server_that_does_not_answer_is_abandoned(run: str) -> None:
    end = Event()
    path = listening(run, lambda _: end.wait(60))
    client = ShardClient(run, pickle.dumps(REQUEST), SHARE, silence=0.1)
    with pytest.raises(RuntimeError, match=r"^the server of a shard does not answer \(0\.1 s\)$"):
        work(client, 0)
    assert not path.exists()  # so the next task starts another one
    with pytest.raises(RuntimeError, match=r"^the server of a shard does not answer"):
        client.send("work", 0, bytes(1 << 22), False)  # more than fits into the socket's buffers
    end.set()
    client.close()


def test_a_slow_server_is_awaited(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_server, "HEARTBEAT_SECONDS", 0.02)

    class Slow(ShardServer):
        def answer(self, message: Sequence[Any]) -> Any:
            time.sleep(message[1])
            return "done"

    server = Slow(REQUEST, SHARE)
    listening(run, lambda way: shard_server.converse(Connection(way.detach()), server, lambda: True))
    client = ShardClient(run, pickle.dumps(REQUEST), SHARE, silence=0.2)
    assert client.ask("work", 0.5) == "done"
    client.close()


def test_a_killed_server_is_replaced_and_has_no_epoch(run: str) -> None:
    client = ShardClient(run, pickle.dumps(REQUEST), SHARE)
    stand(client, 3)
    server = server_of(run)
    os.kill(server, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="the server of a shard has gone"):
        work(client, 3)
    until(lambda: has_ended(server))
    client.close()
    second_client = ShardClient(run, pickle.dumps(REQUEST), SHARE)
    assert work(second_client, 3) == "behind"
    second_client.close()


def test_servers_end_with_their_sockets(run: str) -> None:
    ShardClient(run, pickle.dumps(REQUEST), SHARE).close()
    server = server_of(run)
    shut_down(run)
    assert not socket_dir(run).exists()
    until(lambda: has_ended(server))


ORPHAN = """
import os, pickle, sys, time
from skws.spark.streaming.shard_client import ShardClient

request, share = pickle.loads(sys.stdin.buffer.read())
os.setpgid(0, 0)
if os.fork():
    os._exit(0)
while os.getppid() == os.getpgrp():
    time.sleep(0.01)
ShardClient(sys.argv[1], request, share).close()
"""


@pytest.mark.slow
def test_a_server_ends_with_an_abandoned_worker(run: str) -> None:
    arguments = pickle.dumps((pickle.dumps(REQUEST), SHARE))
    subprocess.run([sys.executable, "-c", ORPHAN, run], input=arguments, check=True)
    until((socket_dir(run) / "0.log").exists)
    until(lambda: not socket_dir(run).exists())


def test_the_folder_of_sockets_is_private(run: str) -> None:
    ShardClient(run, pickle.dumps(REQUEST), SHARE).close()
    assert socket_dir(run).stat().st_mode & 0o077 == 0


def test_the_temporary_folder_may_have_a_long_path(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of a socket may not be that long."""
    deep_folder = tmp_path / ("d" * 100)
    deep_folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep_folder))  # like TMPDIR, for this test only
    client = ShardClient(run, pickle.dumps(REQUEST), SHARE)
    assert work(client, 0) == "behind"
    client.close()
    shut_down(run)
    PreloadedPython(()).close()


def test_a_folder_that_disappears_is_a_temporary_error(run: str, tmp_path: Path) -> None:
    """A server that ends removes the folder, perhaps just as another one starts."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nrm -r {socket_dir(run)}\n")
    program.chmod(0o755)
    with pytest.raises(RuntimeError, match=r"^the server of a shard has ended"):
        ShardClient(run, pickle.dumps(REQUEST), SHARE, python=str(program))
    with pytest.raises(FileNotFoundError, match="no-such-python"):
        ShardClient(run, pickle.dumps(REQUEST), SHARE, python=str(tmp_path / "no-such-python"))
