"""`method: sft` and a warm-up through the whole command: pairs made of problems, an interrupt, a resume to the bit."""

import signal
import time
from pathlib import Path

import pytest

from tests.e2e.harness import Cli, comparable

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1200)]

SHARED = (
    "data.limit=6",  # so few that a warm-up makes the pairs of all
    "data.heldout=null",
    "train.threads=1",
    "judge.workers=1",
    "code.max_completion_tokens=64",
    "checkpoint.every=1",
)
GAME = (
    "method=golden-tests", "game.n_code=4", "train.max_steps=1", "train.problems_per_step=2", "preflight.problems=1", "preflight.samples=1",
)  # fmt: skip


def steps_of(cli: Cli, run: str) -> list[dict[str, object]]:
    return comparable([line for line in cli.metrics(run) if "eval" not in line])


def test_an_interrupted_warm_up_goes_on_to_the_bit_and_the_run_starts_from_it(cli: Cli, tmp_path: Path) -> None:
    sft = ("method=sft", "train.max_steps=4", "train.problems_per_step=4")
    whole = cli("train", "--recipe", "tiny", "--run", "pairs", *sft, *SHARED)
    assert whole.returncode == 0, whole.stderr
    assert "step 4/4  code loss " in whole.stderr
    assert "Mistake Book" not in whole.stderr
    exported = cli("export", "pairs", "--role", "code", "--to", str(tmp_path / "model"))
    assert exported.returncode == 0, exported.stderr

    warm = ("warmup.steps=4", "warmup.pairs_per_step=4")
    part = cli.start("train", "--recipe", "tiny", "--run", "warmed", *warm, *GAME, *SHARED)
    begun = cli.path("warmed") / "warmup" / "metrics.jsonl"
    deadline = time.monotonic() + 600
    while not begun.is_file() and time.monotonic() < deadline:
        assert part.poll() is None, cli.log_of(part)
        time.sleep(0.05)
    part.send_signal(signal.SIGINT)
    assert part.wait(timeout=600) == 130, cli.log_of(part)
    assert not (cli.path("warmed") / "run.json").exists()

    resumed = cli("train", "--run", "warmed", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "step 1/1  code reward " in resumed.stderr
    assert steps_of(cli, "warmed/warmup") == steps_of(cli, "pairs")
    weights = [
        (cli.path(run) / "model.safetensors").read_bytes()
        for run in ("pairs/checkpoints/latest/code", "warmed/warmup/model/code")
    ]
    assert weights[0] == weights[1]
    assert f"code policy {cli.path('warmed') / 'warmup' / 'model' / 'code'} on CPU" in resumed.stderr
    assert "model: builtin:tiny" in (cli.path("warmed") / "recipe.yaml").read_text()
    assert cli("runs", "show", "warmed").returncode == 0
    again = cli("train", "--run", "warmed", "--resume", "train.max_steps=2", "--dry-run")
    assert again.returncode == 0, again.stderr
    assert "pairs" not in again.stdout.partition("warm-up")[0]


def test_an_interrupted_warm_up_of_two_policies_ends_at_once_whoever_is_quicker(cli: Cli) -> None:
    warm = ("warmup.steps=60", "warmup.pairs_per_step=4", "checkpoint.every=50", "train.max_steps=1", "--no-preflight")
    part = cli.start("train", "--recipe", "tiny", "--run", "two", *SHARED[:-1], *warm)
    lines = cli.path("two") / "warmup" / "metrics.jsonl"
    deadline = time.monotonic() + 600
    while (not lines.is_file() or lines.read_text().count("\n") < 3) and time.monotonic() < deadline:
        assert part.poll() is None, cli.log_of(part)
        time.sleep(0.02)
    seen = len(steps_of(cli, "two/warmup"))
    part.send_signal(signal.SIGINT)
    assert part.wait(timeout=600) == 130, cli.log_of(part)
    assert len(steps_of(cli, "two/warmup")) <= seen + 10, "a few steps pass until the signal is heard"
    assert not (cli.path("two") / "run.json").exists()
