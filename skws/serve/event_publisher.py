"""The job's side of event streams: makes events from each micro-batch, and digests when they are due.

A digest contains the results of a saved search in one interval. Intervals begin at multiples of their length
since the epoch, in UTC, so a day ends at midnight. A digest that became due while no process ran is sent at
the start of the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import orjson

from skws.jobs.control import JobCommand
from skws.results.result import LiveResult, Op
from skws.serve.events import SEGMENT, EventFiles, EventLog, EventPosition, Kind, SearchEvent
from skws.serve.saved import SavedSearch
from skws.sinks.base import SinkRun
from skws.spec.query_spec import Query
from skws_windows.window import parse_duration

MOST_DIGESTED: Final = 1_000
"""The most results that a digest lists; it only counts the others."""
MOST_DIGEST_BYTES: Final = 32 << 20
"""The bytes of listed results from which a digest only counts the others."""


@dataclass(slots=True)
class Digest:
    """An open digest. ``due``: its end, in microseconds since the epoch.

    ``more``: the number of results left out. ``updates``: True if it includes updates. ``size``: the bytes of
    the listed results.
    """

    every: int
    due: int
    updates: bool = False
    items: list[bytes] = field(default_factory=list)
    more: int = 0
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(map(len, self.items))


class Digests:
    """The open digests by the name of their search."""

    def __init__(self) -> None:
        self._open: dict[str, Digest] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._open

    def begin(self, name: str, every: int, now: int, *, updates: bool) -> None:
        """Start collecting results of a search."""
        self._open[name] = Digest(every, _end(every, now), updates)

    def remove(self, name: str) -> None:
        self._open.pop(name, None)

    def collect(self, name: str, op: Op, data: bytes) -> None:
        digest = self._open[name]
        if op == "~" and not digest.updates:
            return
        if len(digest.items) < MOST_DIGESTED and digest.size < MOST_DIGEST_BYTES:
            digest.items.append(data)
            digest.size += len(data)
        else:
            digest.more += 1

    def due_digests(self, now: int) -> list[tuple[str, bytes]]:
        """The non-empty digests whose interval has ended: name and JSON, for ``mark_sent``."""
        digests = []
        for name, digest in self._open.items():
            if digest.due - now > digest.every:  # the machine's clock was set back
                digest.due = _end(digest.every, now)
            if now < digest.due:
                continue
            if digest.items:
                digests.append((name, _text(digest, _end(digest.every, now))))
            else:
                digest.due = _end(digest.every, now)
        return digests

    def mark_sent(self, name: str, due: int) -> None:
        """Record that the digest of a search was sent; the next one ends at ``due``."""
        digest = self._open.get(name)
        if digest is not None:
            digest.items, digest.more, digest.size, digest.due = [], 0, 0, due

    def state(self) -> dict[str, Any]:
        """All open digests, as JSON."""
        return {
            name: {
                "every": digest.every,
                "due": digest.due,
                "updates": digest.updates,
                "items": [item.decode() for item in digest.items],
                "more": digest.more,
            }
            for name, digest in self._open.items()
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of ``state``."""
        self._open = {
            name: Digest(
                fields["every"],
                fields["due"],
                fields["updates"],
                [item.encode() for item in fields["items"]],
                fields["more"],
            )
            for name, fields in state.items()
        }


def _end(every: int, now: int) -> int:
    return (now // every + 1) * every


def _text(digest: Digest, next_due: int) -> bytes:
    start = digest.due - digest.every
    head = orjson.dumps({"from": start, "due": digest.due, "next": next_due, "more": digest.more})
    return head[:-1] + b',"results":[' + b",".join(digest.items) + b"]}"


EventData: TypeAlias = tuple[Kind, str, bytes]
"""An event without its position."""


class _EventFields(msgspec.Struct):
    """The fields of events that digests need."""

    op: Op = "+"
    snapshot: bool = False
    at: float | None = 0
    every: str = ""
    updates: bool = False
    next: int = 0


_decoder = msgspec.json.Decoder(_EventFields)


class EventPublisher:
    """Makes and stores events, as a listener of a job (``BatchListener``).

    ``folder``: the folder for events; None to store none. ``most``: the bytes of events to store. ``now``:
    the time in microseconds since the epoch. ``wake`` is called in the job's thread with the names that have
    events. ``segment``: the bytes of a file of events.
    """

    def __init__(
        self,
        folder: Path | None,
        most: int,
        now: Callable[[], int],
        wake: Callable[[Iterable[str]], None],
        segment: int = SEGMENT,
    ) -> None:
        self._segment = segment
        self.log = EventLog(most)
        self.run = ""
        self.saved: dict[str, SavedSearch] = {}
        """The saved searches by name; other threads may look one up, or copy all values in one step."""
        self._folder = folder
        self._max_bytes = most
        self._now = now
        self._wake = wake
        self._files: EventFiles | None = None
        self._digests = Digests()
        self._begun = False
        self._resumed_batch = 0  # the last batch whose events an earlier process has stored

    def open(self, run: SinkRun) -> None:
        self.run = run.id
        if self._folder is None:
            return
        self._files = EventFiles(self._folder, run.id, self._max_bytes, self._segment)
        events = self._files.load()
        self.log.begin(self._files.floor, events)
        self._resumed_batch = self.log.last.batch
        self._digests.restore(self._files.digests)
        for event in self._files.segment_events:
            self._follow(event)

    def begin(self, queries: Sequence[Query]) -> None:
        """Load the saved searches that exist before the first batch of this process."""
        if self._begun:
            return
        self._begun = True
        for query in queries:
            self.saved[query.name] = SavedSearch.of(query)
        for name, saved_search in self.saved.items():
            if saved_search.interval is not None and name not in self._digests:  # its events were dropped
                self._digests.begin(name, saved_search.interval, self._now(), updates=saved_search.updates)

    def take(
        self,
        number: int,
        commands: Sequence[JobCommand],
        results: Sequence[LiveResult],
        standing_queries: Callable[[], Sequence[Query]],
    ) -> None:
        """Make the events of a batch: removed and added searches, then results; skips stored ones."""
        if not self._begun:
            self.begin(standing_queries())
        removed_searches, added_searches = self._changes(commands)

        def settle() -> None:
            self.saved.update(added_searches)  # a replaced search is never missing
            for name in removed_searches.keys() - added_searches.keys():
                self.saved.pop(name, None)

        if number > self._resumed_batch and (removed_searches or added_searches or results):
            events = list(self._search_events(removed_searches, added_searches))
            events += [("result", result.name, result.to_json()) for result in results]
            self._append(number, events, settle)
        else:
            settle()

    def saved_at(self, name: str, position: EventPosition) -> SavedSearch | None:
        """The search to which an event belongs: the one that had the name at that time."""
        saved_search = self.saved.get(name)
        # after reading the standing searches, since the log is updated before they change
        end_event = self.log.end_of(name, position)
        return saved_search if end_event is None else SavedSearch.from_dict(orjson.loads(end_event.data))

    def tick(self) -> None:
        """Send the digests that are due."""
        digests = self._digests.due_digests(self._now())
        if digests:
            self._append(self.log.last.batch, [("digest", name, data) for name, data in digests])

    def flush(self) -> None:
        if self._files is not None:
            self._files.sync()

    def close(self) -> None:
        if self._files is not None:
            self._files.close()

    def _append(
        self, batch: int, events_data: Sequence[EventData], settle: Callable[[], None] = lambda: None
    ) -> None:
        """Store events, then publish them, so that no client sees an event that a restart would lose.

        ``settle``: applies the changes of saved searches that the events announce.
        """
        last_position = self.log.last
        first_number = last_position.place + 1 if last_position.batch == batch else 1
        events = [
            SearchEvent(EventPosition(batch, number), *event_data)
            for number, event_data in enumerate(events_data, first_number)
        ]
        if events and self._files is not None:
            self._files.append(events, last_position, self._digests.state)
        for event in events:
            self._follow(event)
        self.log.end(events)
        settle()
        self.log.append(events)
        self._wake({event.name for event in events})

    def _changes(
        self, commands: Iterable[JobCommand]
    ) -> tuple[dict[str, SavedSearch], dict[str, SavedSearch]]:
        """The searches that a batch removes or replaces, and those that it adds, by name."""
        added_searches: dict[str, SavedSearch] = {}
        removed_searches: dict[str, SavedSearch] = {}
        for command in commands:
            if command.op == "add":
                added_searches[command.name] = SavedSearch.of(command.new_query)
            elif command.op == "remove":
                new, old = added_searches.pop(command.name, None), self.saved.get(command.name)
                if (saved_search := old or new) is not None:
                    removed_searches.setdefault(command.name, saved_search)
        return removed_searches, added_searches

    def _search_events(
        self, removed_searches: Mapping[str, SavedSearch], added_searches: Mapping[str, SavedSearch]
    ) -> Iterator[EventData]:
        for name, saved_search in removed_searches.items():
            successor = added_searches.get(name)
            body = (
                saved_search.to_dict()
                if successor is None
                else {**saved_search.to_dict(), "by": successor.owner}
            )
            yield ("removed" if successor is None else "replaced"), name, orjson.dumps(body)
        for name, added_search in added_searches.items():
            yield "added", name, orjson.dumps({**added_search.to_dict(), "at": self._now()})

    def _follow(self, event: SearchEvent) -> None:
        """Update the digests by an event."""
        name = event.name
        if event.kind == "result":
            if name in self._digests and not (body := _decoder.decode(event.data)).snapshot:
                self._digests.collect(name, body.op, event.data)
            return
        if event.kind == "digest":
            self._digests.mark_sent(name, _decoder.decode(event.data).next)
            return
        self._digests.remove(name)
        if event.kind == "added":
            body = _decoder.decode(event.data)
            if body.every:
                interval = parse_duration(body.every, what="every")
                self._digests.begin(name, interval, int(body.at or 0), updates=body.updates)
