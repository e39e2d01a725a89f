"""`train.precision=auto`: bf16 only where the hardware computes in it, and the same for the whole of a run."""

import pytest

from codea1_cli.planning import gpu_assignment as devices
from codea1_cli.recipe.files import load_recipe


@pytest.mark.parametrize(
    ("line", "can"),
    [
        ("flags\t\t: fpu sse avx2 avx512f avx512_bf16 amx_tile", True),
        ("flags\t\t: fpu amx_bf16", True),
        ("Features\t: fp asimd bf16 i8mm", True),
        ("flags\t\t: fpu sse avx avx2 avx512f", False),
        ("model name\t: bf16", False),
    ],
)
def test_a_cpus_flags_tell(tmp_path, line, can):
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor\t: 0\n{line}\n\n")
    assert devices.computes_bf16(str(file)) is can


def test_without_flags_to_read_a_cpu_has_none(tmp_path):
    assert devices.computes_bf16(str(tmp_path / "nothing")) is False


@pytest.mark.parametrize(
    ("wish", "on_gpu", "cpu_can", "found"),
    [
        ("auto", True, False, "bf16"),
        ("auto", False, True, "bf16"),
        ("auto", False, False, "fp32"),
        ("bf16", False, False, "bf16"),
        ("fp32", True, True, "fp32"),
    ],
)
def test_what_is_asked_for_stands_and_auto_is_settled(monkeypatch, wish, on_gpu, cpu_can, found):
    monkeypatch.setattr(devices, "computes_bf16", lambda: cpu_can)
    recipe = load_recipe("tiny", [f"train.precision={wish}"])
    assert devices.settle_precision(recipe, on_gpu).train.precision == found


def test_the_shipped_recipes_leave_it_to_the_hardware():
    assert load_recipe("tiny").train.precision == load_recipe("1.5b").train.precision == "auto"
