"""What a run is evaluated on between its steps: sets of items that a policy is sampled on, and the texts' figures.

The arena opens and loads a set and scores its texts. A rank opens the same set without loading it, gets its share of
the items, and samples their prompts: what scores the texts stays away from the policy's process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from codea1_cli.evals.benchmark import CodeBenchmark, ScoreOptions
from codea1_cli.evals.registry import benchmark_row, open_benchmark, open_test_benchmark
from codea1_cli.models.sampler import SamplingSettings

Texts = Mapping[str, Sequence[str]]
"""What was sampled, by the id of the item."""
Figures = dict[str, Any]
"""By their names in a line of metrics.jsonl."""
BENCHMARK_SEED = 13


@dataclass(frozen=True)
class SetOptions:
    """What a run's recipe says of its benchmarks.

    data: their file or folder; None: CODEA1_SHARED or the hub. limit: only so many items. sampling: the longest reply
    is the one that the policy is trained for. tests_per_suite: asserts that a suite is asked for.
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
        """The items, each with an `id`; they go to the ranks. Raises UserError or EnvironmentFault where the data is
        not there."""
        ...

    def prompts(self, tokenizer: Any, items: Sequence[Any]) -> list[list[int]]:
        """Token ids of each item's prompt."""
        ...

    def sampling(self) -> SamplingSettings | None:
        """How the prompts are sampled, None for the training's own settings. To be asked after `prompts`: stop strings
        may depend on the tokenizer."""
        ...

    def score(self, texts: Texts) -> tuple[Figures, Any]:
        """The figures of a metrics line, and rows of the items for a file, of what was sampled. Blocking."""
        ...

    def close(self) -> None:
        """Ends what scored."""
        ...


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
        figures, rows = score_texts(self.benchmark, dict(texts), self.items, style=self.style, options=options)
        return {key.removeprefix(f"{self.name}/"): value for key, value in figures.items()}, rows

    def close(self) -> None:
        """Ends the benchmark's sandbox."""
        self.benchmark.close()


def open_set(name: str, options: SetOptions) -> EvalSet:
    """The benchmark of that name as a set. Nothing is loaded yet.

    Raises:
        UserError: there is no such benchmark.
    """
    if benchmark_row(name).role == "code":
        return CodeSet(name, open_benchmark(name), options)
    from codea1_cli.evals.test_generation.evaluation import SuiteSet

    return SuiteSet(name, open_test_benchmark(name), options)
