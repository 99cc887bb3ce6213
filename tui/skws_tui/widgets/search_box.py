"""The search box: a line for a query, with its analysis in the border below."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar, Final

from rich.cells import cell_len
from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input

from skws.sinks.text import visible
from skws.spec.query_spec import completed, last_word
from skws_schema.errors import without_picture
from skws_schema.model import Schema
from skws_tui.error_boundary import OffThread, TooLongError
from skws_tui.services.result_drawing import Palette
from skws_tui.services.typed import Analysis
from skws_tui.services.view import View

if TYPE_CHECKING:
    from skws_tui.services.live_job import LiveJob


class LineInput(Input):
    """Shows control characters, and line ends as spaces, whether typed, pasted or from the history."""

    def validate_value(self, value: str) -> str:
        return visible(value)


class FilterBox(LineInput):
    """Filters a screen's list; shown from ``/`` until Escape, which the screen handles."""

    DEFAULT_CSS = """
    FilterBox { height: 1; border: none; padding: 0 1; display: none; background: $background; }
    FilterBox:focus { border: none; background: $background; }
    """
    SLASH = Binding("slash", "filter", "filter", tooltip="Filter by words", id="filter")

    class Narrowed(Message):
        """The words have changed."""

    class Done(Message):
        """The list gets the focus."""

    def __init__(self, subject: str) -> None:
        super().__init__(placeholder=f"filter {subject} by words", compact=True)

    @property
    def words(self) -> str:
        return self.value

    def open(self) -> None:
        self.display = True
        self.focus()

    def close(self) -> bool:
        """Clear and hide it; False if it was hidden."""
        was_open = self.display
        self.value, self.display = "", False
        return was_open

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Narrowed())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Done())


_COMPLETIONS: Final = 3
_NAMED: Final = 56
"""The maximum length of the list of attributes in the empty box."""


class _Completions(Suggester):
    """Suggests the first completion of the last analysis."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self.words: Sequence[tuple[str, int]] = ()

    async def get_suggestion(self, value: str) -> str | None:
        if not last_word(value):
            return None  # as after a quotation mark; the words are those of the text before the last key
        for word, _ in self.words:
            suggestion = completed(value, word)
            if suggestion.startswith(value) and suggestion != value:
                return suggestion
        return None


class SearchLine(LineInput):
    """The line for a query, with completions and a history. ``correction``: suggested for Tab."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "add"),
        Binding("tab", "complete", "complete", tooltip="Complete or correct the last word", id="complete"),
        Binding("up", "history(-1)", "history", key_display="↑", tooltip="Earlier query", id="earlier-query"),
        Binding("down", "history(1)", "Later query", show=False, id="later-query"),
        Binding(
            "ctrl+j,ctrl+enter",
            "replace",
            "replace",
            tooltip="Replace the selected query",
            id="replace-query",
        ),
        Binding("ctrl+s", "save", "save", tooltip="Save or unsave the query", id="save-query"),
        Binding("ctrl+d", "correct", "Correct unknown words", show=False, id="did-you-mean"),
        Binding("escape", "leave", "results"),
    ]
    DEFAULT_CSS = """
    SearchLine { height: 1; border: none; padding: 0 1; background: $background; }
    SearchLine:focus { border: none; background: $background; background-tint: $background 0%; }
    """

    class Entered(Message):
        """A query was entered; ``replace``: it replaces the selected one."""

        def __init__(self, name: str, *, replace: bool) -> None:
            self.name = name
            self.replace = replace
            super().__init__()

    class Save(Message):
        """Save a query, or remove it from the saved ones; the selected one if the name is empty."""

        def __init__(self, name: str) -> None:
            self.name = name
            super().__init__()

    class Leave(Message):
        """The results get the focus."""

    def __init__(self, schema: Schema) -> None:
        self._completions = _Completions()
        super().__init__(
            placeholder=_placeholder(search_attributes(schema)),
            suggester=self._completions,
            id="query",
            compact=True,
        )
        self.history: Sequence[str] = ()
        self.correction = ""
        self._history_index = 0

    def complete(self, words: Sequence[tuple[str, int]]) -> None:
        self._completions.words = words

    def remember(self, history: Sequence[str]) -> None:
        """Set the queries for the arrow keys, latest last."""
        self.history, self._history_index = history, len(history)

    def write(self, text: str) -> None:
        """Replace the text, with the cursor after it."""
        self.value = text
        self.cursor_position = len(text)

    async def action_submit(self) -> None:
        self.post_message(self.Entered(self.value.strip(), replace=False))

    async def action_complete(self) -> None:
        """Take the first completion, or the correction; leave the box if there is neither."""
        if self._completions.words:
            self.write(completed(self.value, self._completions.words[0][0]))
        elif self.correction not in {"", self.value}:
            self.write(self.correction)
        else:
            self.action_leave()  # the list may be hidden, and then is not the next widget

    def action_history(self, step: int) -> None:
        if self.history:
            self._history_index = min(max(self._history_index + step, 0), len(self.history))
            self.write(self.history[self._history_index] if self._history_index < len(self.history) else "")

    def action_replace(self) -> None:
        self.post_message(self.Entered(self.value.strip(), replace=True))

    def action_save(self) -> None:
        self.post_message(self.Save(self.value.strip()))

    def action_correct(self) -> None:
        self.write(self.correction or self.value)

    def action_leave(self) -> None:
        self.post_message(self.Leave())


def _placeholder(names: Sequence[str]) -> str:
    """Names as many attributes as fit in a narrow terminal."""
    if not names:
        return "pattern: ..."
    listed_names = names[: sum(size <= _NAMED for size in accumulate(len(name) + 2 for name in names)) or 1]
    suffix = f" and {len(names) - len(listed_names):,} more" if len(names) > len(listed_names) else ""
    return visible(f"words in {', '.join(listed_names)}{suffix}")


def search_attributes(schema: Schema) -> list[str]:
    """The attributes in which keywords are searched."""
    removed_relations = schema.evolution.removed_relations
    relations = [
        relation for number, relation in enumerate(schema.relations) if number not in removed_relations
    ]
    return [f"{relation.name}.{name}" for relation in relations for name in relation.search]


def analysis_line(analysis: Analysis, palette: Palette) -> Text:
    """Slots with their counts, the correction, completions; the most important parts come first."""
    if analysis.fault:
        return Text(f"✗ {visible(analysis.fault)}", palette.warn)
    dim, parts = palette.dim, list[Text]()
    for number, slot in enumerate(analysis.slots):
        keyword = Text.assemble((visible(slot.text), palette.keywords[number % len(palette.keywords)]))
        if analysis.tuples:
            keyword.append(f" {slot.count:,}", dim)
        parts.append(keyword)
    corrections = [slot.correction for slot in analysis.slots if slot.correction]
    if corrections:
        key = "" if analysis.completions else " Tab"
        parts.append(Text(f"did you mean {visible(', '.join(corrections))}?{key}", palette.warn))
    parts += [Text(f"{visible(word)}: too common, not searched", dim) for word in analysis.dropped]
    parts += [Text(f"{visible(keyword)!r}: ignored", dim) for keyword in analysis.ignored]
    parts += [Text(f"only rows with {visible(keyword)}", dim) for keyword in analysis.restricting]
    if analysis.tuples and not analysis.complete:
        parts.append(Text(f"of the latest {analysis.tuples:,} rows", dim))
    if analysis.completions:
        words = [
            f"{visible(word)} {count:,}" if count else visible(word) for word, count in analysis.completions
        ]
        parts.append(Text(f"Tab {', '.join(words[:_COMPLETIONS])}", dim))
    return Text(" · ", dim).join(parts)


class SearchBox(Vertical):
    """Analyses the typed text over the live tuples of ``job``; without a job it does nothing."""

    DEFAULT_CSS = """
    SearchBox { height: 3; border: round $border-blurred; border-title-color: $text-muted; }
    SearchBox:focus-within { border: round $border; border-title-color: $border; }
    """

    class Corrected(Message):
        """The text is no longer the refused one."""

    def __init__(self, view: View, job: LiveJob | None, palette: Palette) -> None:
        super().__init__()
        self.border_title = "search"
        self.palette = palette
        self.analysis = Analysis("")
        self.off_thread = OffThread()
        self._view = view
        self._job = job
        self._counted_at = 0

    def compose(self) -> ComposeResult:
        yield SearchLine(self._view.schema)

    def on_mount(self) -> None:
        self.set_interval(1.0, self._count_again)

    @property
    def box(self) -> SearchLine:
        return self.query_one(SearchLine)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Corrected())
        self._start_analysis(event.value)

    def _count_again(self) -> None:
        """Follow the stream, but let a running analysis end."""
        if self.box.value and self.analysis.text == self.box.value and self._tuples != self._counted_at:
            self._start_analysis(self.box.value)

    @property
    def _tuples(self) -> int:
        return self._view.metrics.tuples if self._view.metrics else 0

    def _start_analysis(self, text: str) -> None:
        if self._job is not None:
            self._counted_at = self._tuples
            self._analyse(text, self._job)

    @work(group="typed", exclusive=True)
    async def _analyse(self, text: str, job: LiveJob) -> None:
        try:
            analysis = await self.off_thread.run(partial(_analysis, text, self._view, job))
        except TooLongError as error:
            analysis = Analysis(text, fault=str(error))
        self.call_later(self._show, analysis)  # dropped if the app has been closed

    def _show(self, analysis: Analysis) -> None:
        if analysis.text == self.box.value:
            self.analysis = analysis
            self.box.complete(analysis.completions)
            self.box.correction = analysis.corrected
            self.draw()

    def refuse(self, reason: str) -> bool:
        """Show why the typed text cannot run; False if there is no room for all of it."""
        self.analysis = Analysis(self.box.value, fault=" ".join(without_picture(reason).split()))
        self.draw()
        return cell_len(self.analysis.fault) + 6 <= self.size.width

    def draw(self) -> None:
        """Draw the analysis again, after a change of the palette."""
        line = analysis_line(self.analysis, self.palette)
        line.truncate(max(self.size.width - 4, 1), overflow="ellipsis")
        self.border_subtitle = line


def _analysis(text: str, view: View, job: LiveJob) -> Analysis:
    return view.analyzer.analyse(text, job.rows)
