"""Faults put back into the product, to prove that simulations find them.

    python -m tests.sim.mutants             all of them: the table of docs/architecture/simulation.md
    python -m tests.sim.mutants NAME ...    some of them

A mutant is a patch of a function or two, by source text, in a separate process.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

from tests.places import ROOT
from tests.sim.hosts import simulation
from tests.sim.plan import draw_plan, options_of

MOST_STEPS: Final = 50_000
PAGE: Final = Path("docs/architecture/simulation.md")
_FROM: Final = "<!-- mutants -->"


@dataclass(frozen=True, slots=True)
class Patch:
    """``target``: ``module:Class.function``; ``old`` occurs in its source once; ``new`` replaces it."""

    target: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """``fault``: what is wrong. ``settings``: those of the simulations that are not drawn."""

    name: str
    fault: str
    patches: tuple[Patch, ...]
    settings: Mapping[str, Any]


MUTANTS: Final[dict[str, Mutant]] = {}
"""By name."""
RARE: Final = frozenset(
    {
        "damaged-end-dropped",
        "empty-segment",
        "limit-of-the-next-process",
        "outbox-behind",
        "state-not-secured",
    }
)
"""Mutants that need several faults in a row, which are rarely drawn; ``test_regressions.py`` finds them."""


def _mutant(name: str, fault: str, *patches: tuple[str, str, str], **settings: Any) -> None:
    assert name not in MUTANTS
    MUTANTS[name] = Mutant(name, fault, tuple(Patch(*patch) for patch in patches), settings)


_FILES: Final = "skws.durable"
_JOURNAL: Final = "skws.jobs.journal:Journal"
_LOCAL: Final = "skws.jobs.local:LocalWatch"
_SINKS: Final = "skws.sinks"

_mutant(
    "full-disk",
    "a full disk leaves half a batch in a file, and the mark counts it",
    (f"{_FILES}:GrowingFile.append", "self.truncate(size)", "pass"),
    (f"{_FILES}:GrowingFile.append", "self._broken, self._synced = True, False", "self._synced = False"),
    (f"{_SINKS}.base:WholeSink._whole", "self._broken = True", "self._broken = False"),
    host="local",
    kinds=("full", "short", "interrupt"),
)
_mutant(
    "no-checksums",
    "checkpoints are read without a check of their checksums",
    (
        "skws.durable:_frame_at",
        '== b"%08x " % _checksum(\n        text, owner, file_offset\n    )',
        "is not None",
    ),
)
_mutant(
    "state-not-checked",
    "the state of a run is read without a check of its checksums",
    ("skws.state_database:StateDatabase.get", "rows[0] != _row(kind, name, value)", "False"),
)
_mutant(
    "short-write",
    "a write that the system cut short counts as complete",
    (
        f"{_FILES}:write_all",
        "view = view[os.write(handle, view) :]",
        "view = view[os.write(handle, view) and len(view) :]",
    ),
)
_mutant(
    "journal-not-synced",
    "a sync of the journal does not reach the disk",
    (f"{_JOURNAL}.sync", "self._file.sync()", "pass"),
)
_mutant(
    "results-before-journal",
    "results leave before their records are durable in the journal",
    (f"{_LOCAL}._write", "self._checkpoint.journal.sync()", "pass"),
)
_mutant(
    "mark-before-sync",
    "a file's mark is written before its bytes are synced",
    (f"{_SINKS}.file_sinks:AppendedFile.mark", "self._file.sync()", "self._file.size"),
)
_mutant(
    "new-file-not-synced",
    "the name of a new file is not synced in its folder",
    (f"{_FILES}:GrowingFile.sync", "sync_folder(self.path.parent)", "pass"),
)
_mutant(
    "replaced-not-synced",
    "a file replaces another before its bytes are on the disk",
    (f"{_FILES}:_write", "os.fsync(handle)", "pass"),
)
_mutant(
    "rename-not-synced",
    "a loss of power undoes the replacement of a file",
    (f"{_FILES}:replace_file", "sync_folder(path.parent)", "pass"),
)
_mutant(
    "sync-failure-forgotten",
    "a file whose sync failed counts as synced",
    (f"{_FILES}:GrowingFile.sync", "self._broken = True", "self._synced = True"),
    host="local",
    kinds=("error", "power"),
)
_mutant(
    "commit-before-flush",
    "the checkpoint commits a batch that is not durable in the sinks",
    (f"{_LOCAL}._flush_sinks", "self._open_fanout.flush()", "pass"),
    (
        f"{_LOCAL}.commit",
        "self._committed_at = self.clock.now()",
        "self._committed_at = self.clock.now(); self._open_fanout.flush()",
    ),
)
_mutant(
    "committed-batch-again",
    "a run that resumes writes the last committed batch again",
    ("skws.jobs.worker:resume", "entry.number <= committed", "entry.number < committed"),
    (f"{_SINKS}.base:BatchSink.write", "batch > self._done", "batch >= self._done"),
)
_mutant(
    "batch-skipped",
    "a run that resumes does not write the first batch after the committed one",
    ("skws.jobs.worker:resume", "entry.number <= committed", "entry.number <= committed + 1"),
)
_mutant(
    "batch-repeated",
    "a sink writes its last batch again",
    (f"{_SINKS}.base:BatchSink.write", "batch > self._done", "batch >= self._done"),
)
_mutant(
    "letters-repeated",
    "dead letters of a repeated batch are written again",
    ("skws.jobs.fanout:SinkFanout.write", " and not self._dead_letters.has(batch)", ""),
)
_mutant(
    "tail-kept",
    "the lines of a broken run after its mark are not recognised",
    (
        f"{_SINKS}.file_sinks:_TailLines.missing_lines",
        "self._counts_before if self.cut_at is not None else self._counts_before + self._counts_after",
        "Counter()",
    ),
)
_mutant(
    "journal-tail-kept",
    "an unfinished entry stays in the journal, and others follow it",
    (f"{_JOURNAL}.repair", "read_file(path)[: self._end(path)]", "read_file(path)"),
    host="local",
)
_mutant(
    "damaged-end-dropped",
    "a damaged entry at the end of the journal counts as one that was never complete",
    (f"{_JOURNAL}._check_end", "if not is_torn(data, end, self._checksum_name(path))", "if False"),
    host="local",
)
_mutant(
    "retention-of-one-window",
    "the journal keeps one window instead of two",
    ("skws_purging.retention:Retention._is_past", "- 2 * length", "- length // 2"),
    ("skws_purging.retention:Retention._is_past", "- 2 * (size + 1)", "- size // 2"),
)
_mutant(
    "empty-segment",
    "a segment of the journal that has lost its entries replaces those before it",
    (
        f"{_JOURNAL}.first_to_keep",
        "[segment for segment in self.segments if segment.size] or self.segments",
        "self.segments",
    ),
    host="local",
)
_mutant(
    "retention-for-ever",
    "no segment of the journal is removed while a process runs",
    (f"{_JOURNAL}.trim", "self.segments[0].first < first", "first < 0"),
    host="local",
)
_mutant(
    "parquet-forgotten",
    "a run that resumes does not check which Parquet files exist",
    (f"{_SINKS}.file_sinks:ParquetSink._opened", "default=NONE)", "default=NONE) and NONE"),
)
_mutant(
    "progress-ahead",
    "the table's progress is one batch ahead of its rows",
    (f"{_SINKS}.database_sink:DatabaseSink._write", "(self._key, batch)", "(self._key, batch + 1)"),
)
_mutant(
    "progress-apart",
    "the table's progress is committed before its rows",
    (
        f"{_SINKS}.database_sink:DatabaseSink._put",
        "self._transaction(lambda cursor: self._write(cursor, batch, results))",
        "(self._transaction("
        "lambda cursor: self._execute(cursor, self._statements.advance, (self._key, batch))),"
        " self._transaction(lambda cursor: [self._execute_many(cursor, s, r)"
        " for s, r in self._statements.of(results)]))",
    ),
    host="local",
)
_mutant(
    "limits-forgotten",
    "the limit of an alert starts again in each process",
    ("skws.jobs.fanout:Routing._restore_limits", "self._limiters[name].restore(states[name])", "pass"),
)
_mutant(
    "output-repeated",
    "standard output does not record which batches it has",
    (f"{_SINKS}.formats:StdoutSink._keep", "self._progress.keep(batch)", "pass"),
)
_mutant(
    "flush-after-failure",
    "a failing run flushes results whose records may be lost",
    (f"{_LOCAL}.close", "failed=failed and self._journal_synced()", "failed=failed"),
)
_mutant(
    "window-end",
    "a tuple lives a microsecond too long",
    ("skws_windows.window:TimeWindow.end", "start + self.length", "start + self.length + 1"),
)
_mutant(
    "count-window-end",
    "a tuple of a count window expires one arrival too early",
    ("skws_windows.window:ArrivalWindow.end", "(self.size + 1)", "self.size"),
    window="count",
)
_mutant(
    "lost-retraction",
    "a result is not retracted when one of its tuples is deleted",
    (
        "skws.queries.keywords.engine:KeywordEngine._batch",
        "retractions = self._results.retractions(ended_slots, self._store.live.tuples.end)",
        "retractions = self._results.retractions(ended_slots, self._store.live.tuples.end)[1:]",
    ),
)
_mutant(
    "late-one-early",
    "a record with the time of the latest one counts as late",
    (
        "skws.queries.order:StreamOrder._without_late",
        "is_late: Flags = time < latest_times",
        "is_late: Flags = time <= latest_times",
    ),
    (
        "skws.queries.order:StreamOrder._without_late",
        "(time[:1] >= self.horizon)",
        "(time[:1] > self.horizon)",
    ),
)
_mutant(
    "snapshot-of-the-dead",
    "the snapshot of a new query has results that have ended",
    (
        "skws.queries.keywords.engine:KeywordEngine._first_results",
        "results.end > self.now",
        "results.end > 0",
    ),
)
_mutant(
    "command-twice",
    "the journal does not record how far commands were read",
    (f"{_LOCAL}._log_batch", "self._command_queue.read_to,", "0,"),
)
_mutant(
    "command-not-durable",
    "a command is answered before it is durable in the journal",
    (f"{_LOCAL}._write", "results or dead_letters or entry.commands", "results or dead_letters"),
    host="local",
)
_mutant(
    "schema-forgotten",
    "the journal's segments do not contain the schemas before them",
    ("skws.jobs.worker:BatchWorker.prior_state", "queries.leading_schemas", "()"),
)
_mutant(
    "queries-forgotten",
    "the journal's segments do not contain the standing queries before them",
    ("skws.jobs.worker:BatchWorker.prior_state", "queries.all_queries()", "()"),
)
_mutant(
    "equal-rows-forgotten",
    "a run that resumes does not know which of several equal rows a deletion has ended",
    (
        "skws.queries.keywords.kind:LiveKeywords.snapshot",
        "return {SHARED: state} if state else {}",
        "return {}",
    ),
    window="time",
    actions=80,
)
_mutant(
    "half-a-line",
    "a partially written line of a file counts as a record",
    ("skws.sources.growing_files:_lines_end", "not _is_object(line)", "not line"),
)
_mutant(
    "offset-behind",
    "the offset of a file is that before the last record",
    (
        "skws.sources.growing_files:_json_part",
        "return FilePortion(Chunk.of(read_split(split, schema)), end)",
        "return FilePortion(Chunk.of(read_split(split, schema)), max(start, end - 1))",
    ),
    host="local",
    source="files",
)
_mutant(
    "bad-not-counted",
    "bad records of a batch are dropped without a dead letter",
    (
        "skws.jobs.intake:BadRecordPolicy.refuse",
        "return self.dead_letter_lines(malformed(bad))",
        "return self.dead_letter_lines(malformed(bad)[1:])",
    ),
)


_POSTGRES: Final = "skws.sources.postgres"
_SPARK: Final = "skws.spark.streaming"

_mutant(
    "shared-publication",
    "a second run over a database drops the publication of the first",
    (
        f"{_POSTGRES}.slot:publication_of",
        "return address.slot\n    return",
        "return _SHARED\n    return",
    ),
    (f"{_POSTGRES}.slot:publication_of", "!= _OURS else address.slot", "!= _OURS else _SHARED"),
    (
        f"{_POSTGRES}.slot:ensure_publication",
        "elif comments[name] == _OWN and name",
        "elif False and name",
    ),
    (f"{_POSTGRES}.slot:drop_publication", "if not readers:", "if True:"),
    source="postgres",
    host="local",
)
_mutant(
    "snapshot-unsorted",
    "the rows of a snapshot arrive in the order of their tables, and some count as late",
    (f"{_POSTGRES}.spool:SnapshotSpool.sort", "if not any(", "if True or not any("),
    source="postgres",
)
_mutant(
    "rewrite-unseen",
    "a table that is rewritten during a snapshot is missing in it",
    (f"{_POSTGRES}.spool:check_files", "if names:", "if False:"),
    source="postgres",
)
_mutant(
    "replacement-without-entry",
    "a segment replaces the log although its entry could not be written",
    (f"{_JOURNAL}.open", "int(paths[-1].stem) <= self._last_number(paths[-2])", "False"),
)
_ROWS: Final = "skws.store.row_files:RowFile"
_mutant(
    "rows-not-synced",
    "the log refers to a row file that is not on the disk yet",
    (f"{_ROWS}.write", "file.sync()", "pass"),
    host="local",
    window="none",
    asks="keywords",
)
_mutant(
    "rows-removed-early",
    "the row files of the former entry are removed before the commit that does without them",
    (f"{_JOURNAL}.rewrite", "self.sync()", "self.sync(); self._files.trim(stored.files)"),
    host="local",
    window="none",
    asks="keywords",
)
_BITMAPS: Final = "skws.store.row_bitmaps"
_mutant(
    "bitmaps-of-another-query",
    "a start reads bitmaps that were stored for another query",
    (f"{_BITMAPS}:keys_of", "repr(predicates).encode()", 'b""'),
    host="local",
    window="none",
    asks="keywords",
)
_mutant(
    "snapshot-unsecured",
    "a snapshot that a killed process left is used before it would survive a loss of power",
    (f"{_POSTGRES}.spool:SnapshotSpool.secure", "sync_folder(self.folder)", "pass"),
    source="postgres",
)
_mutant(
    "confirmed-too-early",
    "PostgreSQL may forget what is not in the journal yet",
    (
        f"{_POSTGRES}.change_feed:PostgresFeed._from_log",
        "return chunk, reader.position",
        "self._stream.confirm(reader.position.lsn)\n    return chunk, reader.position",
    ),
    source="postgres",
)
_mutant(
    "change-again",
    "a change of a transaction that was read in part comes again",
    (
        f"{_POSTGRES}.changes:LogReader._next_moment",
        "self._number <= self._known",
        "self._number < self._known",
    ),
    source="postgres",
)
_mutant(
    "message-again",
    "messages that a broker delivers twice are read twice",
    (
        "skws.sources.kafka.topic_reader:PartitionReader.fill",
        "(message.offset() or 0) >= queue.fetched_end",
        "True",
    ),
    source="kafka",
)
_mutant(
    "partition-from-its-end",
    "a new partition is read from its end",
    ("skws.sources.kafka.topic_feed:KafkaFeed._with_new_partitions", "begin, _ =", "_, begin ="),
    source="kafka",
)
_mutant(
    "offset-not-kept",
    "the offset of a partition does not move past delivered messages",
    (
        "skws.sources.kafka.topic_feed:KafkaFeed.poll",
        "position = replace(position, next=reader.offsets(), horizon=horizon)",
        "pass",
    ),
    source="kafka",
)

_mutant(
    "epoch-ignored",
    "a shard's server continues after a micro-batch that Spark repeats",
    (f"{_SPARK}.shard_server:ShardServer._work", "if epoch != self.epoch:", "if self.epoch < 0:"),
    host="spark",
)
_mutant(
    "outbox-not-synced",
    "Spark considers a micro-batch done before its results are on the disk",
    (f"{_SPARK}.run_directory:OutputLog.put", "size = self._file.sync()", "size = self._file.size"),
    host="spark",
)
_mutant(
    "outbox-trimmed",
    "results leave the outbox before all sinks have them",
    (f"{_SPARK}.run_directory:OutputLog.trim", "if last <= committed and", "if last <= committed + 1 and"),
    host="spark",
)
_mutant(
    "handed-over-twice",
    "a micro-batch that Spark repeats is put into the outbox again",
    (f"{_SPARK}.output_merger:OutputCommitter.put", "if output.number == self._outbox.last:", "if False:"),
    host="spark",
)
_mutant(
    "later-commands",
    "a repeated micro-batch has commands that arrived later",
    (
        f"{_SPARK}.reader:FeedReader.readBetweenOffsets",
        'self._commands(start["commands"], end["commands"])',
        'self._commands(start["commands"], None)',
    ),
    host="spark",
)
_mutant(
    "chunk-forgotten",
    "a rebuilt shard does not get the last chunk of its log",
    (
        f"{_SPARK}.processor:MeshProcessor._log",
        "range(mark.oldest, mark.next)",
        "range(mark.oldest, mark.next - 1)",
    ),
    host="spark",
)


_mutant(
    "settled-too-early",
    "records within the lateness find the tuples that they join swept out",
    ("skws.queries.order:StreamOrder.horizon", "- self._lateness", "- self._lateness // 4"),
    lateness="yes",
    window="time",
)
_mutant(
    "out-of-order",
    "patterns read records in order of arrival instead of time",
    (
        "skws.queries.order:Order.in_order",
        'waiting = waiting.take(np.argsort(waiting.time, kind="stable"))',
        "waiting = waiting",
    ),
    lateness="yes",
    window="time",
    asks="all",
)
_mutant(
    "table-forgotten",
    "a run that resumes does not load its static table",
    ("skws.jobs.worker:resume", "worker.load_tables(checkpoint.tables())", "pass"),
    tables="yes",
)
_mutant(
    "posted-before",
    "a post counts as delivered before it is made",
    (
        f"{_SINKS}.webhook:WebhookSink._put",
        "self._post(batch, part,",
        "self._mark(batch, part); self._post(batch, part,",
    ),
    hook="letters",
)
_mutant(
    "posts-put-aside-twice",
    "results that a run put aside twice stay in the file of undelivered ones",
    (f"{_SINKS}.webhook:WebhookSink._opened", 'progress.get("letters", {}), run.tell', "{}, run.tell"),
    hook="letters",
)
_mutant(
    "given-up-at-once",
    "results that a server cannot accept now are dropped",
    (f"{_SINKS}.webhook:WebhookSink._give_up", "self._dead_letters.write", "(lambda _: None)"),
    hook="letters",
)
_mutant(
    "limit-not-changed",
    "a changed limit of an alert takes effect only at the next start",
    ("skws.jobs.fanout:Routing._is_same_limit", "bool(is_same)", "bool(old_alert)"),
)
_mutant(
    "limit-of-the-next-process",
    "repeated batches have the limits of the process that repeats them",
    ("skws.jobs.fanout:Routing._restore", "if routes is not None", "if False"),
)
_mutant(
    "size-not-limited",
    "a query that a command adds has the size of the job instead of its own",
    ("skws.spec.query_spec:Query.named", "self.max_size or max_size", "max_size"),
)
_mutant(
    "memory-short",
    "results are omitted when memory runs short",
    (
        "skws_schema.budgets:memory_checked",
        "        check()",
        "        try:\n            check()\n        except Exception:\n            return",
    ),
)
_mutant(
    "pattern-position",
    "a rebuilt pattern counts the tuples of its stream from the beginning",
    ("skws.queries.patterns.stream:PatternStream.seek", "self.position = position", "pass"),
    asks="all",
)
_mutant(
    "best-not-rebuilt",
    "only the first operator of a session is rebuilt from the log",
    (
        "skws.queries.session:Session._inputs",
        "if not replayed or each.keeps is not None]",
        "if not replayed or each.keeps is not None][: 1 if replayed else None]",
    ),
    asks="all",
)
_mutant(
    "pattern-behind-dropped",
    "a rebuilt pattern does not count dropped records at the end of a micro-batch",
    (
        "skws.queries.patterns.stream:PatternStream.begin",
        "map(self._placed, past)",
        "(self._ordered(one) if n else self._placed(one) for n, one in enumerate(past))",
    ),
    asks="all",
)
_mutant(
    "pattern-of-the-dead",
    "a new pattern gets matches that have left the window",
    ("skws.queries.patterns.stream:PatternStream.alive_after", "if end > self._now", "if True"),
    asks="all",
)
_mutant(
    "truncation-unseen",
    "the truncation of a table is passed over",
    (
        f"{_POSTGRES}.changes:ChangeDecoder.truncation",
        "return [table.reader.truncation(moment.time) for table in tables]",
        "return []",
    ),
    source="postgres",
)
_mutant(
    "counted-by-each-shard",
    "records that all shards see are counted by each of them",
    (f"{_SPARK}.shard_server:Shard._stats", "if self._share.first or self._share.alone:", "if True:"),
    host="spark",
)
_mutant(
    "never-swept",
    "ended tuples stay in memory",
    ("skws.queries.keywords.keyword_operator:KeywordOperator.purge", "self.compact(horizon)", "pass"),
)
_mutant(
    "never-forgotten",
    "tuples that may be deleted are tracked for ever",
    (
        "skws.queries.keywords.engine:KeywordEngine.reach",
        "self._resolver.forget(horizon)",
        "pass",
    ),
)
_mutant(
    "chunks-for-ever",
    "the log of a shard keeps everything",
    (f"{_SPARK}.shard_server:Shard._cut", "list(takewhile(is_over, log))", "[]"),
    host="spark",
)
_mutant(
    "recent-forgotten",
    "a pattern loses its window when the log of its shard is replaced by live tuples",
    (f"{_SPARK}.shard_server:Shard._is_over_recent", "not keeps or", "True or"),
    host="spark",
    window="none",
    asks="all",
)


# Past faults of the product that simulations found.
_mutant(
    "journal-trusted",
    "a run that resumes relies on journal entries whose sync has failed",
    (f"{_JOURNAL}.repair", "durable=True", "durable=False"),
)
_mutant(
    "removal-escapes",
    "a file of a checkpoint that cannot be removed causes a traceback",
    (f"{_FILES}:remove_file", 'explained(f"{path}: cannot remove")', "suppress()"),
)
_mutant(
    "read-escapes",
    "a file of a checkpoint that cannot be read causes a traceback",
    (f"{_FILES}:read_file", 'explained(f"{path}: cannot read")', "suppress()"),
)
_mutant(
    "folder-escapes",
    "a folder of a checkpoint that cannot be created causes a traceback",
    (f"{_FILES}:checkpoint_folder", 'explained(f"{path}: cannot be created")', "suppress()"),
    host="spark",
)
_mutant(
    "register-trusted",
    "a run on Spark that resumes relies on commands whose sync has failed",
    (f"{_SPARK}.run_directory:Register.__init__", "durable=True", "durable=False"),
    host="spark",
)
_mutant(
    "parquet-error-hidden",
    "a failed removal hides why a Parquet file could not be written, and causes a traceback",
    (f"{_SINKS}.base:_replace_file", "with suppress(OSError):", "if True:"),
)
_mutant(
    "parquet-name-not-synced",
    "a Parquet file that an earlier process renamed may not be durable",
    (f"{_SINKS}.file_sinks:ParquetSink._take_over", "sync_folder(self._folder)", "pass"),
)
_mutant(
    "slot-unmarked",
    "a slot is created before the note about it is on the disk",
    (f"{_POSTGRES}.spool:SnapshotSpool.begin", "sync_folder(self.folder)", "pass"),
    source="postgres",
)
_mutant(
    "snapshot-not-synced",
    "the names of a snapshot's files are not synced before its position counts",
    (
        f"{_POSTGRES}.spool:SnapshotSpool.finish",
        "replace_file(self.header, text, durable=True, mode=PRIVATE)",
        "replace_file(self.header, text, mode=PRIVATE)",
    ),
    (f"{_POSTGRES}.spool:SnapshotSpool.finish", "sync_folder(self.folder)  # the rows", "pass  # the rows"),
    source="postgres",
)
_mutant(
    "outbox-trusted",
    "a run on Spark that resumes relies on an outbox whose sync has failed",
    (f"{_SPARK}.run_directory:OutputLog._read", "durable=True", "durable=False"),
    host="spark",
)
_mutant(
    "outbox-behind",
    "a run on Spark continues from an outbox that has lost the last micro-batch that Spark considers done",
    (f"{_SPARK}.output_merger:OutputCommitter.__init__", "if self.last < last_written:", "if False:"),
    host="spark",
)
_mutant(
    "commands-skipped",
    "a run on Spark skips commands that arrived while it was down",
    (
        f"{_SPARK}.run_directory:CommandLog.begin",
        "None if control is None else self._command_queue.read_to",
        "register.read_to",
    ),
    host="spark",
)

_mutant(
    "gone-counted-twice",
    "each shard that divides tuples counts the records of a removed relation",
    (
        "skws.queries.partitioning.parts:key_partitioning",
        "schema = replace(schema, evolution=evolution)",
        "was, schema = schema.evolution.removed_relations, replace(schema, evolution=evolution)",
    ),
    (
        "skws.queries.partitioning.parts:key_partitioning",
        "KeyPartitioning(tuple(columns))",
        "KeyPartitioning(tuple(None if n in was else one for n, one in enumerate(columns)))",
    ),
    host="spark",
    source="files",
    window="time",
    asks="keywords",
)
_mutant(
    "state-of-another-shard",
    "a move takes the state of a query from a shard that has not answered it since the move before",
    (
        "skws.spark.streaming.layout:_shard_blobs",
        "shares[group].owns(name) or (kind, name) not in blobs",
        "True",
    ),
    host="spark",
    asks="all",
)
_mutant(
    "gone-divided-apart",
    "shards divide records of a removed relation without regard to what they joined",
    ("skws.queries.partitioning.parts:key_partitioning", "replace(schema, evolution=evolution)", "schema"),
    host="spark",
    source="files",
    window="time",
    asks="keywords",
)
_mutant(
    "state-not-secured",
    "a start relies on a commit of the state whose last sync has failed",
    ("skws.state_database:StateDatabase._secure", "sync_folder(self.path.parent)", "pass"),
    hook="letters",
)
_mutant(
    "past-sent-twice",
    "a new query reads the records before it twice if the task that sent them has failed",
    (
        "skws.spark.streaming.shard_server:Shard.send_past",
        "self._past_chunks[chunk.place] = ",
        "self._past_chunks[len(self._past_chunks), False] = ",
    ),
    host="spark",
    asks="all",
)
_mutant(
    "begins-before-settled",
    "a run that resumes restores the begins of results before the waiting records that updated them",
    (
        "skws.jobs.worker:BatchWorker.replay",
        "settled=final,",
        "settled=final if entry.reached is not None else None,",
    ),
    (
        "skws.jobs.worker:BatchWorker.replay",
        "self._late.clear()",
        "final is None or self.live.replay(RecordBatch.of(()), {}, settled=final); self._late.clear()",
    ),
    host="local",
    asks="all",
)
_mutant(
    "fronts-of-earlier",
    "the oldest of equal rows is forgotten when the stream time has advanced without records",
    ("skws.queries.session:Session.settle", "each.seek()", "pass"),
    host="spark",
)
_mutant(
    "fronts-of-replay",
    "the oldest of equal rows is forgotten by a run that ends right after it has resumed",
    (
        "skws.queries.session:Session.replay",
        "self.seek(self.position, self.now if reached is None else reached, settled)",
        "self._state.order.settle(settled)",
    ),
    host="local",
    asks="all",
)
_mutant(
    "zeros-before-answer",
    "zeros, left by a loss of power where a sync had failed, hide the next command or answer",
    ("skws.jobs.control:_parse_json", 'line.lstrip(b"\\0")', "line"),
)
_mutant(
    "torn-command",
    "a partial line, left by a loss of power, hides the next command or answer",
    ("skws.jobs.control:ControlFolder._append", '(b"\\n" if _is_torn(path) else b"")', 'b""'),
)


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """Patch the product in this process. Raises ValueError if it no longer has what a patch replaces."""
    before: list[tuple[FunctionType, CodeType]] = []
    sources: dict[str, str] = {}
    try:
        for patch in mutant.patches:
            original, replacement = _patched(patch, sources)
            before.append((original, original.__code__))
            original.__code__ = replacement.__code__  # other modules may have imported the function
        yield
    finally:
        for function, code in reversed(before):
            function.__code__ = code


def _patched(patch: Patch, sources: dict[str, str]) -> tuple[FunctionType, FunctionType]:
    """A function of the product, and its patched copy. ``sources``: the patched sources, by target."""
    module_name, _, path = patch.target.partition(":")
    module = import_module(module_name)
    *owners, name = path.split(".")
    owner: Any = module
    for owner_name in owners:
        owner = getattr(owner, owner_name)
    original = _function(inspect.getattr_static(owner, name))
    code = sources.get(patch.target) or textwrap.dedent(inspect.getsource(original))
    if code.count(patch.old) != 1:
        raise ValueError(f"not once in {patch.target}: {patch.old}")
    code = sources[patch.target] = code.replace(patch.old, patch.new)
    namespace: dict[str, Any] = {}
    exec(compile(code, f"<{patch.target}>", "exec", annotations.compiler_flag), module.__dict__, namespace)
    return original, _function(namespace[name])


def _function(function: Any) -> FunctionType:
    """The function below a property, a context manager, a method of a class."""
    while True:
        if isinstance(function, property):
            function = function.fget
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            assert isinstance(function, FunctionType)
            return function


@dataclass(frozen=True, slots=True)
class Caught:
    """``steps``: until the finding, over all seeds from 0 on. ``seed``: None if there was none."""

    name: str
    seed: int | None
    steps: int
    finding: str


def hunt(mutant: Mutant, most: int = MOST_STEPS) -> Caught:
    """Run simulations with a mutant, in this process, until one fails."""
    steps = seed = 0
    with mutated(mutant):
        while steps < most:
            options = replace(options_of(seed), **mutant.settings)
            simulated = simulation(options)
            try:
                simulated.run(draw_plan(seed, options))
            except Exception as error:  # any error shows the mutant
                return Caught(mutant.name, seed, steps + simulated.steps, f"{type(error).__name__}: {error}")
            steps += max(1, simulated.steps)
            seed += 1
    return Caught(mutant.name, None, steps, "")


def hunt_in_process(name: str, most: int = MOST_STEPS) -> Caught:
    """Like ``hunt``, in a separate process."""
    command = [sys.executable, "-m", "tests.sim.mutants", "--in-process", "--steps", str(most), name]
    process = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONHASHSEED": "0"},
    )
    if process.returncode:
        raise RuntimeError(f"{name}: {process.stderr}")
    return Caught(**json.loads(process.stdout.splitlines()[-1]))


def table(caught: Iterable[Caught]) -> Iterator[str]:
    """The lines of the table in the docs."""
    yield "| mutant | fault | seed | steps until found |"
    yield "|---|---|---|---|"
    for result in caught:
        seed = "not found" if result.seed is None else str(result.seed)
        yield f"| `{result.name}` | {MUTANTS[result.name].fault} | {seed} | {result.steps:,} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--steps", type=int, default=MOST_STEPS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE}")
    arguments = parser.parse_args()
    mutants = [MUTANTS[name] for name in arguments.names or MUTANTS if arguments.names or name not in RARE]
    if arguments.in_process:
        (mutant,) = mutants
        caught = hunt(mutant, arguments.steps)
        sys.stdout.write(json.dumps({name: getattr(caught, name) for name in caught.__slots__}) + "\n")
        return 0
    results = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for result in pool.map(lambda mutant: hunt_in_process(mutant.name, arguments.steps), mutants):
            seed = "NOT FOUND" if result.seed is None else f"seed {result.seed}"
            print(f"{result.name}: {seed}, {result.steps:,} steps: {result.finding[:150]}", flush=True)
            results.append(result)
    if arguments.write:
        page = ROOT / PAGE
        prefix, _, remainder = page.read_text().partition(_FROM)
        after = remainder.partition(_FROM)[2]
        page.write_text(f"{prefix}{_FROM}\n" + "\n".join(table(results)) + f"\n{_FROM}{after}")
    return int(any(result.seed is None for result in results))


if __name__ == "__main__":
    sys.exit(main())
