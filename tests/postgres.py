"""A private PostgreSQL server for tests: with its own directory and a free port, without root privileges."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp

import psycopg2
import pytest

from tests.ports import free_port

PASSWORD = "s3cret/pass@word"
_QUOTED_PASSWORD = "s3cret%2Fpass%40word"
_FREE_BYTES = 4 << 30
"""The least free memory for databases, in bytes: several times the size of a few hundred."""
_UNLIMITED = "-c statement_timeout=0"
"""Options that exempt the statements of tests from the limits of a database."""
_SETTINGS = (
    "wal_level=logical",
    "max_wal_senders=20",
    "max_replication_slots=20",
    "max_connections=60",
    "fsync=off",
    "shared_buffers=16MB",
    "logging_collector=off",
    "timezone=Asia/Kolkata",
    "datestyle=German",
    "extra_float_digits=-5",
)


def binaries() -> Path | None:
    """The folder of the server's programs."""
    pg_ctl = shutil.which("pg_ctl")
    folders = [Path(pg_ctl).resolve().parent] if pg_ctl else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


class Server:
    """A server; ``uri`` is the address of a database, with its password."""

    def __init__(self, programs: Path, *settings: str) -> None:
        """``settings``: more settings as ``name=value``."""
        self._programs = programs
        self._settings = (*_SETTINGS, *settings)
        self.folder = Path(mkdtemp(prefix="skws-pg-", dir=_roomy_folder()))
        self._user = _unprivileged()
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        self.port = free_port()
        self._data = self.folder / "data"
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        self._run(
            "initdb",
            "--no-sync",
            "-D",
            self._data,
            "-U",
            "owner",
            "-A",
            "scram-sha-256",
            "-E",
            "UTF8",
            f"--pwfile={secret}",
        )

    def start(self) -> None:
        settings = " ".join(f"-c {setting}" for setting in self._settings)
        address_options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1"
        log = self.folder / "log"
        self._run("pg_ctl", "-D", self._data, "-w", "-l", log, "-o", f"{settings} {address_options}", "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", self._data, "-w", "-m", mode, "stop")

    def restore(self) -> None:
        """Starts as from a backup, on a new timeline. Returns when the server accepts writes."""
        (self._data / "recovery.signal").touch()
        self._settings = (*self._settings, "restore_command=false")
        self.start()
        connection = psycopg2.connect(self.uri("postgres"))
        connection.autocommit = True
        with closing(connection), connection.cursor() as cursor:
            recovering = True
            while recovering:  # the start returns before the recovery ends
                cursor.execute("SELECT pg_is_in_recovery()")
                ((recovering,),) = cursor.fetchall()

    def uri(self, database: str, **parameters: str) -> str:
        query = "&".join(f"{name}={value}" for name, value in parameters.items())
        return f"postgresql://owner:{_QUOTED_PASSWORD}@127.0.0.1:{self.port}/{database}" + (
            f"?{query}" if query else ""
        )

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: object) -> None:
        # A file, since the server would keep a pipe open, and the test would wait for it.
        with TemporaryFile() as output:
            process = subprocess.run(
                [str(self._programs / program), *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                user=self._user,
                cwd=self.folder,
                check=False,
            )
            output.seek(0)
            assert process.returncode == 0, output.read().decode(errors="replace")


class Database:
    """A separate database: statements commit at once, unless run as a transaction of several."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name

    def uri(self, **parameters: str) -> str:
        return self.server.uri(self.name, **parameters)

    def run(self, *statements: str) -> None:
        """Runs all statements in one transaction."""
        connection = psycopg2.connect(self.uri(), options=_UNLIMITED)
        try:
            with connection, connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
        finally:
            connection.close()

    def ask(self, statement: str) -> list[tuple[object, ...]]:
        connection = psycopg2.connect(self.uri(), options=_UNLIMITED)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)
                rows: list[tuple[object, ...]] = cursor.fetchall()
                return rows
        finally:
            connection.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """One server for all tests; skips if PostgreSQL is not installed, except in CI."""
    programs = binaries()
    if programs is None:
        assert not os.environ.get("CI"), "PostgreSQL has to be installed on CI (apt-get install postgresql)"
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    server = Server(programs)
    try:
        server.start()
        yield server
        server.stop("immediate")
    finally:
        server.remove()


@pytest.fixture
def database(postgres_server: Server, request: pytest.FixtureRequest) -> Iterator[Database]:
    """An empty database, dropped with its slots after the test."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**9}x{time.monotonic_ns()}"
    admin = Database(postgres_server, "postgres")
    run_outside_transaction(admin, f"CREATE DATABASE {name}")
    yield Database(postgres_server, name)
    slots_of_database = f"FROM pg_replication_slots WHERE database = '{name}'"
    admin.ask(f"SELECT pg_terminate_backend(active_pid) {slots_of_database} AND active_pid IS NOT NULL")
    for _ in range(100):
        if not admin.ask(f"SELECT 1 {slots_of_database} AND active"):
            break
        time.sleep(0.05)
    admin.ask(f"SELECT pg_drop_replication_slot(slot_name) {slots_of_database}")
    run_outside_transaction(admin, f"DROP DATABASE {name} WITH (FORCE)")


def run_outside_transaction(admin: Database, statement: str) -> None:
    """Runs a statement outside of a transaction."""
    connection = psycopg2.connect(admin.uri())
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement)
    finally:
        connection.close()


def _roomy_folder() -> str:
    """A folder in memory, if it has space, where databases are created and dropped ten times as fast."""
    memory = "/dev/shm"
    return memory if os.path.isdir(memory) and shutil.disk_usage(memory).free > _FREE_BYTES else "/tmp"


def _unprivileged() -> str | None:
    """The user to run the server as if the tests run as root, which the server rejects."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
