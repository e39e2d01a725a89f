import sys
from pathlib import Path

from codea1_cli.engine.trl.trainer import trainer_arguments
from codea1_cli.recipe.batching import batches
from codea1_cli.recipe.files import load_recipe


def test_the_published_hyper_parameters_reach_trl():
    """Optimizer steps are two a rollout, so warm-up and length double."""
    recipe = load_recipe("1.5b")
    shape = batches(recipe, "code", 4)
    arguments = trainer_arguments(recipe, "code", shape, 113, Path("out"), use_vllm=True)
    expected = {
        "num_generations": 8,
        "learning_rate": 1e-6,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 20,
        "max_steps": 226,
        "weight_decay": 0.1,
        "max_grad_norm": 1.0,
        "epsilon": 0.2,
        "epsilon_high": 0.28,
        "delta": 10.0,
        "beta": 0.001,
        "use_bias_correction_kl": False,
        "loss_type": "dapo",
        "scale_rewards": "group",
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "max_completion_length": 4096,
        "shuffle_dataset": False,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": 0.8,
        "vllm_max_model_length": 8192,
    }
    assert {key: arguments[key] for key in expected} == expected
    rows = arguments["per_device_train_batch_size"] * arguments["steps_per_generation"] * 4
    assert rows == 2048


def test_a_policy_may_have_its_own_learning_rate():
    recipe = load_recipe("tiny", ["test.learning_rate=5e-4"])
    rates = {
        role: trainer_arguments(recipe, role, batches(recipe, role, 1), 3, Path("o"), use_vllm=False)["learning_rate"]
        for role in ("code", "test")
    }
    assert rates == {"code": recipe.optim.learning_rate, "test": 5e-4}


def test_trackers_that_are_installed_are_not_there_for_trl(monkeypatch):
    """While it is imported, and when it asks again, as it does for the card that it writes with a model."""
    from importlib.util import find_spec

    from codea1_cli.engine.trl.trainer import import_trl

    for name in ("wandb", "trackio"):
        monkeypatch.setitem(sys.modules, name, None)  # whatever is there comes back after the test
        del sys.modules[name]
    seen: list = []

    class Trl:
        def __getattr__(self, name):
            seen.append((name, find_spec("wandb"), find_spec("trackio")))

    monkeypatch.setitem(sys.modules, "trl", Trl())
    import_trl("GRPOTrainer")
    assert seen[-1] == ("GRPOTrainer", None, None)
    assert find_spec("wandb") is None
