"""The engine's share of a GPU, and the check of its weights, without a GPU: the engine is a dictionary of tensors."""

from types import SimpleNamespace

import pytest

from codea1_cli.engine.ranks import RankSpec
from codea1_cli.engine.trl.vllm_engine import WeightCheck, engine_settings, engine_share, rank_memory_there
from codea1_cli.errors import EnvironmentFault, RunFailed
from codea1_cli.planning import DEVICES, REFUSAL
from codea1_cli.planning.costs import GpuLoad
from codea1_cli.recipe.batching import batches
from codea1_cli.recipe.files import load_recipe

torch = pytest.importorskip("torch")
GIB = 2**30


def share(**changed):
    numbers = {"total": 80, "free": 78, "training": 20, "still": 0, "engines": 1, "least": 4, "most": 0.9} | changed
    amounts = {k: v if k in ("engines", "most") else v * GIB for k, v in numbers.items()}
    return engine_share(**amounts, who="code[0]")


def test_an_engine_takes_what_training_leaves_should_it_need_more_than_was_estimated():
    assert share() == pytest.approx((78 - REFUSAL * 20) / 80, abs=1e-4)


def test_where_little_is_left_half_of_what_it_does_not_need_stays_free():
    assert [share(training=training) for training in (70, 73, 74)] == pytest.approx(
        [6 / 80, 4.5 / 80, 4 / 80], abs=1e-4
    )


def test_the_recipe_bounds_it():
    assert share(most=0.3) == 0.3


def test_two_policies_on_a_gpu_leave_room_for_each_other():
    """The first engine counts both trainings and halves the rest; the second finds that half free."""
    first = share(still=26, engines=2)
    assert first == pytest.approx((78 - REFUSAL * (20 + 26)) / 2 / 80, abs=1e-4)
    left = 78 - first * 80 - 6  # the second policy's weights have come
    second = share(free=left, training=20, still=20)
    assert first * 80 + second * 80 + 20 + 20 + 6 <= 78.1


def test_too_little_is_said_with_its_numbers():
    with pytest.raises(
        EnvironmentFault, match=r"code\[0\]: 22.0 GiB of the GPU are free, training needs 20.0.*at least 4.0"
    ):
        share(free=22)
    assert share(free=23.5) == pytest.approx(3.5 / 80, abs=1e-4), "less than the estimate is tried"


class Generation:
    """What TRL calls VLLMGeneration: the policy's tensors go to the engine one by one; two are fused there."""

    def __init__(self):
        self.policy = {
            "a.norm.weight": torch.ones(4),
            "a.q_proj.weight": torch.ones(2, 4),
            "b.weight": torch.arange(6.0),
        }
        self.engine = {
            "a.norm.weight": torch.zeros(4),
            "a.qkv_proj.weight": torch.zeros(6, 4),
            "b.weight": torch.zeros(6),
        }
        model = SimpleNamespace(named_parameters=lambda: self.engine.items())
        worker = SimpleNamespace(model_runner=SimpleNamespace(model=model))
        self.llm = SimpleNamespace(llm_engine=SimpleNamespace(model_executor=SimpleNamespace(driver_worker=worker)))
        self.loses: set[str] = set()

    def _iter_named_params(self):
        yield from self.policy.items()

    def sync_weights(self):
        for name, tensor in self._iter_named_params():
            if name in self.engine and name not in self.loses:
                self.engine[name].copy_(tensor)


def test_a_sync_that_arrives_passes_and_says_how_much_it_compared():
    generation = Generation()
    check = WeightCheck(generation, "code[0]")
    generation.sync_weights()
    assert check.compared == 2
    generation.policy["b.weight"] += 1
    generation.sync_weights()
    assert torch.equal(generation.engine["b.weight"], torch.arange(6.0) + 1)


@pytest.mark.parametrize("lost", ["a.norm.weight", "b.weight"])
def test_a_tensor_that_does_not_arrive_ends_the_run(lost):
    generation = Generation()
    WeightCheck(generation, "test[1]")
    generation.loses = {lost}
    with pytest.raises(RunFailed, match=rf"test\[1\].*1 of 2 tensors of vLLM differ.*{lost}"):
        generation.sync_weights()


def test_an_engine_of_which_nothing_is_known_is_an_error():
    generation = Generation()
    generation.engine = {"other": torch.zeros(1)}
    WeightCheck(generation, "code[0]")
    with pytest.raises(RunFailed, match="no tensor"):
        generation.sync_weights()


@pytest.mark.parametrize(
    ("words", "eager", "graphs"),
    [([], False, False), (["sampling.vllm_compile=false"], False, True), (["sampling.vllm_eager=true"], True, False)],
)
def test_an_engine_compiles_unless_the_recipe_wants_it_up_sooner(monkeypatch, words, eager, graphs):
    import torch
    from trl.generation import vllm_generation

    asked = {}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (90 * 2**30, 96 * 2**30))
    monkeypatch.setattr(vllm_generation, "LLM", lambda **settings: asked.update(settings), raising=False)
    recipe = load_recipe("0.5b", ["sampling.vllm_compile=true", *words])
    spec = SimpleNamespace(policy="code", rank=0, ranks=1, use_vllm=True, others=[("test", 1)], label="code[0]")
    with engine_settings(recipe, batches(recipe, "code", 1), spec, {}):
        vllm_generation.LLM()
    assert asked["enforce_eager"] is eager
    assert ("compilation_config" in asked) is graphs
    assert asked["max_num_seqs"] == 256


@pytest.mark.parametrize(
    ("name", "device", "ranks", "sleeps"),
    [
        *(
            (*one, sleeps)
            for one in [("7b", "h200", 4), ("3b", "h100", 4), ("1.5b", "h200", 1)]
            for sleeps in (False, True)
        ),
        *(("7b", "h100", 8, True), ("135m", "a100-40", 2, False)),
    ],
)
def test_engines_start_and_leave_room_wherever_the_plan_says_that_policies_fit_on_a_gpu(
    name, device, ranks, sleeps, monkeypatch
):
    from trl.generation import vllm_generation

    changes = ["data.train=x.jsonl", "train.problems_per_step=32", "train.tokens_per_micro_batch=8192"]
    recipe = load_recipe(name, [*changes, f"sampling.vllm_sleep={str(sleeps).lower()}"])
    total = DEVICES[device].memory
    there = {p: rank_memory_there(recipe, p, batches(recipe, p, ranks), ranks) for p in ("code", "test")}
    load = GpuLoad({policy: memory for policy, (memory, _) in there.items()}, total)
    assert load.fits
    free, taken = total, {}
    for policy, other in (("code", "test"), ("test", "code")):
        memory, already = there[policy]
        free -= already
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda free=free: (int(free), total))
        monkeypatch.setattr(vllm_generation, "LLM", lambda **settings: settings, raising=False)
        spec = RankSpec(policy, 0, ranks, "0", 1, 0, "run", True, others=((other, ranks),))
        told = {}
        with engine_settings(recipe, batches(recipe, policy, ranks), spec, told):
            vllm_generation.LLM()
        taken[policy] = told["vllm_share"] * total
        assert taken[policy] > 0.999 * sum(memory.sampling.values())
        free -= 0 if sleeps else taken[policy]
    if sleeps:
        heights = {policy: max(m.training, m.idle + taken[policy]) for policy, (m, _) in there.items()}
        # One of them learns, or has its engine awake; the other does the one or the other, or waits.
        assert heights["code"] + there["test"][0].training < 1.001 * total
        assert heights["test"] + there["code"][0].training < 1.001 * total
    else:
        assert sum(m.training + taken[policy] for policy, (m, _) in there.items()) < 1.001 * total
