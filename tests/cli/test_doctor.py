"""`codea1 doctor`: package ranges, the GPU map, and exit 3 for what training needs."""

import json

import pytest

from codea1_cli import doctor as checks
from codea1_cli.cli.doctor import doctor
from codea1_cli.doctor import Status, sandbox_checks, version_clashes
from codea1_cli.planning.gpu_assignment import Gpu, visible_gpus
from codea1_cli.sandbox.base import LAYERS, ProgramRun
from codea1_cli.sandbox.local import LocalSandbox
from codea1_cli.sandbox.verdicts import Answer, AnswerKind

GPUS = [Gpu(i, str(i), "NVIDIA H100", f"GPU-{letter}{i}", 81559, 10) for i, letter in enumerate("abcd")]


@pytest.mark.parametrize(
    ("setting", "physical"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("2", [2]),
        ("3,1", [3, 1]),
        ("GPU-c,GPU-a0", [2, 0]),
        ("1,9,2", [1]),
        ("-1", []),
        ("GPU-", []),
        ("1,1", [1]),
        ("MIG-x/1,2", ["MIG-x/1", 2]),
    ],
)
def test_logical_gpus_map_to_physical_ones_as_cuda_does(setting, physical):
    visible = visible_gpus(GPUS, {} if setting is None else {"CUDA_VISIBLE_DEVICES": setting})
    assert [gpu.physical for gpu in visible] == list(map(str, physical))
    assert [gpu.logical for gpu in visible] == list(range(len(physical)))


DECLARED = {
    "codea1": ["torch>=2.11,<2.14", 'trl[vllm]; extra == "vllm"'],
    "trl": ["transformers>=4.56", 'vllm<=0.31.0,>=0.22.0; extra == "vllm"', 'other>=9; extra == "quality"'],
    "vllm": ["torch==2.11.0"],
}


@pytest.mark.parametrize(
    ("change", "clash"),
    [
        ({}, None),
        ({"vllm": None}, None),
        ({"vllm": "0.21.0"}, "trl 1.16.0 wants vllm <=0.31.0,>=0.22.0, and 0.21.0 is installed"),
        ({"torch": "2.13.0"}, "vllm 0.25.1 wants torch ==2.11.0, and 2.13.0 is installed"),
        ({"torch": "2.14.0", "vllm": None}, "codea1 wants torch <2.14,>=2.11, and 2.14.0 is installed"),
        ({"other": "1.0"}, None),
    ],
)
def test_versions_clash_by_what_the_packages_declare(change, clash):
    installed = {"torch": "2.11.0+cu130", "transformers": "5.17.0", "trl": "1.16.0", "vllm": "0.25.1"} | change
    assert version_clashes(installed, DECLARED.get) == ([] if clash is None else [clash])


def test_doctor_is_healthy_here_and_says_so_in_json(call, tmp_path):
    done = call(doctor, "--runs", tmp_path / "runs", "--json")
    found = {check["name"]: check for check in done.data["checks"]}
    assert done.data["healthy"], done.data
    assert done.code == 0
    assert {"python", "torch", "trl", "GPUs", "runs folder", "shared memory"} <= found.keys()
    assert found["torch"]["data"]["version"]
    assert found["torch, TRL and vLLM together"]["status"] == "ok"
    assert not (tmp_path / "runs").exists()
    assert "python" in call(doctor, "--runs", tmp_path).out


def test_what_train_needs_and_is_absent_ends_with_3(call, tmp_path, monkeypatch):
    versions = {**checks.installed_versions(), "trl": None}
    monkeypatch.setattr(checks, "installed_versions", lambda: versions)
    monkeypatch.setattr(checks, "sandbox_checks", list)
    done = call(doctor, "--runs", tmp_path, "--json")
    assert done.code == 3
    assert not done.data["healthy"]
    assert next(check for check in done.data["checks"] if check["name"] == "trl")["status"] == "broken"


def test_a_check_that_fails_is_a_finding(tmp_path, monkeypatch):
    def ill():
        raise RuntimeError("no kernel")

    monkeypatch.setattr(checks, "sandbox_checks", ill)
    (found,) = [check for check in checks.diagnose(tmp_path) if check.name == "sandbox"]
    assert found.status is Status.BROKEN
    assert "no kernel" in found.detail
    json.dumps(found.data)


def test_a_full_disk_and_a_folder_without_write_access_are_broken(tmp_path, monkeypatch):
    class Usage:
        free = 1e6

    monkeypatch.setattr(checks.shutil, "disk_usage", lambda _: Usage)
    assert checks._disk(tmp_path / "not" / "yet").status is Status.BROKEN
    assert checks._shared_memory(tmp_path).status is Status.WARNING
    monkeypatch.setattr(checks.os, "access", lambda *_: False)
    assert "cannot be written" in checks._disk(tmp_path).detail


def test_the_canary_judges_rightly_here():
    first, *others = sandbox_checks()
    assert (first.name, first.status) == ("sandbox", Status.OK)
    assert first.data["verdicts"]["lying"] == "failed"
    layers = next(check for check in others if check.name == "sandbox layers")
    assert set(layers.data["layers"]) == set(LAYERS)
    assert "numpy in the sandbox" not in {check.name for check in others}


def test_a_judge_that_cannot_tell_right_from_wrong_is_broken(monkeypatch):
    def unscored(self, program, entry_point, calls, limits, hash_seed=0):
        return ProgramRun(None, "down", [Answer(AnswerKind.UNSCORED, detail="down") for _ in calls])

    monkeypatch.setattr(LocalSandbox, "run", unscored)
    (check,) = sandbox_checks()
    assert check.status is Status.BROKEN
    assert "right program: unscored, not passed" in check.detail
