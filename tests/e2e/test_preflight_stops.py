"""A run that would teach nothing stops before its first step and says which keys to change."""

import json

import pytest

from tests.e2e.harness import SMALL, Cli, alive_of, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("e2e-apart")]


def test_clipped_replies_stop_the_run_with_advice(cli: Cli) -> None:
    settings = [s for s in SMALL if not s.startswith("code.max_completion_tokens")]
    done = cli("train", "--recipe", "tiny", "--run", "clipped", *settings, "code.max_completion_tokens=6")
    assert done.returncode == 2, done.stderr
    assert (
        "error: before the first step: 8 of 8 code replies do not end within code.max_completion_tokens=6"
        in done.stderr
    )
    assert "hint: raise code.max_completion_tokens" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    seen = json.loads((cli.path("clipped") / "preflight.json").read_text())
    assert seen["code"]["clipped"] == seen["code"]["replies"] == 8
    assert len(seen["code"]["replies_seen"]) == 4
    assert not (cli.path("clipped") / "metrics.jsonl").exists()
    assert wait_for(lambda: not alive_of(cli.path("clipped")), 60.0), alive_of(cli.path("clipped"))

    # The same name takes the advice.
    done = cli("train", "--recipe", "tiny", "--run", "clipped", *SMALL, "--max-steps", "1")
    assert done.returncode == 0, done.stderr
    assert "run clipped had not come to its first step: it begins anew with this recipe" in done.stderr
    assert "step 1/1 of 6" in done.stderr or "step 1/" in done.stderr
    assert [line["step"] for line in cli.metrics("clipped")] == [1]
