"""A run on a Ray cluster of two nodes, on one host: ranks on both, and the same rewards as on one node."""

import json
import os
from collections.abc import Iterator

import pytest
from harness import SMALL, Cli, comparable

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("e2e")]  # one process: they share runs

TWO_RANKS = [
    *(s for s in SMALL if not s.startswith("train.max_steps")),
    "train.max_steps=2",
    "code.ranks=2",
    "test.ranks=2",
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster of two nodes, with two CPUs each."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        nodes.add_node(num_cpus=2)
        nodes.wait_for_nodes()
        yield nodes.address
    finally:
        nodes.shutdown()


def test_two_nodes_give_the_rewards_of_one(cli: Cli, cluster: str) -> None:
    alone = cli("train", "--recipe", "tiny", "--run", "one-node", *TWO_RANKS)
    assert alone.returncode == 0, alone.stderr
    spread = cli("train", "--recipe", "tiny", "--run", "two-nodes", *TWO_RANKS, "--address", cluster)
    assert spread.returncode == 0, spread.stderr
    assert "cluster of 2 nodes" in spread.stderr
    assert comparable(cli.metrics("two-nodes")) == comparable(cli.metrics("one-node"))
    devices = json.loads((cli.path("two-nodes") / "run.json").read_text())["devices"]
    for role in ("code", "test"):
        assert devices[f"{role}[0]"] != devices[f"{role}[1]"], "the ranks of a policy lie on different nodes"
    logs = {path.name for path in (cli.path("two-nodes") / "logs").iterdir()}
    assert {"code-0.log", "code-1.log", "test-0.log", "test-1.log"} <= logs


def test_a_cluster_that_is_not_there_is_one_error(cli: Cli) -> None:
    done = cli("train", "--recipe", "tiny", "--run", "nowhere", *SMALL, "--address", "127.0.0.1:1")
    assert done.returncode == 3
    assert done.stderr.startswith("error: no Ray cluster answers at 127.0.0.1:1")
    assert "Traceback" not in done.stderr
    assert not cli.path("nowhere").exists()
