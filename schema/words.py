"""The words in the names of relations and attributes: ``OwnerUserId`` is owner, user, id."""

from __future__ import annotations

import re
from functools import lru_cache

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")

IDENTIFIERS = frozenset(
    {"id", "key", "code", "no", "nr", "num", "number", "uuid", "guid", "ref", "fk", "pk", "name"}
)
GENERIC = IDENTIFIERS | {
    "type",
    "kind",
    "date",
    "time",
    "status",
    "title",
    "value",
    "text",
    "description",
    "count",
}
EVENT = frozenset(
    {"created", "creation", "create", "date", "time", "timestamp", "ts", "at", "when", "released", "occurred"}
)
LATER = frozenset(
    {
        "update",
        "updated",
        "modified",
        "last",
        "edit",
        "edited",
        "end",
        "ended",
        "closed",
        "return",
        "returned",
    }
    | {"expires", "expired", "deleted", "due", "until", "birth", "access", "activity"}
)
ROLES = frozenset(
    {
        "parent",
        "boss",
        "manager",
        "supervisor",
        "mother",
        "father",
        "root",
        "previous",
        "next",
        "reply",
        "replies",
    }
    | {"predecessor", "successor", "origin", "original", "mentor", "leader"}
)


@lru_cache(maxsize=10_000)
def tokens(name: str) -> tuple[str, ...]:
    """Lower-case words of a name in snake, kebab or camel case; digits at the end are dropped."""
    words = [word.lower() for word in _WORD.findall(name)]
    while len(words) > 1 and words[-1].isdigit():
        words.pop()
    # `userid` and `movieid` are two words for whoever wrote them.
    if len(words) == 1 and words[0].endswith("id") and len(words[0]) > 4:
        words = [words[0][:-2], "id"]
    return tuple(words)


@lru_cache(maxsize=10_000)
def relation_tokens(name: str) -> tuple[str, ...]:
    """Words of a relation's name, the last in the singular."""
    words = tokens(name)
    return (*words[:-1], singular(words[-1])) if words else ()


def singular(word: str) -> str:
    """A form that an English noun shares with its plural: ``movy`` for ``movie`` and ``movies``."""
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return word[:-2] + "y" if word.endswith("ie") and len(word) > 3 else word


def stem(name: str) -> tuple[str, ...]:
    """What a reference refers to: ``movie_id`` and ``MovieID`` to movie, ``country1`` to country."""
    words = list(tokens(name))
    while len(words) > 1 and words[-1] in IDENTIFIERS:
        words.pop()
    if words:
        words[-1] = singular(words[-1])
    return tuple(words)


def is_reference_name(name: str) -> bool:
    """True if the name ends like one of an identifier: ``movie_id``, ``MovieID``, ``mid``."""
    last = tokens(name)[-1:]
    return bool(last) and (last[0] in IDENTIFIERS - {"name", "number", "no", "num"} or last[0].endswith("id"))


def is_time_name(name: str) -> bool:
    """True if the name says that its values are moments."""
    return bool(EVENT & set(tokens(name)))
