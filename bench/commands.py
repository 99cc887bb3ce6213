"""``skws bench``: the paper's experiments, and the default engine compared with its floor and with peers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from bench import figures as figures_of
from bench import floor as floor_of_engine
from bench import paper as paper_figures
from bench import queries as number_of_queries
from bench.load import HEAVY
from bench.peers import compare, environment, table
from skws.cli import options
from skws.cli.terminal import tell
from skws.spec.enums import DEFAULT_MAX_SIZE
from skws_schema.errors import SkwsError

app = typer.Typer(help="Measure skws on this machine.", no_args_is_help=True, rich_markup_mode=None)
Hours = Annotated[float, typer.Option("--hours", min=0.001, help="Length of the stream.")]
TimeLimit = Annotated[
    float, typer.Option("--time-limit", min=0.1, help="Time limit of each run, in seconds.")
]


@app.command()
def floor(
    hours: Hours = 5.0,
    file_format: Annotated[str, typer.Option("--format", "-f", help="jsonl or parquet.")] = "jsonl",
    runs: Annotated[int, typer.Option("--runs", min=1, help="Runs of each.")] = 3,
    time_limit: TimeLimit = 600.0,
) -> None:
    """Compare the default engine with reading and matching alone.

    skws bench floor --hours 0.25
    """
    report = floor_of_engine.run(hours, file_format, runs, time_limit, tell)
    typer.echo(f"tuples            {report.tuples:,}")
    typer.echo(f"results           {report.results:,}")
    typer.echo(f"floor, CPU s      {report.floor_seconds:.2f}")
    typer.echo(f"engine, CPU s     {report.engine_seconds:.2f}")
    typer.echo(f"engine, wall s    {report.wall_seconds:.2f} (start of the process included)")
    typer.echo(f"engine / floor    {report.ratio:.2f} (of the fastest runs {report.fastest_ratio:.2f})")
    typer.echo(f"tuples/s (CPU)    {report.tuples_per_second:,.0f}")
    typer.echo(f"peak memory, MB   {report.peak_bytes / 1e6:.0f}")


@app.command()
def paper(
    hours: Hours = 5.0,
    figures: Annotated[
        str | None, typer.Option("--figures", help="Such as 5.1,5.3.", show_default="all")
    ] = None,
    time_limit: TimeLimit = 3600.0,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the CSV and PNGs.")] = Path(
        "bench-paper"
    ),
    draw: Annotated[bool, typer.Option("--draw/--no-draw", help="Draw PNGs.")] = True,
) -> None:
    """Measure Figures 5.1-5.8 of the S-KWS paper as one CSV and PNGs.

    skws bench paper --hours 0.25 --figures 5.1,5.3 --time-limit 60
    """
    chosen_figures = paper_figures.select_figures(figures)
    if draw:
        figures_of.check_drawable()
    output.mkdir(parents=True, exist_ok=True)
    points = paper_figures.write_csv(
        paper_figures.points(chosen_figures, hours, time_limit, tell), output / "paper.csv"
    )
    if draw:
        figures_of.draw(points, output, f"{hours:g} h of stream")
    unfinished = sum(point.measured.results is None for point in points)
    tell(f"{len(points)} points, {unfinished} unfinished: {output / 'paper.csv'}")


@app.command()
def queries(
    hours: Hours = 1.0,
    numbers: Annotated[str, typer.Option("--numbers", help="Numbers of queries.")] = "1,3,10,30,100,300,1000",
    runs: Annotated[int, typer.Option("--runs", min=1, help="Runs of each.")] = 1,
    time_limit: TimeLimit = 1200.0,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the CSV and PNG.")] = Path(
        "bench-queries"
    ),
    draw: Annotated[bool, typer.Option("--draw/--no-draw", help="Draw a PNG.")] = True,
) -> None:
    """Measure the cost of a tuple by the number of standing queries.

    skws bench queries --hours 0.25 --numbers 1,10,100
    """
    query_numbers = number_of_queries.parse_numbers(numbers)
    if draw:
        figures_of.check_drawable()
    output.mkdir(parents=True, exist_ok=True)
    points = number_of_queries.points(hours, query_numbers, runs, time_limit, tell)
    measured_points = number_of_queries.write_csv(points, output / "queries.csv")
    typer.echo("queries  us a tuple  to one query  results  peak MB")
    for point in measured_points:
        typer.echo(
            f"{point.queries:7,}  {point.microseconds_a_tuple:10.1f}  {point.ratio:12.2f}"
            f"  {point.results:7,}  {point.peak_bytes / 1e6:7.0f}"
        )
    if draw:
        number_of_queries.draw(measured_points, output / "queries.png")


@app.command()
def peers(
    hours: Hours = 1.0,
    engines: Annotated[
        str, typer.Option("--engines", help="Engines to compare with skws, such as duckdb.")
    ] = "duckdb,pathway",
    max_size: options.MaxSize = DEFAULT_MAX_SIZE,
    slice_seconds: Annotated[
        int, typer.Option("--slice", min=1, help="Seconds of stream that peers process at a time.")
    ] = 300,
    time_limit: TimeLimit = 1200.0,
    output: Annotated[Path, typer.Option("--output", "-o", help="The CSV to write.")] = Path(
        "bench-peers.csv"
    ),
) -> None:
    """Compare with the same networks in DuckDB and Pathway.

    skws bench peers --hours 0.25 --engines duckdb
    """
    peer_names = environment.select_peers(engines)
    rows = compare.rows(
        replace(HEAVY, max_size=max_size), int(hours * 3600), slice_seconds, peer_names, time_limit, tell
    )
    results = compare.write_csv(rows, output)
    for line in table.lines(results):
        typer.echo(line)
    if any(row.equal is False for row in results):
        raise SkwsError(f"results differ: {output}")
