"""What is set aside, what each process gets, and programs that start in UTF-8 mode under a home folder and umask of any kind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from codea1_cli import environment
from tests.e2e.harness import HOSTILE

KEPT = {
    "CUDA_VISIBLE_DEVICES": "0", "PATH": "/bin", "HF_HOME": "/hf", "HF_TOKEN": "x", "NCCL_SOCKET_IFNAME": "eth0",
    "TORCH_HOME": "/t", "TORCH_NCCL_BLOCKING_WAIT": "1", "VLLM_CACHE_ROOT": "/v", "PYTHONPATH": "/p",
    "TRITON_CACHE_DIR": "/c", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "CODEA1_RUNS": "/r",
    "GROUPS": "a", "RANKING": "b", "SLURMY": "c", "MASTERS": "d", "PETER": "e",
}  # fmt: skip


def test_what_belongs_to_others_is_set_aside_and_nothing_else():
    found = environment.foreign(HOSTILE | KEPT, threads=True)
    kept = {name for name in HOSTILE if name.startswith(("RAY_", "PYTHON", "HF_"))} | {"HOME", "LC_ALL", "TMPDIR"}
    assert set(found) == set(HOSTILE) - kept
    assert "OMP_NUM_THREADS" not in environment.foreign(HOSTILE)


@pytest.mark.parametrize(
    "name",
    [
        "RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "PET_NPROC_PER_NODE", "SLURM_JOB_ID",
        "PMIX_RANK", "I_MPI_FABRICS", "MV2_COMM_WORLD_RANK", "FLUX_TASK_RANK", "ACCELERATE_USE_DEEPSPEED", "VLLM_DP_RANK",
        "VLLM_HOST_IP", "VLLM_USE_MODELSCOPE", "TORCHDYNAMO_DISABLE", "USE_TF", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD",
        "ATEN_CPU_CAPABILITY", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_MAX_CPU_ISA", "NPY_DISABLE_CPU_FEATURES", "TRITON_INTERPRET",
        "PYTORCH_TUNABLEOP_ENABLED", "CUDNN_DETERMINISTIC", "CUBLASLT_WORKSPACE_SIZE",
    ],
)  # fmt: skip
def test_siblings(name):
    assert environment.foreign({name: "1"}) == [name]
    assert environment.foreign({name: "1", environment.KEEP: f"OTHER, {name}"}) == []


def test_settling_empties_this_process_and_remembers(monkeypatch):
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setattr(environment, "_set_aside", set())
    assert "SLURM_PROCID" in environment.settle()
    assert "SLURM_PROCID" not in os.environ
    assert "SLURM_PROCID" in environment.settle()


def test_a_rank_gets_its_place_and_no_other(tmp_path):
    def given(**more):
        place = {"gpu": None, "threads": 2, "master": ("127.0.0.1", 5), "vllm": False, "alone": True, "run": tmp_path}
        return environment.rank_environment(1, more.pop("ranks", 2), **(place | more))

    two = given()
    assert (two["RANK"], two["WORLD_SIZE"], two["LOCAL_RANK"], two["MASTER_PORT"]) == ("1", "2", "0", "5")
    assert two["OMP_NUM_THREADS"] == "2"
    assert two["GLOO_SOCKET_IFNAME"] == "lo"
    assert "RANK" not in given(ranks=1)
    assert "VLLM_HOST_IP" not in given()
    assert given(ranks=1, vllm=True, gpu="3") | {"CUDA_VISIBLE_DEVICES": "3", "WORLD_SIZE": "1"} == given(
        ranks=1, vllm=True, gpu="3"
    )
    assert "PYTORCH_ALLOC_CONF" in given(gpu="3")
    assert "PYTORCH_ALLOC_CONF" not in given() | given(gpu="3", vllm=True)
    apart = given(alone=False)
    assert not {"GLOO_SOCKET_IFNAME", "TORCHELASTIC_USE_AGENT_STORE"} & set(apart)


def test_caches_go_into_the_run_where_home_cannot_be_written(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert environment.caches(tmp_path) == {}
    monkeypatch.setenv("HOME", "/proc/1")
    monkeypatch.setenv("TRITON_CACHE_DIR", "/mine")
    caches = environment.caches(tmp_path)
    assert caches["VLLM_CACHE_ROOT"] == str(tmp_path / ".cache" / "vllm_cache_root")
    assert "TRITON_CACHE_DIR" not in caches

    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(environment.Path, "home", nobody)
    assert environment.home_fault() == "HOME=/nonexistent cannot be written"


@pytest.mark.parametrize("mask", ["0777", "0000", "0022", "0007"])
def test_the_umask_neither_locks_out_nor_lets_everybody_in(mask, tmp_path):
    code = (
        "import os, sys, pathlib; from codea1_cli.environment import settle_umask; settle_umask(); "
        "p = pathlib.Path(sys.argv[1]); p.mkdir(); print(oct(p.stat().st_mode & 0o777))"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", f'umask {mask}; exec "$@"', "sh", sys.executable, "-c", code, str(tmp_path / "new")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    mode = int(done.stdout, 8)
    assert mode & 0o700 == 0o700
    assert not mode & 0o002


def test_cores_are_those_that_a_process_may_use():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert environment.cores() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert environment.cores() == len(before)
