"""The benchmarks: one row each. Whoever is not a benchmark's own folder knows it only through its row.

A new benchmark is a folder beside this file, with a class that satisfies `CodeBenchmark` or `TestBenchmark` of
`evals.benchmark`, and a row here. The command line, recipes, evaluation during training and the decontamination of
training data then have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codea1_cli.errors import UserError
from codea1_cli.methods.registry import RoleName
from codea1_cli.problems.benchmark_files import Published, find_file

if TYPE_CHECKING:
    from codea1_cli.evals.benchmark import CodeBenchmark, EvalSet, SetOptions, TestBenchmark
    from codea1_cli.evals.bigcodebench.environment import EnvironmentPlan


@dataclass(frozen=True)
class TaskSource:
    """A SOURCE of `prepare-data` that makes problems of benchmarks' tasks. title, license: those of the data card."""

    name: str
    title: str
    license: str


@dataclass(frozen=True)
class BenchmarkRow:
    """One benchmark.

    name: its name on the command line, in `eval.benchmarks` and in metrics. title: its name in messages; about: what it
    consists of. role: the policy that it measures. holds: whether a row of a file is one of its tasks. prefix: what its
    task ids begin with. published: where the file of each subset is.

    setup: plans the interpreter that its tasks need, in a folder and of a version; None where none is needed. source:
    the source whose problems its tasks become, by the `problem` that its class then has.

    open: makes the benchmark of a subset, a `CodeBenchmark` or, for the role `test`, a `TestBenchmark`. It imports what
    it needs when it is called, and loads no data.
    """

    name: str
    title: str
    about: str
    role: RoleName
    holds: Callable[[Mapping[str, Any]], bool]
    published: Mapping[str, Published]
    open: Callable[[str], Any]
    prefix: str = ""
    setup: Callable[[Path | None, str], EnvironmentPlan] | None = None
    source: TaskSource | None = None

    @property
    def subsets(self) -> tuple[str, ...]:
        """The names of its subsets, `full` first."""
        return tuple(self.published)

    def file(self, data: Path | None, subset: str = "full") -> Path:
        """Its file, as `find_file`."""
        return find_file(self.title, self.holds, self.published[subset], data)


def _evalplus_row(prefix: str) -> Callable[[Mapping[str, Any]], bool]:
    """A task in a release file, or on the hub, where its inputs stand in a test program; the sets that EvalPlus began
    with have neither."""

    def holds(row: Mapping[str, Any]) -> bool:
        if "base_input" in row or "assertion" in row:
            return str(row.get("task_id")).startswith(prefix)
        if prefix == "Mbpp/":
            return {"code", "test_list", "test"} <= row.keys()
        return str(row.get("task_id")).startswith(prefix) and "inputs = [" in str(row.get("test"))

    return holds


def _evalplus(name: str) -> CodeBenchmark:
    from codea1_cli.evals.evalplus import EvalPlusBenchmark

    return EvalPlusBenchmark(name)


def _bigcodebench(subset: str) -> CodeBenchmark:
    from codea1_cli.evals.bigcodebench import BigCodeBenchmark

    return BigCodeBenchmark(hard=subset == "hard")


def _bigcodebench_setup(folder: Path | None, python: str) -> EnvironmentPlan:
    from codea1_cli.evals.bigcodebench.environment import plan_environment

    return plan_environment(folder, python)


def _unleaked() -> TestBenchmark:
    from codea1_cli.evals.test_generation import UnLeakedTestBench

    return UnLeakedTestBench()


_EVALPLUS = TaskSource("evalplus", "EvalPlus", "Apache-2.0")
_ROWS = (
    BenchmarkRow(
        name="humaneval",
        title="HumanEval+",
        about="164 tasks of EvalPlus",
        role="code",
        holds=_evalplus_row("HumanEval/"),
        prefix="HumanEval/",
        published={
            "full": Published(
                "evalplus/humanevalplus",
                "d32357cf319e50e9c8d8dab5ea876c72b0fd321b",
                "data/test-00000-of-00001-5973903632b82d40.parquet",
                164,
                2_900_000,
            )
        },
        open=lambda _subset: _evalplus("humaneval"),
        source=_EVALPLUS,
    ),
    BenchmarkRow(
        name="mbpp",
        title="MBPP+",
        about="378 tasks of EvalPlus",
        role="code",
        holds=_evalplus_row("Mbpp/"),
        prefix="Mbpp/",
        published={
            "full": Published(
                "evalplus/mbppplus",
                "b2d74c91837c3f2a20c1299ae98133cbe7cfa077",
                "data/test-00000-of-00001-d5781c9c51e02795.parquet",
                378,
                1_129_135,
            )
        },
        open=lambda _subset: _evalplus("mbpp"),
        source=_EVALPLUS,
    ),
    BenchmarkRow(
        name="bigcodebench",
        title="BigCodeBench",
        about="1,140 tasks with libraries, or 148 hard ones",
        role="code",
        holds=lambda row: str(row.get("task_id")).startswith("BigCodeBench/") and "complete_prompt" in row,
        prefix="BigCodeBench/",
        published={
            "full": Published(
                "bigcode/bigcodebench",
                "b74c0d0bf70d2c0bc459be537895cca163007f1a",
                "data/v0.1.4-00000-of-00001.parquet",
                1140,
                2_360_000,
            ),
            "hard": Published(
                "bigcode/bigcodebench-hard",
                "298d2cc7b96612e15e47313c3603ee124cee0c1f",
                "data/v0.1.4-00000-of-00001.parquet",
                148,
                552_000,
            ),
        },
        open=_bigcodebench,
        setup=_bigcodebench_setup,
    ),
    BenchmarkRow(
        name="ult",
        title="ULT",
        about="UnLeakedTestBench, functions to write tests for",
        role="test",
        holds=lambda row: {"code", "func_name", "test_list"} <= row.keys() and "text" not in row,
        prefix="ULT/",
        published={
            "full": Published(
                "huangd1999/UnLeakedTestBench",
                "d992b2d95ff0bececa90bfccd1ea683a3a2bea18",
                "datasets/ULT.jsonl",
                3909,
                8_000_000,
                blob="dddf873b2e0b07db725bb90763c29f332d60acea",
            )
        },
        open=lambda _subset: _unleaked(),
    ),
)
ROWS: dict[str, BenchmarkRow] = {row.name: row for row in _ROWS}


def names(role: str | None = None) -> tuple[str, ...]:
    """The names of the benchmarks, or of those that measure one role."""
    return tuple(row.name for row in ROWS.values() if role in (None, row.role))


def task_sources() -> dict[str, TaskSource]:
    """The sources of `prepare-data` that are benchmarks' tasks, by name."""
    return {row.source.name: row.source for row in ROWS.values() if row.source is not None}


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
