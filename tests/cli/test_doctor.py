"""`codea1 doctor`: package ranges, the GPU map, and exit 3 for what training needs."""

import json
import shutil
from pathlib import Path

import pytest

from codea1_cli import doctor as checks
from codea1_cli.cli import app
from codea1_cli.cli.judge import doctor
from codea1_cli.doctor import Health, sandbox_checks, version_clashes
from codea1_cli.planning.gpu_assignment import Gpu, visible_gpus
from codea1_cli.sandbox.base import LAYERS, ProgramRun
from codea1_cli.sandbox.local import LocalSandbox
from codea1_cli.sandbox.verdicts import Answer, AnswerKind
from codea1_cli.tiny import problems_path

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
    monkeypatch.setattr(checks, "sandbox_checks", lambda _: [])
    done = call(doctor, "--runs", tmp_path, "--json")
    assert done.code == 3
    assert not done.data["healthy"]
    assert next(check for check in done.data["checks"] if check["name"] == "trl")["status"] == "broken"


def test_a_check_that_fails_is_a_finding(tmp_path, monkeypatch):
    def ill(_options):
        raise RuntimeError("no kernel")

    monkeypatch.setattr(checks, "sandbox_checks", ill)
    (found,) = [check for check in checks.diagnose(tmp_path) if check.name == "sandbox"]
    assert found.status is Health.BROKEN
    assert "no kernel" in found.detail
    json.dumps(found.data)


def test_a_full_disk_and_a_folder_without_write_access_are_broken(tmp_path, monkeypatch):
    class Usage:
        free = 1e6

    monkeypatch.setattr(checks.shutil, "disk_usage", lambda _: Usage)
    assert checks._disk(tmp_path / "not" / "yet").status is Health.BROKEN
    assert checks._shared_memory(tmp_path).status is Health.WARNING
    assert "cannot write /proc/runs" in checks._disk(Path("/proc/runs")).detail


def test_the_canary_judges_rightly_here():
    first, *others = sandbox_checks()
    assert (first.name, first.status) == ("sandbox", Health.OK)
    assert first.data["verdicts"]["lying"] == "failed"
    layers = next(check for check in others if check.name == "sandbox layers")
    assert set(layers.data["layers"]) == set(LAYERS)
    assert "numpy in the sandbox" not in {check.name for check in others}


def test_a_judge_that_cannot_tell_right_from_wrong_is_broken(monkeypatch):
    def unscored(self, program, entry_point, calls, limits, hash_seed=0):
        return ProgramRun(None, "down", [Answer(AnswerKind.UNSCORED, detail="down") for _ in calls])

    monkeypatch.setattr(LocalSandbox, "run", unscored)
    (check,) = sandbox_checks()
    assert check.status is Health.BROKEN
    assert "right program: unscored, not passed" in check.detail


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["train", "--recipe", "tiny"], 3),
        (["judge", "rows.jsonl"], 3),
        (["sandbox", "check"], 3),
        (["sandbox", "bench"], 3),
        (["eval-tests", "mine.py", "--model", "builtin:tiny", "--max-new-tokens", "9"], 3),
        (["make-pairs", "problems.jsonl", "--role", "code", "--out", "pairs"], 3),
        (["prepare-data", "folder", "--out", "out"], 3),
        (["train", "--recipe", "tiny", "--dry-run"], 0),
        (["plan", "--recipe", "tiny"], 0),
        (["recipes", "list"], 0),
        (["runs", "list"], 0),
    ],
    ids=str,
)
def test_on_another_system_what_needs_linux_says_so_and_the_rest_works(call, tmp_path, monkeypatch, words, code):
    """The jail is Linux's, and training looks its processes up as Linux shows them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CODEA1_RUNS", str(tmp_path / "runs"))
    row = {"id": "1", "reference": "def f(x): return x", "candidate": "def f(x): return x", "entry_point": "f"}
    (tmp_path / "rows.jsonl").write_text(json.dumps({**row, "tests": ["assert f(1) == 1"]}) + "\n")
    (tmp_path / "folder").mkdir()
    for name in ("mine.py", "folder/mine.py"):
        (tmp_path / name).write_text('def f(x):\n    """Return x.\n\n    >>> f(1)\n    1\n    """\n    return x\n')
    shutil.copy(problems_path("train"), tmp_path / "problems.jsonl")
    monkeypatch.setattr("codea1_cli.environment.SYSTEM", "macOS")
    done = call(app, *words)
    assert done.code == code, done.err
    assert ("needs Linux, and this is macOS" in done.err) == (code == 3)
    assert ("docs/install.md" in done.err) == (code == 3)


def test_the_doctor_names_another_system(call, tmp_path, monkeypatch):
    for module in ("environment", "doctor"):
        monkeypatch.setattr(f"codea1_cli.{module}.SYSTEM", "macOS")
    done = call(doctor, "--runs", tmp_path)
    assert done.code == 3
    assert "training needs Linux and Python 3.11 or newer" in " ".join(done.out.split())
    assert "the local sandbox needs Linux, and this is macOS" in " ".join(done.out.split())
