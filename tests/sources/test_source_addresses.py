"""Valid and invalid values of --source; no password is shown."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.sources.addresses import parse_source
from skws.sources.feed import redacted
from skws.sources.files import FilesSource
from skws.sources.kafka.address import Address, Begin, Form, Lost, Settings
from skws.sources.kafka.client import Client
from skws.sources.postgres.feed import PostgresSource
from skws.sources.replays import ReplaySource
from skws.sources.stdin import StdinSource
from skws_schema.errors import SchemaError, SkwsError, SourceError, UsageError
from skws_schema.model import Schema


def test_kinds() -> None:
    assert isinstance(parse_source("-"), StdinSource)
    assert parse_source("-").local_only
    assert parse_source("some/folder") == FilesSource(Path("some/folder"))
    assert parse_source("file:///some/folder") == FilesSource(Path("/some/folder"))
    paced = parse_source("replay:a?b.jsonl?speed=2.5")
    assert isinstance(paced, ReplaySource)
    assert (paced.path, paced.speed) == (Path("a?b.jsonl"), 2.5)
    assert paced.name == "replay:a?b.jsonl?speed=2.5"


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
        ("postgresql://h/d?slott=x", "invalid URI query parameter: .slott"),
    ],
)
def test_what_is_no_source(text: str, message: str) -> None:
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


def test_what_is_no_secret_stays() -> None:
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
    from tests.sources.following import SCHEMA

    with pytest.raises((SourceError, UsageError)) as raised:
        parse_source(uri).open(SCHEMA)
    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert "postgresql://" in str(raised.value)


def test_an_address_does_not_show_its_password() -> None:
    parsed = parse_source("postgresql://joe:hunter2hunter2@h/db?sslmode=prefer")
    assert parsed.name == "postgresql://joe:***@h/db?sslmode=prefer"
    assert "hunter2" not in repr(parsed)


def test_what_is_for_libpq_reaches_it_as_written() -> None:
    parsed = parse_source("postgresql://joe@h/db?slot=mine&options=-c%20a%3Db&password=a+b%26&snapshot=no")
    assert isinstance(parsed, PostgresSource)
    address = parsed.address
    assert (address.slot, address.publication, address.snapshot) == ("mine", None, False)
    assert address.parameters["options"] == "-c a=b"
    assert address.parameters["password"] == "a+b&"
    assert "slot" not in address.parameters


def _forget(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Have modules imported anew by this test; others go on with those that were there."""
    for name in [name for name in sys.modules if name.startswith(modules)]:
        monkeypatch.delitem(sys.modules, name)
        package, _, own = name.rpartition(".")
        if package in sys.modules:
            monkeypatch.delattr(sys.modules[package], own, raising=False)


def test_without_psycopg2_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    _forget(monkeypatch, "psycopg2", "skws.sources.postgres")
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    with pytest.raises(SourceError, match=r"PostgreSQL needs psycopg2: pip install 'skws\[postgres\]'"):
        parse_source("postgresql://h/d")


def test_without_confluent_kafka_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    _forget(monkeypatch, "confluent_kafka", "skws.sources.kafka")
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(
        SourceError, match=r"Kafka needs confluent_kafka: pip install 'skws\[kafka\]'"
    ) as raised:
        parse_source("kafka://h/t").open(Schema("none", (), ()))
    assert raised.value.exit_code == 4


def test_all_parts() -> None:
    address = Address.of(
        "kafka://one,two:9093,[::1]:9/a.b,c-d?from=latest&format=rows&lost=skip&group=g%20h&config=/x/y"
    )
    assert address == Address(
        ("one:9092", "two:9093", "[::1]:9"),
        ("a.b", "c-d"),
        Begin.LATEST,
        Form.ROWS,
        Lost.SKIP,
        "g h",
        Path("/x/y"),
    )
    assert parse_source("kafka://h/t?config=/secret/place").name == "kafka://h:9092/t"
    assert Address.of("kafka://h").topics == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kafka://joe:hunter2@h/t", r"kafka://joe:\*\*\*@h/t: no user or password in the address"),
        ("kafka:///t", "'' is not a broker: expected HOST or HOST:PORT"),
        ("kafka://h:99999/t", "'h:99999' is not a broker"),
        ("kafka://h/t,", "invalid topic name ''"),
        ("kafka://h/a b", "invalid topic name 'a b'"),
        ("kafka://h/t?from=yesterday", "from=yesterday: expected earliest or latest"),
        ("kafka://h/t?form=rows", "no parameter 'form'; did you mean 'format'"),
        ("kafka://h/t?sasl.password=hunter2", "no parameter 'sasl.password'"),
        ("kafka://h/t?group=", "group= is empty"),
    ],
)
def test_what_is_no_address(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        parse_source(text)
    assert "hunter2" not in str(raised.value)


def test_settings_come_from_a_file_and_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# of the cluster\nsecurity.protocol=SASL_SSL\n\nsasl.username = joe\nsasl.password=a=b=c\n"
    )
    environment = {"SKWS_KAFKA_CONFIG": str(file), "SKWS_KAFKA_SASL_USERNAME": "ann", "KAFKA_X": "y"}
    values = Settings.of(Address.of("kafka://h/t?group=mine"), environment).values
    assert values["security.protocol"] == "SASL_SSL"
    assert (values["sasl.username"], values["sasl.password"]) == ("ann", "a=b=c")
    assert (values["bootstrap.servers"], values["group.id"]) == ("h:9092", "mine")
    assert values["auto.offset.reset"] == "error"
    assert "config" not in values


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("enable.auto.commit=true", "enable.auto.commit: skws sets it"),
        ("bootstrap.servers=h", "bootstrap.servers: set it in the address, as HOST:PORT"),
        ("group.id=x", r"group.id: set it in the address, as \?group="),
        ("hunter2hunter2", "client.properties:1: expected a line name=value"),
        ("sasl.pasword=hunter2hunter2", 'No such configuration property: "sasl.pasword"'),
        ("sasl.jaas.config=hunter2hunter2", "kafka://h:9092/t: .*"),
        ("security.protocol=hunter2hunter2", "kafka://h:9092/t: Invalid value"),
    ],
)
def test_wrong_settings_are_refused_without_a_secret(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(line + "\n")
    address = Address.of(f"kafka://h/t?config={file}")
    with pytest.raises(SchemaError, match=message) as raised:
        Client(address, Settings.of(address, {}))
    if not line.startswith("security.protocol"):  # which is no secret
        assert "hunter2" not in str(raised.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="none: cannot read the settings for Kafka: No such file"):
        Settings.of(Address.of(f"kafka://h/t?config={tmp_path / 'none'}"))


def test_secrets_are_in_no_representation_and_no_message() -> None:
    settings = Settings.of(Address.of("kafka://h/t"), {"SKWS_KAFKA_SASL_PASSWORD": "hunter2"})
    assert "hunter2" not in repr(settings)
    assert settings.clean("broker h said hunter2 is wrong") == "broker h said *** is wrong"


def test_brokers_that_are_not_there_are_told_at_once() -> None:
    from tests.sources.following import SCHEMA

    with pytest.raises(SkwsError, match=r"kafka://127\.0\.0\.1:1/t: .*Connection refused") as raised:
        parse_source("kafka://127.0.0.1:1/t").open(SCHEMA)
    assert raised.value.exit_code == 4
