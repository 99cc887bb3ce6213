"""What a ``kafka://`` address says: brokers, topics, where to begin, how messages are written."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import parse_qsl, unquote

from schema.errors import UsageError, nearest
from skws.sources.redact import redacted

_PORT: Final = 9092
_BROKER: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:@\[\]]+)(?::(\d{1,5}))?")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PARAMETERS: Final = ("from", "format", "group", "lost", "config")
_Choice = TypeVar("_Choice", bound=StrEnum)


class Begin(StrEnum):
    """Where a new run begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Form(StrEnum):
    """How the values of messages are written; AUTO tells each by its fields."""

    AUTO = "auto"
    RECORDS = "records"
    ROWS = "rows"
    DEBEZIUM = "debezium"


class Lost(StrEnum):
    """What to do where the brokers no longer have the messages that come next."""

    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Address:
    """Where topics are. No ``topics``: those named as the relations. There is no secret in it."""

    brokers: tuple[str, ...]
    topics: tuple[str, ...]
    begin: Begin = Begin.EARLIEST
    form: Form = Form.AUTO
    lost: Lost = Lost.FAIL
    group: str | None = None
    config: Path | None = None

    @property
    def shown(self) -> str:
        return f"kafka://{','.join(self.brokers)}" + (f"/{','.join(self.topics)}" if self.topics else "")

    @classmethod
    def of(cls, text: str) -> Address:
        """The address in ``kafka://HOST:PORT,.../TOPIC,...?from=latest``. Raises UsageError."""
        base, _, query = text.removeprefix("kafka://").partition("?")
        brokers, _, topics = base.partition("/")
        if "@" in brokers:
            raise UsageError(
                f"{redacted(text)}: no user or password in the address: expected sasl.username and"
                " sasl.password in the file of ?config=FILE, or SKWS_KAFKA_SASL_USERNAME and"
                " SKWS_KAFKA_SASL_PASSWORD in the environment"
            )
        given = _given(text, query)
        return cls(
            tuple(_broker(one, text) for one in brokers.split(",")),
            tuple(_topic(unquote(one), text) for one in topics.split(",")) if topics else (),
            _choice(Begin, given, "from", Begin.EARLIEST),
            _choice(Form, given, "format", Form.AUTO),
            _choice(Lost, given, "lost", Lost.FAIL),
            _stated(given, "group", str),
            _stated(given, "config", Path),
        )


def _given(text: str, query: str) -> dict[str, str]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    for name in given:
        if name not in _PARAMETERS:
            raise UsageError(
                f"{redacted(text)}: a Kafka address has no parameter {name!r}{nearest(name, _PARAMETERS)}"
                f" (settings of the client go into the file of ?config=FILE)"
            )
    return given


def _broker(one: str, text: str) -> str:
    found = _BROKER.fullmatch(one)
    if found is None or int(found[1] or 0) > 65535:
        raise UsageError(f"{redacted(text)}: {one!r} is no broker: expected HOST or HOST:PORT")
    return one if found[1] else f"{one}:{_PORT}"


def _topic(one: str, text: str) -> str:
    if not _TOPIC.fullmatch(one) or one in (".", ".."):
        raise UsageError(f"{redacted(text)}: no topic {one!r}: expected letters, digits, . _ -")
    return one


def _choice(kind: type[_Choice], given: dict[str, str], name: str, default: _Choice) -> _Choice:
    try:
        return kind(given.get(name, default))
    except ValueError:
        raise UsageError(f"{name}={given[name]}: expected {' or '.join(kind)}") from None


_Stated = TypeVar("_Stated", str, Path)


def _stated(given: dict[str, str], name: str, kind: Callable[[str], _Stated]) -> _Stated | None:
    if given.get(name) == "":
        raise UsageError(f"{name}= is empty")
    return kind(given[name]) if name in given else None
