"""Results as rich's Text: one line each in a table, a tree of their tuples, or every value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from functools import cached_property, lru_cache
from itertools import islice, pairwise
from operator import itemgetter
from typing import Final

from msgspec.structs import replace
from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from skws.keywords.match import Span
from skws.results.result import Result, ResultTuple, Score
from skws.sinks.row_names import RowNames
from skws.sinks.text import (
    DrawnTuple,
    fitted,
    instant,
    score_lines,
    short,
    shortened,
    tree,
    value_text,
    visible,
)
from skws_schema.errors import quantity
from skws_schema.model import AttributeType, Relation, Schema
from skws_tui.services.cells import wrap_cells
from skws_tui.services.result_buffer import ListedResult
from skws_tui.services.view import View
from skws_windows.window import Unbounded

_TIME: Final = 10
_SIZE: Final = 5
_SCORE: Final = 8
_GAP: Final = "  "
_LABEL: Final = 9
_VALUE: Final = 60
"""The width of a value in a tree, in cells."""
_NARROW: Final = 12
"""The width of a value if there is less room, in cells."""
_WIDE: Final = 10_000
_CHANGED: Final = "reverse"
_WHOLE: Final = 2_000
_DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class Palette:
    """Styles of one theme. ``keywords``: one per slot, all underlined, so that they show without colour."""

    dim: Style
    accent: Style
    warn: Style
    keywords: tuple[Style, ...]


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of the table, ``width`` cells in total.

    ``query`` and ``badge``: their widths in cells, 0 without these columns. ``time``: True for a column with
    the start times of results.
    """

    width: int
    time: bool = True
    query: int = 0
    score: bool = False
    badge: int = 0

    @property
    def sentence(self) -> int:
        """The width in cells of the column that takes the remaining space."""
        other_columns = (_TIME + 2) * self.time + 1 + _SIZE + _SCORE * self.score
        other_columns += sum(cells + 2 for cells in (self.query, self.badge) if cells)
        return max(self.width - other_columns, 8)

    @property
    def heading(self) -> str:
        """The names of the columns, at their positions."""
        query = f"{'query':<{self.query}}  " if self.query else ""
        score = f"{'score':>{_SCORE}}" if self.score else ""
        time = f"{'time':<{_TIME}}  " if self.time else ""
        return f"{time}{query}{'what':<{self.sentence}} {'size':>{_SIZE}}{score}"


class Drawer:
    """Draws results of a view in the styles of a palette. ``schema``: the one used for drawings."""

    def __init__(self, view: View, palette: Palette) -> None:
        self._view = view
        self.palette = palette
        self.schema: Schema = view.schema

    def line(self, row: ListedResult, columns: TableColumns) -> Text:
        """A result in one line of the table."""
        result, dim = row.result, self.palette.dim
        line = Text()
        if columns.time:
            line.append(fitted(when(result.start, self._view.event_time), _TIME) + _GAP, dim)
        if columns.query:
            line.append(fitted(visible(result.query), columns.query) + _GAP, dim)
        line.append_text(self._sentence(result, columns.sentence))
        line.append(f" {_size(row):>{_SIZE}}", dim)
        if columns.score:
            line.append(f"{self._score_text(row):>{_SCORE}}")
        if columns.badge:
            line.append(f"  {row.ending or '':<{columns.badge}}")
        return _dimmed(line, dim) if row.ending else line

    def tree(self, row: ListedResult, width: int = _WIDE) -> list[Text]:
        """The tuples of a result, one a line; for other results than those of keywords, with labels.

        Lines may be wider than ``width``, but keywords are within it if they fit.
        """
        result = row.result
        if result.network:
            lines = [self._branch(result, branch, width) for branch in tree(result)]
        else:
            lines = list(self._members(result, width))
        return [_dimmed(line, self.palette.dim) for line in lines] if row.ending else lines

    def detail(self, row: ListedResult, width: int, *, whole: bool) -> Text:
        """A result with its lifespan, its score and its network; ``whole``: with all values."""
        tuples = list(self._whole_rows(row.result)) if whole else self.tree(row, width)
        for line in () if whole else tuples:
            line.truncate(width, overflow="ellipsis")
        return Text("\n").join([*tuples, Text(), *self._facts(row, max(width - _LABEL, 10))])

    def countdown(self, row: ListedResult) -> str:
        """The time until the result ends, or the reason why it has ended."""
        end, now = row.result.end, self._view.event_time
        if row.query in self._view.results.windowed_queries:
            return "its window has ended"
        end_text = "" if end is None else day_or_time(end)
        if row.ending:
            return (
                f"{row.ending}{', ' if end_text else ''}{end_text}" if row.ending == "expired" else row.ending
            )
        if end is None or now is None:
            return end_text or "not known"
        return f"{end_text}, in {duration(end - now)}"

    def drawn_at(self, row: ListedResult) -> float | None:
        """The input of a drawing besides the row: the event time for a fading score, otherwise the day."""
        now = self._view.event_time
        if now is None:
            return None
        score = row.result.score
        return now // _DAY if score is None or score.half_life is None else now

    def _sentence(self, result: Result, width: int) -> Text:
        line = Text()
        name_attributes = self._names.of(result)
        phrases = [
            phrase
            for node in _reading_order(result)
            for phrase in self._phrases(result, result.tuples[node], name_attributes[node])
        ]
        previous: TuplePhrase | None = None
        for phrase in sentence(phrases, width):
            line.append(separator(previous, phrase) if previous else "", self.palette.dim)
            start, previous = len(line), phrase
            line.append(phrase.text, None if phrase.matched else self.palette.dim)
            self._mark(line, phrase.spans, start)
        line.truncate(width, overflow="ellipsis")
        line.append(" " * (width - cell_len(line.plain)))
        return line

    def _phrases(
        self, result: Result, result_tuple: ResultTuple, name_attribute: str
    ) -> Iterator[TuplePhrase]:
        """The phrases for a tuple: the attribute that names it, if this is not searched, and its values."""
        phrase = self._phrase(result, result_tuple)
        if name_attribute:
            text = visible(value_text(result_tuple.row[name_attribute] or "")).strip()
            yield TuplePhrase(text, (), matched=False, names=True)
        if phrase.spans or not name_attribute:
            yield phrase

    def _phrase(self, result: Result, result_tuple: ResultTuple) -> TuplePhrase:
        """The values with keywords of a tuple; without any, its first searched value."""
        text, spans = "", list[Span]()
        for name, value in result_tuple.row.items():
            raw = "" if value is None else visible(value_text(value))
            keyword_spans = self._spans(result, result_tuple.relation, name, raw) if raw else []
            if keyword_spans:
                text += ", " if text else ""
                short_text, inside = shortened(raw, keyword_spans, _VALUE)
                spans += [(start + len(text), end + len(text), slot) for start, end, slot in inside]
                text += short_text
        if text:
            return TuplePhrase(text, spans)
        text, is_match = _label_text(result_tuple) + self._name(result_tuple), _is_match(result, result_tuple)
        return TuplePhrase(
            text, (), matched=is_match, names=len(self._relation(result_tuple.relation).key) == 1
        )

    def _name(self, result_tuple: ResultTuple) -> str:
        """The first searched value of a tuple, or its relation and the first value of its own."""
        relation, row = self._relation(result_tuple.relation), result_tuple.row
        texts = [value_text(v) for v in map(row.get, relation.search) if v not in {None, ""}]
        if texts:
            return visible(texts[0]).strip()
        hidden = self._joining(relation).union(self._times(relation))
        values = (
            f"{name} {value_text(v)}" for name, v in row.items() if v is not None and name not in hidden
        )
        return visible(" ".join([result_tuple.relation, *islice(values, 1)]))

    def _branch(self, result: Result, branch: DrawnTuple, width: int) -> Text:
        result_tuple = result.tuples[branch.node]
        line = Text().append(branch.lead.replace("─ ", " "), self.palette.dim)
        line.append(visible(result_tuple.relation) + _GAP, self.palette.dim)
        line.append_text(
            self._values(result, result_tuple, width - line.cell_len, self._names.of_row(result_tuple))
        )
        if branch.join is not None and branch.join in self._ambiguous:
            line.append(f"  [{visible(branch.join)}]", self.palette.dim)
        return line

    @property
    def _names(self) -> RowNames:
        return _row_names(self.schema)

    @cached_property
    def _ambiguous(self) -> frozenset[str]:
        """The joins of pairs of relations that have several joins."""
        pairs: dict[frozenset[str], list[str]] = {}
        for join in self.schema.joins:
            pairs.setdefault(frozenset((join.left, join.right)), []).append(join.name)
        return frozenset(name for names in pairs.values() if len(names) > 1 for name in names)

    def _members(self, result: Result, width: int) -> Iterator[Text]:
        """The tuples of a pattern match in order, with their labels."""
        for result_tuple in result.tuples:
            line = Text(_label_text(result_tuple)).append(
                visible(result_tuple.relation) + _GAP, self.palette.dim
            )
            line.append_text(self._values(result, result_tuple, width - line.cell_len))
            yield line

    def _values(
        self, result: Result, result_tuple: ResultTuple, width: int, name_attribute: str = ""
    ) -> Text:
        """Searched values, those with keywords first; then others with their names, those of joins last.

        The value of ``name_attribute`` comes first. The first keyword of each value is within ``width``, or
        close to the start of the value.
        """
        relation = self._relation(result_tuple.relation)
        search_attributes, join_attributes = relation.search, self._joining(relation)
        times = self._times(relation)
        changed_attributes = _changed_attributes(result, result_tuple)
        name_texts, texts, other_texts = (list[tuple[bool, Text]]() for _ in range(3))
        for name, value in result_tuple.row.items():
            if value in {None, ""}:
                continue
            room = max(_NARROW, min(_VALUE, width - cell_len(name) - 1))
            value_line = self._value(result, result_tuple.relation, name, value_text(value), room)
            has_keywords, style = bool(value_line.spans), _CHANGED if name in changed_attributes else ""
            if has_keywords or name in search_attributes:
                value_line.stylize(style)
                several = len(search_attributes) > 1
                entry = Text.assemble((f"{visible(name)} " if several else "", self.palette.dim), value_line)
                texts.append((not has_keywords, entry))
            else:
                plain = day_or_second(value_line.plain) if name in times else value_line.plain
                entry = Text(f"{visible(name)} {plain}", self.palette.dim)
                entry.stylize(style, len(visible(name)) + 1)
                (name_texts if name == name_attribute else other_texts).append(
                    (name in join_attributes, entry)
                )
        ordered_entries = [
            *name_texts,
            *sorted(texts, key=itemgetter(0)),
            *sorted(other_texts, key=itemgetter(0)),
        ]
        return Text(_GAP).join([text for _, text in ordered_entries])

    def _value(self, result: Result, relation: str, attribute: str, text: str, width: int) -> Text:
        short_text, spans = shortened(visible(text), self._spans(result, relation, attribute, text), width)
        value = Text(short_text)
        self._mark(value, spans)
        return value

    def _spans(self, result: Result, relation: str, attribute: str, text: str) -> list[Span]:
        if not result.network:
            return []
        return self._view.analyzer.spans(result.name, relation, attribute, text)

    def _mark(self, text: Text, spans: Sequence[Span], shift: int = 0) -> None:
        for start, end, slot in spans:
            style = self.palette.keywords[slot % len(self.palette.keywords)]
            text.stylize(style, start + shift, end + shift)

    def _relation(self, name: str) -> Relation:
        """The relation; one without attributes if it was removed."""
        number = self.schema.index.get(name)
        return Relation(name, ()) if number is None else self.schema.relations[number]

    @staticmethod
    def _times(relation: Relation) -> list[str]:
        return [
            attribute.name for attribute in relation.attributes if attribute.type is AttributeType.TIMESTAMP
        ]

    def _joining(self, relation: Relation) -> frozenset[str]:
        """The attributes that join a relation to others, and its key."""
        names = list(relation.key)
        for join in self.schema.joins:
            names += [left for left, _ in join.on if join.left == relation.name]
            names += [right for _, right in join.on if join.right == relation.name]
        return frozenset(names)

    def _whole_rows(self, result: Result) -> Iterator[Text]:
        for node, result_tuple in enumerate(result.tuples):
            changed_attributes = _changed_attributes(result, result_tuple)
            heading = Text(_label_text(result_tuple))
            yield heading.append(visible(result_tuple.relation)).append(
                f"  {visible(result_tuple.id)}", self.palette.dim
            )
            for left, right, name in result.joins:
                if max(left, right) == node:
                    partner = result.tuples[min(left, right)]
                    yield Text(f"  joined to {visible(partner.id)} by {visible(name)}", self.palette.dim)
            for name, value in result_tuple.row.items():
                line = Text().append(f"  {visible(name)}  ", self.palette.dim)
                if value is None:
                    yield line.append("NULL", self.palette.dim)
                else:
                    value_line = self._value(result, result_tuple.relation, name, value_text(value), _WHOLE)
                    value_line.stylize(_CHANGED if name in changed_attributes else "")
                    yield line.append_text(value_line)

    def _facts(self, row: ListedResult, width: int) -> Iterator[Text]:
        """All facts about a result except its tuples; values are wrapped to a width."""
        for label, value in self._named_facts(row):
            lines = wrap_cells(value, width) or [""]
            yield Text.assemble((f"{label:<{_LABEL}}", self.palette.dim), lines[0])
            yield from (Text(" " * _LABEL + line) for line in lines[1:])

    def _named_facts(self, row: ListedResult) -> Iterator[tuple[str, str]]:
        result = row.result
        yield "query", visible(result.query)
        if result.start is not None:
            note = ", before the query was added" if result.snapshot else ""
            yield "began", f"{day_or_time(result.start)}{note}"
        if (
            row.ending
            or result.end is not None
            or not isinstance(self._view.request.job.plan_window, Unbounded)
        ):
            yield "ended" if row.ending else "ends", self.countdown(row)
        if not result.network:
            return
        if result.op == "~" and result.at is not None:
            names = [f"{name} of {tuple_id}" for tuple_id, names in result.changed for name in names]
            yield "updated", visible(", ".join([day_or_time(result.at), *names]))
        reasons = [f"{keyword} in {t.relation}" for t in result.tuples for keyword in t.keywords]
        joins = quantity(len(result.joins), "join")
        yield "why", visible("; ".join(filter(None, [", ".join(reasons), joins])))
        if len(row.alike) > 1:
            yield "folded", f"{len(row.alike)} results of the same rows, by parallel joins"
        yield from self._score_facts(row, result)
        yield "network", visible(result.network)
        yield "id", visible(result.id)

    def _score_facts(self, row: ListedResult, result: Result) -> Iterator[tuple[str, str]]:
        """The parts of the score, and when the result entered the best."""
        score, place = self._score(result), result.place
        if score is not None:
            lines = list(score_lines(replace(result, score=score))) or [short(score.value)]
            yield "score", lines[0].removeprefix("score ")
            yield from (("", line.strip()) for line in lines[1:])
        if row.rank:
            yield "rank", f"{row.rank} of those listed"
        if place is not None and place.event == "enter":
            time_text = "" if place.at is None else f", {day_or_time(place.at)}"
            yield "entered", f"as number {place.rank} of the best{time_text}"

    def _score(self, result: Result) -> Score | None:
        """The score at the current event time."""
        score = result.score
        now = self._view.event_time
        if score is None or now is None or score.found is None:
            return score
        return score.when(max(now, score.at or score.found))  # results may be ahead of the metrics

    def _score_text(self, row: ListedResult) -> str:
        score = self._score(row.result)
        return "" if score is None else short(score.value)


_row_names = lru_cache(maxsize=4)(RowNames)


def _dimmed(line: Text, dim: Style) -> Text:
    return Text().append(line.plain, dim)


def _reading_order(result: Result) -> Sequence[int]:
    """The positions of the tuples in the order of a tree, so that joined ones are neighbours."""
    if result.network:
        return [branch.node for branch in tree(result)]
    return range(len(result.tuples))


def _changed_attributes(result: Result, result_tuple: ResultTuple) -> tuple[str, ...]:
    """The attributes of a tuple that the last update of its result has changed."""
    return dict(result.changed).get(result_tuple.id, ())


def _label_text(result_tuple: ResultTuple) -> str:
    """The labels of a tuple in a pattern match, before its values."""
    labels = ", ".join(result_tuple.labels)
    return f"{visible(labels)}: " if labels else ""


def _is_match(result: Result, result_tuple: ResultTuple) -> bool:
    return bool(result_tuple.keywords) or not result.network


def _size(row: ListedResult) -> str:
    """The number of tuples, or of matches; ``4×2`` if two results share a row."""
    times = row.result.count
    size = f"{len(row.result.tuples) if times is None else times:,}"
    return f"{size}×{len(row.alike)}" if len(row.alike) > 1 else size


def when(seconds: float | None, now: float | None) -> str:
    """An instant in ten cells: the time if it is on the current day of event time, otherwise the day."""
    if seconds is None:
        return ""
    day, _, clock = instant(int(seconds)).removesuffix("Z").partition("T")
    today = now is not None and seconds // _DAY == now // _DAY
    return clock if today and clock != "00:00:00" else day


def day_or_time(seconds: float) -> str:
    """An instant in full, without midnight."""
    return day_or_second(instant(seconds))


def day_or_second(text: str) -> str:
    """The text of an instant without midnight, its final Z, and zeros of a fraction."""
    short_text = text.removesuffix("Z").removesuffix("T00:00:00").replace("T", " ")
    return short_text.rstrip("0") if "." in short_text else short_text


def plain_text(results: Sequence[Text]) -> str:
    """Lines without their styles, to be copied."""
    return "\n".join(line.plain.rstrip() for line in results)


def duration(seconds: float) -> str:
    """A length of time in its two largest units: ``3 h 20 min``."""
    remaining = max(0, round(seconds))
    parts: list[str] = []
    for unit, size in (("y", 31_557_600), ("d", _DAY), ("h", 3_600), ("min", 60), ("s", 1)):
        count, remaining = divmod(remaining, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count:,} {unit}")
        if len(parts) == 2:
            break
    return " ".join(parts)


SEPARATOR: Final = " · "
GAP: Final = "…"
"""Replaces connecting phrases; no separators are next to it."""
_CONNECTING: Final = 32
"""The maximum width of a phrase without keywords, in cells."""
_SHORTEST: Final = 10
_SHORTEST_BESIDE_THINGS: Final = 7


@dataclass(frozen=True, slots=True)
class TuplePhrase:
    """The values of one tuple. ``spans``: its keywords. ``matched``: False if it only connects others.

    ``names``: it belongs to a thing with a key of its own, such as a film, which distinguishes results.
    """

    text: str
    spans: Sequence[Span] = field(default=())
    matched: bool = True
    names: bool = False


def sentence(phrases: Sequence[TuplePhrase], width: int) -> list[TuplePhrase]:
    """The phrases that fit in ``width`` cells with separators between them; ``…`` for those left out.

    The longest connecting phrases are left out first; those that name a thing, only once all phrases are
    short. Matched phrases are kept, cut around their first keywords.
    """
    short_phrases = [
        p if p.matched else replaced(p, text=shortened(p.text, (), _CONNECTING)[0]) for p in phrases if p.text
    ]
    short_phrases = _without(short_phrases, width, names=False)
    while _width(fitted_phrases := _fit(short_phrases, width)) > width and any(map(_is_thing, short_phrases)):
        short_phrases = _without(short_phrases, _width(short_phrases) - 1, names=True)
    return [
        p
        for index, p in enumerate(fitted_phrases)
        if not (index and p.text == GAP and fitted_phrases[index - 1].text.endswith(GAP))
    ]


def _without(phrases: list[TuplePhrase], width: int, *, names: bool) -> list[TuplePhrase]:
    """The phrases with ``…`` for connecting ones, until they fit; ``names``: also for names of things."""
    remaining = phrases
    while _width(remaining) > width:
        connecting = [
            index
            for index, p in enumerate(remaining)
            if not p.matched and p.text != GAP and (names or not p.names)
        ]
        if not connecting:
            break
        longest = max(connecting, key=lambda index: cell_len(remaining[index].text))
        remaining[longest] = TuplePhrase(GAP, (), matched=False)
        remaining = [
            p
            for index, p in enumerate(remaining)
            if not (index and p.text == remaining[index - 1].text == GAP)
        ]
    return remaining


def _is_thing(phrase: TuplePhrase) -> bool:
    """True if it connects others, but distinguishes results."""
    return phrase.names and not phrase.matched


def _fit(phrases: list[TuplePhrase], width: int) -> list[TuplePhrase]:
    """Phrases cut as little as necessary; shorter than usual only if one names a thing, which is kept."""
    fitted_phrases = _shorten(phrases, width)
    if _width(fitted_phrases) > width and any(map(_is_thing, phrases)):
        fitted_phrases = _shorten(phrases, width, _SHORTEST_BESIDE_THINGS)
    return fitted_phrases


def _shorten(phrases: list[TuplePhrase], width: int, shortest: int = _SHORTEST) -> list[TuplePhrase]:
    """Cut the longest phrases that are matched or name things until all fit, as far as possible."""
    lengths = [cell_len(p.text) if p.matched or _is_thing(p) else 0 for p in phrases]
    # None is longer than the line in the end. A text may be a whole document.
    sizes = [min(length, max(width, shortest)) for length in lengths]
    over = _width(phrases) - width - sum(lengths) + sum(sizes)
    while over > 0 and (most := max(sizes, default=0)) > shortest:
        sizes[sizes.index(most)] -= 1
        over -= 1
    return [
        replaced(p, text=text, spans=spans)
        for p, size in zip(phrases, sizes, strict=True)
        for text, spans in [shortened(p.text, p.spans, size) if size else (p.text, p.spans)]
    ]


def separator(before: TuplePhrase, after: TuplePhrase) -> str:
    """The sign between two phrases."""
    return " " if GAP in {before.text, after.text} else SEPARATOR


def _width(phrases: Sequence[TuplePhrase]) -> int:
    between = sum(len(separator(*pair)) for pair in pairwise(phrases))
    return sum(cell_len(p.text) for p in phrases) + between
