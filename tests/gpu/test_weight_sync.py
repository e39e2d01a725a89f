"""vLLM samples from the policy as it is now: checked with a real engine on a GPU.

CODEA1_GPU_MODEL names a small chat model's folder.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

MODEL = os.environ.get("CODEA1_GPU_MODEL")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not MODEL or find_spec("vllm") is None, reason="needs a GPU, vLLM and CODEA1_GPU_MODEL"),
]


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    from codea1_cli.engine import policy_worker as policy
    from codea1_cli.engine.ranks import RankSpec
    from codea1_cli.engine.run_setup import make_schedule
    from codea1_cli.engine.trl.trainer import build_trainer
    from codea1_cli.models.loading import load_tokenizer
    from codea1_cli.problems.problem import Problem
    from codea1_cli.recipe.batching import batches
    from codea1_cli.recipe.files import load_recipe

    folder = tmp_path_factory.mktemp("run")
    recipe = load_recipe(
        "135m",
        [
            f"model={MODEL}", "sampling.engine=vllm", "sampling.vllm_eager=true", "sampling.top_k=1",
            "sampling.vllm_memory=0.3", "train.problems_per_step=1", "game.n_code=2", "code.max_completion_tokens=64",
        ],
    )  # fmt: skip
    spec = RankSpec("code", 0, 1, "0", 4, 29511, str(folder), True)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ.update(spec.environment)
    store = policy._loopback_store(spec)
    assert store is not None
    if visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    chat = [{"role": "user", "content": "Write a Python function that adds two numbers."}]
    problem = Problem(id="p", question="q", declaration="def f():", entry_point="f", reference="r")
    rollouts = SimpleNamespace(prompt=lambda _: chat, reward=lambda **_: [0.0], rollout=None)
    schedule = make_schedule(["p"], problems_per_step=1, epochs=1, seed=0, max_steps=None)
    told: dict = {}
    made = build_trainer(
        recipe, spec, batches(recipe, "code", 1), schedule, {"p": problem}, rollouts, load_tokenizer(MODEL),
        Path(folder), told,
    )  # fmt: skip
    assert 0 < told["vllm_share"] <= 0.3
    made.chat = chat
    return made


def sampled(trainer):
    """A greedy completion and the log-probs that vLLM reports for its tokens."""
    from codea1_cli.engine.trl.sampling import sample_groups, sync_weights
    from codea1_cli.models.loading import render

    prompt = render(trainer.processing_class, trainer.chat)
    sync_weights(trainer)
    completions, _logprobs = sample_groups(trainer, [prompt], 1, chunk=None)
    return prompt, completions[0][0]


def mismatch(trainer, prompt, completion):
    """How far the policy's own greedy choice differs: the share of tokens of the completion that it would not take."""
    import torch

    ids = torch.tensor([prompt + completion], device="cuda")
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        logits = trainer.model(input_ids=ids).logits[0, len(prompt) - 1 : -1].float()
    chosen = torch.tensor(completion, device="cuda")
    # A near tie may fall either way in bf16.
    lost = logits.max(-1).values - logits.gather(1, chosen[:, None])[:, 0]
    return (lost > 0.25).float().mean().item()


def test_the_same_prompt_is_sampled_from_the_new_weights(trainer):
    """A stale weight or a stale prefix cache would show: the prompt is the same before and after."""
    import torch

    prompt, before = sampled(trainer)
    assert mismatch(trainer, prompt, before) < 0.1
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.add_(torch.randn_like(parameter) * parameter.std() * 0.3)
    assert mismatch(trainer, prompt, before) > 0.3, "the change was too small to show anything"
    trainer.state.global_step += 1
    _, after = sampled(trainer)
    assert after != before
    assert mismatch(trainer, prompt, after) < 0.1
    check = trainer.vllm_generation.sync_weights.__self__
    assert check.compared > 60, "norms, output and down projections of 30 layers"


def test_a_sync_that_loses_the_weights_is_an_error(trainer):
    import torch

    from codea1_cli.errors import RunFailed

    check = trainer.vllm_generation.sync_weights.__self__
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.mul_(1.01)
    send, check._sync = check._sync, lambda: list(check.watched())
    try:
        with pytest.raises(RunFailed, match="of vLLM differ from the policy's"):
            check.sync()
    finally:
        check._sync = send
    check.sync()
