"""Hooks of MkDocs that make one site of the pages of the checkout.

Pages are also read in the checkout, so their links are relative to it. READMEs outside docs/ are part of the
site, and the navigation is the list in docs/README.md.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parent.parent
_OUTSIDE: Final = ("*/README.md", "examples/*/README.md", "CHANGELOG.md", "CONTRIBUTING.md")
_COPIED: Final = ("examples/shop/shop.ipynb", "examples/shop/alerts.ipynb")
_FENCE: Final = re.compile(r"^```(?P<language>\w+) (?P<title>\S+)$", re.M)
_NOT_RUN: Final = re.compile(r"^<!-- not run: .*? -->\n", re.M)
_CODE: Final = re.compile(r"^```.*?^```|`[^`\n]*`", re.M | re.S)
_LINK: Final = re.compile(r"\[(?P<text>[^\]\[]+)\]\((?P<target>(?!https?:|#)[^)#\s]+)(?P<part>#[^)\s]*)?\)")
_ITEM: Final = re.compile(r"^(?P<indent> *)- \[(?P<title>[^\]]+)\]\((?P<target>[^)\s]+\.md)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the navigation from the list in docs/README.md."""
    config.nav = navigation((ROOT / "docs" / "README.md").read_text(encoding="utf-8"))
    return config


def navigation(page_text: str) -> list[Any]:
    """A section for each heading with a list; the first page is docs/README.md itself."""
    sections: list[Any] = [{"Home": "README.md"}]
    section: list[Any] = []
    for line in page_text.splitlines():
        if line.startswith("## "):
            section = []
            sections.append({line.removeprefix("## "): section})
        elif item := _ITEM.match(line):
            section.append({item["title"]: _place_in_site(posixpath.normpath(f"docs/{item['target']}"))})
    return [entry for entry in sections if all(entry.values())]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/."""
    outside = {path.relative_to(ROOT).as_posix() for names in _OUTSIDE for path in ROOT.glob(names)}
    for name in sorted({*outside, *_COPIED} - {"docs/README.md"}):
        files.append(File.generated(config, _place_in_site(name), abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    """Convert links of the checkout to links of the site, and file names of code blocks to titles."""
    here = _place_in_checkout(page.file.src_uri)
    site_pages = set(files.src_uris)

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), match["target"]))
        if not target.endswith(".md") and (ROOT / target / "README.md").is_file():
            target = f"{target}/README.md"
        place = _place_in_site(target)
        if place not in site_pages:
            # The site has no source files.
            return match["text"] if (ROOT / target).exists() else match.group()
        relative = posixpath.relpath(place, posixpath.dirname(page.file.src_uri) or ".")
        return f"[{match['text']}]({relative}{match['part'] or ''})"

    return _FENCE.sub(_with_title, _outside_code(_NOT_RUN.sub("", markdown), link))


def _outside_code(markdown: str, link: Any) -> str:
    code_spans = _CODE.findall(markdown)
    blank = _CODE.sub("\0", markdown)
    return re.sub("\0", lambda _: code_spans.pop(0), _LINK.sub(link, blank))


def _with_title(match: re.Match[str]) -> str:
    title = match["title"]
    return f'```{match["language"]} title="{title}"' if "." in title else f"```{match['language']}"


def _place_in_site(name: str) -> str:
    """The path in the site of a file of the checkout; files outside docs/ are below ``checkout/``."""
    return name.removeprefix("docs/") if name.startswith("docs/") else f"checkout/{name}"


def _place_in_checkout(place: str) -> str:
    return place.removeprefix("checkout/") if place.startswith("checkout/") else f"docs/{place}"
