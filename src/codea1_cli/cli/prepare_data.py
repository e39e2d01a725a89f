"""`codea1 prepare-data`: from public or your own problems to clean, verified, decontaminated training data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from codea1_cli.cli import console
from codea1_cli.cli.console import JsonOption, VerboseOption
from codea1_cli.errors import UserError

if TYPE_CHECKING:
    from codea1_cli.data.options import Options
    from codea1_cli.data.sources.base import Source


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
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", metavar="PATH", help="A downloaded copy of kodcode, mbpp or evalplus: a file or folder."
        ),
    ] = None,
    maps: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="FIELD=COLUMN", help="The column of a problem's field; repeat it."),
    ] = None,
    mapping: Annotated[
        Path | None, typer.Option("--mapping", metavar="FILE", help="The same as YAML, FIELD: COLUMN a line.")
    ] = None,
    difficulty: Annotated[
        str | None, typer.Option("--difficulty", help="Keep easy, medium or hard rows of kodcode; the paper: hard.")
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="Of a hub dataset; train when left out.")] = None,
    revision: Annotated[str | None, typer.Option("--revision", help="Of a hub dataset.")] = None,
    config: Annotated[str | None, typer.Option("--config", help="Of a hub dataset.")] = None,
    license: Annotated[str | None, typer.Option("--license", help="Of rows that do not state their own.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Read only the first N rows.")] = None,
    min_tests: Annotated[int, typer.Option("--min-tests", min=0, help="Tests that a problem needs.")] = 1,
    dedup: Annotated[bool, typer.Option("--dedup/--no-dedup", help="Remove what repeats an earlier row.")] = True,
    decontaminate: Annotated[
        bool | None,
        typer.Option(
            "--decontaminate/--no-decontaminate",
            help="Remove what is or resembles a benchmark's task; on, except for evalplus.",
        ),
    ] = None,
    benchmarks: Annotated[
        Path | None,
        typer.Option("--benchmarks", metavar="DIR", help="The benchmarks' files; CODEA1_SHARED/data/bench else."),
    ] = None,
    thresholds: Annotated[
        list[str] | None,
        typer.Option("--threshold", metavar="NAME=VALUE", help="Change one of the thresholds in docs/data.md."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Run every reference on its tests, in the sandbox.")
    ] = True,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Programs run at once; one a CPU core when left out.")
    ] = None,
    time_limit: Annotated[float, typer.Option("--time-limit", min=0.1, help="Seconds for one call.")] = 2.0,
    memory: Annotated[int, typer.Option("--memory", min=64, help="MB for one program.")] = 1024,
    slow: Annotated[float, typer.Option("--slow", min=0.0, help="Seconds from which a reference is slow.")] = 0.5,
    python: Annotated[
        str | None, typer.Option("--python", help="The references' interpreter; codea1's own when left out.")
    ] = None,
    max_prompt_tokens: Annotated[
        int | None, typer.Option("--max-prompt-tokens", min=1, help="Remove longer prompts; needs --tokenizer.")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option("--tokenizer", metavar="MODEL", help="Counts the rendered prompt; --solve-rate's when left out."),
    ] = None,
    chat_template: Annotated[
        Path | None, typer.Option("--chat-template", metavar="FILE", help="A Jinja file in place of the model's own.")
    ] = None,
    solve_rate: Annotated[
        str | None, typer.Option("--solve-rate", metavar="MODEL", help="Sample solutions and keep by their rate.")
    ] = None,
    n: Annotated[int, typer.Option("--n", min=1, help="Samples a problem.")] = 8,
    keep: Annotated[str, typer.Option("--keep", metavar="LOW:HIGH", help="Solve rates to keep.")] = "0.1:0.9",
    temperature: Annotated[float, typer.Option("--temperature", min=0.01, help="Of the samples.")] = 1.0,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", min=1, help="Of a sample.")] = 1024,
    val: Annotated[float, typer.Option("--val", min=0.0, max=1.0, help="Share of problems for val.")] = 0.05,
    test: Annotated[float, typer.Option("--test", min=0.0, max=1.0, help="Share of problems for test.")] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="Of splits and samples.")] = 0,
    output: Annotated[Literal["both", "jsonl", "parquet"], typer.Option("--format", help="Files of a split.")] = "both",
    report: Annotated[
        bool, typer.Option("--report", help="List each removed row with the row that it collides with.")
    ] = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Make training data: read, filter, deduplicate, decontaminate, verify, split. Interrupted, it goes on from there."""
    from codea1_cli.data.options import Options, SolveRule, read_keep, read_thresholds
    from codea1_cli.data.sources.registry import make_source
    from codea1_cli.data.sources.table import read_mapping

    if max_prompt_tokens is not None and tokenizer is None and solve_rate is None:
        raise UserError("--max-prompt-tokens needs a tokenizer to count with", hint="--tokenizer MODEL")
    if val + test > 1.0:
        raise UserError(f"--val {val} and --test {test} leave nothing to train on", hint="their sum must stay below 1")
    if decontaminate is None:
        decontaminate = source != "evalplus"
    rule = None
    if solve_rate is not None:
        low, high = read_keep(keep)
        rule = SolveRule(solve_rate, n, low, high, temperature, max_new_tokens)
    options = Options(
        out=out,
        command=_command(context),
        limit=limit,
        min_tests=min_tests,
        dedup=dedup,
        decontaminate=decontaminate,
        benchmarks=benchmarks,
        thresholds=read_thresholds(thresholds or ()),
        verify=verify,
        workers=workers,
        time_limit_s=time_limit,
        memory_mb=memory,
        slow_s=slow,
        python=python,
        max_prompt_tokens=max_prompt_tokens,
        tokenizer=tokenizer or solve_rate,
        chat_template=chat_template,
        solve=rule,
        val=val,
        test=test,
        seed=seed,
        formats=("jsonl", "parquet") if output == "both" else (output,),
    )
    chosen = make_source(
        source,
        data=data,
        mapping=read_mapping(maps or [], mapping),
        difficulty=difficulty,
        split=split,
        revision=revision,
        config=config,
        license=license,
        benchmarks=benchmarks,
    )
    return _run(chosen, options, report, as_json, benchmark=source == "evalplus")


def _run(source: "Source", options: "Options", report: bool, as_json: bool, benchmark: bool) -> int:
    from codea1_cli.cli.prepare_data_view import STAGES, show_report, show_summary
    from codea1_cli.cli.progress import Bar
    from codea1_cli.data.decontaminate import missing_benchmarks
    from codea1_cli.data.pipeline import Pipeline
    from codea1_cli.data.publish import WORK, check_out, new_card, publish, removed, shown
    from codea1_cli.data.work import Work

    check_out(options.out)
    notes = []
    if benchmark:
        notes.append("These are benchmark tasks: evaluate on them; who trains on them cannot.")
    if options.decontaminate and (missing := missing_benchmarks(options.benchmarks)):
        notes.append(f"Not decontaminated against {', '.join(missing)}: no file of theirs was there.")
    for note in notes:
        console.warn(note)
    try:
        with Work(options.out / WORK).locked() as work, Bar(_EVERY_S, STAGES) as bar:
            pipeline = Pipeline(source, options, work, bar)
            card = new_card(source.title, options, pipeline.identity)
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
        data = {"out": str(options.out), **card.data(), "slow": slow}
        console.emit({**data, "report": listed} if report else data)
        return console.EXIT_OK
    if report:
        show_report(listed)
    show_summary(card, slow, options.out, benchmark)
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
