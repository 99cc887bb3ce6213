"""The query box with the line that reads it: what is typed is analysed as it would be searched."""

from __future__ import annotations

from functools import partial

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from tui.background import in_background
from tui.messages import TypedRead
from tui.services.drawing import Palette
from tui.services.off_thread import OffThread, TooLongError
from tui.services.run import Run
from tui.services.typed import Reading
from tui.services.view import View
from tui.widgets.query_box import QueryBox
from tui.widgets.reading_line import ReadingLine


class Asking(Vertical):
    """``run``: whose live tuples are counted, None where nothing runs."""

    DEFAULT_CSS = """
    Asking { height: auto; }
    Asking QueryBox { padding: 0 1 !important; }
    """

    class Asked(Message):
        """A query shall stand; ``replace``: in the place of the selected one."""

        def __init__(self, text: str, *, replace: bool) -> None:
            self.text = text
            self.replace = replace
            super().__init__()

    class Save(Message):
        """A query, the selected one if the text is empty, shall be kept or no longer."""

        def __init__(self, text: str) -> None:
            self.text = text
            super().__init__()

    def __init__(self, view: View, run: Run | None, palette: Palette) -> None:
        super().__init__()
        self.palette = palette
        self._view = view
        self._run = run
        self._reading = Reading("")
        self._read_at = 0
        self._reads = OffThread()

    def compose(self) -> ComposeResult:
        yield QueryBox(id="query")
        yield ReadingLine()

    def on_mount(self) -> None:
        self.query_one(ReadingLine).display = False
        self.set_interval(1.0, self._read_again)

    @property
    def box(self) -> QueryBox:
        return self.query_one(QueryBox)

    def write(self, text: str) -> None:
        """Put a text in the box, to be gone on with."""
        self.box.value = text
        self.box.cursor_position = len(text)
        self.box.focus()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self._start_reading(event.value)

    def _read_again(self) -> None:
        """The stream has gone on, and the counts with it."""
        tuples = self._view.metrics.tuples if self._view.metrics else 0
        read = self._reading.text == self.box.value  # else the reading under way would never end
        if self.box.value and read and tuples != self._read_at:
            self._start_reading(self.box.value)

    def _start_reading(self, text: str) -> None:
        if self._run is not None:
            self._read_at = self._view.metrics.tuples if self._view.metrics else 0
            in_background(self, partial(self._read, text, self._run), "typed")

    async def _read(self, text: str, run: Run) -> None:
        try:
            reading = await self._reads.run(partial(_reading, text, self._view, run))
        except TooLongError as error:
            reading = Reading(text, fault=str(error))
        self.post_message(TypedRead(reading))

    def on_typed_read(self, message: TypedRead) -> None:
        message.stop()
        if message.reading.text == self.box.value:
            self._reading = message.reading
            self.box.complete(message.reading.completions)
            self.query_one(ReadingLine).read(message.reading, self.palette)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Asked(event.value.strip(), replace=False))

    def on_query_box_replace(self) -> None:
        self.post_message(self.Asked(self.box.value.strip(), replace=True))

    def on_query_box_save(self) -> None:
        self.post_message(self.Save(self.box.value.strip()))

    def on_query_box_correct(self) -> None:
        self.write(self._reading.corrected)


def _reading(text: str, view: View, run: Run) -> Reading:
    from tui.services.reading import read  # noqa: PLC0415 - the analysis loads behind the first picture

    return read(text, view, run.rows)
