"""The options of the terminal UI."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skws.spec.enums import EngineName, OnError
from skws.spec.job import Job
from skws_schema.model import Schema
from skws_tui.services.typed import parse_typed


def live_job(schema: Schema, source: str = "", **options: Any) -> Job:
    """A live search. It is local and skips bad records, unless ``options``, fields of a job, override this.

    It has neither sinks nor queries: these are added by commands, so that each can be refused separately.
    """
    defaults = {"engine": EngineName.LOCAL, "on_error": OnError.SKIP}
    return Job({}, schema, source, sinks=(), **{**defaults, **options})


@dataclass(frozen=True, slots=True)
class UiRequest:
    """``job``: the live search to show; without a source, only its schema.

    ``schema_path``: the file that the editor saves. ``queries``: typed texts, answered from the start.
    ``restore``: continue the last session, and save this one. ``no_expiry``: rows live until they are
    deleted.
    """

    job: Job
    schema_path: Path
    queries: tuple[str, ...] = ()
    theme: str | None = None
    restore: bool = True
    no_expiry: bool = False

    def best_first(self, name: str) -> bool:
        """True if a typed text asks for the best present results, not for all results as they arrive.

        Spark has no such search, since its rows are in other processes.
        """
        return self.no_expiry and self.job.engine is EngineName.LOCAL and not parse_typed(name).prefix
