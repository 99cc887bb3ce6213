"""Valid and invalid values of --source; passwords are never shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.sources.addresses import parse_source, replay_address
from skws.sources.feed import redacted, replay_path
from skws.sources.growing_files import FilesSource
from skws.sources.postgres.change_feed import PostgresSource
from skws.sources.replays import ReplaySource
from skws.sources.sqlite import SnapshotSource
from skws.sources.stdin import StdinSource
from skws_schema.errors import SourceError, UsageError
from tests.sources.film_database import SCHEMA


def test_addresses_have_their_kinds_of_sources() -> None:
    assert isinstance(parse_source("-"), StdinSource)
    assert parse_source("-").local_only
    assert parse_source("some/folder") == FilesSource(Path("some/folder"))
    assert parse_source("file:///some/folder") == FilesSource(Path("/some/folder"))
    replay = parse_source("replay:a?b.jsonl?speed=2.5")
    assert isinstance(replay, ReplaySource)
    assert (replay.path, replay.speed) == (Path("a?b.jsonl"), 2.5)
    assert replay.name == "replay:a?b.jsonl?speed=2.5"
    assert replay_path("replay:a?b.jsonl?speed=2.5") == ("a?b.jsonl", "speed=2.5")
    assert parse_source("SHOP.DB") == SnapshotSource("SHOP.DB")


@pytest.mark.parametrize("path", ["day.jsonl", "a?b.jsonl", "?", "a?speed=3"])
def test_the_address_of_a_replay_has_any_path(path: str) -> None:
    assert replay_path(replay_address(Path(path))) == (path, "")
    replay = parse_source(replay_address(Path(path)))
    assert isinstance(replay, ReplaySource)
    assert replay.path == Path(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the source is empty"),
        ("postgresq://h/d", "no source is called postgresq://; did you mean 'postgresql'"),
        ("mysql://joe:secret@h/d", r"mysql://joe:\*\*\*@h/d: no source is called"),
        ("replay:", "expected replay:PATH"),
        ("replay:x?speed=0", "speed=0: expected a number above 0"),
        ("replay:x?speed=inf", "speed=inf"),
        ("replay:x?sped=1", "no parameter 'sped'; did you mean 'speed'"),
        ("postgresql://h/d?slot=Not%20This", "slot 'Not This': expected lower-case letters"),
        ("postgresql://h/d?snapshot=maybe", "snapshot=maybe: expected yes or no"),
        ("postgresql://joe:p%e4ss@h/d", r"postgresql://joe:\*\*\*@h/d: not UTF-8"),
        ("postgresql://h/d\udcff", "not UTF-8"),
        ("postgresql://h/d?slott=x", "invalid URI query parameter: .slott"),
    ],
)
def test_invalid_sources_are_rejected(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_source(text)


SECRETS = [
    "postgresql://joe:{}@host/db",
    "postgresql://host/db?user=joe&password={}",
    "postgresql://host/db?password={}&sslmode=prefer",
    "host=h password={} user=joe",
    "host=h password='{}' user=joe",
    "PGPASSWORD={} psql",
]


@pytest.mark.parametrize("form", SECRETS)
@given(secret=st.text("abcXYZ019%@:/?#-_.~!", min_size=12))
def test_passwords_are_hidden(form: str, secret: str) -> None:
    assert secret not in redacted(form.format(secret))


def test_addresses_without_secrets_are_unchanged() -> None:
    assert redacted("postgresql://joe@host:5432/db?slot=x") == "postgresql://joe@host:5432/db?slot=x"
    assert redacted("postgresql://joe:s3@host:5432/db?slot=x") == "postgresql://joe:***@host:5432/db?slot=x"


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://joe:hunter2hunter2@127.0.0.1:1/db",
        "postgresql://joe@127.0.0.1:1/db?password=hunter2hunter2",
        "postgresql://joe:hunter2hunter2%zz@127.0.0.1:1/db",
        "postgresql://joe:hunter2hunter2@127.0.0.1:port/db",
        "postgresql://joe:hunter2hunter2@127.0.0.1:1/db?nothing=x",
        "postgresql://joe:hunter2hunter2/x@[::1/db",
        "postgresql://joe:a@hunter2hunter2@127.0.0.1:1/db",
        "postgresql://joe:hunter2hunter2@[::1/db",
    ],
)
def test_no_error_shows_the_password(uri: str) -> None:
    with pytest.raises((SourceError, UsageError)) as error:
        parse_source(uri).open(SCHEMA)
    assert "hunter2" not in str(error.value)
    assert error.value.__cause__ is None
    assert "postgresql://" in str(error.value)


def test_an_address_does_not_show_its_password() -> None:
    source = parse_source("postgresql://joe:hunter2hunter2@h/db?sslmode=prefer")
    assert source.name == "postgresql://joe:***@h/db?sslmode=prefer"
    assert "hunter2" not in repr(source)


def test_parameters_for_libpq_are_passed_unchanged() -> None:
    source = parse_source("postgresql://joe@h/db?slot=mine&options=-c%20a%3Db&password=a+b%26&snapshot=no")
    assert isinstance(source, PostgresSource)
    address = source.address
    assert (address.slot, address.publication, address.snapshot) == ("mine", None, False)
    assert address.parameters["options"] == "-c a=b"
    assert address.parameters["password"] == "a+b&"
    assert "slot" not in address.parameters
