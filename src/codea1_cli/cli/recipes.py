"""`codea1 recipes`: what is shipped, what a recipe comes to with its defaults, whether it holds together."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument

from codea1_cli.cli import console
from codea1_cli.cli.console import JsonOption, VerboseOption
from codea1_cli.cli.shell import override_values, recipe_names
from codea1_cli.environment import cache_folder, cores, hub_cache, nobody_asked
from codea1_cli.errors import CodeA1Error, EnvironmentFault, UserError, counted, size_text
from codea1_cli.methods.registry import ROLES, method_of
from codea1_cli.recipe.data_options import in_keys

if TYPE_CHECKING:
    from codea1_cli.planning.gpu_assignment import GpuAssignment
    from codea1_cli.recipe.schema import DataSource, Recipe
    from codea1_cli.runs.run_dir import RunDir

app = typer.Typer(no_args_is_help=True, help="List, show and check recipes.")


@app.command("list")
def list_(as_json: JsonOption = False, verbose: VerboseOption = False) -> None:
    """List the shipped recipes, smallest model first."""
    from codea1_cli.recipe.files import load_recipe, recipe_names, recipe_path

    rows = []
    for name in recipe_names():
        recipe = load_recipe(name)
        rows.append(
            {
                "name": name,
                "description": recipe.description,
                "model": recipe.model,
                "problems_per_step": recipe.train.problems_per_step,
                "data": recipe.data.train or _source(recipe) or recipe.data.expects,
                "file": str(recipe_path(name)),
            }
        )
    if as_json:
        console.emit(rows)
        return
    cells = [(console.cell(row["name"], "name"), row["model"], row["description"]) for row in rows]
    console.show(console.table(None, ("<recipe", "<model", "what it is"), cells))
    console.note("next: codea1 train --recipe tiny")


@app.command()
def show(
    recipe: Annotated[
        str, Argument(metavar="RECIPE", help="A shipped name or a .yaml file.", autocompletion=recipe_names)
    ],
    overrides: Annotated[
        list[str] | None, Argument(metavar="KEY=VALUE", help="Changes to it.", autocompletion=override_values)
    ] = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Print a recipe with every default written out. YAML, explained; the output is itself a recipe."""
    from codea1_cli.cli.layout import commented_yaml, room
    from codea1_cli.recipe.files import load_recipe

    loaded = load_recipe(recipe, overrides or ())
    if as_json:
        console.emit(loaded.dump())
    else:
        console.write(commented_yaml(loaded, room(console.out())))


@app.command()
def check(
    recipes: Annotated[
        list[str] | None,
        Argument(
            metavar="RECIPE|KEY=VALUE",
            help="Names or files, and changes to them; all shipped ones when left out.",
            autocompletion=recipe_names,
        ),
    ] = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Check recipes and the files that they name. Keys, values, batch arithmetic; exit 2 when one is wrong."""
    from codea1_cli.recipe.files import recipe_names

    overrides = [word for word in recipes or () if "=" in word and not Path(word).is_file()]
    names = [word for word in recipes or () if word not in overrides] or recipe_names()
    results = [_checked(name, overrides) for name in names]
    if as_json:
        console.emit(results)
    else:
        for result in results:
            line = f"ok     {result['recipe']}" if result["ok"] else f"wrong  {result['recipe']}: {result['error']}"
            console.say(line, style="ok" if result["ok"] else "bad", indent=7)
            for text in (result["hint"], *result["notes"]):
                if text:
                    console.say(f"       {text}", style="muted", indent=7)
    if not all(result["ok"] for result in results):
        raise typer.Exit(console.EXIT_USAGE)


def _checked(name: str, overrides: list[str]) -> dict[str, Any]:
    from codea1_cli.recipe.files import load_recipe

    result: dict[str, Any] = {"recipe": name, "ok": True, "error": None, "hint": None, "notes": []}
    try:
        result["notes"] = _holds_together(load_recipe(name, overrides))
    except CodeA1Error as error:
        result |= {"ok": False, "error": error.what, "hint": error.hint}
    return result


def _holds_together(recipe: "Recipe") -> list[str]:
    """Checks what loading does not; returns what the user still has to bring.

    Raises UserError for batches that cannot be cut, a missing data file or a missing model folder.
    """
    from codea1_cli.data.pairs import read_pairs
    from codea1_cli.files import user_path
    from codea1_cli.models.loading import check_model
    from codea1_cli.recipe.batching import batches
    from codea1_cli.recipe.resources import problems_file
    from codea1_cli.trackers import check_trackers

    notes: list[str] = []
    check_trackers(recipe.tracker, notes.append)
    for policy in method_of(recipe).policies:
        section = recipe.role(policy)
        gpus = len(section.gpus) if isinstance(section.gpus, list) else section.gpus
        batches(recipe, policy, section.ranks or gpus or 1)
        check_model(recipe.model_of(policy), look=True)
    for source in (recipe.data.train, recipe.data.heldout):
        if source is not None:
            problems_file(source)
    for role in ROLES:
        if (file := getattr(recipe.sft, role)) is not None:
            read_pairs(user_path(file), role)
    if recipe.data.train is None and recipe.data.source is not None:
        with_training_data(recipe, look=True)
        notes.append(f"prepares its data on first use: {_source(recipe)}")
    elif recipe.data.train is None:
        notes.append(f"needs data.train={'FILE: ' + recipe.data.expects if recipe.data.expects else 'FILE'}")
    return notes


def _source(recipe: "Recipe") -> str | None:
    """The recipe's `data.source` in a line."""
    values = recipe.data.source.model_dump(exclude_none=True) if recipe.data.source else {}
    name = values.pop("name", None)
    return name and ", ".join([str(name), *(f"{key} {value}" for key, value in values.items())])


# -- a recipe's data.source --------------------------------------------------------------------------------------------
def with_training_data(recipe: "Recipe", look: bool = False) -> "Recipe":
    """The recipe with the problems that its `data.source` describes: as they were prepared before, else prepared now. A
    look ahead prepares nothing, and takes what was prepared without some benchmark too.

    Raises:
        UserError, EnvironmentFault: as preparing raises; of what nobody need be asked about, a look ahead too.
    """
    source, train = recipe.data.source, recipe.data.train
    if source is None or (train is not None and (not train.startswith(str(_made())) or Path(train).is_dir())):
        return recipe
    try:
        folder = _prepared(source, look)
    except CodeA1Error as fault:  # in the words of a recipe, not of prepare-data's command line
        what, hint = (in_keys(text or "") for text in (fault.what, fault.hint))
        raise type(fault)(f"data.source: {what}" if isinstance(fault, UserError) else what, hint=hint or None) from None
    if folder is None:
        return recipe
    data = recipe.data.model_copy(update={"train": str(folder)})
    heldout = folder / "val.jsonl"
    if data.heldout is None and heldout.is_file() and heldout.stat().st_size:
        data.heldout = str(heldout)
    return recipe.model_copy(update={"data": data})


def _prepared(source: "DataSource", look: bool) -> Path | None:
    """The folder with what `data.source` describes; None for a look ahead where it is not prepared yet."""
    from dataclasses import replace

    from codea1_cli.cli.prepare_data import find_benchmarks, prepare_shown, reachable, without
    from codea1_cli.data.sources import make_source

    folder = next((one for one in _kept(source) if look or one == _data_folder(source)), None)
    rows, options = source.options()
    if folder is None and look:
        with nobody_asked(), suppress(EnvironmentFault):
            make_source(source.name, rows, options.benchmarks)
    elif folder is None:
        chosen = reachable(make_source(source.name, rows, options.benchmarks), options)
        options = replace(options, decontaminate=options.decontaminate is not False)
        tasks, missing = find_benchmarks(options, False)
        folder = _data_folder(source, missing)
        if not (folder / "card.json").is_file():
            console.note(f"preparing the recipe's training data ({source.name}), kept in {folder}")
            options = replace(options, tokenizer=options.tokenizer or options.solve_rate)
            words = [f"data.source.{key}={value}" for key, value in source.model_dump(exclude_none=True).items()]
            card, _ = prepare_shown(chosen, options, folder, " ".join(words), tasks, without(missing), wait=True)
            console.note(f"{card.kept} of {counted(card.read, 'row')} kept; {folder / 'README.md'} is the data card")
    return folder


def fetched(recipe: "Recipe", ranks: "GpuAssignment", run: "RunDir | None" = None) -> "tuple[Recipe, list[Any]]":
    """The recipe with its training data named, and the problems, or pairs, once its models and its data are here; the
    pairs that `run` keeps, for one that goes on.

    ranks: of this machine, where that is known: what cannot fit there is told before anything is fetched.

    Raises:
        UserError, EnvironmentFault: a model or the data cannot be used, or fetched.
    """
    from codea1_cli.cli.make_pairs import recipe_pairs
    from codea1_cli.cli.plan import estimate_here, first_use, guessed
    from codea1_cli.engine.sft import kept_pairs
    from codea1_cli.models.loading import check_model
    from codea1_cli.recipe.resources import training_problems

    if recipe.data.train is None and recipe.data.source is not None and ranks:
        named, (_, count), _ = first_use(recipe, None, [])
        estimate_here(named, count, ranks, tell=False)
    for policy in method_of(recipe).policies:
        check_model(recipe.model_of(policy))
    recipe, method = with_training_data(recipe), method_of(recipe)
    if not method.pairs:
        problems = training_problems(recipe)
        for line in guessed(recipe, problems):
            console.note(line)
        return recipe, problems
    if run is not None and (run.path / "pairs").is_dir():
        return recipe, kept_pairs(run)
    return recipe, recipe_pairs(recipe, method.roles)


def _kept(source: "DataSource") -> list[Path]:
    """The folders where it is prepared already, that against every benchmark first."""
    folder = _data_folder(source)
    found = [folder, *sorted(folder.parent.glob(f"{folder.name}-without-*"))] if folder.parent.is_dir() else []
    return [one for one in found if (one / "card.json").is_file()]


def ahead(source: "DataSource") -> tuple[str, int | None]:
    """What preparing would fetch and make, in words, and at most how many problems; nothing is asked of the network."""
    from codea1_cli import planning as c
    from codea1_cli.cli.plan_view import fetching, seconds
    from codea1_cli.data.sources import expected

    given, options = source.options()
    size, rows, problems = expected(source.name, given)
    rows, problems = min(rows, options.limit or rows), min(problems, options.limit or problems)
    if not rows:
        return f"first use: prepares {source.name}, whose size the hub tells then, in {_data_folder(source)}", None
    making = rows / c.READ_ROWS_S + problems / (c.VERIFY_ROWS_S * cores())
    return (
        f"first use: fetches {source.name}, {fetching(size)}, kept in {hub_cache()}, and what it is decontaminated "
        f"against, {size_text(c.BENCHMARK_BYTES)}; reads {rows:,} rows and verifies up to {problems:,} problems (about "
        f"{seconds(making)} on {counted(cores(), 'core')}), kept in {_data_folder(source)}",
        problems,
    )


def _made() -> Path:
    return cache_folder().absolute() / "data"


def _data_folder(source: "DataSource", missing: Sequence[str] = ()) -> Path:
    """Where prepared data lies, by what it is made of: source, revision, options, the pipeline, and which benchmarks
    it could not be compared with."""
    from codea1_cli.data.sources import make_source
    from codea1_cli.data.stages import FORMAT, digest

    local = make_source(source.name, *source.options()[:1]).identity() if Path(source.name).exists() else {}
    key = digest(FORMAT, source.model_dump(mode="json"), local)[:12]
    without = f"-without-{'-'.join(missing)}".lower().replace("+", "plus") if missing else ""
    return _made() / f"{source.name.replace('/', '--').strip('-.')}-{key}{without}"
