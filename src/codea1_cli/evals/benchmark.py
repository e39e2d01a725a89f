"""What a benchmark offers: to the commands that evaluate, and as an `EvalSet` to a run between its steps.

Of a run, the arena opens and loads a set and scores its texts. A rank opens the same set without loading it, gets its
share of the items, and samples their prompts: what scores the texts stays away from the policy's process.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from codea1_cli.extract.source import declaration, parse
from codea1_cli.models.sampler import SamplingSettings

if TYPE_CHECKING:
    from codea1_cli.evals.test_generation import Function
    from codea1_cli.problems.benchmark_files import PublicTask
    from codea1_cli.problems.problem import Problem
    from codea1_cli.sandbox.make import SandboxOptions


class Status(StrEnum):
    """What one sample came to on one set of tests.

    `NOT_RUN`: the task cannot run here (a library is missing), `UNSCORED`: the sandbox failed. Neither ever counts.
    """

    PASS = "pass"
    FAIL = "fail"
    TIMEOUT = "timeout"
    NOT_RUN = "not_run"
    UNSCORED = "unscored"


COUNTED = frozenset({Status.PASS, Status.FAIL, Status.TIMEOUT})


@dataclass(frozen=True)
class CodeTask:
    """One task. `prompt` is the benchmark's own, `reference` a whole program, `data` for the benchmark alone."""

    id: str
    entry_point: str
    prompt: str
    reference: str
    data: Any = field(default=None, repr=False, compare=False)


def statement(task_id: str, entry_point: str, prompt: str) -> Problem:
    """A task as the Test LLM is asked for it, made of the benchmark's prompt and the function's name alone.

    Where the prompt holds no function (MBPP's), its example says how many arguments the function takes.
    """
    from codea1_cli.problems.benchmark_files import docstring_of
    from codea1_cli.problems.problem import Problem, public_problem

    tree, text = parse(prompt) or ast.Module([], []), cleandoc(docstring_of(prompt)).strip()
    heads = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == entry_point]
    examples = [line for line in text.splitlines() if line.startswith("assert ") and parse(line)]
    if heads:
        head = declaration(heads[-1])
    else:
        calls = [node for line in examples for node in ast.walk(parse(line) or ast.Module([], []))]
        counts = [len(n.args) for n in calls if isinstance(n, ast.Call) and getattr(n.func, "id", "") == entry_point]
        names = [chr(ord("a") + at) for at in range(min(counts, default=0))]
        head = f"def {entry_point}({', '.join(names) if counts else '*args'}):"
    shown = Problem(id=task_id, question=text or prompt, declaration=head, entry_point=entry_point, tests=examples)
    return public_problem(shown)


@dataclass(frozen=True)
class Sample:
    """One solution. `solution` is the sanitised whole program that is scored, `raw` what came before sanitising."""

    task_id: str
    solution: str
    raw: str = ""
    number: int = 0  # of the task's samples, from 0


@dataclass(frozen=True)
class Scored:
    """`verdicts` has one status per column of the benchmark; a sample passes a column only with PASS in it and in all
    columns before (plus needs base AND plus)."""

    task_id: str
    number: int
    verdicts: dict[str, Status]
    detail: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class ReferenceReport:
    """How the references fare here. `failing` says why, by task: those are named and scores are given with and without
    them. `not_run` are tasks that cannot run here, `lacking` how many of them lack what (a library, by its name)."""

    tasks: int
    failing: dict[str, str] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    lacking: dict[str, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """The share of references that pass, of the tasks that run here."""
        runnable = self.tasks - len(self.not_run)
        return (runnable - len(self.failing)) / runnable if runnable else 0.0


@dataclass(frozen=True)
class ScoreOptions:
    """workers: samples scored at once, or requests to a service. python: the candidates' interpreter. cache: the folder
    of expected outputs. sandbox, endpoint, patience_s: where programs run, as `SandboxOptions` has it."""

    workers: int = 2
    python: str | None = None
    require: tuple[str, ...] = ()
    cache: Path | None = None
    sandbox: str = "local"
    endpoint: str | None = None
    patience_s: float = 60.0

    def of_sandbox(self, **more: Any) -> SandboxOptions:
        """The sandbox that they ask for, with `more` of its options."""
        from codea1_cli.sandbox.make import SandboxOptions

        return SandboxOptions(
            self.sandbox,
            self.endpoint,
            self.patience_s,
            **{"python": self.python, "require": self.require, "workers": self.workers, **more},
        )

    @property
    def on_this_machine(self) -> bool:
        """Whether programs run on the machine that asks for them."""
        return self.of_sandbox().on_this_machine


Progress = Callable[[int, int], None]
"""Told (done, of all) as work goes on."""


class CodeBenchmark(Protocol):
    """A benchmark of programs. It is loaded once; everything else works on the tasks that it loaded.

    columns: the sets of tests, weakest first: ("base", "plus"), or one. styles: names of prompt styles, default first.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    styles: tuple[str, ...]
    max_new_tokens: int  # of the published protocol

    def load(self, data: Path | None) -> list[CodeTask]:
        """The tasks, from a file or folder, or the hub. Raises UserError or EnvironmentFault with the way out."""

    def public_task(self, row: Mapping[str, Any]) -> PublicTask:
        """A published row as training data is compared with it. Raises KeyError or TypeError for another row."""

    def data_hash(self) -> str:
        """The hash of the loaded data; equal hashes are equal tasks."""

    def prompts(self, tasks: Sequence[CodeTask], tokenizer: Any, style: str) -> list[list[Any]]:
        """Token ids of each task's prompt; without a tokenizer a chat, or a text alone, for a server."""

    def stop(self, style: str) -> tuple[str, ...]:
        """Strings that end a sampled text, to be asked for after the prompts."""

    def sample(self, task: CodeTask, text: str, number: int, style: str) -> Sample:
        """A sampled text as a sample: raw and sanitised."""

    def read(self, row: dict[str, Any], task: CodeTask, number: int) -> Sample:
        """A row of a sample file (`solution` or `completion`) as a sample; nothing is sanitised."""

    def sanitize(self, task: CodeTask, raw: str) -> str:
        """The program in a raw solution, as the benchmark's own sanitiser finds it."""

    def missing(self, tasks: Sequence[CodeTask], options: ScoreOptions) -> dict[str, int]:
        """Libraries that these tasks need and the samples' interpreter lacks, with the number of tasks of each."""

    def check_references(
        self, options: ScoreOptions, progress: Progress, ids: Collection[str] | None = None
    ) -> ReferenceReport:
        """Runs the references of these tasks, or of all; their times set the limits of `score`."""

    def score(self, samples: Sequence[Sample], options: ScoreOptions, progress: Progress) -> list[Scored]:
        """Verdicts in the order of the samples. Equal programs of a task are run once."""

    def close(self) -> None:
        """Ends the sandbox."""


class TestBenchmark(Protocol):
    """A benchmark of suites: functions that tests are written for."""

    title: str

    def load(self, data: Path | None) -> list[Function]:
        """The functions, from a file or folder. Raises UserError with the way out."""

    def public_task(self, row: Mapping[str, Any]) -> PublicTask:
        """A published row as training data is compared with it. Raises KeyError or TypeError for another row."""


# -- as a set that a run is evaluated on -------------------------------------------------------------------------------
Texts = Mapping[str, Sequence[str]]
"""What was sampled, by the id of the item."""
Figures = dict[str, Any]
"""By their names in a line of metrics.jsonl."""
BENCHMARK_SEED = 13


@dataclass(frozen=True)
class SetOptions:
    """What a run's recipe says of its benchmarks.

    data: their file or folder; None: where each is found or published. limit: only so many items. sampling: the longest
    reply is the one that the policy is trained for. tests_per_suite: asserts that a suite is asked for.
    """

    data: Path | None
    limit: int | None
    sampling: SamplingSettings
    scoring: ScoreOptions
    tests_per_suite: int


class EvalSet(Protocol):
    """One set. name: by which ranks and arena know it. role: the policy that is sampled, `n` texts per item. seed: what
    tells its random numbers from those of other sets; they are the same at every step."""

    name: str
    role: str
    seed: int
    n: int

    def load(self) -> Sequence[Any]:
        """The items, each with an `id` and an `entry_point`; they go to the ranks. Raises UserError or EnvironmentFault
        where the data is not there."""

    def prompts(self, tokenizer: Any, items: Sequence[Any]) -> list[list[int]]:
        """Token ids of each item's prompt."""

    def sampling(self) -> SamplingSettings | None:
        """How the prompts are sampled, None for the training's own settings. To be asked after `prompts`: stop strings
        may depend on the tokenizer."""

    def score(self, texts: Texts) -> tuple[Figures, Any]:
        """The figures of a metrics line, and rows of the items for a file, of what was sampled. Blocking."""

    def close(self) -> None:
        """Ends what scored."""


class CodeSet:
    """A code benchmark under the default prompt style of `codea1 eval-code`."""

    role, seed = "code", BENCHMARK_SEED

    def __init__(self, name: str, benchmark: CodeBenchmark, options: SetOptions) -> None:
        self.name, self.benchmark, self.options, self.n = name, benchmark, options, options.sampling.n
        self.style = benchmark.styles[0]
        self.items: list[Any] = []

    def load(self) -> Sequence[Any]:
        """The benchmark's tasks, up to the limit."""
        self.items = self.benchmark.load(self.options.data)[: self.options.limit]
        return self.items

    def prompts(self, tokenizer: Any, items: Sequence[Any]) -> list[list[int]]:
        """Token ids of each task's prompt."""
        return self.benchmark.prompts(items, tokenizer, self.style)

    def sampling(self) -> SamplingSettings:
        """The recipe's settings, with the benchmark's stop strings and no more tokens than its protocol has."""
        wish = self.options.sampling
        longest = min(self.benchmark.max_new_tokens, wish.max_new_tokens)
        return replace(wish, max_new_tokens=longest, stop=self.benchmark.stop(self.style))

    def score(self, texts: Texts) -> tuple[Figures, dict[str, Any]]:
        """pass@k of each column, and counts by task."""
        from codea1_cli.evals.scoring import score_texts

        options = self.options.scoring
        return score_texts(self.benchmark, dict(texts), self.items, style=self.style, options=options)

    def close(self) -> None:
        """Ends the benchmark's sandbox."""
        self.benchmark.close()
