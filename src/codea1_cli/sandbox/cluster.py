"""The local backend on every node of a Ray cluster: more CPUs to judge with, and no job lost with a node.

A job is a pure question (program, calls, limits), so a job whose node died is simply asked again elsewhere; its answer
is taken once, by the caller that waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from codea1_cli.errors import EnvironmentFault
from codea1_cli.sandbox.base import Limits, ProgramRun
from codea1_cli.sandbox.make import SandboxOptions, make_local


class NodeSandbox:
    """A Ray actor: one node's local sandbox."""

    def __init__(self, options: SandboxOptions) -> None:
        self.sandbox = make_local(options)

    def layers(self) -> dict[str, str]:
        """Each layer of isolation with the reason why it is missing on this node, empty where it works."""
        return self.sandbox.layers

    def run(self, program: str, entry_point: str, calls: Sequence[str], limits: Limits, hash_seed: int) -> ProgramRun:
        """As `Sandbox.run`."""
        return self.sandbox.run(program, entry_point, calls, limits, hash_seed)


class ClusterSandbox:
    """A Sandbox over all nodes that are alive when it starts. Thread-safe; callers beyond the capacity wait.

    `options.workers` is per node; None takes each node's CPUs.

    Raises:
        EnvironmentFault: no node has a sandbox that starts.
    """

    def __init__(self, options: SandboxOptions) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._ray = ray
        self._nodes: dict[str, Any] = {}
        self._free: dict[str, int] = {}
        self._changed = threading.Condition()
        self.layers: dict[str, str] = {}
        for node in ray.nodes():
            cpus = int(node["Resources"].get("CPU", 0))
            if not node["Alive"] or not cpus:
                continue
            name, places = node["NodeID"], options.workers or cpus
            place = NodeAffinitySchedulingStrategy(node_id=name, soft=False)
            wish: dict[str, Any] = {"num_cpus": 0, "max_concurrency": places, "scheduling_strategy": place}
            self._nodes[name] = ray.remote(**wish)(NodeSandbox).remote(replace(options, workers=places))
            self._free[name] = places
        faults = []
        for name, actor in list(self._nodes.items()):
            try:
                for layer, fault in self._ray.get(actor.layers.remote()).items():
                    self.layers[layer] = self.layers.get(layer) or fault
            except Exception as error:
                faults.append(f"{name[:8]}: {error}")
                self._lose(name)
        if not self._nodes:
            raise EnvironmentFault(f"no node of the cluster has a sandbox that starts: {'; '.join(faults)[:500]}")
        self.workers = sum(self._free.values())

    @property
    def nodes(self) -> list[str]:
        """Ids of the nodes that still judge."""
        return list(self._nodes)

    def run(
        self, program: str, entry_point: str, calls: Sequence[str], limits: Limits, hash_seed: int = 0
    ) -> ProgramRun:
        """Runs a program on the least busy node; one that dies meanwhile is left out and the job goes elsewhere."""
        from ray.exceptions import RayError

        while (place := self._take()) is not None:
            name, actor = place
            try:
                return self._ray.get(actor.run.remote(program, entry_point, list(calls), limits, hash_seed))
            except RayError:
                self._lose(name)
            finally:
                self._give(name)
        return ProgramRun.unscored(len(calls), "the sandbox failed: no node is left")

    def _take(self) -> tuple[str, Any] | None:
        with self._changed:
            while self._free and max(self._free.values()) < 1:
                self._changed.wait()
            if not self._free:
                return None
            name = max(self._free, key=lambda node: self._free[node])
            self._free[name] -= 1
            return name, self._nodes[name]

    def _give(self, name: str) -> None:
        with self._changed:
            if name in self._free:
                self._free[name] += 1
            self._changed.notify_all()

    def _lose(self, name: str) -> None:
        with self._changed:
            self._free.pop(name, None)
            self._nodes.pop(name, None)
            self._changed.notify_all()

    def close(self) -> None:
        """Ends every node's sandbox."""
        for actor in self._nodes.values():
            self._ray.kill(actor)
        self._nodes, self._free = {}, {}
