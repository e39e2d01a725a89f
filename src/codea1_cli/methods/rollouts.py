"""How a Code LLM and a Test LLM sample for a step: programs for a problem, and test suites for each program.

Both are sampled in TRL's rollout function, which posts them as they come and returns only the groups to learn from,
with their rewards as an extra column that the reward function hands back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from codea1_cli.errors import RunFailed
from codea1_cli.game.scoring import has_signal
from codea1_cli.methods.base import CandidateView, Ids, Rank, Rollouts, SuiteResults
from codea1_cli.models.loading import render
from codea1_cli.problems.prompts import code_messages, test_messages

K = TypeVar("K")
Scored = tuple["Group", Sequence[float | None]]


class RoleRollouts(Rollouts):
    """What the rollouts of every method here are made of."""

    def problem_ids(self, prompts: Sequence[Any]) -> list[str]:
        """The rank's problems of the step at work.

        Raises:
            RunFailed: TRL's rows are of other problems.
        """
        rank = self.rank
        if list(dict.fromkeys(prompt[-1]["content"] for prompt in prompts)) != rank.scheduled(rank.step):
            raise RunFailed(f"{rank.label} step {rank.step}: TRL's rows are not those of the schedule")
        return rank.problem_ids(rank.step)

    def reward(
        self, prompts: Any, completions: Any, *, row_reward: Sequence[float | None], **_: Any
    ) -> list[float | None]:
        """The rewards came with the rollout."""
        return list(row_reward)

    def chosen(self, role: str, found: Sequence[Scored], due: int) -> list[Scored]:
        """The groups of a role that the update takes, `due` of them, in order: those with a signal before others. Where
        there are too few, masked ones that teach nothing stand in, because TRL needs full rows."""
        signal = [has_signal(rewards) for _, rewards in found]
        first = sorted(range(len(found)), key=lambda i: not signal[i])[:due]
        chosen = [found[i] for i in sorted(first)]
        self.rank.figures.setdefault(role, {})["signal_share"] = sum(signal[i] for i in first) / due
        n = self.rank.plans[role].group
        filler = found[0][0] if found else self._empty_group(n)
        return chosen + [(filler, [None] * n)] * (due - len(chosen))

    def _empty_group(self, n: int) -> Group:
        eos = self.rank.tokenizer.eos_token_id
        return Group([eos], [[eos]] * n, [[0.0]] * n)

    def columns(self, scored: Sequence[Scored]) -> dict[str, Any]:
        """What TRL's rollout function returns, one row per completion. A row without a reward is masked: neither the
        loss nor the KL term nor the token mean sees it."""
        rows = [(group, i, reward) for group, rewards in scored for i, reward in enumerate(rewards)]
        return {
            "prompt_ids": [group.prompt for group, _, _ in rows],
            "completion_ids": [group.completions[i] for group, i, _ in rows],
            "logprobs": [group.scores(i) for group, i, _ in rows] if self.rank.reports_logprobs else None,
            "env_mask": [[0 if reward is None else 1] * len(group.completions[i]) for group, i, reward in rows],
            "row_reward": [reward for _, _, reward in rows],
        }

    def sample_groups(
        self,
        role: str,
        prompts: Mapping[K, Ids],
        post: Callable[[dict[K, list[str]]], None],
        more: Callable[[], Mapping[K, Ids]] = dict,
    ) -> dict[K, Group]:
        """Samples a role's group of completions for each prompt; `post` gets the texts as they come, and `more` gives
        prompts that join the others."""
        rank, asked = self.rank, dict(prompts)

        def on_chunk(part: list[int], completions: list[list[Ids]]) -> None:
            rank.count_tokens(role, [reply for group in completions for reply in group])
            keys = list(asked)
            post({keys[i]: self.texts(group) for i, group in zip(part, completions, strict=True)})

        def joining() -> list[Ids]:
            asked.update(new := more())
            return list(new.values())

        with rank.sampling(role):
            rank.sync_weights()
            found, scores = rank.sample(role, list(asked.values()), rank.plans[role].group, on_chunk, joining)
            if scores is None and rank.reports_logprobs:
                scores = rank.log_probs(list(asked.values()), found)
        return {
            key: Group(prompt, found[i], scores[i] if scores is not None else None)
            for i, (key, prompt) in enumerate(asked.items())
        }

    def texts(self, completions: Sequence[Ids]) -> list[str]:
        """Completions as the arena takes them."""
        decoded: list[str] = self.rank.tokenizer.batch_decode(completions, skip_special_tokens=True)
        return decoded

    def sample_candidates(self, step: int, ids: Sequence[str]) -> dict[str, Group]:
        """Samples the candidates of each problem, and posts them as they are sampled."""
        rank = self.rank
        prompts = {pid: render(rank.tokenizer, code_messages(rank.problems[pid])) for pid in ids}
        return self.sample_groups("code", prompts, lambda texts: rank.arena.post_candidates(step, texts))

    def sample_suites(self, step: int, ids: Sequence[str]) -> dict[tuple[str, int], Group]:
        """Samples the suites against every candidate that is attacked, by problem and candidate, and posts them as they
        are sampled. Where prompts may join others, a problem waits for its own candidates alone."""
        rank, left, asked = self.rank, list(ids), None

        def loaded(wait: bool) -> dict[str, list[CandidateView]]:
            nonlocal asked
            if not left:
                return {}
            asked = asked or rank.arena.next_candidates(step, list(left))
            if found := asked(wait):
                asked, left[:] = None, [pid for pid in left if pid not in found]
            return found

        def post(texts: dict[tuple[str, int], list[str]]) -> None:
            rank.arena.post_suites(step, [(*key, group) for key, group in texts.items()])

        sampled: dict[tuple[str, int], Group] = {}
        while True:
            with rank.waiting("test"):
                found = loaded(wait=True)
                while left and not rank.takes_more:
                    found |= loaded(wait=True)
            # In the order of the schedule, whichever came first: what is sampled then depends on nothing else.
            prompts = self._attacks(step, {pid: found[pid] for pid in ids if pid in found})
            sampled |= self.sample_groups("test", prompts, post, lambda: self._attacks(step, loaded(wait=False)))
            if not left:
                return sampled

    def _attacks(self, step: int, found: Mapping[str, Sequence[CandidateView]]) -> dict[tuple[str, int], Ids]:
        """The prompts against the candidates that are attacked; those too long for the Test LLM get no suites."""
        attacked = [(pid, i, view) for pid in found for i, view in enumerate(found[pid]) if view.attack]
        prompts = {(pid, i): self._attack(pid, view) for pid, i, view in attacked}
        longest = self.rank.max_prompt_tokens["test"]
        if too_long := [key for key, prompt in prompts.items() if len(prompt) > longest]:
            self.rank.arena.skip_suites(step, too_long)
        return {key: prompt for key, prompt in prompts.items() if len(prompt) <= longest}

    def _attack(self, pid: str, view: CandidateView) -> Ids:
        game, rank = self.rank.game, self.rank
        shown = view.code if game.white_box else None
        return render(rank.tokenizer, test_messages(rank.problems[pid], shown, game.tests_per_suite))


class CodeRollouts(RoleRollouts):
    """Candidates of the Code LLM; with `train.staleness=1` sampled a step ahead, by the policy before its update."""

    def __init__(self, rank: Rank) -> None:
        super().__init__(rank)
        self.ahead: tuple[int, dict[str, Group]] | None = None  # a later step and its candidates, which are posted
        self.restored = False  # whether they come from a checkpoint, so that they are not

    def rollout(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Samples candidates, and waits for the rewards of the step's."""
        rank = self.rank
        step, ids = rank.step, self.problem_ids(prompts)
        sampled = self._candidates(step, ids)
        self.ahead = None
        if rank.staleness and (coming := rank.problem_ids(step + 1)):
            self.ahead = step + 1, self.sample_candidates(step + 1, coming)
        with rank.waiting("code"):
            rewards = rank.arena.finish_candidates(step, ids)
        rank.update_begins()
        found = [(sampled[pid], rewards[pid]) for pid in ids]
        return self.columns(self.chosen("code", found, len(prompts) // rank.plans["code"].group))

    def _candidates(self, step: int, ids: Sequence[str]) -> dict[str, Group]:
        if self.ahead is None or self.ahead[0] != step:
            return self.sample_candidates(step, ids)
        sampled = self.ahead[1]
        if self.restored:
            texts = {pid: self.texts(group.completions) for pid, group in sampled.items()}
            self.rank.arena.post_candidates(step, texts)
            self.restored = False
        return sampled

    def state(self) -> dict[str, Any] | None:
        if self.ahead is None:
            return None
        step, groups = self.ahead
        return {"step": step, "groups": {pid: asdict(group) for pid, group in groups.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        self.ahead = state["step"], {pid: Group(**group) for pid, group in state["groups"].items()}
        self.restored = True


class TestRollouts(RoleRollouts):
    """Suites of the Test LLM against the candidates of the same step."""

    __test__ = False

    def rollout(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Samples the step's suites and waits for their rewards."""
        rank = self.rank
        step, ids = rank.step, self.problem_ids(prompts)
        sampled = self.sample_suites(step, ids)
        with rank.waiting("test"):
            results = rank.arena.finish_suites(step, ids)
        rank.update_begins()
        found = selected(sampled, results)
        return self.columns(self.chosen("test", found, len(prompts) // rank.plans["test"].group))


class SelfPlayRollouts(RoleRollouts):
    """Candidates, and the suites against them. For each problem due come back, in this order, a group of candidates and
    as many groups of suites as are planned."""

    def rollout(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Samples all candidates and all suites of the step, and waits for the rewards of both."""
        rank = self.rank
        step, ids = rank.step, self.problem_ids(prompts)
        candidates = self.sample_candidates(step, ids)
        suites = self.sample_suites(step, ids)
        with rank.waiting("test"):
            results = rank.arena.finish_suites(step, ids)
            rewards = rank.arena.finish_candidates(step, ids)
        rank.update_begins()
        due = len(rank.scheduled(step))
        code = self.chosen("code", [(candidates[pid], rewards[pid]) for pid in ids], due)
        groups = rank.plans["test"].groups
        test = self.chosen("test", selected(suites, results), due * groups)
        scored = [one for i in range(due) for one in (code[i], *test[i * groups : (i + 1) * groups])]
        return self.columns(scored)


def selected(sampled: Mapping[tuple[str, int], Group], results: Mapping[str, SuiteResults]) -> list[Scored]:
    """The groups of suites that the arena has selected, with their rewards, problem by problem."""
    return [
        (sampled[pid, index], result.rewards[index]) for pid, result in results.items() for index in result.selected
    ]


@dataclass(frozen=True)
class Group:
    """One prompt, its n completions, and their log-probs where the engine reports them."""

    prompt: Ids
    completions: list[Ids]
    logprobs: list[list[float]] | None

    def scores(self, i: int) -> list[float]:
        """The log-probs of a completion; zeros where the engine gave none."""
        return self.logprobs[i] if self.logprobs is not None else [0.0] * len(self.completions[i])
