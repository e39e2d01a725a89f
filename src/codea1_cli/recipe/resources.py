"""What a recipe names, opened: its problems, its judge, what the run is evaluated on, and when."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

from codea1_cli.environment import cache_folder, nobody_asked
from codea1_cli.errors import EnvironmentFault, UserError, command, counted, size_text, some
from codea1_cli.evals.benchmark import EvalSet, ScoreOptions, SetOptions
from codea1_cli.evals.heldout import NEAR_MISSES, TARGETS, HeldoutAttacking, HeldoutNearMisses, HeldoutSolving
from codea1_cli.evals.registry import benchmark_row, open_set
from codea1_cli.evals.wrong_programs import wrong_programs
from codea1_cli.files import user_path
from codea1_cli.judging.judge import Judge, ReferenceCache, own_calls
from codea1_cli.judging.step_judge import StepJudge
from codea1_cli.methods.registry import method_of
from codea1_cli.models.loading import BUILTIN as EMBEDDED
from codea1_cli.models.sampler import SamplingSettings
from codea1_cli.problems.problem import Problem, read_problems
from codea1_cli.recipe.schema import Recipe
from codea1_cli.sandbox.base import Limits
from codea1_cli.tiny import KNOWN, problems_path, unread

BUILTIN = "builtin:tiny/"
FEW = 10  # held-out problems below which a difference says nothing


def problems_file(source: str) -> Path:
    """The file behind `data.train` or `data.heldout`.

    Raises:
        UserError: it does not exist.
    """
    if source.startswith(BUILTIN):
        return problems_path(source.removeprefix(BUILTIN))
    path, hint = user_path(source), "give a .jsonl, .jsonl.gz or .parquet file, or builtin:tiny/train"
    if path.is_dir():
        path = next((one for one in (path / "train.jsonl", path / "train.parquet") if one.is_file()), path)
    if raw := path.exists() and (path.is_dir() or path.suffix == ".py"):
        hint = f"`{command('prepare-data', source, '--out', 'problems')}` makes problems of Python files and tables"
    if raw or not path.is_file():
        raise UserError(f"no problems at {source}", hint=hint)
    return path


def training_problems(recipe: Recipe) -> list[Problem]:
    """The recipe's training problems, in file order.

    Raises:
        UserError: no source is named, the file is missing or broken, or it holds no problem.
    """
    if recipe.data.train is None:
        what = f"the recipe names no training data{f'; it wants {recipe.data.expects}' if recipe.data.expects else ''}"
        raise UserError(what, hint="add data.train=FILE.jsonl, or a data.source")
    needed = method_of(recipe).needs_reference
    problems = read_problems(problems_file(recipe.data.train), recipe.data.limit, references=needed)
    if not problems:
        raise UserError(f"{recipe.data.train} holds no problem", hint="it has a row each, as `prepare-data` writes")
    return problems


def unread_problems(recipe: Recipe, problems: Sequence[Problem]) -> dict[str, str]:
    """Why problems are left out of a run, by id, as far as is known before it: its method has no use for them, or its
    model is the embedded one, whose corpus has no function of such arguments.

    Raises:
        UserError: none is left.
    """
    found = _unread(recipe, problems)
    if found and len(found) == len(problems):
        taken = some(sorted(set(found.values())))
        raise UserError(
            f"the embedded model can read no problem of {recipe.data.train}: they take {taken}",
            hint=f"it knows functions of {', '.join(KNOWN)}; `--recipe 135m` trains a model that knows more",
        )
    try:
        left_out = method_of(recipe).left_out(problems)
    except UserError as fault:
        raise UserError(f"{recipe.data.train}: {fault.what}", hint=fault.hint) from None
    return left_out | {pid: f"the embedded model knows no function of {kind}" for pid, kind in found.items()}


def _unread(recipe: Recipe, problems: Sequence[Problem]) -> dict[str, str]:
    """What a problem's function takes that no function does which the recipe's embedded model knows, by id."""
    method = method_of(recipe)
    if method.pairs or EMBEDDED not in map(recipe.model_of, method.policies):
        return {}
    return {problem.id: kind for problem in problems if (kind := unread(own_calls(problem), problem.declaration))}


def heldout_problems(recipe: Recipe) -> list[Problem]:
    """The held-out problems that have tests; an empty list when the recipe names none.

    Raises:
        UserError: the file is missing or broken, none of its problems has a test, or nothing says which wrong programs
            suites are to be written against.
    """
    if recipe.data.heldout is None:
        return []
    needed = method_of(recipe).needs_reference
    every = read_problems(problems_file(recipe.data.heldout), references=needed)
    problems = [problem for problem in every if own_calls(problem)]
    if not problems:
        raise UserError(
            f"no problem of {recipe.data.heldout} has tests, so nothing can be evaluated",
            hint="give held-out problems with tests, or data.heldout=null",
        )
    chosen = problems[: recipe.eval.limit]
    known = any(file.name == TARGETS for file in target_files(recipe)) or any(map(wrong_programs, chosen))
    if "test" in method_of(recipe).roles and not recipe.eval.before and not known:
        raise UserError(
            "eval.before=false leaves no wrong programs that suites could be measured on: they are the first policy's "
            "own wrong solutions",
            hint="eval.targets=RUN takes those of another run",
        )
    return chosen


def target_files(recipe: Recipe) -> list[Path]:
    """The files of wrong programs in the run that `eval.targets` names; none where it names none.

    Raises:
        UserError: it has none.
    """
    if recipe.eval.targets is None:
        return []
    folder = user_path(recipe.eval.targets) / "evaluation"
    found = [folder / name for name in (TARGETS, NEAR_MISSES) if (folder / name).is_file()]
    if not found:
        raise UserError(
            f"eval.targets={recipe.eval.targets}: there is no {TARGETS} or {NEAR_MISSES} in {folder}",
            hint="the folder of a run that has been evaluated, such as runs/NAME",
        )
    return found


def split_text(train: int, heldout: int, more: str, pairs: bool = False) -> str:
    """How many problems, or pairs, there are to train on and to measure on; where the latter are too few, `more` says
    what brings more of them."""
    text = f"{counted(train, 'pair' if pairs else 'problem')} to train on, {heldout} held out"
    return text if heldout >= FEW else f"{text}: too few to tell whether training helps; {more}"


def split_notes(recipe: Recipe, train: int, heldout: Sequence[Problem], ahead: int | None = 0) -> list[str]:
    """What a run has to train on and to be measured on; `ahead`: what its source will hold out, once it is prepared,
    None where nothing tells how much that will be, nor how much it will have to train on.
    Held-out problems that the embedded model cannot read are told: they count as unsolved."""
    notes, unknown = list[str](), _unread(recipe, heldout)
    if unknown:
        what, kinds = counted(len(heldout), "held-out problem"), some(sorted(set(unknown.values())))
        notes.append(f"{len(unknown)} of {what} will stay unsolved: the embedded model knows no function of {kinds}")
    if ahead is None:
        return notes
    measured = len(heldout) if recipe.data.heldout else ahead
    return [*notes, split_text(train, measured, "data.heldout=FILE names others", method_of(recipe).pairs)]


def file_hash(source: str) -> str:
    """SHA-256 of the problems file."""
    return hashlib.sha256(problems_file(source).read_bytes()).hexdigest()


def open_judge(recipe: Recipe, *, workers: int | None = None, cache: Path | None = None) -> Judge:
    """The judge that a recipe asks for, with its limits, on its sandbox. Whoever opens it closes `sandbox` and `cache`.

    Args:
        workers: programs at once; None: what the recipe says.
        cache: the folder of the reference's answers; None keeps them in memory.

    Raises:
        EnvironmentFault: the sandbox does not start, or lacks a required layer.
    """
    from codea1_cli.sandbox.make import SandboxOptions, make_sandbox

    section = recipe.judge
    sandbox = SandboxOptions(**recipe.sandbox.model_dump(), workers=workers or section.workers)
    return Judge(
        make_sandbox(sandbox),
        limits=Limits(time_s=section.time_limit_s, memory_mb=section.memory_mb),
        tolerance=section.float_tolerance,
        cache=ReferenceCache(cache),
    )


@contextmanager
def judge_of(recipe: Recipe, every_core: bool = False) -> Iterator[Judge]:
    """The judge that a run of `recipe` uses, for one block; one program at once, or one per core, unless the recipe
    says otherwise.

    Raises:
        EnvironmentFault: as `open_judge`.
    """
    judge = open_judge(recipe, workers=None if every_core else recipe.judge.workers or 1)
    with closing(judge.cache), closing(judge.sandbox):
        yield judge


def open_step_judge(recipe: Recipe, run_path: Path | None) -> StepJudge:
    """The judge of a run's steps; the reference's answers are kept in the run directory, in memory without one.

    Raises:
        EnvironmentFault: as `open_judge`.
    """
    judge = open_judge(recipe, cache=run_path / "references" if run_path is not None else None)
    return StepJudge(recipe.game, judge, method_of(recipe).own_tests(recipe.game))


# -- what the run is evaluated on -------------------------------------------------------------------------------------
def heldout_sets(
    recipe: Recipe,
    problems: Sequence[Problem] = (),
    judge: StepJudge | None = None,
    progress: Callable[[], None] = lambda: None,
) -> tuple[HeldoutSolving, HeldoutNearMisses, HeldoutAttacking]:
    """The held-out sets of a run, in the order in which they are sampled: near misses can be looked for while the Code
    LLM samples, who may give the third set its programs. The arena gives problems and judge, a rank neither."""
    shown = recipe.game.tests_per_suite, recipe.game.white_box
    return (
        HeldoutSolving(recipe.eval.n, problems, judge, progress),
        HeldoutNearMisses(*shown, problems, judge, progress),
        HeldoutAttacking(*shown, problems, judge, progress),
    )


def benchmark_sets(recipe: Recipe, workers: int = 1) -> list[EvalSet]:
    """The benchmarks that a recipe names, not yet loaded, without those of a policy that its method does not train.

    workers: programs scored at once.
    """
    wish, found = recipe.eval, []
    data = user_path(wish.benchmark_data) if wish.benchmark_data else None
    where = recipe.sandbox
    scoring = ScoreOptions(
        workers, wish.benchmark_python, tuple(where.require), cache_folder(), where.backend, where.endpoint,
        where.patience_s,
    )  # fmt: skip
    for name in wish.benchmarks:
        role = benchmark_row(name).role
        if role not in method_of(recipe).roles:
            continue
        longest = recipe.role(role).max_completion_tokens
        sampling = SamplingSettings(wish.benchmark_n, wish.benchmark_temperature, wish.benchmark_top_p, longest)
        options = SetOptions(data, wish.benchmark_limit, sampling, scoring, recipe.game.tests_per_suite)
        found.append(open_set(name, options))
    return found


def check_benchmarks(recipe: Recipe, look: bool = False) -> list[str]:
    """Loads the data of the benchmarks that the recipe names, fetching it where it is not here; a look ahead returns
    what would be fetched.

    Raises:
        UserError, EnvironmentFault: it is not there.
    """
    ahead = []
    for chosen in benchmark_sets(recipe):
        try:
            with nobody_asked() if look else nullcontext():
                chosen.load()
                chosen.close()
        except (UserError, EnvironmentFault) as fault:
            size = benchmark_row(chosen.name).published["full"].size
            if look and isinstance(fault, EnvironmentFault) and recipe.eval.benchmark_data is None:
                ahead.append(f"first use: fetches the benchmark {chosen.name}, about {size_text(size)}")
                continue
            where = "eval.benchmark_data=FILE names the file, or the folder that holds it"
            raise type(fault)(f"eval.benchmarks: {fault.what}", hint=f"{where}; {fault.hint}") from None
    return ahead


# -- when it is due ----------------------------------------------------------------------------------------------------
def heldout_due(recipe: Recipe, step: int, *ends: int) -> bool:
    """Before the first step (`eval.before`), at `ends` (the last one of the run, and of a call with --max-steps), and
    every `eval.every`."""
    return recipe.data.heldout is not None and _due(recipe, step, ends, recipe.eval.every)


def benchmarks_due(recipe: Recipe, step: int, *ends: int) -> bool:
    """Before the first step (`eval.before`), at `ends`, and every `eval.benchmark_every` or else `eval.every`."""
    return bool(recipe.eval.benchmarks) and _due(recipe, step, ends, recipe.eval.benchmark_every or recipe.eval.every)


def _due(recipe: Recipe, step: int, ends: Sequence[int], every: int | None) -> bool:
    if step == 0:
        return recipe.eval.before
    return step in ends or (every is not None and step % every == 0)


def figure_due(recipe: Recipe, step: int, *ends: int) -> bool:
    """Whether the figure that marks the best checkpoint is measured after this step."""
    figure = recipe.eval.best
    if figure is None:
        return False
    return (heldout_due if figure.startswith("heldout/") else benchmarks_due)(recipe, step, *ends)
