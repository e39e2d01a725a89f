"""The held-out problems as three sets: the Code LLM solves them; the Test LLM attacks wrong programs of them, and
programs that are nearly right."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from codea1_cli.durable import write_atomic
from codea1_cli.errors import UserError
from codea1_cli.evals.benchmark import Figures, Texts
from codea1_cli.evals.statistics import pass_at_k
from codea1_cli.evals.test_generation.sampling import attack_prompts
from codea1_cli.evals.wrong_programs import near_misses
from codea1_cli.files import decode_json
from codea1_cli.judging.step_judge import StepJudge
from codea1_cli.models.loading import render
from codea1_cli.models.sampler import SamplingSettings
from codea1_cli.problems.problem import Problem, public_problem
from codea1_cli.problems.prompts import code_messages, known_names, shown_problem
from codea1_cli.sandbox.base import in_order

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class WrongProgram:
    """A wrong program of a held-out problem, which a suite is written against; `problem` has no reference."""

    id: str
    problem: Problem
    source: str

    @property
    def entry_point(self) -> str:
        """The function's name."""
        return self.problem.entry_point


class HeldoutSet:
    """What the held-out sets share; see `benchmark.EvalSet`. A rank's has no problems and no judge.

    progress: called from the judging threads after each item.
    """

    part: str
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

    name, role, part = "heldout-solving", "code", "code"

    def load(self) -> list[Problem]:
        """The problems without their references."""
        return [public_problem(problem) for problem in self.problems.values()]

    def prompts(self, tokenizer: Any, items: Sequence[Problem]) -> list[list[int]]:
        """Token ids of the training's own prompts."""
        names = known_names(tokenizer)
        return [render(tokenizer, code_messages(shown_problem(problem, names))) for problem in items]

    def score(self, texts: Texts) -> tuple[Figures, Rows]:
        """`solve_figures`, and `SolveResult`s by problem, with the wrong programs in them."""
        judge = self.judge
        assert judge is not None
        rows = self._judged(lambda item: judge.solve_rate(self.problems[item[0]], item[1]), texts)
        return solve_figures(rows), rows

    def replies(self, texts: Texts) -> list[dict[str, Any]]:
        """The texts beside their problem, in the order of `score`'s rows."""
        return [{"problem_id": pid, "replies": list(group)} for pid, group in texts.items()]


class HeldoutAttacking(HeldoutSet):
    """One suite per wrong program. `targets`: (problem id, program) pairs, perhaps the first policy's solutions."""

    name, role, part = "heldout-attacking", "test", "test"

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
        return attack_prompts(tokenizer, shown, self.tests_per_suite)

    def score(self, texts: Texts) -> tuple[Figures, Rows]:
        """`attack_figures`, and `SuiteResult`s by wrong program."""
        judge = self.judge
        assert judge is not None

        def attack(item: tuple[str, Sequence[str]]) -> Any:
            pid, source = self.targets[int(item[0])]
            return judge.suite_on_wrong(self.problems[pid], source, item[1][0])

        rows = self._judged(attack, texts)
        return attack_figures(rows, self.tests_per_suite), rows

    def replies(self, texts: Texts) -> list[dict[str, Any]]:
        """The texts beside their problem and the wrong program, in the order of `score`'s rows."""
        targets = [(*self.targets[int(number)], group) for number, group in texts.items()]
        return [{"problem_id": pid, "program": source, "replies": list(group)} for pid, source, group in targets]


class HeldoutNearMisses(HeldoutAttacking):
    """One suite per near-miss program: a harder set, the same for every run on the same problems."""

    name, part, seed = "heldout-near-miss", "near_miss", 11

    def choose(self, file: Path, limit: int) -> None:
        """Takes each problem's programs from `file` (a JSON object by problem id); finds and adds those of a problem
        that is not in it, `limit` at most. Blocking.

        Raises:
            UserError: the file is broken.
            EnvironmentFault: the sandbox failed.
        """
        judge = self.judge
        assert judge is not None
        kept = decode_json(file.read_bytes()) if file.is_file() else {}
        lists = kept.values() if isinstance(kept, dict) else [None]
        if not all(isinstance(one, list) and all(isinstance(source, str) for source in one) for one in lists):
            raise UserError(f"{file} is broken", hint="delete it: the same programs are found again")
        missing = [problem for pid, problem in self.problems.items() if pid not in kept]

        def find(problem: Problem) -> list[str]:
            found: list[str] = judge.ask(near_misses, problem, limit)
            self.progress()
            return found

        if missing:
            kept |= {problem.id: found for problem, found in in_order(find, missing, judge.workers)}
            write_atomic(file, json.dumps(kept) + "\n")
        self.targets = [(pid, source) for pid in self.problems for source in kept[pid]]


PARTS = {"code": "code", "test": "test", "near-miss": "test"}
"""The parts of a held-out evaluation, as files of a run's evaluation/ name them, and the role that each measures."""
TARGETS, NEAR_MISSES = "targets.json", "near_miss.json"
"""The files of a run's evaluation/ with the wrong programs that its suites are written against."""


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


def figure_names(roles: Iterable[str], n: int) -> list[str]:
    """The held-out figures of these roles that `eval.best` may name; n: solutions per problem."""
    suites = [key for key in attack_figures([], 1) if key not in ("suites", "unscored")]
    found = {
        "code": [f"pass@{k}" for k in sorted({1, n})],
        "test": [*suites, *(f"near_miss/{key}" for key in suites)],
    }
    return [f"heldout/{key}" for role in roles for key in found.get(role, ())]


def attack_figures(rows: Sequence[Mapping[str, Any]], tests_per_suite: int) -> dict[str, Any]:
    """Suites on wrong programs, each by its first K asserts; a figure over nothing is None.

    What a suite is worth to somebody who has no reference:
    `exposed` is the share of suites one of whose asserts fails on its wrong program, is valid (the reference answers
    the call) and states the reference's answer; `false_alarm` the share of suites with a valid assert that states
    another answer: they would reject a right program; `soundly_exposed` the share of suites that expose and raise no
    false alarm: they tell the wrong program from a right one; `stated_correctly` the share of valid asserts that state
    the reference's answer; `asserts` the asserts per suite, K at most; `distinct_calls` the mean over problems of how
    many different valid calls all suites of the problem make together.

    What the game counts: `validity` is its min(valid / K, 1 - invalid / K), where an assert that states a wrong answer
    is invalid too; `valid_asserts` the share of the K asked that are valid; `kill_rate` the share of suites one of
    whose valid asserts fails by the reference's answer, whatever it states; `kills_per_valid` such asserts over valid
    ones.
    """
    scored = [row for row in rows if not row["unscored"]]
    count, valid = len(scored), sum(row["valid"] for row in scored)
    calls: dict[str, set[str]] = defaultdict(set)
    for row in scored:
        calls[row["problem_id"]].update(row["calls"])

    def share(values: Iterable[float], of: float) -> float | None:
        return sum(values) / of if of else None

    return {
        "suites": count,
        "unscored": len(rows) - count,
        "exposed": share((row["exposed"] for row in scored), count),
        "false_alarm": share((row["misstated"] > 0 for row in scored), count),
        "soundly_exposed": share((row["exposed"] and not row["misstated"] for row in scored), count),
        "validity": share((row["validity"] for row in scored), count),
        "stated_correctly": share((row["correct"] for row in scored), valid),
        "asserts": share((row["asserts"] for row in scored), count),
        "distinct_calls": share(map(len, calls.values()), len(calls)),
        "valid_asserts": share((row["valid"] for row in scored), count * tests_per_suite),
        "kill_rate": share((row["kills"] > 0 for row in scored), count),
        "kills_per_valid": share((row["kills"] for row in scored), valid),
    }
