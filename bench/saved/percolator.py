"""A service without joined queries: percolates whole dockets, joined in a database at each change.

The words of all alerts are in one Aho-Corasick automaton per field of the joined document. A document is
rebuilt from SQLite whenever one of its rows changes; an alert matches if the document has both words.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import ahocorasick

_SCOPED: Final = re.compile(r"([a-z.]+):(\w+)")
_FIELDS: Final = {
    "docket": ("SELECT name FROM docket WHERE id = ?",),
    "party": ("SELECT name FROM party WHERE docket = ?",),
    "attorney.name": (
        "SELECT attorney.name FROM attorney JOIN party ON attorney.party = party.id WHERE party.docket = ?",
    ),
    "firm": ("SELECT firm FROM attorney JOIN party ON attorney.party = party.id WHERE party.docket = ?",),
    "filing": ("SELECT description FROM filing WHERE docket = ?",),
}
_TABLES: Final = """
CREATE TABLE docket (id INTEGER PRIMARY KEY, court TEXT, name TEXT, modified TEXT);
CREATE TABLE party (id INTEGER PRIMARY KEY, docket INTEGER, name TEXT, modified TEXT);
CREATE TABLE attorney (id INTEGER PRIMARY KEY, party INTEGER, name TEXT, firm TEXT, modified TEXT);
CREATE TABLE filing (id INTEGER PRIMARY KEY, docket INTEGER, description TEXT, modified TEXT);
CREATE INDEX party_docket ON party (docket);
CREATE INDEX attorney_party ON attorney (party);
CREATE INDEX filing_docket ON filing (docket);
"""


class Percolator:
    """Alerts of two scoped words, by name, and the dockets that match them now."""

    def __init__(self, alerts: Mapping[str, str]) -> None:
        self.matches: dict[int, set[str]] = {}
        """The names of the matching alerts, by docket."""
        self._rows = sqlite3.connect(":memory:")
        self._rows.executescript(_TABLES)
        self._automata = {field: ahocorasick.Automaton() for field in _FIELDS}
        self._others: dict[tuple[str, str], list[tuple[tuple[str, str], str]]] = defaultdict(list)
        for name, text in alerts.items():
            left, right = _SCOPED.findall(text)
            self._others[left].append((right, name))
            for field, word in (left, right):
                self._automata[field].add_word(f" {word} ", word)
        for automaton in self._automata.values():
            automaton.make_automaton()

    def store(self, relation: str, row: Mapping[str, Any]) -> int:
        """Insert or replace a row; returns its docket."""
        columns = ", ".join(row)
        places = ", ".join("?" * len(row))
        self._rows.execute(
            f"INSERT OR REPLACE INTO {relation} ({columns}) VALUES ({places})", tuple(row.values())
        )
        if relation == "attorney":
            (docket,) = self._rows.execute(
                "SELECT docket FROM party WHERE id = ?", (row["party"],)
            ).fetchone()
            return int(docket)
        return int(row["id"] if relation == "docket" else row["docket"])

    def percolate(self, docket: int) -> tuple[set[str], set[str]]:
        """Match a docket in its current state; returns the alerts that begin to match, and those that end."""
        live_words = {
            (field, word)
            for field, (statement,) in _FIELDS.items()
            for word in self._words(field, self._rows.execute(statement, (docket,)))
        }
        now = {
            name for left in live_words for right, name in self._others.get(left, ()) if right in live_words
        }
        former = self.matches.get(docket, set())
        self.matches[docket] = now
        return now - former, former - now

    def _words(self, field: str, texts: Iterable[tuple[str]]) -> set[str]:
        document = " ".join(text for (text,) in texts).lower()
        spaced = f" {re.sub(r'[^a-z0-9]+', '  ', document)} "
        automaton = self._automata[field]
        return {word for _, word in automaton.iter(spaced)} if len(automaton) else set()
