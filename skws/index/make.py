"""Builds the index of a table, or of all relations: rows, join values, words, and counts of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from skws.index.file import save
from skws.index.postings import Gathered
from skws.index.table import PART, TableRows, arrow_schema, write_rows
from skws.index.values import join_values, row_identities
from skws_mesh.columnar.columns import NULL, Flags, Ints
from skws_mesh.columnar.key_sets import KeySets
from skws_schema.errors import SourceError
from skws_schema.model import Relation, Row, Schema

MOST = (1 << 32) - 1  # rows, whose numbers take 32 bits


def make_index(
    folder: Path,
    relation: Relation,
    key_sets: Sequence[tuple[int, ...]],
    batches: Iterable[pa.RecordBatch],
    report: Callable[[str, int, int | None], None],
) -> None:
    """Write the parts of a table's index into a folder; ``report`` takes its progress. Raises SourceError."""
    size = 0
    for size in write_rows(folder / "rows.arrow", relation, batches):
        if size > MOST:
            raise SourceError(f"table {relation.name}: more than {MOST:,} rows")
        report("reading", size, None)
    rows = TableRows(pa.memory_map(str(folder / "rows.arrow")), 0)
    gone, occurrences = _repeated(rows, relation, size)
    hidden = np.zeros(size, dtype=bool)
    hidden[gone] = True
    for number, columns in enumerate(key_sets):
        report(f"joins {number + 1} of {len(key_sets)} of", size, size)
        _save_joined(folder, number, _gathered(rows, size, lambda b: join_values(b, columns)), hidden)  # noqa: B023
    texts = _save_words(folder, relation, rows, hidden, lambda done: report("words of", done, size))
    save(folder, "gone", gone)
    save(folder, "occurrences", occurrences)
    names = [[relation.attributes[column].name for column in columns] for columns in key_sets]
    meta = {"rows": size, "keys": names, "texts": texts}
    (folder / "meta.json").write_bytes(orjson.dumps(meta))


def make_parts(
    folder: Path,
    schema: Schema,
    rows: Callable[[Relation], Iterator[Row]],
    report: Callable[[int], None] = lambda _: None,
) -> None:
    """Write the parts of the indexes of all relations; ``report`` takes the number of rows read so far.

    Raises SourceError.
    """
    done = 0
    for number, relation in enumerate(schema.relations):
        part = folder / str(number)
        part.mkdir()
        batches = as_batches(rows(relation), arrow_schema(relation))
        read = 0

        def reading(doing: str, size: int, _of: int | None, before: int = done) -> None:
            nonlocal read
            if doing == "reading":
                read = size
                report(before + size)

        make_index(part, relation, KeySets(schema).columns[number], batches, reading)
        done += read


def as_batches(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows as columns, PART at a time."""
    held: list[Sequence[Any]] = []
    for row in rows:
        held.append(row)
        if len(held) == PART:
            yield _batch(held, schema)
            held = []
    if held:
        yield _batch(held, schema)


def _batch(rows: list[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _gathered(rows: TableRows, size: int, values: Callable[[Any], Ints]) -> Ints:
    found = np.empty(size, dtype=np.int64)
    for first, block in rows.parts():
        found[first : first + len(block)] = values(block)
    return found


def _save_joined(folder: Path, number: int, values: Ints, gone: Flags) -> None:
    """Index the values of all rows but those that are ``gone``."""
    rows = np.flatnonzero((values != NULL) & ~gone)
    rows = rows[np.argsort(values[rows], kind="stable")]
    save(folder, f"join_{number}_values", values[rows])
    save(folder, f"join_{number}_rows", rows.astype(np.uint32))


def _save_words(
    folder: Path, relation: Relation, rows: TableRows, hidden: Flags, report: Callable[[int], None]
) -> dict[str, tuple[int, int]]:
    """Postings of all searched columns together; gives how many texts each has, and their characters."""
    texts = dict.fromkeys(relation.search, (0, 0))
    analyzers = {name: relation.attributes[relation.columns[name]].analyzer for name in relation.search}
    with closing(Gathered(folder, dict.fromkeys(analyzers.values()))) as gathered:
        for first, block in rows.parts():
            kept = pa.array(~hidden[first : first + len(block)])
            for column, name in zip(relation.search_columns, relation.search, strict=True):
                shown = pc.if_else(kept, block.texts(column), None)
                count, characters = texts[name]
                length = pc.sum(pc.utf8_length(shown)).as_py() or 0
                texts[name] = count + len(shown) - shown.null_count, characters + length
                gathered.add(first, shown, analyzers[name])
            report(first + len(block))
        gathered.save(folder)
    return texts


def _repeated(rows: TableRows, relation: Relation, size: int) -> tuple[Ints, Ints]:
    """Rows whose key comes again, and (row, how many equal ones come before) of those without a key."""
    values = _gathered(rows, size, lambda block: row_identities(block, relation))
    order = np.argsort(values, kind="stable")
    equal = values[order[1:]] == values[order[:-1]]
    among = np.zeros(size, dtype=bool)
    among[1:] |= equal
    among[:-1] |= equal
    suspects = order[among]
    gone: list[int] = []
    occurrences: list[tuple[int, int]] = []
    current, seen = None, dict[tuple[Any, ...], int]()
    for number, value, row in _each(rows, suspects, values):
        if value != current:
            current, seen = value, {}
        key = relation.key_of(row)
        if key is not None:
            if key in seen:
                gone.append(seen[key])
            seen[key] = number
        else:
            before = seen.get(row, 0)
            if before:
                occurrences.append((number, before))
            seen[row] = before + 1
    return (
        np.array(sorted(gone), dtype=np.int64),
        np.array(sorted(occurrences), dtype=np.int64).reshape(len(occurrences), 2),
    )


def _each(rows: TableRows, numbers: Ints, values: Ints) -> Iterator[tuple[int, int, tuple[Any, ...]]]:
    for first in range(0, len(numbers), PART):
        some = numbers[first : first + PART]
        found = rows.taken(some).rows(np.arange(len(some)))
        yield from zip(some.tolist(), values[some].tolist(), found, strict=True)
