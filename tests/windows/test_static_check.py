"""The static check compared with exhaustive counting on small automata; its witnesses on the processor."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_schema.budgets import StepBudget, within_steps
from skws_schema.model import Attribute, AttributeType, Relation, Schema
from skws_windows.automata import regular as r
from skws_windows.automata.k_sla import DeterministicAutomaton, deterministic_over
from skws_windows.automata.regular import Limits, Selection, WindowExpression, expression
from skws_windows.guards import guard as g
from skws_windows.guards.alphabet import Alphabet, StreamRecord
from skws_windows.guards.satisfiability import Satisfiability
from skws_windows.language.window_parser import parse_expression, parse_pairs
from skws_windows.overlap_verdict import Bound, OverlapVerdict, check, compile_expression
from skws_windows.processor.stream_processor import Processor
from tests.places import ROOT
from tests.strategies import examples
from tests.window_streams import ALPHABET, regulars, words

THEORY = Satisfiability(ALPHABET)
LETTERS = (g.Compare("=", g.Field("x"), g.GuardConstant(0)), g.Compare("=", g.Field("x"), g.GuardConstant(1)))
PLENTY = 9
"""If automata this small can have 9 starts at once, the number is unbounded."""

SMALL = st.recursive(
    st.sampled_from([r.LetterBlock(LETTERS[0]), r.LetterBlock(LETTERS[1]), r.ANY, r.IDENTITY]),
    lambda inner: st.one_of(
        st.builds(r.Either, inner, inner), st.builds(r.Then, inner, inner), st.builds(r.Repetition, inner)
    ),
    max_leaves=4,
)


def most_at_once(before: DeterministicAutomaton, window: DeterministicAutomaton, *, ending: bool) -> int:
    """The maximum number of open starts, or of ending windows, after any word; PLENTY if it is reached.

    All words at once: the relevant facts of a word are the state of D and the number of
    starts in each live state of E.
    """
    live = _live(window)
    start = (before.initial, (0,) * len(window.table))
    visited, pending, max_count = {start}, [start], 0
    while pending:
        state, counts = pending.pop()
        for letter in range(window.letters):
            after = [0] * len(counts)
            started = [(window.initial, 1)] if state in before.final else []
            for open_state, count in [*enumerate(counts), *started]:
                target = window.table[open_state][letter]
                if target in live:
                    after[target] = min(after[target] + count, PLENTY)
            counted_states = window.final if ending else live
            max_count = max(max_count, min(PLENTY, sum(after[s] for s in counted_states)))
            next_state = (before.table[state][letter], tuple(after))
            if next_state not in visited:
                visited.add(next_state)
                pending.append(next_state)
    return max_count


def _live(window: DeterministicAutomaton) -> frozenset[int]:
    live = set(window.final)
    while True:
        predecessors = {s for s, row in enumerate(window.table) if live & set(row)} - live
        if not predecessors:
            return frozenset(live)
        live |= predecessors


@pytest.mark.check
@examples(200)
@given(before=SMALL, window=SMALL)
def test_verdicts_agree_with_exhaustive_counting(before: r.Regular, window: r.Regular) -> None:
    window_expression = expression([(before, window)])
    verdict = check(window_expression, ALPHABET)
    cells = [cell.signs for cell in THEORY.cells(window_expression.guards)]
    pair = compile_expression(window_expression, THEORY).pairs[0]
    budget = StepBudget(100_000, "counting")
    d, e = (
        deterministic_over(a, window_expression.guards, cells, budget) for a in (pair.before, pair.window)
    )
    if len(d.table) * len(e.table) > 12:
        return
    for bound, ending in ((verdict.open_starts, False), (verdict.windows_per_position, True)):
        is_unbounded = most_at_once(d, e, ending=ending) == PLENTY
        assert bound is (Bound.UNBOUNDED if is_unbounded else Bound.BOUNDED)


def check_witness(verdict: OverlapVerdict, window_expression: WindowExpression, alphabet: Alphabet) -> None:
    witness = verdict.witness
    assert witness is not None
    processor = Processor(window_expression, alphabet)
    replayed_count = witness.prefix + witness.repetitions * witness.loop
    assert replayed_count + witness.suffix == len(witness.records)
    list(processor.process(witness.records[:replayed_count]))
    assert processor.open_starts == witness.open_starts
    last = [
        w for w in processor.process(witness.records[replayed_count:]) if w.last == len(witness.records) - 1
    ]
    assert len(last) == witness.ending
    if window_expression.limits.least == 1 and verdict.open_starts is Bound.UNBOUNDED:
        assert witness.open_starts >= witness.repetitions - 1
    if window_expression.limits.least == 1 and verdict.windows_per_position is Bound.UNBOUNDED:
        assert witness.ending >= witness.repetitions - 1


@examples(25)
@given(st.integers(0, 2).flatmap(lambda k: st.tuples(st.just(k), regulars(k, 4), regulars(k, 4))), words(12))
def test_no_stream_has_more_windows_than_a_bounded_verdict_allows(
    case: tuple[int, r.Regular, r.Regular], word: list[StreamRecord]
) -> None:
    k, before, window = case
    window_expression = expression([(before, window)], k)
    verdict = check(window_expression, ALPHABET)
    compiled_expression = compile_expression(window_expression, THEORY)
    if verdict.witness is not None:
        check_witness(verdict, compiled_expression, ALPHABET)
    if verdict.open_starts is Bound.BOUNDED:
        processor = Processor(compiled_expression, ALPHABET)
        list(processor.process([record._replace(time=0) for record in word * 30]))
        assert processor.open_starts <= 3 * 5**2 * (
            1 + sum(p.window.states for p in compiled_expression.pairs)
        )


@st.composite
def several_pairs(draw: st.DrawFn) -> WindowExpression:
    # In most cases any number of records may precede the end of a window.
    ends = regulars(0, 3)
    window = st.one_of(ends.map(lambda end: r.Then(r.then(r.ANY, r.EVERYTHING), end)), regulars(0, 4))
    before = window.flatmap(lambda found: st.sampled_from((found, r.EVERYTHING)))
    pairs = draw(st.lists(st.tuples(before, window), min_size=1, max_size=3))
    hour = 3_600_000_000
    limits = st.sampled_from((Limits(), Limits(3), Limits(within=hour), Limits(2, within=1_000_000)))
    selection = st.sampled_from((Selection.EVERY, Selection.LONGEST))
    per = st.sampled_from(((), ("x",), ("s",)))
    return expression(pairs, 0, draw(selection), draw(limits), draw(per))


@examples(60)
@given(several_pairs())
def test_replayed_witnesses_have_exactly_the_claimed_windows(window_expression: WindowExpression) -> None:
    """For all pairs, with the selection and the limits."""
    verdict = check(window_expression, ALPHABET)
    assert verdict.witness is not None or verdict.open_starts is not Bound.UNBOUNDED
    if verdict.witness is not None:
        check_witness(verdict, compile_expression(window_expression, THEORY), ALPHABET)


def test_a_start_shared_by_pairs_is_open_once() -> None:
    pairs = [(".*", ". .*"), (".*", ".* [b]"), (".*", ".* [not b]")]
    processor = Processor(compile_expression(parse_pairs(pairs, ALPHABET), THEORY), ALPHABET)
    for count in (1, 2, 3):
        list(processor.process([StreamRecord(1, count, (0, True))]))
        assert processor.open_starts == count


B, U, M = Bound.BOUNDED, Bound.UNBOUNDED, Bound.UNKNOWN
VERDICTS = {
    "open when y > 1 close when y < 0.5": (B, B),
    "every open when y > 1 close when y < 0.5": (U, U),
    "every open when y > 1 close when y < 0.5 at most 10 records": (B, B),
    "every open when y > 1 close when y < 0.5 within 1 hour": (U, U),
    "longest open when y > 1 close when y < 0.5": (B, B),
    "longest open when y > 1 close when y < 0.5 within 1 hour": (U, B),
    "every match [x = 1] [x = 2]* [x = 1]": (B, B),
    "every match . .": (B, B),
    "every match .*": (U, U),
    "every match [x > 1 and x < 1]* [x = 1]": (B, B),
    "every match ([x = 1] [x = 2])+ [x = 3]": (U, U),
    # Only a later record is a start, where the loop leads back to it.
    "every match [x = 1] [x = 2] [x = 1 or x = 2]* [x = 3]": (U, U),
    "every match [x = 1] [x = 2] [x = 3] [x = 4]": (B, B),
    # Between two reals there is another one; there are only two truth values.
    "every open when y > y[-1] close when y < y[-1]": (U, U),
    "every match [y > y[-1] and y < 10 and y[-1] > 0]+ [b]": (U, U),
    "every match [y > y[-1] and y > 90] [y < y[-1]]": (B, B),
    "every match [b and not b[-1]] [not b and b[-1]]": (B, B),
    "every match [b] [b and b[-1]]* [not b[-1]]": (U, B),
    # Texts are compared for equality only, and there are infinitely many.
    "every match [s = s[-1]]* ['red']": (U, U),
    "every match [s != s[-1] and s != s[-2]]+": (U, U),
    "every match [s = 'red' and s[-1] = 'blue']+ [s = 'red']": (B, B),
    # Comparisons with the previous record.
    "every open when time - time[-1] > 30 minutes close when b": (U, U),
    "every match [x > x[-1]]+ [x < x[-1]]": (U, U),
    "every match [x = x[-1] + 1] [x = x[-1] - 1]": (B, B),
    # Order of integers, with constants: no verdict unless types alone exclude it.
    "every open when x < x[-1] and x > 0 and x < 10 close when x > 10": (M, M),
    "every match [x > x[-1] and x > 90] [x < x[-1]]": (B, B),
    # Time does not run back, but a start is kept though its end cannot occur.
    "every match [time > '2026-01-01'] .* [time < '2026-01-01']": (U, B),
    "every match [y > 5] [y > 5 and y[-1] > 5]* [y[-1] < 3 and y > 7]": (U, B),
    "every open when s = 'a' close when s = 'b' per s": (M, M),
    "every open when x = 1 close when x = 2 per s": (U, U),
}


@pytest.mark.parametrize(("text", "bounds"), VERDICTS.items())
def test_verdicts_of_window_expressions(text: str, bounds: tuple[Bound, Bound]) -> None:
    window_expression = parse_expression(text, ALPHABET)
    verdict = check(window_expression, ALPHABET)
    assert (verdict.open_starts, verdict.windows_per_position) == bounds, verdict
    if window_expression.selection == "every" and not window_expression.limits.any:
        reason = {B: "no repeated part", U: "every repetition", M: "it is not known"}[bounds[0]]
        assert reason in verdict.reason
    if U in bounds and window_expression.selection == "every":
        check_witness(verdict, compile_expression(window_expression, THEORY), ALPHABET)


@pytest.mark.check
@pytest.mark.parametrize("order", [1, -1])
def test_the_worst_pair_counts(order: int) -> None:
    pairs = [(".*", "[b]"), (".*", "[b]+"), (".*", "[not b] [b]")][::order]
    pairs_expression = parse_pairs(pairs, ALPHABET)
    verdict = check(pairs_expression, ALPHABET)
    assert (verdict.open_starts, verdict.windows_per_position) == (U, U)
    check_witness(verdict, compile_expression(pairs_expression, THEORY), ALPHABET)
    assert verdict.witness is not None
    assert [r.time for r in verdict.witness.records] == [
        1_000_000 * i for i in range(len(verdict.witness.records))
    ]
    mixed_expression = parse_pairs(
        [(".*", "[b]"), (".*", "[x < x[-1] and x > 0 and x < 10]+ [x > 10]")][::order], ALPHABET
    )
    assert check(mixed_expression, ALPHABET).open_starts is M


@pytest.mark.parametrize(
    ("text", "never"),
    {
        "open when x > 1 and x < 2 close when b": True,
        "first open when b close when b and not b": True,
        "every match [b] .* [x > 0 and x < 0] at most 3 records": True,
        "match ()": True,
        "match [b] after [x > 1 and x < 1]": True,
        "match [b] after [x > 1 and x < 1]*": False,
        "open when y > 1 and y < 2 close when b": False,
        "match [x > x[-1] and x < x[-1]] | [b]": False,
    }.items(),
)
def test_expressions_without_windows_are_recognized(text: str, never: bool) -> None:
    verdict = check(parse_expression(text, ALPHABET), ALPHABET)
    assert verdict.never is never
    if never:
        assert (verdict.open_starts, verdict.windows_per_position) == (B, B)


def test_static_tables_begin_no_windows() -> None:
    relations = (Relation("m", (Attribute("x", AttributeType.INTEGER),)),
                 Relation("t", (Attribute("z", AttributeType.INTEGER),), table=True))  # fmt: skip
    alphabet = Alphabet(Schema("tables", relations, ()))
    assert check(parse_expression("open when t close when m", alphabet), alphabet).never
    assert check(parse_expression("open when z > 1 close when m", alphabet), alphabet).never
    assert not check(parse_expression("open when m close when not t", alphabet), alphabet).never


@pytest.mark.parametrize(
    ("kind", "condition"),
    [
        (AttributeType.NUMBER, "time > 0.5 and time < 1"),
        (AttributeType.BOOLEAN, "time"),
        (AttributeType.TEXT, "time = 'noon'"),
        (AttributeType.INTEGER, "time > 5"),
    ],
)
def test_an_attribute_called_time_is_not_the_event_time(kind: AttributeType, condition: str) -> None:
    relation = Relation("lap", (Attribute("time", kind), Attribute("x", AttributeType.NUMBER)))
    alphabet = Alphabet(Schema("race", (relation,), ()))
    verdict = check(parse_expression(f"every open when {condition} close when x > 1", alphabet), alphabet)
    assert verdict.open_starts is Bound.UNBOUNDED
    assert verdict.witness is not None
    assert [record.time for record in verdict.witness.records] == [
        1_000_000 * i for i in range(len(verdict.witness.records))
    ]


@pytest.mark.parametrize(
    "text",
    [
        "every match [b]+ [b] [{0} is not null and {0}[-1] is null]",
        "every open when {0} is not null and {0}[-1] is null close when b",
        "every match [{0} is null]+ [{0} > {0}[-1] and {0} < 5] [{0}[-1] is null]",
    ],
)
def test_the_name_of_an_attribute_does_not_change_the_verdict(text: str) -> None:
    verdicts = []
    for name in ("time", "tick"):
        attributes = (Attribute(name, AttributeType.NUMBER), Attribute("b", AttributeType.BOOLEAN))
        alphabet = Alphabet(Schema("race", (Relation("lap", attributes),), ()))
        verdict = check(parse_expression(text.format(name), alphabet), alphabet)
        verdicts.append((verdict.open_starts, verdict.windows_per_position))
    assert verdicts[0] == verdicts[1]


def test_bounds_of_the_schema_count_as_promises() -> None:
    def alphabet(high: float | None, low: float | None = None) -> Alphabet:
        attributes = (
            Attribute("level", AttributeType.NUMBER, low, high),
            Attribute("off", AttributeType.BOOLEAN),
        )
        return Alphabet(Schema("bounded", (Relation("m", attributes),), ()))

    text = "every open when level > 10 close when off"
    assert check(parse_expression(text, alphabet(None)), alphabet(None)).open_starts is U
    assert check(parse_expression(text, alphabet(10)), alphabet(10)).open_starts is B
    below_limit = "every open when level < 5 close when off"
    assert check(parse_expression(below_limit, alphabet(None, 4)), alphabet(None, 4)).open_starts is U
    assert check(parse_expression(below_limit, alphabet(None, 5)), alphabet(None, 5)).open_starts is B
    witness = check(parse_expression(text, alphabet(11)), alphabet(11)).witness
    assert witness is not None
    levels = [record.row[0] for record in witness.records[: witness.repetitions]]
    assert all(isinstance(level, float) and 10 < level <= 11 for level in levels)


def test_an_incomplete_check_is_not_called_bounded() -> None:
    with within_steps(1_000):
        verdict = check(parse_expression(f"every match [b] .* [b] {'. ' * 20} [b]", ALPHABET), ALPHABET)
    assert (verdict.open_starts, verdict.windows_per_position) == (M, M)
    assert "it is not known" in verdict.reason


@pytest.mark.check
def test_a_window_whose_deterministic_automaton_is_exponential_has_a_verdict() -> None:
    """Each of the last 30 records may be the one after which only 30 may follow: 2^30 macrostates."""
    tail = "[y > 3 or x > 2]"
    long_expression = parse_expression(f"match [y > 3]* [x > 3] {tail * 30}", ALPHABET)
    verdict = check(long_expression, ALPHABET)
    assert (verdict.open_starts, verdict.windows_per_position) == (U, U)
    check_witness(verdict, compile_expression(long_expression, THEORY), ALPHABET)
    short_expression = parse_expression(f"match [x > 3] {tail * 30} after .* [x > 3] {tail * 30}", ALPHABET)
    assert check(short_expression, ALPHABET).open_starts is B


def test_checks_of_hard_conditions_are_limited() -> None:
    """Conditions that z3 cannot decide count as possible, and are not called bounded."""
    with within_steps(100):
        verdict = check(parse_expression("every open when x > 1 and x < 0 close when b", ALPHABET), ALPHABET)
    assert (verdict.open_starts, verdict.windows_per_position) == (M, M)
    assert "its 4 conditions combine in too many ways" in verdict.reason
    assert "'first' or a limit" in verdict.reason


@pytest.mark.check
def test_a_check_that_is_too_large_is_not_called_bounded() -> None:
    # All subsets of eleven independent conditions are letters.
    parts = " ".join(f"([x = {i}] | [y = {i}] | [n.x = {i}])*" for i in range(12))
    verdict = check(parse_expression(f"match {parts} [b]", ALPHABET), ALPHABET)
    assert verdict.open_starts in (U, M)


PREPARED = """
    import gc, threading
    from skws_schema.model import Attribute, AttributeType, Relation, Schema
    from skws.queries.windowed.window_plan import WindowPlan

    NUMBER, TEXT = AttributeType.NUMBER, AttributeType.TEXT
    SCHEMA = Schema("ward", (
        Relation("vitals",
            (Attribute("patient", TEXT), Attribute("temp", NUMBER), Attribute("pulse", NUMBER))),
        Relation("notes", (Attribute("patient", TEXT), Attribute("text", TEXT)), search=("text",)),
    ), ())
    TEXTS = (
        "open when temp > 38 close when temp < 38 per patient",
        "every open when temp > temp[-1] close when pulse < 50.5 and not temp is null",
        "first open when text:'fever' close when temp + pulse > 3 or patient = 'x'",
        "longest open when patient = patient[-1] close when notes and text:'calm'",
        "match [temp > 38]+ [vitals and pulse > 1]",
    )
    def verdict(text):
        overlap = WindowPlan.of_text(SCHEMA, text).verdict()
        return overlap.open_starts, overlap.windows_per_position, overlap.reason, overlap.never
"""

HAMMER = """
    expected = [verdict(text) for text in TEXTS]
    gc.set_threshold(50)  # garbage is collected in whichever thread makes the next object
    wrong = []
    together = threading.Barrier(8)
    def hammer(first):
        together.wait()
        for turn in range(4):
            at = (first + turn) % len(TEXTS)
            try:
                if verdict(TEXTS[at]) != expected[at]:
                    wrong.append(TEXTS[at])
            except BaseException as error:
                wrong.append(repr(error))
    threads = [threading.Thread(target=hammer, args=(n,)) for n in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    import z3
    assert z3.z3._main_ctx is None, "an object was made in the context of the whole process"
    print(wrong or "all alike")
"""

INTERRUPTED = """
    import os, signal, time
    seen, stopping = [], []
    signal.signal(signal.SIGINT, lambda *_: seen.append(time.monotonic()))
    def interrupt():
        for sent in range(1, 41):
            time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
            end = time.monotonic() + 10
            while len(seen) < sent and time.monotonic() < end:
                time.sleep(0.001)
            if len(seen) < sent:
                break
        stopping.append(True)
    threading.Thread(target=interrupt, daemon=True).start()
    while not stopping:
        verdict(TEXTS[1])
    print(len(seen))
"""


def script(text: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(PREPARED) + textwrap.dedent(text)]


def test_checks_in_many_threads_equal_those_in_one() -> None:
    process = subprocess.run(
        script(HAMMER), cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert (process.returncode, process.stdout.strip()) == (0, "all alike"), process.stderr[-2_000:]


def test_no_interrupt_is_lost_in_a_check() -> None:
    """If z3 consumed an interrupt, a search could not be stopped."""
    process = subprocess.run(
        script(INTERRUPTED), cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert process.stdout.strip() == "40", process.stderr[-2_000:]
