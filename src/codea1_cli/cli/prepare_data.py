"""`codea1 prepare-data`: from public or your own problems to clean, verified, decontaminated training data."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from codea1_cli.cli import console
from codea1_cli.cli.console import JsonOption, VerboseOption, WaitOption
from codea1_cli.cli.shell import option_groups, panels
from codea1_cli.errors import UserError, counted
from codea1_cli.errors import command as typed
from codea1_cli.models import Server, ServerOptions
from codea1_cli.recipe.data_options import Options, SourceOptions

if TYPE_CHECKING:
    from codea1_cli.data import Card
    from codea1_cli.data.sources import Source
    from codea1_cli.data.stages import Prepared
    from codea1_cli.problems.benchmark_files import PublicTask


@panels(
    {
        "Source": "data maps mapping difficulty split revision config license limit",
        "What is kept": "min_tests dedup decontaminate benchmarks threshold max_prompt_tokens tokenizer chat_template",
        "Verification": "verify workers time_limit_s memory_mb slow_s python sandbox endpoint",
        "Solve rate": "solve_rate n keep temperature max_new_tokens",
        "A server": "server concurrency max_requests omit patience",
        "Output": "out val test seed format report",
    }
)
@option_groups
def prepare_data(
    context: typer.Context,
    source: Annotated[
        str,
        Argument(
            metavar="SOURCE",
            help="kodcode, mbpp, evalplus, a .jsonl/.parquet/.csv file, a hub id OWNER/NAME, a .py file or a folder.",
        ),
    ],
    out: Annotated[Path, Option(metavar="DIR", help="A new folder, or one to go on with.")],
    rows: SourceOptions,
    options: Options,
    served: ServerOptions,
    report: Annotated[
        bool, Option("--report", help="List each removed row with the row that it collides with.")
    ] = False,
    wait: WaitOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Make training data of public problems or your own. Read, filter, deduplicate, decontaminate, verify, split;
    interrupted, it goes on from there."""
    from codea1_cli.data.folder import check_out, removed, shown
    from codea1_cli.data.sources import make_source
    from codea1_cli.durable import check_writable
    from codea1_cli.evals.registry import task_sources

    options.check()
    server = served.find()
    if server is not None and options.solve_rate is None:
        raise UserError(
            "--server samples for --solve-rate, which is left out", hint="--solve-rate NAME, as it is there"
        )
    if server is not None and options.tokenizer is None and options.max_prompt_tokens is not None:
        raise UserError(
            "--max-prompt-tokens needs a tokenizer to count with", hint="--tokenizer MODEL, of this machine"
        )
    check_out(out)
    check_writable(out, "--out")
    asked, benchmark = options.decontaminate, source in task_sources()
    options = replace(
        options,
        decontaminate=not benchmark if asked is None else asked,
        tokenizer=options.tokenizer or (None if server else options.solve_rate),
    )
    here = replace(options, solve_rate=None) if server else options
    chosen = reachable(make_source(source, rows, options.benchmarks), here)
    tasks, missing = find_benchmarks(options, asked is True)
    notes = without(missing)
    if benchmark:
        notes.append("These are benchmark tasks: evaluate on them; who trains on them cannot.")
        console.warn(notes[-1])
    card, prepared = prepare_shown(chosen, options, out, shown_command(context), tasks, notes, wait, server)
    spent = served.told(console.note)
    slow = sum(prepared.rows.alive[row] for row, _ in prepared.slow)
    listed = [{"stage": stage, **shown(line)} for stage, line in removed(prepared)] if report else []
    if as_json:
        data = {"out": str(out), **card.data(), "slow": slow, **spent}
        console.emit({**data, "report": listed} if report else data)
        return console.EXIT_OK
    if report:
        show_report(listed)
    show_summary(card, slow, out, benchmark)
    return console.EXIT_OK


def reachable(source: "Source", options: Options) -> "Source":
    """The source; what it and the options name of the hub comes first, so that a dead network is told before anything
    is waited for."""
    from codea1_cli.data.sources.rows import HubRows
    from codea1_cli.models.loading import resolve_model

    for model in dict.fromkeys((options.tokenizer, options.solve_rate)):
        if model is not None:
            resolve_model(model)
    if isinstance(getattr(source, "rows", None), HubRows):
        source.identity()
    return source


def find_benchmarks(options: Options, must: bool) -> "tuple[list[PublicTask], list[str]]":
    """The tasks to decontaminate against, and the titles of the benchmarks that are not there.

    Raises:
        UserError: none is there, and somebody asked for it.
    """

    from codea1_cli.data.decontaminate import load_benchmarks

    if not options.decontaminate:
        return [], []
    tasks, missing = load_benchmarks(options.benchmarks)
    if missing:
        hint = "" if options.benchmarks else "; CODEA1_BENCHMARKS=FOLDER with their files needs no network"
        console.warn(
            f"not decontaminated against {', '.join(missing)}: {'; '.join(dict.fromkeys(missing.values()))}{hint}"
        )
    if not tasks and must:
        raise UserError(
            "no benchmark is here to decontaminate against", hint="--benchmarks DIR with files of them, or leave it out"
        )
    return tasks, list(missing)


def without(missing: Sequence[str]) -> list[str]:
    """The data card's note of benchmarks that are not there."""
    return [f"Not decontaminated against {', '.join(missing)}: no file of theirs was there."] if missing else []


def prepare_shown(
    source: "Source",
    options: Options,
    out: Path,
    command: str,
    tasks: "Sequence[PublicTask]",
    notes: Sequence[str],
    wait: bool,
    server: Server | None = None,
) -> "tuple[Card, Prepared]":
    """As `pipeline.prepare`, with progress and warnings on the terminal."""
    from codea1_cli.cli.streams import Bar, interruptible
    from codea1_cli.data.pipeline import prepare

    with interruptible("the same command goes on from here"), Bar(_EVERY_S, STAGES) as bar:
        card, prepared = prepare(source, options, out, command, bar, tasks, notes, wait, server)
    for note in card.notes[len(notes) :]:
        console.warn(note)
    return card, prepared


_EVERY_S = 30.0  # seconds between two lines of progress where stderr is no terminal


_BAR = 40
_LOOKED_AT = 1000  # problems, for what the embedded model can read of them
STAGES = {
    "read": "reading",
    "filter": "filtering",
    "duplicates": "exact duplicates",
    "benchmarks": "decontaminating",
    "tokens": "counting tokens",
    "verify": "verifying",
    "near": "near-duplicates",
    "solve": "solve rate",
}


def show_summary(card: "Card", slow: int, out: Path, benchmark: bool) -> None:
    """Prints what was read, removed and kept, and how many tests and prompt tokens the problems have.

    slow: how many references are. benchmark: these are problems that nobody should train on.
    """
    from codea1_cli.cli.plan import recipe_for, tiny_reads
    from codea1_cli.data import buckets
    from codea1_cli.problems.problem import read_problems
    from codea1_cli.recipe.resources import problems_file, split_text

    removed = [
        (STAGES.get(stage, stage), console.cell(reason, "name"), f"-{count}")
        for stage, counts in card.removed.items()
        for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    kept = [[console.cell(text, "ok") for text in ("kept", *split)] for split in card.splits.items()]
    title = f"{card.title}: {card.kept} of {counted(card.read, 'row')} kept"
    rows = [("read", "", card.read), *removed, *kept]
    console.show(console.table(title, ("<stage", "reason", ">rows"), rows))
    _histogram("tests a problem", buckets(card.tests))
    _histogram("tokens of the prompt", buckets(card.prompt_tokens))
    _histogram("solve rate", [(str(rate), count) for rate, count in sorted(card.solve_rates.items())])
    if slow:
        console.note(f"{slow} slow references are kept; slow.jsonl names them with their seconds")
    console.note(f"{out / 'README.md'} is the data card, {out / 'removed.jsonl'} lists what was removed")
    if not benchmark:
        more = (
            "--val 0.3 holds out more" if card.options.get("val", 0) < 0.3 else "a source with more problems makes more"
        )
        console.note(split_text(card.splits["train"], card.splits.get("val", 0), more))
        problems = read_problems(problems_file(str(out)), _LOOKED_AT) if card.splits["train"] else []
        readable, lines = tiny_reads(problems)
        for line in lines:
            console.note(line)
        words = ["train", "--recipe", recipe_for(readable, len(problems)), f"data.train={out}"]
        kind = "jsonl" if (out / "val.jsonl").is_file() else "parquet"
        words += [f"data.heldout={out / f'val.{kind}'}"] if card.splits.get("val") else []
        console.note(f"next: {typed(*words)}")


def _histogram(title: str, rows: Sequence[tuple[str, int]]) -> None:
    if not rows:
        return
    most = max(count for _, count in rows)
    bars = ["█" * max(1 if count else 0, round(_BAR * count / most)) for _, count in rows]
    cells = [(*row, console.cell(bar, "name")) for row, bar in zip(rows, bars, strict=True)]
    console.show(console.table(title, (">", ">", ""), cells))


def show_report(listed: Sequence[Mapping[str, Any]]) -> None:
    """Each removed row, and below it what it collides with."""
    rows: list[tuple[object, ...]] = []
    for line in listed:
        row = str(line.get("id") or line.get("where", ""))
        said = str(line.get("text", "")) if "other" in line else str(line.get("detail") or line.get("text", ""))
        rows.append((line["stage"], console.cell(line["reason"], "name"), row, said))
        if "other" in line:
            score = f"{line['score']:.2f}" if "score" in line else line.get("detail", "")
            rows.append(("", console.cell(score, "name"), line["other"], line["other_text"]))
    console.show(console.table(None, ("<stage", "reason", "<row", "text"), rows))


_NOT_ON_A_CARD = {"out", "as_json", "verbose", "report", "runs", "workers", "wait"}


def shown_command(context: typer.Context) -> str:
    """The command as a card shows it: what was changed from the defaults, files by their names, no folders."""
    words, values = list[str](), context.params
    for param in context.command.params:
        value: Any = values.get(str(param.name))
        if param.param_type_name == "argument":
            words.append(Path(value).name if "/" in value and Path(value).exists() else str(value))
        elif param.name == "out":
            words += ["--out", "DIR"]
        elif param.name not in _NOT_ON_A_CARD and value not in (None, param.default, [], ()):
            flag = max(param.opts, key=len)
            if isinstance(value, bool):
                words.append(flag if value else param.secondary_opts[0])
                continue
            for item in value if isinstance(value, list | tuple) else [value]:
                words += [flag, item.name if isinstance(item, Path) else str(item)]
    return shlex.join(["codea1", str(context.command.name), *words])
