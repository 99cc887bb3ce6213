"""The schema: its YAML in an editor that marks errors as the user types, with its join graph beside it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final

from rich.style import Style
from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import OptionList, Static, TextArea
from textual.widgets.option_list import Option
from textual.widgets.text_area import Selection

from skws.durable import replace_file
from skws.sinks.text import visible
from skws_schema.errors import Problem, SkwsError, UsageError, quantity
from skws_schema.model import Schema
from skws_schema.yaml.add_join import join_of, with_join
from skws_tui.error_boundary import OffThread, TooLongError, WorkFailed
from skws_tui.screens.dialogs import ConfirmScreen, PickScreen, PromptScreen
from skws_tui.screens.live_screen import LiveScreen
from skws_tui.services.analyzer import CheckedText, change_text, fold_line, infer_yaml, read_draft

_SAMPLING: Final = 120.0
"""The time limit for sampling a source, which may be remote, in seconds."""


class YamlEditor(TextArea, inherit_bindings=False):
    """A text area that underlines errors."""

    # Without the keys that the app and the screen handle themselves.
    BINDINGS: ClassVar[list[BindingType]] = [
        binding
        for binding in TextArea.BINDINGS
        if not (isinstance(binding, Binding) and binding.action in {"select_line", "undo"})
    ] + [
        Binding("ctrl+home", "to_start", "First line", show=False),
        Binding("ctrl+end", "to_end", "Last line", show=False),
    ]
    DEFAULT_CSS = """
    YamlEditor { height: 1fr; border: none !important; padding: 0; scrollbar-size: 1 1; }
    YamlEditor, YamlEditor:focus { border: none !important; background: $background; }
    YamlEditor:focus { background-tint: $background 0%; }
    YamlEditor .text-area--gutter { color: $text-muted; }
    """

    def __init__(self, text: str) -> None:
        super().__init__(text, soft_wrap=False, show_line_numbers=True, tab_behavior="indent")
        self._faults: dict[int, int] = {}

    def mark(self, problems: Sequence[Problem]) -> None:
        """Underline each problem to the end of its line."""
        self._faults = {problem.line - 1: problem.column - 1 for problem in reversed(problems)}
        self._line_cache.clear()
        self.refresh()

    def get_line(self, line_index: int) -> Text:
        line = super().get_line(line_index)
        column = self._faults.get(line_index)
        if column is not None:
            line.stylize(Style(color="red", underline=True), min(column, max(len(line) - 1, 0)))
        return line

    def action_to_start(self) -> None:
        self.move_cursor((0, 0))

    def action_to_end(self) -> None:
        self.move_cursor(self.document.end)

    def find(self, words: str) -> None:
        """Select the next occurrence of some words, after the cursor or from the start.

        Raises UsageError if they do not occur.
        """
        lines = [line.lower() for line in self.document.lines]
        row, column = self.selection.end
        order = [
            (row, column),
            *((line_number, 0) for line_number in (*range(row + 1, len(lines)), *range(row + 1))),
        ]
        for line_number, begin in order:
            start = lines[line_number].find(words.lower(), begin)
            if start >= 0:
                self.selection = Selection((line_number, start), (line_number, start + len(words)))
                self.scroll_cursor_visible(center=True)
                return
        raise UsageError(f"{words!r} is not in the schema")

    def go_to(self, problem: Problem) -> None:
        self.move_cursor((problem.line - 1, max(problem.column - 1, 0)), center=True)
        self.focus()


class SchemaScreen(LiveScreen):
    """Edits the file from which the schema was read."""

    heading = "schema"
    BINDINGS: ClassVar[list[BindingType]] = [
        # otherwise the editor takes it, and moves the focus
        Binding("escape", "back", "back", priority=True),
        Binding("ctrl+s", "save", "save", priority=True, tooltip="Save the schema", id="save-schema"),
        Binding(
            "ctrl+j,ctrl+enter",
            "apply",
            "apply",
            priority=True,
            tooltip="Apply the schema to the running search",
            id="apply-schema",
        ),
        Binding(
            "ctrl+t",
            "infer",
            "infer",
            priority=True,
            tooltip="Infer the schema from the source",
            id="infer-schema",
        ),
        Binding(
            "ctrl+l", "join", "join", tooltip="Add a join that values suggest", priority=True, id="add-join"
        ),
        Binding(
            "ctrl+f", "find", "find", show=False, tooltip="Find words in the schema", priority=True, id="find"
        ),
        Binding("ctrl+z", "undo", "undo", show=True, tooltip="Undo the last edit", id="undo"),
    ]
    CSS = """
    #editing { width: 58%; }
    #beside { width: 1fr; border-left: solid $border-blurred; padding: 0 1; }
    #problems { height: auto; max-height: 40%; border: none; border-top: solid $error; display: none; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.draft = CheckedText("", None)
        self._saved_text = ""
        self._search_words = ""  # the last search words
        self._checks = OffThread()
        self._samples = OffThread(_SAMPLING)

    def compose_body(self) -> ComposeResult:
        self._saved_text = self.skws.schema_text()
        with Horizontal():
            with Vertical(id="editing"):
                yield YamlEditor(self._saved_text)
                yield OptionList(id="problems", compact=True)
            with VerticalScroll(id="beside", can_focus=False):
                yield Static(id="graph")

    def on_mount(self) -> None:
        super().on_mount()
        self.editor.focus()
        self._check()

    @property
    def editor(self) -> YamlEditor:
        return self.query_one(YamlEditor)

    @property
    def dirty(self) -> bool:
        return self.editor.text != self._saved_text

    @on(TextArea.Changed)
    def _check(self) -> None:
        self._read(self.editor.text)

    @work(group="draft", exclusive=True)
    async def _read(self, text: str) -> None:
        draft = await self._read_text(text)
        self.call_later(self._show_draft, draft)  # dropped if the screen has been closed

    async def _read_text(self, text: str) -> CheckedText:
        path = self.skws.request.schema_path
        try:
            return await self._checks.run(partial(read_draft, text, path))
        except TooLongError as error:
            return CheckedText(text, None, (Problem(str(path), 1, 1, str(error)),))

    def _show_draft(self, draft: CheckedText) -> None:
        if draft.text != self.editor.text:
            return
        self.draft = draft
        self.editor.mark(self.draft.problems)
        problems = self.query_one("#problems", OptionList)
        problems.clear_options()
        problems.add_options(
            [Option(Content(visible(f"{p.line}:{p.column} {p.message}"))) for p in self.draft.problems]
        )
        problems.display = bool(self.draft.problems)
        self._show_graph()

    @on(OptionList.OptionSelected, "#problems")
    def _to_problem(self, event: OptionList.OptionSelected) -> None:
        self.editor.go_to(self.draft.problems[event.option_index])

    def refresh_view(self) -> None:
        self._show_graph()

    def action_undo(self) -> None:
        self.editor.undo()

    def action_find(self) -> None:
        self.app.push_screen(PromptScreen("Find:", self._search_words, self._find))

    def _find(self, words: str) -> None:
        self._search_words = words
        self.query_one(YamlEditor).find(words)

    def action_save(self) -> None:
        """Save the text even if it has errors: it is the user's file."""
        try:
            replace_file(self.skws.request.schema_path, self.editor.text.encode())
        except SkwsError as error:
            self.skws.post_message(WorkFailed(str(error)))
            return
        self._saved_text = self.editor.text
        wrong = quantity(len(self.draft.problems), "problem")
        self.notify(f"saved, with {wrong}" if self.draft.problems else "saved")
        self._show_graph()

    def action_apply(self) -> None:
        """Continue the running job with the schema in the editor."""
        # A worker of the app, so that it completes even if the screen is closed.
        self.skws.run_worker(self._apply(self.editor.text), group="apply", exclusive=True)

    async def _apply(self, text: str) -> None:
        draft = await self._read_text(text)
        if draft.schema is None:
            self.skws.post_message(WorkFailed(f"not applied: {draft.problems[0].message}"))
        elif self.skws.job is None:
            self.skws.post_message(WorkFailed("no job is running that could use the schema"))
        else:
            self.skws.job.apply_schema(draft.text)

    def action_join(self) -> None:
        """Choose among the joins that the text only suggests."""
        schema = self.draft.schema
        if schema is None:
            self.notify("fix the errors first", severity="warning")
        elif not schema.possible:
            self.notify(
                "there is no further suggestion; write a join under joins: - orders.customer = customers.id"
            )
        else:
            choices = [(suggestion.on, suggestion.reason) for suggestion in schema.possible]
            self.app.push_screen(
                PickScreen("Joins that values suggest", choices), partial(self._add_join, schema)
            )

    def _add_join(self, schema: Schema, condition: str | None) -> None:
        """Add a join to the text, where it can be undone."""
        if condition is None:
            return
        try:
            folder = self.skws.request.schema_path.absolute().parent
            yaml_text = with_join(self.editor.text, join_of([condition], schema), folder)
        except SkwsError as error:
            self.skws.post_message(WorkFailed(str(error)))
            return
        self.editor.replace(yaml_text, (0, 0), self.editor.document.end)
        self.notify("added; Ctrl+J applies it, Ctrl+S saves")

    def action_infer(self) -> None:
        if self.dirty:
            question = "Infer a schema and lose the unsaved edits?"
            self.app.push_screen(ConfirmScreen(question), lambda yes: self._infer() if yes else None)
        else:
            self._infer()

    def _infer(self) -> None:
        self.notify("reading a sample of the source")
        self._sample()

    @work(group="infer", exclusive=True)
    async def _sample(self) -> None:
        job = self.skws.request.job
        work = partial(infer_yaml, job.source, job.schema.name, job.schema.window)
        try:
            text = await self._samples.run(work)
        except SkwsError as error:
            self.skws.post_message(WorkFailed(str(error)))
            return
        self.call_later(lambda: self.editor.load_text(text))

    def _show_graph(self) -> None:
        palette, draft, lines = self.palette, self.draft, Text()
        state = "edited, not saved" if self.dirty else "saved"
        lines.append(f"{visible(self.skws.request.schema_path.name)}: {state}\n", palette.dim)
        if draft.schema is None:
            lines.append(f"Fix {quantity(len(draft.problems), 'error')} to see the graph.", palette.warn)
        else:
            width = self.query_one("#beside").scrollable_content_region.width
            graph_lines = (fold_line(visible(line), width) for line in draft.graph)
            lines.append("\n".join(graph_lines) + "\n\n")
            lines.append(f"{len(draft.schema.relations)} relations, {len(draft.schema.joins)} joins, ")
            lines.append(f"window {visible(draft.schema.window)}\n")
            for warning in draft.warnings:
                lines.append(f"note: {visible(warning)}\n", palette.warn)
            change = change_text(self.skws.view.schema, draft.schema)
            lines.append(visible(f"Applying it {change}."), palette.dim)
        self.query_one("#graph", Static).update(lines)
