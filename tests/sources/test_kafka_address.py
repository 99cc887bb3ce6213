"""Addresses and settings of Kafka; no secret is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from skws.sources.addresses import parse_source
from skws.sources.kafka.address import Address, Begin, Form, Lost, Settings
from skws.sources.kafka.client import Client
from skws_schema.errors import SchemaError, SkwsError, UsageError


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
