"""CORE, through its Python binding: any order is a union of all orders; matches are formatted as text."""

import json
import sys
import time
from itertools import permutations
from pathlib import Path
from typing import Any

import pycer


def query(task: dict[str, Any]) -> str | None:
    """The query; None if atoms join on different attributes: CORE partitions all atoms by the same ones."""
    atoms = task["atoms"]
    partitions = {tuple(atom["on"]) for atom in atoms[1:]}
    if len(partitions) > 1:
        return None
    orders = [atoms] if task["ordered"] else permutations(atoms)
    texts = [" ; ".join(f"{a['relation']} AS {a['variable']}" for a in order) for order in orders]
    tests = [f"{a['variable']}[status = {a['status']}]" for a in atoms if a["status"] is not None]
    patterns = " OR ".join(f"({text})" for text in texts)
    filters = f" FILTER {' AND '.join(tests)}" if tests else ""
    by = ", ".join(f"[{column}]" for column in next(iter(partitions)))
    return f"SELECT * FROM S WHERE ({patterns}){filters} PARTITION BY {by} WITHIN {task['window']} EVENTS"


def main() -> None:
    task = json.loads(sys.argv[1])
    query_text = query(task)
    if query_text is None:
        print("null")
        return
    server = pycer.PyOfflineServer()
    declarations = ", ".join(
        f"EVENT {name} {{ {', '.join(f'{column}:int' for column in columns)} }}"
        for name, columns in task["relations"].items()
    )
    stream = server.declare_stream(f"CREATE STREAM S {{ {declarations} }}")
    ids = {event.name: event.id for event in stream.events_info}
    numbers = [ids[name] for name in task["relations"]]
    server.add_query(query_text)
    event_rows = [tuple(map(int, line.split())) for line in Path(task["events"]).read_text().splitlines()]
    events = [pycer.PyEvent(numbers[r], list(map(pycer.PyIntValue, values))) for r, *values in event_rows]
    wall, cpu = time.perf_counter(), time.process_time()
    server.send_events(events)
    output = server.get_output()
    times = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    print(json.dumps({"matches": output.count("\n"), **times}))


if __name__ == "__main__":
    main()
