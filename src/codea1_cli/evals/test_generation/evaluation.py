"""Scoring suites on functions under a protocol, resumable; and the one-shot protocol on a fixed set during training,
where the policy's own engine samples."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from codea1_cli.durable import write_rows
from codea1_cli.evals.benchmark import BENCHMARK_SEED, Figures, SetOptions, TestBenchmark, Texts
from codea1_cli.evals.test_generation import Function, Mutant, fixed_sample, make_mutants, one_shot
from codea1_cli.evals.test_generation.execution import MutantLimits, Outcome, TestRun, TestRunner, coverage_of
from codea1_cli.evals.test_generation.figures import ONE_SHOT, PUBLISHED, FunctionScore, Scoring, summary, values
from codea1_cli.evals.test_generation.sampling import Progress, Suite, suite_of_text, suite_prompts
from codea1_cli.files import kept_rows
from codea1_cli.judging.judge import Judge
from codea1_cli.models.sampler import SamplingSettings
from codea1_cli.sandbox.base import Sandbox, in_order

FUNCTIONS = 64  # scored during training where the recipe sets no limit
WARM = ("numpy", "coverage", "sqlite3")  # what a sandbox for this should have loaded


def score_published(runner: TestRunner, function: Function, tests: Sequence[str | None], k: int) -> FunctionScore:
    """Runs the first k tests, on the function and on its mutants; a missing test counts as failing."""
    chosen = [*tests[:k], *[None] * (k - len(tests))]
    runs = [runner.run(function.program, function.name, test, trace=True) for test in chosen]
    outcomes = [run.outcome.value for run in runs]
    unscored = FunctionScore(function.id, outcomes, unscored=True)
    if Outcome.UNSCORED.value in outcomes:
        return unscored
    mutants = make_mutants(function.program)
    killed = killed_by_passing(runner, function, chosen, runs, mutants)
    arcs = frozenset().union(*(run.arcs or () for run in runs))
    if any(run.arcs is None for run in runs):  # loading the function covers its first lines, whatever the tests do
        loaded = runner.trace_calls(function.program, function.name, [])
        if loaded is None:
            return unscored
        arcs |= loaded
    if killed is None:
        return unscored
    return FunctionScore(
        function.id,
        outcomes,
        **asdict(coverage_of(function.program, arcs)),
        mutants=len(mutants),
        killed=sum(killed),
        tests=chosen,
        details=[run.detail for run in runs],
    )


def killed_by_passing(
    runner: TestRunner,
    function: Function,
    tests: Sequence[str | None],
    runs: Sequence[TestRun],
    mutants: Sequence[Mutant],
) -> list[bool] | None:
    """For each mutant whether any test that passes on the function (`runs`) kills it; None: the sandbox failed."""
    passing = [(test, run.seconds) for test, run in zip(tests, runs, strict=True) if run.passed and test is not None]
    return runner.kill(function.name, passing, mutants)


class Scorer:
    """Scores single suites. Thread-safe."""

    def __init__(self, sandbox: Sandbox, scoring: Scoring) -> None:
        self.scoring = scoring
        self.runner = TestRunner(sandbox, scoring.limits, MutantLimits(most_s=scoring.mutant_s))
        self.judge = Judge(sandbox, limits=scoring.limits, tolerance=scoring.tolerance)

    def faults(self, functions: Sequence[Function], workers: int) -> dict[str, str]:
        """Why functions do not load, by id; those that do are not in it."""
        found = in_order(self._fault, functions, workers)
        return {function.id: fault for function, fault in found if fault is not None}

    def check_tools(self) -> None:
        """What is needed once suites are there, before any is asked for.

        Raises:
            EnvironmentFault: coverage.py or cosmic-ray is not here, or the sandbox's interpreter has no coverage.py.
        """
        program = "def f(x):\n    return x + 1\n"
        make_mutants(program)
        coverage_of(program, self.runner.trace_calls(program, "f", ["f(1)"]) or ())

    def _fault(self, function: Function) -> str | None:
        return self.runner.load(function.program, function.name) if function.name else "no function"

    def score(self, protocol: str, function: Function, suite: Suite) -> FunctionScore:
        """One function's row under a protocol. Blocking."""
        if protocol == PUBLISHED:
            return score_published(self.runner, function, suite.tests, self.scoring.k)
        return one_shot.score(self.judge, self.runner, function, suite.text, self.scoring.tests_per_suite)


def score_all(
    scorer: Scorer,
    protocol: str,
    functions: Sequence[Function],
    suites: Mapping[str, Suite],
    file: Path | None,
    *,
    workers: int,
    progress: Progress | None = None,
) -> list[FunctionScore]:
    """One row per function, in order; a function without a suite has an empty one. Rows that `file` holds for the same
    suite, function and settings are taken from it, others are appended as they are made, and what the sandbox failed on
    is tried again next time."""
    stored = kept_rows(file) if file is not None else []
    known = {one["key"]: FunctionScore(**one["row"]) for one in stored if not one["row"]["unscored"]}
    jobs = [(function, suites.get(function.id, Suite(function.id, (), ""))) for function in functions]
    keys = [_key(scorer.scoring, function, suite) for function, suite in jobs]
    due = [(key, job) for key, job in zip(keys, jobs, strict=True) if key not in known]
    done = len(jobs) - len(due)
    fresh: dict[str, FunctionScore] = {}
    with closing(in_order(lambda one: scorer.score(protocol, *one[1]), due, workers)) as scored:
        for (key, _), row in scored:
            fresh[key] = row
            if file is not None:
                with file.open("a", encoding="utf-8") as out:
                    out.write(json.dumps({"key": key, "row": row.dump(protocol)}) + "\n")
            done += 1
            if progress is not None:
                progress(f"scoring, {protocol}", done, len(jobs))
    rows = [known.get(key) or fresh[key] for key in keys]
    if file is not None:
        write_rows(file, ({"key": key, "row": row.dump(protocol)} for key, row in zip(keys, rows, strict=True)))
    return rows


def _key(scoring: Scoring, function: Function, suite: Suite) -> str:
    parts = [asdict(scoring), function.program, function.name, function.calls, suite.tests, suite.text]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


class SuiteSet:
    """A test benchmark under the one-shot protocol, with the training's white-box prompt; see `benchmark.EvalSet`."""

    role, seed, n = "test", BENCHMARK_SEED, 1

    def __init__(self, name: str, benchmark: TestBenchmark, options: SetOptions) -> None:
        self.name, self.benchmark, self.options = name, benchmark, options
        self.items: list[Function] = []
        self.sandbox: Any = None

    def load(self) -> Sequence[Function]:
        """Functions of the benchmark up to the limit, the same ones at every step and in every run."""
        self.items = fixed_set(self.benchmark.load(self.options.data), self.options.limit or FUNCTIONS)
        return self.items

    def prompts(self, tokenizer: Any, items: Sequence[Function]) -> list[list[int]]:
        """Token ids of each function's prompt."""
        return suite_prompts(tokenizer, items, self.options.tests_per_suite)

    def sampling(self) -> SamplingSettings:
        """The recipe's settings, with one suite per function."""
        return replace(self.options.sampling, n=self.n)

    def score(self, texts: Texts) -> tuple[Figures, dict[str, Any]]:
        """The one-shot figures, and each function's share of them."""
        from codea1_cli.sandbox.make import make_sandbox

        if self.sandbox is None:
            self.sandbox = make_sandbox(self.options.scoring.of_sandbox(warm=WARM))
        replies = [texts[function.id][0] for function in self.items]
        return figures(self.sandbox, self.items, replies, self.options.tests_per_suite, self.sandbox.workers)

    def close(self) -> None:
        """Ends the sandbox."""
        if self.sandbox is not None:
            self.sandbox.close()
            self.sandbox = None


def fixed_set(functions: Sequence[Function], count: int) -> list[Function]:
    """`count` of the functions, chosen by their ids alone."""
    chosen = fixed_sample(functions, share=min(1.0, count / max(1, len(functions))))
    return [function for function in functions if function.id in chosen]


def figures(
    sandbox: Sandbox, functions: Sequence[Function], replies: Sequence[str], tests_per_suite: int, workers: int = 2
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The one-shot figures of the replies, flat, in percent where a share; blocking. `sandbox` is the judge's own.

    Numbers only, fit for a line of metrics.jsonl; intervals are left out. With them each function's share of each
    figure, 0 to 1, by its id; without the functions that the sandbox failed on.
    """
    scoring = Scoring(tests_per_suite=tests_per_suite)
    suites = {f.id: suite_of_text(f.id, reply) for f, reply in zip(functions, replies, strict=True)}
    scorer = Scorer(sandbox, scoring)
    rows = score_all(scorer, ONE_SHOT, functions, suites, None, workers=workers)
    found = summary(ONE_SHOT, rows, scoring, set())
    plain = {name: value for name, value in found.items() if value is None or isinstance(value, int | float)}
    return plain, {row.id: values(ONE_SHOT, row.dump(ONE_SHOT), tests_per_suite) for row in rows if not row.unscored}
