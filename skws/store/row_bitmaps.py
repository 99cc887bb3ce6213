"""Keyword bitmaps of the rows in row files, kept beside them (docs/architecture/store.md).

A bitmap only depends on its row and its query, and a row in a file never changes. So a restart reads no text
that was matched before. The files of bitmaps are a cache: if one is missing, damaged, or made for other
queries, the texts of its row file are matched again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from skws import __version__
from skws.data.batch import Rows
from skws.data.blocks import BlockFile, MappedBlock
from skws.durable import PRIVATE, decode_frame, encode_frame, read_file, remove_file, replace_file
from skws.keywords.keyword_matching import KeywordMatching, in_order
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import Integers, Ints, ranges
from skws_schema.errors import StateError

if TYPE_CHECKING:
    from skws.keywords.match import Matcher

SUFFIX: Final = ".bitmaps"
SMALL: Final = 1 << 16
"""The bytes of a file of bitmaps up to which it is always written."""
_SHARE: Final = 4  # larger ones may take this part (a quarter) of the size of the rows
_COLUMNS: Final = {"row": np.int32, "key": np.int32, "bitmap": np.int16}


class KnownBitmaps(NamedTuple):
    """Bitmaps of some rows, by position. ``keys``: of all queries that were matched, by number."""

    keys: Mapping[int, str]
    bitmaps: KeywordBitmaps


@dataclass(frozen=True, slots=True)
class FileBitmaps:
    """The bitmaps of the rows of one file, in order of ``row``, their number in the file.

    ``keys``: of the queries that were matched, as from ``keys_of``; ``key``: the index of a key in these.
    """

    keys: Sequence[str]
    row: npt.NDArray[np.int32]
    key: npt.NDArray[np.int32]
    bitmap: npt.NDArray[np.int16]

    @classmethod
    def of(cls, known_bitmaps: KnownBitmaps, numbers: Integers) -> FileBitmaps:
        """The bitmaps in ``known_bitmaps``. ``numbers``: of all rows that were matched, in the file."""
        keys, bitmaps = known_bitmaps
        query_by_key: dict[str, int] = {}  # queries of one key have equal bitmaps
        for query, key in keys.items():
            query_by_key.setdefault(key, query)
        key_indexes = np.full(max(keys, default=-1) + 1, -1, dtype=np.int64)
        key_indexes[list(query_by_key.values())] = np.arange(len(query_by_key))
        bitmap_keys = key_indexes.take(bitmaps.query)
        chosen_bitmaps = np.flatnonzero(bitmap_keys >= 0)
        row = numbers.take(bitmaps.tuple.take(chosen_bitmaps))
        order = np.argsort(row, kind="stable")
        bitmap_keys, bitmap = (
            column.take(chosen_bitmaps).take(order) for column in (bitmap_keys, bitmaps.bitmap)
        )
        return cls(
            [*query_by_key],
            row.take(order).astype(np.int32),
            bitmap_keys.astype(np.int32),
            bitmap.astype(np.int16),
        )

    @classmethod
    def read(cls, file: BlockFile) -> FileBitmaps:
        """Read the bitmaps beside a row file; none if they are missing, damaged, or of other rows."""
        text = None
        with suppress(StateError):
            text = decode_frame(read_file(file.path.with_suffix(SUFFIX)), file.content)
        if text is None:
            return cls([], *(np.empty(0, dtype=kind) for kind in _COLUMNS.values()))
        head, _, data = text.partition(b"\n")
        fields = orjson.loads(head)
        columns, offset = [], 0
        for kind in _COLUMNS.values():
            columns.append(np.frombuffer(data, dtype=kind, count=fields["size"], offset=offset))
            offset += columns[-1].nbytes
        return cls(fields["keys"], *columns)

    def write(self, file: BlockFile) -> None:
        """Write the bitmaps beside a row file, unless they would take much of its size.

        If nothing is written, the next start matches the texts again.
        """
        path = file.path.with_suffix(SUFFIX)
        head = orjson.dumps({"keys": self.keys, "size": len(self.row)})
        columns = (getattr(self, name).tobytes() for name in _COLUMNS)
        data = encode_frame(b"".join((head, b"\n", *columns)), file.content)
        if len(data) <= max(SMALL, file.path.stat().st_size // _SHARE):
            with suppress(StateError):
                replace_file(path, data, mode=PRIVATE)


def keys_of(matchers: Mapping[int, Matcher]) -> dict[int, str]:
    """A key for each query; queries with one key have equal bitmaps, in every process of this version."""
    schemas = {id(matcher.schema): matcher.schema for matcher in matchers.values()}
    schema_texts = {number: repr((__version__, schema)).encode() for number, schema in schemas.items()}
    keys = {}
    for number, matcher in matchers.items():
        query = matcher.query
        predicates = query.slots, query.exclusions, query.match_names, query.sequence, query.without
        text = repr(predicates).encode() + schema_texts[id(matcher.schema)]
        keys[number] = blake2b(text, digest_size=16).hexdigest()
    return keys


class FileMatching:
    """Finds the keyword bitmaps of rows in row files; only reads texts of rows without stored bitmaps."""

    def __init__(self, matching: KeywordMatching) -> None:
        self._matching = matching
        self._keys = keys_of(matching.matchers)
        self._files: dict[BlockFile, _MatchedFile] = {}
        self._missing: dict[frozenset[int], KeywordMatching] = {}  # by queries

    def of(self, rows: Rows) -> KeywordBitmaps:
        """The bitmaps of rows, by their number. Call it once for each live row."""
        parts = [KeywordBitmaps.none()]
        for file, positions, numbers in _by_file(rows):
            if file not in self._files:
                self._files[file] = self._open(file)
            bitmaps = self._files[file].of(rows.take(positions), numbers)
            parts.append(KeywordBitmaps(positions.take(bitmaps.tuple), bitmaps.query, bitmaps.bitmap))
        all_bitmaps = KeywordBitmaps.concat(parts)
        return in_order([all_bitmaps.tuple], [all_bitmaps.query], [all_bitmaps.bitmap])

    def _open(self, file: BlockFile) -> _MatchedFile:
        stored_bitmaps = FileBitmaps.read(file)
        missing_queries = frozenset(
            number for number, key in self._keys.items() if key not in stored_bitmaps.keys
        )
        if missing_queries and len(missing_queries) == len(self._keys):
            return _MatchedFile(stored_bitmaps, self._keys, self._matching)
        if missing_queries and missing_queries not in self._missing:
            matching = self._missing[missing_queries] = KeywordMatching()
            for number in sorted(missing_queries):
                matching.add(number, self._matching.matchers[number])
        return _MatchedFile(stored_bitmaps, self._keys, self._missing.get(missing_queries))

    def keep(self) -> None:
        """Write new bitmaps beside the files, after ``of`` was called for all of their live rows."""
        for file, matched_file in self._files.items():
            if matched_file.has_news:
                matched_file.all_bitmaps.write(file)
        self._files.clear()


@dataclass(slots=True)
class _MatchedFile:
    """A row file. ``stored``: bitmaps by an earlier process. ``keys``: of all queries, by number.

    ``missing``: matches the queries without stored bitmaps; None if all have some.
    """

    stored: FileBitmaps
    keys: Mapping[int, str]
    missing: KeywordMatching | None
    # The first, the count and the numbers of the queries of a key.
    _queries_of_key: tuple[Ints, Ints, Ints] = field(init=False)
    # By part: numbers in the file.
    _row_numbers: list[npt.NDArray[np.int32]] = field(init=False, default_factory=list)
    _bitmaps: list[KeywordBitmaps] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        queries: dict[str, list[int]] = {key: [] for key in self.stored.keys}
        for number, key in self.keys.items():
            if key in queries:
                queries[key].append(number)
        counts = np.array(list(map(len, queries.values())), dtype=np.int64)
        numbers = np.array(
            [number for key_queries in queries.values() for number in key_queries], dtype=np.int64
        )
        self._queries_of_key = np.cumsum(counts) - counts, counts, numbers

    @property
    def has_news(self) -> bool:
        """True if texts were matched, or some stored bitmaps belong to removed queries."""
        return self.missing is not None or not self._queries_of_key[1].all()

    @property
    def all_bitmaps(self) -> FileBitmaps:
        """The bitmaps of all rows."""
        rows_before = np.cumsum([0, *map(len, self._row_numbers)]).tolist()
        parts = [each.offset_by(first) for each, first in zip(self._bitmaps, rows_before, strict=False)]
        bitmaps = KnownBitmaps(self.keys, KeywordBitmaps.concat(parts))
        return FileBitmaps.of(bitmaps, np.concatenate(self._row_numbers))

    def of(self, rows: Rows, numbers: Ints) -> KeywordBitmaps:
        """The bitmaps of rows; ``numbers``: the numbers of these rows in the file."""
        bitmaps = self._stored_bitmaps(numbers)
        if self.missing is not None:
            bitmaps = KeywordBitmaps.concat([bitmaps, self.missing.of(rows)])
        if self.has_news:
            self._row_numbers.append(numbers.astype(np.int32))
            self._bitmaps.append(bitmaps)
        return bitmaps

    def _stored_bitmaps(self, numbers: Ints) -> KeywordBitmaps:
        first, end = np.searchsorted(self.stored.row, (numbers.min(), numbers.max() + 1))
        rows = slice(int(first), int(end))
        order = np.argsort(numbers, kind="stable")
        row = self.stored.row[rows]
        indexes = np.minimum(np.searchsorted(numbers, row, sorter=order), len(numbers) - 1)
        positions = order.take(indexes)
        stored = np.flatnonzero(numbers.take(positions) == row)
        key = self.stored.key[rows].take(stored)
        begin, counts, query_numbers = self._queries_of_key
        counts = counts.take(key)
        queries = query_numbers.take(ranges(begin.take(key), counts))
        bitmap = self.stored.bitmap[rows].take(stored).astype(np.int64)
        return KeywordBitmaps(np.repeat(positions.take(stored), counts), queries, np.repeat(bitmap, counts))


def _by_file(rows: Rows) -> Iterator[tuple[BlockFile, Ints, Ints]]:
    """Each row file with the positions of its rows, in order, and their numbers in the file."""
    numbers, file_numbers = np.empty((2, len(rows)), dtype=np.int64)
    files: dict[BlockFile, int] = {}
    for block, positions, places in rows.by_block():
        if isinstance(block, MappedBlock):  # true for all
            numbers[positions] = block.first + places
            file_numbers[positions] = files.setdefault(block.file, len(files))
    for file, number in files.items():
        positions = np.flatnonzero(file_numbers == number)
        yield file, positions, numbers.take(positions)


def trim(folder: Path, rows: Iterable[Path]) -> None:
    """Remove the bitmaps in a folder that belong to none of these row files. Raises StateError."""
    kept_paths = {path.with_suffix(SUFFIX) for path in rows}
    for path in folder.glob(f"*{SUFFIX}"):
        if path not in kept_paths:
            remove_file(path)
