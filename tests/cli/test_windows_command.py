"""``skws windows``: formats, verdicts and errors; window expressions in searches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.commands import REPLAY, SCHEMA, Outcome, Skws

YAML = """\
version: 1
name: sensors
relations:
  reading:
    attributes: {sensor: string, temp: number, note: text, count: integer}
  login: {attributes: {user: string}}
  logout: {attributes: {user: string}}
"""
READINGS = (("a", 95.0), ("b", 99.5), ("a", 80.0), ("a", 91.0), ("a", 60.0), ("b", 10.0), ("a", 50.0))
HYSTERESIS = "open when temp > 90 close when temp < 70"


def record(relation: str, time: float, **row: object) -> str:
    return json.dumps({"relation": relation, "time": time, "row": row})


@pytest.fixture
def files(tmp_path: Path) -> tuple[object, ...]:
    """The options for a schema and a replay."""
    schema, replay = tmp_path / "schema.yaml", tmp_path / "readings.jsonl"
    schema.write_text(YAML)
    lines = [record("reading", 10 * i, sensor=s, temp=t) for i, (s, t) in enumerate(READINGS)]
    replay.write_text("\n".join(lines) + "\n")
    return ("--schema", schema, "--replay", replay)


def lines_of(outcome: Outcome) -> list[dict[str, object]]:
    assert outcome.code == 0, outcome.err
    return outcome.records


def test_json_lines_have_one_line_per_window(skws: Skws, files: tuple[object, ...]) -> None:
    windows = lines_of(skws("windows", HYSTERESIS, *files, "-f", "jsonl", "-a", "mean(temp)", "-a", "count"))
    assert windows == [
        {
            "first": 0,
            "last": 4,
            "start": 0.0,
            "end": 40.0,
            "key": None,
            "aggregates": {"mean(temp)": 85.1, "count": 5},
        }
    ]


def test_windows_are_separate_for_each_key(skws: Skws, files: tuple[object, ...]) -> None:
    windows = lines_of(skws("windows", f"{HYSTERESIS} per sensor", *files, "-f", "jsonl", "-a", "max(temp)"))
    assert [(w["key"], w["first"], w["last"], w["aggregates"]) for w in windows] == [
        ("a", 0, 3, {"max(temp)": 95.0}),
        ("b", 0, 1, {"max(temp)": 99.5}),
    ]
    pairs = lines_of(skws("windows", f"{HYSTERESIS} per sensor, note", *files, "-f", "jsonl"))
    assert pairs == []  # a record without a note belongs to no stream


def test_windows_print_a_table_and_a_summary(skws: Skws, files: tuple[object, ...]) -> None:
    outcome = skws("windows", f"{HYSTERESIS} per sensor", *files, "-a", "avg(temp)", "-a", "last(note)")
    head, first, second = outcome.out.splitlines()
    assert head.split() == ["first", "last", "records", "start", "end", "sensor", "mean(temp)", "last(note)"]
    assert first.split() == ["0", "3", "4", "1970-01-01T00:00:00Z", "1970-01-01T00:00:40Z", "a", "81.5"]
    assert second.split()[-2:] == ["b", "54.75"]
    assert outcome.err.startswith("7 records, 2 windows in ")
    assert skws("windows", HYSTERESIS, *files, "--quiet").err == ""


def test_pairs_of_regular_expressions_define_windows(skws: Skws, files: tuple[object, ...]) -> None:
    pair = ("--pair", ".*", "[temp > temp[-1]] [temp < temp[-1]]")
    windows = lines_of(skws("windows", *pair, "--per", "sensor", *files, "-f", "jsonl"))
    joined_options = (f"--pair={pair[1]}", pair[2])
    assert lines_of(skws("windows", *joined_options, "--per", "sensor", *files, "-f", "jsonl")) == windows
    assert [(w["key"], w["first"], w["last"]) for w in windows] == [("a", 2, 3)]
    options = (*pair, "--pair", "()", "[temp > 90]", "--lookback", 2, "--selection", "longest")
    windows = lines_of(skws("windows", *options, *files, "-f", "jsonl"))
    assert [(w["first"], w["last"]) for w in windows] == [(3, 4)]


FORMULA = "[temp > 90](b) and [temp < 70](e) and forall x: b < x < e -> [temp >= 70 and not login](x)"


def test_a_formula_gives_the_windows_of_its_expression(skws: Skws, files: tuple[object, ...]) -> None:
    options = (*files, "-f", "jsonl", "--force-unbounded-windows")
    expression = lines_of(skws("windows", f"every {HYSTERESIS} per sensor", *options))
    outcome = skws("windows", "--formula", FORMULA, "--per", "sensor", "-a", "max(temp)", *options)
    windows = lines_of(outcome)
    assert [w["aggregates"] for w in windows] == [
        {"max(temp)": 95.0},
        {"max(temp)": 91.0},
        {"max(temp)": 99.5},
    ]
    assert [{**w, "aggregates": {}} for w in windows] == expression
    first = skws(
        "windows", "--formula", FORMULA, "--selection", "first", "--per", "sensor", *files, "-f", "jsonl"
    )
    assert [w["first"] for w in lines_of(first)] == [0, 0]


def test_a_formula_can_be_checked_and_drawn(skws: Skws, files: tuple[object, ...]) -> None:
    verdict = json.loads(skws("windows", "--formula", FORMULA, *files, "--check").out)
    assert (verdict["open_starts"], verdict["windows_per_position"]) == ("unbounded", "unbounded")
    rejection = skws("windows", "--formula", FORMULA, *files)
    assert (rejection.code, rejection.out) == (2, "")
    assert "windows can pile up without bound" in rejection.err
    bounded = json.loads(skws("windows", "--formula", "[temp > 90](b) and b = e", *files, "--check").out)
    assert (bounded["open_starts"], bounded["lookback"]) == ("bounded", 0)
    drawing = skws("windows", "--formula", FORMULA, *files, "-f", "dot").out
    assert drawing.startswith("digraph windows {")
    assert 'label="70 <= temp and not (login)"' in drawing


def test_windows_ignore_deletions_and_count_bad_records(skws: Skws, files: tuple[object, ...]) -> None:
    replay = Path(str(files[-1]))
    deletion = {"relation": "reading", "time": 35, "op": "-", "row": {"sensor": "a", "temp": 91.0}}
    replay.write_text(replay.read_text() + json.dumps(deletion) + "\nno record\n")
    outcome = skws("windows", HYSTERESIS, *files, "--on-error", "skip", "-f", "jsonl")
    assert [(w["first"], w["last"]) for w in lines_of(outcome)] == [(0, 4)]
    assert "1 deletion left out, 1 bad" in outcome.err
    assert skws("windows", HYSTERESIS, *files).code == 5


def test_a_window_that_cannot_exist_is_warned_of(skws: Skws, files: tuple[object, ...]) -> None:
    outcome = skws("windows", "open when temp > 5 and temp < 3 close when temp > 9", *files)
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err.startswith(
        "warning: no stream has such a window, whatever its records\n7 records, 0 windows"
    )


def test_static_tables_without_a_stream_are_warned_of(skws: Skws, tmp_path: Path) -> None:
    path = tmp_path / "goods.csv"
    path.write_text("name,price\nkettle,5\nlamp,3\n")
    assert skws("search", path, "kettle").code == 0
    schema = tmp_path / "goods.csv.schema.yaml"
    outcome = skws("windows", "open when price > 4 close when price < 4", "-s", schema, "-r", path)
    reason = "no record can be in a window: the schema has only static tables (goods); write 'time: "
    assert outcome.err.startswith(f"warning: {reason}")
    assert outcome.code == 0


@pytest.mark.check
def test_unbounded_windows_are_rejected_unless_limited_or_forced(
    skws: Skws, files: tuple[object, ...]
) -> None:
    expression = f"every {HYSTERESIS}"
    rejection = skws("windows", expression, *files)
    assert (rejection.code, rejection.out) == (2, "")
    assert "--force-unbounded-windows" in rejection.err
    for arguments in (
        (f"{expression} at most 3 records",),
        (f"{expression} within 1 minute",),
        (expression, "--force-unbounded-windows"),
    ):
        assert skws("windows", *arguments, *files).code == 0


def test_a_warning_says_that_windows_may_pile_up(skws: Skws, files: tuple[object, ...]) -> None:
    undecided = skws("windows", "every match [count > count[-1] and count > 0]+ [count < 5]", *files)
    assert undecided.code == 0
    assert "warning: windows may pile up" in undecided.err


def test_a_window_that_never_closes_is_not_reported_as_unbounded(
    skws: Skws, files: tuple[object, ...]
) -> None:
    """No login has a sensor, so no window of a sensor closes."""
    text = "every match [temp > temp[-1] and temp < 9 and sensor = 'a']+ [login] per sensor"
    verdict = json.loads(skws("windows", text, *files, "--check").out)
    assert verdict["open_starts"] != "bounded"
    assert verdict["windows_per_position"] != "unbounded"


def test_the_witness_of_an_unbounded_window_can_be_replayed(
    skws: Skws, files: tuple[object, ...], tmp_path: Path
) -> None:
    text = f"every {HYSTERESIS}"
    verdict = json.loads(skws("windows", text, *files, "--check").out)
    assert (verdict["open_starts"], verdict["windows_per_position"]) == ("unbounded", "unbounded")
    witness = tmp_path / "witness.jsonl"
    witness.write_text("\n".join(map(json.dumps, verdict["witness"]["records"])))
    options = ("--schema", files[1], "--replay", witness)
    windows = lines_of(skws("windows", text, *options, "-f", "jsonl", "--force-unbounded-windows"))
    last = len(verdict["witness"]["records"]) - 1
    assert sum(w["last"] == last for w in windows) == verdict["witness"]["windows_at_the_end"] >= 3


def test_a_bounded_window_has_no_witness(skws: Skws, files: tuple[object, ...]) -> None:
    verdict = json.loads(skws("windows", HYSTERESIS, *files, "--check").out)
    assert (verdict["open_starts"], verdict["windows_per_position"]) == ("bounded", "bounded")
    assert verdict["witness"] is None


def test_automata_are_drawn_as_svg_and_dot(skws: Skws, files: tuple[object, ...], tmp_path: Path) -> None:
    picture = tmp_path / "windows.svg"
    schema = files[:2]
    assert skws("windows", HYSTERESIS, *schema, "-f", "svg", "-o", picture).code == 0
    second_picture = picture.with_name("again.svg")
    assert skws("windows", HYSTERESIS, *schema, "-o", second_picture).code == 0
    assert second_picture.read_bytes() == picture.read_bytes()
    rejection = skws("windows", HYSTERESIS, *schema, "-o", picture.with_suffix(".csv"))
    assert (rejection.code, "expected .txt, .jsonl, .ndjson, .dot, .svg" in rejection.err) == (2, True)
    svg = ElementTree.fromstring(picture.read_text())
    texts = [element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert "g1: 90 < temp" in texts
    dot = skws("windows", "match [note = 'a \"b'] [temp = 1]", *schema, "-f", "dot").out
    assert dot.count("subgraph") == 2
    assert '"note = \'a \\"b\'"' in dot


REJECTED = {
    ("open when tempp > 9 close when login",): "did you mean 'temp'",
    (): "expected a window expression",
    (HYSTERESIS, "--pair", ".", "."): "but only one of them",
    (HYSTERESIS, "--formula", "b < e"): "but only one of them",
    ("--formula", "b < e", "--pair", ".", "."): "but only one of them",
    ("--formula", "[tempp > 9](b)"): "did you mean 'temp'",
    ("--formula", "[temp > 9](b) and x < e"): "no variable 'x'",
    ("--formula", "b < e", "--per", "usr"): "did you mean 'user'",
    (HYSTERESIS, "--lookback", "1"): "need --pair",
    ("--pair", "."): "expected two regular expressions",
    ("--pair=.",): "expected two regular expressions",
    ("--pair", ".", "[", "--per", "user"): "expected a condition",
    ("--pair", ".", ".", "--per", "usr"): "did you mean 'user'",
    (HYSTERESIS, "-a", "men(temp)"): "did you mean 'mean'",
    (HYSTERESIS, "-a", "mean"): "such as mean(temp)",
    (HYSTERESIS, "-a", "mean(sensor)"): "of type text",
    (HYSTERESIS, "-a", "sum(time)"): "of type timestamp",
    (HYSTERESIS, "-a", "mean(tmp)"): "did you mean 'temp'",
    ("open when 'the' close when login",): "stop word",
}


@pytest.mark.parametrize(("arguments", "message"), REJECTED.items())
def test_invalid_arguments_of_windows_are_rejected(
    skws: Skws, files: tuple[object, ...], arguments: tuple[str, ...], message: str
) -> None:
    outcome = skws("windows", *files, *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


def test_windows_need_a_replay_to_run(skws: Skws, files: tuple[object, ...]) -> None:
    outcome = skws("windows", HYSTERESIS, *files[:2])
    assert outcome.code == 2
    assert "--replay" in outcome.err


def test_sums_may_exceed_64_bits(skws: Skws, files: tuple[object, ...]) -> None:
    replay = Path(str(files[-1]))
    rows = [record("reading", i, sensor="a", count=2**62) for i in range(4)]
    replay.write_text("\n".join(rows))
    windows = lines_of(skws("windows", "match .{4} after ()", *files, "-f", "jsonl", "-a", "sum(count)"))
    assert windows[0]["aggregates"] == {"sum(count)": 2**64}


def test_keywords_in_conditions_are_matched_as_in_searches(skws: Skws) -> None:
    text = "open when director.name:'Tarantíno' close when movie"
    windows = lines_of(
        skws("windows", text, "--schema", SCHEMA, "--replay", REPLAY, "-f", "jsonl", "-a", "first(name)")
    )
    assert [w["aggregates"] for w in windows] == [{"first(name)": "Quentin Tarantino"}]


def test_keywords_in_conditions_use_the_analyzer_of_the_attribute(skws: Skws, tmp_path: Path) -> None:
    schema = """
relations:
  a: {attributes: {t: {type: text, analyzer: german}, u: text}}
joins: []
"""
    (tmp_path / "s.yaml").write_text(schema)
    texts = ["in den Häusern", "nichts", "die Hauser", "und so weiter"]
    lines = [json.dumps({"relation": "a", "time": n, "row": {"t": t, "u": t}}) for n, t in enumerate(texts)]
    (tmp_path / "r.jsonl").write_text("\n".join(lines))
    options = ("-s", tmp_path / "s.yaml", "-r", tmp_path / "r.jsonl", "-f", "jsonl")
    assert len(lines_of(skws("windows", "match [t:Haus]", *options))) == 2
    assert len(lines_of(skws("windows", "match [u:Haus]", *options))) == 0
    assert len(lines_of(skws("windows", "match ['und']", *options))) == 1
    assert "stop word" in skws("windows", "match [t:und]", *options).err


def test_old_window_syntax_of_keywords_is_read_with_a_note(skws: Skws) -> None:
    old_expression, expression = (
        "open when name contains 'tarantino' close when movie",
        "open when name:tarantino close when movie",
    )
    options = ("--schema", SCHEMA, "--replay", REPLAY, "-f", "jsonl")
    outcome = skws("windows", old_expression, *options)
    assert lines_of(outcome) == lines_of(skws("windows", expression, *options)) != []
    assert (
        "name contains 'tarantino' is now written name:'tarantino'; later versions accept only that"
        in outcome.err
    )
    assert "now written" not in skws("windows", expression, *options).err


SHOP_SCHEMA = """version: 1
name: shop
{window}
relations:
  login: {{attributes: {{user: string, note: text}}}}
  click: {{attributes: {{user: string, item: integer}}}}
  logout: {{attributes: {{user: string}}}}
  item: {{attributes: {{item: integer, title: text}}, table: true, key: [item]}}
joins: [login.user = click.user, click.item = item.item]
"""
SESSION = "after login until logout per user"
RECORDS = """{"relation": "login", "time": 1, "row": {"user": "ann", "note": "vip"}}
{"relation": "click", "time": 2, "row": {"user": "ann", "item": 7}}
{"relation": "click", "time": 3, "row": {"user": "bob", "item": 7}}
{"relation": "login", "time": 4, "row": {"user": "ann", "note": "vip again"}}
{"relation": "logout", "time": 5, "row": {"user": "ann"}}
{"relation": "item", "row": {"item": 7, "title": "red lamp"}}
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.yaml").write_text(SHOP_SCHEMA.format(window=f"window: {SESSION}"))
    (tmp_path / "none.yaml").write_text(SHOP_SCHEMA.format(window=""))
    (tmp_path / "shop.jsonl").write_text(RECORDS)
    return tmp_path


SearchShop = Callable[..., Outcome]


@pytest.fixture
def search_shop(shop: Path, skws: Skws) -> SearchShop:
    """Searches the shop with one of its schemas."""
    return lambda schema, *more: skws(
        "search",
        "vip lamp",
        *("-s", shop / schema, "-r", shop / "shop.jsonl", "--engine", "local", "-f", "jsonl", *more),
    )


def test_tuples_of_a_result_are_in_one_window(search_shop: SearchShop) -> None:
    # The window begins after the first login, so only the second is in it.
    (line,) = search_shop("shop.yaml").out.splitlines()
    assert '"start":4.0,"end":5.0' in line
    assert "vip again" in line


def test_the_window_option_overrides_the_schema(search_shop: SearchShop) -> None:
    outcome = search_shop("shop.yaml", "--window", "open when login close when logout per user")
    assert len(outcome.records) == 2


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        ("none.yaml", ["--window", "every open when login close when logout"], "repeatedly:"),
        ("none.yaml", ["--window", "open when logn close when logout"], "did you mean 'login'"),
        ("none.yaml", ["--window", "open when login"], "expected 'close'"),
        ("shop.yaml", ["--lateness", "1 s"], "--lateness cannot be combined"),
        ("shop.yaml", ["--mesh", "full"], "--mesh full cannot be combined"),
        ("shop.yaml", ["--top", "2"], "--rank and --top cannot be combined"),
        ("shop.yaml", ["--rank", "relevance"], "--rank and --top cannot be combined"),
    ],
)
def test_invalid_search_windows_and_options_are_rejected(
    search_shop: SearchShop, schema: str, options: list[str], message: str
) -> None:
    outcome = search_shop(schema, *options)
    assert outcome.code == 2
    assert message in outcome.err


def test_unbounded_windows_of_a_schema_are_rejected(shop: Path, skws: Skws, search_shop: SearchShop) -> None:
    schema = SHOP_SCHEMA.format(window="window: every open when login close when logout")
    (shop / "unbounded.yaml").write_text(schema)
    rejection = search_shop("unbounded.yaml")
    assert (rejection.code, "--force-unbounded-windows" in rejection.err) == (3, True)
    assert search_shop("unbounded.yaml", "--force-unbounded-windows").code == 0
    checked = skws("schema", "check", shop / "unbounded.yaml")
    assert (checked.code, "unbounded, because" in checked.err) == (0, True)


def test_an_error_in_a_schema_window_has_a_position(shop: Path, skws: Skws) -> None:
    (shop / "wrong.yaml").write_text(
        SHOP_SCHEMA.format(window="window: open when pulse > 3 close when login")
    )
    outcome = skws("schema", "check", shop / "wrong.yaml")
    assert outcome.code == 3
    assert "wrong.yaml:3:9: window: no field or relation 'pulse'" in outcome.err


def test_explain_shows_tuples_in_open_windows(shop: Path, skws: Skws) -> None:
    command = ("explain", "vip", "--schema", shop / "none.yaml", "--replay", shop / "shop.jsonl", "--window")
    # The live row is that of the table.
    assert "after 6 rows: 1 live, 0 partials waiting" in skws(*command, SESSION).out
    output = skws(*command, "open when login close when click per user").out
    assert "after 6 rows: 3 live" in output  # the second login opens a window, and the logout is in it
    assert "=> login{vip}: 1 result" in output


def test_networks_validate_an_optional_window(shop: Path, skws: Skws) -> None:
    command = ("networks", "vip", "--schema", shop / "none.yaml", "--window")
    outcome = skws(*command, SESSION)
    assert (outcome.code, "login{vip}" in outcome.out) == (0, True)
    rejection = skws(*command, "after logn until x")
    assert (rejection.code, "did you mean 'login'" in rejection.err) == (2, True)
