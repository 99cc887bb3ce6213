"""Sinks interrupted by a failure or a kill record exactly what they wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from skws.jobs.fanout import SinkFanout
from skws.results.model import LiveResult
from skws.sinks.base import Run, SinkError
from skws.sinks.files import JsonLinesSink
from skws.sinks.webhook import Delivery as Posting
from skws.sinks.webhook import Outcome, WebhookSink
from skws_schema.errors import StateError
from tests.jobs.test_sinks import result, run, wrote
from tests.jobs.watching import Collected, Notes, lines


class Broken(Collected):
    """Fails in the second batch, which it has taken by then."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        super().write(batch, results)
        if batch == 2:
            raise self._error


@pytest.mark.parametrize("error", [SinkError("full"), KeyboardInterrupt()])
def test_a_sink_that_broke_is_not_flushed_and_the_others_are(tmp_path: Path, error: BaseException) -> None:
    broken, calm, later = Broken(error), Collected(), Collected()
    delivery = SinkFanout([calm, broken, later], tmp_path / "letters", run(tmp_path / "kept"))
    delivery.write(1, [result(1)], ["{}"])
    with pytest.raises(type(error)):
        delivery.write(2, [result(2)], ["{}"])
    with pytest.raises(SinkError, match="collected: an earlier write was interrupted"):
        delivery.flush()
    delivery.close(failed=True)
    assert (calm.flushes, broken.flushes, later.flushes) == (2, 0, 1)


class Refusing:
    """Takes no post of the batches that it is told."""

    shown = "refusing"

    def __init__(self, *batches: int) -> None:
        self._batches = batches
        self.posts: list[tuple[int, int]] = []

    def post(self, body: bytes, key: str) -> Outcome:
        told = orjson.loads(body)
        self.posts.append((told["batch"], told["part"]))
        return Outcome(taken=told["batch"] not in self._batches, reason="no", final=True)

    def close(self) -> None: ...


def test_letters_of_a_web_hook_go_with_what_it_knows_to_be_posted(tmp_path: Path) -> None:
    """A killed run had put aside two parts: they are not posted again, and stay in the file."""
    letters, kept = tmp_path / "letters.jsonl", run(tmp_path / "kept")
    letters.write_bytes(b'{"result": {"id": "of another run"}}\n')
    refusing = Refusing(1)
    killed = WebhookSink(refusing, Posting(most=1, letters=letters))
    killed.open(kept)
    killed.write(1, [result(1), result(2)])
    killed.close()
    with letters.open("ab") as file:
        file.write(b'{"half')
    again = WebhookSink(refusing, Posting(most=1, letters=letters))
    again.open(run(tmp_path / "kept"))
    again.write(1, [result(1), result(2), result(3)])
    again.write(2, [result(4)])
    again.flush()
    again.close()
    assert refusing.posts == [(1, 0), (1, 1), (1, 2), (2, 0)]
    assert [line["result"]["id"] for line in lines(letters)] == ["of another run", "id1", "id2", "id3"]


def test_a_file_that_was_taken_away_has_each_batch_once_after_the_next_kill(tmp_path: Path) -> None:
    path, kept, notes = tmp_path / "out.jsonl", run(tmp_path / "kept"), Notes()
    wrote(f"jsonl:{path}", kept, (1, [result(1), result(2)]), None)
    path.unlink()
    for _ in range(2):  # the second time as the first one was killed
        wrote(f"jsonl:{path}", replace(kept, tell=notes.lines.append), (2, [result(3)]))
    assert [line["id"] for line in lines(path)] == ["id3"]
    assert len(notes.lines) == 1


def test_marks_of_a_sink_that_are_gone_or_older_are_refused(tmp_path: Path) -> None:
    least: dict[str, int] = {}

    def kept() -> Run:
        return replace(run(tmp_path / "kept"), least=dict(least))

    first = kept()
    sink = JsonLinesSink(tmp_path / "out.jsonl")
    sink.open(first)
    (mark,) = (tmp_path / "kept").iterdir()
    before = mark.read_bytes()
    sink.write(1, [result(1)])
    sink.flush()
    sink.close()
    assert first.least == {mark.name: 1}
    least |= first.least
    mark.write_bytes(before)
    with pytest.raises(StateError, match=rf"{mark.name}: damaged \(older than the rest"):
        JsonLinesSink(tmp_path / "out.jsonl").open(kept())
    mark.unlink()
    with pytest.raises(StateError, match=rf"{mark.name}: missing"):
        JsonLinesSink(tmp_path / "out.jsonl").open(kept())
