"""The benchmarks by name."""

from __future__ import annotations

from codea1_cli.errors import UserError
from codea1_cli.evals.benchmark import Benchmark

NAMES = ("humaneval", "mbpp", "bigcodebench")
SUBSETS = ("full", "hard")


def open_benchmark(name: str, subset: str = "full") -> Benchmark:
    """The benchmark of that name; `bigcodebench-hard` is the hard subset of BigCodeBench.

    Raises:
        UserError: there is no such benchmark or subset.
    """
    name, _, tail = name.partition("-")
    subset = tail or subset
    if name in ("humaneval", "mbpp") and subset == "full":
        from codea1_cli.evals.evalplus.benchmark import EvalPlusBenchmark

        return EvalPlusBenchmark(name)
    if name == "bigcodebench" and subset in SUBSETS:
        from codea1_cli.evals.bigcodebench.benchmark import BigCodeBenchmark

        return BigCodeBenchmark(hard=subset == "hard")
    if name in NAMES:
        raise UserError(f"{name} has no subset {subset!r}", hint="--subset hard goes with bigcodebench")
    raise UserError(f"no benchmark {name!r}", hint=f"one of {', '.join(NAMES)}")
