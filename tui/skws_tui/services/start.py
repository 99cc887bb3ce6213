"""The contents of the start: the relations with their rows, and queries that have results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

from skws.keywords.analysis import tokens
from skws_schema.model import Join, Relation, Row, Schema, key_getter

_TRIALS: Final = 3
SAMPLE_ROWS: Final = 2_000
"""The number of rows examined in each relation: enough to find words, and fast at every size of data."""
_LETTERS: Final = 4
"""The minimum length of an offered word; shorter ones are codes, or match too much."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A query to try, and the relations that contain its words."""

    text: str
    relations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RelationSummary:
    """A relation on the start. ``search``: the attributes in which keywords are searched."""

    name: str
    rows: int
    search: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StartContents:
    """The contents. ``complete``: True if all trials are of joined rows, and there are enough of them."""

    relations: tuple[RelationSummary, ...] = ()
    trials: tuple[Trial, ...] = ()
    complete: bool = False


def start_of(
    schema: Schema, rows: Mapping[str, Sequence[Row]], counts: Mapping[str, int], max_size: int
) -> StartContents:
    """The start for ``rows``, live ones by relation; ``counts``: their numbers, which may be larger."""
    removed_relations = schema.evolution.removed_relations
    relations = [
        relation for number, relation in enumerate(schema.relations) if number not in removed_relations
    ]
    summaries = [
        RelationSummary(relation.name, counts.get(relation.name, 0), relation.search)
        for relation in relations
    ]
    sample_rows = {relation.name: rows.get(relation.name, ())[:SAMPLE_ROWS] for relation in schema.relations}
    joined_trials = list(_joined_trials(schema, sample_rows, max_size))
    single = _single_trials(relations, sample_rows)
    trials = tuple(list(chain(joined_trials, single))[:_TRIALS])
    return StartContents(tuple(summaries), trials, len(joined_trials) == _TRIALS)


class _Path(NamedTuple):
    """Two searched relations with the joins from the first to the second."""

    left: Relation
    right: Relation
    joins: tuple[Join, ...]


def _joined_trials(schema: Schema, rows: Mapping[str, Sequence[Row]], max_size: int) -> Iterator[Trial]:
    """Words of two joined rows: first of relations that no trial has used, then of those with many values."""
    paths = [
        path
        for path in _paths(schema)
        if len(path.joins) < max_size and rows[path.left.name] and rows[path.right.name]
    ]
    values = {
        relation.name: _searched_values(relation, rows[relation.name])
        for relation in schema.relations
        if relation.search
    }
    used_names: set[str] = set()
    for _ in range(_TRIALS):
        paths.sort(key=lambda path: _rank(path, values, used_names))
        for index, path in enumerate(paths):
            words = _words_of(schema, rows, path)
            if words is not None:
                names = (path.left.name, path.right.name)
                yield Trial(" ".join(words), names)
                used_names |= {*names}
                del paths[: index + 1]  # earlier ones have no words
                break
        else:
            return


def _searched_values(relation: Relation, rows: Sequence[Row]) -> int:
    """The number of values of the first searched attribute: few are kinds of things, many are their names."""
    return len({row[relation.search_columns[0]] for row in rows})


def _rank(path: _Path, values: Mapping[str, int], used_names: set[str]) -> tuple[int, int, int]:
    names = (path.left.name, path.right.name)
    return sum(name in used_names for name in names), -min(values[name] for name in names), len(path.joins)


def _paths(schema: Schema) -> Iterator[_Path]:
    """Pairs of searched relations that one join connects, or two over a relation between them."""
    removed_joins = schema.evolution.removed_joins
    joins = [join for join_number, join in enumerate(schema.joins) if join_number not in removed_joins]
    for join in joins:
        left, right = schema.relation(join.left), schema.relation(join.right)
        if left.search and right.search and left != right:
            yield _Path(left, right, (join,))
    for number, first_join in enumerate(joins):
        for second_join in joins[number + 1 :]:
            shared = {first_join.left, first_join.right} & {second_join.left, second_join.right}
            ends = {first_join.left, first_join.right} ^ {second_join.left, second_join.right}
            if len(shared) == 1 and len(ends) == 2:
                left = schema.relation(
                    next(name for name in (first_join.left, first_join.right) if name in ends)
                )
                right = schema.relation(
                    next(name for name in (second_join.left, second_join.right) if name in ends)
                )
                if left.search and right.search:
                    yield _Path(left, right, (first_join, second_join))


def _words_of(schema: Schema, rows: Mapping[str, Sequence[Row]], path: _Path) -> tuple[str, str] | None:
    """A word of each of two rows that the joins of a path connect."""
    row_pairs = [(row, row) for row in rows[path.left.name]]
    relation = path.left
    for join in path.joins:
        from_left = join.left == relation.name
        own_side, other_side = (0, 1) if from_left else (1, 0)
        target = schema.relation(join.right if from_left else join.left)
        key = key_getter(tuple(relation.columns[pair[own_side]] for pair in join.on))
        other_key = key_getter(tuple(target.columns[pair[other_side]] for pair in join.on))
        partners = {other_key(row): row for row in reversed(rows[target.name])}
        partners.pop(None, None)
        row_pairs = [(left_row, partners[key(row)]) for left_row, row in row_pairs if key(row) in partners]
        relation = target
    for left_row, right_row in row_pairs:
        left_word, right_word = _word(path.left, left_row), _word(path.right, right_row)
        if left_word and right_word and left_word != right_word:
            return left_word, right_word
    return None


def _single_trials(relations: Sequence[Relation], rows: Mapping[str, Sequence[Row]]) -> Iterator[Trial]:
    for relation in sorted(relations, key=lambda each: -len(rows[each.name])):
        word = next(filter(None, (_word(relation, row) for row in rows[relation.name])), "")
        if word:
            yield Trial(word, (relation.name,))


def _word(relation: Relation, row: Row) -> str:
    """The longest word of the first searched value with a word; empty if there is none."""
    for column in relation.search_columns:
        if row[column] is None:
            continue
        analyzer = relation.attributes[column].analyzer
        words = [token.word for token in tokens(str(row[column]), analyzer) if token.searchable]
        words = [word for word in words if word.isalpha() and len(word) >= _LETTERS]
        if words:
            return max(words, key=len)
    return ""
