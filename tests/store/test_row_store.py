"""The rows of live tuples by slot, compared with a list of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import pytest

from skws.data.batch import Rows
from skws.data.blocks import BlockFile, ColumnBlock, MappedBlock, RowBlock
from skws.store.directory import RowStore, StoreSizes
from skws_mesh.columnar.columns import Flags
from skws_schema.model import Row, Value
from tests.strategies import seeds

_TEXTS: list[Value] = ["", "ada", None, "lämp", "\0"]
_NUMBERS: list[Value] = [0, None, 1, -(2**63), 2.5, True]


def _row(rng: Random) -> tuple[int, Row]:
    """A relation and a row: relation 0 has one column, relation 1 three."""
    if rng.random() < 0.5:
        return 0, (rng.randrange(9),)
    return 1, (rng.choice(_TEXTS), rng.choice(_NUMBERS), rng.choice([0.5, None]))


def _rows(rows: list[tuple[int, Row]]) -> Rows:
    return Rows.of(np.array([relation for relation, _ in rows], dtype=np.int64), [row for _, row in rows])


def _check(store: RowStore, expected: list[tuple[int, Row]], rng: Random) -> None:
    rows = store.rows()
    relations = [rows.blocks[number].relation for number in rows.block.tolist()]
    assert list(zip(relations, rows, strict=True)) == expected
    slots = [slot for slot in range(len(expected)) if rng.random() < 0.3]
    assert list(store.some_rows(np.array(slots, dtype=np.int64))) == [expected[slot][1] for slot in slots]
    if slots:
        assert store.row(slots[0]) == expected[slots[0]][1]


@dataclass(frozen=True)
class UnreadFile:
    """A file that is never read."""

    path: Path

    @property
    def content(self) -> str:
        return self.path.name


def _in_file(rows: list[tuple[int, Row]], file: BlockFile) -> Rows:
    """Rows like those of a file, which is written relation by relation."""
    blocks: list[MappedBlock] = []
    number, places = np.zeros((2, len(rows)), dtype=np.int64)
    for relation in sorted({relation for relation, _ in rows}):
        indexes = [index for index, (other, _) in enumerate(rows) if other == relation]
        columns = [list(column) for column in zip(*(rows[index][1] for index in indexes), strict=True)]
        number[indexes], places[indexes] = len(blocks), np.arange(len(indexes))
        blocks.append(MappedBlock(ColumnBlock(relation, columns), file, sum(map(len, blocks))))
    return Rows(number, places, tuple(blocks))


@pytest.mark.check
@pytest.mark.parametrize("long_lived", [True, False])
@seeds(15, 30)
def test_rows_follow_their_slots(seed: int, *, long_lived: bool) -> None:
    rng = Random(seed)
    sizes = StoreSizes(column_rows=5, fewest_rows=3, portion=4)
    store = RowStore(long_lived=long_lived, sizes=sizes)
    expected: list[tuple[int, Row]] = []
    files: dict[BlockFile, int] = {}
    for step in range(60):
        match rng.randrange(8):
            case 0:
                is_kept: Flags = np.array([rng.random() < 0.7 for _ in expected], dtype=np.bool_)
                new_slots = np.where(is_kept, np.cumsum(is_kept) - 1, -1)
                store.compact(new_slots)
                expected = [row for row, kept in zip(expected, is_kept.tolist(), strict=True) if kept]
            case 1:
                store.pack()
            case 2 if expected:
                slots = sorted(rng.sample(range(len(expected)), rng.randint(1, len(expected))))
                file = UnreadFile(Path(f"{step}"))
                rows = _in_file([expected[slot] for slot in slots], file)
                files[file] = len(slots)
                store.move(np.array(slots, dtype=np.int64), rows)
            case _:
                added_rows = [_row(rng) for _ in range(rng.choice([1, 1, 2, 3, 9]))]
                store.add(_rows(added_rows), np.zeros(len(added_rows), dtype=bool))
                expected += added_rows
        _check(store, expected, rng)
        is_chosen: Flags = np.array([rng.random() < 0.6 for _ in expected], dtype=np.bool_)
        stored_rows = store.rows_in_files(is_chosen, files)
        assert {file: flags.tolist() for file, flags in stored_rows.items()} == _live_in_files(
            store, is_chosen, files
        )
        assert store.in_files(files).tolist() == [place is not None for place in _places(store)]


def test_moved_rows_are_read_from_their_file() -> None:
    rng, file, slots = Random(1), UnreadFile(Path("one")), [1, 4, 8]
    expected = [_row(rng) for _ in range(9)]
    store = RowStore(long_lived=False)
    store.add(_rows(expected), np.zeros(len(expected), dtype=bool))
    store.move(np.array(slots), _in_file([expected[slot] for slot in slots], file))
    assert np.flatnonzero(store.in_files({file})).tolist() == slots
    _check(store, expected, rng)


def _places(store: RowStore) -> list[tuple[BlockFile, int] | None]:
    """The file and row number of each slot."""
    rows = store.rows()
    positions: list[tuple[BlockFile, int] | None] = []
    for number, row_number in zip(rows.block.tolist(), rows.place.tolist(), strict=True):
        block = rows.blocks[number]
        positions.append((block.file, block.first + row_number) if isinstance(block, MappedBlock) else None)
    return positions


def _live_in_files(
    store: RowStore, selection: Flags, files: Mapping[BlockFile, int]
) -> dict[BlockFile, list[bool]]:
    flags = {file: [False] * size for file, size in files.items()}
    for place, is_chosen in zip(_places(store), selection.tolist(), strict=True):
        if place is not None and is_chosen:
            flags[place[0]][place[1]] = True
    return flags


def test_long_lived_rows_become_columns() -> None:
    """Even those that arrive one by one; otherwise each would remain a block of Python values."""
    store = RowStore(long_lived=True, sizes=StoreSizes(column_rows=10))
    for number in range(95):
        store.add(_rows([(0, (number,))]), np.zeros(1, dtype=bool))
    blocks = store.rows().blocks
    assert sum(isinstance(block, RowBlock) for block in blocks) == 5
    assert len(blocks) == 9 + 5
    assert [row for (row,) in store.rows()] == list(range(95))
