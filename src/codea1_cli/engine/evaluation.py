"""Held-out evaluation on the policies' own engines: before the first step, after the last, and every `eval.every`.

Sampling here has its own seeds and leaves the training's random state as it was, so that evaluating more or less often
does not change a run.
"""

from __future__ import annotations

from typing import Any

from codea1_cli.engine.trl.sampling import beside_training, sample_groups, sync_weights
from codea1_cli.models.loading import render
from codea1_cli.problems.prompts import code_messages, test_messages
from codea1_cli.recipe.schema import Recipe


def due(recipe: Recipe, step: int, total: int) -> bool:
    return step in (0, total) or (recipe.eval.every is not None and step % recipe.eval.every == 0)


def sample_heldout(rank: Any, step: int) -> None:
    """Samples this rank's share of the held-out set and posts it to the arena, which judges and writes the figures."""
    spec, recipe = rank.spec, rank.recipe
    tokenizer = rank.trainer.processing_class
    if spec.role == "code":
        mine = rank.heldout[spec.rank :: spec.ranks]
        prompts = [render(tokenizer, code_messages(problem)) for problem in mine]
        keys: list[Any] = [problem.id for problem in mine]
        n = recipe.eval.n
    else:
        # At step 0 the wrong candidates may come from the code side's own evaluation, so this can wait for it.
        by_id = {problem.id: problem for problem in rank.heldout}
        rank.phase("waiting", max(step, 1))
        targets = rank.arena.evaluation_targets()
        rank.phase("evaluating", max(step, 1))
        keys = targets[spec.rank :: spec.ranks]
        game = recipe.game
        prompts = [
            render(tokenizer, test_messages(by_id[pid], source if game.white_box else None, game.tests_per_suite))
            for pid, source in keys
        ]
        n = 1
    # The same seed at every step: what differs between two evaluations is the policy.
    sync_weights(rank.trainer)
    with beside_training(rank.trainer, recipe.seed * 1000 + 7 + spec.rank):
        completions, _ = sample_groups(rank.trainer, prompts, n, chunk=recipe.sampling.chunk)
    texts = [tokenizer.batch_decode(group, skip_special_tokens=True) for group in completions]
    rank.arena.post_evaluation(step, spec.role, spec.rank, list(zip(keys, texts, strict=True)))
