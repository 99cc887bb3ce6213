"""The delay of the terminal UI under load until it answers keys, and its memory: `python -m bench.tui`.

A thread puts ``rate`` results of four joined tuples per second into the app's queue
while keys walk through the list. A key is answered when the screen that it changes
has been drawn.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from textual.events import Key
from textual.message import Message

from skws.cli.demo import movie_files
from skws.memory import expect_short_pauses
from skws.replay_search import Search
from skws.results.result import Result
from skws.spec.enums import EngineName
from skws.spec.job import Job
from skws_schema.yaml.load import load_schema
from skws_tui.app import SkwsApp
from skws_tui.screens.metrics_screen import resident_bytes
from skws_tui.screens.search_screen import SearchScreen
from skws_tui.services.live_job import LiveJob
from skws_tui.services.request import UiRequest, live_job
from skws_tui.services.view import EventQueue
from skws_tui.widgets.result_pane import ResultList

QUERY = "tarantino travolta"
_KEYS = ("j", "j", "j", "k", "g", "j", "pagedown", "k")
_SLICE = 0.05


class LoadRun(LiveJob):
    """Returns the same few results again and again with new ids, ``rate`` per second."""

    def __init__(
        self, request: UiRequest, events: EventQueue, rate: float, results: Sequence[Result]
    ) -> None:
        self.sent = 0
        self._rate = rate
        self._results = results
        super().__init__(request, events)

    def start(self) -> None:
        self.events.put(queries=(QUERY,))
        super().start()

    def run(self) -> None:
        began = time.perf_counter()
        while self.control.wait(_SLICE):
            target = int((time.perf_counter() - began) * self._rate)
            self.events.put(results=[self._result(number) for number in range(self.sent, target)])
            self.sent = target

    def _result(self, number: int) -> Result:
        result = self._results[number % len(self._results)]
        # Like `dataclasses.replace`, which is slower.
        return Result(
            result.op,
            result.name,
            result.query,
            f"{number:x}",
            result.start,
            result.end,
            result.network,
            result.tuples,
            result.joins,
            result.snapshot,
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """Sorted response times in seconds, elapsed and of the processor; megabytes before and after.

    On a busy machine, the processor time shows the cost of the app itself.
    """

    response_times: list[float]
    cpu_times: list[float]
    sent: int
    listed: int
    before: float
    after: float

    @staticmethod
    def quantile(times: list[float], share: float) -> float:
        return times[min(int(share * len(times)), len(times) - 1)]


def measure(rate: float, seconds: float, keys_a_second: float = 20) -> Measured:
    """Run the app once without a terminal."""
    schema, replay = movie_files()
    movie_schema = load_schema(schema)
    search = Search(Job.search(QUERY, movie_schema, replay, engine=EngineName.LOCAL))
    results = [result for result in search.results() if isinstance(result, Result)]
    expect_short_pauses()
    job = live_job(movie_schema, str(replay))
    request = UiRequest(job, schema, (QUERY,), restore=False, theme="skws-dark")
    app = SkwsApp(request, lambda ui_request, events: LoadRun(ui_request, events, rate, results))
    return asyncio.run(_run_app(app, seconds, keys_a_second))


async def _run_app(app: SkwsApp, seconds: float, keys_a_second: float) -> Measured:
    answers: list[tuple[float, float]] = []
    selection = asyncio.Event()

    def note(message: Message) -> None:
        if isinstance(message, ResultList.Selected):
            selection.set()

    async with app.run_test(size=(120, 36), message_hook=note) as pilot:
        screen = app.screen
        assert isinstance(screen, SearchScreen)
        while len(app.view.results) < 100:
            await pilot.pause(0.05)
        screen.results.focus()
        await pilot.pause()
        # The buffer fills first; after that, memory must not grow.
        while len(app.view.results) < app.view.results.capacity and seconds > 5:
            await pilot.pause(0.05)
        start_megabytes = (resident_bytes() or 0) / 1e6
        end = time.perf_counter() + seconds
        number = 0
        while time.perf_counter() < end:
            answers.append(await _press_key(app, screen, selection, _KEYS[number % len(_KEYS)]))
            number += 1
            await asyncio.sleep(1 / keys_a_second)
        end_megabytes = (resident_bytes() or 0) / 1e6
        run = app.job
        assert isinstance(run, LoadRun)
        elapsed_times, cpu_times = map(sorted, zip(*answers, strict=True))
        return Measured(
            elapsed_times, cpu_times, run.sent, len(app.view.results), start_megabytes, end_megabytes
        )


async def _press_key(
    app: SkwsApp, screen: SearchScreen, selection: asyncio.Event, key: str
) -> tuple[float, float]:
    """Seconds from a key until its change has been drawn, and the processor seconds of the app's thread."""
    redraw = asyncio.Event()
    selection.clear()
    began, cpu_began = time.perf_counter(), time.thread_time()
    app.post_message(Key(key, key if len(key) == 1 else None))
    await selection.wait()
    screen.results.call_after_refresh(redraw.set)
    await redraw.wait()
    return time.perf_counter() - began, time.thread_time() - cpu_began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=1_000, help="results a second")
    parser.add_argument("--seconds", type=float, default=30)
    args = parser.parse_args()
    outcome = measure(args.rate, args.seconds)
    print(f"results sent    {outcome.sent:,} ({args.rate:,.0f}/s), {outcome.listed:,} listed at the end")
    print(f"keys answered   {len(outcome.response_times):,}")
    for share in (0.5, 0.9, 0.99):
        elapsed, cpu = (
            outcome.quantile(times, share) * 1000 for times in (outcome.response_times, outcome.cpu_times)
        )
        print(f"  p{share * 100:.0f}           {elapsed:.1f} ms, {cpu:.1f} ms of the processor")
    print(f"memory          {outcome.before:.0f} MB, then {outcome.after:.0f} MB")


if __name__ == "__main__":
    main()
