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


def test_trackers_that_are_installed_are_not_imported_with_trl(monkeypatch):
    from importlib.util import find_spec

    from codea1_cli.engine.trl.trainer import import_trl

    class Trl:
        def __getattr__(self, name):
            seen.append((name, find_spec("wandb"), "trackio" in sys.modules and sys.modules["trackio"] is None))

    seen: list = []
    for name in ("wandb", "trackio"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "trl", Trl())
    import_trl("GRPOTrainer")
    assert seen[-1] == ("GRPOTrainer", None, True)
    assert "wandb" not in sys.modules
    assert "trackio" not in sys.modules


def test_a_module_of_trl_that_asks_again_for_wandb_finds_no_run_of_it(monkeypatch):
    """It does as a checkpoint is saved: a name that it lacks then would end the run."""
    from types import ModuleType, SimpleNamespace

    from codea1_cli.engine.trl.trainer import import_trl

    late = ModuleType("trl.late")
    late.is_wandb_available = lambda: True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trl", SimpleNamespace(GRPOTrainer=None))
    monkeypatch.setitem(sys.modules, "trl.late", late)
    import_trl("GRPOTrainer")
    assert late.wandb.run is None
