"""A ``kafka://`` address, and the settings of the client, from skws, a properties file and the environment.

No message contains a value that may be secret: texts to be shown pass through ``Settings.clean``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote

from skws.sources.feed import HIDDEN, parameters, redacted
from skws_schema.errors import SchemaError, UsageError

KAFKA: Final = "kafka://"
_PORT: Final = 9092
_BROKER: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:@\[\]]+)(?::(\d{1,5}))?")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PARAMETERS: Final = ("from", "format", "group", "lost", "config")
_Choice = TypeVar("_Choice", bound=StrEnum)


class StartPoint(StrEnum):
    """The offset at which a new run begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Form(StrEnum):
    """The form of message values; AUTO decides by the fields of each value."""

    AUTO = "auto"
    RECORDS = "records"
    ROWS = "rows"
    DEBEZIUM = "debezium"


class Lost(StrEnum):
    """What to do if the brokers no longer have the next messages."""

    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class TopicAddress:
    """Brokers and topics. Without ``topics``, those named like the relations. It contains no secret."""

    brokers: tuple[str, ...]
    topics: tuple[str, ...]
    begin: StartPoint = StartPoint.EARLIEST
    form: Form = Form.AUTO
    lost: Lost = Lost.FAIL
    group: str | None = None
    config: Path | None = None

    @property
    def shown(self) -> str:
        return f"{KAFKA}{','.join(self.brokers)}" + (f"/{','.join(self.topics)}" if self.topics else "")

    @classmethod
    def of(cls, text: str) -> TopicAddress:
        """The address in ``kafka://HOST:PORT,.../TOPIC,...?from=latest``. Raises UsageError."""
        base, _, query = text.removeprefix(KAFKA).partition("?")
        brokers, _, topics = base.partition("/")
        if "@" in brokers:
            raise UsageError(
                f"{redacted(text)}: no user or password in the address: expected sasl.username and"
                " sasl.password in the file of ?config=FILE, or SKWS_KAFKA_SASL_USERNAME and"
                " SKWS_KAFKA_SASL_PASSWORD in the environment"
            )
        options = parameters(
            query,
            _PARAMETERS,
            f"{redacted(text)}: a Kafka address has",
            " (settings of the client go into the file of ?config=FILE)",
        )
        return cls(
            tuple(_broker(name, text) for name in brokers.split(",")),
            tuple(_topic(unquote(name), text) for name in topics.split(",")) if topics else (),
            _choice(StartPoint, options, "from", StartPoint.EARLIEST),
            _choice(Form, options, "format", Form.AUTO),
            _choice(Lost, options, "lost", Lost.FAIL),
            _optional(options, "group", str),
            _optional(options, "config", Path),
        )


def _broker(name: str, text: str) -> str:
    match = _BROKER.fullmatch(name)
    if match is None or int(match[1] or 0) > 65535:
        raise UsageError(f"{redacted(text)}: {name!r} is not a broker: expected HOST or HOST:PORT")
    return name if match[1] else f"{name}:{_PORT}"


def _topic(name: str, text: str) -> str:
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        raise UsageError(f"{redacted(text)}: invalid topic name {name!r}: expected letters, digits, . _ -")
    return name


def _choice(kind: type[_Choice], options: dict[str, str], name: str, default: _Choice) -> _Choice:
    try:
        return kind(options.get(name, default))
    except ValueError:
        raise UsageError(f"{name}={options[name]}: expected {' or '.join(kind)}") from None


_Optional = TypeVar("_Optional", str, Path)


def _optional(options: dict[str, str], name: str, kind: Callable[[str], _Optional]) -> _Optional | None:
    if options.get(name) == "":
        raise UsageError(f"{name}= is empty")
    return kind(options[name]) if name in options else None


CONFIG: Final = "SKWS_KAFKA_CONFIG"
PREFIX: Final = "SKWS_KAFKA_"
_SECRET: Final = re.compile(r"password|secret|jaas|token|oauthbearer\.config|key\.pem|userinfo", re.I)
# Settings that users may change.
_DEFAULTS: Final = {
    "client.id": "skws",
    # Notice a broker that does not answer soon, and reconnect to it soon.
    "socket.timeout.ms": "10000",
    "reconnect.backoff.max.ms": "5000",
    "fetch.wait.max.ms": "100",
    # The pause of librdkafka after it has read ahead enough; a second by default.
    "fetch.queue.backoff.ms": "10",
    "queued.max.messages.kbytes": "32768",
    "topic.metadata.refresh.interval.ms": "30000",
}
# The run keeps offsets in its checkpoint, and never skips messages silently.
_OWN: Final = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "enable.partition.eof": "true",
}
_OF_THE_ADDRESS: Final = {
    "bootstrap.servers": "HOST:PORT",
    "metadata.broker.list": "HOST:PORT",
    "group.id": "?group=",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings for librdkafka by name."""

    values: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(
        cls,
        address: TopicAddress,
        environment: Mapping[str, str] = os.environ,
        *,
        defaults: Mapping[str, str] = _DEFAULTS,
        own: Mapping[str, str] = _OWN,
    ) -> Settings:
        """The settings of a consumer, unless ``defaults`` and ``own`` say otherwise.

        The environment takes precedence over the file. ``own``: settings that users may not change. Raises
        SchemaError for a file that cannot be used.
        """
        path = address.config or (Path(environment[CONFIG]) if environment.get(CONFIG) else None)
        properties = {} if path is None else _read(path)
        properties |= {
            name.removeprefix(PREFIX).lower().replace("_", "."): value
            for name, value in environment.items()
            if name.startswith(PREFIX) and name != CONFIG
        }
        for name in properties:
            if name in own:
                raise SchemaError(f"{name}: skws sets it, so that no message is lost or repeated")
            if name in _OF_THE_ADDRESS:
                raise SchemaError(f"{name}: set it in the address, as {_OF_THE_ADDRESS[name]}")
        address_settings = {
            "bootstrap.servers": ",".join(address.brokers),
            "group.id": address.group or "skws",
        }
        return cls({**defaults, **properties, **own, **address_settings})

    def clean(self, text: str) -> str:
        """``text`` without any secret."""
        for name, value in self.values.items():
            if value and _SECRET.search(name):
                text = text.replace(value, HIDDEN)
        return redacted(text)


def _read(path: Path) -> dict[str, str]:
    """The properties in a file: ``name=value`` lines, comments after ``#`` or ``!``."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise SchemaError(f"{path}: cannot read the settings for Kafka: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SchemaError(f"{path}: the settings for Kafka are not UTF-8") from None
    properties: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            # Do not show the line: it may be half a secret.
            raise SchemaError(f"{path}:{number}: expected a line name=value")
        properties[name.strip()] = value.strip()
    return properties
