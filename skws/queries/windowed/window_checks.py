"""Checks a window before anything runs. Automata and z3 are only loaded for windows of expressions."""

from __future__ import annotations

from skws_schema.errors import UsageError
from skws_schema.model import Schema
from skws_windows.window import ExpressionWindow, Window, parse_window


def check_window(schema: Schema, window: Window) -> None:
    """Raises UsageError for an expression that is invalid over the schema."""
    if isinstance(window, ExpressionWindow):
        from skws.queries.windowed.window_plan import WindowPlan  # noqa: PLC0415 - as above

        WindowPlan.of_text(schema, window.text)


def expression_fault(schema: Schema) -> str | None:
    """The error in the window expression of a schema; None if it has no error, or is no expression."""
    window = parse_window(schema.window)
    try:
        check_window(schema, window)
    except UsageError as error:
        return str(error)
    return None


def verdict_lines(schema: Schema, window: Window) -> list[str]:
    """The result of the static check of an expression, in lines for the user; empty for other windows."""
    if not isinstance(window, ExpressionWindow):
        return []
    from skws.queries.windowed.window_plan import lines_of_verdict  # noqa: PLC0415 - as above

    return lines_of_verdict(schema, window)
