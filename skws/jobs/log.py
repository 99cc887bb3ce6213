"""The log of a job on stderr: plain lines, or JSON lines for programs."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal, TextIO, TypeAlias

import orjson

from skws.durable import as_unicode
from skws.sinks.text import escaped, visible_lines

Level: TypeAlias = Literal["info", "warning", "error"]


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


@dataclass(slots=True)
class Log:
    """Writes lines; ``quiet`` leaves out those of level info."""

    log_format: LogFormat = LogFormat.TEXT
    quiet: bool = False
    stream: TextIO = field(default_factory=lambda: sys.stderr)

    def info(self, event: str, message: str, **fields: Any) -> None:
        if not self.quiet:
            self._line("info", event, message, fields)

    def warning(self, event: str, message: str, **fields: Any) -> None:
        self._line("warning", event, message, fields)

    def error(self, event: str, message: str, **fields: Any) -> None:
        self._line("error", event, message, fields)

    def _line(self, level: Level, event: str, message: str, fields: dict[str, Any]) -> None:
        if self.log_format is LogFormat.TEXT:
            text = visible_lines(message)
        else:
            now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            line = {"time": now, "level": level, "event": event, "message": message} | fields
            unicode_line = {
                name: as_unicode(value) if isinstance(value, str) else value for name, value in line.items()
            }
            text = escaped(orjson.dumps(unicode_line, default=str)).decode()
        print(text, file=self.stream, flush=True)
