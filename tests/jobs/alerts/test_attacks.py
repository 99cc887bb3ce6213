"""Malicious query files: each entry is rejected with the expected form, or takes effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from skws.jobs.alerts import Alert, read_alerts
from skws.keywords.parse import parse_query
from skws.queries.kinds import plan_of, plans_of
from skws.spec.enums import EngineName
from skws.spec.job import Job
from skws.spec.query_spec import Query
from skws_schema.errors import SkwsError
from skws_schema.yaml.load import parse_schema

SCHEMA = parse_schema("""
version: 1
name: shop
window: 10 seconds
relations:
  customer:
    attributes: {cid: integer, name: text, vip: boolean, born: timestamp, worth: number, code: string}
    key: [cid]
    search: [name]
  order:
    attributes: {cid: integer, item: text}
joins:
  - customer.cid = order.cid
""")
FILES = [
    ("q: {query: ada, max_size: 0}", "max_size: 0: expected a number above 0"),
    (f"q: {{query: ada, max_size: {'9' * 5000}}}", ":1:27: a number too large"),
    (f"q: ada\nq: bob\nr: {'[' * 3000}{']' * 3000}", "nested more than 40 deep"),
    (f"q: {{query: ada, limit: {'9' * 20} per minute}}", "limit: a number too large"),
    (f"q: {{query: ada, sinks: 'https://h/#attempts={'9' * 5000}'}}", "attempts: a number too large"),
    ("q: {query: ada, max_size: true}", "max_size: True: expected a number above 0"),
    ("q: {query: ada, max_size: 2.0}", "max_size: 2.0: expected a number above 0"),
    ("q: {query: ada, max_size: '2'}", "max_size: '2': expected a number above 0"),
    ("q: {query: ada, max_size: null}", "max_size: no value: give one, or remove the line"),
    ("q: {query: ada, top: 0}", "top: 0: expected a number above 0"),
    ("q: {query: ada, top: null}", "top: no value: give one, or remove the line"),
    ("q: {query: ada, top: 1.5}", "top: 1.5: expected a number above 0"),
    ("q: {query: ada, top: 3, window: ''}", "window: '': expected a text"),
    ("q: {query: ada, top: 3, window: 5}", "window: 5: expected a text"),
    ("q: {query: ada, top: 3, window: soon}", "window 'soon': expected a duration such as '"),
    ("q: {query: ada, top: 3, window: 5 tuples}", "window '5 tuples': the job has a window of time"),
    ("q: {query: ada, window: null}", "window: no value: give one, or remove the line"),
    ("q: {query: ada, rank: null}", "rank: no value: give one, or remove the line"),
    ("q: {query: ada, rank: ''}", "rank: '': expected a text"),
    ("q: {query: ada, rank: [recency]}", "rank: ['recency']: expected a text"),
    ("q: {query: ada, half_life: null}", "half_life: no value: give one, or remove the line"),
    ("q: {query: ada, half_life: 5}", "half_life: 5: expected a text"),
    ("q: {query: ada, half_life: 0 s}", "half-life '0 s': must be longer than 0"),
    ("q: {query: ada, half_life: -5 s}", "half-life '-5 s': expected a duration such a"),
    ("q: {query: ada, explain_score: null}", "explain_score: no value: give one, or remove the line"),
    ("q: {query: ada, explain_score: 'yes'}", "explain_score: 'yes': expected true or false"),
    ("q: {query: ada, group: null}", "group: no value: give one, or remove the line"),
    ("q: {query: ada, without: null}", "without: no value: give one, or remove the line"),
    ("q: {query: ada, without: ''}", "'': expected the name of a relation or a join to leave out"),
    ("q: {query: ada, without: [order, order]}", "without: 'order' occurs twice"),
    ("q: {query: ada, without: nowhere}", "'nowhere' is not a relation, a join or"),
    (
        "q: {query: ada, without: [order, customer]}",
        "nothing can match: with 'order' every relation is left out",
    ),
    ("q: {query: ada, sinks: null}", "sinks: no value: give one, or remove the line"),
    ("q: {query: ada, sinks: ''}", "sink : expected stdout:FORMAT, jsonl:FILE, p"),
    ("q: {query: ada, sinks: ['jsonl:a', 'jsonl:a']}", "sinks: 'jsonl:a' occurs twice"),
    ("q: {query: ada, limit: null}", "limit: no value: give one, or remove the line"),
    ("q: {query: ada, limit: 0 per minute}", "limit '0 per minute': expected a rate such a"),
    ("q: {query: ada, limit: 5}", "limit: 5: expected a text"),
    ("q: {query: ada, limit: 5 per 0 minutes}", "limit '0 minutes': must be longer than 0"),
    ("q: {query: ada, limit: -5 per minute}", "limit '-5 per minute': expected a rate such"),
    (
        "q: {query: ada, limit: 5 per 99999999999999999999999 days}",
        "limit '99999999999999999999999 days': too lo",
    ),
    ("q: {query: ada, pattern: null}", "pattern: no value: give one, or remove the line"),
    ("q: {query: null, pattern: customer c}", "query: no value: give one, or remove the line"),
    ("q: {query: null}", "query: no value: give one, or remove the line"),
    ("q: {query: ''}", "query: '': expected a text"),
    ("q: {query: 7}", "query: 7: expected a text"),
    ("q: {query: [ada, lamp]}", "query: ['ada', 'lamp']: expected a text"),
    ("q: {pattern: ''}", "pattern: '': expected a text"),
    ("q: {pattern: 'customer c', rank: recency}", "rank, top and window only apply to keywords"),
    ("q: {pattern: 'customer c', group: false}", "rank, top and window only apply to keywords"),
    ("q: {pattern: 'customer c', top: 2}", "rank, top and window only apply to keywords"),
    ("q: {pattern: 'customer c', window: 5 s}", "rank, top and window only apply to keywords"),
    (
        "q: {pattern: 'customer c', max_size: 3}",
        "max_size only applies to keywords; a pattern names its tuples",
    ),
    ("q: {pattern: 'customer c', kind: pattern}", "pattern cannot be combined with query"),
    ("q: {query: ada, kind: keywords}", "kind: 'keywords': expected a kind of another pa"),
    ("q: {query: ada, kind: null}", "kind: no value: give one, or remove the line"),
    ("q: {query: ada, kind: nothing}", "kind of query 'nothing': expected one of key"),
    ("q: {query: ada, kind: top}", "kind: 'top': expected a kind of another package"),
    ("q: {query: ada, options: {rank: recency}}", "options only apply to a kind of another pack"),
    (
        "q: {query: ada, kind: keywords, options: {nothing: here}}",
        "kind: 'keywords': expected a kind of another pa",
    ),
    ("q: {sql: 'SELECT cid FROM customer', max_size: 3}", "max_size cannot be combined with sql"),
    ("q: {sql: 'SELECT nothing FROM customer'}", "line 1, column 8: no stream of this query ha"),
    (
        "q: {sql: 'SELECT cid FROM customer; DROP TABLE x'}",
        "line 1, column 1: expected one SELECT, found 2 statements",
    ),
    (
        "q: {sql: 'SELECT DISTINCT cid FROM customer ORDER BY cid'}",
        "line 1, column 44: ORDER BY is not select-project-join",
    ),
    (
        "q: {sql: 'SELECT DISTINCT cid FROM customer LIMIT 5'}",
        "line 1, column 41: LIMIT is not select-project-join",
    ),
    (
        "q: {sql: \"SELECT DISTINCT cid FROM customer WHERE cid = 'x'\"}",
        "line 1, column 47: expected an integer to co",
    ),
    (
        'q: {sql: "SELECT DISTINCT cid FROM customer WHERE name = 5"}',
        "line 1, column 48: expected a text to compar",
    ),
    ("q: {sql: 'SELECT DISTINCT cid FROM customer WHERE cid < 5.5'}", "this query needs unbounded memory:"),
    (
        "q: {sql: 'SELECT DISTINCT cid FROM customer c, customer c WHERE c.cid = 5'}",
        "line 1, column 38: 'c' occurs twice; rename",
    ),
    (
        "q: {sql: 'SELECT DISTINCT cid FROM customer WHERE cid = 5 ~'}",
        "line 1, column 49: invalid SQL at '~'",
    ),
    (
        "q: {sql: 'SELECT DISTINCT cid FROM customer GROUP BY cid'}",
        "line 1, column 44: GROUP BY is not select-project-join",
    ),
    (
        "q: {sql: \"SELECT DISTINCT cid FROM customer WHERE born = 'never'\"}",
        "line 1, column 48: expected a timestamp (202",
    ),
    (
        'q: {sql: "SELECT DISTINCT cid FROM customer WHERE vip = 3"}',
        "line 1, column 47: expected a boolean to com",
    ),
    ('q: {sql: "SELECT DISTINCT cid FROM nowhere"}', "line 1, column 26: no relation 'nowhere': th"),
    ('q: {sql: "SELECT DISTINCT * FROM customer"}', "line 1, column 17: * is not supported; name"),
    (
        'q: {sql: "SELECT DISTINCT cid FROM customer FOR UPDATE"}',
        "line 1, column 17: FOR UPDATE is not select-project-join",
    ),
    ('q: {sql: "SELECT DISTINCT cid FROM customer /* hint */"}', "this query needs unbounded memory:"),
    (
        'q: {sql: "SELECT DISTINCT cid FROM customer c JOIN order o ON true"}',
        "line 1, column 42: TRUE is not an attribute,",
    ),
    (
        'q: {sql: "SELECT DISTINCT cid FROM customer OFFSET 5"}',
        "line 1, column 42: OFFSET is not select-project-join",
    ),
    (
        'q: {sql: "SELECT DISTINCT cid FROM customer WHERE cid = 5 HAVING cid > 3"}',
        "line 1, column 56: HAVING is not select-project-join",
    ),
    (
        'q: {sql: "EXPLAIN SELECT DISTINCT cid FROM customer"}',
        "line 1, column 1: expected SELECT, found COMMAND",
    ),
    (
        'q: {sql: "SELECT DISTINCT ON (cid) cid FROM customer"}',
        "line 1, column 21: DISTINCT ON is not select-project-join",
    ),
    (
        'q: {sql: "SELECT DISTINCT cid FROM customer TABLESAMPLE SYSTEM (5)"}',
        "line 1, column 55: expected the name of a re",
    ),
    (
        'q: {sql: "WITH x AS (SELECT 1) SELECT DISTINCT cid FROM customer"}',
        "line 1, column 6: WITH is not select-project-join",
    ),
    ('"": ada', "'': 'ada': expected a name as text, and its keywords"),
    ('q: ""', "'': expected keywords, or a mapping with que"),
    ("q: null", "None: expected keywords, or a mapping with q"),
    ('q: " "', "the query is empty; type at least one keyword"),
    ("? [a, b]\n: ada", ":1:3: a key must be a name, not a list or a mapping"),
    ("q: !!python/object:os.system ada", ":1:4: tag !!python/object:os.system is not supported"),
    ("true: ada", "True: 'ada': expected a name as text, and its keywords"),
    ("1.5: ada", "1.5: 'ada': expected a name as text, and its keywords"),
    ("q: {query: ada, QUERY: bob}", "no 'QUERY'; did you mean 'query'?"),
    ("q: {query: ada, Top: 3}", "no 'Top'; did you mean 'top'?"),
    ("q: {query: ada, ' top': 3}", "no ' top'; did you mean 'top'?"),
    ("q: {query: ada, 3: 3}", "no 3"),
    ("q: {query: ada, name: x}", "no 'name'"),
    ("q: {query: ada, owner: x}", "no 'owner'"),
    ("q: {query: ada, every: 1 day}", "no 'every'; did you mean 'query'?"),
    ("q: {query: ada, half-life: 5 s}", "no 'half-life'; did you mean 'half_life'?"),
]
QUERIES = [
    ("ada nowhere:x", "no relation or attribute 'nowhere'; if the c"),
    ("ada worth:x", "customer.worth is of type number: expected a"),
    ("ada vip:maybe", "customer.vip is of type boolean: expected a"),
    ("ada born>soon", "customer.born is of type timestamp: expected"),
    ("ada born>2024-13-45", "customer.born is of type timestamp: expected"),
    ("ada worth:5..1", "the range 5..1 ends before it begins"),
    ("ada worth<", "a condition is an attribute, a comparison an"),
    ("ada worth<<5", "unknown comparison '<<'; expected one of < <= = >= > !="),
    ("ada worth=five", "customer.worth is of type number: expected a"),
    ("ada worth=1e999", "customer.worth is of type number: expected a"),
    ("ada worth=1_000", "customer.worth is of type number: expected a"),
    ("ada worth=0x10", "customer.worth is of type number: expected a"),
    ("ada customer.nothing=5", "relation 'customer' has no attribute 'nothing'"),
    ("ada~9", "'~9': expected '~' or '~1' for one typing er"),
    ("ada ~2", "'~' is only allowed at the end of a word, for ty"),
    ("ada~0", "'~0': expected '~' or '~1' for one typing er"),
    ("ada~-1", "'~' is only allowed at the end of a word, for ty"),
    ("ada~x", "'~' is only allowed at the end of a word, for ty"),
    ("ada *", "'*' must be next to letters of a word (trav*,"),
    ("ada --lamp", "an exclusion cannot be excluded"),
    ('ada "', "this quotation mark has no partner"),
    ("ada ()", "these parentheses are empty"),
    ("ada (", "this parenthesis is never closed"),
    ("ada )", "this parenthesis has no opening one"),
    ("ada OR", "OR needs a term after it (to search for the"),
    ("OR ada", "OR needs a term before it (to search for the"),
    ("ada OR OR lamp", "OR needs a term after it (to search for the"),
    ("ada | lamp", "join alternatives with OR; put quotes ar"),
    ("ada && lamp", "write AND instead, or nothing; put quotes"),
    ("ada ;", "there is no keyword after this ';'"),
    ("; ada", "there is no keyword before this ';'"),
    ("ada ; ; lamp", "there is no keyword after this ';'"),
    (":ada", "the name before this colon is missing; to searc"),
    ("ada +lamp", "all keywords are required; omit '+'; to"),
    ("!ada", "an exclusion begins with '-'; '!' precedes"),
    ("ada !!cid=5", "a condition is an attribute, a comparison an"),
    ("ada^2 lamp", "'^' is not supported: all words have"),
    ("ada [x]", "write a range as price:100..500; there"),
    ("ada -ada", "nothing can match: 'ada' is both a keyword and excluded"),
    ("ada -nowhere:", "'nowhere' is not a relation, a join or"),
    ("ada -customer: -order:", "nothing can match: with 'customer' every rel"),
    ("-ada", "the query '-ada' only excludes; add a keyword"),
    ("the", "no keyword is left"),
    ("a b c d e f g h i j k l m", "a query may have at most 8 keywords; this one has 12"),
    ("ada worth<5 cid<5", "'cid' is in 2 relations; write one of custom"),
    ("ada worth<5 cid>7", "'cid' is in 2 relations; write one of custom"),
    ("worth<5", "the query 'worth<5' only restricts results"),
    ("ada worth < 5", "a condition is an attribute, a comparison an"),
    ("ada worth<5>3", "customer.worth is of type number: expected a"),
    ("ada worth==5", "unknown comparison '=='; expected one of < <= = >= > !="),
    ("ada worth<>5", "unknown comparison '<>'; expected one of < <= = >= > !="),
    ("ada worth=<5", "unknown comparison '=<'; expected one of < <= = >= > !="),
    ("ada worth:5,6", "customer.worth is of type number: expected a"),
    ("ada worth:5..6..7", "customer.worth is of type number: expected a"),
    ("ada worth:..", "customer.worth is of type number: expected a"),
    ("ada vip<true", "customer.vip is a boolean, which has no"),
    ("ada born:2024-01..2024-02", "customer.born is of type timestamp: expected"),
    ("ada born=yesterday", "customer.born is of type timestamp: expected"),
]
LARGE = [
    ("q: " + "ada " * 5_000, "a query may have at most 10,000 characters; this one has 19,999"),
    ("q: {query: ada, top: " + "9" * 400 + "}", "a number too large"),
    ("q: " + "(" * 3_000 + "ada" + ")" * 3_000, "parentheses nested deeper than 40"),
    (
        "q: {pattern: '" + "customer c ; " * 500 + "customer c'}",
        "the pattern has 501 atoms; expected at most 64",
    ),
    (
        "q: {sql: 'SELECT DISTINCT cid FROM customer WHERE " + " AND ".join(["cid = 5"] * 2_000) + "'}",
        "too many",
    ),
]
EFFECTIVE = [
    "q: {query: ada, half_life: 5 s}",
    "q: {query: ada, explain_score: true}",
    "q: {query: ada, top: 2, append_only: true}",
    "q: &x {query: ada, <<: {top: 3}}",
    "q: {query: ada, limit: 9 per minute}",
    "q: {query: ada, max_size: 4}",
    "q: {query: ada, without: order}",
]
EFFECTIVE_QUERIES = [
    *(
        "ada AND lamp",
        "ada NOT lamp",
        "ada worth:1..",
        "ada worth=5.5",
        "ada name=5",
        "ada name<m",
        "ada code:x",
    ),
    *(
        "ada worth!=5",
        "ada vip=1",
        "ada born=2024",
        "(ada OR bob)",
        "ada ; lamp",
        "ada~",
        "ad*",
        "ada -order:",
    ),
]
NOTED_QUERIES = [
    *("ada\\0", "ada,", "ada ~", "ada ?", "ada -", 'ada \\"\\"', "ada or", "ada :", "ada:", "ada !", "ada $"),
    *("ada the", "ada ada", "ada Ada", "ada adas", "ada #", "ada -lamp -lamp", "ada -order: -order:"),
]
"""Queries with parts that mean or add nothing, which are reported."""


def read(text: str, folder: Path) -> tuple[Alert, Job]:
    """The query of a file, as a job reads it. Raises SkwsError."""
    path = folder / "queries.yaml"
    path.write_text(text)
    alerts = read_alerts(path)
    job = Job({name: alert.query for name, alert in alerts.items()}, SCHEMA, "-", engine=EngineName.LOCAL)
    plans_of(job)
    return alerts["q"], job


@pytest.mark.parametrize(("text", "message"), [*FILES, *LARGE])
def test_an_invalid_query_file_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SkwsError) as error:
        read(text, tmp_path)
    assert message in str(error.value)


@pytest.mark.check
@pytest.mark.parametrize(("query", "message"), QUERIES)
def test_an_invalid_query_is_rejected_with_its_text(tmp_path: Path, query: str, message: str) -> None:
    with pytest.raises(SkwsError) as error:
        read(f"q: '{query}'", tmp_path)
    assert message in str(error.value)
    assert query in str(error.value) or "nothing can match" in message or "at most" in message


@pytest.mark.parametrize("text", EFFECTIVE)
def test_every_accepted_option_has_an_effect(tmp_path: Path, text: str) -> None:
    assert read(text, tmp_path)[0] != Alert(Query("ada"))


@pytest.mark.parametrize("query", EFFECTIVE_QUERIES)
def test_every_accepted_part_of_a_query_has_an_effect(tmp_path: Path, query: str) -> None:
    alert, _ = read(f"q: '{query}'", tmp_path)
    reference, query_of_alert = (parse_query(text, SCHEMA) for text in ("ada", alert.query.text))
    assert not query_of_alert.notes
    for part in ("slots", "exclusions", "without", "sequence"):
        if getattr(query_of_alert, part) != getattr(reference, part):
            return
    pytest.fail("it means the same as 'ada'")


@pytest.mark.parametrize("query", NOTED_QUERIES)
def test_ignored_parts_of_a_query_are_noted(tmp_path: Path, query: str) -> None:
    _, job = read(f'q: "{query}"', tmp_path)
    (alert_query,) = job.named().values()
    assert plan_of(alert_query, job.stream).notes


def test_aliases_that_make_a_huge_list_are_shown_in_part(tmp_path: Path) -> None:
    lines = [f"q{n}: &q{n} [{', '.join([f'*q{n - 1}' if n else 'x'] * 10)}]" for n in range(12)]
    path = tmp_path / "queries.yaml"
    path.write_text("\n".join(lines))
    with pytest.raises(SkwsError) as error:
        read_alerts(path)
    assert "q11: [[[[[[[[[[[['x', 'x', 'x'" in str(error.value)
