"""``skws explain``: the plan of a query, and the mesh that evaluates it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

import typer

from skws.cli import options
from skws.cli.data import schema_and_words
from skws.cli.option_values import mesh_choice, query_text
from skws.cli.terminal import write_text
from skws.explain.branch import Branch, to_dot, to_svg, to_text
from skws.explain.explanation import DEFAULT_LIMIT, Explanation
from skws.explain.explanation import explain as explained
from skws.explain.replay_run import observe
from skws.explain.sharding import shard_costs
from skws.formats import BadRecordLog, Replay
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.spec.enums import EvaluatorName
from skws.spec.job import Job
from skws.spec.query_spec import Query
from skws_schema.errors import UsageError
from skws_schema.model import Schema
from skws_windows.window import ExpressionWindow, parse_window


class ExplainFormat(StrEnum):
    """Formats of an explanation; DOT and SVG show only the mesh."""

    TEXT = "text"
    DOT = "dot"
    SVG = "svg"


@dataclass(frozen=True)
class ExplainOptions(options.BadRecordOptions, options.ScopeOptions):
    """The options of ``skws explain``."""

    replay: options.Replays = None
    schema: options.MaybeSchema = None
    pattern: options.Pattern = None
    without: options.Without = None
    evaluator: options.Evaluator = EvaluatorName.AUTO
    mesh: options.Mesh = options.MeshName.COLUMNAR
    no_demand: options.NoDemand = False
    shards: Annotated[
        int | None,
        options.engine_option(
            "--shards",
            metavar="N",
            help="Measure the cost of N shards of a live search on Spark, over the replay.",
            show_default=False,
        ),
    ] = None
    memory: options.Memory = None
    output_format: Annotated[
        ExplainFormat,
        options.result_option("--format", "-f", help="An indented tree, or the mesh as a graph."),
    ] = ExplainFormat.TEXT
    limit: options.Limit = DEFAULT_LIMIT


_OF_KEYWORDS: Final = ("max_size", "match_names", "evaluator", "mesh", "no_demand", "shards", "limit")
"""Options that do not apply to a pattern."""


@options.expanded
def explain(context: typer.Context, opts: ExplainOptions, query: options.SourceAndWords = None) -> None:
    """The plan of a query: keywords, window, candidate networks, and the mesh of operators.

    skws explain tarantino travolta --schema examples/movies/schema.yaml
    """
    mesh, evaluator, replay = opts.mesh, opts.evaluator, opts.replay
    schema, words = schema_and_words(query or [], opts.schema, replay)
    if opts.pattern is not None:
        options.refuse(context, _OF_KEYWORDS, "--pattern cannot be combined with {}")
        if query_text(words, opts.without):
            raise UsageError("--pattern cannot be combined with a QUERY of keywords")
        _explain_pattern(opts.pattern, schema, opts.window, opts.output_format)
        return
    if not words:
        raise UsageError("nothing to explain: expected keywords, or --pattern TEXT")
    plan_mesh = mesh_choice(mesh, no_demand=opts.no_demand)
    if mesh.kind and evaluator is not EvaluatorName.AUTO:
        raise UsageError(f"--evaluator {evaluator} cannot be combined with --mesh {mesh}")
    text = query_text(words, opts.without)
    parsed = parse_query(text, schema, match_names=opts.match_names)
    plan = Plan(
        schema,
        parsed,
        parse_window(opts.window or schema.window),
        opts.max_size,
        mesh=plan_mesh,
        evaluated_by=evaluator,
    )
    costs = None if opts.shards is None else _costs(text, plan, opts, opts.shards)
    observed = None
    if replay:
        observed = observe(plan, Replay.open(replay, schema), BadRecordLog(opts.policy, opts.dead_letters))
    write_text(_render(explained(plan, opts.limit or DEFAULT_LIMIT, observed), costs, opts.output_format))


def _costs(text: str, plan: Plan, opts: ExplainOptions, shards: int) -> Branch:
    if not opts.replay:
        raise UsageError("--shards needs --replay to measure them over")
    if isinstance(plan.window, ExpressionWindow) or plan.mesh is not None:
        raise UsageError("--shards: only the columnar mesh can be divided, under a window of time or tuples")
    job = Job.search(
        Query(text, plan.max_size),
        plan.schema,
        *opts.replay,
        window=plan.window,
        max_size=plan.max_size,
        match_names=opts.match_names,
    )
    return shard_costs(job, BadRecordLog(opts.policy), shards).branch()


def _explain_pattern(text: str, schema: Schema, window: str | None, output_format: ExplainFormat) -> None:
    from skws.queries.patterns.pattern_explanation import pattern_dot, pattern_text  # noqa: PLC0415 - loads only for patterns

    if output_format is ExplainFormat.SVG:
        raise UsageError("--format svg cannot be combined with --pattern: expected text or dot")
    if output_format is ExplainFormat.DOT:
        output = pattern_dot(text, schema)
    else:
        output = pattern_text(text, schema, None if window is None else parse_window(window))
    write_text(output)


def _render(explanation: Explanation, costs: Branch | None, output_format: ExplainFormat) -> str:
    if output_format is ExplainFormat.TEXT:
        return to_text(explanation.branches if costs is None else (*explanation.branches, costs))
    return (to_dot if output_format is ExplainFormat.DOT else to_svg)(explanation.clusters)
