"""``skws networks``: the candidate networks of a query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Annotated

import orjson

from skws.cli import options
from skws.cli.data import schema_and_words
from skws.cli.option_values import query_text
from skws.cli.terminal import stdout_bytes, tell
from skws.keywords.parse import parse_query
from skws.keywords.plan import MOST, Plan, network_counts
from skws.queries.windowed.window_checks import check_window
from skws.sinks.base import destination
from skws.sinks.text import escaped, visible
from skws_mesh.candidate_networks import CandidateNetwork
from skws_mesh.tree import Tree
from skws_schema.budgets import memory_checked
from skws_schema.errors import UsageError, quantity
from skws_schema.model import Schema
from skws_windows.window import Unbounded, Window, parse_window


class NetworksFormat(StrEnum):
    TEXT = "text"
    JSON = "json"
    COUNT = "count"


@dataclass(frozen=True)
class NetworksOptions(options.ScopeOptions):
    """The options of ``skws networks``."""

    schema: options.MaybeSchema = None
    output_format: Annotated[
        NetworksFormat, options.result_option("--format", "-f", help="Format of the networks.")
    ] = NetworksFormat.TEXT
    without: options.Without = None
    memory: options.Memory = None
    limit: options.Limit = None


@options.expanded
def networks(opts: NetworksOptions, query: options.SourceAndWords = None) -> None:
    """The candidate networks of a query: the shapes of its results.

    skws networks tarantino travolta --schema examples/movies/schema.yaml
    """
    schema, words = schema_and_words(query or [], opts.schema)
    if not words:
        raise UsageError("no QUERY: expected keywords")
    parsed = parse_query(query_text(words, opts.without), schema, match_names=opts.match_names)
    for note in parsed.notes:
        tell(note)
    # Networks do not depend on the window, which is only checked.
    plan = Plan(schema, parsed, _valid_window(schema, opts.window), opts.max_size)
    if opts.output_format is NetworksFormat.TEXT and opts.limit is None:
        _check_listed(plan)
    with destination(None, stdout_bytes()) as out:
        for line in _FORMATS[opts.output_format](plan, opts.limit):
            out.write(line)


def _valid_window(schema: Schema, window: str | None) -> Window:
    """The window. Raises UsageError if it is invalid."""
    parsed_window = Unbounded() if window is None else parse_window(window)
    check_window(schema, parsed_window)
    return parsed_window


def _check_listed(plan: Plan) -> None:
    """Raises UsageError if the networks are too many to sort."""
    sizes, complete = network_counts(plan)
    if sum(sizes) > MOST or not complete:
        raise UsageError(
            f"{'' if complete else 'more than '}{quantity(sum(sizes), 'network')}, too many to list by size: "
            "use --limit N for some of them, --format json for all, or --format count"
        )


def _trees(plan: Plan, limit: int | None) -> Iterator[Tree]:
    return islice(plan.generator().networks(), limit)


def _text(plan: Plan, limit: int | None) -> Iterator[bytes]:
    """Smallest first; one line a network below the heading of its size."""
    groups: list[list[Tree]] = [[] for _ in range(plan.max_size)]
    for tree in memory_checked(_trees(plan, limit)):
        groups[len(tree.relations) - 1].append(tree)
    for size, group in enumerate(groups, start=1):
        if group:
            yield f"size {size} ({quantity(len(group), 'network')})\n".encode()
        for tree in group:
            yield f"  {visible(CandidateNetwork.of(tree).text(plan.schema, plan.keywords))}\n".encode()


def _json(plan: Plan, limit: int | None) -> Iterator[bytes]:
    """One array with a network on each line, written as networks are generated."""
    separator = b"[\n"
    for tree in _trees(plan, limit):
        yield separator + escaped(orjson.dumps(_network_fields(plan, CandidateNetwork.of(tree))))
        separator = b",\n"
    yield b"[]\n" if separator == b"[\n" else b"\n]\n"


def _count(plan: Plan, limit: int | None) -> Iterator[bytes]:
    """A line for each size, then the total; all networks are counted without generating them."""
    if limit is None:
        sizes, complete = network_counts(plan)
    else:
        counts = Counter(len(tree.relations) for tree in _trees(plan, limit))
        sizes, complete = tuple(counts[size] for size in range(1, plan.max_size + 1)), True
    for size, count in enumerate(sizes, start=1):
        yield f"size {size}: {'' if complete else 'at least '}{count}\n".encode()
    yield f"total: {'' if complete else 'more than '}{sum(sizes)}\n".encode()


_FORMATS = {NetworksFormat.TEXT: _text, NetworksFormat.JSON: _json, NetworksFormat.COUNT: _count}


def _network_fields(plan: Plan, network: CandidateNetwork) -> dict[str, object]:
    keywords = plan.keywords
    return {
        "size": network.size,
        "network": network.text(plan.schema, keywords),
        "nodes": [
            {
                "relation": plan.schema.relations[relation].name,
                "keywords": [word for slot, word in enumerate(keywords) if bitmap >> slot & 1],
            }
            for relation, bitmap in zip(network.relations, network.keywords, strict=True)
        ],
        "joins": network.joins(plan.schema),
    }
