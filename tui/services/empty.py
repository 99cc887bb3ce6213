"""What is said of the list of results: why it is empty and the next thing to do, or what is not in it."""

from __future__ import annotations

from skws.watch.metrics import Metrics
from skws.wording import counted
from tui.services.run import Run
from tui.services.view import View


def why_empty(view: View, query: str | None, *, filtered: bool, source: Run | None) -> str:
    """A line or two for the user."""
    if source is None:
        return (
            "No source: start with --source or --replay.\n"
            "The schema can be edited with F3, the command line searches replays."
        )
    if view.failure:
        return f"The run has ended: {view.failure}\nMend that and start again; F6 shows the log."
    if filtered and len(view.results):
        return "Nothing that is listed matches the filter.\nEsc clears it."
    if view.metrics is None:
        step = f": {view.log[-1].text}" if view.log else ""
        return f"The engine is starting{step}.\nKeywords can be typed meanwhile; F6 shows the log."
    if not view.queries:
        return f"No query stands.\nType keywords above and press Enter, for example: {_example(view)}"
    name = "these queries" if query is None else repr(query)
    found = view.found(query)
    return _all_ended(view.metrics, found, name) if found else _why_no_result(view.metrics, name)


def notice(view: View, unseen: int, *, network: str | None, filtered: int | None) -> str:
    """What the list leaves out, in one line. ``filtered``: so many match the filter, None without one."""
    parts = [f"▲ {unseen:,} new (g)"] if unseen else []
    if network is not None:
        parts.append(f"network {network} (esc)")
    if filtered is not None:
        parts.append(f"{filtered:,} match the filter (esc)")
    results = view.results
    if results.dropped:
        parts.append(f"{results.dropped:,} older ones dropped: the list holds {results.capacity:,}")
    if view.skipped:
        parts.append(f"{view.skipped:,} not shown: they came too fast")
    return "  ".join(parts)


def _all_ended(metrics: Metrics, found: int, name: str) -> str:
    told = f"All {found:,} results of {name} have" if found > 1 else f"The one result of {name} has"
    then = "New ones appear" if metrics.state != "ended" else "With a longer --window they live longer"
    return f"{told} ended ({_seen(metrics)}).\n{then}; e keeps ended results in the list."


def _why_no_result(metrics: Metrics, name: str) -> str:
    seen = _seen(metrics)
    if metrics.state != "ended":
        return f"No result for {name} yet ({seen}).\nF4 shows which networks are waited for."
    if not metrics.tuples:
        return "The source gave nothing.\nF6 shows the log."
    return (
        f"No joined tuples contain all keywords ({seen}).\n"
        "Type other keywords, or start with a longer --window or a larger --max-size."
    )


def _seen(metrics: Metrics) -> str:
    return f"{counted(metrics.tuples, 'tuple')} so far"


def _example(view: View) -> str:
    if view.schema.name == "movies":
        return "tarantino travolta"
    searched = [relation.name for relation in view.schema.relations if relation.search]
    return f"{searched[0]}:word" if searched else "a word"
