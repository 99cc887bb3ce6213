"""The schema: its YAML in an editor, what is wrong with it as one types, the join graph beside it."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import OptionList, Static, TextArea
from textual.widgets.option_list import Option

from schema.errors import Problem, SkwsError
from skws.results.writers.text import visible, visible_lines
from tui.background import in_background
from tui.messages import DraftRead, Failed, Inferred
from tui.screens.confirm import ConfirmScreen
from tui.screens.live import LiveScreen
from tui.services.editing import Draft, change_text, inferred, read_draft, save
from tui.services.off_thread import OffThread, TooLongError
from tui.services.run import ApplySchema
from tui.widgets.yaml_editor import YamlEditor

_SAMPLED: Final = 120.0
"""Seconds for a sample of a source, which may be far away."""


class SchemaScreen(LiveScreen):
    """Edits the file that the schema was read from."""

    name_shown = "schema"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "save", "Save", priority=True, id="save-schema"),
        Binding("ctrl+j,ctrl+enter", "apply", "Apply", priority=True, id="apply-schema"),
        Binding("ctrl+t", "infer", "Infer", priority=True, id="infer-schema"),
        Binding("ctrl+z", "undo", "Undo", show=True, id="undo"),
    ]
    CSS = """
    #editing { width: 58%; }
    #beside { width: 1fr; border-left: solid $primary-background; padding: 0 1; }
    #problems { height: auto; max-height: 40%; border: none; border-top: solid $error; display: none; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.draft = Draft("", None)
        self._saved = ""
        self._reads = OffThread()
        self._samples = OffThread(_SAMPLED)

    def compose_body(self) -> ComposeResult:
        self._saved = self.skws.schema_text()
        with Horizontal():
            with Vertical(id="editing"):
                yield YamlEditor(self._saved)
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
        return self.editor.text != self._saved

    @on(TextArea.Changed)
    def _check(self) -> None:
        in_background(self, partial(self._read, self.editor.text), "draft")

    async def _read(self, text: str) -> None:
        path = self.skws.request.schema_path
        try:
            draft = await self._reads.run(partial(read_draft, text, path))
        except TooLongError as error:
            draft = Draft(text, None, (Problem(str(path), 1, 1, str(error)),))
        self.post_message(DraftRead(draft))

    def on_draft_read(self, message: DraftRead) -> None:
        if message.draft.text != self.editor.text:
            return
        self.draft = message.draft
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

    def action_save(self) -> None:
        """Save, also what is still wrong: it is the user's file."""
        if self.skws.request.served:
            told = "a browser writes no schema file: Ctrl+J applies the text to the running engine"
            self.skws.post_message(Failed(told))
            return
        try:
            save(self.editor.text, self.skws.request.schema_path)
        except SkwsError as error:
            self.skws.post_message(Failed(str(error)))
            return
        self._saved = self.editor.text
        wrong = len(self.draft.problems)
        self.notify(f"saved, with {wrong} problem{'s' * (wrong != 1)}" if wrong else "saved")
        self._show_graph()

    def action_apply(self) -> None:
        """Make the running engine go on with what is in the editor."""
        draft = read_draft(self.editor.text, self.skws.request.schema_path)
        if draft.schema is None:
            self.skws.post_message(Failed(f"not applied: {draft.problems[0].message}"))
        elif self.skws.live_run is None:
            self.skws.post_message(Failed("nothing is running that a schema could be applied to"))
        else:
            self.skws.live_run.post(ApplySchema(draft.text))

    def action_infer(self) -> None:
        if self.dirty:
            asked = "Infer a schema and lose the edits that are not saved?"
            self.app.push_screen(ConfirmScreen(asked), lambda yes: self._infer() if yes else None)
        else:
            self._infer()

    def _infer(self) -> None:
        self.notify("reading a sample of the source")
        in_background(self, self._inferred, "infer")

    async def _inferred(self) -> None:
        request = self.skws.request
        work = partial(inferred, request.source, request.schema.name, request.schema.window)
        try:
            text = await self._samples.run(work)
        except SkwsError as error:
            self.skws.post_message(Failed(str(error)))
            return
        self.post_message(Inferred(text))

    def on_inferred(self, message: Inferred) -> None:
        self.editor.load_text(message.text)

    def _show_graph(self) -> None:
        palette, draft, lines = self.palette, self.draft, Text()
        state = "edited, not saved" if self.dirty else "saved"
        lines.append(f"{visible(self.skws.request.schema_path.name)}: {state}\n", palette.dim)
        if draft.schema is None:
            lines.append(f"{len(draft.problems)} to mend before there is a graph", palette.warn)
        else:
            lines.append(visible_lines("\n".join(draft.graph)) + "\n\n")
            lines.append(f"{len(draft.schema.relations)} relations, {len(draft.schema.joins)} joins, ")
            lines.append(f"window {visible(draft.schema.window)}\n")
            for warning in draft.warnings:
                lines.append(f"note: {visible(warning)}\n", palette.warn)
            change = change_text(self.skws.view.schema, draft.schema)
            lines.append(visible(f"Applying it {change}."), palette.dim)
        self.query_one("#graph", Static).update(lines)
