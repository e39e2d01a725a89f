"""`codea1 prepare-data`: from public or your own problems to clean, verified, decontaminated training data."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codea1_cli.cli import console
from codea1_cli.cli.console import JsonOption, VerboseOption
from codea1_cli.cli.option_groups import option_groups
from codea1_cli.data.options import Options, SourceOptions

if TYPE_CHECKING:
    from codea1_cli.data.sources.base import Source


@option_groups
def prepare_data(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="kodcode, mbpp, evalplus, a .jsonl/.parquet/.csv file, a hub id OWNER/NAME, a .py file or a folder.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new folder, or one to go on with.")],
    rows: SourceOptions,
    options: Options,
    report: Annotated[
        bool, typer.Option("--report", help="List each removed row with the row that it collides with.")
    ] = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Make training data: read, filter, deduplicate, decontaminate, verify, split. Interrupted, it goes on from
    there."""
    from codea1_cli.data.sources.registry import make_source

    options.check()
    benchmark = source == "evalplus"
    decontaminate = not benchmark if options.decontaminate is None else options.decontaminate
    options = replace(options, decontaminate=decontaminate, tokenizer=options.tokenizer or options.solve_rate)
    chosen = make_source(source, rows, options.benchmarks)
    return _run(chosen, options, out, _command(context), report, as_json, benchmark)


def _run(
    source: "Source", options: Options, out: Path, command: str, report: bool, as_json: bool, benchmark: bool
) -> int:
    from codea1_cli.cli.prepare_data_view import STAGES, show_report, show_summary
    from codea1_cli.cli.progress import Bar
    from codea1_cli.data.decontaminate import missing_benchmarks
    from codea1_cli.data.pipeline import Pipeline
    from codea1_cli.data.publish import WORK, check_out, new_card, publish, removed, shown
    from codea1_cli.data.work import Work

    check_out(out)
    notes = []
    if benchmark:
        notes.append("These are benchmark tasks: evaluate on them; who trains on them cannot.")
    if options.decontaminate and (missing := missing_benchmarks(options.benchmarks)):
        notes.append(f"Not decontaminated against {', '.join(missing)}: no file of theirs was there.")
    for note in notes:
        console.warn(note)
    try:
        with Work(out / WORK).locked() as work, Bar(_EVERY_S, STAGES) as bar:
            pipeline = Pipeline(source, options, work, bar)
            card = new_card(source.title, command, options, pipeline.identity)
            prepared = pipeline.run()
            card.notes = notes
            if prepared.unscored:
                card.notes.append(f"The sandbox failed on {prepared.unscored} rows; the same command tries them again.")
                console.warn(card.notes[-1])
            publish(prepared, card, options, work)
    except KeyboardInterrupt:
        console.note("interrupted; the same command goes on from here")
        return console.EXIT_INTERRUPTED
    slow = sum(prepared.rows.alive[row] for row, _ in prepared.slow)
    listed = [{"stage": stage, **shown(line)} for stage, line in removed(prepared)] if report else []
    if as_json:
        data = {"out": str(out), **card.data(), "slow": slow}
        console.emit({**data, "report": listed} if report else data)
        return console.EXIT_OK
    if report:
        show_report(listed)
    show_summary(card, slow, out, benchmark)
    return console.EXIT_OK


_EVERY_S = 30.0  # seconds between two lines of progress where stderr is no terminal
_NOT_IN_THE_CARD = {"out", "as_json", "verbose", "report", "workers"}


def _command(context: typer.Context) -> str:
    """The command as the card shows it: what was changed from the defaults, files by their names, no folders."""
    import shlex

    words = [str(context.params.get("source"))]
    if "/" in words[0] and Path(words[0]).exists():
        words = [Path(words[0]).name]
    words += ["--out", "DIR"]
    for param in context.command.params:
        value: Any = context.params.get(str(param.name))
        if (
            param.param_type_name != "option"
            or param.name in _NOT_IN_THE_CARD
            or value in (None, param.default, [], ())
        ):
            continue
        flag = max(param.opts, key=len)
        if isinstance(value, bool):
            words.append(flag if value else param.secondary_opts[0])
            continue
        for item in value if isinstance(value, list | tuple) else [value]:
            words += [flag, item.name if isinstance(item, Path) else str(item)]
    return shlex.join(["codea1", "prepare-data", *words])
