"""Truncation records, which delete all rows of a relation, in each format."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skws.data.batch import BadRecord, Record
from skws.formats import plan, read_split
from skws.formats.dead_letters import late_record
from skws_schema.yaml.load import parse_schema

SCHEMA = parse_schema(
    """
relations:
  order:
    attributes: {id: integer, what: text}
    key: [id]
  shop:
    attributes: {id: integer, name: text}
    table: true
joins: [order.id = shop.id]
""",
    default_name="s",
)
LAMP = Record(0, 1_000_000, (1, "lamp"))
TRUNCATION = Record.truncation(0, 2_000_000)


def read(path: Path) -> list[Record | BadRecord]:
    return [item for split in plan(path, SCHEMA) for item in read_split(split, SCHEMA)]


TEXTS = {
    "records.jsonl": (
        '{"relation": "order", "time": 1, "row": {"id": 1, "what": "lamp"}}\n'
        '{"relation": "order", "time": 2, "op": "truncate"}\n'
        '{"relation": "order", "time": 2, "op": "truncate", "row": {}}\n'
        '{"relation": "order", "time": 2, "op": "truncate", "row": {"id": 1}}\n'
        '{"relation": "shop", "time": 2, "op": "truncate"}\n'
        '{"relation": "order", "op": "truncate"}\n'
    ),
    "order.jsonl": (
        '{"time": 1, "id": 1, "what": "lamp"}\n{"time": 2, "op": "truncate"}\n{"time": 2, "op": "truncate", '
        '"id": null}\n{"time": 2, "op": "truncate", "id": 1}\n{"op": "truncate"}\n'
    ),
    "records.csv": (
        "relation,time,op,id,what\norder,1,,1,lamp\norder,2,truncate,,\norder,2,truncate,,\n"
        "order,2,truncate,1,\nshop,2,truncate,,\norder,,truncate,,\n"
    ),
    "order.csv": "time,op,id,what\n1,+,1,lamp\n2,truncate,,\n2,truncate,,\n2,truncate,1,\n,truncate,,\n",
}


@pytest.mark.parametrize("name", TEXTS)
def test_truncations_are_read_and_validated(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(TEXTS[name])
    lamp, *truncations = [item for item in read(path) if isinstance(item, Record)]
    assert (lamp, truncations) == (LAMP, [TRUNCATION, TRUNCATION])
    faults = [item.reason for item in read(path) if isinstance(item, BadRecord)]
    assert "op 'truncate' deletes all rows of order, and takes no row ('-' deletes one)" in faults[0]
    assert "a truncation of order needs a `time`" in faults[-1]
    static_tables = [fault for fault in faults if "static tables take no deletions" in fault]
    assert (len(faults), len(static_tables)) == ((3, 1) if name.startswith("records") else (2, 0))


def test_truncations_are_read_from_parquet(tmp_path: Path) -> None:
    columns = {"time": [1, 2], "op": ["+", "truncate"], "id": [1, None], "what": ["lamp", None]}
    pq.write_table(pa.table(columns), tmp_path / "order.parquet")
    assert read(tmp_path / "order.parquet") == [LAMP, TRUNCATION]


def test_a_late_truncation_can_be_replayed(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(late_record(TRUNCATION, SCHEMA, 0).raw)
    assert read(path) == [TRUNCATION]


def test_a_truncation_also_deletes_rows_in_arrays(tmp_path: Path) -> None:
    schema = parse_schema(
        """
relations:
  order:
    attributes: {id: integer, place: {type: text, from: "#row"}}
    key: [id]
  line:
    attributes: {id: {type: integer, from: order.id}, text: text}
    from: order.lines
joins: [order.id = line.id]
""",
        default_name="s",
    )
    path = tmp_path / "order.jsonl"
    path.write_text('{"time": 1, "id": 1, "lines": [{"text": "lamp"}]}\n{"time": 2, "op": "truncate"}\n')
    items = [item for split in plan(path, schema) for item in read_split(split, schema)]
    assert items[2:] == [Record.truncation(0, 2_000_000), Record.truncation(1, 2_000_000)]
