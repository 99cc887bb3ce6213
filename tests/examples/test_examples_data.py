"""The examples' data and schemas agree: with each other, and with the public data that the schemas describe.

Read with nothing but YAML, JSON and CSV parsers, so that a fault of the
project's own readers cannot hide one of the data.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.places import ROOT

EXAMPLES = ROOT / "examples"
DATA = ROOT / ".." / "shared" / "data"
PUBLIC = {"stackexchange": "stackexchange-ai", "sakila": "sakila", "mondial": "mondial"}
SCHEMAS = ("movies", *PUBLIC)

# YAML 1.1 reads the word `on` as true.
ON = True
CONDITION = re.compile(r"(\w+)\.(\w+) = (\w+)\.(\w+)")


class Condition(NamedTuple):
    left: str
    left_attribute: str
    right: str
    right_attribute: str


class Line(NamedTuple):
    relation: str
    time: date
    row: dict[str, Any]


@cache
def schema(example: str) -> dict[str, Any]:
    text = (EXAMPLES / example / "schema.yaml").read_text(encoding="utf-8")
    document: dict[str, Any] = yaml.safe_load(text)
    return document


def relations(example: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = schema(example)["relations"]
    return found


def joins(example: str) -> list[list[Condition]]:
    """Each join as its conditions."""
    written = [[join] if isinstance(join, str) else join[ON] for join in schema(example)["joins"]]
    return [[_condition(text) for text in conditions] for conditions in written]


def _condition(text: str) -> Condition:
    match = CONDITION.fullmatch(text)
    assert match, text
    return Condition(*match.groups())


# Schemas.


@pytest.mark.parametrize("example", SCHEMAS)
def test_keys_search_and_time_name_attributes_of_the_right_type(example: str) -> None:
    for name, relation in relations(example).items():
        attributes = relation["attributes"]
        assert set(attributes.values()) <= set(PARSERS), name
        assert set(relation.get("key", [])) <= set(attributes), name
        assert all(attributes[a] == "text" for a in relation.get("search", [])), name
        assert "time" not in relation or attributes[relation["time"]] == "timestamp", name


@pytest.mark.parametrize("example", SCHEMAS)
def test_every_stream_has_an_event_time_or_stands_in_a_replay_with_times(example: str) -> None:
    streams = {name for name, relation in relations(example).items() if not relation.get("table")}
    timed = {name for name, relation in relations(example).items() if "time" in relation}
    assert timed == (streams if example in PUBLIC else {"movie"})


@pytest.mark.parametrize("example", SCHEMAS)
def test_joins_equate_attributes_of_the_same_type_between_two_relations(example: str) -> None:
    def kind(relation: str, attribute: str) -> str:
        # Text is a string that is searched; their values compare.
        found: str = relations(example)[relation]["attributes"][attribute]
        return "string" if found == "text" else found

    for conditions in joins(example):
        assert len({(c.left, c.right) for c in conditions}) == 1, conditions
        for c in conditions:
            assert kind(c.left, c.left_attribute) == kind(c.right, c.right_attribute), c


@pytest.mark.parametrize("example", SCHEMAS)
def test_join_names_are_unique(example: str) -> None:
    names = [j if isinstance(j, str) else j["name"] for j in schema(example)["joins"]]
    assert len(set(names)) == len(names)


# The replay of movies.


@cache
def movie_lines() -> tuple[Line, ...]:
    text = (EXAMPLES / "movies" / "replay.jsonl").read_text(encoding="utf-8")
    records = [json.loads(line) for line in text.splitlines()]
    assert all(list(record) == ["relation", "time", "row"] for record in records)
    return tuple(Line(r["relation"], date.fromisoformat(r["time"]), r["row"]) for r in records)


def movie_rows(relation: str) -> list[dict[str, Any]]:
    return [line.row for line in movie_lines() if line.relation == relation]


def arrival(relation: str, attribute: str) -> dict[Any, date]:
    """For each value of an attribute, when its first row arrives."""
    first: dict[Any, date] = {}
    for line in movie_lines():
        if line.relation == relation:
            first.setdefault(line.row[attribute], line.time)
    return first


def test_lines_are_tidy() -> None:
    for line in (EXAMPLES / "movies" / "replay.jsonl").read_text(encoding="utf-8").splitlines():
        assert line == json.dumps(json.loads(line), ensure_ascii=False)


def test_rows_have_exactly_the_attributes_with_values_of_their_types() -> None:
    types: dict[str, type] = {"integer": int, "text": str, "timestamp": str}
    for line in movie_lines():
        attributes = relations("movies")[line.relation]["attributes"]
        assert list(line.row) == list(attributes), line
        assert all(type(line.row[name]) is types[kind] for name, kind in attributes.items()), line
        assert all(value.strip() == value != "" for value in line.row.values() if type(value) is str), line


def test_lines_are_in_order_of_time_and_fit_into_the_window() -> None:
    times = [line.time for line in movie_lines()]
    assert all(a <= b for a, b in pairwise(times))
    days = re.fullmatch(r"(\d+) days", schema("movies")["window"])
    assert days
    assert times[-1] - times[0] < timedelta(days=int(days[1]))


def test_keys_and_names_are_unique() -> None:
    unique = {name: [relation["key"]] for name, relation in relations("movies").items()}
    for name in ("director", "actor"):
        unique[name].append(["name"])
    for relation, keys in unique.items():
        for key in keys:
            values = [tuple(row[a] for a in key) for row in movie_rows(relation)]
            assert len(set(values)) == len(values), (relation, key)


def test_every_reference_resolves_and_everyone_and_everything_is_referred_to() -> None:
    for (condition,) in joins("movies"):
        left = {row[condition.left_attribute] for row in movie_rows(condition.left)}
        right = {row[condition.right_attribute] for row in movie_rows(condition.right)}
        assert left == right, condition


def test_a_film_arrives_with_its_cast_on_its_release() -> None:
    released = {row["mid"]: date.fromisoformat(row["released"]) for row in movie_rows("movie")}
    assert arrival("movie", "mid") == released
    for line in movie_lines():
        if line.relation == "plays":
            assert line.time == released[line.row["mid"]], line


def test_people_arrive_with_their_first_film() -> None:
    assert arrival("director", "did") == arrival("movie", "did")
    assert arrival("actor", "aid") == arrival("plays", "aid")


def test_who_directs_and_acts_has_a_row_in_both() -> None:
    both = {row["name"] for row in movie_rows("director")} & {row["name"] for row in movie_rows("actor")}
    assert {"Quentin Tarantino", "Clint Eastwood", "Kenneth Branagh", "John Huston"} <= both


def test_an_actor_may_play_several_roles_in_a_film() -> None:
    cast = [(row["mid"], row["aid"]) for row in movie_rows("plays")]
    assert len(set(cast)) < len(cast)


def _films_with(actor: str) -> set[int]:
    aids = {row["aid"] for row in movie_rows("actor") if row["name"] == actor}
    return {row["mid"] for row in movie_rows("plays") if row["aid"] in aids}


def _films_by(director: str) -> set[int]:
    dids = {row["did"] for row in movie_rows("director") if row["name"] == director}
    return {row["mid"] for row in movie_rows("movie") if row["did"] in dids}


@pytest.mark.parametrize(
    ("who", "whom", "directed", "both_act"),
    [
        ("Quentin Tarantino", "John Travolta", ["Pulp Fiction"], ["Pulp Fiction"]),
        (
            "Martin Scorsese",
            "Robert De Niro",
            ["Taxi Driver", "Goodfellas", "Casino", "Killers of the Flower Moon"],
            ["Taxi Driver"],
        ),
        ("Harold Ramis", "Bill Murray", ["Groundhog Day"], ["Ghostbusters", "Groundhog Day"]),
        ("John Huston", "Jack Nicholson", ["Prizzi's Honor"], ["Chinatown"]),
    ],
)
def test_collaborations_show_in_both_kinds_of_network(
    who: str, whom: str, directed: list[str], both_act: list[str]
) -> None:
    title = {row["mid"]: row["title"] for row in movie_rows("movie")}
    assert [title[mid] for mid in sorted(_films_by(who) & _films_with(whom))] == directed
    assert [title[mid] for mid in sorted(_films_with(who) & _films_with(whom))] == both_act


# Public data.


def _integer(text: str) -> object:
    assert re.fullmatch(r"[+-]?[0-9]{1,18}", text), text
    return int(text)


def _number(text: str) -> object:
    value = float(text)
    assert math.isfinite(value), text
    return value


def _boolean(text: str) -> object:
    assert text.lower() in ("true", "false", "t", "f"), text
    return text.lower()[0] == "t"


def _timestamp(text: str) -> object:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _text(text: str) -> object:
    return text


PARSERS: dict[str, Callable[[str], object]] = {
    "text": _text,
    "string": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "timestamp": _timestamp,
}
Table = list[dict[str, object]]


@cache
def tables(example: str) -> dict[str, Table]:
    """The relations of a public data set, parsed as the schema says; an empty field is None."""
    folder = DATA / PUBLIC[example] / "csv"
    if not folder.is_dir():
        pytest.skip(f"the public data set {PUBLIC[example]} is not here")
    folded = {name.casefold(): name for name in relations(example)}
    return {
        folded[path.stem.casefold()]: list(_parsed(path, relations(example)[folded[path.stem.casefold()]]))
        for path in sorted(folder.glob("*.csv"))
    }


def _parsed(path: Path, relation: dict[str, Any]) -> Iterator[dict[str, object]]:
    attributes: dict[str, str] = relation["attributes"]
    parsers = [(name, PARSERS[kind]) for name, kind in attributes.items()]
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        assert next(lines) == list(attributes), path
        for line in lines:
            row = zip(parsers, line, strict=True)
            yield {name: parse(field) if field else None for (name, parse), field in row}


@pytest.mark.parametrize("example", PUBLIC)
def test_every_relation_has_a_file_that_parses_by_its_attributes(example: str) -> None:
    assert tables(example).keys() == relations(example).keys()
    assert all(tables(example).values())


@pytest.mark.parametrize("example", PUBLIC)
def test_declared_keys_are_unique_and_never_null(example: str) -> None:
    for name, relation in relations(example).items():
        if "key" in relation:
            keys = [tuple(row[a] for a in relation["key"]) for row in tables(example)[name]]
            assert len(set(keys)) == len(keys), name
            assert not any(None in key for key in keys), name


@pytest.mark.parametrize("example", PUBLIC)
def test_every_tuple_of_a_stream_has_its_event_time(example: str) -> None:
    for name, relation in relations(example).items():
        if "time" in relation:
            assert None not in {row[relation["time"]] for row in tables(example)[name]}, name


@pytest.mark.parametrize("example", PUBLIC)
def test_joins_find_what_they_refer_to(example: str) -> None:
    for conditions in joins(example):
        first = conditions[0]
        near = [c.left_attribute for c in conditions]
        far = [c.right_attribute for c in conditions]
        given = [tuple(row[a] for a in near) for row in tables(example)[first.left]]
        there = {tuple(row[a] for a in far) for row in tables(example)[first.right]}
        given = [values for values in given if None not in values]
        # Deleted posts leave votes and links behind; nothing loses more than these.
        assert sum(values in there for values in given) >= 0.9 * len(given), conditions
