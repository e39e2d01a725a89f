"""Several Ray nodes on one host judge together, and the loss of one loses no job."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partialmethod

import pytest

from codea1_cli.sandbox.base import Limits
from codea1_cli.sandbox.cluster import ClusterSandbox
from codea1_cli.sandbox.make import SandboxOptions
from codea1_cli.sandbox.verdicts import AnswerKind

SQUARE = "import time\ndef f(n):\n    time.sleep(0.02)\n    return n * n\n"


@pytest.fixture
def cluster(monkeypatch):
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    from ray.cluster_utils import Cluster

    waits = partialmethod(Cluster._wait_for_node, timeout=200)  # half a minute is little on a busy machine
    monkeypatch.setattr(Cluster, "_wait_for_node", waits)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.extra = made.add_node(num_cpus=1)
    import ray

    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_lost_node_loses_no_job(cluster):
    sandbox = ClusterSandbox(SandboxOptions(workers=1))
    assert len(sandbox.nodes) == 2
    assert sandbox.workers == 2
    done, halfway = Counter(), threading.Event()

    def job(n):
        run = sandbox.run(SQUARE, "f", [f"f({n})"], Limits(time_s=20))
        done[n] += 1
        if len(done) == 20:
            halfway.set()
        return run

    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(job, n) for n in range(60)]
        assert halfway.wait(300)
        cluster.remove_node(cluster.extra)
        answers = [future.result(timeout=300).answers[0] for future in runs]
    assert [answer.value.data if answer.value else answer for answer in answers] == [n * n for n in range(60)]
    assert set(done.values()) == {1}
    assert len(sandbox.nodes) == 1
    sandbox.close()
    after = sandbox.run(SQUARE, "f", ["f(2)"], Limits())
    assert after.loaded is None
    assert after.answers[0].kind is AnswerKind.UNSCORED
