"""The analysis of a text into words, the same for data, queries and highlighting.

Words are compared folded (case, accents) and stemmed (by the analyzer of the attribute, by default
English); stop words are not searchable on their own. A compound such as ``Spider-Man``,
``O'Neil``, ``AT&T`` or ``node.js`` is found as a whole and by each piece. Its
hyphens, apostrophes and underscores do not count (``spiderman``, ``oneil``),
except between digits. A text is first cut at white space, which is fast and
splits no word; each distinct chunk is analysed once and cached. With the
analyzer ``none`` a text is one chunk and one word, unchanged. A compound inside a
longer one (``example.com`` in ``server-01.example.com``) is not a token: it is matched
as a run of pieces that are ``spelled`` alike, so a text needs no further tokens.

Folding makes case and accents irrelevant (``Café`` and ``cafe``, ``Straße`` and ``STRASSE``, full-width and
plain letters). Only accents are removed, never the vowel signs of Indic scripts or the voicing marks of kana,
which distinguish words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain, groupby, pairwise
from typing import Any, Final, NamedTuple, Protocol

from whoosh.analysis.filters import STOP_WORDS
from whoosh.lang.porter2 import stem as porter2
from whoosh.support.charset import accent_map

from skws_schema.model import Analyzer


def _ranges(codes: list[int]) -> str:
    """The body of a regular expression's character class for ascending ``codes``."""
    runs: list[list[int]] = []
    for code in codes:
        if runs and code == runs[-1][1] + 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in runs)


# Soft hyphen, zero-width characters, direction marks, variation selectors: invisible.
_INVISIBLE: Final = frozenset(
    chain(
        (0xAD, 0x34F, 0xFEFF),
        range(0x200B, 0x2010),
        range(0x2060, 0x2065),
        range(0xFE00, 0xFE10),
        range(0xE0100, 0xE01F0),
    )
)
# Ranges that cover all marks; ideographs, syllables and unassigned code points are left out.
_MARK_RANGES: Final = (
    range(0x300, 0x3400),
    range(0xA000, 0xAC00),
    range(0xFB00, 0x17000),
    range(0x1B000, 0x1F000),
    range(0xE0100, 0xE01F0),
)
# Python's \w leaves out combining marks, so "cafe" + U+0301 would fall apart without them.
_MARKS: Final = _ranges(
    sorted(
        {
            *(code for code in chain(*_MARK_RANGES) if unicodedata.category(chr(code)) in {"Mn", "Mc", "Me"}),
            *_INVISIBLE,
            0xFF9E,  # half-width voicing marks of kana
            0xFF9F,
        }
    )
)
# Scripts without blanks between words: every character is a word, and a typed word is a phrase of them.
_HAN_AND_KANA: Final = (
    "\u3005-\u3007\u3041-\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9d\U00020000-\U000323af"
)
_OTHER_UNSPACED: Final = (
    range(0x0E00, 0x0F00),  # Thai, Lao
    range(0x0F00, 0x10A0),  # Tibetan, which has marks only between syllables; Myanmar
    range(0x1780, 0x17E0),  # Khmer
    range(0x1950, 0x19E0),  # Tai Le, New Tai Lue
    range(0x1A20, 0x1AB0),  # Tai Tham
    range(0x1B00, 0x1B80),  # Balinese
    range(0x3100, 0x3200),  # bopomofo, rare kana
    range(0xA000, 0xA4D0),  # Yi
    range(0xA980, 0xAA00),  # Javanese, more of Myanmar
    range(0xAA60, 0xAAE0),  # more of Myanmar, Tai Viet
    range(0x11700, 0x11750),  # Ahom
)
_UNSPACED: Final = _HAN_AND_KANA + _ranges(
    [code for code in chain(*_OTHER_UNSPACED) if unicodedata.category(chr(code)) in {"Lo", "Lm"}]
)
# The vowel AM of Thai and Lao is one character or, decomposed, a mark and a letter.
_AM: Final = "(?:[\u0e33\u0eb3]|(?<=\u0e4d)\u0e32|(?<=\u0ecd)\u0eb2)?"
HYPHENS: Final = "-\u2010\u2011"
APOSTROPHES: Final = "'\u2019"
JOINERS: Final = f"{HYPHENS}{APOSTROPHES}&._"

PIECE: Final = re.compile(f"[{_UNSPACED}][{_MARKS}]*{_AM}|(?:[^\\W_{_UNSPACED}]|[{_MARKS}])+")
"""The smallest searchable unit: a run of letters, digits and marks, or one unspaced character."""

COMPOUND: Final = re.compile(f"(?:(?<!\\.)\\.)?[\\w{_MARKS}]+(?:[{JOINERS}][\\w{_MARKS}]+)*(?:\\+\\+|#)?")
"""Pieces connected by joiners, with the dot of ``.NET`` (but not an ellipsis) and the signs of ``C++``."""

UNSPACED: Final = re.compile(f"[{_UNSPACED}]")


def _letters() -> Mapping[int, str | None]:
    """Letters that have no Unicode decomposition, and invisible characters to delete."""
    plain_letters: Mapping[int, str] = accent_map  # type: ignore[assignment]  # annotated before it is rekeyed
    table: dict[int, str | None] = {
        code: plain
        for code, plain in plain_letters.items()
        if chr(code).islower() and len(plain) == 1 and unicodedata.normalize("NFKD", chr(code)) == chr(code)
    }
    # Whoosh's table has one letter for each of these, or none; these are the usual transliterations.
    table.update({ord("æ"): "ae", ord("œ"): "oe", ord("þ"): "th", ord("ð"): "d"})
    # Two apostrophes that Unicode counts as letters (Hawai\u02bbi) fold to nothing, like the others.
    table.update(dict.fromkeys((*_INVISIBLE, 0x2BB, 0x2BC)))
    return table


_LETTERS: Final = _letters()


def _is_accent(char: str) -> bool:
    # Classes 10 to 35 are the points of Hebrew and Arabic, 200 and more the accents around a letter; classes
    # in between are vowel signs, viramas and tones, which are part of the spelling.
    combining = unicodedata.combining(char)
    return combining >= 200 or 10 <= combining <= 35


def _strip(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(char for char in decomposed if not _is_accent(char))


def fold(text: str) -> str:
    """``text`` without case, accents, compatibility forms and invisible characters."""
    if text.isascii():
        return text.lower()
    # Accents are removed before case: the iota subscript would otherwise become a letter.
    folded = _strip(_strip(text).casefold()).translate(_LETTERS)
    return unicodedata.normalize("NFC", folded)


MEMORABLE: Final = 64
"""The longest word, in characters, that is cached or stemmed; longer ones rarely recur."""
_CODES: Final = {
    Analyzer.DANISH: "da",
    Analyzer.DUTCH: "nl",
    Analyzer.FINNISH: "fi",
    Analyzer.FRENCH: "fr",
    Analyzer.GERMAN: "de",
    Analyzer.HUNGARIAN: "hu",
    Analyzer.ITALIAN: "it",
    Analyzer.NORWEGIAN: "no",
    Analyzer.PORTUGUESE: "pt",
    Analyzer.ROMANIAN: "ro",
    Analyzer.RUSSIAN: "ru",
    Analyzer.SPANISH: "es",
    Analyzer.SWEDISH: "sv",
}


def stem(word: str, analyzer: Analyzer = Analyzer.ENGLISH, raw: str = "") -> str:
    """The stem of a folded word, spelled ``raw`` in the text; a word of another script is its own stem."""
    if analyzer is Analyzer.ENGLISH:
        if len(word) > MEMORABLE or not (word.isascii() and word.isalpha()):
            return word
        return _porter2(word)
    if analyzer not in _CODES or len(word) > MEMORABLE or not word.isalpha():
        return word
    if analyzer is Analyzer.RUSSIAN:
        # Folding removes the breve from the letter in which most endings end.
        spelling = unicodedata.normalize("NFC", raw or word).lower().replace("ё", "е")
        return fold(_stemmer(analyzer)(spelling))
    return _stemmer(analyzer)(word)


@lru_cache(maxsize=1 << 16)
def _porter2(word: str) -> str:
    stemmed: str = porter2(word)  # type: ignore[no-untyped-call]  # Whoosh is typed in part
    return stemmed


@cache
def stop_words(analyzer: Analyzer) -> frozenset[str]:
    """The folded words that are too common to be searched."""
    if analyzer is Analyzer.ENGLISH:
        return frozenset(STOP_WORDS)
    if analyzer not in _CODES:
        return frozenset()
    from whoosh.lang.stopwords import stoplists  # noqa: PLC0415 - large, and needed for other languages only

    return frozenset(map(fold, stoplists.get(_CODES[analyzer], ())))  # Romanian has none


@cache
def _stemmer(analyzer: Analyzer) -> Callable[[str], str]:
    from whoosh.lang.snowball import classes  # noqa: PLC0415 - many modules, for other languages only

    stemmer: Any = classes[_CODES[analyzer]]()
    return stemmer.stem  # type: ignore[no-any-return]  # Whoosh is typed in part


MOST_CHUNKS: Final = 200_000
"""The most distinct chunks whose analysis is cached: about 150 MB at most."""
_CHUNK: Final = re.compile(r"\S+")


class Token(NamedTuple):
    """A word of a text. Pieces have consecutive positions; a whole shares the position of its first piece.

    ``start`` and ``end`` are offsets in characters, ``word`` is folded, and queries are
    compared with ``stem``. A whole spans ``width`` pieces.
    """

    start: int
    end: int
    position: int
    width: int
    word: str
    stem: str
    whole: bool
    searchable: bool


class TextChunk(NamedTuple):
    """The analysis of a text without white space: its tokens, and the stems of its pieces in order."""

    tokens: tuple[Token, ...]
    stems: tuple[str, ...]


class TextPiece(Protocol):
    """A piece of a text: its offsets and its folded word."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def word(self) -> str: ...


class _Piece(NamedTuple):
    start: int
    end: int
    word: str


def chunks(text: str, analyzer: Analyzer = Analyzer.ENGLISH) -> list[str]:
    """The parts of a text that are analysed separately."""
    if analyzer is Analyzer.NONE:
        return [text] if text else []
    return text.split()


def placed_chunks(text: str, analyzer: Analyzer = Analyzer.ENGLISH) -> Iterator[tuple[int, str]]:
    """The ``chunks`` of a text in order, each after its offset."""
    if analyzer is not Analyzer.NONE:
        yield from ((match.start(), match.group()) for match in _CHUNK.finditer(text))
    elif text:
        yield 0, text


def tokens(text: str, analyzer: Analyzer = Analyzer.ENGLISH) -> Iterator[Token]:
    """The tokens of a text in order, each whole after its pieces."""
    position = 0
    for offset, chunk_text in placed_chunks(text, analyzer):
        chunk = analyse(chunk_text, analyzer)
        for token in chunk.tokens:
            yield token._replace(
                start=token.start + offset, end=token.end + offset, position=token.position + position
            )
        position += len(chunk.stems)


def stems(text: str, analyzer: Analyzer = Analyzer.ENGLISH) -> tuple[str, ...]:
    """The stems of a text's pieces in order, including stop words; phrases are compared with them."""
    return tuple(chain.from_iterable([analyse(chunk, analyzer).stems for chunk in chunks(text, analyzer)]))


def analyse(chunk: str, analyzer: Analyzer = Analyzer.ENGLISH) -> TextChunk:
    """The analysis of one of the ``chunks`` of a text; offsets and positions are relative to the chunk."""
    return _remember(chunk, analyzer) if len(chunk) <= MEMORABLE else _analyse(chunk, analyzer)


def _untouched(text: str) -> TextChunk:
    token = Token(0, len(text), 0, 1, text, text, whole=False, searchable=True)
    return TextChunk((token,), (text,)) if text else TextChunk((), ())


def _analyse(chunk: str, analyzer: Analyzer) -> TextChunk:
    if analyzer is Analyzer.NONE:
        return _untouched(chunk)
    token_list: list[Token] = []
    position = 0
    without_instants = _INSTANT.sub(_without_letters, chunk)
    for match in COMPOUND.finditer(chunk):
        start, end = match.span()
        compound_tokens = _compound(chunk[start:end], without_instants[start:end], start, position, analyzer)
        position += sum(not token.whole for token in compound_tokens)
        token_list += compound_tokens
    return TextChunk(tuple(token_list), tuple(token.stem for token in token_list if not token.whole))


_remember = lru_cache(maxsize=MOST_CHUNKS)(_analyse)


_ENDS: Final = r"(?![^\W_])"
_INSTANT: Final = re.compile(
    # 2024-05-06T07, 2024-05-06T07:08:09.5Z, 20240506T070809Z
    r"(?<![0-9])(?:[0-9]{4}-[0-9]{2}-[0-9]{2}|(?:19|20)[0-9]{6}(?=[Tt](?:[0-9]{2}){2}))[Tt](?=[0-9]{2})"
    rf"(?:[0-9]{{2}}(?:[:_-]?[0-9]{{2}}){{0,2}}(?:[.,][0-9]+)?[Zz]{_ENDS})?"
    # 07:08Z, 07:08:09.5Z
    rf"|(?<![^\W_])[0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}}(?:[.,][0-9]+)?)?[Zz]{_ENDS}"
)
_LETTER: Final = re.compile("[A-Za-z]")


def _without_letters(instant: re.Match[str]) -> str:
    """An instant with blanks in place of its letters, so that offsets do not change."""
    return _LETTER.sub(" ", instant.group())


def _compound(raw: str, without_instants: str, offset: int, position: int, analyzer: Analyzer) -> list[Token]:
    """The pieces of a compound, then the compound as a whole if that is a different word.

    ``without_instants``: the compound with blanks for the letters of instants, so that dates are wholes too.
    """
    pieces, common_words = _pieces(without_instants), stop_words(analyzer)
    if not pieces:
        return []
    compound_tokens = [
        Token(
            offset + piece.start, offset + piece.end, position + i, 1, piece.word,
            stem(piece.word, analyzer, raw[piece.start : piece.end]), False, piece.word not in common_words,
        )
        for i, piece in enumerate(pieces)
    ]  # fmt: skip
    wholes = [(pieces, 0, pieces if without_instants == raw else _pieces(raw))]
    if without_instants != raw:
        parts = [
            list(part)
            for _, part in groupby(pieces, lambda piece: without_instants.count(" ", 0, piece.start))
        ]
        wholes = [*((part, pieces.index(part[0]), part) for part in parts), *wholes]
    for run, first, spelt in wholes:
        whole = _whole(raw, spelt)
        if whole and (len(run) > 1 or whole != run[0].word):
            start, end = offset + spelt[0].start - (whole[0] == "."), offset + spelt[-1].end
            stemmed = stem(whole, analyzer)
            compound_tokens.append(Token(start, end, position + first, len(run), whole, stemmed, True, True))
    return compound_tokens


def _pieces(raw: str) -> list[_Piece]:
    pieces = [
        _Piece(match.start(), match.end(), word)
        for match in PIECE.finditer(raw)
        # A lone mark (the variation selector of an emoji) is not a word.
        if any(map(str.isalnum, word := fold(match.group())))
    ]
    if len(pieces) > 1 and pieces[-1].word == "s" and raw[pieces[-1].start - 1] in APOSTROPHES:
        pieces.pop()  # the possessive: Tarantino's is Tarantino
    if pieces and pieces[-1].end < len(raw) and raw[pieces[-1].end] in "+#":
        last = pieces[-1]
        if last.end - last.start == 1:  # C++, C#, F#; but "fan#" is "fan"
            pieces[-1] = _Piece(last.start, len(raw), last.word + raw[last.end :])
    return pieces


def _whole(raw: str, pieces: list[_Piece]) -> str:
    """The compound as one word; empty if it contains characters of an unspaced script."""
    return "" if UNSPACED.search(raw) else spelled(raw, pieces).replace(" ", "")


_JOINER_RUN: Final = re.compile(f"(?:[{JOINERS}](?![{JOINERS.replace('_', '')}]))+|_+")


def spelled(text: str, pieces: Sequence[TextPiece]) -> str:
    """Consecutive pieces of a text, joined by the signs that matter and otherwise by blanks.

    ``cve 2025-7425``, ``server 01.example.com``, ``.net``. Blanks and hyphens between
    words are equivalent, since ``spider man`` is found in ``Spider-Man``.
    """
    acronym = len(pieces) > 1 and all(len(piece.word) == 1 and piece.word.isalpha() for piece in pieces)
    parts = ["." if len(pieces) == 1 and _dotted(text, pieces[0].start) else "", pieces[0].word]
    for left, right in pairwise(pieces):
        joiner = text[left.end : right.start]
        sides = left.word[-1:] + right.word[:1]
        parts += _joint(joiner, sides, acronym=acronym) if _JOINER_RUN.fullmatch(joiner) else " ", right.word
    return "".join(parts)


def _dotted(text: str, start: int) -> bool:
    """True if the piece at ``start`` has a dot before it that is not part of an ellipsis."""
    while text[start - 1 : start] == "_":
        start -= 1
    return text[start - 1 : start] == "." and text[start - 2 : start - 1] != "."


def _joint(joiner: str, sides: str, *, acronym: bool) -> str:
    """The part of a joiner that matters. ``sides`` are the characters to its left and right."""
    if "&" in joiner:
        return "&"
    if sides.isdigit():
        return "-" if joiner[0] in HYPHENS else joiner[0]
    return "." if "." in joiner and not acronym else " "
