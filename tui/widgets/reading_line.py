"""Under the query box: the slots with their live tuples, what is meant, how the last word goes on."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from skws.results.writers.text import visible
from tui.services.drawing import Palette
from tui.services.typed import Reading


class ReadingLine(Static):
    """Two lines at most, empty ones left out."""

    DEFAULT_CSS = "ReadingLine { height: auto; max-height: 2; padding: 0 1; }"

    def read(self, reading: Reading, palette: Palette) -> None:
        lines = [line for line in (_slots(reading, palette), _completions(reading, palette)) if line.plain]
        self.display = bool(lines)
        self.update(Text("\n", no_wrap=True, overflow="ellipsis").join(lines))


def _slots(reading: Reading, palette: Palette) -> Text:
    if reading.fault:
        return Text(f"✗ {visible(reading.fault)}", palette.warn)
    parts = []
    for number, slot in enumerate(reading.slots):
        part = Text.assemble((visible(slot.text), palette.keywords[number % len(palette.keywords)]))
        if reading.tuples:
            part.append(f" {slot.count:,}", palette.dim)
        if slot.meant:
            part.append(f" did you mean {visible(slot.meant)}? (ctrl+d)", palette.warn)
        elif reading.tuples and not slot.count:
            part.append(" no live tuple", palette.dim)
        parts.append(part)
    parts += [Text(f"{visible(word)}: too common, not searched", palette.dim) for word in reading.dropped]
    parts += [Text(f"{visible(part)!r}: ignored", palette.dim) for part in reading.ignored]
    if reading.tuples:
        of = (
            f"of {reading.tuples:,} live tuples"
            if reading.whole
            else f"of the latest {reading.tuples:,} tuples"
        )
        parts.append(Text(of, palette.dim))
    return Text("  ").join(parts)


def _completions(reading: Reading, palette: Palette) -> Text:
    if not reading.completions:
        return Text()
    words = Text("  ").join(
        Text.assemble(visible(word), (f" {count:,}", palette.dim)) for word, count in reading.completions
    )
    return Text.assemble(("tab ", palette.dim), words)
