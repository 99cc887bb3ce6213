"""Text for people: safe for a terminal, cut to a width, with marked keywords and explained scores.

Widths are in terminal cells, of which a wide character takes two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rich.cells import cell_len, set_cell_size

from skws.results.result import LiveResult, Result, Score, ScorePart
from skws_schema.drawing import branches
from skws_schema.errors import quantity

if TYPE_CHECKING:
    from skws.keywords.match import Span

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DEFAULT_WIDTH: Final = 120
"""The width in columns if the output is not a terminal."""
RESET: Final = "\x1b[0m"
BOLD: Final = "\x1b[1m"
DIM: Final = "\x1b[2m"
_SLOT_COLORS: Final = (33, 36, 35, 32, 34, 31, 93, 96)

# Each is replaced by one character, so that positions in the text do not change. Data must neither move the
# cursor nor reorder a line. Lone surrogates, which no encoding has, come from arguments that are not UTF-8.
UNSAFE: Final = {
    **{code: 0x2400 + code for code in range(0x20)},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    **dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C], 0xFFFD),
    **dict.fromkeys(range(0xD800, 0xE000), 0xFFFD),
    **{ord(space): ord(" ") for space in "\t\n\v\f\r\u0085\u2028\u2029"},
}
"""Characters that a terminal interprets, each with a visible replacement."""
_UNSAFE_BYTES: Final = re.compile(
    b"[\x00-\x08\x0b-\x1f\x7f]|"
    + b"|".join(
        re.escape(chr(code).encode()) for code in UNSAFE if code > 0x7F and not 0xD800 <= code < 0xE000
    )
)


def visible(text: str) -> str:
    """``text`` on one line, with a visible character in place of each control character."""
    return text if text.isascii() and text.isprintable() else text.translate(UNSAFE)


def visible_lines(text: str) -> str:
    """As ``visible``, but line feeds stay."""
    return "\n".join(map(visible, text.split("\n")))


def escaped(data: bytes) -> bytes:
    """UTF-8 for a terminal, with control characters as JSON escapes, except line feeds and tabs."""
    return _UNSAFE_BYTES.sub(lambda match: b"\\u%04x" % ord(match[0].decode()), data)


def instant(seconds: float) -> str:
    """Seconds since the epoch in ISO 8601, UTC; times outside the calendar stay numbers."""
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return f"{seconds:.0f} s"
    return moment.isoformat().replace("+00:00", "Z")


def lifespan(result: LiveResult) -> str:
    """The lifespan of a result; ``always`` if all its tuples are static."""
    if result.start is None:
        return "always" if result.end is None else f"until {instant(result.end)}"
    return f"{instant(result.start)} .. {instant(result.end) if result.end is not None else ''}".rstrip()


class DrawnTuple(NamedTuple):
    """A tuple in the drawing of a result as a tree. ``lead``: the characters before it.

    ``node``: its position in the result. ``join``: the join with the tuple above; None for the root.
    """

    lead: str
    node: int
    join: str | None


def tree(result: Result) -> Iterator[DrawnTuple]:
    """The tuples of a result, from the first one on, each followed by the tuples joined to it."""
    yield DrawnTuple("", 0, None)

    def children(node: tuple[int, str]) -> list[tuple[int, str]]:
        return [(max(left, right), name) for left, right, name in result.joins if min(left, right) == node[0]]

    yield from (DrawnTuple(lead, *node) for lead, node in branches((0, ""), children))


def value_text(value: str | float | bool) -> str:
    """A value of a JSON row as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def shortened(text: str, spans: Sequence[Span], width: int) -> tuple[str, list[Span]]:
    """``text`` cut to ``width`` cells around its first span, with the remaining spans."""
    if cell_len(text) <= width:
        return text, list(spans)
    begin = 0
    if spans and cell_len(text[: spans[0][1]]) >= width:
        start, stop, _ = spans[0]
        begin = max(0, start - width // 3)
        while begin < start and cell_len(text[begin:stop]) > width - 2:
            begin += 1
    lead = "…" if begin else ""
    end = begin + _fitting_length(text[begin : begin + width], width - len(lead) - 1)
    tail = "…" if end < len(text) else ""
    shift = len(lead) - begin
    cut_spans = [
        (max(s, begin) + shift, min(e, end) + shift, slot) for s, e, slot in spans if s < end and e > begin
    ]
    return lead + text[begin:end] + tail, cut_spans


def fitted(text: str, width: int) -> str:
    """``text`` cut or padded to exactly ``width`` cells."""
    return set_cell_size(shortened(text, (), width)[0], width)


def padded(text: str, width: int) -> str:
    """``text`` padded to ``width`` cells, if it takes fewer."""
    return text + " " * (width - cell_len(text))


def mark_keywords(text: str, spans: Sequence[Span], *, color: bool) -> str:
    """``text`` with its spans in their slots' colours and underlined, or else ``*like this*``."""
    parts = []
    last = 0
    for start, end, slot in spans:
        before, after = (f"\x1b[4;{_SLOT_COLORS[slot % len(_SLOT_COLORS)]}m", RESET) if color else ("*", "*")
        parts += [text[last:start], before, text[start:end], after]
        last = end
    return "".join([*parts, text[last:]])


def _fitting_length(text: str, width: int) -> int:
    """The number of characters from the start that fit into ``width`` cells."""
    used = 0
    for position, character in enumerate(text):
        used += cell_len(character)
        if used > width:
            return position
    return len(text)


def rank_and_score(result: Result) -> str:
    """The rank and the score, as in ``2. 0.483``; empty without them."""
    rank = "" if result.place is None else f"{result.place.rank}. "
    return rank + ("" if result.score is None else short(result.score.value))


def result_notes(result: Result) -> str:
    """Why a result left the best ones, and the numbers of near-duplicates, held back and equal results."""
    ranking = result.place
    notes = [
        (ranking and ranking.reason) or "",
        f"{ranking.folded} alike" if ranking and ranking.folded else "",
        f"{result.held_back:,} held back" if result.held_back else "",
        f"{result.count:,} times" if (result.count or 1) > 1 else "",
    ]
    return ", ".join(filter(None, notes))


def score_lines(result: Result) -> Iterator[str]:
    """A line for each part of the score, if parts are shown."""
    if result.score is None or not result.score.explained or result.op == "-":
        return
    yield f"score {short(result.score.value)} = {_product(result.score)}"
    for part in result.score.parts:
        if part.why:
            yield f"  {visible(part.name)} {short(part.value)}: {'; '.join(map(_reason_text, part.why))}"


def short(value: float) -> str:
    return f"{value:.4g}"


def _product(score: Score) -> str:
    return " x ".join(_part_text(part) for part in score.parts)


def _part_text(part: ScorePart) -> str:
    return f"{visible(part.name)} {short(part.value)}"


def _reason_text(fact: dict[str, Any]) -> str:
    if "keyword" in fact:
        return visible(
            f"{fact['keyword']} in {fact['tuple']}'s {fact['attribute']} {short(fact['weight'])}"
            f" ({fact['containing']:,} of {fact['texts']:,} texts{_reference_text(fact)})"
        )
    if "join" in fact:
        return visible(f"{fact['join']} {short(fact['value'])} ({quantity(fact['tuples'], 'row')})")
    if fact.keys() == {"tuples"}:
        return quantity(fact["tuples"], "row")
    return ", ".join(f"{visible(name)} {_value_text(value)}" for name, value in fact.items())


def _reference_text(fact: dict[str, Any]) -> str:
    referring = fact.get("referring")
    return f", {short(referring)} rows refer to each" if referring else ""


def _value_text(value: object) -> str:
    if isinstance(value, list):
        return "/".join(map(_value_text, value))
    return short(value) if isinstance(value, float) else visible(str(value))
