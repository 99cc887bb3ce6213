"""Checks in many threads at once, each test in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from tests.places import ROOT

PREPARED = """
    import gc, threading
    from skws_schema.model import Attribute, AttributeType, Relation, Schema
    from skws.queries.windowed.plan import WindowPlan

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
        found = WindowPlan.of_text(SCHEMA, text).verdict()
        return found.open_starts, found.windows_per_position, found.reason, found.never
"""

HAMMER = """
    expected = [verdict(text) for text in TEXTS]
    gc.set_threshold(50)  # garbage is collected in whichever thread makes the next object
    wrong = []
    together = threading.Barrier(8)
    def hammer(first):
        together.wait()
        for turn in range(8):
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


def test_checks_in_many_threads_are_those_of_one() -> None:
    ran = subprocess.run(script(HAMMER), cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, "all alike"), ran.stderr[-2_000:]


def test_no_interrupt_is_lost_in_a_check() -> None:
    """z3 would take them for itself, and a search could not be stopped."""
    ran = subprocess.run(
        script(INTERRUPTED), cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.stdout.strip() == "40", ran.stderr[-2_000:]
