import pytest

from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.planning import gpu_assignment
from codea1_cli.planning.gpu_assignment import Gpu, Target, assign_gpus
from codea1_cli.recipe.files import load_recipe


def gpus(count):
    return [Gpu(i, str(i + 4), "card") for i in range(count)]


def chosen(overrides, count, cores=8):
    found = assign_gpus(load_recipe("135m", overrides), gpus(count), cores)
    return {role: [gpu.logical if gpu else None for gpu in group] for role, group in found.items()}


@pytest.mark.parametrize(
    ("overrides", "count", "expected"),
    [
        ([], 0, {"code": [None], "test": [None]}),
        ([], 1, {"code": [0], "test": [0]}),
        ([], 2, {"code": [0], "test": [1]}),
        ([], 4, {"code": [0, 1], "test": [2, 3]}),
        ([], 3, {"code": [0], "test": [1]}),
        (["code.gpus=1", "test.gpus=3"], 4, {"code": [0], "test": [1, 2, 3]}),
        (["code.gpus=[3]", "test.gpus=2"], 4, {"code": [3], "test": [0, 1]}),
        (["code.gpus=[0]", "test.gpus=[0]"], 1, {"code": [0], "test": [0]}),
        (["code.gpus=0", "test.gpus=1"], 1, {"code": [None], "test": [0]}),
        (["code.ranks=2"], 0, {"code": [None, None], "test": [None]}),
    ],
)
def test_each_policy_gets_its_gpus(overrides, count, expected):
    assert chosen(overrides, count) == expected


@pytest.mark.parametrize(
    ("overrides", "count", "says"),
    [
        (["code.gpus=4", "test.gpus=4"], 2, "asks for 4 + 4 GPUs (code + test), this machine offers 2"),
        (["code.gpus=[5]", "test.gpus=1"], 2, "there is no GPU 5, this machine offers 2"),
        (["code.ranks=9"], 0, "code.ranks=9 does not fit 8 CPU cores"),
        (["code.ranks=3", "code.gpus=2", "test.gpus=1"], 3, "code.ranks=3 does not fit 2 GPUs"),
    ],
)
def test_more_than_there_is_fails_at_once_with_both_numbers(overrides, count, says):
    with pytest.raises(EnvironmentFault) as caught:
        chosen(overrides, count)
    assert says in caught.value.what
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("overrides", [["code.gpus=4", "test.gpus=4"], ["code.gpus=[0]", "test.gpus=[1]"]])
@pytest.mark.parametrize(
    ("gib", "says"),
    [
        (1000, "there is no GPU: `code.gpus=0 test.gpus=0` tries it on the CPU"),
        (24, "there is no GPU: `code.gpus=0 test.gpus=0 sampling.chunk=128` tries it on the CPU"),
        (2, "there is no GPU, and too little memory to try it on the CPU: `codea1 plan --help`"),
    ],
)
def test_without_any_gpu_the_hint_names_none_and_offers_the_cpu_where_it_may_do(monkeypatch, overrides, gib, says):
    monkeypatch.setattr(gpu_assignment, "_target", lambda device, vllm: Target(device, 2, gib * 2**30, vllm))
    with pytest.raises(EnvironmentFault) as caught:
        chosen(overrides, 0)
    assert caught.value.hint.startswith(says)


def test_an_id_given_twice_is_a_mistake():
    with pytest.raises(UserError):
        chosen(["code.gpus=[0,0]", "test.gpus=1"], 2)
