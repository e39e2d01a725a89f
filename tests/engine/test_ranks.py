"""Which rank goes to which node; what a node must see."""

import subprocess
import sys

import pytest

from codea1_cli.engine import ranks as module
from codea1_cli.engine.cluster import runtime_env
from codea1_cli.engine.ranks import Node, RankSpec, build_order, check_shared, cpu_threads, place, survey, threads_on
from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.planning.gpu_assignment import Gpu, assign_gpus
from codea1_cli.recipe.files import load_recipe


def gpu_nodes(*counts):
    made, first = [], 0
    for number, count in enumerate(counts):
        gpus = tuple(Gpu(first + i, str(i), "H100", node=f"n{number}", host=f"10.0.0.{number}") for i in range(count))
        made.append(Node(f"n{number}", f"10.0.0.{number}", 16, gpus))
        first += count
    return made


def placed(recipe, nodes):
    offered = [gpu for node in nodes for gpu in node.gpus]
    return place(assign_gpus(recipe, offered, sum(node.cores for node in nodes)), nodes)


def hosts(group):
    return [node.host[-1] for node in group]


@pytest.mark.parametrize(
    ("counts", "wishes", "code", "test"),
    [
        ((4, 4), ["code.gpus=4", "test.gpus=4"], "0000", "1111"),
        ((4, 4), ["code.gpus=2", "test.gpus=6"], "00", "001111"),
        ((2, 2), ["code.gpus=[0,2]", "test.gpus=[1,3]"], "01", "01"),
    ],
)
def test_a_slice_may_span_nodes(counts, wishes, code, test):
    found = placed(load_recipe("tiny", [*wishes, "train.problems_per_step=12"]), gpu_nodes(*counts))
    assert hosts(found["code"]) == list(code)
    assert hosts(found["test"]) == list(test)


def test_ranks_on_cpus_are_spread_in_blocks():
    recipe = load_recipe("tiny", ["code.ranks=4", "test.ranks=2"])
    found = placed(recipe, gpu_nodes(0, 0))
    assert hosts(found["code"]) == list("0011")
    assert hosts(found["test"]) == list("01")
    assert threads_on(found["code"][0], found) == 16 // 3


def test_one_rank_stays_beside_the_driver():
    found = placed(load_recipe("tiny"), gpu_nodes(0, 0, 0))
    assert hosts(found["code"]) == hosts(found["test"]) == ["0"]


def test_too_many_gpus_name_the_cluster():
    offered = [gpu for node in gpu_nodes(2, 2) for gpu in node.gpus]
    with pytest.raises(EnvironmentFault, match=r"4 \+ 4 GPUs \(code \+ test\), the cluster at auto offers 4"):
        assign_gpus(load_recipe("1.5b"), offered, 8, "the cluster at auto")


class Ray:
    @staticmethod
    def get(value, timeout=None):
        return value


def test_a_node_that_does_not_see_the_run_is_named(tmp_path, monkeypatch):
    blind = {"n1"}
    monkeypatch.setattr(module, "on_node", lambda ray, node, f, *a: node not in blind and f(*a))
    with pytest.raises(EnvironmentFault, match=r"cannot be written on 10\.0\.0\.1$") as caught:
        check_shared(Ray, gpu_nodes(1, 1), tmp_path)
    assert "--runs" in caught.value.hint
    blind.clear()
    check_shared(Ray, gpu_nodes(1, 1), tmp_path)
    assert not list(tmp_path.iterdir())


def test_rays_client_is_refused():
    with pytest.raises(UserError, match="not of Ray's client"):
        survey("ray://somewhere:10001")


@pytest.mark.parametrize(
    ("cores", "ranks", "threads"),
    [(1, 2, 1), (2, 2, 2), (4, 2, 2), (8, 2, 4), (16, 2, 8), (2, 4, 1), (16, 3, 5), (64, 0, 64), (4, 1, 4), (2, 0, 2)],
)
def test_threads_of_the_ranks_that_share_cores(cores, ranks, threads):
    assert cpu_threads(cores, ranks) == threads


def test_an_interpreter_in_a_folder_with_a_space_starts_an_actor(tmp_path):
    """As Ray starts it: its path is pasted into a shell's command."""
    python = tmp_path / "ä b" / "it's python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    pasted = runtime_env({}, str(python))["py_executable"]
    assert subprocess.run(["bash", "-c", f"exec {pasted} -S -c 'print(1)'"], capture_output=True).stdout == b"1\n"
    assert runtime_env({"A": "1"}, "/usr/bin/python3") == {"env_vars": {"A": "1"}}


def built(code: list[int], test: list[int], vllm: bool, *changes: str) -> list[list[str]]:
    def spec(policy: str, rank: int, gpu: int, other: list[int]) -> RankSpec:
        others = (("test" if policy == "code" else "code", len(other)),) if gpu in other else ()
        return RankSpec(policy, rank, 2, str(gpu), 1, 0, "run", vllm, others=others)

    specs = [spec("code", rank, gpu, test) for rank, gpu in enumerate(code)]
    specs += [spec("test", rank, gpu, code) for rank, gpu in enumerate(test)]
    return build_order(specs, load_recipe("1.5b", ["sampling.vllm_compile=false", *changes]))


def test_engines_come_up_side_by_side_but_on_a_shared_gpu_and_where_they_are_compiled():
    together = [["code[0]", "code[1]", "test[0]", "test[1]"]]
    in_turn = [["code[0]", "code[1]"], ["test[0]", "test[1]"]]
    assert built([0, 1], [2, 3], vllm=True) == together
    assert built([0, 1], [0, 1], vllm=True) == in_turn
    assert built([0, 1], [2, 3], True, "sampling.vllm_compile=true") == in_turn
    assert built([0, 1], [2, 3], True, "sampling.vllm_compile=true", "sampling.vllm_eager=true") == together
    assert built([0, 1], [1, 2], vllm=True) == in_turn
    assert built([0, 1], [0, 1], vllm=False) == together
