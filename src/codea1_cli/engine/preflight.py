"""Before the first step: a few samples of both sides, and a stop with advice where they speak against the run.

Sampling has its own seeds and leaves the training's random state as it was. A resumed run has been through it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from codea1_cli.durable import write_atomic
from codea1_cli.engine.preflight_findings import Tried, findings, problem_choice
from codea1_cli.engine.step import new_future
from codea1_cli.engine.trl.sampling import beside_training, sample_groups, sync_weights
from codea1_cli.errors import UserError
from codea1_cli.extract import extract_code, parse_suite
from codea1_cli.models.loading import render
from codea1_cli.problems.prompts import code_messages, test_messages
from codea1_cli.recipe.batching import ROLES

Samples = list[tuple[str, list[str]]]  # (problem id, replies)


class PreflightDesk:
    """The arena's part: it hands the programs over to the test rank, and every rank waits here for the verdict."""

    recipe: Any
    labels: list[str]
    run: Any

    def open_preflight(self) -> None:
        self.tried: dict[str, Tried] = {}
        self.replies: dict[str, Samples] = {}
        self._programs: asyncio.Future[dict[str, str]] | None = None
        self._verdict: asyncio.Future[None] | None = None

    def _future(self, name: str) -> asyncio.Future[Any]:
        if getattr(self, name) is None:
            setattr(self, name, new_future())
        return getattr(self, name)

    async def preflight_programs(self) -> dict[str, str]:
        """A program of each problem that gave one, when all code ranks have posted."""
        return await self._future("_programs")

    async def post_preflight(self, label: str, tried: Tried, samples: Samples) -> None:
        """Takes one rank's samples and returns when both sides have passed.

        Raises:
            UserError: they speak against the run; the hint names the keys to change.
        """
        entry = {pid: problem.entry_point for pid, problem in self.problems.items()}  # type: ignore[attr-defined]
        role = label.partition("[")[0]
        good = 0
        for pid, replies in samples:
            if role == "code":
                good += sum(bool(extract_code(text, entry[pid])) for text in replies)
            else:
                good += sum(any(s.invalid is None for s in parse_suite(text, entry[pid])) for text in replies)
        self.tried[label] = tried + Tried(usable=good)
        self.replies[label] = samples
        of_code = [name for name in self.labels if name.startswith("code[")]
        programs, verdict = self._future("_programs"), self._future("_verdict")
        if set(of_code) <= set(self.tried) and not programs.done():
            found: dict[str, str] = {}
            for name in of_code:
                for pid, replies in self.replies[name]:
                    for code in (extract_code(text, entry[pid]) for text in replies):
                        if code:
                            found.setdefault(pid, code)
            programs.set_result(found)
        if set(self.labels) <= set(self.tried):
            self._decide(verdict)
        await asyncio.shield(verdict)

    def _decide(self, verdict: asyncio.Future[None]) -> None:
        sums = {role: sum((t for name, t in self.tried.items() if name.startswith(role)), Tried()) for role in ROLES}
        reasons = findings(self.recipe, sums["code"], sums["test"])
        text = json.dumps(
            {
                "stopped": [reason.what for reason in reasons],
                **{role: {**vars(tried), "replies_seen": self._seen(role)} for role, tried in sums.items()},
            },
            indent=2,
        )
        write_atomic(self.run.path / "preflight.json", text + "\n")
        if not reasons:
            verdict.set_result(None)
            return
        verdict.set_exception(
            UserError(
                f"before the first step: {'; '.join(reason.what for reason in reasons)}",
                hint=f"{'; '.join(dict.fromkeys(reason.advice for reason in reasons))} (the replies are in "
                f"{self.run.path / 'preflight.json'}; `--no-preflight` starts anyway)",
            )
        )

    def _seen(self, role: str) -> dict[str, list[str]]:
        seen: dict[str, list[str]] = {}
        for name, samples in self.replies.items():
            if name.startswith(role):
                for pid, replies in samples:
                    seen.setdefault(pid, []).extend(replies)
        return seen


def preflight(rank: Any) -> None:
    """One rank's part; returns when the run may begin.

    Raises:
        UserError: as `PreflightDesk.post_preflight`.
    """
    spec, recipe, wish = rank.spec, rank.recipe, rank.recipe.preflight
    if not wish.enabled:
        return
    ids = problem_choice(list(rank.problems), wish.problems, spec.rank, spec.ranks)
    tokenizer, section = rank.trainer.processing_class, recipe.role(spec.role)
    if spec.role == "code":
        rank.phase("preflight", 1)
        chats = [code_messages(rank.problems[pid]) for pid in ids]
    else:
        rank.phase("waiting", 1)
        programs = rank.arena.preflight_programs() if recipe.game.white_box else {}
        rank.phase("preflight", 1)
        chats = [test_messages(rank.problems[pid], programs.get(pid), recipe.game.tests_per_suite) for pid in ids]
    prompts = [render(tokenizer, chat) for chat in chats]
    fitting = [place for place, prompt in enumerate(prompts) if len(prompt) <= section.max_prompt_tokens]
    completions = _sample(rank, [prompts[place] for place in fitting], wish.samples)
    flat = [ids for group in completions for ids in group]
    tried = Tried(
        replies=len(flat),
        clipped=sum(_clipped(ids, section.max_completion_tokens, tokenizer.eos_token_id) for ids in flat),
        prompts=len(prompts),
        too_long=len(prompts) - len(fitting),
        longest_prompt=max(map(len, prompts)),
    )
    texts = [tokenizer.batch_decode(group, skip_special_tokens=True) for group in completions]
    rank.phase("waiting", 1)
    rank.arena.post_preflight(
        spec.label, tried, [(ids[place], group) for place, group in zip(fitting, texts, strict=True)]
    )


def _sample(rank: Any, prompts: Sequence[list[int]], n: int) -> list[list[list[int]]]:
    trainer, recipe = rank.trainer, rank.recipe
    sync_weights(trainer)
    with beside_training(trainer, recipe.seed * 1000 + 11 + rank.spec.rank):
        return sample_groups(trainer, prompts, n, chunk=recipe.sampling.chunk)[0]


def _clipped(ids: Sequence[int], limit: int, eos: int) -> bool:
    return len(ids) >= limit and ids[-1] != eos
