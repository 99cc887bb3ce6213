"""CORE, by its Python binding: a conjunction is the alternative of all orders; results are formed as text."""

import json
import sys
import time
from itertools import permutations
from pathlib import Path

import pycer


def main() -> None:
    load, path, window = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if load != "star":  # partitions compare one attribute of all events
        print(json.dumps({"matches": None, "seconds": None}))
        return
    server = pycer.PyOfflineServer()
    declared = ", ".join(f"EVENT {name} {{ x:int }}" for name in "ABC")
    stream = server.declare_stream(f"CREATE STREAM S {{ {declared} }}")
    ids = {event.name: event.id for event in stream.events_info}
    orders = " OR ".join(f"({' ; '.join(order)})" for order in permutations("ABC"))
    server.add_query(f"SELECT * FROM S WHERE {orders} PARTITION BY [x] WITHIN {window} EVENTS")
    read = [tuple(map(int, line.split())) for line in Path(path).read_text().splitlines()]
    events = [pycer.PyEvent(ids["ABC"[relation]], [pycer.PyIntValue(x)]) for relation, x, _ in read]
    begun = time.perf_counter()
    server.send_events(events)
    output = server.get_output()
    seconds = time.perf_counter() - begun
    print(json.dumps({"matches": output.count("\n"), "seconds": seconds}))


if __name__ == "__main__":
    main()
