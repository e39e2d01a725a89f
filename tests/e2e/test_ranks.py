"""A policy on two ranks, also of two nodes, plays the game that it plays on one: nothing is lost between them."""

import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.e2e.harness import HOSTILE, SMALL, Cli, comparable, wait_for
from tests.e2e.strangers import check_closed

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("e2e-ranks")]

# Sampled by prompt, a reply does not depend on the rank; a step that teaches next to nothing keeps the policies equal.
SAME_REPLIES = (
    "sampling.engine=transformers",
    "sampling.seed_by_prompt=true",
    "optim.learning_rate=1e-12",
    "train.max_steps=2",
    "train.updates_per_step=1",
    "game.update_n=2",
)


def rows(run: Path, step: int) -> list[dict[str, object]]:
    table = pq.read_table(run / "rollouts" / f"step-{step:06d}.parquet").to_pylist()
    return sorted(table, key=repr)


def events(run: Path) -> list[tuple[object, ...]]:
    with sqlite3.connect(run / "mistakes.sqlite") as database:
        return sorted(database.execute("SELECT step, problem_id, test, change, candidate FROM events"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a Ray cluster of two nodes, on this host, with two CPUs each."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        nodes.add_node(num_cpus=2)
        nodes.wait_for_nodes()
        yield nodes.address
    finally:
        nodes.shutdown()


@pytest.fixture(scope="module")
def rank(cli: Cli) -> str:
    """A run of two policies with one rank each."""
    done = cli("train", "--recipe", "tiny", "--run", "rank", *SMALL, *SAME_REPLIES)
    assert done.returncode == 0, done.stderr
    return "rank"


@pytest.mark.slow
def test_two_ranks_a_side_give_the_rewards_the_book_and_the_selection_of_one(
    cli: Cli, rank: str, cluster: str, tmp_path: Path
) -> None:
    """The first step on two nodes, the second on one, after a resume in a hostile shell, in a folder whose name is not
    ASCII: both are those of one rank. The ranks listen on loopback only."""
    (tmp_path / "dé").mkdir()
    there = Cli(tmp_path / "dé")
    run = there.path("hé")
    two = ("code.ranks=2", "test.ranks=2")
    first = there(
        "train", "--recipe", "tiny", "--run", "hé", *SMALL, *SAME_REPLIES, *two, "--max-steps", "1",
        "--address", cluster,
    )  # fmt: skip
    assert first.returncode == 0, first.stderr
    assert "cluster of 2 nodes" in first.stderr
    assert "next: codea1 train --run 'hé' --resume" in first.stderr
    devices = json.loads((run / "run.json").read_text())["devices"]
    for role in ("code", "test"):
        assert devices[f"{role}[0]"] != devices[f"{role}[1]"], "the ranks of a policy lie on different nodes"
    logs = {path.name for path in (run / "logs").iterdir()}
    assert {"code-0.log", "code-1.log", "test-0.log", "test-1.log"} <= logs

    phases = run / "phases.json"
    phases.unlink(missing_ok=True)  # what the first told
    second = there.start("train", "--run", "hé", "--resume", env=HOSTILE, umask=0o777)
    assert wait_for(lambda: phases.is_file() and '["sampling", 2,' in phases.read_text()), there.log_of(second)
    second.send_signal(signal.SIGSTOP)  # the driver, without which the run does not end
    try:
        check_closed(run)
    finally:
        second.send_signal(signal.SIGCONT)
        second.wait(timeout=500)
    assert second.returncode == 0, there.log_of(second)
    assert [line["step"] for line in there.metrics("hé")] == [1, 2]
    for step in (1, 2):
        assert rows(cli.path(rank), step) == rows(run, step), f"step {step}"
        assert any(row.get("selected") for row in rows(cli.path(rank), step))
    assert events(cli.path(rank))
    assert events(cli.path(rank)) == events(run)


@pytest.mark.slow
def test_one_policy_in_both_roles_plays_the_game_of_two_on_any_number_of_ranks(cli: Cli, rank: str) -> None:
    """Before anything is learnt it gives the candidates, suites, rewards and the selection of the two."""
    both = ("method=self-play", "code.ranks=2", "--max-steps", "1")
    done = cli("train", "--recipe", "tiny", "--run", "both-roles", *SMALL, *SAME_REPLIES, *both)
    assert done.returncode == 0, done.stderr
    assert rows(cli.path(rank), 1) == rows(cli.path("both-roles"), 1)
    before, (after,) = cli.metrics(rank)[0], cli.metrics("both-roles")
    assert comparable([before])[0]["arena"] == comparable([after])[0]["arena"]
    for role in ("code", "test"):
        for figure in ("reward", "reward_std", "completion_tokens", "clipped_share"):
            assert before[role][figure] == pytest.approx(after[role][figure], rel=1e-5)


def test_a_cluster_that_is_not_there_is_one_error(cli: Cli) -> None:
    done = cli("train", "--recipe", "tiny", "--run", "nowhere", *SMALL, "--address", "127.0.0.1:1")
    assert done.returncode == 3
    assert [line[:46] for line in done.stderr.splitlines() if "error" in line] == [
        "error: no Ray cluster answers at 127.0.0.1:1: "
    ]
    assert "Traceback" not in done.stderr
    assert not cli.path("nowhere").exists()
