"""``skws windows``: the windows of an expression over a replay, and whether the open ones are bounded."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from skws.cli import options
from skws.cli.option_values import chosen_format, query_text, read_schema
from skws.spec.enums import EngineName, WindowsFormat
from skws.spec.job import Job
from skws.spec.query_spec import Query
from skws_schema.errors import UsageError
from skws_windows.automata.regular import Selection

_PAIR: Final = "--pair"
MAX_LOOKBACK: Final = 100


_SUFFIXES: Final = {
    ".txt": WindowsFormat.TABLE,
    ".jsonl": WindowsFormat.JSONL,
    ".ndjson": WindowsFormat.JSONL,
    ".dot": WindowsFormat.DOT,
    ".svg": WindowsFormat.SVG,
}


class PairCommand(options.GroupedHelpCommand):
    """A command whose ``--pair`` takes two values and may be repeated, which typer does not support."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """``--pair R R2`` is read as ``--pair R --pair R2``; so is ``--pair=R R2``."""
        arguments: list[str] = []
        remaining = deque(args)
        while remaining:
            word = remaining.popleft()
            if word == "--":
                arguments += [word, *remaining]
                break
            option, equals, value = word.partition("=")
            if option != _PAIR:
                arguments.append(word)
                continue
            if equals:
                remaining.appendleft(value)
            if len(remaining) < 2:
                raise UsageError("--pair: expected two regular expressions, R and R2")
            arguments += [_PAIR, remaining.popleft(), _PAIR, remaining.popleft()]
        return super().parse_args(ctx, arguments)


COMMAND: Final = PairCommand
"""The class of ``skws windows``."""


@dataclass(frozen=True)
class WindowsOptions(options.BadRecordOptions):
    """The options of ``skws windows`` besides the schema."""

    replay: options.Replays = None
    pair: Annotated[
        list[str] | None,
        options.query_option(
            _PAIR,
            metavar="R R2",
            help="Regular expressions over [conditions], of the records before a window and of the window; "
            "may be repeated.",
        ),
    ] = None
    formula: Annotated[
        str,
        options.query_option(
            "--formula",
            metavar="TEXT",
            help="An S-MSO formula of a window's first record b and last record e, such as "
            "'[x > 3](b) and forall y: b < y -> [x > 5](y)'.",
            show_default=False,
        ),
    ] = ""
    lookback: Annotated[
        int,
        options.query_option(
            "--lookback",
            metavar="K",
            min=0,
            max=MAX_LOOKBACK,
            help="With --pair or --formula: no window begins among the first K records.",
        ),
    ] = 0
    selection: Annotated[
        Selection | None,
        options.query_option(
            "--selection",
            help="With --pair or --formula: which of its windows to report.",
            show_default="every",
        ),
    ] = None
    per: Annotated[
        list[str] | None,
        options.query_option(
            "--per",
            metavar="FIELD",
            help="With --pair or --formula: separate windows for each value of the field.",
        ),
    ] = None
    aggregate: Annotated[
        list[str] | None,
        options.query_option(
            "--aggregate",
            "-a",
            metavar="A",
            help="Aggregate of each window: count, mean(temp), ...; may be repeated.",
        ),
    ] = None
    check: Annotated[
        bool,
        options.query_option(
            "--check", help="Only check whether windows can pile up without bound; prints JSON."
        ),
    ] = False
    allow_unbounded_windows: options.ForceUnboundedWindows = False
    output_format: Annotated[
        WindowsFormat | None,
        options.result_option(
            "--format",
            "-f",
            help="Format of the windows, or of their automata.",
            show_default=options.BY_NAME,
        ),
    ] = None
    output: options.Output = None
    limit: options.Limit = None
    memory: options.Memory = None
    quiet: options.Quiet = False


@options.expanded
def windows(
    schema: options.SchemaFile,
    opts: WindowsOptions,
    expression: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="EXPRESSION",
            help="'open when temp > 90 close when temp < 70', 'after [login] until [logout] per user', "
            "'match [x > 3]+ within 1 hour'.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Find the windows of an expression over a replay; each is written when it ends.

    \b
    skws windows "open when name:john close when movie" \\
        -s examples/movies/schema.yaml -r examples/movies/replay.jsonl
    """  # noqa: D301 - the character keeps lines as they are
    from skws.cli.windows_output import describe, run, windows_of  # noqa: PLC0415 - loads NumPy and more

    pairs, output, quiet = opts.pair or [], opts.output, opts.quiet
    job = Job.search(
        Query.of_windows(
            query_text(expression or []),
            pairs=tuple(zip(pairs[::2], pairs[1::2], strict=True)),
            formula=opts.formula,
            lookback=opts.lookback,
            select=opts.selection,
            per=opts.per or (),
            aggregates=opts.aggregate or (),
        ),
        read_schema(schema),
        *(opts.replay or ()),
        engine=EngineName.LOCAL,
        on_error=opts.policy,
        dead_letters=opts.dead_letters,
        limit=opts.limit,
        allow_unbounded_windows=opts.allow_unbounded_windows,
    )
    plan = windows_of(job, quiet=quiet)
    if opts.check:
        describe(plan, None, output)
        return
    windows_format = chosen_format(opts.output_format, output, _SUFFIXES, WindowsFormat.TABLE, quiet=quiet)
    if windows_format in (WindowsFormat.DOT, WindowsFormat.SVG):
        describe(plan, windows_format, output)
        return
    if not opts.replay:
        raise UsageError("expected --replay PATH; or --check or --format svg, which need no data")
    run(job, plan, windows_format, output, quiet=quiet)
