"""One plain TRL GRPO run: a role's sampling and update sizes, trivial rewards, nobody to wait for. run.py starts one per policy.

usage: floor.py ROLE STEPS FOLDER RECIPE [KEY=VALUE ...]      prints a line per step: seconds of the whole step, of its sampling

With CODEA1_PROFILE the update of the last step is profiled: FOLDER/profile.txt has what its time went to, on the GPU and on the CPU.
"""

import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from replay import recorded, whole_length


def main() -> None:
    role, steps, folder, name, *overrides = sys.argv[1:]
    from transformers import TrainerCallback

    from codea1_cli.engine.ranks import RankSpec, wants_vllm
    from codea1_cli.engine.run_setup import make_schedule
    from codea1_cli.engine.trl.sampling import sample_groups, sync_weights
    from codea1_cli.engine.trl.trainer import build_trainer
    from codea1_cli.methods.code_a1 import CodeA1
    from codea1_cli.models.loading import load_tokenizer, render
    from codea1_cli.problems.problem import read_problems
    from codea1_cli.problems.prompts import code_messages, test_messages
    from codea1_cli.recipe.batching import batches
    from codea1_cli.recipe.files import load_recipe

    recipe = load_recipe(name, overrides)
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES") or None
    spec = RankSpec(
        role,
        0,
        1,
        gpu,
        len(os.sched_getaffinity(0)),
        0,
        folder,
        wants_vllm(recipe, gpu and SimpleNamespace(physical=gpu)),
    )
    plan, size = CodeA1().plan(recipe.game, role), recipe.train.problems_per_step
    problems = {problem.id: problem for problem in read_problems(recipe.data.train) if problem.id in recorded()}
    schedule = make_schedule(list(problems), problems_per_step=size, epochs=1, seed=recipe.seed, max_steps=int(steps))
    tokenizer = load_tokenizer(recipe.model_of(role))
    n = plan.group
    spent: dict[str, float] = {}

    def prompts(step: int) -> list[list[int]]:
        ids = schedule.steps[step]
        if role == "code":
            return [render(tokenizer, code_messages(problems[pid])) for pid in ids]
        shown = [(pid, code) for pid in ids for code in recorded()[pid]["shown"][: plan.sampled // n]]
        return [
            render(tokenizer, test_messages(problems[pid], code, recipe.game.tests_per_suite)) for pid, code in shown
        ]

    def rollout(rows, trainer):
        whole_length(trainer, trainer.args.max_completion_length)
        began = time.monotonic()
        asked = prompts(trainer.state.global_step // updates)
        sync_weights(trainer)
        found, scores = sample_groups(trainer, asked, n, chunk=recipe.sampling.chunk)
        spent["sampling"] = time.monotonic() - began
        if profile is not None and trainer.state.global_step // updates == int(steps) - 1:
            profile.start()
        due = len(rows) // n
        taken = [(i, j) for i in range(due) for j in range(n)]
        return {
            "prompt_ids": [asked[i % len(asked)] for i, _ in taken],
            "completion_ids": [found[i % len(found)][j] for i, j in taken],
            "logprobs": [scores[i % len(scores)][j] for i, j in taken] if scores else None,
        }

    rollouts = SimpleNamespace(
        rollout=rollout,
        reward=lambda completions, **_: [float(i % 2) for i in range(len(completions))],
        rank=SimpleNamespace(staleness=0),
    )
    shape = batches(recipe, role, 1)
    updates = shape.updates_per_step
    trainer = build_trainer(recipe, spec, shape, schedule, rollouts, tokenizer, Path(folder) / role, {})

    class Clock(TrainerCallback):
        last = time.monotonic()

        def on_step_end(self, arguments, state, control, **_):
            if state.global_step % updates == 0:
                now = time.monotonic()
                print(
                    json.dumps({"step": state.global_step // updates, "step_s": now - self.last, **spent}), flush=True
                )
                self.last = now

    profile = profiler() if os.environ.get("CODEA1_PROFILE") else None
    trainer.add_callback(Clock())
    trainer.train()
    if profile is not None:
        profile.stop()
        every = profile.key_averages()
        key = "self_cuda_time_total" if gpu else "self_cpu_time_total"
        tables = [every.table(sort_by=sort, row_limit=40, max_name_column_width=70) for sort in (key, "cpu_time_total")]
        (Path(folder) / "profile.txt").write_text("\n".join(tables), encoding="utf-8")


def profiler():
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])


if __name__ == "__main__":
    main()
