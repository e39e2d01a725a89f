"""The benchmarks: one row each. Whoever is not a benchmark's own folder knows it only through its row.

A new benchmark is a folder beside this file, with a class that satisfies `CodeBenchmark` or `TestBenchmark` of
`evals.benchmark`, and a row here. The command line, recipes, evaluation during training and the decontamination of
training data then have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from codea1_cli.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from codea1_cli.evals.benchmark import CodeBenchmark, EvalSet, SetOptions, TestBenchmark
    from codea1_cli.evals.bigcodebench.environment import EnvironmentPlan


@dataclass(frozen=True)
class BenchmarkRow:
    """One benchmark.

    name: its name on the command line, in `eval.benchmarks` and in metrics. title: its name in messages; about: what it
    consists of. role: the policy that it measures. files: what its published file is called (glob patterns), the
    publisher's own name first. prefix: what its task ids begin with. hub: the dataset of each subset; revision: the
    split or version that is read there.

    setup: plans the interpreter that its tasks need, in a folder and of a version; None where none is needed.

    open: makes the benchmark of a subset, a `CodeBenchmark` or, for the role `test`, a `TestBenchmark`. It imports what
    it needs when it is called, and loads no data.
    """

    name: str
    title: str
    about: str
    role: Literal["code", "test"]
    files: tuple[str, ...]
    open: Callable[[str], Any]
    prefix: str = ""
    hub: Mapping[str, str] = field(default_factory=dict)
    revision: str | None = None
    subsets: tuple[str, ...] = ("full",)
    setup: Callable[[Path | None, str], EnvironmentPlan] | None = None


def _evalplus(name: str) -> CodeBenchmark:
    from codea1_cli.evals.evalplus.benchmark import EvalPlusBenchmark

    return EvalPlusBenchmark(name)


def _bigcodebench(subset: str) -> CodeBenchmark:
    from codea1_cli.evals.bigcodebench.benchmark import BigCodeBenchmark

    return BigCodeBenchmark(hard=subset == "hard")


def _bigcodebench_setup(folder: Path | None, python: str) -> EnvironmentPlan:
    from codea1_cli.evals.bigcodebench.environment import plan_environment

    return plan_environment(folder, python)


def _unleaked() -> TestBenchmark:
    from codea1_cli.evals.test_generation.functions import UnLeakedTestBench

    return UnLeakedTestBench()


_ROWS = (
    BenchmarkRow(
        name="humaneval",
        title="HumanEval+",
        about="164 tasks of EvalPlus",
        role="code",
        files=("humaneval_plus.jsonl.gz",),
        prefix="HumanEval/",
        hub={"full": "evalplus/humanevalplus"},
        open=lambda _subset: _evalplus("humaneval"),
    ),
    BenchmarkRow(
        name="mbpp",
        title="MBPP+",
        about="378 tasks of EvalPlus",
        role="code",
        files=("mbpp_plus.jsonl.gz",),
        prefix="Mbpp/",
        hub={"full": "evalplus/mbppplus"},
        open=lambda _subset: _evalplus("mbpp"),
    ),
    BenchmarkRow(
        name="bigcodebench",
        title="BigCodeBench",
        about="1,140 tasks that use libraries, or the 148 hard ones",
        role="code",
        files=("bigcodebench-v0.1.4.jsonl.gz", "*igcode*ench*.jsonl*"),
        prefix="BigCodeBench/",
        hub={"full": "bigcode/bigcodebench", "hard": "bigcode/bigcodebench-hard"},
        revision="v0.1.4",
        open=_bigcodebench,
        subsets=("full", "hard"),
        setup=_bigcodebench_setup,
    ),
    BenchmarkRow(
        name="ult",
        title="ULT",
        about="UnLeakedTestBench, functions to write tests for",
        role="test",
        files=("ult_lite.json", "ULT.jsonl", "datasets/ULT.jsonl", "bench/ult_lite.json"),
        prefix="ULT/",
        open=lambda _subset: _unleaked(),
    ),
)
ROWS: dict[str, BenchmarkRow] = {row.name: row for row in _ROWS}


def names(role: str | None = None) -> tuple[str, ...]:
    """The names of the benchmarks, or of those that measure one role."""
    return tuple(row.name for row in ROWS.values() if role in (None, row.role))


def benchmark_row(name: str) -> BenchmarkRow:
    """The row of that name.

    Raises:
        UserError: there is no such benchmark.
    """
    if name not in ROWS:
        raise UserError(f"no benchmark {name!r}", hint=f"one of {', '.join(names())}")
    return ROWS[name]


def open_benchmark(name: str, subset: str = "full") -> CodeBenchmark:
    """The code benchmark of that name; `NAME-SUBSET` (`bigcodebench-hard`) names a subset too. Nothing is loaded yet.

    Raises:
        UserError: there is no such benchmark or subset.
    """
    name, _, tail = name.partition("-")
    subset = tail or subset
    if name not in names("code"):
        raise UserError(f"no benchmark {name!r}", hint=f"one of {', '.join(names('code'))}")
    if subset not in ROWS[name].subsets:
        others = ", ".join(
            f"--subset {part} goes with {row.name}" for row in ROWS.values() for part in row.subsets if part != "full"
        )
        raise UserError(f"{name} has no subset {subset!r}", hint=others)
    opened: CodeBenchmark = ROWS[name].open(subset)
    return opened


def open_test_benchmark(name: str) -> TestBenchmark:
    """The test benchmark of that name. Nothing is loaded yet.

    Raises:
        UserError: there is none.
    """
    if name not in names("test"):
        raise UserError(f"no benchmark {name!r}", hint=f"one of {', '.join(names('test'))}")
    opened: TestBenchmark = ROWS[name].open("full")
    return opened


def open_set(name: str, options: SetOptions) -> EvalSet:
    """The benchmark of that name as a set. Nothing is loaded yet.

    Raises:
        UserError: there is no such benchmark.
    """
    if benchmark_row(name).role == "code":
        from codea1_cli.evals.benchmark import CodeSet

        return CodeSet(name, open_benchmark(name), options)
    from codea1_cli.evals.test_generation.evaluation import SuiteSet

    return SuiteSet(name, open_test_benchmark(name), options)
