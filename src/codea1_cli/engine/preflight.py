"""Before the first step: how often the Code LLM solves each problem, where the recipe asks; a few samples of each
policy, and a stop with advice where they speak against the run.

Sampling has its own seeds and leaves the training's random state as it was. A resumed run has been through it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from codea1_cli.data.stages import ProblemSampler, SolveRule
from codea1_cli.durable import write_atomic
from codea1_cli.engine.ranks import RankSpec
from codea1_cli.engine.step_state import new_future
from codea1_cli.environment import settle, settle_umask
from codea1_cli.errors import UserError, command, counted
from codea1_cli.extract import extract_code, parse_suite
from codea1_cli.methods.registry import method_of
from codea1_cli.models.loading import render
from codea1_cli.problems.problem import Problem, public_problem
from codea1_cli.problems.prompts import code_messages, test_messages
from codea1_cli.recipe.schema import Recipe
from codea1_cli.runs.run_dir import RunDir

if TYPE_CHECKING:
    from codea1_cli.engine.trl.rank import TrainingRank

Samples = list[tuple[str, list[str]]]  # (problem id, replies)
FIRST_PASS = 128  # problems sampled together for their solve rates


@dataclass(frozen=True)
class PreflightCounts:
    """What one rank saw. `clipped` replies have no end within the limit; `usable` suites hold an assert of the asked
    form, `usable` programs are not empty; `longest_prompt` in tokens."""

    replies: int = 0
    clipped: int = 0
    usable: int = 0
    prompts: int = 0
    too_long: int = 0
    longest_prompt: int = 0

    def __add__(self, other: PreflightCounts) -> PreflightCounts:
        summed = {name: count + getattr(other, name) for name, count in vars(self).items()}
        return PreflightCounts(**summed | {"longest_prompt": max(self.longest_prompt, other.longest_prompt)})


@dataclass(frozen=True)
class Finding:
    """A reason not to begin, and which keys to change."""

    what: str
    advice: str


def problem_choice(ids: Sequence[str], count: int, rank: int, ranks: int) -> list[str]:
    """The problems that a rank tries: `count` of all, evenly spaced, shared by the ranks; at least one for each rank,
    because they synchronise weights together."""
    step = max(len(ids) // count, 1)
    chosen = list(ids)[::step][:count]
    return [chosen[place % len(chosen)] for place in range(rank, max(len(chosen), ranks), ranks)]


def findings(recipe: Recipe, counts: Mapping[str, PreflightCounts]) -> list[Finding]:
    """Why the run would teach nothing, from each role's counts; empty when nothing speaks against it. Pure."""
    found = []
    for role, seen in counts.items():
        limit = recipe.role(role).max_completion_tokens
        if 2 * seen.clipped > seen.replies:
            key, of_role = f"{role}.max_completion_tokens", (f"{role} reply", f"{role} replies")
            what = f"{seen.clipped} of {counted(seen.replies, *of_role)} do not end within {key}={limit}"
            advice = f"raise {key}, or take a model that was taught to end its replies"
            found.append(Finding(what, advice))
    test = counts.get("test", PreflightCounts())
    if 2 * test.too_long > test.prompts:
        found.append(
            Finding(
                f"{test.too_long} of {counted(test.prompts, 'test prompt')} exceed "
                f"test.max_prompt_tokens={recipe.test.max_prompt_tokens}",
                f"raise test.max_prompt_tokens to {test.longest_prompt} or more, lower code.max_completion_tokens, "
                "or set game.white_box=false",
            )
        )
    if test.replies and not test.usable:
        what = f"no suite parses: none of {counted(test.replies, 'reply', 'replies')} holds an assert of the asked form"
        advice = "take a model that follows the format (model, test.model), or raise test.max_completion_tokens"
        found.append(Finding(what, advice))
    return found


class PreflightGate:
    """The arena's part, made inside its event loop: it hands the programs over to the ranks that write tests, and every
    rank waits here for the verdict.

    labels: the ranks that post. problems: by id.
    """

    def __init__(self, recipe: Recipe, run: RunDir, labels: Sequence[str], problems: Mapping[str, Problem]) -> None:
        self.recipe, self.run = recipe, run
        method = method_of(recipe)
        self.due = [(label, role) for label in labels for role in method.roles_of(label.partition("[")[0])]
        self.entry_points = {pid: problem.entry_point for pid, problem in problems.items()}
        self.counts: dict[tuple[str, str], PreflightCounts] = {}
        self.replies: dict[tuple[str, str], Samples] = {}
        self._programs: asyncio.Future[dict[str, str]] = new_future()
        self._verdict: asyncio.Future[None] = new_future()
        self._hand_over()

    async def programs(self) -> dict[str, str]:
        """A program of each problem that gave one, when all ranks that write programs have posted."""
        return await asyncio.shield(self._programs)

    def post(self, label: str, role: str, counts: PreflightCounts, samples: Samples) -> None:
        """Takes one rank's samples of a role."""
        usable = sum(self._usable(role, pid, text) for pid, replies in samples for text in replies)
        self.counts[label, role], self.replies[label, role] = counts + PreflightCounts(usable=usable), samples
        self._hand_over()
        if set(self.due) <= set(self.counts):
            self._decide()

    async def verdict(self) -> None:
        """Returns when all ranks have posted and all roles have passed.

        Raises:
            UserError: the samples speak against the run; the hint names the keys to change.
        """
        await asyncio.shield(self._verdict)

    def _usable(self, role: str, pid: str, text: str) -> bool:
        entry_point = self.entry_points[pid]
        if role == "code":
            return bool(extract_code(text, entry_point))
        return any(statement.invalid is None for statement in parse_suite(text, entry_point))

    def _hand_over(self) -> None:
        writers = [(label, role) for label, role in self.due if role == "code"]
        if self._programs.done() or not set(writers) <= set(self.counts):
            return
        found: dict[str, str] = {}
        for writer in writers:
            for pid, replies in self.replies[writer]:
                for code in (extract_code(text, self.entry_points[pid]) for text in replies):
                    if code:
                        found.setdefault(pid, code)
        self._programs.set_result(found)

    def _decide(self) -> None:
        counts: dict[str, PreflightCounts] = {}
        seen: dict[str, dict[str, list[str]]] = {}
        for label, role in self.due:
            counts[role] = counts.get(role, PreflightCounts()) + self.counts[label, role]
            for pid, replies in self.replies[label, role]:
                seen.setdefault(role, {}).setdefault(pid, []).extend(replies)
        reasons = findings(self.recipe, counts)
        told = {role: {**vars(one), "replies_seen": seen.get(role, {})} for role, one in counts.items()}
        text = json.dumps({"stopped": [reason.what for reason in reasons], **told}, indent=2)
        write_atomic(self.run.path / "preflight.json", text + "\n")
        if not reasons:
            self._verdict.set_result(None)
            return
        self._verdict.set_exception(
            UserError(
                f"before the first step: {'; '.join(reason.what for reason in reasons)}",
                hint=f"{'; '.join(dict.fromkeys(reason.advice for reason in reasons))} (the replies are in "
                f"{self.run.path / 'preflight.json'}; "
                f"`{command('train', *self.run.options, '--resume', '--no-preflight')}` starts anyway)",
            )
        )


def preflight(rank: TrainingRank) -> None:
    """One rank's part; returns when the run may begin.

    Raises:
        UserError: as `PreflightGate.verdict`.
    """
    if not rank.recipe.preflight.enabled or rank.learns_from_pairs:  # pairs were looked at when the run was set up
        return
    for role in rank.roles:
        _sample_role(rank, role)
    rank.phase("waiting", 1)
    rank.arena.finish_preflight()


def _sample_role(rank: TrainingRank, role: str) -> None:
    spec, recipe, wish = rank.spec, rank.recipe, rank.recipe.preflight
    ids = problem_choice(list(rank.problems), wish.problems, spec.rank, spec.ranks)
    tokenizer, section = rank.trainer.processing_class, recipe.role(role)
    if role == "code":
        rank.phase("preflight", 1)
        chats = [code_messages(rank.problems[pid]) for pid in ids]
    else:
        rank.phase("waiting", 1)
        programs = rank.arena.preflight_programs() if recipe.game.white_box else {}
        rank.phase("preflight", 1)
        chats = [test_messages(rank.problems[pid], programs.get(pid), recipe.game.tests_per_suite) for pid in ids]
    prompts = [render(tokenizer, chat) for chat in chats]
    fitting = [place for place, prompt in enumerate(prompts) if len(prompt) <= section.max_prompt_tokens]
    completions = rank.sample_aside(role, [prompts[place] for place in fitting], wish.samples, seed=11)
    flat = [ids for group in completions for ids in group]
    counts = PreflightCounts(
        replies=len(flat),
        clipped=sum(len(ids) >= section.max_completion_tokens and ids[-1] != tokenizer.eos_token_id for ids in flat),
        prompts=len(prompts),
        too_long=len(prompts) - len(fitting),
        longest_prompt=max(map(len, prompts)),
    )
    texts = [tokenizer.batch_decode(group, skip_special_tokens=True) for group in completions]
    samples = [(ids[place], group) for place, group in zip(fitting, texts, strict=True)]
    rank.arena.post_preflight(spec.label, role, counts, samples)


# -- the solve rates ---------------------------------------------------------------------------------------------------
class FirstPass:
    """An actor on the GPU of a Code LLM's rank, before any trainer is built: it samples the model as it starts."""

    def __init__(self, spec: RankSpec, recipe: Recipe) -> None:
        settle_umask()
        settle(threads=True)
        os.environ.update(replace(spec, rank=0, ranks=1, use_vllm=False).environment)  # a process group of its own
        self.threads, self.engine = spec.threads, recipe.sampling.engine
        self.sampler: Any = None
        longest = recipe.code.max_completion_tokens
        self.rule = SolveRule(
            recipe.model_of("code"), recipe.game.n_code, temperature=recipe.sampling.temperature, max_new_tokens=longest
        )

    def load(self) -> None:
        """Opens the engine."""
        import torch

        torch.set_num_threads(self.threads)
        self.sampler = ProblemSampler(self.rule, self.engine)

    def sample(self, problems: Sequence[Problem], seed: int) -> list[list[str]]:
        """`game.n_code` solutions of each problem, under the training's prompt."""
        return self.sampler.sample(problems, seed)

    def close(self) -> None:
        """Gives the GPU's memory back."""
        self.sampler.sampler.close()


def measure_solve_rates(
    ray: Any,
    recipe: Recipe,
    ranks: Sequence[tuple[RankSpec, dict[str, Any]]],
    arena: Any,
    call: Callable[[Any, str, float], Any],
    patience: float,
    problems: Sequence[Problem],
) -> dict[str, float | None]:
    """The share of each problem's solutions that pass its own tests, by id; None where none could be judged.

    ranks: where to sample, and the options of an actor there. call: waits for the answer
    of somebody, by name, so many seconds.
    """
    samplers = {spec.label: ray.remote(**options)(FirstPass).remote(spec, recipe) for spec, options in ranks}
    labels, sampled, solved = list(samplers), [], []
    for label, loading in [(label, sampler.load.remote()) for label, sampler in samplers.items()]:
        call(loading, label, patience)
    for number, start in enumerate(range(0, len(problems), FIRST_PASS)):
        part, label = list(problems[start : start + FIRST_PASS]), labels[number % len(labels)]
        public = [public_problem(problem) for problem in part]
        sampled.append((label, part, samplers[label].sample.remote(public, recipe.seed)))
    for label, part, texts in sampled:
        solved.append(arena.solve.remote(part, call(texts, label, patience)))  # judged while the next are sampled
    rates: dict[str, float | None] = {}
    for result in (result for answer in solved for result in call(answer, "the arena", patience)):
        judged = len(result.passed) - result.unscored
        rates[result.problem_id] = sum(result.passed) / judged if judged else None
    for label, sampler in samplers.items():
        call(sampler.close.remote(), label, patience)
        ray.kill(sampler)
    return rates
