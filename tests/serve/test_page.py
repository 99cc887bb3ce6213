"""The page in headless Chromium: searches, saved searches, live results, keys, roles, no foreign content."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import httpx
import pytest

from tests.browser import CHROMIUM, Browser, browser, chromium
from tests.jobs.watching import append, customer, order
from tests.ports import free_port
from tests.serve.serving import Serving, serving, shop
from tests.tui.ui import scenario
from tests.waiting import until

pytestmark = [
    pytest.mark.check,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (apt-get install chromium)"),
]
TIME = count(2000)
NAMES = "[...document.querySelectorAll('#saved h3')].map(e => e.textContent)"
ITEMS = "document.querySelectorAll('#results .result').length"
LATE_LAMPS = """
window.asked = fetch; window.late = false;
window.fetch = async (path, options) => {
  if (path === 'queries/lamps') {
    await new Promise(done => setTimeout(done, 300));
    late = true;
  }
  return asked(path, options);
}
"""
"""Delays the request of the page for a saved search."""
PICTURES = os.environ.get("SKWS_PICTURES")
"""A folder in which to save screenshots for inspection."""


@asynccontextmanager
async def page(served: Serving, port: int) -> AsyncIterator[Browser]:
    async with browser(served.url, port) as tab:
        await tab.until(
            "document.getElementById('health')?.dataset.state === 'good'"
            " || document.getElementById('token-form')?.hidden === false"
        )
        yield tab
        exceptions = [message for message in tab.events if message["method"] == "Runtime.exceptionThrown"]
        assert not exceptions
        urls = {
            message["params"]["request"]["url"] for message in tab.events if "request" in message["params"]
        }
        assert urls
        assert all(url.startswith((served.url, "about:", "data:")) for url in urls), urls


@asynccontextmanager
async def shop_page(
    shopping: tuple[Path, Path], port: int, environment: dict[str, str] | None = None
) -> AsyncIterator[tuple[Serving, Browser]]:
    """The page of a server over the shop."""
    schema, stream = shopping
    command = (str(stream), "--schema", str(schema), "--window", "1 hour")
    with serving(*command, environment=environment) as served:
        async with page(served, port) as tab:
            yield served, tab


async def picture(tab: Browser, name: str) -> None:
    if PICTURES:
        await tab.picture(Path(PICTURES) / f"{name}.png")


@pytest.fixture
def shopping(tmp_path: Path) -> tuple[Path, Path]:
    schema, stream = shop(tmp_path)
    append(
        stream,
        customer(next(TIME), 1, "Ada Lovelace <b>of</b> London"),
        order(
            next(TIME), 1, "brass lamp \U0001f600 for reading, with a green shade " + "and more words " * 40
        ),
        customer(next(TIME), 2, "Ada Byron"),
        order(next(TIME), 2, "desk lamp"),
    )
    return schema, stream


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """One Chromium for all tests."""
    with chromium(tmp_path_factory.mktemp("profile")) as port:
        yield port


@scenario
async def test_a_search_with_the_keyboard_only(shopping: tuple[Path, Path], port: int) -> None:
    async with shop_page(shopping, port) as (_, tab):
        assert await tab.run("document.activeElement.id") == "query"
        await tab.enter("ada lamp")
        await tab.until(f"{ITEMS} === 2")
        await picture(tab, "search")
        status = await tab.run("document.getElementById('status').textContent")
        assert status.startswith("2 results")
        marks = await tab.run("[...document.querySelectorAll('mark')].map(e => e.textContent)")
        assert sorted(marks) == ["Ada", "Ada", "lamp", "lamp"]
        text = await tab.run("document.getElementById('results').innerText")
        assert "<b>of</b>" in text, "data is not interpreted as markup"
        assert await tab.run("document.querySelectorAll('#results ul.tree ul li').length") == 2
        assert await tab.run("document.querySelectorAll('#results b').length") == 0
        await tab.run("document.querySelector('#results button.plain').click()")
        assert await tab.run("document.querySelectorAll('#results button.plain').length") == 0
        # Tab reaches the next control, and all controls have names.
        await tab.press("Tab", 9)
        assert await tab.run("document.activeElement.textContent") == "Search"
        tree = await tab.ask("Accessibility.getFullAXTree")
        nodes = tree["result"]["nodes"]
        controls = [
            node
            for node in nodes
            if not node.get("ignored")
            and node["role"]["value"] in {"button", "searchbox", "textbox", "combobox", "checkbox"}
        ]
        assert len(controls) > 4
        assert all(node["name"]["value"] for node in controls)
        roles = {node["role"]["value"] for node in nodes if not node.get("ignored")}
        assert {"main", "complementary", "banner", "search", "status", "list", "heading"} <= roles


@scenario
async def test_a_click_on_a_suggestion_searches_it(shopping: tuple[Path, Path], port: int) -> None:
    async with shop_page(shopping, port) as (_, tab):
        await tab.enter("ada LAMPP")
        await tab.until("document.querySelector('#empty button')?.textContent === 'ada lamp'")
        await picture(tab, "meant")
        await tab.run("document.querySelector('#empty button').click()")
        await tab.until(f"{ITEMS} === 2")
        assert await tab.run("document.getElementById('query').value") == "ada lamp"


@scenario
async def test_an_empty_answer_suggests_what_to_try(shopping: tuple[Path, Path], port: int) -> None:
    async with shop_page(shopping, port) as (_, tab):
        await tab.enter("ada qwertzuiop")
        await tab.until("document.querySelector('#empty button')?.textContent === 'ada'")
        status = await tab.run("document.getElementById('status').innerText")
        assert status.split("\n")[1:] == ["no row matches 'qwertzuiop'"]
        await tab.run("document.querySelector('#empty button').click()")
        await tab.until(f"{ITEMS} > 0")
        await tab.enter(" lovelace desk")
        await tab.until(
            "document.querySelector('#empty button')?.textContent === '(ada OR lovelace OR desk)'"
        )


@scenario
async def test_a_full_page_names_the_size_up_to_which_results_are_counted(tmp_path: Path, port: int) -> None:
    """Ten results of one row; the search stops before those of four rows, whose texts are long."""
    numbers = range(2, 50)
    words = "word " * 40
    tables = {
        "a": ["aid,name", *["0,ada byron"] * 10, *(f"{n},filler ada {words}" for n in numbers)],
        "x": ["xid,aid", *(f"{100 + n},{n}" for n in numbers)],
        "y": ["yid,xid", *(f"{200 + n},{100 + n}" for n in numbers)],
        "b": ["bid,yid,text", *(f"{300 + n},{200 + n},byron {words}" for n in numbers)],
    }
    (tmp_path / "store").mkdir()
    for name, lines in tables.items():
        (tmp_path / "store" / f"{name}.csv").write_text("\n".join(lines))
    with serving(str(tmp_path / "store")) as served:
        async with page(served, port) as tab:
            await tab.run("document.getElementById('limit').value = '10'")
            await tab.enter("ada byron")
            await tab.until(f"{ITEMS} === 10")
            status = await tab.run("document.getElementById('status').textContent")
            assert status.startswith("10 results of up to 3 rows")


@scenario
async def test_a_folder_with_the_name_of_its_schema_is_named_once(tmp_path: Path, port: int) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "item.csv").write_text("id,name\n1,brass lamp\n2,kettle\n")
    with serving(str(tmp_path / "store")) as served:
        async with page(served, port) as tab:
            await tab.until("document.getElementById('source').textContent")
            label = await tab.run("document.getElementById('source').textContent")
            assert label == f"{tmp_path.name}/store"


OPTIONS = (
    "[...document.querySelectorAll('#query-options [role=option]')]"
    ".map(e => e.innerText.trim().split(/\\s+/).join(' '))"
)
FIELD = "document.getElementById('query')"


@scenario
async def test_words_are_completed_by_keyboard_and_pointer(shopping: tuple[Path, Path], port: int) -> None:
    """As the combobox in the ARIA practices: the focus stays, and the selected option is announced."""
    async with shop_page(shopping, port) as (_, tab):
        assert await tab.run(f"{FIELD}.getAttribute('aria-expanded')") == "false"
        await tab.type("ada lam")
        await tab.until(f"{OPTIONS}.length === 1")
        assert await tab.run(OPTIONS) == ["lamp 2"]
        assert await tab.run(f"{FIELD}.getAttribute('aria-expanded')") == "true"
        await picture(tab, "complete")
        nodes = (await tab.ask("Accessibility.getFullAXTree"))["result"]["nodes"]
        node_by_role = {node["role"]["value"]: node for node in nodes if not node.get("ignored")}
        assert {"combobox", "listbox", "option"} <= node_by_role.keys()
        assert node_by_role["combobox"]["name"]["value"] == "Search the current rows"
        assert node_by_role["listbox"]["name"]["value"] == "Completions"
        await tab.press("ArrowDown", 40)
        selected_option = await tab.run(
            f"document.getElementById({FIELD}.getAttribute('aria-activedescendant')).ariaSelected"
        )
        assert selected_option == "true"
        assert await tab.run("document.activeElement.id") == "query"
        await tab.enter()
        assert await tab.run(f"{FIELD}.value") == "ada lamp"
        assert await tab.run(f"{FIELD}.getAttribute('aria-expanded')") == "false"
        assert await tab.run(f"{ITEMS} === 0"), "the first Enter accepts the completion, the second searches"
        await tab.enter()
        await tab.until(f"{ITEMS} === 2")
        await tab.type(" cu")
        await tab.until(f"{OPTIONS}.length === 3")
        assert await tab.run(OPTIONS) == ["customer:", "customer.cid", "customer.name:"]
        await tab.press("ArrowUp", 38)
        assert "name" in await tab.run("document.querySelector('[aria-selected=true]').innerText")
        await tab.press("Escape", 27)
        assert await tab.run(OPTIONS) == []
        assert await tab.run(f"{FIELD}.value") == "ada lamp cu", "Escape only closes the list"
        await tab.press("ArrowDown", 40)
        await tab.until(f"{OPTIONS}.length === 3")
        position = await tab.run(
            "(({x, y}) => [x + 5, y + 5])(document.querySelector('[role=option]').getBoundingClientRect())"
        )
        await tab.click(*map(int, position))
        assert await tab.run(f"{FIELD}.value") == "ada lamp customer:"
        assert await tab.run("document.activeElement.id") == "query"
        # Within a text, the word at the cursor is completed and the text after it remains.
        await tab.run(
            f"{FIELD}.value = 'lovxyz lamp'; {FIELD}.setSelectionRange(3, 3);"
            f"{FIELD}.dispatchEvent(new Event('input'))"
        )
        await tab.until(f"{OPTIONS}.length === 1")
        await tab.press("ArrowDown", 40)
        await tab.enter()
        assert await tab.run(f"[{FIELD}.value, {FIELD}.selectionStart]") == ["lovelace lamp", 8]


@scenario
async def test_an_error_is_shown(shopping: tuple[Path, Path], port: int) -> None:
    async with shop_page(shopping, port) as (_, tab):
        await tab.enter("nowhere.name:x")
        await tab.until("document.getElementById('search-fault').textContent.includes('nowhere')")
        assert await tab.run("document.getElementById('search-fault').getAttribute('role')") == "alert"


@scenario
async def test_saved_searches_are_added_followed_and_removed(shopping: tuple[Path, Path], port: int) -> None:
    _, stream = shopping
    async with shop_page(shopping, port) as (served, tab):
        await tab.type("ada lamp")
        await tab.run("document.getElementById('save-this').click()")
        assert await tab.run("document.activeElement.id") == "name"
        await tab.run("document.getElementById('name').value = 'Lamps & \"more\"'")
        await tab.run("document.getElementById('owner').value = 'ann'")
        await tab.enter()
        await tab.until(f"{NAMES}.length === 1")
        assert await tab.run(NAMES) == ['Lamps & "more"']
        assert await tab.run("document.activeElement.textContent") == "Follow", "Enter follows the new search"
        await tab.enter()
        await tab.until(f"{ITEMS} === 2")
        assert await tab.run("document.activeElement.getAttribute('aria-pressed')") == "true"
        append(stream, customer(next(TIME), 3, "Ada King"), order(next(TIME), 3, "floor lamp"))
        await tab.until(f"{ITEMS} === 3")
        await tab.until("document.getElementById('status').textContent.startsWith('3 results')")
        assert "King" in await tab.run("document.querySelector('#results .result.new').innerText")
        await picture(tab, "follow")
        result_ids = "[...document.querySelectorAll('#results .result')].map(e => e.dataset.id)"
        before = await tab.run(result_ids)
        append(stream, customer(next(TIME), 2, "Ada Byron of Ockham"))
        await tab.until("document.querySelector('#results .changed')?.textContent === 'Ada Byron of Ockham'")
        assert await tab.run(result_ids) == before, "an update changes its card in place"
        assert await tab.run("document.querySelectorAll('#results .result.new').length") == 1
        assert "updated 1970" in await tab.run("document.getElementById('results').innerText")
        assert (await tab.run("document.getElementById('status').textContent")).startswith("3 results")
        await picture(tab, "updated")
        append(stream, customer(next(TIME), 3, "Ada King", "-"))
        await tab.until("document.querySelectorAll('#results .gone').length === 1")
        await tab.run("document.querySelectorAll('#saved button')[1].click()")
        await tab.until(f"{NAMES}.length === 0")
        assert await tab.run("document.activeElement.id") == "saved-title"
        with served.client() as client:
            assert client.get("/queries").json()["count"] == 0


@scenario
async def test_the_address_reflects_the_page(shopping: tuple[Path, Path], port: int) -> None:
    async with shop_page(shopping, port) as (served, tab):
        await tab.until("!document.getElementById('start').hidden")
        assert "customer (name)" in await tab.run("document.getElementById('relations').textContent")
        await picture(tab, "start")
        await tab.enter("ada lamp")
        await tab.until(f"{ITEMS} === 2")
        assert await tab.run("location.search") == "?q=ada+lamp&limit=20"
        await tab.run(f"{FIELD}.value = 'byron'")
        await tab.run("document.getElementById('search-form').requestSubmit()")
        await tab.until(f"{ITEMS} === 1")
        await tab.run("history.back()")
        await tab.until(f"{ITEMS} === 2")
        assert await tab.run(f"{FIELD}.value") == "ada lamp"
        await tab.ask("Page.reload")
        await tab.until(f"document.getElementById('start') && {ITEMS} === 2")
        with served.client() as client:
            client.put("/queries/lamps", json={"query": "ada lamp"})
        await tab.ask("Page.navigate", url=f"{served.url}?follow=lamps")
        await tab.until("document.getElementById('results-title')?.textContent === 'Following lamps'")
        await tab.until("document.querySelector('#saved button')?.textContent === 'Stop'")
        assert await tab.run(f"{FIELD}.value") == ""
        await tab.run("document.querySelector('#saved button').click()")
        await tab.until("document.querySelector('#saved button').textContent === 'Follow'")
        assert await tab.run("location.search") == "", "reloading the page would follow it again"
        assert (
            await tab.run("document.getElementById('results-title').textContent") == "Results of lamps so far"
        )
        await tab.run("document.querySelector('#saved button').click()")
        await tab.until("location.search === '?follow=lamps'")
        await tab.run("document.querySelectorAll('#saved button')[1].click()")
        await tab.until(f"{NAMES}.length === 0")
        assert await tab.run("location.search") == ""


@scenario
async def test_the_latest_address_is_shown(shopping: tuple[Path, Path], port: int) -> None:
    """Also if the answer for an earlier one arrives later, as after going back twice."""
    async with shop_page(shopping, port) as (served, tab):
        with served.client() as client:
            client.put("/queries/lamps", json={"query": "ada lamp"})
        await tab.run(LATE_LAMPS)
        for address in "?follow=lamps", "?q=byron":
            await tab.run(
                f"history.pushState(null, '', '{address}'); dispatchEvent(new PopStateEvent('popstate'))"
            )
        await tab.until(f"{ITEMS} === 1")
        await tab.until("late")
        await tab.run("new Promise(done => setTimeout(done, 300))")
        title = await tab.run("document.getElementById('results-title').textContent")
        assert (title, await tab.run(ITEMS)) == ("Results for byron", 1)


@scenario
async def test_a_removal_is_undone_and_a_name_is_edited(shopping: tuple[Path, Path], port: int) -> None:
    async with shop_page(shopping, port) as (served, tab):
        await tab.type("ada lamp")
        await tab.run("document.getElementById('save-this').click()")
        await tab.type("mine")
        await tab.enter()
        await tab.until(f"{NAMES}.length === 1")
        assert await tab.run(NAMES) == ["mine"], "typing replaces the suggested name"
        with served.client() as client:
            saved = client.get("/queries/mine").json()
            await tab.run("document.querySelectorAll('#saved button')[1].click()")
            await tab.until(f"{NAMES}.length === 0")
            assert client.get("/queries/mine").status_code == 404
            await tab.run("document.querySelector('#undo button').click()")
            await tab.until(f"{NAMES}.length === 1")
            assert client.get("/queries/mine").json() == saved
            best = {"query": "ada lamp", "top": 2, "half_life": "2 hours", "owner": "ann"}
            client.put("/queries/mine", json=best)
            await tab.ask("Page.reload")
            await tab.until(f"{NAMES}.length === 1")
            await tab.run("document.querySelectorAll('#saved button')[1].click()")
            await tab.until(f"{NAMES}.length === 0")
            await tab.run("document.querySelector('#undo button').click()")
            await tab.until(f"{NAMES}.length === 1")
            assert client.get("/queries/mine").json()["request"] == best


@scenario
async def test_a_result_explains_itself(shopping: tuple[Path, Path], port: int) -> None:
    async with shop_page(shopping, port) as (_, tab):
        await tab.enter("ada lamp")
        await tab.until(f"{ITEMS} === 2")
        await tab.run("document.querySelector('.why summary').click()")
        assert "ada in name" in await tab.run("document.querySelector('.why ul').innerText")


@scenario
async def test_a_search_is_kept_up_to_date(shopping: tuple[Path, Path], port: int) -> None:
    _, stream = shopping
    async with shop_page(shopping, port) as (_, tab):
        await tab.type("ada lamp")
        await tab.run("document.getElementById('live').click()")
        await tab.until(f"{ITEMS} === 2")
        append(stream, customer(next(TIME), 4, "Ada King"), order(next(TIME), 4, "oil lamp"))
        await tab.until(f"{ITEMS} === 3")
        assert "King" in await tab.run("document.querySelector('#results .result.new').innerText")


@scenario
async def test_the_results_of_a_followed_search_are_counted(shopping: tuple[Path, Path], port: int) -> None:
    """Including those that end after the page has dropped them. The list of searches shows their number."""
    _, stream = shopping
    status = "document.getElementById('status')?.textContent"
    async with shop_page(shopping, port) as (served, tab):
        with served.client() as client:
            queries = {f"search {n:03}": {"query": f"word{n} other"} for n in range(200)}
            client.put("/queries", json={"queries": {"a": {"query": "ada lamp"}, **queries}})
        await tab.ask("Page.navigate", url=f"{served.url}?follow=a")
        await tab.until(f"{status} === '2 results, live'")
        count = "document.getElementById('saved-count').textContent"
        assert await tab.run(count) == "201, the first 200 of which are listed"
        numbers = range(10, 510)
        for record in customer, order:
            append(stream, *(record(next(TIME), n, "ada" if record is customer else "lamp") for n in numbers))
        await tab.until(f"{status} === '500 results, older ones are left out, live'")
        append(stream, customer(next(TIME), 1, "Ada Lovelace <b>of</b> London", "-"))
        append(stream, customer(next(TIME), 11, "ada", "-"), customer(next(TIME), 12, "ada", "-"))
        await tab.until(f"{status} === '498 results, older ones are left out, live'")


@scenario
async def test_a_followed_result_ends_when_the_stream_has_passed_its_end(
    shopping: tuple[Path, Path], port: int
) -> None:
    """Even if no new result shows the time of the stream."""
    _, stream = shopping
    status = "document.getElementById('status')?.textContent"
    async with shop_page(shopping, port) as (served, tab):
        with served.client() as client:
            client.put("/queries/a", json={"query": "ada lamp"})
        await tab.ask("Page.navigate", url=f"{served.url}?follow=a")
        await tab.until(f"{status} === '2 results, live'")
        append(stream, customer(next(TIME) + 3700, 9, "Bob"))
        await tab.until(f"{status} === '0 results, live'")
        assert await tab.run("document.querySelectorAll('#results .gone').length") == 2
        assert "ended" in await tab.run("document.querySelector('#results .facts').textContent")


@scenario
async def test_direction_marks_end_with_their_text(shopping: tuple[Path, Path], port: int) -> None:
    schema, stream = shopping
    schema.write_text(schema.read_text().replace("name: text", "name: text, city: text"))
    record = customer(next(TIME), 5, "Ada \u202eKing")
    append(stream, {**record, "row": {**record["row"], "city": "London"}})
    left = "document.querySelectorAll('#results .tree li > :is(.attribute, .value)')"
    async with shop_page(shopping, port) as (_, tab):
        await tab.enter("king")
        await tab.until(f"{ITEMS} === 1")
        lefts = await tab.run(f"[...{left}].map(e => e.getBoundingClientRect().left)")
        assert lefts == sorted(lefts), "attributes and values from left to right"


@scenario
async def test_a_followed_search_continues_after_a_kill(
    shopping: tuple[Path, Path], port: int, tmp_path: Path
) -> None:
    schema, stream = shopping
    command = [str(stream), "--schema", str(schema), "--window", "1 hour", "--port", str(free_port())]
    command += ["--checkpoint", str(tmp_path / "state")]
    first = Serving(command, program=sys.executable)
    try:
        first.wait_until_ready()
        httpx.put(f"{first.url}queries/lamps", json={"query": "ada lamp"}, timeout=60, trust_env=False)
        async with page(first, port) as tab:
            await tab.until(f"{NAMES}.length === 1")
            await tab.run("document.querySelector('#saved button').click()")
            await tab.until(f"{ITEMS} === 2")
            first.kill()
            await tab.until("document.getElementById('status').textContent.includes('lost')")
            append(stream, customer(next(TIME), 5, "Ada King"), order(next(TIME), 5, "oil lamp"))
            second = Serving(command, program=sys.executable)
            try:
                await tab.until(f"{ITEMS} === 3")
                await tab.until("document.getElementById('status').textContent.startsWith('3 results')")
            finally:
                second.kill()
    finally:
        if first.process.poll() is None:
            first.kill()


@scenario
async def test_a_followed_search_asks_for_a_new_token(shopping: tuple[Path, Path], port: int) -> None:
    schema, stream = shopping
    command = [str(stream), "--schema", str(schema), "--window", "1 hour", "--port", str(free_port())]
    first = Serving(command, program=sys.executable)
    try:
        first.wait_until_ready()
        with first.client() as client:
            client.put("/queries/lamps", json={"query": "ada lamp"})
        async with page(first, port) as tab:
            await tab.until(f"{NAMES}.length === 1")
            await tab.run("document.querySelector('#saved button').click()")
            await tab.until(f"{ITEMS} === 2")
            first.kill()
            second = Serving(command, {"SKWS_SERVE_TOKEN": "correct-horse-battery-staple"}, sys.executable)
            try:
                await tab.until("!document.getElementById('token-form').hidden")
                assert "gone" not in await tab.run("document.getElementById('status').textContent")
            finally:
                second.kill()
    finally:
        if first.process.poll() is None:
            first.kill()


@scenario
async def test_the_page_asks_for_the_token(shopping: tuple[Path, Path], port: int) -> None:
    token = "correct-horse-battery-staple"
    async with shop_page(shopping, port, {"SKWS_SERVE_TOKEN": token}) as (_, tab):
        await tab.until("!document.getElementById('token-form').hidden")
        await tab.enter("wrong")
        await tab.until("document.getElementById('token-fault').textContent === 'This token is wrong.'")
        assert await tab.run("document.getElementById('health').dataset.state") == "wait"
        await tab.enter(token)
        await tab.until("document.getElementById('token-form').hidden")
        assert token not in await tab.run("document.body.innerHTML + location.href + document.cookie")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_both_color_schemes(shopping: tuple[Path, Path], port: int, scheme: str) -> None:
    """Its contrast with the background is at least 4.5 (WCAG 2.2, AA)."""

    @scenario
    async def check() -> None:
        schema, stream = shopping
        with serving(str(stream), "--schema", str(schema), "--window", "1 hour") as served:
            with served.client() as client:
                client.put("/queries/lamps of ada", json={"query": "ada lamp", "owner": "ann"})
                client.put("/queries/daily", json={"query": "byron desk", "every": "1 day"})
                until(lambda: client.post("/search", json={"query": "ada"}).json()["found"])
            async with page(served, port) as tab:
                features = [{"name": "prefers-color-scheme", "value": scheme}]
                await tab.ask("Emulation.setEmulatedMedia", features=features)
                await tab.enter("ada lamp")
                await tab.until(f"{ITEMS} === 2")
                await picture(tab, f"page-{scheme}")
                worst = await tab.run(CONTRAST)
                assert worst[0] >= 4.5, worst
                await tab.ask(
                    "Emulation.setDeviceMetricsOverride",
                    width=390,
                    height=800,
                    deviceScaleFactor=1,
                    mobile=True,
                )
                await picture(tab, f"narrow-{scheme}")
                assert await tab.run("document.documentElement.scrollWidth <= 390"), "nothing is cut off"
                await tab.ask("Page.navigate", url=f"{served.url}docs")
                await tab.until("document.querySelectorAll('#requests section').length > 8")
                await picture(tab, f"docs-{scheme}")
                assert await tab.run("document.documentElement.scrollWidth <= 390"), "nothing is cut off"
                text = await tab.run("document.querySelector('#requests section').innerText")
                assert "(at least 1, at most 1000, default 20)" in text
                assert '"limit": 3' in text
                assert '"found": 1' in text

    check()


CONTRAST = """(() => {
  const channel = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  let worst = [99, ''];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.offsetParent || e.closest('.skip')) continue;
    const a = light(rgb(getComputedStyle(e).color)), b = light(ground(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[0]) worst = [ratio, e.textContent.slice(0, 40)];
  }
  return worst;
})()"""
