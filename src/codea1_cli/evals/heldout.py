"""The held-out problems as two sets: the Code LLM solves them, the Test LLM attacks wrong programs of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from codea1_cli.evals.benchmark import Figures, Texts
from codea1_cli.evals.statistics import pass_at_k
from codea1_cli.judging.step_judge import StepJudge
from codea1_cli.models.loading import render
from codea1_cli.models.sampler import SamplingSettings
from codea1_cli.problems.problem import Problem, public_problem
from codea1_cli.problems.prompts import code_messages, test_messages
from codea1_cli.sandbox.base import in_order

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class WrongProgram:
    """A wrong program of a held-out problem, which a suite is written against; `problem` has no reference."""

    id: str
    problem: Problem
    source: str


class HeldoutSet:
    """What the two sets share; see `benchmark.EvalSet`. A rank's has no problems and no judge.

    progress: called from the judging threads after each item.
    """

    seed = 7

    def __init__(
        self,
        n: int,
        problems: Sequence[Problem] = (),
        judge: StepJudge | None = None,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        self.n, self.judge, self.progress = n, judge, progress
        self.problems = {problem.id: problem for problem in problems}

    def sampling(self) -> SamplingSettings | None:
        """The training's own settings."""
        return None

    def close(self) -> None:
        """The judge is the run's."""

    def _judged(self, work: Callable[[tuple[str, Sequence[str]]], Any], texts: Texts) -> Rows:
        assert self.judge is not None

        def judged(item: tuple[str, Sequence[str]]) -> Any:
            row = work(item)
            self.progress()
            return row

        return [asdict(row) for _, row in in_order(judged, texts.items(), self.judge.workers)]


class HeldoutSolving(HeldoutSet):
    """`n` solutions per problem, judged by the problem's own tests."""

    name, role = "heldout-solving", "code"

    def load(self) -> list[Problem]:
        """The problems without their references."""
        return [public_problem(problem) for problem in self.problems.values()]

    def prompts(self, tokenizer: Any, items: Sequence[Problem]) -> list[list[int]]:
        """Token ids of the training's own prompts."""
        return [render(tokenizer, code_messages(problem)) for problem in items]

    def score(self, texts: Texts) -> tuple[Figures, Rows]:
        """`solve_figures`, and `SolveResult`s by problem, with the wrong programs in them."""
        judge = self.judge
        assert judge is not None
        rows = self._judged(lambda item: judge.solve_rate(self.problems[item[0]], item[1]), texts)
        return solve_figures(rows), rows


class HeldoutAttacking(HeldoutSet):
    """One suite per wrong program. `targets`: (problem id, program) pairs, perhaps the first policy's solutions."""

    name, role = "heldout-attacking", "test"

    def __init__(self, tests_per_suite: int, white_box: bool, *arguments: Any) -> None:
        super().__init__(1, *arguments)
        self.tests_per_suite, self.white_box = tests_per_suite, white_box
        self.targets: Sequence[tuple[str, str]] = ()

    def load(self) -> list[WrongProgram]:
        """The targets as items, numbered."""
        return [
            WrongProgram(str(number), public_problem(self.problems[pid]), source)
            for number, (pid, source) in enumerate(self.targets)
        ]

    def prompts(self, tokenizer: Any, items: Sequence[WrongProgram]) -> list[list[int]]:
        """Token ids of the training's own prompts."""
        shown = [(item.problem, item.source if self.white_box else None) for item in items]
        return [render(tokenizer, test_messages(problem, code, self.tests_per_suite)) for problem, code in shown]

    def score(self, texts: Texts) -> tuple[Figures, Rows]:
        """`attack_figures`, and `SuiteResult`s by wrong program."""
        judge = self.judge
        assert judge is not None

        def attack(item: tuple[str, Sequence[str]]) -> Any:
            pid, source = self.targets[int(item[0])]
            return judge.suite_on_wrong(self.problems[pid], source, item[1][0])

        rows = self._judged(attack, texts)
        return attack_figures(rows, self.tests_per_suite), rows


def solve_figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """pass@1 and pass@n over problems. Solutions that the sandbox could not judge are counted in `unscored` and left
    out of the estimates, and a problem with fewer than k others out of pass@k; a figure over nothing is None."""
    n = max((len(row["passed"]) for row in rows), default=0)
    figures: dict[str, Any] = {"problems": len(rows), "n": n}
    for k in sorted({1, n} - {0}):
        counts = [(len(row["passed"]) - row["unscored"], sum(row["passed"])) for row in rows]
        values = [pass_at_k(scored, passed, k) for scored, passed in counts if scored >= k]
        figures[f"pass@{k}"] = sum(values) / len(values) if values else None
    figures["unscored"] = sum(row["unscored"] for row in rows)
    return figures


def attack_figures(rows: Sequence[Mapping[str, Any]], tests_per_suite: int) -> dict[str, Any]:
    """Suites on wrong candidates, by their first K asserts.

    `validity` is the game's, min(valid / K, 1 - invalid / K), where an assert that states a wrong answer is invalid;
    `valid_asserts` the share of the K asked whose call the reference answers; `kill_rate` the share of wrong candidates
    that their suite exposes; `kills_per_valid` kills over valid asserts; `stated_correctly` the share of valid asserts
    that state the right answer.
    """
    scored = [row for row in rows if not row["unscored"]]
    valid = sum(row["valid"] for row in scored)
    count = len(scored)
    return {
        "suites": count,
        "unscored": len(rows) - count,
        "validity": sum(row["validity"] for row in scored) / count if count else None,
        "valid_asserts": valid / (count * tests_per_suite) if count else None,
        "kill_rate": sum(row["kills"] > 0 for row in scored) / count if count else None,
        "kills_per_valid": sum(row["kills"] for row in scored) / valid if valid else None,
        "stated_correctly": sum(row["correct"] for row in scored) / valid if valid else None,
    }
