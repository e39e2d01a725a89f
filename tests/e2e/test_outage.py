"""The sandbox service goes away in the middle of a run: what was learned is saved, and the run goes on from there."""

import pytest

from tests.e2e.harness import SMALL, Cli, wait_for
from tests.sandbox.fusion_standin import stand_in

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("e2e")]  # one process: they share runs


def test_an_outage_saves_exits_3_and_can_be_resumed(cli: Cli, whole: str) -> None:
    with stand_in() as service:
        settings = [*(s for s in SMALL if not s.startswith(("checkpoint", "train.max_steps")))]
        settings += ["checkpoint.every=50", "train.max_steps=4"]
        process = cli.start(
            "train",
            "--recipe",
            "tiny",
            "--run",
            "outage",
            *settings,
            "sandbox.backend=fusion",
            f"sandbox.endpoint={service.url}",
            "sandbox.patience_s=5",
        )
        metrics = cli.path("outage") / "metrics.jsonl"
        assert wait_for(lambda: metrics.is_file() and metrics.read_text().count("\n") >= 1)
        service.fail("busy")
        assert process.wait(timeout=500) == 3
        step = len(cli.metrics("outage"))
        latest = (cli.path("outage") / "checkpoints" / "latest").resolve()
        assert latest.name == f"step-{step:06d}", "the last finished step is saved, though no checkpoint was due"
        service.fail("", 0)
        resumed = cli("train", "--run", "outage", "--resume")
        assert resumed.returncode == 0, resumed.stderr
    for ours, undisturbed in zip(cli.metrics("outage"), cli.metrics(whole)[:4], strict=True):
        assert ours["code"] == undisturbed["code"]
        assert ours["test"] == undisturbed["test"]
