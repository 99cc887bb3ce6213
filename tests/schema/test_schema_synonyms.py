"""Synonyms of a schema: from a file beside it, or as a list in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from skws_schema.errors import SchemaError
from skws_schema.yaml.load import load_schema, parse_schema
from skws_schema.yaml.write import to_yaml

REST = "relations:\n  a: {attributes: {t: text}}\n"
GROUPS = (("car", "automobile", "motor car"), ("c#", "csharp"))


def test_a_file_beside_the_schema_is_read(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(f"synonyms: words/synonyms.txt\n{REST}")
    (tmp_path / "words").mkdir()
    lines = "\ufeff# vehicles\n\ncar,  automobile , motor   car, car # all the same\nc#, csharp\n"
    (tmp_path / "words" / "synonyms.txt").write_text(lines)
    schema = load_schema(tmp_path / "s.yaml")
    assert schema.synonyms == GROUPS
    # Other processes read the schema's text where the file may not be.
    assert parse_schema(to_yaml(schema), default_name="s") == schema


def test_groups_may_be_in_the_schema() -> None:
    assert parse_schema(f"synonyms: ['car, automobile, motor car', 'c#, csharp']\n{REST}").synonyms == GROUPS
    assert parse_schema(f"synonyms: []\n{REST}").synonyms == ()


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("[car]", "1:12: synonyms: expected at least two words that mean the same, found 'car' alone"),
        ("['car, car']", "1:12: synonyms: expected at least two words"),
        ("['car,, bus']", "1:12: synonyms: expected a word between commas, found nothing"),
        ("['car, !!']", "1:12: synonyms: expected a word, found '!!'"),
        ("[[car, bus]]", "expected words that mean the same, such as"),
        ("3", "synonyms: expected the name of a file, or a list of groups"),
        ("words.txt", "a text has no folder to find 'words.txt' in; write the groups as a list"),
    ],
)
def test_faults_in_the_schema(written: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_schema(f"synonyms: {written}\n{REST}")
    assert message in str(caught.value)


def test_faults_in_the_file_are_all_told(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(f"synonyms: w.txt\n{REST}")
    with pytest.raises(SchemaError, match=r"w.txt cannot be read: No such file"):
        load_schema(tmp_path / "s.yaml")
    (tmp_path / "w.txt").write_text("car, bus\ncar\n# x\na,,b\n")
    with pytest.raises(SchemaError) as caught:
        load_schema(tmp_path / "s.yaml")
    assert "w.txt, line 2: expected at least two words" in str(caught.value)
    assert "w.txt, line 4: expected a word between commas" in str(caught.value)
    (tmp_path / "w.txt").write_bytes(b"car, \xff\n")
    with pytest.raises(SchemaError, match="save the file as UTF-8"):
        load_schema(tmp_path / "s.yaml")
