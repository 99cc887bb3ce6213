"""Flink SQL: interval joins, with positions as milliseconds of event time; matches are written as text.

Flink's MATCH_RECOGNIZE returns only one match per first event, so it cannot express these
queries. Flink reads the events while it runs, so the time includes reading, but not the start of Java.
Uses one task slot, as the other engines use one thread. Needs Linux, for the processor time of Java.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyflink.table import EnvironmentSettings, TableEnvironment

_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _USER, _SYSTEM = 1, 11, 12  # fields of /proc/PID/stat after the name of the command


def write(task: dict[str, Any], folder: Path) -> dict[str, Path]:
    """The events of each relation as CSV files with positions."""
    names = list(task["relations"])
    lines: dict[str, list[str]] = {name: [] for name in names}
    for position, line in enumerate(Path(task["events"]).read_text().splitlines()):
        relation, *values = line.split()
        lines[names[int(relation)]].append(",".join([str(position), *values]))
    paths = {name: folder / f"{name}.csv" for name in names}
    for name, path in paths.items():
        path.write_text("\n".join(lines[name]) + "\n")
    return paths


def source(name: str, columns: list[str], path: Path) -> str:
    column_types = ", ".join(f"{column} BIGINT" for column in ("place", *columns))
    return (
        f"CREATE TABLE {name} ({column_types}, ts AS TO_TIMESTAMP_LTZ(place, 3), WATERMARK FOR ts AS ts) "
        f"WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')"
    )


def query(task: dict[str, Any]) -> str:
    """A query for all matches. The join of the first two atoms keeps their times for the third."""
    first, second, third = task["atoms"]
    window = task["window"]
    interval = f"INTERVAL '{window // 1000}.{window % 1000:03}' SECOND(3, 3)"

    def table(atom: dict[str, Any]) -> str:
        test = "" if atom["status"] is None else f" WHERE status = {atom['status']}"
        return f"(SELECT * FROM {atom['relation']}{test}) {atom['variable']}"

    def near(left_atom: dict[str, Any], right_atom: dict[str, Any], left: str, right: str) -> str:
        """``left`` and ``right``: column prefixes for the position and time of the two atoms."""
        condition = f"{right}ts BETWEEN {left}ts - {interval} AND {left}ts + {interval}"
        if not task["ordered"]:
            return f"{condition} AND {left}place <> {right}place"
        operator = "<" if left_atom["variable"] < right_atom["variable"] else ">"
        return f"{condition} AND {left}place {operator} {right}place"

    def on(atom: dict[str, Any], left: str) -> str:
        return " AND ".join(f"{atom['variable']}.{column} = {left}.{column}" for column in atom["on"])

    a, b, c = (atom["variable"] for atom in task["atoms"])
    columns = "".join(f", {a}.{column} {column}" for column in third["on"])
    pairs = (
        f"SELECT {a}.place {a}_place, {a}.ts {a}_ts, {b}.place {b}_place, {b}.ts {b}_ts{columns} "
        f"FROM {table(first)} JOIN {table(second)} "
        f"ON {on(second, a)} AND {near(first, second, f'{a}.', f'{b}.')}"
    )
    return (
        f"SELECT {a}_place, {b}_place, {c}.place FROM ({pairs}) pairs JOIN {table(third)} "
        f"ON {on(third, 'pairs')} AND {near(first, third, f'{a}_', f'{c}.')} "
        f"AND {near(second, third, f'{b}_', f'{c}.')}"
    )


def of_children() -> float:
    """Processor seconds of this process's children, which are Java."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        if int(fields[_PARENT]) == os.getpid():
            ticks += int(fields[_USER]) + int(fields[_SYSTEM])
    return ticks / _CLOCK_TICKS


def main() -> None:
    task = json.loads(sys.argv[1])
    folder = Path(task["events"]).parent
    output_folder = Path(tempfile.mkdtemp(dir=folder))
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("parallelism.default", "1")
    for name, path in write(task, folder).items():
        tables.execute_sql(source(name, task["relations"][name], path))
    tables.execute_sql(
        "CREATE TABLE found (a BIGINT, b BIGINT, c BIGINT) "
        f"WITH ('connector' = 'filesystem', 'path' = '{output_folder}', 'format' = 'csv')"
    )
    statement = f"INSERT INTO found {query(task)}"
    wall, cpu = time.perf_counter(), time.process_time() + of_children()
    tables.execute_sql(statement).wait()
    times = {"cpu": time.process_time() + of_children() - cpu, "wall": time.perf_counter() - wall}
    matches = sum(file.read_text().count("\n") for file in output_folder.rglob("part-*"))
    print(json.dumps({"matches": matches, **times}))


if __name__ == "__main__":
    main()
