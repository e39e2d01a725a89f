"""`codea1 make-pairs`: prompts and completions for `method: sft` and a warm-up, made from problems."""

import math
import random
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from codea1_cli.cli import console
from codea1_cli.cli.console import JsonOption, RunsOption, VerboseOption, WaitOption
from codea1_cli.cli.judge import WorkersOption
from codea1_cli.cli.prepare_data import shown_command
from codea1_cli.cli.shell import option_groups, run_names
from codea1_cli.errors import UserError, command, counted
from codea1_cli.methods.registry import RoleName
from codea1_cli.models import ServerOptions

if TYPE_CHECKING:
    from codea1_cli.data.pairs import Pair, PairOptions, Proposal, Propose
    from codea1_cli.engine.ranks import Node
    from codea1_cli.judging.judge import Judge
    from codea1_cli.planning.gpu_assignment import GpuAssignment
    from codea1_cli.problems.problem import Problem
    from codea1_cli.recipe.schema import Recipe
    from codea1_cli.runs.run_dir import RunDir
    from codea1_cli.runs.summary import RunOutcome


@option_groups
def make_pairs(
    context: typer.Context,
    served: ServerOptions,
    data: Annotated[
        str, Argument(metavar="DATA", help="Problems: a file, a folder that prepare-data made, or builtin:tiny/train.")
    ],
    role: Annotated[RoleName, Option(help="The policy that they are for.")],
    out: Annotated[Path, Option(metavar="DIR", help="A folder for the pairs and their card.")],
    model: Annotated[
        str, Option(metavar="MODEL", help="The model to train, where that is builtin:tiny, which has seen few names.")
    ] = "",
    samples: Annotated[str | None, Option(metavar="RUN|MODEL", help="Take of its samples those that hold.")] = None,
    rollouts: Annotated[
        str | None, Option(metavar="RUN", help="Take of a run's samples, newest first.", autocompletion=run_names)
    ] = None,
    n: Annotated[int, Option(min=1, help="Samples per problem, or per wrong program.")] = 8,
    temperature: Annotated[float, Option(min=0.01, help="Of the samples.")] = 1.0,
    max_new_tokens: Annotated[int, Option(min=1, help="Of a sample.")] = 512,
    per_problem: Annotated[int, Option(min=1, help="Pairs per problem, at most.")] = 2,
    tests_per_suite: Annotated[int, Option(min=1, help="Tests of a suite: game.tests_per_suite.")] = 8,
    white_box: Annotated[bool, Option(help="Show the wrong program: game.white_box.")] = True,
    limit: Annotated[int | None, Option(min=1, help="Use only the first N problems.")] = None,
    seed: Annotated[int, Option(help="Of samples and of varied calls.")] = 0,
    workers: WorkersOption = None,
    runs: RunsOption = None,
    wait: WaitOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Make pairs to fine-tune on. Solutions that pass their tests, or suites that are valid, rightly stated and break
    the wrong program that they are written against."""
    from codea1_cli.cli.eval_code_view import OF_SERVER, refuse_idle
    from codea1_cli.data.folder import check_out
    from codea1_cli.data.pairs import CARD, PAIRS, PairOptions, model_names
    from codea1_cli.data.stages import ProblemSampler, SolveRule
    from codea1_cli.judging.judge import Judge
    from codea1_cli.methods.sft import asked_as
    from codea1_cli.models.sampler import replies_beside
    from codea1_cli.problems.problem import read_problems
    from codea1_cli.recipe.files import load_recipe
    from codea1_cli.recipe.resources import problems_file
    from codea1_cli.runs.policy_folders import find_model
    from codea1_cli.runs.run_dir import find_run, runs_root
    from codea1_cli.sandbox.base import Limits
    from codea1_cli.sandbox.make import SandboxOptions, make_sandbox

    of_model = (samples is None, f"n temperature max_new_tokens {OF_SERVER}", "{} is for --samples, a model to sample")
    refuse_idle(context, of_model, (role == "code", "tests_per_suite white_box", "{} is for --role test"))
    server, kept = served.find(), replies_beside(out)
    if samples and rollouts:
        raise UserError("--samples and --rollouts are two sources", hint="one folder of pairs for each")
    names = model_names(model) if model else None
    if model and names is None:
        raise UserError(f"--model {model} has no effect: it knows more than a few names", hint="leave it out")
    check_out(out, (PAIRS, CARD, "README.md"))
    options = PairOptions(role, per_problem, tests_per_suite, white_box, seed, names)
    source = dict[str, Any](data=Path(data).name) | {"from": "references" if role == "code" else "mutants"}
    problems = read_problems(problems_file(data), limit, references=False)
    judge = Judge(make_sandbox(SandboxOptions(workers=workers)), limits=Limits(time_s=2.0, memory_mb=1024))
    with closing(judge.sandbox):
        propose: Propose | None = None
        if samples:
            ref = find_model(samples, role=role, runs_root=runs, server=server)
            rule = SolveRule(samples, n, temperature=temperature, max_new_tokens=max_new_tokens)
            source |= {"from": "samples", "model": ref.label, **vars(rule), **(server.identity() if server else {})}
            propose = partial(_sampled, ProblemSampler(rule, ref=ref, kept=kept), options, judge)
        elif rollouts:
            run = find_run(rollouts, runs_root(runs))
            source |= {"from": "rollouts", "run": run.name, "steps": run.latest_step()}
            propose = partial(_rolled_out, run.path / "rollouts", role)
        card = make_shown(out, problems, options, source, shown_command(context), judge, propose, wait)
    kept.unlink(missing_ok=True)
    spent = served.told(console.note)
    if as_json:
        console.emit({"out": str(out), **card, **spent})
        return
    show_card(card, out)
    recipe = load_recipe("tiny" if names or data.startswith("builtin:") else "135m")
    pairs = [f"sft.role={role}", f"sft.{role}={out / PAIRS}"]
    if role == "test":
        pairs += asked_as(recipe.game, recipe.test.max_completion_tokens, tests_per_suite, white_box)
    console.note(f"next: {command('train', '--recipe', recipe.name, 'method=sft', *pairs)}")


def make_shown(
    folder: Path,
    problems: "Sequence[Problem]",
    options: "PairOptions",
    source: Mapping[str, Any],
    typed: str,
    judge: "Judge",
    propose: "Propose | None" = None,
    wait: bool = False,
) -> dict[str, Any]:
    """Makes the pairs with progress on the terminal, and writes them to `folder`; returns their card. A folder that
    holds those of the same problems, options and source is left as it is.

    Raises:
        UserError: there is none, or the folder holds pairs that were made otherwise.
    """
    from codea1_cli.cli.streams import Bar, interruptible
    from codea1_cli.data.pairs import CARD, identity, make_pairs, write_pairs
    from codea1_cli.durable import only_writer
    from codea1_cli.files import kept_json

    key = identity(problems, options, source)
    with only_writer(folder, wait=wait), interruptible("no pairs are written"), Bar(30.0, {"pairs": "pairs"}) as bar:
        if (kept := kept_json(folder / CARD)).get("key") == key:
            return kept
        if kept:
            raise UserError(f"{folder} holds pairs made otherwise: {kept.get('command')}", hint="give a new folder")
        made = make_pairs(problems, options, judge, propose, lambda done, total: bar("pairs", done, total))
        if not made.rows:
            why = ", ".join(f"{reason}: {count}" for reason, count in made.without.most_common())
            hint = "--samples FILE or --rollouts RUN take what a model wrote; sft.ROLE=FILE in a recipe names pairs"
            raise UserError(f"none of {counted(made.problems, 'problem')} gave a pair for {options.role}: {why}", hint)
        return write_pairs(folder, made, options, source, typed, key)


def show_card(card: Mapping[str, Any], folder: Path) -> None:
    """Prints how many pairs there are, of how many problems, and why others gave none."""
    rows = [("problems", "", card["problems"])]
    rows += [("without a pair", reason, -count) for reason, count in card["without"].items()]
    rows += [("with pairs", "", card["with_pairs"]), ("of them", "that no test checks", card.get("untested", 0))]
    rows += [("pairs", "", card["pairs"])]
    console.show(console.table(f"pairs for the {card['role'].title()} LLM", ("<", "why", ">count"), rows))
    console.note(f"{folder / 'README.md'} is their card")


def _sampled(
    sampler: Any, options: "PairOptions", judge: "Judge", problems: "Sequence[Problem]"
) -> "list[list[Proposal]]":
    """What a model replies to each problem; for the Test LLM, to each of a problem's wrong programs."""
    from codea1_cli.data.pairs import Proposal
    from codea1_cli.evals.wrong_programs import broken_programs

    if options.role == "code":
        return [[Proposal(text) for text in group] for group in sampler.sample(problems, options.seed)]
    draw = random.Random(options.seed)
    shown = [
        (place, program)
        for place, problem in enumerate(problems)
        for program in broken_programs(problem, judge, options.per_problem, 0, draw)[0]
    ]
    found: list[list[Proposal]] = [[] for _ in problems]
    asked = [(problems[place], program) for place, program in shown]
    replies = sampler.attack(asked, options.tests_per_suite, options.white_box, options.seed)
    for (place, program), group in zip(shown, replies, strict=True):
        found[place] += [Proposal(text, program) for text in group]
    return found


def _rolled_out(folder: Path, role: str, problems: "Sequence[Problem]") -> "list[list[Proposal]]":
    """What a run sampled for each problem, by its rollouts."""
    from codea1_cli.data.pairs import Proposal
    from codea1_cli.runs.rollout_files import sampled_texts

    found = sampled_texts(folder, role, [problem.id for problem in problems])
    return [[Proposal(text, shown) for shown, text in found.get(problem.id, ())] for problem in problems]


_TURNS = 3  # of a pair in a warm-up: fewer problems need no pairs, which take a third of a second of a core each


def recipe_pairs(recipe: "Recipe", roles: Sequence[str], needed: int | None = None) -> "list[Pair]":
    """The pairs of these policies: of the recipe's files, else made once of its training problems and kept for all.

    needed: pairs that a warm-up takes of each policy, each `_TURNS` times at most if problems suffice; None: all.

    Raises:
        UserError, EnvironmentFault: a file is broken, or no pair can be made.
    """
    from codea1_cli.data.pairs import CARD, PAIRS, identity, read_pairs
    from codea1_cli.engine.sft import some_short
    from codea1_cli.files import user_path
    from codea1_cli.recipe.resources import judge_of

    pairs: list[Pair] = []
    for role in roles:
        file = getattr(recipe.sft, role)
        if file is None:
            chosen, options, source = made_of(recipe, role, needed)
            folder = pairs_folder(identity(chosen, options, source), role)
            file = str(folder / PAIRS)
            if not (folder / CARD).is_file():
                console.note(f"making the {role} policy's pairs of {counted(len(chosen), 'problem')}, kept in {folder}")
                with judge_of(recipe, every_core=True) as judge:
                    card = make_shown(folder, chosen, options, source, f"sft.{role}: null", judge, wait=True)
                found = f"{counted(card['pairs'], 'pair')} of {counted(card['with_pairs'], 'problem')}"
                console.note(f"{found}; {folder / 'README.md'} is their card")
        pairs += some_short(recipe, read_pairs(user_path(file), role))
    return pairs


def pairs_ahead(recipe: "Recipe", problems: int, notes: list[str]) -> tuple[int, int]:
    """As `row_counts`, of the pairs that a run of `method: sft` would have; where pairs are still to be made, one per
    problem is assumed. `notes` gets what a first use would make, also for a warm-up."""
    from codea1_cli.data.pairs import CARD, identity, read_pairs
    from codea1_cli.engine.sft import some_short
    from codea1_cli.files import kept_json, user_path
    from codea1_cli.methods.registry import method_of
    from codea1_cli.recipe.batching import warmup_recipe

    method, counts = method_of(recipe), list[int]()
    wish = recipe if method.pairs else warmup_recipe(recipe)
    needed = None if method.pairs or wish is None else wish.train.problems_per_step * (wish.train.max_steps or 0)
    for role in method.roles if wish is not None else ():
        file = getattr(recipe.sft, role)
        if file is not None:
            counts.append(len(some_short(recipe, read_pairs(user_path(file), role))))
        elif recipe.data.train is None:
            counts.append(problems)
            notes.append(f"first use: makes the {role} policy's pairs of the training problems")
        else:
            chosen, options, source = made_of(recipe, role, needed)
            folder = pairs_folder(identity(chosen, options, source), role)
            counts.append(kept_json(folder / CARD).get("pairs", len(chosen)))
            if not (folder / CARD).is_file():
                of = counted(len(chosen), "problem")
                notes.append(f"first use: makes the {role} policy's pairs of {of}, kept in {folder}")
    return (min(counts), max(counts)) if method.pairs else (problems, problems)


def made_of(recipe: "Recipe", role: str, needed: int | None) -> "tuple[list[Problem], PairOptions, dict[str, Any]]":
    """What a policy's pairs are made of: problems, how, and from what."""
    from codea1_cli.data.pairs import PairOptions, model_names
    from codea1_cli.methods.registry import method_of
    from codea1_cli.recipe.resources import training_problems

    asked: dict[str, Any] = {"tests_per_suite": recipe.game.tests_per_suite, "white_box": recipe.game.white_box}
    names = model_names(recipe.model_of(method_of(recipe).policy(role)))
    # Whatever the run's seed: the runs of a study share their pairs, and take them in an order of their own.
    options = PairOptions(role, names=names, **(asked if role == "test" else {}))
    problems = training_problems(recipe)
    enough = math.ceil(1.25 * (needed or 0) / _TURNS / (1 if role == "code" else options.per_problem))
    if needed is not None and enough < len(problems):
        places = random.Random(f"{options.seed} {role}").sample(range(len(problems)), enough)
        problems = [problems[place] for place in sorted(places)]
    return problems, options, {"from": "references" if role == "code" else "mutants"}


def warmed_up(
    recipe: "Recipe", directory: "RunDir", ranks: "GpuAssignment", nodes: "list[Node]", address: str | None
) -> "tuple[Recipe, RunOutcome | None]":
    """The recipe with its policies warmed up, now or by an earlier call, and None; or the recipe and the outcome of a
    warm-up that was interrupted."""
    from codea1_cli.cli.train_view import train_shown
    from codea1_cli.engine.sft import kept_pairs, warm_up
    from codea1_cli.methods.registry import method_of

    def train(wish: "Recipe", stage: "RunDir", done: int) -> "RunOutcome":
        needed = wish.train.problems_per_step * (wish.train.max_steps or 0)
        pairs = kept_pairs(stage) if done else recipe_pairs(wish, method_of(wish).roles, needed)
        console.note(f"the warm-up goes on from step {done}" if done else "the warm-up comes before the first step")
        return train_shown(wish, stage, pairs, ranks, nodes, done, None, address)

    if (outcome := warm_up(recipe, directory, train, ranks)) is None:
        recipe._warmed = directory.warmed(method_of(recipe).policies)
    return recipe, outcome


def pairs_folder(key: str, role: str) -> Path:
    """Where made pairs are kept, by what they are made of."""
    from codea1_cli.environment import cache_folder

    return cache_folder().absolute() / "pairs" / f"{role}-{key}"
