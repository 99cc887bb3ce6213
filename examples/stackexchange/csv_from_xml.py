"""CSV files for `schema.yaml` from the XML files of a Stack Exchange data dump.

    python csv_from_xml.py DUMP_FOLDER CSV_FOLDER

A row of the dump is an element with an attribute for each column that is not NULL. Columns that are not in
the schema are left out. The dump has all tags of a post in one column; the relation PostTags has a row for
each tag.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import yaml

TAG = re.compile(r"[^<>|]+")


def rows(path: Path) -> Iterator[dict[str, str]]:
    """The rows of one XML file, as values by column."""
    # Expat limits the expansion of entities, so a damaged dump cannot exhaust the memory.
    events = ElementTree.iterparse(path, events=("start", "end"))  # noqa: S314
    _, root = next(events)
    for event, element in events:
        if event == "end" and element.tag == "row":
            yield dict(element.attrib)
            root.clear()


def post_tags(posts: Iterable[dict[str, str]]) -> Iterator[dict[str, str]]:
    """A row for each tag of each post; tags are written ``<a><b>`` or ``|a|b|``."""
    for post in posts:
        for tag in TAG.findall(post.get("Tags", "")):
            yield {"PostId": post["Id"], "TagName": tag, "CreationDate": post["CreationDate"]}


def write(path: Path, columns: list[str], csv_rows: Iterable[dict[str, str]]) -> None:
    """Write rows as CSV; a missing column is empty, which means NULL."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(csv_rows)


def convert(dump: Path, target: Path) -> None:
    """Write a CSV file for each relation of the schema beside this script."""
    text = Path(__file__).with_name("schema.yaml").read_text(encoding="utf-8")
    target.mkdir(parents=True, exist_ok=True)
    for relation, description in yaml.safe_load(text)["relations"].items():
        has_tags = relation == "PostTags"
        source = rows(dump / ("Posts.xml" if has_tags else f"{relation}.xml"))
        write(
            target / f"{relation}.csv",
            list(description["attributes"]),
            post_tags(source) if has_tags else source,
        )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: csv_from_xml.py DUMP_FOLDER CSV_FOLDER")
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
