"""Memory, disk, time: what must grow with what, and when a run is refused."""

from dataclasses import replace

import pytest

from codea1_cli import planning as c
from codea1_cli.errors import EnvironmentFault
from codea1_cli.planning import TABLE
from codea1_cli.planning.costs import PolicyTime, step_seconds
from codea1_cli.planning.estimate import best_gpu_splits, check_disk, check_fits, estimate_run, suggestions
from codea1_cli.planning.gpu_assignment import assign_gpus, gpu_ids, named_target, this_target
from codea1_cli.recipe.files import load_recipe

PROBLEMS = 9688


def shape_of(recipe):
    return {"1.5b": "Qwen2.5-Coder-1.5B", "3b": "Qwen2.5-Coder-3B", "7b": "Qwen2.5-Coder-7B", "135m": "SmolLM2-135M"}[
        recipe
    ]


def estimate(name, *overrides, gpu="h100", gpus=None):
    recipe = load_recipe(name, overrides)
    target, ranks = named_target(recipe, gpu, gpus)
    shape = TABLE[shape_of(name)]
    return estimate_run(recipe, {"code": shape, "test": shape}, gpu_ids(ranks), target, PROBLEMS)


def code_memory(*arguments, **options):
    return estimate(*arguments, **options).loads[0].ranks["code"]


def test_a_code_llm_that_samples_ahead_keeps_nobody_waiting_for_its_samples():
    def policy(sampling, updating):
        return PolicyTime(sampling, updating, 1, 1.0, 1.0, 1)

    times = [policy(30.0, 20.0), policy(40.0, 10.0)]
    tail = (1 - c.JUDGE_HIDDEN) * 8.0 + c.STRAGGLERS_S
    assert step_seconds(times, 8.0, shared=False) == pytest.approx(40 + tail + 50)
    assert step_seconds(times, 8.0, shared=False, ahead=1) == pytest.approx(max(40 + tail + 10, 50))
    assert step_seconds(times[:1], 50.0, shared=False, ahead=1) == pytest.approx(30 + 20)
    assert step_seconds(times[:1], 50.0, shared=False) == pytest.approx(30 + 20 + (50 - 30) + c.STRAGGLERS_S)


def test_adam_on_fp32_is_sixteen_bytes_a_parameter():
    held = code_memory("135m", gpus=2).held
    assert held["weights"] + held["gradients"] + held["optimizer"] == 16 * TABLE["SmolLM2-135M"].parameters
    assert held["reference model"] == 4 * TABLE["SmolLM2-135M"].parameters


def test_no_kl_and_adapters_need_no_reference():
    assert "reference model" not in code_memory("135m", "optim.kl=0", gpus=2).held
    with_adapters = code_memory("135m", "lora.r=8", gpus=2).held
    assert "reference model" not in with_adapters
    assert with_adapters["optimizer"] < 0.05 * code_memory("135m", gpus=2).held["optimizer"]


def test_fsdp_shares_what_ddp_repeats():
    ddp = code_memory("1.5b").held
    fsdp = code_memory("1.5b", "train.sharding=fsdp2", "sampling.engine=vllm").held
    assert fsdp["weights"] == ddp["weights"] // 4
    assert fsdp["optimizer"] == ddp["optimizer"] // 4
    assert "gradient buckets" in ddp
    assert "gradient buckets" not in fsdp


def test_checkpointing_trades_memory_for_time():
    on, off = estimate("1.5b"), estimate("1.5b", "train.gradient_checkpointing=false")
    assert on.loads[0].ranks["code"].training < off.loads[0].ranks["code"].training
    assert on.times["code"].updating > off.times["code"].updating


def test_a_sleeping_engine_leaves_its_room_to_the_update():
    awake, asleep = code_memory("1.5b"), code_memory("1.5b", "sampling.vllm_sleep=true")
    assert asleep.smallest == max(
        asleep.training, sum(asleep.held.values()) - asleep.held["gradients"] + sum(asleep.sampling.values())
    )
    assert awake.smallest == awake.training + sum(awake.sampling.values())


def test_the_engines_cache_takes_what_is_left_up_to_its_share():
    plan = estimate("1.5b")
    load = plan.loads[0]
    spare = (c.REFUSAL - 1) * load.ranks["code"].training
    assert load.peak(0.8) == pytest.approx(load.total - spare, rel=1e-6), "training may need more"
    small = load.cache(load.ranks["code"], 0.1)
    assert load.ranks["code"].sampling["vLLM cache"] <= small < load.cache(load.ranks["code"], 0.8)


def test_both_on_one_gpu_add_up_and_take_turns():
    one = estimate("135m", "code.gpus=[0]", "test.gpus=[0]", gpus=1)
    two = estimate("135m", gpus=2)
    assert list(one.loads) == [0]
    assert one.loads[0].needed == two.loads[0].needed + two.loads[1].needed
    assert one.step_s > two.step_s


def test_the_paper_sizes():
    assert estimate("1.5b").fits
    for name in ("3b", "7b"):
        assert estimate(name).fits
        plan = estimate(name, "train.sharding=ddp")
        assert not plan.fits
        with pytest.raises(
            EnvironmentFault, match=r"(code|test) would need [\d.]+ GiB, one NVIDIA H100 .* has 79\.6 GiB"
        ) as told:
            check_fits(plan, PROBLEMS)
        assert "train.sharding=fsdp2" in told.value.hint
        changes = dict(suggestions(plan, PROBLEMS))
        assert all(other.fits for other in changes.values())


def test_what_nearly_fits_is_a_warning():
    plan = estimate("1.5b")
    needed = plan.worst.needed
    for share, refused in ((0.95, False), (0.8, True)):
        device = replace(plan.target.device, memory=int(share * needed))
        tight = estimate_run(plan.recipe, plan.shapes, plan.gpus, replace(plan.target, device=device), PROBLEMS)
        assert not tight.fits
        if refused:
            with pytest.raises(EnvironmentFault):
                check_fits(tight, PROBLEMS)
        else:
            assert "this may not fit" in check_fits(tight, PROBLEMS)


def test_the_best_splits_come_first_and_divide_evenly():
    plan = estimate("1.5b")
    ranking = best_gpu_splits(plan, 8, PROBLEMS)
    a_problem = [other.step_s / other.recipe.train.problems_per_step for other in ranking]
    assert a_problem == sorted(a_problem)
    assert {(len(o.gpus["code"]), len(o.gpus["test"])) for o in ranking} >= {(4, 4), (2, 6), (3, 5)}
    for other in ranking:
        assert all(other.recipe.train.problems_per_step % len(group) == 0 for group in other.gpus.values())


def test_policies_that_share_all_gpus_sleep_where_they_do_not_fit_awake():
    plan = estimate("135m")
    shared = next(o for o in best_gpu_splits(plan, 8, PROBLEMS) if o.gpus["code"] == o.gpus["test"])
    assert shared.gpus["code"] == list(range(8))
    assert not shared.recipe.sampling.vllm_sleep
    device = replace(plan.target.device, memory=int(shared.worst.needed) - 1)
    tight = replace(plan, target=replace(plan.target, device=device))
    asleep = next(o for o in best_gpu_splits(tight, 8, PROBLEMS) if o.gpus["code"] == o.gpus["test"])
    assert asleep.fits
    assert asleep.recipe.sampling.vllm_sleep


def test_a_checkpoint_is_weights_and_moments_of_both():
    plan = estimate("135m", gpus=2)
    assert plan.checkpoint == 2 * 12 * TABLE["SmolLM2-135M"].parameters + c.OTHER_FILES
    assert plan.disk["checkpoints"] == 2 * plan.checkpoint
    none = estimate("135m", "checkpoint.every=null", gpus=2).disk
    assert (none["checkpoints"], none["one being written"]) == (0, 0)
    check_disk(plan, 10 * plan.checkpoint, "runs")
    with pytest.raises(EnvironmentFault, match="checkpoints alone take"):
        check_disk(plan, 2 * plan.checkpoint, "runs")


def test_steps_and_hours():
    plan = estimate("1.5b")
    assert plan.steps == 111
    assert plan.hours == pytest.approx(111 * plan.step_s / 3600)
    assert plan.times["test"].sequences == 8 * plan.times["code"].sequences == 16384
    assert plan.times["test"].sampling > plan.times["code"].sampling


def test_ranks_on_a_cpu_share_the_hosts_memory():
    recipe = load_recipe("tiny", ["code.ranks=2"])
    ranks = assign_gpus(recipe, [], 4)
    from codea1_cli.planning import find_shape

    shape = find_shape("builtin:tiny")
    plan = estimate_run(recipe, {"code": shape, "test": shape}, gpu_ids(ranks), this_target(recipe, ranks), 100)
    assert list(plan.loads[None].ranks) == ["code[0]", "code[1]", "test[0]"]
    assert plan.worst.total == plan.target.host_memory
