"""All languages by name."""

from __future__ import annotations

from typing import Any, Final

from tests.fuzz import keyword_queries, patterns, records, schemas, sql, windows
from tests.fuzz.fuzzing import Language

LANGUAGES: Final[dict[str, Language[Any]]] = {
    language.name: language
    for language in (
        keyword_queries.LANGUAGE,
        patterns.PATTERNS,
        patterns.CONJUNCTIVE,
        windows.WINDOWS,
        windows.FORMULAS,
        sql.LANGUAGE,
        schemas.LANGUAGE,
        records.JSON_LINES,
        records.CSV,
        records.DEBEZIUM,
        records.PARQUET,
    )
}
