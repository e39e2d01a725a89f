"""A method that trains a single policy is planned like any other."""

from dataclasses import replace

import pytest

from codea1_cli.errors import EnvironmentFault
from codea1_cli.planning import STRAGGLERS_S, TABLE
from codea1_cli.planning.estimate import best_gpu_splits, estimate_run
from codea1_cli.planning.gpu_assignment import Gpu, assign_gpus, gpu_ids, named_target
from codea1_cli.recipe.files import load_recipe

METHODS = ("method=tests.methods.one_role:OneRole", "method=self-play")
every_method = pytest.mark.parametrize("method", METHODS)


@every_method
def test_it_gets_every_gpu(method):
    gpus = [Gpu(i, str(i)) for i in range(3)]
    assert assign_gpus(load_recipe("135m", [method]), gpus, 8) == {"code": gpus}
    assert assign_gpus(load_recipe("135m", [method, "code.gpus=[2]"]), gpus, 8) == {"code": [gpus[2]]}
    assert assign_gpus(load_recipe("135m", [method]), [], 8) == {"code": [None]}
    with pytest.raises(EnvironmentFault, match=r"asks for 4 GPUs \(code\), this machine offers 3") as caught:
        assign_gpus(load_recipe("135m", [method, "code.gpus=4"]), gpus, 8)
    assert caught.value.hint == "set code.gpus to what there is"


@every_method
def test_its_estimate_knows_no_other(method):
    recipe = load_recipe("135m", [method])
    target, ranks = named_target(recipe, "h100", None)
    shapes = {"code": TABLE["SmolLM2-135M"]}
    found = estimate_run(recipe, shapes, gpu_ids(ranks), target, 9688)
    assert list(found.times) == list(found.memory) == ["code"]
    assert (
        found.checkpoint
        < estimate_run(
            load_recipe("135m"), shapes | {"test": shapes["code"]}, {"code": [0], "test": [1]}, target, 9688
        ).checkpoint
    )
    time = found.times["code"]
    assert time.sampling + time.updating < found.step_s - STRAGGLERS_S < time.sampling + time.updating + found.judging_s
    assert [split.gpus for split in best_gpu_splits(found, 4, 9688)] == [{"code": [0, 1, 2, 3]}]


def test_a_method_that_learns_from_pairs_samples_without_vllm():
    recipe = load_recipe("1.5b", ["method=sft", "code.gpus=1"])
    target, ranks = named_target(recipe, "h100", None)
    assert not target.vllm
    estimate = estimate_run(recipe, {"code": TABLE["Qwen2.5-Coder-1.5B"]}, gpu_ids(ranks), target, 500)
    assert estimate.times["code"].sampling == 0


def test_nor_does_the_warm_up_of_a_run_that_samples_with_it():
    recipe = load_recipe("135m", ["sampling.engine=vllm"])
    target, ranks = named_target(recipe, "h100", 2)
    assert target.vllm

    def warmup_s(target):
        shapes = dict.fromkeys(("code", "test"), TABLE["SmolLM2-135M"])
        return estimate_run(recipe, shapes, gpu_ids(ranks), target, 500).warmup_s

    assert warmup_s(target) == warmup_s(replace(target, vllm=False))
