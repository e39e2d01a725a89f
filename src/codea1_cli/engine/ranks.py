"""Where each rank runs: one spec per rank, the order in which they come up, and the nodes of a Ray cluster that
somebody else started.

On such a cluster a rank is placed by name, so Ray's own scheduling has no say; the cluster is best this run's alone.
"""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from codea1_cli.engine.cluster import connect, free_ports, lets_anybody_in
from codea1_cli.environment import cores, rank_environment
from codea1_cli.errors import EnvironmentFault, UserError
from codea1_cli.methods.registry import method_of
from codea1_cli.planning.gpu_assignment import Gpu, GpuAssignment, physical_gpus, visible_gpus
from codea1_cli.recipe.schema import Recipe
from codea1_cli.runs.run_dir import RunDir

_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Node:
    """One node: Ray's id of it, its address, and what it offers. The driver's own node comes first in a list.

    asks_for_token: whether its cluster answers only who shows a token. interpreter: the path of its Python.
    """

    id: str
    host: str
    cores: int
    gpus: tuple[Gpu, ...] = ()
    asks_for_token: bool = True
    interpreter: str = sys.executable


def survey(address: str) -> list[Node]:
    """The nodes of the cluster at `address`.

    GPUs are numbered through, the driver's node first, and each knows its node.

    Raises:
        UserError: an address of Ray's client, through which files and processes cannot be reached.
        EnvironmentFault: no cluster answers, or its nodes have another codea1 or Python.
    """
    if address.startswith("ray://"):
        raise UserError(
            "--address takes the address of the cluster's head, not of Ray's client",
            hint="start it on one of the nodes, with --address auto or --address HOST:6379",
        )
    with connect(address) as ray:
        closed = not lets_anybody_in(ray.get_runtime_context().gcs_address)
        own = ray.get_runtime_context().get_node_id()
        alive = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        alive.sort(key=lambda node: (node["NodeID"] != own, node["NodeManagerAddress"], node["NodeID"]))
        probes = {node["NodeID"]: on_node(ray, node["NodeID"], _probe) for node in alive}
        try:
            found = dict(zip(probes, ray.get(list(probes.values()), timeout=_PATIENCE_S), strict=True))
        except Exception as error:
            raise EnvironmentFault(
                f"the cluster at {address} runs no task of ours: "
                f"{(str(error).strip() or type(error).__name__).splitlines()[-1]}",
                hint="each node needs the same Python and codea1, and free CPUs",
            ) from error
    _same_software(alive, found)
    nodes: list[Node] = []
    for node in alive:
        first = sum(len(other.gpus) for other in nodes)
        host = node["NodeManagerAddress"]
        gpus = tuple(
            replace(gpu, logical=first + place, node=node["NodeID"], host=host)
            for place, gpu in enumerate(found[node["NodeID"]]["gpus"])
        )
        python = found[node["NodeID"]]["interpreter"]
        nodes.append(Node(node["NodeID"], host, int(node["Resources"]["CPU"]), gpus, closed, python))
    return nodes


def on_node(ray: Any, node: str, function: Any, *arguments: Any) -> Any:
    """A task on one node; returns its reference."""
    return ray.remote(num_cpus=0, scheduling_strategy=pinned(node), max_retries=0)(function).remote(*arguments)


def pinned(node: str) -> Any:
    """Ray's strategy that knows one node only."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node_id=node, soft=False)


def place(ranks: GpuAssignment, nodes: Sequence[Node]) -> dict[str, list[Node]]:
    """Each rank's node: its GPU's, or in equal blocks over all nodes for ranks on CPUs."""
    by_id = {node.id: node for node in nodes}
    return {
        policy: [
            by_id[gpu.node] if gpu is not None else nodes[rank * len(nodes) // len(group)]
            for rank, gpu in enumerate(group)
        ]
        for policy, group in ranks.items()
    }


def check_shared(ray: Any, nodes: Sequence[Node], folder: Path) -> None:
    """Raises EnvironmentFault when a node does not see the run directory, where ranks write logs and checkpoints."""
    token = uuid.uuid4().hex
    file = folder / f".seen-{token}"
    file.write_text(token, encoding="utf-8")
    try:
        others = {node.id: node for node in nodes}
        seen = {name: on_node(ray, name, _sees, str(file), token) for name in others}
        blind = [others[name].host for name, ref in seen.items() if not ray.get(ref, timeout=_PATIENCE_S)]
    finally:
        with contextlib.suppress(OSError):
            file.unlink()
    if blind:
        raise EnvironmentFault(
            f"the run directory {folder} cannot be written on {', '.join(blind)}",
            hint="put runs on a file system that all nodes share: --runs DIR",
        )


def _sees(file: str, token: str) -> bool:
    try:
        return Path(file).read_text(encoding="utf-8") == token and os.access(Path(file).parent, os.W_OK)
    except OSError:
        return False


def _probe() -> dict[str, Any]:
    """What a node has. Ray hides GPUs from a task that asks for none; its parent process knows which were offered."""
    environment: Mapping[str, str] = {}
    with contextlib.suppress(OSError):
        pairs = Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
        environment = dict(pair.decode(errors="replace").split("=", 1) for pair in pairs if b"=" in pair)
    return {"gpus": visible_gpus(physical_gpus(), environment), "interpreter": sys.executable, **_software()}


def _software() -> dict[str, str]:
    from codea1_cli import __version__

    return {"codea1": __version__, "python": f"{sys.version_info.major}.{sys.version_info.minor}"}


def _same_software(alive: Sequence[dict[str, Any]], found: Mapping[str, dict[str, Any]]) -> None:
    for node in alive:
        for name, version in _software().items():
            theirs = found[node["NodeID"]][name]
            if theirs != version:
                raise EnvironmentFault(
                    f"node {node['NodeManagerAddress']} has {name} {theirs}, here it is {version}",
                    hint="install the same environment on every node",
                )


def meeting_points(ray: Any, placed: Mapping[str, Sequence[Node]]) -> dict[str, tuple[str, int]]:
    """Where the ranks of each policy meet: rank 0's address and a port that is free there, another for each policy."""
    policies = list(placed)
    ports = {
        policy: ray.get(on_node(ray, placed[policy][0].id, free_ports, len(policies)), timeout=_PATIENCE_S)[number]
        for number, policy in enumerate(policies)
    }
    return {policy: (placed[policy][0].host, ports[policy]) for policy in policies}


def threads_on(node: Node, placed: Mapping[str, Sequence[Node]]) -> int:
    """CPU threads for each of the ranks on a node."""
    return cpu_threads(node.cores, sum(other.id == node.id for group in placed.values() for other in group))


def cpu_threads(cores: int, ranks: int) -> int:
    """The threads of each of so many ranks that share these cores.

    Two policies on two cores get both: while one samples the other mostly waits (a step of `tiny` takes a fifth less).
    """
    return max(cores // max(ranks, 1), min(cores, 2) if ranks == 2 else 1)


@dataclass(frozen=True)
class RankSpec:
    """Where one rank runs and what it belongs to."""

    policy: str
    rank: int
    ranks: int
    gpu: str | None  # physical id; None on a machine without GPUs
    threads: int
    master_port: int
    run_path: str
    use_vllm: bool
    node: str | None = None  # Ray's id of its node in a cluster that was given; None on this machine
    master_host: str = "127.0.0.1"  # where rank 0 is
    others: tuple[tuple[str, int], ...] = ()  # (policy, ranks) of the others on the same GPU

    @property
    def label(self) -> str:
        """As in `code[0]`: policy and number."""
        return f"{self.policy}[{self.rank}]"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that it is given."""
        return rank_environment(
            self.rank,
            self.ranks,
            gpu=self.gpu,
            threads=self.threads,
            master=(self.master_host, self.master_port),
            vllm=self.use_vllm,
            alone=self.node is None,
            run=Path(self.run_path),
        )


def rank_specs(
    recipe: Recipe, run: RunDir, ranks: dict[str, list[Gpu | None]], nodes: Sequence[Node] = (), ray: Any = None
) -> list[RankSpec]:
    """One spec per rank; each policy has its own port, because two trainers on one port collide."""
    threads = recipe.train.threads or cpu_threads(cores(), sum(map(len, ranks.values())))
    specs = []
    policies = method_of(recipe).policies
    placed = place(ranks, nodes) if nodes else {}
    if placed:
        meet = meeting_points(ray, placed)
    else:
        free = free_ports(len(policies))
        meet = {policy: ("127.0.0.1", port) for policy, port in zip(policies, free, strict=True)}
    for policy in policies:
        for rank, gpu in enumerate(ranks[policy]):
            others = [other for other in policies if other != policy and gpu is not None and gpu in ranks[other]]
            specs.append(
                RankSpec(
                    policy=policy,
                    rank=rank,
                    ranks=len(ranks[policy]),
                    gpu=gpu.physical if gpu else None,
                    threads=(recipe.train.threads or threads_on(placed[policy][rank], placed)) if placed else threads,
                    master_port=meet[policy][1],
                    run_path=str(run.path),
                    use_vllm=wants_vllm(recipe, gpu),
                    node=placed[policy][rank].id if placed else None,
                    master_host=meet[policy][0],
                    others=tuple((other, len(ranks[other])) for other in others),
                )
            )
    return specs


def build_order(specs: Sequence[RankSpec], recipe: Recipe) -> list[list[str]]:
    """The labels of the ranks that build together; the ranks of one policy need each other. Policies follow one another
    where they share a GPU, whose free memory a vLLM engine measures as it comes up, or where engines are compiled, into
    one cache."""
    compiles = recipe.sampling.vllm_compile and not recipe.sampling.vllm_eager
    if not any(spec.use_vllm and (spec.others or compiles) for spec in specs):
        return [[spec.label for spec in specs]]
    policies = dict.fromkeys(spec.policy for spec in specs)
    return [[spec.label for spec in specs if spec.policy == policy] for policy in policies]


def wants_vllm(recipe: Recipe, gpu: Gpu | None) -> bool:
    """Whether a rank on this GPU (None: on the CPU) samples with vLLM.

    Raises:
        EnvironmentFault: the recipe asks for vLLM, and it is not installed.
        UserError: the recipe asks for it where it cannot be.
    """
    from importlib.util import find_spec

    installed = find_spec("vllm") is not None
    if recipe.sampling.engine == "vllm" and not installed:
        raise EnvironmentFault(
            "sampling.engine=vllm, and vLLM is not installed",
            hint="`uv sync --extra vllm`, or sampling.engine=transformers",
        )
    if method_of(recipe).pairs:
        return False
    wanted = recipe.sampling.engine == "vllm" or (recipe.sampling.engine == "auto" and gpu is not None and installed)
    if recipe.train.sharding == "fsdp2" and not wanted:
        raise EnvironmentFault(
            "train.sharding=fsdp2 samples with vLLM, which is not installed or has no GPU here",
            hint="`uv sync --extra vllm` on a GPU machine, or train.sharding=ddp",
        )
    return wanted
