"""`codea1 plan`: what a run would need and take, before it is launched."""

import contextlib
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from codea1_cli.cli import console
from codea1_cli.cli.console import JsonOption, RunsOption, VerboseOption
from codea1_cli.cli.shell import RecipeOption, override_values
from codea1_cli.environment import cores, hub_cache
from codea1_cli.errors import CodeA1Error, EnvironmentFault, UserError, counted, left_out, some
from codea1_cli.methods.registry import method_of

if TYPE_CHECKING:
    from codea1_cli.planning import ModelShape
    from codea1_cli.planning.estimate import RunEstimate
    from codea1_cli.planning.gpu_assignment import GpuAssignment, Target
    from codea1_cli.problems.problem import Problem
    from codea1_cli.recipe.schema import Recipe

_ASSUMED = 1000  # problems of a source whose number nothing here tells


def plan(
    overrides: Annotated[
        list[str] | None,
        Argument(
            metavar="[KEY=VALUE]...",
            help="Recipe keys to override, such as code.gpus=2.",
            autocompletion=override_values,
        ),
    ] = None,
    recipe: RecipeOption = None,
    gpu: Annotated[
        str | None, Option(metavar="KIND", help="Plan for h100, h200, a100, a100-40 or cpu instead of this machine.")
    ] = None,
    gpus: Annotated[
        int | None,
        Option(min=1, max=1024, help="How many GPUs there are; as many as the recipe asks for when left out."),
    ] = None,
    problems: Annotated[
        int | None, Option(min=1, help="Training problems, where the recipe's data is not at hand.")
    ] = None,
    mean_prompt: Annotated[float | None, Option(min=1, help="Tokens of a mean prompt, for the expected time.")] = None,
    mean_completion: Annotated[
        float | None, Option(min=1, help="Tokens of a mean completion, for the expected time.")
    ] = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Look ahead at what a run needs. Memory per GPU, disk, tokens and seconds per step, the best slices; exit 3 when
    it cannot fit."""
    from dataclasses import replace

    from codea1_cli.cli.plan_view import estimate_data, show_estimate
    from codea1_cli.durable import check_writable
    from codea1_cli.planning.estimate import best_gpu_splits, check_disk, check_fits, estimate_run, suggestions
    from codea1_cli.planning.gpu_assignment import gpu_ids
    from codea1_cli.recipe.batching import fitted
    from codea1_cli.recipe.files import load_recipe, recipe_names
    from codea1_cli.runs.run_dir import runs_root
    from codea1_cli.trackers import check_trackers

    if recipe is None:
        raise UserError("no recipe given", hint=f"--recipe NAME, one of {', '.join(recipe_names())}, or a file")
    chosen = load_recipe(recipe, overrides or [])
    notes: list[str] = []
    with told_first(notes):
        chosen, (fewest, count), _ = first_use(chosen, problems, notes)
        shapes, blind = known_shapes(chosen), len(notes)
        check_trackers(chosen.tracker, notes.append)
        target, assignment = _target(chosen, gpu, gpus, notes)
        chosen, fewer = fitted(chosen, fewest, {policy: len(group) for policy, group in assignment.items()})
        target = replace(target, prompt=mean_prompt, completion=mean_completion)
        estimate = estimate_run(chosen, shapes, gpu_ids(assignment), target, count)
    refusal: CodeA1Error | None = None
    try:
        if warning := check_fits(estimate, count):
            console.warn(warning)
        if gpu is None and len(notes) == blind:
            root = runs_root(runs)
            check_writable(root, "--runs")
            check_disk(estimate, free_disk(root), str(root))
    except CodeA1Error as error:
        refusal = error
    notes += [fewer] if fewer else []
    changes = [] if estimate.fits else suggestions(estimate, count)
    feasible = changes[0].estimate if changes else estimate
    total = len(estimate.loads.keys() - {None})
    splits = best_gpu_splits(feasible, max(gpus or 0, total), count) if total else []
    if as_json:
        console.emit(estimate_data(estimate, splits, changes, refusal, notes))
    else:
        show_estimate(estimate, splits, changes, notes)
    if refusal is not None:
        return console.show_error(refusal)
    return console.EXIT_OK


@contextlib.contextmanager
def told_first(notes: Sequence[str]) -> Iterator[None]:
    """Around a look ahead: where an error ends it, the notes that it has collected so far are shown first."""
    try:
        yield
    except CodeA1Error:
        for line in notes:
            console.note(line)
        raise


def estimate_here(
    recipe: "Recipe", problems: int, assignment: "GpuAssignment", hosts: int = 1, tell: bool = True
) -> "RunEstimate | None":
    """The estimate of a run on this machine, or on so many like it; None when the shape of a model is not known here.
    A warning of it is shown where `tell`.

    Raises:
        EnvironmentFault: it cannot fit.
    """
    from codea1_cli.planning.estimate import check_fits, estimate_run
    from codea1_cli.planning.gpu_assignment import gpu_ids, this_target

    try:
        shapes = known_shapes(recipe)
    except UserError:
        return None
    estimate = estimate_run(recipe, shapes, gpu_ids(assignment), this_target(recipe, assignment, hosts), problems)
    if (warning := check_fits(estimate, problems)) and tell:
        console.warn(warning)
    return estimate


def known_shapes(recipe: "Recipe") -> "dict[str, ModelShape]":
    """The shape of each policy's model.

    Raises:
        UserError: nothing here tells a model's shape.
    """
    from codea1_cli.planning import TABLE, find_shape

    shapes = {}
    for policy in method_of(recipe).policies:
        model = recipe.model_of(policy)
        shape = find_shape(model)
        if shape is None:
            raise UserError(
                f"the shape of {model} is not known here: "
                "it is neither a local folder, nor in the hub's cache, nor in the table",
                hint=f"model=FOLDER with a config.json; the table holds {', '.join(TABLE)}",
            )
        shapes[policy] = shape
    return shapes


def free_disk(root: Path) -> int:
    """Bytes free where the runs lie, or will."""
    import shutil

    folder = root.absolute()
    while not folder.is_dir():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def first_use(recipe: "Recipe", given: int | None, notes: list[str]) -> "tuple[Recipe, tuple[int, int], int | None]":
    """What a first use of the recipe finds. Nothing is fetched.

    Returns the recipe, which names its training data where that is here; the number of problems to train on, expected
    or counted, as `row_counts` has it; and how many its source will hold out, None unless they are still to be prepared
    and the number is known. `notes` gets what would be fetched and made, how much, where and how long it takes.

    Raises:
        UserError: the recipe names no training data and none are `given`, or data or a model that is not there.
    """
    from codea1_cli.cli.make_pairs import pairs_ahead
    from codea1_cli.cli.plan_view import fetching
    from codea1_cli.cli.recipes import ahead, with_training_data
    from codea1_cli.engine.run_setup import known_solve_rate, stated_outside
    from codea1_cli.models.loading import check_model, resolve_model
    from codea1_cli.planning import find_shape
    from codea1_cli.recipe.resources import training_problems, unread_problems

    for policy in method_of(recipe).policies:
        check_model(recipe.model_of(policy), look=True)
    for model in dict.fromkeys(map(recipe.model_of, method_of(recipe).policies)):
        if resolve_model(model, get=False) == model and not os.path.isdir(model):
            shape = find_shape(model)
            size = f"about {fetching(2 * shape.parameters)}" if shape else "whose size the hub tells then"
            notes.append(f"first use: fetches {model}, {size}, kept in {hub_cache()}")
    recipe = with_training_data(recipe, look=True)
    source = recipe.data.source if recipe.data.train is None else None
    count, expected = _ASSUMED, None
    held_out: int | None = 0
    if source is not None:
        what, expected = ahead(source)
        notes.append(what)
        held_out = None
        if expected is not None:
            share = source.options()[1]
            held_out = round(share.val * expected)
            count = expected - held_out - round(share.test * expected)
    if given is not None:
        return recipe, (given, given), held_out
    method = method_of(recipe)
    if source is None and not (method.pairs and all(getattr(recipe.sft, role) for role in method.roles)):
        problems, by_reason = training_problems(recipe), defaultdict[str, list[str]](list)
        for pid, why in (stated_outside(recipe, problems) | unread_problems(recipe, problems)).items():
            by_reason[why].append(pid)
        notes += [*left_out(by_reason), *guessed(recipe, problems)]
        count = len(problems) - sum(map(len, by_reason.values()))
        wish = recipe.data.solve_rate
        if wish is not None and (unknown := sum(known_solve_rate(problem) is None for problem in problems)):
            steps = counted(math.ceil(unknown / recipe.train.problems_per_step), "step")
            notes.append(
                f"the solve rates of {counted(unknown, 'problem')} are measured first, which no figure counts: as many "
                f"candidates as in {steps} (data.solve_rate)"
            )
    counts = pairs_ahead(recipe, count, notes)
    if source is None:
        return recipe, counts, held_out
    why = "as many as there may be" if expected is not None else "a round number: how many there are shows then"
    rows = counted(counts[1], "pair" if method.pairs else "problem")
    notes.append(f"planned for {rows}, {why} (--problems N of the plan takes another number)")
    return recipe, counts, held_out


def guessed(recipe: "Recipe", problems: "Sequence[Problem]") -> list[str]:
    """What is told of problems that are not left out: tests that are not read, what the embedded model guesses at."""
    from codea1_cli.models.loading import BUILTIN
    from codea1_cli.recipe.resources import unread_problems

    method, notes = method_of(recipe), method_of(recipe).notes(problems)
    if method.pairs or BUILTIN not in map(recipe.model_of, method.policies) or recipe.data.train == f"{BUILTIN}/train":
        return notes
    left = unread_problems(recipe, problems)
    return notes + tiny_reads([problem for problem in problems if problem.id not in left])[1]


def tiny_reads(problems: "Sequence[Problem]") -> tuple[int, list[str]]:
    """How many of these problems the embedded model can read, and in words what it cannot read of the others."""
    from codea1_cli.judging.judge import own_calls
    from codea1_cli.problems.prompts import unseen_words
    from codea1_cli.tiny import unread

    taken = [unread(own_calls(problem), problem.declaration) for problem in problems]
    kinds = Counter(filter(None, taken))
    asked = [
        found for problem, kind in zip(problems, taken, strict=True) if not kind and (found := unseen_words(problem))
    ]
    readable, lines = len(problems) - kinds.total() - len(asked), []
    if readable < len(problems):
        lines.append(
            f"the embedded model (--recipe tiny) can read {readable} of {counted(len(problems), 'problem')}; "
            "--recipe 135m trains one that can read all, on a GPU"
        )
    if kinds:
        each = some([f"{kind} {count}" for kind, count in kinds.most_common()])
        lines.append(f"of {counted(kinds.total(), 'problem')} it knows no function of the arguments: {each}")
    if asked:
        words = some([word for word, _ in Counter(word for found in asked for word in found).most_common()], 8)
        lines.append(f"of {counted(len(asked), 'problem')} it has not seen words of the question: {words}")
    return readable, lines


def recipe_for(readable: int, problems: int) -> str:
    """The smallest shipped recipe whose model can read most of the problems."""
    return "tiny" if 2 * readable >= problems else "135m"


def _target(recipe: "Recipe", gpu: str | None, gpus: int | None, notes: list[str]) -> "tuple[Target, GpuAssignment]":
    from codea1_cli.methods.registry import method_of
    from codea1_cli.planning.gpu_assignment import assign_gpus, gpu_ids, named_target, this_target, visible_gpus

    if gpu is not None or gpus is not None:
        if gpu is None:
            notes.append("planned for H100 GPUs (--gpu KIND)")
        try:
            return named_target(recipe, gpu or "h100", gpus)
        except EnvironmentFault as fault:  # fewer than the recipe asks for: whether it fits these is the question
            sections = {policy: recipe.role(policy) for policy in method_of(recipe).policies}
            any_gpus = {
                policy: own.model_copy(update={"gpus": None, "ranks": None}) for policy, own in sections.items()
            }
            target, assignment = named_target(recipe.model_copy(update=any_gpus), gpu or "h100", gpus)
            words = (f"{policy}.gpus={ids}".replace(" ", "") for policy, ids in gpu_ids(assignment).items())
            notes.append(f"{fault.what}: planned with {' '.join(words)}")
            return target, assignment
    try:
        assignment = assign_gpus(recipe, visible_gpus(), cores())
    except EnvironmentFault as fault:
        notes.append(f"{fault.what}: planned for as many H100 GPUs (--gpu KIND)")
        return named_target(recipe, "h100", None)
    return this_target(recipe, assignment), assignment
