"""The memory-mapped file of an index, and its postings: words to chunks of text, chunks to rows.

A chunk is the text between white space. Each distinct one is analysed once, when the index is built, by the
analysis that all engines share.

An index is built in a folder, a file for each part, and then packed into one file, whose end lists the parts.
"""

from __future__ import annotations

import os
import re
import shutil
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import reduce
from mmap import ACCESS_COPY, mmap
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Final, Protocol

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from skws.keywords.analysis import tokens
from skws.keywords.keyword_query import (
    Alternative,
    Condition,
    Fuzzy,
    Phrase,
    Prefix,
    Term,
    Wildcard,
    WordAlternative,
)
from skws.keywords.leaves import has_form, parts, within
from skws.keywords.occurrences import occurrences_in
from skws_mesh.columnar.columns import NOTHING, Flags, Ints, distinct, ranges
from skws_schema.model import Analyzer

_MAGIC: Final = b"skws index 1\n"
_ALIGNED: Final = 64  # bytes, as in Arrow
_NUMBER: Final = 8  # bytes
_COPIED: Final = 1 << 16  # bytes at a time


def save(folder: Path, name: str, values: npt.NDArray[Any]) -> None:
    """Write a whole array."""
    np.save(folder / f"{name}.npy", values)


def new_array(folder: Path, name: str, size: int, kind: type[np.generic]) -> npt.NDArray[Any]:
    """A new array of zeros on disk, to be filled in any order."""
    if not size:  # nothing can be mapped
        save(folder, name, np.empty(0, dtype=kind))
        return np.empty(0, dtype=kind)
    return np.lib.format.open_memmap(folder / f"{name}.npy", mode="w+", dtype=kind, shape=(size,))


@contextmanager
def array_writer(
    folder: Path, name: str, shape: tuple[int, ...], kind: type[np.generic]
) -> Iterator[Callable[[npt.NDArray[Any]], None]]:
    """A function that writes the next rows of an array, whose final shape is ``shape``.

    Rows that are not written are zeros, and take no space on disk.
    """
    header = {"descr": np.dtype(kind).str, "fortran_order": False, "shape": shape}
    with (folder / f"{name}.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        begin = file.tell()
        yield lambda rows: rows.astype(kind, copy=False).tofile(file)
        file.truncate(begin + int(np.prod(shape)) * np.dtype(kind).itemsize)


def data_file(folder: Path, name: str) -> Path:
    """The file of a part that is not an array."""
    return folder / f"{name}.part"


@contextmanager
def packed_folder(path: Path, mark: str = "") -> Iterator[Path]:
    """A folder for the parts of an index; the file appears, complete, when the ``with`` ends well.

    ``mark``: the state of the indexed data. Raises OSError.
    """
    folder = path.with_name(f".{path.name}.new")
    shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed
    folder.mkdir()
    try:
        yield folder
        index_file = folder / "whole"
        _pack(folder, index_file, mark)
        index_file.replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _pack(folder: Path, path: Path, mark: str) -> None:
    parts: dict[str, tuple[int, int, str, list[int]]] = {}
    with path.open("wb") as index_file:
        index_file.write(_MAGIC)
        for file in sorted(entry for entry in folder.rglob("*") if entry.is_file() and entry != path):
            index_file.write(bytes(-index_file.tell() % _ALIGNED))
            begin = index_file.tell()
            with file.open("rb") as part:
                dtype, shape = _array(part) if file.suffix == ".npy" else ("", [])
                _copy(part, index_file)
            name = str(file.relative_to(folder).with_suffix(""))
            parts[name] = begin, index_file.tell() - begin, dtype, shape
            file.unlink()  # so that only one part is on disk twice
        directory = orjson.dumps({"mark": mark, "parts": parts})
        index_file.write(directory + len(directory).to_bytes(_NUMBER, "little"))


def _copy(part: BinaryIO, index_file: BinaryIO) -> None:
    """Append a file; stretches of zeros take no space on disk."""
    while piece := part.read(_COPIED):
        if piece.count(0) == len(piece):
            index_file.seek(len(piece), os.SEEK_CUR)
        else:
            index_file.write(piece)


def _array(part: BinaryIO) -> tuple[str, list[int]]:
    """The type and shape of an array; its data comes next."""
    assert np.lib.format.read_magic(part) == (1, 0)  # noqa: S101 - numpy's for plain types
    shape, _, kind = np.lib.format.read_array_header_1_0(part)
    return kind.str, list(shape)


def mark_of(path: Path) -> str | None:
    """The state of the data from which an index was made; None for other files. Raises OSError."""
    with path.open("rb") as index_file:
        if index_file.read(len(_MAGIC)) != _MAGIC:
            return None
    with suppress(ValueError):  # it is damaged
        return IndexFile(path).mark
    return None


class IndexParts(Protocol):
    """The parts of an index by name."""

    @property
    def path(self) -> Path:
        """The folder, or the file, that contains them."""

    def array(self, name: str) -> npt.NDArray[Any]: ...

    def data(self, name: str) -> pa.Buffer:
        """The bytes of a part that is not an array."""


class IndexFolder:
    """Parts that are not packed yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def array(self, name: str) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = np.load(self.path / f"{name}.npy", mmap_mode="r")
        return array

    def data(self, name: str) -> pa.Buffer:
        return pa.memory_map(str(data_file(self.path, name))).read_buffer()


class IndexFile:
    """The packed parts of an index. Arrays may be written to: this changes copies of single pages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as index_file:
            self._bytes = mmap(index_file.fileno(), 0, access=ACCESS_COPY)
        end = len(self._bytes) - _NUMBER
        begin = end - int.from_bytes(self._bytes[end:], "little")
        directory = orjson.loads(self._bytes[begin:end])
        self.mark: str = directory["mark"]
        self._parts: dict[str, tuple[int, int, str, list[int]]] = directory["parts"]

    def array(self, name: str) -> npt.NDArray[Any]:
        begin, _, kind, shape = self._parts[name]
        size = int(np.prod(shape))
        return np.frombuffer(self._bytes, np.dtype(kind), size, begin if size else 0).reshape(shape)

    def unpack(self, prefix: str, folder: Path) -> None:
        """Write the parts whose names begin with ``prefix`` into a folder, to be packed again."""
        for name, (_, _, kind, _) in self._parts.items():
            if name.startswith(prefix):
                part_name = name.removeprefix(prefix)
                if kind:
                    save(folder, part_name, self.array(name))
                else:
                    data_file(folder, part_name).write_bytes(self.data(name))

    def data(self, name: str) -> pa.Buffer:
        begin, length, *_ = self._parts[name]
        return pa.py_buffer(self._bytes).slice(begin, length)


Pairs = npt.NDArray[np.uint64]
"""A chunk's number, then a row's."""
_ROW_BITS: Final = np.uint64(32)
_PIECE: Final = 1 << 23  # bytes
_ROWS_AT_A_TIME: Final = 1 << 20
_ROW: Final = np.uint64((1 << 32) - 1)


class ChunkCollector:
    """Collects the chunks of the texts of a table while these are read.

    Their occurrences are in a file; memory contains the distinct chunks, and their counts.
    """

    def __init__(self, folder: Path, analyzers: Collection[Analyzer] = (Analyzer.ENGLISH,)) -> None:
        self._analyzers = analyzers
        self._numbers: dict[str, int] = {}
        self._counts: Ints = np.zeros(0, dtype=np.int64)
        self._pairs = TemporaryFile(dir=folder)  # noqa: SIM115 - ``close`` does

    def add(self, first: int, texts: pa.Array, analyzer: Analyzer = Analyzer.ENGLISH) -> None:
        """Add the texts of rows from ``first`` on."""
        occurrences = occurrences_in(texts, analyzer)
        numbers = self._numbers
        chunk_numbers = np.array(
            [numbers.setdefault(chunk, len(numbers)) for chunk in occurrences.chunks],
            dtype=np.uint64,
        )
        if len(occurrences.text):
            pairs = distinct(
                chunk_numbers[occurrences.which] << _ROW_BITS | (occurrences.text + first).view(np.uint64)
            )
            counts = np.bincount((pairs >> _ROW_BITS).view(np.int64), minlength=len(numbers))
            counts[: len(self._counts)] += self._counts
            self._counts = counts
            self._pairs.write(pairs.tobytes())

    def close(self) -> None:
        self._pairs.close()

    def save(self, folder: Path, piece: int = _PIECE) -> None:
        """Write the postings by a counting sort; ``piece``: the bytes of occurrences in memory at a time."""
        chunk_first = np.concatenate([[0], np.cumsum(self._counts)]).astype(np.int64)
        save(folder, "chunk_first", chunk_first)
        rows = new_array(folder, "chunk_rows", int(chunk_first[-1]), np.uint32)
        next_offsets = chunk_first[:-1].copy()
        self._pairs.seek(0)
        while data := self._pairs.read(piece):
            pairs = np.sort(np.frombuffer(data, dtype=np.uint64))
            chunks, counts = np.unique((pairs >> _ROW_BITS).view(np.int64), return_counts=True)
            rows[ranges(next_offsets[chunks], counts)] = pairs & _ROW
            next_offsets[chunks] += counts
        _save_terms(folder, _terms(self._numbers, self._analyzers))


class Postings:
    """The rows that contain words."""

    def __init__(self, file: IndexParts, prefix: str = "") -> None:
        self._chunk_first = file.array(f"{prefix}chunk_first")
        self._chunk_rows = file.array(f"{prefix}chunk_rows")
        self._term_bytes = file.array(f"{prefix}terms")
        self._bounds = file.array(f"{prefix}term_bounds")
        self._term_first = file.array(f"{prefix}term_first")
        self._chunks = file.array(f"{prefix}term_chunks")

    def containing(self, alternative: Alternative) -> Ints:
        """The rows that may satisfy a predicate on texts, in order; the matcher decides."""
        if isinstance(alternative, Condition):
            return NOTHING
        if isinstance(alternative, Phrase):
            stems = (Term(stem, analyzer=alternative.analyzer) for stem in alternative.stems)
            return reduce(np.intersect1d, map(self.containing, stems))
        return distinct(np.concatenate([NOTHING, *self._rows(alternative)]))

    def mark(self, alternative: Alternative, flags: Flags) -> None:
        """Flag the rows that may satisfy a predicate, a piece at a time: a few words may have many rows."""
        if isinstance(alternative, Phrase | Condition):
            flags[self.containing(alternative)] = True
            return
        for rows in self._rows(alternative):
            flags[rows] = True

    def bound(self, alternative: Alternative) -> int:
        """An upper bound on the number of rows that may satisfy a predicate on texts."""
        if isinstance(alternative, Condition):
            return 0
        if isinstance(alternative, Phrase):
            return min(self.bound(Term(stem, analyzer=alternative.analyzer)) for stem in alternative.stems)
        chunks = self._chunks_with(alternative)
        return int((self._chunk_first[chunks + 1] - self._chunk_first[chunks]).sum())

    def words(self) -> Iterator[tuple[str, int]]:
        """The searchable words by analyzer, with the number of rows that contain each."""
        term_numbers = range(len(self._term_first) - 1)
        first, last, lower = (bisect_left(term_numbers, mark, key=self._term) for mark in (b"W", b"X", b"w"))
        for number in (*term_numbers[first:last], *term_numbers[lower:]):
            chunks = self._chunks[self._term_first[number] : self._term_first[number + 1]].astype(np.int64)
            begins = self._chunk_first[chunks]
            counts = self._chunk_first[chunks + 1] - begins
            rows = int(counts.sum())
            if len(chunks) > 1:  # a row may contain several of them
                rows = len(distinct(self._chunk_rows[ranges(begins, counts)]))
            yield self._word(number), rows

    def _rows(self, alternative: WordAlternative) -> Iterator[Ints]:
        """Arrays of the rows, unordered, with repetitions."""
        chunks = self._chunks_with(alternative)
        begins = self._chunk_first[chunks]
        counts = self._chunk_first[chunks + 1] - begins
        pieces = np.searchsorted(
            np.cumsum(counts), np.arange(_ROWS_AT_A_TIME, int(counts.sum()), _ROWS_AT_A_TIME)
        )
        for indices in np.split(np.arange(len(chunks)), pieces):
            yield self._chunk_rows[ranges(begins[indices], counts[indices])].astype(np.int64)

    def _chunks_with(self, alternative: WordAlternative) -> Ints:
        match alternative:
            case Term(stem=stem):
                term = f"{_mark(alternative.analyzer, 's')}{stem}".encode()
                first = bisect_left(range(len(self._term_first) - 1), term, key=self._term)
                last = first + (first < len(self._term_first) - 1 and self._term(first) == term)
            case Prefix(start=start):
                first, last = self._prefix_range(start, alternative.analyzer)
            case _:
                chunk_lists = [
                    self._chunks[self._term_first[n] : self._term_first[n + 1]]
                    for n in self._similar_terms(alternative)
                ]
                return distinct(np.concatenate([NOTHING, *chunk_lists])).astype(np.int64)
        return distinct(self._chunks[self._term_first[first] : self._term_first[last]]).astype(np.int64)

    def _prefix_range(self, start: str, analyzer: Analyzer) -> tuple[int, int]:
        """The numbers of the terms that are words with a prefix: the first, and the one after the last."""
        term_numbers = range(len(self._term_first) - 1)
        term = f"{_mark(analyzer, 'w')}{start}".encode()
        return bisect_left(term_numbers, term, key=self._term), bisect_left(
            term_numbers, term + b"\xff", key=self._term
        )

    def _similar_terms(self, alternative: Fuzzy | Wildcard) -> Iterator[int]:
        """The terms of words that resemble another, or match a wildcard; all candidates are compared."""
        if isinstance(alternative, Wildcard):
            pattern = alternative.form
            first, last = self._prefix_range(re.split(r"[*?]", pattern, maxsplit=1)[0], alternative.analyzer)
            yield from (n for n in range(first, last) if has_form(self._word(n), pattern))
            return
        word, distance = alternative.word, alternative.distance
        fragments = parts(word, distance)
        first, last = self._prefix_range("", alternative.analyzer)
        mark = len(_mark(alternative.analyzer, "w"))
        # A letter takes one byte to four.
        sizes = np.diff(self._bounds[first : last + 1]).astype(np.int64) - mark
        is_candidate = (sizes >= len(word) - distance) & (sizes <= 4 * (len(word) + distance))
        for number in (np.flatnonzero(is_candidate) + first).tolist():
            candidate = self._word(number)
            if any(part in candidate for part in fragments) and within(word, candidate, distance):
                yield number

    def _word(self, number: int) -> str:
        term = self._term(number)
        return (term[1:] if term[:1] == b"w" else term.partition(b"\0")[2]).decode()

    def _term(self, number: int) -> bytes:
        return self._term_bytes[self._bounds[number] : self._bounds[number + 1]].tobytes()


def _mark(analyzer: Analyzer, letter: str) -> str:
    """The beginning of terms: ``s`` for stems, ``w`` for words; and the name, except for English."""
    return letter if analyzer is Analyzer.ENGLISH else f"{letter.upper()}{analyzer}\0"


def _terms(chunks: Mapping[str, int], analyzers: Collection[Analyzer]) -> dict[bytes, list[int]]:
    """Stems, and words that prefixes search, by each analyzer, each with the chunks that contain it."""
    chunks_by_term: dict[bytes, list[int]] = defaultdict(list)
    for chunk, number in chunks.items():
        terms = set()
        for analyzer in analyzers:
            for token in tokens(chunk, analyzer):
                terms.add(f"{_mark(analyzer, 's')}{token.stem}".encode())
                if token.searchable:
                    terms.add(f"{_mark(analyzer, 'w')}{token.word}".encode())
        for term in terms:
            chunks_by_term[term].append(number)
    return chunks_by_term


def _save_terms(folder: Path, terms: Mapping[bytes, list[int]]) -> None:
    ordered = sorted(terms)
    save(folder, "terms", np.frombuffer(b"".join(ordered), dtype=np.uint8))
    save(folder, "term_bounds", _bounds(map(len, ordered)))
    save(folder, "term_first", _bounds(len(terms[term]) for term in ordered))
    chunks = [number for term in ordered for number in terms[term]]
    save(folder, "term_chunks", np.array(chunks, dtype=np.uint32))


def _bounds(lengths: Iterable[int]) -> Ints:
    return np.cumsum([0, *lengths], dtype=np.int64)
