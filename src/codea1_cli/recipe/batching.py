"""What follows from a recipe: rows, micro-batches, optimizer steps, none of which is ever asked of the user, and what
its run can be measured by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from codea1_cli.errors import UserError, counted, did_you_mean, some
from codea1_cli.evals.registry import names as benchmark_names
from codea1_cli.methods.registry import method_of
from codea1_cli.recipe.schema import Recipe


@dataclass(frozen=True)
class Batches:
    """One policy's batch arithmetic; a row is one completion with its prompt. Micro-batches are counted as if all rows
    were of full length: of shorter rows more share one (`engine/trl/micro_batches.py`; of pairs, `filled`)."""

    group: int  # rows that TRL samples together: those compared with each other, or all of a problem for several roles
    groups_per_problem: int
    ranks: int
    rows_per_step: int
    rows_per_rank: int
    micro_batch: int  # rows of one forward pass on one rank, at the least
    steps_per_generation: int  # micro-batches of one rollout on one rank
    gradient_accumulation: int
    updates_per_step: int


def longest(recipe: Recipe, policy: str) -> tuple[int, int]:
    """The most tokens of a prompt, and of a completion, in the roles that a policy plays."""
    sections = [recipe.role(role) for role in method_of(recipe).roles_of(policy)]
    prompt = max(section.max_prompt_tokens for section in sections)
    return prompt, max(section.max_completion_tokens for section in sections)


def batches(recipe: Recipe, policy: str, ranks: int) -> Batches:
    """Derives one policy's batch arithmetic.

    Raises:
        UserError: a step cannot be shared out evenly between ranks or optimizer steps.
    """
    train, method = recipe.train, method_of(recipe)
    plans = [method.plan(recipe.game, role) for role in method.roles_of(policy)]
    group, groups = plans[0].group, plans[0].groups
    if len(plans) > 1:
        group, groups = sum(plan.group * plan.groups for plan in plans), 1
    updates = train.updates_per_step * (len(plans) if train.equal_budget else 1)
    if train.problems_per_step % ranks:
        raise UserError(
            f"train.problems_per_step={train.problems_per_step} cannot be shared by {ranks} {policy} ranks",
            hint=f"make it a multiple of {ranks}: a problem must not straddle ranks",
        )
    if train.spare_problems % ranks:
        raise UserError(
            f"train.spare_problems={train.spare_problems} cannot be shared by {ranks} {policy} ranks",
            hint=f"make it a multiple of {ranks}: every rank has as many",
        )
    rows = train.problems_per_step * groups * group
    per_rank = rows // ranks
    if per_rank % updates:
        twice = " with train.equal_budget" if updates > train.updates_per_step else ""
        raise UserError(
            f"{counted(per_rank, 'row')} a rank on the {policy} side cannot be cut into {updates} equal parts "
            f"(train.updates_per_step={train.updates_per_step}{twice})",
            hint="choose train.updates_per_step as a divisor of train.problems_per_step",
        )
    per_update = per_rank // updates
    found = Batches(
        group=group,
        groups_per_problem=groups,
        ranks=ranks,
        rows_per_step=rows,
        rows_per_rank=per_rank,
        micro_batch=1,
        steps_per_generation=per_rank,
        gradient_accumulation=per_update,
        updates_per_step=updates,
    )
    return filled(recipe, found, sum(longest(recipe, policy)))


def filled(recipe: Recipe, batches: Batches, length: int) -> Batches:
    """The same steps in the largest equal micro-batches that hold rows of up to `length` tokens in all."""
    per_rank, updates = batches.rows_per_rank, batches.updates_per_step
    fits = max(1, recipe.train.tokens_per_micro_batch // length)
    micro = next(size for size in range(min(fits, per_rank // updates), 0, -1) if per_rank // updates % size == 0)
    sizes = {"steps_per_generation": per_rank // micro, "gradient_accumulation": per_rank // updates // micro}
    return replace(batches, micro_batch=micro, **sizes)


def fullest(recipe: Recipe, policy: str, batches: Batches) -> tuple[int, int]:
    """The most padded tokens of a micro-batch, and of its completions."""
    prompt, completion = longest(recipe, policy)
    rows, tokens = batches.micro_batch, batches.micro_batch * (prompt + completion)
    if _by_tokens(recipe):
        rows *= batches.gradient_accumulation
        tokens = max(tokens, min(rows * (prompt + completion), recipe.train.tokens_per_micro_batch))
    return tokens, min(tokens, rows * completion)


def micro_batches(recipe: Recipe, batches: Batches, length: float) -> int:
    """Micro-batches of a step on one rank, whose rows have `length` tokens on average; pairs up to twice as many."""
    most = batches.gradient_accumulation
    if method_of(recipe).pairs:
        fewest = filled(recipe, batches, ceil(2 * length)).gradient_accumulation
    else:
        fewest = ceil(batches.micro_batch * most * length / recipe.train.tokens_per_micro_batch)
    return batches.updates_per_step * (min(most, fewest) if _by_tokens(recipe) else most)


def _by_tokens(recipe: Recipe) -> bool:
    """Whether micro-batches have as many rows as their own tokens allow."""
    return method_of(recipe).pairs or recipe.optim.loss != "bnpo"


def warmup_recipe(recipe: Recipe) -> Recipe | None:
    """The recipe of the run that warms up a recipe's policies; None where it asks for no warm-up."""
    method, wish = method_of(recipe), recipe.warmup
    if wish is None:
        return None
    # FSDP2 would need every rank for every token that is sampled.
    sharded: dict[str, Any] = {"heldout": None} if recipe.train.sharding == "fsdp2" else {}
    lengths = {
        "problems_per_step": wish.pairs_per_step,
        "spare_problems": 0,
        "staleness": 0,
        "updates_per_step": 1,
        "max_steps": wish.steps,
    }
    role = method.roles[0] if len(method.roles) == 1 else "both" if len(method.policies) > 1 else "one"
    changes = {
        "method": "sft",
        "sft": recipe.sft.model_copy(update={"role": role}),
        "warmup": None,
        "data": recipe.data.model_copy(update={"solve_rate": None, "leave_flat": None} | sharded),
        "train": recipe.train.model_copy(update=lengths | {"equal_budget": False}),
        "eval": recipe.eval.model_copy(update={"every": None, "benchmarks": [], "best": None}),
        "checkpoint": recipe.checkpoint.model_copy(update={"every": recipe.checkpoint.every or wish.steps, "keep": 1}),
    }
    return recipe.model_copy(update=changes)


def fitted(recipe: Recipe, problems: int, ranks: Mapping[str, int]) -> tuple[Recipe, str | None]:
    """The recipe and None; where the problems do not fill a step, the recipe with a smaller one and a note on it.

    The smaller step is the largest that the problems fill and that can be shared out evenly among every policy's
    optimizer steps and ranks. ranks: how many, by policy.

    Raises:
        UserError: not even the smallest step can be filled.
    """
    train, what = recipe.train, "pair" if method_of(recipe).pairs else "problem"
    asked = train.problems_sampled
    for size in range(problems, 0, -1) if problems < asked else ():
        due = min(size, train.problems_per_step)
        sizes = {"problems_per_step": due, "spare_problems": size - due}
        smaller = recipe.model_copy(update={"train": train.model_copy(update=sizes)})
        try:
            for policy, count in ranks.items():
                batches(smaller, policy, count)
        except UserError:
            continue
        return smaller, f"{counted(size, what)} per step, where the recipe asks for {asked}: there are {problems}"
    if problems < asked:
        sharing = f"{counted(max(ranks.values()), 'rank')} of a policy"
        raise UserError(
            f"{counted(problems, what)} cannot fill a step that {sharing} and "
            f"train.updates_per_step={recipe.train.updates_per_step} can share",
            hint=f"add {what}s, lower train.updates_per_step, or take fewer GPUs (code.gpus, test.gpus)",
        )
    return recipe, None


def check_measured(recipe: Recipe) -> None:
    """Refuses what `eval` names and a run of the recipe would never measure, or never mark.

    Raises:
        UserError: the key, what the run measures, and the way out.
    """
    method, wish, data, best = method_of(recipe), recipe.eval, recipe.data, recipe.eval.best or ""
    who = f"method={recipe.method}{f' with sft.role={recipe.sft.role}' if method.pairs else ''}"
    sides = " and the ".join(f"{role.title()} LLM" for role in method.roles)
    fitting = [name for role in method.roles for name in benchmark_names(role)]
    if other := [name for name in wish.benchmarks if name not in fitting]:
        raise UserError(
            f"eval.benchmarks: {', '.join(other)} does not measure the {sides}, which {who} trains",
            hint=f"leave it out; {', '.join(fitting)} can be measured",
        )
    made = data.source.options()[1].val if data.source is not None and data.train is None else 0.0
    if method.pairs and recipe.train.sharding == "fsdp2" and (data.heldout or made or wish.benchmarks):
        off = {"data.heldout=null": data.heldout, "data.source.val=0": made, "eval.benchmarks=[]": wish.benchmarks}
        words = " ".join(text for text, there in off.items() if there)
        raise UserError(
            f"train.sharding=fsdp2: method={recipe.method} measures held-out problems and benchmarks under ddp alone",
            hint=f"{words}, and eval-code or eval-tests on its checkpoints; or train.sharding=ddp",
        )
    if best and recipe.checkpoint.every is None:
        raise UserError(
            f"eval.best={best} marks a checkpoint, and checkpoint.every=null saves none",
            hint="set checkpoint.every, or eval.best=null",
        )
    if best.startswith("heldout/"):
        from codea1_cli.evals.heldout import figure_names

        known = figure_names(method.roles, wish.n)
        if not (data.heldout or made):
            raise UserError(f"eval.best={best} needs held-out problems: set data.heldout", hint="or eval.best=null")
        if best not in known:
            raise UserError(
                f"eval.best={best} is no figure of this run: {who} trains the {sides}, and measures {some(known, 12)}",
                hint=did_you_mean(best, known) or "name one of these, or set eval.best=null",
            )
