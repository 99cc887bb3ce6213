"""The default in-process engine of skws; results as the JSON lines that users get."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.load import Load
from skws.replay_search import Search
from skws.spec.enums import EngineName
from skws.spec.job import Job


def run(task: dict[str, Any], on_start: Callable[[], None]) -> int:
    load, replay = Load(**task["load"]), Path(task["replay"])
    search = Search(
        Job.search(load.query, load.schema(), replay, max_size=load.max_size, engine=EngineName.LOCAL)
    )
    on_start()  # the mesh is not built yet: the time of the run includes that
    with Path(task["results"]).open("wb") as file:
        for result in search.results():
            file.write(result.to_json() + b"\n")
    return search.found
