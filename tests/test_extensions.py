"""Sources, sinks and kinds of queries of another package: the one in docs/extending.md."""

from __future__ import annotations

import logging
import tomllib
from pathlib import Path

import orjson
import pytest

import skws as library
from docs.page_files import files, write_files
from skws.queries.kinds import kind_of
from skws.sinks.sink_addresses import parse_sink
from skws.sources.addresses import parse_source
from skws_schema.errors import UsageError
from tests.commands import SCHEMA, Skws
from tests.docs.blocks import steps, words
from tests.places import ROOT
from tests.queries.counted import installed

PAGE = files(ROOT / "docs" / "extending.md")
ROWS = [{"cid": 7, "name": "Ada"}, {"cid": 8, "name": "Grace"}, {"cid": 9, "name": "Ada"}]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_files(ROOT / "docs" / "extending.md", tmp_path)
    project = tomllib.loads(PAGE["pyproject.toml"])["project"]
    installed(tmp_path, "skws_fresh", project["entry-points"])
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_job_uses_source_sink_and_kind_of_a_package(
    package: Path, skws: Skws, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (step,) = steps(ROOT / "docs" / "extending.md", __file__, package)
    (package / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(package)
    with caplog.at_level(logging.WARNING, "alerts"):
        outcome = skws(*words(step.commands[0])[1:])
    assert outcome.code == 0, outcome.err
    alerts = [orjson.loads(record.message) for record in caplog.records if record.name == "alerts"]
    actors = [alert["tuples"][0]["row"]["actor.name"] for alert in alerts if alert["name"] == "actors"]
    assert len(actors) == len(set(actors)) > 10
    assert sum(alert["query"] == "tarantino travolta" for alert in alerts) == 2


def test_a_session_answers_queries_of_an_added_kind(package: Path) -> None:
    schema = {"name": "s", "relations": {"customer": {"attributes": {"cid": "integer", "name": "text"}}}}
    session = library.Session(schema, window="1 hour")
    session.add({"new": library.Query("customer.name", kind="fresh")})
    first = session.process({"customer": ROWS[:1]})
    second = session.process({"customer": ROWS[1:]})
    assert [result.tuples[0].row for result in (*first, *second)] == [
        {"customer.name": "Ada"},
        {"customer.name": "Grace"},
    ]


def test_a_rejection_by_an_added_kind_is_reported(package: Path, skws: Skws) -> None:
    (package / "wrong.yaml").write_text("actors: {kind: fresh, query: actor.age}")
    arguments = ("--source", "program:no-such-program", "--queries", package / "wrong.yaml")
    outcome = skws("watch", "--schema", SCHEMA, *arguments, "--engine", "local")
    assert outcome.code == 3  # a file of queries is invalid
    assert "'actor.age': expected relation.attribute" in outcome.err


def test_unknown_names_are_errors_despite_a_package(package: Path) -> None:
    with pytest.raises(UsageError, match="no source is called feed"):
        parse_source("feed://x")
    with pytest.raises(UsageError, match="expected stdout:FORMAT"):
        parse_sink("loging:alerts")
    with pytest.raises(UsageError, match="kind of query 'freshly'"):
        kind_of("freshly")


def test_two_packages_with_the_same_name_are_an_error(package: Path) -> None:
    installed(package, "other", {"skws.sinks": {"logging": "other:Sink"}})
    with pytest.raises(UsageError, match="uninstall one"):
        parse_sink("logging:alerts")


def test_an_unloadable_package_is_named(package: Path) -> None:
    installed(package, "other", {"skws.sources": {"broken": "no_such_module:Source"}})
    with pytest.raises(UsageError, match="no_such_module:Source cannot be loaded"):
        parse_source("broken:x")


def test_an_existing_file_takes_precedence_over_a_scheme(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(package)
    (package / "program:x").write_text("")
    assert parse_source("program:x").name == "program:x"
