"""``skws search`` in process: results on standard output, messages on standard error."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.commands import IDS, LOCAL, REPLAY, SCHEMA, SEARCH, Skws
from tests.jobs.watching import lines

GOOD = '{"relation": "movie", "row": {"mid": 1, "title": "Jackie Brown", "did": 1, "released": 10}}\n'
BAD = '{"relation": "movie", "time": 10, "row": {"mid": "one"}}\n'


def replay_of(folder: Path, text: str) -> tuple[object, ...]:
    file = folder / "stream.jsonl"
    file.write_text(text)
    return ("--schema", SCHEMA, "--replay", file, "--engine", "local")


def test_json_lines_have_the_documented_fields(skws: Skws) -> None:
    outcome = skws(*SEARCH, "--format", "jsonl")
    first = outcome.records[0]
    assert outcome.code == 0
    assert list(first) == ["op", "name", "query", "id", "start", "end", "network", "tuples", "joins"]
    assert first["network"] == "director{tarantino} - movie{} - plays{} - actor{travolta}"
    assert [r["id"] for r in outcome.records] == list(IDS)


def test_summary_goes_to_stderr_and_quiet_silences_it(skws: Skws) -> None:
    default, quiet = skws(*SEARCH), skws(*SEARCH, "--quiet")
    assert re.search(r"^769 rows, 2 results in [\d.]+ s \([\d,]+ rows/s\)$", default.err, re.M)
    assert (quiet.err, quiet.out) == ("", default.out)


def test_query_arguments_are_joined_by_blanks(skws: Skws) -> None:
    separate = skws("search", '"pulp', 'fiction"', *LOCAL, "-q", "-f", "jsonl")
    quoted = skws("search", '"pulp fiction"', *LOCAL, "-q", "-f", "jsonl")
    assert separate.out == quoted.out
    assert len(separate.records) == 1


def test_an_exclusion_is_written_after_a_double_dash(skws: Skws) -> None:
    outcome = skws("search", *LOCAL, "-q", "-f", "jsonl", "--", "tarantino", "travolta", "-pulp")
    assert (outcome.code, outcome.out) == (0, "")
    assert "write -- before the query" in skws(*SEARCH, "-pulp").err


def test_limit_stops_after_the_first_results(skws: Skws) -> None:
    outcome = skws(*SEARCH, "--limit", 1, "-f", "jsonl")
    assert [r["id"] for r in outcome.records] == [IDS[0]]
    assert "1 result in" in outcome.err


def test_max_size_and_window_bound_results(skws: Skws) -> None:
    assert len(skws(*SEARCH, "--max-size", 4, "-f", "jsonl").out.splitlines()) == 1
    assert "0 results" in skws(*SEARCH, "--max-size", 3).err
    assert "0 results" in skws(*SEARCH, "--window", "1 day").err


def test_an_empty_result_names_the_unmatched_keyword(skws: Skws) -> None:
    errors = skws("search", "tarantino", "travlota", *LOCAL).err
    assert "no row matches 'travlota'; did you mean 'travolta'?" in errors
    assert "'tarantino'" not in errors
    assert (
        "no tree of up to 3 joined rows within a window contains all of them"
        in skws(*SEARCH, "--max-size", 3).err
    )


def test_keyword_order_is_respected_and_explained(skws: Skws) -> None:
    outcome = skws("search", "travolta ; tarantino", *LOCAL, "-f", "jsonl", "-q")
    assert len(outcome.out.splitlines()) == 2
    assert "contains all of them in this order" in skws("search", "tarantino ; travolta", *LOCAL).err
    explanation = skws("explain", "tarantino uma ; travolta", "--schema", SCHEMA).out
    assert "order: rows with tarantino, uma before those with travolta" in explanation


def test_all_evaluators_write_the_same_results(skws: Skws) -> None:
    outputs = [skws(*SEARCH, "-f", "jsonl", "-q", "--evaluator", e).out for e in ("auto", "mesh", "delta")]
    assert outputs[0] == outputs[1] == outputs[2] != ""
    rejection = skws(*SEARCH, "--evaluator", "delta", "--mesh", "full")
    assert (rejection.code, "--evaluator delta cannot be combined with --mesh full" in rejection.err) == (
        2,
        True,
    )
    explanation = skws("explain", "tarantino", "travolta", "--schema", SCHEMA, "--evaluator", "mesh").out
    assert "never by delta joins, since the mesh was requested" in explanation


def test_ignored_words_are_reported(skws: Skws) -> None:
    assert "not searched (too common, or not a word): the" in skws("search", "the", "nolan", *LOCAL).err


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("o.csv", "op,name,query,id"),
        ("o.CSV", "op,name,query,id"),
        ("o.jsonl", '{"op":"+"'),
        ("o.ndjson", '{"op":"+"'),
        ("o.txt", "op  time"),
        ("o", "op  time"),
        ("o.parquet", "PAR1"),
    ],
)
def test_the_file_suffix_selects_the_format(skws: Skws, tmp_path: Path, name: str, begins: str) -> None:
    for pattern in ((), ("--pattern", "movie m")):
        command = SEARCH if not pattern else ("search", *LOCAL, *pattern)
        outcome = skws(*command, "-o", tmp_path / name)
        assert (outcome.code, outcome.out) == (0, "")
        assert (tmp_path / name).read_bytes().startswith(begins.encode())
        assert "--format" not in outcome.err


def test_format_overrides_the_suffix_with_a_note(skws: Skws, tmp_path: Path) -> None:
    out = tmp_path / "o.csv"
    outcome = skws(*SEARCH, "-f", "jsonl", "-o", out)
    assert out.read_text().startswith('{"op":"+"')
    assert "its name ends in .csv, but --format says jsonl" in outcome.err
    assert skws(*SEARCH, "-f", "jsonl", "-o", out, "-q").err == ""
    for name in ("o.log", "o.csv.gz", "o.json"):
        rejection = skws(*SEARCH, "-o", tmp_path / name)
        assert (
            rejection.code,
            "expected .txt, .jsonl, .ndjson, .csv, .parquet, or --format" in rejection.err,
        ) == (2, True)
        assert skws(*SEARCH, "-f", "csv", "-o", tmp_path / name).code == 0


def test_a_table_in_a_pipe_is_not_truncated(skws: Skws) -> None:
    output = skws(*SEARCH, "-q").out
    assert "…" not in output
    assert "Quentin Tarantino - Pulp Fiction - Vincent Vega - John Travolta" in output


def test_ignored_punctuation_is_reported(skws: Skws) -> None:
    for command in (("search", "nolan,", *LOCAL), ("networks", "nolan,", "-s", SCHEMA)):
        assert "ignored (not part of a word): ','" in skws(*command).err
    explanation = skws("explain", "nolan,", "-s", SCHEMA).out
    assert "ignored (not part of a word): ','" in explanation
    rejection = skws("search", "time~out", *LOCAL)
    assert (rejection.code, rejection.out) == (2, "")
    assert rejection.err.endswith('write "time~out"\n  time~out\n      ^\n')


@pytest.mark.parametrize(
    "terms", [("-plays:",), ("--without", "plays"), ("--without", "PLAYS", "--without", "plays")]
)
def test_excluded_relations_are_in_no_network(skws: Skws, terms: tuple[str, ...]) -> None:
    words = (f"tarantino travolta {terms[0]}",) if len(terms) == 1 else ("tarantino", "travolta", *terms)
    outcome = skws("search", *words, *LOCAL, "-f", "jsonl")
    assert (outcome.code, outcome.out) == (0, "")
    for options in ((), ("--mesh", "full"), ("--mesh", "partial")):
        assert skws("search", *words, *LOCAL, "-q", "-f", "jsonl", *options).out == ""
    networks = json.loads(skws("networks", *words, "-s", SCHEMA, "--format", "json").out)
    relations = {node["relation"] for network in networks for node in network["nodes"]}
    assert relations == {"actor", "director", "movie"}
    explanation = skws("explain", *words, "-s", SCHEMA).out
    assert "left out, also as a connection: plays" in explanation
    assert "plays{" not in explanation


@pytest.mark.parametrize(
    "exclusion", [("-plays.mid:",), ("--without", "plays.mid"), ("-mid:",), ("--without", "PLAYS.MID")]
)
def test_excluded_joins_are_in_no_network(skws: Skws, exclusion: tuple[str, ...]) -> None:
    terms = ("director:tarantino", "actor:travolta")
    words = (" ".join([*terms, *exclusion]),) if len(exclusion) == 1 else (*terms, *exclusion)
    assert skws("search", *terms, *LOCAL, "-f", "jsonl").out
    outcome = skws("search", *words, *LOCAL, "-f", "jsonl")
    assert (outcome.code, outcome.out) == (0, "")
    reason = (
        "no joins lead from director ('director:tarantino') to actor ('actor:travolta'), apart from those"
    )
    assert reason in outcome.err
    explanation = skws("explain", *words, "-s", SCHEMA).out
    assert "joins left out: movie.mid = plays.mid" in explanation
    unscoped = [word.replace("director:", "").replace("actor:", "") for word in words]
    networks = skws("networks", *unscoped, "-s", SCHEMA, "--format", "json").out
    joins = {name for network in json.loads(networks) for _, _, name in network["joins"]}
    assert joins == {"director.did = movie.did", "plays.aid = actor.aid"}


def test_invalid_exclusions_are_rejected(skws: Skws) -> None:
    misspelled = skws("search", "pulp", *LOCAL, "--without", "play")
    assert misspelled.code == 2
    assert "did you mean 'plays'?" in misspelled.err
    assert misspelled.err.endswith("\n  pulp -play:\n       ^\n")
    assert "expected the name of a relation" in skws("search", "pulp", *LOCAL, "--without", "a b").err
    pattern = skws("search", "--pattern", "plays p", *LOCAL, "--without", "plays")
    assert (pattern.code, "--pattern cannot be combined with --without" in pattern.err) == (2, True)
    unused = skws("explain", "--pattern", "plays p", "-s", SCHEMA, "--without", "plays")
    assert (unused.code, "--without needs a QUERY" in unused.err) == (2, True)


def test_match_names_finds_rows_by_relation_name(skws: Skws) -> None:
    outcome = skws("search", "actor", "travolta", *LOCAL, "--match-names", "-q", "-f", "jsonl")
    networks = {r["network"] for r in outcome.records}
    assert "actor{actor, travolta}" in networks
    assert "actor{actor, travolta}" not in skws("search", "actor", "travolta", *LOCAL, "-q").out


@pytest.mark.parametrize("text", ["", "\n", GOOD])
def test_empty_and_short_replays_are_searched(skws: Skws, tmp_path: Path, text: str) -> None:
    outcome = skws("search", "jackie", *replay_of(tmp_path, text), "-f", "jsonl")
    assert outcome.code == 0
    assert len(outcome.out.splitlines()) == text.count("Jackie")


def test_a_bad_record_fails_the_search_by_default(skws: Skws, tmp_path: Path) -> None:
    outcome = skws("search", "jackie", *replay_of(tmp_path, BAD + GOOD), "-q")
    assert (outcome.code, outcome.out) == (5, "")
    assert "1 bad record" in outcome.err
    assert "stream.jsonl:1: " in outcome.err


def test_skipped_bad_records_are_counted_even_when_quiet(skws: Skws, tmp_path: Path) -> None:
    outcome = skws("search", "jackie", *replay_of(tmp_path, GOOD + BAD + BAD), "-q", "--on-error", "skip")
    assert outcome.code == 0
    assert outcome.err.startswith("2 bad records\n")


def test_bad_records_are_written_as_dead_letters(skws: Skws, tmp_path: Path) -> None:
    dead_letters = tmp_path / "letters.jsonl"
    policy = ("--on-error", "dead-letter", "--dead-letters", dead_letters)
    assert skws("search", "jackie", *replay_of(tmp_path, GOOD + BAD), *policy).code == 0
    assert lines(dead_letters)[0]["raw"] == BAD.strip()
    assert skws("search", "jackie", *replay_of(tmp_path, GOOD), "--on-error", "dead-letter").code == 2


def movie_line(seconds: int, title: str) -> str:
    row = {"mid": seconds, "title": title, "did": 1, "released": seconds}
    return json.dumps({"relation": "movie", "row": row}) + "\n"


def test_lateness_rejects_records_that_are_too_late(skws: Skws, tmp_path: Path) -> None:
    replay = replay_of(
        tmp_path, movie_line(1000, "one") + movie_line(5, "Jackie late") + movie_line(995, "Jackie in time")
    )
    dead_letters = tmp_path / "letters.jsonl"
    policy = ("--on-error", "dead-letter", "--dead-letters", dead_letters)
    assert len(skws("search", "jackie", *replay, "-f", "jsonl").out.splitlines()) == 2
    outcome = skws("search", "jackie", *replay, "-f", "jsonl", "--lateness", "10 s", *policy)
    assert "Jackie in time" in outcome.out
    assert "Jackie late" not in outcome.out
    assert ", 1 late" in outcome.err
    assert (
        "a tuple of movie came too late: its time is 1970-01-01T00:00:05Z, the stream had reached"
        " 1970-01-01T00:16:40Z, and the lateness is 10 s; late records are left out and counted"
        " (--lateness '17 minutes' would accept this one)\n" in outcome.err
    )
    assert "Jackie late" in skws("search", "jackie", *replay, "-f", "jsonl", "--lateness", "17 minutes").out
    dead_letter = lines(dead_letters)[0]
    assert "more than the allowed 10 seconds" in str(dead_letter["reason"])
    assert json.loads(str(dead_letter["raw"]))["row"]["title"] == "Jackie late"


def test_lateness_may_be_zero_but_not_a_word(skws: Skws, tmp_path: Path) -> None:
    replay = replay_of(tmp_path, movie_line(1000, "one") + movie_line(995, "Jackie"))
    assert ", 1 late" in skws("search", "jackie", *replay, "--lateness", "0 s").err
    assert skws("search", "jackie", *replay, "--lateness", "soon").code == 2
    assert skws("search", "jackie", *replay, "--lateness", "0 hedgehogs").code == 2


def test_deletions_and_retractions_are_counted(skws: Skws, tmp_path: Path) -> None:
    deletion = '{"relation": "movie", "time": 11, "op": "-", "row": {"mid": 1}}\n'
    unmatched = '{"relation": "movie", "time": 12, "op": "-", "row": {"mid": 2}}\n'
    outcome = skws("search", "jackie", *replay_of(tmp_path, GOOD + deletion + unmatched), "-f", "jsonl")
    assert [r["op"] for r in outcome.records] == ["+", "-"]
    assert "1 row, 1 result, 1 retraction, 2 deletions (1 unmatched)" in outcome.err


def test_several_replays_are_merged_by_time(skws: Skws, tmp_path: Path) -> None:
    lines = REPLAY.read_text().splitlines(keepends=True)
    halves = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    halves[0].write_text("".join(lines[::2]))
    halves[1].write_text("".join(lines[1::2]))
    options = ("--schema", SCHEMA, "--engine", "local", "-q", "-f", "jsonl")
    outcome = skws("search", "tarantino", "travolta", *options, "-r", halves[1], "-r", halves[0])
    assert outcome.out == skws(*SEARCH, "-q", "-f", "jsonl").out


def test_only_a_successful_run_replaces_the_output_file(skws: Skws, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert skws(*SEARCH, "-f", "jsonl", "-o", out).out == ""
    content = out.read_bytes()
    assert content.count(b"\n") == 2
    assert skws("search", "jackie", *replay_of(tmp_path, GOOD + BAD), "-f", "jsonl", "-o", out).code == 5
    assert out.read_bytes() == content
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.jsonl", "stream.jsonl"]


def test_output_follows_a_symbolic_link_or_goes_to_standard_output(skws: Skws, tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    assert skws(*SEARCH, "-f", "jsonl", "-o", link).code == 0
    assert link.is_symlink()
    assert skws(*SEARCH, "-f", "jsonl", "-o", "-").out == target.read_text()


def test_output_is_written_to_a_named_pipe(skws: Skws, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert skws(*SEARCH, "-f", "jsonl", "-o", pipe).code == 0
    assert os.read(reader, 1 << 16).count(b"\n") == 2
    os.close(reader)
