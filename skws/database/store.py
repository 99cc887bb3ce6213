"""An index of a database on disk: rows by number and by join value, words to the rows that contain them.

One SQLite file. Words are analysed once, when it is made; a query only probes,
so memory does not grow with the tables.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias

from schema.errors import SourceError
from schema.graph import edges
from schema.model import AttributeType, Relation, Row, Schema, Value
from skws import __version__
from skws.keywords import tokens
from skws.keywords.analysis import MEMORABLE
from skws.keywords.query import Alternative, Phrase, Prefix, Term

_FORMAT: Final = 3
_BATCH: Final = 20_000
_RELATION: Final = 1 << 40  # rows of one relation
_PROBES: Final = 256  # values in one statement

JoinValue: TypeAlias = tuple[Value, ...]


class Store:
    """Reads an index. Rows are named by relation and number; numbers begin at 1."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self._schema = schema
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA cache_size = -65536")
        self._booleans = [
            [c for c, a in enumerate(relation.attributes) if a.type is AttributeType.BOOLEAN]
            for relation in schema.relations
        ]

    def close(self) -> None:
        self._connection.close()

    def size(self, relation: int) -> int:
        """How many rows a relation has."""
        return int(self._one(f"SELECT count(*) FROM r{relation}"))  # noqa: S608 - here and below: numbers

    def texts(self, relation: int, column: int) -> tuple[int, int]:
        """How many values of a column are not NULL, and their characters in all."""
        found = self._connection.execute(
            f"SELECT count(c{column}), coalesce(sum(length(c{column})), 0) FROM r{relation}"  # noqa: S608
        ).fetchone()
        return int(found[0]), int(found[1])

    def rows(self, relation: int, numbers: Iterable[int]) -> Iterator[tuple[int, Row]]:
        """Rows by number; what is not there is left out."""
        for some in _chunks(numbers):
            marks = ", ".join("?" * len(some))
            statement = f"SELECT rowid, * FROM r{relation} WHERE rowid IN ({marks})"  # noqa: S608
            for number, *row in self._connection.execute(statement, some):
                yield number, self._typed(relation, row)

    def numbers(self, relation: int) -> Iterator[int]:
        """Of all rows."""
        return (number for (number,) in self._connection.execute(f"SELECT rowid FROM r{relation}"))  # noqa: S608

    def partners(
        self, relation: int, columns: Sequence[int], values: Sequence[JoinValue]
    ) -> Iterator[tuple[JoinValue, int]]:
        """Join values, of some, each with the number of a row that has it."""
        for value, (number,) in self._joined("rowid", "", relation, columns, values):
            yield value, number

    def fans(
        self, relation: int, columns: Sequence[int], values: Sequence[JoinValue]
    ) -> Iterator[tuple[JoinValue, int]]:
        """How many rows have each of some join values; those that no row has are left out."""
        for value, (count,) in self._joined("count(*)", "GROUP BY", relation, columns, values):
            yield value, count

    def _joined(
        self, what: str, grouped: str, relation: int, columns: Sequence[int], values: Sequence[JoinValue]
    ) -> Iterator[tuple[JoinValue, list[Any]]]:
        listed = ", ".join(f"c{column}" for column in columns)
        marks = f"({', '.join('?' * len(columns))})"
        for first in range(0, len(values), _PROBES):
            some = values[first : first + _PROBES]
            if len(columns) == 1:
                where = f"{listed} IN ({', '.join('?' * len(some))})"
            else:
                where = f"({listed}) IN (VALUES {', '.join([marks] * len(some))})"
            statement = (
                f"SELECT {listed}, {what} FROM r{relation} WHERE {where} {grouped and f'{grouped} {listed}'}"  # noqa: S608
            )
            for row in self._connection.execute(statement, [part for value in some for part in value]):
                yield row[: len(columns)], row[len(columns) :]

    def occurrence(self, relation: int, number: int) -> int:
        """How many equal rows of a relation without a key come before."""
        statement = "SELECT coalesce(max(before), 0) FROM twins WHERE relation = ? AND row = ?"
        return int(self._one(statement, (relation, number)))

    def containing(self, alternative: Alternative) -> Iterator[tuple[int, int]]:
        """Relation and number of all rows that may satisfy a predicate; the matcher knows which do."""
        match alternative:
            case Term(stem=stem):
                words = _stem(stem)
            case Prefix(start=start):
                words = f"{_word(start)}*"
            case Phrase(stems=stems):
                words = " ".join(dict.fromkeys(map(_stem, stems)))
        found = self._connection.execute("SELECT rowid FROM words WHERE words MATCH ?", (words,))
        return (divmod(number, _RELATION) for (number,) in found)

    def words(self, most: int) -> dict[str, int]:
        """The most frequent words of the searched attributes, and how many rows contain each."""
        self._connection.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS temp.v USING fts5vocab(main, words, row)"
        )
        found = self._connection.execute(
            "SELECT term, doc FROM temp.v WHERE term >= 'w' ORDER BY doc DESC LIMIT ?", (most,)
        )
        return {bytes.fromhex(term[1:]).decode(): rows for term, rows in found}

    def _one(self, statement: str, values: Sequence[Value] = ()) -> Any:
        return self._connection.execute(statement, values).fetchone()[0]

    def _typed(self, relation: int, row: list[Any]) -> Row:
        for column in self._booleans[relation]:
            row[column] = None if row[column] is None else bool(row[column])
        return tuple(row)


def make_store(
    path: Path,
    schema: Schema,
    rows: Callable[[Relation], Iterator[Row]],
    report: Callable[[int], None] = lambda _: None,
) -> None:
    """Index rows; ``report`` hears how many are done. Raises SourceError, and leaves no file then."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        # What is half made is thrown away, so nothing has to survive a crash.
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -262144"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("BEGIN")
        connection.execute(
            "CREATE VIRTUAL TABLE words USING fts5(terms, content='', detail=none, tokenize='ascii')"
        )
        connection.execute(
            "CREATE TABLE twins (relation, row, before, PRIMARY KEY (relation, row)) WITHOUT ROWID"
        )
        done = 0
        for number, relation in enumerate(schema.relations):
            done = _copy(connection, number, relation, rows(relation), report, done)
            _count_twins(connection, number, relation)
        for number, columns in dict.fromkeys((e.target, e.target_columns) for e in edges(schema)):
            named = "_".join(map(str, columns))
            listed = ", ".join(f"c{column}" for column in columns)
            connection.execute(f"CREATE INDEX IF NOT EXISTS j{number}_{named} ON r{number} ({listed})")
        connection.execute("COMMIT")
        connection.close()
    except BaseException as error:
        connection.close()
        path.unlink(missing_ok=True)
        if isinstance(error, sqlite3.Error):
            raise SourceError(f"{path}: cannot index: {error}") from None
        raise


def is_store(path: Path) -> bool:
    """Whether a file is an index."""
    return _made_from(path) is not None


def is_made_from(path: Path, mark: str) -> bool:
    """Whether an index is there that was made from the same data, by the same program."""
    return path.exists() and _made_from(path) == _marked(mark)


def _made_from(path: Path) -> str | None:
    with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("SELECT mark FROM made").fetchone()[0])
    return None


def mark_made(path: Path, mark: str) -> None:
    """Say what the index was made from."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE made (mark TEXT)")
        connection.execute("INSERT INTO made VALUES (?)", (_marked(mark),))


def _marked(mark: str) -> str:
    return f"{__version__} {_FORMAT} {mark}"


def _copy(
    connection: sqlite3.Connection,
    number: int,
    relation: Relation,
    rows: Iterator[Row],
    report: Callable[[int], None],
    done: int,
) -> int:
    columns = ", ".join(f"c{column}" for column in range(len(relation.attributes)))
    connection.execute(f"CREATE TABLE r{number} ({columns})")
    if relation.key:
        # To SQLite, too, a NULL equals nothing.
        key = ", ".join(f"c{column}" for column in relation.key_columns)
        connection.execute(f"CREATE UNIQUE INDEX k{number} ON r{number} ({key})")
    marks = ", ".join("?" * (len(relation.attributes) + 1))
    # Of rows with equal keys the last one counts.
    put = f"INSERT OR REPLACE INTO r{number} (rowid, {columns}) VALUES ({marks})"  # noqa: S608 - numbers
    first = 1
    for some in _chunks(rows):
        numbered = list(enumerate(some, first))
        connection.executemany(put, ((n, *row) for n, row in numbered))
        connection.executemany(
            "INSERT INTO words (rowid, terms) VALUES (?, ?)",
            ((number * _RELATION + n, words) for n, row in numbered if (words := _words(relation, row))),
        )
        first += len(some)
        done += len(some)
        report(done)
    return done


def _count_twins(connection: sqlite3.Connection, number: int, relation: Relation) -> None:
    """Of equal rows without a key, which are few, how many come before each: a scan if asked for later."""
    keyless = " OR ".join(f"c{column} IS NULL" for column in relation.key_columns) or "TRUE"
    columns = ", ".join(f"c{column}" for column in range(len(relation.attributes)))
    connection.execute(
        f"INSERT INTO twins SELECT {number}, row, before FROM (SELECT rowid AS row, row_number()"  # noqa: S608
        f" OVER (PARTITION BY {columns} ORDER BY rowid) - 1 AS before FROM r{number} WHERE {keyless})"
        " WHERE before > 0"
    )


def _words(relation: Relation, row: Row) -> str:
    """Stems and words of the searched attributes, as the index spells them."""
    found: set[str] = set()
    for column in relation.search_columns:
        value = row[column]
        for chunk in str(value).split() if value is not None else ():
            found.update(_remembered(chunk) if len(chunk) <= MEMORABLE else _terms(chunk))
    return " ".join(found)


def _terms(chunk: str) -> tuple[str, ...]:
    """Of what stands between white space."""
    found: set[str] = set()
    for token in tokens(chunk):
        found.add(_stem(token.stem))
        if token.searchable:
            found.add(_word(token.word))
    return tuple(found)


# There are far fewer of them than places where they stand.
_remembered = lru_cache(1 << 17)(_terms)


def _stem(stem: str) -> str:
    """In hexadecimal digits, so that no tokenizer cuts it."""
    return f"s{stem.encode().hex()}"


def _word(word: str) -> str:
    return f"w{word.encode().hex()}"


def _chunks(items: Iterable[Any]) -> Iterator[list[Any]]:
    some: list[Any] = []
    for item in items:
        some.append(item)
        if len(some) == (_PROBES if isinstance(item, int) else _BATCH):
            yield some
            some = []
    if some:
        yield some
