"""The ranks of right answers: ``python -m bench.ranking ../shared/data``.

The queries are those of Coffman and Weaver on Mondial (CIKM 2010) whose answers are in
``mondial/queries.json``, and questions on Sakila and Stack Exchange that were chosen before results were
ranked. The figures per data set are the numbers of questions with a right answer first and among ten, and the
mean reciprocal rank. A result is right if it consists of the tuples of an answer.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, TypeAlias

from bench.snapshots import ROOT, make_file
from skws.index.database import StoredTuples
from skws.index.index_cache import database_index
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.stream_engine import StreamEngine
from skws.results.result import Result, ResultTuple
from skws.sources.addresses import all_tables
from skws.sources.sqlite import SqliteDatabase
from skws.spec.query_spec import RankingChoice
from skws_schema.model import Schema
from skws_schema.yaml.load import load_schema
from skws_windows.window import Unbounded

TEN: Final = 10
Known: TypeAlias = tuple[str, Mapping[str, Any]]
"""A tuple: its relation, and some of its values."""


class Question(NamedTuple):
    """Keywords and answers: all tuples of each answer, or some of them if it is not ``whole``."""

    words: str
    answers: tuple[tuple[Known, ...], ...]
    whole: bool = True


def _question(words: str, *answer: Known) -> Question:
    """A question whose answer has these tuples, and any tuples that connect them."""
    return _any_question(words, answer)


def _any_question(words: str, *answers: tuple[Known, ...]) -> Question:
    """A question with several answers, each as in ``_question``."""
    return Question(words, answers, whole=False)


def _film(title: str) -> Known:
    return "film", {"title": title}


def _category(name: str) -> Known:
    return "category", {"name": name}


def _actor(first_name: str, last_name: str) -> Known:
    return "actor", {"first_name": first_name, "last_name": last_name}


_MARY: Final = "customer", {"first_name": "MARY", "last_name": "SMITH"}
_JAPAN: Final = "country", {"country": "Japan"}
SAKILA: Final = (
    _question("uptown children", _film("UPTOWN YOUNG"), _category("Children")),
    _question("mary smith", _MARY),
    _question("mary smith japan", _MARY, _JAPAN),
    _question("academy dinosaur", _film("ACADEMY DINOSAUR")),
    _question("dinosaur documentary", _film("ACADEMY DINOSAUR")),
    _question("dinosaur classics", _film("CENTER DINOSAUR"), _category("Classics")),
    _question("penelope guiness", _actor("PENELOPE", "GUINESS")),
    _question("penelope guiness horror", _actor("PENELOPE", "GUINESS"), _category("Horror")),
    _question("actor daryl", _actor("DARYL", "WAHLBERG")),
    _question("mike lethbridge", ("staff", {"first_name": "Mike"}), ("city", {"city": "Lethbridge"})),
    _question("country japan", _JAPAN),
    _question("customer japan", ("customer", {}), _JAPAN),
    _question("category comedy", _category("Comedy")),
    _question("tokat turkey", ("city", {"city": "Tokat"}), ("country", {"country": "Turkey"})),
    _question("african egg", _film("AFRICAN EGG")),
    _question("zorro comedy", _film("ZORRO ARK"), _category("Comedy")),
    _question("lisa monroe zorro", _actor("LISA", "MONROE"), _film("ZORRO ARK")),
    _question("matthew carrey family", _actor("MATTHEW", "CARREY"), _category("Family")),
    _question("fay kilmer", _actor("FAY", "KILMER")),
    _question("everett banda", ("customer", {"first_name": "EVERETT", "last_name": "BANDA"})),
)


def _post(number: int) -> Known:
    return "Posts", {"Id": number}


def _user(name: str) -> Known:
    return "Users", {"DisplayName": name}


STACK_EXCHANGE: Final = (
    _question("paradox kill", _post(1768)),
    _question("self-driving ethical kill", _post(111)),
    _question("technological singularity concept", _post(17)),
    _question("alphago lose", _post(1492)),
    _question("loebner prize gold", _post(1628)),
    _question("kenorb", _user("kenorb")),
    _question("users mindcrime", _user("mindcrime")),
    _question("kenorb neurons", _user("kenorb"), _post(4)),
    _question("kenorb loebner", _user("kenorb"), _post(1628)),
    _question("mindcrime paradox", _user("mindcrime"), _post(1768)),
    _question("doxosophoi teacher", _user("Doxosophoi"), ("Badges", {"Name": "Teacher"})),
    _question("novelty search", _post(1296)),
    _question("boltzmann machine differences", _post(130)),
    _question("valkyrie robot mars", _post(1658)),
    _question("deep blue cheat", _post(1517)),
    _question("eka adversarial", _user("Eka"), _post(2211)),
    _question("rcpinto novelty", _user("rcpinto"), _post(1296)),
)


def _named_tuple(relation: str, name: str) -> Known:
    return relation, {"name": name}


_NEPAL: Final = _named_tuple("country", "Nepal"), ("religion", {"country": "NEP", "name": "Hindu"})
PLACES: Final = (
    _question("mountain kilimanjaro", _named_tuple("mountain", "Kilimanjaro")),
    _question("etna sicilia", _named_tuple("mountain", "Etna"), _named_tuple("island", "Sicilia")),
    _question(
        "lake victoria uganda", _named_tuple("lake", "Lake Victoria"), _named_tuple("country", "Uganda")
    ),
    _any_question(
        "gobi mongolia",
        (_named_tuple("desert", "Gobi"), _named_tuple("province", "Mongolia")),
        (_named_tuple("desert", "Gobi"), _named_tuple("country", "Mongolia")),
    ),
    _question("hindu nepal", *_NEPAL),
    _question(
        "nato germany",
        _named_tuple("organization", "North Atlantic Treaty Organization"),
        _named_tuple("country", "Germany"),
        ("ismember", {}),
    ),
    _question("mont blanc france", _named_tuple("mountain", "Mont Blanc"), _named_tuple("country", "France")),
    _question("donau hungary", _named_tuple("river", "Donau"), _named_tuple("country", "Hungary")),
)
"""Questions on Mondial."""


def _members(words: str, country: str, other_country: str, *tuples: Known) -> Question:
    """A question about two countries connected by an organization that has both as members."""
    members: tuple[Known, ...] = (("organization", {}), ("ismember", {}))
    return _question(
        words, _named_tuple("country", country), _named_tuple("country", other_country), *members, *tuples
    )


PUBLISHED: Final = (
    _question("thailand", _named_tuple("country", "Thailand")),
    _question("georgia", _named_tuple("country", "Georgia")),
    _question("bangladesh", _named_tuple("country", "Bangladesh")),
    _question("haiti religion", _named_tuple("country", "Haiti"), ("religion", {"country": "RH"})),
    _question("nigeria gdp", _named_tuple("country", "Nigeria"), ("economy", {"country": "WAN"})),
    _question("slovakia german", _named_tuple("country", "Slovakia"), ("ethnicgroup", {"country": "SK"})),
    _members("iceland mali", "Iceland", "Mali"),
    _members("mauritius india", "Mauritius", "India"),
    _members("libya australia", "Libya", "Australia"),
    _members(
        "czech republic cote divoire organization",
        "Czech Republic",
        "Cote dIvoire",
        ("ismember", {"country": "CZ"}),
    ),
    _question(
        "rhein germany", _named_tuple("river", "Rhein"), _named_tuple("country", "Germany"), ("geo_river", {})
    ),
)
"""More of Coffman and Weaver's queries on Mondial; their answers follow from the meaning of the words."""


def mondial(folder: Path) -> Iterator[Question]:
    """The queries of Coffman and Weaver whose answers are available."""
    for question in json.loads((folder / "queries.json").read_text()):
        answers = (
            tuple((answer_tuple["relation"], answer_tuple["row"]) for answer_tuple in answer)
            for answer in question["answers"]
        )
        yield Question(question["query"], tuple(answers))


def is_known_tuple(result_tuple: ResultTuple, answer_tuple: Known) -> bool:
    """True if a tuple of a result is the known one."""
    relation, values = answer_tuple
    return result_tuple.relation == relation and all(
        _value_text(result_tuple.row.get(name)) == _value_text(value) for name, value in values.items()
    )


def _value_text(value: Any) -> str:
    return str(value).removesuffix("T00:00:00Z")


def is_answer(result: Result, question: Question) -> bool:
    """True if a result is one of a question's answers."""
    return any(
        all(
            any(is_known_tuple(result_tuple, answer_tuple) for result_tuple in result.tuples)
            for answer_tuple in answer
        )
        and (not question.whole or len(answer) == len(result.tuples))
        for answer in question.answers
    )


class Measured(NamedTuple):
    """The rank of the first right result of each question, from 1; 0 if it is not among ten."""

    places: Mapping[str, int]

    def __str__(self) -> str:
        places = self.places.values()
        first, ten = sum(rank == 1 for rank in places), sum(rank > 0 for rank in places)
        mean = sum(1 / rank for rank in places if rank) / max(1, len(places))
        misses = ", ".join(f"{words} ({rank or 'none'})" for words, rank in self.places.items() if rank != 1)
        return f"first {first}, among ten {ten} of {len(places)}; reciprocal {mean:.3f}; not first: {misses}"


def measure(questions: Sequence[Question], schema: Schema, database: StoredTuples) -> Measured:
    places = {}
    for question in questions:
        query = parse_query(question.words, schema, match_names=True)
        plan = Plan(schema, query, Unbounded(), ranking=RankingChoice())
        results = StreamEngine.over(plan, database).search_once(plan, TEN).results
        ranks = (rank for rank, result in enumerate(results, 1) if is_answer(result, question))
        places[question.words] = next(ranks, 0)
    return Measured(places)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="the folder of mondial, sakila and stackexchange-ai")
    data = parser.parse_args().data
    sets = (
        ("mondial", "mondial", tuple(mondial(data / "mondial"))),
        ("mondial", "mondial", PLACES),
        ("mondial", "mondial", PUBLISHED),
        ("sakila", "sakila", SAKILA),
        ("stackexchange", "stackexchange-ai", STACK_EXCHANGE),
    )
    with TemporaryDirectory() as folder:
        for example, source, questions in sets:
            schema = all_tables(load_schema(ROOT / "examples" / example / "schema.yaml"))
            path = Path(folder) / f"{example}.sqlite"
            if not path.exists():
                make_file(path, schema, data / source / "csv")
            database = database_index(
                SqliteDatabase(path), schema, path.with_suffix(".index"), lambda _: None
            )
            print(f"{example}: {measure(questions, schema, database)}")


if __name__ == "__main__":
    main()
