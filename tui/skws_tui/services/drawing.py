"""Results as lines of rich's Text: a heading, and the tree of joined tuples with joins on its edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from msgspec.structs import replace
from rich.style import Style
from rich.text import Text

from skws.results.model import LiveResult, Result, TupleShown
from skws.results.score import Score
from skws.sinks.text import Branch, explained, instant, lifespan, short, shortened, tree, value_text, visible
from skws_schema.model import AttributeType, Schema
from skws_tui.services.results import ListedResult
from skws_tui.services.view import View

_TIMESTAMP: Final = AttributeType.TIMESTAMP
_VALUE_WIDTH: Final = 48
_QUERY_WIDTH: Final = 40


@dataclass(frozen=True, slots=True)
class Palette:
    """Styles of one theme. ``keywords``: one per slot, all underlined, so that they show without colour."""

    heading: Style
    relation: Style
    dim: Style
    warn: Style
    ended: Style
    keywords: tuple[Style, ...]


class Drawer:
    """Draws results of a view in the styles of a palette. ``schema``: the one of its drawings."""

    def __init__(self, view: View, palette: Palette) -> None:
        self._view = view
        self._palette = palette
        self.schema: Schema = view.schema

    def lines(self, shown: ListedResult) -> list[Text]:
        """The heading, then a tuple a line."""
        result = shown.result
        lines = [self._heading(shown)]
        if isinstance(result, Result):
            lines += [self._branch(result, branch) for branch in tree(result)]
        else:
            lines += self._members(result)
        if shown.ending:
            for line in lines:
                line.stylize(self._palette.ended)
        return lines

    def detail(self, shown: ListedResult) -> Text:
        """A result in full: its lifespan, its network, its score, whole rows."""
        result, palette = shown.result, self._palette
        parts = [
            Text(visible(result.query), palette.heading),
            Text(f"{self.countdown(shown)}\n{lifespan(result)}", palette.dim),
        ]
        if isinstance(result, Result):
            parts.append(Text.assemble(("network  ", palette.dim), visible(result.network)))
            parts += self._score_lines(result)
        for place, shown_tuple in enumerate(result.tuples):
            parts.append(self._whole(result, place, shown_tuple))
        parts.append(Text(visible(f"id {result.id}"), palette.dim))
        return Text("\n\n").join(parts)

    def countdown(self, shown: ListedResult) -> str:
        """How much longer the result lives, in event time."""
        if shown.ending:
            return shown.ending
        end, now = shown.result.end, self._view.event_time
        if shown.result.query in self._view.results.lasting:
            return "its window has ended"
        if end is None:
            return "alive, no end known"
        return f"alive, ends in {duration(end - now)}" if now is not None else "alive"

    def _heading(self, shown: ListedResult) -> Text:
        result, palette = shown.result, self._palette
        when = instant(result.start) if result.start is not None else "always"
        query = shortened(visible(result.query), (), _QUERY_WIDTH)[0]
        line = Text.assemble((query, palette.heading))
        score = self._score(result)
        if score is not None:
            rank = f"{shown.rank}." if shown.rank else ""
            line.append(f"  {rank}".rstrip() + f"  score {short(score.value)}", palette.relation)
        line.append(f"  {_short(when)}", palette.dim)
        line.append(f"  {_how_many(result)}", palette.dim)
        if result.snapshot:
            line.append("  there before", palette.dim)
        if shown.ending:
            line.append(f"  {shown.ending}", palette.dim)
        return line

    def drawn_at(self, shown: ListedResult) -> float | None:
        """The event time that a drawing depends on; None if it depends on none."""
        score = shown.result.score if isinstance(shown.result, Result) else None
        return None if score is None or score.half_life is None else self._view.event_time

    def _score(self, result: LiveResult) -> Score | None:
        """The score at the current event time."""
        score = result.score if isinstance(result, Result) else None
        now = self._view.event_time
        if score is None or now is None or score.found is None:
            return score
        return score.when(max(now, score.at or score.found))  # results may be ahead of the metrics

    def _score_lines(self, result: Result) -> Iterator[Text]:
        """How the score is made up, and when the result entered the best."""
        score, place = self._score(result), result.place
        if score is not None:
            lines = explained(replace(result, score=score))
            yield Text("\n".join(lines) or f"score {short(score.value)}")
        if place is not None and place.event == "enter":
            when = "" if place.at is None else f" at {instant(place.at)}"
            yield Text(f"entered as number {place.rank} of the best{when}", self._palette.dim)

    def _branch(self, result: Result, branch: Branch) -> Text:
        shown = result.tuples[branch.node]
        line = Text.assemble((branch.lead, self._palette.dim))
        line.append(visible(shown.relation), self._palette.relation)
        if branch.join is not None:
            line.append(f" [{visible(branch.join)}]", self._palette.dim)
        line.append("  ")
        line.append_text(self._attributes(result, shown))
        return line

    def _members(self, result: LiveResult) -> Iterator[Text]:
        """Tuples of a pattern match in order, with their labels."""
        for shown in result.tuples:
            labels = ", ".join(getattr(shown, "labels", ()))
            line = Text("  ")
            line.append(f"{visible(labels)}: " if labels else "", self._palette.heading)
            line.append(visible(shown.relation), self._palette.relation)
            line.append("  ")
            line.append_text(self._attributes(result, shown))
            yield line

    def _attributes(self, result: LiveResult, shown: TupleShown) -> Text:
        """Values with keywords come first, then other searched ones."""
        known = self._view.schema.index.get(shown.relation)
        relation = self._view.schema.relations[known] if known is not None else None
        search = relation.search if relation is not None else ()
        times = [a.name for a in relation.attributes if a.type is _TIMESTAMP] if relation is not None else []
        parts: list[tuple[int, Text]] = []
        for name, value in shown.row.items():
            if value is None:
                continue
            text = _short(value_text(value)) if name in times else value_text(value)
            drawn = self._value(result, shown.relation, name, text, _VALUE_WIDTH)
            place = 0 if drawn.spans else 1 if name in search else 2
            parts.append((place, Text.assemble((f"{visible(name)} ", self._palette.dim), drawn)))
        return Text("  ").join(part for _, part in sorted(parts, key=itemgetter(0)))

    def _value(self, result: LiveResult, relation: str, attribute: str, text: str, width: int) -> Text:
        keywords = isinstance(result, Result)
        found = self._view.analyzer.spans(result.query, relation, attribute, text) if keywords else []
        short, spans = shortened(visible(text), found, width)
        value = Text(short)
        for start, end, slot in spans:
            value.stylize(self._palette.keywords[slot % len(self._palette.keywords)], start, end)
        return value

    def _whole(self, result: LiveResult, place: int, shown: TupleShown) -> Text:
        palette = self._palette
        whole = Text.assemble(
            (visible(shown.relation), palette.relation), (f"  {visible(shown.id)}", palette.dim)
        )
        for left, right, name in result.joins if isinstance(result, Result) else ():
            if max(left, right) == place:
                other = result.tuples[min(left, right)]
                whole.append(f"\n  joined to {visible(other.id)} by {visible(name)}", palette.dim)
        for name, value in shown.row.items():
            whole.append(f"\n  {visible(name)}  ", palette.dim)
            if value is None:
                whole.append("NULL", palette.dim)
            else:
                whole.append_text(self._value(result, shown.relation, name, value_text(value), 2_000))
        return whole


def _how_many(result: LiveResult) -> str:
    """The number of tuples, or of matches for a row that matches show."""
    times = getattr(result, "count", None)
    number, one, more = (len(result.tuples), "tuple", "s") if times is None else (times, "match", "es")
    return f"{number:,} {one}{more * (number > 1)}"


def plain_text(results: Sequence[Text]) -> str:
    """Lines without their styles, to be copied."""
    return "\n".join(line.plain.rstrip() for line in results)


def duration(seconds: float) -> str:
    """A length of time in its two largest units: ``3 h 20 min``."""
    left = max(0, round(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count:,} {unit}")
        if len(parts) == 2:
            break
    return " ".join(parts)


def _short(when: str) -> str:
    """An instant without midnight, the Z that all of them have, and the zeros of a fraction."""
    short = when.removesuffix("Z").removesuffix("T00:00:00").replace("T", " ")
    return short.rstrip("0") if "." in short else short
