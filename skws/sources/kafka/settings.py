"""Settings of the Kafka client: ours, those of a properties file, those of the environment.

Values that may be secret are in no message: what is shown goes through ``clean``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from schema.errors import SchemaError
from skws.sources.kafka.address import Address
from skws.sources.redact import HIDDEN, redacted

CONFIG: Final = "SKWS_KAFKA_CONFIG"
PREFIX: Final = "SKWS_KAFKA_"
_SECRET: Final = re.compile(r"password|secret|jaas|token|oauthbearer\.config|key\.pem|userinfo", re.I)
# What a run may be given other values for.
_DEFAULTS: Final = {
    "client.id": "skws",
    # A broker that does not answer is noticed soon, and found again soon.
    "socket.timeout.ms": "10000",
    "reconnect.backoff.max.ms": "5000",
    "fetch.wait.max.ms": "100",
    # How long librdkafka rests when it has read ahead enough; a second by default.
    "fetch.queue.backoff.ms": "10",
    "queued.max.messages.kbytes": "32768",
    "topic.metadata.refresh.interval.ms": "30000",
}
# What makes offsets ours: the checkpoint keeps them, and nothing is passed over in silence.
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
    def of(cls, address: Address, environment: Mapping[str, str] = os.environ) -> Settings:
        """The environment wins over the file. Raises SchemaError for a file that cannot be used."""
        named = address.config or (Path(environment[CONFIG]) if environment.get(CONFIG) else None)
        given = {} if named is None else _read(named)
        given |= {
            name.removeprefix(PREFIX).lower().replace("_", "."): value
            for name, value in environment.items()
            if name.startswith(PREFIX) and name != CONFIG
        }
        for name in given:
            if name in _OWN:
                raise SchemaError(f"{name}: skws sets it, so that no message is lost or repeated")
            if name in _OF_THE_ADDRESS:
                raise SchemaError(f"{name}: belongs into the address, as {_OF_THE_ADDRESS[name]}")
        place = {"bootstrap.servers": ",".join(address.brokers), "group.id": address.group or "skws"}
        return cls({**_DEFAULTS, **given, **_OWN, **place})

    def clean(self, text: str) -> str:
        """``text`` without any secret."""
        for name, value in self.values.items():
            if value and _SECRET.search(name):
                text = text.replace(value, HIDDEN)
        return redacted(text)


def _read(path: Path) -> dict[str, str]:
    """The properties in a file: ``name=value`` lines, comments behind ``#`` or ``!``."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise SchemaError(f"{path}: cannot read the settings for Kafka: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SchemaError(f"{path}: the settings for Kafka are not UTF-8") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            # What stands there may be half a secret.
            raise SchemaError(f"{path}:{number}: expected a line name=value")
        found[name.strip()] = value.strip()
    return found
