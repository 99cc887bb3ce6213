"""A session rebuilt from a snapshot and the log has the results of one that was never interrupted.

This also holds after the log was trimmed or replaced by the live tuples.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import pytest

from skws.data.batch import Record, RecordBatch
from skws.queries import session as sessions
from skws.queries.keywords import engine
from skws.queries.kinds import plans_over
from skws.queries.operator import Begins, LoggedBatch, changed, record_count
from skws.queries.session import Session
from skws.results.result import Result
from skws.spec.enums import ToldUpdates
from skws.spec.query_spec import APPEND_ONLY, GROUP, HALF_LIFE, PATTERN, SIZE, TOP, WINDOW, Query, Stream
from skws.store import row_files
from skws.store.row_files import RowFiles, Stored
from skws_purging.lifespans import ALWAYS
from skws_purging.retention import LogPart, Retention
from skws_schema.model import Attribute, AttributeType, Join, Relation, Row, Schema
from skws_schema.yaml.document import to_yaml
from skws_windows.window import CountWindow, ExpressionWindow, TimeWindow, Unbounded, Window
from tests.oracles.oracle import lines
from tests.strategies import seeds, some

ATTRIBUTES = (Attribute("t", AttributeType.TEXT), Attribute("x", AttributeType.INTEGER))
SCHEMA = Schema(
    "queues",
    (
        Relation("plain", ATTRIBUTES, search=("t",)),
        Relation("keyed", ATTRIBUTES, key=("x",), search=("t",)),
    ),
    (Join("pk", "plain", "keyed", (("x", "x"),)), Join("self", "plain", "plain", (("x", "x"),))),
)
QUERIES = (
    Query("alpha beta").named("two", 3),
    Query("alpha").named("one", 3),
    Query("alpha beta", kind=TOP, options={"size": "2"}).named("best", 3),
)
REPLACEABLE = QUERIES[:2]
"""Queries whose log may be replaced by the live tuples."""
FOLDED = Query("alpha", kind=TOP, options={"size": "2", GROUP: "true"}).named("folded", 3)
WITHIN = (
    Query("alpha beta").over(ExpressionWindow("every match [plain] [keyed]"), allowed=True).named("within", 3)
)
SHORTER = (
    Query("plain a ; keyed b where a.x = b.x within 7 us", kind=PATTERN).named("pattern", 3),
    Query("alpha beta", kind=TOP, options={SIZE: "2", WINDOW: "9 us"}).named("best", 3),
)
SCORED = Query("alpha", options={HALF_LIFE: "1 hour"}).named("scored", 3)


def random_records(rng: random.Random, count: int) -> list[Record]:
    """Few rows, each inserted and deleted repeatedly; ties, NULLs in keys, truncations."""
    records: list[Record] = []
    time = 1_000
    deletion_share = rng.choice((0.3, 0.45, 0.5))
    for _ in range(count):
        time += rng.choice((0, 1, 1, 2, 3))
        relation = int(rng.random() < 0.3)
        if rng.random() < 0.03:
            records.append(Record.truncation(relation, time))
            continue
        row: Row = (rng.choice(("alpha", "beta")), rng.choice((1, 2, None) if relation else (1, 2)))
        records.append(Record(relation, time, row, rng.random() < deletion_share))
    return records


_folder: list[Path] = []


@pytest.fixture(autouse=True)
def _few_rows_are_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _folder[:] = [tmp_path]
    monkeypatch.setattr(row_files, "LEAST", 2)
    monkeypatch.setattr(row_files, "MOST", 3)
    monkeypatch.setattr(sessions, "PART", 3)
    monkeypatch.setattr(engine, "LOAD_SIZE", 3)


@dataclass
class RecoverableSession:
    """A session, its log, and its latest states; ``rebuild`` discards the session.

    The log has micro-batches, and the texts of schema changes. Queries may read it.
    """

    stream: Stream
    log: list[tuple[LogPart | None, LoggedBatch | str, Begins]] = field(default_factory=list)
    states: dict[str, bytes] = field(default_factory=dict)
    state_count: int = 0
    queries: tuple[Query, ...] = QUERIES
    keywords: bool = True
    replacements: int = 0
    """The number of times that the log was replaced."""
    live_entry: LoggedBatch | str = ""
    """The entry that replaces all earlier ones."""
    stored: Stored = field(init=False)
    """The records of ``live_entry``: in files, and the rest."""
    entries_read: int = 0
    """The number of log entries that the session has processed."""

    def __post_init__(self) -> None:
        self.files = RowFiles(Path(mkdtemp(dir=_folder[0])))
        self.live = Session(self.stream, past=self.past, keywords=self.keywords)
        self.live.add_all(plans_over(self.queries, self.live.stream))

    def past(self) -> list[LoggedBatch]:
        return [entry for _, entry, _ in self.log[: self.entries_read] if isinstance(entry, LoggedBatch)]

    def take(self, batch: RecordBatch) -> list[Result]:
        before = self.live.position, self.live.now
        results = self.live.take(batch)
        self._keep(LogPart(int(batch.time.max()), self.live.position), LoggedBatch(*before, batch))
        retention = Retention(self.live.keeps)
        while (part := self.log[0][0]) is None or retention.is_obsolete(
            part, self.live.settled, self.live.position
        ):
            _, entry, _ = self.log.pop(0)
            self.entries_read -= 1
            if isinstance(entry, str):
                self.stream = changed(self.stream, entry)
        return results

    def change(self, text: str) -> list[Result]:
        """Continue with another schema."""
        results = self.live.change_schema(text)
        self._keep(None, text)
        return results

    def _keep(self, part: LogPart | None, entry: LoggedBatch | str) -> None:
        # The begins of a schema change are stored with the next micro-batch.
        self.log.append((part, entry, {} if isinstance(entry, str) else self.live.begins()))
        self.entries_read = len(self.log)
        self.states |= self.live.snapshot()
        self.state_count += len(self.states)

    def replace_log(self) -> None:
        """Replace the log by the live tuples, unless a query needs it."""
        records_now, begins = self.live.live_records(), self.live.all_begins()
        if records_now is None:
            return
        recent = self.live.recent(chain.from_iterable(logged.recent or (logged,) for logged in self.past()))
        self.stored = self.files.store(records_now, str(self.replacements))
        self.files.trim(self.stored.files)
        records = self.files.read(self.stored.files, self.stored.rest).whole
        before = self.live.position - records.insertions
        part = LogPart(self.live.now, self.live.position)
        self.live.log_replaced(part, recent[0].position if record_count(recent) else None)
        self.live_entry = LoggedBatch(before, ALWAYS, records, recent=recent)
        self.log = [(part, self.live_entry, begins)]
        self.entries_read = 1
        self.replacements += 1

    def rebuild(self) -> None:
        position, now = self.live.position, self.live.now
        first, *_ = self.past()
        self.entries_read = 0
        self.live = Session(self.stream, past=self.past, keywords=self.keywords)
        self.live.expect(self.states)
        self.live.seek(first.position, first.now)
        self.live.add_all(plans_over(self.queries, self.live.stream))
        for _, entry, begins in self.log:
            if isinstance(entry, str):
                self.live.change_schema(entry)
            elif entry is self.live_entry:
                self.files = RowFiles(self.files.folder)  # as another process finds them
                records = self.files.read(self.stored.files, self.stored.rest)
                self.live.replay(records, begins, live=True, recent=entry.recent)
            else:
                self.live.replay(entry.batch, begins)
            self.entries_read += 1
        self.live.seek(position, now)
        self.live.restore(self.states)


def compare(
    stream: Stream,
    records: list[Record],
    rng: random.Random,
    queries: tuple[Query, ...] = QUERIES,
    *,
    replaces: bool = False,
    keywords: bool = True,
) -> tuple[RecoverableSession, int]:
    """Compares the results of every batch; returns the rebuilt session and the number of results.

    ``replaces``: live tuples sometimes replace the log.
    """
    undisturbed = Session(stream, keywords=keywords)
    recovered, count = RecoverableSession(stream, queries=queries, keywords=keywords), 0
    undisturbed.add_all(plans_over(queries, undisturbed.stream))
    while records:
        size = rng.randint(1, 8)
        batch, records = RecordBatch.of(records[:size]), records[size:]
        results = lines(undisturbed.take(batch))
        assert lines(recovered.take(batch)) == results
        count += len(results)
        if replaces and rng.random() < 0.3:
            recovered.replace_log()
        if rng.random() < 0.3:
            recovered.rebuild()
    return recovered, count


@pytest.mark.check
@pytest.mark.parametrize("window", [TimeWindow(5), TimeWindow(15), CountWindow(4), CountWindow(12)])
@seeds(1, 16)
def test_a_rebuilt_session_continues_unchanged(window: Window, seed: int) -> None:
    rng = random.Random(seed)
    recovered, count = compare(Stream(SCHEMA, window), random_records(rng, 150), rng)
    assert count > 20
    assert recovered.state_count or window == TimeWindow(5)
    assert len(recovered.log) < 20


@pytest.mark.check
@pytest.mark.parametrize("updates", ToldUpdates)
@seeds(1, 16)
def test_a_rebuilt_session_accepts_records_out_of_order(updates: ToldUpdates, seed: int) -> None:
    rng = random.Random(seed)
    records = random_records(rng, 150)
    records.sort(key=lambda record: record.time + rng.uniform(0, 6))
    recovered, count = compare(Stream(SCHEMA, TimeWindow(15), lateness=5, updates=updates), records, rng)
    assert count > 20
    assert recovered.state_count


_QUERY_SETS: Final = {
    "plain": REPLACEABLE,
    "scored": (*REPLACEABLE, SCORED),
    "best": QUERIES,
    "best-alone": QUERIES[2:],
    "folded": (*REPLACEABLE, FOLDED),
    "within": (*REPLACEABLE, WITHIN),
    "shorter": (*REPLACEABLE, *SHORTER),
    "counted": (*REPLACEABLE, Query("plain a ; plain b within 6 tuples", kind=PATTERN).named("near", 3)),
}
_CASES: Final = [
    *(("plain", TimeWindow(5), 0), ("within", TimeWindow(15), 0)),
    *((name, TimeWindow(15), 5) for name in ("scored", "shorter")),
    *((name, Unbounded(), 5) for name in ("plain", "best", "folded", "within")),
    *((name, Unbounded(), 0) for name in ("best-alone", "shorter", "counted")),
]
_SLOW_CASES: Final = [
    one
    for one in (
        *(
            (name, window, 0)
            for name in ("plain", "scored", "within")
            for window in (TimeWindow(5), TimeWindow(15))
        ),
        ("shorter", TimeWindow(15), 0),
        *((name, TimeWindow(5), 5) for name in ("plain", "scored", "within")),
        *((name, TimeWindow(15), 5) for name in ("plain", "within")),
        *((name, Unbounded(), lateness) for name in _QUERY_SETS for lateness in (0, 5)),
    )
    if one not in _CASES
]


@pytest.mark.check
@some("name, window, lateness", _CASES, _SLOW_CASES)
@some("seed", [1], [0, *range(2, 40)])  # with seed 1, each record of a file needs its own number
def test_the_log_is_replaced_by_live_tuples(name: str, window: Window, lateness: int, seed: int) -> None:
    """Scores use the word frequencies of live tuples; those of the best results are stored with the log."""
    queries = _QUERY_SETS[name]
    rng = random.Random(seed)
    records = random_records(rng, 100)
    if lateness:
        records.sort(key=lambda record: record.time + rng.uniform(0, 6))
    stream = Stream(SCHEMA, window, lateness=lateness)
    recovered, count = compare(stream, records, rng, queries, replaces=True, keywords=queries != QUERIES[2:])
    assert count > 10
    assert recovered.replacements


def test_equal_rows_of_an_instant_stay_separate_after_deletions() -> None:
    """The live row is in a file, and the record of the other one is not."""
    stream = Stream(SCHEMA, Unbounded())
    undisturbed, recovered = (RecoverableSession(stream, queries=REPLACEABLE) for _ in range(2))
    record = Record(0, 1_000, ("alpha", 1))
    output = []
    for records in (
        [record, record, record, *(Record(1, 1_001, ("beta", n)) for n in range(3))],
        [Record(0, 1_002, record.row, True), Record(0, 1_003, record.row, True)],
        [Record(1, 1_010, ("alpha", 9))],
        [Record(0, 1_020, record.row, True), Record(0, 1_021, record.row)],
    ):
        batch = RecordBatch.of(records)
        results = lines(undisturbed.take(batch))
        assert lines(recovered.take(batch)) == results
        output += results
        recovered.replace_log()
        recovered.rebuild()
    assert recovered.stored.files
    assert sum(b'"op":"-"' in line for line in output) == 6


def matches(results: list[Result]) -> set[tuple[str, ...]]:
    return {
        tuple(str(each.row["t"]) for each in match.tuples) for match in results if match.name == "pattern"
    }


@pytest.mark.parametrize("within", ["within 12 tuples", "", "within 1 second"])
@pytest.mark.parametrize("lateness", [0, 5])
@seeds(1, 40)
def test_patterns_do_not_count_distances_between_live_tuples(within: str, lateness: int, seed: int) -> None:
    """Most rows between two live ones are missing, so their positions in the log mean nothing."""
    rng = random.Random(seed)
    records = []
    for number in range(400):
        row: Row = (f"row{number}", rng.choice((1, 2, 3)))
        records.append(Record(int(rng.random() < 0.85), 1_000 + 2 * number, row))
    if lateness:
        records.sort(key=lambda record: record.time + rng.uniform(0, 6))
    stream = Stream(SCHEMA, Unbounded(), lateness=lateness)
    pattern = Query(f"plain a ; plain b {within}", kind=PATTERN).named("pattern", 3)
    undisturbed, recovered = Session(stream), RecoverableSession(stream, queries=REPLACEABLE)
    undisturbed.add_all(plans_over((*REPLACEABLE, pattern), stream))
    before = RecordBatch.of(records[:300])
    all_matches = matches(undisturbed.take(before))
    for first in range(0, 300, 20):
        recovered.take(before.take(slice(first, first + 20)))
    recovered.replace_log()
    assert recovered.replacements
    assert len(recovered.past()[0].batch) < 120
    found_matches = matches(recovered.live.add_all(plans_over([pattern], stream)))
    recovered.queries += (pattern,)
    for first in range(300, 400, 20):
        if rng.random() < 0.5:
            recovered.rebuild()
        batch = RecordBatch.of(records[first : first + 20])
        new_matches, expected = matches(recovered.take(batch)), matches(undisturbed.take(batch))
        assert new_matches <= expected
        assert new_matches == expected or not within or first < 320
        found_matches, all_matches = found_matches | new_matches, all_matches | expected
    assert found_matches
    assert found_matches <= all_matches


def test_a_restored_version_keeps_the_begin_of_its_result() -> None:
    """A late record ends the last life of a row that was updated, deleted and inserted again."""
    stream = Stream(SCHEMA, Unbounded(), lateness=5)
    undisturbed, recovered = (RecoverableSession(stream, queries=REPLACEABLE) for _ in range(2))
    reports = []
    for time, text, delete in (
        (100, "alpha beta", False),
        (120, "alpha beta beta", False),
        (123, "", True),
        (124, "alpha beta", False),
        (124, "", True),
    ):
        batch = RecordBatch.of([Record(1, time, (text, 1), delete)])
        if time == 124:
            recovered.replace_log()
            recovered.rebuild()
        results = undisturbed.take(batch)
        assert lines(recovered.take(batch)) == lines(results)
        reports += results
    assert recovered.replacements
    assert reports[-1].start == 100 / 1e6


def test_an_added_pattern_reads_live_tuples_until_its_window_ends() -> None:
    """The live tuples are not replaced as long as the pattern would need them to be rebuilt."""
    stream = Stream(SCHEMA, Unbounded())
    longer = Query("keyed a ; plain b within 50 us", kind=PATTERN).named("longer", 3)
    recovered = RecoverableSession(stream, queries=REPLACEABLE)
    recovered.take(RecordBatch.of([Record(1, 1_000 + time, ("alpha", time % 3)) for time in range(30)]))
    recovered.replace_log()
    recovered.live.add_all(plans_over([longer], stream))
    recovered.queries += (longer,)
    for time in range(1_030, 1_040):
        recovered.take(RecordBatch.of([Record(0, time, ("beta", time))]))
        recovered.replace_log()
    assert recovered.replacements == 1
    recovered.rebuild()
    results = recovered.take(RecordBatch.of([Record(0, 1_040, ("alpha", 7))]))
    assert len([one for one in results if one.name == "longer"]) == 3
    recovered.take(RecordBatch.of([Record(0, 1_200, ("beta", 8))]))
    recovered.replace_log()
    assert recovered.replacements == 2


@pytest.mark.parametrize("rebuilt", [False, True])
def test_an_added_pattern_reads_live_tuples_kept_for_a_shorter_one(rebuilt: bool) -> None:
    stream = Stream(SCHEMA, Unbounded())
    longer = Query("keyed a ; plain b within 50 us", kind=PATTERN).named("longer", 3)
    recovered = RecoverableSession(stream, queries=(*REPLACEABLE, SHORTER[0]))
    for time in range(30):  # the last ones have updates of two rows, not of the first
        recovered.take(RecordBatch.of([Record(1, 1_000 + time, ("alpha", 1 + time % 2 if time else 0))]))
    recovered.replace_log()
    (logged,) = recovered.past()
    assert 0 < record_count(logged.recent) < 30
    recovered.live.add_all(plans_over([longer], stream))
    recovered.queries += (longer,)
    if rebuilt:
        recovered.rebuild()
    results = recovered.take(RecordBatch.of([Record(0, 1_030, ("beta", 1))]))
    starts = [one.start for one in results if one.name == "longer"]
    assert len(starts) == 1 + record_count(logged.recent)
    for time in (1_040, 1_060, 1_080, 1_100):
        recovered.take(RecordBatch.of([Record(0, time, ("beta", time))]))
        recovered.replace_log()
    assert recovered.replacements == 1
    recovered.take(RecordBatch.of([Record(0, 1_200, ("beta", 8))]))
    recovered.replace_log()
    assert recovered.replacements == 2


def test_a_late_record_corrects_a_result_that_ended_before_a_schema_change() -> None:
    stream = Stream(SCHEMA, Unbounded(), lateness=5)
    queries = (Query("alpha").named("alone", 1),)
    undisturbed, changing = (RecoverableSession(stream, queries=queries) for _ in range(2))
    reports = []
    for time, text in ((100, "alpha"), (104, "beta"), (102, "beta")):
        if time == 102:
            assert not changing.change(to_yaml(replace(SCHEMA, joins=SCHEMA.joins[:1])))
        batch = RecordBatch.of([Record(1, time, (text, 1))])
        results = undisturbed.take(batch)
        assert lines(changing.take(batch)) == lines(results)
        reports += [(one.op, one.end) for one in results]
    assert reports == [("+", None), ("-", 104 / 1e6), ("-", 102 / 1e6)]


@pytest.mark.parametrize("lateness", [0, 5])
def test_a_result_ended_by_a_schema_begins_anew_with_the_next(lateness: int) -> None:
    """It begins with the current version, whatever was reported earlier, and also after a restart."""
    stream = Stream(SCHEMA, Unbounded(), lateness=lateness)
    undisturbed, recovered = (RecoverableSession(stream, queries=QUERIES[:1]) for _ in range(2))
    reports = []
    for session in (undisturbed, recovered):
        results = session.take(
            RecordBatch.of(
                [
                    *(Record(0, 100, ("alpha", 1)), Record(1, 100, ("beta", 1))),
                    *(Record(1, 104, ("beta beta", 1)), Record(1, 105, ("alpha", 7))),
                ]
            )
        )
        results += session.change(to_yaml(replace(SCHEMA, joins=SCHEMA.joins[1:])))
        results += session.take(RecordBatch.of([Record(1, 106, ("alpha", 8))]))
        if session is recovered:
            session.rebuild()
        results += session.change(to_yaml(SCHEMA))
        results += session.take(RecordBatch.of([Record(1, 107, ("", 1), True)]))
        reports.append([(one.op, one.start) for one in results])
    assert reports[0] == reports[1]
    assert reports[0] == [(op, start / 1e6) for op, start in (("+", 100), ("~", 100), ("-", 100))] + [
        (op, 104 / 1e6) for op in ("+", "-")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("within", ["within 9 us", ""])
def test_patterns_with_and_without_windows_are_rebuilt_unchanged(within: str) -> None:
    """They are added after the log was replaced, so the one without a window has read only live tuples."""
    stream = Stream(SCHEMA, Unbounded())
    added = Query(f"keyed a ; plain b {within}", kind=PATTERN).named("added", 3)
    undisturbed, recovered = (
        RecoverableSession(stream, queries=(*REPLACEABLE, SHORTER[0])) for _ in range(2)
    )
    count = 0
    for number in range(40):
        time = 1_000 + number
        batch = RecordBatch.of(
            [Record(1, time, ("alpha", number % 5)), Record(0, time, ("beta", number % 7))]
        )
        results = undisturbed.take(batch)
        assert lines(recovered.take(batch)) == lines(results)
        count += sum(one.name == "added" for one in results)
        if number == 12:
            for session in (undisturbed, recovered):
                session.replace_log()
                session.live.add_all(plans_over([added], stream))
                session.queries += (added,)
        if number > 12 and number % 8 == 0:
            recovered.rebuild()
    assert count
    assert recovered.replacements == 1


@pytest.mark.parametrize(("window", "options"), [(TimeWindow(15), {}), (Unbounded(), {APPEND_ONLY: "true"})])
def test_the_log_of_a_window_or_of_append_only_results_is_kept(
    window: Window, options: dict[str, str]
) -> None:
    """If results only expire, those that can never be among the best are forgotten."""
    session = Session(Stream(SCHEMA, window))
    session.add_all(plans_over(REPLACEABLE, session.stream))
    session.take(RecordBatch.of([Record(0, 1_000, ("alpha", 1))]))
    assert session.live_records() is not None
    session.add(Query("alpha", kind=TOP, options={"size": "2", **options}).named("kept", 3))
    assert session.live_records() is None


def test_without_a_window_the_log_is_the_only_state() -> None:
    rng = random.Random(1)
    recovered, count = compare(Stream(SCHEMA, Unbounded()), random_records(rng, 25), rng)
    assert count
    assert not recovered.state_count


@pytest.mark.slow
@seeds(1, 60)
def test_a_session_is_rebuilt_across_schema_changes(seed: int) -> None:
    """Of equal rows, the right ones live, even if deletions before the log ended the others."""
    rng = random.Random(14 + seed)  # the first seed has such rows at a schema change
    records = random_records(rng, 150)
    schemas = [to_yaml(replace(SCHEMA, joins=SCHEMA.joins[:1])), to_yaml(SCHEMA)]
    undisturbed, recovered = (RecoverableSession(Stream(SCHEMA, TimeWindow(15))) for _ in range(2))
    count = changes = 0
    while records:
        size = rng.randint(1, 8)
        batch, records = RecordBatch.of(records[:size]), records[size:]
        results = lines(undisturbed.take(batch))
        assert lines(recovered.take(batch)) == results
        count += len(results)
        if rng.random() < 0.2:
            text = schemas[changes % 2]
            assert lines(recovered.change(text)) == lines(undisturbed.change(text))
            changes += 1
        if rng.random() < 0.4:
            recovered.rebuild()
    assert count > 20
    assert changes


def test_waiting_records_are_kept_unchanged() -> None:
    """A row inserted and deleted in one instant never lived; a window expression has yet to read it."""
    stream = Stream(SCHEMA, Unbounded(), lateness=5)
    undisturbed, recovered = Session(stream), RecoverableSession(stream, queries=_QUERY_SETS["within"])
    undisturbed.add_all(plans_over(recovered.queries, stream))
    batches = (
        [Record(0, 1_000, ("alpha", 1)), Record(0, 1_020, ("alpha", 2))],
        [Record(0, 1_030, ("alpha", 1)), Record(1, 1_030, ("beta", 1)), Record(1, 1_030, ("beta", 1), True)],
        [Record(0, 1_050, ("alpha", 2))],
    )
    output: list[bytes] = []
    for records in batches:
        batch = RecordBatch.of(records)
        results = lines(undisturbed.take(batch))
        assert lines(recovered.take(batch)) == results
        output += results
        recovered.replace_log()
        recovered.rebuild()
    assert any(b'"within"' in line for line in output)


def test_late_records_remain_late_after_the_log_is_replaced() -> None:
    """The latest record was a deletion, which is not among the live tuples."""
    stream = Stream(SCHEMA, Unbounded())
    recovered = RecoverableSession(stream, queries=QUERIES)
    recovered.take(RecordBatch.of([Record(0, 1_000, ("alpha", 1)), Record(0, 1_030, ("beta", 7), True)]))
    recovered.replace_log()
    assert not recovered.take(RecordBatch.of([Record(1, 1_020, ("beta", 1))]))
    assert recovered.live.counts().late == 1
    assert not recovered.change(to_yaml(replace(SCHEMA, joins=SCHEMA.joins[:1])))
