"""Schemas for data without one: inferred, kept, used again, and inferred again when the data changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skws.formats.files import entries
from skws.sources.addresses import database_at
from skws.sources.folder import check_path
from skws.sources.inferred_schemas import draft_of, inferred, schema_for
from skws_schema.errors import SkwsError, SourceError, UsageError
from tests.commands import Skws

DAY = """\
{"relation": "customer", "row": {"cid": 7, "name": "Ada Byron"}}
{"relation": "customer", "row": {"cid": 8, "name": "Grace Murray"}}
{"relation": "purchase", "time": "2026-03-01T09:00:00Z", "row": {"pid": 1, "cid": 7, "item": "kettle"}}
{"relation": "purchase", "time": "2026-03-01T09:10:00Z", "row": {"pid": 2, "cid": 8, "item": "toaster"}}
{"relation": "complaint", "time": "2026-03-01T09:20:00Z", "row": {"pid": 1, "body": "The lid leaks."}}
{"relation": "complaint", "time": "2026-03-01T10:30:00Z", "row": {"pid": 2, "body": "It leaks, too!"}}
"""
NOTE = '{"relation": "note", "time": "2026-03-01T11:00:00Z", "row": {"about": "a refund"}}\n'


@pytest.fixture(autouse=True)
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    return tmp_path / "share" / "skws" / "schemas"


@pytest.fixture
def day(tmp_path: Path) -> Path:
    file = tmp_path / "day.jsonl"
    file.write_text(DAY)
    return file


def test_a_draft_is_shown_and_saved_beside_the_data(day: Path) -> None:
    draft = draft_of([str(day)])
    assert draft.path == day.with_name("day.jsonl.schema.yaml")
    assert {join.name for join in draft.schema.joins} == {
        "customer.cid = purchase.cid",
        "purchase.pid = complaint.pid",
    }
    notes = "\n".join(draft.notes)
    assert "3 relations: customer, purchase, complaint" in notes
    assert "purchase.pid = complaint.pid (0." in notes
    assert "searched: customer.name, purchase.item, complaint.body" in notes


def test_a_saved_draft_is_used_again_with_a_note(day: Path) -> None:
    first = draft_of([str(day)])
    second_draft = draft_of([f"replay:{day}?speed=5"])
    assert (second_draft.path, second_draft.schema) == (first.path, first.schema)
    assert len(second_draft.notes) == 1
    assert "from an earlier run" in second_draft.notes[0]


def test_an_unedited_draft_follows_its_data(day: Path) -> None:
    draft_of([str(day)])
    day.write_text(DAY + NOTE)
    second_draft = draft_of([str(day)])
    assert "note" in {relation.name for relation in second_draft.schema.relations}
    assert "inferred again to fit the data" in second_draft.notes[-1]


def test_a_draft_that_follows_its_data_keeps_its_joins(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    orders, lines = tmp_path / "d" / "orders.csv", tmp_path / "d" / "lines.csv"
    orders.write_text("id,name\n1,kettle\n2,cup\n3,pot\n")
    lines.write_text("order_id,body\n1,leaks\n2,fine\n3,hot\n3,cold\n")
    first = draft_of([str(tmp_path / "d")])
    assert len(first.schema.joins) == 1
    lines.write_text(lines.read_text() + "abc,new\n")
    assert draft_of([str(tmp_path / "d")]).schema == first.schema
    lines.write_text("order,body\n1,leaks\n")
    later_draft = draft_of([str(tmp_path / "d")])
    assert any(
        note.startswith("warning: joins removed") and "lines.order_id" in note for note in later_draft.notes
    )


def test_an_edited_draft_is_not_overwritten(day: Path) -> None:
    path = draft_of([str(day)]).path
    edited_text = path.read_text().replace("window: none", "window: 1 hour")
    path.write_text(edited_text)
    day.write_text(DAY + NOTE)
    second_draft = draft_of([str(day)])
    assert second_draft.schema.window == "1 hour"
    assert path.read_text() == edited_text
    assert "it was edited" in second_draft.notes[0]


def test_a_draft_for_several_paths_is_saved_for_the_user(day: Path, user_folder: Path) -> None:
    second_path = day.with_name("more.jsonl")
    second_path.write_text(NOTE)
    draft = draft_of([str(day), str(second_path)])
    assert draft.path.parent == user_folder
    assert draft_of([str(day), str(second_path)]).path == draft.path


def test_nothing_is_written_into_folders_of_other_users(
    day: Path, user_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_user = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other_user)
    draft = draft_of([str(day)])
    assert draft.path.parent == user_folder
    assert draft_of([str(day)]).path == draft.path
    assert list(day.parent.glob("*.schema.yaml")) == []


def test_nothing_is_written_into_system_folders(user_folder: Path) -> None:
    files = (file for file in Path("/usr/share").rglob("*.json") if _is_readable(file))
    file = next(files, None)
    if file is None:
        pytest.skip("no JSON in /usr/share")
    assert draft_of([str(file)]).path.parent == user_folder
    assert list(file.parent.glob("*.schema.yaml")) == []


def _is_readable(file: Path) -> bool:
    try:
        return bool(inferred([str(file)]).relations)
    except SkwsError:
        return False


def test_a_draft_that_cannot_be_saved_beside_the_data(day: Path, user_folder: Path) -> None:
    """The name of the draft would be too long. Missing permissions are not tested, since root has all."""
    day = day.rename(day.with_name("d" * 240 + ".jsonl"))
    draft = draft_of([str(day)])
    assert draft.path.parent == user_folder
    assert draft_of([str(day)]).path == draft.path


def test_saved_schemas_are_not_read_as_data(day: Path) -> None:
    draft_of([str(day)])
    assert entries(day.parent) == [day]


@pytest.mark.parametrize("source", ["-", "kafka://localhost:9092/topic"])
def test_sources_that_cannot_be_sampled_need_a_schema(source: str) -> None:
    with pytest.raises(UsageError, match="--schema FILE"):
        draft_of([source])


def test_a_missing_source_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file"):
        draft_of([str(tmp_path / "nothing.jsonl")])


def test_a_file_may_vanish_while_its_folder_is_listed(day: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = day.with_name("gone.jsonl")
    gone.write_text(DAY)
    exists = Path.exists

    def exists_before(path: Path) -> bool:
        existed = exists(path)
        if path == gone:
            path.unlink(missing_ok=True)
        return existed

    monkeypatch.setattr(Path, "exists", exists_before)
    assert len(draft_of([str(day.parent)]).schema.relations) == 3
    assert not os.path.lexists(gone)


@pytest.mark.parametrize("name", ["x" * 300 + ".jsonl", "a\0b.jsonl"])
def test_a_path_that_no_file_can_have_is_reported(tmp_path: Path, name: str) -> None:
    for read in (draft_of, schema_for):
        with pytest.raises(SourceError, match=r"no such file or directory|File name too long"):
            read([str(tmp_path / name)])
    with pytest.raises(SourceError, match=r"no such file or directory|File name too long"):
        check_path(tmp_path / name)


def test_commands_run_without_a_schema(day: Path, skws: Skws) -> None:
    search = skws("search", "byron", "leaks", "--replay", day, "--format", "jsonl")
    assert (search.code, len(search.records)) == (0, 1)
    assert "2 joins" in search.err
    outcome = skws("watch", "byron", "leaks", "--source", f"replay:{day}?speed=1e9", "--format", "jsonl")
    assert (outcome.code, len(outcome.records)) == (0, 1)
    assert "from an earlier run" in outcome.err


@pytest.mark.parametrize(
    "address",
    [
        "postgres://localhost/shop",
        "postgresql://ann:secret@localhost:5432/shop?sslmode=require",
        "postgresql://127.0.0.1/shop",
        "postgresql:///shop",
        "postgresql:///shop?host=/var/run/postgresql",
        "postgresql:///?dbname=shop&host=LOCALHOST",
        "postgresql://localhost/shop?slot=mine&application_name=x",
    ],
)
def test_spellings_of_an_address_share_one_schema(
    address: str, user_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    identity = database_at("postgresql://localhost/shop").identity
    assert database_at(address).identity == identity == "localhost:5432/shop"


def test_other_databases_have_separate_schemas() -> None:
    addresses = [
        "postgresql://localhost/shop",
        "postgresql://localhost/other",
        "postgresql://localhost:5433/shop",
        "postgresql://db.example/shop",
        "postgresql://localhost/shop?options=-csearch_path%3Dsales",
    ]
    assert len({database_at(address).identity for address in addresses}) == len(addresses)


def test_a_value_without_a_name_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "film.jsonl"
    file.write_text('{"mid": 1, "title": "a film", "": "x"}\n{"mid": 2, "title": "another"}\n')
    draft = draft_of([str(file)])
    assert [attribute.name for attribute in draft.schema.relations[0].attributes] == ["mid", "title"]
    assert any("'' (it has no name)" in note for note in draft.notes)
