"""Updates of results: a retraction and a result with one id in one instant are reported as one update.

The key of a tuple is its identity, so a result keeps its id when its rows are updated: each state of the rows
is a *version* of the result. Meshes only know versions. They emit a retraction (``-``) for a version that
ended and a result (``+``) for one that was completed, in order of time. ``Updates`` turns these into reports
for users: the changes of the set of live results by id, from instant to instant. A version that replaces
another at the instant of its end is an update (``~``), which keeps the begin of the result; it is not
reported if nothing visible changed.

With a lateness, records may change reports on earlier instants. Then ``CorrectedUpdates`` compares the last
report on an id with the present version, and reports the difference. Under a count window, whose ends have no
time, ``CountedUpdates`` decides by arrivals when a result is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

import orjson
from msgspec.structs import replace

from skws.results.result import Changed, LiveResult, Result, ResultTuple, instant_of
from skws.spec.enums import ToldUpdates
from skws_schema.model import Schema
from skws_windows.window import MICROSECOND, ArrivalWindow, Window

Id: TypeAlias = tuple[str, str]
"""The name of a query, and the id of a result."""

Instant: TypeAlias = float | None
"""An instant of results: their time, or the number of the instant in a batch."""

_SPARE_ENTRIES: Final = 1024  # expired entries that may stay


class Begin(NamedTuple):
    """The begin of a live result whose rows were updated since. ``name`` is that of its query.

    ``version`` is the begin of its present version, ``begin`` the begin of the result, ``end`` the end that
    its window determines: in seconds since the epoch, None if unknown. ``score``: the JSON of the score of
    one of the best results, if a log has only live tuples; then ``begin`` is the reported one.
    """

    name: str
    id: str
    version: float | None
    begin: float | None
    end: float | None
    score: dict[str, Any] | None = None


def update_of(before: Result, after: Result, begin: float | None) -> Result | None:
    """The update of a result from one version to the next; None if nothing visible changed."""
    changed = changes(before.tuples, after.tuples)
    is_same = before.network == after.network and before.until == after.end and not changed
    if is_same and not _fades(after) and _keywords(before) == _keywords(after):
        return None
    return replace(after, op="~", start=begin, at=after.start, changed=changed, snapshot=False)


def changes(before: Sequence[ResultTuple], after: Sequence[ResultTuple]) -> Changed:
    """The attributes whose values differ, by tuple, in order of ``after``."""
    pairs = [(old, new) for old, new in zip(before, after, strict=True) if old.row != new.row]
    if any(old.id != new.id for old, new in pairs):  # they are in another order
        by_id = {old.id: old for old in before}
        pairs = [(by_id[new.id], new) for new in after]
    changed = []
    for old, new in pairs:
        old_row = old.row
        names = tuple(name for name, value in new.row.items() if old_row[name] != value)
        if names:
            changed.append((new.id, names))
    return tuple(changed)


def _fades(result: Result) -> bool:
    """True if the score depends on when the present version began."""
    return result.score is not None and result.score.half_life is not None


def _keywords(result: Result) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.id, each.keywords) for each in result.tuples]


class Updates:
    """Reports the results of an engine whose records come in order.

    ``schema``: that of the next results. ``replaces``: an update is reported as a retraction and a result
    with the same id that begins then.
    """

    def __init__(self, schema: Schema, *, replaces: bool = False) -> None:
        self.schema = schema
        self.replaces = replaces
        self._begins: dict[Id, Begin] = {}
        self._expected_begins: dict[Id, Begin] = {}
        # Only the last of each, as there may be no log that reads them.
        self._unlogged_begins: dict[Id, Begin] = {}
        self._open_results: list[Result] = []  # of an instant that may continue
        self._open_instant: Instant = None
        self._limit = _SPARE_ENTRIES

    def __len__(self) -> int:
        """The number of live results that were updated; some may have expired."""
        return len(self._begins)

    @property
    def learns(self) -> bool:
        """True if a replay must pass the results here again, as ``expect`` does not restore everything."""
        return False

    def take(
        self,
        results: list[Result],
        retractions: int,
        reached: float | None,
        instants: Sequence[Instant] | None = None,
    ) -> list[Result]:
        """Process the next results and retractions, in order; returns the reports that are complete.

        ``retractions``: their number. ``reached``: the latest time before their batch. ``instants``: the
        instant of each result, if its time does not determine it: under a count window a result may have
        begun later than the record that completes it came.
        """
        if not self._compares(retractions):
            return results  # the usual case
        result_instants = [self._instant(each, reached) for each in results] if instants is None else instants
        return [
            report
            for instant_results in self._instants(results, result_instants)
            for report in self._reports(instant_results)
        ]

    def _compares(self, retractions: int) -> bool:
        """True if the next results have to be compared with others."""
        return bool(retractions or self._open_results)

    def _instant(self, result: Result, previous_time: float | None) -> float | None:
        del previous_time  # all are later
        return instant_of(result)

    def remaining_reports(self) -> list[Result]:
        """The remaining reports, at the end of a batch."""
        results, self._open_results = self._open_results, []
        return self._reports(results)

    def with_reported_begin(self, result: Result) -> Result:
        """A live result, with the begin that was reported."""
        begin = self._begin_of(self._begins.get(_key_of(result)), result)
        return replace(result, start=begin.begin) if begin else result

    def begins(self) -> list[Begin]:
        """The begins of results that were updated since the last call; a log keeps them with its records."""
        begins, self._unlogged_begins = self._unlogged_begins, {}
        return list(begins.values())

    def all_begins(self) -> list[Begin]:
        """The begins of all live results that were updated."""
        return [*self._expected_begins.values(), *self._begins.values()]

    def expect(self, begins: Iterable[Begin]) -> None:
        """Accept the output of ``begins``, after the records that it was logged with were processed again.

        Begins that the replay itself found are discarded: present queries may be younger than the records.
        """
        self._unlogged_begins.clear()
        self._begins.clear()
        for begin in begins:
            if begin.begin == begin.version:  # its result has ended, or began again
                self._expected_begins.pop((begin.name, begin.id), None)
            else:
                self._expected_begins[begin.name, begin.id] = begin

    def forget(self, now: int, horizon: int) -> None:
        """Forget results that have expired at ``now``, once there are many.

        No record comes before ``horizon``; both are ticks.
        """
        del horizon  # all records come later
        if len(self._begins) + len(self._expected_begins) > self._limit:
            seconds = now / MICROSECOND
            self._keep_begins(lambda each: each.end is None or each.end > seconds)
            self._limit = 2 * (len(self._begins) + len(self._expected_begins)) + _SPARE_ENTRIES

    def _keep_begins(self, lives: Callable[[Begin], bool]) -> None:
        self._begins = {name: begin for name, begin in self._begins.items() if lives(begin)}
        self._expected_begins = {name: begin for name, begin in self._expected_begins.items() if lives(begin)}
        self._unlogged_begins = {name: begin for name, begin in self._unlogged_begins.items() if lives(begin)}

    def begin_anew(self, results: Iterable[Result]) -> None:
        """Called after a change of the schema ended results: the same versions may begin again."""
        # The retractions have already been noted for the log.

    def follow(self, first: str, name: str, now: int) -> None:
        """Give another query the reported results of the ``first`` one, from the tick ``now`` on."""
        del now  # results that are over then are not reported again
        begins = [each for each in self.all_begins() if each.name == first]
        copies = {(name, each.id): each._replace(name=name) for each in begins}
        self._begins |= copies
        self._unlogged_begins |= copies

    def remove(self, name: str) -> None:
        """Forget the results of a query; a later query of that name does not know their begins."""
        self._forget_begins([each for each in self.all_begins() if each.name == name])
        self._begins = {key: each for key, each in self._begins.items() if key[0] != name}
        self._expected_begins = {key: each for key, each in self._expected_begins.items() if key[0] != name}

    def _begin_of(self, begin: Begin | None, result: Result) -> Begin | None:
        """The known begin of a version's result, if it is not the begin of the version."""
        if begin is None and self._expected_begins:
            begin = self._expected_begins.get(_key_of(result))
        return begin if begin is not None and begin.version == result.start else None

    def _instants(self, results: Iterable[Result], instants: Iterable[Instant]) -> Iterator[list[Result]]:
        """The results of each instant that is over; the last one may continue."""
        for instant, group in groupby(zip(instants, results, strict=True), key=itemgetter(0)):
            if self._open_results and self._open_instant != instant:
                yield self._open_results
                self._open_results = []
            self._open_instant = instant
            self._open_results += [result for _, result in group]

    def _reports(self, results: list[Result]) -> list[Result]:
        """The reports on an instant."""
        reports: list[Result | None] = []
        retraction_indexes: dict[Id, int] = {}
        begins_before: dict[Id, Begin] = {}
        # Indexes of the new versions, each with the retraction that it replaces, if any, and its index.
        additions: dict[Id, tuple[int, Result | None, int]] = {}
        for result in results:
            key = _key_of(result)
            if result.op != "-":
                retraction_index = retraction_indexes.pop(key, None)
                if retraction_index is None:
                    additions[key] = len(reports), None, 0
                    reports.append(result)
                else:
                    former_result = reports[retraction_index]
                    assert former_result is not None  # noqa: S101 - a retraction stays until a version replaces it
                    update = self._update(former_result, result)
                    if update is None or not self.replaces:
                        reports[retraction_index] = None
                    additions[key] = len(reports), former_result, retraction_index
                    reports.append(_report_on(update, self.replaces))
                continue
            begin = self._begin_of(self._begins.pop(key, None), result)
            self._expected_begins.pop(key, None)
            index, former_result, retraction_index = additions.pop(key, (None, None, 0))
            if index is not None and former_result is None:  # found and retracted in one instant
                reports[index] = None
                continue
            if index is not None and former_result is not None:  # updated and retracted in one instant
                reports[retraction_index] = reports[index] = None
                result = replace(former_result, end=result.end)  # noqa: PLW2901 - retracts the version before
            elif begin is not None:
                result = replace(result, start=begin.begin)  # noqa: PLW2901 - the reported begin
            if begin is not None:
                begins_before[key] = begin
            retraction_indexes[key] = len(reports)
            reports.append(result)
        self._forget_begins(each for name, each in begins_before.items() if name in retraction_indexes)
        return [report for report in reports if report is not None]

    def _forget_begins(self, begins: Iterable[Begin]) -> None:
        """Forget the begins of ended results: under another schema the same versions may begin again."""
        for begin in begins:
            key = begin.name, begin.id
            noted = self._unlogged_begins.get(key)
            if noted is not None and noted.version == begin.version:
                del self._unlogged_begins[key]  # no log has it
            else:
                self._unlogged_begins[key] = begin._replace(begin=begin.version)

    def _update(self, before: Result, after: Result) -> Result | None:
        """The update from a retraction, which has the reported begin, to the next version."""
        update = update_of(before, after, before.start)
        if update is None or not self.replaces:
            begin = Begin(after.name, after.id, after.start, before.start, after.end)
            self._begins[_key_of(after)] = begin
            self._note([begin])
        return update

    def _note(self, begins: Iterable[Begin]) -> None:
        """Note begins for the log."""
        self._unlogged_begins.update(((begin.name, begin.id), begin) for begin in begins)


class CountedUpdates(Updates):
    """Reports the results of an engine under a count window, whose ends have no time.

    ``window``: its ticks count arrivals.
    """

    def __init__(self, schema: Schema, window: ArrivalWindow, *, replaces: bool = False) -> None:
        super().__init__(schema, replaces=replaces)
        self._window = window
        self._turn: int | None = None  # the tick of the last turn
        self._begins_at_turn: frozenset[Begin] = frozenset()

    def forget(self, now: int, horizon: int) -> None:
        """Once a window has passed since the last turn, forget begins that have not changed since."""
        del horizon  # no record is late
        if self._turn is not None and now <= self._window.end(self._turn):
            return
        self._keep_begins(lambda each: each not in self._begins_at_turn)
        self._begins_at_turn = frozenset(chain(self.all_begins(), self._unlogged_begins.values()))
        self._turn = now


def _key_of(result: Result) -> Id:
    return result.name, result.id


@dataclass(slots=True)
class _Version:
    """A version. ``end``: of its retraction, None if it was not retracted. ``result``: as it was found."""

    start: float | None
    end: float | None
    result: Result


@dataclass(slots=True)
class _History:
    """The versions of one id that records may still correct, by their begin.

    ``begin``: the begin of the result during the first version, if earlier ones were forgotten.
    ``first_known``: the begin of the first version that the query knows, if there are others.
    ``last_report``: the last report on the id.
    """

    versions: list[_Version] = field(default_factory=list)
    begin: float | None = None
    first_known: float | None = None
    last_report: Result | None = None

    def for_query(self, name: str) -> _History:
        """A history for another query: the present version, no earlier one, and the begin of the result."""
        last = self.versions[-1]
        version = _Version(last.start, last.end, replace(last.result, name=name))
        copy = _History([version])
        copy.begin_at_last(self.begin_at(len(self.versions) - 1))
        copy.last_report = self.last_report and replace(self.last_report, name=name)
        return copy

    def apply(self, result: Result) -> None:
        """Add a version, or the end of one."""
        indexes = [index for index, each in enumerate(self.versions) if each.start == result.start]
        if not indexes:
            version = _Version(result.start, None, result)
            self.versions.append(version)
            self.versions.sort(key=lambda each: _at(each.start))
        else:
            version = self.versions[indexes[0]]
        if result.op == "-":
            version.end = result.end
        else:
            version.end, version.result = None, result

    def drop_unlived(self) -> None:
        """Forget versions that late records have ended before they began; at least one version stays."""
        lived = [each for each in self.versions if each.end is None or each.end > _at(each.start)]
        self.versions = lived or self.versions[-1:]

    def begin_at(self, index: int) -> float | None:
        """The begin of the result that has the version at ``index``."""
        while not (is_first := self._is_first_known(index)) and index:
            if self.versions[index - 1].end != self.versions[index].start:
                break
            index -= 1
        return self.begin if not (index or is_first or self.begin is None) else self.versions[index].start

    def _is_first_known(self, index: int) -> bool:
        return self.first_known is not None and _at(self.versions[index].start) <= self.first_known

    def begin_at_last(self, begin: float | None) -> None:
        """Set the begin of the result during the last version, whatever versions are known."""
        if begin == self.begin_at(len(self.versions) - 1):
            pass  # follows from the versions
        elif _at(begin) < _at(self.versions[0].start):
            self.begin = begin
        else:
            self.first_known = _at(begin)
            self.begin = None if len(self.versions) == 1 else self.begin
        if self.last_report is not None:
            self.last_report = replace(self.last_report, start=begin)

    def trim(self, horizon: float) -> None:
        """Forget versions that ended at or before a horizon, except the last one."""
        while len(self.versions) > 1 and _at(self.versions[0].end, default=horizon + 1) <= horizon:
            first, second = self.versions[:2]
            self.begin = self.begin_at(0) if first.end == second.start else None
            del self.versions[0]

    def is_over(self, horizon: float) -> bool:
        """True if it ended at or before a horizon, so that no record can change it any more."""
        last = self.versions[-1]
        end = last.result.end if last.end is None else last.end
        return end is not None and end <= horizon


def _at(seconds: float | None, default: float = float("-inf")) -> float:
    return default if seconds is None else seconds


def as_new_result(update: Result) -> Result:
    """An update as a separate result, which follows the retraction of the former version."""
    return replace(update, op="+", start=update.at, at=None, changed=())


@lru_cache(maxsize=8)
def _keyed_relations(schema: Schema) -> set[str]:
    """The relations whose rows may be updated."""
    removed_relations = schema.evolution.removed_relations
    present = (
        relation for number, relation in enumerate(schema.relations) if number not in removed_relations
    )
    return {relation.name for relation in present if relation.key and not relation.table}


def _without_unlived(reports: Iterable[Result]) -> list[Result]:
    """The reports without results that come with their retraction and ended before they began."""
    insertions: dict[Id, int] = {}
    kept_reports: list[Result | None] = []
    for result in reports:
        key = _key_of(result)
        if result.op == "+":
            insertions[key] = len(kept_reports)
        elif result.op == "-" and key in insertions and _at(result.end) <= _at(result.start):
            kept_reports[insertions.pop(key)] = None
            continue
        kept_reports.append(result)
    return [each for each in kept_reports if each is not None]


def _report_on(update: Result | None, replaces: bool) -> Result | None:
    """The report on a version that replaces another; None if nothing visible changed."""
    return as_new_result(update) if update is not None and replaces else update


class CorrectedUpdates(Updates):
    """Reports the results of an engine whose records may come late.

    All changes up to the time that was reached before the records are one instant: the present.
    """

    def __init__(self, schema: Schema, *, replaces: bool = False) -> None:
        super().__init__(schema, replaces=replaces)
        self._horizon = float("-inf")
        self._histories: dict[Id, _History] = {}

    def go_on(self, before: Updates, results: Iterable[Result]) -> None:
        """Replace another ``Updates``, given its live ``results``, each as its present version."""
        self._unlogged_begins = {(begin.name, begin.id): begin for begin in before.begins()}
        for result in self._updatable(results):
            history = self._histories.setdefault(_key_of(result), _History())
            insertion = replace(result, op="+", snapshot=False)
            history.apply(insertion)
            history.last_report = insertion
            history.begin_at_last(before.with_reported_begin(insertion).start)

    def _updatable(self, results: Iterable[Result]) -> Iterator[Result]:
        """The results with rows that may be updated."""
        keyed = _keyed_relations(self.schema)
        return (result for result in results if any(member.relation in keyed for member in result.tuples))

    def __len__(self) -> int:
        return len(self._histories)

    @property
    def learns(self) -> bool:
        return bool(_keyed_relations(self.schema))  # the earlier versions, which late records may change

    def _compares(self, retractions: int) -> bool:
        del retractions
        return True  # results of earlier instants may be corrections

    def _instant(self, result: Result, previous_time: float | None) -> float | None:
        return max(_at(instant_of(result)), _at(previous_time))

    def with_reported_begin(self, result: Result) -> Result:
        history = self._histories.get(_key_of(result))
        for index, version in enumerate(history.versions if history else ()):
            if history is not None and version.start == result.start:
                return replace(result, start=self._begin_at(history, index))
        return result

    def all_begins(self) -> list[Begin]:
        """The begins of all versions: a late record may make an earlier one the last again."""
        begins = []
        for (name, result_id), history in self._histories.items():
            for index, version in enumerate(history.versions):
                begin, end = self._begin_at(history, index), version.end
                if begin != version.start or history.first_known == begin:
                    end = version.result.end if end is None else end
                    begins.append(Begin(name, result_id, version.start, begin, end))
        return begins

    def expect(self, begins: Iterable[Begin]) -> None:
        computed, self._unlogged_begins = self._unlogged_begins, {}
        expected: dict[Id, dict[float | None, Begin]] = {}
        for begin in begins:
            expected.setdefault((begin.name, begin.id), {})[begin.version] = begin
        for key in computed.keys() | expected.keys():
            if (history := self._histories.get(key)) is not None:
                begins_by_version = expected.get(key, {})
                first, version = history.versions[0].start, history.versions[-1].start
                if first != version and first in begins_by_version:
                    history.begin = begins_by_version[first].begin
                    if version not in begins_by_version and key not in computed:
                        continue
                # Without a logged begin, the result began with the present version. Earlier versions may
                # precede it: another shard had the result then.
                history.begin_at_last(
                    begins_by_version[version].begin if version in begins_by_version else version
                )

    def forget(self, now: int, horizon: int) -> None:
        del now
        self._horizon = horizon / MICROSECOND
        if len(self._histories) > self._limit:
            self._histories = {
                name: each for name, each in self._histories.items() if not each.is_over(self._horizon)
            }
            self._unlogged_begins = {
                name: each for name, each in self._unlogged_begins.items() if name in self._histories
            }
            self._limit = 2 * len(self._histories) + _SPARE_ENTRIES

    def begin_anew(self, results: Iterable[Result]) -> None:
        for result in results:
            history = self._histories.get(_key_of(result))
            if history is not None:
                history.first_known = _at(result.start)
                self._note([Begin(result.name, result.id, result.start, result.start, result.end)])

    def follow(self, first: str, name: str, now: int) -> None:
        histories = {
            (name, result_id): each.for_query(name)
            for (query, result_id), each in self._histories.items()
            if query == first and not each.is_over(now / MICROSECOND)
        }
        self._histories |= histories
        self._note(begin for each in histories.values() if (begin := self._begin(each)))

    def remove(self, name: str) -> None:
        histories = [history for key, history in self._histories.items() if key[0] == name]
        self._note(
            begin._replace(begin=begin.version) for history in histories if (begin := self._begin(history))
        )
        self._histories = {key: history for key, history in self._histories.items() if key[0] != name}

    def _reports(self, results: list[Result]) -> list[Result]:
        reports: list[Result] = []
        changed_keys: dict[Id, None] = {}
        keyed = _keyed_relations(self.schema)
        for result in results:
            key = _key_of(result)
            # A change of the schema may have removed a relation with a key, and retracts its results.
            if key not in self._histories and not any(each.relation in keyed for each in result.tuples):
                reports.append(result)
                continue
            self._histories.setdefault(key, _History()).apply(result)
            changed_keys[key] = None
        for key in changed_keys:
            reports += self._difference(self._histories[key])
        lived_reports = _without_unlived(reports)
        return sorted(lived_reports, key=lambda each: (_at(instant_of(each)), each.op != "-", each.id))

    def _difference(self, history: _History) -> Iterator[Result]:
        """The reports that bring the last report on an id up to date."""
        history.trim(self._horizon)
        if not self.replaces:  # else each version was reported separately
            history.drop_unlived()
        before, last = history.last_report, history.versions[-1]
        begin = last.start if self.replaces else history.begin_at(len(history.versions) - 1)
        insertion = replace(last.result, op="+", start=begin)
        if (
            before is not None
            and before.op != "-"
            and before.end is not None
            and before.end <= _at(last.start)
        ):
            before = None  # it had expired
        if last.end is None:
            if before is None or before.op == "-":
                history.last_report = insertion
                yield insertion
            elif self.replaces:
                history.last_report, reports = self._replacement(before, last)
                yield from reports
            else:
                history.last_report = insertion
                yield from self._update_reports(before, last, begin)
            if (moved_begin := self._begin(history)) is not None:
                self._note([moved_begin])
            elif before is not None and before.op != "-" and before.start != begin:
                # Otherwise an earlier part of the log would determine its begin.
                self._note([Begin(insertion.name, insertion.id, last.start, begin, last.result.end)])
            return
        returns = before is None or (before.op == "-" and _at(before.end) < _at(last.end))
        if self.replaces and before is not None and not returns:
            begin = before.start
        retraction = replace(last.result, op="-", start=begin, end=last.end, score=None, snapshot=False)
        if (
            before is not None
            and before.op == "-"
            and (before.start, before.end) == (retraction.start, retraction.end)
        ):
            return
        if returns:
            if _at(retraction.end) <= _at(insertion.start):
                return  # a late record has ended it before it began
            yield insertion
        history.last_report = retraction
        yield retraction

    def _update_reports(self, before: Result, last: _Version, begin: float | None) -> Iterator[Result]:
        update = update_of(replace(before, until=before.end), last.result, begin)
        if update is None and before.start != begin:
            update = replace(last.result, op="~", start=begin, at=last.start, snapshot=False)
        if update is not None:
            yield update

    def _replacement(self, before: Result, last: _Version) -> tuple[Result, list[Result]]:
        """The result that is reported last from now on, and the reports of the change."""
        update = update_of(replace(before, until=before.end), last.result, before.start)
        if update is None:
            return replace(last.result, op="+", start=before.start), []
        insertion = as_new_result(update)
        return insertion, [replace(before, op="-", end=last.start, score=None, snapshot=False), insertion]

    def _begin(self, history: _History) -> Begin | None:
        last, begin = history.versions[-1], self._begin_at(history, len(history.versions) - 1)
        if begin == last.start:
            return None
        return Begin(last.result.name, last.result.id, last.start, begin, last.result.end)

    def _begin_at(self, history: _History, index: int) -> float | None:
        """The begin of the result that has the version at ``index``, as reported."""
        if not self.replaces:
            return history.begin_at(index)
        version, report = history.versions[index], history.last_report
        is_reported = version is history.versions[-1] and report is not None and report.op != "-"
        return report.start if report is not None and is_reported else version.start


def updates_of(schema: Schema, lifespans: Window, lateness: int, choice: ToldUpdates) -> Updates:
    """The ``Updates`` of an engine; ``lateness``: in microseconds, 0 under a count window."""
    replaces = choice is ToldUpdates.REPLACE
    if isinstance(lifespans, ArrivalWindow):
        return CountedUpdates(schema, lifespans, replaces=replaces)
    return CorrectedUpdates(schema, replaces=replaces) if lateness else Updates(schema, replaces=replaces)


class ShardUpdates:
    """Reports updates whose former version one shard has retracted and whose next version another has found.

    Each shard has the results of certain root tuples. If a keyword moves from one tuple to another, another
    tuple may become the root. The begins of such results are only known here, so they are part of the state.
    Reports of one shard on an id stay unchanged: the shard knows the instants, which times do not determine
    under a count window. ``replaces``: see ``Updates``.
    """

    def __init__(self, *, replaces: bool) -> None:
        self._replaces = replaces
        # By the name of the query, the id, and the begin that the shard knows.
        self._begins: dict[tuple[str, str, float | None], Begin] = {}
        self._limit = _SPARE_ENTRIES

    def __len__(self) -> int:
        """The number of live results that moved from shard to shard; some may have expired."""
        return len(self._begins)

    def snapshot(self) -> bytes:
        """The state; empty if there is none."""
        return orjson.dumps([*map(list, self._begins.values())]) if self._begins else b""

    def restore(self, state: bytes) -> None:
        """Inverse of ``snapshot``."""
        self._begins.clear()
        for begin in map(Begin._make, orjson.loads(state) if state else ()):
            self._note(begin)

    def remove(self, name: str) -> None:
        """Forget the results of a query; a later query of that name does not know their begins."""
        self._begins = {key: each for key, each in self._begins.items() if key[0] != name}

    def take(self, results: Sequence[tuple[int, LiveResult]]) -> list[LiveResult]:
        """The reports that a single engine would make, from the results of all shards.

        ``results``: each with the number of its shard, in order of time, retractions first.
        """
        if not (self._begins or any(result.op == "-" for _, result in results)):
            return [result for _, result in results]
        self._forget(results[-1][1] if results else None)
        reports: list[Result | None] = []
        retractions: dict[Id, tuple[int, int]] = {}  # indexes of retractions, and their shards
        for shard, encoded in results:
            result = encoded.parsed
            if not result.network or result.place is not None or result.snapshot:
                if result.snapshot:  # a query that begins only knows present versions
                    self._begins.pop((*_key_of(result), result.start), None)
                reports.append(result)
                continue
            key = _key_of(result)
            result = self._with_known_begin(result)
            if result.op == "-":
                retractions[key] = len(reports), shard
            elif result.op == "+" and key in retractions:
                index, other_shard = retractions.pop(key)
                former = reports[index]
                if other_shard != shard and former is not None and former.start != former.end == result.start:
                    update = update_of(former, result, former.start)
                    if update is None or not self._replaces:
                        self._note(Begin(*key, result.start, former.start, result.end))
                        reports[index] = None
                    reports.append(_report_on(update, self._replaces))
                    continue
            reports.append(result)
        return [each for each in reports if each is not None]

    def _with_known_begin(self, result: Result) -> Result:
        """A retraction or update of a result, with the begin that is known here."""
        if result.op == "+":
            return result
        key = *_key_of(result), result.start
        if key not in self._begins:
            return result
        begin = self._begins.pop(key)
        if result.op != "-":
            self._note(begin._replace(end=result.end))
        return replace(result, start=begin.begin)

    def _note(self, begin: Begin) -> None:
        self._begins[begin.name, begin.id, begin.version] = begin

    def _forget(self, last: LiveResult | None) -> None:
        """Forget results that had expired at the time of the ``last`` one, once there are many."""
        if last is None or len(self._begins) <= self._limit:
            return
        now = _at(instant_of(last.parsed))
        self._begins = {key: each for key, each in self._begins.items() if _at(each.end, now + 1) > now}
        self._limit = 2 * len(self._begins) + _SPARE_ENTRIES
