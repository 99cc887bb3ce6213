"""Whether windows that an expression defines may be searched: they are read, and must not pile up unasked."""

from __future__ import annotations

from skws.queries.windowed.plan import WindowPlan
from skws.queries.windowed.writers import witness_text
from skws_schema.errors import SchemaError, SkwsError, UsageError
from skws_schema.evolution import nameable
from skws_schema.model import Schema
from skws_windows.check.verdict import Bound, Verdict
from skws_windows.guards.alphabet import Alphabet
from skws_windows.language.expression import WindowExpression
from skws_windows.window import ExpressionWindow, Window, parse_window

FLAG = "--allow-unbounded-windows"


def admit(schema: Schema, window: Window, *, allowed: bool) -> str:
    """A warning about windows that may pile up, or the empty string.

    Raises UsageError for an expression that cannot be read or whose windows
    pile up, and SchemaError if that is the schema's own window.
    """
    if not isinstance(window, ExpressionWindow):
        return ""
    try:
        request = WindowPlan.of_text(schema, window.text)
        return "" if allowed else admitted(request.verdict(), request.expression, request.alphabet)
    except UsageError as error:
        raise _blamed(error, schema, window) from None


def _blamed(error: UsageError, schema: Schema, window: ExpressionWindow) -> SkwsError:
    own = parse_window(schema.window) == window
    return SchemaError(f"window of schema {schema.name}: {error}") if own else UsageError(f"window: {error}")


def admitted(verdict: Verdict, expression: WindowExpression, alphabet: Alphabet) -> str:
    """A warning about windows that may pile up, or cannot be; or "". Raises UsageError if they pile up."""
    if verdict.never:
        return f"warning: {verdict.reason}"
    bounds = (verdict.open_starts, verdict.windows_per_position)
    if expression.limits.bounding or all(bound is Bound.BOUNDED for bound in bounds):
        return ""
    if Bound.UNBOUNDED in bounds:
        witness = verdict.witness
        shown = "" if witness is None else f", as on this stream:\n{witness_text(witness, alphabet)}"
        raise UsageError(
            f"windows can pile up without bound: {verdict.reason}{shown}\n"
            "Choose 'first' or 'longest', give a limit such as 'at most 1000 records' or "
            f"'within 10 minutes', or allow it by {FLAG}"
        )
    return f"warning: windows may pile up without bound: {verdict.reason}"


def check_same_windows(before: Schema, after: Schema, window: ExpressionWindow) -> None:
    """Raises UsageError if a changed schema finds them by other automata: their state cannot go on."""
    was, now = (WindowPlan.of_text(nameable(schema), window.text).compiled() for schema in (before, after))
    if was != now:
        raise UsageError("with other relations its windows begin and end by other conditions")


def window_fault(schema: Schema) -> str | None:
    """What is wrong with the window expression of a schema; None if nothing, or if it is no expression."""
    window = parse_window(schema.window)
    if not isinstance(window, ExpressionWindow):
        return None
    try:
        WindowPlan.of_text(schema, window.text)
    except UsageError as error:
        return str(error)
    return None


def verdict_lines(schema: Schema, window: ExpressionWindow) -> list[str]:
    """What the static check says of a window, for people."""
    request = WindowPlan.of_text(schema, window.text)
    verdict = request.verdict()
    lines = [
        f"starts of windows open at one time: {verdict.open_starts}, because {verdict.reason}",
        f"windows that end with one record: {verdict.windows_per_position}",
    ]
    if request.expression.limits.bounding and verdict.open_starts is not Bound.BOUNDED:
        lines.append("but no window outlasts its limit")
    elif verdict.open_starts is not Bound.BOUNDED and verdict.witness is not None:
        lines.append("as on this stream:")
        lines += witness_text(verdict.witness, request.alphabet).splitlines()
    return lines
