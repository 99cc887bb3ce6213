"""Bad and late records: a run fails at bad ones, skips them, or writes dead letters; late ones are left out.

All of them are counted. A dead letter of a late record can be replayed. Results that cannot be written are
treated like bad records.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import orjson

from skws.data.batch import BadRecord, Record
from skws.durable import GrowingFile, explained
from skws.formats.rows import TRUNCATE
from skws.results.names import json_row
from skws.results.result import JsonRow, LiveResult
from skws.spec.enums import OnError
from skws_schema.errors import BadRecordsError, SkwsError, UsageError, quantity
from skws_schema.model import Schema, iso
from skws_windows.window import duration_text, rounded_up

IGNORED: Final = "ignored: "
"""The beginning of a line on values that were passed over."""
KEPT: Final = 5
"""The most bad records, and the most reasons, that a summary shows."""
_MOST_REASONS: Final = 1000
_OTHER_REASONS: Final = "further values, for other reasons"
"""The reason of all values beyond ``_MOST_REASONS``; the limit of a reader only holds for its file."""
T = TypeVar("T")


class DeadLetterError(SkwsError):
    """Dead letters cannot be written."""


class BadRecordLog:
    """Applies a policy to bad records, and counts them.

    ``count``: the number of bad records so far; ``first``: the first few of them. ``dead_letters``: the file
    for them as JSON lines, created with the first one. Raises UsageError if the policy needs it and it is
    missing. ``remedy``: advice for the message of a run that fails.
    """

    def __init__(
        self,
        on_error: OnError = OnError.FAIL,
        dead_letters: Path | None = None,
        remedy: str = "use --on-error skip or dead-letter to continue after bad records",
    ) -> None:
        if on_error is OnError.DEAD_LETTER and dead_letters is None:
            raise UsageError("--on-error dead-letter needs the name of a file for the dead letters")
        self.on_error = on_error
        self.count = 0
        self.first: list[BadRecord] = []
        self.passed_over: Counter[str] = Counter()
        """Values left out of good records, by reason."""
        self._new_reasons: list[str] = []
        self._path = dead_letters
        self._remedy = remedy
        self._file: GrowingFile | None = None
        self._started = False

    def records(self, items: Iterable[Record | BadRecord]) -> Iterator[Record]:
        """The records among ``items``; the policy is applied to bad ones.

        Raises BadRecordsError at the first bad one if the policy is to fail,
        DeadLetterError if the file cannot be written.
        """
        for item in items:
            if type(item) is BadRecord:
                self.add(item)
            else:
                yield item  # type: ignore[misc]  # type() does not narrow, and isinstance is slower here

    def take(self, bad: Iterable[BadRecord]) -> None:
        """Apply the policy to several bad records, like ``add``."""
        for record in bad:
            self.add(record)

    def add(self, bad: BadRecord) -> None:
        """Apply the policy to one bad record; raises like ``records``.

        Values that were passed over in good records are only counted.
        """
        if bad.passed_over:
            is_known = bad.reason in self.passed_over
            reason = bad.reason if is_known or len(self.passed_over) < _MOST_REASONS else _OTHER_REASONS
            if reason not in self.passed_over:
                self._new_reasons.append(reason)
            self.passed_over[reason] += bad.passed_over
            return
        self.note(bad)
        if self.on_error is OnError.FAIL:
            raise BadRecordsError(f"{place(bad)}: {bad.reason} ({self._remedy})")
        if self.on_error is OnError.DEAD_LETTER:
            self._write(bad)

    def note(self, bad: BadRecord) -> None:
        """Count a bad record, whatever the policy."""
        self.count += 1
        if len(self.first) < KEPT:
            self.first.append(bad)

    def set_aside(self, record: BadRecord) -> None:
        """Write a record that was dropped as late to the dead letter file, if there is one.

        Raises DeadLetterError if it cannot be written.
        """
        if self._path is not None:
            self._write(record)

    def summary(self) -> str:
        """One line with the number of bad records, then the first few reasons."""
        lines = [f"{self.count} bad record{'' if self.count == 1 else 's'}"]
        lines += [f"  {place(bad)}: {bad.reason}" for bad in self.first]
        if self.count > len(self.first):
            lines.append(f"  and {self.count - len(self.first)} more")
        return "\n".join(lines)

    def passed_over_summary(self) -> list[str]:
        """A line for each reason for which values were passed over, the most frequent first, up to a few."""
        lines = [
            f"{IGNORED}{reason} ({quantity(count, 'value')})"
            for reason, count in self.passed_over.most_common(KEPT)
        ]
        more_count = len(self.passed_over) - len(lines)
        return [*lines, f"  and {more_count:,} more that the schema lacks"] if more_count > 0 else lines

    def news(self) -> tuple[str, ...]:
        """A line for each new reason since the last call for which values were passed over."""
        reasons, self._new_reasons = tuple(self._new_reasons), []
        return tuple(f"{IGNORED}{reason}" for reason in reasons)

    def close(self) -> None:
        """Close the dead letter file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> BadRecordLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, bad: BadRecord) -> None:
        with explained(f"{self._path}: cannot write dead letters", DeadLetterError):
            if self._file is None and self._path is not None:
                # A new log starts with an empty file; after `close` it appends.
                self._file = GrowingFile(self._path, anew=not self._started)
                self._started = True
            if self._file is not None:
                self._file.append(dead_letter(bad))


def place(bad: BadRecord) -> str:
    """The location of a bad record: ``FILE:LINE``, or the row if the format has no lines."""
    if bad.where:
        return f"{bad.source} {bad.where}"
    if bad.line:
        return f"{bad.source}:{bad.line}"
    return f"{bad.source}: row {bad.offset + 1}"


def malformed(bad: Sequence[BadRecord]) -> list[BadRecord]:
    """The bad records, without values that were passed over in good ones."""
    return [record for record in bad if not record.passed_over]


def dead_letter(bad: BadRecord) -> bytes:
    """A bad record as a JSON line; its raw bytes as ``raw`` if they are UTF-8, else as ``raw_base64``."""
    fields: dict[str, str | int] = {
        "source": bad.source.encode("utf-8", "replace").decode(),
        "line": bad.line,
        "offset": bad.offset,
        "reason": bad.reason.encode("utf-8", "replace").decode(),
    }
    try:
        fields["raw"] = bad.raw.decode()
    except UnicodeDecodeError:
        fields["raw_base64"] = base64.b64encode(bad.raw).decode()
    return orjson.dumps(fields) + b"\n"


class Late(NamedTuple):
    """A late record; ``reached``: the latest event time before it, in microseconds."""

    record: Record
    reached: int


def record_line(record: Record, schema: Schema) -> bytes:
    """A record as a JSON line of a replay."""
    relation = schema.relations[record.relation]
    line: dict[str, JsonRow | str] = {"relation": relation.name, "time": iso(record.time)}
    if record.truncates:
        return orjson.dumps({**line, "op": TRUNCATE})
    row = json_row(relation, record.row)
    return orjson.dumps({**line, "op": "-" if record.delete else "+", "row": row})


def late_record(record: Record, schema: Schema, lateness: int) -> BadRecord:
    """A late record as a dead letter. ``lateness``: the allowed lateness, in microseconds."""
    reason = f"late: more than the allowed {lateness / 1e6:g} seconds behind the stream"
    return BadRecord("late", 0, 0, record_line(record, schema), reason)


def late_letters(late: Sequence[Late], schema: Schema, lateness: int) -> list[BadRecord]:
    return [late_record(item.record, schema, lateness) for item in late]


def late_notice(late: Late, schema: Schema, lateness: int) -> str:
    """The notice of a run's first late record: the record, its lateness, and a remedy."""
    record, latest = late
    kind = "a truncation" if record.truncates else "a deletion" if record.delete else "a tuple"
    subject = f"{kind} of {schema.relations[record.relation].name}"
    lateness_text = duration_text(rounded_up(latest - record.time))
    return (
        f"{subject} came too late: its time is {iso(record.time)}, the stream had reached {iso(latest)},"
        f" and the lateness is {duration_text(lateness)}; late records are left out and counted"
        f" (--lateness '{lateness_text}' would accept this one)"
    )


def encoded_each(
    results: Iterable[LiveResult], encode: Callable[[LiveResult], T]
) -> tuple[list[T], list[BadRecord]]:
    """The encoded results; those for which ``encode`` fails, as bad records.

    Values are checked when they are read. If a check missed one, its results fail, not the run.
    """
    encoded: list[T] = []
    bad: list[BadRecord] = []
    for result in results:
        try:
            encoded.append(encode(result))
        except (SkwsError, MemoryError):
            raise
        except Exception as error:
            reason = f"cannot be written: {type(error).__name__}: {error}"
            bad.append(unwritable(result, reason))
    return encoded, bad


def unwritable(result: LiveResult, reason: str) -> BadRecord:
    """A result that cannot be written, as a bad record."""
    return BadRecord("result", 0, 0, _identifying_fields(result), reason, where=f"of {result.name!r}")


def unwritable_notice(bad: BadRecord) -> str:
    """The notice of a run's first result that cannot be written."""
    return f"{place(bad)}: {bad.reason}; such results are left out and counted as bad records"


def _identifying_fields(result: LiveResult) -> bytes:
    """The identifying fields of a result that cannot be written, as JSON."""
    line = {
        "op": result.op,
        "name": result.name,
        "query": result.query,
        "id": result.id,
        "start": result.start,
        "end": result.end,
    }
    return json.dumps(line).encode()
