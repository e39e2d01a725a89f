"""What other programs may use: replies read, programs judged, tests scored, a run's records as rows.

`from codea1_cli import judge` and the like; docs/python.md shows each. Models are no part of it: nothing here imports
torch. Programs run in a sandbox; one is started for all calls that are given none, and ends with the process. Each
function says by UserError which of its arguments is none of what its annotation names.
"""

from __future__ import annotations

import atexit
import inspect
import os
import reprlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache, lru_cache, wraps
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from codea1_cli import extract
from codea1_cli.errors import UserError
from codea1_cli.evals import statistics
from codea1_cli.mistakes import BookRow, MistakeStore
from codea1_cli.problems import problem
from codea1_cli.problems.problem import Problem
from codea1_cli.runs.rollout_files import rollout_files, whole_rollouts
from codea1_cli.runs.run_dir import RunDir, find_run, runs_root
from codea1_cli.sandbox import make
from codea1_cli.sandbox.base import Limits, Sandbox
from codea1_cli.sandbox.make import SandboxOptions

__all__ = [
    "BookRow",
    "Judged",
    "MutationScore",
    "Problem",
    "SandboxOptions",
    "extract_code",
    "judge",
    "make_sandbox",
    "mistake_book",
    "mutation_score",
    "parse_suite",
    "pass_at_k",
    "read_problems",
    "rollouts",
]
P = ParamSpec("P")
R = TypeVar("R")
_KINDS = {int: Integral, float: Real, Path: os.PathLike, Sequence: Collection}  # what is taken as such
_WORDS = {
    int: "a whole number", float: "a number", bool: "True or False", str: "a text", Path: "a path", NoneType: "None",
    Sequence: "a list", Iterable: "a list", Mapping: "a mapping", Sandbox: "a sandbox of make_sandbox",
}  # fmt: skip


def _checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which refuses an argument of another kind before it does anything."""

    signature, hints_of = inspect.signature(function), cache(get_type_hints)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        hints, given = hints_of(function), {}
        with suppress(TypeError):  # which the call says better
            given = signature.bind(*args, **kwargs).arguments
        for name, value in given.items():
            _expect(f"{function.__name__}: {name}", value, hints[name])
            if isinstance(value, SandboxOptions):
                for field, hint in get_type_hints(SandboxOptions).items():
                    _expect(f"SandboxOptions: {field}", getattr(value, field), hint)
        return function(*args, **kwargs)

    return checked


def _expect(name: str, value: object, hint: Any) -> None:
    if not _is(value, hint):
        raise UserError(f"{name} is {reprlib.repr(value)}, where {_wanted(hint)} is wanted")


def _is(value: object, hint: Any) -> bool:
    """Whether a value is what an annotation says; what an iterator gives is seen when it gives it."""
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return any(_is(value, part) for part in parts)
    if kind is Sandbox:
        return hasattr(value, "run")
    if isinstance(value, str | bytes | Mapping) and kind in (Sequence, Iterable):
        return False  # of their parts nobody means one
    if isinstance(value, bool) and kind is not bool:
        return False
    sound = isinstance(value, _KINDS.get(kind, kind))
    return sound and (kind is not Sequence or all(_is(part, parts[0]) for part in value))  # type: ignore[attr-defined]


def _wanted(hint: Any) -> str:
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return " or ".join(map(_wanted, parts))
    word = _WORDS.get(kind) or f"a {kind.__name__}"
    return f"{word}, each part {_wanted(parts[0])}," if kind in (Sequence, Iterable) else word


extract_code, parse_suite = _checked(extract.extract_code), _checked(extract.parse_suite)
make_sandbox, pass_at_k = _checked(make.make_sandbox), _checked(statistics.pass_at_k)
read_problems = _checked(problem.read_problems)


@dataclass(frozen=True)
class Judged:
    """One row, judged, as `codea1 judge --json` prints it.

    status: `ok` when the candidate passes every valid test, else the worst verdict (`unscored`: the sandbox itself
    failed), or `no_valid_test`. tests: each with `test`, `valid`, `stated_correctly`, `verdict`, `expected`, `got` and
    `reason`. load_detail: why the candidate, or the reference, does not load.
    """

    id: str
    status: str
    load_detail: str | None
    tests: list[dict[str, Any]]

    @property
    def share(self) -> float | None:
        """Of the valid tests, how many the candidate passes, from 0 to 1; None when there is none, or unscored."""
        valid = [test["verdict"] for test in self.tests if test["valid"]]
        return None if self.status == "unscored" or not valid else valid.count("passed") / len(valid)

    @property
    def exposed(self) -> bool | None:
        """Whether a test that states the reference's answer fails on the candidate; None when unscored."""
        if self.status == "unscored":
            return None
        right = [test["verdict"] for test in self.tests if test["valid"] and test["stated_correctly"]]
        return any(verdict != "passed" for verdict in right)


@_checked
def judge(
    rows: Iterable[Mapping[str, Any]],
    *,
    time_limit_s: float = 4.0,
    memory_mb: int = 1024,
    tolerance: float = 1e-6,
    sandbox: Sandbox | None = None,
) -> list[Judged]:
    """Candidates against references, all at once; the results are in the rows' order.

    A row is what `codea1 judge FILE` takes: `id` (by default its number), `reference`, `candidate`, `entry_point`, and
    `tests` (a list of asserts) or `suite` (a reply's text). What counts as right is what the reference gives, not what
    a test states.

    Raises:
        UserError: a row lacks a field, or has one of another type or of a misspelt name.
    """
    from codea1_cli.judging.judge_rows import RowJudge, numbers_of, row_of

    limits = {"time_limit_s": float(time_limit_s), "memory_mb": int(memory_mb), "tolerance": float(tolerance)}
    numbers_of(limits, "judge")
    read = []
    for number, row in enumerate(rows):
        _expect(f"row {number}", row, Mapping)
        read.append(row_of({"id": str(number), **row}, f"row {number}"))
    box = sandbox or _shared_sandbox(os.getpid())
    judged = RowJudge(box, Limits(time_s=float(time_limit_s), memory_mb=int(memory_mb)), float(tolerance))
    return [Judged(**report) for report in judged.stream(read, box.workers)]


@dataclass(frozen=True)
class MutationScore:
    """What tests are worth on one function: `outcomes` of each on the function itself, and how many `mutants` of its
    lines those that pass kill. survivors: the others, each as a diff."""

    outcomes: list[str]
    mutants: int
    killed: int
    survivors: list[str]

    @property
    def share(self) -> float | None:
        """The share of the mutants that are killed, from 0 to 1; None where the function has no mutants."""
        return self.killed / self.mutants if self.mutants else None


@_checked
def mutation_score(
    source: str, entry_point: str, tests: Sequence[str], *, sandbox: Sandbox | None = None
) -> MutationScore | None:
    """Runs tests (statements, test functions or classes) on a function and on its mutants, which are cosmic-ray's.

    None: the sandbox failed. Raises UserError when `source` does not define the function or does not load.
    """
    from codea1_cli.evals.test_generation import functions_of
    from codea1_cli.evals.test_generation.evaluation import Scorer
    from codea1_cli.evals.test_generation.figures import Scoring
    from codea1_cli.evals.test_generation.job import scored_function
    from codea1_cli.evals.test_generation.sampling import suite_of_entries

    function = next((one for one in functions_of(source) if one.name == entry_point), None)
    if function is None:
        raise UserError(f"the source defines no function {entry_point!r} at its top level")
    scorer = Scorer(sandbox or _shared_sandbox(os.getpid()), Scoring())
    if fault := scorer.faults([function], 1):
        raise UserError(f"the source does not load: {fault[function.id]}")
    row = scored_function(scorer.runner, function, suite_of_entries(entry_point, tests), "source")
    if row["unscored"]:
        return None
    outcomes = [test["outcome"] for test in row["tests"]]
    return MutationScore(outcomes, row["mutants"], row["killed"], [one["diff"] for one in row["survivors"]])


@_checked
def mistake_book(run: str | Path | None = None, *, runs: str | Path | None = None) -> list[BookRow]:
    """The live tests of a run's Mistake Book, problem by problem, the most often failed first.

    run: its name in the folder `runs` (CODEA1_RUNS, or ./runs) or its path; None: the newest.

    Raises:
        UserError: there is no such run, or it has no Mistake Book.
    """
    with closing(MistakeStore(_run(run, runs).mistakes_file, read_only=True)) as store:
        return store.live()


@_checked
def rollouts(
    run: str | Path | None = None, step: int | None = None, *, runs: str | Path | None = None
) -> Iterator[dict[str, Any]]:
    """What a run sampled: a row per candidate, with its suites and all verdicts (docs/run-directory.md has the
    columns), steps in order, or those of one step. The run is named as for `mistake_book`.

    Raises:
        UserError: there is no such run or step, or a file cannot be read.
    """
    found = rollout_files(_run(run, runs).path / "rollouts")
    if step is not None and step not in found:
        raise UserError(f"the run has no rollouts of step {step}", hint="steps: " + ", ".join(map(str, sorted(found))))
    steps = sorted(found) if step is None else [step]
    return (row for at in steps for row in whole_rollouts(found[at]))


def _run(name: str | Path | None, root: str | Path | None) -> RunDir:
    return find_run(None if name is None else str(name), runs_root(root))


@lru_cache(maxsize=1)
def _shared_sandbox(process: int) -> Sandbox:
    """The sandbox of all calls that are given none; a fork of this process needs its own."""
    from codea1_cli.evals.test_generation.evaluation import WARM

    sandbox = make_sandbox(SandboxOptions(warm=WARM))
    atexit.register(_end, sandbox, process)
    return sandbox


def _end(sandbox: Sandbox, process: int) -> None:
    if os.getpid() == process:
        sandbox.close()
