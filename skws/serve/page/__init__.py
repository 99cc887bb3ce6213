"""The page for people: files of this folder, served as they are."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from fastapi import FastAPI, HTTPException, Response

_KINDS: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def add_page(app: FastAPI) -> None:
    """The page at ``/``, that of the API at ``/docs``, and their files."""
    known = {
        each.name: each.read_bytes()
        for each in files(__name__).iterdir()
        if each.name.rpartition(".")[2] in _KINDS
    }

    def answer(name: str) -> Response:
        if name not in known:
            raise HTTPException(404, f"no file {name!r}")
        kind = _KINDS[name.rpartition(".")[2]]
        return Response(known[name], media_type=kind, headers={"cache-control": "no-cache"})

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return answer("index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return answer("api.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        return answer(name)
